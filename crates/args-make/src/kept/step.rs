//! What instructions do to arguments: the operations of the analysis, with addresses of the frame as distances from the CFA.

use unspool_args::Source;
use unspool_synth::arch::Facts;
use unspool_synth::op::Op;
use unspool_synth::state::REGISTERS;
use unspool_synth::{Detail, Known, State, Value};

use super::OnPurpose;

/// What an instruction does to what is kept, with addresses of the frame as distances from the CFA.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Copy {
        to: u8,
        from: u8,
        add: i32,
    },
    /// The low bits are those of the other register.
    Low {
        to: u8,
        from: u8,
        bits: u8,
        /// Whether those above them are zero.
        is_rest_zero: bool,
    },
    Number {
        to: u8,
        value: u64,
    },
    Address {
        to: u8,
        value: u64,
    },
    Cfa {
        to: u8,
        at: i32,
    },
    Kill {
        registers: u64,
    },
    Load {
        to: u8,
        at: i32,
        bytes: u8,
    },
    Store {
        at: i32,
        from: u8,
        bytes: u8,
    },
    Overwrite {
        at: i32,
        bytes: u32,
    },
    /// An address at that distance from the CFA is where others may get it.
    Expose {
        at: i32,
    },
    /// The program keeps something there on purpose.
    Keep {
        at: i32,
        source: Source,
        bytes: u8,
    },
    /// Something is written that is not known to be in the frame.
    Elsewhere,
    /// The stack pointer is not known to be anywhere: what it is written to may be anything.
    Astray,
    Call {
        sp: Option<i32>,
        target: Option<u64>,
    },
}

/// The frame before an operation.
pub(super) struct Frame<'s> {
    pub(super) facts: &'static Facts,
    pub(super) state: &'s State,
}

impl Frame<'_> {
    /// How far an address is above the CFA.
    pub(super) fn distance(&self, address: Value) -> Option<i32> {
        match address.known() {
            Known::Entry(register, offset) if register.0 == self.facts.stack_pointer.into() => {
                offset.checked_sub(self.facts.call_pushes)
            }
            _ => None,
        }
    }

    fn place(&self, base: u8, offset: i32) -> Option<i32> {
        self.distance(self.state.get(base).plus(offset.into()))
    }

    /// Whether one of these registers has an address of the frame.
    fn has_frame<const COUNT: usize>(&self, registers: [u8; COUNT]) -> bool {
        let mut registers = registers.into_iter();
        registers.any(|register| self.place(register, 0).is_some())
    }

    /// Notes what an operation does.
    pub(super) fn note(&self, op: Op, steps: &mut Vec<Step>) {
        let kill = |to: u8| Step::Kill {
            registers: 1 << (to & 63),
        };
        steps.extend(
            self.exposed(op)
                .into_iter()
                .flatten()
                .map(|at| Step::Expose { at }),
        );
        let step = match op {
            Op::Add { to, from, bytes } => match self.place(from, bytes) {
                Some(at) => Step::Cfa { to, at },
                None => Step::Copy {
                    to,
                    from,
                    add: bytes,
                },
            },
            Op::Constant { to, value } => Step::Number { to, value },
            Op::Address { to, value } => Step::Address { to, value },
            Op::Sum { to, .. }
            | Op::Near { to, .. }
            | Op::Difference { to, .. }
            | Op::Unknown { to }
            | Op::Turn { to }
            | Op::LoadSum { to, .. }
            | Op::LoadEntry { to, .. } => kill(to),
            Op::Extend { to, from, bits } => Step::Low {
                to,
                from,
                bits,
                is_rest_zero: false,
            },
            Op::Narrow { to, from, limit } => {
                let bits = match limit {
                    u32::MAX | 0x7fff_ffff => Some(32),
                    0xffff => Some(16),
                    0xff => Some(8),
                    _ => None,
                };
                bits.map_or(kill(to), |bits| Step::Low {
                    to,
                    from,
                    bits,
                    is_rest_zero: limit != 0x7fff_ffff,
                })
            }
            Op::FindBack { .. } => {
                steps.push(Step::Astray);
                Step::Kill {
                    registers: u64::MAX,
                }
            }
            Op::Align { .. } => kill(self.facts.stack_pointer),
            Op::SystemCall { number } => {
                steps.push(Step::Elsewhere);
                number.map_or(Step::Kill { registers: 0 }, kill)
            }
            // What these do is told in detail.
            Op::Halt
            | Op::Direction { .. }
            | Op::Keep { .. }
            | Op::KeepLoaded { .. }
            | Op::Fill { .. } => Step::Kill { registers: 0 },
            Op::Clobber { registers } => Step::Kill { registers },
            Op::Load { to, base, offset } => self.load(to, base, offset, 8),
            Op::LoadLow {
                to,
                base,
                offset,
                size,
            } => self.load(to, base, offset, size),
            Op::Store { base, offset, from } => {
                self.write(base, offset, steps, |at| Step::Store { at, from, bytes: 8 })
            }
            Op::StoreLow {
                base,
                offset,
                from,
                size: bytes,
            } => self.write(base, offset, steps, |at| Step::Store { at, from, bytes }),
            Op::Overwrite { base, offset, size }
            | Op::OverwritePerhaps { base, offset, size }
            | Op::StoreUnfollowed { base, offset, size } => self.write(base, offset, steps, |at| {
                let bytes = size.into();
                Step::Overwrite { at, bytes }
            }),
            Op::Mix { base, offset } => {
                self.write(base, offset, steps, |at| Step::Overwrite { at, bytes: 8 })
            }
            Op::OverwriteNear { .. } | Op::StoreEntry { .. } => Step::Elsewhere,
            // No more is known than where it begins.
            Op::OverwriteRows { base, .. }
            | Op::OverwriteAround { base }
            | Op::SaveState { base, .. } => {
                steps.push(Step::Elsewhere);
                match self.place(base, 0) {
                    Some(_) => Step::Overwrite {
                        at: i32::MIN,
                        bytes: u32::MAX,
                    },
                    None => Step::Elsewhere,
                }
            }
        };
        steps.push(step);
    }

    /// The addresses that an operation makes in the frame or above it, other than those that the frame is kept by.
    fn exposed(&self, op: Op) -> [Option<i32>; 2] {
        let Facts {
            stack_pointer,
            frame_pointer,
            ..
        } = *self.facts;
        match op {
            Op::Add { to, from, bytes } => {
                let at = self.place(from, bytes);
                let is_frame = to == frame_pointer && at == Some(-2 * self.facts.call_pushes);
                [at.filter(|_| to != stack_pointer && !is_frame), None]
            }
            // Anywhere, below or above the CFA.
            Op::Sum { to, a, b } if to != stack_pointer && self.has_frame([a, b]) => ANYWHERE,
            Op::Difference { to, a, .. } if to != stack_pointer && self.has_frame([a]) => ANYWHERE,
            Op::Near { base, .. }
            | Op::OverwriteNear { base, .. }
            | Op::OverwriteRows { base, .. }
            | Op::StoreEntry { base, .. }
                if self.has_frame([base]) =>
            {
                ANYWHERE
            }
            Op::Store { from, .. } => [self.place(from, 0), None],
            _ => [None, None],
        }
    }

    /// Notes a detail of what an instruction does, behind its operations. `constant` tells what is in memory that nobody
    /// writes.
    pub(super) fn note_detail(
        &self,
        detail: Detail,
        constant: impl Fn(u64, u8) -> Option<u64>,
        steps: &mut Vec<Step>,
    ) {
        let number = |register: u8| number_of(self.facts, register);
        let kill = |to: u8| Step::Kill {
            registers: 1 << (number(to) & 63),
        };
        let step = match detail {
            Detail::Copy { to, from, bits: 64 } => Some(Step::Copy {
                to: number(to),
                from: number(from),
                add: 0,
            }),
            Detail::Copy { to, from, bits } => Some(Step::Low {
                to: number(to),
                from: number(from),
                bits,
                is_rest_zero: true,
            }),
            Detail::Insert { to, from } => Some(Step::Low {
                to: number(to),
                from: number(from),
                bits: 32,
                is_rest_zero: false,
            }),
            Detail::Zero { to } => Some(Step::Number {
                to: number(to),
                value: 0,
            }),
            Detail::Load {
                to,
                base,
                offset,
                bytes,
            } => Some(match self.place(base, offset) {
                Some(at) => Step::Load {
                    to: number(to),
                    at,
                    bytes,
                },
                None => kill(to),
            }),
            Detail::LoadConstant { to, address, bytes } => Some(match constant(address, bytes) {
                Some(value) => Step::Number {
                    to: number(to),
                    value,
                },
                None => kill(to),
            }),
            // That memory is something else was noted.
            Detail::Store {
                base,
                offset,
                from,
                bytes,
            } => self.place(base, offset).map(|at| Step::Store {
                at,
                from: number(from),
                bytes,
            }),
            Detail::Clobber { registers } => Some(Step::Kill {
                registers: members(registers)
                    .fold(0, |all, register| all | 1 << (number(register) & 63)),
            }),
            Detail::StoreString { base, bytes, count } => {
                steps.push(Step::Elsewhere);
                let bytes = self.product(bytes, count);
                let at = self.place(base, 0);
                at.map(|at| Step::Overwrite { at, bytes })
            }
            Detail::StoreAround { base } => {
                steps.push(Step::Elsewhere);
                self.place(base, 0).map(|_| Step::Overwrite {
                    at: i32::MIN,
                    bytes: u32::MAX,
                })
            }
            Detail::StoreElsewhere => Some(Step::Elsewhere),
            Detail::Take { registers } => {
                if members(registers).any(|register| self.has_frame([register])) {
                    let anywhere = ANYWHERE.into_iter().flatten();
                    steps.extend(anywhere.map(|at| Step::Expose { at }));
                }
                None
            }
            Detail::StopsMidway => None,
        };
        steps.extend(step);
    }

    /// So many bytes so many times; all there are if nobody knows how often.
    fn product(&self, bytes: u8, count: Option<u8>) -> u32 {
        let times = match count.map(|count| self.state.get(count).known()) {
            None => Some(1),
            Some(Known::Constant(times)) => u32::try_from(times).ok(),
            Some(_) => None,
        };
        let product = times.and_then(|times| times.checked_mul(bytes.into()));
        product.unwrap_or(u32::MAX)
    }

    /// Notes what is kept on purpose.
    pub(super) fn keep(&self, kept: &OnPurpose) -> Option<Step> {
        Some(Step::Keep {
            at: self.place(kept.base, kept.offset)?,
            source: kept.source,
            bytes: kept.bytes,
        })
    }

    fn load(&self, to: u8, base: u8, offset: i32, bytes: u8) -> Step {
        match self.place(base, offset) {
            Some(at) => Step::Load { to, at, bytes },
            None => Step::Kill {
                registers: 1 << (to & 63),
            },
        }
    }

    /// Something is written: in the frame if it is known where, else elsewhere. By the stack pointer, that may be anywhere in
    /// the frame. By any other register than those that the frame is kept by it may be more than one instruction shows (`rep stos`).
    fn write(
        &self,
        base: u8,
        offset: i32,
        steps: &mut Vec<Step>,
        step: impl FnOnce(i32) -> Step,
    ) -> Step {
        let is_stack_pointer = base == self.facts.stack_pointer;
        match self.place(base, offset) {
            Some(at) => {
                if !is_stack_pointer && base != self.facts.frame_pointer {
                    steps.push(Step::Elsewhere);
                }
                step(at)
            }
            None if is_stack_pointer
                && !matches!(self.state.get(base).known(), Known::Base(..)) =>
            {
                Step::Astray
            }
            None => Step::Elsewhere,
        }
    }
}

/// How many registers are followed: those of the analysis, and behind them vector registers.
pub(super) const COUNT: usize = REGISTERS + 16;

/// The number that a register has here: of vector registers it is another than DWARF's, which the analysis has for a register that
/// is none of the machine.
pub(super) fn number_of(facts: &Facts, register: u8) -> u8 {
    match register.checked_sub(facts.vectors.start) {
        Some(index) if facts.vectors.contains(&register) => FIRST_VECTOR + index,
        _ => register,
    }
}

/// The number of the first vector register.
#[expect(clippy::cast_possible_truncation, reason = "it is a small number")]
const FIRST_VECTOR: u8 = REGISTERS as u8;

/// Whether it is a vector register.
pub(super) fn is_vector(number: u8) -> bool {
    number >= FIRST_VECTOR
}

/// All vector registers, as a set.
pub(super) fn vectors(facts: &Facts) -> u64 {
    let all = facts.vectors.clone();
    all.fold(0, |all, register| {
        all | 1 << (number_of(facts, register) & 63)
    })
}

/// The registers of a set.
pub(super) fn members(registers: u64) -> impl Iterator<Item = u8> {
    (0..64_u8).filter(move |register| registers >> register & 1 != 0)
}

/// Addresses below the CFA and above it.
const ANYWHERE: [Option<i32>; 2] = [Some(-1), Some(0)];
