//! Operations of DWARF expressions: opcodes, operands, and their decoding.

use super::ExpressionError;
use crate::arch::{Abi, AddressSize, Endian};
use crate::leb128;
use crate::register::Register;

/// How an operand is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// No operand.
    None,
    /// An address, as linked.
    Address,
    /// An unsigned number of this many bytes.
    Unsigned(u8),
    /// A signed number of this many bytes.
    Signed(u8),
    /// An unsigned LEB128 number.
    Uleb,
    /// A signed LEB128 number.
    Sleb,
    /// A register as unsigned LEB128, then an offset as signed LEB128.
    RegisterOffset,
    /// A distance in bytes from the end of the operation, signed, 2 bytes.
    Branch,
}

macro_rules! opcodes {
    ($($constant:ident = $value:literal $name:literal $operand:expr;)*) => {
        $(#[doc = concat!("`DW_OP_", $name, "`")] pub const $constant: u8 = $value;)*

        /// Every operation that is legal in call frame information, except the families of 32:
        /// opcode, name without `DW_OP_`, operand.
        pub static SINGLE: &[(u8, &str, Operand)] = &[$(($value, $name, $operand)),*];

        /// How the operand of `opcode` is encoded; `None` for an opcode that is not legal in CFI.
        #[must_use]
        pub fn operand_of(opcode: u8) -> Option<Operand> {
            match opcode {
                DW_OP_LIT0..=DW_OP_LIT31 => Some(Operand::None),
                DW_OP_BREG0..=DW_OP_BREG31 => Some(Operand::Sleb),
                $($value => Some($operand),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    DW_OP_ADDR = 0x03 "addr" Operand::Address;
    DW_OP_DEREF = 0x06 "deref" Operand::None;
    DW_OP_CONST1U = 0x08 "const1u" Operand::Unsigned(1);
    DW_OP_CONST1S = 0x09 "const1s" Operand::Signed(1);
    DW_OP_CONST2U = 0x0a "const2u" Operand::Unsigned(2);
    DW_OP_CONST2S = 0x0b "const2s" Operand::Signed(2);
    DW_OP_CONST4U = 0x0c "const4u" Operand::Unsigned(4);
    DW_OP_CONST4S = 0x0d "const4s" Operand::Signed(4);
    DW_OP_CONST8U = 0x0e "const8u" Operand::Unsigned(8);
    DW_OP_CONST8S = 0x0f "const8s" Operand::Signed(8);
    DW_OP_CONSTU = 0x10 "constu" Operand::Uleb;
    DW_OP_CONSTS = 0x11 "consts" Operand::Sleb;
    DW_OP_DUP = 0x12 "dup" Operand::None;
    DW_OP_DROP = 0x13 "drop" Operand::None;
    DW_OP_OVER = 0x14 "over" Operand::None;
    DW_OP_PICK = 0x15 "pick" Operand::Unsigned(1);
    DW_OP_SWAP = 0x16 "swap" Operand::None;
    DW_OP_ROT = 0x17 "rot" Operand::None;
    DW_OP_ABS = 0x19 "abs" Operand::None;
    DW_OP_AND = 0x1a "and" Operand::None;
    DW_OP_DIV = 0x1b "div" Operand::None;
    DW_OP_MINUS = 0x1c "minus" Operand::None;
    DW_OP_MOD = 0x1d "mod" Operand::None;
    DW_OP_MUL = 0x1e "mul" Operand::None;
    DW_OP_NEG = 0x1f "neg" Operand::None;
    DW_OP_NOT = 0x20 "not" Operand::None;
    DW_OP_OR = 0x21 "or" Operand::None;
    DW_OP_PLUS = 0x22 "plus" Operand::None;
    DW_OP_PLUS_UCONST = 0x23 "plus_uconst" Operand::Uleb;
    DW_OP_SHL = 0x24 "shl" Operand::None;
    DW_OP_SHR = 0x25 "shr" Operand::None;
    DW_OP_SHRA = 0x26 "shra" Operand::None;
    DW_OP_XOR = 0x27 "xor" Operand::None;
    DW_OP_BRA = 0x28 "bra" Operand::Branch;
    DW_OP_EQ = 0x29 "eq" Operand::None;
    DW_OP_GE = 0x2a "ge" Operand::None;
    DW_OP_GT = 0x2b "gt" Operand::None;
    DW_OP_LE = 0x2c "le" Operand::None;
    DW_OP_LT = 0x2d "lt" Operand::None;
    DW_OP_NE = 0x2e "ne" Operand::None;
    DW_OP_SKIP = 0x2f "skip" Operand::Branch;
    DW_OP_BREGX = 0x92 "bregx" Operand::RegisterOffset;
    DW_OP_DEREF_SIZE = 0x94 "deref_size" Operand::Unsigned(1);
    DW_OP_NOP = 0x96 "nop" Operand::None;
}

/// `DW_OP_lit0`, the first of 32.
pub const DW_OP_LIT0: u8 = 0x30;
/// `DW_OP_lit31`
pub const DW_OP_LIT31: u8 = 0x4f;
/// `DW_OP_breg0`, the first of 32.
pub const DW_OP_BREG0: u8 = 0x70;
/// `DW_OP_breg31`
pub const DW_OP_BREG31: u8 = 0x8f;

/// One decoded operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The opcode.
    pub opcode: u8,
    /// Offset of the opcode in the expression, in bytes.
    pub offset: usize,
    /// Offset of the next operation in the expression, in bytes.
    pub end: usize,
    first: u64,
    second: i64,
}

impl Operation {
    /// The operand as an unsigned number; signed operands are sign-extended first.
    #[must_use]
    pub fn unsigned(&self) -> u64 {
        self.first
    }

    /// The operand as a signed number.
    #[must_use]
    pub fn signed(&self) -> i64 {
        self.first.cast_signed()
    }

    /// The second operand, which only `DW_OP_bregx` has.
    #[must_use]
    pub fn second_signed(&self) -> i64 {
        self.second
    }

    /// The register that the operation reads. `None` if it reads none or the number is not a
    /// register's.
    #[must_use]
    pub fn register(&self) -> Option<Register> {
        match self.opcode {
            DW_OP_BREG0..=DW_OP_BREG31 => Some(Register((self.opcode - DW_OP_BREG0).into())),
            DW_OP_BREGX => u16::try_from(self.unsigned()).ok().map(Register),
            _ => None,
        }
    }

    /// Whether it can continue at another operation than the next.
    #[must_use]
    pub fn branches(&self) -> bool {
        matches!(self.opcode, DW_OP_SKIP | DW_OP_BRA)
    }

    /// The distance of a branch, in bytes from the end of the operation.
    #[must_use]
    pub fn branch(&self) -> i16 {
        // A branch's operand was sign-extended from 16 bits, so it fits.
        i16::try_from(self.signed()).unwrap_or_default()
    }
}

/// The operations of an expression, in the order of their bytes.
#[derive(Debug, Clone)]
pub struct Operations<'e> {
    bytes: &'e [u8],
    at: usize,
    address_size: AddressSize,
    endian: Endian,
}

impl<'e> Operations<'e> {
    pub(super) fn new(bytes: &'e [u8], abi: Abi) -> Self {
        Operations {
            bytes,
            at: 0,
            address_size: abi.arch.spec().address_size,
            endian: abi.endian,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Continues `distance` bytes after the end of the last operation; `None` if that is outside
    /// the expression. Its end counts as inside: the expression is then finished.
    pub(super) fn branch(&mut self, distance: i16) -> Option<()> {
        let target = self.at.checked_add_signed(isize::from(distance))?;
        if target > self.bytes.len() {
            return None;
        }
        self.at = target;
        Some(())
    }

    fn decode(&self, rest: &mut &'e [u8]) -> Result<Operation, ExpressionError> {
        let offset = self.at;
        let truncated = ExpressionError::Truncated { offset };
        let opcode = leb128::byte(rest).ok_or(truncated)?;
        let operand = operand_of(opcode).ok_or(ExpressionError::Illegal { opcode, offset })?;
        let mut second = 0;
        let first = match operand {
            Operand::None => Some(0),
            Operand::Address => self.fixed(rest, self.address_size.bytes()),
            Operand::Unsigned(size) => self.fixed(rest, size),
            Operand::Signed(size) => self.fixed(rest, size).map(|v| sign_extend(v, size)),
            Operand::Branch => self.fixed(rest, 2).map(|v| sign_extend(v, 2)),
            Operand::Uleb => leb128::unsigned(rest),
            Operand::Sleb => leb128::signed(rest).map(i64::cast_unsigned),
            Operand::RegisterOffset => {
                let register = leb128::unsigned(rest);
                second = leb128::signed(rest).ok_or(truncated)?;
                register
            }
        }
        .ok_or(truncated)?;
        Ok(Operation {
            opcode,
            offset,
            end: self.bytes.len() - rest.len(),
            first,
            second,
        })
    }

    fn fixed(&self, rest: &mut &'e [u8], size: u8) -> Option<u64> {
        let taken = leb128::take(rest, usize::from(size))?;
        let shift_in = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match self.endian {
            Endian::Little => taken.iter().rev().fold(0, shift_in),
            Endian::Big => taken.iter().fold(0, shift_in),
        })
    }
}

/// The value of a signed number that is stored in `size` bytes (1 to 8).
pub(crate) fn sign_extend(value: u64, size: u8) -> u64 {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

impl Iterator for Operations<'_> {
    type Item = Result<Operation, ExpressionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.bytes.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        let operation = self.decode(&mut rest);
        // After an error the start of the next operation is unknown.
        self.at = operation
            .as_ref()
            .map_or(self.bytes.len(), |operation| operation.end);
        Some(operation)
    }
}
