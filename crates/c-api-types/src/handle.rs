//! The types behind a handle: of a file, linked from others, or made by the program.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use unspool_c_types::{
    ARCHIVE_MAGIC, BTF_MAGIC, BtfReading, BtfWriter, CtfSection, CtfWriter, ElfContext, Endian,
    Export, ExportName, Exports, Graph, Interface, InterfaceChange, LinkOptions, LinkOutput,
    LinkUnit, MAGIC, SymbolKind, TypeId, TypedSymbol, diff, link,
};
use unspool_dwarf_types::{SplitFiles, elf_context, read_types};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};
use unspool_files::output::replace;
use unspool_process::file_provider::FileProvider as _;
use unspool_process::{OwnProcess, Snapshot as _};
use unspool_rows::RuntimeAddr;

/// Types, and the names that have them.
#[derive(Debug)]
pub struct Types {
    /// All of them.
    pub graph: Graph<'static>,
    /// The units of a file, which a linker takes: one for types that the program made.
    units: Vec<Arc<Graph<'static>>>,
    /// What is written, if a linker made it.
    linked: Option<LinkOutput<'static>>,
    /// The exports of its file, if it has any.
    exports: Option<Exports>,
}

/// Why there are no types, or none are written: a message.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The form of written types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypesForm {
    /// CTF.
    Ctf,
    /// BTF.
    Btf,
}

impl Types {
    /// No types yet.
    #[must_use]
    pub fn new(pointer_size: u64) -> Types {
        Types::from_units(vec![Graph::new(pointer_size)], None)
    }

    fn from_units(units: Vec<Graph<'static>>, exports: Option<Exports>) -> Types {
        let graph = match units.as_slice() {
            [only] => only.clone(),
            units => Graph::merged(&units.iter().collect::<Vec<_>>()),
        };
        Types {
            graph,
            units: units.into_iter().map(Arc::new).collect(),
            linked: None,
            exports,
        }
    }

    /// The types of a file: an ELF file's CTF, else its BTF, else its DWARF; or bare CTF or BTF.
    ///
    /// # Errors
    ///
    /// It cannot be read, or has no types.
    pub fn open(path: &Path) -> Result<Types, Failure> {
        let bytes = unspool_files::read(path, unspool_files::MAX_STREAM_BYTES)?;
        if is_bare(&bytes) {
            let units = stored_units(&bytes, ElfContext::default(), 8)?;
            return Ok(Types::from_units(units, None));
        }
        Types::from_file(&ElfFile::open(path)?)
    }

    /// The types of the module that has an address of the own process.
    ///
    /// # Errors
    ///
    /// No file is mapped there, or another one than the one on disk; or it has no types.
    pub fn of_address(address: u64) -> Result<Types, Failure> {
        let process = OwnProcess::new()?;
        let mapping = process.mappings().find(RuntimeAddr(address));
        let mapping = mapping.ok_or_else(|| format!("no file is mapped at {address:#x}"))?;
        Types::from_file(&process.file(mapping)?)
    }

    fn from_file(file: &ElfFile) -> Result<Types, Failure> {
        let context = elf_context(file)?;
        let exports = Exports::from_elf(context);
        for section in [".ctf", ".BTF"] {
            if let Some(section) = file.section_named(section)? {
                let units = stored_units(section.data, context, context.pointer_size())?;
                return Ok(Types::from_units(units, exports));
            }
        }
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        let splits = SplitFiles::default();
        let program = read_types(file, &debug, &splits)?;
        let units = program.units.into_iter();
        let units: Vec<_> = units
            .map(|unit| Arc::unwrap_or_clone(unit.graph).into_owned())
            .collect();
        if units.is_empty() {
            let path = file.path().display();
            return Err(format!("{path}: it has neither CTF nor BTF nor DWARF of units in C: build it with -gctf or -g, or install its debug symbols").into());
        }
        Ok(Types::from_units(units, exports))
    }

    /// The types of several, each once. Types that units disagree on are kept apart when written.
    #[must_use]
    pub fn linked(units: &[&Types]) -> Types {
        let all = units.iter().flat_map(|types| &types.units);
        let all: Vec<_> = all.map(|graph| LinkUnit::new(Arc::clone(graph))).collect();
        let linked = link(&all, LinkOptions::default());
        let children = linked.children.iter().map(|(_, graph)| graph);
        let graphs: Vec<_> = std::iter::once(&*linked.shared).chain(children).collect();
        Types {
            graph: Graph::merged(&graphs),
            units: all.into_iter().map(|unit| unit.graph).collect(),
            linked: Some(linked),
            exports: None,
        }
    }

    /// Changes types that the program makes.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Graph<'static>) -> R) -> R {
        let changed = change(&mut self.graph);
        self.units = vec![Arc::new(self.graph.clone())];
        self.linked = None;
        changed
    }

    /// The type of a function or of data.
    #[must_use]
    pub fn of_symbol(&self, name: &str) -> Option<TypeId> {
        let graph = &self.graph;
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
    pub fn write(&self, path: &Path, form: TypesForm) -> Result<(), Failure> {
        let bytes = match (form, &self.linked) {
            (TypesForm::Ctf, Some(linked)) => CtfWriter::default().write(linked),
            (TypesForm::Ctf, None) => CtfWriter::default().dict(&self.graph),
            (TypesForm::Btf, _) => {
                let writer = BtfWriter {
                    endian: Endian::Little,
                };
                writer.write(&self.graph).0
            }
        };
        let write = |mut file: &fs::File| std::io::Write::write_all(&mut file, &bytes);
        Ok(replace(path, None, write)?)
    }

    /// The changes of the interface from an older version: of the exports, or of all names that
    /// have types if a version has no exports.
    #[must_use]
    pub fn changes(&self, new: &Types) -> Vec<InterfaceChange> {
        let exports = match (&self.exports, &new.exports) {
            (Some(old), Some(new)) => [old.clone(), new.clone()],
            _ => [&self.graph, &new.graph].map(Exports::with_types),
        };
        let [old, newer] = &exports;
        let old = Interface {
            graph: &self.graph,
            exports: old,
        };
        diff(
            old,
            Interface {
                graph: &new.graph,
                exports: newer,
            },
        )
        .changes
    }

    /// The changes from one type to another one, each of a handle.
    #[must_use]
    pub fn type_changes(&self, id: TypeId, new: &Types, new_id: TypeId) -> Vec<InterfaceChange> {
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
        let graphs = [only(&self.graph, id), only(&new.graph, new_id)];
        let [old, new] = graphs.each_ref().map(|graph| Interface {
            graph,
            exports: &exports,
        });
        diff(old, new).changes
    }
}

/// The types of bytes of CTF or BTF, by their magic.
fn stored_units(
    bytes: &[u8],
    context: ElfContext<'_>,
    pointer_size: u64,
) -> Result<Vec<Graph<'static>>, Failure> {
    if starts_with(bytes, BTF_MAGIC) {
        return Ok(vec![
            BtfReading::parse(bytes, pointer_size)?.graph.into_owned(),
        ]);
    }
    let section = CtfSection::open(bytes, context)?;
    let units = section.units()?.into_iter();
    // A parent's types are in its children's graphs.
    Ok(units
        .map(|unit| Graph::clone(&unit.reading.graph).into_owned())
        .collect())
}

fn starts_with(bytes: &[u8], magic: u16) -> bool {
    let start = bytes.first_chunk();
    start.is_some_and(|start| [magic.to_le_bytes(), magic.to_be_bytes()].contains(start))
}

fn is_bare(bytes: &[u8]) -> bool {
    let archive = bytes.first_chunk().map(|magic| u64::from_le_bytes(*magic));
    archive == Some(ARCHIVE_MAGIC)
        || [MAGIC, BTF_MAGIC]
            .iter()
            .any(|magic| starts_with(bytes, *magic))
}
