//! Unwind table rows made from machine code alone: `cargo run -p unspool-synth --example made_rows`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_ir::{Abi, Arch, Endian};
use unspool_synth::{Analyzer, CodeAlone, Extent, Image, Machine, Part, Program};

const START: u64 = 0x1000;

/// `push %rbx; sub $16, %rsp; mov %rdi, %rbx; add $16, %rsp; pop %rbx; ret`
const CODE: [u8; 14] = [
    0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3,
];

struct Function;

impl Image for Function {
    fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        CODE.get(usize::try_from(address.checked_sub(START)?).ok()?..)
    }
}

fn main() -> Result<(), &'static str> {
    let abi = Abi {
        arch: Arch::X86_64,
        endian: Endian::Little,
    };
    let mut machine = Machine::of(abi).ok_or("not analysed for this architecture")?;
    let extent = Extent {
        start: START,
        end: START + CODE.len() as u64,
        part: Part::Function,
    };
    let program = Program::survey(&mut machine, &Function, vec![extent], vec![], |_| false);
    let mut analyzer = Analyzer::new(machine);
    let analysis = analyzer.analyze(&program, &Function, 0, &[], &CodeAlone);
    analysis.visit_rules(|insn, _, rules, is_new| {
        let address = analysis.code().range(insn).start;
        match rules {
            Ok(rules) if is_new => println!("{address:#x}  {:?}", rules.cfa),
            Ok(_) => {}
            Err(why) => println!("{address:#x}  no row: {why}"),
        }
    });
    Ok(())
}
