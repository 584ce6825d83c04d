//! Known values of a stack's frames.

use std::ops::Range;

use unspool_arg_table::{DisplayType, ValueDisplay};
use unspool_process::Snapshot;
use unspool_process::snapshot_unwinder::{CallStack, SnapshotUnwinder};
use unspool_rows::{Memory, RuntimeAddr, Unreadable};

use crate::arguments::{self, ArgTables, FrameArgument, merge};
use crate::variables::{DebugInfo, FunctionValues, VariableText, WalkedStack};

/// The known values of a frame.
#[derive(Default)]
pub struct FrameValues {
    /// The name of its function, if debug information has it.
    pub function: Option<String>,
    /// Its function's arguments; `None` if its prototype is unknown, or arguments were not
    /// requested.
    pub arguments: Option<Vec<FrameArgument>>,
    /// The functions inlined there, innermost first.
    pub inlined: Vec<FunctionValues>,
    /// Its function's own variables, those of the innermost block first.
    pub locals: Vec<VariableText>,
}

/// A process's memory, completed from its files: cores omit that part.
pub struct WithFiles<'r> {
    /// The memory.
    pub memory: &'r dyn Memory,
    /// The files.
    pub unwinder: &'r SnapshotUnwinder<'r>,
}

impl Memory for WithFiles<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        self.memory.read(addr, into).or_else(|unreadable| {
            if self.unwinder.read_unchanging(addr, into) {
                Ok(())
            } else {
                Err(unreadable)
            }
        })
    }
}

/// A query of the frames of a process's stacks.
pub struct ValueQuery<'r, 'f> {
    /// The stopped process.
    pub snapshot: &'r dyn Snapshot,
    /// Its modules.
    pub unwinder: &'r SnapshotUnwinder<'r>,
    /// Its memory.
    pub memory: &'r dyn Memory,
    /// The argument tables.
    pub tables: Option<&'r ArgTables>,
    /// The debug information.
    pub debug_info: Option<&'r DebugInfo<'f>>,
    /// Whether the functions' own variables are shown.
    pub with_locals: bool,
    /// Whether texts at pointers are shown, too.
    pub with_strings: bool,
}

impl<'f> ValueQuery<'_, 'f> {
    /// The known values of some frames of a stack, one after another. The stack must have been
    /// [kept with the registers](unspool_process::snapshot_unwinder::WalkDetail::Registers).
    pub fn frames<'s>(
        &'s self,
        stack: &'s CallStack,
        numbers: Range<usize>,
    ) -> impl Iterator<Item = FrameValues> + use<'s, 'f> {
        let tables = self.tables;
        let arguments = tables.map(|tables| tables.arguments(self.unwinder, stack, self.memory));
        let certain = stack.certain();
        let end = numbers.end.min(stack.frames.len());
        (numbers.start..end).map(move |number| {
            let mut values = FrameValues::default();
            if let Some(arguments) = &arguments {
                values.arguments = arguments::frame_arguments(arguments, number, self.text());
            }
            if let Some(described) = self.debug_info {
                let walked = WalkedStack {
                    debug_info: described,
                    snapshot: self.snapshot,
                    unwinder: self.unwinder,
                    stack,
                    memory: self.memory,
                    first_guess: certain,
                    arguments: arguments.as_ref(),
                };
                let memory = [self.text(), self.contents()];
                self.describe(
                    &mut values,
                    described.frame_functions(&walked, number, memory),
                );
            }
            values
        })
    }

    fn text(&self) -> Option<&dyn Memory> {
        self.with_strings.then_some(self.memory)
    }

    /// The memory of what containers contain: the process stands still for variables and texts.
    fn contents(&self) -> Option<&dyn Memory> {
        (self.with_locals || self.with_strings).then_some(self.memory)
    }

    /// Adds the values from debug information of a frame's functions, the outermost last.
    fn describe(&self, values: &mut FrameValues, mut function_values: Vec<FunctionValues>) {
        let Some(own) = function_values.pop() else {
            return;
        };
        values.function = Some(own.function);
        if self.tables.is_some() {
            let known = values.arguments.take();
            values.arguments = Some(merge(known, own.parameters));
        }
        if self.with_locals {
            values.locals = own.locals;
        } else {
            function_values
                .iter_mut()
                .for_each(|level| level.locals.clear());
        }
        values.inlined = function_values;
    }
}

/// A value in C notation, with the characters at a pointer if memory is given.
pub(crate) fn format_value<T: DisplayType>(
    shown: ValueDisplay<'_, T>,
    memory: Option<&dyn Memory>,
) -> String {
    let byte = |address| {
        let mut byte = [0];
        let read = memory?.read(RuntimeAddr(address), &mut byte);
        read.ok().map(|()| u8::from_le_bytes(byte))
    };
    shown.with_text(&byte).to_string()
}
