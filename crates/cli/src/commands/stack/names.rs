//! The names of the frames of one report.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::Vaddr;
use unspool_symbols::{
    AddressName, AddressNames, ModuleFinder, ModuleSource, NameDetail, SymbolRequest, Symbolizer,
};

/// The names of some addresses of open files.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    names: AddressNames,
    /// The request of each file. `names` keeps the files open, so that their addresses stay unique.
    requests: HashMap<*const ElfFile, usize>,
}

impl FileNames {
    /// Looks the addresses up; debug files below the process's `root` come first.
    pub(super) fn look_up<'a>(
        addresses: impl Iterator<Item = (&'a Arc<ElfFile>, Vaddr)>,
        detail: NameDetail,
        root: Option<&PathBuf>,
    ) -> FileNames {
        let mut numbers = HashMap::new();
        let mut requests: Vec<SymbolRequest> = Vec::new();
        for (file, address) in addresses {
            let number = *numbers.entry(Arc::as_ptr(file)).or_insert(requests.len());
            if number == requests.len() {
                requests.push(SymbolRequest {
                    module: ModuleSource::Open {
                        file: Arc::clone(file),
                        root: root.cloned(),
                    },
                    addresses: Vec::new(),
                });
            }
            if let Some(request) = requests.get_mut(number) {
                request.addresses.push(address);
            }
        }
        FileNames {
            names: Symbolizer::new(ModuleFinder::from_environment(), detail).look_up(requests),
            requests: numbers,
        }
    }

    /// The name of an address after lookup.
    pub(super) fn get(&self, file: &Arc<ElfFile>, address: Vaddr) -> Option<AddressName<'_>> {
        self.names
            .get(*self.requests.get(&Arc::as_ptr(file))?, address)
    }
}
