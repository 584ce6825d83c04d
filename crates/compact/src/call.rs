//! The call test: do the bytes before an address encode a call that ends there?
//!
//! The call-site part of a table speaks for every address that passes and for no other, and
//! tables are proven right at every such address. So the test need not be exact: bytes that
//! look like a call and are none cost a step in the table, never a wrong answer.
//!
//! x86: `E8` and a 32-bit distance whose target lies in the module's executable code, from its
//! first to its last address; or
//! `FF /2` in a form whose length ends at the address. AArch64: the word before is `BL`, `BLR`
//! or one of `BLRAA`, `BLRAAZ`, `BLRAB`, `BLRABZ`.

use unspool_ir::Vaddr;

use crate::layout::CallTest;

/// How many bytes before an address the test reads.
pub const WINDOW: usize = 8;

/// Tells addresses that follow a call from others.
#[derive(Debug, Clone, Copy)]
pub struct CallSites {
    test: CallTest,
    start: Vaddr,
    end: Vaddr,
}

impl CallSites {
    /// The test of a module whose executable code lies between two addresses.
    pub(crate) fn new(test: CallTest, start: Vaddr, end: Vaddr) -> Self {
        CallSites { test, start, end }
    }

    /// Whether the bytes that end at `address` pass. Zeros stand for what is before the code.
    ///
    /// Does not branch on the bytes: they may be far away, and a processor that guesses that the
    /// test passes need not wait for them.
    #[must_use]
    #[inline]
    pub fn follows_call(&self, address: Vaddr, before: [u8; WINDOW]) -> bool {
        match self.test {
            CallTest::None => false,
            CallTest::X86 => {
                follows_x86_indirect(before) | self.follows_x86_direct(address, before)
            }
            CallTest::Aarch64 => follows_aarch64(address, before),
        }
    }

    #[inline]
    fn follows_x86_direct(&self, address: Vaddr, before: [u8; WINDOW]) -> bool {
        let [.., opcode, d0, d1, d2, d3] = before;
        let distance = i64::from(i32::from_le_bytes([d0, d1, d2, d3]));
        let target = address.0.wrapping_add_signed(distance);
        let length = self.end.0.wrapping_sub(self.start.0);
        (opcode == 0xe8) & (target.wrapping_sub(self.start.0) < length)
    }
}

/// `FF /2`: a call through a register or memory, in each of its lengths.
#[inline]
fn follows_x86_indirect(before: [u8; WINDOW]) -> bool {
    let [_, b7, b6, b5, b4, b3, b2, b1] = before;
    // ModRM with /2: the register or memory operand is in the low three bits.
    let without_displacement = |modrm: u8| {
        ((modrm & 0xf8) == 0xd0) | (((modrm & 0xf8) == 0x10) & (modrm != 0x14) & (modrm != 0x15))
    };
    let with_disp8 = |modrm: u8| ((modrm & 0xf8) == 0x50) & (modrm != 0x54);
    let with_disp32 = |modrm: u8| (((modrm & 0xf8) == 0x90) & (modrm != 0x94)) | (modrm == 0x15);
    let sib_has_disp32 = |sib: u8| sib & 7 == 5;
    ((b2 == 0xff) & without_displacement(b1))
        | ((b3 == 0xff) & (with_disp8(b2) | ((b2 == 0x14) & !sib_has_disp32(b1))))
        | ((b4 == 0xff) & (b3 == 0x54))
        | ((b6 == 0xff) & with_disp32(b5))
        | ((b7 == 0xff) & ((b6 == 0x94) | ((b6 == 0x14) & sib_has_disp32(b5))))
}

#[inline]
fn follows_aarch64(address: Vaddr, before: [u8; WINDOW]) -> bool {
    let [.., w0, w1, w2, w3] = before;
    // Instructions are little-endian on big-endian machines too.
    let word = u32::from_le_bytes([w0, w1, w2, w3]);
    let is_bl = word & 0xfc00_0000 == 0x9400_0000;
    let is_blr = word & 0xfeff_f000 == 0xd63f_0000;
    address.0.is_multiple_of(4) & (is_bl | is_blr)
}

/// The bytes that end at an offset of `code`, zeros where it has none.
#[must_use]
#[inline]
pub fn window(code: &[u8], end: usize) -> [u8; WINDOW] {
    let before = code.get(..end).unwrap_or_default();
    if let Some(window) = before.last_chunk::<WINDOW>() {
        return *window;
    }
    let mut window = [0; WINDOW];
    for (slot, byte) in window.iter_mut().rev().zip(before.iter().rev()) {
        *slot = *byte;
    }
    window
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
        let end = at + 5;
        let address = start.offset(end as u64);
        let passes = end <= bytes.len() && self.follows_x86_direct(address, window(bytes, end));
        passes.then_some(5)
    }
}

#[cfg(feature = "alloc")]
fn for_each_aarch64(start: Vaddr, bytes: &[u8], mut visit: impl FnMut(Vaddr)) {
    // Code that begins within a word may have the end of a call first.
    let first = usize::try_from(start.0.wrapping_neg() % 4).unwrap_or(0);
    for end in (first..=bytes.len()).step_by(4) {
        let address = start.offset(end as u64);
        if follows_aarch64(address, window(bytes, end)) {
            visit(address);
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
