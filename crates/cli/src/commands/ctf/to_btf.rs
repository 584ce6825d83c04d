//! `unspool ctf to-btf`.

use std::process::ExitCode;

use unspool_c_types::{BtfWriter, Endian, Graph};
use unspool_dwarf_types::{elf_context, endian};
use unspool_elf::ElfFile;

use super::input::SymbolNames;
use super::loaded::{self, LoadedTypes};
use crate::args::ctf::CtfToBtfArgs;
use crate::commands;
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &CtfToBtfArgs) -> anyhow::Result<ExitCode> {
    let mut is_clean = true;
    let base = args.base.as_deref();
    let bytes = loaded::with_types(&args.file, base, |loaded: &LoadedTypes<'_>| {
        is_clean = loaded.is_clean;
        let mut graph = loaded.one_graph();
        if let Some(elf) = loaded.elf().filter(|_| !loaded.is_btf) {
            keep_symbols(&mut graph, elf)?;
        }
        if args.without_data {
            graph.objects.clear();
        }
        let endian = loaded.elf().map_or(Endian::Little, endian);
        let writer = BtfWriter { endian };
        let (bytes, unsaid) = match &loaded.btf_base {
            Some(base) if graph.parent().is_some() => writer.write_split(&graph, base),
            _ => writer.write(&graph),
        };
        is_clean &= unsaid.is_empty();
        for unsaid in unsaid {
            output::notice(&format_args!("{}: {unsaid}", args.file.display()));
        }
        Ok(bytes)
    })?;
    match &args.output {
        Some(path) => commands::write(path, &bytes, None)?,
        None => output::print(&bytes)?,
    }
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

/// Keeps the types of functions and data that the file defines: DWARF and gcc's CTF also have
/// declarations.
fn keep_symbols(graph: &mut Graph<'_>, elf: &ElfFile) -> anyhow::Result<()> {
    let context = elf_context(elf)?;
    if context.symtab.is_empty() {
        return Ok(());
    }
    let mut names = SymbolNames::default();
    names.extend(context.symbols(false));
    let functions = &mut graph.functions;
    functions.retain(|symbol| names.functions.contains(&*symbol.name));
    let objects = &mut graph.objects;
    objects.retain(|symbol| names.objects.contains(&*symbol.name));
    Ok(())
}
