//! The call test: do the bytes before an address encode a call that ends there?
//!
//! The call-site part of a table speaks for every address that passes and for no other, and
//! tables are proven right at every such address. So the test need not be exact: bytes that
//! look like a call and are none cost a step in the table, never a wrong answer.
//!
//! x86: `E8` and a 32-bit distance whose target lies in an executable range of the module; or
//! `FF /2` in a form whose length ends at the address. AArch64: the word before is `BL`, `BLR`
//! or one of `BLRAA`, `BLRAAZ`, `BLRAB`, `BLRABZ`.

use unspool_ir::Vaddr;

use crate::layout::CallTest;

/// How many bytes before an address the test reads.
pub const WINDOW: usize = 7;

/// The most executable ranges that the test considers. Modules have a handful.
pub const MAX_RANGES: usize = 16;

/// Tells addresses that follow a call from others.
#[derive(Debug, Clone, Copy)]
pub struct CallSites {
    test: CallTest,
    /// Executable ranges; those that are not used are empty.
    executable: [(Vaddr, Vaddr); MAX_RANGES],
}

impl CallSites {
    /// The test of a module with these executable ranges, of which [`MAX_RANGES`] count.
    pub(crate) fn new(test: CallTest, executable: impl Iterator<Item = (Vaddr, Vaddr)>) -> Self {
        let mut ranges = [(Vaddr(0), Vaddr(0)); MAX_RANGES];
        for (slot, range) in ranges.iter_mut().zip(executable) {
            *slot = range;
        }
        CallSites {
            test,
            executable: ranges,
        }
    }

    /// Whether the bytes that end at `address` pass. `before` are as many of the bytes before
    /// it as are at hand, at least [`WINDOW`] unless the module's code begins there.
    #[must_use]
    #[inline]
    pub fn follows_call(&self, address: Vaddr, before: &[u8]) -> bool {
        match self.test {
            CallTest::None => false,
            CallTest::X86 => {
                follows_x86_indirect(before) || self.follows_x86_direct(address, before)
            }
            CallTest::Aarch64 => follows_aarch64(address, before),
        }
    }

    #[inline]
    fn follows_x86_direct(&self, address: Vaddr, before: &[u8]) -> bool {
        let Some([0xe8, distance @ ..]) = before.last_chunk::<5>() else {
            return false;
        };
        let target = address
            .0
            .wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
        let inside = |(start, end): &(Vaddr, Vaddr)| start.0 <= target && target < end.0;
        self.executable
            .iter()
            .take_while(|(start, end)| start < end)
            .any(inside)
    }
}

/// `FF /2`: a call through a register or memory, in each of its lengths.
#[inline]
fn follows_x86_indirect(before: &[u8]) -> bool {
    const DISP32: u8 = 5;
    const SIB: u8 = 4;
    let mod_rm = |modrm: u8| (modrm >> 6, modrm & 7, modrm >> 3 & 7 == 2);
    if let Some([0xff, modrm]) = before.last_chunk::<2>() {
        match mod_rm(*modrm) {
            (3, _, true) => return true,
            (0, rm, true) if rm != SIB && rm != DISP32 => return true,
            _ => {}
        }
    }
    if let Some([0xff, modrm, third]) = before.last_chunk::<3>() {
        match mod_rm(*modrm) {
            (1, rm, true) if rm != SIB => return true,
            (0, SIB, true) if third & 7 != DISP32 => return true,
            _ => {}
        }
    }
    if let Some([0xff, modrm, ..]) = before.last_chunk::<4>()
        && let (1, SIB, true) = mod_rm(*modrm)
    {
        return true;
    }
    if let Some([0xff, modrm, ..]) = before.last_chunk::<6>() {
        match mod_rm(*modrm) {
            (0, DISP32, true) => return true,
            (2, rm, true) if rm != SIB => return true,
            _ => {}
        }
    }
    if let Some([0xff, modrm, sib, ..]) = before.last_chunk::<7>() {
        match mod_rm(*modrm) {
            (2, SIB, true) => return true,
            (0, SIB, true) if sib & 7 == DISP32 => return true,
            _ => {}
        }
    }
    false
}

#[inline]
fn follows_aarch64(address: Vaddr, before: &[u8]) -> bool {
    let Some(word) = before.last_chunk::<4>() else {
        return false;
    };
    // Instructions are little-endian on big-endian machines too.
    let word = u32::from_le_bytes(*word);
    let is_bl = word & 0xfc00_0000 == 0x9400_0000;
    let is_blr = word & 0xfeff_f000 == 0xd63f_0000;
    address.0.is_multiple_of(4) && (is_bl || is_blr)
}

#[cfg(feature = "alloc")]
impl CallSites {
    /// Visits every address in `bytes`, which lie at `start`, that passes the test: once each,
    /// ascending.
    ///
    /// Equal to asking [`CallSites::follows_call`] at every address with the bytes since
    /// `start`, and many times faster.
    pub fn for_each(&self, start: Vaddr, bytes: &[u8], visit: impl FnMut(Vaddr)) {
        match self.test {
            CallTest::None => {}
            CallTest::X86 => self.for_each_x86(start, bytes, visit),
            CallTest::Aarch64 => for_each_aarch64(start, bytes, visit),
        }
    }

    fn for_each_x86(&self, start: Vaddr, bytes: &[u8], mut visit: impl FnMut(Vaddr)) {
        // Calls found at ascending places end at places that may descend by a few bytes. They
        // wait, as bits counted from `base`, until no later call can end before them.
        let (mut base, mut waiting) = (0_usize, 0_u32);
        let mut release = |base: usize, waiting: u32, up_to: usize| {
            let mut rest = waiting;
            while rest != 0 && (rest.trailing_zeros() as usize) < up_to - base {
                visit(start.offset((base + rest.trailing_zeros() as usize) as u64));
                rest &= rest - 1;
            }
            rest.checked_shr(u32::try_from(up_to - base).unwrap_or(u32::MAX))
                .unwrap_or(0)
        };
        for at in memchr::memchr2_iter(0xe8, 0xff, bytes) {
            let Some(length) = self.x86_call_at(start, bytes, at) else {
                continue;
            };
            waiting = release(base, waiting, at);
            base = at;
            waiting |= 1 << length;
        }
        release(base, waiting, bytes.len() + 1);
    }

    /// The length of the call whose opcode is at an offset, if there is one and it passes.
    #[inline]
    fn x86_call_at(&self, start: Vaddr, bytes: &[u8], at: usize) -> Option<usize> {
        let (opcode, rest) = bytes.get(at..)?.split_first()?;
        if *opcode == 0xff {
            return x86_indirect_length(rest).filter(|length| at + length <= bytes.len());
        }
        let address = start.offset((at + 5) as u64);
        self.follows_x86_direct(address, bytes.get(at..at + 5)?)
            .then_some(5)
    }
}

#[cfg(feature = "alloc")]
fn for_each_aarch64(start: Vaddr, bytes: &[u8], mut visit: impl FnMut(Vaddr)) {
    let skew = usize::try_from(start.0.wrapping_neg() % 4).unwrap_or(0);
    let words = bytes.get(skew..).unwrap_or_default().chunks_exact(4);
    for (n, word) in words.enumerate() {
        let after = start.offset((skew + 4 * n + 4) as u64);
        if follows_aarch64(after, word) {
            visit(after);
        }
    }
}

/// The length of the `FF /2` instruction whose bytes after the opcode are given.
#[cfg(feature = "alloc")]
#[inline]
fn x86_indirect_length(rest: &[u8]) -> Option<usize> {
    let modrm = *rest.first()?;
    if modrm >> 3 & 7 != 2 {
        return None;
    }
    let has_sib = modrm & 7 == 4 && modrm >> 6 != 3;
    let displacement = match (modrm >> 6, modrm & 7) {
        (0, 4) if rest.get(1)? & 7 == 5 => 4,
        (0, 5) | (2, _) => 4,
        (1, _) => 1,
        _ => 0,
    };
    Some(2 + usize::from(has_sib) + displacement)
}
