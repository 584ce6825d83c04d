//! A machine of AArch64 to test on: Debian's kernel in qemu, which has the repository's files.
//!
//! Everything is unpacked below the target folder: qemu, the kernel, and a root of Debian with
//! compilers and debuggers (`root.rs`). The same root is what clang and lld link for, so no cross
//! compiler is needed. The machine has the workspace at the host's path, writable, so a program
//! that cargo built for AArch64 finds its files.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unspool_testing::Folder;

use crate::debian::run;
use crate::{Error, ctf_compare, packages};

mod initramfs;
mod root;

use root::Root;

/// The text of `--help`.
pub const HELP: &str = "\
usage: cargo xtask arm64 [OPTION...] -- COMMAND [ARGUMENT...]
       cargo xtask arm64 [OPTION...] cargo [ARGUMENT...]

Runs COMMAND in a machine of AArch64, as root, in the current folder, and exits with its status. Or runs
cargo for AArch64, and in the machine what it runs: `cargo xtask arm64 cargo test -p unspool-process`.
The first run fetches Debian's packages (500 MB) into the target folder.

  --cpu CPU       max, with pointer authentication, BTI and SVE (the default), or another of qemu's, as cortex-a57
  --pages SIZE    4k (the default) or 16k: the kernel's pages
  --minutes N     end the machine after N minutes (default: 20)
  --user          no machine: qemu's emulation of Linux on this kernel. It has no ptrace, perf events or BPF,
                  and needs fewer packages
";

/// The target's name in Rust, and in clang.
const RUST_TARGET: &str = "aarch64-unknown-linux-gnu";
const CLANG_TARGET: &str = "aarch64-linux-gnu";

/// How the machine mounts a shared folder. Nobody else changes it meanwhile, so its files are cached.
const SHARE_OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=1048576,cache=loose";

/// The folder in the machine that has its tasks and results.
const JOB: &str = "/run/job";

/// What the task is to do.
#[derive(Debug)]
pub struct Arm64Options {
    cpu: String,
    pages: Pages,
    minutes: u32,
    is_user: bool,
    is_cargo: bool,
    /// The command, or cargo's arguments.
    command: Vec<OsString>,
}

/// The size of the kernel's pages.
#[derive(Debug, Clone, Copy)]
enum Pages {
    K4,
    K16,
}

impl Arm64Options {
    /// Reads the task's arguments.
    ///
    /// # Errors
    ///
    /// One is unknown or lacks its value, or there is no command.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = Self {
            cpu: "max".to_owned(),
            pages: Pages::K4,
            minutes: 20,
            is_user: false,
            is_cargo: false,
            command: Vec::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || -> Result<String, Error> {
                let value = args.next().and_then(|value| value.into_string().ok());
                Ok(value.ok_or(HELP)?)
            };
            match arg.to_str() {
                Some("--cpu") => options.cpu = value()?,
                Some("--pages") => {
                    options.pages = match value()?.as_str() {
                        "4k" => Pages::K4,
                        "16k" => Pages::K16,
                        _ => return Err(HELP.into()),
                    }
                }
                Some("--minutes") => options.minutes = value()?.parse()?,
                Some("--user") => options.is_user = true,
                Some("--" | "cargo") => {
                    options.is_cargo = arg == "cargo";
                    options.command = args.collect();
                    break;
                }
                _ => return Err(HELP.into()),
            }
        }
        if options.command.is_empty() {
            return Err(HELP.into());
        }
        Ok(options)
    }
}

/// Runs the command, and returns its exit status.
///
/// # Errors
///
/// The machine cannot be made, does not start, or ends without a result.
pub fn run_in_machine(options: &Arm64Options, out: &mut impl Write) -> Result<u8, Error> {
    let pages = (!options.is_user).then_some(options.pages);
    let root = Root::unpacked(pages, out)?;
    if options.is_cargo {
        cargo(options, &root)
    } else if options.is_user {
        let (program, arguments) = options.command.split_first().ok_or(HELP)?;
        exit_code(root.emulator(&options.cpu).arg(program).args(arguments))
    } else {
        boot(options, &root)
    }
}

/// Runs cargo for AArch64. It runs programs by this task.
fn cargo(options: &Arm64Options, root: &Root) -> Result<u8, Error> {
    let name = |name: &str| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{name}");
    let pages = match options.pages {
        Pages::K4 => "4k",
        Pages::K16 => "16k",
    };
    let user = if options.is_user { " --user" } else { "" };
    let runner = format!(
        "{} arm64 --cpu {} --pages {pages} --minutes {}{user} --",
        env::current_exe()?.display(),
        options.cpu,
        options.minutes,
    );
    let flags = [
        format!("--target={CLANG_TARGET}"),
        format!("--sysroot={}", root.folder().display()),
    ];
    let mut rust_flags = String::from("-Clink-arg=-fuse-ld=lld");
    for flag in &flags {
        rust_flags.push_str(&format!(" -Clink-arg={flag}"));
    }
    let (command, arguments) = options.command.split_first().ok_or(HELP)?;
    exit_code(
        Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .arg(command)
            .args(["--target", RUST_TARGET])
            .args(arguments)
            .env(name("RUNNER"), runner)
            .env(name("LINKER"), packages::path("/usr/bin/clang")?)
            .env(name("RUSTFLAGS"), rust_flags)
            .env("CC_aarch64_unknown_linux_gnu", "clang")
            .env("AR_aarch64_unknown_linux_gnu", "llvm-ar")
            .env("CFLAGS_aarch64_unknown_linux_gnu", flags.join(" ")),
    )
}

/// Boots the machine for the command.
fn boot(options: &Arm64Options, root: &Root) -> Result<u8, Error> {
    let (workspace, target) = ctf_compare::folders()?;
    let workspace = fs::canonicalize(workspace)?;
    let mut shares = vec![workspace.as_path()];
    if !target.starts_with(&workspace) {
        shares.push(&target);
    }
    for share in &shares {
        fs::create_dir_all(root.path_of(share))?;
    }
    let scratch = target.join(RUST_TARGET).join("tmp");
    fs::create_dir_all(&scratch)?;
    let job = Folder::new();
    fs::write(job.join("init"), init_script(options, &shares, &scratch)?)?;
    let mut qemu = root.qemu(&options.cpu, options.minutes, &job)?;
    for (number, share) in shares.iter().enumerate() {
        add_share(&mut qemu, &format!("share{number}"), share, "");
    }
    run(qemu.stdin(Stdio::null()))?;
    let status = fs::read_to_string(job.join("status"))
        .map_err(|_| "the machine ended before the command did")?;
    Ok(status.trim().parse()?)
}

/// Shares a folder with the machine.
fn add_share(qemu: &mut Command, tag: &str, folder: &Path, option: &str) {
    let mut share = OsString::from(format!(
        "local,mount_tag={tag},security_model=none{option},path="
    ));
    share.push(folder);
    qemu.arg("-virtfs").arg(share);
}

/// The machine's first process after its root is there: mounts the shares, runs the command, and
/// turns the machine off.
///
/// Tests' files are in the machine's memory: shared folders treat links and replaced files otherwise.
fn init_script(options: &Arm64Options, shares: &[&Path], scratch: &Path) -> Result<Vec<u8>, Error> {
    let mut script = b"export PATH=/usr/sbin:/usr/bin HOME=/root\n".to_vec();
    for (number, share) in shares.iter().enumerate() {
        write!(script, "mount -t 9p -o {SHARE_OPTIONS} share{number} ")?;
        script.extend(quoted(share.as_os_str()));
        script.push(b'\n');
    }
    script.extend(b"mount -t tmpfs tmpfs ");
    script.extend(quoted(scratch.as_os_str()));
    script.push(b'\n');
    let is_passed = |name: &OsStr| {
        let name = name.to_string_lossy();
        ["CARGO_MANIFEST_DIR", "RUST_", "UNSPOOL_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    script.extend(b"(cd ");
    script.extend(quoted(env::current_dir()?.as_os_str()));
    script.extend(b" && exec env");
    for (name, value) in env::vars_os().filter(|(name, _)| is_passed(name)) {
        let mut variable = name;
        variable.push("=");
        variable.push(value);
        script.push(b' ');
        script.extend(quoted(&variable));
    }
    for word in &options.command {
        script.push(b' ');
        script.extend(quoted(word));
    }
    writeln!(script, ")\necho $? > {JOB}/status")?;
    script.extend(b"sync\necho o > /proc/sysrq-trigger\nwhile :; do :; done\n");
    Ok(script)
}

/// A word as the shell reads it.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word.as_encoded_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Runs a command, and returns its exit status.
fn exit_code(command: &mut Command) -> Result<u8, Error> {
    let status = command.status().map_err(|error| {
        let name = command.get_program().display();
        format!("cannot run {name}: {error}")
    })?;
    let code = status.code().ok_or_else(|| status.to_string())?;
    Ok(u8::try_from(code)?)
}

/// The folder of everything that this task unpacks.
fn folder() -> Result<PathBuf, Error> {
    Ok(ctf_compare::folders()?.1.join("arm64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_words_back() {
        let words = ["", "a b", "it's", "$HOME `id` \"x\"\n\\"];
        for word in words {
            let mut script = b"printf %s ".to_vec();
            script.extend(quoted(OsStr::new(word)));
            let script = String::from_utf8(script).unwrap();
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
    }
}
