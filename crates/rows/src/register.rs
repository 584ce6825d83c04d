//! Register numbers, and the values that a frame's registers hold.

/// A register by its DWARF number, as defined by the architecture's psABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u16);

/// The known values of one frame's registers.
///
/// Holds registers with DWARF numbers below [`Registers::END`], which covers every general
/// register of the supported architectures and AArch64's callee-saved `d8`–`d15` (72–79, their
/// 64 bits). Fixed size, no allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    known: u128,
    values: [u64; Registers::END as usize],
}

impl Registers {
    /// One more than the greatest register number that fits.
    pub const END: u16 = 96;

    /// A frame without known registers.
    #[must_use]
    pub const fn new() -> Self {
        Registers {
            known: 0,
            values: [0; Self::END as usize],
        }
    }

    /// The value of `register`, or `None` when it is unknown in this frame.
    #[must_use]
    pub fn get(&self, register: Register) -> Option<u64> {
        let value = self.values.get(usize::from(register.0))?;
        (self.known >> register.0 & 1 != 0).then_some(*value)
    }

    /// Makes `register` known. A register at or above [`Registers::END`] is ignored.
    pub fn set(&mut self, register: Register, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(register.0)) {
            *slot = value;
            self.known |= 1 << register.0;
        }
    }

    /// Makes `register` unknown.
    pub fn clear(&mut self, register: Register) {
        if let Some(slot) = self.values.get_mut(usize::from(register.0)) {
            *slot = 0;
            self.known &= !(1 << register.0);
        }
    }

    /// The values of the registers below `N`, 0 if unknown, and a bit for each known one, register
    /// 0 in the lowest bit.
    #[must_use]
    pub fn first<const N: usize>(&self) -> ([u64; N], u128) {
        let mut values = [0; N];
        let pairs = values.iter_mut().zip(&self.values);
        pairs.for_each(|(value, known)| *value = *known);
        (values, self.known & below(N))
    }

    /// Sets the registers below `N` to these values if their bit in `known` is set, and makes all
    /// other registers unknown.
    pub fn replace<const N: usize>(&mut self, values: [u64; N], known: u128) {
        if self.known & !below(N) != 0 {
            *self = Registers::new();
        }
        self.known = known & below(N.min(self.values.len()));
        let numbered = self.values.iter_mut().zip(values).enumerate();
        for (number, (slot, value)) in numbered {
            *slot = match self.known >> number & 1 {
                0 => 0,
                _ => value,
            };
        }
    }

    /// The known registers and their values, in ascending order of number.
    pub fn iter(&self) -> impl Iterator<Item = (Register, u64)> + '_ {
        let mut rest = self.known;
        core::iter::from_fn(move || {
            let number = u16::try_from(rest.trailing_zeros()).ok()?;
            rest &= rest.wrapping_sub(1);
            Some((Register(number), self.get(Register(number))?))
        })
    }
}

/// The bits below one.
const fn below(bit: usize) -> u128 {
    if bit < 128 { (1 << bit) - 1 } else { u128::MAX }
}

impl Default for Registers {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Registers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(r, v)| (r.0, v)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_unknown_until_set_and_after_clear() {
        let mut registers = Registers::new();
        assert_eq!(registers.get(Register(7)), None);
        registers.set(Register(7), 0);
        assert_eq!(registers.get(Register(7)), Some(0));
        registers.clear(Register(7));
        assert_eq!(registers.get(Register(7)), None);
    }

    #[test]
    fn the_first_are_copied_and_replaced() {
        let mut registers = Registers::new();
        for number in [0, 2, 3, 40] {
            registers.set(Register(number), 7 + u64::from(number));
        }
        assert_eq!(registers.first(), ([7, 0, 9], 0b101));
        assert_eq!(registers.first(), ([], 0));
        registers.replace([1, 2, 3], 0b1110);
        let mut expected = Registers::new();
        expected.set(Register(1), 2);
        expected.set(Register(2), 3);
        assert_eq!(registers, expected);
        registers.replace([4, 5], 0b10);
        let mut expected = Registers::new();
        expected.set(Register(1), 5);
        assert_eq!(registers, expected);
    }

    #[test]
    fn numbers_past_the_limit_are_unknown_not_a_panic() {
        let mut registers = Registers::new();
        for number in [95, 96, 127, 128, u16::MAX] {
            registers.set(Register(number), 1);
            registers.clear(Register(number.wrapping_add(1)));
        }
        let known: std::vec::Vec<_> = registers.iter().collect();
        assert_eq!(known, [(Register(95), 1)]);
        assert_eq!(registers.get(Register(u16::MAX)), None);
    }
}
