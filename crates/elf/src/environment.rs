//! The trusted part of the environment.

use std::env;
use std::ffi::OsString;

use crate::sys;

/// The value of an environment variable; `None` if it is not set or empty. Also `None` in a program
/// with more rights than its caller (`AT_SECURE`: setuid, setgid, file capabilities), because the
/// caller controls its environment.
///
/// Every environment variable that names a folder, file or server is read through this function.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    if sys::is_privileged() {
        return None;
    }
    env::var_os(name).filter(|value| !value.is_empty())
}
