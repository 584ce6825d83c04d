//! A program single-stepped, and its unwind tables held against what happened.
//!
//! [`run`] executes a command under ptrace. In the functions in scope each thread executes one instruction after
//! another, and a shadow stack remembers what is true of each frame: where its return address lies, what it is,
//! and what the registers were that calls preserve. At each instruction the plain interpreter
//! ([`unspool_ir::interpret`]) finds the caller by the row that the module's table has for it, and must find
//! just that. All other code runs at full speed to a breakpoint where it returns.
//!
//! What an instruction was seen to do often enough is not looked at again: a thread then runs at full speed to
//! where something new may come.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

mod aside;
mod compare;
mod instruction;
mod remote;
mod report;
mod scope;
mod shadow;
mod space;
mod sys;
mod tracer;

pub use report::{FunctionRun, Observed, Report, Rows};

use sys::Status;
use tracer::Tracer;

/// What is to be run, and what of it is to be stepped.
#[derive(Debug, Clone)]
pub struct Request {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Names of functions; those of which they are the first part (`NAME.cold`) are meant as well. Without any,
    /// all functions of `modules` are in scope.
    pub functions: Vec<String>,
    /// File names or paths of modules. Without any, functions of the program: those from assembly if it has
    /// some, else all.
    pub modules: Vec<String>,
    /// How often each instruction is looked at.
    pub visits: u32,
    /// When the command is killed if it has not ended.
    pub time_limit: Duration,
}

/// Why a command could not be run under the eyes of the tracer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
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
    Trace(#[source] io::Error),
    /// Only x86-64's instructions are known.
    #[error("programs can be stepped on x86-64 only")]
    Architecture,
    /// No function is in scope.
    #[error("nothing to step: {0}")]
    NothingInScope(String),
}

/// Runs a command and holds the tables of the functions in scope against what happens.
///
/// Must be called by a thread that has no other children: it waits for all of them.
///
/// # Errors
///
/// The command cannot be started or traced, or no function is in scope.
pub fn run(request: &Request) -> Result<Report, StepError> {
    let (program, arguments) = request.command.split_first().ok_or(StepError::NoCommand)?;
    let mut command = Command::new(program);
    command.args(arguments);
    sys::trace(&mut command);
    let child = command.spawn().map_err(|source| StepError::Start {
        program: program.clone(),
        source,
    })?;
    let root = i32::try_from(child.id()).unwrap_or(0);
    let limit = Limit::start(request.time_limit, root);
    let traced = trace(request, root, &limit);
    let is_late = limit.stop();
    let tracer = traced.inspect_err(|_| sys::kill(root))?;
    if tracer
        .modules
        .iter()
        .all(|module| module.functions.is_empty())
    {
        return Err(StepError::NothingInScope(out_of_scope(request)));
    }
    Ok(report::of(&tracer, is_late))
}

/// Follows a command from where it was executed to the end of all that it started.
fn trace<'r>(request: &'r Request, root: i32, limit: &Limit) -> Result<Tracer<'r>, StepError> {
    let mut tracer = Tracer::new(request, root)?;
    let (_, status) = sys::wait().map_err(StepError::Trace)?;
    match status {
        Status::Stopped { .. } => tracer.begin()?,
        Status::Gone { raw } => tracer.root_status = Some(raw),
    }
    while !tracer.is_over() {
        let (tid, status) = match sys::wait() {
            // Where SIGCHLD is ignored, ends are not told.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
            waited => waited.map_err(StepError::Trace)?,
        };
        tracer.handle(tid, status)?;
        if !matches!(status, Status::Stopped { event: 0, .. }) {
            limit.watch(tracer.processes());
        }
    }
    Ok(tracer)
}

fn out_of_scope(request: &Request) -> String {
    match (request.functions.is_empty(), request.modules.is_empty()) {
        (false, _) => format!(
            "no module has a function {}",
            request.functions.join(" or ")
        ),
        (true, false) => format!("no module {} was loaded", request.modules.join(" or ")),
        (true, true) => "the program has no functions that are known".to_owned(),
    }
}

/// A thread that kills what runs for too long.
struct Limit {
    shared: Arc<(Mutex<Watched>, Condvar)>,
}

#[derive(Default)]
struct Watched {
    processes: BTreeSet<i32>,
    is_over: bool,
    is_late: bool,
}

impl Limit {
    fn start(limit: Duration, root: i32) -> Limit {
        let watched = Watched {
            processes: BTreeSet::from([root]),
            ..Watched::default()
        };
        let shared = Arc::new((Mutex::new(watched), Condvar::new()));
        let seen = Arc::clone(&shared);
        std::thread::spawn(move || {
            let (watched, changed) = &*seen;
            let locked = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(locked, limit, |watched| !watched.is_over);
            let (mut watched, _) = waited.unwrap_or_else(PoisonError::into_inner);
            while !watched.is_over {
                watched.is_late = true;
                watched.processes.iter().copied().for_each(sys::kill);
                // What was started meanwhile is killed soon.
                let waited = changed.wait_timeout(watched, Duration::from_millis(100));
                watched = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        Limit { shared }
    }

    /// Says which processes there are.
    fn watch(&self, processes: BTreeSet<i32>) {
        let watched = self.shared.0.lock();
        watched.unwrap_or_else(PoisonError::into_inner).processes = processes;
    }

    /// Ends the thread; says whether the limit was reached.
    fn stop(&self) -> bool {
        let mut watched = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.is_over = true;
        self.shared.1.notify_all();
        watched.is_late
    }
}
