//! The report of variables, one after another.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::rc::Rc;

use unspool_display_values::{
    ArgTables, ArgText, DebugInfo, DebugInfoFiles, FrameValues, FunctionValues, ValueQuery,
    ValueText, VariableText,
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
pub(crate) struct StartFrame {
    /// Its code address.
    pub(crate) code: CodeAddr,
    /// Its known registers, and those that all frames of the thread share.
    pub(crate) registers: Registers,
}

/// The requested variables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VariableQuery {
    /// The first frame, in steps further out.
    pub(crate) first: usize,
    /// The number of frames.
    pub(crate) frames: usize,
    /// Whether the characters at pointers are shown, too.
    pub(crate) with_strings: bool,
}

/// A variable of the report.
pub(crate) struct VariableReport<'t> {
    /// The number of steps further out of its frame.
    pub(crate) frame: usize,
    /// The code address of its frame.
    pub(crate) address: u64,
    /// Its function; empty if debug information has none.
    pub(crate) function: &'t str,
    /// The depth of the inlined function; 0 for the frame's own.
    pub(crate) inlined: usize,
    /// Whether it is a parameter.
    pub(crate) is_parameter: bool,
    /// The depth of nested blocks in the function; 0 for the body.
    pub(crate) block: usize,
    /// Its name.
    pub(crate) name: &'t str,
    /// Its type.
    pub(crate) type_name: &'t str,
    /// Its current value, or why that is unknown.
    pub(crate) current: Result<&'t ValueText, Cow<'t, str>>,
    /// Its value when the function was called.
    pub(crate) entry: Option<&'t ArgText>,
}

/// The receiver of a report.
pub(crate) trait ReportCallbacks {
    /// Receives a variable; returns whether to continue.
    fn variable(&mut self, report: &VariableReport<'_>) -> ControlFlow<()>;

    /// Receives a reason why less is known than possible.
    fn problem(&mut self, problem: &dyn Display);
}

/// The end of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportStatus {
    /// It is complete.
    Complete,
    /// The receiver has stopped it.
    Stopped,
    /// Nothing can be reported; the receiver has got the reason.
    Failed,
}

/// The maximum number of callers to search for a parameter's value.
const MAX_CALLERS: usize = 64;

/// Why a parameter's current value is unknown if only an argument table has it.
const NOT_DESCRIBED: &str = "debugging information does not say where it is";

/// Reports the variables of a frame of the calling thread, and of frames further out.
pub(crate) fn report(
    frame: &StartFrame,
    query: VariableQuery,
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
    let space = SnapshotUnwinder::new(&process, &store);
    let last = query.first.saturating_add(query.frames);
    let cursor = Cursor::with_code(ABI, frame.code, frame.registers);
    let limit = last.saturating_add(MAX_CALLERS);
    let stack = space.walk_from(cursor, limit, WalkDetail::Registers);

    let mut notices = space.take_notices();
    let stacks = || std::iter::once(&stack);
    let tables = ArgTables::load(&space, stacks(), |file| {
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        store
            .find_arguments(file, &debug, &mut notices)
            .map(Rc::new)
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
        unwinder: &space,
        memory: process.memory(),
        tables: Some(&tables),
        debug_info: Some(&described),
        with_locals: true,
        with_strings: query.with_strings,
    };
    let outcome = frames(&asked, &stack, query, listener);
    for problem in described.take_problems() {
        listener.problem(&problem);
    }
    match outcome {
        ControlFlow::Continue(()) => ReportStatus::Complete,
        ControlFlow::Break(()) => ReportStatus::Stopped,
    }
}

fn frames(
    query: &ValueQuery<'_, '_>,
    stack: &CallStack,
    variable_query: VariableQuery,
    listener: &mut dyn ReportCallbacks,
) -> ControlFlow<()> {
    let end = variable_query.first.saturating_add(variable_query.frames);
    let numbers = (variable_query.first..end).zip(stack.frames.iter().skip(variable_query.first));
    for ((number, walked), values) in numbers.zip(query.frames(stack, variable_query.first..end)) {
        let teller = FrameReporter {
            frame: number,
            address: walked.code.address().0,
            listener,
        };
        teller.report_frame(&values)?;
    }
    ControlFlow::Continue(())
}

/// Reports one frame.
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

    fn report_function(
        &mut self,
        function_values: &FunctionValues,
        inlined: usize,
    ) -> ControlFlow<()> {
        for parameter in &function_values.parameters {
            self.variable(parameter, &function_values.function, inlined, true)?;
        }
        for local in &function_values.locals {
            self.variable(local, &function_values.function, inlined, false)?;
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
        let as_text = |reason: &VariableUnavailable| Cow::from(reason.to_string());
        self.listener.variable(&VariableReport {
            frame: self.frame,
            address: self.address,
            function,
            inlined,
            is_parameter,
            block: variable.block,
            name: &variable.name,
            type_name: &variable.type_name,
            current: variable.current.as_ref().map_err(as_text),
            entry: None,
        })
    }
}
