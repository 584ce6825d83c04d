//! What instructions do, against another decoder and against this processor; and code that is none.
#![cfg(test)]

mod hostile;
mod lifting;
mod processor;
