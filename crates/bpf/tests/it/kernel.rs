//! Helpers of the tests that load programs.

use std::fmt::Display;

use unspool_bpf::{Assembler, ProgType, Program};

// The offsets of two registers in `struct pt_regs` of x86-64.
pub(crate) const IP: i16 = 128;
pub(crate) const CS: i16 = 136;

/// The value, or a panic with the error's own text, which has the remedy.
pub(crate) fn expect_ok<T>(result: Result<T, impl Display>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Loads a program that `body` assembles.
pub(crate) fn load<'m>(prog_type: ProgType, body: impl FnOnce(&mut Assembler<'m>)) -> Program {
    let mut asm = Assembler::new("test");
    body(&mut asm);
    let code = asm.finish().unwrap();
    Program::load(&code, prog_type).unwrap_or_else(|error| panic!("{error}\n{code}"))
}

/// Runs a program of type `syscall`. It can change the words of its context.
pub(crate) fn run(program: &Program, ctx: &mut [u64]) -> u32 {
    let mut bytes: Vec<u8> = ctx.iter().flat_map(|word| word.to_le_bytes()).collect();
    let result = program.test_run(&mut bytes).unwrap();
    for (word, bytes) in ctx.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    result
}

/// The line of `/proc/self/maps` for an address.
pub(crate) fn mapping(maps: &str, address: u64) -> Option<&str> {
    maps.lines().find(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        (start..end).contains(&address)
    })
}
