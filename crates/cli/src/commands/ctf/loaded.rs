//! The types of a file in any form: CTF, BTF or DWARF.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_c_types::{Aliases, BtfBase, CtfSection, Graph, LinkUnit, link};
use unspool_dwarf_types::{SplitFiles, elf_context};
use unspool_elf::ElfFile;

use super::input::{Input, StoredTypes, SymbolNames};
use super::{ArrayView, from_dwarf, read, target};
use crate::args::ctf::ShareTypes;

/// The types of a file.
pub(super) struct LoadedTypes<'d> {
    /// The types of its units or dictionaries. Parents of children are included.
    pub(super) graphs: Vec<Arc<Graph<'d>>>,
    /// Their ELF files: more than one for an archive.
    pub(super) files: Vec<&'d ElfFile>,
    /// Whether these are BTF.
    pub(super) is_btf: bool,
    /// The base of split BTF.
    pub(super) btf_base: Option<BtfBase<'d>>,
    /// The aliases among its symbols, if the types do not have them.
    pub(super) aliases: Aliases,
    /// Whether all of them were read completely.
    pub(super) is_clean: bool,
}

impl<'d> LoadedTypes<'d> {
    /// The file, if it is one ELF file.
    pub(super) fn elf(&self) -> Option<&'d ElfFile> {
        match *self.files {
            [file] => Some(file),
            _ => None,
        }
    }

    /// All types as one graph: the linker deduplicates them, and types of single units are added to
    /// the shared ones. BTF stays as it is.
    pub(super) fn one_graph(&self) -> Graph<'d> {
        if self.is_btf {
            let graphs: Vec<_> = self.graphs.iter().map(|graph| &**graph).collect();
            return match *graphs {
                [graph] => graph.clone(),
                _ => Graph::merged(&graphs),
            };
        }
        let units = self.graphs.iter().cloned().map(LinkUnit::new);
        let options = target::options(ShareTypes::Unconflicted, target::threads());
        let linked = link(&units.collect::<Vec<_>>(), options);
        let children = linked.children.iter().map(|(_, graph)| graph);
        let all: Vec<_> = std::iter::once(&*linked.shared).chain(children).collect();
        Graph::merged(&all)
    }

    fn run_on<R>(
        &self,
        path: &Path,
        work: impl FnOnce(&LoadedTypes<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        if self.graphs.is_empty() {
            bail!(
                "{} has no types: neither CTF nor BTF nor DWARF of units in C",
                path.display()
            );
        }
        work(self)
    }
}

/// Calls a function with the types of a file: its CTF, else its BTF, else its DWARF. A file with
/// none of these is an error.
pub(super) fn with_types<R>(
    path: &Path,
    base: Option<&Path>,
    work: impl FnOnce(&LoadedTypes<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let inputs = Input::open(path)?;
    let bases = inputs.iter().map(|input| input.btf_base(base));
    let bases = bases.collect::<Result<Vec<_>, _>>()?;
    let context = || path.display().to_string();
    let mut sections = Vec::new();
    let mut btf = Vec::new();
    let mut btf_base = None;
    let mut is_clean = true;
    for (input, base) in inputs.iter().zip(&bases) {
        match input.types()? {
            Some(StoredTypes::Ctf(bytes, elf)) => {
                let section = CtfSection::open(bytes, elf).with_context(context)?;
                sections.push((input, section));
            }
            Some(StoredTypes::Btf(bytes, pointer_size)) => {
                let arrays = ArrayView::AsDeclared;
                let read = input.read_btf(bytes, pointer_size, base.as_ref(), arrays)?;
                is_clean &= read.is_clean;
                btf.extend(read.graphs);
                btf_base = read.base;
            }
            None => {}
        }
    }
    let shown: Vec<_> = sections
        .iter()
        .map(|(input, section)| read(input, section, ArrayView::AsDeclared))
        .collect::<Result<_, _>>()?;
    is_clean &= shown.iter().all(|shown| shown.is_clean);
    let dictionaries = || shown.iter().flat_map(|shown| &shown.dictionaries);
    let mut graphs: Vec<Arc<Graph<'_>>> =
        dictionaries().map(|one| Arc::clone(&one.graph)).collect();
    let is_btf = graphs.is_empty() && !btf.is_empty();
    graphs.extend(btf);
    let files: Vec<&ElfFile> = inputs.iter().filter_map(Input::elf).collect();
    if let (true, [elf]) = (graphs.is_empty(), &*files) {
        let debug = from_dwarf::debug_files(elf);
        let splits = SplitFiles::default();
        let program = from_dwarf::read(elf, &debug, &splits)?;
        let is_clean = program.problems.is_empty();
        let aliases = from_dwarf::aliases(elf, &debug)?;
        let mut names = SymbolNames::default();
        for file in std::iter::once(*elf).chain(debug.debug.as_deref()) {
            let context = elf_context(file)?;
            names.extend(context.symbols(true).chain(context.symbols(false)));
        }
        let is_there = |name: &str| names.functions.contains(name);
        let units = from_dwarf::units(program, aliases, is_there);
        return LoadedTypes {
            graphs: units.into_iter().map(|unit| unit.graph).collect(),
            files,
            is_btf: false,
            btf_base: None,
            aliases: Aliases::default(),
            is_clean,
        }
        .run_on(path, work);
    }
    let mut aliases = Aliases::default();
    for file in &files {
        aliases.add(&[elf_context(file)?]);
    }
    LoadedTypes {
        files,
        is_btf,
        btf_base,
        aliases,
        is_clean,
        graphs,
    }
    .run_on(path, work)
}
