//! Examples of edited sources.
#![cfg(test)]

mod conditions;
mod source;
