//! The part of `.eh_frame` that SFrame can express, in many files, its correctness, and its size.
//!
//! `cargo bench -p unspool-bench --bench sframe -- [FILE|FOLDER…]`. Without arguments: `/usr/bin`,
//! `/usr/sbin`, `/usr/lib` and `/usr/libexec`. Each file is counted once, by its build ID or
//! contents.
//!
//! Every file's rows are written as version 2 and 3 and read back. Both tables are queried at the
//! first and the last address of every range in which neither changes. The interpreter must find
//! the same CFA, return address, stack and frame pointer by the file's own row and by the row that
//! was read back. Otherwise the address must be among the refused ones, with a reason.
#![expect(
    clippy::print_stdout,
    reason = "a measurement prints, and stops at a bug"
)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use unspool_bench::share;
use unspool_cfi::sframe::{self, SframeAbi, SframeImage, SframeVersion};
use unspool_compiled_table::TablePart;
use unspool_elf::ElfFile;
use unspool_rows::diff::for_each_range;
use unspool_rows::interpret::{FrameContext, step};
use unspool_rows::{
    LoadBias, Memory, Register, Registers, Row, RowId, RuntimeAddr, Table, Unreadable, Vaddr,
};
use unspool_table_store::{self as tables, TableSource};

fn main() -> anyhow::Result<()> {
    let given = std::env::args_os().skip(1).filter(|arg| arg != "--bench");
    let mut roots: Vec<PathBuf> = given.map(PathBuf::from).collect();
    if roots.is_empty() {
        let usual = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec"];
        roots = usual.map(PathBuf::from).into();
    }
    let mut totals = SframeTotals::default();
    for root in roots {
        visit(&root, &mut totals)?;
    }
    totals.print();
    Ok(())
}

/// Measures a file, or the files below a folder.
fn visit(path: &Path, totals: &mut SframeTotals) -> anyhow::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut entries = entries.collect::<anyhow::Result<Vec<_>>>()?;
        entries.sort();
        return entries.iter().try_for_each(|path| visit(path, totals));
    }
    if !metadata.is_file() {
        return Ok(());
    }
    let Ok(file) = ElfFile::open(path) else {
        return Ok(());
    };
    match SframeAbi::from_abi(file.abi()) {
        Some(machine) => totals
            .add(&file, machine)
            .with_context(|| path.display().to_string()),
        None => Ok(()),
    }
}

#[derive(Debug, Default)]
struct SframeTotals {
    seen: HashSet<Vec<u8>>,
    files: usize,
    entries: usize,
    plain: usize,
    flexible: usize,
    incomplete: usize,
    unrepresentable: BTreeMap<String, usize>,
    compared: usize,
    source: u64,
    hdr: u64,
    bytes: BTreeMap<&'static str, u64>,
    /// The ratio of the compiled table's bytes to those of version 3, for each file.
    small: Vec<(f64, PathBuf)>,
    large: Vec<(f64, PathBuf)>,
}

impl SframeTotals {
    fn add(&mut self, file: &ElfFile, abi: SframeAbi) -> anyhow::Result<()> {
        let Ok(reading) = tables::read(file, TableSource::EhFrame) else {
            return Ok(());
        };
        let key = format!("{:?}", file.content_key()).into_bytes();
        if reading.table.fdes().is_empty() || !self.seen.insert(key) {
            return Ok(());
        }
        let table = &reading.table;
        let section = Vaddr(table.fdes().iter().map(|fde| fde.end.0).max().unwrap_or(0));
        let section = Vaddr(section.0.next_multiple_of(4096));
        let mut length = 0;
        for version in [SframeVersion::V2, SframeVersion::V3] {
            let converted = sframe::functions(table, abi, version);
            let written = SframeImage::new(&converted.functions, abi, version)?;
            if file.kind() != unspool_elf::ElfKind::Relocatable || version == SframeVersion::V3 {
                let bytes = written.bytes_at(section)?;
                let back = sframe::read(&bytes, section, abi);
                anyhow::ensure!(back.problems.is_empty(), "{:?}", back.problems.first());
                anyhow::ensure!(back.disorder(1).is_empty(), "{:?}", back.disorder(1));
                let (back, problems) = sframe::table(&back.functions, abi);
                anyhow::ensure!(problems.is_empty(), "{:?}", problems.first());
                self.compared += compare(table, &back, &converted.unrepresentable)?;
            }
            if version == SframeVersion::V3 {
                length = written.len() as u64;
                self.plain += converted.plain;
                self.flexible += converted.flexible;
                self.incomplete += converted.incomplete;
                let mut whys: BTreeSet<_> = BTreeSet::new();
                for refused in &converted.unrepresentable {
                    if whys.insert((refused.origin, refused.reason)) {
                        *self
                            .unrepresentable
                            .entry(refused.reason.to_string())
                            .or_default() += 1;
                    }
                }
                let entries = converted.plain + converted.flexible + converted.incomplete;
                self.entries += entries;
            }
            *self.bytes.entry(name(version)).or_default() += written.len() as u64;
        }
        let compiled = tables::compile(file, TableSource::EhFrame)?.encoded;
        let whole = compiled.bytes.len() as u64;
        let rows = whole - compiled.part(TablePart::Calls) as u64;
        *self.bytes.entry("compiled").or_default() += rows;
        *self.bytes.entry("compiled, with call sites").or_default() += whole;
        self.source += reading
            .sections
            .iter()
            .map(|origin| origin.size)
            .sum::<u64>();
        self.hdr += reading.hdr_size;
        self.files += 1;
        let folder = match length {
            ..MIN_LARGE_BYTES => &mut self.small,
            _ => &mut self.large,
        };
        folder.push((share(rows, length), file.path().to_owned()));
        Ok(())
    }

    fn print(&mut self) {
        println!(
            "{} files, {} entries that count somewhere",
            self.files, self.entries
        );
        let part = |count: usize| 100.0 * share(count as u64, self.entries as u64);
        println!(
            "  plain           {:>9}  {:.3} %",
            self.plain,
            part(self.plain)
        );
        println!(
            "  flexible        {:>9}  {:.3} %",
            self.flexible,
            part(self.flexible)
        );
        println!(
            "  not all of it   {:>9}  {:.3} %",
            self.incomplete,
            part(self.incomplete)
        );
        for (why, count) in &self.unrepresentable {
            println!("    {count:>7}  {why}");
        }
        println!("{} pairs of rows compared, none differs", self.compared);
        println!("bytes / .eh_frame / with .eh_frame_hdr / version 3");
        let v3 = self
            .bytes
            .get(name(SframeVersion::V3))
            .copied()
            .unwrap_or_default();
        let print = |name: &str, bytes: u64| {
            println!(
                "  {name:<26}{bytes:>11}  {:.3}  {:.3}  {:.3}",
                share(bytes, self.source),
                share(bytes, self.source + self.hdr),
                share(bytes, v3),
            );
        };
        print(".eh_frame", self.source);
        print(".eh_frame_hdr", self.hdr);
        for (name, bytes) in &self.bytes {
            print(name, *bytes);
        }
        let sizes = [
            ("less than", &mut self.small),
            ("at least", &mut self.large),
        ];
        for (size, files) in sizes {
            files.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            let over = files.iter().filter(|(ratio, _)| *ratio > 0.5).count();
            println!(
                "of {} files with {size} {MIN_LARGE_BYTES} bytes of version 3, {over} have a compiled table of more than half",
                files.len()
            );
            for (ratio, path) in files.iter().take(3) {
                println!("  {ratio:.3}  {}", path.display());
            }
        }
    }
}

/// Below this size, in bytes, the header of a compiled table matters.
const MIN_LARGE_BYTES: u64 = 16 << 10;

fn name(version: SframeVersion) -> &'static str {
    match version {
        SframeVersion::V1 => "SFrame 1",
        SframeVersion::V2 => "SFrame 2",
        SframeVersion::V3 => "SFrame 3",
    }
}

/// Memory in which each word is derived from its address.
struct AddressPatternMemory;

impl Memory for AddressPatternMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        for (at, byte) in (addr.0..).zip(into) {
            let mixed = (at ^ 0x5bd1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = u8::try_from(mixed >> 56).unwrap_or_default();
        }
        Ok(())
    }
}

/// Queries both tables everywhere; returns the number of distinct queries.
fn compare(
    own: &Table,
    back: &Table,
    refused: &[sframe::Unrepresentable],
) -> anyhow::Result<usize> {
    let mut asked: HashSet<(Option<RowId>, Option<RowId>, u64)> = HashSet::new();
    let mut failed = None;
    for_each_range(own, back, |start, end, left, right| {
        for pc in [start, Vaddr(end.0 - 1)] {
            let ids = (left.map(|s| s.row), right.map(|s| s.row));
            let behind = refused.partition_point(|refused| refused.end <= pc);
            let is_refused = refused
                .get(behind)
                .is_some_and(|refused| refused.start <= pc);
            if is_refused {
                if right.is_some() {
                    failed.get_or_insert((pc, "is refused and there"));
                }
                continue;
            }
            // Rows of `.plt` depend on the low bits of the address.
            if !asked.insert((ids.0, ids.1, pc.0 % 64)) {
                continue;
            }
            let row = |table: &Table, id: Option<RowId>| {
                Some(find_caller(&table.row(id?)?, pc, table.abi()))
            };
            let (of_own, of_back) = (row(own, ids.0), row(back, ids.1));
            if of_own != of_back {
                failed.get_or_insert((pc, "differs"));
            }
        }
    });
    match failed {
        Some((pc, what)) => bail!("{pc} {what}"),
        None => Ok(asked.len()),
    }
}

/// CFA, return address, stack pointer and frame pointer of the caller; and whether the frame was
/// interrupted.
type FoundCaller = Option<(u64, Option<u64>, Option<u64>, Option<u64>, bool)>;

fn find_caller(row: &Row<'_>, pc: Vaddr, abi: unspool_rows::Abi) -> FoundCaller {
    let mut registers = Registers::new();
    for number in 0..34 {
        registers.set(
            Register(number),
            0x7000_0000_0000 + (u64::from(number) << 16),
        );
    }
    let spec = abi.arch.spec();
    registers.set(spec.pc, pc.0);
    let frame = FrameContext {
        abi,
        registers: &registers,
        memory: &AddressPatternMemory,
        bias: LoadBias(0),
        pac_mask: 0,
    };
    let machine = SframeAbi::from_abi(abi)?;
    let caller = step(row, &frame).ok()?;
    let is_outermost = caller.return_address.is_none();
    let value = |register| caller.registers.get(register).filter(|_| !is_outermost);
    Some((
        if is_outermost { 0 } else { caller.cfa.0 },
        caller.return_address.map(|address| address.0),
        value(machine.stack_pointer()),
        value(machine.frame_pointer()),
        row.signal_frame,
    ))
}
