//! The destination of linked types.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use unspool_c_types::{
    Compress, CtfWriter, ElfContext, Endian, LinkOptions, LinkOutput, Share, SymbolForm,
};
use unspool_dwarf_types::{CTF_SECTION, elf_context, endian};
use unspool_elf::{ElfFile, embed_unmapped};
use unspool_rows::arch::AddressSize;

use crate::args::ctf::{CtfTarget, LinkSymbols, ShareTypes};
use crate::commands;
use crate::output;

impl CtfTarget {
    /// Whether there is no destination.
    pub(super) fn is_missing(&self) -> bool {
        self.output.is_none() && self.into.is_none()
    }
}

/// How units are linked, by a number of threads.
pub(super) fn options(share: ShareTypes, threads: usize) -> LinkOptions {
    LinkOptions {
        share: match share {
            ShareTypes::Unconflicted => Share::Unconflicted,
            ShareTypes::Duplicated => Share::Duplicated,
        },
        threads,
    }
}

/// The number of threads for files of a size in bytes: for small ones, starting threads takes more
/// time than they save.
pub(super) fn threads_for(bytes: u64) -> usize {
    const MIN_PARALLEL_BYTES: u64 = 16 << 20;
    match bytes {
        0..MIN_PARALLEL_BYTES => 1,
        _ => unspool_parallel::processors(),
    }
}

/// The effort to spend on writing types.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// The number of threads.
    pub(super) threads: usize,
    /// Dictionaries up to this many bytes are made as small as possible.
    pub(super) searched: usize,
}

impl Effort {
    /// The effort for linking this many bytes of types. Dictionaries that are small by comparison
    /// are made as small as possible: at most half the time of everything else.
    pub(super) fn on_link(threads: usize, types: usize) -> Effort {
        const READ_MEANWHILE: usize = 28;
        Effort {
            threads,
            searched: types / READ_MEANWHILE,
        }
    }

    /// The highest effort, if reading takes longer than writing.
    pub(super) fn all() -> Effort {
        Effort {
            threads: unspool_parallel::processors(),
            searched: usize::MAX,
        }
    }
}

/// Refuses files for another pointer size or byte order: types have another layout there.
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

/// Writes linked types under an optional label. The machine is that of one of the ELF files, if
/// there is any.
pub(super) fn write(
    target: &CtfTarget,
    output: &LinkOutput<'_>,
    of: Option<&ElfFile>,
    label: &str,
    effort: Effort,
) -> anyhow::Result<()> {
    let writer = |symbols, elf| CtfWriter {
        compress: if target.uncompressed {
            Compress::No
        } else {
            Compress::SmallestUpTo(effort.searched)
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
            let form = form(target.symbols);
            put_into(&file, path, &writer(form, elf).write(output))?;
        }
        (None, Some(path)) => {
            let form = form(target.symbols);
            if matches!(form, SymbolForm::Symtab | SymbolForm::Dynsym) {
                bail!("the order of symbols needs an ELF file: use --into, or --symbols names");
            }
            let elf = ElfContext {
                is_64: of.is_none_or(|file| file.word() == AddressSize::W64),
                ..ElfContext::BARE_64
            };
            commands::write(path, &writer(form, elf).write(output), None)?;
        }
        (None, None) => {}
    }
    Ok(())
}

fn form(symbols: LinkSymbols) -> SymbolForm {
    match symbols {
        LinkSymbols::Names => SymbolForm::Names,
        LinkSymbols::Symtab => SymbolForm::Symtab,
        LinkSymbols::Dynsym => SymbolForm::Dynsym,
        LinkSymbols::None => SymbolForm::None,
    }
}

fn put_into(file: &ElfFile, path: &Path, ctf: &[u8]) -> anyhow::Result<()> {
    let with = embed_unmapped(file, CTF_SECTION, ctf)
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
