//! Makes unwind table rows from machine code alone: `cargo run -p unspool-code-analysis --example
//! made_rows`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_code_analysis::{
    Analyzer, CodeExtent, CodeImage, ExtentKind, Lifter, NoAssumptions, ProgramCode,
};
use unspool_rows::{Abi, Arch, Endian};

const START: u64 = 0x1000;

/// `push %rbx; sub $16, %rsp; mov %rdi, %rbx; add $16, %rsp; pop %rbx; ret`
const CODE: [u8; 14] = [
    0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3,
];

struct Function;

impl CodeImage for Function {
    fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        CODE.get(usize::try_from(address.checked_sub(START)?).ok()?..)
    }
}

fn main() -> Result<(), &'static str> {
    let abi = Abi {
        arch: Arch::X86_64,
        endian: Endian::Little,
    };
    let mut machine = Lifter::new(abi).ok_or("not analysed for this architecture")?;
    let extent = CodeExtent {
        start: START,
        end: START + CODE.len() as u64,
        kind: ExtentKind::Function,
    };
    let program = ProgramCode::scan(&mut machine, &Function, vec![extent], vec![], |_| false);
    let mut analyzer = Analyzer::new(machine);
    let analysis = analyzer.analyze(&program, &Function, 0, &[], &NoAssumptions);
    analysis.visit_rows(|insn, _, rules, is_new| {
        let address = analysis.code().range(insn).start;
        match rules {
            Ok(rules) if is_new => println!("{address:#x}  {:?}", rules.cfa),
            Ok(_) => {}
            Err(why) => println!("{address:#x}  no row: {why}"),
        }
    });
    Ok(())
}
