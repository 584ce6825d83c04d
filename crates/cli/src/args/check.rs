//! Commands on tables that people write: `check`, `annotate`, `expr`.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use unspool_check::{CallingConvention, FindingCode};
use unspool_rows::Arch;

use super::{Format, RowSourceArg};

/// Check unwind tables against the machine code: what is wrong, and how to fix it.
///
/// Each row says where the canonical frame address (CFA), the return address and the saved
/// registers are. The code's effect on the stack is followed along all paths. Each row is proven,
/// refuted, or left unproven at each instruction. Assembly source (`.s`, `.S`) is assembled first
/// by `$CC`, or cc, with the options in `$CPPFLAGS` and `$CFLAGS`, such as -I, -D and -m.
///
/// `--run -- CMD` runs a command instead, and single-steps its functions (x86-64). Each row reached
/// must find the caller that is known from the call. The report then goes to standard error, or to
/// -o; the command's output is its own.
///
/// `--call FUNCTION FILE` calls one function several times, with generated arguments; no program is
/// needed. Each argument is the address of writable memory, and also usable as a size; `--arg` says
/// otherwise. Registers that calls preserve must be unchanged after the return, too. Assembly
/// source, object files and archives are linked first by `$CC`, or cc. If the function uses a symbol
/// that nobody defines, the report names it.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "\
unspool check [OPTIONS] FILES...
       unspool check --run [OPTIONS] -- CMD...
       unspool check --call FUNCTION [OPTIONS] FILE")]
#[command(after_help = "\
Examples:
  unspool check memcpy.S                           before you ship what you wrote
  CPPFLAGS='-Iinclude -DAVX2' unspool check sum.S  as your build assembles it
  unspool check libfoo.so                          a library, compiled and assembly code
  unspool check --diff memcpy.S                    what --fix would write
  unspool check --fix foo.o                        the rows of its inline assembly
  unspool check --strict libfoo.so                 all that is not proven, too
  unspool check --format json libfoo.so            for programs (docs/json.md)
  unspool check --run -- ./test                    its functions from assembly while it runs
  unspool check --run --module libfoo.so --function foo_avx2 -- ./test
  unspool check --run --from synth -- ./test       rows made from its code, not its table
  unspool check --call foo_avx2 libfoo.so          without a program that calls it
  unspool check --call my_memset --arg pointer --arg 0-255 --arg 0-100 memset.S

Under the names `as` and `ld` (links in a folder for `gcc -B FOLDER`), unspool runs the assembler or
the linker, and then --fix on its output (docs/annotate.md, \"In a build\").

docs/diagnostics.md lists each kind of finding with its cause and remedy.

Exit status: 0 clean; 1 refuted rows, unproven rows of assembly source, or a call that does not
return; 2 could not run.")]
pub(crate) struct CheckArgs {
    /// Executables, shared objects, object files, archives, kernel modules (also .xz, .zst, .gz),
    /// assembly source; folders, for all of these below.
    #[arg(required_unless_present_any = ["explain", "run", "cmd"], conflicts_with = "run")]
    pub(crate) files: Vec<PathBuf>,
    /// Explain a kind of finding: its meaning, causes and remedies. `CFI001`, or `cfa-offset`.
    #[arg(long, value_name = "CODE", exclusive = true, value_parser = parse_code)]
    pub(crate) explain: Option<FindingCode>,
    /// Fix what is wrong, then check it: directives in assembly source, rows in other files.
    ///
    /// Each edit of source is first tried on a copy. It stays if the finding is gone and there is
    /// no new one. Lines in macros and included files are left alone. In object files, archives,
    /// programs and libraries, refuted rows are replaced in place, if that proves the function.
    /// Compilers do not know what inline assembly does to the stack. Findings that a comment in the
    /// source allows stay.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print what --fix would change, as `diff -u` does, and change nothing. Exit status 1 if it
    /// would.
    #[arg(long, conflicts_with = "fix")]
    pub(crate) diff: bool,
    /// Report only findings in source under FOLDER, and in `global_asm!` code.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) own: Option<PathBuf>,
    /// Suppress the findings listed in FILE: lines of `CODE FILE:FUNCTION REASON`, with * for any.
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
    /// Suppress the findings recorded in FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Record all findings in the file of --baseline. Exit status 0.
    #[arg(long, requires = "baseline")]
    pub(crate) write_baseline: bool,
    /// The registers that functions preserve, if not those of the psABI: `rbp,rbx`, or `none`.
    ///
    /// Other registers are not judged, and each call changes them. Code of OCaml, Go and GHC, and
    /// `__regcall` functions, are recognised (docs/checking.md).
    #[arg(long, value_name = "REGISTERS", value_parser = parse_registers)]
    #[arg(conflicts_with_all = ["fix", "diff", "run", "call"])]
    pub(crate) preserves: Option<CallingConvention>,
    #[command(flatten)]
    pub(crate) step_args: StepArgs,
    #[command(flatten)]
    pub(crate) call_args: CallArgs,
    /// Report every row that is not proven, in compiled code, too.
    #[arg(long, conflicts_with = "lenient")]
    pub(crate) strict: bool,
    /// Report refuted rows only, in assembly source, too.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Print a line for each file, and for each member of an archive with findings, and no findings.
    #[arg(long, conflicts_with_all = ["format", "run", "call", "diff"])]
    pub(crate) summary: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: CheckFormat,
}

impl CheckArgs {
    /// The same, with the words after `--` as files if there is no command to run.
    pub(crate) fn without_command(&self) -> CheckArgs {
        let mut args = self.clone();
        if !args.step_args.run {
            let behind = args.step_args.cmd.drain(..).map(PathBuf::from);
            args.files.extend(behind);
        }
        args
    }

    /// Whether code of a file is executed.
    pub(crate) fn runs_a_program(&self) -> bool {
        self.step_args.run || self.call_args.call.is_some()
    }
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people.
    Text,
    /// For programs (docs/json.md).
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Annotations of GitHub's workflows.
    Github,
}

impl CheckFormat {
    /// The format of a report of a run: text or JSON only.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_run(self) -> anyhow::Result<Format> {
        match self {
            CheckFormat::Text => Ok(Format::Text),
            CheckFormat::Json => Ok(Format::Json),
            CheckFormat::Sarif | CheckFormat::Github => {
                anyhow::bail!("--format: with --run and --call it is text or json")
            }
        }
    }
}

/// Write the .cfi directives of assembly source that has none.
///
/// The file is assembled by `$CC`, or cc, with the options in `$CPPFLAGS` and `$CFLAGS`. Each
/// function is followed along all paths: where the CFA, the return address and the preserved
/// registers are. The new text is assembled, too, and must have these rows before every
/// instruction. Text is only added. Functions with directives keep them, so that a second run
/// changes nothing.
///
/// A function that cannot be followed gets no directives, but an error with the line and the
/// reason. The others get theirs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool annotate memcpy.S                        to standard output
  unspool annotate --diff memcpy.S                 what it would add
  unspool annotate memcpy.S -o memcpy.cfi.S
  unspool annotate memcpy.S -o memcpy.S            in place
  unspool annotate memcpy.S -o memcpy.S && unspool check memcpy.S

Exit status: 0 done; 1 a function got no directives; 2 could not run.

docs/annotate.md says what counts as a function, and what to do about errors.")]
pub(crate) struct AnnotateArgs {
    /// Assembly source: .s, or .S for the preprocessor.
    pub(crate) file: PathBuf,
    /// Write the text to FILE. [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the added lines only, as `diff -u` does.
    #[arg(long, conflicts_with = "output")]
    pub(crate) diff: bool,
}

/// Translate readable rules to the bytes of `.cfi_escape`, and bytes to rules.
///
/// Assemblers have no directive for a CFA or a register that must be computed. `.cfi_escape` takes the
/// bytes of the call frame instruction. A rule says what it finds, and how:
///
///   cfa = *(rsp+8)+8        the CFA: the word at rsp+8, plus 8
///   rbx = *(cfa-16)         rbx of the caller is in memory, at the CFA minus 16
///   rbx = cfa-16            rbx of the caller is the CFA minus 16
///   rsp+8+(((rip & 15) >= 11) << 3)
///
/// Registers of this frame have their names, with or without %. `rip` is the address of the code. `cfa`
/// is the CFA, for rules of registers. `*E` and `[E]` are the word in memory at E, and `*u32 E` the 4
/// bytes there. Operators and their precedence are C's:
///
///   + - * / % << >> & ^ | ~ ! == != < <= > >=
///
/// Comparisons and / are signed, % and >> unsigned. shra(E, E) is the signed shift, abs(E) the absolute
/// value. DWARF's operations can stand in braces: cfa = {breg7 8; deref}, rbx = [{lit16; minus}].
///
/// The output is the rule as a formula, as operations and as a directive, and a shorter directive if
/// there is one. Bytes are a list, lines of `.cfi_escape`, or hexadecimal digits. They are call frame
/// instructions; the bytes of a bare expression stand in braces: {#770806}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  unspool expr 'cfa = *(rsp+8)+8'                  the line to write
  unspool expr 'rbx = *(*(rsp+24)+40)'
  unspool expr 0x0f,0x05,0x77,0x08,0x06,0x23,0x08  what somebody wrote
  unspool expr .cfi_escape 0x2e, 0x10
  unspool expr '{breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}'")]
pub(crate) struct ExprArgs {
    /// A rule, an expression, or bytes. Several words are joined.
    #[arg(required = true, value_name = "TEXT|BYTES")]
    pub(crate) text: Vec<String>,
    /// The architecture of the registers.
    #[arg(long, default_value = "x86-64", value_parser = parse_arch)]
    pub(crate) arch: Arch,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// What of a command is executed one instruction after another.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct StepArgs {
    /// Run a command, single-step its functions, and compare their rows with what happens.
    #[arg(long, requires = "cmd", group = "stepping")]
    pub(crate) run: bool,
    /// Only this function, with its parts (NAME.cold); can be repeated.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["call", "fix", "diff"])]
    pub(crate) function: Vec<String>,
    /// Only functions of this module, by file name (libc, libc.so.6) or path; can be repeated.
    ///
    /// The default, without --function, is the program's functions from assembly, or else all.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(crate) module: Vec<String>,
    /// Which rows are compared with what happens.
    #[arg(long, value_enum, default_value = "auto", requires = "stepping")]
    pub(crate) from: RowSourceArg,
    /// How often each instruction is stepped.
    #[arg(long, value_name = "K", default_value = "3", requires = "stepping")]
    pub(crate) visits: NonZeroU32,
    /// Stop after so many seconds. [default: 600 for a command, 10 for a call]
    #[arg(long, value_name = "SECONDS", requires = "stepping")]
    pub(crate) time_limit: Option<NonZeroU32>,
    /// Write the report to FILE.
    #[arg(short, long, value_name = "FILE", requires = "stepping")]
    pub(crate) output: Option<PathBuf>,
    /// The command to run; without --run, files with names that begin with a dash.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) cmd: Vec<OsString>,
}

/// How a function is called.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct CallArgs {
    /// Call this function of the file, single-step it, and compare its rows with what happens.
    #[arg(long, value_name = "FUNCTION", group = "stepping")]
    pub(crate) call: Option<String>,
    /// The next argument: `pointer`, a number, or a range (0-255); can be repeated.
    ///
    /// In this order: rdi, rsi, rdx, rcx, r8, r9. The others are pointers.
    #[arg(long, value_name = "VALUE", requires = "call", value_parser = CallArgument::parse)]
    pub(crate) arg: Vec<CallArgument>,
    /// How often it is called, each time with new values in a new process.
    #[arg(long, value_name = "N", default_value = "8", requires = "call")]
    pub(crate) calls: NonZeroU32,
    /// The seed of the values: the same number makes the same values.
    #[arg(long, value_name = "N", default_value = "1", requires = "call")]
    pub(crate) seed: u64,
}

/// An argument of a called function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallArgument {
    Pointer,
    Range(u64, u64),
}

impl CallArgument {
    fn parse(text: &str) -> Result<CallArgument, String> {
        if text == "pointer" {
            return Ok(CallArgument::Pointer);
        }
        let wanted = || {
            format!("`{text}` is not a value: write `pointer`, a number, or a range such as 0-255")
        };
        let number = |text: &str| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number.map_err(|_| wanted())
        };
        let (least, most) = match text.split_once('-') {
            Some((least, most)) => (number(least)?, number(most)?),
            None => (number(text)?, number(text)?),
        };
        if least <= most {
            Ok(CallArgument::Range(least, most))
        } else {
            Err(format!("{least} is greater than {most}"))
        }
    }
}

fn parse_arch(text: &str) -> Result<Arch, String> {
    let known = Arch::KNOWN.into_iter();
    let mut found = known.clone().filter(|arch| arch.spec().name == text);
    found.next().ok_or_else(|| {
        let names: Vec<&str> = known.map(|arch| arch.spec().name).collect();
        format!(
            "`{text}` is not an architecture: there are {}",
            names.join(", ")
        )
    })
}

fn parse_code(text: &str) -> Result<FindingCode, String> {
    FindingCode::from_name(text).ok_or_else(|| {
        let codes: Vec<String> = FindingCode::all().map(|code| code.to_string()).collect();
        format!(
            "`{text}` is not a kind of finding: there are {}",
            codes.join(", ")
        )
    })
}

/// A calling convention that preserves the registers of a list.
fn parse_registers(text: &str) -> Result<CallingConvention, String> {
    let names = text.split(',').filter(|_| text != "none");
    let bit = |name: &str| {
        let register = Arch::X86_64.register_named(name).map(|register| register.0);
        match register {
            Some(number @ 0..16) => Ok(1 << number),
            _ => Err(format!("`{name}` is not a general register: rbx, rbp, r12")),
        }
    };
    let registers = names
        .map(bit)
        .try_fold(0, |all, bit| Ok::<u64, String>(all | bit?))?;
    Ok(CallingConvention::preserving(registers))
}
