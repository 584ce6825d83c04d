//! Loads the types of a file: its dictionaries as they are, or all of them together.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_c_types::{
    Aliases, BtfBase, BtfOmission, BtfWriter, CtfError, CtfSection, CtfUnit, ElfSymbol, Endian,
    Graph, LinkOptions, LinkUnit, NameSpace, SHARED, SymbolKind, link,
};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};

use super::arrays::ArrayOrderInfo;
use super::{PublicHeaders, StoredTypes, TypeFile, TypeFileError, TypesFaults, TypesNotice};
use crate::declared_types::DeclaredTypes;
use crate::elf::{elf_context, endian};
use crate::program::UnitChoice;
use crate::split::SplitFiles;

/// Whether multidimensional arrays are shown as in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayView {
    /// As they are stored: some gccs stored the dimensions in reverse.
    AsStored,
    /// As in the source, where the compiler is known.
    AsDeclared,
}

/// Loads the types of files.
///
/// ```
/// use unspool_dwarf_types::TypeLoader;
/// # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
/// # folder.write("pair.c", "struct pair { int left, right; } pair;");
/// # folder.tool("gcc", "-g -c pair.c");
/// # let path = folder.path().join("pair.o");
///
/// // pair.c, compiled with -g or -gctf: struct pair { int left, right; } pair;
/// let notice = |notice: unspool_dwarf_types::TypesNotice<'_>| eprintln!("{notice}");
/// let pair = TypeLoader::new(&notice).types(&path, |types| {
///     let graph = types.one_graph();
///     let (id, _) = graph.named("struct pair").next()?;
///     graph.size(id)
/// })?;
/// assert_eq!(pair, Some(8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct TypeLoader<'l> {
    /// The file with the base of split BTF. Without one, the running kernel is that of its modules.
    pub base: Option<&'l Path>,
    /// How arrays are shown.
    pub arrays: ArrayView,
    /// The maximum number of threads that link types.
    pub threads: usize,
    /// The units of DWARF that [`TypeLoader::types`] reads.
    pub units: UnitChoice,
    /// The public headers of the library: [`TypeLoader::types`] reads what they declare from DWARF,
    /// which has the files that declare types.
    pub headers: Option<&'l PublicHeaders>,
    /// Called with each notice.
    pub notice: &'l (dyn Fn(TypesNotice<'_>) + Sync),
}

/// The types of a dictionary.
#[derive(Debug)]
pub struct NamedDict<'d> {
    /// Its name.
    pub name: Cow<'d, str>,
    /// Its types.
    pub graph: Arc<Graph<'d>>,
    /// Its source, if that is CTF.
    pub ctf: Option<CtfUnit<'d>>,
}

/// The dictionaries of a file.
#[derive(Debug)]
pub struct LoadedDicts<'d> {
    /// The dictionaries, in the file's order.
    pub dictionaries: Vec<NamedDict<'d>>,
    /// Whether the file has several dictionaries, or one with its own name.
    pub is_archive: bool,
    /// Whether all of them were read completely.
    pub is_clean: bool,
    /// The gcc that stored array dimensions in reverse, if some were corrected.
    pub reversed_by: Option<String>,
}

/// What the public headers of a file declare.
#[derive(Debug)]
pub(super) struct PublicNames<'d> {
    /// The headers.
    pub(super) headers: &'d PublicHeaders,
    /// The names of types that other files define.
    pub(super) private_types: HashSet<(NameSpace, Cow<'d, str>)>,
}

/// All types of a file.
#[derive(Debug)]
pub struct LoadedTypes<'d> {
    /// The path of the file.
    pub path: PathBuf,
    /// The types of its units or dictionaries. Parents of children are included. Units have their
    /// headers' types each: [`LoadedTypes::one_graph`] has every type once.
    pub graphs: Vec<Arc<Graph<'d>>>,
    /// Their ELF files: more than one for an archive.
    pub files: Vec<&'d ElfFile>,
    /// Whether these are BTF.
    pub is_btf: bool,
    /// The base of split BTF.
    pub btf_base: Option<BtfBase<'d>>,
    /// Whether all of them were read completely.
    pub is_clean: bool,
    /// What its public headers declare, if they were given.
    pub(super) public: Option<PublicNames<'d>>,
    /// The aliases among its symbols, if the types do not have them.
    aliases: Aliases,
    threads: usize,
}

impl fmt::Debug for TypeLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypeLoader")
            .field("base", &self.base)
            .field("arrays", &self.arrays)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl<'l> TypeLoader<'l> {
    /// Loads types with arrays as in the source, in one thread.
    #[must_use]
    pub fn new(notice: &'l (dyn Fn(TypesNotice<'_>) + Sync)) -> TypeLoader<'l> {
        TypeLoader {
            base: None,
            arrays: ArrayView::AsDeclared,
            threads: 1,
            units: UnitChoice::default(),
            headers: None,
            notice,
        }
    }

    pub(super) fn report(self, notice: TypesNotice<'_>) {
        (self.notice)(notice);
    }

    /// As [`TypeFile::open`]. Unreadable members of an archive are left out, with a notice.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is of another kind.
    pub fn open(self, path: &Path) -> Result<Vec<TypeFile>, TypeFileError> {
        let files = TypeFile::open(path)?.into_iter();
        let readable = |file: Result<_, _>| {
            file.inspect_err(|error| self.report(TypesNotice::Member(error)))
                .ok()
        };
        Ok(files.filter_map(readable).collect())
    }

    /// Calls a function with the dictionaries of a file: of its CTF, else of its BTF, else of its
    /// DWARF, as a linker makes them. `None` if it has no types.
    ///
    /// # Errors
    ///
    /// The types cannot be read; for CTF, no dictionary.
    pub fn dictionaries<R>(
        self,
        file: &TypeFile,
        work: impl FnOnce(LoadedDicts<'_>) -> R,
    ) -> Result<Option<R>, TypeFileError> {
        match file.stored()? {
            Some(StoredTypes::Ctf(bytes, elf)) => {
                let section = CtfSection::open(bytes, elf);
                let section = section.map_err(|error| file.ctf_error(error))?;
                Ok(Some(work(self.read_ctf(file, &section)?)))
            }
            Some(StoredTypes::Btf(bytes, pointer_size)) => {
                let base = self.btf_base(file)?;
                let read = self.read_btf(file, bytes, pointer_size, base.as_ref())?;
                let dictionaries = read.graphs.into_iter().enumerate();
                let dictionaries = dictionaries.map(|(nth, graph)| NamedDict {
                    name: match nth {
                        0 => SHARED.into(),
                        _ => format!("{SHARED}#{nth}").into(),
                    },
                    graph,
                    ctf: None,
                });
                let dictionaries: Vec<_> = dictionaries.collect();
                Ok(Some(work(LoadedDicts {
                    is_archive: dictionaries.len() > 1,
                    reversed_by: read.reversed_by,
                    is_clean: read.is_clean,
                    dictionaries,
                })))
            }
            None => {
                let Some(elf) = file.elf() else {
                    return Ok(None);
                };
                let (debug, splits) = (self.debug_files(elf), SplitFiles::default());
                Ok(self.dwarf_dictionaries(elf, &debug, &splits)?.map(work))
            }
        }
    }

    /// All dictionaries of a section, in its order. If none is readable, the first error is the
    /// result.
    fn read_ctf<'d>(
        self,
        file: &TypeFile,
        section: &'d CtfSection<'d>,
    ) -> Result<LoadedDicts<'d>, TypeFileError> {
        let (mut units, mut problems) = section.read();
        if units.is_empty() && !problems.is_empty() {
            return Err(file.ctf_error(problems.swap_remove(0)));
        }
        let place = |unit: &CtfUnit<'_>| {
            section
                .dicts()
                .position(|(_, dict)| std::ptr::eq(dict, unit.dict))
        };
        units.sort_by_cached_key(place);
        let in_units = units.iter().flat_map(|unit| &unit.reading.problems);
        problems.extend(in_units.cloned());
        self.report_ctf(file, &problems);
        let arrays = match self.arrays {
            ArrayView::AsStored => ArrayOrderInfo::default(),
            ArrayView::AsDeclared => self.restore_arrays(file, &mut units),
        };
        arrays.report_unknown(file, self);
        let dictionaries = units.into_iter().map(|unit| NamedDict {
            name: unit.name.into(),
            graph: Arc::clone(&unit.reading.graph),
            ctf: Some(unit),
        });
        Ok(LoadedDicts {
            dictionaries: dictionaries.collect(),
            is_archive: section.is_archive(),
            is_clean: problems.is_empty(),
            reversed_by: arrays.reversed_by,
        })
    }

    pub(super) fn report_ctf(self, file: &TypeFile, problems: &[CtfError]) {
        if !problems.is_empty() {
            self.report(TypesNotice::Faults {
                file: file.path(),
                faults: TypesFaults::Ctf(problems),
            });
        }
    }

    /// Calls a function with all types of a file: of its CTF, else of its BTF, else of its DWARF.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has no types.
    pub fn types<R>(
        self,
        path: &Path,
        work: impl FnOnce(&LoadedTypes<'_>) -> R,
    ) -> Result<R, TypeFileError> {
        self.types_in(path, &self.open(path)?, work)
    }

    /// The same of open files: those of an archive, or one.
    ///
    /// # Errors
    ///
    /// As [`TypeLoader::types`].
    pub fn types_in<R>(
        self,
        path: &Path,
        files: &[TypeFile],
        work: impl FnOnce(&LoadedTypes<'_>) -> R,
    ) -> Result<R, TypeFileError> {
        let bases = files.iter().map(|file| self.btf_base(file));
        let bases = bases.collect::<Result<Vec<_>, _>>()?;
        let (mut sections, mut btf, mut btf_base) = (Vec::new(), Vec::new(), None);
        let (mut is_clean, mut stored_format) = (true, None);
        for (file, base) in files.iter().zip(&bases) {
            let stored = file.stored()?;
            if self.headers.is_some() {
                stored_format = stored_format.or(stored.as_ref().map(StoredTypes::format));
                continue;
            }
            match stored {
                Some(StoredTypes::Ctf(bytes, elf)) => {
                    let section = CtfSection::open(bytes, elf);
                    sections.push((file, section.map_err(|error| file.ctf_error(error))?));
                }
                Some(StoredTypes::Btf(bytes, pointer_size)) => {
                    let read = self.read_btf(file, bytes, pointer_size, base.as_ref())?;
                    is_clean &= read.is_clean;
                    btf.extend(read.graphs);
                    btf_base = read.base;
                }
                None => {}
            }
        }
        let mut graphs = Vec::new();
        for (file, section) in &sections {
            let read = self.read_ctf(file, section)?;
            is_clean &= read.is_clean;
            graphs.extend(read.dictionaries.into_iter().map(|one| one.graph));
        }
        let is_btf = graphs.is_empty() && !btf.is_empty();
        graphs.extend(btf);
        let elfs: Vec<&ElfFile> = files.iter().filter_map(TypeFile::elf).collect();
        let mut aliases = Aliases::default();
        let (debug, splits);
        let mut public = None;
        if let (true, [elf]) = (graphs.is_empty(), &*elfs) {
            (debug, splits) = (self.debug_files(elf), SplitFiles::default());
            let read = self.dwarf_of_symbols(elf, &debug, &splits)?;
            is_clean = read.is_clean;
            graphs.extend(read.units.into_iter().map(|unit| unit.graph));
            let names = self.headers.zip(read.declared);
            public = names.map(|(headers, declared)| PublicNames::new(headers, declared));
        } else {
            for elf in &elfs {
                aliases.add(&[elf_context(elf)?]);
            }
        }
        let path = path.to_owned();
        if graphs.is_empty() {
            return Err(match stored_format {
                Some(format) => TypeFileError::NoDeclarations { file: path, format },
                None => TypeFileError::NoTypes { file: path },
            });
        }
        Ok(work(&LoadedTypes {
            path,
            graphs,
            files: elfs,
            is_btf,
            btf_base,
            is_clean,
            public,
            aliases,
            threads: self.threads,
        }))
    }

    /// The separate debug files of a file, by the environment; notices of those that belong to
    /// other files.
    #[must_use]
    pub fn debug_files(self, file: &ElfFile) -> DebugFiles {
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        for rejected in &debug.rejected {
            self.report(TypesNotice::DebugFile(rejected));
        }
        debug
    }
}

impl<'d> PublicNames<'d> {
    fn new(headers: &'d PublicHeaders, declared: DeclaredTypes<'d>) -> PublicNames<'d> {
        let public: HashSet<PathBuf> = headers
            .among(declared.files())
            .into_iter()
            .map(Path::to_owned)
            .collect();
        PublicNames {
            headers,
            private_types: declared.outside(&public),
        }
    }
}

impl<'d> LoadedTypes<'d> {
    /// The file, if it is one ELF file.
    #[must_use]
    pub fn elf(&self) -> Option<&'d ElfFile> {
        match *self.files {
            [file] => Some(file),
            _ => None,
        }
    }

    /// All types as one graph: the linker deduplicates them, and types of single units are added to
    /// the shared ones. BTF stays as it is.
    #[must_use]
    pub fn one_graph(&self) -> Graph<'d> {
        if self.is_btf {
            let graphs: Vec<_> = self.graphs.iter().map(|graph| &**graph).collect();
            return match *graphs {
                [graph] => graph.clone(),
                _ => Graph::merged(&graphs),
            };
        }
        let units = self.graphs.iter().cloned().map(LinkUnit::new);
        let options = LinkOptions {
            threads: self.threads,
            ..LinkOptions::default()
        };
        let linked = link(&units.collect::<Vec<_>>(), options);
        let all: Vec<_> = linked.dictionaries().map(|(_, graph)| graph).collect();
        Graph::merged(&all)
    }

    /// Gives aliases of symbols the types of their targets, in a graph of these types.
    pub fn add_aliases(&self, graph: &mut Graph<'_>) {
        let mut aliases = self.aliases.clone();
        aliases.remove_typed(std::iter::once(&*graph));
        aliases.apply_to(graph);
    }

    /// All types as one graph, without functions and data that the file only declares: DWARF and
    /// gcc's CTF have those, too. BTF stays as it is.
    ///
    /// # Errors
    ///
    /// The file's symbols cannot be read.
    pub fn own_graph(&self) -> Result<Graph<'d>, TypeFileError> {
        let mut graph = self.one_graph();
        if let Some(elf) = self.elf().filter(|_| !self.is_btf) {
            let context = elf_context(elf)?;
            if !context.symtab.is_empty() {
                let defined = symbol_names(context.symbols(false), SymbolKind::Function);
                graph.functions.retain(|one| defined.contains(&*one.name));
                let defined = symbol_names(context.symbols(false), SymbolKind::Object);
                graph.objects.retain(|one| defined.contains(&*one.name));
            }
        }
        Ok(graph)
    }

    /// A graph of these types as BTF, split if it has a base; and what BTF cannot express of it.
    #[must_use]
    pub fn write_btf(&self, graph: &Graph<'_>) -> (Vec<u8>, Vec<BtfOmission>) {
        let endian = self.elf().map_or(Endian::Little, endian);
        let writer = BtfWriter { endian };
        match &self.btf_base {
            Some(base) if graph.parent().is_some() => writer.write_split(graph, base),
            _ => writer.write(graph),
        }
    }
}

/// The names of symbols of a kind.
pub(super) fn symbol_names<'a>(
    symbols: impl Iterator<Item = ElfSymbol<'a>>,
    kind: SymbolKind,
) -> HashSet<Cow<'a, str>> {
    let symbols = symbols.filter(|symbol| symbol.kind == kind);
    symbols.map(|symbol| symbol.name).collect()
}
