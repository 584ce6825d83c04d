//! The names of a profile's places, from the files of its modules.

use unspool_ir::Vaddr;
use unspool_profile::{Called, ModuleKind, Name, Names, Place, Profile};
use unspool_symbols::{Detail, Finder, Identity, Module, Request, Symbolizer};

use crate::output;

/// The names of all places in files that a profile has.
pub(in crate::commands) struct FileNames {
    /// Of the modules by their numbers.
    names: unspool_symbols::Names,
}

impl FileNames {
    /// Finds the files and looks all places up.
    pub(in crate::commands) fn look_up(profile: &Profile, detail: Detail) -> FileNames {
        let mut requests: Vec<_> = profile.modules().iter().map(request).collect();
        for frame in profile.frames() {
            if let Place::Module(module, address) = frame.lookup
                && let Some(request) = requests.get_mut(module.0 as usize)
            {
                request.addresses.push(address);
            }
        }
        let names = Symbolizer::new(Finder::from_environment(), detail).look_up(requests);
        for (named, module) in names.modules().iter().zip(profile.modules()) {
            let has_file = matches!(module.kind, ModuleKind::File | ModuleKind::Vdso);
            let problems = named.problems().iter().filter(|_| has_file);
            problems.for_each(|problem| output::notice(problem));
        }
        FileNames { names }
    }

    fn known(&self, place: Place) -> Option<unspool_symbols::Name<'_>> {
        match place {
            Place::Module(module, Vaddr(address)) => {
                self.names.get(module.0 as usize, Vaddr(address))
            }
            _ => None,
        }
    }
}

fn request(module: &unspool_profile::Module) -> Request {
    Request {
        module: Module::Named(Identity {
            path: module.path.clone(),
            build_id: module.build_id,
            root: None,
        }),
        addresses: Vec::new(),
    }
}

impl Names for FileNames {
    fn name(&self, place: Place) -> Name {
        let Some(known) = self.known(place) else {
            return Name::default();
        };
        let functions = known.frames().map(|frame| Called {
            function: frame.function.unwrap_or("??").to_owned(),
            file: frame.file.map(str::to_owned),
            line: frame.line,
        });
        Name {
            functions: functions.collect(),
            start: known.function.map(|function| function.address.0),
        }
    }
}
