//! Any bytes as an expression: evaluating it ends without panic, whatever registers and memory
//! hold or refuse; what is printed parses back to the same bytes.
#![no_main]

use std::cell::Cell;

use libfuzzer_sys::fuzz_target;
use unspool_rows::expression::{ExpressionError, MAX_STEPS};
use unspool_rows::interpret::FrameContext;
use unspool_rows::text::{ExpressionText, parse_expression};
use unspool_rows::{
    Abi, Arch, Endian, Expression, LoadBias, Memory, Register, Registers, RuntimeAddr, Unreadable,
};

/// Memory that is a function of the address, refuses some reads, and counts them.
struct Noise {
    seed: u64,
    reads: Cell<u32>,
}

fn mix(seed: u64, value: u64) -> u64 {
    let mixed = (seed ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Memory for Noise {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        self.reads.set(self.reads.get() + 1);
        if mix(self.seed, addr.0) % 7 == 0 {
            return Err(Unreadable::unmapped(addr));
        }
        for (at, byte) in (0..).zip(into) {
            *byte = mix(self.seed, addr.0.wrapping_add(at)).to_le_bytes()[0];
        }
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let [choice, seed, bytes @ ..] = data else {
        return;
    };
    let arch = Arch::KNOWN[usize::from(choice & 3)];
    let endian = match choice & 4 {
        0 => Endian::Little,
        _ => Endian::Big,
    };
    let abi = Abi { arch, endian };
    let seed = u64::from(*seed);
    let mut registers = Registers::new();
    for number in 0..Registers::END {
        let value = mix(seed, u64::from(number));
        if value % 5 != 0 {
            registers.set(
                Register(number),
                value >> (value % 64) & arch.spec().address_size.mask(),
            );
        }
    }
    let memory = Noise {
        seed,
        reads: Cell::new(0),
    };
    let frame = FrameContext {
        abi,
        registers: &registers,
        memory: &memory,
        bias: LoadBias(0x5555_0000),
        pac_mask: 0,
    };
    let expression = Expression(bytes);
    let initial = (choice & 8 != 0).then_some(0x7fff_0000);
    let value = expression.evaluate(&frame, initial);
    assert!(memory.reads.get() <= MAX_STEPS);
    if let Ok(value) = value {
        assert!(value <= arch.spec().address_size.mask());
    }
    if value == Err(ExpressionError::TooLong) {
        // Only a branch back can make it so, or very many operations.
        assert!(bytes.contains(&0x2f) || bytes.contains(&0x28) || bytes.len() > 1024);
    }

    let printed = ExpressionText(expression, abi).to_string();
    let inner = printed
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let parsed = parse_expression(inner.expect("stands in braces"), abi);
    assert_eq!(parsed.as_deref(), Ok(bytes), "{printed}");
});
