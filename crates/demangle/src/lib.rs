//! Readable names of C++ and Rust symbols, in the form of binutils' `c++filt -i`, and so of perf,
//! gdb and addr2line.
//!
//! C++ names have the grammar of the Itanium C++ ABI, §5.1. `parse` builds the tree of a name, in
//! which substitutions (§5.1.10) are shared nodes; `print` writes it. `cargo xtask demangle`
//! compares the names of a machine's files with those of `c++filt`. Names of Rust are read by
//! `rustc-demangle`.
//!
//! Names are untrusted: a few hundred bytes of substitutions can expand to gigabytes. Nesting, work
//! and length are limited; a name that exceeds the limits stays mangled.
//!
//! ```
//! use unspool_demangle::{SignatureDetail, demangle};
//!
//! let name = "_ZNSt6vectorIiSaIiEE9push_backERKi";
//! assert_eq!(demangle(name), "std::vector<int, std::allocator<int> >::push_back(int const&)");
//! let short = SignatureDetail::NameOnly.demangle(name);
//! assert_eq!(short, "std::vector<int, std::allocator<int> >::push_back");
//! assert_eq!(demangle("main"), "main");
//! ```

#![forbid(unsafe_code)]

use std::borrow::Cow;

use parse::Parser;
use print::Printer;

mod node;
mod operators;
mod parse;
mod print;
mod rust;

/// The longest mangled name to read, and the longest readable name to produce, in bytes.
pub const MAX_NAME_BYTES: usize = 64 * 1024;

/// The part of a C++ function's signature in its readable name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignatureDetail {
    /// The parameters, and the return type of templates.
    #[default]
    Whole,
    /// The parameters.
    WithoutReturnType,
    /// None of it: the name alone, as perf and the linker's map files have it. Enclosing functions
    /// keep their parameters.
    NameOnly,
}

/// The readable form of a symbol's name: of Rust names (legacy, without the hash, and v0) and of
/// C++ names (Itanium ABI). A suffix from an `@` on (`@plt`, a version) is kept. Any other name is
/// returned unchanged.
///
/// Allocates the tree and the result; for other names, nothing.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    SignatureDetail::Whole.demangle(name)
}

impl SignatureDetail {
    /// The readable form of a symbol's name, as for [`demangle`], with this detail.
    #[must_use]
    pub fn demangle(self, name: &str) -> Cow<'_, str> {
        let (base, suffix) = name.split_at(name.find('@').unwrap_or(name.len()));
        let mangled = base.starts_with("_R") || base.starts_with("_Z");
        if !mangled || name.len() > MAX_NAME_BYTES {
            return Cow::Borrowed(name);
        }
        match rust::demangle(base).or_else(|| cxx(base, self)) {
            Some(readable) => Cow::Owned(readable + suffix),
            None => Cow::Borrowed(name),
        }
    }
}

/// The readable form of a C++ name, which starts with `_Z`; `None` if it is not one.
///
/// The suffix of compilers for clones of functions is kept: `f() [clone .cold]`. Allocates the tree
/// and the result.
#[must_use]
pub fn cxx(name: &str, signature: SignatureDetail) -> Option<String> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let (tree, root) = Parser::new(name.strip_prefix("_Z")?).symbol()?;
    Printer::new(&tree, signature).print(root)
}

/// Whether a C++ name has a substitution that denotes a template parameter of another template, or
/// of none: the same text (`T_`) with another meaning. Not all demanglers support that.
#[must_use]
pub fn has_foreign_parameter(name: &str) -> bool {
    let tree = name
        .strip_prefix("_Z")
        .and_then(|text| Parser::new(text).symbol());
    tree.is_some_and(|(tree, _)| tree.has_foreign_parameter())
}
