//! Functions that are known by name never to return: those of other files have only a name.

use std::collections::HashSet;

use unspool_elf::{ElfFile, Symbols};

/// Names of C and of the runtimes of C++, Rust and the compilers.
const NAMES: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_call_terminate",
    "__cxa_call_unexpected",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_call_main",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "__ubsan_handle_builtin_unreachable",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "g_assertion_message",
    "g_assertion_message_expr",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "rust_begin_unwind",
    "rust_panic",
    "siglongjmp",
    "thrd_exit",
    "verr",
    "verrx",
    "__pthread_unwind_next",
    "__pthread_exit",
    "__libc_siglongjmp",
    "setcontext",
];

/// Beginnings of mangled names.
const MANGLED_PREFIXES: &[&str] = &[
    // std::terminate(), std::unexpected(), std::rethrow_exception(…)
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
    "_ZSt17rethrow_exception",
];

/// Whether a function with that name never returns.
#[must_use]
fn is_noreturn_name(name: &str) -> bool {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    NAMES.contains(&name)
        || MANGLED_PREFIXES
            .iter()
            .any(|beginning| name.starts_with(beginning))
        || is_throw(name)
}

/// `std::__throw_…`: the length of the name stands before it.
fn is_throw(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("_ZSt") else {
        return false;
    };
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() > name.len() && name.starts_with("__throw_")
}

/// Addresses of a file's functions, and of its imported ones, that are known by name never to
/// return.
#[must_use]
pub fn noreturn_addresses(file: &ElfFile, symbols: &Symbols) -> HashSet<u64> {
    let own = symbols.iter().map(|symbol| (symbol.name, symbol.address));
    let others = file.undefined_symbols().unwrap_or_default();
    let lost = own.chain(others).filter(|(name, _)| is_noreturn_name(name));
    lost.map(|(_, address)| address.0).collect()
}
