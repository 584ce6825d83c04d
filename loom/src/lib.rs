//! Models of what threads share without a lock. loom runs each in all orders of its threads' accesses,
//! and with all values that the memory model permits them to read.
//!
//! They are the caches' own code, with loom's words instead of the processor's.
#![cfg(test)]

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use unspool_unwind::shared_word::SharedWord;
use unspool_unwind::steps::NumberedRules;
use unspool_unwind::versioned_words::VersionedWords;

struct ModelWord(AtomicU64);

impl ModelWord {
    fn zero() -> ModelWord {
        ModelWord(AtomicU64::new(0))
    }
}

impl SharedWord for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, word: u64, order: Ordering) {
        self.0.store(word, order);
    }

    fn replace(&self, before: u64, new: u64, success: Ordering, failure: Ordering) -> bool {
        self.0
            .compare_exchange(before, new, success, failure)
            .is_ok()
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Two threads, each of which runs `work` with its number, and what they share.
fn model<S: Send + Sync + 'static>(make: fn() -> S, work: fn(&S, u64)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let shared = Arc::new(make());
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || work(&other, 1));
        work(&shared, 2);
        thread.join().unwrap();
    });
}

/// Facts of exceptions: two slots, in which two threads keep facts of one address.
#[test]
fn facts_are_those_of_one_writer() {
    type Slot = VersionedWords<3, ModelWord>;
    model(
        || [(); 2].map(|()| Slot::from_fn(ModelWord::zero)),
        |slots, thread| {
            Slot::put(slots.iter(), [7, 70 + thread, 70 + thread]);
            if let Some([_, first, second]) = slots.iter().find_map(|slot| slot.read(7)) {
                assert_eq!(first, second);
                assert_eq!(first / 10, 7);
            }
        },
    );
}

/// Rules of steps: two slots, in which two threads keep the rules of three addresses.
#[test]
fn rules_are_those_of_their_addresses() {
    model(
        || NumberedRules::<4, 4, ModelWord>::from_fn(ModelWord::zero),
        |rules, thread| {
            let (shared, own) = (16, 16 + 16 * thread);
            for tag in [shared, own] {
                rules.put(0, tag, tag + 1, 0);
            }
            for tag in [shared, 16 + 16 * (3 - thread)] {
                if let Some(rule) = rules.get(0, tag) {
                    assert_eq!(rule, tag + 1);
                }
            }
        },
    );
}
