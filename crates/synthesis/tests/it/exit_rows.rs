//! Rows by exit paths, against compilers' and assemblers' rows of the same code, which are not read.

use std::path::{Path, PathBuf};

use unspool_code_analysis::InsnDecoder;
use unspool_code_analysis::op::Flow;
use unspool_elf::ElfFile;
use unspool_rows::{
    Abi, Arch, CfaRule, CodeAddr, Endian, Register, RegisterRule, Registers, Row, RuntimeAddr,
    Vaddr,
};
use unspool_synthesis::{ExitRows, RemainingCode};
use unspool_testing::{Finish as _, Folder, tool};

use crate::tables::table_of;

/// A file's code, as if it had no table.
struct BareCode<'f>(&'f ElfFile);

impl RemainingCode for BareCode<'_> {
    fn read(&self, address: Vaddr, into: &mut [u8]) -> usize {
        let rest = self.0.rest_at(address).unwrap_or_default();
        rest.iter().zip(into).map(|(from, to)| *to = *from).count()
    }

    fn row<'r>(&'r self, _: Vaddr, _: &mut Row<'r>) -> bool {
        false
    }
}

/// Comparison with declared rows.
#[derive(Debug, Default)]
struct ExitComparison {
    /// Instructions, and addresses behind calls.
    frames: usize,
    /// Frames with a row.
    found: usize,
    /// Frames with another caller than the declared row's.
    others: Vec<CodeAddr>,
}

/// Whether two rows lead to the same caller, as far as they use the same register.
fn is_same(found: &Row<'_>, declared: &Row<'_>) -> bool {
    let (
        CfaRule::RegisterOffset { register, offset },
        CfaRule::RegisterOffset {
            register: other_register,
            offset: other,
        },
    ) = (found.cfa, declared.cfa)
    else {
        return declared.is_outermost();
    };
    let same_cfa = register != other_register || offset == other;
    // A register that the path restores is also still in its slot.
    let same_registers =
        declared
            .rules()
            .all(|(register, rule)| match (rule, found.rule(register)) {
                (RegisterRule::Offset(declared), Some(RegisterRule::Offset(found))) => {
                    declared == found
                }
                _ => true,
            });
    same_cfa && same_registers
}

/// Compares the frames of each `stride`th range of rows.
fn compare(path: &Path, stride: usize) -> ExitComparison {
    let file = ElfFile::open(path).unwrap();
    let table = table_of(&file);
    let mut decoder = InsnDecoder::new(file.abi()).unwrap();
    let mut rows = ExitRows::new(file.abi(), ExitRows::MAX_FUNCTION_INSNS).unwrap();
    let mut compared = ExitComparison::default();
    let (mut ops, registers) = (Vec::new(), Registers::new());
    // Stubs of the PLT jump with more than a return address on the stack.
    let text = file.sections().find(|section| section.name == ".text");
    let start = text.unwrap().address.unwrap();
    let spans = table.spans().filter(|span| span.start >= start);
    for span in spans.step_by(stride) {
        let declared = table.row(span.row).unwrap();
        let mut at = span.start;
        while at < span.end {
            let Some(insn) = decoder.decode(file.rest_at(at).unwrap(), at.0, &mut ops) else {
                break;
            };
            let next = at.offset(insn.length as u64);
            let is_call = insn.flow.is_some_and(Flow::is_call);
            // Padding is not executed.
            let own = (!insn.is_padding).then_some(CodeAddr::Instruction(RuntimeAddr(at.0)));
            let mut frames = Vec::from_iter(own);
            frames.extend(is_call.then_some(CodeAddr::Return(RuntimeAddr(next.0))));
            for code in frames {
                let row = rows.row(code, Vaddr(code.address().0), &registers, &BareCode(&file));
                compared.frames += 1;
                compared.found += usize::from(row.is_some());
                if row.is_some_and(|row| !is_same(row, &declared)) {
                    compared.others.push(code);
                }
            }
            at = next;
        }
    }
    compared
}

fn build(folder: &Folder, source: &str, options: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let source = format!("{}/tests/{source}", env!("CARGO_MANIFEST_DIR"));
    let mut gcc = tool("gcc");
    gcc.args(options).arg(source).arg("-o").arg(&program);
    gcc.succeed();
    program
}

#[test]
fn compilers_declare_the_same_callers() {
    let folder = Folder::new();
    for options in [
        &["-O1"][..],
        &["-O2"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-Os", "-fcf-protection=full"],
    ] {
        let compared = compare(&build(&folder, "functions.c", options), 1);
        assert_eq!(compared.others, [], "{options:?}: {compared:?}");
        assert!(
            compared.found * 4 > compared.frames * 3,
            "{options:?}: {compared:?}"
        );
    }
}

/// Where calls leave the return address in a register. Many functions are longer than a path.
#[test]
fn compilers_of_aarch64_declare_the_same_callers() {
    for (name, stride) in [("libc.so.6", 23), ("libstdc++.so.6", 29)] {
        let path = Path::new("/usr/aarch64-linux-gnu/lib").join(name);
        let compared = compare(&path, stride);
        assert_eq!(compared.others, [], "{name}: {compared:?}");
        assert!(
            compared.frames > 5000 && compared.found * 4 > compared.frames,
            "{name}: {compared:?}"
        );
    }
}

/// After the system call that starts a thread, the result tells the two threads apart: also once
/// it has been compared, and after the branch for errors.
#[test]
fn the_new_thread_has_no_caller() {
    let folder = Folder::new();
    let program = build(&folder, "starts_thread.s", &["-nostdlib", "-static"]);
    let file = ElfFile::open(&program).unwrap();
    let symbol = |name: &str| file.symbols().named(name).next().unwrap().address;
    let mut rows = ExitRows::new(file.abi(), ExitRows::MAX_FUNCTION_INSNS).unwrap();
    let mut row = |at: &str, result: Option<u64>| {
        let mut registers = Registers::new();
        if let Some(result) = result {
            registers.set(Register(0), result);
        }
        let address = symbol(at);
        let code = CodeAddr::Instruction(RuntimeAddr(address.0));
        let row = rows.row(code, address, &registers, &BareCode(&file));
        row.map(|row| (row.is_outermost(), row.cfa))
    };
    let caller = CfaRule::RegisterOffset {
        register: Register(7),
        offset: 24,
    };
    let error = (-22_i64).cast_unsigned();
    for (at, results) in [
        ("behind_call", &[4711, error][..]),
        ("behind_test", &[4711, error]),
        ("behind_branch", &[4711]),
    ] {
        for result in results {
            assert_eq!(row(at, Some(*result)), Some((false, caller)), "{at}");
        }
        assert_eq!(row(at, Some(0)), Some((true, CfaRule::Undefined)), "{at}");
        assert_eq!(row(at, None), None, "{at}");
    }
}

const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// Code at 0.
struct TestCode<'c>(&'c [u8]);

impl RemainingCode for TestCode<'_> {
    fn read(&self, address: Vaddr, into: &mut [u8]) -> usize {
        let start = usize::try_from(address.0).unwrap_or(usize::MAX);
        let rest = self.0.get(start..).unwrap_or_default();
        rest.iter().zip(into).map(|(from, to)| *to = *from).count()
    }

    fn row<'r>(&'r self, _: Vaddr, _: &mut Row<'r>) -> bool {
        false
    }
}

/// The offset of a row's CFA.
fn cfa(row: Option<&Row<'_>>) -> Option<i64> {
    match row?.cfa {
        CfaRule::RegisterOffset { offset, .. } => Some(offset),
        _ => None,
    }
}

/// A program may overwrite code that is in no file.
#[test]
fn forgotten_rows_are_found_again() {
    let mut rows = ExitRows::new(ABI, ExitRows::MAX_STUB_INSNS).unwrap();
    let (code, registers) = (CodeAddr::Instruction(RuntimeAddr(0)), Registers::new());
    // add $8, %rsp; ret, and the same with 24
    let (old, new) = (
        TestCode(b"\x48\x83\xc4\x08\xc3"),
        TestCode(b"\x48\x83\xc4\x18\xc3"),
    );
    let mut row = |text: &TestCode<'_>| cfa(rows.row(code, Vaddr(0), &registers, text));
    assert_eq!([row(&old), row(&new)], [Some(16), Some(16)]);
    rows.forget();
    assert_eq!(cfa(rows.row(code, Vaddr(0), &registers, &new)), Some(32));
}

/// Each target has a row of its own. Known ones cost nothing, however often they are needed.
#[test]
fn rows_behind_jumps_are_known_by_their_targets() {
    // jmp *%rcx; ret; pop %rdx; ret
    let text = TestCode(b"\xff\xe1\xc3\x5a\xc3");
    let mut rows = ExitRows::new(ABI, ExitRows::MAX_FUNCTION_INSNS).unwrap();
    let code = CodeAddr::Instruction(RuntimeAddr(0));
    let mut row = |target: u64| {
        let mut registers = Registers::new();
        registers.set(Register(2), target);
        cfa(rows.row(code, Vaddr(0), &registers, &text))
    };
    for _ in 0..1 << 19 {
        assert_eq!(row(2), Some(8));
    }
    assert_eq!([row(3), row(2), row(4096)], [Some(16), Some(8), Some(8)]);
}
