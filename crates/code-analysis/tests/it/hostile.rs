//! Bytes that are not code, and hard code: the analysis ends and does not panic.

use unspool_code_analysis::{
    Analyzer, CodeExtent, CodeImage, ExtentKind, Lifter, NoAssumptions, ProgramCode,
};
use unspool_rows::Abi;

const ABI: Abi = Abi::X86_64;

const BASE: u64 = 0x1000;

struct ByteImage(Vec<u8>);

impl CodeImage for ByteImage {
    fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        self.0
            .get(usize::try_from(address.checked_sub(BASE)?).ok()?..)
    }
}

/// Analyzes bytes as functions of that size. Returns the number of reached instructions.
fn reached(bytes: Vec<u8>, size: usize) -> usize {
    let image = ByteImage(bytes);
    let end = BASE + image.0.len() as u64;
    let starts = (BASE..end).step_by(size);
    let extents = starts.map(|start| CodeExtent {
        start,
        end: (start + size as u64).min(end),
        kind: if start % 3 == 0 {
            ExtentKind::Fragment
        } else {
            ExtentKind::Function
        },
    });
    let mut machine = Lifter::new(ABI).unwrap();
    let program = ProgramCode::scan(&mut machine, &image, extents.collect(), Vec::new(), |_| {
        false
    });
    let mut analyzer = Analyzer::new(machine);
    let mut count = 0;
    for unit in 0..program.unit_count() {
        let analysis = analyzer.analyze(&program, &image, unit, &[], &NoAssumptions);
        analysis.visit(|_, _| count += 1);
    }
    count
}

#[test]
fn random_bytes_are_analyzed_to_an_end() {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    for size in [1, 7, 64, 4096, 1 << 16] {
        let bytes = (0..1 << 16).map(|_| next()).collect();
        assert!(reached(bytes, size) > 0);
    }
}

/// Jumps into jumps: each byte begins another instruction, and each jumps back.
#[test]
fn a_maze_of_jumps_ends() {
    let mut bytes = Vec::new();
    for at in 0..20_000_i32 {
        // `push %rax`, then a conditional jump to somewhere.
        bytes.push(0x50);
        bytes.extend([0x0f, 0x84]);
        let to = (at.wrapping_mul(7919) % 20_000) * 7;
        bytes.extend((to - (at * 7 + 7)).to_le_bytes());
    }
    let size = bytes.len();
    reached(bytes, size);
}

/// A function of 100,000 instructions without a branch, and one in which every other instruction is
/// a jump target.
#[test]
fn long_functions_are_analyzed() {
    let mut straight = [0x48, 0x83, 0xec, 0x08].repeat(100_000);
    straight.push(0xc3);
    let size = straight.len();
    assert_eq!(reached(straight, size), 100_001);
    let mut hopping = [0x74, 0x00, 0x90, 0x90].repeat(50_000);
    hopping.push(0xc3);
    let size = hopping.len();
    assert_eq!(reached(hopping, size), 150_001);
}

/// The bug: each jump through a table read it and joined all targets again. These took a minute.
#[test]
fn many_jumps_through_a_large_table_end() {
    const JUMPS: u32 = 10_000;
    const CODE: u32 = 18;
    let table = u32::try_from(BASE).unwrap() + 5 + JUMPS * CODE;
    // Each run pushes, and jumps through the table.
    let mut bytes = vec![0x90; 5];
    for piece in 0..JUMPS {
        let lea = u32::try_from(BASE).unwrap() + 5 + piece * CODE + 8;
        bytes.extend([0x50, 0x48, 0x8d, 0x15]);
        bytes.extend((table - lea).to_le_bytes());
        bytes.extend([0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0x3e, 0xff, 0xe0]);
    }
    let code = bytes.len();
    for entry in 0..JUMPS {
        let piece = entry.wrapping_mul(7919) % JUMPS;
        let to = u32::try_from(BASE).unwrap() + 5 + piece * CODE;
        bytes.extend(to.wrapping_sub(table).to_le_bytes());
    }
    let image = ByteImage(bytes);
    let extent = CodeExtent {
        start: BASE,
        end: BASE + code as u64,
        kind: ExtentKind::Function,
    };
    let mut machine = Lifter::new(ABI).unwrap();
    let program = ProgramCode::scan(&mut machine, &image, vec![extent], Vec::new(), |_| false);
    let mut analyzer = Analyzer::new(machine);
    let analysis = analyzer.analyze(&program, &image, 0, &[], &NoAssumptions);
    let mut count = 0;
    analysis.visit(|_, _| count += 1);
    assert_eq!(count, 5 + 5 * JUMPS);
}
