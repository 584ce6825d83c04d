//! The names of a profile's places, from the files of its modules.

use std::sync::Arc;

use unspool_ir::Vaddr;
use unspool_module::{ElfFile, SearchRoots};
use unspool_profile::{Called, Module, ModuleId, ModuleKind, Name, Names, Place, Profile};

use crate::output;
use crate::symbolize::{self, Detail};

/// The files of a profile's modules, and the names of all places in them that it has.
pub(in crate::commands) struct FileNames {
    /// By [`ModuleId`]; `None` if the file is not there any more.
    files: Vec<Option<Arc<ElfFile>>>,
    names: symbolize::Names,
}

impl FileNames {
    /// Opens the files and looks all places up.
    pub(in crate::commands) fn look_up(profile: &Profile, detail: Detail) -> FileNames {
        let files: Vec<_> = profile.modules().iter().map(open).collect();
        let places = profile
            .frames()
            .iter()
            .filter_map(|frame| match frame.lookup {
                Place::Module(module, address) => Some((file(&files, module)?, address)),
                _ => None,
            });
        let names = symbolize::Names::look_up(places, detail, &SearchRoots::default());
        FileNames { files, names }
    }

    fn known(&self, module: ModuleId, address: Vaddr) -> Option<&symbolize::Name> {
        self.names.get(file(&self.files, module)?, address)
    }
}

fn file(files: &[Option<Arc<ElfFile>>], module: ModuleId) -> Option<&Arc<ElfFile>> {
    files.get(module.0 as usize)?.as_ref()
}

/// The file of a module, if it is the one that was recorded.
fn open(module: &Module) -> Option<Arc<ElfFile>> {
    if module.kind != ModuleKind::File {
        return None;
    }
    let path = module.path.display();
    let file = match ElfFile::open(&module.path) {
        Ok(file) => file,
        Err(error) => {
            output::notice(&format_args!("no names: {}", output::with_causes(&error)));
            return None;
        }
    };
    if module.build_id.is_some() && module.build_id != file.build_id() {
        output::notice(&format_args!(
            "no names: {path} is not the file that was recorded: their build IDs differ"
        ));
        return None;
    }
    Some(Arc::new(file))
}

impl Names for FileNames {
    fn name(&self, place: Place) -> Name {
        let known = match place {
            Place::Module(module, address) => self.known(module, address),
            _ => None,
        };
        let Some(known) = known else {
            return Name::default();
        };
        let symbol = known.function.as_ref();
        let mut functions: Vec<Called> = (known.inlined.iter())
            .map(|line| Called {
                function: line.function.clone().unwrap_or_else(|| "??".into()),
                file: line.file.clone(),
                line: line.line,
            })
            .collect();
        if let (true, Some((name, _))) = (functions.is_empty(), symbol) {
            functions.push(Called {
                function: name.clone(),
                ..Called::default()
            });
        }
        Name {
            functions,
            start: symbol.map(|(_, start)| start.0),
        }
    }
}
