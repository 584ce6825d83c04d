//! A function's instructions and source lines, with samples.

use std::collections::HashMap;
use std::io::{self, Write};

use unspool_profile::output::View;
use unspool_profile::{
    CodeInstruction, FunctionCode, FunctionId, LineWeight, ModuleId, Profile, ProfileNames,
    SourceFile, SourceFrame, SourceLines,
};
use unspool_symbols::SourceFinder;

use super::code_symbolizer;
use crate::args::profiles::ReportArgs;
use crate::output;

mod json;
mod jumps;
mod text;

pub(super) use json::{print_disassembly as disassembly_json, print_source as source_json};
pub(super) use text::{print_disassembly, print_source};

/// The instructions of functions.
pub(super) struct Disassembly {
    functions: Vec<(FunctionId, FunctionCode)>,
}

impl Disassembly {
    /// Reads them; an error if none of the functions has any.
    pub(super) fn new(
        view: &View<'_>,
        names: &ProfileNames,
        args: &ReportArgs,
        functions: &[FunctionId],
    ) -> anyhow::Result<Disassembly> {
        let symbolizer = code_symbolizer(&args.output_args.filters);
        let found = FunctionCode::look_up(view, names, &symbolizer, functions, u64::MAX);
        let mut disassembly = Vec::new();
        let mut missing = None;
        for (function, found) in functions.iter().zip(found) {
            match found {
                Ok(codes) => disassembly.extend(codes.into_iter().map(|code| (*function, code))),
                Err(error) => missing = Some((*function, error)),
            }
        }
        if let (true, Some((function, error))) = (disassembly.is_empty(), missing) {
            let name = view.named.function_name(function);
            return Err(anyhow::Error::new(error).context(name.to_owned()));
        }
        Ok(Disassembly {
            functions: disassembly,
        })
    }
}

/// The source lines of functions.
pub(super) struct SourceListing<'a> {
    functions: Vec<(FunctionId, SourceLines<'a>)>,
}

impl<'a> SourceListing<'a> {
    /// Sums them; an error if no line is known.
    pub(super) fn new(
        view: &'a View<'_>,
        functions: &[FunctionId],
    ) -> anyhow::Result<SourceListing<'a>> {
        let lines = functions
            .iter()
            .map(|id| (*id, SourceLines::new(view, *id)));
        let (functions, without): (Vec<_>, Vec<_>) =
            lines.partition(|(_, lines)| !lines.lines.is_empty());
        if let (true, Some((function, _))) = (functions.is_empty(), without.first()) {
            anyhow::bail!(
                "{}: its source lines are unknown: build the program with debug information (-g)",
                view.named.function_name(*function)
            );
        }
        Ok(SourceListing { functions })
    }
}

/// The text of source files, each read once.
pub(super) struct SourceFiles<'a> {
    finder: SourceFinder,
    profile: &'a Profile,
    names: &'a ProfileNames,
    read: HashMap<String, Option<SourceFile>>,
}

impl<'a> SourceFiles<'a> {
    pub(super) fn new(
        profile: &'a Profile,
        names: &'a ProfileNames,
        args: &ReportArgs,
    ) -> SourceFiles<'a> {
        let finder = SourceFinder::new(args.source_args.source_map.clone());
        SourceFiles {
            finder: finder.with_servers_from_environment(),
            profile,
            names,
            read: HashMap::new(),
        }
    }

    /// A file that the debug information of a module names. A notice says why there is none.
    fn file(&mut self, module: ModuleId, name: &str) -> Option<&SourceFile> {
        if !self.read.contains_key(name) {
            let read = self.read(module, name);
            self.read.insert(name.to_owned(), read);
        }
        self.read.get(name)?.as_ref()
    }

    fn read(&self, module: ModuleId, name: &str) -> Option<SourceFile> {
        let (profile, names, report) = (self.profile, self.names, &super::names::report_download);
        match SourceFile::read(profile, names, &self.finder, (module, name), report) {
            Ok(source) => {
                if source.is_newer {
                    output::notice(&format_args!(
                        "{name}: it was changed after the program was built: lines may be others"
                    ));
                }
                Some(source)
            }
            Err(error) => {
                output::notice(&error);
                None
            }
        }
    }

    /// The text of a line.
    fn line(&mut self, module: ModuleId, name: &str, line: u32) -> Option<&str> {
        self.file(module, name)?.line(line)
    }
}

/// A line with spaces in place of tabs.
fn expand_tabs(line: &str) -> String {
    const TAB: usize = 8;
    let mut expanded = String::new();
    let mut column = 0;
    for character in line.chars() {
        let width = if character == '\t' {
            TAB - column % TAB
        } else {
            1
        };
        match character {
            '\t' => expanded.extend(std::iter::repeat_n(' ', width)),
            other => expanded.push(other),
        }
        column += width;
    }
    expanded
}

/// Whether each of `count` rows is near one that matters.
fn near(count: usize, context: usize, matters: impl Iterator<Item = usize>) -> Vec<bool> {
    let mut shown = vec![false; count];
    for row in matters {
        let rows = row.saturating_sub(context)..count.min(row + context + 1);
        shown
            .get_mut(rows)
            .into_iter()
            .flatten()
            .for_each(|shown| *shown = true);
    }
    shown
}
