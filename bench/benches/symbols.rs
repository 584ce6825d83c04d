//! Names of many addresses: `unspool-symbols` against the `addr2line` crate's own loader and
//! elfutils.
//!
//! `cargo bench -p unspool-bench --bench symbols -- [FILE…]`. Without files: those of the published
//! figures, and unspool itself. Files are in memory.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use addr2line::Loader;
use anyhow::Context as _;
use unspool_bench::{Durations, Random, Scratch, files, millis, ratio, time, unspool};
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;
use unspool_symbols::{
    AddressNames, ModuleFinder, ModuleSource, NameCache, NameDetail, SymbolRequest, Symbolizer,
};

const ADDRESSES: usize = 20_000;
const ROUNDS: usize = 5;
/// eu-addr2line gets one of this many addresses: it takes minutes for all.
const ONE_OF: usize = 100;

fn main() -> anyhow::Result<()> {
    let mut paths = files();
    if std::env::args().len() < 3 {
        paths.push(unspool()?);
    }
    println!("{ADDRESSES} random addresses of code, ms, medians of {ROUNDS}");
    println!(
        "file | MiB | named | frames | 1 thread | all threads | kept | addr2line crate | ratio | eu-addr2line | ratio"
    );
    for path in paths.iter().filter(|path| path.exists()) {
        measure(path)?;
    }
    Ok(())
}

fn measure(path: &Path) -> anyhow::Result<()> {
    let scratch = Scratch::new()?;
    let file = ElfFile::open(path)?;
    let addresses = random_addresses(&file);
    if addresses.is_empty() {
        return Ok(());
    }
    let finder = ModuleFinder::from_environment();
    let plain = Symbolizer::new(finder.clone(), NameDetail::Lines);
    let cache = NameCache::new(scratch.join("names"));
    let kept = plain.clone().with_cache(Some(cache));
    let names = look_up(&kept, path, &addresses)?;
    let one = median(|| look_up(&plain.clone().with_threads(1), path, &addresses))?;
    let all = median(|| look_up(&plain, path, &addresses))?;
    let again = median(|| look_up(&kept, path, &addresses))?;
    let theirs = median(|| addr2line_crate(path, &addresses))?;
    let elfutils = time_elfutils(path, &addresses, &scratch)?;
    let named = addresses
        .iter()
        .filter_map(|address| names.get(0, *address));
    let (named, frames) = named.fold((0, 0), |(named, frames), name| {
        let count = name.frames().count();
        (named + usize::from(count > 0), frames + count)
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    println!(
        "{name} | {} | {named} | {frames} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.0} | {:.1}",
        file.bytes().len() >> 20,
        millis(one),
        millis(all),
        millis(again),
        millis(theirs),
        ratio(theirs, all),
        millis(elfutils),
        ratio(elfutils, all),
    );
    Ok(())
}

fn median<T>(mut work: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    let rounds = (0..ROUNDS).map(|_| {
        let (took, result) = time(&mut work);
        result.map(|_| took)
    });
    Ok(rounds.collect::<anyhow::Result<Durations>>()?.median())
}

fn random_addresses(file: &ElfFile) -> Vec<Vaddr> {
    let text = file.sections().find(|section| section.name == ".text");
    let Some((start, size)) = text.and_then(|text| Some((text.address?, text.size))) else {
        return Vec::new();
    };
    let mut random = Random::new(1);
    let limit = usize::try_from(size).unwrap_or(usize::MAX);
    (0..ADDRESSES)
        .map(|_| start.offset(random.below(limit) as u64))
        .collect()
}

/// Opens the file again: nothing read before is reused.
fn look_up(
    symbolizer: &Symbolizer,
    path: &Path,
    addresses: &[Vaddr],
) -> anyhow::Result<AddressNames> {
    Ok(symbolizer.look_up(vec![SymbolRequest {
        module: ModuleSource::Open {
            file: Arc::new(ElfFile::open(path)?),
            root: None,
        },
        addresses: addresses.to_vec(),
    }]))
}

/// The same as texts, by the crate that unspool also uses, with its own loader.
fn addr2line_crate(path: &Path, addresses: &[Vaddr]) -> anyhow::Result<usize> {
    let failed = |error: Box<dyn std::error::Error>| anyhow::anyhow!("{error}");
    let loader = Loader::new(path).map_err(failed)?;
    let mut bytes = 0;
    for address in addresses {
        let mut frames = loader.find_frames(address.0).map_err(failed)?;
        let mut is_any = false;
        while let Some(frame) = frames.next()? {
            if let Some(function) = &frame.function {
                bytes += function.demangle()?.into_owned().len();
                is_any = true;
            }
        }
        if let Some(symbol) = loader.find_symbol(address.0).filter(|_| !is_any) {
            bytes += addr2line::demangle_auto(symbol.into(), None).len();
        }
    }
    Ok(bytes)
}

/// One run of eu-addr2line for a part of the addresses, and the extrapolated time for all.
fn time_elfutils(path: &Path, addresses: &[Vaddr], scratch: &Scratch) -> anyhow::Result<Duration> {
    let list = scratch.join("addresses");
    let some = addresses.iter().step_by(ONE_OF);
    let text = some.fold(String::new(), |mut text, address| {
        let _ = writeln!(text, "{:#x}", address.0);
        text
    });
    fs::write(&list, text)?;
    let mut command = Command::new("eu-addr2line");
    command.args(["-i", "-f", "-C", "-e"]).arg(path);
    command.stdin(fs::File::open(&list)?);
    let (took, output) = time(|| command.output());
    output.context("cannot run eu-addr2line: install elfutils")?;
    Ok(took.saturating_mul(u32::try_from(ONE_OF)?))
}
