//! ORC's entries become the rows that the kernel's unwinder (`unwind_orc.c`) follows.

use unspool_cfi::orc::{OrcError, OrcSections, OrcVersion};
use unspool_rows::interpret::{FrameContext, step};
use unspool_rows::memory::Unreadable;
use unspool_rows::{Abi, Arch, Endian, LoadBias, Memory, Register, Registers, RuntimeAddr, Vaddr};

const START: u64 = 0x1000;
/// Where the words of a frame are, each with its own address plus one as value.
const STACK: u64 = 0x7000;

/// An entry as `objtool` writes it: the code address, the CFA's register and offset, the saved
/// frame pointer's, and the high bits of the flags.
type Entry = (u64, u16, i16, u16, i16, u16);

fn read(
    entries: &[Entry],
    version: OrcVersion,
    starts: &[u64],
) -> (unspool_rows::Table, Vec<OrcError>) {
    let (mut addresses, mut bytes) = (Vec::new(), Vec::new());
    for (index, (address, register, offset, saved, saved_at, high)) in entries.iter().enumerate() {
        let field = START + 4 * index as u64;
        let distance = i32::try_from(address.wrapping_sub(field).cast_signed()).unwrap();
        addresses.extend(distance.to_le_bytes());
        bytes.extend([offset.to_le_bytes(), saved_at.to_le_bytes()].as_flattened());
        bytes.extend((register | saved << 4 | high << 8).to_le_bytes());
    }
    let sections = OrcSections {
        addresses: &addresses,
        start: Vaddr(START),
        entries: &bytes,
        version,
        adds_after_load: OrcSections::adds_after_load(6, 1),
    };
    let starts: Vec<_> = starts.iter().copied().map(Vaddr).collect();
    let (table, problems) = sections.table(&starts);
    (
        table,
        problems.into_iter().map(|problem| problem.error).collect(),
    )
}

struct Words;

impl Memory for Words {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        into.copy_from_slice(&(addr.0 + 1).to_le_bytes());
        Ok(())
    }
}

/// The CFA, and the caller's code address, stack and frame pointer by the row at an address.
fn caller(table: &unspool_rows::Table, at: u64) -> Option<[Option<u64>; 4]> {
    let span = table
        .spans()
        .find(|span| span.start.0 <= at && at < span.end.0)?;
    let row = table.row(span.row)?;
    let mut registers = Registers::new();
    for number in 0..17 {
        registers.set(Register(number), STACK + 0x100 * u64::from(number));
    }
    let frame = FrameContext {
        abi: Abi {
            arch: Arch::X86_64,
            endian: Endian::Little,
        },
        registers: &registers,
        memory: &Words,
        bias: LoadBias(0),
        pac_mask: 0,
    };
    let caller = step(&row, &frame).ok()?;
    let get = |number| caller.registers.get(Register(number));
    // Registers that ORC does not track are not taken for the caller's.
    if !row.signal_frame {
        assert_eq!(get(3), None);
    }
    Some([
        Some(caller.cfa.0),
        caller.return_address.map(|addr| addr.0),
        get(7),
        get(6),
    ])
}

const RBP: u64 = STACK + 0x600;
const RSP: u64 = STACK + 0x700;

/// Base and offset of the stack pointer and of rbp, the type, and the registers of the caller.
type OrcCase = (u16, i16, u16, i16, u16, [Option<u64>; 4]);

/// Expectations are those of `unwind_next_frame`: for a call, the return address is below the stack
/// pointer that was found; for registers, it is in `pt_regs` there.
#[test]
fn rows_lead_where_the_kernel_goes() {
    for (version, call, regs, partial, end, signal) in [
        (OrcVersion::V1, 0, 1, 2, 4, 0),
        (OrcVersion::V2, 0, 1, 2, 8, 4),
        (OrcVersion::V3, 2, 3, 4, 1, 8),
    ] {
        let cases: &[OrcCase] = &[
            (
                5,
                16,
                0,
                0,
                call,
                [Some(RSP + 16), Some(RSP + 9), Some(RSP + 16), Some(RBP)],
            ),
            (
                4,
                16,
                1,
                -16,
                call,
                [Some(RBP + 16), Some(RBP + 9), Some(RBP + 16), Some(RBP + 1)],
            ),
            (
                4,
                16,
                4,
                -8,
                call,
                [Some(RBP + 16), Some(RBP + 9), Some(RBP + 16), Some(RBP - 7)],
            ),
            (
                6,
                0,
                0,
                0,
                call,
                [Some(0x7a00), Some(0x79f9), Some(0x7a00), Some(RBP)],
            ),
            (
                7,
                0,
                0,
                0,
                call,
                [Some(0x7d00), Some(0x7cf9), Some(0x7d00), Some(RBP)],
            ),
            (
                2,
                0,
                0,
                0,
                call,
                [Some(0x7100), Some(0x70f9), Some(0x7100), Some(RBP)],
            ),
            (
                3,
                0,
                0,
                0,
                call,
                [Some(0x7500), Some(0x74f9), Some(0x7500), Some(RBP)],
            ),
            (
                8,
                -8,
                0,
                0,
                call,
                [Some(RBP - 7), Some(RBP - 14), Some(RBP - 7), Some(RBP)],
            ),
            (
                9,
                8,
                0,
                0,
                call,
                [Some(RSP + 9), Some(RSP + 2), Some(RSP + 9), Some(RBP)],
            ),
            (
                5,
                8,
                0,
                0,
                regs | signal,
                [
                    Some(RSP + 8),
                    Some(RSP + 137),
                    Some(RSP + 161),
                    Some(RSP + 41),
                ],
            ),
            (
                5,
                8,
                0,
                0,
                partial | signal,
                [Some(RSP + 8), Some(RSP + 9), Some(RSP + 33), Some(RBP)],
            ),
        ];
        let entries: Vec<Entry> = (0..)
            .zip(cases)
            .map(|(nth, (register, offset, saved, at, high, _))| {
                (0x2000 + 16 * nth, *register, *offset, *saved, *at, *high)
            })
            .chain([(0x3000, 5, 8, 0, 0, end), (0x3010, 0, 0, 0, 0, 0)])
            .collect();
        let (table, problems) = read(&entries, version, &[]);
        assert_eq!(problems, []);
        for (nth, case) in (0..).zip(cases) {
            let found = caller(&table, 0x2000 + 16 * nth + 3);
            assert_eq!(found, Some(case.5), "{version:?} {case:?}");
        }
        // The last case holds up to the next address; then the stack ends, and then is a hole.
        let end = caller(&table, 0x3004).unwrap();
        assert_eq!(end[1], None, "{version:?}");
        assert_eq!(caller(&table, 0x3010), None);
    }
}

#[test]
fn modules_are_in_any_order_and_functions_are_cut() {
    let entries = [
        (0x2020, 0, 0, 0, 0, 0),
        (0x2010, 5, 16, 0, 0, 0),
        (0x2000, 5, 8, 0, 0, 0),
        // The end of one section is the start of the next: the row holds.
        (0x2020, 5, 8, 0, 0, 0),
        (0x2030, 0, 0, 0, 0, 0),
    ];
    let (table, problems) = read(&entries, OrcVersion::V1, &[0x2000, 0x2008, 0x2018, 0x2020]);
    assert_eq!(problems, []);
    let bounds: Vec<_> = table
        .fdes()
        .iter()
        .map(|fde| (fde.start.0, fde.end.0))
        .collect();
    assert_eq!(
        bounds,
        [
            (0x2000, 0x2008),
            (0x2008, 0x2018),
            (0x2018, 0x2020),
            (0x2020, 0x2030)
        ]
    );
    assert_eq!(caller(&table, 0x2012).unwrap()[0], Some(RSP + 16));
    assert_eq!(caller(&table, 0x2025).unwrap()[0], Some(RSP + 8));
}

#[test]
fn bad_entries_leave_holes() {
    let entries = [
        (0x2000, 15, 8, 0, 0, 2),
        (0x2010, 5, 8, 3, 0, 2),
        (0x2020, 5, 8, 0, 0, 7),
        (0x2030, 5, 8, 0, 0, 2),
    ];
    let (table, mut problems) = read(&entries, OrcVersion::V3, &[]);
    problems.sort_by_key(ToString::to_string);
    let expected = [
        OrcError::NoEnd,
        OrcError::CfaRegister { number: 15 },
        OrcError::FramePointer { number: 3 },
        OrcError::Type { number: 5 },
    ];
    assert_eq!(problems, expected);
    assert!(table.fdes().is_empty());
    assert_eq!(OrcVersion::from_header(&[1; 20]), None);
    assert_eq!(OrcVersion::from_release(5, 10), OrcVersion::V1);
    assert_eq!(OrcVersion::from_release(6, 3), OrcVersion::V2);
    assert_eq!(OrcVersion::from_release(7, 0), OrcVersion::V3);
}
