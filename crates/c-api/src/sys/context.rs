//! Frames of the own process, as starts of walks.

use core::ffi::c_void;

use unspool_rows::{CodeAddr, Register, Registers, RuntimeAddr};
use unspool_unwind::local::caller_registers::CallerRegisters;
use unspool_unwind::local::{ABI, OwnCursor, OwnRegisterLocation, RegisterLocationArray};
use unspool_unwind::{Cursor, InnermostFrame};

/// The caller of a C function, as the start of a walk.
pub(super) struct CallerContext<'r>(pub(super) &'r CallerRegisters);

impl CallerContext<'_> {
    pub(super) fn cursor(&self) -> OwnCursor {
        let mut registers = Registers::new();
        let mut locations: RegisterLocationArray = [OwnRegisterLocation::Unrecoverable; 17];
        for (number, value) in CallerRegisters::NUMBERS.into_iter().zip(self.0.values()) {
            registers.set(Register(number), value);
            if let Some(place) = locations.get_mut(usize::from(number)) {
                *place = OwnRegisterLocation::SameRegister;
            }
        }
        OwnCursor::new(Cursor::with_code(ABI, self.code(), registers), locations)
    }
}

/// The registers of a frame that is at a call, if all of them are known. The shadow stack's pointer is
/// not among them.
pub(super) fn caller_registers(frame: &OwnCursor) -> Option<CallerRegisters> {
    let is_called = matches!(frame.code(), CodeAddr::Return(_));
    let mut values = [0; 8];
    for (number, value) in CallerRegisters::NUMBERS.into_iter().zip(&mut values) {
        *value = frame.register(number).filter(|_| is_called)?;
    }
    let [preserved @ .., stack_pointer, code] = values;
    Some(CallerRegisters {
        preserved,
        stack_pointer,
        code,
        shadow_stack_pointer: 0,
    })
}

impl InnermostFrame for CallerContext<'_> {
    fn code(&self) -> CodeAddr {
        CodeAddr::Return(RuntimeAddr(self.0.code))
    }

    fn stack_pointer(&self) -> u64 {
        self.0.stack_pointer
    }

    fn frame_pointer(&self) -> u64 {
        let [_, frame_pointer, ..] = self.0.preserved;
        frame_pointer
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        let numbers = CallerRegisters::NUMBERS.into_iter().map(Register);
        numbers.zip(self.0.values())
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
