//! The general registers in the kernel's layout of `NT_PRSTATUS`, for ptrace (`PTRACE_GETREGSET`)
//! and core files alike: `struct user_regs_struct` of x86-64 and `struct user_pt_regs` of AArch64.
//! Each is an array of 8-byte words. Also the vector registers in `NT_PRFPREG`: `struct
//! user_i387_struct`, and `struct user_fpsimd_state`; and in `NT_ARM_SVE`, which gdb's core files
//! have instead where the processor has SVE.

use unspool_rows::{Arch, Memory, Register, Registers, RuntimeAddr};

use crate::Thread;
use crate::little_endian::{u16_at, u64_at};

mod aarch64;
mod x86_64;

/// The positions of registers in one architecture's blocks.
#[derive(Debug)]
pub(crate) struct RegisterLayout {
    /// The size of the register block in bytes.
    pub(crate) size: usize,
    /// Word index in the block, and DWARF number.
    words: &'static [(usize, u16)],
    /// The code address.
    pc: Register,
    /// How the thread's current system call is known.
    syscall: SyscallSource,
    /// The number of the system call `futex`.
    pub(crate) futex: u64,
    /// The first arguments of a system call.
    pub(crate) arguments: [Register; 2],
    /// The position of the vector registers in `NT_PRFPREG`.
    vectors: VectorLayout,
    /// Code addresses may carry a signature; `NT_ARM_PAC_MASK` gives its bits.
    pub(crate) has_pac_mask: bool,
    /// Vector registers may be in `NT_ARM_SVE`.
    pub(crate) has_scalable_vectors: bool,
}

/// How a thread's current system call is known.
#[derive(Debug)]
enum SyscallSource {
    /// A word of the block is its number, or -1.
    Word(usize),
    /// The kernel has set the code address back to the instruction, to repeat it; the register has
    /// the number.
    Instruction([u8; 4], Register),
}

/// Vector registers of 16 bytes, contiguous, with consecutive DWARF numbers.
#[derive(Debug)]
struct VectorLayout {
    /// The offset of the first in the block, in bytes.
    offset: usize,
    /// The DWARF number of the first.
    first: u16,
    /// Their number.
    count: u16,
}

/// The decoded register block of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodedRegisters {
    /// The general registers by DWARF number.
    pub(crate) registers: Registers,
    /// The thread's current system call, if the block has it.
    pub(crate) syscall: Option<u64>,
}

/// The layout of `arch`, or `None` if its threads cannot be read.
pub(crate) fn layout(arch: Arch) -> Option<&'static RegisterLayout> {
    match arch {
        Arch::X86_64 => Some(&x86_64::LAYOUT),
        Arch::Aarch64 => Some(&aarch64::LAYOUT),
        _ => None,
    }
}

impl RegisterLayout {
    /// Reads a register block; `None` unless it has exactly [`RegisterLayout::size`] bytes.
    pub(crate) fn decode(&self, block: &[u8]) -> Option<DecodedRegisters> {
        if block.len() != self.size {
            return None;
        }
        let mut registers = Registers::new();
        for (index, number) in self.words {
            registers.set(Register(*number), word(block, *index)?);
        }
        let syscall = match self.syscall {
            SyscallSource::Word(index) => {
                word(block, index).filter(|number| number.cast_signed() >= 0)
            }
            SyscallSource::Instruction(..) => None,
        };
        Some(DecodedRegisters { registers, syscall })
    }
}

impl RegisterLayout {
    /// Finds the current system calls of threads by their code, where the register block does not
    /// have them.
    pub(crate) fn find_syscalls(&self, threads: &mut [Thread], memory: &dyn Memory) {
        let SyscallSource::Instruction(instruction, number) = self.syscall else {
            return;
        };
        for thread in threads {
            let registers = thread.registers.as_ref();
            thread.syscall = registers.ok().and_then(|registers| {
                let mut bytes = [0; 4];
                let pc = registers.get(self.pc)?;
                memory.read(RuntimeAddr(pc), &mut bytes).ok()?;
                registers.get(number).filter(|_| bytes == instruction)
            });
        }
    }

    /// Adds the low 8 bytes of the vector registers in a block of `NT_PRFPREG`; a short block has
    /// fewer.
    pub(crate) fn decode_vectors(&self, block: &[u8], registers: &mut Registers) {
        self.decode_vectors_from(block, self.vectors.offset, 16, registers);
    }

    /// The same of a block of `NT_ARM_SVE`: behind a `struct user_sve_header` are the vectors of
    /// SVE, or of FP/SIMD where a thread has not used SVE (Documentation/arch/arm64/sve.rst).
    pub(crate) fn decode_scalable_vectors(&self, block: &[u8], registers: &mut Registers) {
        const HEADER_BYTES: usize = 16;
        const IS_SVE: u16 = 1;
        let (Some(length), Some(flags)) = (u16_at(block, 8), u16_at(block, 12)) else {
            return;
        };
        let size = if flags & IS_SVE == 0 { 16 } else { length };
        self.decode_vectors_from(block, HEADER_BYTES, size, registers);
    }

    fn decode_vectors_from(
        &self,
        block: &[u8],
        offset: usize,
        size: u16,
        registers: &mut Registers,
    ) {
        let VectorLayout { first, count, .. } = self.vectors;
        for nth in 0..count {
            let at = offset + usize::from(size) * usize::from(nth);
            if let Some(low) = u64_at(block, at) {
                registers.set(Register(first + nth), low);
            }
        }
    }
}

fn word(block: &[u8], index: usize) -> Option<u64> {
    u64_at(block, index.checked_mul(8)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn counting_block(layout: &RegisterLayout) -> Vec<u8> {
        let words = u64::try_from(layout.size / 8).unwrap();
        (0..words).flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn x86_64_words_go_where_the_kernel_header_says() {
        let decoded = x86_64::LAYOUT
            .decode(&counting_block(&x86_64::LAYOUT))
            .unwrap();
        let arch = Arch::X86_64;
        for (name, index) in [
            ("r15", 0),
            ("rbp", 4),
            ("rbx", 5),
            ("r8", 9),
            ("rax", 10),
            ("rcx", 11),
            ("rdx", 12),
            ("rsi", 13),
            ("rdi", 14),
            ("rip", 16),
            ("rflags", 18),
            ("rsp", 19),
            ("fs.base", 21),
            ("gs.base", 22),
        ] {
            let register = arch.register_named(name).unwrap();
            assert_eq!(decoded.registers.get(register), Some(index), "{name}");
        }
        assert_eq!(decoded.syscall, Some(15));
    }

    #[test]
    fn aarch64_words_are_in_dwarf_order() {
        let decoded = aarch64::LAYOUT
            .decode(&counting_block(&aarch64::LAYOUT))
            .unwrap();
        for number in 0..=32 {
            assert_eq!(
                decoded.registers.get(Register(number)),
                Some(u64::from(number))
            );
        }
        assert_eq!(decoded.syscall, None);
    }

    #[test]
    fn a_block_of_another_size_is_refused() {
        for size in [0, 68, 215, 217, 1000] {
            assert!(x86_64::LAYOUT.decode(&vec![0; size]).is_none());
        }
    }

    #[test]
    fn vector_registers_are_where_the_kernel_headers_say() {
        for (layout, name, offset) in [
            (&x86_64::LAYOUT, "xmm0", 160),
            (&x86_64::LAYOUT, "xmm15", 400),
            (&aarch64::LAYOUT, "v0", 0),
            (&aarch64::LAYOUT, "v31", 496),
        ] {
            let arch = [Arch::X86_64, Arch::Aarch64]
                .into_iter()
                .find_map(|arch| arch.register_named(name));
            let mut block = [0; 512];
            block[offset] = 7;
            let mut registers = Registers::new();
            layout.decode_vectors(&block, &mut registers);
            let set: Vec<_> = registers.iter().filter(|(_, value)| *value != 0).collect();
            assert_eq!(set, [(arch.unwrap(), 7)], "{name}");
        }
        let mut registers = Registers::new();
        x86_64::LAYOUT.decode_vectors(&[1; 176], &mut registers);
        assert_eq!(registers.iter().count(), 1, "of a block that is cut");
    }

    #[test]
    fn vectors_of_sve_are_as_long_as_its_header_says() {
        for (is_sve, second) in [(1, 16 + 64), (0, 16 + 16)] {
            let mut block = [0; 16 + 32 * 64];
            (block[8], block[12], block[second]) = (64, is_sve, 7);
            let mut registers = Registers::new();
            aarch64::LAYOUT.decode_scalable_vectors(&block, &mut registers);
            let set: Vec<_> = registers.iter().filter(|(_, value)| *value != 0).collect();
            assert_eq!(set, [(Register(65), 7)]);
        }
    }

    #[test]
    fn minus_one_is_not_a_system_call() {
        assert_eq!(x86_64::LAYOUT.decode(&[0xff; 216]).unwrap().syscall, None);
    }
}
