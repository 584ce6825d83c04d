//! ELF files against what other tools say of them, and against files that lie.
#![cfg(test)]

mod architectures;
mod common;
mod container;
mod embed;
mod hostile;
mod lines;
mod relocatable;
mod sections;
mod symbols;
