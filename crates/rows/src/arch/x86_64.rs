//! x86-64, System V psABI.
//!
//! `call` pushes the return address, so at a function's first instruction the CFA is `rsp+8` and
//! the return address is at `cfa-8`. The return-address column, 16, is not a machine register; the
//! slot holds the frame's `rip`. A call preserves six registers. Numbers: psABI, "DWARF Register
//! Number Mapping". The kernel's signal record is a `ucontext_t` (asm/sigcontext.h).

use super::{AddressSize, ArchSpec, SignalRecord};
use crate::register::Register;

pub(super) static SPEC: ArchSpec = ArchSpec {
    name: "x86-64",
    address_size: AddressSize::W64,
    names: &[
        (0, "rax"),
        (1, "rdx"),
        (2, "rcx"),
        (3, "rbx"),
        (4, "rsi"),
        (5, "rdi"),
        (6, "rbp"),
        (7, "rsp"),
        (8, "r8"),
        (9, "r9"),
        (10, "r10"),
        (11, "r11"),
        (12, "r12"),
        (13, "r13"),
        (14, "r14"),
        (15, "r15"),
        (16, "ra"),
        (16, "rip"),
        (17, "xmm0"),
        (18, "xmm1"),
        (19, "xmm2"),
        (20, "xmm3"),
        (21, "xmm4"),
        (22, "xmm5"),
        (23, "xmm6"),
        (24, "xmm7"),
        (25, "xmm8"),
        (26, "xmm9"),
        (27, "xmm10"),
        (28, "xmm11"),
        (29, "xmm12"),
        (30, "xmm13"),
        (31, "xmm14"),
        (32, "xmm15"),
        (49, "rflags"),
        (58, "fs.base"),
        (59, "gs.base"),
        (64, "mxcsr"),
        (65, "fcw"),
    ],
    register_sign: "%",
    stack_pointer: Register(7),
    frame_pointer: Some(Register(6)),
    pc: Register(16),
    return_address: Register(16),
    ra_sign_state: None,
    thread_pointer: Some(Register(58)),
    mode_bits: 0,
    preserved: &[3, 6, 12, 13, 14, 15],
    signal_record: Some(&SignalRecord {
        above_stack_pointer: 0,
        offsets: &[
            144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
        ],
        trampolines: &[MOV_RAX_SYSCALL, MOV_EAX_SYSCALL],
        stack_pointer: Register(7),
    }),
};

/// `mov $15, %rax; syscall`: `rt_sigreturn`, as C libraries write it.
const MOV_RAX_SYSCALL: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// `mov $15, %eax; syscall`: the same, as optimizing assemblers write it.
const MOV_EAX_SYSCALL: &[u8] = &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
