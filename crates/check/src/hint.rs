//! Hints: what an author may have meant or overlooked.

use std::fmt;

use unspool_code_analysis::{AbstractState, AbstractValue};
use unspool_rows::arch::RegisterName;
use unspool_rows::{Abi, Arch, Register, RegisterRule, RowId, Vaddr};

use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::places::CodePlaces;
use crate::row_checker::{Aspect, RowChecker};
use crate::unit::{Discrepancy, HeightConflict};

/// A possible cause of a wrong rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// A register is named by another register's number on i386.
    I386Numbering {
        /// The register with that number.
        declared: Register,
        /// The register with that number on i386.
        meant: Register,
        /// The architecture.
        arch: Arch,
    },
    /// The rule holds, except that a callee may change a register.
    NotPreserved {
        /// The register.
        register: Register,
        /// The architecture.
        arch: Arch,
    },
    /// Control comes back to the join of two paths with more on the stack, or less.
    ComesBack {
        /// The instruction before the join on the path back.
        from: Vaddr,
        /// How many bytes more.
        bytes: i64,
    },
    /// A path to the join leads over a call, which may not return.
    CallBeforeJoin {
        /// The call.
        call: Vaddr,
    },
    /// The CFA is at these distances above the stack pointer on two paths.
    TwoHeights {
        /// The distances in bytes, in the order of the paths.
        cfas: [i64; 2],
        /// The architecture.
        arch: Arch,
    },
    /// The slot has the value, and control returns without restoring it.
    LostAtReturn,
    /// The slot has the value, unless a signal arrives.
    BelowRedZone {
        /// Bytes below the stack pointer that only the function writes.
        red_zone: i32,
    },
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &CodePlaces::default())
    }
}

impl Hint {
    /// The place that it names.
    pub(crate) fn place(&self) -> Option<Vaddr> {
        match *self {
            Hint::ComesBack { from, .. } => Some(from),
            Hint::CallBeforeJoin { call } => Some(call),
            _ => None,
        }
    }

    /// The hint, with places named so.
    pub(crate) fn write(&self, f: &mut impl fmt::Write, places: &CodePlaces) -> fmt::Result {
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
            Hint::ComesBack { from, bytes } => {
                let (count, more) = (
                    bytes.unsigned_abs(),
                    if bytes > 0 { "more" } else { "fewer" },
                );
                let from = places.place(from);
                write!(
                    f,
                    "control comes back from {from} with {count} bytes {more} on the stack"
                )
            }
            Hint::CallBeforeJoin { call } => {
                let call = places.call(call);
                write!(f, "one path leads over {call}, which may not return")
            }
            Hint::TwoHeights { cfas, arch } => {
                let sp = RegisterName(arch.spec().stack_pointer, arch);
                let [first, other] = cfas;
                write!(
                    f,
                    "the CFA is {sp}{first:+} on the first path, and {sp}{other:+} on the second"
                )
            }
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

/// The register that a number means if it is the i386 number of the register with the same name.
/// `None` if both numbers are the same, or the architecture has no such names.
#[must_use]
pub(crate) fn i386_register(number: Register, arch: Arch) -> Option<Register> {
    let name = Arch::I386.assembler_name(number)?.strip_prefix('e')?;
    let meant = arch.register_named(&format!("r{name}"))?;
    (meant != number).then_some(meant)
}

/// Whether a wrong rule is right with i386 numbering, and the right number.
pub(crate) fn i386_numbering(
    row_checker: &RowChecker<'_>,
    id: RowId,
    aspect: Aspect,
    truth: Option<RuleLocation>,
    state: &AbstractState,
) -> Option<Hint> {
    let arch = row_checker.abi().arch;
    let hint = |declared: u8, meant: u8| Hint::I386Numbering {
        declared: Register(declared.into()),
        meant: Register(meant.into()),
        arch,
    };
    let of_i386 = |number: u8| u8::try_from(i386_register(Register(number.into()), arch)?.0).ok();
    let cfa = row_checker.cfa_value();
    let holds = |offset: i64, register: u8| {
        state.load(cfa.plus(offset)) == Some(AbstractValue::entry_value(register))
    };
    match (
        aspect,
        row_checker
            .declared(id)?
            .rule_for(aspect, row_checker.abi_info),
        truth,
    ) {
        // A rule without a register, or with the stack pointer, means the stack pointer.
        (Aspect::Cfa, RuleLocation::Register(declared, offset), _)
            if declared != row_checker.abi_info.stack_pointer =>
        {
            let meant = of_i386(declared)?;
            (state.get(meant).plus(offset) == cfa).then(|| hint(declared, meant))
        }
        (Aspect::Register(declared), RuleLocation::CfaOffset(offset), _) => {
            let meant = of_i386(declared)?;
            holds(offset, meant).then(|| hint(declared, meant))
        }
        (Aspect::Register(wanted), _, Some(RuleLocation::CfaOffset(offset))) => {
            let row = row_checker.row(id)?;
            let is_there = |number: &u8| {
                row.rule(Register((*number).into())) == Some(RegisterRule::Offset(offset))
            };
            let mut others = (0..row_checker.abi_info.machine_registers).filter(is_there);
            let declared = others.find(|other| of_i386(*other) == Some(wanted))?;
            holds(offset, wanted).then(|| hint(declared, wanted))
        }
        _ => None,
    }
}

/// Why paths may join with different stack heights.
pub(crate) fn cause_of_conflict(conflict: &HeightConflict, arch: Arch) -> Option<Hint> {
    let mut paths = conflict.paths.iter();
    if let Some(call) = paths.clone().find(|path| path.is_call) {
        return Some(Hint::CallBeforeJoin { call: call.from });
    }
    let [first, other] = conflict.paths;
    let cfas = first.cfa.zip(other.cfa);
    // A path that begins there comes from outside.
    let back = paths.position(|path| path.from > conflict.at);
    match (cfas, back) {
        // The same height above different bases.
        (Some((first, other)), _) if first == other => None,
        (Some((first_cfa, other_cfa)), Some(0)) => Some(Hint::ComesBack {
            from: first.from,
            bytes: first_cfa - other_cfa,
        }),
        (Some((first_cfa, other_cfa)), Some(_)) => Some(Hint::ComesBack {
            from: other.from,
            bytes: other_cfa - first_cfa,
        }),
        (Some((first, other)), None) => Some(Hint::TwoHeights {
            cfas: [first, other],
            arch,
        }),
        (None, _) => None,
    }
}

/// Adds the callee's effect as a hint to discrepancies that only exist while a callee runs.
pub(crate) fn note_clobbered(
    row_checker: &RowChecker<'_>,
    declared: &DeclaredRow,
    discrepancies: &mut [Discrepancy],
) {
    let Abi { arch, .. } = row_checker.abi();
    for discrepancy in discrepancies {
        let reads = match declared.rule_for(discrepancy.aspect, row_checker.abi_info) {
            RuleLocation::Register(register, _) => 1 << (register & 63),
            RuleLocation::Expression => row_checker.expressions_read(discrepancy.row),
            _ => 0,
        };
        let changed = reads & row_checker.abi_info.clobbered;
        if changed != 0 && discrepancy.hint.is_none() {
            let register = u16::try_from(changed.trailing_zeros()).unwrap_or_default();
            discrepancy.hint = Some(Hint::NotPreserved {
                register: Register(register),
                arch,
            });
        }
    }
}
