//! `unspool ctf link`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, bail};
use unspool_ctf::{ElfContext, LinkOptions, LinkUnit, Section, Share, SymbolForm, Writer, link};
use unspool_module::{ElfFile, embed_unmapped};

use super::input::{self, Input};
use crate::args::ctf::{CtfLinkArgs, LinkSymbols, ShareTypes};
use crate::commands;
use crate::output::{self, Failure};

pub(crate) fn run(args: &CtfLinkArgs) -> anyhow::Result<ExitCode> {
    let mut inputs = Vec::new();
    for path in &args.inputs {
        inputs.extend(Input::open(path)?);
    }
    let mut is_clean = true;
    let mut sections = Vec::new();
    for input in &inputs {
        if let Some((bytes, elf)) = input.section()? {
            let path = input.path().display();
            let section = Section::open(bytes, elf).with_context(|| path.to_string())?;
            is_clean &= section.problems.is_empty();
            super::report(input, section.problems.iter());
            sections.push((input, section));
        }
    }
    if sections.is_empty() {
        bail!(
            "none of these files has a section {}: build them with `gcc -gctf`",
            input::SECTION
        );
    }
    let units = units(args, &sections, &mut is_clean)?;
    let options = LinkOptions {
        share: match args.share {
            ShareTypes::Unconflicted => Share::Unconflicted,
            ShareTypes::Duplicated => Share::Duplicated,
        },
        threads: thread::available_parallelism().map_or(1, usize::from),
    };
    let linked = link(&units, options);
    let writer = |symbols, elf| Writer {
        compress: !args.uncompressed,
        symbols,
        elf,
        ..Writer::default()
    };
    match (&args.into, &args.output) {
        (Some(path), _) => {
            let file = commands::open(path)?;
            let elf = input::context(&file)?;
            let form = form(args.symbols, elf);
            put_into(&file, path, &writer(form, elf).write(&linked))?;
        }
        (None, Some(path)) => {
            let form = form(args.symbols, ElfContext::default());
            if matches!(form, SymbolForm::Symtab | SymbolForm::Dynsym) {
                bail!(
                    "there are no symbols to be in the order of without an ELF file: use --into, or --symbols names"
                );
            }
            let elf = sections
                .first()
                .map(|(input, _)| input.section())
                .transpose()?
                .flatten();
            let elf = ElfContext {
                is_64: elf.is_none_or(|(_, elf)| elf.is_64),
                ..ElfContext::default()
            };
            commands::write(path, &writer(form, elf).write(&linked), None)?;
        }
        (None, None) => {}
    }
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Failure::FINDINGS)
    })
}

/// The units of all inputs, under the names that they are to have.
fn units<'d>(
    args: &CtfLinkArgs,
    sections: &'d [(&Input, Section<'d>)],
    is_clean: &mut bool,
) -> anyhow::Result<Vec<LinkUnit<'d>>> {
    let mut units = Vec::new();
    for (input, section) in sections {
        let parents = section.parents();
        let children = section.children(&parents).collect::<Result<Vec<_>, _>>();
        let children = children.with_context(|| input.path().display().to_string())?;
        for unit in parents.into_iter().chain(children) {
            *is_clean &= unit.reading.problems.is_empty();
            super::report(input, unit.reading.problems.iter());
            let graph = unit.reading.graph;
            let name = graph.unit.clone().unwrap_or(unit.name.into());
            let mapped = args
                .units
                .iter()
                .find(|(prefix, _)| name.starts_with(prefix));
            units.push(LinkUnit {
                name: mapped.map_or(name, |(_, to)| to.clone().into()),
                graph,
            });
        }
    }
    Ok(units)
}

/// How symbols are written: as wanted, or as the file allows it.
fn form(wanted: Option<LinkSymbols>, elf: ElfContext<'_>) -> SymbolForm {
    match wanted {
        Some(LinkSymbols::Dynsym) => SymbolForm::Dynsym,
        Some(LinkSymbols::None) => SymbolForm::None,
        None if !elf.symtab.is_empty() => SymbolForm::Symtab,
        Some(LinkSymbols::Symtab) => SymbolForm::Symtab,
        Some(LinkSymbols::Names) | None => SymbolForm::Names,
    }
}

fn put_into(file: &ElfFile, path: &Path, ctf: &[u8]) -> anyhow::Result<()> {
    let with = embed_unmapped(file, input::SECTION, ctf)
        .with_context(|| format!("cannot put types into {}", path.display()))?;
    let permissions = fs::metadata(path)
        .with_context(|| path.display().to_string())?
        .permissions();
    commands::write(path, &with, Some(permissions))?;
    output::notice(&format_args!(
        "{}: {} bytes of types",
        path.display(),
        ctf.len()
    ));
    Ok(())
}
