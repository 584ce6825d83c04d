//! Instructions as text, in GNU assembler syntax.

use std::fmt;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter, Instruction, OpKind};
use unspool_rows::{Abi, Arch};

/// Disassembles machine code of x86-64 and i386.
pub struct Disassembler {
    bits: u32,
    formatter: GasFormatter,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisassembledInsn {
    /// The number of its bytes.
    pub length: u8,
    /// Its text; `(bad)` for bytes that are not an instruction.
    pub text: String,
    /// The address that it jumps to or calls, if its operand is one.
    pub target: Option<u64>,
}

impl Disassembler {
    /// A disassembler for code of this architecture; `None` if there is none.
    #[must_use]
    pub fn new(abi: Abi) -> Option<Disassembler> {
        let bits = match abi.arch {
            Arch::X86_64 => 64,
            Arch::I386 => 32,
            _ => return None,
        };
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_rip_relative_addresses(true);
        options.set_space_after_operand_separator(true);
        options.set_branch_leading_zeros(false);
        options.set_uppercase_hex(false);
        Some(Disassembler { bits, formatter })
    }

    /// The instruction at the start of `bytes`, which are at `address`; `None` without bytes. If
    /// `name` knows the target of a jump or a call, the text has that name in place of the number.
    pub fn disassemble(
        &mut self,
        bytes: &[u8],
        address: u64,
        name: impl FnOnce(u64) -> Option<String>,
    ) -> Option<DisassembledInsn> {
        let mut decoder = Decoder::with_ip(self.bits, bytes, address, DecoderOptions::NONE);
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        let target = branch_target(&instruction);
        let mut text = String::new();
        match target.and_then(name) {
            Some(name) => {
                self.formatter.format_mnemonic(&instruction, &mut text);
                text.push(' ');
                text.push_str(&name);
            }
            None => self.formatter.format(&instruction, &mut text),
        }
        Some(DisassembledInsn {
            length: u8::try_from(instruction.len()).unwrap_or(1),
            text,
            target,
        })
    }
}

/// The address that an instruction names as its target.
fn branch_target(instruction: &Instruction) -> Option<u64> {
    let is_near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    is_near.then(|| instruction.near_branch_target())
}

impl fmt::Debug for Disassembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disassembler")
            .field("bits", &self.bits)
            .finish_non_exhaustive()
    }
}
