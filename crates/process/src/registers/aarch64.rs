//! AArch64: `struct user_pt_regs` of `arch/arm64/include/uapi/asm/ptrace.h`: `x0` to `x30`,
//! `sp`, `pc`, `pstate`, 34 words. The words up to `pc` are in the order of their DWARF
//! numbers; `pstate` has none.
//!
//! Return addresses may be signed (PAuth); `NT_ARM_PAC_MASK` gives the signature's bits. The number
//! of the current system call is not in this block. `NT_ARM_SYSTEM_CALL` does not have it either
//! once the kernel has prepared to repeat the call, which it does before a debugger or a core file
//! sees the thread.

use unspool_rows::Register;

use super::{RegisterLayout, SyscallSource, VectorLayout};

pub(super) static LAYOUT: RegisterLayout = RegisterLayout {
    size: 34 * 8,
    words: &[
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
        (5, 5),
        (6, 6),
        (7, 7),
        (8, 8),
        (9, 9),
        (10, 10),
        (11, 11),
        (12, 12),
        (13, 13),
        (14, 14),
        (15, 15),
        (16, 16),
        (17, 17),
        (18, 18),
        (19, 19),
        (20, 20),
        (21, 21),
        (22, 22),
        (23, 23),
        (24, 24),
        (25, 25),
        (26, 26),
        (27, 27),
        (28, 28),
        (29, 29),
        (30, 30),
        (31, 31),
        (32, 32),
    ],
    pc: Register(32),
    // `svc #0`, and x8.
    syscall: SyscallSource::Instruction([0x01, 0, 0, 0xd4], Register(8)),
    futex: 98,
    arguments: [Register(0), Register(1)],
    vectors: VectorLayout {
        offset: 0,
        first: 64,
        count: 32,
    },
    has_pac_mask: true,
    has_scalable_vectors: true,
};
