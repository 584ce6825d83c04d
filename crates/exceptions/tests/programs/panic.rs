//! Caught panics, in the main thread and another; prints the results.

use std::backtrace::Backtrace;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};

struct Noisy(u32);

impl Drop for Noisy {
    fn drop(&mut self) {
        println!("dropped {}", self.0);
    }
}

#[inline(never)]
fn deep(depth: u32) -> u32 {
    let noisy = Noisy(depth);
    assert!(depth != 0, "deep");
    deep(depth - 1) + noisy.0
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let caught = catch_unwind(|| deep(3)).unwrap_err();
    println!("{:?}", caught.downcast_ref::<&str>());
    let again = catch_unwind(AssertUnwindSafe(|| resume_unwind(caught))).unwrap_err();
    println!("{:?}", again.downcast_ref::<&str>());
    let joined = std::thread::spawn(|| deep(2)).join();
    println!("{}", joined.is_err());
    let trace = Backtrace::force_capture().to_string();
    println!("{}", trace.contains("panic::main"));
}
