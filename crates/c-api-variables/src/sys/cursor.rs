//! A frame found by `libunspool.so.0`.

use core::arch::asm;
use core::ffi::{c_int, c_void};

use unspool_rows::{CodeAddr, Register, Registers, RuntimeAddr};

use crate::report::StartFrame;

/// `unspool_cursor`, opaque here.
#[repr(C)]
pub struct CCursor {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn unspool_address(cursor: *const CCursor) -> *mut c_void;
    fn unspool_is_return_address(cursor: *const CCursor) -> c_int;
    fn unspool_get_register(cursor: *const CCursor, number: c_int, value: *mut u64) -> c_int;
}

/// `rax` to `r15` in DWARF's order; the instruction pointer follows.
const REGISTERS: u16 = 16;

/// `rip`, and `fs.base`: a thread's own storage is below it.
const RIP: Register = Register(16);
const FS_BASE: Register = Register(58);

/// The frame of a cursor.
///
/// # Safety
///
/// The cursor was filled in by the calling thread, and its frame has not returned.
pub(super) unsafe fn frame(cursor: *const CCursor) -> StartFrame {
    // SAFETY: the caller's promise.
    let address = unsafe { unspool_address(cursor) };
    let address = RuntimeAddr(address.addr() as u64);
    // SAFETY: the caller's promise.
    let code = match unsafe { unspool_is_return_address(cursor) } {
        0 => CodeAddr::Instruction(address),
        _ => CodeAddr::Return(address),
    };
    let mut registers = Registers::new();
    for number in 0..REGISTERS {
        let mut value = 0;
        // SAFETY: the caller's promise; the value can be written.
        let known = unsafe { unspool_get_register(cursor, number.into(), &raw mut value) };
        if known == 0 {
            registers.set(Register(number), value);
        }
    }
    registers.set(RIP, address.0);
    registers.set(FS_BASE, thread_pointer());
    StartFrame { code, registers }
}

/// The thread pointer: its first word is its own address (ELF Handling For Thread-Local Storage,
/// §3.4.6).
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reads a word that the ABI guarantees in every thread.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}
