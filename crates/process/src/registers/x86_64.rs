//! x86-64: `struct user_regs_struct` of `arch/x86/include/asm/user_64.h`, 27 words.
//!
//! `orig_rax` (word 15) has the number of the thread's current system call, or -1 outside one.
//! Segment registers are left out: unwinding does not use them. But the bases of `fs` and `gs` do
//! appear in expressions of thread-local storage.

use unspool_rows::Register;

use super::{RegisterLayout, SyscallSource, VectorLayout};

pub(super) static LAYOUT: RegisterLayout = RegisterLayout {
    size: 27 * 8,
    words: &[
        (0, 15),
        (1, 14),
        (2, 13),
        (3, 12),
        (4, 6),
        (5, 3),
        (6, 11),
        (7, 10),
        (8, 9),
        (9, 8),
        (10, 0),
        (11, 2),
        (12, 1),
        (13, 4),
        (14, 5),
        (16, 16),
        (18, 49),
        (19, 7),
        (21, 58),
        (22, 59),
    ],
    pc: Register(16),
    syscall: SyscallSource::Word(15),
    futex: 202,
    // rdi and rsi.
    arguments: [Register(5), Register(4)],
    vectors: VectorLayout {
        offset: 160,
        first: 17,
        count: 16,
    },
    has_pac_mask: false,
    has_scalable_vectors: false,
};
