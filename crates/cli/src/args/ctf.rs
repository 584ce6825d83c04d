//! The command line of `unspool ctf`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use unspool_rows::RuntimeAddr;

use super::Format;

/// Print, make, link and compare C types: CTF (the compact C type format), BTF and DWARF.
///
/// gcc writes CTF into object files with `-gctf`. docs/ctf.md describes it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf dump ./app                           all types
  unspool ctf type 'struct node' ./app             offsets, sizes, holes
  unspool ctf symbol main ./app                    the type of a function
  unspool ctf show 1234 root.next[2].name          a value in a running process
  unspool ctf link *.o --into ./app                the types of object files, each once
  unspool ctf from-dwarf ./app --into ./app        CTF from debugging information
  unspool ctf diff old.so new.so                   what breaks")]
pub(crate) struct CtfArgs {
    #[command(subcommand)]
    pub(crate) action: CtfAction,
}

impl CtfArgs {
    /// Whether it reads or writes a process.
    pub(crate) fn looks_at_a_process(&self) -> bool {
        matches!(&self.action, CtfAction::Show(args) if args.pid().is_some())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CtfAction {
    Dump(CtfDumpArgs),
    Type(CtfTypeArgs),
    Symbol(CtfSymbolArgs),
    Show(CtfShowArgs),
    Link(CtfLinkArgs),
    FromDwarf(CtfFromDwarfArgs),
    ToBtf(CtfToBtfArgs),
    Diff(CtfDiffArgs),
}

/// How `dump` writes types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// C, with the offset and the size of each member, and holes.
    #[value(alias = "text")]
    C,
    /// The lines of GNU `objdump --ctf` (binutils 2.40), to be compared with it.
    Objdump,
    /// For programs (docs/json.md).
    Json,
}

/// Where types are read from.
#[derive(Debug, Args)]
pub(crate) struct CtfSource {
    /// An ELF file, an archive of object files, or a bare CTF or BTF file. The types are those of
    /// CTF, else BTF, else DWARF.
    pub(crate) file: PathBuf,
    /// Only this dictionary: `.ctf`, which all units share, or the name of a source file.
    #[arg(long, value_name = "NAME")]
    pub(crate) member: Option<String>,
    /// Show the dimensions of arrays as stored.
    ///
    /// gcc before 12.4, and 13 before 13.3, stores them in reverse (PR114186). Without this option,
    /// they are corrected if .comment or DWARF names such a gcc.
    #[arg(long)]
    pub(crate) arrays_as_stored: bool,
    /// The file with the types that a kernel module's BTF continues: the vmlinux that it was built
    /// for, or that one's BTF. [default: the running kernel's, for its modules]
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
}

/// Print all types of a file, and the functions and data that have them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf dump ./app
  unspool ctf dump --member main.c ./app
  unspool ctf dump --format objdump ./app     to compare with `objdump --ctf=.ctf ./app`")]
pub(crate) struct CtfDumpArgs {
    #[command(flatten)]
    pub(crate) source: CtfSource,
    /// Output format. `objdump` shows arrays as stored.
    #[arg(
        long = "format",
        alias = "as",
        value_name = "FORMAT",
        value_enum,
        default_value = "c"
    )]
    pub(crate) format: DumpFormat,
}

/// Print a type: its members with offsets and sizes, and the holes between them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf type 'struct node' ./app
  unspool ctf type 'struct node' ./app --with-needed >node.h
  unspool ctf type size_t ./app")]
pub(crate) struct CtfTypeArgs {
    /// Its name, as in C: `struct node`, `size_t`. The tag alone will do.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) source: CtfSource,
    /// Print the types that its definition needs, too, in an order that compiles.
    #[arg(long)]
    pub(crate) with_needed: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Print the type of a function or of data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf symbol main ./app")]
pub(crate) struct CtfSymbolArgs {
    /// Its name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) source: CtfSource,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Print a global variable of a process, a core file or a program's file, by its type.
///
/// A process runs on while it is read. A program's file has initial values, without relocations.
/// The types are those of the variable's file: CTF, else BTF, else DWARF.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf show 1234 root                       all of it
  unspool ctf show 1234 'root.next[2].name'        a part; pointers are followed
  unspool ctf show 1234 root --follow 3            and what its pointers point to
  unspool ctf show core --at 0x7f001234 --type 'struct node'
  unspool ctf show kernel init_task.comm --type 'struct task_struct'
  unspool ctf show 1234 config.level --write 3     changes it

Exit status: 0 shown or written; 1 a part cannot be read; 2 could not run.")]
pub(crate) struct CtfShowArgs {
    /// A process ID, a core file, a program or library, or `kernel` (by root).
    pub(crate) subject: String,
    /// SYMBOL, and a path from there: `.member`, `->member`, `[index]`. With --at, a path only.
    #[arg(required_unless_present = "at", value_name = "SYMBOL[PATH]")]
    pub(crate) name: Option<String>,
    /// Show what is at ADDRESS, as --type.
    #[arg(long, value_name = "ADDRESS", requires = "ty", value_parser = parse_address)]
    pub(crate) at: Option<RuntimeAddr>,
    /// Show it as this type: `struct node`, `size_t`.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) ty: Option<String>,
    /// Take the types from FILE: an ELF file, or a bare CTF or BTF file.
    #[arg(long, value_name = "FILE")]
    pub(crate) types: Option<PathBuf>,
    /// The program of a core file, if it is not where the core says.
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Option<PathBuf>,
    /// The kernel's memory, as an ELF core file.
    #[arg(long, value_name = "FILE", default_value = "/proc/kcore", hide = true)]
    pub(crate) kcore: PathBuf,
    /// The kernel's symbols, as a saved /proc/kallsyms.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) kallsyms: Option<PathBuf>,
    /// Follow up to N pointers from a value, one after the other.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) follow: usize,
    /// Show at most N elements of an array.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) elements: u64,
    /// Stop the process meanwhile, so that all parts are of one moment.
    #[arg(long)]
    pub(crate) stop: bool,
    /// Write VALUE there: a number, an enumerator, or text in quotes for an array of characters.
    ///
    /// A process is stopped meanwhile, so none of its threads sees a part of the change. A file is
    /// replaced by a changed copy. Refused: memory that the process may not write to, files of
    /// other users, whole structures.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) write: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

impl CtfShowArgs {
    /// The process, if the subject is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.subject.parse().ok()
    }
}

/// What `link` has units share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareTypes {
    /// All types that no units disagree on, as ld does.
    Unconflicted,
    /// Of these, the types of more than one unit.
    Duplicated,
}

/// Which symbols `link` says types of, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkSymbols {
    /// All, by names beside the types. `strip` and `objcopy` leave them.
    Names,
    /// Those of .symtab, in its order if that is smaller. When `strip` or `objcopy` changes it,
    /// functions and data have no types any more, and readers of ours say so.
    Symtab,
    /// Those of .dynsym, in its order if that is smaller, as ld does. `strip` leaves them.
    Dynsym,
    /// None.
    None,
}

/// Where linked types go, and how they are written.
#[derive(Debug, Args)]
pub(crate) struct CtfTarget {
    /// Write the bare CTF to OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// Write it to the section .ctf of this linked ELF file. An existing one is replaced.
    #[arg(long, value_name = "ELF")]
    pub(crate) into: Option<PathBuf>,
    /// The functions and data that have types.
    #[arg(long, value_enum, default_value = "names")]
    pub(crate) symbols: LinkSymbols,
    /// Do not compress.
    #[arg(long)]
    pub(crate) uncompressed: bool,
}

/// Link the types of object files: each once.
///
/// Types that units disagree on go into dictionaries of their own. The linker of the code does not
/// matter: the section can be added to the finished file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf link *.o -o app.ctf
  unspool ctf link *.o lib.a --into ./app
  unspool ctf link *.o --into ./app --unit 'src/gui/=gui'")]
pub(crate) struct CtfLinkArgs {
    /// Object files, archives of them, and bare CTF files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) target: CtfTarget,
    /// Which types units share.
    #[arg(long, value_enum, default_value = "unconflicted")]
    pub(crate) share: ShareTypes,
    /// Give all units with this PREFIX one dictionary, NAME, for what they do not share with
    /// others.
    #[arg(long = "unit", value_name = "PREFIX=NAME", value_parser = mapping)]
    pub(crate) units: Vec<(String, String)>,
}

/// Make CTF from DWARF, for programs built with -g and not with -gctf.
///
/// It has the types of all functions and variables in C; units in other languages are left out. A
/// separate debug file is found as by other commands. Without -o and --into, the types are printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf from-dwarf ./app --into ./app
  unspool ctf from-dwarf /usr/lib/debug/app.debug -o app.ctf")]
pub(crate) struct CtfFromDwarfArgs {
    /// An ELF file with DWARF, in it or in its separate debug file.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: CtfTarget,
    /// Which types units share.
    #[arg(long, value_enum, default_value = "unconflicted")]
    pub(crate) share: ShareTypes,
}

/// Write the types of a file as BTF, which pahole, bpftool and the kernel read.
///
/// The types are those of the file's CTF, or else of its DWARF. BTF is read and rewritten. Each
/// type is there once. What BTF cannot express is left out; a note says why.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf to-btf ./app -o app.btf
  unspool ctf to-btf app.ctf >app.btf && bpftool btf dump file app.btf")]
pub(crate) struct CtfToBtfArgs {
    /// An ELF file with CTF, BTF or DWARF, an archive of object files, or a bare CTF or BTF file.
    pub(crate) file: PathBuf,
    /// Write it to OUT. [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out the types of data, as pahole does.
    #[arg(long)]
    pub(crate) without_data: bool,
    /// The file with the types that a kernel module's BTF continues, as in `dump`.
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
}

/// Compare the types of two versions of a library: what changed, and what breaks its users.
///
/// The types are those of CTF, else BTF, else DWARF; the two files may differ. Compared are the
/// types that exported functions and data lead to. Exported is what .dynsym has or, without one,
/// what is global in .symtab. For a bare CTF or BTF file, the other file's exports count, or all
/// symbols with types. Of units in C++, functions and data with C linkage are compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool ctf diff libfoo.so.1.2 libfoo.so.1.3
  unspool ctf diff --headers include old/libfoo.so new/libfoo.so
  unspool ctf diff --headers old/include --new-headers new/include old.so new.so
  unspool ctf diff old.btf /sys/kernel/btf/vmlinux

Exit status: 0 nothing breaks; 1 something does, or not all could be compared; 2 could not run, or
nothing could be compared.")]
pub(crate) struct CtfDiffArgs {
    /// The old version: an ELF file, or a bare CTF or BTF file.
    pub(crate) old: PathBuf,
    /// The new version.
    pub(crate) new: PathBuf,
    /// Only what the headers below DIR declare counts, by DWARF. DIR can be a header; repeatable.
    ///
    /// A function or data counts if a header contains its name. A structure that is defined elsewhere
    /// counts where its content is used, but not behind pointers: programs do not know what it
    /// contains. The headers are those of both versions, without --new-headers.
    #[arg(long, value_name = "DIR")]
    pub(crate) headers: Vec<PathBuf>,
    /// The headers of the new version.
    #[arg(long, value_name = "DIR", requires = "headers")]
    pub(crate) new_headers: Vec<PathBuf>,
    /// Accept the breaking changes that FILE lists: lines `KIND SUBJECT REASON`, as
    /// `removed function:foo_* obsolete since 2.0`.
    ///
    /// KIND is a kind as in JSON, or *. SUBJECT is what a change is of, with colons for spaces, and *
    /// for anything.
    #[arg(long = "excuse", value_name = "FILE")]
    pub(crate) excuses: Option<PathBuf>,
    /// List all exported names that lead to each change, and what was not compared.
    #[arg(long)]
    pub(crate) all_names: bool,
    /// The file with the types that a kernel module's BTF continues, as in `dump`.
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
    /// The same for the new version, if it is of another kernel.
    #[arg(long, value_name = "FILE", requires = "base")]
    pub(crate) new_base: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

fn mapping(text: &str) -> Result<(String, String), String> {
    let (prefix, name) = text.split_once('=').ok_or("write PREFIX=NAME")?;
    Ok((prefix.to_owned(), name.to_owned()))
}

fn parse_address(text: &str) -> Result<RuntimeAddr, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let address = u64::from_str_radix(digits, 16);
    let address = address.map_err(|_| format!("`{text}` is not a hexadecimal address"));
    address.map(RuntimeAddr)
}
