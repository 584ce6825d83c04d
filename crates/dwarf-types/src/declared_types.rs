//! The source files that define the named types of a program (`DW_AT_decl_file`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use gimli::AttributeValue;
use unspool_c_types::{NameSpace, Type, TypeKind};

use crate::index::{DieEntry, DieIndex, DieRef, DwarfUnit, UnitSection};

/// The files that define each named type. Types of equal names have one entry.
#[derive(Debug, Default)]
pub(crate) struct DeclaredTypes<'a> {
    types: HashMap<(NameSpace, Cow<'a, str>), HashSet<Arc<Path>>>,
    /// Files by the offset of lines, which units share, and number; `None` for those without a name.
    files: HashMap<(UnitSection, Option<usize>, u64), Option<Arc<Path>>>,
}

impl<'a> DeclaredTypes<'a> {
    /// Adds the file of a defined type, if it has a name and its entry a file.
    pub(crate) fn add(
        &mut self,
        index: &DieIndex<'a>,
        die: DieRef,
        entry: &DieEntry<'a>,
        ty: &Type<'a>,
    ) {
        if matches!(ty.kind, TypeKind::Forward(_)) {
            return;
        }
        let Some(AttributeValue::FileIndex(number)) = entry.attr_value(gimli::DW_AT_decl_file)
        else {
            return;
        };
        let (Some(space), Ok((unit, _))) = (ty.name_space(), index.unit(die)) else {
            return;
        };
        let lines = unit.line_program.as_ref();
        let lines = lines.map(|lines| lines.header().offset().0);
        let file = self.files.entry((die.section, lines, number));
        let path = file.or_insert_with(|| source_file(index, die, number).map(Into::into));
        if let Some(path) = path {
            let types = self.types.entry((space, ty.name.clone()));
            types.or_default().insert(Arc::clone(path));
        }
    }

    /// Adds those of another unit.
    pub(crate) fn append(&mut self, other: DeclaredTypes<'a>) {
        for (name, files) in other.types {
            self.types.entry(name).or_default().extend(files);
        }
    }

    /// All files.
    pub(crate) fn files(&self) -> HashSet<&Path> {
        let files = self.types.values().flatten();
        files.map(|file| &**file).collect()
    }

    /// The names that have files, none of which is one of these.
    pub(crate) fn outside(self, files: &HashSet<PathBuf>) -> HashSet<(NameSpace, Cow<'a, str>)> {
        let is_outside = |of: &HashSet<Arc<Path>>| !of.iter().any(|file| files.contains(&**file));
        let types = self.types.into_iter();
        let outside = types.filter(|(_, of)| is_outside(of));
        outside.map(|(name, _)| name).collect()
    }
}

/// The path of a source file, by its number in an entry's unit. A split unit has the numbers of its
/// skeleton.
fn source_file(index: &DieIndex<'_>, die: DieRef, number: u64) -> Option<PathBuf> {
    let (unit, _) = index.unit(die).ok()?;
    if unit.line_program.is_none() {
        let (skeleton, place) = index.skeleton()?;
        return source_file(skeleton, place, number);
    }
    let dwarf = index.dwarf(die.section);
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let text = |value| {
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(String::from_utf8_lossy(text.slice()).into_owned())
    };
    // Type units name no folder: it is that of the unit with the same lines.
    let has_lines = |unit: &&DwarfUnit<'_>| {
        let lines = unit.line_program.as_ref();
        lines.is_some_and(|lines| lines.header().offset() == header.offset())
    };
    let of_lines = || {
        let units = index.roots().filter_map(|(_, root)| index.unit(root).ok());
        let mut units = units.map(|(unit, _)| unit).filter(has_lines);
        units.find_map(|unit| unit.comp_dir)
    };
    let folder = unit.comp_dir.or_else(of_lines);
    let folder = folder.map(|folder| String::from_utf8_lossy(folder.slice()));
    let folder = PathBuf::from(folder.unwrap_or_default().into_owned());
    let folder = folder.join(file.directory(header).and_then(text).unwrap_or_default());
    Some(normalized(&folder.join(text(file.path_name())?)))
}

/// A path without `.` and `..`, as if no part of it were a symbolic link.
pub(crate) fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if normalized.file_name().is_some() => {
                normalized.pop();
            }
            _ => normalized.push(part),
        }
    }
    normalized
}
