//! Iteration over the instructions in bytes.

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Instructions in order; a byte that does not begin an instruction is skipped.
pub(super) struct Insns<'b> {
    bytes: &'b [u8],
    address: u64,
    /// Offset of the next one in `bytes`.
    at: usize,
    decoder: Decoder<'b>,
    insn: Instruction,
}

impl<'b> Insns<'b> {
    #[inline]
    pub(super) fn new(bytes: &'b [u8], address: u64) -> Insns<'b> {
        Insns {
            bytes,
            address,
            at: 0,
            decoder: Decoder::with_ip(64, bytes, address, DecoderOptions::NONE),
            insn: Instruction::default(),
        }
    }

    /// The bytes that are not yet read.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The address of the next instruction.
    pub(super) fn ip(&self) -> u64 {
        self.address.wrapping_add(self.at as u64)
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next instruction; the inner option is `None` if there is none at that byte.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Option<&Instruction>> {
        if self.decoder.position() != self.at {
            self.decoder.set_position(self.at).ok()?;
            self.decoder.set_ip(self.ip());
        }
        if !self.decoder.can_decode() {
            return None;
        }
        self.decoder.decode_out(&mut self.insn);
        let is_valid = !self.insn.is_invalid();
        // After an invalid byte, the next instruction may begin at any byte.
        self.at += if is_valid { self.insn.len() } else { 1 };
        Some(is_valid.then_some(&self.insn))
    }
}
