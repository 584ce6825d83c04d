use super::*;
use std::sync::Mutex;
use std::vec::Vec;

use unspool_ir::row::CfaRule;

use crate::abi::DynInfo;
use crate::rule;
use crate::sys::fake::{self, Target};

const STACK: u64 = 0x7000;

fn target() -> Target {
    let mut registers = [0; 17];
    for (register, n) in registers.iter_mut().zip(0..) {
        *register = 0x100 + n;
    }
    for (register, offset) in [(2, 0xc0), (3, 0x60), (6, 0x80), (7, 0x40), (12, 0xa0)] {
        registers[register] = STACK + offset;
    }
    Target {
        start: STACK,
        words: Mutex::new((0..64).map(|n| STACK + n * 13 % 40 * 8).collect()),
        registers: Mutex::new(registers),
        table: DynInfo::NONE,
    }
}

/// What can be asked of a frame.
type Frame = (u64, bool, Vec<(Result<u64, Error>, SaveLocation)>);

fn frame(cursor: &Cursor<'_>) -> Frame {
    let register = |n| (cursor.get(n), cursor.save_location(n));
    (
        cursor.ip(),
        cursor.is_interrupted(),
        (0..19).map(register).collect(),
    )
}

fn row(cfa: u16, offset: i64, rules: &[(u16, RegisterRule<'static>)]) -> Row<'static> {
    let mut row = Row::new(RETURN_ADDRESS);
    row.cfa = CfaRule::RegisterOffset {
        register: Register(cfa),
        offset,
    };
    for (register, rule) in rules {
        row.set_rule(Register(*register), Some(*rule)).unwrap();
    }
    row
}

/// The short way of a simple row against the interpreter's, from frames that are reached in all
/// kinds of ways.
#[test]
fn both_ways_of_a_simple_row_lead_to_the_same_frame() {
    use RegisterRule::{Offset, Register as InRegister, Undefined, ValOffset};
    let target = target();
    let innermost = Cursor::new(fake::space(), target.argument()).unwrap();
    let mut starts = [innermost].to_vec();
    for rules in [
        &[(16, Offset(-8))][..],
        &[(16, Offset(-8)), (3, Undefined), (6, ValOffset(-16))],
        &[
            (16, Offset(-8)),
            (12, InRegister(Register(2))),
            (6, Offset(-24)),
        ],
    ] {
        let mut cursor = innermost;
        assert_eq!(cursor.step_row(&row(7, 16, rules), LoadBias(0)), Ok(true));
        starts.push(cursor);
    }
    let mut resuming = innermost;
    resuming.set(abi::RAX, 5).unwrap();
    starts.push(resuming);
    let mut steps = 0;
    for start in &starts {
        for cfa in [3, 6, 7, 12] {
            for set in 0..64_u32 {
                let mut rules = [(16, Offset(-8))].to_vec();
                for (at, register) in [3, 6, 12, 13, 14, 15].into_iter().enumerate() {
                    if set >> at & 1 != 0 {
                        rules.push((register, Offset(-16 - 8 * i64::try_from(at).unwrap())));
                    }
                }
                let row = row(cfa, 0x48, &rules);
                let simple = Simple::from_row(&row).unwrap();
                let (mut fast, mut plain) = (*start, *start);
                let (by_simple, by_row) =
                    (fast.step_simple(&simple), plain.step_row(&row, LoadBias(0)));
                assert_eq!(by_simple.is_ok(), by_row.is_ok());
                assert_eq!(frame(&fast), frame(&plain));
                steps += u32::from(by_row.is_ok());
            }
        }
    }
    assert!(steps > 700, "only {steps} steps succeed");
}

#[test]
fn a_failed_step_leaves_the_cursor_where_it_was() {
    let target = target();
    let start = Cursor::new(fake::space(), target.argument()).unwrap();
    let unreadable = row(7, 0x10_0000, &[(16, RegisterRule::Offset(-8))]);
    let mut cursor = start;
    assert!(cursor.step_row(&unreadable, LoadBias(0)).is_err());
    assert_eq!(frame(&cursor), frame(&start));
    let simple = Simple::from_row(&unreadable).unwrap();
    assert!(cursor.step_simple(&simple).is_err());
    assert_eq!(frame(&cursor), frame(&start));
}

#[test]
fn a_circle_of_frames_ends() {
    let target = target();
    for period in 1..9 {
        let mut cursor = Cursor::new(fake::space(), target.argument()).unwrap();
        // Each frame's "return address" is its distance in the circle; the CFA comes back.
        let mut steps = 0;
        loop {
            let at = i64::from(steps % period) * 8;
            let back =
                i64::try_from(STACK).unwrap() + at - i64::try_from(cursor.stack_pointer).unwrap();
            let circle = row(7, back, &[(16, RegisterRule::Offset(0))]);
            match cursor.step_encoded(&rule::encoded(&circle).unwrap()) {
                Ok(is_running) => assert!(is_running),
                Err(error) => break assert_eq!(error, Error::BAD_FRAME),
            }
            steps += 1;
            assert!(steps < 100, "a circle of {period} is not seen");
        }
        assert!(steps >= period);
    }
}

#[test]
fn registers_are_written_where_they_are() {
    let target = target();
    let mut cursor = Cursor::new(fake::space(), target.argument()).unwrap();
    assert_eq!(cursor.set(abi::RSP, 1), Err(Error::READ_ONLY_REGISTER));
    assert_eq!(cursor.set(3, 0x33), Ok(()));
    assert_eq!(target.registers.lock().unwrap()[3], 0x33);
    let rules = [
        (16, RegisterRule::Offset(-8)),
        (3, RegisterRule::Offset(-16)),
    ];
    assert_eq!(cursor.step_row(&row(7, 16, &rules), LoadBias(0)), Ok(true));
    assert_eq!(cursor.get(3), Ok(STACK + 24 * 8));
    assert_eq!(cursor.set(3, 0x44), Ok(()));
    assert_eq!(target.words.lock().unwrap()[8], 0x44);
    assert_eq!(cursor.set(abi::RIP, 0x55), Ok(()));
    assert_eq!((cursor.ip(), target.words.lock().unwrap()[9]), (0x55, 0x55));
    assert_eq!(cursor.get(2), Err(Error::BAD_REGISTER));
    assert_eq!(cursor.set(2, 0), Err(Error::BAD_REGISTER));
    // Arguments of a landing pad do not touch the innermost frame before it is given up.
    assert_eq!(cursor.set(abi::RAX, 0x66), Ok(()));
    assert_eq!(cursor.get(abi::RAX), Ok(0x66));
    assert_eq!(target.registers.lock().unwrap()[0], 0x100);
    cursor.establish().unwrap();
    let registers = *target.registers.lock().unwrap();
    assert_eq!(registers[0], 0x66);
    assert_eq!(registers[3], 0x44);
    assert_eq!(registers[7], STACK + 0x50);
    assert_eq!(registers[16], 0x55);
}
