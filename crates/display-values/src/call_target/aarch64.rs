//! Calls of AArch64, and its procedure linkage table.

use unspool_rows::Memory;

use super::{read, word};

pub(super) fn target(
    end: u64,
    memory: &dyn Memory,
    register: impl Fn(u16) -> Option<u64>,
) -> Option<u64> {
    let at = end.checked_sub(4)?;
    let call = u32::from_le_bytes(read(memory, at)?);
    // blr
    if call & 0xffff_fc1f == 0xd63f_0000 {
        return register(u16::try_from(call >> 5 & 0x1f).ok()?);
    }
    // bl
    if call >> 26 != 0b10_0101 {
        return None;
    }
    let words = (call << 6).cast_signed() >> 6;
    let to = at.wrapping_add_signed(i64::from(words) * 4);
    plt_target(to, memory)
}

/// The target of an entry of a procedure linkage table; `None` for other code that jumps on.
fn plt_target(at: u64, memory: &dyn Memory) -> Option<u64> {
    /// `bti c`
    const BTI: u32 = 0xd503_245f;
    let instruction = |at: u64| read(memory, at).map(u32::from_le_bytes);
    let begin = match instruction(at) {
        Some(BTI) => at.wrapping_add(4),
        _ => at,
    };
    // adrp x16, page
    let Some(first) = instruction(begin).filter(|first| first & 0x9f00_001f == 0x9000_0010) else {
        return Some(at);
    };
    let pages = (first >> 3 & 0x1f_fffc | first >> 29 & 3) << 11;
    let pages = i64::from(pages.cast_signed() >> 11);
    // ldr x17, [x16, offset]
    let load = instruction(begin.wrapping_add(4))?;
    if load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let page = (begin & !0xfff).wrapping_add_signed(pages * 4096);
    word(memory, page.wrapping_add(u64::from(load >> 10 & 0xfff) * 8))
}
