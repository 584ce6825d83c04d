//! Instructions of AArch64: control flow and written registers, against capstone's.

use std::collections::BTreeSet;

use unspool_code_analysis::InsnDecoder;
use unspool_code_analysis::op::{Flow, Op};
use unspool_elf::ElfFile;
use unspool_rows::Abi;
use unspool_testing::{command, filter};

/// Prints, for each line with a word: the registers that the instruction writes, and its target.
const SCRIPT: &str = r"
import sys
from capstone import *
decoder = Cs(CS_ARCH_ARM64, CS_MODE_ARM)
decoder.detail = True
for line in sys.stdin:
    insn = next(decoder.disasm(int(line, 16).to_bytes(4, 'little'), 0x10000000), None)
    if insn is None:
        print('-')
        continue
    written = [insn.reg_name(register) for register in insn.regs_access()[1]]
    target = insn.operands[-1].imm if insn.group(CS_GRP_JUMP) and insn.operands[-1].type == CS_OP_IMM else 0
    print(insn.mnemonic, ','.join(written), hex(target & 0xffffffffffffffff)[2:], sep='|')
";

const ADDRESS: u64 = 0x1000_0000;

/// DWARF's number of a register, and of the vector register that contains it.
fn number(name: &str) -> Option<u8> {
    let (kind, digits) = name.split_at_checked(1)?;
    match name {
        "sp" | "wsp" => return Some(31),
        "xzr" | "wzr" | "nzcv" => return None,
        _ => {}
    }
    let number: u8 = digits.parse().ok()?;
    match kind {
        "x" | "w" => Some(number),
        "b" | "h" | "s" | "d" | "q" | "v" => Some(64 + number),
        _ => None,
    }
}

fn written(op: &Op) -> Option<u8> {
    match *op {
        Op::Constant { to, .. }
        | Op::Address { to, .. }
        | Op::Add { to, .. }
        | Op::Load { to, .. }
        | Op::Unknown { to } => Some(to),
        _ => None,
    }
}

/// The distinct words of the code of a file.
fn words(path: &str) -> BTreeSet<u32> {
    let file = ElfFile::open(path).unwrap();
    let text = file.section_named(".text").unwrap().unwrap();
    let (words, _) = text.data.as_chunks::<4>();
    words.iter().copied().map(u32::from_le_bytes).collect()
}

#[test]
fn flow_and_written_registers_are_those_of_capstone() {
    let words = words("/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1");
    let lines: String = words.iter().map(|word| format!("{word:08x}\n")).collect();
    let answers = filter(
        command("/usr/bin/python3").args(["-c", SCRIPT]),
        lines.as_bytes(),
    );
    let answers = String::from_utf8(answers).unwrap();
    let mut decoder = InsnDecoder::new(Abi::AARCH64).unwrap();
    let (mut ops, mut missing) = (Vec::new(), Vec::new());
    let (mut compared, mut needless) = (0, 0);
    let known = words
        .iter()
        .zip(answers.lines())
        .filter(|(_, answer)| *answer != "-");
    for (word, answer) in known {
        let insn = decoder
            .decode(&word.to_le_bytes(), ADDRESS, &mut ops)
            .unwrap();
        let [mnemonic, registers, target] = answer
            .splitn(3, '|')
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let target = u64::from_str_radix(target, 16).unwrap();
        let expected: Option<Flow> = match mnemonic {
            "ret" | "br" | "blr" | "brk" | "udf" | "hlt" => {
                let is_right = match insn.flow {
                    Some(Flow::Return { .. }) => mnemonic == "ret",
                    Some(Flow::IndirectJump(_)) => mnemonic == "br",
                    Some(Flow::IndirectCall(_)) => mnemonic == "blr",
                    Some(Flow::Trap) => ["brk", "udf", "hlt"].contains(&mnemonic),
                    _ => false,
                };
                assert!(is_right, "{word:#x} {answer}: {insn:?}");
                continue;
            }
            "bl" => Some(Flow::Call(target)),
            "b" => Some(Flow::Jump(target)),
            _ if target != 0 => {
                assert_eq!(insn.flow.and_then(Flow::jump_target), Some(target));
                continue;
            }
            _ => None,
        };
        assert_eq!(insn.flow, expected, "{word:#x} {answer}");
        if expected.is_some() {
            continue;
        }
        let mut theirs: BTreeSet<u8> = registers.split(',').filter_map(number).collect();
        // capstone takes the first operand of some for a result, and system calls for calls.
        if ["cmn", "cmp", "msr", "svc", "tst"].contains(&mnemonic) {
            theirs.clear();
        }
        let ours: BTreeSet<u8> = ops.iter().filter_map(written).collect();
        if !ours.is_superset(&theirs) {
            missing.push(format!("{word:#x} {answer}: {ours:?}"));
        }
        compared += 1;
        needless += usize::from(ours != theirs);
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(
        compared > 5_000 && needless * 50 < compared,
        "{needless} of {compared}"
    );
}
