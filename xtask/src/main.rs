//! `cargo xtask TASK`: one entry point for developers and CI.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, ExitCode};

use xtask::clients::compare as clients;
use xtask::{
    Error, archives, arm64, attack, bad_frames, bench_peers, corpus, ctf_compare, ctf_suite,
    debian, demangle, dist, exception_suites, long_run, mutate, outline, packages, page_picture,
    readelf_all, script_compare, seeds, sframe_suite, shared_objects, tidy,
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
  debian [RELEASE...]         run all tests of the last commit in new roots of Debian: in bookworm as a user with sudo,
                              in trixie as root (as root)
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
                              python3-capstone about the rest: does any change what the analysis says that
                              it leaves as it was (docs/checking.md)?
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

fn run() -> Result<ExitCode, Error> {
    let mut args = env::args_os().skip(1);
    let task = args.next().unwrap_or_default();
    let is_clean = match task.to_str() {
        Some("setup") => {
            packages::setup(&mut io::stdout().lock())?;
            true
        }
        Some("test") => {
            packages::setup(&mut io::stdout().lock())?;
            run_tests(args.collect())?
        }
        Some("readelf") => {
            let options = readelf_all::ReadelfCompareOptions::parse(args)?;
            readelf_all::compare_all(&options, &mut io::stdout().lock())?
        }
        Some("root") => root_tests()?,
        Some("debian") => {
            debian::fresh::test(&args.collect::<Vec<_>>())?;
            true
        }
        Some("tidy") => tidy::run(&mut io::stdout().lock())?,
        Some("attack") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(attack::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            packages::setup(&mut io::stdout().lock())?;
            let options = attack::AttackOptions::parse(args.into_iter())?;
            attack::run(&options, &mut io::stdout().lock())?
        }
        Some("page-picture") => {
            page_picture::run(args, &mut io::stdout().lock())?;
            true
        }
        Some("long-run") => long_run::run(args, &mut io::stdout().lock())?,
        Some("seeds") => {
            packages::setup(&mut io::stdout().lock())?;
            seeds::run_all(&mut io::stdout().lock())?;
            true
        }
        Some("mutate") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(mutate::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            let options = mutate::MutateOptions::parse(args.into_iter())?;
            mutate::run(&options, &mut io::stdout().lock())?
        }
        Some("bench-peers") => {
            bench_peers::run(args, &mut io::stdout().lock())?;
            true
        }
        Some("bad-frames") => {
            bad_frames::run(args, &mut io::stdout().lock())?;
            true
        }
        Some("soak") => soak(args)?,
        Some("effects") => {
            packages::path("/usr/lib/python3/dist-packages/capstone/__init__.py")?;
            effects(args)?
        }
        Some("archives") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(archives::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            let options = archives::ArchiveOptions::parse(args.into_iter())?;
            archives::run(&options, &mut io::stdout().lock())?
        }
        Some("arm64") => {
            let args: Vec<OsString> = args.collect();
            if args.first().is_some_and(|arg| arg == "--help") {
                io::stdout().write_all(arm64::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            let options = arm64::Arm64Options::parse(args.into_iter())?;
            return Ok(arm64::run_in_machine(&options, &mut io::stderr().lock())?.into());
        }
        Some("shared-objects") => {
            shared_objects::run(
                &shared_objects::SharedObjectOptions::parse(args)?,
                &mut io::stdout().lock(),
            )?;
            true
        }
        Some("dist") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(dist::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            let options = dist::Options::parse(args.into_iter())?;
            dist::run(&options, &mut io::stdout().lock())?;
            true
        }
        Some("clients") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(clients::help().as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            packages::setup(&mut io::stdout().lock())?;
            clients::run(
                &clients::ClientOptions::parse(args.into_iter())?,
                &mut io::stdout().lock(),
            )?
        }
        Some("script-compare") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(script_compare::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            packages::setup(&mut io::stdout().lock())?;
            let options = script_compare::ScriptCompareOptions::parse(args.into_iter())?;
            script_compare::run(&options, &mut io::stdout().lock())?
        }
        Some("sframe-suite") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(sframe_suite::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            let options = sframe_suite::SframeSuiteOptions::parse(args.into_iter())?;
            sframe_suite::run(&options, &mut io::stdout().lock())?
        }
        Some("exception-suites") => exception_suites::run(&mut io::stdout().lock())?,
        Some("corpus") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(corpus::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            packages::setup(&mut io::stdout().lock())?;
            let options = corpus::CorpusOptions::parse(args.into_iter())?;
            corpus::run(&options, &mut io::stdout().lock())?
        }
        Some("ctf-suite") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(ctf_suite::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            ctf_suite::run(args.into_iter(), &mut io::stdout().lock())?
        }
        Some("ctf-compare") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(ctf_compare::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            packages::setup(&mut io::stdout().lock())?;
            ctf_compare::run(args.into_iter(), &mut io::stdout().lock())?
        }
        Some("demangle") => {
            let args: Vec<OsString> = args.collect();
            if args.iter().any(|arg| arg == "--help") {
                io::stdout().write_all(demangle::HELP.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            demangle::run(args.into_iter(), &mut io::stdout().lock())?
        }
        Some("outline") => {
            outline::run(args, &mut io::stdout().lock())?;
            true
        }
        _ => return Err(USAGE.into()),
    };
    Ok(ExitCode::from(u8::from(!is_clean)))
}

/// Runs the tests that `test` leaves out, as root; returns whether they passed.
fn root_tests() -> Result<bool, Error> {
    let mut command = Command::new(cargo());
    command.args(["test", "--workspace", "--tests", "--", "--ignored"]);
    if !packages::is_root()? {
        // cargo stays this user's; it starts the test programs by sudo.
        let runner = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";
        command.env(runner, "sudo --preserve-env");
    }
    Ok(command.status()?.success())
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
