//! A `.ctf` section: its dictionaries, each with its types.

use std::borrow::Cow;

use crate::archive::{SHARED, members};
use crate::dict::Dict;
use crate::elf::ElfContext;
use crate::error::CtfError;
use crate::read::CtfReading;

/// The dictionaries of a section.
#[derive(Debug)]
pub struct CtfSection<'a> {
    dicts: Vec<(Cow<'a, str>, Dict<'a>)>,
    elf: ElfContext<'a>,
    /// The errors of members that are not dictionaries.
    pub problems: Vec<CtfError>,
}

/// A dictionary with its types.
#[derive(Debug)]
pub struct CtfUnit<'d> {
    /// Its name in the archive.
    pub name: &'d str,
    /// The dictionary.
    pub dict: &'d Dict<'d>,
    /// Its types, and their faults.
    pub reading: CtfReading<'d>,
}

impl<'a> CtfSection<'a> {
    /// Finds the dictionaries of a section. Errors of unreadable ones are in
    /// [`CtfSection::problems`].
    ///
    /// # Errors
    ///
    /// No dictionary can be read: the fault of the section, or of its first dictionary.
    pub fn open(bytes: &'a [u8], elf: ElfContext<'a>) -> Result<CtfSection<'a>, CtfError> {
        let mut section = CtfSection {
            dicts: Vec::new(),
            elf,
            problems: Vec::new(),
        };
        for member in members(bytes)? {
            let read = member.and_then(|member| Ok((member.dict(elf.strings)?, member.name)));
            match read {
                Ok((dict, name)) => section.dicts.push((name, dict)),
                Err(problem) => section.problems.push(problem),
            }
        }
        match section.problems.first() {
            Some(problem) if section.dicts.is_empty() => Err(problem.clone()),
            _ => Ok(section),
        }
    }

    /// The dictionaries with their names, in order.
    pub fn dicts(&self) -> impl Iterator<Item = (&str, &Dict<'a>)> {
        self.dicts.iter().map(|(name, dict)| (&**name, dict))
    }

    /// Whether the section is an archive of more than one dictionary, or of one with another name
    /// than [`SHARED`].
    #[must_use]
    pub fn is_archive(&self) -> bool {
        !matches!(&*self.dicts, [(name, _)] if name == SHARED)
    }

    /// The dictionaries that are not children, read. [`CtfSection::read`] reports those that cannot
    /// be.
    #[must_use]
    pub fn parents(&self) -> Vec<CtfUnit<'_>> {
        self.read_parents().filter_map(Result::ok).collect()
    }

    fn read_parents(&self) -> impl Iterator<Item = Result<CtfUnit<'_>, CtfError>> {
        let all = self.dicts.iter().filter(|(_, dict)| !dict.is_child());
        all.map(|(name, dict)| unit(name, dict, None, self.elf))
    }

    /// All readable dictionaries, parents first, and the errors of the others, including
    /// [`CtfSection::problems`].
    #[must_use]
    pub fn read(&self) -> (Vec<CtfUnit<'_>>, Vec<CtfError>) {
        let mut problems = self.problems.clone();
        let mut readable = |unit: Result<_, _>| unit.map_err(|problem| problems.push(problem)).ok();
        let mut units: Vec<_> = self.read_parents().filter_map(&mut readable).collect();
        let children: Vec<_> = self.children(&units).filter_map(readable).collect();
        units.extend(children);
        (units, problems)
    }

    /// All dictionaries, read: parents first.
    ///
    /// # Errors
    ///
    /// The error of the first dictionary that cannot be read.
    pub fn units(&self) -> Result<Vec<CtfUnit<'_>>, CtfError> {
        let mut units = self.read_parents().collect::<Result<Vec<_>, _>>()?;
        let children = self.children(&units).collect::<Result<Vec<_>, _>>()?;
        units.extend(children);
        Ok(units)
    }

    /// The children of the parents ([`CtfSection::parents`]), read. An error concerns one child.
    pub fn children<'d>(
        &'d self,
        parents: &[CtfUnit<'d>],
    ) -> impl Iterator<Item = Result<CtfUnit<'d>, CtfError>> {
        let all = self.dicts.iter().filter(|(_, dict)| dict.is_child());
        all.map(move |(name, dict)| {
            let wanted = dict.parent_name().unwrap_or_default();
            let parent = parents.iter().find(|parent| parent.name == wanted);
            unit(name, dict, parent, self.elf)
        })
    }
}

fn unit<'d>(
    name: &'d str,
    dict: &'d Dict<'d>,
    parent: Option<&CtfUnit<'d>>,
    elf: ElfContext<'d>,
) -> Result<CtfUnit<'d>, CtfError> {
    let parent = parent.map(|parent| &parent.reading.graph);
    Ok(CtfUnit {
        name,
        dict,
        reading: dict.graph(parent, elf)?,
    })
}
