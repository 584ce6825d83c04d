//! The memory of frames to step from.

use unspool_rows::{Memory, Register, Registers, RuntimeAddr, Unreadable};

use crate::random::CaseRandom;

/// A stack, and far memory whose bytes follow from their addresses: some steppers read the stack
/// directly, and all else through a callback. There is nothing elsewhere.
#[derive(Debug, Clone)]
pub struct CaseMemory {
    /// The bytes from [`CaseMemory::STACK`] on.
    pub stack: Vec<u8>,
}

impl CaseMemory {
    /// The stack's first address.
    pub const STACK: u64 = 0x6000_0000_0000;
    /// Its size.
    pub const STACK_BYTES: u64 = 0x1_0000;
    /// The first address of far memory.
    pub const FAR: u64 = 0x70_0000_0000;
    /// Its size.
    pub const FAR_BYTES: u64 = 0x1_0000;

    /// A stack of random words, half of which lead to it.
    pub fn new(random: &mut CaseRandom) -> CaseMemory {
        let words = (0..CaseMemory::STACK_BYTES / 8).map(|_| value(random).to_le_bytes());
        CaseMemory {
            stack: words.flatten().collect(),
        }
    }

    /// The byte of far memory at an address.
    fn far_byte(address: u64) -> u8 {
        (address.wrapping_mul(167) >> 3).to_le_bytes()[0]
    }
}

impl Memory for CaseMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let size = into.len() as u64;
        let within = |start: u64, len: u64| {
            let distance = addr.0.checked_sub(start)?;
            (distance < len && len - distance >= size).then_some(distance)
        };
        if let Some(distance) = within(CaseMemory::STACK, CaseMemory::STACK_BYTES) {
            let at = usize::try_from(distance).unwrap();
            into.copy_from_slice(&self.stack[at..at + into.len()]);
            return Ok(());
        }
        within(CaseMemory::FAR, CaseMemory::FAR_BYTES).ok_or(Unreadable::unmapped(addr))?;
        for (byte, address) in into.iter_mut().zip(addr.0..) {
            *byte = CaseMemory::far_byte(address);
        }
        Ok(())
    }
}

/// A value for a register or a word of memory: an address of the stack or of far memory, also near
/// their ends; a small number; or any.
pub fn value(random: &mut CaseRandom) -> u64 {
    let number = random.number() >> 8;
    match random.number() % 8 {
        0..=3 => CaseMemory::STACK + number % CaseMemory::STACK_BYTES,
        4 => CaseMemory::STACK + CaseMemory::STACK_BYTES - number % 64,
        5 => CaseMemory::FAR + number % CaseMemory::FAR_BYTES,
        6 => number % 70,
        _ => random.number(),
    }
}

/// The first `count` registers of a frame: most are known.
pub fn registers(random: &mut CaseRandom, count: u16) -> Registers {
    let mut registers = Registers::new();
    for number in 0..count {
        let value = value(random);
        if !random.number().is_multiple_of(16) {
            registers.set(Register(number), value);
        }
    }
    registers
}
