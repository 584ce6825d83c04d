//! The environment, as far as it can be trusted.

use std::env;
use std::ffi::OsString;

use crate::sys;

/// The value of an environment variable; `None` if it is not set or empty, and in a program that has more
/// rights than its caller (`AT_SECURE`: setuid, setgid, file capabilities), whose environment is the
/// caller's.
///
/// Every folder, file and server that a variable of `unspool` names is asked for here.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    if sys::is_privileged() {
        return None;
    }
    env::var_os(name).filter(|value| !value.is_empty())
}
