//! Write sets, against the decoder library's for each instruction of libc.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};
use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{LiftedCode, Lifter};
use unspool_elf::ElfFile;
use unspool_rows::Abi;

const ABI: Abi = Abi::X86_64;

/// DWARF's number of a general-purpose register (psABI, "DWARF Register Number Mapping").
fn number(register: Register) -> Option<u32> {
    const NAMES: [Register; 16] = [
        Register::RAX,
        Register::RDX,
        Register::RCX,
        Register::RBX,
        Register::RSI,
        Register::RDI,
        Register::RBP,
        Register::RSP,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    let whole = register.full_register();
    let place = NAMES.iter().position(|name| *name == whole)?;
    u32::try_from(place).ok()
}

#[test]
fn each_written_register_is_written_by_an_operation() {
    let file = ElfFile::open("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let text = file.section_named(".text").unwrap().unwrap();
    let mut machine = Lifter::new(ABI).unwrap();
    let mut code = LiftedCode::default();
    machine.lift(text.data, text.address.0, &mut code);
    let abi_info = machine.abi_info();
    let mut factory = InstructionInfoFactory::new();
    let mut missing: BTreeMap<String, u32> = BTreeMap::new();
    let mut compared = 0;
    for id in code.ids() {
        let range = code.range(id);
        let start = usize::try_from(range.start - text.address.0).unwrap();
        let bytes = &text.data[start..];
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let insn = decoder.decode();
        if insn.is_invalid() {
            continue;
        }
        // The analysis handles stack pointer changes of calls and returns elsewhere.
        let is_flow = insn.is_call_near()
            || insn.is_call_near_indirect()
            || insn.mnemonic() == iced_x86::Mnemonic::Ret;
        let mut written = code
            .ops_of(id)
            .iter()
            .fold(0, |all, op| all | op.written(abi_info.stack_pointer));
        if is_flow {
            written |= 1 << abi_info.stack_pointer;
        }
        for used in factory.info(&insn).used_registers() {
            let is_written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let is_reported = number(used.register()).is_none_or(|bit| written & (1 << bit) != 0);
            // `endbr64`, `prefetch` and long no-operations have unused operands.
            if is_written && !is_reported && used.access() != OpAccess::NoMemAccess {
                *missing
                    .entry(format!("{:?} {:?}", insn.code(), used))
                    .or_default() += 1;
            }
        }
        compared += 1;
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(compared > 300_000, "{compared}");
}

/// With libc's code, and with bytes that are not code.
#[test]
fn outlines_are_those_of_what_is_lifted() {
    let file = ElfFile::open("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let text = file.section_named(".text").unwrap().unwrap();
    let data = file.section_named(".rodata").unwrap().unwrap();
    let mut machine = Lifter::new(ABI).unwrap();
    for section in [text, data] {
        let mut code = LiftedCode::default();
        machine.lift(section.data, section.address.0, &mut code);
        let mut ids = code.ids();
        machine.outline(
            section.data,
            section.address.0,
            |range, flow, is_padding| {
                let id = ids.next().unwrap();
                assert_eq!(range, code.range(id));
                assert_eq!(is_padding, code.is_padding(id), "{:#x}", range.start);
                let same = match (flow, code.flow(id)) {
                    (Some(Flow::Branch { to, .. }), Some(Flow::Branch { to: other, .. })) => {
                        to == other
                    }
                    (Some(Flow::IndirectJump(_)), Some(Flow::IndirectJump(_)))
                    | (Some(Flow::IndirectCall(_)), Some(Flow::IndirectCall(_))) => true,
                    (flow, other) => flow == other,
                };
                assert!(same, "{:#x}", range.start);
            },
        );
        assert_eq!(ids.next(), None);
    }
}
