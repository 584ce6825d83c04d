//! The registers of callers of C functions.

use core::arch::naked_asm;
use core::ffi::c_void;

use unspool_rows::{CodeAddr, Register, Registers, RuntimeAddr};
use unspool_unwind::local::{ABI, OwnCursor, OwnRegisterLocation, RegisterLocationArray};
use unspool_unwind::{Cursor, InnermostFrame};

/// The preserved registers of a caller, stored by [`call_with_caller_context`].
#[repr(C)]
pub(super) struct CallerContext {
    /// `rbx`, `rbp`, `r12` to `r15`, `rsp` after the return, the return address.
    words: [u64; 8],
}

/// The DWARF numbers of the words of [`CallerContext`].
const NUMBERS: [u16; 8] = [3, 6, 12, 13, 14, 15, 7, 16];

impl CallerContext {
    /// The registers of a frame that is at a call, if all of them are known.
    pub(super) fn from_frame(frame: &OwnCursor) -> Option<CallerContext> {
        let is_called = matches!(frame.code(), CodeAddr::Return(_));
        let mut words = [0; 8];
        for (number, word) in NUMBERS.into_iter().zip(&mut words) {
            *word = frame.register(number).filter(|_| is_called)?;
        }
        Some(CallerContext { words })
    }

    /// The caller, as the start of a walk.
    pub(super) fn cursor(&self) -> OwnCursor {
        let mut registers = Registers::new();
        let mut locations: RegisterLocationArray = [OwnRegisterLocation::Unrecoverable; 17];
        for (number, value) in NUMBERS.into_iter().zip(self.words) {
            registers.set(Register(number), value);
            if let Some(place) = locations.get_mut(usize::from(number)) {
                *place = OwnRegisterLocation::SameRegister;
            }
        }
        OwnCursor::new(Cursor::with_code(ABI, self.code(), registers), locations)
    }
}

impl InnermostFrame for CallerContext {
    fn code(&self) -> CodeAddr {
        CodeAddr::Return(RuntimeAddr(self.words[7]))
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

/// The context argument of a handler.
///
/// # Safety
///
/// The pointer is the third argument of a handler that has not returned.
pub(super) unsafe fn context<'c>(pointer: *const c_void) -> &'c libc::ucontext_t {
    // SAFETY: as the caller promises.
    unsafe { &*pointer.cast::<libc::ucontext_t>() }
}

/// Returns a result to a function further out.
///
/// # Safety
///
/// The function is further out on this thread's stack and has not returned.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter(context: &CallerContext, result: u64) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rax, rsi",
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rcx, [rdi + 56]",
        "mov rsp, [rdi + 48]",
        "jmp rcx",
        ".cfi_endproc",
    )
}

/// The body of a naked function that calls `$function` with its own arguments and, in
/// `$argument`, the [`CallerContext`] of its caller.
macro_rules! call_with_caller_context {
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
pub(super) use call_with_caller_context;
