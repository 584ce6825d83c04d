//! Calls of x86-64, and its procedure linkage table.

use unspool_rows::Memory;

use super::{read, word};

pub(super) fn target(
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
        [_, 0xe8, distance @ ..] => plt_target(far(distance), memory),
        _ => None,
    }
}

/// The target of an entry of a procedure linkage table, if the address is one.
fn plt_target(at: u64, memory: &dyn Memory) -> Option<u64> {
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
