//! Rows to words.

use super::layout::{self, DISTANCE_SHIFT, FORM_SHIFT};
use super::meaning::linkage_table;
use super::{PackedRow, RegisterScope, RowHead, SavedRegister, SavedRegisters};
use crate::arch::Arch;
use crate::expression::Expression;
use crate::expression::operation::{DW_OP_DEREF, DW_OP_LIT0};
use crate::register::Register;
use crate::row::{CfaRule, RaState, RegisterRule};

/// Collects a row's rules.
pub(super) struct RowPacker<'e> {
    head: RowHead<'e>,
    arch: Arch,
    scope: RegisterScope,
    /// The rule of the return address.
    return_address: Option<RegisterRule<'e>>,
    /// `None` if a register has a rule of another form.
    saved: Option<SavedRegisters>,
    /// The number of rules in scope.
    rules: usize,
    /// The number of those that restore a register from the kernel's signal record.
    in_record: usize,
}

impl<'e> RowPacker<'e> {
    pub(super) fn new(head: RowHead<'e>, arch: Arch, scope: RegisterScope) -> Self {
        RowPacker {
            head,
            arch,
            scope,
            return_address: None,
            saved: Some(SavedRegisters::NONE),
            rules: 0,
            in_record: 0,
        }
    }

    pub(super) fn add(&mut self, register: Register, rule: RegisterRule<'e>) {
        let spec = self.arch.spec();
        let is_column = register == self.head.return_address;
        if is_column {
            self.return_address = Some(rule);
        }
        let is_kept = match self.scope {
            RegisterScope::All => true,
            RegisterScope::Preserved => {
                register == spec.stack_pointer || SavedRegisters::has(register.0)
            }
            RegisterScope::StackAndFramePointer => {
                register == spec.stack_pointer || Some(register) == spec.frame_pointer
            }
        };
        if !is_kept && !is_column {
            return;
        }
        self.rules += 1;
        if self.head.signal_frame {
            let record = spec.signal_record;
            let is_in_record = record.is_some_and(|record| record.has_saved(register, rule));
            self.in_record += usize::from(is_in_record);
            return;
        }
        self.saved = self.saved.and_then(|saved| match rule {
            _ if is_kept && SavedRegisters::has(register.0) => {
                saved.with(register.0, self.saved_register(rule)?)
            }
            _ if register == spec.stack_pointer => None,
            _ if is_column => Some(saved),
            // It is unknown in the caller without a rule, too.
            RegisterRule::Undefined => Some(saved),
            _ => None,
        });
    }

    /// A rule as one of [`SavedRegisters`].
    fn saved_register(&self, rule: RegisterRule<'e>) -> Option<SavedRegister> {
        let below = match (rule, self.is_realigned()) {
            (RegisterRule::SameValue, _) => return Some(SavedRegister::Unchanged),
            (RegisterRule::Undefined, _) => return Some(SavedRegister::Undefined),
            (RegisterRule::Offset(offset), false) => offset.checked_neg()?,
            (RegisterRule::Expression(at), true) => {
                let (offset, rest) = at.register_offset(self.arch.spec().frame_pointer?)?;
                8_i64.checked_sub(offset).filter(|_| rest.is_empty())?
            }
            _ => return None,
        };
        u64::try_from(below).ok().map(SavedRegister::Below)
    }

    fn is_realigned(&self) -> bool {
        match self.head.cfa {
            CfaRule::Expression(cfa) => pushed_from(cfa).is_none(),
            _ => false,
        }
    }

    pub(super) fn pack(self) -> Option<PackedRow> {
        if self.return_address == Some(RegisterRule::Undefined) {
            return Some(PackedRow::OUTERMOST);
        }
        let spec = self.arch.spec();
        if spec.preserved != SavedRegisters::REGISTERS || self.head.ra_state != RaState::Plain {
            return None;
        }
        // The caller's register of another column has the return address, too.
        let is_standard = self.head.return_address == spec.pc;
        if self.head.signal_frame {
            return (is_standard && self.is_signal()).then_some(PackedRow::SIGNAL);
        }
        let is_right_below = self.return_address == Some(RegisterRule::Offset(-8));
        if !is_right_below || !is_standard && self.scope == RegisterScope::All {
            return None;
        }
        let saved = u64::from(self.saved?.bits());
        Some(PackedRow(saved | self.cfa()?))
    }

    /// The bits of the CFA.
    fn cfa(&self) -> Option<u64> {
        let spec = self.arch.spec();
        let (form, distance) = match self.head.cfa {
            CfaRule::RegisterOffset { register, offset } => {
                let form = match Some(register) {
                    base if base == Some(spec.stack_pointer) => 0,
                    base if base == spec.frame_pointer => layout::ON_FRAME_POINTER,
                    _ => return None,
                };
                let words = u16::try_from(words(offset)?).ok();
                (form, u64::from(words.filter(|words| *words != 0)?))
            }
            CfaRule::Expression(cfa) => match pushed_from(cfa) {
                Some(number) => {
                    let number = u64::from(number) << (layout::PUSHED_SHIFT - DISTANCE_SHIFT);
                    (layout::OTHER, number | u64::from(layout::LINKAGE_TABLE))
                }
                None => {
                    let (offset, rest) = cfa.register_offset(spec.frame_pointer?)?;
                    let words = i16::try_from(words(offset)?).ok()?;
                    let words = (rest == [DW_OP_DEREF]).then_some(words.cast_unsigned())?;
                    (layout::REALIGNED, u64::from(words))
                }
            },
            CfaRule::Undefined => return None,
        };
        Some(u64::from(form) << FORM_SHIFT | distance << DISTANCE_SHIFT)
    }

    /// Whether the CFA and all registers in scope are in the kernel's signal record.
    fn is_signal(&self) -> bool {
        let Some(record) = self.arch.spec().signal_record else {
            return false;
        };
        let needed = match self.scope {
            RegisterScope::All => record.offsets.len(),
            RegisterScope::Preserved => SavedRegisters::REGISTERS.len() + 2,
            RegisterScope::StackAndFramePointer => 3,
        };
        record.has_cfa(self.head.cfa) && [self.rules, self.in_record] == [needed; 2]
    }
}

/// Bytes as a number of words; `None` if it is not whole.
fn words(bytes: i64) -> Option<i64> {
    (bytes % 8 == 0).then_some(bytes / 8)
}

/// The number in [`linkage_table`], if the expression has this form.
fn pushed_from(Expression(cfa): Expression<'_>) -> Option<u16> {
    let number = cfa.get(6)?.checked_sub(DW_OP_LIT0)?;
    (number < 16 && cfa == linkage_table(number)).then_some(number.into())
}
