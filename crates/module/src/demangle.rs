//! Readable names of Rust and C++ symbols.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Longer names are left alone, and so are those that would become longer: a few hundred bytes
/// of substitutions can stand for gigabytes.
const MAX_LENGTH: usize = 64 * 1024;
/// How deeply a C++ name may nest.
const MAX_DEPTH: u32 = 96;

/// The readable form of a symbol's name: of Rust names (legacy, without the hash, and v0), of
/// C++ names (Itanium ABI), and with what follows an `@` (`@plt`, a version) kept. Any other
/// name is returned as it is.
///
/// Allocates the result only if it differs. The result is at most about 64 KiB long.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    Signature::Whole.demangle(name)
}

/// How much of the signature of a C++ function its readable name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signature {
    /// The parameters, and the return type of templates.
    #[default]
    Whole,
    /// None of it: the name alone, as perf and the linker's map files have it.
    NameOnly,
}

impl Signature {
    /// The readable form of a symbol's name, as [`demangle`] describes it.
    #[must_use]
    pub fn demangle(self, name: &str) -> Cow<'_, str> {
        demangle_as(name, self)
    }
}

fn demangle_as(name: &str, signature: Signature) -> Cow<'_, str> {
    let (base, suffix) = name.split_at(name.find('@').unwrap_or(name.len()));
    let mangled = base.starts_with("_R") || base.starts_with("_Z");
    if !mangled || name.len() > MAX_LENGTH {
        return Cow::Borrowed(name);
    }
    match rust(base).or_else(|| cxx(base, signature)) {
        Some(readable) => Cow::Owned(readable + suffix),
        None => Cow::Borrowed(name),
    }
}

fn rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded(String::new());
    write!(text, "{symbol:#}").ok()?;
    Some(text.0)
}

fn cxx(name: &str, signature: Signature) -> Option<String> {
    let parse = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let (symbol, rest) = BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parse).ok()?;
    let mut text = Bounded(String::new());
    let options = DemangleOptions::new().recursion_limit(MAX_DEPTH);
    let options = match signature {
        Signature::Whole => options,
        Signature::NameOnly => options.no_params().no_return_type(),
    };
    symbol.structured_demangle(&mut text, &options).ok()?;
    rest.is_empty().then_some(text.0)
}

/// Text that refuses to grow too long.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_LENGTH {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_signatures() {
        for (name, readable) in [
            ("main", "main"),
            ("_RNvCsL39EUhRVRM_5unwnd4main", "unwnd::main"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("_Znwm@plt", "operator new@plt"),
            // The parameters that are part of a template's argument stay.
            ("_ZN1AIFmmEE3getEv", "A<unsigned long (unsigned long)>::get"),
            ("_Z3maxIiET_S0_S0_", "max<int>"),
            ("_ZNK1A3getEv", "A::get"),
        ] {
            assert_eq!(Signature::NameOnly.demangle(name), readable);
        }
    }

    #[test]
    fn every_scheme() {
        for (name, readable) in [
            ("main", "main"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvCsL39EUhRVRM_5unwnd4main", "unwnd::main"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"),
            ("_Znwm@plt", "operator new(unsigned long)@plt"),
            (
                "_Znwm@@GLIBCXX_3.4",
                "operator new(unsigned long)@@GLIBCXX_3.4",
            ),
            ("_Z", "_Z"),
            ("_Rx", "_Rx"),
            ("_ZN", "_ZN"),
            ("", ""),
            ("@plt", "@plt"),
            ("_Z3fooé", "_Z3fooé"),
        ] {
            assert_eq!(demangle(name), readable);
        }
    }

    #[test]
    fn names_that_explode_are_left_alone() {
        // Each level doubles the one before by a substitution.
        let mut name = "_Z1fI1AE".to_owned();
        name.push_str("1BIS_S_E");
        for level in 0..60 {
            let last = char::from_digit(level % 36, 36)
                .unwrap()
                .to_ascii_uppercase();
            _ = write!(name, "1BIS{last}_S{last}_E");
        }
        assert!(demangle(&name).len() <= MAX_LENGTH + name.len());
        let nested = format!("_Z1f{}i", "P".repeat(50_000));
        assert_eq!(demangle(&nested), nested);
        let long = format!("_ZN1a{}E", "1b".repeat(MAX_LENGTH));
        assert_eq!(demangle(&long), long);
    }
}
