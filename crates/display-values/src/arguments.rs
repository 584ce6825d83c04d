//! What functions were called with, as tables of arguments tell.

use std::collections::HashMap;
use std::path::PathBuf;

use unspool_arg_table::{ArgUnavailable, Certainty, Parameter, read_argument};
use unspool_dwarf_types::variables::VariableUnavailable;
use unspool_elf::ElfFile;
use unspool_process::snapshot_unwinder::{CallStack, SnapshotUnwinder};
use unspool_rows::Memory;
use unspool_table_store::ArgumentTable;

use crate::MAX_VALUE_BYTES;
use crate::frame_values::format_value;
use crate::frames::StackArguments;
use crate::variables::{KnownText, VariableText};

/// An argument of a frame's function.
pub struct FrameArgument {
    /// The parameter's name, or its number.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// Its value when the function was called, if it was found.
    pub value: Result<ArgText, ArgUnavailable>,
    /// What the parameter is now; `None` if debug information does not describe it.
    pub current: Option<Result<KnownText, VariableUnavailable>>,
}

/// A value that was found.
pub struct ArgText {
    /// As C would have it.
    pub text: String,
    /// How it is known.
    pub label: ValueCertainty,
    /// How many frames further out it was found.
    pub caller_depth: usize,
}

/// How what a function was called with is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueCertainty {
    /// The code says so, and the program can have made nothing else of it.
    Exact,
    /// Debug information says so.
    FromDebugInfo,
    /// The code says so, and the program may have made something else of it.
    Likely,
}

impl ValueCertainty {
    /// It in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ValueCertainty::Exact => "exact",
            ValueCertainty::FromDebugInfo => "described",
            ValueCertainty::Likely => "likely",
        }
    }
}

/// The tables of arguments of the modules that some stacks stand in.
#[derive(Default)]
pub struct ArgTables {
    by_module: HashMap<PathBuf, Option<ArgumentTable>>,
}

impl ArgTables {
    /// Asks `table` for the table of each module that a frame stands in.
    pub fn load<'s>(
        space: &SnapshotUnwinder<'_>,
        stacks: impl Iterator<Item = &'s CallStack>,
        mut table: impl FnMut(&ElfFile) -> Option<ArgumentTable>,
    ) -> ArgTables {
        let mut tables = ArgTables::default();
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
        space: &SnapshotUnwinder<'_>,
        stack: &'a CallStack,
        memory: &'a dyn Memory,
    ) -> StackArguments<'a> {
        let locate = |code| space.locate(code);
        StackArguments::new(stack, memory, locate, |at| {
            self.by_module.get(&at.module.name)?.as_ref()?.table()
        })
    }
}

/// The arguments of one frame; `None` if nothing says what its function takes.
pub(crate) fn frame_arguments(
    arguments: &StackArguments<'_>,
    number: usize,
    text_of: Option<&dyn Memory>,
) -> Option<Vec<FrameArgument>> {
    let function = arguments.frame(number)?.function()?;
    let parameters = (1..).zip(function.parameters()?);
    let shown = parameters.map(|(position, parameter)| FrameArgument {
        name: match parameter.name {
            "" => format!("#{position}"),
            name => name.to_owned(),
        },
        type_name: parameter.type_name.to_owned(),
        value: value(arguments, number, &parameter, text_of),
        current: None,
    });
    Some(shown.collect())
}

fn value(
    arguments: &StackArguments<'_>,
    number: usize,
    parameter: &Parameter<'_>,
    text_of: Option<&dyn Memory>,
) -> Result<ArgText, ArgUnavailable> {
    let size = usize::try_from(parameter.bytes).unwrap_or(MAX_VALUE_BYTES);
    let mut bytes = vec![0; size.min(MAX_VALUE_BYTES)];
    let found = read_argument(arguments, number, parameter, &mut bytes)?;
    let shown = unspool_arg_table::ValueDisplay::new(parameter, &bytes);
    Ok(ArgText {
        text: format_value(shown, text_of),
        label: match found.certainty {
            Certainty::Exact => ValueCertainty::Exact,
            Certainty::Likely => ValueCertainty::Likely,
        },
        caller_depth: found.caller_depth,
    })
}

/// What the code and debug information tell of arguments together: what is exact before what is described, and that before what is likely.
pub(crate) fn merge(
    known: Option<Vec<FrameArgument>>,
    described: Vec<VariableText>,
) -> Vec<FrameArgument> {
    let Some(mut arguments) = known else {
        let lost = |variable: VariableText| {
            let mut argument = FrameArgument {
                name: variable.name.clone(),
                type_name: variable.type_name.clone(),
                value: Err(ArgUnavailable::Function),
                current: None,
            };
            argument.add_debug_info(variable);
            argument
        };
        return described.into_iter().map(lost).collect();
    };
    for variable in described {
        let named = arguments.iter_mut().find(|own| own.name == variable.name);
        if let Some(argument) = named {
            argument.add_debug_info(variable);
        }
    }
    arguments
}

impl FrameArgument {
    fn add_debug_info(&mut self, variable: VariableText) {
        if let Some(at_entry) = variable.at_entry {
            let label = match at_entry.is_likely {
                true => ValueCertainty::Likely,
                false => ValueCertainty::FromDebugInfo,
            };
            // What the code says is as good, if neither is more than likely.
            let is_kept =
                |found: &ArgText| found.label == ValueCertainty::Exact || found.label == label;
            if !self.value.as_ref().is_ok_and(is_kept) {
                self.value = Ok(ArgText {
                    text: at_entry.text,
                    label,
                    caller_depth: 1,
                });
            }
        }
        self.current = Some(variable.current);
    }
}
