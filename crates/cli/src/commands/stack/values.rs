//! The values that a report shows: what functions were called with, and what their variables are.

use unspool_args::Lost;
use unspool_ir::{Memory, RuntimeAddr, Unreadable};
use unspool_unwind::process::Snapshot;
use unspool_unwind::space::{Space, Stack};

use super::arguments::{self, Tables};
use super::variables::{Described, Level, Variable, Walked};

/// The bytes that are shown of a value at most.
pub(super) const MOST_BYTES: usize = 1024;

/// What is known of a frame.
#[derive(Default)]
pub(super) struct Values {
    /// What its function was called with; `None` if nothing says what it takes.
    pub(super) arguments: Option<Vec<Argument>>,
    /// The functions that are inlined there, innermost first.
    pub(super) inlined: Vec<Level>,
    /// Its function's own variables.
    pub(super) locals: Vec<Variable>,
}

/// An argument of a frame's function.
pub(super) struct Argument {
    /// The parameter's name, or its number.
    pub(super) name: String,
    /// Its type.
    pub(super) type_name: String,
    /// Its value when the function was called, if it was found.
    pub(super) value: Result<Found, Lost>,
    /// What the parameter is now, if debugging information says that.
    pub(super) now: Option<String>,
}

/// A value that was found.
pub(super) struct Found {
    /// As C would have it.
    pub(super) text: String,
    /// How it is known.
    pub(super) label: Label,
    /// How many frames further out it was found.
    pub(super) by_caller: usize,
}

/// How what a function was called with is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// The code says so, and the program can have made nothing else of it.
    Exact,
    /// Debugging information says so.
    Described,
    /// The code says so, and the program may have made something else of it.
    Likely,
}

impl Label {
    pub(super) fn name(self) -> &'static str {
        match self {
            Label::Exact => "exact",
            Label::Described => "described",
            Label::Likely => "likely",
        }
    }
}

/// A process's memory, with what its files have of it: cores leave that out.
pub(super) struct WithFiles<'r> {
    pub(super) memory: &'r dyn Memory,
    pub(super) space: &'r Space<'r>,
}

impl Memory for WithFiles<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        self.memory.read(addr, into).or_else(|unreadable| {
            match self.space.read_unchanging(addr, into) {
                true => Ok(()),
                false => Err(unreadable),
            }
        })
    }
}

/// What is asked of frames.
pub(super) struct Asked<'r, 'f> {
    pub(super) snapshot: &'r dyn Snapshot,
    pub(super) space: &'r Space<'r>,
    pub(super) memory: &'r dyn Memory,
    /// What functions were called with.
    pub(super) tables: Option<&'r Tables>,
    /// What debugging information says.
    pub(super) described: Option<&'r Described<'f>>,
    /// Whether the functions' own variables are shown.
    pub(super) with_locals: bool,
    /// Whether the texts that values lead to are shown, too.
    pub(super) with_strings: bool,
}

impl<'f> Asked<'_, 'f> {
    /// What is known of a stack's frames, one after another.
    pub(super) fn frames<'s>(
        &'s self,
        stack: &'s Stack,
    ) -> impl Iterator<Item = Values> + use<'s, 'f> {
        let tables = self.tables;
        let arguments = tables.map(|tables| tables.arguments(self.space, stack, self.memory));
        let certain = stack.certain();
        (0..stack.frames.len()).map(move |number| {
            let mut values = Values::default();
            if let Some(arguments) = &arguments {
                values.arguments = arguments::of_frame(arguments, number, self.text());
            }
            if let Some(described) = self.described {
                let walked = Walked {
                    described,
                    snapshot: self.snapshot,
                    space: self.space,
                    stack,
                    memory: self.memory,
                    certain,
                    arguments: arguments.as_ref(),
                };
                self.describe(&mut values, described.levels(&walked, number, self.text()));
            }
            values
        })
    }

    fn text(&self) -> Option<&dyn Memory> {
        self.with_strings.then_some(self.memory)
    }

    /// Adds what debugging information says of a frame's functions, the outermost last.
    fn describe(&self, values: &mut Values, mut levels: Vec<Level>) {
        let Some(own) = levels.pop() else {
            return;
        };
        if self.tables.is_some() {
            let known = values.arguments.take();
            values.arguments = Some(merge(known, own.parameters));
        }
        if self.with_locals {
            values.locals = own.locals;
        } else {
            levels.iter_mut().for_each(|level| level.locals.clear());
        }
        values.inlined = levels;
    }
}

/// What the code and debugging information tell of arguments together: what is exact before what is described, and that before what is likely.
fn merge(known: Option<Vec<Argument>>, described: Vec<Variable>) -> Vec<Argument> {
    let Some(mut arguments) = known else {
        let lost = |variable: Variable| {
            let mut argument = Argument {
                name: variable.name.clone(),
                type_name: variable.type_name.clone(),
                value: Err(Lost::Function),
                now: None,
            };
            argument.describe(variable);
            argument
        };
        return described.into_iter().map(lost).collect();
    };
    for variable in described {
        let named = arguments.iter_mut().find(|own| own.name == variable.name);
        if let Some(argument) = named {
            argument.describe(variable);
        }
    }
    arguments
}

impl Argument {
    fn describe(&mut self, variable: Variable) {
        let is_exact = |found: &Found| found.label == Label::Exact;
        if let Some(text) = variable.at_entry
            && !self.value.as_ref().is_ok_and(is_exact)
        {
            self.value = Ok(Found {
                text,
                label: Label::Described,
                by_caller: 1,
            });
        }
        self.now = variable.now.ok();
    }
}

/// A value as C would have it, with the characters that it leads to if there is memory for that.
pub(super) fn as_text(shown: unspool_args::Shown<'_>, memory: Option<&dyn Memory>) -> String {
    let byte = |address| {
        let mut byte = [0];
        let read = memory?.read(RuntimeAddr(address), &mut byte);
        read.ok().map(|()| u8::from_le_bytes(byte))
    };
    shown.with_text(&byte).to_string()
}
