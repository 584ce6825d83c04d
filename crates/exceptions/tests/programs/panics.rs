//! Panics COUNT times through DEPTH frames and catches. Usage: panics KIND DEPTH COUNT

use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Frames without a landing pad.
#[inline(never)]
fn plain(depth: u32) -> u32 {
    if depth == 0 {
        resume_unwind(Box::new(1_u32));
    }
    black_box(plain(depth - 1)) + 1
}

/// Each frame drops something.
#[inline(never)]
fn destructors(depth: u32) -> u32 {
    let _guard = Guard;
    if depth == 0 {
        resume_unwind(Box::new(1_u32));
    }
    black_box(destructors(depth - 1)) + 1
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments[at].parse::<u32>().unwrap();
    let function = if arguments[1] == "plain" { plain } else { destructors };
    let (depth, mut caught) = (number(2), 0);
    for _ in 0..number(3) {
        let result = catch_unwind(|| function(depth));
        caught += result.unwrap_err().downcast_ref::<u32>().copied().unwrap();
    }
    println!("caught {caught}, dropped {}", DROPPED.load(Ordering::Relaxed));
}
