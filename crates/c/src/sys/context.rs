//! The registers of C functions that call.

use core::ffi::c_void;

use unspool_ir::{CodeAddr, Register, RuntimeAddr};
use unspool_unwind::local::{ABI, Interrupted};
use unspool_unwind::{Cursor, Top};

use crate::frame::{self, Frame, Place, REGISTERS};

/// The preserved registers of a caller, as [`call_with_saved`] stores them.
#[repr(C)]
pub(super) struct Saved {
    /// `rbx`, `rbp`, `r12` to `r15`, `rsp` after the return, the return address.
    words: [u64; 8],
}

/// The DWARF numbers of [`Saved`].
const NUMBERS: [u16; 8] = [3, 6, 12, 13, 14, 15, 7, 16];

impl Saved {
    fn frame_of_caller(&self) -> CodeAddr {
        CodeAddr::Return(RuntimeAddr(self.words[7]))
    }

    /// The caller, as a walk begins with it.
    pub(super) fn frame(&self) -> Frame {
        let registers = frame::registers(NUMBERS.into_iter().zip(self.words));
        let cursor = Cursor::at(ABI, self.frame_of_caller(), registers);
        let mut places = [Place::Lost; REGISTERS as usize];
        for (number, place) in (0..).zip(&mut places) {
            if NUMBERS.contains(&number) {
                *place = Place::Register;
            }
        }
        Frame::new(cursor, places)
    }
}

impl Top for Saved {
    fn code(&self) -> CodeAddr {
        self.frame_of_caller()
    }

    fn stack_pointer(&self) -> u64 {
        self.words[6]
    }

    fn frame_pointer(&self) -> u64 {
        self.words[1]
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        NUMBERS.into_iter().map(Register).zip(self.words)
    }
}

/// The frame that a signal has interrupted, with its registers where the kernel stored them.
pub(super) fn interrupted(context: &libc::ucontext_t) -> Frame {
    let values = Interrupted::from(context).0;
    let registers = frame::registers((0..).zip(values));
    let code = CodeAddr::Instruction(RuntimeAddr(values[16]));
    let stored = core::ptr::from_ref(&context.uc_mcontext.gregs).addr() as u64;
    let places = Interrupted::IN_CONTEXT
        .map(|at| Place::Memory(RuntimeAddr(stored.wrapping_add_signed(8 * i64::from(at)))));
    Frame::new(Cursor::at(ABI, code, registers), places)
}

/// A context that a handler was given.
///
/// # Safety
///
/// The pointer is the third argument of a handler that has not returned.
pub(super) unsafe fn context<'c>(pointer: *const c_void) -> &'c libc::ucontext_t {
    // SAFETY: as the caller promises.
    unsafe { &*pointer.cast::<libc::ucontext_t>() }
}

/// The body of a naked function that calls `$function` with its own arguments and, in
/// `$argument`, the [`Saved`] of its caller.
macro_rules! call_with_saved {
    ($argument:literal, $function:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 72",
            ".cfi_adjust_cfa_offset 72",
            "mov [rsp], rbx",
            "mov [rsp + 8], rbp",
            "mov [rsp + 16], r12",
            "mov [rsp + 24], r13",
            "mov [rsp + 32], r14",
            "mov [rsp + 40], r15",
            "lea rax, [rsp + 80]",
            "mov [rsp + 48], rax",
            "mov rax, [rsp + 72]",
            "mov [rsp + 56], rax",
            concat!("mov ", $argument, ", rsp"),
            "call {function}",
            "add rsp, 72",
            ".cfi_adjust_cfa_offset -72",
            "ret",
            ".cfi_endproc",
            function = sym $function,
        )
    };
}
pub(super) use call_with_saved;
