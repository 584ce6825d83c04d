//! The sources of types: ELF files, archives of them, bare CTF or BTF files.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_c_types::{
    ARCHIVE_MAGIC, BTF_MAGIC, BtfBase, BtfReading, CtfUnit, ElfContext, ElfSymbol, Graph,
    ILLUMOS_MAGIC, MAGIC, SymbolKind, reverse_arrays,
};
use unspool_dwarf_types::{ArrayOrder, Producers, elf_context};
use unspool_elf::{Container, ElfFile};
use unspool_files::{Input as Opened, open_input};
use unspool_rows::arch::AddressSize;

use super::{ArrayView, from_dwarf};
use crate::commands::{MAX_PROBLEMS_PRINTED, report};
use crate::output;

/// The section of CTF.
pub(super) const SECTION: &str = ".ctf";

/// The section of CTF in FreeBSD and illumos, another format.
const ILLUMOS_SECTION: &str = ".SUNW_ctf";

/// The section of BTF.
pub(super) const BTF_SECTION: &str = ".BTF";

/// The section of a module's own base: the names and sizes of the kernel's types that it uses.
const BTF_BASE_SECTION: &str = ".BTF.base";

/// The folder of the running kernel's BTF, and of its modules'.
const KERNEL_BTF: &str = "/sys/kernel/btf";

/// Stored types.
pub(super) enum StoredTypes<'i> {
    /// CTF, and the context that it needs from its file.
    Ctf(&'i [u8], ElfContext<'i>),
    /// BTF, and the size of the machine's pointers in bytes.
    Btf(&'i [u8], u64),
}

/// The types of a file's BTF.
pub(super) struct LoadedBtf<'d> {
    /// Its types; of each part, if linkers put several together.
    pub(super) graphs: Vec<Arc<Graph<'d>>>,
    /// The base of split BTF.
    pub(super) base: Option<BtfBase<'d>>,
    /// Whether all of it was read completely.
    pub(super) is_clean: bool,
    /// The gcc that stored array dimensions in reverse, if some were corrected.
    pub(super) reversed_by: Option<String>,
    /// Whether the order of array dimensions is known.
    pub(super) is_order_known: bool,
}

/// How a file stores multidimensional arrays.
#[derive(Default)]
pub(super) struct ArrayOrderInfo {
    /// The gcc that stored some in reverse.
    pub(super) reversed_by: Option<String>,
    /// Dictionaries of unknown order; their arrays stay as stored.
    unknown: Vec<String>,
    /// Whether there are such arrays in an unknown order.
    pub(super) is_unknown: bool,
}

impl ArrayOrderInfo {
    /// Reports arrays of unknown order.
    pub(super) fn report_unknown(&self, path: &Path) {
        if self.unknown.is_empty() {
            return;
        }
        let shown = self
            .unknown
            .get(..MAX_PROBLEMS_PRINTED)
            .unwrap_or(&self.unknown);
        let rest = if shown.len() < self.unknown.len() {
            " and others"
        } else {
            ""
        };
        output::notice(&format_args!(
            "{}: which gcc stored the arrays of arrays of {}{rest} is not known, and some did so the wrong way round (PR114186): they are as they are stored",
            path.display(),
            shown.join(", ")
        ));
    }
}

/// A file with types.
pub(super) enum Input {
    /// A bare CTF or BTF file.
    Bare { path: PathBuf, bytes: Vec<u8> },
    /// An ELF file.
    Elf(Box<ElfFile>),
}

impl Input {
    /// The files of a path: all members with CTF of an archive, otherwise the one file.
    pub(super) fn open(path: &Path) -> anyhow::Result<Vec<Input>> {
        let container = match bytes_of(path)? {
            Some(bytes) if is_bare(&bytes) => {
                let path = path.to_owned();
                return Ok(vec![Input::Bare { path, bytes }]);
            }
            Some(bytes) => Container::from_bytes(path, bytes),
            None => Container::open(path),
        };
        match container? {
            Container::File(file) => Ok(vec![Input::Elf(file)]),
            Container::Archive(files) => {
                let mut inputs = Vec::new();
                for file in files {
                    match file {
                        Ok(file) => inputs.push(Input::Elf(Box::new(file))),
                        Err(error) => output::notice(&error),
                    }
                }
                Ok(inputs)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Input::Bare { path, .. } => path,
            Input::Elf(file) => file.path(),
        }
    }

    /// The ELF file, if it is one.
    pub(super) fn elf(&self) -> Option<&ElfFile> {
        match self {
            Input::Bare { .. } => None,
            Input::Elf(file) => Some(file),
        }
    }

    /// The CTF, and the context that it needs from its file; `None` if there is none.
    pub(super) fn section(&self) -> anyhow::Result<Option<(&[u8], ElfContext<'_>)>> {
        let file = match self {
            Input::Bare { bytes, .. } => {
                let elf = ElfContext {
                    is_64: true,
                    ..ElfContext::default()
                };
                return Ok(Some((bytes, elf)));
            }
            Input::Elf(file) => file,
        };
        let section = match file.section_named(SECTION)? {
            None => file.section_named(ILLUMOS_SECTION)?,
            section => section,
        };
        match section {
            Some(section) => Ok(Some((section.data, elf_context(file)?))),
            None => Ok(None),
        }
    }

    /// The types: CTF if there is any, else BTF; `None` if there are none.
    pub(super) fn types(&self) -> anyhow::Result<Option<StoredTypes<'_>>> {
        let has_ctf = match self {
            Input::Bare { bytes, .. } => !is_btf(bytes),
            Input::Elf(file) => file.section_named(SECTION)?.is_some(),
        };
        if !has_ctf && let Some((bytes, pointer_size)) = self.btf()? {
            return Ok(Some(StoredTypes::Btf(bytes, pointer_size)));
        }
        let section = self.section()?;
        Ok(section.map(|(bytes, elf)| StoredTypes::Ctf(bytes, elf)))
    }

    /// The BTF as stored, and the size of the machine's pointers in bytes; `None` if there is none.
    /// Relocations in objects for BPF are for its loader: they are of places in sections.
    fn btf(&self) -> anyhow::Result<Option<(&[u8], u64)>> {
        match self {
            Input::Bare { bytes, .. } => Ok(is_btf(bytes).then_some((bytes, 8))),
            Input::Elf(file) => {
                let pointer_size = if file.word() == AddressSize::W64 {
                    8
                } else {
                    4
                };
                let section = file.section_named(BTF_SECTION)?;
                let stored = section.and_then(|section| {
                    let start = usize::try_from(section.offset).ok()?;
                    file.bytes()
                        .get(start..start.checked_add(section.data.len())?)
                });
                Ok(stored.map(|bytes| (bytes, pointer_size)))
            }
        }
    }

    /// The file with the base of its BTF, if that needs one: the given one, else the running kernel
    /// for its modules.
    ///
    /// # Errors
    ///
    /// It is a module of another kernel, or the base cannot be opened.
    pub(super) fn btf_base(&self, base: Option<&Path>) -> anyhow::Result<Option<Input>> {
        let Some((bytes, _)) = self.btf()? else {
            return Ok(None);
        };
        if !BtfReading::is_split(bytes) {
            return Ok(None);
        }
        let kernel = Path::new(KERNEL_BTF).join("vmlinux");
        let base = match (base, self) {
            (Some(base), _) => base,
            (None, Input::Bare { path, .. }) if path.starts_with(KERNEL_BTF) => &kernel,
            (None, Input::Elf(file)) if file.section_named(BTF_BASE_SECTION)?.is_none() => {
                let Some(release) = module_release(file)? else {
                    return Ok(None);
                };
                let running = unspool_files::read("/proc/sys/kernel/osrelease".as_ref(), 4096)?;
                let running = String::from_utf8_lossy(&running);
                if running.trim_end() != release {
                    bail!(
                        "{} is a module of Linux {release}, and {} runs: give the types of its kernel by --base (its vmlinux, or that one's BTF)",
                        self.path().display(),
                        running.trim_end()
                    );
                }
                &kernel
            }
            _ => return Ok(None),
        };
        for input in Input::open(base)? {
            if input.btf()?.is_some() {
                return Ok(Some(input));
            }
        }
        bail!("{} has no BTF to be a base", base.display());
    }

    /// Reads BTF of the file. Its base is its own, found again in the given one if there is one.
    pub(super) fn read_btf<'d>(
        &'d self,
        bytes: &'d [u8],
        pointer_size: u64,
        base: Option<&'d Input>,
        arrays: ArrayView,
    ) -> anyhow::Result<LoadedBtf<'d>> {
        let parse = |bytes| BtfReading::parse(bytes, pointer_size);
        let path = |input: &Input| input.path().display().to_string();
        let own = match self {
            Input::Elf(file) if BtfReading::is_split(bytes) => {
                file.section_named(BTF_BASE_SECTION)?
            }
            _ => None,
        };
        let mut given = None;
        if let Some(input) = base
            && let Some((bytes, _)) = input.btf()?
        {
            let base = parse(bytes).and_then(BtfBase::new);
            given = Some(base.with_context(|| path(input))?);
        }
        let base = match (own, given) {
            (None, given) => given,
            (Some(own), given) => {
                let own = parse(own.data);
                let found = own.and_then(|own| match given {
                    Some(given) => given.with_distilled(own),
                    None => BtfBase::new(own),
                });
                Some(found.with_context(|| path(self))?)
            }
        };
        let readings = BtfReading::parse_all(bytes, pointer_size, base.as_ref());
        let mut readings = readings.with_context(|| path(self))?;
        let order = self.btf_array_order(&readings);
        let is_order_known = order != ArrayOrder::Unknown;
        let reversed_by = match (arrays, order) {
            (ArrayView::AsDeclared, ArrayOrder::Reversed(by)) => Some(by),
            _ => None,
        };
        if reversed_by.is_some() {
            for reading in &mut readings {
                reading.graph = reading.graph.with_reversed_arrays();
            }
        }
        let problems: Vec<_> = readings.iter().flat_map(|one| &one.problems).collect();
        report(self.path(), problems.iter());
        Ok(LoadedBtf {
            is_clean: problems.is_empty(),
            graphs: readings
                .into_iter()
                .map(|one| Arc::new(one.graph))
                .collect(),
            base,
            reversed_by,
            is_order_known,
        })
    }

    /// How multidimensional arrays of BTF are stored. It is known only if all compilers that the
    /// file names are gccs of one kind. pahole, which makes most BTF, stores one dimension.
    fn btf_array_order(&self, readings: &[BtfReading<'_>]) -> ArrayOrder {
        let mut graphs = readings.iter().map(|one| &one.graph);
        if !graphs.any(Graph::has_arrays_of_arrays) {
            return ArrayOrder::Source;
        }
        let is_gcc = |line: &[u8]| line.starts_with(b"GCC: ");
        let file = self.elf().filter(|file| file.comments().all(is_gcc));
        match file.and_then(Producers::from_comment) {
            Some(Producers::Uniform(order)) => order,
            _ => ArrayOrder::Unknown,
        }
    }

    /// The gcc versions that made the file: from its `.comment`, else from its DWARF.
    fn producers(&self) -> Producers {
        match self {
            Input::Elf(file) => Producers::from_comment(file)
                .unwrap_or_else(|| Producers::from_dwarf(file, &from_dwarf::debug_files(file))),
            Input::Bare { .. } => Producers::Uniform(ArrayOrder::Unknown),
        }
    }

    /// Restores the source's order of array dimensions in its dictionaries, where it is known.
    pub(super) fn reverse_arrays(&self, units: &mut [CtfUnit<'_>]) -> ArrayOrderInfo {
        let has_arrays = |unit: &CtfUnit<'_>| unit.reading.graph.has_arrays_of_arrays();
        let mut arrays = ArrayOrderInfo::default();
        if !units.iter().any(has_arrays) {
            return arrays;
        }
        let producers = self.producers();
        arrays.is_unknown = true;
        // Dictionaries without arrays may refer to their parent's.
        for unit in &*units {
            match producers.order(unit) {
                ArrayOrder::Source => arrays.is_unknown = false,
                ArrayOrder::Reversed(by) => {
                    arrays.is_unknown = false;
                    arrays.reversed_by = Some(by);
                }
                ArrayOrder::Unknown if has_arrays(unit) => {
                    arrays.unknown.push(unit.name.to_owned());
                }
                ArrayOrder::Unknown => {}
            }
        }
        reverse_arrays(units, |unit| {
            matches!(producers.order(unit), ArrayOrder::Reversed(_))
        });
        arrays
    }
}

/// The release of the kernel that a file is a module of, from `.modinfo`; `None` if it is not a
/// module.
fn module_release(file: &ElfFile) -> anyhow::Result<Option<String>> {
    let Some(info) = file.section_named(".modinfo")? else {
        return Ok(None);
    };
    let mut fields = info.data.split(|byte| *byte == 0);
    let magic = fields.find_map(|field| field.strip_prefix(b"vermagic="));
    let release = magic.and_then(|magic| magic.split(|byte| *byte == b' ').next());
    Ok(release.map(|release| String::from_utf8_lossy(release).into_owned()))
}

/// Whether bytes start with a magic number of 16 bits, in either byte order.
fn starts_with(bytes: &[u8], magic: u16) -> bool {
    let start = bytes.first_chunk();
    start.is_some_and(|start| [magic.to_le_bytes(), magic.to_be_bytes()].contains(start))
}

fn is_btf(bytes: &[u8]) -> bool {
    starts_with(bytes, BTF_MAGIC)
}

/// Whether bytes start with the CTF or BTF magic.
fn is_bare(bytes: &[u8]) -> bool {
    let archive = bytes.first_chunk().map(|magic| u64::from_le_bytes(*magic));
    let magics = [MAGIC, ILLUMOS_MAGIC, BTF_MAGIC];
    archive == Some(ARCHIVE_MAGIC) || magics.iter().any(|magic| starts_with(bytes, *magic))
}

/// The bytes of a bare CTF or BTF file, and of any pipe, which can be read only once.
fn bytes_of(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let said = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    let read = match open_input(path) {
        // Opening it as an ELF file reports its real type.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) => Err(error),
        Ok(Opened::Stream(mut stream)) => stream.read_to_end(&mut bytes),
        Ok(Opened::File(mut file)) => {
            let start = file.by_ref().take(8).read_to_end(&mut bytes);
            start.with_context(said)?;
            if !is_bare(&bytes) {
                return Ok(None);
            }
            file.read_to_end(&mut bytes)
        }
    };
    read.with_context(said)?;
    Ok(Some(bytes))
}

/// The names of function and data symbols.
#[derive(Clone, Default)]
pub(super) struct SymbolNames {
    pub(super) functions: BTreeSet<String>,
    pub(super) objects: BTreeSet<String>,
}

impl<'a> Extend<ElfSymbol<'a>> for SymbolNames {
    fn extend<I: IntoIterator<Item = ElfSymbol<'a>>>(&mut self, symbols: I) {
        for symbol in symbols {
            let names = match symbol.kind {
                SymbolKind::Function => &mut self.functions,
                SymbolKind::Object => &mut self.objects,
            };
            names.insert(symbol.name.into_owned());
        }
    }
}
