//! Lengths of the most frequent instructions. The first pass needs no more of them, and a full
//! decode takes several times as long.
//!
//! The answers hold for all operands. Everything else is left to the decoder library: other
//! opcodes, more than one prefix before REX, and memory without a base register, which may be a
//! table.

use super::fast_transfer::preconditions_of;
use crate::op::{BranchCondition, Flow, ReturnTarget, ScanEvent};
use crate::state::SCRATCH;

/// A return that pops no arguments.
const RET: Flow = Flow::Return {
    to: ReturnTarget::Stack,
    pops: 0,
};

/// The format of an opcode's instructions: operands, prefixes, effects.
mod form {
    /// Bytes of the immediate: none, 1 or 4.
    pub(super) const NUMBER: u16 = 7;
    /// The opcode is supported. All others have no bits.
    pub(super) const SUPPORTED: u16 = 8;
    pub(super) const MODRM: u16 = 16;
    /// Prefix 0x66 is allowed: operands have two bytes, or are other vectors.
    pub(super) const P66: u16 = 32;
    pub(super) const PF2: u16 = 64;
    pub(super) const PF3: u16 = 128;
    /// It has ModRM and is supported with some operands only.
    pub(super) const GROUP: u16 = 256;
    /// The immediate is the jump distance.
    pub(super) const JUMP: u16 = 512;
    /// The immediate may be an address.
    pub(super) const VALUE: u16 = 1024;
    /// It takes an address, or jumps or calls indirectly.
    pub(super) const CONTROL_OR_ADDRESS: u16 = 2048;
}

/// One-byte opcodes.
fn one_byte(opcode: u8) -> u16 {
    use form::{CONTROL_OR_ADDRESS, GROUP, JUMP, MODRM, P66, PF2, PF3, SUPPORTED, VALUE};
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => MODRM | P66,
            4 => SUPPORTED | 1,
            5 => SUPPORTED | 4,
            _ => 0,
        },
        0x50..=0x5f | 0xc9 => SUPPORTED,
        0x63 | 0x84 | 0x86 | 0x88 | 0x8a => MODRM,
        0x68 | 0xb8..=0xbf => VALUE | 4,
        0xa9 => SUPPORTED | 4,
        0x69 | 0x81 => MODRM | 4,
        0x6b | 0x83 => MODRM | P66 | 1,
        0x6a | 0xa8 | 0xb0..=0xb7 => SUPPORTED | 1,
        0x70..=0x7f | 0xeb => JUMP | 1,
        0x80 => MODRM | 1,
        0x85 | 0x87 | 0x89 | 0x8b => MODRM | P66,
        0x8d => GROUP | CONTROL_OR_ADDRESS | P66,
        0x90 | 0x98 | 0x99 => P66,
        0xc0 | 0xc1 | 0xc6 => GROUP | 1,
        0xc7 => GROUP | VALUE | 4,
        0xc3 => CONTROL_OR_ADDRESS | PF2 | PF3,
        0xd0..=0xd3 | 0xf6 | 0xf7 | 0xfe => GROUP,
        0xff => GROUP | CONTROL_OR_ADDRESS,
        0xe8 | 0xe9 => JUMP | 4,
        _ => 0,
    }
}

/// Opcodes behind the byte 0x0f.
fn two_bytes(opcode: u8) -> u16 {
    use form::{GROUP, JUMP, MODRM, P66, PF2, PF3};
    match opcode {
        // Vector moves, arithmetic, comparisons.
        0x10 | 0x11 | 0x2a | 0x51 | 0x58..=0x5a | 0x5c..=0x5f => MODRM | P66 | PF2 | PF3,
        0x6f | 0x7f => MODRM | P66 | PF3,
        0x70 => MODRM | P66 | PF2 | PF3 | 1,
        0x14 | 0x15 | 0x28 | 0x29 | 0x2e | 0x2f | 0x54..=0x57 | 0x60..=0x6b | 0x6e
        | 0x74..=0x76 | 0xd4 | 0xdb | 0xdf | 0xeb | 0xef | 0xfa..=0xfe
        // `cmov`, `bt`, `imul`, `movzx`, `movsx`
        | 0x40..=0x4f | 0xa3 | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf => MODRM | P66,
        0x13 | 0x16 | 0x17 | 0x1f => GROUP | P66,
        0x80..=0x8f => JUMP | 4,
        0x90..=0x9f => MODRM,
        _ => 0,
    }
}

/// A form with the bits that it implies.
fn complete(form: u16) -> u16 {
    let is_group = form & form::GROUP != 0;
    let modrm = if is_group { form::MODRM } else { 0 };
    let known = if form != 0 { form::SUPPORTED } else { 0 };
    form | modrm | known
}

/// Whether a [`form::GROUP`] opcode is supported with these operands.
fn is_supported(opcode: u8, modrm: u8) -> bool {
    let is_memory = modrm < 0xc0;
    let digit = modrm >> 3 & 7;
    match opcode {
        0xc0 | 0xc1 | 0xd0..=0xd3 => digit != 6,
        0xc6 | 0xc7 | 0x1f => digit == 0,
        0xf6 | 0xf7 => digit > 1,
        0xfe => digit < 2,
        0xff => matches!(digit, 0 | 1 | 2 | 4 | 6),
        // `lea`, and moves of vector halves.
        _ => is_memory,
    }
}

/// Flag in an operand length: SIB may say that there is no base register.
const MAY_BE_TABLE: u8 = 0x80;

/// Bytes of ModRM and its operand; SIB may add more.
fn operand_length(modrm: u8) -> u8 {
    let sib = u8::from(modrm & 7 == 4);
    match (modrm >> 6, modrm & 7) {
        (0, 4) => 2 | MAY_BE_TABLE,
        (0, 5) => 5,
        (0, _) => 1 + sib,
        (1, _) => 2 + sib,
        (2, _) => 5 + sib,
        _ => 1,
    }
}

/// Decodes lengths.
#[derive(Debug)]
pub(super) struct FastDecoder {
    /// Forms of one-byte opcodes, then of those behind 0x0f.
    forms: [u16; 512],
    /// Their preconditions for preserving a verifier state.
    preconditions: [u8; 512],
    operands: [u8; 256],
}

impl Default for FastDecoder {
    fn default() -> Self {
        let byte = |place: usize| u8::try_from(place).unwrap_or_default();
        FastDecoder {
            forms: core::array::from_fn(|place| match place.checked_sub(256) {
                None => complete(one_byte(byte(place))),
                Some(place) => complete(two_bytes(byte(place))),
            }),
            preconditions: core::array::from_fn(preconditions_of),
            operands: core::array::from_fn(|place| operand_length(byte(place))),
        }
    }
}

/// More than the longest instruction.
pub(super) const WINDOW_BYTES: usize = 16;

impl FastDecoder {
    /// Scans the first instructions of `bytes`, which are at `address`, until one is not supported
    /// or is the last. Returns their length in bytes.
    #[inline]
    pub(super) fn skip(
        &self,
        bytes: &[u8],
        address: u64,
        mut see: impl FnMut(u64, ScanEvent),
    ) -> usize {
        let mut rest = bytes;
        let mut at = address;
        while let Some(scan) = self.scan(rest, at) {
            if let Some(seen) = scan.event {
                see(at, seen);
            }
            rest = rest.get(scan.length..).unwrap_or_default();
            at = at.wrapping_add(scan.length as u64);
        }
        bytes.len() - rest.len()
    }

    /// Scans the first instruction of `bytes`, which are at `address`; `None` if it is not
    /// supported, or is the last.
    #[inline]
    pub(super) fn scan(&self, bytes: &[u8], address: u64) -> Option<FastScan> {
        let padded;
        let window: &[u8; WINDOW_BYTES] = match bytes.first_chunk() {
            Some(window) => window,
            None => {
                padded = pad(bytes);
                &padded
            }
        };
        // The last instruction decides about fall-through at the end.
        let insn = self
            .fast_decode(window)
            .filter(|insn| insn.length < bytes.len())?;
        Some(FastScan {
            length: insn.length,
            event: insn.event(address),
            is_nop: insn.is_nop(),
        })
    }

    /// Decodes an instruction; `None` if it is not supported.
    ///
    /// Processors cannot predict whether there is a REX or an escape byte: no branch depends on
    /// that.
    #[inline(always)]
    pub(super) fn fast_decode<'b>(
        &self,
        window: &'b [u8; WINDOW_BYTES],
    ) -> Option<X86FastInsn<'b>> {
        // Everything before an immediate or displacement, except the bytes already read.
        let mut head = u64::from_le_bytes(*window.first_chunk()?);
        let mut length = 1;
        let mut prefix = 0;
        let mut allowed = form::SUPPORTED;
        if let byte @ (0x66 | 0xf2 | 0xf3) = first(head) {
            allowed = match byte {
                0x66 => form::P66,
                0xf2 => form::PF2,
                _ => form::PF3,
            };
            prefix = byte;
            head >>= 8;
            length += 1;
        }
        let has_rex = u8::from(first(head) & 0xf0 == 0x40);
        let rex = first(head) & has_rex.wrapping_neg();
        head >>= 8 * has_rex;
        let is_long = u8::from(first(head) == 0x0f);
        head >>= 8 * is_long;
        length += usize::from(has_rex + is_long);
        let (opcode, modrm) = (first(head), first(head >> 8));
        let place = usize::from(is_long) << 8 | usize::from(opcode);
        let (form, needs) = (*self.forms.get(place)?, *self.preconditions.get(place)?);
        // With REX.W its immediate has 8 bytes.
        let has_long_number = form & form::VALUE != 0 && rex & 8 != 0 && opcode & 0xf8 == 0xb8;
        if form & allowed == 0 || has_long_number {
            return None;
        }
        let operand_at = length;
        if form & form::MODRM != 0 {
            let operand = *self.operands.get(usize::from(modrm))?;
            // Memory without a base register may be a table.
            let is_table = operand & MAY_BE_TABLE != 0 && first(head >> 16) & 7 == 5;
            if is_table || form & form::GROUP != 0 && !is_supported(opcode, modrm) {
                return None;
            }
            length += usize::from(operand & !MAY_BE_TABLE);
        }
        length += usize::from(form & form::NUMBER);
        Some(X86FastInsn {
            window,
            length,
            form,
            preconditions: needs,
            prefix,
            rex,
            is_two_byte: is_long != 0,
            opcode,
            modrm_offset: operand_at,
        })
    }
}

/// Scan result of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FastScan {
    /// Length in bytes.
    pub(super) length: usize,
    /// Its event, if any.
    pub(super) event: Option<ScanEvent>,
    /// Whether it does nothing.
    pub(super) is_nop: bool,
}

/// A fast-decoded instruction.
#[derive(Debug, Clone, Copy)]
pub struct X86FastInsn<'b> {
    /// Its bytes and those behind it.
    pub(super) window: &'b [u8; WINDOW_BYTES],
    /// Length in bytes.
    pub(super) length: usize,
    /// Form of its opcode.
    form: u16,
    /// Preconditions for preserving a verifier state.
    pub(super) preconditions: u8,
    /// 0x66, 0xf2, 0xf3, or 0 for none.
    pub(super) prefix: u8,
    /// REX, or 0 for none.
    pub(super) rex: u8,
    /// Whether 0x0f comes before its opcode.
    pub(super) is_two_byte: bool,
    pub(super) opcode: u8,
    /// Offset of ModRM, if it has one.
    pub(super) modrm_offset: usize,
}

impl X86FastInsn<'_> {
    /// ModRM, if it has one.
    #[inline]
    pub(super) fn modrm(&self) -> u8 {
        self.byte(self.modrm_offset)
    }

    #[inline]
    pub(super) fn byte(&self, at: usize) -> u8 {
        self.window.get(at).copied().unwrap_or(0)
    }

    /// Length in bytes.
    #[must_use]
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Whether it takes an address relative to its own.
    #[must_use]
    #[inline(always)]
    pub(crate) fn takes_relative_address(&self) -> bool {
        self.form & form::CONTROL_OR_ADDRESS != 0 && self.opcode == 0x8d && self.modrm() & 0xc7 == 5
    }

    /// Its scan event at an address, if any.
    #[inline]
    pub(super) fn event(&self, address: u64) -> Option<ScanEvent> {
        let kind = self.form & (form::JUMP | form::VALUE | form::CONTROL_OR_ADDRESS);
        if kind == 0 {
            return None;
        }
        let insn = self.window.get(..self.length)?;
        match kind {
            form::JUMP => Some(ScanEvent::Flow(jump(self.opcode, insn, address))),
            form::VALUE => value(self.opcode, self.rex & 8 != 0, insn).map(ScanEvent::Immediate),
            _ if self.opcode == 0x8d => taken_address(self.modrm(), insn, address),
            _ => indirect_flow(self.opcode, self.modrm()).map(ScanEvent::Flow),
        }
    }

    /// Control flow of this instruction at `address`, unless it only falls through. Branches have
    /// no condition, indirect jumps no register.
    #[must_use]
    #[inline(always)]
    pub(crate) fn flow(&self, address: u64) -> Option<Flow> {
        match self.form & (form::JUMP | form::CONTROL_OR_ADDRESS) {
            form::JUMP => Some(jump(self.opcode, self.window.get(..self.length)?, address)),
            form::CONTROL_OR_ADDRESS => indirect_flow(self.opcode, self.modrm()),
            _ => None,
        }
    }
}

/// The first byte of the rest.
#[inline]
fn first(head: u64) -> u8 {
    let [first, ..] = head.to_le_bytes();
    first
}

/// The last bytes of code, padded to a window.
fn pad(bytes: &[u8]) -> [u8; WINDOW_BYTES] {
    let mut window = [0; WINDOW_BYTES];
    for (place, byte) in window.iter_mut().zip(bytes) {
        *place = *byte;
    }
    window
}

/// The 4-byte immediate of an instruction, which may be sign-extended to 8.
fn value(opcode: u8, is_wide: bool, insn: &[u8]) -> Option<u64> {
    let value = i32::from_le_bytes(*insn.last_chunk()?);
    // It is sign-extended where 8 bytes are written: by `push`, and with REX.W.
    let is_signed = opcode == 0x68 || is_wide;
    Some(if is_signed {
        i64::from(value).cast_unsigned()
    } else {
        value.cast_unsigned().into()
    })
}

/// The scan event of an instruction that takes an address.
fn taken_address(modrm: u8, insn: &[u8], address: u64) -> Option<ScanEvent> {
    (modrm & 0xc7 == 5).then(|| ScanEvent::AddressTaken(relative_target(insn, address)))
}

/// Control flow of an indirect jump or call.
#[inline(always)]
fn indirect_flow(opcode: u8, modrm: u8) -> Option<Flow> {
    match (opcode, modrm >> 3 & 7) {
        (0xc3, _) => Some(RET),
        (0xff, 2) => Some(Flow::IndirectCall(SCRATCH)),
        (0xff, 4) => Some(Flow::IndirectJump(SCRATCH)),
        _ => None,
    }
}

/// The target of the 4-byte distance at an instruction's end.
fn relative_target(insn: &[u8], address: u64) -> u64 {
    let distance = insn
        .last_chunk()
        .map_or(0, |word| i32::from_le_bytes(*word));
    let next = address.wrapping_add(insn.len() as u64);
    next.wrapping_add_signed(distance.into())
}

/// Control flow of a direct jump.
#[inline(always)]
fn jump(opcode: u8, insn: &[u8], address: u64) -> Flow {
    let to = match opcode {
        0x70..=0x7f | 0xeb => {
            let distance = insn.last().map_or(0, |byte| byte.cast_signed());
            let next = address.wrapping_add(insn.len() as u64);
            next.wrapping_add_signed(distance.into())
        }
        _ => relative_target(insn, address),
    };
    match opcode {
        0xe8 => Flow::Call(to),
        0xe9 | 0xeb => Flow::Jump(to),
        _ => Flow::Branch {
            to,
            condition: BranchCondition::None,
        },
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, Register};

    use super::super::control;
    use super::*;

    const ADDRESS: u64 = 0x40_0000;

    /// Whether the decoder library agrees about the first instruction.
    fn is_confirmed(bytes: &[u8], scan: FastScan) -> bool {
        let mut decoder = Decoder::with_ip(64, bytes, ADDRESS, DecoderOptions::NONE);
        let insn = decoder.decode();
        let to = insn.near_branch_target();
        let expected = match insn.flow_control() {
            FlowControl::Next => None,
            FlowControl::ConditionalBranch => Some(Flow::Branch {
                to,
                condition: BranchCondition::None,
            }),
            FlowControl::UnconditionalBranch => Some(Flow::Jump(to)),
            FlowControl::Call => Some(Flow::Call(to)),
            FlowControl::IndirectCall => Some(Flow::IndirectCall(SCRATCH)),
            FlowControl::IndirectBranch => Some(Flow::IndirectJump(SCRATCH)),
            FlowControl::Return => Some(RET),
            _ => return false,
        };
        let takes_address = insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand();
        let is_table =
            insn.memory_base() == Register::None && insn.memory_index() != Register::None;
        let taken = takes_address.then(|| ScanEvent::AddressTaken(insn.ip_rel_memory_address()));
        let expected = expected
            .map(ScanEvent::Flow)
            .or_else(|| control::value(&insn).map(ScanEvent::Immediate))
            .or(taken);
        !insn.is_invalid()
            && insn.len() == scan.length
            && scan.event == expected
            && scan.is_nop == (insn.mnemonic() == Mnemonic::Nop)
            && !is_table
    }

    #[test]
    fn lengths_are_those_that_the_decoder_finds() {
        let lengths = FastDecoder::default();
        let prefixes: [&[u8]; 4] = [&[], &[0x66], &[0xf2], &[0xf3]];
        let rexes: [&[u8]; 5] = [&[], &[0x40], &[0x48], &[0x45], &[0x4f]];
        let escapes: [&[u8]; 2] = [&[], &[0x0f]];
        let mut count = 0;
        for (prefix, rex) in prefixes.iter().flat_map(|p| rexes.map(|rex| (p, rex))) {
            for (escape, opcode) in escapes.iter().flat_map(|e| (0..=255).map(move |o| (e, o))) {
                for (modrm, sib) in (0..=255).flat_map(|modrm| [(modrm, 0x9d), (modrm, 0x24)]) {
                    let opcode: &[u8] = &[opcode, modrm, sib];
                    let mut bytes = [*prefix, rex, escape, opcode].concat();
                    bytes.extend([0x12, 0x34, 0x56, 0x7f, 0x81, 0x92, 0xa3, 0xb4]);
                    bytes.resize(2 * WINDOW_BYTES, 0xc3);
                    if let Some(told_of) = lengths.scan(&bytes, ADDRESS) {
                        assert!(is_confirmed(&bytes, told_of), "{bytes:x?}: {told_of:?}");
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 100_000, "{count}");
    }

    #[test]
    fn the_last_instruction_is_left_to_the_decoder() {
        let moves = [0xb8, 0x12, 0x34, 0x56, 0x78].repeat(WINDOW_BYTES);
        let scan = Some(FastScan {
            length: 5,
            event: Some(ScanEvent::Immediate(0x7856_3412)),
            is_nop: false,
        });
        for bytes in 1..=moves.len() {
            let bytes = moves.get(..bytes).expect("there are as many");
            let expected = scan.filter(|_| bytes.len() > 5);
            assert_eq!(FastDecoder::default().scan(bytes, ADDRESS), expected);
        }
    }
}
