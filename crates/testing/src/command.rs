//! Commands that inherit nothing, and what they wrote.

use std::env;
use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use crate::packages;
use crate::thorough::THOROUGH;

/// The variables that a command keeps: where programs and files of the user are, which is no test's subject.
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

/// A program, by its path or as the shell finds it. It has no other variables than `KEPT` and `LC_ALL=C.UTF-8`, an empty
/// standard input, and ignores no signal: those that a shell without job control starts in the background ignore SIGINT, and what
/// nohup starts SIGHUP.
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

/// A tool of the system, by its name or its path.
///
/// # Panics
///
/// It is missing: the message names its Debian package.
#[must_use]
pub fn tool(name: &str) -> Command {
    command(packages::tool(name).unwrap_or_else(|error| panic!("{error}")))
}

/// Runs a tool of the system to its end, however that is.
///
/// # Panics
///
/// It is missing: the message names its Debian package.
#[must_use]
#[track_caller]
pub fn run_tool(name: &str, arguments: &[&str]) -> TextOutput {
    tool(name).args(arguments).finish()
}

/// Commands that are run to their end.
pub trait Finish {
    /// Runs it, and yields what it wrote.
    ///
    /// # Panics
    ///
    /// It cannot be run, or what it wrote is not text.
    fn finish(&mut self) -> TextOutput;

    /// Runs it, and yields what it wrote to its standard output.
    ///
    /// # Panics
    ///
    /// It fails. The message has all that it wrote.
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

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct TextOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl TextOutput {
    /// This, if it ended with this status.
    ///
    /// # Panics
    ///
    /// It did not. The message has all that it wrote.
    #[must_use]
    #[track_caller]
    pub fn ended_with(self, status: i32) -> TextOutput {
        assert_eq!(self.status.code(), Some(status), "{self}");
        self
    }

    /// Both outputs, one behind the other.
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

/// What a command makes of its input.
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

/// Runs a test that other tests would disturb, or it them, in a process of its own: this program, with this test alone.
///
/// # Panics
///
/// The test fails there.
pub fn alone(test: impl FnOnce()) {
    alone_by(&[], test);
}

/// The same by a command that runs another.
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

/// This program with the test alone that calls this, started by a command that runs another: without words, as it is.
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
    ]);
    command
}
