use super::*;
use std::thread::ScopedJoinHandle;
use std::vec::Vec;

use unspool_ir::RuntimeAddr;

fn simple(n: u64) -> Rule {
    Rule::Simple(Simple([n, !n, n.rotate_left(9), n, !n]))
}

fn at(n: u64) -> CodeAddr {
    CodeAddr::Return(RuntimeAddr(n))
}

/// What is found, in the form in which it was put in.
fn found(cache: &Cache, code: CodeAddr) -> Option<Rule> {
    cache.get(code).map(|hit| match hit {
        Hit::Outermost => Rule::Outermost,
        Hit::Simple(simple) => Rule::Simple(simple),
        Hit::Encoded(short) => Rule::Encoded(short.bytes().to_vec()),
    })
}

#[test]
fn every_kind_is_kept_until_the_cache_is_flushed() {
    let cache = Cache::new().unwrap();
    let bytes: Vec<u8> = (1..).take(DATA_BYTES).collect();
    for rule in [
        simple(7),
        Rule::Outermost,
        Rule::Encoded(bytes.clone()),
        Rule::Encoded(bytes[..1].to_vec()),
    ] {
        assert_eq!(found(&cache, at(0x1000)), None);
        cache.put(at(0x1000), &rule, cache.now());
        assert_eq!(found(&cache, at(0x1000)), Some(rule));
        assert_eq!(
            found(&cache, CodeAddr::Instruction(RuntimeAddr(0x1000))),
            None
        );
        assert_eq!(
            found(&cache, CodeAddr::Instruction(RuntimeAddr(0xfff))),
            None
        );
        cache.flush();
    }
    let long = Rule::Encoded([bytes, [0].to_vec()].concat());
    cache.put(at(0x1000), &long, cache.now());
    assert_eq!(found(&cache, at(0x1000)), None);
}

#[test]
fn what_was_found_out_before_a_flush_is_not_kept() {
    let cache = Cache::new().unwrap();
    let before = cache.now();
    cache.flush();
    cache.put(at(1), &simple(1), before);
    assert_eq!(found(&cache, at(1)), None);
}

/// Nothing is ever found under the key of another, whatever was put in and thrown out; what was
/// put in last is found; and of few addresses most stay.
#[test]
fn a_full_cache_forgets_and_never_mixes_up() {
    for slots in [0, 2, 100, Cache::SLOTS, usize::MAX] {
        let cache = Cache::new().unwrap();
        cache.resize(slots);
        let addresses: Vec<u64> = (0..20_000_u64).map(|n| n * 7 + 0x7f00_0000_0000).collect();
        for n in &addresses {
            cache.put(at(*n), &simple(*n), cache.now());
            assert_eq!(found(&cache, at(*n)), Some(simple(*n)));
            assert_eq!(cache.simple(at(*n)).map(Rule::Simple), Some(simple(*n)));
        }
        let hits = addresses.iter().filter(|n| match found(&cache, at(**n)) {
            Some(rule) => {
                assert_eq!(rule, simple(**n));
                true
            }
            None => false,
        });
        let room = slots.clamp(2, Cache::SLOTS).next_power_of_two();
        let hits = hits.count();
        assert!((room / 2..=room).contains(&hits), "{hits} of {room}");
    }
}

/// Readers see a rule whole or not at all while writers change it.
#[test]
fn threads_never_see_half_a_rule() {
    let cache = Cache::new().unwrap();
    cache.resize(2);
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|thread| {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    let key = (n * 3 + thread) % 5;
                    cache.put(at(key), &simple(key), cache.now());
                }
            })
        });
        while !writers.iter().all(ScopedJoinHandle::is_finished) {
            for n in 0..5 {
                if let Some(rule) = found(&cache, at(n)) {
                    assert_eq!(rule, simple(n));
                }
            }
        }
    });
    assert!((0..5).any(|n| found(&cache, at(n)).is_some()));
}
