//! `cargo xtask script-compare`: compares `unspool script` with `perf script`, on recordings of
//! several programs. If the stacks differ, a third unwinder, elfutils' libdw, decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unspool_perf_events::DataFile;

use crate::{Error, packages, programs};

mod frames;
mod libdw;

use frames::{FileAddress, ScriptLine, ScriptSample};

/// The help of `cargo xtask script-compare`.
pub const HELP: &str = "\
usage: cargo xtask script-compare [--only TEXT]

Has perf record some programs, with stacks copied (8 and 32 KiB) and by frame pointers, prints each
recording with `perf script` and with `unspool script`, and lists all differences. Where the stacks differ
(perf's may be as deep as ours here), elfutils' libdw unwinds the same copy, and who agrees with it where
they part is right. docs/script.md says what the differences are.

  --only TEXT    only recordings whose names contain TEXT

Exit status: 0 if libdw never agrees with perf against unspool, 1 if it does, 2 if it could not run.
";

/// The options of `cargo xtask script-compare`.
#[derive(Debug, Default)]
pub struct ScriptCompareOptions {
    only: Option<OsString>,
}

impl ScriptCompareOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// An argument is unknown, or its value is missing.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = ScriptCompareOptions::default();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--only") => options.only = Some(args.next().ok_or("--only has no value")?),
                _ => return Err(format!("unknown argument {}", arg.display()).into()),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        let only = self.only.as_ref().map(|text| text.to_string_lossy());
        only.is_none_or(|text| name.contains(&*text))
    }
}

/// The call graph options of recordings.
const STACKS: [(&str, &str); 3] = [
    ("8 KiB", "dwarf,8192"),
    ("32 KiB", "dwarf,32768"),
    ("frame pointers", "fp"),
];

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

const PYTHON: &str = "\
import json, re
def walk(depth):
    if depth == 0:
        text = json.dumps([{'a': i, 'b': str(i)} for i in range(2000)])
        return len(re.sub('[0-9]+', 'x', text)) + len(sorted(json.loads(text), key=lambda each: each['b']))
    return walk(depth - 1)
for _ in range(60):
    walk(30)
";

/// The programs, by name.
fn commands(folder: &Path) -> Result<Vec<(&'static str, Vec<OsString>)>, Error> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/script_compare/deep.cc");
    let mut compiler = Command::new(packages::path("/usr/bin/g++")?);
    compiler.args(["-O2", "-g"]);
    let deep = programs::build(compiler, &source, &[], folder)?;
    let words = |words: &[&str]| words.iter().map(OsString::from).collect();
    let pipes = format!(
        "gzip -c {LIBRARY} | gzip -d | gzip -1 | wc -c; for i in 1 2 3 4; do ls -lR /etc; done"
    );
    Ok(vec![
        ("gzip", words(&["gzip", "-c", LIBRARY])),
        ("python3", words(&["/usr/bin/python3", "-c", PYTHON])),
        ("C++", vec![deep.into(), "60".into()]),
        (
            "messaging",
            words(&[
                "perf",
                "bench",
                "sched",
                "messaging",
                "-g",
                "1",
                "-l",
                "400",
            ]),
        ),
        ("fork and exec", words(&["sh", "-c", &pipes])),
    ])
}

/// Compares all; returns whether all checks passed.
///
/// # Errors
///
/// A package is missing, or a program fails.
pub fn run(options: &ScriptCompareOptions, out: &mut impl Write) -> Result<bool, Error> {
    let folder = std::env::temp_dir().join(format!("unspool-script-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let done = compare_all(options, &folder, out);
    fs::remove_dir_all(folder)?;
    done
}

fn compare_all(
    options: &ScriptCompareOptions,
    folder: &Path,
    out: &mut impl Write,
) -> Result<bool, Error> {
    let unspool = unspool()?;
    let mut total = SampleDifferences::default();
    writeln!(
        out,
        "| recording | samples | differ | perf ends early | we end early | they part |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (program, command) in commands(folder)? {
        for (stacks, option) in STACKS {
            let name = format!("{program}, {stacks}");
            if options.wants(&name) {
                let file = record(&command, option, &folder.join("perf.data"))?;
                let found = compare(&unspool, &file, folder)?;
                found.write_row(&name, out)?;
                out.flush()?;
                total.add(found);
            }
        }
    }
    total.write_details(out)?;
    Ok(total.are_fine())
}

/// Builds the command.
fn unspool() -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let own = std::env::current_exe()?; // TARGET/PROFILE/xtask
    let target = own.ancestors().nth(2).ok_or("no target folder")?;
    let mut build = Command::new(cargo);
    build
        .args([
            "build",
            "--quiet",
            "--release",
            "-p",
            "unspool-cli",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if build.status()?.success() {
        Ok(target.join("release/unspool"))
    } else {
        Err("unspool does not build".into())
    }
}

fn record(command: &[OsString], stacks: &str, file: &Path) -> Result<PathBuf, Error> {
    let perf = packages::path("/usr/bin/perf")?;
    let status = Command::new(perf)
        .args(["record", "-q", "-F", "999", "--call-graph", stacks, "-o"])
        .arg(file)
        .arg("--")
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() {
        Ok(file.to_owned())
    } else {
        Err(format!("perf cannot record {command:?}").into())
    }
}

/// Prints a recording, without inlined functions and with complete stacks.
fn script(program: &OsStr, file: &Path) -> Result<Vec<ScriptSample>, Error> {
    let mut command = Command::new(program);
    command.args(["script", "--no-inline", "--ns", "--max-stack", "65000"]);
    if program == "perf" {
        command.arg("-i");
    }
    frames::parse(&programs::stdout(command.arg(file))?)
}

fn compare(unspool: &Path, file: &Path, folder: &Path) -> Result<SampleDifferences, Error> {
    let (theirs, ours) = (
        script("perf".as_ref(), file)?,
        script(unspool.as_ref(), file)?,
    );
    let heads =
        |samples: &[ScriptSample]| samples.iter().map(|s| s.head.clone()).collect::<Vec<_>>();
    if heads(&theirs) != heads(&ours) {
        return Err("the lines of the samples differ".into());
    }
    let pairs = || theirs.iter().zip(&ours).enumerate();
    let differing =
        pairs().filter(|(_, (theirs, ours))| part(theirs.user(), ours.user()).is_some());
    let differing: BTreeSet<usize> = differing.map(|(number, _)| number).collect();
    let file = DataFile::open(file)?;
    let has_copies = file
        .events()
        .iter()
        .any(|event| event.format.has_stack_copy());
    let third = if has_copies && !differing.is_empty() {
        libdw::frames(&file, &differing, folder)?
    } else {
        BTreeMap::new()
    };
    let mut found = SampleDifferences::default();
    for (number, (theirs, ours)) in pairs() {
        found.samples += 1;
        found.note_names(theirs, ours);
        let third = third.get(&number).map(Vec::as_slice);
        found.note_stacks(theirs, ours, third.unwrap_or_default());
    }
    Ok(found)
}

/// The first frame at which two stacks differ.
fn part(theirs: &[ScriptLine], ours: &[ScriptLine]) -> Option<usize> {
    let most = theirs.len().max(ours.len());
    let place =
        |lines: &[ScriptLine], at: usize| lines.get(at).map(|frame| frame.address_in_file.clone());
    (0..most).find(|at| place(theirs, *at) != place(ours, *at))
}

/// The kind of difference between two stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StackDifference {
    PerfEnds,
    WeEnd,
    Part,
}

/// Which one the third unwinder confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ThirdOpinion {
    Us,
    Perf,
    Nobody,
}

/// The results.
#[derive(Debug, Default)]
struct SampleDifferences {
    samples: u64,
    /// Stacks, and the first examples of each kind.
    stacks: BTreeMap<(StackDifference, ThirdOpinion), (u64, Vec<String>)>,
    /// Symbols of one address: perf's and unspool's.
    names: BTreeMap<(String, String), u64>,
}

/// The most stacks to show of each kind.
const MAX_EXAMPLES: usize = 3;

impl SampleDifferences {
    fn note_names(&mut self, theirs: &ScriptSample, ours: &ScriptSample) {
        let pairs = theirs.lines.iter().zip(&ours.lines);
        for (theirs, ours) in pairs {
            if theirs.address_in_file == ours.address_in_file && theirs.symbol != ours.symbol {
                let symbol =
                    |line: &ScriptLine| format!("{} ({})", line.symbol, line.address_in_file.file);
                *self
                    .names
                    .entry((symbol(theirs), symbol(ours)))
                    .or_default() += 1;
            }
        }
    }

    fn note_stacks(&mut self, theirs: &ScriptSample, ours: &ScriptSample, third: &[FileAddress]) {
        let (theirs, ours, head) = (theirs.user(), ours.user(), &ours.head);
        let Some(at) = part(theirs, ours) else {
            return;
        };
        let place = |lines: &[ScriptLine]| lines.get(at).map(|frame| frame.address_in_file.clone());
        let (perf, us, word) = (place(theirs), place(ours), third.get(at).cloned());
        let same = ours.iter().take(at).map(|frame| &frame.address_in_file);
        let has_word = same.eq(third.iter().take(at)) && !third.is_empty();
        let agrees = match has_word {
            true if word == us => ThirdOpinion::Us,
            true if word == perf => ThirdOpinion::Perf,
            _ => ThirdOpinion::Nobody,
        };
        let kind = match (&perf, &us) {
            (None, _) => StackDifference::PerfEnds,
            (_, None) => StackDifference::WeEnd,
            _ => StackDifference::Part,
        };
        let (count, shown) = self.stacks.entry((kind, agrees)).or_default();
        *count += 1;
        if shown.len() < MAX_EXAMPLES {
            let show = |address: Option<&FileAddress>| {
                address.map_or("the end".to_owned(), |place| {
                    format!("{:x} ({})", place.address, place.file)
                })
            };
            let before = at.checked_sub(1).and_then(|before| ours.get(before));
            let before = before.map_or("nothing".to_owned(), |frame| {
                format!("{} {}", frame.symbol, show(Some(&frame.address_in_file)))
            });
            shown.push(format!(
                "{head}\n    behind frame {at}, {before}: perf {}, unspool {}, libdw {}",
                show(perf.as_ref()),
                show(us.as_ref()),
                if has_word {
                    show(word.as_ref())
                } else {
                    "elsewhere before".to_owned()
                }
            ));
        }
    }

    fn add(&mut self, other: SampleDifferences) {
        self.samples += other.samples;
        for (kind, (count, shown)) in other.stacks {
            let (all, known) = self.stacks.entry(kind).or_default();
            *all += count;
            let room = MAX_EXAMPLES.saturating_sub(known.len());
            known.extend(shown.into_iter().take(room));
        }
        for (names, count) in other.names {
            *self.names.entry(names).or_default() += count;
        }
    }

    fn count(&self, difference: StackDifference, opinion: ThirdOpinion) -> u64 {
        self.stacks
            .get(&(difference, opinion))
            .map_or(0, |(count, _)| *count)
    }

    /// A row of the table: the number of each kind, and how many of these libdw decides for
    /// unspool, for perf, and for neither.
    fn write_row(&self, name: &str, out: &mut impl Write) -> Result<(), Error> {
        let differ: u64 = self.stacks.values().map(|(count, _)| count).sum();
        write!(out, "| {name} | {} | {differ} |", self.samples)?;
        for kind in [
            StackDifference::PerfEnds,
            StackDifference::WeEnd,
            StackDifference::Part,
        ] {
            let [us, perf, nobody] = [ThirdOpinion::Us, ThirdOpinion::Perf, ThirdOpinion::Nobody]
                .map(|agrees| self.count(kind, agrees));
            let all = us + perf + nobody;
            match all {
                0 => write!(out, " 0 |")?,
                _ => write!(out, " {all}: unspool {us}, perf {perf}, ? {nobody} |")?,
            }
        }
        writeln!(out)?;
        Ok(())
    }

    fn write_details(&self, out: &mut impl Write) -> Result<(), Error> {
        for ((kind, agrees), (count, shown)) in &self.stacks {
            writeln!(
                out,
                "\n{kind:?}, libdw agrees with {agrees:?}: {count}, such as"
            )?;
            for shown in shown {
                writeln!(out, "  {shown}")?;
            }
        }
        for ((theirs, ours), count) in &self.names {
            writeln!(
                out,
                "\nthe name of {count} frames: perf {theirs}, unspool {ours}"
            )?;
        }
        Ok(())
    }

    /// Whether libdw never confirms perf against unspool.
    fn are_fine(&self) -> bool {
        let mut decided = self.stacks.keys().map(|(_, agrees)| *agrees);
        decided.all(|agrees| agrees != ThirdOpinion::Perf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERF: &str = "a 1 cpu-clock: \n\tffffffff81000000 k+0x1 ([kernel.kallsyms])\n\t 10 f+0x1 (/bin/a (b))\n\
                        \tffffffffffffffff [unknown] ([unknown])\n\n";
    const OURS: &str = "a 1 cpu-clock: \n\tffffffff81000000 k+0x1 ([kernel.kallsyms])\n\t 10 g+0x1 (/bin/a (b))\n\n";

    fn decided(third: &[FileAddress]) -> SampleDifferences {
        let [theirs, ours] = [PERF, OURS].map(|text| frames::parse(text).unwrap_or_default());
        let mut found = SampleDifferences::default();
        for (theirs, ours) in theirs.iter().zip(&ours) {
            found.note_names(theirs, ours);
            found.note_stacks(theirs, ours, third);
        }
        found
    }

    #[test]
    fn the_third_opinion_decides() {
        let place = |address, file: &str| FileAddress {
            address,
            file: file.to_owned(),
        };
        let own = place(0x10, "/bin/a (b)");
        let behind = place(u64::MAX, "[unknown]");
        for (third, agrees) in [
            (vec![own.clone()], ThirdOpinion::Us),
            (vec![own.clone(), behind], ThirdOpinion::Perf),
            (vec![own, place(0x20, "/bin/a (b)")], ThirdOpinion::Nobody),
            (vec![place(0x11, "/bin/a (b)")], ThirdOpinion::Nobody),
            (Vec::new(), ThirdOpinion::Nobody),
        ] {
            let found = decided(&third);
            assert_eq!(found.count(StackDifference::WeEnd, agrees), 1, "{third:?}");
            assert_eq!(found.are_fine(), agrees != ThirdOpinion::Perf);
            let names: Vec<_> = found.names.keys().collect();
            let expected = ("f+0x1 (/bin/a (b))", "g+0x1 (/bin/a (b))");
            assert_eq!(names, [&(expected.0.to_owned(), expected.1.to_owned())]);
        }
    }
}
