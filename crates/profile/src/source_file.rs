//! Source files, and the parts of them that are kept with a profile.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use unspool_symbols::{LookupEvent, NoSource, SourceFinder};

use crate::model::{ModuleId, Profile};
use crate::profile_names::ProfileNames;

/// Lines of a source file that follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceExcerpt {
    /// The file, as debug information has it.
    pub file: String,
    /// The number of its first line, from 1.
    pub first_line: u32,
    /// The lines, without line ends.
    pub lines: Vec<String>,
    /// Whether the file was changed after the program was built.
    pub is_newer: bool,
}

/// The text of a source file: all lines, or those that an archive has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceFile {
    /// The lines by number, from 1.
    lines: BTreeMap<u32, String>,
    /// Whether the file was changed after the program was built.
    pub is_newer: bool,
}

impl SourceFile {
    /// Reads a file that the debug information of a module names: from the profile, if that is an
    /// archive with it, or else as `finder` finds it.
    ///
    /// # Errors
    ///
    /// [`NoSource`]: why it is not shown.
    pub fn read(
        profile: &Profile,
        names: &ProfileNames,
        finder: &SourceFinder,
        (module, name): (ModuleId, &str),
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<SourceFile, NoSource> {
        if let Some(archived) = profile.archive().and_then(|archive| archive.source(name)) {
            return Ok(archived);
        }
        let program = names.modules().get(module.0 as usize);
        let program = program.and_then(|module| module.file());
        let source = finder.read(Path::new(name), program.map(|file| &**file), report)?;
        Ok(SourceFile {
            lines: (1..).zip(source.text.lines().map(str::to_owned)).collect(),
            is_newer: source.is_newer,
        })
    }

    /// The text of a line.
    #[must_use]
    pub fn line(&self, line: u32) -> Option<&str> {
        self.lines.get(&line).map(String::as_str)
    }

    /// Adds the lines of an excerpt.
    pub(crate) fn add(&mut self, excerpt: &SourceExcerpt) {
        self.is_newer = excerpt.is_newer;
        self.lines
            .extend((excerpt.first_line..).zip(excerpt.lines.iter().cloned()));
    }

    /// These lines as excerpts.
    pub(crate) fn excerpts(
        &self,
        file: &str,
        lines: impl Iterator<Item = u32>,
    ) -> Vec<SourceExcerpt> {
        let mut excerpts: Vec<SourceExcerpt> = Vec::new();
        let mut next = 0;
        for line in lines {
            let Some(text) = self.lines.get(&line).cloned() else {
                continue;
            };
            match excerpts.last_mut().filter(|_| line == next) {
                Some(excerpt) => excerpt.lines.push(text),
                None => excerpts.push(SourceExcerpt {
                    file: file.to_owned(),
                    first_line: line,
                    lines: vec![text],
                    is_newer: self.is_newer,
                }),
            }
            next = line.saturating_add(1);
        }
        excerpts
    }
}
