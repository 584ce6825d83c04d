//! Readable names of C++ and Rust symbols, as binutils' `c++filt -i` writes them, and so perf, gdb
//! and addr2line.
//!
//! C++ names have the grammar of the Itanium C++ ABI, §5.1. `parse` makes a tree of a name, in which
//! substitutions (§5.1.10) are shared nodes; `print` writes it. `cargo xtask demangle` compares the
//! names of a machine's files with those of `c++filt`. Names of Rust are read by `rustc-demangle`.
//!
//! Names are untrusted: a few hundred bytes of substitutions can stand for gigabytes. Nesting, work
//! and length are bounded; a name beyond the bounds stays mangled.

#![forbid(unsafe_code)]

use std::borrow::Cow;

use parse::Parser;
use print::Printer;

mod node;
mod operators;
mod parse;
mod print;
mod rust;

/// The longest mangled name that is read, and the longest readable name that is made, in bytes.
pub const MAX_NAME_BYTES: usize = 64 * 1024;

/// How much of the signature of a C++ function its readable name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignatureDetail {
    /// The parameters, and the return type of templates.
    #[default]
    Whole,
    /// The parameters.
    WithoutReturnType,
    /// None of it: the name alone, as perf and the linker's map files have it. Functions that enclose
    /// it keep their parameters.
    NameOnly,
}

/// The readable form of a symbol's name: of Rust names (legacy, without the hash, and v0) and of C++
/// names (Itanium ABI). What follows an `@` (`@plt`, a version) is kept. Any other name is returned
/// as it is.
///
/// Allocates the tree and the result, and for other names nothing.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    SignatureDetail::Whole.demangle(name)
}

impl SignatureDetail {
    /// The readable form of a symbol's name, as [`demangle`] describes it.
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

/// The readable form of a C++ name, which begins with `_Z`; `None` if it is not one.
///
/// What compilers append for their copies of functions is kept: `f() [clone .cold]`. Allocates the
/// tree and the result.
#[must_use]
pub fn cxx(name: &str, signature: SignatureDetail) -> Option<String> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let (tree, root) = Parser::new(name.strip_prefix("_Z")?).symbol()?;
    Printer::new(&tree, signature).print(root)
}

/// Whether a C++ name has a substitution that stands for a template parameter of another template,
/// or of none: the same text (`T_`) with another meaning. Not all demanglers know that.
#[must_use]
pub fn has_foreign_parameter(name: &str) -> bool {
    let tree = name
        .strip_prefix("_Z")
        .and_then(|text| Parser::new(text).symbol());
    tree.is_some_and(|(tree, _)| tree.has_foreign_parameter())
}
