//! Displaced execution: instructions executed at another address than their own.
//!
//! A breakpoint must never be removed for one thread to continue: another thread would run through
//! and miss it. So a thread executes a copy of the instruction in memory beside the program's code.
//! Its registers are then set as if it had executed the original. The kernel does the same for
//! uprobes.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::instruction::{InstructionKind, MAX_INSTRUCTION_BYTES};

/// An instruction and its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DisplacedInstruction {
    /// Address of the instruction.
    pub(crate) at: u64,
    /// Address of its copy.
    pub(crate) copy: u64,
    /// Its branch target is relative to its own address.
    is_relative: bool,
    /// It pushes its own address.
    pub(crate) is_call: bool,
    pub(crate) kind: InstructionKind,
}

impl DisplacedInstruction {
    /// Makes the copy at `copy` of the instruction at `at` with these bytes. `None` if it addresses
    /// memory that the copy cannot reach.
    pub(crate) fn new(
        at: u64,
        copy: u64,
        bytes: &mut [u8; MAX_INSTRUCTION_BYTES],
    ) -> Option<DisplacedInstruction> {
        let kind = InstructionKind::from_bytes(bytes);
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let branches = [
            OpKind::NearBranch16,
            OpKind::NearBranch32,
            OpKind::NearBranch64,
        ];
        let calls = [FlowControl::Call, FlowControl::IndirectCall];
        let aside = DisplacedInstruction {
            at,
            copy,
            is_relative: instruction.op_count() > 0 && branches.contains(&instruction.op0_kind()),
            is_call: calls.contains(&instruction.flow_control()),
            kind,
        };
        if instruction.is_ip_rel_memory_operand() {
            let place = decoder.get_constant_offsets(&instruction);
            let rest = bytes.get_mut(place.displacement_offset()..)?;
            let distance = rest.first_chunk_mut::<4>()?;
            let from_copy = i64::from(i32::from_le_bytes(*distance))
                .checked_add(at.wrapping_sub(copy).cast_signed())?;
            *distance = i32::try_from(from_copy).ok()?.to_le_bytes();
        }
        Some(aside)
    }

    /// The program's view of the address `pc` that the copy led to.
    pub(crate) fn original_pc(&self, pc: u64) -> u64 {
        if self.is_relative || self.is_in_copy(pc) {
            pc.wrapping_sub(self.copy).wrapping_add(self.at)
        } else {
            pc
        }
    }

    /// Whether an address is in the copy, or right behind it.
    pub(crate) fn is_in_copy(&self, at: u64) -> bool {
        at.wrapping_sub(self.copy) <= MAX_INSTRUCTION_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x5555_0000_1000;
    const COPY: u64 = 0x5555_0000_0010;

    fn copied(bytes: &[u8]) -> (DisplacedInstruction, [u8; MAX_INSTRUCTION_BYTES]) {
        let mut copy = [0x90; MAX_INSTRUCTION_BYTES];
        copy[..bytes.len()].copy_from_slice(bytes);
        (
            DisplacedInstruction::new(AT, COPY, &mut copy).unwrap(),
            copy,
        )
    }

    #[test]
    fn displaced_relative_jumps_keep_their_target() {
        // jmp .+0x102
        let (jump, bytes) = copied(&[0xe9, 0xfd, 0, 0, 0]);
        assert_eq!(bytes[..5], [0xe9, 0xfd, 0, 0, 0]);
        assert_eq!(jump.original_pc(COPY + 0x102), AT + 0x102);
        // ret: to any address, which is outside of the copy.
        let (back, _) = copied(&[0xc3]);
        assert_eq!(back.original_pc(0x1234), 0x1234);
        assert_eq!(back.original_pc(COPY), AT);
    }

    #[test]
    fn memory_that_is_named_by_its_distance_is_the_same() {
        // cmpl $1000, 0x2000(%rip): the distance is counted from behind the constant.
        let (_, bytes) = copied(&[0x81, 0x3d, 0, 0x20, 0, 0, 0xe8, 3, 0, 0]);
        let distance = i32::from_le_bytes(bytes[2..6].try_into().unwrap());
        assert_eq!(
            COPY.wrapping_add_signed(distance.into()),
            AT.wrapping_add(0x2000)
        );
        assert_eq!(bytes[6..10], [0xe8, 3, 0, 0]);
        let mut far = [0x8b, 0x05, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            DisplacedInstruction::new(AT, AT + (1 << 32), &mut far),
            None
        );
    }
}
