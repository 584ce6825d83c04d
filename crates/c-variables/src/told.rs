//! What is told, one variable after another.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::ControlFlow;

use unspool_ir::{CodeAddr, Registers};
use unspool_module::{DebugFiles, SearchRoots};
use unspool_process::space::{Keep, Space, Stack};
use unspool_process::{OwnProcess, Snapshot as _};
use unspool_tables::Store;
use unspool_types::variables::Absent;
use unspool_unwind::Cursor;
use unspool_unwind::local::ABI;
use unspool_values::{Asked, Described, Files, Found, Known, Level, Tables, Values, Variable};

/// A frame of the own stack.
pub struct Frame {
    /// Where it stands.
    pub code: CodeAddr,
    /// Its registers, as far as they are known, and those of the thread that all frames have.
    pub registers: Registers,
}

/// Which variables are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Those of the frame that is so many steps further out, at first.
    pub first: usize,
    /// Those of so many frames.
    pub frames: usize,
    /// Whether the characters that pointers lead to are shown, too.
    pub with_strings: bool,
}

/// A variable that is told of.
pub struct Told<'t> {
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
    pub now: Result<&'t Known, Cow<'t, str>>,
    /// What it was when the function was called.
    pub entry: Option<&'t Found>,
}

/// Who is told.
pub trait Listener {
    /// Takes a variable; whether there shall be more.
    fn variable(&mut self, told: &Told<'_>) -> ControlFlow<()>;

    /// Takes why less is told than could be.
    fn problem(&mut self, problem: &dyn Display);
}

/// How the telling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All was told.
    Complete,
    /// The listener has stopped it.
    Stopped,
    /// Nothing can be told; the listener knows why.
    Failed,
}

/// What a parameter was is looked for in the frames of callers, so many of them.
const CALLERS: usize = 64;

/// Why a parameter is not known of which a table of arguments tells alone.
const NOT_DESCRIBED: &str = "debugging information does not say where it is";

/// Tells of the variables of a frame of the calling thread, and of frames further out.
pub fn tell(frame: &Frame, wanted: Wanted, listener: &mut dyn Listener) -> Outcome {
    let process = match OwnProcess::look() {
        Ok(process) if process.auxv().is_privileged() => {
            listener.problem(&"the program has more rights than its caller (setuid, setgid, capabilities): its variables are not read");
            return Outcome::Failed;
        }
        Ok(process) => process,
        Err(error) => {
            listener.problem(&error);
            return Outcome::Failed;
        }
    };
    let store = Store::from_environment();
    let space = Space::new(&process, &process, &store);
    let last = wanted.first.saturating_add(wanted.frames);
    let cursor = Cursor::at(ABI, frame.code, frame.registers);
    let limit = last.saturating_add(CALLERS);
    let stack = space.walk_from(cursor, limit, Keep::Registers);

    let mut notices = space.take_notices();
    let stacks = || std::iter::once(&stack);
    let tables = Tables::of(&space, stacks(), |file| {
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        store.find_arguments(file, &debug, &mut notices)
    });
    let files = Files::of(&space, stacks(), None);
    let described = Described::of(&files);
    for notice in &notices {
        listener.problem(notice);
    }
    for problem in space.problems() {
        listener.problem(problem);
    }
    let asked = Asked {
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
        ControlFlow::Continue(()) => Outcome::Complete,
        ControlFlow::Break(()) => Outcome::Stopped,
    }
}

fn frames(
    asked: &Asked<'_, '_>,
    stack: &Stack,
    wanted: Wanted,
    listener: &mut dyn Listener,
) -> ControlFlow<()> {
    let end = wanted.first.saturating_add(wanted.frames);
    let numbers = (wanted.first..end).zip(stack.frames.iter().skip(wanted.first));
    for ((number, walked), values) in numbers.zip(asked.frames(stack, wanted.first..end)) {
        let teller = Teller {
            frame: number,
            address: walked.code.address().0,
            listener,
        };
        teller.tell(&values)?;
    }
    ControlFlow::Continue(())
}

/// Tells of one frame.
struct Teller<'l> {
    frame: usize,
    address: u64,
    listener: &'l mut dyn Listener,
}

impl Teller<'_> {
    fn tell(mut self, values: &Values) -> ControlFlow<()> {
        let mut inlined = values.inlined.len();
        for level in &values.inlined {
            self.level(level, inlined)?;
            inlined -= 1;
        }
        let function = values.function.as_deref().unwrap_or_default();
        for argument in values.arguments.iter().flatten() {
            let now = match &argument.now {
                Some(Ok(known)) => Ok(known),
                Some(Err(absent)) => Err(absent.to_string().into()),
                None => Err(NOT_DESCRIBED.into()),
            };
            self.listener.variable(&Told {
                frame: self.frame,
                address: self.address,
                function,
                inlined: 0,
                is_parameter: true,
                block: 0,
                name: &argument.name,
                type_name: &argument.type_name,
                now,
                entry: argument.value.as_ref().ok(),
            })?;
        }
        values
            .locals
            .iter()
            .try_for_each(|local| self.variable(local, function, 0, false))
    }

    fn level(&mut self, level: &Level, inlined: usize) -> ControlFlow<()> {
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
        variable: &Variable,
        function: &str,
        inlined: usize,
        is_parameter: bool,
    ) -> ControlFlow<()> {
        let absent = |absent: &Absent| Cow::from(absent.to_string());
        self.listener.variable(&Told {
            frame: self.frame,
            address: self.address,
            function,
            inlined,
            is_parameter,
            block: variable.block,
            name: &variable.name,
            type_name: &variable.type_name,
            now: variable.now.as_ref().map_err(absent),
            entry: None,
        })
    }
}
