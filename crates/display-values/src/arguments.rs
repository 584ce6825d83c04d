//! Arguments of functions, from argument tables.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use unspool_arg_table::{ArgUnavailable, TableParameter, ValueCertainty, read_argument};
use unspool_dwarf_types::variables::VariableUnavailable;
use unspool_elf::ElfFile;
use unspool_process::snapshot_unwinder::{CallStack, SnapshotUnwinder};
use unspool_rows::Memory;
use unspool_table_store::ArgumentTable;

use crate::MAX_VALUE_BYTES;
use crate::frame_values::format_value;
use crate::frames::StackArguments;
use crate::variables::{ValueText, VariableText};

/// An argument of a frame's function.
pub struct FrameArgument {
    /// The parameter's name, or its number.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// Its value when the function was called, if it was found.
    pub value: Result<ArgText, ArgUnavailable>,
    /// The parameter's current value; `None` if debug information does not describe it.
    pub current: Option<Result<ValueText, VariableUnavailable>>,
}

/// A found value.
pub struct ArgText {
    /// In C notation.
    pub text: String,
    /// Its certainty.
    pub origin: ValueOrigin,
    /// The number of frames further out in which it was found.
    pub caller_depth: usize,
}

/// The certainty and source of an argument's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Proven by the code, and the program cannot have changed it.
    Exact,
    /// From debug information.
    FromDebugInfo,
    /// Derived from the code, but the program may have changed it.
    Likely,
}

impl ValueOrigin {
    /// The certainty in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ValueOrigin::Exact => "exact",
            ValueOrigin::FromDebugInfo => "debug-info",
            ValueOrigin::Likely => "likely",
        }
    }
}

/// The argument tables of some stacks' modules.
#[derive(Default)]
pub struct ArgTables {
    by_module: HashMap<PathBuf, Option<Rc<ArgumentTable>>>,
}

impl ArgTables {
    /// Calls `table` for each module of the frames.
    pub fn load<'s>(
        unwinder: &SnapshotUnwinder<'_>,
        stacks: impl Iterator<Item = &'s CallStack>,
        mut table: impl FnMut(&ElfFile) -> Option<Rc<ArgumentTable>>,
    ) -> ArgTables {
        let mut tables = ArgTables::default();
        for frame in stacks.flat_map(|stack| &stack.frames) {
            if let Some(at) = unwinder.locate(frame.code)
                && !tables.by_module.contains_key(&at.module.name)
            {
                let table = table(&at.module.file);
                tables.by_module.insert(at.module.name.clone(), table);
            }
        }
        tables
    }

    /// Whether no module has a table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_module.values().all(Option::is_none)
    }

    /// The arguments of a stack's frames.
    pub(crate) fn arguments<'a>(
        &'a self,
        unwinder: &SnapshotUnwinder<'_>,
        stack: &'a CallStack,
        memory: &'a dyn Memory,
    ) -> StackArguments<'a> {
        let locate = |code| unwinder.locate(code);
        StackArguments::new(stack, memory, locate, |at| {
            self.by_module.get(&at.module.name)?.as_ref()?.table()
        })
    }
}

/// The arguments of one frame; `None` if its function's prototype is unknown.
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
    parameter: &TableParameter<'_>,
    text_of: Option<&dyn Memory>,
) -> Result<ArgText, ArgUnavailable> {
    let size = usize::try_from(parameter.bytes).unwrap_or(MAX_VALUE_BYTES);
    let mut bytes = vec![0; size.min(MAX_VALUE_BYTES)];
    let found = read_argument(arguments, number, parameter, &mut bytes)?;
    let shown = unspool_arg_table::ValueDisplay::new(parameter, &bytes);
    Ok(ArgText {
        text: format_value(shown, text_of),
        origin: match found.certainty {
            ValueCertainty::Exact => ValueOrigin::Exact,
            ValueCertainty::Likely => ValueOrigin::Likely,
        },
        caller_depth: found.caller_depth,
    })
}

/// Merges arguments from the code and from debug information: exact ones before described ones, and
/// these before likely ones.
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
            let origin = if at_entry.is_likely {
                ValueOrigin::Likely
            } else {
                ValueOrigin::FromDebugInfo
            };
            // The code's value is as good, if neither is more than likely.
            let is_kept =
                |text: &ArgText| text.origin == ValueOrigin::Exact || text.origin == origin;
            if !self.value.as_ref().is_ok_and(is_kept) {
                self.value = Ok(ArgText {
                    text: at_entry.text,
                    origin,
                    caller_depth: 1,
                });
            }
        }
        self.current = Some(variable.current);
    }
}
