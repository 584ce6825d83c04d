//! Who holds the mutexes that threads wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use unspool_symbols::AddressName;

use super::StackReport;
use crate::output::EscapedText;

/// The most mutexes, threads of one, and deadlocks to print.
const MAX_PRINTED: usize = 20;

/// Prints a line for each mutex that threads wait for, and one for each deadlock.
pub(super) fn print(out: &mut dyn Write, report: &StackReport<'_>) -> io::Result<()> {
    let threads = || report.stacks.threads.iter();
    let waits = threads().filter_map(|one| Some((one.thread.tid, report.mutex_owner(one)?)));
    let waits: Vec<_> = waits.collect();
    let mut mutexes: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for (tid, owner) in &waits {
        let mutex = (owner.mutex, owner.tid);
        mutexes.entry(mutex).or_default().push(*tid);
    }
    let name = |tid| {
        let thread = threads().find(|one| one.thread.tid == tid);
        let name = thread.and_then(|one| one.thread.name.as_deref());
        name.map_or_else(String::new, |name| format!(" \"{}\"", EscapedText(name)))
    };
    for ((mutex, owner), waiting) in mutexes.iter().take(MAX_PRINTED) {
        let name = name(*owner);
        let waiting = listed("thread", waiting);
        writeln!(
            out,
            "mutex {mutex}: held by thread {owner}{name}, awaited by {waiting}"
        )?;
    }
    if let more @ 1.. = mutexes.len().saturating_sub(MAX_PRINTED) {
        writeln!(out, "and {more} more mutexes")?;
    }
    let owners = waits.iter().map(|(tid, owner)| (*tid, owner.tid)).collect();
    for cycle in cycles(&owners).into_iter().take(MAX_PRINTED) {
        let pairs = cycle.iter().zip(cycle.iter().cycle().skip(1));
        let mut waits: Vec<_> = pairs
            .map(|(tid, owner)| format!("{tid} waits for {owner}"))
            .take(MAX_PRINTED)
            .collect();
        if cycle.len() > MAX_PRINTED {
            waits.push("…".to_owned());
        }
        writeln!(out, "deadlock: thread {}", waits.join(", "))?;
    }
    Ok(())
}

/// Some numbers in words.
fn listed(what: &str, numbers: &[u32]) -> String {
    let plural = if numbers.len() == 1 { "" } else { "s" };
    let shown: Vec<_> = numbers
        .iter()
        .take(MAX_PRINTED)
        .map(u32::to_string)
        .collect();
    let more = match numbers.len().saturating_sub(MAX_PRINTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{what}{plural} {}{more}", shown.join(", "))
}

/// The threads that wait for one another in a circle, by the thread that each waits for. Each
/// circle starts with its lowest ID.
fn cycles(owners: &BTreeMap<u32, u32>) -> Vec<Vec<u32>> {
    let mut seen = BTreeSet::new();
    let mut cycles = Vec::new();
    for start in owners.keys() {
        let mut path = Vec::new();
        let mut next = Some(start);
        while let Some(tid) = next.filter(|tid| seen.insert(**tid)) {
            path.push(*tid);
            next = owners.get(tid);
        }
        // A path that ends at itself has a circle behind its beginning.
        let closed = next.and_then(|tid| path.iter().position(|one| one == tid));
        if let Some(circle) = closed.and_then(|at| path.get(at..)) {
            let lowest = circle.iter().min();
            let first = circle.iter().position(|tid| Some(tid) == lowest);
            let mut circle = circle.to_vec();
            circle.rotate_left(first.unwrap_or(0));
            cycles.push(circle);
        }
    }
    cycles
}

/// Whether a function of glibc waits for a mutex.
pub(super) fn waits_for_mutex(name: &AddressName<'_>) -> bool {
    let symbol = name.symbol.map_or("", |symbol| symbol.name);
    let symbol = symbol.split('@').next().unwrap_or_default();
    let symbol = symbol.trim_start_matches('_').trim_start_matches("GI_");
    let symbol = symbol.trim_start_matches('_');
    let operation = symbol.strip_prefix("pthread_mutex_").unwrap_or_default();
    symbol == "lll_lock_wait" || (operation.ends_with("lock") && operation != "unlock")
}

#[cfg(test)]
mod tests {
    use super::cycles;

    #[test]
    fn circles_of_threads() {
        let check = |owners: &[(u32, u32)], expected: &[&[u32]]| {
            let owners = owners.iter().copied().collect();
            assert_eq!(cycles(&owners), expected, "{owners:?}");
        };
        check(&[(1, 2), (2, 1)], &[&[1, 2]]);
        check(&[(5, 5)], &[&[5]]);
        check(&[(1, 2), (2, 3), (4, 2)], &[]);
        // 1 waits for a thread of a circle, and is in none.
        check(&[(1, 9), (9, 3), (3, 4), (4, 9)], &[&[3, 4, 9]]);
        let two = [(1, 2), (2, 1), (3, 1), (7, 8), (8, 7)];
        check(&two, &[&[1, 2], &[7, 8]]);
    }
}
