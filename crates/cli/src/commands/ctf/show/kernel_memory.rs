//! The memory of the running kernel: `/proc/kcore`, an ELF core file of all address space.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use unspool_rows::{Arch, Memory, RuntimeAddr, Unreadable};

/// The kernel's types.
pub(super) const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The sizes of the ELF header and of a program header, of 64 bits.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const PT_LOAD: u64 = 1;
const EM_X86_64: u64 = 62;
const EM_AARCH64: u64 = 183;

/// A segment of the core file.
struct KernelSegment {
    start: u64,
    size: u64,
    offset: u64,
}

/// The memory that a core file has. Only its headers are read at first: its size is that of the
/// address space.
pub(super) struct KernelMemory {
    file: File,
    segments: Vec<KernelSegment>,
    pub(super) arch: Arch,
}

impl KernelMemory {
    pub(super) fn open(path: &Path) -> anyhow::Result<KernelMemory> {
        let file = unspool_files::open(path)
            .with_context(|| format!("{}: only root reads the kernel's memory", path.display()))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)
            .with_context(|| path.display().to_string())?;
        let number = |bytes: &[u8], at: usize, size: usize| {
            let bytes = bytes.get(at..at + size).unwrap_or_default();
            bytes
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        // ELFCLASS64, ELFDATA2LSB (gABI, ELF Identification).
        if !header.starts_with(b"\x7fELF\x02\x01") {
            bail!("{}: not an ELF core file of 64 bits", path.display());
        }
        let arch = match number(&header, 18, 2) {
            EM_X86_64 => Arch::X86_64,
            EM_AARCH64 => Arch::Aarch64,
            machine => bail!("{}: machine {machine} is not supported", path.display()),
        };
        let count = usize::try_from(number(&header, 56, 2))?;
        let mut headers = vec![0; count * SEGMENT_BYTES];
        file.read_exact_at(&mut headers, number(&header, 32, 8))
            .with_context(|| path.display().to_string())?;
        let segments = headers.chunks_exact(SEGMENT_BYTES);
        let loaded = segments.filter(|bytes| number(bytes, 0, 4) == PT_LOAD);
        let segment = |bytes: &[u8]| KernelSegment {
            start: number(bytes, 16, 8),
            size: number(bytes, 32, 8),
            offset: number(bytes, 8, 8),
        };
        Ok(KernelMemory {
            segments: loaded.map(segment).collect(),
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
            let at = addr.0.checked_sub(segment.start)?;
            let has_all = at.checked_add(size)? <= segment.size;
            has_all.then(|| segment.offset.checked_add(at))?
        });
        let read = self.file.read_exact_at(into, found.ok_or(unmapped)?);
        read.map_err(|_| unmapped)
    }
}
