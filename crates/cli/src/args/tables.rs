//! Commands on unwind tables: `show`, `compile`, `verify`, `convert`, `synth`, `stats`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Format, RowSourceArg, SectionArg};

/// What `synth` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// A compiled table.
    Table,
    /// The ELF file with these rows in its .eh_frame.
    #[value(name = "eh_frame")]
    EhFrame,
}

/// Show the unwind table of a file, as text that can be read back.
///
/// Each line is a row: from an address on, how to find the CFA, the return address and the
/// registers. docs/semantics.md defines the text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool show /bin/ls
  unspool show --function malloc /lib/x86_64-linux-gnu/libc.so.6
  unspool show --pc 0x29d90 --instructions /lib/x86_64-linux-gnu/libc.so.6

Exit status: 0 shown; 1 no entry covers what was asked for; 2 could not run.")]
pub(crate) struct ShowArgs {
    /// The ELF file.
    pub(crate) file: PathBuf,
    /// Only the entries of this function, by its symbol, mangled or not.
    #[arg(long, value_name = "NAME")]
    pub(crate) function: Option<String>,
    /// Only the entry that covers this address: as linked, in hexadecimal.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) pc: Option<u64>,
    /// The section to read.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) from: RowSourceArg,
    /// Show the call frame instructions, each beside the row that it yields.
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Compile unwind tables, and compare them with their source at every address.
///
/// A compiled table answers in nanoseconds and is smaller than its source in large programs.
/// Without --output and --into it goes into the cache, where `stack`, `record` and `script` find it
/// by the file's build ID and contents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    unspool compile /usr/lib/x86_64-linux-gnu/*.so.*    into the cache
  unspool compile -o libc.unspool /lib/x86_64-linux-gnu/libc.so.6
  unspool compile app --into app                      the table goes where the program goes
  unspool compile app --emit native -o app.so         machine code, for C programs")]
pub(crate) struct CompileArgs {
    /// The ELF files.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the table or code of one file to OUT.
    ///
    /// Without it, tables and machine code go into the cache, and C source to standard output.
    #[arg(short, long, value_name = "OUT", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// Write one file to ELF, with the table in a read-only segment of its own. ELF may be the file
    /// itself.
    #[arg(long, value_name = "ELF")]
    pub(crate) into: Option<PathBuf>,
    /// What to make.
    #[arg(
        long = "emit",
        alias = "as",
        value_enum,
        default_value = "table",
        value_name = "FORM"
    )]
    pub(crate) form: CompiledForm,
    /// The section to read.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) from: SectionArg,
    /// Do not compare the result with its source. C source is never compared, code in the cache
    /// always.
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// What a table is compiled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompiledForm {
    /// A compiled table (docs/formats.md)
    Table,
    /// Machine code in a shared object, for C programs and other unwinders (docs/native.md)
    Native,
    /// C source of the same, to read or to compile
    C,
}

/// What is made of a file and compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifiedForm {
    /// A compiled table (docs/formats.md)
    Table,
    /// Machine code, which is proven and run (docs/native.md)
    Native,
}

/// Compare compiled tables with their source at every address.
///
/// A second file is compared with the first file's rows, as unspool reads them. Without one, the
/// table in the file itself is compared (`compile --into`). A file without such a table is compiled
/// in memory and compared. Folders are searched for ELF files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool verify /bin/ls                              compile it in memory, compare every address
  unspool verify app app.unspool                      a table that `compile -o` wrote
  unspool verify libc.so.6 libc.native.so             machine code, of `compile --emit native`
  unspool verify /usr/lib /usr/bin                    every ELF file in these folders
  unspool verify --emit native /usr/lib               machine code of each, made in memory
  unspool verify --format json app app.unspool        a certificate: both by their SHA-256

Exit status: 0 equal; 1 differences, or entries of the source that cannot be read; 2 a file cannot
be read, or a named one has no unwind table.")]
pub(crate) struct VerifyArgs {
    /// An ELF file and a compiled table, or ELF files and folders.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// What to make in memory of a file that has no second one.
    #[arg(
        long = "emit",
        alias = "as",
        value_enum,
        default_value = "table",
        value_name = "FORM"
    )]
    pub(crate) form: VerifiedForm,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Make unwind tables for code that has none, from the code itself.
///
/// Functions are found in the machine code and followed along all paths. Where the CFA, the return
/// address and the preserved registers are proven, there is a row; elsewhere there is none. Code
/// that the file's own table covers is left alone.
///
/// `unspool stack`, `record` and `script` do this by themselves when they meet such code. This
/// command shows what can be had, and writes it for others. Without --output and --into, the rows
/// go into the cache.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool synth app                                which code gets rows, and why other code does not
  unspool synth app --into app.new                 a program that gdb, perf and exceptions unwind
  unspool synth sum.o --into sum.o                 entries for an object of NASM
  unspool show app --from synth                    the rows, made from all code, as text

Exit status: 0 done, even if some code gets no rows; 2 could not run.")]
#[command(group = clap::ArgGroup::new("goal").args(["output", "into"]))]
pub(crate) struct SynthArgs {
    /// The ELF file. Symbols of its installed debug file count, too.
    pub(crate) file: PathBuf,
    /// Write the table to OUT instead of the cache.
    ///
    /// Walks find it in a folder of UNSPOOL_TABLE_PATH, if it has the name that it would have in
    /// the cache: BUILD-ID-HASH.synth.unspool (docs/formats.md).
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Write the file to ELF, with the rows in its .eh_frame beside the entries that it has. ELF
    /// may be the file itself.
    #[arg(long, value_name = "ELF", conflicts_with = "output")]
    pub(crate) into: Option<PathBuf>,
    /// What to make. [default: eh_frame with --into, else table]
    #[arg(long, value_enum, requires_if("eh_frame", "goal"))]
    pub(crate) emit: Option<Emit>,
    /// List all code without rows, not only the first.
    #[arg(long)]
    pub(crate) all: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// The format that a table is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertTarget {
    /// .sframe.
    Sframe,
    /// .eh_frame, and .eh_frame_hdr with it in an ELF file.
    #[value(name = "eh_frame")]
    EhFrame,
}

/// A version of SFrame that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SframeVersionArg {
    /// Read by binutils 2.41 to 2.47, glibc since 2.42, and LLVM.
    #[value(name = "2")]
    V2,
    /// Read by binutils since 2.46. It can say more, and begin more than 2 GiB from the code.
    #[value(name = "3")]
    V3,
}

/// Convert an unwind table: SFrame from .eh_frame, or .eh_frame from SFrame.
///
/// SFrame has the CFA, the return address and the frame pointer of each address. That is enough for
/// backtraces, not for exceptions. Rows that SFrame cannot express are left out and listed with the
/// reason. The result is read back and compared.
///
/// A .sframe of versions 1 to 3 is read, too: to get another version, or to repair one that a
/// linker concatenated. It then has one header, sorted entries, and each address once.
///
/// Without --output and --into nothing is written, and the report says what the result would be.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool convert app --emit sframe                   what SFrame can express of it, and what not
  unspool convert app --emit sframe --into app.new    a program with .sframe, as a linker makes it
  unspool convert app --emit sframe --sframe-version 2 -o app.sframe
  unspool convert app --from sframe --emit sframe --into app  one header, sorted, of version 3
  unspool convert app --emit eh_frame --into app.new  a program that has .sframe only, for gdb

Exit status: 0 done, even if rows are left out; 1 the table has bad entries, which are left out;
2 could not run.")]
pub(crate) struct ConvertArgs {
    /// The ELF file, linked.
    pub(crate) file: PathBuf,
    /// What to make.
    #[arg(long = "emit", alias = "to", value_enum, value_name = "FORM")]
    pub(crate) to: ConvertTarget,
    /// The version of SFrame that is written.
    #[arg(
        long = "sframe-version",
        alias = "version",
        value_enum,
        value_name = "VERSION",
        default_value = "3"
    )]
    pub(crate) version: SframeVersionArg,
    /// The section to read. [default: auto for SFrame, sframe for .eh_frame]
    #[arg(long, value_enum, value_name = "SECTION")]
    pub(crate) from: Option<SectionArg>,
    /// Write the bytes of the section to OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// The address that the bytes are for, in hexadecimal. [default: that of the file's section, or
    /// 0]
    #[arg(long, value_name = "ADDR", value_parser = parse_address, requires = "output")]
    pub(crate) address: Option<u64>,
    /// Write the file to ELF, with the section in a read-only segment of its own. ELF may be the
    /// file itself.
    #[arg(long, value_name = "ELF")]
    pub(crate) into: Option<PathBuf>,
    /// List all rows that cannot be expressed, not only the first.
    #[arg(long)]
    pub(crate) all: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Count what unwind tables hold, and what each form costs in bytes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool stats /bin/ls
  unspool stats --format table /bin/*    a line a file, and the total
  unspool stats --total /usr/lib         all files together
  unspool stats --format json app")]
pub(crate) struct StatsArgs {
    /// ELF files and folders. Of a folder, all ELF files with unwind tables are counted.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: StatsFormat,
    /// Write only the total of all files.
    #[arg(long)]
    pub(crate) total: bool,
}

/// How `stats` writes its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// All that is counted.
    Text,
    /// A line for each file, as Markdown.
    Table,
    Json,
}

/// Accepts addresses as addr2line and objdump do.
fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| {
        format!("`{text}` is not an address: write it in hexadecimal, as 0x1234 or 1234")
    })
}
