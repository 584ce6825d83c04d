//! Tests of the format as a whole: a second reader, files that were changed, files made to
//! mislead, and the example of `docs/formats.md`. One binary, so that they are linked once.
#![cfg(feature = "alloc")]

#[cfg(test)]
mod calls;
#[cfg(test)]
mod example;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod independent;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tamper;
