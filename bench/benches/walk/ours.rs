//! unspool's own walkers.

use std::ffi::OsString;
use std::path::Path;

use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, Store, TableSource};
use unspool_unwind::local::{self, OwnThread, map_tables};

use crate::peers::{self, MakeWalker, OpenPeer, Peer, PeerWalker};
use crate::sys::{OwnStack, addresses};
use crate::workload::{Build, folder};

/// What the names of ours begin with.
pub(crate) const PREFIX: &str = "unspool";

/// Our walkers.
pub(crate) fn all() -> Vec<Peer> {
    let ours: [(&'static str, OpenPeer); 4] = [
        ("unspool, no memo", || {
            with_tables()?;
            Ok(make(|thread, out| {
                thread.walk_afresh(addresses(out)).frames
            }))
        }),
        ("unspool", || {
            with_tables()?;
            Ok(make(|thread, out| thread.walk(addresses(out)).frames))
        }),
        ("unspool C unw_step", peers::unspool_step),
        ("unspool C unw_backtrace", peers::unspool_backtrace),
    ];
    ours.map(peer).into()
}

/// As a process walks before anybody has mapped a table. Tables are the whole process's, so it takes
/// one of its own.
pub(crate) fn without_tables() -> Peer {
    peer(("unspool, no tables", || {
        Ok(make(|thread, out| {
            thread.walk_afresh(addresses(out)).frames
        }))
    }))
}

/// The memory that the rules of all of them have, in KiB.
pub(crate) fn rules() -> usize {
    // As the first of them does.
    local::prepare();
    local::rules::current().size().bytes() / 1024
}

fn peer((name, open): (&'static str, OpenPeer)) -> Peer {
    Peer {
        name,
        build: Build::NoFramePointers,
        open,
    }
}

/// Maps the compiled tables of all that is loaded; compiles those that are not there yet.
fn with_tables() -> anyhow::Result<()> {
    let store = Store::new(None, Some(OsString::from(folder()?)), None);
    let without = map_tables(&store).without;
    if without.is_empty() {
        return Ok(());
    }
    for path in without {
        keep(&store, &path)?;
    }
    let _ = map_tables(&store);
    Ok(())
}

fn keep(store: &Store, path: &Path) -> anyhow::Result<()> {
    let file = ElfFile::open(path)?;
    let made = tables::compile(&file, TableSource::Auto)?;
    store.keep(&store.stable(&file), &made.encoded.bytes)?;
    Ok(())
}

type WalkFn = fn(&mut OwnThread, &mut [u64]) -> usize;

/// A thread's walker.
struct UnspoolWalker {
    thread: Box<OwnThread>,
    walk: WalkFn,
}

impl PeerWalker for UnspoolWalker {
    fn walk(&mut self, _: &OwnStack, out: &mut [u64]) -> usize {
        (self.walk)(&mut self.thread, out)
    }
}

fn make(walk: WalkFn) -> MakeWalker {
    Box::new(move || {
        let thread = Box::new(OwnThread::new());
        Box::new(UnspoolWalker { thread, walk })
    })
}
