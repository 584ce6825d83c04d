//! The stack of the own thread: `cargo run -p unspool-unwind --example own_stack`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_unwind::local::{self, RuntimeAddr};

fn print_stack() {
    let mut addresses = [RuntimeAddr(0); 64];
    let walk = local::walk(&mut addresses);
    for address in addresses.iter().take(walk.frames) {
        match local::modules().loaded(*address) {
            Some(module) => println!(
                "{address:#018x} at {} of its file",
                module.bias.to_vaddr(*address)
            ),
            None => println!("{address:#018x}"),
        }
    }
    println!("{}, {} guessed", walk.end, walk.guesses);
}

fn main() -> Result<(), local::PrepareError> {
    // Optional: makes walks of this thread faster.
    local::prepare_thread()?;
    print_stack();
    Ok(())
}
