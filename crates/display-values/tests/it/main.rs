//! Values of programs that are killed: against gdb's, and against the programs' own comments.
#![cfg(test)]

mod arguments;
mod containers;
mod killed;
mod variables;
