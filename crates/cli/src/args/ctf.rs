//! What can be said to `unspool ctf`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Format;

/// C types in CTF, the compact C type format: print them, ask for one, link those of object files.
///
/// gcc writes CTF into object files if it is told `-gctf`. docs/ctf.md says what is in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf dump ./app
  unspool ctf type 'struct node' ./app
  unspool ctf symbol main ./app
  unspool ctf link *.o -o app.ctf
  unspool ctf link *.o --into ./app
  unspool ctf from-dwarf ./app --into ./app")]
pub(crate) struct CtfArgs {
    #[command(subcommand)]
    pub(crate) action: CtfAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CtfAction {
    Dump(CtfDumpArgs),
    Type(CtfTypeArgs),
    Symbol(CtfSymbolArgs),
    Link(CtfLinkArgs),
    FromDwarf(CtfFromDwarfArgs),
    ToBtf(CtfToBtfArgs),
    Diff(CtfDiffArgs),
}

/// How `dump` writes types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpForm {
    /// C, with the offset and the size of each member, and holes.
    C,
    /// The lines of GNU `objdump --ctf` (binutils 2.40), to be compared with it.
    Objdump,
    /// JSON (docs/json.md).
    Json,
}

/// Where CTF is read from.
#[derive(Debug, Args)]
pub(crate) struct CtfSource {
    /// An ELF file, an archive of object files, or a file that is nothing but CTF or BTF.
    pub(crate) file: PathBuf,
    /// Only this dictionary: `.ctf`, which all units share, or the name of a source file.
    #[arg(long, value_name = "NAME")]
    pub(crate) member: Option<String>,
    /// Show the dimensions of arrays as they are stored, even if .comment or DWARF names a gcc that
    /// stored them the wrong way round (before 12.4, and 13 before 13.3: its PR114186).
    #[arg(long)]
    pub(crate) arrays_as_stored: bool,
}

/// Print all types of a file, and the functions and data that have them.
#[derive(Debug, Args)]
pub(crate) struct CtfDumpArgs {
    #[command(flatten)]
    pub(crate) source: CtfSource,
    /// How it is written. `objdump` shows arrays as they are stored.
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "c")]
    pub(crate) form: DumpForm,
}

/// Print a type: its members with offsets and sizes, and the holes between them.
#[derive(Debug, Args)]
pub(crate) struct CtfTypeArgs {
    /// Its name, as in C: `struct node`, `size_t`. A tag alone finds it, too.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) source: CtfSource,
    /// How the report is written.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Print the type of a function or of data.
#[derive(Debug, Args)]
pub(crate) struct CtfSymbolArgs {
    /// Its name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) source: CtfSource,
    /// How the report is written.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// What `link` has units share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareTypes {
    /// All types on which no units disagree, as ld does.
    Unconflicted,
    /// Of these, types that more than one unit has.
    Duplicated,
}

/// Which symbols `link` says types of, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkSymbols {
    /// All, by names beside the types: whatever is stripped, they stay.
    Names,
    /// Those of .symtab, in its order where that is smaller: next to nothing, but gone when the file is stripped.
    Symtab,
    /// Those of .dynsym, as ld does.
    Dynsym,
    /// None.
    None,
}

/// Where linked types go, and how they are written.
#[derive(Debug, Args)]
pub(crate) struct CtfTarget {
    /// Write the CTF, without any ELF file around it.
    #[arg(short, long, value_name = "OUT", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// Put it into this linked ELF file as the section .ctf, in place of one that is there.
    #[arg(long, value_name = "ELF")]
    pub(crate) into: Option<PathBuf>,
    /// Which functions and data have types. By default those of .symtab if there is one in the ELF file, else by names.
    #[arg(long, value_enum)]
    pub(crate) symbols: Option<LinkSymbols>,
    /// Do not compress.
    #[arg(long)]
    pub(crate) uncompressed: bool,
}

/// Link the types of object files: each once, and what units disagree on in dictionaries of their own.
///
/// It does not matter which linker links the code, nor when: the section can be put into the finished file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf link *.o -o app.ctf
  unspool ctf link *.o lib.a --into ./app
  unspool ctf link *.o --into ./app --unit 'src/gui/=gui'")]
pub(crate) struct CtfLinkArgs {
    /// Object files, archives of them, and files that are nothing but CTF.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) target: CtfTarget,
    /// What becomes shared.
    #[arg(long, value_enum, default_value = "unconflicted")]
    pub(crate) share: ShareTypes,
    /// Units whose name begins with PREFIX get one dictionary together, NAME, for what they do not share with others.
    #[arg(long = "unit", value_name = "PREFIX=NAME", value_parser = mapping)]
    pub(crate) units: Vec<(String, String)>,
}

/// Make CTF of the types that DWARF has: for programs that were built with -g and not with -gctf.
///
/// The types of all functions and variables are in it. A separate debug file is found as other commands find it. Units in other languages than C are left out.
/// Without -o and --into, the types are printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf from-dwarf ./app --into ./app
  unspool ctf from-dwarf /usr/lib/debug/app.debug -o app.ctf")]
pub(crate) struct CtfFromDwarfArgs {
    /// An ELF file with debug information, or one whose debug information is in another file.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: CtfTarget,
    /// What becomes shared.
    #[arg(long, value_enum, default_value = "unconflicted")]
    pub(crate) share: ShareTypes,
}

/// Write the types of a file as BTF, which pahole, bpftool and the kernel read.
///
/// The types are those of the file's CTF, else of its DWARF; BTF is read and written anew. Each type is there once. What BTF cannot say is left out, and told
/// with the reason.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf to-btf ./app -o app.btf
  unspool ctf to-btf app.ctf >app.btf && bpftool btf dump file app.btf")]
pub(crate) struct CtfToBtfArgs {
    /// An ELF file with CTF, BTF or DWARF, an archive of object files, or a file that is nothing but CTF or BTF.
    pub(crate) file: PathBuf,
    /// Write it here; otherwise to standard output.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out the types of data, as pahole does.
    #[arg(long)]
    pub(crate) without_data: bool,
}

/// Tell what changed between two versions of a library or program, and what of it breaks what was built with the old one.
///
/// The types are those of CTF, else of BTF, else of DWARF, and need not be of the same form in both. What counts is what leads from exported functions and data:
/// those of .dynsym, or what is global in .symtab where there is none, as in object files. Of a file that is nothing but CTF or BTF, these are the ones that the
/// other file exports and has types of, or all that have types if that one does not tell, either. The exit status is 1 if something breaks.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf diff libfoo.so.1.2 libfoo.so.1.3
  unspool ctf diff old.btf /sys/kernel/btf/vmlinux")]
pub(crate) struct CtfDiffArgs {
    /// The old version: an ELF file, or a file that is nothing but CTF or BTF.
    pub(crate) old: PathBuf,
    /// The new version.
    pub(crate) new: PathBuf,
    /// How the report is written.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

fn mapping(text: &str) -> Result<(String, String), String> {
    let (prefix, name) = text.split_once('=').ok_or("write PREFIX=NAME")?;
    Ok((prefix.to_owned(), name.to_owned()))
}
