use std::boxed::Box;
use std::vec::Vec;

use unspool_rows::Arch;
use unspool_walk_testing::random::CaseRandom;

use super::*;
use crate::facts::FrameAction;

/// A rule by a packed row.
fn rule(row: Option<PackedRow>) -> FrameRule {
    FrameRule::from(&FrameFacts {
        row,
        validity: Validity::Process,
        action: FrameAction::Continue,
        handler: FrameHandler::default(),
        arguments: 0,
    })
}

/// Packed rows of all forms, in frames on a page of words: a step leads where the interpreter's
/// does.
#[test]
fn a_step_leads_where_the_interpreter_s_does() {
    #[repr(align(4096))]
    struct AlignedWords([u64; 512]);
    let mut random = CaseRandom::default();
    let page = Box::new(AlignedWords(core::array::from_fn(|_| random.number())));
    let start = page.0.as_ptr().expose_provenance() as u64;
    let memory = ReadableMemory::around(RuntimeAddr(start));
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut below = |limit| random.number() % limit;
        let frame = LandingFrame {
            preserved: core::array::from_fn(|_| start + 8 * below(400)),
            stack_pointer: start + 8 * below(400),
            code: below(1 << 47),
            record: 0,
        };
        let saved = below(1 << 30) & below(1 << 30);
        let packed = PackedRow::from_word(saved | below(3) << 30 | below(60) << 33);
        let mut expressions = Default::default();
        let Some(row) = packed.row(Arch::X86_64, &mut expressions) else {
            continue;
        };
        // Such rows are not packed.
        if !facts::recovers_all(packed.saved()) {
            continue;
        }
        let expected = {
            let mut walk = LandingWalk::new(frame, memory);
            walk.step_by_row(&row, LoadBias(0)).map(|()| walk.frame)
        };
        let mut walk = LandingWalk::new(frame, memory);
        let stepped = walk.step(rule(Some(packed))).map(|()| walk.frame);
        assert_eq!(stepped, expected, "{packed:?} {frame:x?}");
        taken += u32::from(stepped.is_ok());
    }
    assert!(taken > 5_000, "{taken}");
}

/// The walk of a stack that is its own caller ends.
#[test]
fn a_frame_that_is_its_own_caller_is_left_some_times() {
    let words = Box::new([0x1234_u64; 4]);
    let base = words.as_ptr().expose_provenance() as u64;
    let row = PackedRow::from_word(1 << 30 | 2 << 33);
    let frame = LandingFrame {
        preserved: [base; 6],
        stack_pointer: base + 16,
        code: 0x1234,
        record: 0,
    };
    let mut walk = LandingWalk::new(frame, ReadableMemory::around(RuntimeAddr(base)));
    let steps: Vec<_> = (0..2 * Cursor::MAX_STACK_CHANGES)
        .map_while(|_| walk.step(rule(Some(row))).ok())
        .collect();
    assert_eq!(steps.len(), usize::from(Cursor::MAX_STACK_CHANGES));
}

#[test]
fn facts_of_the_own_code_are_learnt_and_kept() {
    #[inline(never)]
    fn address() -> u64 {
        // Not the last call, which would be a jump.
        core::hint::black_box(local::with_cursor(|cursor| cursor.code().address().0))
    }
    let frame = LandingFrame {
        preserved: [0; 6],
        stack_pointer: 0,
        code: address(),
        record: 0,
    };
    let mut walk = LandingWalk::new(frame, ReadableMemory::NOTHING);
    assert_eq!(CACHE.rule(walk.key()), None);
    let rule = walk.rule().unwrap().unwrap();
    assert_eq!(CACHE.rule(walk.key()), Some(rule));
    let facts = FrameFacts::learn(frame.code()).unwrap().unwrap();
    assert_eq!(walk.handler(), (facts.handler, facts.arguments));
    assert_eq!(facts.handler.start, address as fn() -> u64 as usize as u64);
    walk.frame.code = 0;
    assert_eq!(walk.rule(), Ok(None));
}
