//! Write sets and control flow by a second decoder and by manuals.

use std::io::Write as _;
use std::process::Stdio;

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use unspool_code_analysis::AbstractValue;
use unspool_code_analysis::op::{Flow, Op, ResumePoint};
use unspool_testing::{Folder, command};

use crate::processor::child::STACK;
use crate::processor::comparison::{Checker, RegisterModel, numbered, setting, state};
use crate::processor::forms::InsnForm;

/// Zydis, as a filter: prints, for each line of hexadecimal digits, the registers that the
/// instruction writes; the operands in memory that it writes, each as `base:index:distance:bytes`;
/// and its groups.
const SOURCE: &str = include_str!("zydis.c");

/// Its answer for an instruction.
#[derive(Debug, Clone)]
pub(crate) struct DecoderAnswer {
    registers: Vec<String>,
    /// Distance from the stack pointer, and size in bytes.
    memory: Vec<(i64, i64)>,
    /// Kinds of instructions that it is one of: `jump`, `call` or `ret`.
    groups: Vec<String>,
}

/// Asks about forms; `None` for those that it does not know.
pub(crate) fn ask<'f>(forms: impl Iterator<Item = &'f InsnForm>) -> Vec<Option<DecoderAnswer>> {
    let folder = Folder::new();
    folder.write("zydis.c", SOURCE);
    folder.tool("gcc", "-O2 -Wall -Wextra -Werror zydis.c -o zydis -lZydis");
    let mut command = command(folder.path().join("zydis"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it was built");
    let lines: String = forms
        .map(|form| super::hexadecimal(&form.bytes) + "\n")
        .collect();
    let mut input = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("all is read");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("it is text");
    text.lines().map(answer).collect()
}

fn answer(line: &str) -> Option<DecoderAnswer> {
    let mut parts = line.split('|').skip(1);
    let (registers, memory, groups) = (parts.next()?, parts.next()?, parts.next()?);
    let operand = |text: &str| {
        let mut parts = text.split(':');
        let (base, index) = (parts.next()?, parts.next()?);
        let distance = parts.next()?.parse().ok()?;
        let bytes = parts.next()?.parse().ok()?;
        (base == "rsp" && index.is_empty()).then_some((distance, bytes))
    };
    Some(DecoderAnswer {
        registers: registers.split(',').map(Into::into).collect(),
        memory: memory.split(',').filter_map(operand).collect(),
        groups: groups.split(',').map(Into::into).collect(),
    })
}

/// The DWARF number of a named register, or of the register that contains it.
fn number(name: &str) -> Option<u8> {
    const ORDER: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut all = Register::values().filter(|register| register.is_gpr());
    // Intel's manuals call the low byte `r8l`, AMD's `r8b`.
    let is_its = |register: &Register| {
        let own = format!("{register:?}").to_ascii_lowercase();
        own == name || own.replace('l', "b") == name && own.starts_with('r')
    };
    let register = all.find(is_its)?;
    let whole = register.full_register().number();
    ORDER.get(whole).copied()
}

/// The address that is written.
#[derive(Debug, Clone, Copy)]
enum StoreTarget {
    Nowhere,
    /// The memory operand.
    Operand,
    /// The address in a register, by DWARF number.
    At(u8),
}

/// Manuals' statements on instructions that the second decoder does not know well. General
/// registers written, by DWARF number; the operand written, by index; memory written.
fn manual(mnemonic: Mnemonic) -> Option<(&'static [u8], Option<u32>, StoreTarget)> {
    use Mnemonic as M;
    const RDI: u8 = 5;
    Some(match mnemonic {
        // Intel SDM, volume 2; of GETSEC, all leaves.
        M::Getsec | M::Getsecq => (&[0, 3, 2], None, StoreTarget::Nowhere),
        M::Vmwrite => (&[], None, StoreTarget::Nowhere),
        // In a transaction control goes where that says, and only there eax is changed.
        M::Xabort => (&[], None, StoreTarget::Nowhere),
        M::Encodekey128 | M::Encodekey256 => (&[], Some(0), StoreTarget::Nowhere),
        M::Enqcmd | M::Enqcmds => (&[], None, StoreTarget::At(RDI)),
        M::Aadd | M::Aand | M::Aor | M::Axor => (&[], None, StoreTarget::Operand),
        M::Cmpbexadd
        | M::Cmpbxadd
        | M::Cmplexadd
        | M::Cmplxadd
        | M::Cmpnbexadd
        | M::Cmpnbxadd
        | M::Cmpnlexadd
        | M::Cmpnlxadd
        | M::Cmpnoxadd
        | M::Cmpnpxadd
        | M::Cmpnsxadd
        | M::Cmpnzxadd
        | M::Cmpoxadd
        | M::Cmppxadd
        | M::Cmpsxadd
        | M::Cmpzxadd => (&[], Some(1), StoreTarget::Operand),
        M::Rdmsrlist => (&[2], None, StoreTarget::At(RDI)),
        M::Wrmsrlist => (&[2], None, StoreTarget::Nowhere),
        // They write to the shadow stack.
        M::Wrssd | M::Wrssq | M::Wrussd | M::Wrussq => (&[], None, StoreTarget::Nowhere),
        M::Pbndkb => (&[0], None, StoreTarget::Nowhere),
        M::V4fmaddps
        | M::V4fmaddss
        | M::V4fnmaddps
        | M::V4fnmaddss
        | M::Vp4dpwssd
        | M::Vp4dpwssds => (&[], None, StoreTarget::Nowhere),
        M::Aesencwide128kl
        | M::Aesencwide256kl
        | M::Aesdecwide128kl
        | M::Aesdecwide256kl
        | M::Aesenc128kl
        | M::Aesenc256kl
        | M::Aesdec128kl
        | M::Aesdec256kl
        | M::Loadiwkey
        | M::Hreset
        | M::Lkgs
        | M::Senduipi
        | M::Testui => (&[], None, StoreTarget::Nowhere),
        // Intel TDX Module ABI: any but the stack pointer.
        M::Tdcall | M::Seamcall => (
            &[0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15],
            None,
            StoreTarget::Nowhere,
        ),
        // AMD64 Architecture Programmer's Manual, volumes 3, 4 and 6.
        M::Vpermil2pd | M::Vpermil2ps | M::Lwpins | M::Lwpval | M::Llwpcb => {
            (&[], None, StoreTarget::Nowhere)
        }
        M::Clzero | M::Vmsave => (&[], None, StoreTarget::At(0)),
        M::Rdpru => (&[0, 1], None, StoreTarget::Nowhere),
        M::Pvalidate | M::Psmash | M::Rmpadjust | M::Rmpupdate => {
            (&[0], None, StoreTarget::Nowhere)
        }
        M::Rmpquery => (&[0, 2, 1], None, StoreTarget::Nowhere),
        M::Invlpgb | M::Tlbsync => (&[], None, StoreTarget::Nowhere),
        // VIA PadLock Programming Guide.
        M::Xstore | M::Xstore_alt => (&[0, RDI], None, StoreTarget::At(RDI)),
        M::Xcryptcbc | M::Xcryptcfb | M::Xcryptctr | M::Xcryptecb | M::Xcryptofb => {
            (&[2, 4, RDI], None, StoreTarget::At(RDI))
        }
        M::Xsha1 | M::Xsha256 => (&[2, 4, RDI], None, StoreTarget::At(RDI)),
        _ => return None,
    })
}

/// Where an instruction resumes code that called nobody, according to a manual: Intel SDM, volume 2,
/// and AMD64 Architecture Programmer's Manual, volume 3.
fn resume_point(insn: &Instruction) -> Option<ResumePoint> {
    use Mnemonic as M;
    const RDX: u8 = 1;
    const RCX: u8 = 2;
    const RSP: u8 = 7;
    Some(match insn.mnemonic() {
        M::Sysret | M::Sysretq => ResumePoint::Register {
            address: RCX,
            stack_pointer: RSP,
        },
        M::Sysexit | M::Sysexitq => ResumePoint::Register {
            address: RDX,
            stack_pointer: RCX,
        },
        M::Iretq => ResumePoint::Stack {
            stack_pointer_at: 24,
        },
        M::Uiret => ResumePoint::Stack {
            stack_pointer_at: 16,
        },
        // Words of 2 and 4 bytes.
        M::Iret | M::Iretd => ResumePoint::Elsewhere,
        M::Retf if !matches!(insn.code(), Code::Retfq | Code::Retfq_imm16) => {
            ResumePoint::Elsewhere
        }
        // A save area in memory, a secure loader, a frame with an error code on top.
        M::Rsm | M::Skinit | M::Erets | M::Eretu => ResumePoint::Elsewhere,
        _ => return None,
    })
}

/// Control flow that contradicts the second decoder or a manual.
pub(crate) fn flow_difference(
    checker: &mut Checker,
    form: &InsnForm,
    answer: Option<&DecoderAnswer>,
) -> Option<String> {
    let (_, flow) = checker.lift(&form.bytes);
    if let Some(point) = resume_point(&form.insn) {
        let is_so = flow == Some(Flow::Resume(point));
        return (!is_so).then(|| format!("control is {flow:?}, and not resumed: {point:?}"));
    }
    // A transaction that fails goes where its begin says.
    let is_end = matches!(form.insn.mnemonic(), Mnemonic::Xend | Mnemonic::Xabort);
    let groups = answer
        .filter(|_| !is_end)
        .map(|answer| answer.groups.as_slice());
    let is_one = |name: &str| groups.is_some_and(|groups| groups.iter().any(|own| own == name));
    let is_so = match flow {
        None => !["jump", "call", "ret"].into_iter().any(is_one),
        Some(Flow::Jump(_) | Flow::Branch { .. } | Flow::IndirectJump(_)) => is_one("jump"),
        Some(Flow::Call(_) | Flow::IndirectCall(_)) => is_one("call"),
        Some(Flow::Return { .. }) => is_one("ret"),
        // All states fault.
        Some(Flow::Trap) => true,
        Some(Flow::Resume(_) | Flow::Unknown) => false,
    };
    (!is_so).then(|| format!("control is {flow:?}, and {groups:?}"))
}

/// Writes according to a manual that the analysis claims to be preserved; `None` if no manual is
/// listed.
pub(crate) fn by_manual(checker: &mut Checker, form: &InsnForm) -> Option<Vec<String>> {
    let insn = &form.insn;
    let (registers, operand, stored) = manual(insn.mnemonic())?;
    let abi_info = checker.abi_info;
    let before = setting(
        0,
        &crate::processor::sys::no_registers(),
        &vec![0; 4096],
        abi_info,
    );
    let numbers = numbered(&before.registers);
    let at = match stored {
        StoreTarget::Nowhere => None,
        StoreTarget::At(register) => Some(numbers[usize::from(register)] & !7),
        StoreTarget::Operand => {
            let is_simple = insn.memory_base() == Register::RSP
                && insn.memory_index() == Register::None
                && !matches!(insn.segment_prefix(), Register::FS | Register::GS);
            let distance = insn.memory_displacement64();
            is_simple
                .then(|| numbers[usize::from(abi_info.stack_pointer)].wrapping_add(distance) & !7)
        }
    };
    // Where another register has the address of the 64 bytes.
    let is_its = !matches!(stored, StoreTarget::At(register) if insn.op0_kind() == OpKind::Register
        && number(&format!("{:?}", insn.op0_register())) != Some(register));
    let slots: Vec<u64> = at.filter(|_| is_its).into_iter().collect();
    let mut known = state(RegisterModel::Concrete, &before, &slots, abi_info);
    let mut plain = state(RegisterModel::EntryValues, &before, &[], abi_info);
    let (ops, _) = checker.lift(&form.bytes);
    for op in &ops {
        known.transfer(*op, 0, abi_info);
        plain.transfer(*op, 0, abi_info);
    }
    let operand = operand.map(|place| insn.op_register(place));
    let operand = operand.and_then(|register| number(&format!("{register:?}")));
    let registers = registers.iter().copied().chain(operand);
    let kept =
        registers.filter(|register| plain.get(*register) == AbstractValue::entry_value(*register));
    let mut found: Vec<String> = kept
        .map(|it| format!("register {it} is written: {ops:?}"))
        .collect();
    let is_saved = |holds: AbstractValue| {
        abi_info
            .preserved
            .iter()
            .any(|it| holds == AbstractValue::entry_value(*it))
    };
    if known.slots().iter().any(|slot| is_saved(slot.value)) {
        found.push(format!("memory is written: {ops:?}"));
    }
    Some(found)
}

/// Writes according to the second decoder that the analysis claims to be preserved.
pub(crate) fn differences(
    checker: &mut Checker,
    form: &InsnForm,
    answer: &DecoderAnswer,
) -> Vec<String> {
    let (ops, flow) = checker.lift(&form.bytes);
    if flow.is_some() {
        return Vec::new();
    }
    let abi_info = checker.abi_info;
    let area = vec![0; 4096];
    let before = setting(0, &crate::processor::sys::no_registers(), &area, abi_info);
    let sp = numbered(&before.registers)[usize::from(abi_info.stack_pointer)];
    let words = answer.memory.iter().filter(|(_, bytes)| *bytes > 0);
    let words = words.map(|(distance, bytes)| (sp.wrapping_add_signed(*distance), *bytes));
    let slots: Vec<u64> = words
        .flat_map(|(at, bytes)| [at & !7, at.wrapping_add_signed(bytes - 1) & !7])
        .filter(|at| *at >= STACK)
        .collect();
    let mut state = state(RegisterModel::EntryValues, &before, &slots, abi_info);
    for op in &ops {
        state.transfer(*op, 0, abi_info);
    }
    let mut found = Vec::new();
    for name in &answer.registers {
        if let Some(register) = number(name)
            && register != abi_info.stack_pointer
            && state.get(register) == AbstractValue::entry_value(register)
        {
            found.push(format!("{name} is written: {ops:?}"));
        }
    }
    // A known value is stored: executed forms show that.
    let is_stored = ops.iter().any(|op| matches!(op, Op::Store { .. }));
    for slot in state.slots().iter().filter(|_| !is_stored) {
        let is_saved = |register: &&u8| slot.value == AbstractValue::entry_value(**register);
        if abi_info
            .preserved
            .iter()
            .any(|register| is_saved(&register))
        {
            found.push(format!("memory is written: {ops:?}"));
        }
    }
    found
}
