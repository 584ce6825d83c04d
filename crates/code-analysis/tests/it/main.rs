//! Instructions as text against objdump, their effects against another decoder and this processor,
//! and bytes that are not code.
#![cfg(test)]

mod aarch64;
mod disassembly;
mod hostile;
mod lifting;
mod processor;
