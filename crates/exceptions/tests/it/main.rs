//! Exceptions and panics on our unwinder, compared with libgcc's and next to it.
#![cfg(test)]

mod call_sites;
mod generated;
mod instructions;
mod landing;
mod programs;
mod sys;
