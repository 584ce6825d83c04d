//! Exceptions and panics on our unwinder, compared with libgcc's and next to it.
#![cfg(test)]

mod generated;
mod instructions;
mod landing;
mod programs;
