//! unspool's own walkers.

use std::ffi::OsString;
use std::path::Path;

use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, Store, TableSource};
use unspool_unwind::local::{self, OwnThread, map_tables};

use crate::peers::{self, MakeWalker, OpenPeer, Peer, PeerWalker};
use crate::sys::{OwnStack, addresses};
use crate::workload::{Build, folder};

/// The prefix of unspool's names.
pub(crate) const PREFIX: &str = "unspool";

/// Unspool's walkers.
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

/// Walks before any table is mapped. Tables are per process, so it needs a separate process.
pub(crate) fn without_tables() -> Peer {
    peer(("unspool, no tables", || {
        Ok(make(|thread, out| {
            thread.walk_afresh(addresses(out)).frames
        }))
    }))
}

/// The memory of all their rules, in KiB.
pub(crate) fn rules() -> usize {
    // The first of them does so.
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

/// Maps the compiled tables of all loaded files; compiles missing ones.
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
