//! Names of Rust.

use std::fmt::{self, Write};

use crate::MAX_NAME_BYTES;

/// The readable form of a Rust name. A legacy name ends with a hash; without one it is a C++
/// variable, `_ZN12_GLOBAL__N_13keyE`.
pub(crate) fn demangle(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    if name.starts_with("_Z") && !has_hash(name) {
        return None;
    }
    let mut text = BoundedText(String::new());
    write!(text, "{symbol:#}").ok()?;
    Some(text.0)
}

fn has_hash(name: &str) -> bool {
    let hash = name.rfind("17h").and_then(|at| name.get(at + 3..at + 20));
    hash.and_then(|hash| hash.strip_suffix('E'))
        .is_some_and(|hash| hash.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Text of bounded length.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
