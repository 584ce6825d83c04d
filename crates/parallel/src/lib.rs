//! Parallel work on several items.
//!
//! ```
//! let squares = unspool_parallel::map(vec![1, 2, 3], 2, |number| number * number);
//! assert_eq!(squares, [1, 4, 9]);
//! ```

#![forbid(unsafe_code)]

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The number of threads that this machine runs at once, as far as this process may use them.
#[must_use]
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The results of `work` for each item, in order, by at most this number of threads. This thread
/// works too, so that a single item starts no other thread.
pub fn map<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let workers = threads.min(items.len());
    let mut results = Vec::new();
    results.resize_with(items.len(), || None);
    let queue = Mutex::new(items.into_iter().zip(&mut results));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || {
        while let Some((item, result)) = next() {
            *result = Some(work(item));
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            // With fewer threads it takes longer.
            let _ = thread::Builder::new().spawn_scoped(scope, worker);
        }
        worker();
    });
    drop(queue);
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_the_order_of_the_items() {
        for threads in [0, 1, 3, 100] {
            let items: Vec<usize> = (0..50).collect();
            let squares: Vec<usize> = items.iter().map(|item| item * item).collect();
            assert_eq!(super::map(items, threads, |item| item * item), squares);
        }
        assert!(super::map(Vec::<u8>::new(), 2, |item| item).is_empty());
    }
}
