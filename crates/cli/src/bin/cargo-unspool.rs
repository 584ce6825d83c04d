//! `cargo unspool check`: builds a crate and runs `unspool check` on its own code: functions of its
//! source, and assembly (`global_asm!`, naked functions).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

const HELP: &str = "\
Hold the unwind tables of a crate against its machine code.

The workspace is built as by `cargo build`, and the executables and libraries of its members are checked: functions
of their source, and code without line numbers, which that of global_asm! and naked functions is.

usage: cargo unspool check [OPTIONS OF UNSPOOL CHECK] [-- OPTIONS OF CARGO BUILD]

Examples:
  cargo unspool check
  cargo unspool check -- --all-targets             tests, examples and benchmarks, too
  cargo unspool check --format github              annotations of a workflow
  cargo unspool check --strict -- -p asm-kernels

Exit status: 0 clean; 1 findings; 2 could not run. `unspool check --help` has its options.
";

/// The exit status for a usage error or a program that cannot be run, as `unspool` has it.
const COULD_NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    // cargo passes the name of the command first.
    let mut arguments = env::args_os().skip(1).peekable();
    arguments.next_if(|argument| argument == "unspool");
    let arguments: Vec<OsString> = arguments.collect();
    match run(&arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cargo-unspool: error: {error:#}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

fn run(arguments: &[OsString]) -> anyhow::Result<u8> {
    let is_help = |argument: &OsString| argument == "--help" || argument == "-h";
    let (check, cargo) = match arguments.iter().position(|argument| argument == "--") {
        Some(place) => arguments.split_at(place),
        None => (arguments, &[][..]),
    };
    if check.is_empty() || check.iter().any(is_help) {
        std::io::stdout().write_all(HELP.as_bytes())?;
        return Ok(0);
    }
    let (command, check) = check.split_first().context("no command")?;
    if command != "check" {
        bail!(
            "`{}` is not a command: there is `cargo unspool check`",
            command.display()
        );
    }
    let cargo = cargo.get(1..).unwrap_or_default();
    let workspace = Workspace::load(cargo)?;
    let files = workspace.build(cargo)?;
    if files.is_empty() {
        bail!("nothing to check: the build made no executable and no library of the workspace");
    }
    let mut unspool = Command::new(beside("unspool"));
    unspool.arg("check").arg("--own").arg(&workspace.root);
    unspool.args(check).args(files);
    let status = unspool
        .status()
        .context("cannot run unspool, which must be beside cargo-unspool or in the PATH")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(COULD_NOT_RUN))
}

/// A program in the folder of this one, else in `PATH`.
fn beside(name: &str) -> PathBuf {
    let own = env::current_exe().map(|own| own.with_file_name(name));
    own.ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// The packages that are built from the workspace, not fetched.
struct Workspace {
    root: PathBuf,
    members: Vec<String>,
}

impl Workspace {
    /// The workspace of the current folder, or of cargo's `--manifest-path`.
    fn load(cargo: &[OsString]) -> anyhow::Result<Workspace> {
        let manifest = |argument: &OsStr| argument.to_string_lossy().starts_with("--manifest-path");
        let place = cargo.iter().position(|argument| manifest(argument));
        let named = place
            .and_then(|place| cargo.get(place..))
            .unwrap_or_default();
        let count = if named
            .first()
            .is_some_and(|argument| argument == "--manifest-path")
        {
            2
        } else {
            1
        };
        let mut metadata = Command::new(program());
        metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
        metadata.args(named.iter().take(count));
        let out = output(&mut metadata)?;
        let metadata: Value = serde_json::from_slice(&out).context("cargo metadata")?;
        let root = metadata.get("workspace_root").and_then(Value::as_str);
        let members = metadata.get("workspace_members").and_then(Value::as_array);
        let members = members.into_iter().flatten().filter_map(Value::as_str);
        Ok(Workspace {
            root: PathBuf::from(root.context("cargo metadata names no workspace")?),
            members: members.map(str::to_owned).collect(),
        })
    }

    /// Builds it; returns the executables and libraries of its members.
    fn build(&self, cargo: &[OsString]) -> anyhow::Result<Vec<PathBuf>> {
        let mut build = Command::new(program());
        build
            .args(["build", "--message-format", "json-render-diagnostics"])
            .args(cargo);
        let out = output(&mut build)?;
        let mut files = Vec::new();
        for line in String::from_utf8_lossy(&out).lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                continue; // Output of a build script, if not a message.
            };
            if self.is_own(&message) {
                files.extend(artifacts(&message));
            }
        }
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// Whether a message is about a member's artifact that runs outside the build.
    fn is_own(&self, message: &Value) -> bool {
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let kinds = message
            .get("target")
            .and_then(|target| target.get("kind"))
            .and_then(Value::as_array);
        let mut kinds = kinds.into_iter().flatten().filter_map(Value::as_str);
        text(message.get("reason")) == "compiler-artifact"
            && self.members.contains(&text(message.get("package_id")))
            && !kinds.any(|kind| matches!(kind, "custom-build" | "proc-macro"))
    }
}

/// The files of an artifact that contain machine code.
fn artifacts(message: &Value) -> Vec<PathBuf> {
    let executable = message.get("executable").and_then(Value::as_str);
    let files = message.get("filenames").and_then(Value::as_array);
    let files = files.into_iter().flatten().filter_map(Value::as_str);
    let libraries =
        files.filter(|file| [".rlib", ".a", ".so"].iter().any(|end| file.ends_with(end)));
    executable
        .into_iter()
        .chain(libraries)
        .map(PathBuf::from)
        .collect()
}

/// The cargo that runs this program.
fn program() -> OsString {
    unspool_files::environment::variable("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The standard output of a program; its standard error is this program's.
fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output();
    let output =
        output.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("cargo failed ({})", output.status);
    }
    Ok(output.stdout)
}
