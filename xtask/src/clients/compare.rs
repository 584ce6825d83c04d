//! `cargo xtask clients`: compares their stacks and their speed.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{ALL, Client, DEBIAN, StackCounts};
use crate::{Error, packages, shared_objects};

/// How often the program repeats its work when stacks are compared or instructions counted.
const COMPARE_ROUNDS: u32 = 8;

/// The help of `cargo xtask clients`.
#[must_use]
pub fn help() -> String {
    let mut text = HELP.to_owned();
    for client in ALL {
        text.push_str("  ");
        text.push_str(client.name);
        text.push('\n');
    }
    text
}

const HELP: &str = "\
usage: cargo xtask clients [--runs N] [--client TEXT]

Runs Debian's programs that use libunwind, as they are, on a program that is made for it, by
LD_LIBRARY_PATH alone: with Debian's library, and with ours, which it builds. Prints a table with a line
for each of them:

  stacks, frames        how many it reported with ours
  differ                how many stacks one of the two has and the other has not, as files and
                        offsets; these follow the line
  command, s            the median time of the whole command, theirs and ours, and how many times
                        faster ours is
  instructions a frame  of the library's code alone, counted by valgrind

  --runs N              how often each command is timed (default: 7)
  --client TEXT         only those whose names contain TEXT

It installs the Debian packages that are not there, as `cargo xtask setup` does, so it needs root or sudo
where one is missing, and it needs ptrace. It takes a minute or two on a machine that does nothing else,
and half of one to build ours. Times of a busy machine are worth little; what differs does not depend
on it. It writes to a folder of its own below TMPDIR. Exit status: 0 if all stacks are the same, 1 if
some differ, 2 if it could not run.

The programs (docs/libunwind.md has their figures, `cargo test -p unspool-libunwind-compat --test it clients` compares
their stacks only):

";

/// The options of `cargo xtask clients`.
#[derive(Debug)]
pub struct ClientOptions {
    runs: usize,
    client: Option<OsString>,
}

impl ClientOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// An argument is unknown, or its value is invalid.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = ClientOptions {
            runs: 7,
            client: None,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or("an argument has no value");
            match arg.to_str() {
                Some("--runs") => options.runs = value()?.to_string_lossy().parse()?,
                Some("--client") => options.client = Some(value()?),
                _ => return Err(format!("unknown argument {}", arg.display()).into()),
            }
        }
        Ok(options)
    }

    fn wants(&self, client: &Client) -> bool {
        let name = |text: &OsString| client.name.contains(&*text.to_string_lossy());
        self.client.as_ref().is_none_or(name)
    }
}

/// Compares all; returns whether all stacks are the same.
///
/// # Errors
///
/// A package is missing, or a client fails.
pub fn run(options: &ClientOptions, out: &mut impl Write) -> Result<bool, Error> {
    let folder = std::env::temp_dir().join(format!("unspool-clients-{}", std::process::id()));
    let ours = folder.join("libunwind");
    shared_objects::build(&ours)?;
    let done = LibraryComparison {
        folder: &folder,
        libraries: [Path::new(DEBIAN), &ours],
        runs: options.runs,
    }
    .run(options, out);
    fs::remove_dir_all(folder)?;
    done
}

/// Debian's library and unspool's, in this order.
struct LibraryComparison<'c> {
    folder: &'c Path,
    libraries: [&'c Path; 2],
    runs: usize,
}

impl LibraryComparison<'_> {
    fn run(&self, options: &ClientOptions, out: &mut impl Write) -> Result<bool, Error> {
        writeln!(
            out,
            "| client | stacks | frames | differ | command, s | | instructions a frame | |\n\
             |---|---|---|---|---|---|---|---|"
        )?;
        let mut are_equal = true;
        for client in ALL.iter().filter(|client| options.wants(client)) {
            let program = client.program(self.folder)?;
            let [theirs, ours] =
                self.both(|libraries| client.stacks(&program, libraries, COMPARE_ROUNDS))?;
            let only = [theirs.without(&ours), ours.without(&theirs)];
            let differ: u64 = only.iter().map(StackCounts::count).sum();
            are_equal &= differ == 0;
            let (stacks, frames) = (ours.count(), ours.frames());
            write!(out, "| {} | {stacks} | {frames} | {differ} |", client.name)?;
            match client.rounds {
                Some(rounds) => self.measure(client, rounds, &program, &ours, out)?,
                None => writeln!(out, " - | | - | |")?,
            }
            for (whose, stacks) in ["theirs", "ours"].iter().zip(&only) {
                stacks.write(whose, out)?;
            }
            out.flush()?;
        }
        Ok(are_equal)
    }

    fn both<T>(&self, mut one: impl FnMut(&Path) -> Result<T, Error>) -> Result<[T; 2], Error> {
        let [theirs, ours] = self.libraries;
        Ok([one(theirs)?, one(ours)?])
    }

    fn measure(
        &self,
        client: &Client,
        rounds: u32,
        program: &Path,
        stacks: &StackCounts,
        out: &mut impl Write,
    ) -> Result<(), Error> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..self.runs {
            let [theirs, ours] =
                self.both(|libraries| self.time(client, rounds, program, libraries))?;
            let [of_theirs, of_ours] = &mut times;
            of_theirs.push(theirs);
            of_ours.push(ours);
        }
        let [theirs, ours] = times.map(median);
        write!(out, " {theirs:.3} → {ours:.3} | {:.2}x |", theirs / ours)?;
        let [theirs, ours] =
            self.both(|libraries| self.instructions(client, program, libraries, stacks))?;
        if ours > 0.0 {
            writeln!(out, " {theirs:.0} → {ours:.0} | {:.1}x |", theirs / ours)?;
        } else {
            // heaptrack does not run under valgrind.
            writeln!(out, " - | |")?;
        }
        Ok(())
    }

    /// The seconds of the whole command.
    fn time(
        &self,
        client: &Client,
        rounds: u32,
        program: &Path,
        libraries: &Path,
    ) -> Result<f64, Error> {
        let mut command = client.command(program, libraries, rounds, &self.folder.join("out"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        let time = start.elapsed().as_secs_f64();
        if status.success() {
            Ok(time)
        } else {
            Err(format!("{command:?}: {status}").into())
        }
    }

    /// Instructions in the library's own code for each reported frame, by callgrind: the cost of
    /// additional rounds, so that the first one does not count.
    fn instructions(
        &self,
        client: &Client,
        program: &Path,
        libraries: &Path,
        of_few: &StackCounts,
    ) -> Result<f64, Error> {
        let of_more = client.stacks(program, libraries, 5 * COMPARE_ROUNDS)?;
        let few = self.count(client, program, libraries, COMPARE_ROUNDS)?;
        let more = self.count(client, program, libraries, 5 * COMPARE_ROUNDS)?;
        let frames = u32::try_from(of_more.frames().saturating_sub(of_few.frames()))?;
        let instructions = u32::try_from(more.saturating_sub(few))?;
        Ok(f64::from(instructions) / f64::from(frames))
    }

    fn count(
        &self,
        client: &Client,
        program: &Path,
        libraries: &Path,
        rounds: u32,
    ) -> Result<u64, Error> {
        let profile = self.folder.join("callgrind");
        let wanted = client.command(program, libraries, rounds, &self.folder.join("out"));
        let environment = wanted.get_envs().map(|(name, value)| {
            let mut pair = name.to_owned();
            pair.push("=");
            pair.push(value.unwrap_or_default());
            pair
        });
        let mut command = Command::new(packages::path("/usr/bin/valgrind")?);
        command
            .args(["--quiet", "--tool=callgrind"])
            .args(["--compress-strings=no", "--compress-pos=no"])
            .arg(format!("--callgrind-out-file={}", profile.display()))
            // The environment must not load libraries into valgrind. `env` replaces itself.
            .args(["--trace-children=yes", "/usr/bin/env"])
            .args(environment)
            .arg(wanted.get_program())
            .args(wanted.get_args());
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(format!("{command:?}: {status}").into());
        }
        cost_of_libunwind(&fs::read_to_string(profile)?)
    }
}

/// Adds up the costs in callgrind's format ("Callgrind Format Specification") of files named
/// libunwind.
fn cost_of_libunwind(profile: &str) -> Result<u64, Error> {
    let mut cost = 0;
    let mut is_counted = false;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_counted = object.contains("/libunwind");
        } else if line.starts_with("calls=") {
            lines.next(); // The cost of a callee, which has its own lines.
        } else if let Some((_, own)) = line.split_once(' ').filter(|_| is_counted)
            && line.starts_with(|first: char| first.is_ascii_digit())
        {
            cost += own.parse::<u64>()?;
        }
    }
    Ok(cost)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
