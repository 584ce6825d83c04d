//! x86-64: `pop`, and `leave`.

use unspool_rows::Register;

use super::Load;

/// The most registers that a function pops.
const MAX_POPPED_REGISTERS: usize = 8;

/// The registers that code pops in its epilogue, the last one first.
pub(super) fn loads_before(code: &[u8]) -> impl Iterator<Item = Load> {
    let registers = pops_before(code).take(MAX_POPPED_REGISTERS);
    (1..).zip(registers).map(|(words, register)| Load {
        below: 8 * words,
        register,
    })
}

fn pops_before(code: &[u8]) -> impl Iterator<Item = Register> {
    /// The DWARF numbers of registers by their numbers in instructions, without the eight that need
    /// a prefix.
    const NUMBERED: [u16; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    const POP: u8 = 0x58;
    const PREFIX: u8 = 0x41;
    const LEAVE: u8 = 0xc9;
    let mut rest = code;
    std::iter::from_fn(move || {
        let (last, before) = rest.split_last()?;
        if *last == LEAVE {
            // It pops the frame pointer, and the instruction before it moved the stack pointer.
            rest = &[];
            return Some(Register(6));
        }
        let number = last.checked_sub(POP).filter(|number| *number < 8)?;
        match before.split_last() {
            Some((&PREFIX, before)) => {
                rest = before;
                Some(Register(u16::from(number) + 8))
            }
            _ => {
                rest = before;
                NUMBERED.get(usize::from(number)).copied().map(Register)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::loads_before;

    fn registers(code: &[u8]) -> Vec<u16> {
        loads_before(code).map(|load| load.register.0).collect()
    }

    /// Epilogues as `objdump` shows them.
    #[test]
    fn the_last_registers_that_were_popped() {
        // add $0x38,%rsp; pop %rbx; pop %rbp; pop %r12; pop %r13
        let code = [0x48, 0x83, 0xc4, 0x38, 0x5b, 0x5d, 0x41, 0x5c, 0x41, 0x5d];
        assert_eq!(registers(&code), [13, 12, 6, 3]);
        // lea -0x28(%rbp),%rsp; pop %rbx
        assert_eq!(registers(&[0x48, 0x8d, 0x65, 0xd8, 0x5b]), [3]);
        // mov %rbp,%rsp; leave
        assert_eq!(registers(&[0x5d, 0xc9]), [6]);
        // nop
        assert!(registers(&[0x5d, 0x90]).is_empty());
    }
}
