//! Call frame instructions (DWARF 5 §6.4.2 and §7.24, and the GNU and AArch64 extensions).

use core::fmt;

use unspool_rows::arch::RegisterName;
use unspool_rows::{Abi, Expression, RaState, Register, Vaddr};

use crate::CfiSection;
use crate::byte_reader::ByteReader;
use crate::entry::Cie;
use crate::error::CfiError;
use crate::pointer::PointerBases;

/// One instruction, operands scaled by the CIE's alignment factors.
///
/// Instructions that differ only in the storage of their operands are one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction<'a> {
    /// `DW_CFA_set_loc`: a new row at an address (§6.4.2.1).
    SetLoc(Vaddr),
    /// `DW_CFA_advance_loc` and its variants: a new row that many bytes further (§6.4.2.1).
    AdvanceLoc(u64),
    /// `DW_CFA_def_cfa`, `_sf` (§6.4.2.2).
    DefCfa(Register, i64),
    /// `DW_CFA_def_cfa_register` (§6.4.2.2).
    DefCfaRegister(Register),
    /// `DW_CFA_def_cfa_offset`, `_sf` (§6.4.2.2).
    DefCfaOffset(i64),
    /// `DW_CFA_def_cfa_expression` (§6.4.2.2).
    DefCfaExpression(Expression<'a>),
    /// `DW_CFA_undefined` (§6.4.2.3).
    Undefined(Register),
    /// `DW_CFA_same_value` (§6.4.2.3).
    SameValue(Register),
    /// `DW_CFA_offset`, `_extended`, `_extended_sf` (§6.4.2.3),
    /// `DW_CFA_GNU_negative_offset_extended` (LSB, "DWARF CFI Extensions").
    Offset(Register, i64),
    /// `DW_CFA_val_offset`, `_sf` (§6.4.2.3).
    ValOffset(Register, i64),
    /// `DW_CFA_register` (§6.4.2.3).
    Register(Register, Register),
    /// `DW_CFA_expression` (§6.4.2.3).
    Expression(Register, Expression<'a>),
    /// `DW_CFA_val_expression` (§6.4.2.3).
    ValExpression(Register, Expression<'a>),
    /// `DW_CFA_restore`, `_extended` (§6.4.2.3).
    Restore(Register),
    /// `DW_CFA_remember_state` (§6.4.2.4).
    RememberState,
    /// `DW_CFA_restore_state` (§6.4.2.4).
    RestoreState,
    /// `DW_CFA_GNU_args_size` (LSB, "DWARF CFI Extensions").
    ArgsSize(u64),
    /// `DW_CFA_AARCH64_negate_ra_state` (AADWARF64, "Call frame instructions").
    NegateRaState,
    /// `DW_CFA_AARCH64_negate_ra_state_with_pc` (the same).
    NegateRaStateWithPc,
    /// `DW_CFA_AARCH64_set_ra_state` (the same): the state, and the distance from the current
    /// address to the instruction that signs or authenticates, in bytes.
    SetRaState(RaState, i64),
    /// `DW_CFA_nop` (§6.4.2.5).
    Nop,
}

/// The instructions of a CIE or an FDE, with the offset of each in the section.
///
/// Nothing can be decoded after an unknown or truncated instruction: the error is the last item.
#[derive(Debug, Clone)]
pub struct Instructions<'s, 'a> {
    section: &'s CfiSection<'a>,
    cie: &'s Cie<'a>,
    reader: ByteReader<'a>,
}

impl<'s, 'a> Instructions<'s, 'a> {
    /// Decodes the `len` bytes of instructions at `offset` in the section.
    #[must_use]
    pub fn new(section: &'s CfiSection<'a>, cie: &'s Cie<'a>, offset: u64, len: usize) -> Self {
        let end = offset.saturating_add(len as u64);
        let reader = ByteReader::new(section.data, offset, end, section.abi.endian);
        Instructions {
            section,
            cie,
            reader,
        }
    }

    /// The offset of the next instruction in the section.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// The frequent instructions, inlined into the caller.
    #[inline(always)]
    fn decode(&mut self, offset: u64) -> Result<Instruction<'a>, CfiError> {
        let opcode = self.reader.u8()?;
        let low = opcode & 0x3f;
        match opcode >> 6 {
            1 => self.advance(u64::from(low), offset),
            2 => {
                let factored = self.reader.uleb()?;
                let register = Register(u16::from(low));
                Ok(Instruction::Offset(
                    register,
                    self.scale_unsigned(factored, offset)?,
                ))
            }
            3 => Ok(Instruction::Restore(Register(u16::from(low)))),
            _ if opcode == 0x0e => Ok(Instruction::DefCfaOffset(self.unscaled(offset)?)),
            _ => self.decode_extended(opcode, offset),
        }
    }

    /// The instructions with two high bits of zero.
    fn decode_extended(&mut self, opcode: u8, offset: u64) -> Result<Instruction<'a>, CfiError> {
        let has_signatures = self.section.abi.arch.spec().ra_sign_state.is_some();
        let cursor = &mut self.reader;
        Ok(match opcode {
            0x00 => Instruction::Nop,
            0x01 => return self.set_loc(),
            0x02 => return self.fixed_advance(1, offset),
            0x03 => return self.fixed_advance(2, offset),
            0x04 => return self.fixed_advance(4, offset),
            0x1d => return self.fixed_advance(8, offset), // DW_CFA_MIPS_advance_loc8
            0x05..=0x09 | 0x14 | 0x10 | 0x11 | 0x15 | 0x16 | 0x2f => {
                let register = cursor.register()?;
                return self.register_rule(opcode, register, offset);
            }
            0x0a => Instruction::RememberState,
            0x0b => Instruction::RestoreState,
            0x0c => {
                let register = cursor.register()?;
                Instruction::DefCfa(register, self.unscaled(offset)?)
            }
            0x0d => Instruction::DefCfaRegister(cursor.register()?),
            0x0f => Instruction::DefCfaExpression(self.expression()?),
            0x12 => {
                let register = cursor.register()?;
                Instruction::DefCfa(register, self.scaled(offset)?)
            }
            0x13 => Instruction::DefCfaOffset(self.scaled(offset)?),
            0x2b if has_signatures => return self.set_ra_state(offset),
            0x2c if has_signatures => Instruction::NegateRaStateWithPc,
            0x2d if has_signatures => Instruction::NegateRaState,
            0x2e => Instruction::ArgsSize(cursor.uleb()?),
            _ => return Err(CfiError::Instruction { opcode, offset }),
        })
    }

    /// §6.4.2.3: the instructions that give `register` a rule.
    fn register_rule(
        &mut self,
        opcode: u8,
        register: Register,
        offset: u64,
    ) -> Result<Instruction<'a>, CfiError> {
        Ok(match opcode {
            0x05 => {
                let factored = self.reader.uleb()?;
                Instruction::Offset(register, self.scale_unsigned(factored, offset)?)
            }
            0x06 => Instruction::Restore(register),
            0x07 => Instruction::Undefined(register),
            0x08 => Instruction::SameValue(register),
            0x09 => Instruction::Register(register, self.reader.register()?),
            0x10 => Instruction::Expression(register, self.expression()?),
            0x11 => Instruction::Offset(register, self.scaled(offset)?),
            0x14 => {
                let factored = self.reader.uleb()?;
                Instruction::ValOffset(register, self.scale_unsigned(factored, offset)?)
            }
            0x15 => Instruction::ValOffset(register, self.scaled(offset)?),
            0x16 => Instruction::ValExpression(register, self.expression()?),
            // 0x2f, DW_CFA_GNU_negative_offset_extended: gcc before DW_CFA_offset_extended_sf
            _ => {
                let factored = self.reader.uleb()?;
                let scaled = self.scale_unsigned(factored, offset)?;
                Instruction::Offset(
                    register,
                    scaled.checked_neg().ok_or(CfiError::Scale { offset })?,
                )
            }
        })
    }

    fn set_loc(&mut self) -> Result<Instruction<'a>, CfiError> {
        let bases = PointerBases {
            section: self.section,
            address_size: self.cie.address_size,
            function: None,
        };
        self.reader.take(u64::from(self.cie.segment_size))?;
        bases
            .address(&mut self.reader, self.cie.address_encoding)
            .map(Instruction::SetLoc)
    }

    fn set_ra_state(&mut self, offset: u64) -> Result<Instruction<'a>, CfiError> {
        let state = self.reader.uleb()?;
        let state = RaState::from_number(state).ok_or(CfiError::RaState { state, offset })?;
        let factored = self.reader.sleb()?;
        let scaled = i64::try_from(self.cie.code_alignment)
            .ok()
            .and_then(|factor| factored.checked_mul(factor));
        let distance = match state {
            RaState::SignedWithPc => scaled.ok_or(CfiError::Scale { offset })?,
            // These states have no distance: the operand is present and has no meaning.
            RaState::Plain | RaState::Signed => scaled.unwrap_or(0),
        };
        Ok(Instruction::SetRaState(state, distance))
    }

    fn fixed_advance(&mut self, size: u8, offset: u64) -> Result<Instruction<'a>, CfiError> {
        let delta = self.reader.unsigned(size)?;
        self.advance(delta, offset)
    }

    fn advance(&self, delta: u64, offset: u64) -> Result<Instruction<'a>, CfiError> {
        let bytes = delta.checked_mul(self.cie.code_alignment);
        bytes
            .map(Instruction::AdvanceLoc)
            .ok_or(CfiError::Scale { offset })
    }

    fn scale_unsigned(&self, factored: u64, offset: u64) -> Result<i64, CfiError> {
        i64::try_from(factored)
            .ok()
            .and_then(|factored| factored.checked_mul(self.cie.data_alignment))
            .ok_or(CfiError::Scale { offset })
    }

    fn scaled(&mut self, offset: u64) -> Result<i64, CfiError> {
        let factored = self.reader.sleb()?;
        factored
            .checked_mul(self.cie.data_alignment)
            .ok_or(CfiError::Scale { offset })
    }

    fn unscaled(&mut self, offset: u64) -> Result<i64, CfiError> {
        i64::try_from(self.reader.uleb()?).map_err(|_| CfiError::Scale { offset })
    }

    fn expression(&mut self) -> Result<Expression<'a>, CfiError> {
        let len = self.reader.uleb()?;
        self.reader.take(len).map(Expression)
    }
}

impl<'a> Iterator for Instructions<'_, 'a> {
    type Item = Result<(u64, Instruction<'a>), CfiError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let offset = self.reader.offset();
        let decoded = self.decode(offset);
        if decoded.is_err() {
            self.reader.clear();
        }
        Some(decoded.map(|instruction| (offset, instruction)))
    }
}

/// Prints an instruction in the standard's words, registers by name.
#[derive(Debug, Clone, Copy)]
pub struct InstructionText<'a>(pub Instruction<'a>, pub Abi);

impl fmt::Display for InstructionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arch = self.1.arch;
        let name = |register: Register| RegisterName(register, arch);
        match self.0 {
            Instruction::SetLoc(addr) => write!(f, "set_loc {addr}"),
            Instruction::AdvanceLoc(delta) => write!(f, "advance_loc {delta}"),
            Instruction::DefCfa(r, offset) => write!(f, "def_cfa {}, {offset}", name(r)),
            Instruction::DefCfaRegister(r) => write!(f, "def_cfa_register {}", name(r)),
            Instruction::DefCfaOffset(offset) => write!(f, "def_cfa_offset {offset}"),
            Instruction::DefCfaExpression(e) => write!(f, "def_cfa_expression {}", Hex(e)),
            Instruction::Undefined(r) => write!(f, "undefined {}", name(r)),
            Instruction::SameValue(r) => write!(f, "same_value {}", name(r)),
            Instruction::Offset(r, offset) => write!(f, "offset {}, {offset}", name(r)),
            Instruction::ValOffset(r, offset) => write!(f, "val_offset {}, {offset}", name(r)),
            Instruction::Register(r, other) => write!(f, "register {}, {}", name(r), name(other)),
            Instruction::Expression(r, e) => write!(f, "expression {}, {}", name(r), Hex(e)),
            Instruction::ValExpression(r, e) => write!(f, "val_expression {}, {}", name(r), Hex(e)),
            Instruction::Restore(r) => write!(f, "restore {}", name(r)),
            Instruction::RememberState => f.write_str("remember_state"),
            Instruction::RestoreState => f.write_str("restore_state"),
            Instruction::ArgsSize(size) => write!(f, "GNU_args_size {size}"),
            Instruction::NegateRaState => f.write_str("AARCH64_negate_ra_state"),
            Instruction::NegateRaStateWithPc => f.write_str("AARCH64_negate_ra_state_with_pc"),
            Instruction::SetRaState(state, distance) => {
                write!(f, "AARCH64_set_ra_state {}, {distance}", state.number())
            }
            Instruction::Nop => f.write_str("nop"),
        }
    }
}

struct Hex<'a>(Expression<'a>);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
