//! Instructions compared with LLVM: it assembles our text to our bytes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use unspool_bpf::insn::{
    AluOp, AtomicOp, Callee, Cast, Cond, Imm64, Insn, Reg, Size, Src, Swap, Width,
};
use unspool_bpf::{Assembler, Helper};

use AluOp::{Add, And, Arsh, Div, Lsh, Mod, Mov, Mul, Or, Rsh, Sdiv, Smod, Sub, Xor};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{B, DW, H, W};
use Width::{W32, W64};

const REGS: [Reg; 11] = [R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10];
const WIDTHS: [Width; 2] = [W32, W64];
const SIZES: [Size; 4] = [B, H, W, DW];
const OFFSETS: [i16; 5] = [0, 1, -1, i16::MAX, i16::MIN];
const IMMS: [i32; 5] = [0, 1, -1, i32::MAX, i32::MIN];
const ALU: [AluOp; 14] = [
    Add, Sub, Mul, Div, Or, And, Lsh, Rsh, Mod, Xor, Mov, Arsh, Sdiv, Smod,
];
const CONDS: [Cond; 11] = [
    Cond::Eq,
    Cond::Gt,
    Cond::Ge,
    Cond::Set,
    Cond::Ne,
    Cond::Sgt,
    Cond::Sge,
    Cond::Lt,
    Cond::Le,
    Cond::Slt,
    Cond::Sle,
];
const ATOMICS: [AtomicOp; 10] = [
    AtomicOp::Add,
    AtomicOp::Or,
    AtomicOp::And,
    AtomicOp::Xor,
    AtomicOp::FetchAdd,
    AtomicOp::FetchOr,
    AtomicOp::FetchAnd,
    AtomicOp::FetchXor,
    AtomicOp::Xchg,
    AtomicOp::Cmpxchg,
];

/// Pairs of registers. Each register is once the first operand and once the second.
fn pairs() -> impl Iterator<Item = (Reg, Reg)> {
    let next = REGS.into_iter().cycle().skip(3);
    REGS.into_iter().zip(next)
}

fn sources(src: Reg) -> impl Iterator<Item = Src> {
    IMMS.map(Src::K).into_iter().chain([Src::X(src)])
}

/// Arithmetic instructions.
fn alu() -> Vec<Insn> {
    let mut all = Vec::new();
    for (dst, src) in pairs() {
        for width in WIDTHS {
            for op in ALU {
                all.extend(sources(src).map(|src| Insn::Alu(width, op, dst, src)));
            }
            all.push(Insn::Neg(width, dst));
            all.extend([B, H].map(|from| Insn::Movsx(width, from, dst, src)));
        }
        all.push(Insn::Movsx(W64, W, dst, src));
        for swap in [Swap::Le, Swap::Be, Swap::Bswap] {
            all.extend([H, W, DW].map(|size| Insn::Swap(swap, size, dst)));
        }
        all.extend([Cast::Kern, Cast::User].map(|cast| Insn::AddrSpaceCast(cast, dst, src)));
        let values = [0, 1, u64::MAX, 0x1122_3344_5566_7788];
        all.extend(values.map(|value| Insn::LdImm64(dst, Imm64::Value(value))));
    }
    all
}

/// Instructions that access memory.
fn memory() -> Vec<Insn> {
    let mut all = Vec::new();
    for (dst, src) in pairs() {
        for off in OFFSETS {
            for size in SIZES {
                all.push(Insn::Ldx(size, dst, src, off));
                all.extend(sources(src).map(|src| Insn::St(size, dst, off, src)));
            }
            all.extend([B, H, W].map(|size| Insn::Ldsx(size, dst, src, off)));
            for width in WIDTHS {
                all.extend(ATOMICS.map(|op| Insn::Atomic(width, op, dst, off, src)));
            }
        }
    }
    all
}

/// Jumps and calls.
fn control() -> Vec<Insn> {
    let mut all = vec![Insn::Exit];
    for off in OFFSETS {
        all.extend([Insn::Ja(off.into()), Insn::MayGoto(off)]);
        for (dst, src) in pairs() {
            for width in WIDTHS {
                for cond in CONDS {
                    all.extend(sources(src).map(|src| Insn::Jmp(width, cond, dst, src, off)));
                }
            }
        }
    }
    let helpers = Helper::ALL.iter();
    all.extend(helpers.map(|helper| Insn::Call(Callee::Helper(*helper))));
    all
}

/// Assembles a text by LLVM.
fn llvm_mc(text: &str, args: &[&str]) -> Vec<u8> {
    let path = unspool_testing::packages::path("/usr/lib/llvm-19/bin/llvm-mc").unwrap();
    let mut command = Command::new(path);
    command.args(["--arch=bpf", "--mcpu=v4"]).args(args);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "llvm-mc: {}", output.status);
    output.stdout
}

/// The bytes of each instruction in a listing: `# encoding: [0x95,0x00,…]`.
fn encodings(listing: &str) -> Vec<Vec<u8>> {
    let encodings = listing
        .lines()
        .filter_map(|line| line.split_once("encoding: [")?.1.strip_suffix(']'));
    let byte = |byte: &str| u8::from_str_radix(byte.trim_start_matches("0x"), 16).unwrap();
    encodings
        .map(|bytes| bytes.split(',').map(byte).collect())
        .collect()
}

#[test]
fn every_form_has_llvms_encoding() {
    let insns = [alu(), memory(), control()].concat();
    let text = insns.iter().map(|insn| match insn {
        // LLVM has no names of helpers.
        Insn::Call(Callee::Helper(helper)) => format!("call {}\n", helper.id()),
        insn => format!("{insn}\n"),
    });
    let listing = llvm_mc(&text.collect::<String>(), &["--show-encoding"]);
    let theirs = encodings(&String::from_utf8(listing).unwrap());
    assert_eq!(theirs.len(), insns.len());
    for (insn, theirs) in insns.iter().zip(theirs) {
        let mut ours = Vec::new();
        insn.encode(&mut ours);
        assert_eq!(ours, theirs, "{insn}");
        assert_eq!(ours.len(), insn.slots() * 8, "{insn}");
    }
}

#[test]
fn jumps_have_llvms_distances() {
    const PADDING: usize = 40_000;
    let mut asm = Assembler::new("main");
    let (out, far) = (asm.new_label(), asm.new_label());
    let sum = asm.subprog("sum", 2, |asm| {
        let again = asm.bind_new_label();
        asm.jmp(Cond::Slt, R1, R2, again);
        asm.exit();
    });
    let again = asm.bind_new_label();
    asm.may_goto(out);
    asm.ld_imm64(R2, 7);
    asm.jmp(Cond::Lt, R1, R2, again);
    asm.jmp32(Cond::Eq, R1, 5, out);
    asm.call_subprog(sum);
    asm.ja(again);
    asm.bind(out);
    asm.ja(far);
    (0..PADDING).for_each(|_| asm.mov64(R0, 0));
    asm.bind(far);
    asm.call_subprog(sum);
    asm.exit();

    let padding = "r0 = 0\n".repeat(PADDING);
    let text = format!(
        "again:\nmay_goto out\nr2 = 7 ll\nif r1 < r2 goto again\nif w1 == 5 goto out\ncall sum\n\
         goto again\nout:\ngotol far\n{padding}far:\ncall sum\nexit\n\
         sum:\nif r1 s< r2 goto sum\nexit\n"
    );
    let object = llvm_mc(&text, &["--filetype=obj"]);
    let ours = asm.finish().unwrap().bytes();
    let start = object.windows(16).position(|bytes| bytes == &ours[..16]);
    let theirs = &object[start.unwrap()..][..ours.len()];
    for (slot, (ours, theirs)) in ours.chunks(8).zip(theirs.chunks(8)).enumerate() {
        assert_eq!(ours, theirs, "slot {slot}");
    }
}

#[test]
fn a_listing_has_functions_and_slots() {
    let mut asm = Assembler::new("walk");
    let out = asm.new_label();
    let step = asm.subprog("step", 2, |asm| {
        asm.ldx(B, R0, R2, 3);
        asm.exit();
    });
    asm.ld_func(R2, step);
    asm.call(Helper::LOOP);
    asm.jmp(Cond::Slt, R0, 0, out);
    asm.st(W, R10, -8, R0);
    asm.bind(out);
    asm.exit();
    let listing = "\
walk:
       0: r2 = subprog[+5]
       2: call bpf_loop#181
       3: if r0 s< 0 goto +1
       4: *(u32 *)(r10 - 8) = r0
       5: exit
step:
       6: r0 = *(u8 *)(r2 + 3)
       7: exit
";
    assert_eq!(asm.finish().unwrap().to_string(), listing);
}

#[test]
fn unbound_and_distant_labels_are_errors() {
    let mut asm = Assembler::new("test");
    let label = asm.new_label();
    asm.exit();
    asm.may_goto(label);
    let error = asm.finish().unwrap_err().to_string();
    assert_eq!(error, "slot 1: `may_goto +0`: the label is not bound");

    let mut asm = Assembler::new("test");
    let start = asm.bind_new_label();
    (0..32_767).for_each(|_| asm.mov64(R0, 0));
    asm.jmp(Cond::Eq, R0, 0, start);
    let listing = asm.finish().unwrap().to_string();
    assert!(listing.ends_with("if r0 == 0 goto -32768\n"), "{listing}");

    let mut asm = Assembler::new("test");
    let start = asm.bind_new_label();
    (0..32_768).for_each(|_| asm.mov64(R0, 0));
    asm.jmp(Cond::Eq, R0, 0, start);
    let error = asm.finish().unwrap_err().to_string();
    let expected = "slot 32768: `if r0 == 0 goto +0`: the target is -32769 slots away \
                    (at most 32767)";
    assert_eq!(error, expected);
}

/// Compares with the system's kernel headers.
#[test]
fn helpers_have_the_kernels_names_and_numbers() {
    let path = unspool_testing::packages::path("/usr/include/linux/bpf.h").unwrap();
    let header = std::fs::read_to_string(path).unwrap();
    for helper in Helper::ALL {
        let (name, id) = (helper.name(), helper.id());
        let ours = format!("FN({name}, {id}, ##ctx)");
        let is_numbered = header.contains(&ours) || position(&header, name) == Some(id);
        assert!(is_numbered, "{name} {id}");
    }
}

/// The number of a helper in a header that lists them in order: `FN(unspec),` is 0.
fn position(header: &str, name: &str) -> Option<i32> {
    let names = header
        .lines()
        .filter_map(|line| line.trim().strip_prefix("FN(")?.split_once(')'));
    let position = names
        .map(|(name, _)| name)
        .position(|listed| listed == name);
    position.and_then(|position| i32::try_from(position).ok())
}
