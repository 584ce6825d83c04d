//! `cargo xtask TASK`: one entry point for developers and CI.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use xtask::clients::compare as clients;
use xtask::{
    Error, archives, arm64, attack, bad_frames, bench_peers, corpus, ctf_compare, ctf_suite,
    debian, demangle, dist, exception_suites, long_run, mutate, outline, packages, page_picture,
    readelf_all, renames, script_compare, seeds, sframe_suite, shared_objects, tidy,
};

const USAGE: &str = "\
usage: cargo xtask TASK

  setup                       install the Debian packages that tests and tasks need
  test [--thorough] [ARGUMENT...]
                              setup, then all tests (arguments go to `cargo test`); with --thorough long comparisons
                              are made in full, of which other runs make a part
  readelf [--jobs N] [PATH...]
                              compare our reading of .eh_frame and .debug_frame with readelf's,
                              for every ELF file below PATH (default: the whole machine)
  root                        run the tests that `test` leaves out: they act as several users or load BPF programs.
                              Their programs are started by sudo, and need Linux 6.9 or later
  debian [RELEASE...] [-- COMMAND...]
                              run all tests of the last commit in new roots of Debian: in bookworm as a user with sudo,
                              in trixie as root (as root). A root where one fails is kept. COMMAND runs there, of what
                              is the last commit then
  tidy                        hold the documents against the repository: crates, paths, width of lines
  attack [--only TEXT]        act as a second user who attacks root's unspool, in each way that
                              docs/security.md speaks of (as root); --help says more
  long-run [OPTION...]        record all processes for an hour (--minutes N) while many come and go: do
                              the recorder's memory and descriptors stay as they are? (as root)
  seeds                       make first inputs of the fuzz targets, in fuzz/corpus
  mutate [--rounds N]         run every command that reads files on changed ones: does it end by itself, within
                              limits of time and memory? --help says more
  bench-peers                 build the peers of the benchmark `walk` that Debian's current
                              release does not have: fetches and compiles libunwind and `unwinding`
  bench-peers --next          unpack the newest perf, gdb and elfutils from Debian's next release into a
                              folder, and print the PATH by which the benchmarks `record`, `script`
                              and `stack` take them
  bad-frames [--all]          have all walkers walk bad stacks, and print who dies, never ends or
                              loses frames (docs/safety.md); with --all in which cases
  soak [--samples N]          sample stacks at random addresses of threads that throw, jump, switch
                              stacks, load and unload libraries, and check each (default: 1000000)
  effects [--states N]        execute each form of each instruction from N states (default: 4) on this processor, and ask
                              Zydis (libzydis-dev) about the rest: does any change what the analysis says
                              that it leaves as it was (docs/checking.md)?
  archives [--only TEXT] [--sample N]
                              check Debian's static libraries: is any row refuted that is not known to be
                              wrong (docs/findings.md)? --help says more
  arm64 [OPTION...] -- COMMAND...
                              run a command or cargo's tests in a machine of AArch64 (qemu); --help says more
  shared-objects [--out FOLDER]
                              build the shared objects with C interfaces, libunwind's and our own
                              (docs/api.md, docs/libunwind.md), and print where they are
  dist [--try]                build what a release has to install: archives and Debian packages; with --try
                              install them in fresh roots of Debian, run and remove them; --help says more
  clients [--runs N] [--client TEXT]
                              run Debian's programs that use libunwind with it and with ours: are
                              their stacks the same, and how long do they take? --help says more
  script-compare [--only TEXT]
                              `unspool script` beside `perf script` on recordings of some programs: every
                              difference, decided by elfutils' libdw (docs/script.md); --help says more
  sframe-suite [--binutils VERSION]
                              build binutils 2.44 and 2.47 from Debian's source, and hold their tests of SFrame and
                              their readelf against our reading and writing (docs/sframe.md); --help says more
  exception-suites            run gcc's own tests of exceptions, from Debian's source, with libgcc and
                              with ours (docs/exceptions.md)
  corpus [--only TEXT] [--write | --peers]
                              prove by single steps that the right tables of crates/check/corpus are right
                              and the wrong ones wrong; --help says more
  ctf-compare [--only TEXT]   link the types of Debian's zlib, lua, zstd, sqlite, coreutils, Emacs and binutils
                              as ld does: sizes, times, dumps (docs/ctf.md); --help says more
  ctf-suite                   build binutils 2.47 from Debian's source, and hold its tests of CTF against our
                              dumping, linking and errors (docs/ctf.md); --help says more
  demangle [--names FILE] [PATH...]
                              compare the readable names of all C++ and Rust symbols below PATH (default:
                              the whole machine) with those of c++filt; --help says more
  renames OLD NEW             compare the JSON of two versions of the command, whose names docs/renames.tsv maps
  page-picture PROFILE        make README's picture, of a profile's page
  outline FILE...             in how few bytes .eh_frame can say its rows, and what outlined
                              instructions would take (docs/native.md)
";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// Tasks that install the Debian packages that they need.
const NEED_PACKAGES: [&str; 8] = [
    "setup",
    "test",
    "attack",
    "seeds",
    "clients",
    "script-compare",
    "corpus",
    "ctf-compare",
];

/// The help of a task that has one.
fn help(task: &str) -> Option<Cow<'static, str>> {
    Some(Cow::Borrowed(match task {
        "attack" => attack::HELP,
        "mutate" => mutate::HELP,
        "archives" => archives::HELP,
        "arm64" => arm64::HELP,
        "dist" => dist::HELP,
        "clients" => return Some(clients::help().into()),
        "script-compare" => script_compare::HELP,
        "sframe-suite" => sframe_suite::HELP,
        "corpus" => corpus::HELP,
        "ctf-suite" => ctf_suite::HELP,
        "ctf-compare" => ctf_compare::HELP,
        "demangle" => demangle::HELP,
        _ => return None,
    }))
}

fn run() -> Result<ExitCode, Error> {
    let mut args = env::args_os().skip(1);
    let task = args.next().unwrap_or_default();
    let task = task.to_str().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let out = &mut io::stdout().lock();
    if let Some(help) = help(task) {
        // What follows the first word may be another command's.
        let count = if task == "arm64" { 1 } else { args.len() };
        if args.iter().take(count).any(|arg| arg == "--help") {
            out.write_all(help.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    if NEED_PACKAGES.contains(&task) {
        packages::setup(out)?;
    }
    let args = args.into_iter();
    let done = |done: Result<(), Error>| done.map(|()| true);
    let is_clean = match task {
        "setup" => Ok(true),
        "test" => run_tests(args.collect()),
        "readelf" => {
            readelf_all::compare_all(&readelf_all::ReadelfCompareOptions::parse(args)?, out)
        }
        "root" => root_tests(),
        "debian" => done(debian::fresh::test(&args.collect::<Vec<_>>())),
        "tidy" => tidy::run(out),
        "attack" => attack::run(&attack::AttackOptions::parse(args)?, out),
        "page-picture" => done(page_picture::run(args, out)),
        "long-run" => long_run::run(args, out),
        "seeds" => done(seeds::run_all(out)),
        "mutate" => mutate::run(&mutate::MutateOptions::parse(args)?, out),
        "bench-peers" => done(bench_peers::run(args, out)),
        "bad-frames" => done(bad_frames::run(args, out)),
        "soak" => soak(args),
        "effects" => {
            packages::path("/usr/include/Zydis/Zydis.h")?;
            effects(args)
        }
        "archives" => archives::run(&archives::ArchiveOptions::parse(args)?, out),
        "arm64" => {
            let options = arm64::Arm64Options::parse(args)?;
            return Ok(arm64::run_in_machine(&options, &mut io::stderr().lock())?.into());
        }
        "shared-objects" => {
            let options = shared_objects::SharedObjectOptions::parse(args)?;
            done(shared_objects::run(&options, out))
        }
        "dist" => done(dist::run(&dist::Options::parse(args)?, out)),
        "clients" => clients::run(&clients::ClientOptions::parse(args)?, out),
        "script-compare" => {
            script_compare::run(&script_compare::ScriptCompareOptions::parse(args)?, out)
        }
        "sframe-suite" => sframe_suite::run(&sframe_suite::SframeSuiteOptions::parse(args)?, out),
        "exception-suites" => exception_suites::run(out),
        "corpus" => corpus::run(&corpus::CorpusOptions::parse(args)?, out),
        "ctf-suite" => ctf_suite::run(args, out),
        "ctf-compare" => ctf_compare::run(args, out),
        "demangle" => demangle::run(args, out),
        "renames" => renames::run(args, out),
        "outline" => done(outline::run(args, out)),
        _ => Err(USAGE.into()),
    };
    Ok(ExitCode::from(u8::from(!is_clean?)))
}

/// Runs the tests that `test` leaves out, as root; returns whether they passed.
fn root_tests() -> Result<bool, Error> {
    let is_root = packages::is_root()?;
    let mut command = Command::new(cargo());
    if !is_root {
        // cargo stays this user's, with its toolchains. It starts the test programs by sudo, whose
        // own PATH lacks them. Root has its own home: it does not trust what is in this user's.
        let mut runner = ["sudo", "--preserve-env", "env", "HOME=/root"]
            .map(str::to_owned)
            .to_vec();
        runner.push(format!("PATH={}", env::var("PATH")?));
        let home = env::home_dir().ok_or("no home")?;
        for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let set = env::var_os(variable).map(PathBuf::from);
            let folder = set.unwrap_or_else(|| home.join(folder));
            runner.push(format!("{variable}={}", folder.display()));
        }
        command
            .arg("--config")
            .arg(format!("target.x86_64-unknown-linux-gnu.runner={runner:?}"));
    }
    command.args([
        "test",
        "--workspace",
        "--tests",
        "--no-fail-fast",
        "--",
        "--ignored",
    ]);
    let has_passed = command.status()?.success();
    if !is_root {
        give_back()?;
    }
    Ok(has_passed)
}

/// Makes what root has built and written this user's again: else, the next tests could not write there.
fn give_back() -> Result<(), Error> {
    let target = shared_objects::target_folder()?;
    let owner = fs::metadata(&target)?;
    debian::run(
        Command::new("sudo")
            .args(["chown", "--recursive", "--from=0"])
            .arg(format!("{}:{}", owner.uid(), owner.gid()))
            .args(["debug", "tmp"].map(|folder| target.join(folder))),
    )
}

/// Runs the test `soak` for longer; returns whether it passed.
fn soak(arguments: impl Iterator<Item = OsString>) -> Result<bool, Error> {
    let samples = number(arguments, "--samples", "1000000")?;
    run_test(
        &["-p", "unspool-unwind", "--test", "soak"],
        ("UNSPOOL_SOAK_SAMPLES", samples),
    )
}

/// Runs the test `processor` with all instruction forms, from more states; returns whether it
/// passed.
fn effects(arguments: impl Iterator<Item = OsString>) -> Result<bool, Error> {
    let states = number(arguments, "--states", "4")?;
    run_test(
        &["-p", "unspool-code-analysis", "--test", "it", "processor"],
        ("UNSPOOL_EFFECTS_STATES", states),
    )
}

/// The value of a task's only option.
fn number(
    mut arguments: impl Iterator<Item = OsString>,
    option: &str,
    default: &str,
) -> Result<OsString, Error> {
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => Ok(default.into()),
        (Some(name), Some(number), None) if name == option => Ok(number),
        _ => Err(format!("no argument is taken but {option} N").into()),
    }
}

/// Runs tests of a crate, with a variable that extends them; returns whether they passed.
fn run_test(test: &[&str], (name, value): (&str, OsString)) -> Result<bool, Error> {
    let mut command = Command::new(cargo());
    command.arg("test").args(test).args(["--", "--nocapture"]);
    Ok(command.env(name, value).status()?.success())
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs all tests of the workspace; yields whether they passed.
fn run_tests(mut arguments: Vec<OsString>) -> Result<bool, Error> {
    let is_thorough = arguments.first().is_some_and(|first| first == "--thorough");
    let thorough = is_thorough.then(|| (unspool_testing::THOROUGH, arguments.remove(0)));
    // What nohup starts ignores SIGHUP, and what a script starts in the background SIGINT: a test program would, too.
    let status = Command::new("env")
        .args(["--default-signal", "--"])
        .arg(cargo())
        .args(["test", "--workspace"])
        .args(arguments)
        .envs(thorough)
        .status()
        .map_err(|error| format!("cannot run env: {error}"))?;
    Ok(status.success())
}
