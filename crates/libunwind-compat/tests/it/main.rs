//! Our libunwind against Debian's: its header, its shared objects, and what it says of a stack.
#![cfg(test)]

mod abi;
mod bad_frames;
mod clients;
mod exceptions;
mod local;
mod objects;
mod programs;
mod remote;
mod sframe;
mod shared_objects;
