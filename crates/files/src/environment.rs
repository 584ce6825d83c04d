//! The trusted part of the environment, and the folders that it names.
//!
//! Every environment variable that names a file, folder, program or server is read here. The caller
//! of a program controls its environment. So in a program with more rights than its caller, no
//! variable has a value.

use core::ffi::CStr;

pub use crate::sys::environment::{is_privileged, variable_bytes};

/// The folder of packaged tables.
pub const PACKAGED_TABLES: &CStr = c"/usr/lib/unspool/tables";

/// The value of an environment variable; `None` if it is not set or empty, or the program
/// [is privileged](is_privileged).
#[cfg(feature = "std")]
#[must_use]
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The user's folder of caches, in two parts to be joined: `XDG_CACHE_HOME`, else `.cache` in
/// `HOME`, by the values of these variables. A relative path counts as not set (XDG Base Directory
/// Specification).
#[must_use]
pub fn cache_home<'v>(cache_home: &'v [u8], home: &'v [u8]) -> Option<[&'v [u8]; 2]> {
    match (cache_home, home) {
        ([b'/', ..], _) => Some([cache_home, b""]),
        (_, [b'/', ..]) => Some([home, b"/.cache"]),
        _ => None,
    }
}

/// The same as a path.
#[cfg(feature = "std")]
#[must_use]
pub fn cache_home_path(
    cache_home: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let [caches, home] = [cache_home, home].map(|value| value.unwrap_or_default().into_vec());
    let path = self::cache_home(&caches, &home)?.concat();
    Some(std::ffi::OsString::from_vec(path).into())
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_cache_is_where_the_xdg_base_directory_specification_says() {
        let cache = |cache_home: &str, home: &str| {
            cache_home_path(Some(cache_home.into()), Some(home.into()))
        };
        let is = |path: &str| Some(Path::new(path).to_path_buf());
        assert_eq!(cache("/a/cache", "/home/u"), is("/a/cache"));
        for ignored in ["", "relative/cache"] {
            assert_eq!(cache(ignored, "/home/u"), is("/home/u/.cache"));
            for home in ["", "home"] {
                assert_eq!(cache(ignored, home), None);
            }
        }
        assert_eq!(cache_home_path(None, None), None);
    }

    /// Two readers of the environment, one rule.
    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let names = [
            c"UNSPOOL_TEST_EMPTY",
            c"UNSPOOL_TEST_SET",
            c"UNSPOOL_TEST_UNSET",
        ];
        if std::env::var_os("UNSPOOL_TEST_SET").is_none() {
            // In a process of its own: the environment belongs to all threads.
            let name = "environment::tests::an_empty_variable_counts_as_not_set";
            let mut own = std::process::Command::new(std::env::current_exe().unwrap());
            own.args([name, "--exact"]).env("UNSPOOL_TEST_EMPTY", "");
            let status = own.env("UNSPOOL_TEST_SET", "x").status().unwrap();
            assert!(status.success());
            return;
        }
        let values = names.map(variable_bytes);
        assert_eq!(values, [None, Some(&b"x"[..]), None]);
        let values = names.map(|name| variable(name.to_str().unwrap()));
        assert_eq!(values, [None, Some("x".into()), None]);
    }
}
