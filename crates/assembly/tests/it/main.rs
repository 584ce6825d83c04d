//! Sources that are edited, by example.
#![cfg(test)]

mod conditions;
mod source;
