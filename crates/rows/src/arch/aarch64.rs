//! AArch64, AAPCS64.
//!
//! `bl` leaves the return address in `x30`, the return-address column. A leaf has no rule for it,
//! and the value is still in the register. `x30` may be signed (PAuth). The row's
//! [`crate::RaState`] says whether it is; AArch64's own call frame instructions set it. A rule for
//! the pseudo-register 34, `RA_SIGN_STATE`, can also say so. The slot of the frame's own code
//! address is 32, "PC" in AADWARF64. A call preserves `d8`–`d15` (72–79) and the size of SVE's
//! vectors (46), by AADWARF64 ("Common information entries"). `x29` is the frame pointer (AAPCS64
//! §6.4.6). The kernel's signal record is a `ucontext_t` behind a `siginfo_t` (asm/sigcontext.h);
//! its trampoline, in the vDSO, has no table.

use super::{AddressSize, ArchSpec, SignalRecord};
use crate::register::Register;

pub(super) static SPEC: ArchSpec = ArchSpec {
    name: "aarch64",
    address_size: AddressSize::W64,
    names: &[
        (0, "x0"),
        (1, "x1"),
        (2, "x2"),
        (3, "x3"),
        (4, "x4"),
        (5, "x5"),
        (6, "x6"),
        (7, "x7"),
        (8, "x8"),
        (9, "x9"),
        (10, "x10"),
        (11, "x11"),
        (12, "x12"),
        (13, "x13"),
        (14, "x14"),
        (15, "x15"),
        (16, "x16"),
        (17, "x17"),
        (18, "x18"),
        (19, "x19"),
        (20, "x20"),
        (21, "x21"),
        (22, "x22"),
        (23, "x23"),
        (24, "x24"),
        (25, "x25"),
        (26, "x26"),
        (27, "x27"),
        (28, "x28"),
        (29, "x29"),
        (30, "x30"),
        (30, "lr"),
        (31, "sp"),
        (32, "pc"),
        (34, "ra_sign_state"),
        (46, "vg"),
        (64, "v0"),
        (65, "v1"),
        (66, "v2"),
        (67, "v3"),
        (68, "v4"),
        (69, "v5"),
        (70, "v6"),
        (71, "v7"),
        (72, "v8"),
        (73, "v9"),
        (74, "v10"),
        (75, "v11"),
        (76, "v12"),
        (77, "v13"),
        (78, "v14"),
        (79, "v15"),
        (80, "v16"),
        (81, "v17"),
        (82, "v18"),
        (83, "v19"),
        (84, "v20"),
        (85, "v21"),
        (86, "v22"),
        (87, "v23"),
        (88, "v24"),
        (89, "v25"),
        (90, "v26"),
        (91, "v27"),
        (92, "v28"),
        (93, "v29"),
        (94, "v30"),
        (95, "v31"),
    ],
    register_sign: "",
    stack_pointer: Register(31),
    frame_pointer: Some(Register(29)),
    pc: Register(32),
    return_address: Register(30),
    ra_sign_state: Some(Register(34)),
    thread_pointer: None,
    mode_bits: 0,
    preserved: &[
        19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 46, 72, 73, 74, 75, 76, 77, 78, 79,
    ],
    signal_record: Some(&SignalRecord {
        // Behind a `siginfo_t`.
        above_stack_pointer: 128,
        offsets: &[
            184, 192, 200, 208, 216, 224, 232, 240, 248, 256, 264, 272, 280, 288, 296, 304, 312,
            320, 328, 336, 344, 352, 360, 368, 376, 384, 392, 400, 408, 416, 424, 432, 440,
        ],
        trampolines: &[MOV_X8_SVC],
        stack_pointer: Register(31),
    }),
};

/// `mov x8, #139; svc #0`: `rt_sigreturn`, as the kernel's vDSO and C libraries write it.
const MOV_X8_SVC: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
