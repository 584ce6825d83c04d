//! Our libunwind compared with Debian's: its header, its shared objects, and its results for
//! stacks.
#![cfg(test)]

mod abi;
mod bad_frames;
mod clients;
mod local;
mod objects;
mod programs;
mod remote;
mod sframe;
mod shared_objects;
