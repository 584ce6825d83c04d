//! Text for people, shells and other programs.
//!
//! Nothing here needs the rest of the command, which takes a minute to compile. So this is also a
//! module of `tests/it`, where its tests run.

pub(crate) mod cycle;
pub(crate) mod fit;
pub(crate) mod names;
pub(crate) mod words;
