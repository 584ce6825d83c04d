//! Units split between an object file and another file (`-gsplit-dwarf`): `.dwo` files, or packages
//! of them (DWARF 5 §7.3).

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{DwarfPackage, DwoId, EndianSlice, SectionId, UnitType};
use typed_arena::Arena;
use unspool_elf::{DebugFiles, ElfFile};

use crate::attributes::text;
use crate::error::TypesError;
use crate::index::{DieIndex, DieRef, Dwarf, DwarfReader, DwoPackage, Skeleton, endian};

/// The files opened for a module's units. They stay open as long as this lives.
#[derive(Default)]
pub struct SplitFiles {
    opened: Arena<ElfFile>,
    /// The concatenated contents of several sections with one name.
    joined: Arena<Vec<u8>>,
}

impl SplitFiles {
    /// A section of a `.dwo` file, or of a package (DWARF 5 §7.3.2, §7.3.5). Type units have
    /// sections of their own with one name. A linker would concatenate them, but nobody links a
    /// `.dwo` file.
    fn section<'a>(
        &'a self,
        file: &'a ElfFile,
        id: SectionId,
    ) -> Result<DwarfReader<'a>, TypesError> {
        let Some(name) = id.dwo_name() else {
            return Ok(EndianSlice::new(&[], endian(file)));
        };
        let Some(first) = file.section_named(name)? else {
            return Ok(EndianSlice::new(&[], endian(file)));
        };
        let named = file
            .sections()
            .filter(|own| own.has_data && own.name == name);
        let mut named: Vec<_> = named.collect();
        if named.len() < 2 {
            return Ok(EndianSlice::new(first.data, endian(file)));
        }
        named.sort_unstable_by_key(|own| own.offset);
        let pairs = named.iter().zip(named.iter().skip(1));
        let mut ends = pairs.map(|(own, next)| (own.offset.checked_add(own.size), next.offset));
        // Then their sum would exceed the size of the file.
        if ends.any(|(end, next)| end.is_none_or(|end| end > next)) {
            return Err(TypesError::Overlapping {
                file: file.path().to_owned(),
                section: name,
            });
        }
        let mut joined = Vec::new();
        for own in &named {
            let part = file.section(own.index)?;
            joined.extend_from_slice(part.map_or(&[], |part| part.data));
        }
        let joined = &**self.joined.alloc(joined);
        Ok(EndianSlice::new(joined, endian(file)))
    }
}

/// The units of a module, in the module or in its debug file, and its split units.
pub(crate) fn units<'a>(
    module: &'a ElfFile,
    files: &'a DebugFiles,
    opened: &'a SplitFiles,
) -> Result<(Rc<DieIndex<'a>>, SplitUnits<'a>), TypesError> {
    let source = files.debug.as_deref().unwrap_or(module);
    let index = DieIndex::read(source, files.supplementary.as_deref())?;
    let mut beside = vec![module.path().to_owned()];
    beside.extend(files.debug.as_ref().map(|file| file.path().to_owned()));
    let splits = SplitUnits {
        source,
        directories: beside,
        files: opened,
        package: OnceCell::new(),
        read: RefCell::default(),
        problems: RefCell::default(),
    };
    Ok((Rc::new(index), splits))
}

/// The split part of a unit: its file, and its root entry there.
pub(crate) type SplitUnit<'a> = (Rc<DieIndex<'a>>, DieRef);

/// The split units of a module.
pub(crate) struct SplitUnits<'a> {
    /// The file that names the others.
    source: &'a ElfFile,
    /// The directories of the module, and of the file with its debug information.
    directories: Vec<PathBuf>,
    files: &'a SplitFiles,
    package: OnceCell<Option<Rc<DwoPackage<'a>>>>,
    /// By their skeletons.
    read: RefCell<HashMap<DieRef, Option<SplitUnit<'a>>>>,
    /// The reasons why some are missing, until they are taken.
    problems: RefCell<Vec<TypesError>>,
}

/// The name of the file with the split part of a unit, from the unit; `None` if it is complete.
pub(crate) fn name(index: &DieIndex<'_>, root: DieRef) -> Option<String> {
    let entry = index.entry(root).ok()?;
    let mut names = [gimli::DW_AT_dwo_name, gimli::DW_AT_GNU_dwo_name].into_iter();
    let name = names.find_map(|name| text(index, root, &entry, name))?;
    Some(name.into_owned())
}

/// Whether the header marks the unit as a skeleton, as in DWARF 5.
fn is_skeleton(index: &DieIndex<'_>, root: DieRef) -> bool {
    let unit = index.unit(root);
    unit.is_ok_and(|(unit, _)| matches!(unit.header.type_(), UnitType::Skeleton(_)))
}

impl<'a> SplitUnits<'a> {
    /// The split part of the unit with a skeleton, or that unit if it is complete; `None` if it is
    /// not available, which is recorded as a problem.
    pub(crate) fn split_unit(
        &self,
        index: &Rc<DieIndex<'a>>,
        root: DieRef,
    ) -> Option<SplitUnit<'a>> {
        if let Some(known) = self.read.borrow().get(&root) {
            return known.clone();
        }
        let found = match name(index, root) {
            None if is_skeleton(index, root) => {
                Err(root
                    .missing_attribute("a skeleton without the name of the file that has the rest"))
            }
            None => Ok((Rc::clone(index), root)),
            Some(name) => self.open(index, root, &name),
        };
        let failed = |problem| self.problems.borrow_mut().push(problem);
        let rest = found.map_err(failed).ok();
        self.read.borrow_mut().insert(root, rest.clone());
        rest
    }

    /// The problems since the last call.
    pub(crate) fn take_problems(&self) -> Vec<TypesError> {
        self.problems.take()
    }

    fn open(
        &self,
        index: &Rc<DieIndex<'a>>,
        root: DieRef,
        name: &str,
    ) -> Result<SplitUnit<'a>, TypesError> {
        let entry = index.entry(root)?;
        let own = |name| text(index, root, &entry, name).unwrap_or_default();
        let (unit, _) = index.unit(root)?;
        let id = unit.dwo_id;
        let id = id.ok_or_else(|| {
            root.missing_attribute("a unit whose rest is elsewhere, without its id")
        })?;
        if let Some(found) = self.package(index, id, root)? {
            return Ok(found);
        }
        let mut reasons = Vec::new();
        if let Some(Some(package)) = self.package.get() {
            reasons.push(format!("{} does not have it", package.path.display()));
        }
        let folder = own(gimli::DW_AT_comp_dir);
        let mut tried = vec![Path::new(&*folder).join(name)];
        let own_folders = self.directories.iter().filter_map(|file| file.parent());
        let base = Path::new(name).file_name().unwrap_or_default();
        tried.extend(own_folders.map(|folder| folder.join(base)));
        tried.dedup();
        for path in &tried {
            match self.read_file(path, index, id, root) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => reasons.push(format!("{} is of another build", path.display())),
                Err(TypesError::Module(error)) if error.is_missing() => {
                    reasons.push(format!("{} is not there", path.display()));
                }
                Err(problem) => reasons.push(problem.to_string()),
            }
        }
        let unit = match own(gimli::DW_AT_name) {
            name if name.is_empty() => format!("the unit at {:#x}", unit.header.offset().0),
            name => name.into_owned(),
        };
        Err(TypesError::Split {
            unit,
            file: name.to_owned(),
            reason: reasons.join("; "),
        })
    }

    /// The unit in a `.dwo` file, if the ids are the same.
    fn read_file(
        &self,
        path: &Path,
        index: &Rc<DieIndex<'a>>,
        id: DwoId,
        die: DieRef,
    ) -> Result<Option<SplitUnit<'a>>, TypesError> {
        let file = &*self.files.opened.alloc(self.source.open_part(path)?);
        let dwarf = Dwarf::load(|id| self.files.section(file, id))?;
        let of = Skeleton {
            index: Rc::clone(index),
            die,
            package: None,
        };
        unit_of(dwarf, of, id)
    }

    /// The unit in the package beside the module, if a package has it.
    fn package(
        &self,
        index: &Rc<DieIndex<'a>>,
        id: DwoId,
        die: DieRef,
    ) -> Result<Option<SplitUnit<'a>>, TypesError> {
        let package = self.package.get_or_init(|| {
            let mut paths = self.directories.iter().map(|file| {
                let mut path = file.clone().into_os_string();
                path.push(".dwp");
                PathBuf::from(path)
            });
            let (path, opened) = paths.find_map(|path| match self.source.open_part(&path) {
                Err(error) if error.is_missing() => None,
                opened => Some((path, opened)),
            })?;
            let read = || {
                let file = &*self.files.opened.alloc(opened?);
                DwarfPackage::load(|id| self.files.section(file, id), DwarfReader::default())
            };
            let read: Result<_, TypesError> = read();
            match read {
                Ok(package) => Some(Rc::new(DwoPackage::new(path, package))),
                Err(problem) => {
                    self.problems.borrow_mut().push(problem);
                    None
                }
            }
        });
        let Some(package) = package else {
            return Ok(None);
        };
        let found = package.dwarf.find_cu(id, index.dwarf(die.section));
        let Some(dwarf) = found.map_err(|error| die.dwarf_error(error))? else {
            return Ok(None);
        };
        let of = Skeleton {
            index: Rc::clone(index),
            die,
            package: Some(Rc::clone(package)),
        };
        unit_of(dwarf, of, id)
    }
}

/// The unit with an id in a file.
fn unit_of<'a>(
    dwarf: Dwarf<'a>,
    of: Skeleton<'a>,
    id: DwoId,
) -> Result<Option<SplitUnit<'a>>, TypesError> {
    let rest = Rc::new(DieIndex::split(dwarf, of)?);
    let mut roots = rest.roots().map(|(_, root)| root);
    let root = roots.find(|root| {
        let unit = rest.unit(*root);
        unit.is_ok_and(|(unit, _)| unit.dwo_id == Some(id))
    });
    drop(roots);
    Ok(root.map(|root| (rest, root)))
}
