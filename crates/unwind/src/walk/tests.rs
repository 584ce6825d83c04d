use unspool_ir::RuntimeAddr;

use super::rule::Rule;
use super::rules::{Known, Rules};
use crate::modules::Place;

/// A rule with these bits, whatever they mean.
fn known(bits: u32, place: u16) -> Known {
    Known {
        rule: Rule::in_entry(bits),
        place: Place(place),
    }
}

fn get(rules: &Rules, address: u64) -> Option<(u32, u16)> {
    let address = RuntimeAddr(address);
    let known = rules.get(address)?;
    Some((known.rule.bits(), known.place.0))
}

#[test]
fn a_rule_is_found_at_its_address_only() {
    static RULES: Rules = Rules::new();
    let address = 0x7f12_3456_789a;
    RULES.put(RuntimeAddr(address), known(0x15_a5a0, 0xfedc));
    assert_eq!(get(&RULES, address), Some((0x15_a5a0, 0xfedc)));
    for bit in 0..64 {
        assert_eq!(get(&RULES, address ^ 1 << bit), None, "{bit}");
    }
}

/// What is at home in a slot goes next door when another comes, and is found there.
#[test]
fn two_addresses_of_one_slot_are_both_kept() {
    static RULES: Rules = Rules::new();
    let (one, two) = (0x40_1000, 0x40_1005);
    RULES.put(RuntimeAddr(one), known(16, 1));
    RULES.put(RuntimeAddr(two), known(32, 1));
    assert_eq!(get(&RULES, one), Some((16, 1)));
    assert_eq!(get(&RULES, two), Some((32, 1)));
    // A newer rule for an address takes the place of the older one.
    RULES.put(RuntimeAddr(two), known(48, 1));
    assert_eq!(get(&RULES, one), Some((16, 1)));
    assert_eq!(get(&RULES, two), Some((48, 1)));
}

/// What was at an address before says nothing of what is there now.
#[test]
fn another_module_at_the_same_page_begins_anew() {
    static RULES: Rules = Rules::new();
    let (one, two) = (0x40_1000, 0x40_1100);
    RULES.put(RuntimeAddr(one), known(16, 1));
    RULES.put(RuntimeAddr(two), known(32, 2));
    assert_eq!(get(&RULES, one), None);
    assert_eq!(get(&RULES, two), Some((32, 2)));
}

/// A page has to be wanted for a while before it gets the block of another, and gets all of it.
#[test]
fn pages_of_one_block_are_not_mixed() {
    static RULES: Rules = Rules::new();
    let (one, two) = (0x7f00_0012_3450, 0x7f00_0052_3450);
    RULES.put(RuntimeAddr(one), known(16, 1));
    let mut is_taken = false;
    for _ in 0..100 {
        RULES.put(RuntimeAddr(two), known(32, 1));
        let (first, second) = (get(&RULES, one), get(&RULES, two));
        is_taken |= second.is_some();
        assert!(first.is_none_or(|first| first == (16, 1) && !is_taken));
        assert!(second.is_none_or(|second| second == (32, 1)));
    }
    assert!(is_taken);
}
