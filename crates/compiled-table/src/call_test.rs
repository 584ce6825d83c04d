//! The call test: do the bytes before an address encode a call that ends there?
//!
//! The call-site part of a table answers for every address that passes and for no other, and tables
//! are proven right at every such address. So the test need not be exact: bytes that only look like
//! a call cost a step in the table, never a wrong answer.
//!
//! x86: `E8` and a 32-bit distance to a target in the module's executable code, from its first to
//! its last address; or `FF /2` in a form with a length that ends at the address. AArch64: the word
//! before is `BL`, `BLR` or one of `BLRAA`, `BLRAAZ`, `BLRAB`, `BLRABZ`.

use unspool_rows::{Arch, Vaddr};

use crate::layout::CallForm;

/// The number of bytes before an address that the test reads.
pub const CALL_WINDOW_BYTES: usize = 8;

/// Tests whether an address follows a call.
#[derive(Debug, Clone, Copy)]
pub struct CallTest {
    form: CallForm,
    /// All executable code: its first address, and its length.
    start: Vaddr,
    length: u64,
}

impl CallTest {
    /// The test of a module with executable code between two addresses.
    pub(crate) fn new(form: CallForm, start: Vaddr, end: Vaddr) -> Self {
        let length = end.0.saturating_sub(start.0);
        CallTest {
            form,
            start,
            length,
        }
    }

    /// The test of code that may be anywhere below 2^63, and call anything there. `None` for an
    /// architecture with unknown calls.
    #[must_use]
    pub fn anywhere(arch: Arch) -> Option<Self> {
        let test = CallTest::new(CallForm::from_arch(arch), Vaddr(0), Vaddr(u64::MAX >> 1));
        (test.form != CallForm::None).then_some(test)
    }

    /// Whether the bytes that end at `address` pass. Zeros stand for bytes before the code.
    ///
    /// Does not branch on the bytes. They may be far away, and a processor that predicts a pass
    /// need not wait for them.
    #[must_use]
    #[inline]
    pub fn passes(&self, address: Vaddr, before: [u8; CALL_WINDOW_BYTES]) -> bool {
        match self.form {
            CallForm::X86 => self.follows_x86(address, u64::from_le_bytes(before)),
            CallForm::Aarch64 => follows_aarch64(address, before),
            CallForm::None => false,
        }
    }

    /// Tests all positions of the 8 bytes at once: bit 7 of a byte is the answer for its position.
    /// Comparisons would be shorter, but compilers make a branch of each.
    #[inline]
    fn follows_x86(&self, address: Vaddr, before: u64) -> bool {
        let opcodes = zero_bytes(before ^ x86::OPCODES);
        let modrms = zero_bytes(before.wrapping_add(x86::ADDED) & x86::MASKS ^ x86::VALUES);
        let indirect = opcodes << 8 & modrms & x86::PLACES;

        let distance = before.cast_signed() >> 32;
        let target = address.0.wrapping_add_signed(distance);
        let offset = target.wrapping_sub(self.start.0);
        // Both are below 2^63, or the target is outside.
        let is_inside = offset.wrapping_sub(self.length) & !offset;
        let direct = opcodes << 32 & is_inside & 1 << 63;
        indirect | direct != 0
    }
}

/// Bit 7 of each byte that is 0; other bits are undefined.
#[inline]
const fn zero_bytes(bytes: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((bytes & LOW) + LOW) | bytes)
}

/// The calls of x86 in the 8 bytes that end with one; the last byte is at position 7.
///
/// | length | opcode | at | ModRM at | mod, rm |
/// |---|---|---|---|---|
/// | 7 | `FF` | 1 | 2 | 0 or 2, 4 |
/// | 6 | `FF` | 2 | 3 | 0 or 2 |
/// | 5 | `E8` | 3 | | |
/// | 4 | `FF` | 4 | 5 | 1, 4 |
/// | 3 | `FF` | 5 | 6 | 0 or 1 |
/// | 2 | `FF` | 6 | 7 | 3 or 0: when 1 is added, 0 or 1 |
mod x86 {
    pub(super) const OPCODES: u64 = u64::from_le_bytes([0, 0xff, 0xff, 0xe8, 0xff, 0xff, 0xff, 0]);
    /// Added before bits of the ModRM byte are masked.
    pub(super) const ADDED: u64 = u64::from_le_bytes([0, 0, 0, 0, 0, 0, 0, 0x40]);
    /// The bits of the ModRM byte that are tested: the middle three mark `FF /2`.
    pub(super) const MASKS: u64 = u64::from_le_bytes([0, 0, 0x7f, 0x78, 0, 0xff, 0xb8, 0xb8]);
    /// Their required values.
    pub(super) const VALUES: u64 = u64::from_le_bytes([0, 0, 0x14, 0x10, 0, 0x54, 0x10, 0x10]);
    /// Possible positions of a ModRM byte.
    pub(super) const PLACES: u64 = u64::from_le_bytes([0, 0, 0x80, 0x80, 0, 0x80, 0x80, 0x80]);

    /// The lengths of `FF` with this ModRM byte, as bits.
    #[cfg(feature = "alloc")]
    #[inline]
    pub(super) fn indirect_lengths(modrm: u8) -> u8 {
        LENGTHS.get(usize::from(modrm)).copied().unwrap_or(0)
    }

    #[cfg(feature = "alloc")]
    #[expect(
        clippy::indexing_slicing,
        reason = "a panic would be an error of compilation"
    )]
    static LENGTHS: [u8; 256] = {
        let mut lengths = [0; 256];
        let mut modrm = 0;
        while modrm < 256 {
            // The byte at all positions at once.
            let all = modrm as u64 * 0x0101_0101_0101_0101;
            let fits = super::zero_bytes(all.wrapping_add(ADDED) & MASKS ^ VALUES) & PLACES;
            let mut place = 2;
            while place < 8 {
                // The opcode is one position before, and the call ends after position 7.
                lengths[modrm] |= ((fits >> (8 * place + 7) & 1) as u8) << (9 - place);
                place += 1;
            }
            modrm += 1;
        }
        lengths
    };

    /// Visits every offset of a possible call opcode, ascending: `E8`, and `FF` before a byte that
    /// makes it `FF /2`. Near the end it may visit others.
    #[cfg(feature = "alloc")]
    pub(super) fn for_each_opcode(bytes: &[u8], mut visit: impl FnMut(usize)) {
        use wide::u8x16;
        const BLOCK: usize = 16;
        let mut at = 0;
        while let Some(block) = bytes
            .get(at..)
            .and_then(<[u8]>::first_chunk::<{ BLOCK + 1 }>)
        {
            let [_, behind @ ..] = *block;
            let [opcodes @ .., _] = *block;
            let (opcodes, behind) = (u8x16::new(opcodes), u8x16::new(behind));
            let direct = opcodes.simd_eq(u8x16::splat(0xe8));
            let modrm = (behind & u8x16::splat(0x38)).simd_eq(u8x16::splat(0x10));
            let indirect = opcodes.simd_eq(u8x16::splat(0xff)) & modrm;
            let mut found = (direct | indirect).to_bitmask();
            while found != 0 {
                visit(at + found.trailing_zeros() as usize);
                found &= found - 1;
            }
            at += BLOCK;
        }
        (at..bytes.len()).for_each(visit);
    }
}

#[inline]
fn follows_aarch64(address: Vaddr, before: [u8; CALL_WINDOW_BYTES]) -> bool {
    let [.., w0, w1, w2, w3] = before;
    // Instructions are little-endian on big-endian machines too.
    let word = u32::from_le_bytes([w0, w1, w2, w3]);
    let is_bl = word & 0xfc00_0000 == 0x9400_0000;
    let is_blr = word & 0xfeff_f000 == 0xd63f_0000;
    address.0.is_multiple_of(4) & (is_bl | is_blr)
}

/// The bytes that end at an offset of `code`; zeros stand for missing ones.
#[must_use]
#[inline]
pub fn window(code: &[u8], end: usize) -> [u8; CALL_WINDOW_BYTES] {
    let before = code.get(..end).unwrap_or_default();
    if let Some(window) = before.last_chunk::<CALL_WINDOW_BYTES>() {
        return *window;
    }
    let mut window = [0; CALL_WINDOW_BYTES];
    for (slot, byte) in window.iter_mut().rev().zip(before.iter().rev()) {
        *slot = *byte;
    }
    window
}

#[cfg(feature = "alloc")]
impl CallTest {
    /// Visits every address in `bytes`, which start at `start`, that passes: once each, ascending.
    ///
    /// Equal to asking [`CallTest::passes`] at every address with the bytes since `start`, and many
    /// times faster.
    pub fn for_each(&self, start: Vaddr, bytes: &[u8], visit: impl FnMut(Vaddr)) {
        match self.form {
            CallForm::None => {}
            CallForm::X86 => self.for_each_x86(start, bytes, visit),
            CallForm::Aarch64 => for_each_aarch64(start, bytes, visit),
        }
    }

    fn for_each_x86(&self, start: Vaddr, bytes: &[u8], mut visit: impl FnMut(Vaddr)) {
        // Calls found at ascending offsets may end at offsets that descend by a few bytes. Their
        // ends wait, as bits counted from `base`, until no later call can end before them.
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
        x86::for_each_opcode(bytes, |at| {
            let lengths = self.x86_calls_at(start, bytes, at);
            if lengths != 0 {
                waiting = release(base, waiting, at) | lengths;
                base = at;
            }
        });
        release(base, waiting, bytes.len() + 1);
    }

    /// The lengths of the calls with their opcode at an offset, as bits.
    #[inline]
    fn x86_calls_at(&self, start: Vaddr, bytes: &[u8], at: usize) -> u32 {
        match bytes.get(at..) {
            Some([0xe8, d0, d1, d2, d3, ..]) => {
                let distance = i32::from_le_bytes([*d0, *d1, *d2, *d3]);
                let address = start.offset(at as u64 + 5);
                let target = address.0.wrapping_add_signed(distance.into());
                u32::from(target.wrapping_sub(self.start.0) < self.length) << 5
            }
            Some(rest @ [0xff, modrm, ..]) => {
                let fits = 0xff_u32 >> 7_usize.saturating_sub(rest.len());
                u32::from(x86::indirect_lengths(*modrm)) & fits
            }
            _ => 0,
        }
    }
}

#[cfg(feature = "alloc")]
fn for_each_aarch64(start: Vaddr, bytes: &[u8], mut visit: impl FnMut(Vaddr)) {
    // Code that begins within a word may start with the end of a call.
    let first = usize::try_from(start.0.wrapping_neg() % 4).unwrap_or(0);
    for end in (first..=bytes.len()).step_by(4) {
        let address = start.offset(end as u64);
        if follows_aarch64(address, window(bytes, end)) {
            visit(address);
        }
    }
}
