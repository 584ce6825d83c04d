//! Programs run once by the kernel (`BPF_PROG_TEST_RUN`).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::Ordering;

use unspool_bpf::insn::{AluOp, AtomicOp, Cond, Insn, Reg, Size, Swap, Width};
use unspool_bpf::{Arena, Assembler, Helper, KernelBtf, LoadError, ProgType, Program};
use unspool_testing::packages;

use crate::kernel::{IP, expect_ok, load, mapping, run};

use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{B, DW, W};

/// Numbers at the limits of all sizes.
const VALUES: [u64; 10] = [
    0,
    1,
    7,
    0x7f,
    0x80ff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1122_3344_5566_7788,
    u64::MAX,
];

/// Rust's result of an operation of 64 bits.
fn alu64(op: AluOp, a: u64, b: u64) -> u64 {
    let (sa, sb) = (a.cast_signed(), b.cast_signed());
    let shift = u32::try_from(b % 64).unwrap();
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Lsh => a << shift,
        AluOp::Rsh => a >> shift,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Arsh => (sa >> shift).cast_unsigned(),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => sa.wrapping_div(sb).cast_unsigned(),
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => sa.wrapping_rem(sb).cast_unsigned(),
    }
}

/// The lower half.
fn low(a: u64) -> u32 {
    u32::try_from(a & 0xffff_ffff).unwrap()
}

/// Rust's result of an operation of 32 bits. The upper half is 0.
fn alu32(op: AluOp, a: u64, b: u64) -> u64 {
    let (a, b) = (low(a), low(b));
    let (sa, sb) = (a.cast_signed(), b.cast_signed());
    u64::from(match op {
        AluOp::Lsh => a << (b % 32),
        AluOp::Rsh => a >> (b % 32),
        AluOp::Arsh => (sa >> (b % 32)).cast_unsigned(),
        AluOp::Sdiv if b != 0 => sa.wrapping_div(sb).cast_unsigned(),
        AluOp::Smod if b != 0 => sa.wrapping_rem(sb).cast_unsigned(),
        AluOp::Sdiv => 0,
        AluOp::Smod => a,
        _ => low(alu64(op, a.into(), b.into())),
    })
}

/// A program that loads two words of its context to `R2` and `R3`, runs `body`, and stores `R2` in
/// the third word.
fn binary_program(body: impl FnOnce(&mut Assembler<'_>)) -> impl Fn(u64, u64) -> u64 {
    let program = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        asm.ldx(DW, R2, R6, 0);
        asm.ldx(DW, R3, R6, 8);
        body(asm);
        asm.st(DW, R6, 16, R2);
        asm.mov64(R0, 0);
        asm.exit();
    });
    move |a, b| {
        let mut ctx = [a, b, 0];
        assert_eq!(run(&program, &mut ctx), 0);
        ctx[2]
    }
}

fn assert_for_all_pairs(
    name: &str,
    ours: impl Fn(u64, u64) -> u64,
    rusts: impl Fn(u64, u64) -> u64,
) {
    for a in VALUES {
        for b in VALUES {
            assert_eq!(ours(a, b), rusts(a, b), "{name}: {a:#x}, {b:#x}");
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn arithmetic() {
    for op in [
        AluOp::Add,
        AluOp::Sub,
        AluOp::Mul,
        AluOp::Div,
        AluOp::Or,
        AluOp::And,
        AluOp::Lsh,
        AluOp::Rsh,
        AluOp::Mod,
        AluOp::Xor,
        AluOp::Mov,
        AluOp::Arsh,
        AluOp::Sdiv,
        AluOp::Smod,
    ] {
        let wide = binary_program(|asm| asm.alu64(op, R2, R3));
        assert_for_all_pairs(&format!("64 bits {op:?}"), wide, |a, b| alu64(op, a, b));
        let narrow = binary_program(|asm| asm.alu32(op, R2, R3));
        assert_for_all_pairs(&format!("32 bits {op:?}"), narrow, |a, b| alu32(op, a, b));
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn conversions() {
    type Meaning = fn(u64) -> u64;
    let cases: [(Insn, Meaning); 6] = [
        (Insn::Neg(Width::W64, R2), u64::wrapping_neg),
        (Insn::Neg(Width::W32, R2), |a| low(a).wrapping_neg().into()),
        (Insn::Movsx(Width::W64, B, R2, R2), |a| {
            (a << 56).cast_signed().wrapping_shr(56).cast_unsigned()
        }),
        (Insn::Movsx(Width::W64, W, R2, R2), |a| {
            i64::from(low(a).cast_signed()).cast_unsigned()
        }),
        (Insn::Swap(Swap::Be, DW, R2), u64::swap_bytes),
        (Insn::Swap(Swap::Bswap, W, R2), |a| {
            low(a).swap_bytes().into()
        }),
    ];
    for (insn, rusts) in cases {
        let ours = binary_program(|asm| asm.insn(insn));
        assert_for_all_pairs(&insn.to_string(), ours, |a, _| rusts(a));
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn comparisons() {
    type Meaning = fn(i64, i64) -> bool;
    let cases: [(Cond, Meaning); 11] = [
        (Cond::Eq, |a, b| a == b),
        (Cond::Ne, |a, b| a != b),
        (Cond::Gt, |a, b| a.cast_unsigned() > b.cast_unsigned()),
        (Cond::Ge, |a, b| a.cast_unsigned() >= b.cast_unsigned()),
        (Cond::Lt, |a, b| a.cast_unsigned() < b.cast_unsigned()),
        (Cond::Le, |a, b| a.cast_unsigned() <= b.cast_unsigned()),
        (Cond::Set, |a, b| a & b != 0),
        (Cond::Sgt, |a, b| a > b),
        (Cond::Sge, |a, b| a >= b),
        (Cond::Slt, |a, b| a < b),
        (Cond::Sle, |a, b| a <= b),
    ];
    for (cond, rusts) in cases {
        // The result is 1 if the jump was taken.
        let wide = binary_program(|asm| {
            let taken = asm.new_label();
            asm.mov64(R4, 1);
            asm.jmp(cond, R2, R3, taken);
            asm.mov64(R4, 0);
            asm.bind(taken);
            asm.mov64(R2, R4);
        });
        let signed = |a: u64, b: u64| rusts(a.cast_signed(), b.cast_signed());
        assert_for_all_pairs(&format!("64 bits {cond:?}"), wide, |a, b| {
            signed(a, b).into()
        });
        let narrow = binary_program(|asm| {
            let taken = asm.new_label();
            asm.mov64(R4, 1);
            asm.jmp32(cond, R2, R3, taken);
            asm.mov64(R4, 0);
            asm.bind(taken);
            asm.mov64(R2, R4);
        });
        // Sign extension preserves the order of numbers of 32 bits.
        let extended = |a: u64| i64::from(low(a).cast_signed());
        assert_for_all_pairs(&format!("32 bits {cond:?}"), narrow, |a, b| {
            rusts(extended(a), extended(b)).into()
        });
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn atomic_operations() {
    type Meaning = fn(u64, u64) -> [u64; 3];
    use AtomicOp::{Add, And, Cmpxchg, FetchAdd, FetchAnd, FetchOr, FetchXor, Or, Xchg, Xor};
    // Memory (a), register (b) and R0 (7) before, and all three after.
    let cases: [(AtomicOp, Meaning); 10] = [
        (Add, |a, b| [a.wrapping_add(b), b, 7]),
        (Or, |a, b| [a | b, b, 7]),
        (And, |a, b| [a & b, b, 7]),
        (Xor, |a, b| [a ^ b, b, 7]),
        (FetchAdd, |a, b| [a.wrapping_add(b), a, 7]),
        (FetchOr, |a, b| [a | b, a, 7]),
        (FetchAnd, |a, b| [a & b, a, 7]),
        (FetchXor, |a, b| [a ^ b, a, 7]),
        (Xchg, |a, b| [b, a, 7]),
        (Cmpxchg, |a, b| [if a == 7 { b } else { a }, b, a]),
    ];
    for (op, rusts) in cases {
        let program = load(ProgType::Syscall, |asm| {
            asm.mov64(R6, R1);
            asm.ldx(DW, R2, R6, 0);
            asm.st(DW, R10, -8, R2);
            asm.ldx(DW, R3, R6, 8);
            asm.mov64(R0, 7);
            asm.atomic(Width::W64, op, R10, -8, R3);
            asm.ldx(DW, R2, R10, -8);
            asm.st(DW, R6, 0, R2);
            asm.st(DW, R6, 8, R3);
            asm.st(DW, R6, 16, R0);
            asm.mov64(R0, 0);
            asm.exit();
        });
        for a in VALUES {
            for b in VALUES {
                let mut ctx = [a, b, 0];
                run(&program, &mut ctx);
                assert_eq!(ctx, rusts(a, b), "{op:?}: {a:#x}, {b:#x}");
            }
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn may_goto_ends_loops_that_the_verifier_cannot_bound() {
    let program = load(ProgType::Syscall, |asm| {
        let out = asm.new_label();
        asm.ldx(DW, R2, R1, 0);
        asm.mov64(R3, 0);
        let again = asm.bind_new_label();
        asm.may_goto(out);
        asm.alu64(AluOp::Add, R3, 1);
        asm.jmp(Cond::Lt, R3, R2, again);
        asm.bind(out);
        asm.st(DW, R1, 8, R3);
        asm.mov64(R0, 0);
        asm.exit();
    });
    let mut ctx = [1_000_000, 0];
    run(&program, &mut ctx);
    assert_eq!(ctx[1], 1_000_000);
    let mut endless = [u64::MAX, 0];
    run(&program, &mut endless);
    assert!(endless[1] < u64::MAX, "{endless:?}");
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn bpf_loop_calls_a_callback() {
    let program = load(ProgType::RawTracepoint, |asm| {
        // Adds the index to the word at the context, and ends after index 100.
        let each = asm.subprog("each", 2, |asm| {
            asm.ldx(DW, R3, R2, 0);
            asm.alu64(AluOp::Add, R3, R1);
            asm.st(DW, R2, 0, R3);
            let end = asm.new_label();
            asm.mov64(R0, 1);
            asm.jmp(Cond::Eq, R1, 100, end);
            asm.mov64(R0, 0);
            asm.bind(end);
            asm.exit();
        });
        asm.mov64(R6, 0);
        asm.st(DW, R10, -8, R6);
        asm.mov64(R1, 1000);
        asm.ld_func(R2, each);
        asm.mov64(R3, R10);
        asm.alu64(AluOp::Add, R3, -8);
        asm.mov64(R4, 0);
        asm.call(Helper::LOOP);
        asm.ldx(DW, R0, R10, -8);
        asm.exit();
    });
    assert_eq!(
        program.test_run(&mut []).unwrap(),
        (0..=100_u32).sum::<u32>()
    );
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn subprograms_have_arguments_and_results() {
    let program = load(ProgType::Syscall, |asm| {
        let difference = asm.subprog("difference", 2, |asm| {
            asm.mov64(R0, R1);
            asm.alu64(AluOp::Sub, R0, R2);
            asm.exit();
        });
        asm.mov64(R6, R1);
        asm.ldx(DW, R1, R6, 0);
        asm.ldx(DW, R2, R6, 8);
        asm.call_subprog(difference);
        asm.st(DW, R6, 16, R0);
        asm.mov64(R0, 0);
        asm.exit();
    });
    let mut ctx = [100, 58, 0];
    run(&program, &mut ctx);
    assert_eq!(ctx[2], 42);
}

/// Increments the word of the arena at the context's offset, without a proof of bounds. Stores the
/// old value in the context's second word.
fn arena_program(arena: &Arena) -> Program {
    load(ProgType::Syscall, |asm| {
        asm.ldx(DW, R2, R1, 0);
        asm.ld_map_value(R3, arena, 0);
        asm.alu64(AluOp::Add, R3, R2);
        asm.cast_kern(R3, R3);
        asm.ldx(DW, R4, R3, 0);
        asm.st(DW, R1, 8, R4);
        asm.alu64(AluOp::Add, R4, 1);
        asm.st(DW, R3, 0, R4);
        asm.mov64(R0, 0);
        asm.exit();
    })
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn an_arena_is_shared() {
    let arena = expect_ok(Arena::new(1 << 30));
    assert_eq!(arena.size(), 1 << 30);
    let program = arena_program(&arena);
    for offset in [0, 4096, (1 << 20) + 8, (1 << 30) - 8] {
        arena.write(offset, &123_u64.to_le_bytes()).unwrap();
        let mut ctx = [offset as u64, 0];
        run(&program, &mut ctx);
        assert_eq!(ctx[1], 123);
        let word = arena.word(offset).unwrap();
        assert_eq!(word.load(Ordering::Acquire), 124);
    }
    let bytes: Vec<u8> = (0..20).collect();
    arena.write(64, &bytes).unwrap();
    assert_eq!(arena.read(64, 20).unwrap(), bytes);
    assert_eq!(arena.read(64, 24).unwrap()[20..], [0; 4]);
    assert!(arena.read((1 << 30) - 8, 9).is_none());
    assert!(arena.word(4).is_none());
    assert!(arena.word(1 << 30).is_none());
    assert!(arena.write((1 << 30) - 8, &[0; 9]).is_none());
}

/// A program reads 0 from an untouched page, and its writes are lost. Neither is an error.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn an_untouched_page_reads_as_0() {
    let arena = expect_ok(Arena::new(1 << 20));
    let program = arena_program(&arena);
    for _ in 0..2 {
        let mut ctx = [8192, 0xdead];
        run(&program, &mut ctx);
        assert_eq!(ctx[1], 0);
    }
    assert_eq!(arena.word(8192).unwrap().load(Ordering::Acquire), 0);
    let mut ctx = [8192, 0xdead];
    run(&program, &mut ctx);
    assert_eq!(arena.word(8192).unwrap().load(Ordering::Acquire), 1);
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_pointer_in_an_arena_is_the_process_address() {
    let arena = expect_ok(Arena::new(4096));
    let program = load(ProgType::Syscall, |asm| {
        asm.ld_map_value(R2, &arena, 16);
        asm.cast_kern(R2, R2);
        asm.cast_user(R2, R2);
        asm.st(DW, R1, 0, R2);
        asm.mov64(R0, 0);
        asm.exit();
    });
    let mut ctx = [0];
    run(&program, &mut ctx);
    assert_eq!(ctx[0], arena.address() + 16);
}

/// At an untouched page, a read fails as a whole, and clears its result.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn memory_of_the_process_is_read_whole_or_not_at_all() {
    // The process has touched one page of this arena. For a helper, it is memory of the process.
    let memory = expect_ok(Arena::new(1 << 16));
    memory.write(0, &[0x5a; 4096]).unwrap();
    let program = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        asm.ldx(DW, R3, R6, 0);
        asm.st(DW, R10, -8, -1);
        asm.mov64(R1, R10);
        asm.alu64(AluOp::Add, R1, -8);
        asm.mov64(R2, 8);
        asm.call(Helper::PROBE_READ_USER);
        asm.st(DW, R6, 0, R0);
        asm.ldx(DW, R1, R10, -8);
        asm.st(DW, R6, 8, R1);
        asm.mov64(R0, 0);
        asm.exit();
    });
    let read = |offset| {
        let mut ctx = [memory.address() + offset, 0];
        run(&program, &mut ctx);
        (ctx[0].cast_signed(), ctx[1])
    };
    const EFAULT: i64 = -14;
    assert_eq!(read(0), (0, 0x5a5a_5a5a_5a5a_5a5a));
    assert_eq!(read(4088), (0, 0x5a5a_5a5a_5a5a_5a5a));
    assert_eq!(read(4092), (EFAULT, 0));
    assert_eq!(read(4096), (EFAULT, 0));
    assert_eq!(read(4092), (EFAULT, 0), "the helper loads no page");
}

/// Reads the process' registers at its entry to the kernel, and a tracepoint's arguments.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn registers_of_the_process_and_arguments() {
    let arena = expect_ok(Arena::new(4096));
    arena.write(0, &[0; 8]).unwrap();
    let program = load(ProgType::RawTracepoint, |asm| {
        asm.ldx(DW, R7, R1, 8);
        asm.call(Helper::GET_CURRENT_TASK_BTF);
        asm.mov64(R1, R0);
        asm.call(Helper::TASK_PT_REGS);
        asm.ldx(DW, R1, R0, IP);
        asm.ld_map_value(R2, &arena, 0);
        asm.cast_kern(R2, R2);
        asm.st(DW, R2, 0, R1);
        asm.mov64(R0, R7);
        asm.exit();
    });
    let mut args = [11_u64, 22].map(u64::to_le_bytes).concat();
    assert_eq!(program.test_run(&mut args).unwrap(), 22);
    let ip = arena.word(0).unwrap().load(Ordering::Acquire);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = mapping(&maps, ip).unwrap();
    assert!(libc.contains("/libc"), "the function `syscall`: {libc}");
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_kfunc_is_called_by_its_name() {
    let btf = KernelBtf::read().unwrap();
    let allocate = btf.kfunc("bpf_arena_alloc_pages").unwrap();
    // Linux 6.9, kernel/bpf/arena.c.
    assert_eq!(allocate.params(), 5);
    assert_eq!(btf.kfunc("bpf_arena_alloc"), None);

    let arena = expect_ok(Arena::new(1 << 16));
    let program = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        asm.ld_map_fd(R1, &arena);
        asm.mov64(R2, 0);
        asm.mov64(R3, 1);
        asm.mov64(R4, -1);
        asm.mov64(R5, 0);
        asm.call_kfunc(allocate);
        asm.st(DW, R6, 0, R0);
        asm.cast_kern(R7, R0);
        asm.st(DW, R7, 8, 77);
        asm.mov64(R0, 0);
        asm.exit();
    });
    let mut ctx = [0];
    run(&program, &mut ctx);
    let offset = usize::try_from(ctx[0] - arena.address()).unwrap();
    assert_eq!(arena.word(offset + 8).unwrap().load(Ordering::Acquire), 77);
}

/// bpftool's offsets of the members that a structure has, those of its anonymous members included.
fn members(dump: &str, header: &str, base: u32, found: &mut HashMap<String, u32>) {
    let is_header = |line: &&str| line.contains(header);
    let lines = dump.lines().skip_while(|line| !is_header(line)).skip(1);
    for line in lines.take_while(|line| line.starts_with('\t')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, inner, offset, ..] = words[..] else {
            panic!("a member: {line}");
        };
        let number = |text: &str| text.split_once('=').unwrap().1.parse::<u32>().unwrap();
        let offset = base + number(offset);
        match name.trim_matches('\'') {
            "(anon)" => members(dump, &format!("[{}] ", number(inner)), offset, found),
            name => drop(found.insert(name.to_owned(), offset)),
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn members_of_kernel_structures_are_where_bpftool_finds_them() {
    let bpftool = packages::path("/usr/sbin/bpftool").unwrap();
    let args = ["btf", "dump", "file", KernelBtf::PATH];
    let dump = Command::new(bpftool).args(args).output().unwrap().stdout;
    let dump = String::from_utf8(dump).unwrap();
    let btf = KernelBtf::read().unwrap();
    for (structure, needed) in [
        ("task_struct", "in_execve"),
        ("task_struct", "flags"),
        ("mm_struct", "mm_lock_seq"),
        ("perf_sample_data", "time"),
        ("bpf_perf_event_data_kern", "data"),
    ] {
        let mut found = HashMap::new();
        members(&dump, &format!(" STRUCT '{structure}' "), 0, &mut found);
        assert!(found.contains_key(needed), "{structure}: {needed}");
        for (member, offset) in &found {
            let bits = btf.member_bits(structure, member);
            assert_eq!(bits, Some(*offset), "{structure}: {member}");
        }
        assert_eq!(btf.member_bits(structure, "no such member"), None);
    }
    assert_eq!(btf.member_bits("no such structure", "flags"), None);
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_refused_program_has_the_verifiers_log() {
    let mut asm = Assembler::new("careless");
    asm.mov64(R9, R8);
    asm.exit();
    let code = asm.finish().unwrap();
    let error = Program::load(&code, ProgType::RawTracepoint).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("BPF program careless: "), "{text}");
    assert!(text.contains("R8 !read_ok"), "{text}");
    assert!(matches!(error, LoadError::Prog { .. }));

    // Of a long log, the end has the reason.
    let mut asm = Assembler::new("long");
    asm.ldx(DW, R2, R1, 0);
    for _ in 0..20_000 {
        asm.alu64(AluOp::Add, R2, 1);
    }
    asm.ldx(DW, R0, R2, 0);
    asm.exit();
    let code = asm.finish().unwrap();
    let error = Program::load(&code, ProgType::RawTracepoint).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("R2 invalid mem access 'scalar'"), "{text}");
    assert!(text.len() < 4096, "{text}");
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn bpftool_reads_the_types() {
    let program = load(ProgType::RawTracepoint, |asm| {
        let each = asm.subprog("each_frame", 2, |asm| {
            asm.mov64(R0, 0);
            asm.exit();
        });
        asm.ld_func(R2, each);
        asm.mov64(R1, 3);
        asm.mov64(R3, 0);
        asm.mov64(R4, 0);
        asm.call(Helper::LOOP);
        asm.exit();
    });
    let id = program.info().unwrap().btf_id.to_string();
    let output = bpftool(&["btf", "dump", "id", &id]);
    let expected = "\
[1] INT 'int' size=4 bits_offset=0 nr_bits=32 encoding=SIGNED
[2] INT 'u64' size=8 bits_offset=0 nr_bits=64 encoding=(none)
[3] PTR '(anon)' type_id=0
[4] FUNC_PROTO '(anon)' ret_type_id=1 vlen=1
	'ctx1' type_id=3
[5] FUNC 'test' type_id=4 linkage=static
[6] FUNC_PROTO '(anon)' ret_type_id=1 vlen=2
	'arg1' type_id=2
	'arg2' type_id=2
[7] FUNC 'each_frame' type_id=6 linkage=static
";
    assert_eq!(output, expected);

    // The kernel's listing names the functions by these types.
    let id = program.info().unwrap().id.to_string();
    let dump = bpftool(&["prog", "dump", "xlated", "id", &id]);
    let is_named = |name: &str| {
        dump.lines()
            .any(|line| line.starts_with("int ") && line.contains(name))
    };
    assert!(is_named("test(void * ctx1)"), "{dump}");
    assert!(is_named("each_frame(u64 arg1, u64 arg2)"), "{dump}");
}

fn bpftool(args: &[&str]) -> String {
    let path = unspool_testing::packages::path("/usr/sbin/bpftool").unwrap();
    let output = Command::new(path).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "bpftool {args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn program_info_agrees_with_bpftool() {
    let program = load(ProgType::RawTracepoint, |asm| {
        asm.mov64(R0, 0);
        asm.exit();
    });
    let info = program.info().unwrap();
    assert_eq!(info.verified_insns, 2);
    let id = info.id.to_string();
    let listing = bpftool(&["prog", "show", "id", &id]);
    assert!(
        listing.contains("name test") && listing.contains(" gpl"),
        "{listing}"
    );
    let is_same_size = listing.contains(&format!("jited {}B", info.jited_bytes));
    assert!(is_same_size || info.jited_bytes == 0, "{listing}");
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn no_descriptor_survives_exec() {
    let arena = expect_ok(Arena::new(4096));
    let program = arena_program(&arena);
    let map = expect_ok(unspool_bpf::Map::new_hash(4, 4, 1));
    let ring = expect_ok(unspool_bpf::RingBuf::new(4096));
    let fds = [arena.as_fd(), program.as_fd(), map.as_fd(), ring.as_fd()];
    let distinct: HashSet<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    assert_eq!(distinct.len(), fds.len());
    for fd in distinct {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_ne!(flags & 0o2_000_000, 0, "O_CLOEXEC of {fd}: {info}");
    }
}

/// Root without capabilities stands for any other user.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn errors_name_missing_capabilities() {
    let path = unspool_testing::packages::path("/usr/bin/setpriv").unwrap();
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new(path);
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--"]);
    command
        .arg(this)
        .args(["--exact", "--include-ignored", "run::an_arena_is_shared"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("BPF map of type arena: Operation not permitted"),
        "{text}"
    );
    assert!(
        text.contains("run as root (CAP_BPF and CAP_PERFMON"),
        "{text}"
    );
}
