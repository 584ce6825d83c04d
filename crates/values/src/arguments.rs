//! What functions were called with, as tables of arguments tell.

use std::collections::HashMap;
use std::path::PathBuf;

use unspool_args::{Certainty, Lost, Parameter, whole};
use unspool_ir::Memory;
use unspool_module::ElfFile;
use unspool_process::space::{Space, Stack};
use unspool_tables::ArgumentTable;
use unspool_types::variables::Absent;

use crate::MOST_BYTES;
use crate::frames::Arguments;
use crate::values::as_text;
use crate::variables::{Known, Variable};

/// An argument of a frame's function.
pub struct Argument {
    /// The parameter's name, or its number.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// Its value when the function was called, if it was found.
    pub value: Result<Found, Lost>,
    /// What the parameter is now; `None` if debug information does not describe it.
    pub now: Option<Result<Known, Absent>>,
}

/// A value that was found.
pub struct Found {
    /// As C would have it.
    pub text: String,
    /// How it is known.
    pub label: Label,
    /// How many frames further out it was found.
    pub by_caller: usize,
}

/// How what a function was called with is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// The code says so, and the program can have made nothing else of it.
    Exact,
    /// Debug information says so.
    Described,
    /// The code says so, and the program may have made something else of it.
    Likely,
}

impl Label {
    /// It in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Label::Exact => "exact",
            Label::Described => "described",
            Label::Likely => "likely",
        }
    }
}

/// The tables of arguments of the modules that some stacks stand in.
#[derive(Default)]
pub struct Tables {
    by_module: HashMap<PathBuf, Option<ArgumentTable>>,
}

impl Tables {
    /// Asks `table` for the table of each module that a frame stands in.
    pub fn of<'s>(
        space: &Space<'_>,
        stacks: impl Iterator<Item = &'s Stack>,
        mut table: impl FnMut(&ElfFile) -> Option<ArgumentTable>,
    ) -> Tables {
        let mut tables = Tables::default();
        for frame in stacks.flat_map(|stack| &stack.frames) {
            if let Some(at) = space.locate(frame.code)
                && !tables.by_module.contains_key(&at.module.name)
            {
                let table = table(&at.module.file);
                tables.by_module.insert(at.module.name.clone(), table);
            }
        }
        tables
    }

    /// Whether no module has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_module.values().all(Option::is_none)
    }

    /// The arguments of a stack's frames.
    pub(crate) fn arguments<'a>(
        &'a self,
        space: &Space<'_>,
        stack: &'a Stack,
        memory: &'a dyn Memory,
    ) -> Arguments<'a> {
        let locate = |code| space.locate(code);
        Arguments::new(stack, memory, locate, |at| {
            self.by_module.get(&at.module.name)?.as_ref()?.table()
        })
    }
}

/// The arguments of one frame; `None` if nothing says what its function takes.
pub(crate) fn of_frame(
    arguments: &Arguments<'_>,
    number: usize,
    text_of: Option<&dyn Memory>,
) -> Option<Vec<Argument>> {
    let function = arguments.frame(number)?.function()?;
    let parameters = (1..).zip(function.parameters()?);
    let shown = parameters.map(|(position, parameter)| Argument {
        name: match parameter.name {
            "" => format!("#{position}"),
            name => name.to_owned(),
        },
        type_name: parameter.type_name.to_owned(),
        value: value(arguments, number, &parameter, text_of),
        now: None,
    });
    Some(shown.collect())
}

fn value(
    arguments: &Arguments<'_>,
    number: usize,
    parameter: &Parameter<'_>,
    text_of: Option<&dyn Memory>,
) -> Result<Found, Lost> {
    let size = usize::try_from(parameter.bytes).unwrap_or(MOST_BYTES);
    let mut bytes = vec![0; size.min(MOST_BYTES)];
    let found = whole(arguments, number, parameter, &mut bytes)?;
    let shown = unspool_args::Shown::new(parameter, &bytes);
    Ok(Found {
        text: as_text(shown, text_of),
        label: match found.certainty {
            Certainty::Exact => Label::Exact,
            Certainty::Likely => Label::Likely,
        },
        by_caller: found.by_caller,
    })
}

/// What the code and debug information tell of arguments together: what is exact before what is described, and that before what is likely.
pub(crate) fn merge(known: Option<Vec<Argument>>, described: Vec<Variable>) -> Vec<Argument> {
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
        if let Some(at_entry) = variable.at_entry {
            let label = match at_entry.is_likely {
                true => Label::Likely,
                false => Label::Described,
            };
            // What the code says is as good, if neither is more than likely.
            let is_kept = |found: &Found| found.label == Label::Exact || found.label == label;
            if !self.value.as_ref().is_ok_and(is_kept) {
                self.value = Ok(Found {
                    text: at_entry.text,
                    label,
                    by_caller: 1,
                });
            }
        }
        self.now = Some(variable.now);
    }
}
