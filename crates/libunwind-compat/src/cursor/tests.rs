use super::*;
use std::sync::Mutex;
use std::vec::Vec;

use unspool_rows::row::CfaRule;
use unspool_rows::{Expression, RuntimeAddr};

use crate::abi::DynInfo;
use crate::guess;
use crate::rule;
use crate::space::AddressSpace;
use crate::sys::fake_target::{self, FakeTarget};

const STACK: u64 = 0x7000;

fn target() -> FakeTarget {
    let mut registers = [0; 17];
    for (register, n) in registers.iter_mut().zip(0..) {
        *register = 0x100 + n;
    }
    for (register, offset) in [(2, 0xc0), (3, 0x60), (6, 0x80), (7, 0x40), (12, 0xa0)] {
        registers[register] = STACK + offset;
    }
    FakeTarget {
        start: STACK,
        words: Mutex::new((0..64).map(|n| STACK + n * 13 % 40 * 8).collect()),
        registers: Mutex::new(registers),
        table: DynInfo::NONE,
    }
}

fn innermost(space: &'static AddressSpace, target: &FakeTarget) -> ClientCursor<'static> {
    let argument = target.argument();
    let client = Client { space, argument };
    ClientCursor::innermost(client, client.top().unwrap())
}

/// The observable state of a frame.
type ObservedFrame = (u64, bool, Vec<(Result<u64, Error>, SaveLocation)>);

fn frame(cursor: &ClientCursor<'_>) -> ObservedFrame {
    let mut copy = *cursor;
    let register = |n| (cursor.get(n), copy.save_location(n));
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

fn pack(row: &Row<'_>) -> PackedRow {
    PackedRow::from_row(row, ABI.arch, RegisterScope::All).unwrap()
}

/// A row that packs: with the CFA above this register or, if it is 0, in memory at the frame
/// pointer. The register `lost` cannot be recovered, and those in `set` were saved.
fn packable(base: u16, lost: u16, set: u32) -> Row<'static> {
    const AT_FRAME_POINTER: [[u8; 2]; 6] = [
        [0x76, 0x00],
        [0x76, 0x78],
        [0x76, 0x70],
        [0x76, 0x68],
        [0x76, 0x60],
        [0x76, 0x58],
    ];
    let mut row = row(base, 0x48, &[(16, RegisterRule::Offset(-8))]);
    if base == 0 {
        row.cfa = CfaRule::Expression(Expression(&[0x76, 0x70, 0x06]));
    }
    let numbered = SavedRegisters::REGISTERS.into_iter().zip(&AT_FRAME_POINTER);
    for ((register, expression), at) in numbered.zip(0..) {
        let rule = match base {
            _ if register == lost => RegisterRule::Undefined,
            0 => RegisterRule::Expression(Expression(expression)),
            _ => RegisterRule::Offset(-16 - 8 * at),
        };
        let is_set = set >> at & 1 != 0 || register == lost;
        let rule = is_set.then_some(rule);
        row.set_rule(Register(register), rule).unwrap();
    }
    row
}

/// The fast path of a simple row compared with the interpreter, from frames reached in all ways.
#[test]
fn both_ways_of_a_simple_row_lead_to_the_same_frame() {
    use RegisterRule::{Offset, Register as InRegister, Undefined, ValOffset};
    let target = target();
    let innermost = innermost(fake_target::space(), &target);
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
        for (base, lost) in [(6, 0), (7, 0), (7, 3), (7, 6), (0, 0), (0, 12)] {
            for set in 0..64_u32 {
                let row = packable(base, lost, set);
                let simple = pack(&row);
                let (mut fast, mut plain) = (*start, *start);
                let (by_simple, by_row) =
                    (fast.step_packed(simple), plain.step_row(&row, LoadBias(0)));
                assert_eq!(by_simple.is_ok(), by_row.is_ok());
                assert_eq!(frame(&fast), frame(&plain));
                steps += u32::from(by_row.is_ok());
            }
        }
    }
    assert!(steps > 1000, "only {steps} steps succeed");
}

/// Two frames at the same address: one has a frame pointer, the other is the outermost.
#[test]
fn a_guess_is_made_anew_for_each_frame() {
    let mut target = target();
    target.table.format = abi::FORMAT_REMOTE_TABLE; // of no address
    let space = fake_target::space();
    space.set_policy(abi::CACHE_GLOBAL).unwrap();
    for (frame_pointer, steps) in [(STACK + 0x80, 1), (0, 0), (STACK + 0x90, 1)] {
        let mut registers = target.registers.lock().unwrap();
        (registers[6], registers[16]) = (frame_pointer, STACK + 0x100);
        drop(registers);
        let mut cursor = innermost(space, &target);
        assert_eq!(cursor.step(), steps, "{frame_pointer:#x}");
        let stack_pointer = match steps {
            1 => frame_pointer + 16,
            _ => STACK + 0x40,
        };
        assert_eq!(cursor.get(abi::RSP), Ok(stack_pointer));
    }
}

/// Further steps behind the last frame fail, though the registers of the last one would lead on.
#[test]
fn the_end_stays_the_end() {
    let mut target = target();
    target.table.format = abi::FORMAT_REMOTE_TABLE; // of no address
    target.words.lock().unwrap()[0] = 0;
    let set = |register: usize, value| target.registers.lock().unwrap()[register] = value;
    set(16, STACK + 0x100);
    set(6, 0);
    let mut outermost = innermost(fake_target::space(), &target);
    assert_eq!(outermost.step(), 0);
    let mut returns_to_zero = innermost(fake_target::space(), &target);
    let row = row(7, 8 - 0x40, &[(16, RegisterRule::Offset(-8))]);
    assert_eq!(returns_to_zero.step_row(&row, LoadBias(0)), Ok(false));
    set(6, STACK + 0x80);
    for mut cursor in [outermost, returns_to_zero] {
        for _ in 0..3 {
            assert_eq!((cursor.step(), cursor.ip()), (0, 0));
        }
    }
}

/// Steps by a cached rule, if possible.
fn kept_step(cursor: &mut ClientCursor<'_>, row: PackedRow) -> c_int {
    if !cursor.step_address.is_kept() {
        return answer(cursor.step_packed(row));
    }
    let space = cursor.client.space;
    space.set_policy(abi::CACHE_GLOBAL).unwrap();
    let rule = OwnedStepRule::Simple(row.into());
    space.keep(cursor.step_address, || Ok(Some(rule))).unwrap();
    cursor.step()
}

/// Long walks by cached rules, compared with the interpreter: with and without a frame pointer,
/// with registers saved in various places, and with stack pointers of all kinds.
#[test]
fn kept_rules_lead_where_their_rows_do() {
    let mut target = target();
    // Every saved word points further up.
    let up = |n: u64| STACK + n * 8 + 0x20 + n * 7 % 5 * 8;
    target.words = Mutex::new((0..2000).map(up).collect());
    target.registers.lock().unwrap()[6] = STACK + 0x100;
    let mut random = 0x1234_5678_u64;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % bound
    };
    let space = fake_target::space();
    let (mut steps, mut on_frame_pointer, mut longest) = (0, 0, 0);
    for skew in [0, 0, 0, 0, 4] {
        for _ in 0..40 {
            target.registers.lock().unwrap()[7] = STACK + 0x40 + skew;
            let mut by_rule = innermost(space, &target);
            let mut by_row = by_rule;
            for depth in 1.. {
                let base = if below(5) == 0 { 6 } else { 7 };
                let offset = i64::try_from(8 + below(6) * 8).unwrap();
                let mut rules = [(16, RegisterRule::Offset(-8))].to_vec();
                for register in [3, 6, 12, 13, 14, 15] {
                    if below(3) == 0 {
                        let offset = -8 - 8 * i64::try_from(below(6)).unwrap();
                        rules.push((register, RegisterRule::Offset(offset)));
                    }
                }
                let row = row(base, offset, &rules);
                let simple = pack(&row);
                let code = kept_step(&mut by_rule, simple);
                // The interpreter has no client errors.
                let expected = answer(by_row.step_row(&row, LoadBias(0)));
                assert_eq!(code.signum(), expected.signum());
                if below(4) == 0 || code < 1 {
                    assert_eq!(frame(&by_rule), frame(&by_row));
                }
                if code < 1 {
                    break;
                }
                steps += 1;
                on_frame_pointer += u32::from(base == 6);
                longest = longest.max(depth);
            }
        }
    }
    assert!(steps > 5000, "{steps}");
    assert!(on_frame_pointer > 500, "{on_frame_pointer}");
    assert!(longest > 100, "{longest}");
}

/// By the rule and by the row: up and down, to code at 0, and with an unreadable record.
#[test]
fn both_ways_from_a_signal_frame_lead_to_what_was_interrupted() {
    let row = guess::trampoline();
    assert_eq!(pack(&row), PackedRow::SIGNAL);
    let mut target = target();
    target.words = Mutex::new((0..64).map(|n| 0x1000 + n).collect());
    let (mut ends, mut changes) = ([0; 3], 0);
    for skew in [0, 4] {
        for record in [STACK, STACK + 0x20, STACK + 64 * 8 - 168] {
            for up in [-0x10, 0, 8, 164, 168, 169, 0x400] {
                for ip in [0, 0x5000, u64::MAX] {
                    let mut words: Vec<u64> = (0..64).map(|n| 0x1000 + n).collect();
                    let at = usize::try_from((record - STACK) / 8).unwrap();
                    words[at + 20] = record.wrapping_add_signed(up);
                    if let Some(word) = words.get_mut(at + 21) {
                        *word = ip;
                    }
                    *target.words.lock().unwrap() = words;
                    target.registers.lock().unwrap()[7] = record + skew;
                    let mut by_rule = innermost(fake_target::space(), &target);
                    let mut by_row = by_rule;
                    let code = kept_step(&mut by_rule, PackedRow::SIGNAL);
                    assert_eq!(code, answer(by_row.step_row(&row, LoadBias(0))));
                    assert_eq!(frame(&by_rule), frame(&by_row));
                    let changed = [by_rule, by_row].map(|cursor| cursor.cycle.stack_changes);
                    assert_eq!(changed[0], changed[1], "{up}");
                    ends[usize::try_from(code.signum() + 1).unwrap()] += 1;
                    changes += changed[0];
                }
            }
        }
    }
    assert!(ends[0] > 30 && ends[1] == 0 && ends[2] > 60, "{ends:?}");
    assert!(changes > 30, "{changes}");
}

#[test]
fn the_outermost_frame_has_no_caller() {
    let target = target();
    let mut cursor = innermost(fake_target::space(), &target);
    assert_eq!(kept_step(&mut cursor, PackedRow::OUTERMOST), 0);
    assert_eq!(cursor.ip(), 0);
}

/// An address outside of code is never found by its lower bits.
#[test]
fn an_address_with_more_bits_is_another() {
    let mut target = target();
    target.words = Mutex::new([0x5000, 0xffff_0000_0000_5000, STACK, STACK].to_vec());
    target.registers.lock().unwrap()[7] = STACK;
    let up = pack(&row(7, 8, &[(16, RegisterRule::Offset(-8))]));
    let mut cursor = innermost(fake_target::space(), &target);
    assert_eq!(kept_step(&mut cursor, up), 1);
    assert_eq!(kept_step(&mut cursor, up), 1);
    assert_eq!(cursor.ip(), 0xffff_0000_0000_5000);
    let client = cursor.client;
    assert!(client.space.cached_rule(cursor.step_address).is_none());
    client
        .space
        .keep(cursor.step_address, || {
            Ok(Some(OwnedStepRule::Simple(up.into())))
        })
        .unwrap();
    assert!(client.space.cached_rule(cursor.step_address).is_none());
    assert_eq!(cursor.code(), CodeAddr::Return(RuntimeAddr(cursor.ip())));
}

#[test]
fn a_failed_step_leaves_the_cursor_where_it_was() {
    let target = target();
    let start = innermost(fake_target::space(), &target);
    let unreadable = row(7, 0x10_0000, &[(16, RegisterRule::Offset(-8))]);
    let mut cursor = start;
    assert!(cursor.step_row(&unreadable, LoadBias(0)).is_err());
    assert_eq!(frame(&cursor), frame(&start));
    let simple = pack(&row(7, 0x7_0000, &[(16, RegisterRule::Offset(-8))]));
    assert!(cursor.step_packed(simple).is_err());
    assert_eq!(frame(&cursor), frame(&start));
    assert!(kept_step(&mut cursor, simple) < 0);
    assert_eq!(frame(&cursor), frame(&start));
}

#[test]
fn a_circle_of_frames_ends() {
    let target = target();
    for period in 1..9 {
        let mut cursor = innermost(fake_target::space(), &target);
        // Each frame's "return address" is its distance in the cycle; the CFA repeats.
        let mut steps = 0;
        loop {
            let at = i64::from(steps % period) * 8;
            let back =
                i64::try_from(STACK).unwrap() + at - i64::try_from(cursor.stack_pointer()).unwrap();
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

/// Endless walks up and down: a return address that is not read can lead on without end.
#[test]
fn walks_end_that_never_come_back() {
    for offset in [16, -16] {
        let target = target();
        let mut cursor = innermost(fake_target::space(), &target);
        let rules = [
            (16, RegisterRule::Register(Register(3))),
            (3, RegisterRule::SameValue),
        ];
        let mut steps = 0;
        while cursor.step_row(&row(7, offset, &rules), LoadBias(0)) == Ok(true) {
            steps += 1;
            assert!(steps < 10_000, "{offset}");
        }
        assert!(steps > 1000, "{offset}: {steps}");
    }
}

#[test]
fn registers_are_written_where_they_are() {
    let target = target();
    let mut cursor = innermost(fake_target::space(), &target);
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
    // Arguments of a landing pad do not touch the innermost frame before it is resumed.
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
