use std::thread::ScopedJoinHandle;

use super::*;

/// A rule to be cached, or a cached one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnedRule {
    Simple(CachedPackedRow),
    Encoded(Vec<u8>),
}

impl OwnedRule {
    fn kept(&self) -> StepRule<'_> {
        match self {
            OwnedRule::Simple(simple) => StepRule::Simple(*simple),
            OwnedRule::Encoded(bytes) => StepRule::Encoded(bytes),
        }
    }
}

/// One of many rules.
fn simple(n: u64) -> OwnedRule {
    OwnedRule::Simple(CachedPackedRow::from_word(
        (n + 1).wrapping_mul(0x1_0000_4001),
    ))
}

/// The return address at this many bytes into code.
fn at(bytes: u64) -> StepAddress {
    StepAddress::new(CODE.start + bytes, 0, Arrival::Called)
}

/// The cached rule, in the form in which it was put in.
fn found(cache: &StepCache, step_address: StepAddress) -> Option<OwnedRule> {
    cache.get(step_address).map(|hit| match hit {
        CachedRule::Simple(simple) => OwnedRule::Simple(simple),
        CachedRule::Encoded(short) => OwnedRule::Encoded(short.bytes().to_vec()),
    })
}

#[test]
fn every_kind_is_kept_until_the_cache_is_flushed() {
    let cache = Box::new(StepCache::empty());
    let bytes: Vec<u8> = (1..).take(ROW_BYTES).collect();
    for rule in [
        simple(7),
        OwnedRule::Simple(CachedPackedRow::OUTERMOST),
        OwnedRule::Encoded(bytes.clone()),
        OwnedRule::Encoded(bytes[..1].to_vec()),
    ] {
        assert_eq!(found(&cache, at(0x1000)), None);
        cache.put(at(0x1000), rule.kept(), cache.now());
        assert_eq!(found(&cache, at(0x1000)), Some(rule));
        for arrival in [Arrival::Innermost, Arrival::Interrupted] {
            for ip in [at(0x1000).ip(), at(0xfff).ip()] {
                assert_eq!(found(&cache, StepAddress::new(ip, 0, arrival)), None);
            }
        }
        cache.flush();
    }
    let long = OwnedRule::Encoded([bytes, [0].to_vec()].concat());
    cache.put(at(0x1000), long.kept(), cache.now());
    assert_eq!(found(&cache, at(0x1000)), None);
}

#[test]
fn steps_found_before_a_flush_are_not_cached() {
    let cache = Box::new(StepCache::empty());
    let before = cache.now();
    cache.flush();
    cache.put(at(1), simple(1).kept(), before);
    assert_eq!(found(&cache, at(1)), None);
}

/// A rule is never found under another key, whatever was put in and evicted. The last rule put in
/// is found, and of few addresses most stay.
#[test]
fn a_full_cache_forgets_and_never_mixes_up() {
    let rule = |ip: u64| simple(ip % 1000);
    let cache = Box::new(StepCache::empty());
    let more = u64::try_from(StepCache::SLOTS * 5 / 4).unwrap();
    let addresses: Vec<u64> = (0..more).map(|n| n * 7 + 0x7f00_0000_0000).collect();
    for ip in &addresses {
        cache.put(at(*ip), rule(*ip).kept(), cache.now());
        assert_eq!(found(&cache, at(*ip)), Some(rule(*ip)));
        assert_eq!(
            cache.simple(at(*ip)).map(OwnedRule::Simple),
            Some(rule(*ip))
        );
    }
    let hits = addresses.iter().filter(|ip| match found(&cache, at(**ip)) {
        Some(found) => {
            assert_eq!(found, rule(**ip));
            true
        }
        None => false,
    });
    let hits = hits.count();
    assert!(
        (StepCache::SLOTS / 2..=StepCache::SLOTS).contains(&hits),
        "{hits}"
    );
}

/// An evicted address moves to the neighbouring slot.
#[test]
fn two_addresses_with_one_slot_are_both_found() {
    let cache = Box::new(StepCache::empty());
    for ip in [0x1_0000, 0x2_0000] {
        cache.put(at(ip), simple(ip).kept(), cache.now());
    }
    for ip in [0x1_0000, 0x2_0000] {
        assert_eq!(found(&cache, at(ip)), Some(simple(ip)));
    }
    assert_eq!(found(&cache, at(0x3_0000)), None);
    assert_eq!(found(&cache, at(0x1_0001)), None);
}

/// More different rules than there are numbers for.
#[test]
fn a_rule_without_a_number_is_kept_all_the_same() {
    let cache = Box::new(StepCache::empty());
    for n in 0..20_000_u64 {
        cache.put(at(n * 3), simple(n).kept(), cache.now());
        assert_eq!(found(&cache, at(n * 3)), Some(simple(n)));
    }
}

/// The number of generations is bounded.
#[test]
fn flushed_steps_stay_forgotten() {
    let cache = Box::new(StepCache::empty());
    let long = OwnedRule::Encoded([1, 2, 3].to_vec());
    cache.put(at(5), simple(1).kept(), cache.now());
    cache.put(at(6), long.kept(), cache.now());
    for _ in 0..10_000 {
        cache.flush();
        assert_eq!(found(&cache, at(5)), None);
        assert_eq!(found(&cache, at(6)), None);
    }
}

/// An empty slot matches no address.
#[test]
fn nothing_is_found_in_an_empty_cache() {
    let cache = Box::new(StepCache::empty());
    for ip in (0..0x5000).chain([u64::MAX, 1 << 47, 1 << 50, 1 << 52]) {
        for arrival in [Arrival::Called, Arrival::Innermost, Arrival::Interrupted] {
            assert_eq!(found(&cache, StepAddress::new(ip, 0, arrival)), None);
        }
    }
}

/// A cached address is never found for one of the first addresses, which match an empty slot.
#[test]
fn nothing_is_kept_where_no_code_can_be() {
    let cache = Box::new(StepCache::empty());
    for ip in [0, 5, CODE.start - 1, CODE.end, u64::MAX] {
        let at = StepAddress::new(ip, 0, Arrival::Called);
        cache.put(at, simple(1).kept(), cache.now());
        assert_eq!((found(&cache, at), at.ip()), (None, ip));
        assert_eq!(StepAddress::returned(ip), None);
    }
    for ip in [CODE.start, CODE.end - 1] {
        let at = StepAddress::new(ip, 0, Arrival::Called);
        cache.put(at, simple(1).kept(), cache.now());
        assert_eq!(found(&cache, at), Some(simple(1)));
        assert_eq!(StepAddress::returned(ip), Some(at));
    }
}

/// Readers see whole rules only, while writers change them.
#[test]
fn threads_never_see_half_a_rule() {
    let cache = Box::new(StepCache::empty());
    // All in one slot; some have a number.
    let rule = |n: u64| match n % 2 {
        0 => simple(n),
        _ => OwnedRule::Encoded(std::vec![u8::try_from(n).unwrap(); ROW_BYTES]),
    };
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|thread| {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    let key = (n * 3 + thread) % 5;
                    cache.put(at(key << 12), rule(key).kept(), cache.now());
                }
            })
        });
        while !writers.iter().all(ScopedJoinHandle::is_finished) {
            for n in 0..5 {
                if let Some(found) = found(&cache, at(n << 12)) {
                    assert_eq!(found, rule(n));
                }
            }
        }
    });
    assert!((0..5).any(|n| found(&cache, at(n << 12)).is_some()));
}
