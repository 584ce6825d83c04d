//! What the functions of a report were called with.

use std::collections::HashMap;
use std::path::PathBuf;

use unspool_args::{Certainty, Lost, Parameter, whole};
use unspool_args_make::{TableError, table_of};
use unspool_ir::Memory;
use unspool_module::{DebugFiles, ElfFile, SearchRoots};
use unspool_unwind::arguments::Arguments;
use unspool_unwind::space::{Space, Stack};
use unspool_unwind::tables::{ArgumentTable, Store};

use super::values::{Argument, Found, Label, MOST_BYTES, as_text};
use crate::commands::report;
use crate::output;

/// The tables of arguments of the modules of a report.
#[derive(Default)]
pub(super) struct Tables {
    by_module: HashMap<PathBuf, Option<ArgumentTable>>,
}

impl Tables {
    /// Finds the tables of the modules that frames stand in, and makes those that are missing.
    pub(super) fn of<'s>(
        space: &Space<'_>,
        stacks: impl Iterator<Item = &'s Stack>,
        store: &Store,
    ) -> Tables {
        let mut tables = Tables::default();
        for frame in stacks.flat_map(|stack| &stack.frames) {
            if let Some(at) = space.locate(frame.code)
                && !tables.by_module.contains_key(&at.module.name)
            {
                let table = table(&at.module.file, store);
                tables.by_module.insert(at.module.name.clone(), table);
            }
        }
        if tables.by_module.values().all(Option::is_none) {
            output::notice(
                &"no module here says what its functions take: debugging information does (-g), and what gcc -gctf leaves in object \
                  files, which `unspool ctf link --into` puts into a program",
            );
        }
        tables
    }

    /// The arguments of a stack's frames.
    pub(super) fn arguments<'a>(
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

/// The table of a file, made and kept if there is none yet; `None` if nothing says what its functions take.
pub(in crate::commands) fn table(file: &ElfFile, store: &Store) -> Option<ArgumentTable> {
    let mut notices = Vec::new();
    let found = store.find_arguments(file, &mut notices);
    for notice in notices {
        output::notice(&notice);
    }
    if found.is_some() {
        return found;
    }
    let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
    let (made, missing) = match table_of(file, &debug) {
        Ok(made) => (Some(made.bytes), made.missing),
        // As its frames say.
        Err(TableError::NoTypes { missing, .. }) => (None, missing),
        Err(error) => {
            output::notice(&error);
            (None, Vec::new())
        }
    };
    report(file.path(), missing.iter());
    // What is missing may be there the next time.
    if let (Some(bytes), true, true) = (&made, missing.is_empty(), store.cache_folder().is_some())
        && let Err(error) = store.keep_arguments(&file.content_key(), bytes)
    {
        output::notice(&error);
    }
    made.map(ArgumentTable::made)
}

/// The arguments of one frame; `None` if nothing says what its function takes.
pub(super) fn of_frame(
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
