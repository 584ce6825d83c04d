//! Instructions, by the Arm Architecture Reference Manual, C4.1 ("A64 instruction set encoding").

use super::V0;
use crate::arch::DecodedInsn;
use crate::op::{BranchCondition, Flow, Op, ResumePoint, ReturnTarget};

const ZERO_OR_SP: u8 = 31;
const SP: u8 = 31;
const LINK: u8 = 30;
/// The register with the number of a system call, and the one with its result.
const SYSCALL_NUMBER: u8 = 8;
const RESULT: u8 = 0;

/// `nop`.
const NOP: u32 = 0xd503_201f;

/// `svc #0`.
pub(super) fn is_svc(insn: u32) -> bool {
    insn == 0xd400_0001
}

/// A field of an instruction.
pub(super) const fn bits(insn: u32, low: u32, count: u32) -> u32 {
    insn >> low & ((1 << count) - 1)
}

/// The same as a signed number.
fn signed(insn: u32, low: u32, count: u32) -> i32 {
    (insn << (32 - low - count)).cast_signed() >> (32 - count)
}

/// A field with a register's number.
fn register(insn: u32, low: u32) -> u8 {
    u8::try_from(bits(insn, low, 5)).unwrap_or(ZERO_OR_SP)
}

/// An address relative to the instruction's, from a field in units of its size.
fn relative(address: u64, insn: u32, low: u32, count: u32) -> u64 {
    address.wrapping_add_signed(4 * i64::from(signed(insn, low, count)))
}

/// Decodes an instruction at `address`, and appends its operations.
pub(in crate::arch) fn decode(insn: u32, address: u64, ops: &mut Vec<Op>) -> DecodedInsn {
    let flow = match bits(insn, 25, 4) {
        0b1000 | 0b1001 => {
            immediate(insn, address, ops);
            None
        }
        0b1010 | 0b1011 => branch_or_system(insn, address, ops),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => {
            memory(insn, ops);
            None
        }
        0b0101 | 0b1101 => {
            register_data(insn, ops);
            None
        }
        0b0111 | 0b1111 => {
            vector_data(insn, ops);
            None
        }
        0b0010 => {
            scalable(insn, ops);
            None
        }
        // `udf`
        0b0000 if insn >> 16 == 0 => Some(Flow::Trap),
        _ => Some(Flow::Unknown),
    };
    DecodedInsn {
        length: 4,
        flow,
        is_padding: insn == NOP || flow == Some(Flow::Trap),
    }
}

/// A general register gets an unknown value; number 31 is none.
fn write(ops: &mut Vec<Op>, to: u8) {
    if to != ZERO_OR_SP {
        ops.push(Op::Unknown { to });
    }
}

/// A vector register gets an unknown value.
fn write_vector(ops: &mut Vec<Op>, number: u8) {
    ops.push(Op::Unknown { to: V0 + number });
}

/// Data processing with an immediate operand.
fn immediate(insn: u32, address: u64, ops: &mut Vec<Op>) {
    let (to, from) = (register(insn, 0), register(insn, 5));
    let is_wide = bits(insn, 31, 1) == 1;
    let value = u64::from(bits(insn, 5, 16)) << (16 * bits(insn, 21, 2));
    match bits(insn, 23, 3) {
        // `adr`, `adrp`
        0 | 1 => {
            let distance = signed(insn, 5, 19) << 2 | bits(insn, 29, 2).cast_signed();
            let value = if is_wide {
                (address & !0xfff).wrapping_add_signed(i64::from(distance) << 12)
            } else {
                address.wrapping_add_signed(distance.into())
            };
            if to != ZERO_OR_SP {
                ops.push(Op::Address { to, value });
            }
        }
        // `add`, `sub`; those that set flags have no stack pointer as result
        2 => {
            let sets_flags = bits(insn, 29, 1) == 1;
            let amount = (bits(insn, 10, 12) << (12 * bits(insn, 22, 1))).cast_signed();
            let bytes = if bits(insn, 30, 1) == 1 {
                -amount
            } else {
                amount
            };
            match to {
                ZERO_OR_SP if sets_flags => {}
                _ if is_wide => ops.push(Op::Add { to, from, bytes }),
                to => ops.push(Op::Unknown { to }),
            }
        }
        // With tags; logical, where only `ands` has no stack pointer as result
        3 | 4 => match to {
            ZERO_OR_SP if bits(insn, 23, 3) == 4 && bits(insn, 29, 2) == 3 => {}
            to => ops.push(Op::Unknown { to }),
        },
        // `movz`, `movn`
        5 if to != ZERO_OR_SP && matches!(bits(insn, 29, 2), 0 | 2) => {
            let value = match bits(insn, 29, 2) {
                2 => value,
                _ if is_wide => !value,
                _ => !value & 0xffff_ffff,
            };
            ops.push(Op::Constant { to, value });
        }
        // `movk`, bit fields, `extr`
        _ => write(ops, to),
    }
}

/// Branches, exceptions, and system instructions. Returns the control flow.
fn branch_or_system(insn: u32, address: u64, ops: &mut Vec<Op>) -> Option<Flow> {
    let branch = |to| {
        Some(Flow::Branch {
            to,
            condition: BranchCondition::None,
        })
    };
    match insn >> 24 {
        0x14..=0x17 => Some(Flow::Jump(relative(address, insn, 0, 26))),
        0x94..=0x97 => Some(Flow::Call(relative(address, insn, 0, 26))),
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => branch(relative(address, insn, 5, 19)),
        0x36 | 0x37 | 0xb6 | 0xb7 => branch(relative(address, insn, 5, 14)),
        0xd6 | 0xd7 => Some(register_branch(insn)),
        0xd4 => exception(insn, ops),
        0xd5 => {
            // `mrs`, `sysl`, and `mrrs`, which has a second register
            match insn >> 20 {
                0xd52 | 0xd53 => write(ops, register(insn, 0)),
                0xd57 => {
                    write(ops, register(insn, 0));
                    write(ops, register(insn, 0) | 1);
                }
                _ => {}
            }
            None
        }
        _ => Some(Flow::Unknown),
    }
}

fn register_branch(insn: u32) -> Flow {
    let to = register(insn, 5);
    match bits(insn, 21, 4) {
        0 | 8 => Flow::IndirectJump(to),
        1 | 9 => Flow::IndirectCall(to),
        2 => Flow::Return {
            // `retaa` and `retab` name none.
            to: ReturnTarget::Register(if to == ZERO_OR_SP { LINK } else { to }),
            pops: 0,
        },
        4 => Flow::Resume(ResumePoint::Elsewhere),
        _ => Flow::Unknown,
    }
}

fn exception(insn: u32, ops: &mut Vec<Op>) -> Option<Flow> {
    match (bits(insn, 21, 3), bits(insn, 0, 2)) {
        (0, 1) => {
            let number = is_svc(insn).then_some(SYSCALL_NUMBER);
            ops.extend([Op::SystemCall { number }, Op::Unknown { to: RESULT }]);
            None
        }
        // `hvc`, `smc`: SMC Calling Convention, 2.6
        (0, _) => {
            ops.extend((0..18).map(|to| Op::Unknown { to }));
            None
        }
        _ => Some(Flow::Trap),
    }
}

/// A register that memory is loaded to, or stored from.
#[derive(Clone, Copy)]
struct Access {
    is_load: bool,
    is_vector: bool,
    register: u8,
    /// The size in bytes, at most 16.
    size: u8,
}

impl Access {
    fn apply(self, base: u8, offset: i32, ops: &mut Vec<Op>) {
        let Access { register, size, .. } = self;
        let to = if self.is_vector {
            V0 + register
        } else {
            register
        };
        let has_value = self.is_vector || register != ZERO_OR_SP;
        match (self.is_load, size) {
            (true, 8 | 16) if has_value => ops.push(Op::Load { to, base, offset }),
            (true, _) if has_value => ops.push(Op::Unknown { to }),
            (true, _) => {}
            (false, 8) if has_value => ops.push(Op::Store {
                base,
                offset,
                from: to,
            }),
            (false, 16) => {
                let from = to;
                ops.push(Op::Store { base, offset, from });
                ops.push(Op::Overwrite {
                    base,
                    offset: offset + 8,
                    size: 8,
                });
            }
            (false, size) => ops.push(Op::Overwrite {
                base,
                offset,
                size: size.into(),
            }),
        }
    }
}

/// How an address is formed of a base register and an offset.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressing {
    Offset,
    PreIndexed,
    PostIndexed,
}

impl Addressing {
    /// Applies accesses, at these distances from the first, and the change of the base register.
    fn apply(self, base: u8, offset: i32, accesses: &[(Access, i32)], ops: &mut Vec<Op>) {
        let add = Op::Add {
            to: base,
            from: base,
            bytes: offset,
        };
        let first = match self {
            Addressing::Offset => offset,
            Addressing::PreIndexed => {
                ops.push(add);
                0
            }
            Addressing::PostIndexed => 0,
        };
        // A load that overwrites the base register comes last.
        let is_last = |access: &Access| access.is_load && access.register == base;
        for overwrites_base in [false, true] {
            for (access, distance) in accesses {
                if is_last(access) == overwrites_base {
                    access.apply(base, first + distance, ops);
                }
            }
        }
        if self == Addressing::PostIndexed {
            ops.push(add);
        }
    }
}

/// Loads and stores. A store at an address that is not a register plus a number writes no saved
/// register.
fn memory(insn: u32, ops: &mut Vec<Op>) {
    let is_vector = bits(insn, 26, 1) == 1;
    let base = register(insn, 5);
    match (bits(insn, 27, 3), bits(insn, 24, 2)) {
        (0b101, 0 | 1) => pair(insn, is_vector, base, ops),
        (0b111, 0 | 1) => single(insn, is_vector, base, ops),
        // Literals; `prfm` writes nothing.
        (0b011, 0) if is_vector => write_vector(ops, register(insn, 0)),
        (0b011, 0) if bits(insn, 30, 2) == 3 => {}
        (0b011, 0) => write(ops, register(insn, 0)),
        // One to four vector registers
        (0b001, _) if is_vector => {
            if bits(insn, 22, 1) == 1 {
                (0..4).for_each(|next| write_vector(ops, (register(insn, 0) + next) % 32));
            }
            if bits(insn, 23, 1) == 1 {
                ops.push(Op::Unknown { to: base });
            }
        }
        // Exclusive and ordered accesses; a status, or an old value in one or two registers
        (0b001, 0) => {
            if bits(insn, 22, 1) == 1 {
                write(ops, register(insn, 0));
                write(ops, register(insn, 10));
            }
            write(ops, register(insn, 16));
            write(ops, register(insn, 16) | 1);
        }
        // `ldapur`, `stlur`
        (0b011, 1) if bits(insn, 21, 1) == 0 && bits(insn, 10, 2) == 0 => {
            if bits(insn, 22, 2) != 0 {
                write(ops, register(insn, 0));
            }
        }
        // Memory tags, copies and fills
        _ => {
            write(ops, register(insn, 0));
            write(ops, register(insn, 16));
            ops.push(Op::Unknown { to: base });
        }
    }
}

/// Two registers.
fn pair(insn: u32, is_vector: bool, base: u8, ops: &mut Vec<Op>) {
    let is_load = bits(insn, 22, 1) == 1;
    let size = match (bits(insn, 30, 2), is_vector) {
        (opc, true) => 4 << opc,
        (2, false) => 8,
        // `stgp` stores two words behind a tag.
        (1, false) if !is_load => 16,
        _ => 4,
    };
    let addressing = match bits(insn, 23, 2) {
        1 => Addressing::PostIndexed,
        3 => Addressing::PreIndexed,
        _ => Addressing::Offset,
    };
    let is_tagged = !is_vector && size == 16;
    let access = |low| Access {
        is_load,
        is_vector,
        register: register(insn, low),
        size: if is_tagged { 8 } else { size },
    };
    let second = access(10);
    addressing.apply(
        base,
        signed(insn, 15, 7) * i32::from(size),
        &[(access(0), 0), (second, second.size.into())],
        ops,
    );
}

/// One register.
fn single(insn: u32, is_vector: bool, base: u8, ops: &mut Vec<Op>) {
    let opc = bits(insn, 22, 2);
    let log_size = match (is_vector, opc) {
        (true, 2 | 3) => 4,
        _ => bits(insn, 30, 2),
    };
    let access = Access {
        is_load: if is_vector { opc & 1 == 1 } else { opc != 0 },
        is_vector,
        register: register(insn, 0),
        // Fewer bytes are extended.
        size: 1 << log_size,
    };
    // `prfm` has no register.
    let is_hint = !is_vector && log_size == 3 && opc == 2;
    if bits(insn, 24, 1) == 1 {
        let offset = (bits(insn, 10, 12) << log_size).cast_signed();
        if !is_hint {
            Addressing::Offset.apply(base, offset, &[(access, 0)], ops);
        }
        return;
    }
    let is_indexed = bits(insn, 21, 1) == 1;
    let addressing = match bits(insn, 10, 2) {
        // Atomic operations return the old value, `ldraa` changes its base.
        0 | 1 | 3 if is_indexed => {
            write(ops, access.register);
            if bits(insn, 10, 2) == 3 {
                ops.push(Op::Unknown { to: base });
            }
            return;
        }
        // By a register
        2 if is_indexed => {
            if access.is_load && is_vector {
                write_vector(ops, access.register);
            } else if access.is_load && !is_hint {
                write(ops, access.register);
            }
            return;
        }
        1 => Addressing::PostIndexed,
        3 => Addressing::PreIndexed,
        _ if is_hint => return,
        _ => Addressing::Offset,
    };
    addressing.apply(base, signed(insn, 12, 9), &[(access, 0)], ops);
}

/// Data processing with registers.
fn register_data(insn: u32, ops: &mut Vec<Op>) {
    let to = register(insn, 0);
    // `mov`, which is `orr` with zero
    if insn & 0xffe0_ffe0 == 0xaa00_03e0 && to != ZERO_OR_SP {
        let from = register(insn, 16);
        return match from {
            ZERO_OR_SP => ops.push(Op::Constant { to, value: 0 }),
            from => ops.push(Op::Add { to, from, bytes: 0 }),
        };
    }
    // `add` and `sub` with an extended register may write the stack pointer; `ccmp` writes nothing.
    let is_extended = insn & 0x3fe0_0000 == 0x0b20_0000;
    let is_conditional_compare = insn & 0x1fe0_0000 == 0x1a40_0000;
    if is_extended && to == SP {
        ops.push(Op::Unknown { to });
    } else if !is_conditional_compare {
        write(ops, to);
    }
}

/// Data processing with vector registers. Conversions and moves of elements write general ones.
fn vector_data(insn: u32, ops: &mut Vec<Op>) {
    let to = register(insn, 0);
    let is_scalar = insn & 0x5f20_0000 == 0x1e20_0000;
    // `fcmp`, `fccmp`
    if is_scalar && (bits(insn, 10, 4) == 0b1000 || bits(insn, 10, 2) == 1) {
        return;
    }
    let is_conversion = is_scalar && bits(insn, 10, 6) == 0 || insn & 0x5f20_0000 == 0x1e00_0000;
    let is_moved_element = insn & 0xbfe0_ec00 == 0x0e00_2c00;
    if is_conversion || is_moved_element {
        write(ops, to);
    }
    if !is_moved_element {
        write_vector(ops, to);
    }
}

/// Scalable vectors: any of them may write a general register, too. `addvl` and `addpl` may write
/// the stack pointer.
fn scalable(insn: u32, ops: &mut Vec<Op>) {
    let to = register(insn, 0);
    if insn & 0xffa0_f800 == 0x0420_5000 {
        ops.push(Op::Unknown { to });
    } else {
        write(ops, to);
        write_vector(ops, to);
    }
}
