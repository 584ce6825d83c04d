use unspool_ir::RuntimeAddr;

use super::rule::Rule;
use super::rules::{Known, Rules};
use crate::modules::Place;

/// A rule with these bits, whatever they mean.
fn known(bits: u64, place: u16) -> Known {
    Known {
        rule: Rule::in_entry(bits),
        place: Place(place),
    }
}

fn get(rules: &Rules, address: u64) -> Option<(u64, u16)> {
    let address = RuntimeAddr(address);
    let known = rules.get(address)?;
    Some((known.rule.bits(), known.place.0))
}

#[test]
fn a_rule_is_found_at_its_address_only() {
    static RULES: Rules = Rules::new();
    let address = 0x7f12_3456_789a;
    RULES.put(RuntimeAddr(address), known(0x5_a5a8, 0xfedc));
    assert_eq!(get(&RULES, address), Some((0x5_a5a8, 0xfedc)));
    for bit in 0..64 {
        assert_eq!(get(&RULES, address ^ 1 << bit), None, "{bit}");
    }
}

/// What is at home in a slot goes next door when another comes, and is found there.
#[test]
fn two_addresses_of_one_slot_are_both_kept() {
    static RULES: Rules = Rules::new();
    let (one, two) = (0x40_1000, 0x40_1005);
    RULES.put(RuntimeAddr(one), known(8, 1));
    RULES.put(RuntimeAddr(two), known(16, 1));
    assert_eq!(get(&RULES, one), Some((8, 1)));
    assert_eq!(get(&RULES, two), Some((16, 1)));
    // A newer rule for an address takes the place of the older one.
    RULES.put(RuntimeAddr(two), known(24, 2));
    assert_eq!(get(&RULES, one), Some((8, 1)));
    assert_eq!(get(&RULES, two), Some((24, 2)));
}
