//! Names in open files, found by the file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

use crate::names::{AddressName, AddressNames, ModuleNames};
use crate::problem::SymbolProblem;
use crate::symbolizer::{ModuleSource, SymbolRequest, Symbolizer};

/// The names of some addresses of open files.
#[derive(Debug, Default)]
pub struct FileNames {
    names: AddressNames,
    /// The request of each file. `names` keeps the files open, so that their addresses stay unique.
    requests: HashMap<*const ElfFile, usize>,
}

impl FileNames {
    /// The name of an address; `None` if it was not requested.
    #[must_use]
    pub fn get(&self, (file, address): (&Arc<ElfFile>, Vaddr)) -> Option<AddressName<'_>> {
        let request = *self.requests.get(&Arc::as_ptr(file))?;
        self.names.get(request, address)
    }

    /// Why names are missing.
    pub fn problems(&self) -> impl Iterator<Item = &SymbolProblem> {
        self.names.modules.iter().flat_map(ModuleNames::problems)
    }
}

impl Symbolizer {
    /// Looks up addresses of instructions in open files, as linked, in any order. Debug files below
    /// `root` come first ([`ModuleIdentity::root`](crate::ModuleIdentity::root)).
    #[must_use]
    pub fn look_up_in_files<'a>(
        &self,
        addresses: impl IntoIterator<Item = (&'a Arc<ElfFile>, Vaddr)>,
        root: Option<&Path>,
    ) -> FileNames {
        let mut numbers = HashMap::new();
        let mut requests: Vec<SymbolRequest> = Vec::new();
        for (file, address) in addresses {
            let number = *numbers.entry(Arc::as_ptr(file)).or_insert(requests.len());
            if number == requests.len() {
                requests.push(SymbolRequest {
                    module: ModuleSource::Open {
                        file: Arc::clone(file),
                        root: root.map(Path::to_path_buf),
                    },
                    addresses: Vec::new(),
                });
            }
            if let Some(request) = requests.get_mut(number) {
                request.addresses.push(address);
            }
        }
        FileNames {
            names: self.look_up(requests),
            requests: numbers,
        }
    }
}
