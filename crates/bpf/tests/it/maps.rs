//! Maps shared by programs and this process.

use unspool_bpf::insn::{AluOp, Cond, Reg, Size};
use unspool_bpf::{Assembler, Helper, Map, MapOfMaps, PercpuArray, ProgType, RingBuf};

use crate::kernel::{expect_ok, load, run};

use Reg::{R0, R1, R2, R3, R4, R6, R10};
use Size::{DW, W};

/// Copies the first word of the context `R6` to the stack. `R2` becomes its address.
fn key_from_ctx(asm: &mut Assembler<'_>) {
    asm.ldx(DW, R2, R6, 0);
    asm.st(DW, R10, -8, R2);
    asm.mov64(R2, R10);
    asm.alu64(AluOp::Add, R2, -8);
}

/// Copies the word at `R0`, if not null, to the context's second word, and increments it. Exits.
fn value_to_ctx(asm: &mut Assembler<'_>) {
    let absent = asm.new_label();
    asm.jmp(Cond::Eq, R0, 0, absent);
    asm.ldx(DW, R1, R0, 0);
    asm.st(DW, R6, 8, R1);
    asm.alu64(AluOp::Add, R1, 1);
    asm.st(DW, R0, 0, R1);
    asm.bind(absent);
    asm.mov64(R0, 0);
    asm.exit();
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_hash_table() {
    let map = expect_ok(Map::new_hash(8, 8, 2));
    let program = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        key_from_ctx(asm);
        asm.ld_map_fd(R1, &map);
        asm.call(Helper::MAP_LOOKUP_ELEM);
        value_to_ctx(asm);
    });
    let key = 5_u64.to_le_bytes();
    let mut ctx = [5, 99];
    run(&program, &mut ctx);
    assert_eq!(ctx[1], 99, "there is none yet");
    map.update(&key, &40_u64.to_le_bytes()).unwrap();
    run(&program, &mut ctx);
    assert_eq!(ctx[1], 40);
    let mut value = [0; 8];
    assert!(map.lookup(&key, &mut value).unwrap());
    assert_eq!(u64::from_le_bytes(value), 41);
    map.update(&6_u64.to_le_bytes(), &[0; 8]).unwrap();
    let full = map.update(&7_u64.to_le_bytes(), &[0; 8]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(7), "E2BIG: {full}");
    map.delete(&key).unwrap();
    assert!(!map.lookup(&key, &mut value).unwrap());
    assert!(map.delete(&key).is_err());
}

/// The kernel does not check the sizes of keys and values. The crate does.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn sizes_are_checked() {
    let map = expect_ok(Map::new_array(8, 1));
    assert!(map.lookup(&[0; 4], &mut [0; 4]).is_err());
    assert!(map.update(&[0; 3], &[0; 8]).is_err());
    assert!(map.update(&[0; 4], &[0; 7]).is_err());
    assert!(map.lookup(&[0; 4], &mut [0; 8]).unwrap());
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn an_array_with_a_value_for_each_processor() {
    let map = expect_ok(PercpuArray::new(8, 1));
    let program = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        key_from_ctx(asm);
        asm.ld_map_fd(R1, &map);
        asm.call(Helper::MAP_LOOKUP_ELEM);
        value_to_ctx(asm);
    });
    // Each processor counts its own runs, from 0 on.
    let firsts = (0..100).filter(|_| {
        let mut ctx = [0, 99];
        run(&program, &mut ctx);
        assert!(ctx[1] < 100);
        ctx[1] == 0
    });
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!((1..=processors).contains(&firsts.count()));
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn maps_of_maps() {
    let [first, second] = [10_u64, 20].map(|value| {
        let map = expect_ok(Map::new_array(8, 1));
        map.update(&[0; 4], &value.to_le_bytes()).unwrap();
        map
    });
    let array = expect_ok(MapOfMaps::new_array(2, &first));
    let hash = expect_ok(MapOfMaps::new_hash(8, 2, &first));
    let other = expect_ok(Map::new_hash(4, 8, 1));
    assert!(array.update(&[0; 4], &other).is_err(), "of another type");
    array.update(&0_u32.to_le_bytes(), &first).unwrap();
    array.update(&1_u32.to_le_bytes(), &second).unwrap();
    hash.update(&7_u64.to_le_bytes(), &second).unwrap();
    drop(second);
    let lookup_inner = |asm: &mut Assembler<'_>| {
        let absent = asm.new_label();
        asm.call(Helper::MAP_LOOKUP_ELEM);
        asm.jmp(Cond::Eq, R0, 0, absent);
        asm.mov64(R1, R0);
        asm.st(W, R10, -16, 0);
        asm.mov64(R2, R10);
        asm.alu64(AluOp::Add, R2, -16);
        asm.call(Helper::MAP_LOOKUP_ELEM);
        asm.bind(absent);
        value_to_ctx(asm);
    };
    let of_array = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        key_from_ctx(asm);
        asm.ld_map_fd(R1, &array);
        lookup_inner(asm);
    });
    let of_hash = load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        key_from_ctx(asm);
        asm.ld_map_fd(R1, &hash);
        lookup_inner(asm);
    });
    let lookup = |program, key| {
        let mut ctx = [key, 0];
        run(program, &mut ctx);
        ctx[1]
    };
    assert_eq!(lookup(&of_array, 0), 10);
    assert_eq!(lookup(&of_array, 1), 20);
    assert_eq!(lookup(&of_hash, 7), 21, "the same map, after an increment");
    assert_eq!(lookup(&of_hash, 8), 0);
    hash.delete(&7_u64.to_le_bytes()).unwrap();
    assert_eq!(lookup(&of_hash, 7), 0);
}

/// A program that appends the first bytes of its context to a ring, and returns the helper's
/// result.
fn output(ring: &RingBuf, bytes: i32) -> unspool_bpf::Program {
    load(ProgType::Syscall, |asm| {
        asm.mov64(R6, R1);
        key_from_ctx(asm);
        asm.ld_map_fd(R1, ring);
        asm.mov64(R3, bytes);
        asm.mov64(R4, 0);
        asm.call(Helper::RINGBUF_OUTPUT);
        asm.exit();
    })
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_ring_delivers_records_in_order() {
    let mut ring = expect_ok(RingBuf::new(4096));
    let (long, short) = (output(&ring, 8), output(&ring, 3));
    assert_eq!(ring.next_record(), None);
    // Records of different sizes cross the ring's end many times.
    for round in 0..1000_u64 {
        let bytes = round.to_le_bytes();
        assert_eq!(run(&long, &mut [round]), 0);
        assert_eq!(run(&short, &mut [round]), 0);
        assert_eq!(ring.next_record(), Some(&bytes[..]));
        assert_eq!(ring.next_record(), Some(&bytes[..3]));
        assert_eq!(ring.next_record(), None);
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_full_ring_refuses_records_until_some_are_read() {
    let mut ring = expect_ok(RingBuf::new(4096));
    let program = output(&ring, 8);
    let accepted = (0..).take_while(|number| run(&program, &mut [*number]) == 0);
    // 8 bytes and a header of 8; one byte has to stay free.
    assert_eq!(accepted.count(), 4096 / 16 - 1);
    assert_eq!(ring.next_record(), Some(&[0; 8][..]));
    // The record stays until the next call of `next_record`.
    assert_ne!(run(&program, &mut [1000]), 0);
    assert_eq!(ring.next_record(), Some(&1_u64.to_le_bytes()[..]));
    assert_eq!(run(&program, &mut [1000]), 0);
    let mut last = None;
    while let Some(record) = ring.next_record() {
        last = Some(record.to_vec());
    }
    assert_eq!(last, Some(1000_u64.to_le_bytes().to_vec()));
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_discarded_record_is_skipped() {
    let mut ring = expect_ok(RingBuf::new(4096));
    // Reserves two records, discards the first, and submits the second.
    let program = load(ProgType::Syscall, |asm| {
        let (none, one) = (asm.new_label(), asm.new_label());
        asm.ld_map_fd(R1, &ring);
        asm.mov64(R2, 24);
        asm.mov64(R3, 0);
        asm.call(Helper::RINGBUF_RESERVE);
        asm.jmp(Cond::Eq, R0, 0, none);
        asm.mov64(R6, R0);
        asm.ld_map_fd(R1, &ring);
        asm.mov64(R2, 8);
        asm.mov64(R3, 0);
        asm.call(Helper::RINGBUF_RESERVE);
        asm.jmp(Cond::Eq, R0, 0, one);
        asm.st(DW, R0, 0, 5);
        asm.mov64(R1, R0);
        asm.mov64(R2, 0);
        asm.call(Helper::RINGBUF_SUBMIT);
        asm.bind(one);
        asm.mov64(R1, R6);
        asm.mov64(R2, 0);
        asm.call(Helper::RINGBUF_DISCARD);
        asm.bind(none);
        asm.mov64(R0, 0);
        asm.exit();
    });
    run(&program, &mut [0]);
    assert_eq!(ring.next_record(), Some(&5_u64.to_le_bytes()[..]));
    assert_eq!(ring.next_record(), None);
}
