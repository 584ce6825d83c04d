//! Commands that inherit nothing, and their output.

use std::env;
use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use crate::packages;
use crate::thorough::THOROUGH;

/// The environment variables that a command keeps: paths of the user's programs and files, which no
/// test depends on.
const KEPT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    THOROUGH,
];

/// A program, by its path or as the shell finds it. Its environment has only `KEPT` and
/// `LC_ALL=C.UTF-8`, its standard input is empty, and it ignores no signal. Shells without job
/// control make background commands ignore SIGINT, and nohup makes them ignore SIGHUP.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal", "--"])
        .arg(program)
        .env_clear()
        .envs(
            KEPT.iter()
                .filter_map(|name| Some((name, env::var_os(name)?))),
        )
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    command
}

/// A system tool, by its name or its path.
///
/// # Panics
///
/// It is missing: the message names its Debian package.
#[must_use]
pub fn tool(name: &str) -> Command {
    command(packages::tool(name).unwrap_or_else(|error| panic!("{error}")))
}

/// Runs a system tool until it exits with any status.
///
/// # Panics
///
/// It is missing: the message names its Debian package.
#[must_use]
#[track_caller]
pub fn run_tool(name: &str, arguments: &[&str]) -> TextOutput {
    tool(name).args(arguments).finish()
}

/// Commands that run until they exit.
pub trait Finish {
    /// Runs it, and returns its output.
    ///
    /// # Panics
    ///
    /// It cannot be run, or its output is not UTF-8.
    fn finish(&mut self) -> TextOutput;

    /// Runs it, and returns its standard output.
    ///
    /// # Panics
    ///
    /// It fails. The message has all its output.
    fn succeed(&mut self) -> String;
}

impl Finish for Command {
    #[track_caller]
    fn finish(&mut self) -> TextOutput {
        let output = self.output();
        let output = output.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let text =
            |bytes| String::from_utf8(bytes).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        TextOutput {
            status: output.status,
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    #[track_caller]
    fn succeed(&mut self) -> String {
        let output = self.finish();
        assert!(output.status.success(), "{self:?}: {output}");
        output.out
    }
}

/// A command's exit status and output.
#[derive(Debug)]
pub struct TextOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl TextOutput {
    /// Returns itself, if the exit status is this.
    ///
    /// # Panics
    ///
    /// It is not. The message has all its output.
    #[must_use]
    #[track_caller]
    pub fn ended_with(self, status: i32) -> TextOutput {
        assert_eq!(self.status.code(), Some(status), "{self}");
        self
    }

    /// Both outputs, concatenated.
    #[must_use]
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

impl std::fmt::Display for TextOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TextOutput { status, out, err } = self;
        write!(f, "{status}\n{out}\n{err}")
    }
}

/// A command's output for an input.
///
/// # Panics
///
/// It fails. The message has its standard error.
#[track_caller]
pub fn filter(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
    let child = command
        .stdin(stdin)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    output.stdout
}

/// Runs a test in a separate process, because other tests would disturb it, or it them. The process
/// is this program, with this test alone.
///
/// # Panics
///
/// The test fails there.
pub fn alone(test: impl FnOnce()) {
    alone_by(&[], test);
}

/// The same, run by another command.
///
/// # Panics
///
/// As [`alone`].
pub fn alone_by(starter: &[&str], test: impl FnOnce()) {
    const ALONE: &str = "UNSPOOL_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let text = this_test(starter).env(ALONE, "1").succeed();
    assert!(text.contains("1 passed"), "{text}");
}

/// This program, restricted to the calling test, run by another command; without words, run
/// directly.
#[must_use]
pub fn this_test(starter: &[&str]) -> Command {
    let thread = thread::current();
    let own = env::current_exe().unwrap();
    let mut words = starter.iter().map(OsStr::new).chain([own.as_os_str()]);
    let mut command = command(words.next().unwrap());
    command.args(words).args([
        "--exact",
        thread.name().unwrap(),
        "--test-threads=1",
        "--nocapture",
        "--include-ignored",
    ]);
    command
}
