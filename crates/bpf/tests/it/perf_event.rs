//! Programs at a performance event of this process.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use unspool_bpf::insn::{AluOp, AtomicOp, Cond, Reg, Size, Width};
use unspool_bpf::{Arena, Helper, ProgType, Program, RunStats};
use unspool_perf_events::{Counter, EventAttr, EventTarget, PerfEvent, Ring, SampleRate};

use crate::kernel::{CS, IP, expect_ok, load, mapping};

use Reg::{R0, R1, R2, R6, R7};
use Size::DW;

// Offsets in the arena. The program writes its cookie, the number of its runs in `spin`, and the
// last instruction pointer there. `spin` writes whether it is active.
const RUNS: i16 = 0;
const LAST_IP: i16 = 8;
const COOKIE: i16 = 16;
const IS_SPINNING: i16 = 24;

fn program(arena: &Arena, returns: i32) -> Program {
    load(ProgType::PerfEvent, |asm| {
        let elsewhere = asm.new_label();
        asm.mov64(R6, R1);
        asm.ld_map_value(R7, arena, 0);
        asm.cast_kern(R7, R7);
        asm.call(Helper::GET_ATTACH_COOKIE);
        asm.st(DW, R7, COOKIE, R0);
        asm.ldx(DW, R2, R6, CS);
        asm.alu64(AluOp::And, R2, 3);
        asm.jmp(Cond::Ne, R2, 3, elsewhere);
        asm.ldx(DW, R2, R7, IS_SPINNING);
        asm.jmp(Cond::Eq, R2, 0, elsewhere);
        asm.ldx(DW, R2, R6, IP);
        asm.st(DW, R7, LAST_IP, R2);
        asm.mov64(R1, 1);
        asm.atomic(Width::W64, AtomicOp::Add, R7, RUNS, R1);
        asm.bind(elsewhere);
        asm.mov64(R0, returns);
        asm.exit();
    })
}

fn word(arena: &Arena, offset: i16) -> &AtomicU64 {
    arena.word(usize::try_from(offset).unwrap()).unwrap()
}

/// Runs until the program has run in this function ten times. Returns its address.
#[inline(never)]
fn spin(arena: &Arena) -> u64 {
    let (runs, is_spinning) = (word(arena, RUNS), word(arena, IS_SPINNING));
    is_spinning.store(1, Ordering::SeqCst);
    while runs.load(Ordering::SeqCst) < 10 {
        for number in 0..1000 {
            black_box(number);
        }
    }
    is_spinning.store(0, Ordering::SeqCst);
    (spin as fn(&Arena) -> u64) as usize as u64
}

/// Attaches the program to this thread's cpu-clock on each processor. Returns the number of samples
/// that the kernel wrote.
fn samples(returns: i32) -> usize {
    let setup = EventAttr {
        event: "cpu-clock".parse::<PerfEvent>().unwrap(),
        rate: SampleRate::Period(1_000_000),
        user_registers: 0,
        stack_bytes: 0,
        with_kernel: false,
        with_frame_pointers: false,
        inherits: false,
        from_exec: false,
        with_tasks: false,
        with_switches: false,
        wake_after: 1,
    };
    let arena = expect_ok(Arena::new(4096));
    // Touch the page before the program writes to it.
    arena.write(0, &[0; 64]).unwrap();
    let program = program(&arena, returns);
    let stats = expect_ok(RunStats::enable());
    let thread = EventTarget::Thread(0);
    let counters: Vec<Counter> = online()
        .map(|cpu| expect_ok(Counter::open(&setup, thread, cpu)))
        .collect();
    let mut rings: Vec<Ring> = counters
        .iter()
        .map(|it| Ring::new(it, 1 << 16).unwrap())
        .collect();
    let links: Vec<_> = counters
        .iter()
        .map(|it| program.attach(it, 0x5eed).unwrap())
        .collect();
    counters.iter().for_each(|it| it.enable().unwrap());
    let near = spin(&arena);
    counters.iter().for_each(|it| it.disable().unwrap());
    drop(links);
    let value = |offset| word(&arena, offset).load(Ordering::SeqCst);
    assert_eq!(value(COOKIE), 0x5eed);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert_eq!(mapping(&maps, value(LAST_IP)), mapping(&maps, near));
    let info = program.info().unwrap();
    assert!(info.run_count >= 10 && info.run_time_ns > 0, "{info:?}");
    drop(stats);
    rings.iter_mut().map(count).sum()
}

/// The online processors: `0-3,6`.
fn online() -> impl Iterator<Item = u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let ranges: Vec<String> = text.trim().split(',').map(str::to_owned).collect();
    ranges.into_iter().flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((&range, &range));
        first.parse().unwrap()..=last.parse().unwrap()
    })
}

/// The number of records in a ring.
fn count(ring: &mut Ring) -> usize {
    ring.refresh();
    let mut records = 0;
    while let Some((header, _)) = ring.first() {
        ring.skip(header);
        records += 1;
    }
    records
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_program_that_returns_0_suppresses_samples() {
    assert_eq!(samples(0), 0);
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_program_that_returns_1_allows_samples() {
    assert!(samples(1) >= 10);
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_program_for_events_cannot_be_run_once() {
    let arena = expect_ok(Arena::new(4096));
    let error = program(&arena, 0).test_run(&mut []).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(524), "ENOTSUPP: {error}");
}
