use unspool_rows::{CodeAddr, RuntimeAddr};

use super::entry_rule::EntryRule;
use super::rule_cache::{ModuleRule, RuleCache, RuleCacheMemory, RuleCacheSize};
use crate::modules::ModuleSlot;

/// A rule with these bits, whatever they mean.
fn known(bits: u32, place: u16) -> ModuleRule {
    ModuleRule {
        rule: EntryRule::in_entry(bits),
        slot: ModuleSlot(place),
    }
}

fn get(rules: &RuleCache<'_>, address: u64) -> Option<(u32, u16)> {
    let known = rules.get(CodeAddr::Return(RuntimeAddr(address)))?;
    Some((known.rule.bits(), known.slot.0))
}

/// Checks rules in memory of several sizes.
fn for_each_size(check: impl Fn(&RuleCache<'_>)) {
    check(&Box::<RuleCacheMemory<64>>::default().rules());
    check(&Box::<RuleCacheMemory>::default().rules());
    #[cfg(feature = "local")]
    for size in [
        RuleCacheSize::MIN,
        RuleCacheSize::DEFAULT,
        RuleCacheSize::MAX,
    ] {
        let mapped = super::MappedRuleCache::new(size).unwrap();
        assert_eq!(mapped.rules().size(), size);
        check(mapped.rules());
    }
}

/// The distance of two pages that share a block.
fn distance(rules: &RuleCache<'_>) -> u64 {
    4 * rules.size().bytes() as u64
}

#[test]
fn memory_has_the_size_that_is_asked_for() {
    let default = Box::<RuleCacheMemory>::default();
    assert_eq!(default.rules().size(), RuleCacheSize::DEFAULT);
    for_each_size(|rules| {
        let lengths = rules
            .memory()
            .map(|part| part.end.addr() - part.start.addr());
        let size = rules.size().bytes();
        assert_eq!(lengths, [size, size / 128, size / 1024]);
    });
}

#[test]
fn a_rule_is_found_at_its_address_only() {
    for_each_size(|rules| {
        // Empty slots look like rules of these addresses.
        for address in [0, 8, 0xf_fff8] {
            assert_eq!(get(rules, address), None, "{address}");
            assert!(rules.near(RuntimeAddr(address)).is_none());
        }
        // Of x86-64, and of AArch64.
        for address in [0x7f12_3456_789a, 0xffff_8765_4324] {
            for place in [1, 63, 64, 0xfedc] {
                let code = CodeAddr::Return(RuntimeAddr(address));
                for _ in 0..32 {
                    rules.put(code, known(0x5_a5a0, place));
                }
                assert_eq!(get(rules, address), Some((0x5_a5a0, place)));
                let near = |address| rules.near(RuntimeAddr(address));
                assert_eq!(near(address).is_some(), place < 64);
                for bit in 0..64 {
                    assert_eq!(get(rules, address ^ 1 << bit), None, "{bit}");
                    assert!(near(address ^ 1 << bit).is_none(), "{bit}, {place}");
                }
            }
        }
    });
}

/// An entry in its own slot moves to the neighbouring one when another arrives, and is found there.
#[test]
fn two_addresses_of_one_slot_are_both_kept() {
    for_each_size(|rules| {
        let (one, two) = (0x40_1000, 0x40_1005);
        rules.put(CodeAddr::Return(RuntimeAddr(one)), known(16, 1));
        rules.put(CodeAddr::Return(RuntimeAddr(two)), known(32, 1));
        assert_eq!(get(rules, one), Some((16, 1)));
        assert_eq!(get(rules, two), Some((32, 1)));
        // A newer rule for an address replaces the older one.
        rules.put(CodeAddr::Return(RuntimeAddr(two)), known(48, 1));
        assert_eq!(get(rules, one), Some((16, 1)));
        assert_eq!(get(rules, two), Some((48, 1)));
    });
}

/// A return address and an instruction interrupted there have separate rules.
#[test]
fn an_address_that_is_both_has_two_rules() {
    for_each_size(|rules| {
        let address = RuntimeAddr(0x40_1003);
        let (returned, interrupted) = (CodeAddr::Return(address), CodeAddr::Instruction(address));
        let bits = |code| rules.get(code).map(|known| known.rule.bits());
        rules.put(interrupted, known(16, 1));
        assert_eq!((bits(returned), bits(interrupted)), (None, Some(16)));
        assert!(rules.near(address).is_none());
        rules.put(returned, known(32, 1));
        assert_eq!((bits(returned), bits(interrupted)), (Some(32), Some(16)));
        assert!(rules.near(address).is_some());
    });
}

/// Samples at many instructions leave return addresses where a walk finds them at once.
#[test]
fn an_interrupted_instruction_takes_no_return_addresses_place() {
    for_each_size(|rules| {
        let (first, second) = (0x40_1000, 0x40_1018);
        for address in [first, second] {
            rules.put(CodeAddr::Return(RuntimeAddr(address)), known(16, 1));
        }
        for address in first..first + 32 {
            let interrupted = CodeAddr::Instruction(RuntimeAddr(address));
            rules.put(interrupted, known(32, 1));
            assert!(rules.get(interrupted).is_none(), "there is no room");
        }
        for address in [first, second] {
            assert!(rules.near(RuntimeAddr(address)).is_some());
        }
        // In the neighbouring slot it has one.
        let third = 0x40_1020;
        rules.put(CodeAddr::Return(RuntimeAddr(third)), known(16, 1));
        let beside = CodeAddr::Instruction(RuntimeAddr(third + 1));
        rules.put(beside, known(32, 1));
        assert!(rules.near(RuntimeAddr(third)).is_some());
        assert_eq!(rules.get(beside).map(|known| known.rule.bits()), Some(32));
    });
}

/// A previous module's rules at an address say nothing about the present module.
#[test]
fn another_module_at_the_same_page_begins_anew() {
    for_each_size(|rules| {
        let (one, two) = (0x40_1000, 0x40_1100);
        rules.put(CodeAddr::Return(RuntimeAddr(one)), known(16, 1));
        rules.put(CodeAddr::Return(RuntimeAddr(two)), known(32, 2));
        assert_eq!(get(rules, one), None);
        assert_eq!(get(rules, two), Some((32, 2)));
    });
}

/// A page must be wanted for a while before it gets another's block, and then gets all of it.
#[test]
fn pages_of_one_block_are_not_mixed() {
    for_each_size(|rules| {
        let one = 0x7f00_0012_3450;
        let two = one + distance(rules);
        rules.put(CodeAddr::Return(RuntimeAddr(one)), known(16, 1));
        let mut is_taken = false;
        for _ in 0..100 {
            rules.put(CodeAddr::Return(RuntimeAddr(two)), known(32, 1));
            let (first, second) = (get(rules, one), get(rules, two));
            is_taken |= second.is_some();
            assert!(first.is_none_or(|first| first == (16, 1) && !is_taken));
            assert!(second.is_none_or(|second| second == (32, 1)));
        }
        assert!(is_taken);
    });
}

/// Pages with different blocks keep their rules side by side.
#[test]
fn pages_of_different_blocks_keep_their_rules() {
    for_each_size(|rules| {
        let pages = rules.size().bytes() as u64 / 1024;
        let address = |page| 0x7f00_0012_3450 + page * 4096;
        let rule = |page: u64| known(u32::try_from(page % 2048).unwrap() << 4, 1);
        for page in 0..pages {
            rules.put(CodeAddr::Return(RuntimeAddr(address(page))), rule(page));
        }
        for page in 0..pages {
            let expected = (rule(page).rule.bits(), 1);
            assert_eq!(get(rules, address(page)), Some(expected));
        }
    });
}

/// Two threads write, and read what both have written, while pages of one block evict each other.
#[test]
fn threads_read_nothing_that_is_half_written() {
    let memory = Box::<RuleCacheMemory<64>>::default();
    let rules = memory.rules();
    // Each rule encodes its page, and its address in it.
    let run = |seed: u64| {
        let (mut state, mut found) = (seed, 0_u32);
        for _ in 0..300_000 {
            state = word_at(state).wrapping_add(seed);
            let (page, slot) = (state >> 60, state >> 50 & 3);
            let address = RuntimeAddr(0x7f00_0000_0000 + page * distance(&rules) + slot * 16);
            let bits = u32::try_from(page << 8 | slot << 4).unwrap();
            let place = 1 + u16::try_from(page).unwrap();
            rules.put(CodeAddr::Return(address), known(bits, place));
            let known = rules.near(address);
            found += u32::from(known.is_some());
            assert!(known.is_none_or(|known| (known.rule.bits(), known.slot.0) == (bits, place)));
        }
        found
    };
    let found = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        run(2) + other.join().unwrap()
    });
    assert!(found > 1000, "{found}");
}

fn word_at(addr: u64) -> u64 {
    addr.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
