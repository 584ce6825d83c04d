//! The size of the rules' memory, set by the program or the environment. Walks have the same
//! result.

use std::sync::atomic::AtomicBool;
use std::thread;

use unspool_unwind::RuleCacheSize;
use unspool_unwind::local::rules;

use super::frames::below;
use super::*;

/// The inner process of a test, by the argument that it gets.
const INNER: &str = "UNSPOOL_TEST_RULES";

/// Runs a test again with `UNSPOOL_RULES`.
fn with_environment(value: &str, argument: &str) {
    let mut command = this_test(&[]);
    let command = command.env("UNSPOOL_RULES", value).env(INNER, argument);
    let text = command.succeed();
    assert!(text.contains("1 passed"), "{text}");
}

fn walk_and_compare(watcher: &mut Watcher) {
    below(60, &mut || Watcher::watch(watcher));
    watcher.assert_same("below");
}

/// Whether all of some memory is writable, by the kernel's list. One mapping contains it, or
/// several adjacent ones, as where the file's data ends and zero memory begins. The list is read in
/// pieces, between which other threads of a test program map memory: one of several readings must
/// succeed.
fn is_mapped(memory: &std::ops::Range<*const u8>) -> bool {
    let end_of_mapped = |maps: &str| {
        maps.lines().fold(memory.start.addr(), |known, line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            if rest.starts_with("rw") && (number(start)..number(end)).contains(&known) {
                number(end)
            } else {
                known
            }
        })
    };
    (0..5).any(|_| {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        memory.end.addr() <= end_of_mapped(&maps)
    })
}

#[test]
fn the_environment_says_how_much() {
    if let Some(expected) = std::env::var_os(INNER) {
        let mut watcher = Watcher::new();
        let rules = rules::current();
        let bytes = rules.size().bytes();
        assert_eq!(bytes.to_string(), expected.to_str().unwrap());
        assert!(rules.memory().iter().all(is_mapped));
        return walk_and_compare(&mut watcher);
    }
    for (value, expected) in [
        ("4M", "4194304"),
        ("65536", "65536"),
        ("1024K", "1048576"),
        // Invalid sizes of rules.
        ("", "1048576"),
        ("3M", "1048576"),
        ("1G", "1048576"),
    ] {
        with_environment(value, expected);
    }
}

#[test]
fn the_program_says_how_much_at_any_time() {
    if std::env::var_os(INNER).is_none() {
        return with_environment("8M", "");
    }
    let four = RuleCacheSize::from_bytes(4 << 20).unwrap();
    rules::resize(RuleCacheSize::DEFAULT).unwrap();
    // Prepares, and would have read the environment.
    let mut watcher = Watcher::new();
    assert_eq!(rules::current().size(), RuleCacheSize::DEFAULT);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Another thread walks all the time.
        let other = scope.spawn(|| {
            let mut watcher = Watcher::new();
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                walk_and_compare(&mut watcher);
                count += 1;
            }
            count
        });
        let mut at = Vec::new();
        for _ in 0..20 {
            for size in [
                RuleCacheSize::MIN,
                four,
                RuleCacheSize::DEFAULT,
                RuleCacheSize::MAX,
            ] {
                rules::resize(size).unwrap();
                assert_eq!(rules::current().size(), size);
                at.push(rules::current().memory());
                walk_and_compare(&mut watcher);
            }
        }
        // A mapping is reused.
        assert!(
            at.iter()
                .zip(&at[4..])
                .all(|(before, after)| before == after)
        );
        is_over.store(true, Ordering::Relaxed);
        assert!(other.join().unwrap() > 0);
    });
}
