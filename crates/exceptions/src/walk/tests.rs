use std::boxed::Box;
use std::vec::Vec;

use unspool_rows::packed_row::RowHead;
use unspool_rows::{Arch, CfaRule, RaState, RegisterRule};
use unspool_walk_testing::random::CaseRandom;

use super::*;
use crate::facts::FrameAction;

/// A page of words.
#[repr(align(4096))]
struct AlignedWords([u64; 512]);

/// A rule by a packed row.
fn rule(row: Option<PackedRow>) -> FrameRule {
    FrameRule::new(row, FrameAction::Continue, Validity::Process, false)
}

/// Packed rows of all forms, in frames on a page of words: a step leads where the interpreter's
/// does. The walk reads real memory, so it cannot be a `Stepper` of `unspool-walk-testing`.
#[test]
fn a_step_leads_where_the_interpreter_s_does() {
    let mut random = CaseRandom::default();
    let page = Box::new(AlignedWords(core::array::from_fn(|_| random.number())));
    let start = page.0.as_ptr().expose_provenance() as u64;
    let memory = ReadableMemory::around(RuntimeAddr(start));
    let mut taken = [0; 2];
    for round in 0..20_000 {
        let mut below = |limit| random.number() % limit;
        let frame = LandingFrame {
            registers: CallerRegisters {
                preserved: core::array::from_fn(|_| start + 8 * below(400)),
                stack_pointer: start + 8 * below(400),
                code: below(1 << 47),
                shadow_stack_pointer: below(1 << 47),
            },
            interruption: Interruption::None,
        };
        let saved = below(1 << 30) & below(1 << 30);
        let packed = PackedRow::from_word(saved | below(3) << 30 | below(60) << 33);
        let packed = if round % 10 == 0 {
            PackedRow::SIGNAL
        } else {
            packed
        };
        let mut expressions = Default::default();
        let Some(row) = packed.row(Arch::X86_64, &mut expressions) else {
            continue;
        };
        let is_undefined = |number| packed.saved().get(number) == Some(SavedRegister::Undefined);
        // Such rows are not learned.
        if SavedRegisters::REGISTERS.into_iter().any(is_undefined) {
            continue;
        }
        let walk = || LandingWalk::in_memory(frame, memory, None);
        let result = |step: Result<(), BadEntry>, walk: LandingWalk| {
            step.map(|()| (walk.frame.registers, walk.frame.is_interrupted()))
        };
        let mut interpreted = walk();
        let expected = interpreted.step_by_row(&row, LoadBias(0));
        let expected = result(expected, interpreted);
        let mut stepped = walk();
        let step = stepped.step(rule(Some(packed)));
        let step = result(step, stepped);
        assert_eq!(step, expected, "{packed:?} {frame:x?}");
        if let Ok((registers, is_interrupted)) = step {
            let climbed = registers.shadow_stack_pointer - frame.registers.shadow_stack_pointer;
            assert_eq!(climbed, 8);
            taken[usize::from(is_interrupted)] += 1;
        }
    }
    assert!(taken[0] > 5_000 && taken[1] > 500, "{taken:?}");
}

/// Frames that are skipped lead where single steps do: up to the first in which exceptions do
/// something, past those of modules that may be unloaded.
#[test]
fn skipped_frames_lead_where_steps_do() {
    let mut random = CaseRandom::default();
    let mut skipped = 0;
    for round in 1..300 {
        let mut below = |limit: u64| random.number() % limit;
        let mut page = Box::new(AlignedWords(core::array::from_fn(|_| below(1 << 40))));
        let words = &mut page.0;
        let start = words.as_ptr().expose_provenance() as u64;
        let mut kept = Vec::new();
        let mut code = round << 20;
        let first = code;
        let mut at = 40;
        while at + 80 < words.len() {
            let distance = 1 + below(40);
            let saved = below(1 << 30) & below(1 << 30) & below(1 << 30);
            let row = PackedRow::from_word(saved | distance << 33);
            let is_permanent = below(8) != 0;
            at += usize::try_from(distance).unwrap();
            let is_last = at + 80 >= words.len();
            let action = if is_last {
                FrameAction::Personality
            } else {
                FrameAction::Continue
            };
            let validity = if is_permanent {
                Validity::Process
            } else {
                Validity::Module(ModuleSlot(1))
            };
            let facts = FrameFacts {
                rule: FrameRule::new(Some(row), action, validity, false),
                procedure: ProcedureInfo::default(),
                arguments: 0,
            };
            kept.push((FactsKey::new(code, false), facts));
            // In another group of slots, so that the cache keeps all.
            code += 4;
            words[at - 1] = code;
        }
        let registers = CallerRegisters {
            preserved: [start; 6],
            stack_pointer: start + 8 * 40,
            code: first,
            shadow_stack_pointer: 0,
        };
        for (key, facts) in &kept {
            CACHE.put(*key, facts);
        }
        let memory = ReadableMemory::around(RuntimeAddr(start));
        let mut walk = LandingWalk::in_memory(LandingFrame::from(&registers), memory, None);
        walk.modules = 1 << 1;
        let begin = walk.position();
        let expected = loop {
            let rule = walk.rule().unwrap().unwrap();
            if !rule.is_passed() {
                break (rule, walk.frame);
            }
            walk.step(rule).unwrap();
            skipped += 1;
        };
        walk.return_to(&begin);
        let rule = walk.skip_passed().unwrap().unwrap();
        assert_eq!((rule, walk.frame), expected);
    }
    assert!(skipped > 2_000, "{skipped}");
}

/// As for libgcc, which has no value for it either.
#[test]
fn an_undefined_register_keeps_its_value() {
    let words = Box::new([0x1234_u64; 4]);
    let base = words.as_ptr().expose_provenance() as u64;
    let registers = CallerRegisters {
        preserved: [1, 2, 3, 4, 5, 6],
        stack_pointer: base,
        ..CallerRegisters::default()
    };
    let mut row = Row::new(Register(16));
    row.cfa = CfaRule::RegisterOffset {
        register: Register(7),
        offset: 16,
    };
    row.set_rule(Register(16), Some(RegisterRule::Offset(-8)))
        .unwrap();
    row.set_rule(Register(3), Some(RegisterRule::Undefined))
        .unwrap();
    row.set_rule(Register(12), Some(RegisterRule::Offset(-16)))
        .unwrap();
    let memory = ReadableMemory::around(RuntimeAddr(base));
    let walk = || LandingWalk::in_memory(LandingFrame::from(&registers), memory, None);
    let mut interpreted = walk();
    interpreted.step_by_row(&row, LoadBias(0)).unwrap();
    let head = RowHead {
        cfa: row.cfa,
        return_address: row.return_address,
        signal_frame: false,
        ra_state: RaState::Plain,
    };
    let packed = facts::packed(head, row.rules()).unwrap();
    let mut stepped = walk();
    stepped.step(rule(Some(packed))).unwrap();
    for walk in [interpreted, stepped] {
        assert_eq!(walk.frame.registers.preserved, [1, 2, 0x1234, 4, 5, 6]);
        assert_eq!(walk.frame.registers.code, 0x1234);
    }
}

/// The walk of a stack that is its own caller ends.
#[test]
fn a_frame_that_is_its_own_caller_is_left_some_times() {
    let words = Box::new([0x1234_u64; 4]);
    let base = words.as_ptr().expose_provenance() as u64;
    let row = PackedRow::from_word(1 << 30 | 2 << 33);
    let registers = CallerRegisters {
        preserved: [base; 6],
        stack_pointer: base + 16,
        code: 0x1234,
        shadow_stack_pointer: 0,
    };
    let memory = ReadableMemory::around(RuntimeAddr(base));
    let mut walk = LandingWalk::in_memory(LandingFrame::from(&registers), memory, None);
    let start = walk.position();
    let steps: Vec<_> = (0..2 * Cursor::MAX_STACK_CHANGES)
        .map_while(|_| walk.step(rule(Some(row))).ok())
        .collect();
    assert_eq!(steps.len(), usize::from(Cursor::MAX_STACK_CHANGES));
    // The second phase may go as far as the first.
    walk.return_to(&start);
    assert_eq!(walk.step(rule(Some(row))), Ok(()));
}

#[test]
fn facts_of_the_own_code_are_learnt_and_kept() {
    #[inline(never)]
    fn address() -> u64 {
        // Not the last call, which would be a jump.
        core::hint::black_box(local::with_cursor(|cursor| cursor.code().address().0))
    }
    let registers = CallerRegisters {
        code: address(),
        ..CallerRegisters::default()
    };
    let frame = LandingFrame::from(&registers);
    let mut walk = LandingWalk::in_memory(frame, ReadableMemory::NOTHING, None);
    assert_eq!(CACHE.rule(walk.key()), None);
    let rule = walk.rule().unwrap().unwrap();
    assert_eq!(CACHE.rule(walk.key()), Some(rule));
    let mut facts = FrameFacts::NONE;
    assert_eq!(facts.learn(frame.code()), Ok(true));
    let expected = (facts.procedure, facts.arguments);
    assert_eq!(walk.procedure(rule), facts.procedure);
    assert_eq!(walk.procedure_and_arguments(rule), expected);
    assert_eq!(
        facts.procedure.start,
        address as fn() -> u64 as usize as u64
    );
    // Facts of another module that was at the address do not count.
    let validity = Validity::Module(ModuleSlot(77));
    let other = FrameFacts {
        rule: FrameRule::new(None, FrameAction::Continue, validity, false),
        procedure: ProcedureInfo::default(),
        ..facts
    };
    CACHE.put(walk.key(), &other);
    assert_eq!(walk.procedure(rule), facts.procedure);
    assert_eq!(walk.procedure_and_arguments(rule), expected);
    walk.frame.registers.code = 0;
    assert_eq!(walk.rule(), Ok(None));
}
