//! Examples of edited sources.
#![cfg(test)]

mod annotate;
mod conditions;
mod source;
