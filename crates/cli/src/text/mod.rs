//! Text for people, shells and other programs. Nothing here needs the rest of the command, which takes a minute to compile: so
//! its tests run in `tests/it`, of which this is a module, too.

pub(crate) mod digits;
pub(crate) mod fit;
pub(crate) mod pattern;
pub(crate) mod words;
