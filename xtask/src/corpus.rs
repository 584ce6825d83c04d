//! `cargo xtask corpus`: the pairs of right and wrong unwind tables in `crates/check/corpus`,
//! compared with single steps of gdb. Its unwinder uses the table at every instruction.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use crate::Error;

pub mod pair;
pub mod peers;
pub mod program;
pub mod proof;
pub mod table;

use pair::Pair;
use peers::PeerTools;

/// The help of `cargo xtask corpus`.
pub const HELP: &str = "\
usage: cargo xtask corpus [--only TEXT] [--write | --peers [TOOL...]]

Steps both variants of each pair in crates/check/corpus, instruction by instruction, and compares what gdb finds
by the unwind table with the truth: right variants have no difference, wrong ones have differences that begin at
the labels that their comments name.

  --only TEXT             only pairs whose names contain TEXT
  --write                 write the table of the pairs in the corpus's README.md instead
  --peers                 count what other tools say of the pairs instead
  --llvm-mc PATH, --llvm-dwarfdump PATH, --as PATH
                          other versions of these tools than the installed ones

Exit status: 0 if all is so, 1 if not, 2 if it could not run.
";

/// The task.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum CorpusTask {
    #[default]
    Prove,
    Write,
    Peers,
}

/// The options of `cargo xtask corpus`.
#[derive(Debug, Default)]
pub struct CorpusOptions {
    only: String,
    task: CorpusTask,
    tools: PeerTools,
}

impl CorpusOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// An argument is unknown, or its value is missing.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = CorpusOptions::default();
        while let Some(arg) = args.next() {
            let mut value = || -> Result<String, Error> {
                let value = args.next().and_then(|value| value.into_string().ok());
                Ok(value.ok_or_else(|| format!("{} has no value", arg.display()))?)
            };
            match arg.to_str() {
                Some("--only") => options.only = value()?,
                Some("--write") => options.task = CorpusTask::Write,
                Some("--peers") => options.task = CorpusTask::Peers,
                Some("--llvm-mc") => options.tools.llvm_mc = value()?,
                Some("--llvm-dwarfdump") => options.tools.llvm_dwarfdump = value()?,
                Some("--as") => options.tools.gas = value()?,
                _ => return Err(format!("unknown argument {}", arg.display()).into()),
            }
        }
        Ok(options)
    }
}

/// Runs the task; returns whether all checks passed.
///
/// # Errors
///
/// A package is missing, or a program fails.
pub fn run(options: &CorpusOptions, out: &mut impl Write) -> Result<bool, Error> {
    let mut pairs = pair::all()?;
    if options.task == CorpusTask::Write {
        table::write(&pairs)?;
        return Ok(true);
    }
    pairs.retain(|pair| pair.name.contains(&options.only));
    let folder = std::env::temp_dir().join(format!("unspool-corpus-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let done = match options.task {
        CorpusTask::Peers => peers::report(&pairs, &options.tools, &folder, out).map(|()| true),
        _ => prove(&pairs, &folder, out),
    };
    fs::remove_dir_all(folder)?;
    done
}

fn prove(pairs: &[Pair], folder: &Path, out: &mut impl Write) -> Result<bool, Error> {
    let problems = problems(pairs, folder)?;
    for problem in &problems {
        writeln!(out, "{problem}")?;
    }
    let all = pairs.len();
    writeln!(out, "{all} pairs, {} problems", problems.len())?;
    Ok(problems.is_empty())
}

/// Differences from the pairs' declarations, found by one thread for each CPU.
///
/// # Errors
///
/// A package is missing, or a program fails.
pub fn problems(pairs: &[Pair], folder: &Path) -> Result<Vec<String>, Error> {
    let threads = thread::available_parallelism()?.get();
    let found = Mutex::new(Vec::new());
    let next = Mutex::new(pairs.iter());
    let take = || next.lock().map_or(None, |mut pairs| pairs.next());
    let work = || {
        while let Some(pair) = take() {
            let problems = proof::problems(pair, folder)
                .unwrap_or_else(|error| vec![error.to_string()])
                .into_iter()
                .map(|problem| format!("{}: {problem}", pair.name));
            if let Ok(mut found) = found.lock() {
                found.extend(problems);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner()?;
    found.sort();
    Ok(found)
}
