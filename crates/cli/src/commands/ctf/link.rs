//! `unspool ctf link`.

use std::fs;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::bail;
use unspool_c_types::{ARRAYS_IN_ORDER, Aliases, link};
use unspool_dwarf_types::{
    BTF_SECTION, CTF_SECTION, TypeFile, TypeFileError, TypeLoader, TypesNotice, elf_context,
};

use super::each_line;
use super::target::{self, Effort};
use crate::args::ctf::CtfLinkArgs;
use crate::commands;
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &CtfLinkArgs) -> anyhow::Result<ExitCode> {
    if args.target.is_missing() {
        bail!("no output is given: write -o OUT, or --into ELF");
    }
    let sizes = args.inputs.iter().map(fs::metadata);
    let threads = target::threads_for(sizes.flatten().map(|size| size.len()).sum());
    let opened = each(threads, &args.inputs, |loader, path| loader.open(path))?;
    let files: Vec<TypeFile> = opened.into_iter().flatten().collect();
    let inputs = each(threads, &files, |loader, file| loader.link_input(file))?;
    let inputs: Vec<_> = inputs.into_iter().flatten().collect();
    let mut elfs = inputs.iter().filter_map(|input| input.file.elf());
    let first = elfs.next();
    if let Some(first) = first {
        for file in elfs {
            target::refuse_another_machine(first, file)?;
        }
    }
    if inputs.is_empty() {
        bail!(
            "none of these files has a section {CTF_SECTION} or {BTF_SECTION}: build them with `gcc -gctf`"
        );
    }
    let (mut units, mut is_order_known, mut is_clean) = (Vec::new(), false, true);
    for read in each(threads, &inputs, |loader, input| loader.link_units(input))? {
        is_order_known |= read.is_order_known;
        is_clean &= read.is_clean;
        units.extend(read.units);
    }
    for unit in &mut units {
        let mut mappings = args.units.iter();
        let mapped = mappings.find(|(prefix, _)| unit.name.starts_with(prefix));
        unit.child = mapped.map(|(_, to)| to.clone().into());
    }
    if let Some(path) = &args.target.into {
        let mut aliases = Aliases::default();
        aliases.add(&[elf_context(&commands::open(path)?)?]);
        aliases.apply_to_units(&mut units);
    }
    let linked = link(&units, target::options(args.share, threads));
    // If the order is unknown, the file that receives the types may identify the compiler.
    let label = if is_order_known { ARRAYS_IN_ORDER } else { "" };
    let types = inputs.iter().map(|input| input.size).sum();
    target::write(
        &args.target,
        &linked,
        first,
        label,
        Effort::on_link(threads, types),
    )?;
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

/// The results of `work` for each item, in their order, up to the first error. Notices are printed in
/// this order, too.
fn each<'i, T: Sync, R: Send>(
    threads: usize,
    items: &'i [T],
    work: impl Fn(TypeLoader<'_>, &'i T) -> Result<R, TypeFileError> + Sync,
) -> Result<Vec<R>, TypeFileError> {
    let work = |item| {
        let notices = Mutex::new(Vec::new());
        let lock = || notices.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = |notice: TypesNotice<'_>| {
            each_line(notice, &mut |line| lock().push(line.to_string()));
        };
        let result = work(TypeLoader::new(&keep), item);
        (result, notices.into_inner().unwrap_or_default())
    };
    let results = unspool_parallel::map(items.iter().collect(), threads, work);
    let results = results.into_iter().map(|(result, notices)| {
        notices.iter().for_each(|line| output::notice(line));
        result
    });
    results.collect()
}
