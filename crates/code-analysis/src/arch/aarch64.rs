//! AArch64, as far as the end of a function needs it.
//!
//! Instructions have 4 bytes, and their fields are regular: the register that is written is in the
//! same place in nearly all. So moves of stack addresses and of saved registers have exact
//! operations (`decode.rs`), and for all others the written registers follow from the class of the
//! encoding. Vector registers have their DWARF numbers, from 64 on, and stand for their low 8 bytes,
//! which calls preserve in `v8` to `v15`.
//!
//! `bl` leaves the return address in `x30`. Instructions that sign or check it do not count as
//! changes.

use super::AbiInfo;

pub(super) mod decode;
pub(super) mod result_test;

/// The first vector register.
const V0: u8 = 64;

/// AAPCS64, "General-purpose registers" and "SIMD and Floating-Point registers".
pub(crate) static AAPCS64_ABI: AbiInfo = AbiInfo {
    stack_pointer: 31,
    return_address: 30,
    machine_registers: 31,
    result: 0,
    max_insn_bytes: 4,
    preserved: &[
        19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 72, 73, 74, 75, 76, 77, 78, 79,
    ],
    // x0 to x18, x30
    clobbered: 0x4007_ffff,
    arguments: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_registers: V0..V0 + 32,
    vector_arguments: V0..V0 + 8,
    frame_pointer: 29,
    call_pushes: 0,
    // clone, clone3
    stack_switching_syscalls: &[220, 435],
    clone_syscall: 220,
    // CLONE_VM
    share_memory_flag: 0x100,
    stack_sharing_syscalls: &[],
    // exit, exit_group, rt_sigreturn
    noreturn_syscalls: &[93, 94, 139],
    fixed_xsave_area: (0, 0),
    red_zone: 0,
    idle_prefixes: &[],
    // brk #0
    breakpoint: &[0x00, 0x00, 0x20, 0xd4],
    speculation_barriers: &[],
    // mov x8, #139; svc #0: rt_sigreturn.
    sigreturn_code: &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4],
};
