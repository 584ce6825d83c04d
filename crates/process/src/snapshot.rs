//! The common interface of a live process and a core file: a stopped process.

use std::time::Duration;

use unspool_rows::{Abi, Memory, Registers, RuntimeAddr, Unreadable};

use crate::maps::{Mapping, Mappings};
use crate::{NoBuildId, Signal, build_id};

/// The vDSO of every known kernel is below 64 KiB; more is not read.
const MAX_VDSO_BYTES: u64 = 1 << 20;
/// The limit of mappings between a file's first one and its others; real ones have about 10.
const MAX_FILE_MAPPINGS: usize = 1 << 10;

/// A stopped process: [`Process`](crate::Process) or [`Core`](crate::core_file::Core).
pub trait Snapshot {
    /// The architecture and byte order.
    fn abi(&self) -> Abi;

    /// The threads, if they are known. In a core file and after a fatal signal, the signal's thread
    /// is the first one.
    fn threads(&self) -> &[Thread] {
        &[]
    }

    /// The mappings.
    fn mappings(&self) -> &Mappings;

    /// Whether no memory is mapped outside of these. A core without a list of mapped files may lack
    /// those that its writer could find in files.
    fn has_all_mappings(&self) -> bool {
        true
    }

    /// The auxiliary vector.
    fn auxv(&self) -> &AuxVector;

    /// The memory.
    fn memory(&self) -> &dyn Memory;

    /// The memory as it is now, for what processes write once: [`Snapshot::memory`] may have only
    /// what was read while the process was stopped.
    fn current_memory(&self) -> &dyn Memory {
        self.memory()
    }

    /// The signal that stopped the process for good, if there was one.
    fn signal(&self) -> Option<&Signal> {
        None
    }

    /// The bits of a code address that hold a signature (AArch64 PAuth, `NT_ARM_PAC_MASK`); 0
    /// without signatures.
    fn pac_mask(&self) -> u64 {
        0
    }

    /// The ELF image of the vDSO, the code that the kernel maps into every process, or `None`
    /// if the process has none. It exists in memory only.
    ///
    /// # Errors
    ///
    /// The first byte of the image that could not be read.
    fn vdso_image(&self) -> Option<Result<Vec<u8>, Unreadable>> {
        let start = self.auxv().sysinfo_ehdr()?;
        let mapping = self.mappings().find(start)?;
        let size = mapping.end.0.saturating_sub(start.0).min(MAX_VDSO_BYTES);
        let mut image = vec![0; usize::try_from(size).ok()?];
        Some(self.memory().read(start, &mut image).map(|()| image))
    }

    /// The first address of the loaded copy of a file that contains a mapping: that of the nearest
    /// mapping of the file's first byte. A file can be loaded more than once.
    fn copy_start(&self, mapping: &Mapping) -> Option<RuntimeAddr> {
        let all = self.mappings().as_slice();
        let before = all.partition_point(|other| other.start <= mapping.start);
        let mut near = all.get(..before)?.iter().rev().take(MAX_FILE_MAPPINGS);
        let first = near.find(|other| other.offset == 0 && other.name == mapping.name);
        Some(first?.start)
    }

    /// The build ID of a mapping's module, read from memory: the loaded module's, whatever file is
    /// on disk now.
    ///
    /// # Errors
    ///
    /// The module has none, or its headers are not in memory.
    fn build_id_at(&self, mapping: &Mapping) -> Result<Vec<u8>, NoBuildId> {
        let header = self.copy_start(mapping).ok_or(NoBuildId::NoHeader {
            start: mapping.start,
        })?;
        build_id::read(self.memory(), header)
    }
}

/// One thread of a stopped process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The thread's ID; the first thread of a process has the process's ID.
    pub tid: u32,
    /// The thread's name (`comm`, at most 15 bytes), if recorded.
    pub name: Option<String>,
    /// The thread's state when it was found.
    pub state: ThreadState,
    /// The number of the thread's current system call, if there is one and the architecture records
    /// it.
    pub syscall: Option<u64>,
    /// The general registers by DWARF number.
    pub registers: Result<Registers, NoRegisters>,
}

/// The state of a thread when it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadState {
    /// It ran, or waited in a system call, and was stopped for the snapshot.
    Stopped,
    /// Job control had stopped it before (`SIGSTOP`, `SIGTSTP`); it stays stopped afterwards.
    JobStopped,
    /// A signal was about to be delivered to it; delivery happens when the thread resumes.
    Signalled(i32),
    /// It has exited, but other threads of the process have not.
    Exited,
    /// It did not stop in time; its state in `/proc/PID/stat` was this.
    NotStopped(char),
    /// It was read from a core file.
    Recorded,
}

/// Why a thread has no registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRegisters {
    /// The thread has exited; the process continues without it.
    #[error("the thread has exited")]
    Exited,
    /// The thread did not stop in time.
    #[error(
        "the thread did not stop within {} ms (state {state}{})",
        waited.as_millis(),
        if *state == 'D' { ": waiting in the kernel, uninterruptible" } else { "" }
    )]
    NotStopped {
        /// The time limit.
        waited: Duration,
        /// Its state in `/proc/PID/stat`.
        state: char,
    },
    /// The register block has the size of another architecture or of a 32-bit thread.
    #[error("the register block is {found} bytes long, not {expected}")]
    Size {
        /// Bytes found.
        found: usize,
        /// Bytes of the architecture's register block.
        expected: usize,
    },
    /// The system refused to return the registers.
    #[error("PTRACE_GETREGSET failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Refused {
        /// The system's error number.
        errno: i32,
    },
}

/// The auxiliary vector: values that the kernel passes to a program at its start (getauxval(3)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuxVector {
    entries: Vec<(u64, u64)>,
}

impl AuxVector {
    const AT_NULL: u64 = 0;
    const AT_PHDR: u64 = 3;
    const AT_PHENT: u64 = 4;
    const AT_PAGESZ: u64 = 6;
    const AT_BASE: u64 = 7;
    const AT_ENTRY: u64 = 9;
    const AT_SECURE: u64 = 23;
    const AT_RANDOM: u64 = 25;
    const AT_EXECFN: u64 = 31;
    const AT_SYSINFO_EHDR: u64 = 33;

    /// Entries beyond this number are not kept; kernels write about 20.
    const MAX_ENTRIES: usize = 256;

    /// Parses pairs of 8-byte little-endian words up to `AT_NULL` or the end.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> AuxVector {
        let (words, _) = bytes.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let entries = pairs
            .iter()
            .map(|[key, value]| (u64::from_le_bytes(*key), u64::from_le_bytes(*value)))
            .take_while(|(key, _)| *key != Self::AT_NULL)
            .take(Self::MAX_ENTRIES)
            .collect();
        AuxVector { entries }
    }

    /// The vector of a process of which only the vDSO's address is known.
    #[must_use]
    pub(crate) fn with_vdso(start: RuntimeAddr) -> AuxVector {
        AuxVector {
            entries: vec![(Self::AT_SYSINFO_EHDR, start.0)],
        }
    }

    /// Whether the pairs consist of 4-byte words, as in a 32-bit program. Every vector has the size
    /// of a program header, which is then that of ELF32.
    pub(crate) fn is_32_bit(bytes: &[u8]) -> bool {
        const ELF32_PHDR_SIZE: u32 = 32;
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        let header_size = pairs
            .iter()
            .map(|pair| pair.map(u32::from_le_bytes))
            .take_while(|[key, _]| u64::from(*key) != Self::AT_NULL)
            .find(|[key, _]| u64::from(*key) == Self::AT_PHENT);
        header_size.is_some_and(|[_, size]| size == ELF32_PHDR_SIZE)
    }

    /// The value of the first entry of type `key` (`AT_…` of `elf.h`).
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u64> {
        let entry = self.entries.iter().find(|(found, _)| *found == key);
        entry.map(|(_, value)| *value)
    }

    /// `AT_SYSINFO_EHDR`: the address of the vDSO's ELF header.
    #[must_use]
    pub fn sysinfo_ehdr(&self) -> Option<RuntimeAddr> {
        self.address(Self::AT_SYSINFO_EHDR)
    }

    /// `AT_PHDR`: the address of the executable's program headers.
    #[must_use]
    pub fn phdr(&self) -> Option<RuntimeAddr> {
        self.address(Self::AT_PHDR)
    }

    /// `AT_ENTRY`: the entry point of the executable.
    #[must_use]
    pub fn entry(&self) -> Option<RuntimeAddr> {
        self.address(Self::AT_ENTRY)
    }

    /// `AT_PAGESZ`: the size of a page in bytes.
    #[must_use]
    pub fn page_size(&self) -> Option<u64> {
        self.get(Self::AT_PAGESZ)
            .filter(|size| size.is_power_of_two())
    }

    /// `AT_BASE`: the load address of the program interpreter (`ld.so`); absent in a static
    /// program.
    #[must_use]
    pub fn base(&self) -> Option<RuntimeAddr> {
        self.address(Self::AT_BASE)
    }

    /// `AT_SECURE`: whether the program has more rights than its caller (setuid, setgid,
    /// capabilities).
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.get(Self::AT_SECURE).is_some_and(|value| value != 0)
    }

    /// `AT_RANDOM`: the address of 16 random bytes in the stack of the first thread.
    pub(crate) fn random(&self) -> Option<RuntimeAddr> {
        self.address(Self::AT_RANDOM)
    }

    /// `AT_EXECFN`: the address of the path by which the program was started.
    pub(crate) fn execfn(&self) -> Option<RuntimeAddr> {
        self.address(Self::AT_EXECFN)
    }

    fn address(&self, key: u64) -> Option<RuntimeAddr> {
        self.get(key).filter(|value| *value != 0).map(RuntimeAddr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel's vectors for the same program, built for either.
    #[test]
    fn auxv_of_a_32_bit_program() {
        let wide = [33, 0x7fb2_97ac_9000_u64, 6, 0x1000, 3, 0x40_0040, 4, 56];
        let narrow = [32, 0xf7f5_e5e0_u32, 6, 0x1000, 3, 0x804_8034, 4, 32];
        let wide: Vec<u8> = wide.iter().flat_map(|word| word.to_le_bytes()).collect();
        let narrow: Vec<u8> = narrow.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(AuxVector::is_32_bit(&narrow));
        assert!(!AuxVector::is_32_bit(&wide) && !AuxVector::is_32_bit(&[]));
    }

    #[test]
    fn auxv_ends_at_null_and_at_a_cut_entry() {
        let words = [33_u64, 0x7000, 9, 0x1000, 7, 0, 6, 0x10000, 0, 0, 3, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let auxv = AuxVector::parse(&bytes);
        assert_eq!(auxv.sysinfo_ehdr(), Some(RuntimeAddr(0x7000)));
        assert_eq!(auxv.entry(), Some(RuntimeAddr(0x1000)));
        assert_eq!((auxv.base(), auxv.phdr()), (None, None));
        assert_eq!(auxv.page_size(), Some(0x10000));
        for end in 0..bytes.len() {
            let cut = AuxVector::parse(&bytes[..end]);
            assert_eq!(cut.sysinfo_ehdr().is_some(), end >= 16);
        }
    }
}
