//! A variant of a pair as a program: built, inspected, and stepped by gdb.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use unspool_rows::Arch;

use super::pair::{Pair, folder};
use crate::readelf::{DumpHeader, DumpItem, Readelf, ReadelfForm};
use crate::{Error, packages, programs};

/// One of the two variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The table is right.
    Right,
    /// The table is wrong.
    Wrong,
}

impl Variant {
    /// The assembler option for it.
    #[must_use]
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Variant::Right => &[],
            Variant::Wrong => &["--defsym", "WRONG=1"],
        }
    }
}

/// A program, and the contents of its file.
#[derive(Debug)]
pub struct PairProgram {
    /// Its path.
    pub path: PathBuf,
    /// The addresses of all symbols.
    pub symbols: BTreeMap<String, u64>,
    /// The bytes of all sections with code.
    pub code: Vec<Vec<u8>>,
    /// The ranges of the entries of its unwind table, as `readelf` prints them.
    pub entries: Vec<Range<u64>>,
    /// The start addresses of rows.
    pub rows: BTreeSet<u64>,
    functions: String,
}

/// An instruction of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedInstruction {
    /// One past its last byte.
    pub end: u64,
    /// Its mnemonic, without prefixes.
    pub mnemonic: String,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct GdbRun {
    /// The instructions of all functions.
    pub instructions: BTreeMap<u64, TracedInstruction>,
    /// The executed ones.
    pub executed: BTreeSet<u64>,
    /// Addresses where the table is wrong, and how.
    pub differences: BTreeMap<u64, String>,
    /// Addresses at which a backtrace does not show the main function.
    pub without_caller: BTreeSet<u64>,
    /// The exit status.
    pub exit: String,
}

impl PairProgram {
    /// Builds one in a folder, with `assembler` and additional options for it.
    ///
    /// # Errors
    ///
    /// It does not assemble or link, or cannot be read.
    pub fn build(
        pair: &Pair,
        variant: Variant,
        to: &Path,
        assembler: &[&str],
    ) -> Result<PairProgram, Error> {
        PairProgram::build_with(pair, variant, to, assembler, |_| Ok(()))
    }

    /// The same with a change of the object file before it is linked.
    ///
    /// # Errors
    ///
    /// As for [`PairProgram::build`], and those of the change.
    pub fn build_with(
        pair: &Pair,
        variant: Variant,
        to: &Path,
        assembler: &[&str],
        change: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<PairProgram, Error> {
        let path = unspool_testing::scratch(to, &pair.name);
        let object = path.with_extension("o");
        let start = path.with_extension("start.o");
        assemble(&pair.path, &object, variant, assembler)?;
        change(&object)?;
        let driver = folder().join("driver/start.s");
        assemble(&driver, &start, Variant::Right, &["/usr/bin/as"])?;
        let mut link = Command::new(packages::path("/usr/bin/ld")?);
        link.args(["-z", "noexecstack", "--no-pie", "-o"])
            .arg(&path)
            .args([start, object]);
        programs::stdout(&mut link)?;
        PairProgram::read(path)
    }

    fn read(path: PathBuf) -> Result<PairProgram, Error> {
        let data = fs::read(&path)?;
        let file = object::File::parse(&*data)?;
        let mut symbols = BTreeMap::new();
        let mut functions = String::new();
        for symbol in file.symbols() {
            let name = symbol.name()?;
            symbols.insert(name.to_owned(), symbol.address());
            if symbol.kind() == SymbolKind::Text && symbol.size() > 0 {
                let (address, size) = (symbol.address(), symbol.size());
                functions.push_str(&format!("{name} {address:x} {size}\n"));
            }
        }
        let code = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .map(|section| Ok(section.data()?.to_vec()))
            .collect::<Result<_, Error>>()?;
        let (entries, rows) = table(&path)?;
        Ok(PairProgram {
            path,
            symbols,
            code,
            entries,
            rows,
            functions,
        })
    }

    /// The address of a label.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn label(&self, name: &str) -> Result<u64, Error> {
        let address = self.symbols.get(name).copied();
        Ok(address.ok_or_else(|| format!("there is no label `{name}`"))?)
    }

    /// The name of an address.
    #[must_use]
    pub fn name(&self, address: u64) -> String {
        let names = self.symbols.iter().filter(|(_, at)| **at == address);
        let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            format!("{address:#x}")
        } else {
            names.join("/")
        }
    }

    /// Makes gdb step it from its main function to its end.
    ///
    /// # Errors
    ///
    /// gdb is missing or fails.
    pub fn step(&self, pair: &Pair) -> Result<GdbRun, Error> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/corpus/step.py");
        let mut functions = self.functions.clone();
        for label in &pair.called {
            let address = self.label(label)?;
            functions.push_str(&format!("{label} {address:x} 0\n"));
        }
        let mut gdb = Command::new(packages::path("/usr/bin/timeout")?);
        gdb.arg("60")
            .arg(packages::path("/usr/bin/gdb")?)
            .args(["-nx", "-batch", "-x"])
            .args([&script, &self.path])
            .env("LC_ALL", "C")
            .env_remove("DEBUGINFOD_URLS")
            .env("STEP_FUNCTIONS", functions)
            .env("STEP_OUTERMOST", pair.outermost.join(" "))
            .env("STEP_LINKED", pair.linked.join(" "));
        let run = GdbRun::parse(&programs::stdout(&mut gdb)?)?;
        match run.exit.as_str() {
            "" => Err(format!("gdb does not come to an end: {gdb:?}").into()),
            _ => Ok(run),
        }
    }
}

impl GdbRun {
    /// Parses the output of `step.py`; the rest is from gdb itself.
    fn parse(text: &str) -> Result<GdbRun, Error> {
        let mut run = GdbRun::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (first, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            match kind {
                "insn" => drop(run.executed.insert(address(first)?)),
                "lost" => drop(run.without_caller.insert(address(first)?)),
                "code" => {
                    let start = address(first)?;
                    let (length, mnemonic) = rest.split_once(' ').ok_or("no mnemonic")?;
                    let end = start.wrapping_add(length.parse()?);
                    let mnemonic = mnemonic.to_owned();
                    run.instructions
                        .insert(start, TracedInstruction { end, mnemonic });
                }
                "diff" => drop(
                    run.differences
                        .entry(address(first)?)
                        .or_insert_with(|| rest.to_owned()),
                ),
                "exit" => run.exit = first.to_owned(),
                _ => {}
            }
        }
        Ok(run)
    }
}

fn address(text: &str) -> Result<u64, Error> {
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}

fn assemble(source: &Path, to: &Path, variant: Variant, assembler: &[&str]) -> Result<(), Error> {
    let (program, options) = assembler.split_first().ok_or("no assembler")?;
    let mut command = Command::new(program);
    command
        .args(options)
        .args(variant.options())
        .arg("-o")
        .args([to, source]);
    programs::stdout(&mut command)?;
    Ok(())
}

/// The ranges of a file's entries, and the start addresses of its rows.
fn table(path: &Path) -> Result<(Vec<Range<u64>>, BTreeSet<u64>), Error> {
    let (mut entries, mut rows) = (Vec::new(), BTreeSet::new());
    let mut readelf = Readelf::start(path, ReadelfForm::Rows, Arch::X86_64)?;
    while let Some(item) = readelf.next_item()? {
        let DumpItem::Entry(entry) = item else {
            continue;
        };
        if let DumpHeader::Fde { start, end, .. } = entry.header {
            entries.push(start..end);
            rows.extend(entry.rows.iter().map(|row| row.at));
        }
    }
    Ok((entries, rows))
}
