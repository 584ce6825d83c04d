//! Pseudo-random numbers, the same in each run.

/// Marsaglia's xorshift.
#[derive(Debug, Clone)]
pub struct CaseRandom(pub u64);

impl CaseRandom {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Default for CaseRandom {
    fn default() -> Self {
        CaseRandom(0x9e37_79b9_7f4a_7c15)
    }
}

/// Splitmix64: a number that depends on all bits of another.
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
