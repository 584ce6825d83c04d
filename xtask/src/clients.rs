//! Unmodified programs of Debian that use libunwind. Each is run with Debian's library and with
//! unspool's, selected by `LD_LIBRARY_PATH` alone, and the reported stacks are compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{Error, packages};

pub mod compare;
mod stacks;

pub use stacks::StackCounts;

/// The folder of Debian's libraries.
pub const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu";

const STRACE: &str = "/usr/bin/strace";
const HEAPTRACK: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
const PROFILER: &str = "/usr/lib/x86_64-linux-gnu/libprofiler.so.0";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";
const GLOG: &str = "/usr/include/glog/logging.h";

/// A client that examines a program of `crates/libunwind-compat/tests/programs`.
pub struct Client {
    /// Its name.
    pub name: &'static str,
    /// How often the program repeats its work when the command is timed; `None` if it can do it
    /// only once.
    pub rounds: Option<u32>,
    /// The program's source.
    source: &'static str,
    needs: &'static str,
    command: fn(&ClientJob<'_>) -> Command,
    /// Reads the program's and the client's output.
    read: fn(&str, &Path, &Output) -> Result<StackCounts, Error>,
}

/// A client's run.
struct ClientJob<'w> {
    program: &'w Path,
    rounds: u32,
    /// Its output file.
    out: &'w Path,
}

impl ClientJob<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.arg(self.rounds.to_string());
        command
    }

    /// The program with a preloaded library, and a variable that names the output.
    fn preloaded(&self, library: &str, variable: &str) -> Command {
        let mut command = self.command();
        command.env("LD_PRELOAD", library).env(variable, self.out);
        command
    }
}

/// All clients.
pub const ALL: &[Client] = &[
    Client {
        name: "strace -k",
        rounds: Some(100),
        source: "clients.cc",
        needs: STRACE,
        command: |work| {
            let mut command = Command::new(STRACE);
            command
                .args([
                    "-k",
                    "-f",
                    "-e",
                    "trace=getppid",
                    "-E",
                    "LD_LIBRARY_PATH",
                    "-o",
                ])
                .arg(work.out)
                .arg(work.program)
                .arg(work.rounds.to_string());
            command
        },
        read: |_, out, _| StackCounts::from_strace(&fs::read_to_string(out)?),
    },
    Client {
        name: "heaptrack",
        rounds: Some(2000),
        source: "clients.cc",
        needs: HEAPTRACK,
        command: |work| work.preloaded(HEAPTRACK, "DUMP_HEAPTRACK_OUTPUT"),
        read: |maps, out, _| StackCounts::from_heaptrack(maps, &fs::read_to_string(out)?),
    },
    Client {
        name: "gperftools, CPU",
        rounds: Some(5000),
        source: "clients.cc",
        needs: PROFILER,
        command: |work| {
            let mut command = work.preloaded(PROFILER, "CPUPROFILE");
            // As few samples as possible, in addition to those that the program requests.
            command.env("CPUPROFILE_FREQUENCY", "1");
            command
        },
        read: |maps, out, _| StackCounts::from_cpu_profile(maps, &fs::read(out)?),
    },
    Client {
        name: "gperftools, heap",
        rounds: Some(2000),
        source: "clients.cc",
        needs: TCMALLOC,
        command: |work| {
            let mut command = work.preloaded(TCMALLOC, "HEAPPROFILE");
            // One profile, at the end.
            command.envs([
                ("HEAP_PROFILE_ALLOCATION_INTERVAL", "0"),
                ("HEAP_PROFILE_INUSE_INTERVAL", "0"),
            ]);
            command
        },
        read: |maps, out, _| {
            let profile = PathBuf::from(format!("{}.0001.heap", out.display()));
            let text = fs::read_to_string(&profile)?;
            fs::remove_file(profile)?;
            StackCounts::from_heap_profile(maps, &text)
        },
    },
    Client {
        name: "glog, LOG(FATAL)",
        rounds: None,
        source: "glog.cc",
        needs: GLOG,
        command: |work| glog(work, "log"),
        read: |maps, _, output| {
            StackCounts::from_glog(maps, &String::from_utf8(output.stderr.clone())?)
        },
    },
    Client {
        name: "glog, a signal",
        rounds: None,
        source: "glog.cc",
        needs: GLOG,
        command: |work| glog(work, "signal"),
        read: |maps, _, output| {
            StackCounts::from_glog(maps, &String::from_utf8(output.stderr.clone())?)
        },
    },
];

fn glog(job: &ClientJob<'_>, way: &str) -> Command {
    let mut command = Command::new(job.program);
    command.arg(way);
    command
}

impl Client {
    /// Compiles its program into a folder; returns its path.
    ///
    /// # Errors
    ///
    /// It does not compile, or a package is missing.
    pub fn program(&self, folder: &Path) -> Result<PathBuf, Error> {
        packages::path(self.needs)?;
        let sources =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/libunwind-compat/tests/programs");
        let program = folder.join(self.source.trim_end_matches(".cc"));
        let mut compiler = Command::new(packages::path("/usr/bin/g++")?);
        compiler
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .args([&program, &sources.join(self.source)]);
        if self.source == "glog.cc" {
            compiler.arg("-lglog");
        }
        if compiler.status()?.success() {
            Ok(program)
        } else {
            Err(format!("{} does not compile", self.source).into())
        }
    }

    /// Runs it on the program with the libraries of a folder; returns the reported stacks.
    ///
    /// # Errors
    ///
    /// It cannot be run, or its output cannot be parsed.
    pub fn stacks(
        &self,
        program: &Path,
        libraries: &Path,
        rounds: u32,
    ) -> Result<StackCounts, Error> {
        let out = program.with_extension(format!("out-{}", std::process::id()));
        let mut command = self.command(program, libraries, rounds, &out);
        let output = command.output()?;
        let maps = String::from_utf8(output.stdout.clone())?;
        let stacks = (self.read)(&maps, &out, &output)
            .map_err(|error| format!("{}: {error}: {command:?}", self.name))?;
        // Not every client writes to a file.
        let _ = fs::remove_file(out);
        Ok(stacks)
    }

    /// The command of a run.
    fn command(&self, program: &Path, libraries: &Path, rounds: u32, out: &Path) -> Command {
        let mut command = (self.command)(&ClientJob {
            program,
            rounds,
            out,
        });
        command
            .env("LD_LIBRARY_PATH", libraries)
            .stdin(Stdio::null());
        // The working directory receives a core file.
        if let Some(folder) = out.parent() {
            command.current_dir(folder);
        }
        command
    }
}
