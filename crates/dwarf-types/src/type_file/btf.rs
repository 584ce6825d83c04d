//! BTF of a file, with its base if it is split.

use std::path::Path;
use std::sync::Arc;

use unspool_c_types::{BtfBase, BtfReading, Graph};
use unspool_elf::{ElfFile, ModuleError};

use super::{
    ArrayView, BTF_SECTION, TypeFile, TypeFileError, TypeLoader, TypesFaults, TypesNotice, is_btf,
};
use crate::elf::elf_context;
use crate::producers::ArrayOrder;

/// The section of a module's own base: the names and sizes of the kernel's types that it uses.
const BTF_BASE_SECTION: &str = ".BTF.base";

/// The folder of the running kernel's BTF, and of its modules'.
const KERNEL_BTF: &str = "/sys/kernel/btf";

/// The types of a file's BTF.
#[derive(Debug)]
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

impl TypeFile {
    /// The BTF as stored, and the size of the machine's pointers in bytes; `None` if there is none.
    /// Relocations in objects for BPF are for its loader: they are of places in sections.
    pub(super) fn btf(&self) -> Result<Option<(&[u8], u64)>, ModuleError> {
        match self {
            TypeFile::Bare { bytes, .. } => Ok(is_btf(bytes).then_some((bytes, 8))),
            TypeFile::Elf(file) => {
                let section = file.section_named(BTF_SECTION)?;
                let stored = section.and_then(|section| {
                    let start = usize::try_from(section.offset).ok()?;
                    file.bytes()
                        .get(start..start.checked_add(section.data.len())?)
                });
                let pointer_size = elf_context(file)?.pointer_size();
                Ok(stored.map(|bytes| (bytes, pointer_size)))
            }
        }
    }
}

impl TypeLoader<'_> {
    /// The file with the base of a file's BTF, if that needs one: the given one, else the running
    /// kernel for its modules.
    pub(super) fn btf_base(self, file: &TypeFile) -> Result<Option<TypeFile>, TypeFileError> {
        let Some((bytes, _)) = file.btf()? else {
            return Ok(None);
        };
        if !BtfReading::is_split(bytes) {
            return Ok(None);
        }
        let kernel = Path::new(KERNEL_BTF).join("vmlinux");
        let base = match (self.base, file) {
            (Some(base), _) => base,
            (None, TypeFile::Bare { path, .. }) if path.starts_with(KERNEL_BTF) => &kernel,
            (None, TypeFile::Elf(file)) if file.section_named(BTF_BASE_SECTION)?.is_none() => {
                let Some(release) = module_release(file)? else {
                    return Ok(None);
                };
                let running = running_release()?;
                if running != release {
                    let file = file.path().to_owned();
                    return Err(TypeFileError::OtherKernel {
                        file,
                        release,
                        running,
                    });
                }
                &kernel
            }
            _ => return Ok(None),
        };
        for file in self.open(base)? {
            if file.btf()?.is_some() {
                return Ok(Some(file));
            }
        }
        let base = base.to_owned();
        Err(TypeFileError::NoBase { base })
    }

    /// Reads the stored BTF of a file. Its base is its own, found again in the given one if there is
    /// one.
    pub(super) fn read_btf<'d>(
        self,
        file: &'d TypeFile,
        bytes: &'d [u8],
        pointer_size: u64,
        base: Option<&'d TypeFile>,
    ) -> Result<LoadedBtf<'d>, TypeFileError> {
        let parse = |bytes| BtfReading::parse(bytes, pointer_size);
        let own = match file.elf() {
            Some(elf) if BtfReading::is_split(bytes) => elf.section_named(BTF_BASE_SECTION)?,
            _ => None,
        };
        let mut given = None;
        if let Some(file) = base
            && let Some((bytes, _)) = file.btf()?
        {
            let base = parse(bytes).and_then(BtfBase::new);
            given = Some(base.map_err(|error| file.btf_error(error))?);
        }
        let base = match (own, given) {
            (None, given) => given,
            (Some(own), given) => {
                let own = parse(own.data);
                let found = own.and_then(|own| match given {
                    Some(given) => given.with_distilled(own),
                    None => BtfBase::new(own),
                });
                Some(found.map_err(|error| file.btf_error(error))?)
            }
        };
        let readings = BtfReading::parse_all(bytes, pointer_size, base.as_ref());
        let mut readings = readings.map_err(|error| file.btf_error(error))?;
        let order = file.btf_array_order(&readings);
        let is_order_known = order != ArrayOrder::Unknown;
        let reversed_by = match (self.arrays, order) {
            (ArrayView::AsDeclared, ArrayOrder::Reversed(by)) => Some(by),
            _ => None,
        };
        let mut problems = Vec::new();
        for reading in &mut readings {
            problems.append(&mut reading.problems);
            if reversed_by.is_some() {
                reading.graph = reading.graph.with_reversed_arrays();
            }
        }
        if !problems.is_empty() {
            self.report(TypesNotice::Faults {
                file: file.path(),
                faults: TypesFaults::Btf(&problems),
            });
        }
        let graphs = readings.into_iter().map(|one| Arc::new(one.graph));
        Ok(LoadedBtf {
            is_clean: problems.is_empty(),
            graphs: graphs.collect(),
            base,
            reversed_by,
            is_order_known,
        })
    }
}

/// The release of the running kernel.
fn running_release() -> Result<String, ModuleError> {
    let path = Path::new("/proc/sys/kernel/osrelease");
    let bytes = unspool_files::read(path, 4096).map_err(|error| ModuleError::Io {
        file: path.to_owned(),
        source: Arc::new(error),
    })?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// The release of the kernel that a file is a module of, from `.modinfo`; `None` if it is not a
/// module.
fn module_release(file: &ElfFile) -> Result<Option<String>, ModuleError> {
    let Some(info) = file.section_named(".modinfo")? else {
        return Ok(None);
    };
    let mut fields = info.data.split(|byte| *byte == 0);
    let magic = fields.find_map(|field| field.strip_prefix(b"vermagic="));
    let release = magic.and_then(|magic| magic.split(|byte| *byte == b' ').next());
    Ok(release.map(|release| String::from_utf8_lossy(release).into_owned()))
}
