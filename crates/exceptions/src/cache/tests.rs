use std::boxed::Box;
use std::vec::Vec;

use unspool_rows::RuntimeAddr;

use super::*;

/// Different facts for each number.
fn facts(number: u64) -> FrameFacts {
    let row = Some(PackedRow::from_word(number << 33));
    FrameFacts {
        rule: FrameRule::new(
            row,
            FrameAction::CleanUp(number + 2),
            Validity::Process,
            true,
        ),
        procedure: ProcedureInfo {
            personality: PersonalityAddr::direct(number),
            lsda: number,
            start: number,
        },
        arguments: number,
    }
}

fn key(address: u64) -> FactsKey {
    FactsKey::from_code(CodeAddr::Return(RuntimeAddr(address))).unwrap()
}

/// The number that the cached facts were made of.
fn number(cache: &FactsCache, key: FactsKey) -> Option<u64> {
    let found = cache.facts(key)?;
    assert_eq!(found, facts(found.arguments));
    Some(found.arguments)
}

#[test]
fn facts_are_found_under_their_address_and_kind_only() {
    let cache = Box::new(FactsCache::empty());
    let called = key(0x1234);
    assert_eq!(number(&cache, called), None);
    cache.put(called, &facts(7));
    assert_eq!(number(&cache, called), Some(7));
    let interrupted = FactsKey::from_code(CodeAddr::Instruction(RuntimeAddr(0x1234))).unwrap();
    for other in [
        interrupted,
        key(0x1233),
        key(0x1235),
        FactsKey::new(0, false),
        // Not code, with the address in its lower bits.
        FactsKey::new(1 << 48 | 0x1234, false),
        FactsKey::new(1 << 62 | 0x1234, true),
    ] {
        assert_eq!(number(&cache, other), None);
    }
    cache.put(called, &facts(8));
    assert_eq!(number(&cache, called), Some(8));
    cache.put(interrupted, &facts(9));
    assert_eq!(number(&cache, interrupted), Some(9));
    let quick = |address| cache.quick_rule(address);
    assert_eq!(quick(0x1234), Some(facts(8).rule));
    // The word of an interrupted frame's key is not found, nor is another that is not code.
    for none in [1 << 62 | 0x1234, 1 << 48 | 0x1234, 0x1235, u64::MAX] {
        assert_eq!(quick(none), None);
    }
    assert_eq!(quick(0).unwrap().row().word(), 0);
    for none in [0, 1, 1 << 48, u64::MAX] {
        assert_eq!(
            FactsKey::from_code(CodeAddr::Return(RuntimeAddr(none))),
            None
        );
    }
}

#[test]
fn the_action_and_the_validity_are_kept_apart() {
    for action in [
        FrameAction::Continue,
        FrameAction::Personality,
        FrameAction::CleanUp(0x7fff_ffff_ffff),
    ] {
        for validity in [
            Validity::Process,
            Validity::Module(ModuleSlot(1)),
            Validity::Module(ModuleSlot(0x7ffe)),
            Validity::Frame,
            Validity::Generation(0),
            Validity::Generation(0x7fff),
        ] {
            let rule = FrameRule::new(None, action, validity, true);
            assert_eq!((rule.action(), rule.validity()), (action, validity));
            assert_eq!(rule.is_permanent(), validity == Validity::Process);
            assert!(rule.has_arguments());
            assert_eq!(rule.row().form(), None);
        }
    }
}

/// Four addresses with one slot are found; of more, one stays and none is mixed up.
#[test]
fn a_full_cache_forgets_and_never_mixes_up() {
    let cache = Box::new(FactsCache::empty());
    let slots = u64::try_from(FactsCache::SLOTS).unwrap();
    let same: Vec<_> = (1..=6).map(|n| key(n * slots + 6)).collect();
    for (at, number_of) in same.iter().zip(1..) {
        cache.put(*at, &facts(number_of));
        assert_eq!(number(&cache, *at), Some(number_of));
        let found = same.iter().zip(1..=number_of);
        let found = found.filter(|(at, n)| match number(&cache, **at) {
            Some(found) => {
                assert_eq!(found, *n);
                true
            }
            None => false,
        });
        assert_eq!(found.count(), usize::try_from(number_of.min(4)).unwrap());
    }
    cache.clear();
    assert!(same.iter().all(|key| cache.rule(*key).is_none()));
}
