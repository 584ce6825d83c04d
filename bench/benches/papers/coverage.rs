//! What the forms have of the tables of all files.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use unspool_bench::eh_elf::EhElf;
use unspool_elf::ElfFile;
use unspool_native_table::Outline;
use unspool_rows::Table;
use unspool_table_store::{self as tables, FileStats, TableSource};

/// Counts of all files.
#[derive(Default)]
struct Coverage {
    files: u64,
    instructions: u64,
    rows: u64,
    bytes: u64,
    compact_bytes: u64,
    native_bytes: u64,
    forms: [Form; 3],
}

/// What one form lacks.
#[derive(Default)]
struct Form {
    files: u64,
    rows: u64,
}

/// Prints the coverage of all ELF files with tables below these folders.
pub(crate) fn print(folders: &[&str]) -> anyhow::Result<()> {
    let mut coverage = Coverage::default();
    let mut seen = HashSet::new();
    for folder in folders {
        coverage.add_folder(Path::new(folder), &mut seen)?;
    }
    println!(
        "| {} files, {} instructions, {} rows | eh_elf | compact | native |",
        coverage.files, coverage.instructions, coverage.rows
    );
    println!("|---|---|---|---|");
    let line = |title: &str, cell: &dyn Fn(&Form) -> String| {
        let cells: Vec<String> = coverage.forms.iter().map(cell).collect();
        println!("| {title} | {} |", cells.join(" | "));
    };
    line("files with rows that the form lacks", &|form| {
        form.files.to_string()
    });
    line("rows that it has", &|form| {
        let has = coverage.rows - form.rows;
        let share = 100.0 * unspool_bench::share(has, coverage.rows);
        format!("{has}, {share:.3} %")
    });
    println!(
        "| growth | (of the files above) | {:.2} | {:.2} |",
        unspool_bench::share(coverage.compact_bytes, coverage.bytes),
        unspool_bench::share(coverage.native_bytes, coverage.bytes)
    );
    Ok(())
}

impl Coverage {
    fn add_folder(&mut self, folder: &Path, seen: &mut HashSet<(u64, u64)>) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_folder(&path, seen)?;
            } else if kind.is_file() {
                let about = entry.metadata()?;
                if seen.insert((about.dev(), about.ino())) {
                    self.add(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a file, unless it is not an ELF file with an unwind table for a processor of this kind.
    fn add(&mut self, path: &Path) -> anyhow::Result<()> {
        let Ok(file) = ElfFile::open(path) else {
            return Ok(());
        };
        if file.abi() != unspool_rows::Abi::X86_64 {
            return Ok(());
        }
        let Ok(made) = tables::compile(&file, TableSource::Auto) else {
            return Ok(());
        };
        let table = &made.source.table;
        let stats = FileStats::from_file(&file, &made.source, Some(&made.encoded))?;
        self.files += 1;
        self.instructions += stats.instructions.sum();
        self.rows += stats.rows;
        self.bytes += stats.section_bytes;
        self.compact_bytes += stats.table_bytes();
        self.native_bytes += stats.native_bytes;
        let unread = made.source.problems.len() as u64;
        let lacking = [
            EhElf::from_table(table)?.failed_rows as u64 + unread,
            stats.unrepresentable_rows + unread,
            not_compiled(table) + unread,
        ];
        for (form, lacking) in self.forms.iter_mut().zip(lacking) {
            form.rows += lacking;
            form.files += u64::from(lacking > 0);
        }
        Ok(())
    }
}

/// Rows that native code leaves to the interpreter.
fn not_compiled(table: &Table) -> u64 {
    let Ok(outline) = Outline::from_table(table) else {
        return table.row_count() as u64;
    };
    let numbers: HashSet<_> = outline.uncompiled_rows().collect();
    let starts = outline.starts();
    let lacking = starts.filter(|start| start.row.is_some_and(|row| numbers.contains(&row)));
    lacking.count() as u64
}
