//! The user registers in a sample (`perf_regs.h` of each architecture).

use unspool_rows::{Arch, Register};

/// The kernel's numbers of the general registers, in DWARF order: rax, rdx, rcx, rbx, rsi, rdi,
/// rbp, rsp, r8 to r15, and the instruction pointer.
const X86_64: [u8; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8];

/// x0 to x30 and sp have their DWARF numbers; the program counter follows.
const AARCH64: [u8; 33] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32,
];

/// The kernel's numbers of the registers that an unwinder needs, in DWARF order.
fn perf_numbers(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::X86_64 => &X86_64,
        Arch::Aarch64 => &AARCH64,
        _ => &[],
    }
}

/// The mask of registers that an unwinder needs, for `sample_regs_user`; `None` for other
/// architectures.
#[must_use]
pub fn user_mask(arch: Arch) -> Option<u64> {
    let numbers = perf_numbers(arch).iter();
    let mask = numbers.fold(0, |mask, number| mask | 1 << number);
    (mask != 0).then_some(mask)
}

/// The user registers in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledRegisters<'r> {
    mask: u64,
    words: &'r [u8],
}

impl<'r> SampledRegisters<'r> {
    pub(crate) fn new(mask: u64, words: &'r [u8]) -> Self {
        SampledRegisters { mask, words }
    }

    pub(crate) fn words(self) -> &'r [u8] {
        self.words
    }

    pub(crate) fn with_words(self, words: &[u8]) -> SampledRegisters<'_> {
        SampledRegisters::new(self.mask, words)
    }

    /// A register by the kernel's number.
    fn by_perf_number(&self, number: u8) -> Option<u64> {
        let bit = 1_u64.checked_shl(number.into())?;
        if self.mask & bit == 0 {
            return None;
        }
        let before = (self.mask & (bit - 1)).count_ones();
        let (words, _) = self.words.as_chunks::<8>();
        let word = words.get(usize::try_from(before).ok()?)?;
        Some(u64::from_le_bytes(*word))
    }

    /// A register by its DWARF number; on x86-64 that of the return address is the instruction
    /// pointer's.
    #[must_use]
    pub fn get(&self, arch: Arch, register: Register) -> Option<u64> {
        let number = perf_numbers(arch).get(usize::from(register.0))?;
        self.by_perf_number(*number)
    }

    /// All registers that have a DWARF number in the unwinder.
    pub fn iter(self, arch: Arch) -> impl Iterator<Item = (Register, u64)> + 'r {
        let numbers = (0..).map(Register).zip(perf_numbers(arch));
        numbers
            .filter_map(move |(register, number)| Some((register, self.by_perf_number(*number)?)))
    }
}
