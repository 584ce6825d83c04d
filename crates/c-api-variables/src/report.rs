//! What is told, one variable after another.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::ControlFlow;

use unspool_display_values::{
    ArgTables, ArgText, DebugInfo, DebugInfoFiles, FrameValues, FunctionValues, KnownText,
    ValueQuery, VariableText,
};
use unspool_dwarf_types::variables::VariableUnavailable;
use unspool_elf::{DebugFiles, SearchRoots};
use unspool_process::snapshot_unwinder::{CallStack, SnapshotUnwinder, WalkDetail};
use unspool_process::{OwnProcess, Snapshot as _};
use unspool_rows::{CodeAddr, Registers};
use unspool_table_store::Store;
use unspool_unwind::Cursor;
use unspool_unwind::local::ABI;

/// A frame of the own stack.
pub struct StartFrame {
    /// Where it stands.
    pub code: CodeAddr,
    /// Its registers, as far as they are known, and those of the thread that all frames have.
    pub registers: Registers,
}

/// Which variables are wanted.
#[derive(Debug, Clone, Copy)]
pub struct VariableQuery {
    /// Those of the frame that is so many steps further out, at first.
    pub first: usize,
    /// Those of so many frames.
    pub frames: usize,
    /// Whether the characters that pointers lead to are shown, too.
    pub with_strings: bool,
}

/// A variable that is told of.
pub struct VariableReport<'t> {
    /// How many steps further out its frame is.
    pub frame: usize,
    /// Where that stands.
    pub address: u64,
    /// The function that it is of; empty if debug information has none.
    pub function: &'t str,
    /// In how many functions that is inlined there.
    pub inlined: usize,
    /// Whether it is a parameter.
    pub is_parameter: bool,
    /// How many blocks of the function it is in, beside the body.
    pub block: usize,
    /// Its name.
    pub name: &'t str,
    /// Its type.
    pub type_name: &'t str,
    /// What it is now, or why that is not known.
    pub current: Result<&'t KnownText, Cow<'t, str>>,
    /// What it was when the function was called.
    pub entry: Option<&'t ArgText>,
}

/// Who is told.
pub trait ReportCallbacks {
    /// Takes a variable; whether there shall be more.
    fn variable(&mut self, told: &VariableReport<'_>) -> ControlFlow<()>;

    /// Takes why less is told than could be.
    fn problem(&mut self, problem: &dyn Display);
}

/// How the telling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportStatus {
    /// All was told.
    Complete,
    /// The listener has stopped it.
    Stopped,
    /// Nothing can be told; the listener knows why.
    Failed,
}

/// What a parameter was is looked for in the frames of callers, so many of them.
const MAX_CALLERS: usize = 64;

/// Why a parameter is not known of which a table of arguments tells alone.
const NOT_DESCRIBED: &str = "debugging information does not say where it is";

/// Tells of the variables of a frame of the calling thread, and of frames further out.
pub fn report(
    frame: &StartFrame,
    wanted: VariableQuery,
    listener: &mut dyn ReportCallbacks,
) -> ReportStatus {
    let process = match OwnProcess::new() {
        Ok(process) if process.auxv().is_privileged() => {
            listener.problem(&"the program has more rights than its caller (setuid, setgid, capabilities): its variables are not read");
            return ReportStatus::Failed;
        }
        Ok(process) => process,
        Err(error) => {
            listener.problem(&error);
            return ReportStatus::Failed;
        }
    };
    let store = Store::from_environment();
    let space = SnapshotUnwinder::new(&process, &process, &store);
    let last = wanted.first.saturating_add(wanted.frames);
    let cursor = Cursor::with_code(ABI, frame.code, frame.registers);
    let limit = last.saturating_add(MAX_CALLERS);
    let stack = space.walk_from(cursor, limit, WalkDetail::Registers);

    let mut notices = space.take_notices();
    let stacks = || std::iter::once(&stack);
    let tables = ArgTables::load(&space, stacks(), |file| {
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        store.find_arguments(file, &debug, &mut notices)
    });
    let files = DebugInfoFiles::open(&space, stacks(), None);
    let described = DebugInfo::read(&files);
    for notice in &notices {
        listener.problem(notice);
    }
    for problem in space.problems() {
        listener.problem(problem);
    }
    let asked = ValueQuery {
        snapshot: &process,
        space: &space,
        memory: process.memory(),
        tables: Some(&tables),
        described: Some(&described),
        with_locals: true,
        with_strings: wanted.with_strings,
    };
    let outcome = frames(&asked, &stack, wanted, listener);
    for problem in described.take_problems() {
        listener.problem(&problem);
    }
    match outcome {
        ControlFlow::Continue(()) => ReportStatus::Complete,
        ControlFlow::Break(()) => ReportStatus::Stopped,
    }
}

fn frames(
    asked: &ValueQuery<'_, '_>,
    stack: &CallStack,
    wanted: VariableQuery,
    listener: &mut dyn ReportCallbacks,
) -> ControlFlow<()> {
    let end = wanted.first.saturating_add(wanted.frames);
    let numbers = (wanted.first..end).zip(stack.frames.iter().skip(wanted.first));
    for ((number, walked), values) in numbers.zip(asked.frames(stack, wanted.first..end)) {
        let teller = FrameReporter {
            frame: number,
            address: walked.code.address().0,
            listener,
        };
        teller.report_frame(&values)?;
    }
    ControlFlow::Continue(())
}

/// Tells of one frame.
struct FrameReporter<'l> {
    frame: usize,
    address: u64,
    listener: &'l mut dyn ReportCallbacks,
}

impl FrameReporter<'_> {
    fn report_frame(mut self, values: &FrameValues) -> ControlFlow<()> {
        let mut inlined = values.inlined.len();
        for level in &values.inlined {
            self.report_function(level, inlined)?;
            inlined -= 1;
        }
        let function = values.function.as_deref().unwrap_or_default();
        for argument in values.arguments.iter().flatten() {
            let now = match &argument.current {
                Some(Ok(known)) => Ok(known),
                Some(Err(absent)) => Err(absent.to_string().into()),
                None => Err(NOT_DESCRIBED.into()),
            };
            self.listener.variable(&VariableReport {
                frame: self.frame,
                address: self.address,
                function,
                inlined: 0,
                is_parameter: true,
                block: 0,
                name: &argument.name,
                type_name: &argument.type_name,
                current: now,
                entry: argument.value.as_ref().ok(),
            })?;
        }
        values
            .locals
            .iter()
            .try_for_each(|local| self.variable(local, function, 0, false))
    }

    fn report_function(&mut self, level: &FunctionValues, inlined: usize) -> ControlFlow<()> {
        for parameter in &level.parameters {
            self.variable(parameter, &level.function, inlined, true)?;
        }
        for local in &level.locals {
            self.variable(local, &level.function, inlined, false)?;
        }
        ControlFlow::Continue(())
    }

    fn variable(
        &mut self,
        variable: &VariableText,
        function: &str,
        inlined: usize,
        is_parameter: bool,
    ) -> ControlFlow<()> {
        let absent = |absent: &VariableUnavailable| Cow::from(absent.to_string());
        self.listener.variable(&VariableReport {
            frame: self.frame,
            address: self.address,
            function,
            inlined,
            is_parameter,
            block: variable.block,
            name: &variable.name,
            type_name: &variable.type_name,
            current: variable.current.as_ref().map_err(absent),
            entry: None,
        })
    }
}
