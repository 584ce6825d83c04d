//! The types behind a handle: of a file, linked from others, or made by the program.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use unspool_c_types::{
    BtfWriter, CtfWriter, Endian, Export, ExportName, Exports, Graph, Interface, InterfaceChange,
    LinkOptions, LinkOutput, LinkUnit, SymbolKind, TypeId, TypedSymbol, diff, link,
};
use unspool_dwarf_types::{
    LoadedTypes, TypeFile, TypeFileError, TypeLoader, TypesNotice, VersionInterface,
};
use unspool_files::output::replace;
use unspool_process::file_provider::FileProvider as _;
use unspool_process::{OwnProcess, Snapshot as _};
use unspool_rows::RuntimeAddr;

/// Types, and the names that have them.
#[derive(Debug)]
pub(crate) struct Types {
    /// All of them, and the exports of their file.
    interface: VersionInterface<'static>,
    /// The units of a file, which a linker takes: one for types that the program made.
    units: Vec<Arc<Graph<'static>>>,
    /// What is written, if a linker made it.
    linked: Option<LinkOutput<'static>>,
}

/// Why there are no types, or none are written: a message.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The form of written types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypesForm {
    /// CTF.
    Ctf,
    /// BTF.
    Btf,
}

impl Types {
    /// No types yet.
    #[must_use]
    pub(crate) fn new(pointer_size: u64) -> Types {
        let mut types = Types {
            interface: VersionInterface {
                graph: Graph::new(pointer_size),
                exports: None,
                public: None,
            },
            units: Vec::new(),
            linked: None,
        };
        types.change(|_| ());
        types
    }

    /// All types.
    #[must_use]
    pub(crate) fn graph(&self) -> &Graph<'static> {
        &self.interface.graph
    }

    /// The types of a file: an ELF file's CTF, else its BTF, else its DWARF; or bare CTF or BTF.
    ///
    /// # Errors
    ///
    /// It cannot be read completely, or has no types.
    pub(crate) fn open(path: &Path) -> Result<Types, Failure> {
        Types::load(|loader| loader.types(path, Types::from_loaded))
    }

    /// The types of the module that has an address of the own process.
    ///
    /// # Errors
    ///
    /// No file is mapped there, or another one than the one on disk; or its types cannot be read
    /// completely, or it has none.
    pub(crate) fn of_address(address: u64) -> Result<Types, Failure> {
        let process = OwnProcess::new()?;
        let mapping = process.mappings().find(RuntimeAddr(address));
        let mapping = mapping.ok_or_else(|| format!("no file is mapped at {address:#x}"))?;
        let file = TypeFile::Elf(Box::new(process.file(mapping)?));
        let files = std::slice::from_ref(&file);
        Types::load(|loader| loader.types_in(file.path(), files, Types::from_loaded))
    }

    /// C programs get no notices: faults in a part of the types are errors.
    fn load(
        read: impl FnOnce(TypeLoader<'_>) -> Result<Result<Types, TypeFileError>, TypeFileError>,
    ) -> Result<Types, Failure> {
        let fault = Mutex::new(None);
        let note = |notice: TypesNotice<'_>| {
            if let TypesNotice::Member(_) | TypesNotice::Faults { .. } = notice
                && let Ok(mut fault) = fault.lock()
            {
                fault.get_or_insert_with(|| notice.to_string());
            }
        };
        let types = read(TypeLoader::new(&note))??;
        match fault.into_inner() {
            Ok(None) => Ok(types),
            Ok(Some(fault)) => Err(fault.into()),
            Err(poisoned) => Err(poisoned.to_string().into()),
        }
    }

    fn from_loaded(loaded: &LoadedTypes<'_>) -> Result<Types, TypeFileError> {
        let mut graph = match &*loaded.graphs {
            // Its types keep their numbers.
            [only] => Graph::clone(only),
            _ => loaded.one_graph(),
        };
        loaded.add_aliases(&mut graph);
        let units = loaded.graphs.iter().map(|unit| Graph::clone(unit));
        Ok(Types {
            interface: VersionInterface {
                graph: graph.into_owned(),
                exports: loaded.exports()?,
                public: None,
            },
            units: units.map(|unit| Arc::new(unit.into_owned())).collect(),
            linked: None,
        })
    }

    /// The types of several, each once. Types that units disagree on are kept apart when written.
    #[must_use]
    pub(crate) fn linked(units: &[&Types]) -> Types {
        let all = units.iter().flat_map(|types| &types.units);
        let all: Vec<_> = all.map(|graph| LinkUnit::new(Arc::clone(graph))).collect();
        let linked = link(&all, LinkOptions::default());
        let children = linked.children.iter().map(|(_, graph)| graph);
        let graphs: Vec<_> = std::iter::once(&*linked.shared).chain(children).collect();
        Types {
            interface: VersionInterface {
                graph: Graph::merged(&graphs),
                exports: None,
                public: None,
            },
            units: all.into_iter().map(|unit| unit.graph).collect(),
            linked: Some(linked),
        }
    }

    /// Changes types that the program makes.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut Graph<'static>) -> R) -> R {
        let changed = change(&mut self.interface.graph);
        self.units = vec![Arc::new(self.graph().clone())];
        self.linked = None;
        changed
    }

    /// The type of a function or of data.
    #[must_use]
    pub(crate) fn of_symbol(&self, name: &str) -> Option<TypeId> {
        let graph = self.graph();
        let symbols = graph
            .functions
            .iter()
            .chain(&graph.objects)
            .chain(&graph.variables);
        let mut symbols = symbols.filter(|symbol| symbol.name == name);
        symbols.next().map(|symbol| symbol.ty)
    }

    /// Writes the types to a file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn write(&self, path: &Path, form: TypesForm) -> Result<(), Failure> {
        let bytes = match (form, &self.linked) {
            (TypesForm::Ctf, Some(linked)) => CtfWriter::default().write(linked),
            (TypesForm::Ctf, None) => CtfWriter::default().dict(self.graph()),
            (TypesForm::Btf, _) => {
                let writer = BtfWriter {
                    endian: Endian::Little,
                };
                writer.write(self.graph()).0
            }
        };
        let write = |mut file: &fs::File| std::io::Write::write_all(&mut file, &bytes);
        Ok(replace(path, None, write)?)
    }

    /// The changes of the interface to a newer version, as `unspool ctf diff` has them.
    #[must_use]
    pub(crate) fn changes(&self, new: &Types) -> Vec<InterfaceChange> {
        self.interface.diff(&new.interface).changes
    }

    /// The changes from one type to another one, each of a handle.
    #[must_use]
    pub(crate) fn type_changes(
        &self,
        id: TypeId,
        new: &Types,
        new_id: TypeId,
    ) -> Vec<InterfaceChange> {
        let only = |graph: &Graph<'static>, id: TypeId| {
            let mut graph = graph.clone();
            graph.functions.clear();
            graph.variables.clear();
            graph.objects = vec![TypedSymbol::new("type", id)];
            graph
        };
        let mut exports = Exports::default();
        let name = ExportName::new(SymbolKind::Object, "type");
        exports.symbols.insert(name, Export::default());
        let graphs = [only(self.graph(), id), only(new.graph(), new_id)];
        let [old, new] = graphs.each_ref().map(|graph| Interface {
            graph,
            exports: &exports,
            private: None,
        });
        diff(old, new).changes
    }
}
