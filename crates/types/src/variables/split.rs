//! Units the rest of which is in files of their own (`-gsplit-dwarf`): `.dwo` files, or packages of such (DWARF 5 §7.3).

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{DwarfPackage, DwoId};
use typed_arena::Arena;
use unspool_module::ElfFile;

use crate::entry::text;
use crate::error::TypesError;
use crate::index::{Dwarf, Index, Place, Slice, split_section};

/// The files that were opened for a module's units. They are open as long as this lives.
#[derive(Default)]
pub struct SplitFiles {
    opened: Arena<ElfFile>,
}

/// The rest of a unit: the file that it is in, and where its root entry is there.
pub(super) type Rest<'a> = (Rc<Index<'a>>, Place);

/// The units of a module that are elsewhere.
pub(super) struct Splits<'a> {
    /// The module, or the file with its debug information.
    beside: Vec<PathBuf>,
    files: &'a SplitFiles,
    package: OnceCell<Option<DwarfPackage<Slice<'a>>>>,
    /// By where their skeletons are.
    read: RefCell<HashMap<Place, Option<Rest<'a>>>>,
    /// Why some are not there, as long as nobody has asked.
    problems: RefCell<Vec<TypesError>>,
}

/// The name of the file that has the rest of a unit, as the unit has it; `None` if it is whole.
pub(super) fn name(index: &Index<'_>, root: Place) -> Option<String> {
    let entry = index.entry(root).ok()?;
    let mut names = [gimli::DW_AT_dwo_name, gimli::DW_AT_GNU_dwo_name].into_iter();
    let name = names.find_map(|name| text(index, root, &entry, name))?;
    Some(name.into_owned())
}

impl<'a> Splits<'a> {
    /// Those that are looked for beside these files.
    pub(super) fn beside(files: Vec<PathBuf>, opened: &'a SplitFiles) -> Splits<'a> {
        Splits {
            beside: files,
            files: opened,
            package: OnceCell::new(),
            read: RefCell::default(),
            problems: RefCell::default(),
        }
    }

    /// The rest of the unit with a skeleton, or that unit if it is whole; `None` if it cannot be had, which is a problem then.
    pub(super) fn rest(&self, index: &Rc<Index<'a>>, root: Place) -> Option<Rest<'a>> {
        if let Some(known) = self.read.borrow().get(&root) {
            return known.clone();
        }
        let rest = match name(index, root) {
            None => Some((Rc::clone(index), root)),
            Some(name) => match self.open(index, root, &name) {
                Ok(rest) => Some(rest),
                Err(problem) => {
                    self.problems.borrow_mut().push(problem);
                    None
                }
            },
        };
        self.read.borrow_mut().insert(root, rest.clone());
        rest
    }

    /// What was wrong since this was last asked.
    pub(super) fn take_problems(&self) -> Vec<TypesError> {
        self.problems.take()
    }

    fn open(&self, index: &Rc<Index<'a>>, root: Place, name: &str) -> Result<Rest<'a>, TypesError> {
        let entry = index.entry(root)?;
        let own = |name| text(index, root, &entry, name).unwrap_or_default();
        let (unit, _) = index.unit(root)?;
        let id = unit.dwo_id;
        let id = id.ok_or_else(|| root.lacks("a unit whose rest is elsewhere, without its id"))?;
        if let Some(found) = self.package(index, id, root)? {
            return Ok(found);
        }
        let folder = own(gimli::DW_AT_comp_dir);
        let mut tried = vec![Path::new(&*folder).join(name)];
        let own_folders = self.beside.iter().filter_map(|file| file.parent());
        let base = Path::new(name).file_name().unwrap_or_default();
        tried.extend(own_folders.map(|folder| folder.join(base)));
        tried.dedup();
        let mut why = Vec::new();
        for path in &tried {
            match self.read_file(path, index, id, root) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => why.push(format!("{} is of another build", path.display())),
                Err(_) if !path.exists() => why.push(format!("{} is not there", path.display())),
                Err(problem) => why.push(problem.to_string()),
            }
        }
        Err(TypesError::Split {
            file: name.to_owned(),
            why: why.join("; "),
        })
    }

    /// That of a `.dwo` file, if the ids are the same.
    fn read_file(
        &self,
        path: &Path,
        index: &Rc<Index<'a>>,
        id: DwoId,
        root: Place,
    ) -> Result<Option<Rest<'a>>, TypesError> {
        let file = &*self.files.opened.alloc(ElfFile::open(path)?);
        let dwarf = Dwarf::load(|id| split_section(file, id))?;
        self.unit_of(dwarf, index, id, root)
    }

    /// That of the package beside the module, if there is one that has it.
    fn package(
        &self,
        index: &Rc<Index<'a>>,
        id: DwoId,
        root: Place,
    ) -> Result<Option<Rest<'a>>, TypesError> {
        let package = self.package.get_or_init(|| {
            let mut paths = self.beside.iter().map(|file| {
                let mut path = file.clone().into_os_string();
                path.push(".dwp");
                PathBuf::from(path)
            });
            let path = paths.find(|path| path.exists())?;
            let read = || {
                let file = &*self.files.opened.alloc(ElfFile::open(path)?);
                DwarfPackage::load(|id| split_section(file, id), Slice::default())
            };
            let read: Result<_, TypesError> = read();
            match read {
                Ok(package) => Some(package),
                Err(problem) => {
                    self.problems.borrow_mut().push(problem);
                    None
                }
            }
        });
        let Some(package) = package else {
            return Ok(None);
        };
        let found = package.find_cu(id, index.dwarf(root.part));
        match found.map_err(|error| root.failed(error))? {
            Some(dwarf) => self.unit_of(dwarf, index, id, root),
            None => Ok(None),
        }
    }

    /// The unit with an id in a file.
    fn unit_of(
        &self,
        dwarf: Dwarf<'a>,
        index: &Rc<Index<'a>>,
        id: DwoId,
        skeleton: Place,
    ) -> Result<Option<Rest<'a>>, TypesError> {
        let rest = Rc::new(Index::split(dwarf, index, skeleton)?);
        let mut roots = rest.roots().map(|(_, root)| root);
        let root = roots.find(|root| {
            let unit = rest.unit(*root);
            unit.is_ok_and(|(unit, _)| unit.dwo_id == Some(id))
        });
        drop(roots);
        Ok(root.map(|root| (rest, root)))
    }
}
