//! The memory of the running kernel: `/proc/kcore`, an ELF core file of all address space.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use unspool_elf::{ElfFile, Segment};
use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Arch, Endian, Memory, RuntimeAddr, Unreadable};

/// The kernel's types.
pub(super) const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The first bytes of the core file, which have its program headers: one for each kind of memory.
const HEADERS_BYTES: u64 = 64 << 10;

/// The memory that a core file has. Only its headers are read at first: its size is that of the
/// address space.
pub(super) struct KernelMemory {
    file: File,
    segments: Vec<Segment>,
    pub(super) arch: Arch,
}

impl KernelMemory {
    pub(super) fn open(path: &Path) -> anyhow::Result<KernelMemory> {
        let file = unspool_files::open(path).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "this kernel was built without CONFIG_PROC_KCORE",
                _ => "only root reads the kernel's memory",
            };
            anyhow!("{}: {why}: {error}", path.display())
        })?;
        let mut headers = Vec::new();
        (&file)
            .take(HEADERS_BYTES)
            .read_to_end(&mut headers)
            .with_context(|| path.display().to_string())?;
        let headers = ElfFile::from_bytes(path, headers)?;
        let Abi { arch, endian } = headers.abi();
        if headers.word() != AddressSize::W64 || endian != Endian::Little {
            bail!("{}: not an ELF core file of 64 bits", path.display());
        }
        headers.check_program_headers()?;
        Ok(KernelMemory {
            segments: headers.segments().collect(),
            file,
            arch,
        })
    }
}

impl Memory for KernelMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let unmapped = Unreadable::unmapped(addr);
        let size = into.len() as u64;
        let found = self.segments.iter().find_map(|segment| {
            let at = addr.0.checked_sub(segment.vaddr.0)?;
            let has_all = at.checked_add(size)? <= segment.file_size;
            has_all.then(|| segment.file_offset.checked_add(at))?
        });
        let read = self.file.read_exact_at(into, found.ok_or(unmapped)?);
        read.map_err(|_| unmapped)
    }
}
