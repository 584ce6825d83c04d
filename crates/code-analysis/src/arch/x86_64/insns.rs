//! Instructions one after another, out of bytes.

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Instructions one after another; a byte that begins none is skipped.
pub(super) struct Insns<'b> {
    bytes: &'b [u8],
    address: u64,
    /// Where the next one is in `bytes`.
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

    /// The bytes that are still to be read.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The address of the next instruction.
    pub(super) fn ip(&self) -> u64 {
        self.address.wrapping_add(self.at as u64)
    }

    /// Leaves out so many bytes.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next instruction; within, `None` if there is none at that byte.
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
        // The next may begin at any byte behind one that begins none.
        self.at += if is_valid { self.insn.len() } else { 1 };
        Some(is_valid.then_some(&self.insn))
    }
}
