//! What its author may have meant by a rule that is not true, or not have thought of.

use std::fmt;

use unspool_code_analysis::{AbstractState, AbstractValue};
use unspool_rows::arch::RegisterName;
use unspool_rows::{Abi, Arch, Register, RegisterRule, RowId};

use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::row_checker::{Aspect, RowChecker};
use crate::unit::Discrepancy;

/// What may have led to a rule that is not true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// A register is named by the number that another one has on i386.
    I386Numbering {
        /// The register that the number stands for.
        declared: Register,
        /// The one that it would stand for there.
        meant: Register,
        /// The machine.
        arch: Arch,
    },
    /// The rule holds, but for what a callee may do to a register.
    NotPreserved {
        /// The register.
        register: Register,
        /// The machine.
        arch: Arch,
    },
    /// The slot holds it, and control returns without it.
    LostAtReturn,
    /// The slot holds it, as long as no signal comes.
    BelowRedZone {
        /// How far below the stack pointer nothing is written but by the function itself, in bytes.
        red_zone: i32,
    },
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Hint::I386Numbering {
                declared,
                meant,
                arch,
            } => write!(
                f,
                "register number {} is {} on {}; {} has it on i386",
                declared.0,
                RegisterName(declared, arch),
                arch.spec().name,
                RegisterName(declared, Arch::I386),
            )
            .and_then(|()| match arch.assembler_name(meant) {
                Some(name) => write!(f, ": %{name} may be meant"),
                None => Ok(()),
            }),
            Hint::LostAtReturn => {
                write!(f, "control returns here, and it was not restored")
            }
            Hint::BelowRedZone { red_zone } => write!(
                f,
                "the slot is more than {red_zone} bytes below the stack pointer: a signal's frame may be written over it"
            ),
            Hint::NotPreserved { register, arch } => {
                write!(f, "calls do not preserve {}", RegisterName(register, arch))
            }
        }
    }
}

/// The register that a number stands for if it is that of i386's register of the same name; `None` if that is the same number, or
/// the machine has no such names.
#[must_use]
pub fn i386_register(number: Register, arch: Arch) -> Option<Register> {
    let name = Arch::I386.assembler_name(number)?.strip_prefix('e')?;
    let meant = arch.register_named(&format!("r{name}"))?;
    (meant != number).then_some(meant)
}

/// Whether what is wrong would be right by the numbers of i386, and which number it is then.
pub(crate) fn i386_numbering(
    judge: &RowChecker<'_>,
    id: RowId,
    aspect: Aspect,
    truth: Option<RuleLocation>,
    state: &AbstractState,
) -> Option<Hint> {
    let arch = judge.abi().arch;
    let hint = |declared: u8, meant: u8| Hint::I386Numbering {
        declared: Register(declared.into()),
        meant: Register(meant.into()),
        arch,
    };
    let of_i386 = |number: u8| u8::try_from(i386_register(Register(number.into()), arch)?.0).ok();
    let cfa = judge.cfa_value();
    let holds = |offset: i64, register: u8| {
        state.load(cfa.plus(offset)) == Some(AbstractValue::entry_value(register))
    };
    match (
        aspect,
        judge.declared(id)?.rule_for(aspect, judge.facts),
        truth,
    ) {
        // The stack pointer is meant by whoever names it, and by who names nothing.
        (Aspect::Cfa, RuleLocation::Register(declared, offset), _)
            if declared != judge.facts.stack_pointer =>
        {
            let meant = of_i386(declared)?;
            (state.get(meant).plus(offset) == cfa).then(|| hint(declared, meant))
        }
        (Aspect::Register(declared), RuleLocation::CfaOffset(offset), _) => {
            let meant = of_i386(declared)?;
            holds(offset, meant).then(|| hint(declared, meant))
        }
        (Aspect::Register(wanted), _, Some(RuleLocation::CfaOffset(offset))) => {
            let row = judge.row(id)?;
            let is_there = |number: &u8| {
                row.rule(Register((*number).into())) == Some(RegisterRule::Offset(offset))
            };
            let mut others = (0..judge.facts.return_address).filter(is_there);
            let declared = others.find(|other| of_i386(*other) == Some(wanted))?;
            holds(offset, wanted).then(|| hint(declared, wanted))
        }
        _ => None,
    }
}

/// Says of doubts that are about the time while a callee runs, and not before, what it may do to what the row reads.
pub(crate) fn note_clobbered(
    judge: &RowChecker<'_>,
    declared: &DeclaredRow,
    doubts: &mut [Discrepancy],
) {
    let Abi { arch, .. } = judge.abi();
    for doubt in doubts {
        let reads = match declared.rule_for(doubt.aspect, judge.facts) {
            RuleLocation::Register(register, _) => 1 << (register & 63),
            RuleLocation::Expression => judge.expressions_read(doubt.row),
            _ => 0,
        };
        let changed = reads & judge.facts.clobbered;
        if changed != 0 && doubt.hint.is_none() {
            let register = u16::try_from(changed.trailing_zeros()).unwrap_or_default();
            doubt.hint = Some(Hint::NotPreserved {
                register: Register(register),
                arch,
            });
        }
    }
}
