//! Tests of the format as a whole: a second reader, changed files, files made to mislead, and the
//! example of `docs/formats.md`. One binary, so that they are linked once.
#![cfg(test)]
#![cfg(feature = "alloc")]

mod calls;
mod example;
mod generate;
mod hostile;
mod independent;
mod model;
mod oracle;
mod parts;
mod round_trip;
mod tamper;
