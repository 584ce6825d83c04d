//! Where linked types go.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, bail};
use unspool_c_types::{
    Aliases, Compress, CtfWriter, ElfContext, Endian, LinkOptions, LinkOutput, LinkUnit, Share,
    SymbolForm,
};
use unspool_dwarf_types::{elf_context, endian};
use unspool_elf::{ElfFile, embed_unmapped};
use unspool_rows::arch::AddressSize;

use super::input;
use crate::args::ctf::{CtfTarget, LinkSymbols, ShareTypes};
use crate::commands;
use crate::output;

impl CtfTarget {
    /// Whether nothing is said of where the types go.
    pub(super) fn is_missing(&self) -> bool {
        self.output.is_none() && self.into.is_none()
    }
}

/// How units are linked, by so many threads.
pub(super) fn options(share: ShareTypes, threads: usize) -> LinkOptions {
    LinkOptions {
        share: match share {
            ShareTypes::Unconflicted => Share::Unconflicted,
            ShareTypes::Duplicated => Share::Duplicated,
        },
        threads,
    }
}

/// How many threads may work.
pub(super) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How many threads work on files of so many bytes: beside small ones, threads take more time to begin than they save.
pub(super) fn threads_for(bytes: u64) -> usize {
    const WORTH_OTHERS: u64 = 16 << 20;
    match bytes {
        0..WORTH_OTHERS => 1,
        _ => threads(),
    }
}

/// What is spent on writing types.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// How many threads may work.
    pub(super) threads: usize,
    /// Dictionaries of up to so many bytes are made as small as can be.
    pub(super) searched: usize,
}

impl Effort {
    /// If so many bytes of types are linked. What is small beside them is made as small as can be: that takes at most half as long as all the rest.
    pub(super) fn on_link(threads: usize, types: usize) -> Effort {
        const READ_MEANWHILE: usize = 28;
        Effort {
            threads,
            searched: types / READ_MEANWHILE,
        }
    }

    /// Where reading takes longer than all that writing can take.
    pub(super) fn all() -> Effort {
        Effort {
            threads: threads(),
            searched: usize::MAX,
        }
    }
}

/// Refuses files for machines whose pointers have another size, or whose bytes another order: types are laid out otherwise there.
pub(super) fn refuse_another_machine(one: &ElfFile, other: &ElfFile) -> anyhow::Result<()> {
    let is_alike = one.word() == other.word() && one.abi().endian == other.abi().endian;
    if is_alike {
        return Ok(());
    }
    let said = |file: &ElfFile| {
        let bits = if file.word() == AddressSize::W64 {
            64
        } else {
            32
        };
        let order = match endian(file) {
            Endian::Little => "little",
            Endian::Big => "big",
        };
        format!("{bits}-bit {order}-endian")
    };
    bail!(
        "{} is {}, and {} is {}: their types are laid out in different ways, and do not go together",
        one.path().display(),
        said(one),
        other.path().display(),
        said(other)
    );
}

/// Gives the names that symbols have beside others the types of these, where no unit says what they are.
pub(super) fn name_aliases(units: &mut [LinkUnit<'_>], mut aliases: Aliases) {
    aliases.remove_typed(units.iter().map(|unit| &*unit.graph));
    for unit in units
        .iter_mut()
        .filter(|unit| aliases.apply_any(&unit.graph))
    {
        aliases.apply_to(Arc::make_mut(&mut unit.graph));
    }
}

/// Writes what was linked, of files for the machine of one of them if any is an ELF file, under a label or none.
pub(super) fn write(
    target: &CtfTarget,
    linked: &LinkOutput<'_>,
    of: Option<&ElfFile>,
    label: &str,
    effort: Effort,
) -> anyhow::Result<()> {
    let writer = |symbols, elf| CtfWriter {
        compress: match target.uncompressed {
            true => Compress::No,
            false => Compress::SmallestUpTo(effort.searched),
        },
        symbols,
        elf,
        label,
        threads: effort.threads,
        ..CtfWriter::default()
    };
    match (&target.into, &target.output) {
        (Some(path), _) => {
            let file = commands::open(path)?;
            if let Some(of) = of {
                refuse_another_machine(of, &file)?;
            }
            let elf = elf_context(&file)?;
            let form = form(target.symbols, elf);
            put_into(&file, path, &writer(form, elf).write(linked))?;
        }
        (None, Some(path)) => {
            let form = form(target.symbols, ElfContext::default());
            if matches!(form, SymbolForm::Symtab | SymbolForm::Dynsym) {
                bail!("the order of symbols needs an ELF file: use --into, or --symbols names");
            }
            let elf = ElfContext {
                is_64: of.is_none_or(|file| file.word() == AddressSize::W64),
                ..ElfContext::default()
            };
            commands::write(path, &writer(form, elf).write(linked), None)?;
        }
        (None, None) => {}
    }
    Ok(())
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
    file.check_unchanged()?;
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
