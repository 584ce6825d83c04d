//! A program whose panics unwind by this crate:
//! `cargo run -p unspool-exceptions --features panics --example own_panics`. Its `Cargo.toml` needs
//!
//! ```toml
//! [dependencies]
//! unspool-exceptions = { version = "0.1", features = ["panics"] }
//! ```
#![allow(clippy::print_stdout, clippy::panic, unsafe_code, reason = "a program")]

use std::backtrace::Backtrace;
use std::panic::catch_unwind;

// Without a use, rustc does not link it.
use unspool_exceptions::sys::phases::raise_exception;

unsafe extern "C-unwind" {
    fn _Unwind_RaiseException();
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        println!("dropped");
    }
}

#[inline(never)]
fn deep(levels: u32) -> u32 {
    let _guard = Guard;
    match levels {
        0 => panic!("deep"),
        _ => deep(levels - 1) + 1,
    }
}

fn main() {
    let symbol = _Unwind_RaiseException as *const ();
    println!("own unwinder: {}", symbol == raise_exception as *const ());
    println!("caught: {}", catch_unwind(|| deep(2)).is_err());
    let backtrace = Backtrace::force_capture().to_string();
    println!("main in backtrace: {}", backtrace.contains("own_panics.rs"));
}
