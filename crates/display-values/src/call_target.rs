//! The target of a call in progress: from its code, from the dynamic linker's data, and from the
//! caller's remaining registers.

use unspool_rows::{Arch, Memory, RuntimeAddr};

/// The target of the call before an address. `register` returns the caller's registers, by their
/// DWARF numbers.
pub(crate) fn target(
    arch: Arch,
    returns_to: RuntimeAddr,
    memory: &dyn Memory,
    register: impl Fn(u16) -> Option<u64>,
) -> Option<u64> {
    match arch {
        Arch::X86_64 => amd64_target(returns_to.0, memory, register),
        Arch::Aarch64 => aarch64_target(returns_to.0, memory, register),
        _ => None,
    }
}

fn read<const COUNT: usize>(memory: &dyn Memory, at: u64) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    memory.read(RuntimeAddr(at), &mut bytes).ok()?;
    Some(bytes)
}

fn word(memory: &dyn Memory, at: u64) -> Option<u64> {
    read(memory, at).map(u64::from_le_bytes)
}

fn amd64_target(
    end: u64,
    memory: &dyn Memory,
    register: impl Fn(u16) -> Option<u64>,
) -> Option<u64> {
    /// The DWARF numbers of the registers with encodings 0 to 7.
    const NUMBERS: [u16; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    let far = |distance| end.wrapping_add_signed(i32::from_le_bytes(distance).into());
    match read::<6>(memory, end.checked_sub(6)?)? {
        // call *distance(%rip)
        [0xff, 0x15, distance @ ..] => word(memory, far(distance)),
        // call *%r8 to %r15, and the others
        [.., 0x41, 0xff, own @ 0xd0..=0xd7] => register(u16::from(own & 7) + 8),
        [.., 0xff, own @ 0xd0..=0xd7] => register(*NUMBERS.get(usize::from(own & 7))?),
        // call distance
        [_, 0xe8, distance @ ..] => amd64_plt_target(far(distance), memory),
        _ => None,
    }
}

/// The target of an entry of a procedure linkage table, if the address is one.
fn amd64_plt_target(at: u64, memory: &dyn Memory) -> Option<u64> {
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let begin = match read(memory, at) {
        Some(ENDBR) => at.wrapping_add(4),
        _ => at,
    };
    // bnd
    let begin = match read(memory, begin) {
        Some([0xf2]) => begin.wrapping_add(1),
        _ => begin,
    };
    // jmp *distance(%rip)
    let Some([0xff, 0x25, distance @ ..]) = read::<6>(memory, begin) else {
        return Some(at);
    };
    let end = begin.wrapping_add(6);
    let noted = word(
        memory,
        end.wrapping_add_signed(i32::from_le_bytes(distance).into()),
    )?;
    // The dynamic linker has not resolved it yet.
    (noted != end).then_some(noted)
}

fn aarch64_target(
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
    aarch64_plt_target(to, memory)
}

/// The target of an entry of a procedure linkage table; `None` for other code that jumps on.
fn aarch64_plt_target(at: u64, memory: &dyn Memory) -> Option<u64> {
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
