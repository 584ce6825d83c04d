//! i386, System V psABI.
//!
//! As on x86-64, the return address is on the stack (`cfa-4`). Its column, 8, is not a machine
//! register; the slot holds the frame's `eip`. In `.eh_frame` on Darwin `esp` and `ebp` swap
//! numbers; on Linux they do not.

use super::{AddressSize, ArchSpec};
use crate::register::Register;

pub(super) static SPEC: ArchSpec = ArchSpec {
    name: "i386",
    address_size: AddressSize::W32,
    names: &[
        (0, "eax"),
        (1, "ecx"),
        (2, "edx"),
        (3, "ebx"),
        (4, "esp"),
        (5, "ebp"),
        (6, "esi"),
        (7, "edi"),
        (8, "ra"),
        (8, "eip"),
        (9, "eflags"),
        (11, "st0"),
        (12, "st1"),
        (13, "st2"),
        (14, "st3"),
        (15, "st4"),
        (16, "st5"),
        (17, "st6"),
        (18, "st7"),
        (21, "xmm0"),
        (22, "xmm1"),
        (23, "xmm2"),
        (24, "xmm3"),
        (25, "xmm4"),
        (26, "xmm5"),
        (27, "xmm6"),
        (28, "xmm7"),
        (39, "mxcsr"),
    ],
    register_sign: "%",
    stack_pointer: Register(4),
    frame_pointer: None,
    pc: Register(8),
    return_address: Register(8),
    ra_sign_state: None,
    thread_pointer: None,
    mode_bits: 0,
    preserved: &[3, 5, 6, 7],
    signal_record: None,
};
