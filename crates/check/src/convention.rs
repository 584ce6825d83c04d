//! Calling conventions other than the psABI's: which registers functions preserve.
//!
//! Compilers of some languages have conventions of their own. Their code shows by labels around it,
//! by its section, or by its symbols and its instructions. All registers that a convention does not
//! preserve are left out: rows say nothing about them that anybody could use, and each call changes
//! them.

use core::ops::Range;
use std::collections::{BTreeSet, HashMap};

use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::{CodeImage as _, Lifter};
use unspool_elf::{ElfFile, Symbols, assembly_ranges};
use unspool_rows::Vaddr;
use unspool_synthesis::ElfCodeImage;

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
const R13: u64 = 1 << 13;

/// GHC's node, stack pointer and table of registers (`includes/stg/MachRegs.h`).
const GHC_BASES: u64 = RBX | RBP | R13;

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
    /// The conventions that a file's code shows.
    pub(crate) fn from_file(
        file: &ElfFile,
        symbols: &Symbols,
        lifter: &mut Lifter,
    ) -> CallingConventions {
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
            found.extend(ocaml_sections(file));
        }
        found.extend(haskell_ranges(file, symbols, &haskell, lifter));
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
    pub(crate) fn find(&self, at: u64) -> Option<&CallingConvention> {
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
        self.find(at.0)
            .is_some_and(|convention| convention.is_compiled)
    }

    /// Whether any code shows a convention.
    pub(crate) fn is_any_shown(&self) -> bool {
        !self.ranges.is_empty()
    }
}

/// The unit that a label of OCaml's compiler begins or ends: `caml`, its name, `__code_begin`. A unit
/// has a capital, except the start of a program. Assembly of the runtime has such labels, too, and
/// keeps to the psABI.
fn ocaml_unit<'n>(name: &'n str, end: &str) -> Option<&'n str> {
    let unit = name.strip_prefix("caml")?.strip_suffix(end)?;
    let unit = unit.trim_end_matches(['_', '.', '$']);
    let is_unit = unit.starts_with(|first: char| first.is_ascii_uppercase());
    (is_unit || unit == "_startup").then_some(unit)
}

/// The sections of an object file for each function of OCaml's compiler (`-function-sections`).
fn ocaml_sections(file: &ElfFile) -> Vec<(Range<u64>, CallingConvention)> {
    let code = file.executable_ranges().into_iter().filter(|range| {
        let section = file.section_of(range.start);
        section.is_some_and(|(name, _)| name.starts_with(".text.caml."))
    });
    code.map(|range| (range.start.0..range.end.0, OCAML))
        .collect()
}

/// Whether a name may be one of GHC's for code: of a module, with its dots encoded, or of the
/// runtime. Other code has such names, too: `unzip_info`.
fn is_haskell(name: &str) -> bool {
    let ends = ["_info", "_slow", "_fast", "_entry"];
    let is_code = ends.iter().any(|end| name.ends_with(end));
    let begins = ["stg_", "Main_", "ZCMain_"];
    is_code && (begins.iter().any(|begin| name.starts_with(begin)) || name.contains("zi"))
}

/// The code of GHC's that begins at these symbols. GHC's functions never return: they jump to an
/// address on their own stack, or in a closure. One in the file has to do so, and the others must
/// not return; code that its debug information calls assembly is not GHC's.
fn haskell_ranges(
    file: &ElfFile,
    symbols: &Symbols,
    starts: &[u64],
    lifter: &mut Lifter,
) -> Vec<(Range<u64>, CallingConvention)> {
    if starts.is_empty() {
        return Vec::new();
    }
    let assembly = assembly_ranges(file);
    let addresses: Vec<u64> = symbols.iter().map(|symbol| symbol.address.0).collect();
    let image = ElfCodeImage(file);
    let mut is_any = false;
    let mut found = Vec::new();
    for start in starts {
        let behind = addresses.partition_point(|address| address <= start);
        let end = addresses.get(behind).copied().unwrap_or(u64::MAX);
        let exits = if assembly.iter().any(|range| range.contains(&Vaddr(*start))) {
            HaskellExits::Returns
        } else {
            HaskellExits::of(lifter, &image, *start..end)
        };
        is_any |= exits == HaskellExits::Continuation;
        if exits != HaskellExits::Returns {
            found.push((*start..end, GHC));
        }
    }
    if is_any { found } else { Vec::new() }
}

/// How control leaves a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HaskellExits {
    /// By a return.
    Returns,
    /// By jumps to addresses on GHC's stack, in a closure, or in its table of registers.
    Continuation,
    /// By other jumps.
    Jumps,
}

impl HaskellExits {
    /// Follows the code from the start of a range.
    fn of(lifter: &mut Lifter, image: &ElfCodeImage<'_>, range: Range<u64>) -> HaskellExits {
        let mut exits = HaskellExits::Jumps;
        let (mut ops, mut seen) = (Vec::new(), BTreeSet::new());
        let mut worklist = vec![range.start];
        while let Some(at) = worklist.pop() {
            let bytes = image.bytes_from(at).unwrap_or_default();
            if !range.contains(&at) || !seen.insert(at) {
                continue;
            }
            let Some(insn) = lifter.decode(bytes, at, &mut ops) else {
                continue;
            };
            let next = at + insn.length as u64;
            match insn.flow {
                Some(Flow::Return { .. }) => return HaskellExits::Returns,
                Some(Flow::IndirectJump(_)) => {
                    let is_own = |op: &Op| matches!(op, Op::Load { base, .. } if 1 << (base & 63) & GHC_BASES != 0);
                    if ops.iter().any(is_own) {
                        exits = HaskellExits::Continuation;
                    }
                }
                flow => {
                    worklist.extend(flow.and_then(Flow::jump_target));
                    worklist.extend(flow.is_none_or(Flow::falls_through).then_some(next));
                }
            }
        }
        exits
    }
}
