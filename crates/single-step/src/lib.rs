//! Single-steps a program, and compares its unwind tables with what happened.
//!
//! [`run`] executes a command under ptrace. In the functions in scope, each thread executes one
//! instruction after another. A shadow stack has the truth about each frame: location and value of
//! its return address, and the values of registers that calls preserve. At each instruction the
//! interpreter ([`unspool_rows::interpret`]) finds the caller by the row of the module's table, and
//! must find exactly that. Rows synthesized from code are compared in the same way ([`RowSource`]).
//! All other code runs at full speed to a breakpoint at its return.
//!
//! An instruction that was checked often enough is not checked again: the thread then runs at full
//! speed to where something new may happen.
//!
//! [`call`](fn@call) does the same with one function, which it calls with generated arguments.
//!
//! ```
//! use std::time::Duration;
//! use unspool_single_step::{RowSource, StepRequest, run};
//! use unspool_table_store::TableSource;
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("add.c", "int add(int a, int b) { return a + b; } int main(void) { return add(1, -1); }");
//! # folder.tool("gcc", "add.c -o add");
//! # let path = folder.path().join("add");
//!
//! // add.c: int add(int a, int b) { return a + b; } int main(void) { return add(1, -1); }
//! let report = run(&StepRequest {
//!     command: vec![path.into()],
//!     functions: vec!["add".into()],
//!     modules: Vec::new(),
//!     rows: RowSource::Table(TableSource::Auto),
//!     visits: 1,
//!     time_limit: Duration::from_secs(60),
//! })?;
//! assert!(report.checked > 0 && report.findings.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

mod call;
mod compare;
mod displaced;
mod faults;
mod frames;
mod host;
mod instruction;
mod module_run;
mod modules;
mod remote;
mod report;
mod row_source;
mod scope;
mod shadow_stack;
mod stepper;
mod sys;
mod threads;
mod traced_memory;
mod tracer;
mod watchdog;
mod x86_64;

pub use call::{
    ArgumentInput, CallEnd, CallReport, CallRequest, CallResult, ClobberedRegister, StopLocation,
    call,
};
pub use host::HostProgram;
pub use module_run::{ModuleCounts, ModuleRun};
pub use report::{FunctionRun, ObservedFinding, RowCoverage, StepReport};
pub use row_source::RowSource;

use sys::WaitStatus;
use tracer::Tracer;
use watchdog::Watchdog;

/// The command to run, and the parts of it to step.
#[derive(Debug, Clone)]
pub struct StepRequest {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Names of functions; parts of them (`NAME.cold`) are included. Without any, all functions of
    /// `modules` are in scope.
    pub functions: Vec<String>,
    /// File names or paths of modules. Without any, functions of the program: those from assembly
    /// if there are some, else all.
    pub modules: Vec<String>,
    /// The rows that are compared with the run.
    pub rows: RowSource,
    /// How often each instruction is checked.
    pub visits: u32,
    /// Time after which the command is killed.
    pub time_limit: Duration,
}

/// Why a command could not be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SingleStepError {
    /// There is no program to run.
    #[error("no command is given")]
    NoCommand,
    /// It could not be started.
    #[error("cannot run {}", program.display())]
    Start {
        /// The program.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// It cannot be traced.
    #[error("the command cannot be traced")]
    Trace(#[from] io::Error),
    /// Only x86-64 is supported.
    #[error("programs can be stepped on x86-64 only")]
    Architecture,
    /// A file that no program can preload.
    #[error(
        "{}: the dynamic linker loads no file with a space or a colon in its name: rename or copy it",
        file.display()
    )]
    UnloadableName {
        /// The file.
        file: PathBuf,
    },
    /// A file that no program maps.
    #[error("{}: neither a program nor a shared object nor an object file", file.display())]
    NotCallable {
        /// The file.
        file: PathBuf,
    },
    /// No function is in scope.
    #[error("nothing to step: {0}")]
    NothingInScope(String),
}

/// Runs a command and compares the tables of the functions in scope with what happens.
///
/// Must be called by a thread without other children: it waits for all of them.
///
/// # Errors
///
/// The command cannot be started or traced, or no function is in scope.
pub fn run(request: &StepRequest) -> Result<StepReport, SingleStepError> {
    let root = start(&mut command(&request.command)?)?;
    let limit = Watchdog::start(request.time_limit, root, libc::SIGKILL);
    let traced = trace(request, root, &limit);
    let is_late = limit.stop();
    let tracer = traced.inspect_err(|_| sys::kill(root))?;
    let mut modules = tracer.stepper.modules.all().iter();
    if modules.all(|module| module.functions.is_empty()) {
        return Err(SingleStepError::NothingInScope(out_of_scope(request)));
    }
    Ok(report::from_tracer(&tracer, is_late))
}

/// A program and its arguments.
fn command(words: &[OsString]) -> Result<Command, SingleStepError> {
    let (program, arguments) = words.split_first().ok_or(SingleStepError::NoCommand)?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Starts a program that this thread traces.
fn start(command: &mut Command) -> Result<i32, SingleStepError> {
    sys::trace(command);
    let child = command.spawn().map_err(|source| SingleStepError::Start {
        program: command.get_program().to_owned(),
        source,
    })?;
    Ok(i32::try_from(child.id()).unwrap_or(0))
}

/// Traces a command from its execution to the end of everything that it started.
fn trace<'r>(
    request: &'r StepRequest,
    root: i32,
    watchdog: &Watchdog,
) -> Result<Tracer<'r>, SingleStepError> {
    let mut tracer = Tracer::new(request)?;
    if tracer.begin(root)? {
        tracer.release(root)?;
    }
    while follow_one(&mut tracer, watchdog)? {}
    Ok(tracer)
}

/// Handles the next event. Returns whether there was one.
fn follow_one(tracer: &mut Tracer<'_>, watchdog: &Watchdog) -> io::Result<bool> {
    if tracer.is_over() {
        return Ok(false);
    }
    let (tid, status) = match sys::wait() {
        // If SIGCHLD is ignored, ends are not reported.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(false),
        waited => waited?,
    };
    tracer.handle(tid, status)?;
    if !matches!(status, WaitStatus::Stopped { event: 0, .. }) {
        watchdog.watch(tracer.processes());
    }
    Ok(true)
}

fn out_of_scope(request: &StepRequest) -> String {
    match (request.functions.is_empty(), request.modules.is_empty()) {
        (false, _) => format!(
            "no module has a function {}",
            request.functions.join(" or ")
        ),
        (true, false) => format!("no module {} was loaded", request.modules.join(" or ")),
        (true, true) => "the program has no functions that are known".to_owned(),
    }
}
