//! Calling conventions other than the psABI's: which registers functions preserve.
//!
//! Compilers of some languages have conventions of their own. Their code shows by its symbols. All
//! registers that a convention does not preserve are left out: rows say nothing about them that
//! anybody could use, and each call changes them.

use core::ops::Range;
use std::collections::HashMap;

use unspool_elf::{ElfFile, ElfKind, Symbols};
use unspool_rows::Vaddr;

/// A calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallingConvention {
    /// Whose convention it is: `OCaml`.
    pub name: &'static str,
    /// The registers that calls preserve, by DWARF number: bit n stands for register n.
    pub preserved: u64,
    /// Whether calls enter functions, with the return address on the stack.
    pub has_calls: bool,
    /// Whether only a compiler makes such code.
    is_compiled: bool,
}

const RBX: u64 = 1 << 3;
const RBP: u64 = 1 << 6;

/// OCaml's (`asmcomp/amd64/proc.ml`): no register is preserved.
const OCAML: CallingConvention = CallingConvention {
    name: "OCaml",
    preserved: 0,
    has_calls: true,
    is_compiled: true,
};

/// Go's ABIInternal (`cmd/compile/abi-internal.md`): the frame pointer is preserved.
const GO: CallingConvention = CallingConvention {
    name: "Go",
    preserved: RBP,
    ..OCAML
};

/// GHC's: functions jump to each other, and have a stack of their own at `rbp`.
const GHC: CallingConvention = CallingConvention {
    name: "GHC",
    has_calls: false,
    ..OCAML
};

/// `__regcall` (Intel's compilers and LLVM): `r12` to `r15` are for arguments.
const REGCALL: CallingConvention = CallingConvention {
    name: "__regcall",
    preserved: RBX | RBP,
    has_calls: true,
    is_compiled: false,
};

impl CallingConvention {
    /// The convention that preserves these registers and otherwise is the psABI's. Bit n stands for
    /// the register with DWARF number n.
    #[must_use]
    pub fn preserving(registers: u64) -> CallingConvention {
        CallingConvention {
            name: "--preserves",
            preserved: registers,
            has_calls: true,
            is_compiled: false,
        }
    }
}

/// The conventions in a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallingConventions {
    /// Ranges of code, ascending, without overlap.
    ranges: Vec<(Range<u64>, CallingConvention)>,
    /// Of all other code, unless it is the psABI's.
    default: Option<CallingConvention>,
}

impl CallingConventions {
    /// The conventions that a file's symbols show.
    pub(crate) fn from_symbols(file: &ElfFile, symbols: &Symbols) -> CallingConventions {
        let mut found = Vec::new();
        let mut starts: HashMap<String, u64> = HashMap::new();
        let mut haskell = Vec::new();
        for symbol in symbols.iter() {
            let (name, at) = (symbol.name.as_ref(), symbol.address.0);
            if name.starts_with("__regcall3__") {
                let end = at.saturating_add(symbol.size.max(1));
                found.push((at..end, REGCALL));
            } else if let Some(unit) = ocaml_unit(name, "code_begin") {
                starts.insert(unit.to_owned(), at);
            } else if name == "runtime.text" {
                starts.insert(String::new(), at);
            } else if is_haskell(name) {
                haskell.push(at);
            }
        }
        if !starts.is_empty() {
            found.extend(symbols.iter().filter_map(|symbol| {
                let name = symbol.name.as_ref();
                let (unit, convention) = match ocaml_unit(name, "code_end") {
                    Some(unit) => (unit, OCAML),
                    None if name == "runtime.etext" => ("", GO),
                    None => return None,
                };
                Some((*starts.get(unit)?..symbol.address.0, convention))
            }));
        }
        // Compilers of these languages make whole object files, with a section for each function.
        let is_ocaml = starts.keys().any(|unit| !unit.is_empty());
        let whole = match (is_ocaml, haskell.is_empty()) {
            (true, _) => Some(OCAML),
            (false, false) => Some(GHC),
            (false, true) => None,
        };
        match whole.filter(|_| file.kind() == ElfKind::Relocatable) {
            Some(convention) => {
                let code = file.executable_ranges().into_iter();
                found = code
                    .map(|range| (range.start.0..range.end.0, convention))
                    .collect();
            }
            None => found.extend(haskell_ranges(symbols, &haskell)),
        }
        found.sort_by_key(|(range, _)| (range.start, range.end));
        found.dedup_by(|next, last| next.0.start < last.0.end);
        CallingConventions {
            ranges: found,
            default: None,
        }
    }

    /// The same with a convention for all code that shows none.
    pub(crate) fn with_default(mut self, convention: Option<CallingConvention>) -> Self {
        self.default = convention;
        self
    }

    /// The convention of the code at an address; `None` for the psABI's.
    pub(crate) fn at(&self, at: u64) -> Option<&CallingConvention> {
        let behind = self.ranges.partition_point(|(range, _)| range.start <= at);
        let near = behind
            .checked_sub(1)
            .and_then(|place| self.ranges.get(place));
        let found = near.filter(|(range, _)| at < range.end);
        found
            .map(|(_, convention)| convention)
            .or(self.default.as_ref())
    }

    /// Whether the code at an address is a compiler's, by its convention.
    pub(crate) fn is_compiled(&self, at: Vaddr) -> bool {
        self.at(at.0)
            .is_some_and(|convention| convention.is_compiled)
    }

    /// Whether any code shows a convention.
    pub(crate) fn is_any_shown(&self) -> bool {
        !self.ranges.is_empty()
    }
}

/// The unit that a label of OCaml's compiler begins or ends: `caml`, its name, `__code_begin`.
/// Assembly of the runtime has such labels, too, and keeps to the psABI.
fn ocaml_unit<'n>(name: &'n str, end: &str) -> Option<&'n str> {
    let unit = name.strip_prefix("caml")?.strip_suffix(end)?;
    let unit = unit.trim_end_matches(['_', '.', '$']);
    (!unit.is_empty() && unit != "_system").then_some(unit)
}

/// Whether a name is one of GHC's for code: of a module, with its dots encoded, or of the runtime.
fn is_haskell(name: &str) -> bool {
    let ends = ["_info", "_slow", "_fast", "_entry"];
    let is_code = ends.iter().any(|end| name.ends_with(end));
    let begins = ["stg_", "Main_", "ZCMain_"];
    is_code && (begins.iter().any(|begin| name.starts_with(begin)) || name.contains("zi"))
}

/// The code that begins with these symbols.
fn haskell_ranges(
    symbols: &Symbols,
    starts: &[u64],
) -> impl Iterator<Item = (Range<u64>, CallingConvention)> {
    let addresses: Vec<u64> = match starts {
        [] => Vec::new(),
        _ => symbols.iter().map(|symbol| symbol.address.0).collect(),
    };
    starts.iter().map(move |start| {
        let behind = addresses.partition_point(|address| address <= start);
        let end = addresses.get(behind).copied().unwrap_or(u64::MAX);
        (*start..end, GHC)
    })
}
