//! The stack of the own thread, from Rust: `cargo run -p unspool-unwind --example own_stack`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_rows::RuntimeAddr;
use unspool_unwind::local;

#[inline(never)]
fn print_stack() {
    let mut addresses = [RuntimeAddr(0); 64];
    let walk = local::walk(&mut addresses);
    for address in addresses.iter().take(walk.frames) {
        let module = local::modules().loaded(*address);
        let vaddr = module.map(|module| module.bias.to_vaddr(*address));
        match vaddr {
            Some(vaddr) => println!("{:#018x} at {:#x} of its file", address.0, vaddr.0),
            None => println!("{:#018x}", address.0),
        }
    }
    println!("{}, {} guessed", walk.end, walk.guesses);
}

#[inline(never)]
fn outer(depth: u32) {
    match depth {
        0 => print_stack(),
        _ => outer(std::hint::black_box(depth - 1)),
    }
    std::hint::black_box(depth);
}

fn main() -> Result<(), local::PrepareError> {
    // Optional: makes walks of this thread faster.
    local::prepare_thread()?;
    outer(3);
    Ok(())
}
