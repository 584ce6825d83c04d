//! Where the registers of a frame are.

use crate::abi::Error;

/// Registers with lower numbers are kept: rax to r15, and rip.
pub const REGISTERS: u16 = 17;

/// The registers that a call preserves, but for the stack pointer (psABI, "Registers and the Stack
/// Frame"), as bits: rbx, rbp, r12 to r15.
pub const PRESERVED: u32 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

const RETURN_ADDRESS: u32 = 1 << 16;

/// Where a function saved the preserved registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Bits of those that it saved.
    pub set: u32,
    /// Where each of [`PRESERVED`] is from the CFA, in bytes; zero for those that it did not save.
    pub offsets: [i32; 6],
}

const COUNT: usize = REGISTERS as usize;

/// Where a register of a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In this register of the innermost frame, which the client has.
    Register(u16),
    /// At this address in the target's memory.
    Memory(u64),
    /// Nowhere: this is its value.
    Value(u64),
    /// Nowhere: it is not known.
    Lost,
}

/// The places of all registers: what kind they are by a bit each, so that a step changes the kind
/// of many at once.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// Bits of those in registers.
    in_register: u32,
    /// Bits of those in memory, whatever the other two say.
    in_memory: u32,
    /// Bits of those that are values. Those without any bit are lost.
    is_value: u32,
    /// Numbers of registers, addresses and values.
    words: [u64; COUNT],
}

impl Places {
    /// The innermost frame's: every register in itself.
    #[must_use]
    pub fn innermost() -> Places {
        let mut words = [0; COUNT];
        for (word, number) in words.iter_mut().zip(0..) {
            *word = number;
        }
        Places {
            in_register: (1 << REGISTERS) - 1,
            in_memory: 0,
            is_value: 0,
            words,
        }
    }

    /// The innermost frame's, where its registers were stored: every register at the address that
    /// `address` says.
    pub fn stored(address: impl Fn(u16) -> u64) -> Places {
        let mut words = [0; COUNT];
        for (word, number) in words.iter_mut().zip(0..) {
            *word = address(number);
        }
        Places {
            in_register: 0,
            in_memory: (1 << REGISTERS) - 1,
            is_value: 0,
            words,
        }
    }

    /// Where a register is.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_REGISTER`] where there is none of this number.
    #[inline]
    pub fn get(&self, register: u16) -> Result<Place, Error> {
        let word = self.words.get(usize::from(register));
        let word = *word.ok_or(Error::BAD_REGISTER)?;
        let bit = 1 << register;
        Ok(if self.in_memory & bit != 0 {
            Place::Memory(word)
        } else if self.in_register & bit != 0 {
            Place::Register(u16::try_from(word).unwrap_or(REGISTERS))
        } else if self.is_value & bit != 0 {
            Place::Value(word)
        } else {
            Place::Lost
        })
    }

    /// Moves a register; one that is not kept stays nowhere.
    pub fn set(&mut self, register: u16, place: Place) {
        let Some(word) = self.words.get_mut(usize::from(register)) else {
            return;
        };
        let bit = 1 << register;
        for kind in [
            &mut self.in_register,
            &mut self.in_memory,
            &mut self.is_value,
        ] {
            *kind &= !bit;
        }
        let kind = match place {
            Place::Register(number) => {
                *word = u64::from(number);
                &mut self.in_register
            }
            Place::Memory(addr) => {
                *word = addr;
                &mut self.in_memory
            }
            Place::Value(value) => {
                *word = value;
                &mut self.is_value
            }
            Place::Lost => return,
        };
        *kind |= bit;
    }

    /// A call is left: loses all registers that it need not preserve, finds the return address at
    /// `return_slot`, and those that were saved where `saved` says from the CFA.
    #[inline]
    pub fn leave(&mut self, cfa: u64, return_slot: u64, saved: &Saved) {
        self.in_register &= PRESERVED;
        self.is_value &= PRESERVED;
        self.in_memory = self.in_memory & PRESERVED | saved.set | RETURN_ADDRESS;
        let [
            _,
            _,
            _,
            rbx,
            _,
            _,
            rbp,
            _,
            _,
            _,
            _,
            _,
            r12,
            r13,
            r14,
            r15,
            rip,
        ] = &mut self.words;
        *rip = return_slot;
        for (word, offset) in [rbx, rbp, r12, r13, r14, r15]
            .into_iter()
            .zip(saved.offsets)
        {
            if offset != 0 {
                *word = cfa.wrapping_add_signed(i64::from(offset));
            }
        }
    }
}
