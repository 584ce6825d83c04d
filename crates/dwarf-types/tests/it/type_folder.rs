//! A folder of files with types, and what the library reads of them.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use unspool_c_types::{
    ARRAYS_IN_ORDER, Aliases, CtfSection, CtfWriter, Declarations, ElfContext, Graph,
    InterfaceDiff, LinkOptions, LinkOutput, SymbolForm, link,
};
use unspool_dwarf_types::{
    ArrayView, CTF_SECTION, LoadedDicts, SplitFiles, TypeFileError, TypeLoader, elf_context,
};
use unspool_elf::{ElfFile, embed_unmapped};

/// A new folder.
pub(crate) struct TypeFolder {
    folder: unspool_testing::Folder,
    /// The base of split BTF.
    pub(crate) base: Option<PathBuf>,
    pub(crate) arrays: ArrayView,
}

impl Deref for TypeFolder {
    type Target = unspool_testing::Folder;

    fn deref(&self) -> &unspool_testing::Folder {
        &self.folder
    }
}

impl TypeFolder {
    pub(crate) fn new() -> TypeFolder {
        TypeFolder {
            folder: unspool_testing::Folder::new(),
            base: None,
            arrays: ArrayView::AsDeclared,
        }
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).unwrap()
    }

    /// The result of work with a loader, and its notices.
    pub(crate) fn load<R>(&self, work: impl FnOnce(TypeLoader<'_>) -> R) -> (R, String) {
        let notices = Mutex::new(String::new());
        let keep = |notice: unspool_dwarf_types::TypesNotice<'_>| {
            *notices.lock().unwrap() += &format!("{notice}\n");
        };
        let loader = TypeLoader {
            base: self.base.as_deref(),
            arrays: self.arrays,
            ..TypeLoader::new(&keep)
        };
        let result = work(loader);
        (result, notices.into_inner().unwrap())
    }

    /// A text of each file's dictionaries, and the notices.
    pub(crate) fn dictionaries(
        &self,
        name: &str,
        text: impl Fn(&LoadedDicts<'_>) -> String,
    ) -> (Result<String, TypeFileError>, String) {
        self.load(|loader| {
            let mut all = String::new();
            for file in loader.open(&self.join(name))? {
                all += &loader
                    .dictionaries(&file, |found| text(&found))?
                    .unwrap_or_default();
            }
            Ok(all)
        })
    }

    /// The definitions of a type in a file's dictionaries, and the notices.
    pub(crate) fn definition(&self, ty: &str, name: &str) -> (String, String) {
        let define = |graph: &Graph<'_>| -> String {
            let own = graph.named(ty).filter(|(id, _)| id.0 > graph.base());
            own.map(|(id, _)| graph.define(id).to_string()).collect()
        };
        let (text, notices) = self.dictionaries(name, |found| {
            let all = found.dictionaries.iter().map(|one| define(&one.graph));
            all.collect()
        });
        (text.unwrap(), notices)
    }

    /// The declarations of a function or of data in a file's dictionaries.
    pub(crate) fn symbol(&self, symbol: &str, name: &str) -> String {
        let declare = |graph: &Graph<'_>| -> String {
            let lists = [&graph.functions, &graph.objects, &graph.variables];
            let found = lists.into_iter().flatten();
            let mut lines: Vec<_> = found
                .filter(|one| one.name == symbol)
                .map(|one| format!("{};\n", graph.declare_with_bodies(one.ty, &one.name)))
                .collect();
            lines.dedup();
            lines.concat()
        };
        let (text, _) = self.dictionaries(name, |found| {
            let all = found.dictionaries.iter().map(|one| declare(&one.graph));
            all.collect()
        });
        text.unwrap()
    }

    /// A file's DWARF linked for CTF; whether all of it was read; and the notices.
    pub(crate) fn dwarf<R>(
        &self,
        name: &str,
        work: impl FnOnce(&LinkOutput<'_>) -> R,
    ) -> (Result<(R, bool), TypeFileError>, String) {
        self.load(|loader| {
            let file = ElfFile::open(self.join(name)).unwrap();
            let (debug, splits) = (loader.debug_files(&file), SplitFiles::default());
            let (mut units, is_read) = loader.dwarf(&file, &debug, &splits)?;
            for unit in &mut units {
                Arc::make_mut(&mut unit.graph).reduce_to_ctf();
            }
            Ok((work(&link(&units, LinkOptions::default())), is_read))
        })
    }

    /// The declarations of a file's DWARF, which can be read completely.
    pub(crate) fn declarations(&self, name: &str) -> String {
        let (read, notices) = self.dwarf(name, |linked| {
            let graphs = linked.dictionaries();
            graphs
                .map(|(name, graph)| format!("/* {name} */\n{}", Declarations(graph)))
                .collect()
        });
        let (text, is_read) = read.unwrap();
        assert!(is_read, "{name}: {notices}");
        text
    }

    /// Puts a file's DWARF into another one, as CTF.
    pub(crate) fn put_dwarf(&self, from: &str, into: &str, symbols: SymbolForm) {
        let linked = self.dwarf(from, |linked| {
            self.embed(linked, into, ARRAYS_IN_ORDER, symbols);
        });
        linked.0.unwrap();
    }

    fn embed(&self, linked: &LinkOutput<'_>, into: &str, label: &str, symbols: SymbolForm) {
        let file = ElfFile::open(self.join(into)).unwrap();
        let writer = CtfWriter {
            symbols,
            label,
            elf: elf_context(&file).unwrap(),
            ..CtfWriter::default()
        };
        let ctf = writer.write(linked);
        let elf = embed_unmapped(&file, CTF_SECTION, &ctf).unwrap();
        self.write(into, elf);
    }

    /// Links the types of files into a file of CTF, or into an ELF file. Returns the notices.
    pub(crate) fn link(&self, from: &[&str], into: &str) -> String {
        self.link_into(from, into, SymbolForm::Names)
    }

    /// The same, with symbols in another form.
    pub(crate) fn link_into(&self, from: &[&str], into: &str, symbols: SymbolForm) -> String {
        let ((), notices) = self.load(|loader| {
            let files = from.iter().map(|name| loader.open(&self.join(name)));
            let files: Vec<_> = files.map(Result::unwrap).collect();
            let inputs = files.iter().flatten().map(|file| loader.link_input(file));
            let inputs: Vec<_> = inputs.map(|input| input.unwrap().unwrap()).collect();
            let (mut units, mut is_order_known) = (Vec::new(), false);
            for input in &inputs {
                let read = loader.link_units(input).unwrap();
                is_order_known |= read.is_order_known;
                units.extend(read.units);
            }
            let label = if is_order_known { ARRAYS_IN_ORDER } else { "" };
            let mut aliases = Aliases::default();
            if !into.ends_with(".ctf") {
                let file = ElfFile::open(self.join(into)).unwrap();
                aliases.add(&[elf_context(&file).unwrap()]);
            }
            aliases.apply_to_units(&mut units);
            let linked = link(&units, LinkOptions::default());
            if into.ends_with(".ctf") {
                let writer = CtfWriter {
                    label,
                    ..CtfWriter::default()
                };
                self.write(into, writer.write(&linked));
            } else {
                self.embed(&linked, into, label, symbols);
            }
        });
        notices
    }

    /// The BTF of a file, without data if that is wanted; and what it lacks.
    pub(crate) fn to_btf(&self, name: &str, has_data: bool) -> (Vec<u8>, Vec<String>) {
        let (written, notices) = self.load(|loader| {
            loader.types(&self.join(name), |types| {
                let mut graph = types.own_graph().unwrap();
                if !has_data {
                    graph.objects.clear();
                }
                let (bytes, omitted) = types.write_btf(&graph);
                (bytes, omitted.iter().map(ToString::to_string).collect())
            })
        });
        written.unwrap_or_else(|error| panic!("{name}: {error}, {notices}"))
    }

    /// The changes from one file's interface to another one's, and whether all types were read.
    pub(crate) fn changes(&self, old: &str, new: &str) -> (InterfaceDiff, bool) {
        let (found, notices) = self.load(|loader| {
            loader.types(&self.join(old), |old| {
                loader.types(&self.join(new), |new| {
                    let found = loader.interface_diff(old, new)?;
                    Ok::<_, TypeFileError>((found, old.is_clean && new.is_clean))
                })?
            })?
        });
        found.unwrap_or_else(|error| panic!("{old}, {new}: {error}, {notices}"))
    }
}

/// Opens CTF without a file.
pub(crate) fn open(bytes: &[u8]) -> CtfSection<'_> {
    let elf = ElfContext::BARE_64;
    CtfSection::open(bytes, elf).unwrap()
}

/// The path of a source of the tests of `unspool-c-types`.
pub(crate) fn source(name: &str) -> String {
    format!("{}/../c-types/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"))
}
