//! Effects of instructions on arguments: the operations of the unwind analysis, with frame
//! addresses as distances from the CFA.

use unspool_arg_table::ArgSource;
use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::Op;
use unspool_code_analysis::state::REGISTERS;
use unspool_code_analysis::{AbstractState, AbstractValue, SideEffect, ValueFact};

use super::KeptSlot;

/// The effect of an instruction on argument values, with frame addresses as distances from the CFA.
#[derive(Debug, Clone, Copy)]
pub(super) enum ArgEffect {
    Copy {
        to: u8,
        from: u8,
        addend: i32,
    },
    /// The low bits are copied from the other register.
    Truncate {
        to: u8,
        from: u8,
        bits: u8,
        /// Whether the bits above them are zero.
        is_rest_zero: bool,
    },
    Constant {
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
    /// An address at that distance from the CFA becomes available to others.
    Expose {
        at: i32,
    },
    /// The program keeps an argument there (`unspool_keep.h`).
    Keep {
        at: i32,
        source: ArgSource,
        bytes: u8,
    },
    /// A store to an address that may not be in the frame.
    StoreUnknown,
    /// The stack pointer is unknown: a store through it may write anything.
    StackPointerUnknown,
    Call {
        sp: Option<i32>,
        target: Option<u64>,
    },
}

/// The frame before an operation.
pub(super) struct OpContext<'s> {
    pub(super) abi_info: &'static AbiInfo,
    pub(super) state: &'s AbstractState,
}

impl OpContext<'_> {
    /// The distance of an address above the CFA.
    pub(super) fn distance(&self, address: AbstractValue) -> Option<i32> {
        match address.fact() {
            ValueFact::EntryValue(register, offset)
                if register.0 == u16::from(self.abi_info.stack_pointer) =>
            {
                offset.checked_sub(self.abi_info.call_pushes)
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

    /// Adds the effects of an operation.
    pub(super) fn push_effects(&self, op: Op, effects: &mut Vec<ArgEffect>) {
        let kill = |to: u8| ArgEffect::Kill {
            registers: 1 << (to & 63),
        };
        effects.extend(
            self.exposed(op)
                .into_iter()
                .flatten()
                .map(|at| ArgEffect::Expose { at }),
        );
        let step = match op {
            Op::Add { to, from, bytes } => match self.place(from, bytes) {
                Some(at) => ArgEffect::Cfa { to, at },
                None => ArgEffect::Copy {
                    to,
                    from,
                    addend: bytes,
                },
            },
            Op::Constant { to, value } => ArgEffect::Constant { to, value },
            Op::Address { to, value } => ArgEffect::Address { to, value },
            Op::Sum { to, .. }
            | Op::AddUnknown { to, .. }
            | Op::Difference { to, .. }
            | Op::Unknown { to }
            | Op::Choose { to, .. }
            | Op::Advance { to, .. }
            | Op::LoadSum { to, .. }
            | Op::LoadIndexed { to, .. } => kill(to),
            Op::SignExtend { to, from, bits } => ArgEffect::Truncate {
                to,
                from,
                bits,
                is_rest_zero: false,
            },
            Op::Bound { to, from, limit } => {
                let bits = match limit {
                    u32::MAX | 0x7fff_ffff => Some(32),
                    0xffff => Some(16),
                    0xff => Some(8),
                    _ => None,
                };
                bits.map_or(kill(to), |bits| ArgEffect::Truncate {
                    to,
                    from,
                    bits,
                    is_rest_zero: limit != 0x7fff_ffff,
                })
            }
            Op::AssumeStackPointer { .. } => {
                effects.push(ArgEffect::StackPointerUnknown);
                ArgEffect::Kill {
                    registers: u64::MAX,
                }
            }
            Op::Align { .. } => kill(self.abi_info.stack_pointer),
            Op::SystemCall { number } => {
                effects.push(ArgEffect::StoreUnknown);
                number.map_or(ArgEffect::Kill { registers: 0 }, kill)
            }
            // The side effects describe these.
            Op::Halt
            | Op::Direction { .. }
            | Op::Escape { .. }
            | Op::EscapeMemory { .. }
            | Op::Fill { .. } => ArgEffect::Kill { registers: 0 },
            Op::Clobber { registers } => ArgEffect::Kill { registers },
            Op::Compute { to, .. } => ArgEffect::Kill {
                registers: to.into(),
            },
            Op::Load { to, base, offset } => self.load(to, base, offset, 8),
            Op::LoadLow {
                to,
                base,
                offset,
                size,
            } => self.load(to, base, offset, size),
            Op::Store { base, offset, from } => self.write(base, offset, effects, |at| {
                ArgEffect::Store { at, from, bytes: 8 }
            }),
            Op::StoreLow {
                base,
                offset,
                from,
                size: bytes,
            } => self.write(base, offset, effects, |at| ArgEffect::Store {
                at,
                from,
                bytes,
            }),
            Op::Overwrite { base, offset, size }
            | Op::WeakOverwrite { base, offset, size }
            | Op::StoreUntracked { base, offset, size } => {
                self.write(base, offset, effects, |at| {
                    let bytes = size.into();
                    ArgEffect::Overwrite { at, bytes }
                })
            }
            Op::OverwriteIndexed { .. } | Op::StoreIndexed { .. } => ArgEffect::StoreUnknown,
            // Only the start is known.
            Op::OverwriteTileRows { base, .. }
            | Op::OverwriteUnbounded { base }
            | Op::SaveState { base, .. } => {
                effects.push(ArgEffect::StoreUnknown);
                match self.place(base, 0) {
                    Some(_) => ArgEffect::Overwrite {
                        at: i32::MIN,
                        bytes: u32::MAX,
                    },
                    None => ArgEffect::StoreUnknown,
                }
            }
        };
        effects.push(step);
    }

    /// The addresses in the frame or above it that an operation computes, except in the registers
    /// that address the frame.
    fn exposed(&self, op: Op) -> [Option<i32>; 2] {
        let AbiInfo {
            stack_pointer,
            frame_pointer,
            ..
        } = *self.abi_info;
        match op {
            Op::Add { to, from, bytes } => {
                let at = self.place(from, bytes);
                let is_frame = to == frame_pointer && at == Some(-2 * self.abi_info.call_pushes);
                [at.filter(|_| to != stack_pointer && !is_frame), None]
            }
            // Any address, below or above the CFA.
            Op::Sum { to, a, b } if to != stack_pointer && self.has_frame([a, b]) => ANYWHERE,
            Op::Difference { to, a, .. } if to != stack_pointer && self.has_frame([a]) => ANYWHERE,
            Op::AddUnknown { base, .. }
            | Op::OverwriteIndexed { base, .. }
            | Op::OverwriteTileRows { base, .. }
            | Op::StoreIndexed { base, .. }
                if self.has_frame([base]) =>
            {
                ANYWHERE
            }
            Op::Store { from, .. } => [self.place(from, 0), None],
            _ => [None, None],
        }
    }

    /// Adds a side effect of an instruction after its operations. `constant` returns the content of
    /// read-only memory.
    pub(super) fn push_detail_effects(
        &self,
        effect: SideEffect,
        constant: impl Fn(u64, u8) -> Option<u64>,
        effects: &mut Vec<ArgEffect>,
    ) {
        let number = |register: u8| number_of(self.abi_info, register);
        let kill = |to: u8| ArgEffect::Kill {
            registers: 1 << (number(to) & 63),
        };
        let step = match effect {
            SideEffect::Copy { to, from, bits: 64 } => Some(ArgEffect::Copy {
                to: number(to),
                from: number(from),
                addend: 0,
            }),
            SideEffect::Copy { to, from, bits } => Some(ArgEffect::Truncate {
                to: number(to),
                from: number(from),
                bits,
                is_rest_zero: true,
            }),
            SideEffect::Insert { to, from } => Some(ArgEffect::Truncate {
                to: number(to),
                from: number(from),
                bits: 32,
                is_rest_zero: false,
            }),
            SideEffect::Zero { to } => Some(ArgEffect::Constant {
                to: number(to),
                value: 0,
            }),
            SideEffect::Load {
                to,
                base,
                offset,
                bytes,
            } => Some(match self.place(base, offset) {
                Some(at) => ArgEffect::Load {
                    to: number(to),
                    at,
                    bytes,
                },
                None => kill(to),
            }),
            SideEffect::LoadConstant { to, address, bytes } => {
                Some(match constant(address, bytes) {
                    Some(value) => ArgEffect::Constant {
                        to: number(to),
                        value,
                    },
                    None => kill(to),
                })
            }
            // The change of memory was recorded already.
            SideEffect::Store {
                base,
                offset,
                from,
                bytes,
            } => self.place(base, offset).map(|at| ArgEffect::Store {
                at,
                from: number(from),
                bytes,
            }),
            SideEffect::Clobber { registers } => Some(ArgEffect::Kill {
                registers: members(registers)
                    .fold(0, |all, register| all | 1 << (number(register) & 63)),
            }),
            SideEffect::StoreString { base, bytes, count } => {
                effects.push(ArgEffect::StoreUnknown);
                let bytes = self.product(bytes, count);
                let at = self.place(base, 0);
                at.map(|at| ArgEffect::Overwrite { at, bytes })
            }
            SideEffect::StoreUnbounded { base } => {
                effects.push(ArgEffect::StoreUnknown);
                self.place(base, 0).map(|_| ArgEffect::Overwrite {
                    at: i32::MIN,
                    bytes: u32::MAX,
                })
            }
            SideEffect::StoreElsewhere => Some(ArgEffect::StoreUnknown),
            SideEffect::Escape { registers } => {
                if members(registers).any(|register| self.has_frame([register])) {
                    let anywhere = ANYWHERE.into_iter().flatten();
                    effects.extend(anywhere.map(|at| ArgEffect::Expose { at }));
                }
                None
            }
            SideEffect::Interruptible => None,
        };
        effects.extend(step);
    }

    /// A number of bytes times a count; the maximum if the count is unknown.
    fn product(&self, bytes: u8, count: Option<u8>) -> u32 {
        let times = match count.map(|count| self.state.get(count).fact()) {
            None => Some(1),
            Some(ValueFact::Constant(times)) => u32::try_from(times).ok(),
            Some(_) => None,
        };
        let product = times.and_then(|times| times.checked_mul(bytes.into()));
        product.unwrap_or(u32::MAX)
    }

    /// The effect of a kept slot.
    pub(super) fn keep(&self, kept: &KeptSlot) -> Option<ArgEffect> {
        Some(ArgEffect::Keep {
            at: self.place(kept.base, kept.offset)?,
            source: kept.source,
            bytes: kept.bytes,
        })
    }

    fn load(&self, to: u8, base: u8, offset: i32, bytes: u8) -> ArgEffect {
        match self.place(base, offset) {
            Some(at) => ArgEffect::Load { to, at, bytes },
            None => ArgEffect::Kill {
                registers: 1 << (to & 63),
            },
        }
    }

    /// The effect of a store: to the frame if the address is known, else elsewhere. Through the
    /// stack pointer, it may write anywhere in the frame. Through any register that does not
    /// address the frame, it may write more than one instruction shows (`rep stos`).
    fn write(
        &self,
        base: u8,
        offset: i32,
        effects: &mut Vec<ArgEffect>,
        step: impl FnOnce(i32) -> ArgEffect,
    ) -> ArgEffect {
        let is_stack_pointer = base == self.abi_info.stack_pointer;
        match self.place(base, offset) {
            Some(at) => {
                if !is_stack_pointer && base != self.abi_info.frame_pointer {
                    effects.push(ArgEffect::StoreUnknown);
                }
                step(at)
            }
            None if is_stack_pointer
                && !matches!(self.state.get(base).fact(), ValueFact::SymbolicBase(..)) =>
            {
                ArgEffect::StackPointerUnknown
            }
            None => ArgEffect::StoreUnknown,
        }
    }
}

/// The number of tracked registers: those of the unwind analysis, followed by vector registers.
pub(super) const COUNT: usize = REGISTERS + 16;

/// The index of a register here. Vector registers are not numbered as in DWARF, because the unwind
/// analysis uses that number for a pseudo-register.
pub(super) fn number_of(abi_info: &AbiInfo, register: u8) -> u8 {
    match register.checked_sub(abi_info.vector_registers.start) {
        Some(index) if abi_info.vector_registers.contains(&register) => FIRST_VECTOR + index,
        _ => register,
    }
}

/// The index of the first vector register.
#[expect(clippy::cast_possible_truncation, reason = "it is a small number")]
const FIRST_VECTOR: u8 = REGISTERS as u8;

/// Whether it is a vector register.
pub(super) fn is_vector(number: u8) -> bool {
    number >= FIRST_VECTOR
}

/// All vector registers, as a set.
pub(super) fn vectors(abi_info: &AbiInfo) -> u64 {
    let all = abi_info.vector_registers.clone();
    all.fold(0, |all, register| {
        all | 1 << (number_of(abi_info, register) & 63)
    })
}

/// The registers of a set.
pub(super) fn members(registers: u64) -> impl Iterator<Item = u8> {
    (0..64_u8).filter(move |register| registers >> register & 1 != 0)
}

/// Addresses below the CFA and above it.
const ANYWHERE: [Option<i32>; 2] = [Some(-1), Some(0)];
