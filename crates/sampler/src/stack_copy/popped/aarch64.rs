//! AArch64: loads of one or two registers from the stack (Arm Architecture Reference Manual, C4.1,
//! "Loads and Stores"), `add sp, sp, #N`, and the instructions that check a return address.

use unspool_rows::Register;

use super::Load;

const STACK_POINTER: u32 = 31;

/// The registers that code loads in its epilogue, the last ones first.
pub(super) fn loads_before(code: &[u8]) -> impl Iterator<Item = Load> {
    let (_, words) = code.as_rchunks::<4>();
    // What the instructions so far have added to the stack pointer.
    let mut risen = 0;
    let instructions = words.iter().rev().map(|word| u32::from_le_bytes(*word));
    let epilogue = instructions.map_while(EpilogueInsn::decode);
    epilogue
        .flat_map(move |insn| {
            risen += insn.rises;
            let below = |at: i64| u64::try_from(risen - at).ok().filter(|below| *below > 0);
            insn.loads.map(|(register, at)| {
                Some(Load {
                    below: below(at)?,
                    register: Register(register?),
                })
            })
        })
        .flatten()
}

/// An instruction of an epilogue.
struct EpilogueInsn {
    /// What it adds to the stack pointer, in bytes.
    rises: i64,
    /// The general registers that it loads, and the words' distances from the stack pointer before
    /// it.
    loads: [(Option<u16>, i64); 2],
}

impl EpilogueInsn {
    fn decode(word: u32) -> Option<EpilogueInsn> {
        // Hints: `nop`, `autiasp`, `autibsp`, `bti`.
        if word & 0xffff_f01f == 0xd503_201f {
            return Some(EpilogueInsn::new(0, None, None, 0));
        }
        // `add sp, sp, #N`, with the number shifted by 12 or not.
        if word & 0xff80_03ff == 0x9100_0000 | STACK_POINTER << 5 | STACK_POINTER {
            let shift = 12 * (word >> 22 & 1);
            return Some(EpilogueInsn::new(
                i64::from((word >> 10 & 0xfff) << shift),
                None,
                None,
                0,
            ));
        }
        if word >> 5 & 31 != STACK_POINTER {
            return None;
        }
        let first = u16::try_from(word & 31).ok();
        let second = u16::try_from(word >> 10 & 31).ok();
        let pair = 8 * signed(word >> 15, 7);
        let single = signed(word >> 12, 9);
        match (word & 0xffc0_0000, word & 0xffe0_0c00) {
            // `ldp x, x, [sp], #N` and `[sp, #N]`; the same of vector registers.
            (0xa8c0_0000, _) => Some(EpilogueInsn::new(pair, first, second, 0)),
            (0xa940_0000, _) => Some(EpilogueInsn::new(0, first, second, pair)),
            (0x6cc0_0000, _) => Some(EpilogueInsn::new(pair, None, None, 0)),
            (0x6d40_0000, _) => Some(EpilogueInsn::new(0, None, None, 0)),
            // `ldr x, [sp], #N` and `[sp, #N]`; the same of vector registers.
            (_, 0xf840_0400) => Some(EpilogueInsn::new(single, first, None, 0)),
            (_, 0xfc40_0400) => Some(EpilogueInsn::new(single, None, None, 0)),
            (0xf940_0000, _) => {
                let at = 8 * i64::from(word >> 10 & 0xfff);
                Some(EpilogueInsn::new(0, first, None, at))
            }
            (0xfd40_0000, _) => Some(EpilogueInsn::new(0, None, None, 0)),
            _ => None,
        }
    }

    fn new(rises: i64, first: Option<u16>, second: Option<u16>, at: i64) -> EpilogueInsn {
        EpilogueInsn {
            rises,
            loads: [(first, at), (second, at + 8)],
        }
    }
}

/// The low bits of a word as a signed number.
fn signed(word: u32, bits: u32) -> i64 {
    let unused = u32::BITS - bits;
    i64::from((word << unused).cast_signed() >> unused)
}

#[cfg(test)]
mod tests {
    use super::loads_before;

    fn loads(words: &[u32]) -> Vec<(u64, u16)> {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let loads = loads_before(&code);
        loads.map(|load| (load.below, load.register.0)).collect()
    }

    /// Epilogues of clang and gcc, as `objdump` shows them.
    #[test]
    fn the_registers_that_were_loaded() {
        // bl; ldp x20, x19, [sp, #32]; ldr x21, [sp, #16]; ldp x29, x30, [sp], #48; autiasp
        let code = [
            0x9400_0000,
            0xa942_4ff4,
            0xf940_0bf5,
            0xa8c3_7bfd,
            0xd503_23bf,
        ];
        let expected = [(48, 29), (40, 30), (32, 21), (16, 20), (8, 19)];
        assert_eq!(loads(&code), expected);
        // Before the last two, the stack pointer is lower.
        assert!(loads(&code[..3]).is_empty());
        // mov x0, x1; ldp d9, d8, [sp], #16; add sp, sp, #1, lsl #12; ldr x30, [sp], #16
        let code = [0xaa01_03e0, 0x6cc1_23e9, 0x9140_07ff, 0xf841_07fe];
        assert_eq!(loads(&code), [(16, 30)]);
        // ldr x30, [x0], #16
        assert!(loads(&[0xf841_041e]).is_empty());
    }
}
