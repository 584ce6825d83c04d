//! The own stack, against the C library's own `backtrace`.

use std::path::Path;

use unspool_compiled_table::CompiledTable;
use unspool_elf::ElfFile;
use unspool_rows::RuntimeAddr;
use unspool_table_store::{self as tables, TableSource};
use unspool_testing::alone;
use unspool_unwind::local::{self, OwnThread};
use unspool_unwind::{End, RowRules, WalkResult};

use crate::frames::{below, by_glibc};

#[inline(never)]
fn by_us(thread: &mut OwnThread) -> (Vec<u64>, WalkResult) {
    let mut addresses = [RuntimeAddr(0); 600];
    let walk = thread.walk(&mut addresses);
    let found = &addresses[..walk.frames];
    (found.iter().map(|address| address.0).collect(), walk)
}

/// Every frame except those below this function's caller, which differ.
fn outer(addresses: &[u64], depth: usize) -> &[u64] {
    &addresses[addresses.len() - depth..]
}

fn check(thread: &mut OwnThread) {
    for depth in [0, 1, 7, 64, 300, 64, 64, 10] {
        below(depth, &mut || {
            let expected = by_glibc();
            for _ in 0..3 {
                let (found, walk) = by_us(thread);
                let same = expected.len() - 1;
                assert_eq!(outer(&found, same), outer(&expected, same));
                assert_eq!((walk.end, walk.guesses), (End::Outermost, 0));
            }
        });
    }
}

#[test]
fn equals_glibcs_backtrace() {
    // Otherwise other tests would use its tables, too.
    alone(|| {
        let mut thread = OwnThread::new();
        check(&mut thread);
        // With compiled tables, and a memo from walks without them.
        for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
            let Some(path) = line
                .split_whitespace()
                .nth(5)
                .filter(|_| line.contains("r-xp"))
            else {
                continue;
            };
            let Ok(file) = ElfFile::open(Path::new(path)) else {
                continue;
            };
            let made = tables::compile(&file, TableSource::Auto).unwrap();
            let bytes: &'static [u8] = made.encoded.bytes.leak();
            let table = Box::leak(Box::new(CompiledTable::open(bytes).unwrap()));
            let rules = RowRules::make(table, vec![0; table.distinct_rows()].leak());
            assert!(local::modules().attach(table, rules));
        }
        check(&mut thread);
        check(&mut OwnThread::new());
    });
}
