//! ELF files, compared with other tools, and damaged files.
#![cfg(test)]

mod architectures;
mod common;
mod container;
mod embed;
mod go;
mod hostile;
mod lines;
mod relocatable;
mod sections;
mod symbols;
