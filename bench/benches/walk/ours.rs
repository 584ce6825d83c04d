//! unspool's own walkers.

use unspool_unwind::local::OwnThread;

use crate::peers::{Make, Open, Peer, Walker};
use crate::sys::{Stack, addresses};
use crate::workload::Build;

/// What the names of ours begin with.
pub(crate) const PREFIX: &str = "unspool";

/// Our walkers.
pub(crate) fn all() -> Vec<Peer> {
    let ours: [(&'static str, Open); 2] = [
        ("unspool, no memo", || {
            Ok(make(|thread, out| {
                thread.walk_afresh(addresses(out)).frames
            }))
        }),
        ("unspool", || {
            Ok(make(|thread, out| thread.walk(addresses(out)).frames))
        }),
    ];
    let peer = |(name, open)| Peer {
        name,
        build: Build::NoFramePointers,
        open,
    };
    ours.map(peer).into()
}

type Walk = fn(&mut OwnThread, &mut [u64]) -> usize;

/// A thread's walker, made where it is used first.
struct Ours {
    thread: Option<Box<OwnThread>>,
    walk: Walk,
}

impl Walker for Ours {
    fn walk(&mut self, _: &Stack, out: &mut [u64]) -> usize {
        let thread = self.thread.get_or_insert_with(Box::default);
        (self.walk)(thread, out)
    }
}

fn make(walk: Walk) -> Make {
    Box::new(move || Box::new(Ours { thread: None, walk }))
}
