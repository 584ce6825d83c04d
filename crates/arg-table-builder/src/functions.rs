//! Locations of arguments in the functions of a file: the analysis of its code, combined with
//! prototypes.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

use unspool_check::{CheckSubject, UnitChecker};
use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{
    Analysis, Analyzer, CodeExtent, InsnId, Lifter, SideEffect, SideEffects,
};
use unspool_elf::{Binding, ElfFile, Segment, Symbols};
use unspool_rows::Vaddr;
use unspool_synthesis::{parent_of_cold_part, returns_twice_addresses};

use crate::dataflow::{ArgDataflow, ArgState, CallEffect, CodeContext, KeptSlot};
use crate::encode::eightbytes;
use crate::kept_section::{KeptArgument, read_kept_section};
use crate::prototype::{Prototype, Prototypes};
use crate::unproven_rules::{self, UnprovenRange};
use unspool_arg_table::{ArgLocation, ArgSource, CallSiteValue, EntryValue, PieceLocation};

/// The analysis of a range of code: a function, or a part of one.
#[derive(Debug, Clone)]
pub struct FunctionAnalysis {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The function's own first address, which differs for a split-off part.
    pub entry: u64,
    /// Its prototype, if that is known.
    pub prototype: Option<Rc<Prototype>>,
    /// Whether it certainly has this prototype: a compiler may have changed a function that others
    /// cannot call.
    pub is_certain: bool,
    /// Whether callers pass all of it. LLVM omits unused arguments (DeadArgumentElimination), and
    /// keeps the function's name.
    pub is_given_all: bool,
    /// Whether jumps may lead from it back to its start. Then its current arguments may not be
    /// those of its call.
    pub is_reentered: bool,
    /// Whether other functions jump to its start.
    pub is_jumped_to: bool,
    /// The locations of its arguments, by start address, ascending.
    pub rows: Vec<ArgRow>,
    /// Its calls, ascending.
    pub calls: Vec<CallArguments>,
}

/// The locations of arguments from an address on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgRow {
    /// The address.
    pub start: u64,
    /// Each tracked piece of each parameter.
    pub pieces: Vec<Option<PieceLocation>>,
}

/// A call, and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallArguments {
    /// The return address.
    pub returns_to: u64,
    /// The function called, if the code determines it.
    pub target: Option<u64>,
    /// The values in argument registers, in terms of the caller's frame while the callee runs.
    pub arguments: Vec<(u8, CallSiteValue)>,
}

/// A tracked piece of a prototype.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrackedPiece {
    /// Its location at entry.
    pub(crate) source: ArgSource,
    /// Its number of bits.
    pub(crate) bits: u8,
    /// Whether it is a `float` for which a `double` may be passed.
    pub(crate) may_be_double: bool,
}

/// The tracked pieces of a prototype, in order.
pub(crate) fn tracked_pieces(prototype: &Prototype) -> impl Iterator<Item = TrackedPiece> {
    prototype.parameters.iter().flat_map(|parameter| {
        let pieces = parameter.passing.iter().flat_map(eightbytes);
        pieces.filter_map(|(_, bytes, source)| {
            Some(TrackedPiece {
                source: source?,
                bits: bytes.saturating_mul(8),
                may_be_double: parameter.is_float_or_double,
            })
        })
    })
}

/// The analysis of a file's code.
#[derive(Debug, Clone, Default)]
pub struct FileAnalysis {
    /// Its functions, ascending by their starts.
    pub functions: Vec<FunctionAnalysis>,
    /// The ranges in which its unwind table is not proven, ascending.
    pub unproven: Vec<UnprovenRange>,
}

/// Analyzes the arguments of all functions of a file. `symbols` are its own and those of its debug
/// file.
#[must_use]
pub fn analyze_file(
    subject: &CheckSubject<'_>,
    symbols: &Symbols,
    prototypes: &Prototypes,
) -> FileAnalysis {
    let file = subject.file();
    let (Some(machine), Some(mut prover)) = (Lifter::new(file.abi()), UnitChecker::new(file.abi()))
    else {
        return FileAnalysis::default();
    };
    let known = FileContext::new(subject, symbols, prototypes);
    let mut analyzer = Analyzer::new(machine).with_edges();
    let (mut found, mut unproven) = (Vec::new(), Vec::new());
    let mut tails: HashMap<u64, TailCalls> = HashMap::new();
    for unit in 0..subject.program().unit_count() {
        let analysis = subject.analyze_unit(&mut analyzer, unit);
        known.analyze_unit(unit, &analysis, &mut found, &mut tails);
        unproven.extend(unproven_rules::unit_ranges(subject, &mut prover, unit));
    }
    unproven.sort_by_key(|range| range.start);
    found.sort_by_key(|function| function.start);
    let jumped_to: HashSet<u64> = tails
        .values()
        .flat_map(|tails| &tails.to)
        .copied()
        .collect();
    for function in &mut found {
        function.is_jumped_to = jumped_to.contains(&function.entry);
        function.is_reentered = can_reenter(function.entry, &tails);
    }
    FileAnalysis {
        functions: found,
        unproven,
    }
}

/// The targets of a function's tail calls.
#[derive(Debug, Default, Clone)]
struct TailCalls {
    to: Vec<u64>,
    /// Whether some have an unknown target.
    unknown: bool,
}

/// Whether jumps may lead from a function to its own start.
fn can_reenter(entry: u64, tails: &HashMap<u64, TailCalls>) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![entry];
    while let Some(at) = open.pop() {
        let Some(own) = tails.get(&at) else {
            return true;
        };
        if own.unknown || own.to.contains(&entry) {
            return true;
        }
        open.extend(own.to.iter().filter(|to| seen.insert(**to)));
    }
    false
}

/// Facts about a file apart from its code.
struct FileContext<'k, 's> {
    subject: &'k CheckSubject<'s>,
    /// Names of functions, and whether others can call them, by address.
    names: BTreeMap<u64, (String, bool)>,
    /// The number of functions of each name.
    counts: HashMap<String, usize>,
    prototypes: &'k Prototypes,
    /// The arguments that the program keeps (`unspool_keep.h`).
    kept_arguments: BTreeMap<u64, Vec<KeptArgument>>,
    /// The source of side effects: of vector registers, and all others that the unwind analysis
    /// omits.
    details: RefCell<Option<SideEffects>>,
    /// Functions that may return again, like `setjmp`.
    returning_twice: HashSet<u64>,
    /// Whether the compiler keeps the parameters of functions, or renames the functions it changes.
    keeps_parameters: bool,
}

impl CodeContext for FileContext<'_, '_> {
    fn takes_stack(&self, entry: u64) -> Option<bool> {
        self.prototype(entry)?.takes_stack
    }

    fn returns_twice(&self, entry: u64) -> bool {
        self.returning_twice.contains(&entry)
    }

    fn kept_slots(&self, address: u64) -> Vec<KeptSlot> {
        let Some(saved) = self.kept_arguments.get(&address) else {
            return Vec::new();
        };
        let extent = self.subject.program().extent_at(address);
        let entry = extent.map(|extent| self.entry_of(&extent));
        let prototype = entry.and_then(|entry| self.prototype(entry));
        let pieces = saved.iter().filter_map(|saved| {
            let parameter = prototype?.parameters.get(saved.parameter)?;
            let is_whole = parameter.bytes == u32::from(saved.bytes);
            let passing = parameter.passing.as_ref().filter(|_| is_whole)?;
            Some((saved, eightbytes(passing)))
        });
        let kept = pieces.flat_map(|(saved, pieces)| {
            pieces.into_iter().filter_map(|(offset, bytes, source)| {
                Some(KeptSlot {
                    source: source?,
                    bytes,
                    base: saved.base,
                    offset: saved.offset.checked_add(i32::try_from(offset).ok()?)?,
                })
            })
        });
        kept.collect()
    }

    fn details(&self, insn: Range<u64>) -> Vec<SideEffect> {
        let length = insn.end.saturating_sub(insn.start);
        let bytes = self.subject.file().bytes_at(Vaddr(insn.start), length);
        let mut found = Vec::new();
        if let (Some(details), Some(bytes)) = (&mut *self.details.borrow_mut(), bytes) {
            details.lift(bytes, insn.start, &mut found);
        }
        found
    }

    fn constant(&self, address: u64, bytes: u8) -> Option<u64> {
        let file = self.subject.file();
        let mut segments = file.segments();
        let is_written =
            |segment: &Segment| segment.writable && segment.range().contains(&Vaddr(address));
        if segments.any(|segment| is_written(&segment)) {
            return None;
        }
        let bytes = file.bytes_at(Vaddr(address), bytes.into())?;
        let bytes = bytes.iter().take(8).rev();
        Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl<'k, 's> FileContext<'k, 's> {
    fn new(subject: &'k CheckSubject<'s>, symbols: &Symbols, prototypes: &'k Prototypes) -> Self {
        let file = subject.file();
        let mut names = BTreeMap::new();
        for symbol in symbols.iter().filter(|symbol| symbol.is_function) {
            let is_visible = symbol.binding != Binding::Local;
            let name = symbol.name.clone().into_owned();
            let known = names.entry(symbol.address.0);
            let known = known.or_insert_with(|| (name.clone(), is_visible));
            known.1 |= is_visible;
            // Of several names, one that has a type.
            if prototypes.get(0, &known.0).is_none() && prototypes.get(0, &name).is_some() {
                known.0 = name;
            }
        }
        let mut counts = HashMap::new();
        for (name, _) in names.values() {
            *counts.entry(name.clone()).or_default() += 1;
        }
        FileContext {
            subject,
            names,
            counts,
            prototypes,
            kept_arguments: read_kept_section(file),
            details: RefCell::new(SideEffects::new(file.abi())),
            returning_twice: returns_twice_addresses(file, symbols),
            keeps_parameters: is_by_gcc(file),
        }
    }

    /// The prototype of the function at an address.
    fn prototype(&self, entry: u64) -> Option<&'k Rc<Prototype>> {
        let name = self.names.get(&entry).map_or("", |(name, _)| name);
        if is_changed(name) {
            None
        } else {
            self.prototypes.get(entry, name)
        }
    }

    /// Whether the function at an address certainly has its prototype.
    fn is_certain(&self, entry: u64) -> bool {
        let name = self.names.get(&entry);
        name.is_some_and(|(name, is_visible)| {
            let count = self.counts.get(name).copied().unwrap_or(0);
            (*is_visible || self.keeps_parameters) && self.prototypes.is_certain(entry, name, count)
        })
    }

    fn analyze_unit(
        &self,
        unit: usize,
        analysis: &Analysis<'_>,
        found: &mut Vec<FunctionAnalysis>,
        tails: &mut HashMap<u64, TailCalls>,
    ) {
        let arguments = ArgDataflow::solve(analysis, self);
        let is_whole = arguments.is_complete();
        let abi_info = analysis.abi_info();
        let mut functions: Vec<FunctionAnalysis> = self
            .subject
            .program()
            .unit(unit)
            .map(|extent| self.function(&extent))
            .collect();
        functions.sort_by_key(|function| function.start);
        let code = analysis.code();
        let place = |functions: &[FunctionAnalysis], at: u64| {
            let behind = functions.partition_point(|function| function.start <= at);
            behind.checked_sub(1)
        };
        let mut rows: Vec<Vec<ArgRow>> = vec![Vec::new(); functions.len()];
        let mut during = Vec::new();
        arguments.visit(
            |insn, kept| {
                let at = code.range(insn).start;
                let Some(index) = place(&functions, at) else {
                    return;
                };
                if let (Some(function), Some(rows)) = (functions.get(index), rows.get_mut(index)) {
                    rows.extend(row(function, at, kept, abi_info, is_whole));
                }
            },
            |call, kept| {
                let range = code.range(call.at);
                let Some(index) = place(&functions, range.start) else {
                    return;
                };
                if let Some(function) = functions.get(index) {
                    // A return address is looked up by the last byte of the call.
                    let row = row(function, range.start + 1, kept, abi_info, is_whole);
                    during.push((index, row, self.site(call, range.end, kept, abi_info)));
                }
            },
        );
        for (index, row, site) in during {
            if let (Some(function), Some(rows)) = (functions.get_mut(index), rows.get_mut(index)) {
                rows.extend(row);
                function.calls.push(site);
            }
        }
        for (function, mut rows) in functions.iter_mut().zip(rows) {
            rows.sort_by_key(|row| row.start);
            rows.dedup_by(|next, row| next.pieces == row.pieces);
            function.rows = rows;
            function.calls.sort_by_key(|call| call.returns_to);
        }
        self.add_tail_calls(analysis, &functions, tails);
        found.append(&mut functions);
    }

    /// Adds the jumps out of the functions of a unit; any function may contain any of them.
    fn add_tail_calls(
        &self,
        analysis: &Analysis<'_>,
        functions: &[FunctionAnalysis],
        tails: &mut HashMap<u64, TailCalls>,
    ) {
        let code = analysis.code();
        let is_inside = |to: u64| {
            let mut insn = functions
                .iter()
                .filter(|own| own.start <= to && to < own.end);
            insn.next()
                .is_some_and(|own| own.start != to || own.entry != to)
        };
        let mut own = TailCalls::default();
        let blocks = analysis.extended_blocks();
        for insn in blocks.flat_map(|block| block.map(InsnId)) {
            match code.flow(insn) {
                Some(Flow::Jump(to) | Flow::Branch { to, .. }) if !is_inside(to) => own.to.push(to),
                Some(Flow::IndirectJump(_)) => {
                    own.unknown |= !analysis
                        .edges()
                        .iter()
                        .any(|edge| edge.source == Some(insn));
                }
                _ => {}
            }
        }
        for function in functions {
            tails.insert(function.entry, own.clone());
        }
    }

    /// The arguments of a call, restricted to values that the caller's frame can give meanwhile and
    /// that the callee is known to take.
    fn site(
        &self,
        call: CallEffect,
        returns_to: u64,
        state: &ArgState,
        abi_info: &AbiInfo,
    ) -> CallArguments {
        let callee = call.target.and_then(|target| self.prototype(target));
        let is_taken = |register: u8| {
            callee.is_none_or(|callee| {
                let mut taken = tracked_pieces(callee);
                taken.any(|piece| piece.source == ArgSource::Register(register))
            })
        };
        let is_kept = |value: &CallSiteValue| match value {
            CallSiteValue::Register { register, .. } => abi_info.preserved.contains(register),
            CallSiteValue::EntryValue(EntryValue { source, bits, .. }) => {
                state.location_of(*source, *bits, abi_info).is_some()
            }
            _ => true,
        };
        let passed = call.arguments.into_iter();
        CallArguments {
            returns_to,
            target: call.target,
            arguments: passed
                .filter(|(register, passed)| is_taken(*register) && is_kept(passed))
                .collect(),
        }
    }

    fn function(&self, extent: &CodeExtent) -> FunctionAnalysis {
        let entry = self.entry_of(extent);
        FunctionAnalysis {
            start: extent.start,
            end: extent.end,
            entry,
            prototype: self.prototype(entry).cloned(),
            is_certain: self.is_certain(entry),
            is_given_all: self.keeps_parameters,
            is_reentered: true,
            is_jumped_to: true,
            rows: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// The start of the function that an extent is a part of: for `f.cold` that is `f`'s.
    fn entry_of(&self, extent: &CodeExtent) -> u64 {
        let name = self.names.get(&extent.start).map_or("", |(name, _)| name);
        let Some(whole) = parent_of_cold_part(name) else {
            return extent.start;
        };
        let unit = self.subject.program().unit_of(extent.start);
        let others = unit
            .into_iter()
            .flat_map(|unit| self.subject.program().unit(unit));
        let mut starts = others.map(|extent| extent.start);
        let is_whole = |start: &u64| {
            let other = self.names.get(start);
            other.is_some_and(|(name, _)| name == whole)
        };
        starts.find(is_whole).unwrap_or(extent.start)
    }
}

/// Whether a function's name marks it as a copy changed by GCC, which takes other parameters.
fn is_changed(name: &str) -> bool {
    [".constprop.", ".isra.", ".part.", ".simdclone."]
        .iter()
        .any(|mark| name.contains(mark))
}

/// Whether GCC compiled all of a file's code.
fn is_by_gcc(file: &ElfFile) -> bool {
    let mut makers = file.comments();
    let is_gcc = |line: &[u8]| line.starts_with(b"GCC: ");
    makers.clone().next().is_some() && makers.all(is_gcc)
}

/// The locations of a function's arguments. If not all paths to this point are known, none is
/// certain.
fn row(
    function: &FunctionAnalysis,
    start: u64,
    state: &ArgState,
    abi_info: &AbiInfo,
    is_whole: bool,
) -> Option<ArgRow> {
    let prototype = function.prototype.as_deref()?;
    let pieces = tracked_pieces(prototype).map(|piece| {
        let source = piece.source;
        let (place, held) = state.location_of(source, piece.bits, abi_info)?;
        // Moved values are checked.
        let is_moved = match (place, source) {
            (ArgLocation::Register(at), ArgSource::Register(from)) => at != from,
            (ArgLocation::Slot(at), ArgSource::Stack(word)) => at != i32::from(word) * 8,
            _ => true,
        };
        // Half of a double is not an argument.
        let is_this = !piece.may_be_double || held.bits <= piece.bits;
        let is_taken = function.is_given_all || is_moved;
        let is_certain = is_whole && function.is_certain && is_taken && is_this;
        Some(PieceLocation {
            location: place,
            addend: held.addend,
            is_certain: held.is_certain && is_certain,
        })
    });
    Some(ArgRow {
        start,
        pieces: pieces.collect(),
    })
}
