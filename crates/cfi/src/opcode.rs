//! Opcodes of the call frame instructions that the writers use (DWARF 5 §7.24).

pub(crate) const ADVANCE_LOC: u8 = 0x40;
pub(crate) const OFFSET: u8 = 0x80;
pub(crate) const RESTORE: u8 = 0xc0;
pub(crate) const ADVANCE_LOC1: u8 = 0x02;
pub(crate) const ADVANCE_LOC2: u8 = 0x03;
pub(crate) const ADVANCE_LOC4: u8 = 0x04;
pub(crate) const OFFSET_EXTENDED: u8 = 0x05;
pub(crate) const RESTORE_EXTENDED: u8 = 0x06;
pub(crate) const UNDEFINED: u8 = 0x07;
pub(crate) const SAME_VALUE: u8 = 0x08;
pub(crate) const REGISTER: u8 = 0x09;
pub(crate) const REMEMBER_STATE: u8 = 0x0a;
pub(crate) const RESTORE_STATE: u8 = 0x0b;
pub(crate) const DEF_CFA: u8 = 0x0c;
pub(crate) const DEF_CFA_REGISTER: u8 = 0x0d;
pub(crate) const DEF_CFA_OFFSET: u8 = 0x0e;
pub(crate) const DEF_CFA_EXPRESSION: u8 = 0x0f;
pub(crate) const EXPRESSION: u8 = 0x10;
pub(crate) const OFFSET_EXTENDED_SF: u8 = 0x11;
pub(crate) const DEF_CFA_SF: u8 = 0x12;
pub(crate) const DEF_CFA_OFFSET_SF: u8 = 0x13;
pub(crate) const VAL_OFFSET_SF: u8 = 0x15;
pub(crate) const VAL_EXPRESSION: u8 = 0x16;
pub(crate) const AARCH64_NEGATE_RA_STATE: u8 = 0x2d;
pub(crate) const GNU_ARGS_SIZE: u8 = 0x2e;
