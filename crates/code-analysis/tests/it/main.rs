//! Effects of instructions, against another decoder and this processor; and bytes that are not
//! code.
#![cfg(test)]

mod hostile;
mod lifting;
mod processor;
