//! What a row of an unwind table means: `cargo run -p unspool-rows --example caller`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{LoadBias, Memory, Register, Registers, RuntimeAddr, Unreadable, text};

/// The stack of [`text::EXAMPLE`]: 8-byte words from this address on.
struct Stack(u64, [u64; 5]);

impl Memory for Stack {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let bytes: Vec<u8> = self.1.iter().flat_map(|word| word.to_le_bytes()).collect();
        let offset = usize::try_from(addr.0.wrapping_sub(self.0));
        let found = offset
            .ok()
            .and_then(|offset| bytes.get(offset..)?.get(..into.len()));
        let reason = UnreadableReason::Unmapped;
        into.copy_from_slice(found.ok_or(Unreadable { addr, reason })?);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let table = text::parse(text::EXAMPLE)?;
    let entry = table.fdes().first().ok_or("no entry")?;
    let second = table.rows(entry).nth(1).ok_or("no second row")?;
    let row = table.row(second.row).ok_or("no such row")?;

    let mut registers = Registers::new();
    registers.set(Register(7), 0x7000); // rsp
    let caller = interpret::step(
        &row,
        &FrameContext {
            abi: table.abi(),
            registers: &registers,
            // Two variables, the caller's rbp, the return address, and the caller's own stack.
            memory: &Stack(0x7000, [1, 2, 0x7f00, 0x2042, 3]),
            bias: LoadBias(0),
            pac_mask: 0,
        },
    )?;
    let address = caller.return_address.ok_or("the outermost frame")?;
    let rbp = caller.registers.get(Register(6)).ok_or("unknown")?;
    println!("return to {address}, CFA {}, rbp {rbp:#x}", caller.cfa);
    Ok(())
}
