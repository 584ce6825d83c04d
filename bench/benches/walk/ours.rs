//! Where unspool's own walkers are plugged in.

use crate::peers::Peer;

/// What the names of ours begin with.
pub(crate) const PREFIX: &str = "unspool";

/// Our walkers. Each is a [`Peer`] like the others: a name, `Build::NoFramePointers`, and a
/// function that opens what it needs and yields a maker of `Walker`s, one for each thread.
pub(crate) fn all() -> Vec<Peer> {
    Vec::new()
}
