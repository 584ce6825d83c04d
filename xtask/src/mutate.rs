//! `cargo xtask mutate`: the command on changed files. It must end by itself, with a report or a
//! message, within its limits of time and memory.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use unspool_testing::Folder;

use crate::{Error, seeds};

/// The help of `cargo xtask mutate`.
pub const HELP: &str = "\
usage: cargo xtask mutate [--rounds N] [--seed N] [--unspool PATH]

Changes bytes of real files, and runs every command that reads such files on them.

  --rounds N       changes of each file (default: 20)
  --seed N         of the changes (default: 1)
  --unspool PATH   the command (default: the one of this repository, which is built)
";

/// Commands that read IN, an ELF file or a container of some.
const ELF_COMMANDS: &[&[&str]] = &[
    &["show", "IN"],
    &["show", "--format", "json", "IN"],
    &["check", "--strict", "IN"],
    &["compile", "IN", "-o", "/dev/null"],
    &["synth", "IN", "-o", "/dev/null"],
    &["convert", "IN", "--to", "sframe", "-o", "/dev/null"],
    &["stats", "IN"],
    &["verify", "IN"],
    &["ctf", "dump", "IN"],
    &["ctf", "diff", "IN", "IN"],
];

/// Commands that read IN, a profile.
const PROFILE_COMMANDS: &[&[&str]] = &[
    &["report", "IN"],
    &["report", "--format", "json", "IN"],
    &["report", "--format", "html", "-o", "/dev/null", "IN"],
    &["script", "IN"],
    &["diff", "IN", "IN"],
];

/// The options of `cargo xtask mutate`.
#[derive(Debug)]
pub struct MutateOptions {
    rounds: u32,
    seed: u64,
    unspool: Option<PathBuf>,
}

impl MutateOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// They are invalid.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<MutateOptions, Error> {
        let mut options = MutateOptions {
            rounds: 20,
            seed: 1,
            unspool: None,
        };
        while let Some(arg) = args.next() {
            let value = args.next().ok_or("an option without a value: see --help")?;
            let text = value.to_string_lossy().into_owned();
            match arg.to_str() {
                Some("--rounds") => options.rounds = text.parse()?,
                Some("--seed") => options.seed = text.parse()?,
                Some("--unspool") => options.unspool = Some(value.into()),
                _ => return Err(format!("{}: see --help", arg.to_string_lossy()).into()),
            }
        }
        Ok(options)
    }
}

/// A linear congruential generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = (self.0.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }

    /// The bytes with some changes: single bits, words of all ones, or the end cut off.
    fn change(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..=self.below(8) {
            let at = self.below(changed.len());
            let length = self.below(8) + 1;
            let kind = self.below(16);
            let bit = self.below(8);
            match changed.get_mut(at..) {
                Some(rest) if kind < 8 => {
                    rest.iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit);
                }
                Some(rest) if kind < 15 => {
                    rest.iter_mut().take(length).for_each(|byte| *byte = 0xff);
                }
                _ => changed.truncate(at),
            }
        }
        changed
    }
}

/// Runs the commands; `true` if each ended as it should.
///
/// # Errors
///
/// They cannot be run.
pub fn run(options: &MutateOptions, out: &mut impl Write) -> Result<bool, Error> {
    let unspool = match &options.unspool {
        Some(path) => path.canonicalize()?,
        None => crate::attack::build()?,
    };
    let folder = Folder::new();
    let mut inputs = seeds::files(&folder)?;
    let record = [
        "record",
        "-o",
        "profile",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done",
    ];
    let recorded = Command::new(&unspool)
        .args(record)
        .current_dir(folder.path())
        .stderr(Stdio::null())
        .status()?;
    if !recorded.success() {
        return Err("nothing can be recorded here: run it as root".into());
    }
    inputs.push(seeds::SeedFile {
        name: "profile",
        bytes: fs::read(folder.join("profile"))?,
    });
    let mut random = Random(options.seed);
    let (mut runs, mut failures) = (0, 0);
    for input in &inputs {
        let commands = if input.name == "profile" {
            PROFILE_COMMANDS
        } else {
            ELF_COMMANDS
        };
        for round in 0..options.rounds {
            let path = folder.join("changed");
            fs::write(&path, random.change(&input.bytes))?;
            for words in commands {
                runs += 1;
                let output = limited(&unspool, words, &path, &folder)?;
                if let Some(wrong) = fault(&output) {
                    failures += 1;
                    let kept = std::env::temp_dir().join(format!("unspool-{}-{round}", input.name));
                    fs::copy(&path, &kept)?;
                    writeln!(out, "{}: {}: {wrong}", kept.display(), words.join(" "))?;
                }
            }
        }
    }
    writeln!(out, "{runs} runs, {failures} failed")?;
    Ok(failures == 0)
}

/// Runs a command on a file with 20 seconds and 4 GiB.
fn limited(unspool: &Path, words: &[&str], path: &Path, folder: &Folder) -> Result<Output, Error> {
    let mut command = Command::new("/usr/bin/timeout");
    command.args([
        "-k",
        "1",
        "20",
        "/usr/bin/prlimit",
        "--as=4294967296",
        "--core=0",
    ]);
    command.arg(unspool);
    for word in words {
        match *word {
            "IN" => command.arg(path),
            word => command.arg(word),
        };
    }
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    Ok(command.stdin(Stdio::null()).output()?)
}

/// How a command ended, if it should not end so.
fn fault(output: &Output) -> Option<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_ended = output.status.signal().is_none() && matches!(output.status.code(), Some(0..=2));
    let is_right = is_ended && !stderr.contains("panicked");
    (!is_right).then(|| {
        format!(
            "{}: {}",
            output.status,
            stderr.lines().next().unwrap_or_default()
        )
    })
}
