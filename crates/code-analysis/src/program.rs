//! A program as extents: functions, fragments, units, and functions that never return.

use core::ops::Range;

use crate::arch::Lifter;
use crate::op::{Flow, ScanEvent};
use crate::value::JumpTable;

/// The bytes of code and its jump tables.
pub trait CodeImage {
    /// The bytes from an address to the end of its range; `None` outside all ranges.
    fn bytes_from(&self, address: u64) -> Option<&[u8]>;

    /// Bytes of a range; `None` if some are missing.
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        self.bytes_from(range.start)?.get(..length)
    }

    /// Whether a run never changes what is at an address.
    fn is_constant(&self, address: u64) -> bool {
        let _ = address;
        true
    }
}

/// How control enters an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// A function: calls enter at its first instruction.
    Function,
    /// A fragment: functions jump into it.
    Fragment,
}

/// A range of code that one entry of the unwind table or one symbol describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeExtent {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// How control enters it.
    pub kind: ExtentKind,
}

/// Effect of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReturnBehavior {
    /// Returns after popping this many bytes of arguments.
    Pops(u16),
    /// Returns and leaves pushed words on the stack, as outlined prologues do.
    LeavesWords(PushedWords),
    /// Returns with other registers preserved than the ABI says. Bit n stands for register n.
    Registers {
        /// Preserved ones that a call may change.
        kept: u64,
        /// Changed ones that a call preserves.
        lost: u64,
        /// Those of them that may be the same again: stack addresses, computed anew.
        unknown: u64,
        /// Words of the caller's frame that are written: bit n stands for the word 8*n above the
        /// CFA.
        words: u64,
    },
    /// Returns this many bytes behind the call, past inline data.
    SkipsData(u16),
    /// Never returns.
    Never,
    /// Returns, and changes what it likes.
    Unknown,
}

impl ReturnBehavior {
    /// Returns as the ABI has it, as far as registers are concerned.
    pub const ABI_REGISTERS: ReturnBehavior = ReturnBehavior::Registers {
        kept: 0,
        lost: 0,
        unknown: 0,
        words: 0,
    };

    /// Joins the behavior of two exits of a function.
    #[must_use]
    pub fn join(self, other: ReturnBehavior) -> ReturnBehavior {
        match (self, other) {
            _ if self == other => self,
            (
                ReturnBehavior::Registers {
                    kept: one,
                    lost,
                    unknown,
                    words,
                },
                ReturnBehavior::Registers {
                    kept: another,
                    lost: also,
                    unknown: too,
                    words: others,
                },
            ) => ReturnBehavior::Registers {
                kept: one & another,
                lost: lost | also,
                unknown: unknown | too,
                words: words | others,
            },
            _ => ReturnBehavior::Unknown,
        }
    }

    /// The same, with what is preserved beyond the ABI taken back: other exits are not known.
    #[must_use]
    pub fn without_kept(self) -> ReturnBehavior {
        match self {
            ReturnBehavior::Registers {
                lost,
                unknown,
                words,
                ..
            } => ReturnBehavior::Registers {
                kept: 0,
                lost,
                unknown,
                words,
            },
            other => other,
        }
    }

    /// The same for one of several functions with these returns: a register that some of them
    /// change may be the same.
    #[must_use]
    pub fn of_some_entry(self) -> ReturnBehavior {
        match self.without_kept() {
            ReturnBehavior::Registers {
                kept, lost, words, ..
            } => ReturnBehavior::Registers {
                kept,
                lost,
                unknown: lost,
                words,
            },
            other => other,
        }
    }

    /// What callers find behind one of several functions; `None` if that is what the ABI promises.
    /// Where some never return, the others do.
    #[must_use]
    pub fn of_any(
        functions: impl IntoIterator<Item = Option<ReturnBehavior>>,
    ) -> Option<ReturnBehavior> {
        let mut all = functions.into_iter().map(|returns| match returns {
            None | Some(ReturnBehavior::Pops(0)) => ReturnBehavior::ABI_REGISTERS,
            Some(returns) => returns,
        });
        let first = all.next()?;
        let (joined, are_same) = all.fold((first, true), |(joined, are_same), other| {
            let known = match (joined, other) {
                (ReturnBehavior::Never, returns) | (returns, ReturnBehavior::Never) => returns,
                _ => joined.join(other),
            };
            (known, are_same && other == first)
        });
        let joined = if are_same {
            joined
        } else {
            joined.of_some_entry()
        };
        (joined != ReturnBehavior::ABI_REGISTERS).then_some(joined)
    }

    /// Whether callers find less than the ABI promises: a register or a word of their frame is
    /// changed, or it is not known.
    #[must_use]
    pub fn breaks_abi(self) -> bool {
        match self {
            ReturnBehavior::Registers { lost, words, .. } => lost | words != 0,
            ReturnBehavior::LeavesWords(_)
            | ReturnBehavior::SkipsData(_)
            | ReturnBehavior::Unknown => true,
            ReturnBehavior::Pops(_) | ReturnBehavior::Never => false,
        }
    }
}

/// Words that a function leaves on its caller's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PushedWords {
    /// From the highest word on: the DWARF number of the preserved register with this entry value,
    /// if any.
    words: [Option<u8>; 8],
    count: u8,
}

impl PushedWords {
    /// These words, from the highest on; `None` if they are too many for an outlined prologue.
    pub fn new(from: impl Iterator<Item = Option<u8>>) -> Option<PushedWords> {
        let mut words = PushedWords::default();
        for word in from {
            *words.words.get_mut(usize::from(words.count))? = word;
            words.count += 1;
        }
        Some(words)
    }

    /// The words, from the highest on.
    pub fn iter(&self) -> impl Iterator<Item = Option<u8>> {
        self.words.iter().take(self.count.into()).copied()
    }
}

/// Result of the first pass over all code.
#[derive(Debug, Clone)]
pub struct ProgramCode {
    extents: Vec<CodeExtent>,
    returns: Vec<ReturnBehavior>,
    /// Number of these that [break the ABI](ReturnBehavior::breaks_abi).
    breaking_functions: usize,
    /// Extents that are analysed together, by index.
    units: Vec<Vec<u32>>,
    /// The unit of each extent.
    unit_of: Vec<usize>,
    /// Addresses entered as by a call that do not start an extent, ascending.
    extra_entries: Vec<u64>,
    /// Data addresses that code takes, ascending. A jump table ends before the next one.
    data_addresses: Vec<u64>,
    /// Jump targets inside extents: of backward jumps, and of jumps from other extents. Ascending.
    backward_targets: Vec<u64>,
    /// Number of these targets before each extent.
    backward_targets_before: Vec<usize>,
    /// Targets of calls and jumps outside all extents, ascending.
    external_targets: Vec<u64>,
    /// Those of them that never return.
    external_noreturn: Vec<u64>,
    index: ExtentIndex,
}

/// Finds extents by address: for each page of code, the number of extents that start before it.
#[derive(Debug, Clone, Default)]
struct ExtentIndex {
    base: u64,
    extents_before: Vec<u32>,
}

impl ExtentIndex {
    const PAGE_BITS: u32 = 10;

    /// Greatest number of pages. Addresses beyond use a binary search over all extents.
    const PAGES: u64 = 1 << 20;

    fn new(extents: &[CodeExtent]) -> ExtentIndex {
        let base = extents.first().map_or(0, |extent| extent.start);
        let last = extents.last().map_or(base, |extent| extent.start);
        let pages = ((last - base) >> ExtentIndex::PAGE_BITS).min(ExtentIndex::PAGES) + 1;
        let mut before = Vec::new();
        let mut place = 0_u32;
        let mut starts = extents.iter().map(|extent| extent.start).peekable();
        for page in 0..pages {
            let start = base + (page << ExtentIndex::PAGE_BITS);
            while starts.next_if(|next| *next < start).is_some() {
                place += 1;
            }
            before.push(place);
        }
        ExtentIndex {
            base,
            extents_before: before,
        }
    }

    /// Indexes of the extents that start in the page of an address. The last extent at or before
    /// the address is among them, or directly before them.
    fn near(&self, address: u64) -> Range<usize> {
        let page = address
            .checked_sub(self.base)
            .map(|distance| distance >> ExtentIndex::PAGE_BITS);
        let page = page.and_then(|page| usize::try_from(page).ok());
        let Some(page) = page else {
            return 0..0;
        };
        let at = |page: usize| self.extents_before.get(page).map(|before| *before as usize);
        match (at(page), at(page + 1)) {
            (Some(first), Some(end)) => first..end,
            (Some(first), None) => first..usize::MAX,
            (None, _) => self.extents_before.last().map_or(0, |last| *last as usize)..usize::MAX,
        }
    }
}

/// Result of the first pass over one extent.
#[derive(Debug, Clone, Default)]
pub struct ExtentScan {
    /// Whether it returns, or jumps to an unknown target.
    may_return: bool,
    /// Bytes that its returns pop, if all agree.
    pops: Option<u16>,
    /// Targets of jumps outside itself.
    jumps: Vec<u64>,
    /// Targets of backward jumps inside itself.
    backward_targets: Vec<u64>,
    /// Targets of calls outside itself.
    calls: Vec<u64>,
    /// Addresses that it takes.
    taken_addresses: Vec<u64>,
}

impl ExtentScan {
    /// Scans an extent.
    pub fn new(
        lifter: &mut Lifter,
        image: &(impl CodeImage + ?Sized),
        extent: &CodeExtent,
    ) -> ExtentScan {
        let mut survey = ExtentScan::default();
        survey.scan(lifter, image, extent);
        survey
    }

    /// Empties all and keeps the memory.
    fn clear(&mut self) {
        for list in [
            &mut self.jumps,
            &mut self.backward_targets,
            &mut self.calls,
            &mut self.taken_addresses,
        ] {
            list.clear();
        }
    }

    /// Scans an extent. The lists are empty before.
    fn scan(
        &mut self,
        lifter: &mut Lifter,
        image: &(impl CodeImage + ?Sized),
        extent: &CodeExtent,
    ) {
        let bytes = image.bytes(extent.start..extent.end).unwrap_or_default();
        let is_inside = |to: u64| extent.start <= to && to < extent.end;
        let mut leaves = false;
        let mut pops: Option<Option<u16>> = None;
        lifter.scan(bytes, extent.start, |at, seen| match seen {
            ScanEvent::AddressTaken(address) if !is_inside(address) => {
                self.taken_addresses.push(address);
            }
            ScanEvent::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) if !is_inside(to) => {
                self.jumps.push(to);
            }
            ScanEvent::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) if to <= at => {
                self.backward_targets.push(to);
            }
            ScanEvent::Flow(Flow::Call(to)) if !is_inside(to) => self.calls.push(to),
            ScanEvent::Flow(Flow::IndirectJump(_) | Flow::Resume(_) | Flow::Unknown) => {
                leaves = true;
            }
            // It falls through into whatever follows.
            ScanEvent::FallsThroughEnd => {
                leaves = true;
                self.jumps.push(extent.end);
            }
            ScanEvent::Flow(Flow::Return { pops: popped, .. }) => {
                leaves = true;
                pops = match pops {
                    None => Some(Some(popped)),
                    Some(Some(known)) if known == popped => pops,
                    Some(_) => Some(None),
                };
            }
            _ => {}
        });
        self.may_return = leaves;
        self.pops = pops.flatten();
    }

    /// Targets of calls outside itself.
    #[must_use]
    pub fn calls(&self) -> &[u64] {
        &self.calls
    }
}

impl ProgramCode {
    /// Reads all code once. `extents` must be in the order of their starts and must not overlap.
    /// `entries` are addresses that are entered as by a call. `never_returns` answers for called
    /// addresses whether the function there is known never to return.
    ///
    /// Extents that jump into each other, except to a function's start, are one unit.
    pub fn scan(
        lifter: &mut Lifter,
        image: &(impl CodeImage + ?Sized),
        extents: Vec<CodeExtent>,
        entries: Vec<u64>,
        never_returns: impl Fn(u64) -> bool,
    ) -> ProgramCode {
        let mut room = ExtentScan::default();
        let look = |extent: CodeExtent| {
            room.clear();
            room.scan(lifter, image, &extent);
            // Copied at exact size: there are many, and all are kept for a while.
            (extent, room.clone())
        };
        let pieces: Vec<(CodeExtent, ExtentScan)> = extents.into_iter().map(look).collect();
        let mut program = ProgramCode::from_scans(&pieces, entries, never_returns);
        let jumps = pieces.iter().enumerate();
        let jumps =
            jumps.flat_map(|(from, (_, survey))| survey.jumps.iter().map(move |to| (from, *to)));
        let joins = jumps.filter_map(|(from, to)| Some((from, program.extent_jumped_into(to)?)));
        let joins: Vec<(usize, usize)> = joins.collect();
        program.unite(joins);
        program
    }

    /// The same for extents that are already scanned. Each is a unit of its own until
    /// [`ProgramCode::unite`] joins it with others.
    pub fn with_separate_units<'s>(
        pieces: impl Iterator<Item = &'s (CodeExtent, ExtentScan)>,
        never_returns: impl Fn(u64) -> bool,
    ) -> ProgramCode {
        let mut program = ProgramCode::from_scans(pieces, Vec::new(), never_returns);
        program.unite([]);
        program
    }

    /// The starts of scanned extents that never return.
    pub fn noreturn_functions<'s>(
        pieces: impl Iterator<Item = &'s (CodeExtent, ExtentScan)>,
        never_returns: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let (extents, surveys): (Vec<CodeExtent>, Vec<&ExtentScan>) =
            pieces.map(|(extent, survey)| (*extent, survey)).unzip();
        let mut program = ProgramCode::new(extents);
        program.propagate_noreturn(&surveys, never_returns);
        let extents = program.extents.iter().zip(&program.returns);
        let never = extents.filter(|(_, returns)| **returns == ReturnBehavior::Never);
        never.map(|(extent, _)| extent.start).collect()
    }

    fn new(extents: Vec<CodeExtent>) -> ProgramCode {
        ProgramCode {
            returns: vec![ReturnBehavior::Pops(0); extents.len()],
            breaking_functions: 0,
            units: Vec::new(),
            unit_of: Vec::new(),
            extra_entries: Vec::new(),
            data_addresses: Vec::new(),
            backward_targets: Vec::new(),
            backward_targets_before: Vec::new(),
            external_targets: Vec::new(),
            external_noreturn: Vec::new(),
            index: ExtentIndex::new(&extents),
            extents,
        }
    }

    fn from_scans<'s>(
        pieces: impl IntoIterator<Item = &'s (CodeExtent, ExtentScan)>,
        entries: Vec<u64>,
        never_returns: impl Fn(u64) -> bool,
    ) -> ProgramCode {
        let pieces = pieces.into_iter();
        let (extents, surveys): (Vec<CodeExtent>, Vec<&ExtentScan>) =
            pieces.map(|(extent, survey)| (*extent, survey)).unzip();
        let mut program = ProgramCode::new(extents);
        program.extra_entries = entries;
        program.gather_addresses(&surveys);
        let outside = program.external_targets.iter().copied();
        program.external_noreturn = outside.filter(|to| never_returns(*to)).collect();
        program.propagate_noreturn(&surveys, never_returns);
        program
    }

    /// Collects addresses that are called, jumped to and taken.
    fn gather_addresses(&mut self, surveys: &[&ExtentScan]) {
        let (mut entries, mut tables) = (core::mem::take(&mut self.extra_entries), Vec::new());
        let (mut outside, mut heads) = (Vec::new(), Vec::new());
        entries.retain(|entry| self.index_starting_at(*entry).is_none());
        for survey in surveys {
            for to in &survey.calls {
                let near = self.last_at_or_before(*to);
                match near.and_then(|(place, _)| self.extents.get_mut(place)) {
                    // A called extent is a function, whatever its entry declares.
                    Some(extent) if extent.start == *to => extent.kind = ExtentKind::Function,
                    Some(extent) if *to < extent.end => entries.push(*to),
                    _ => {
                        entries.push(*to);
                        outside.push(*to);
                    }
                }
            }
            for to in &survey.jumps {
                match self.extent_at(*to) {
                    Some(extent) if extent.start == *to => {}
                    Some(_) => heads.push(*to),
                    None => outside.push(*to),
                }
            }
            heads.extend(&survey.backward_targets);
            tables.extend(&survey.taken_addresses);
        }
        for list in [&mut entries, &mut tables, &mut outside, &mut heads] {
            list.sort_unstable();
            list.dedup();
        }
        (self.extra_entries, self.data_addresses) = (entries, tables);
        (self.external_targets, self.backward_targets) = (outside, heads);
        let mut before = 0;
        for extent in &self.extents {
            let rest = self.backward_targets.get(before..).unwrap_or_default();
            let skipped = rest.iter().take_while(|head| **head < extent.start);
            before += skipped.count();
            self.backward_targets_before.push(before);
        }
    }

    /// A function never returns if its only exits are jumps to such functions.
    fn propagate_noreturn(&mut self, surveys: &[&ExtentScan], never_returns: impl Fn(u64) -> bool) {
        for ((extent, survey), returns) in self.extents.iter().zip(surveys).zip(&mut self.returns) {
            *returns = match survey.pops {
                _ if never_returns(extent.start) => ReturnBehavior::Never,
                Some(pops) if survey.may_return => ReturnBehavior::Pops(pops),
                _ => ReturnBehavior::Pops(0),
            };
        }
        let mut open: Vec<(usize, &ExtentScan)> = surveys.iter().copied().enumerate().collect();
        open.retain(|(index, survey)| {
            !survey.may_return && self.returns.get(*index) != Some(&ReturnBehavior::Never)
        });
        loop {
            let before = open.len();
            open.retain(|(index, survey)| {
                let is_lost = |to: &u64| match self.index_containing(*to) {
                    Some(place) => {
                        place == *index || self.returns.get(place) == Some(&ReturnBehavior::Never)
                    }
                    None => never_returns(*to),
                };
                let is_never = survey.jumps.iter().all(is_lost);
                if let Some(returns) = self.returns.get_mut(*index).filter(|_| is_never) {
                    *returns = ReturnBehavior::Never;
                }
                !is_never
            });
            if open.len() == before {
                return;
            }
        }
    }

    /// Index of the extent that a jump enters, except at addresses that are entered as by a call.
    fn extent_jumped_into(&self, to: u64) -> Option<usize> {
        let place = self.index_containing(to)?;
        (!self.is_call_target(to)).then_some(place)
    }

    /// Unites the units of each pair of extents.
    pub fn unite(&mut self, joins: impl IntoIterator<Item = (usize, usize)>) {
        let mut sets = DisjointSets::new(self.extents.len());
        let known = self.units.iter();
        let known = known.flat_map(|unit| unit.iter().zip(unit.get(1..).unwrap_or_default()));
        let known = known.map(|(a, b)| (*a as usize, *b as usize));
        for (a, b) in known.chain(joins) {
            sets.unite(a, b);
        }
        self.units.clear();
        self.unit_of.clear();
        for index in 0..self.extents.len() {
            let place = u32::try_from(index).unwrap_or(u32::MAX);
            // The root is the first of its set.
            let known = self.unit_of.get(sets.root(index)).copied();
            let number = known.unwrap_or(self.units.len());
            match self.units.get_mut(number) {
                Some(unit) => unit.push(place),
                None => self.units.push(vec![place]),
            }
            self.unit_of.push(number);
        }
    }

    /// Notes that an address is entered as by a call. Returns whether that is new.
    pub fn add_entry(&mut self, address: u64) -> bool {
        let place = self.extra_entries.binary_search(&address);
        if let Err(place) = place {
            self.extra_entries.insert(place, address);
        }
        place.is_err()
    }

    /// Sets the return behavior of an extent's function. Returns whether that is new.
    pub fn set_return_behavior(&mut self, place: usize, returns: ReturnBehavior) -> bool {
        let Some(known) = self.returns.get_mut(place) else {
            return false;
        };
        let before = core::mem::replace(known, returns);
        self.breaking_functions += usize::from(returns.breaks_abi());
        self.breaking_functions -= usize::from(before.breaks_abi());
        before != returns
    }

    /// Notes that the extent that starts at an address is entered as by a call.
    pub fn mark_function(&mut self, start: u64) {
        let place = self.index_starting_at(start);
        if let Some(extent) = place.and_then(|place| self.extents.get_mut(place)) {
            extent.kind = ExtentKind::Function;
        }
    }

    /// Notes that only jumps enter the extent that starts at an address.
    pub fn mark_fragment(&mut self, start: u64) {
        let place = self.index_starting_at(start);
        if let Some(extent) = place.and_then(|place| self.extents.get_mut(place)) {
            extent.kind = ExtentKind::Fragment;
        }
    }

    /// Whether code takes an address other than by a call or jump.
    #[must_use]
    pub fn is_address_taken(&self, address: u64) -> bool {
        self.data_addresses.binary_search(&address).is_ok()
    }

    /// The extents.
    #[must_use]
    pub fn extents(&self) -> &[CodeExtent] {
        &self.extents
    }

    /// The number of units: groups of extents that are analysed together.
    #[must_use]
    pub fn unit_count(&self) -> usize {
        self.units.len()
    }

    /// The extents of a unit.
    pub fn unit(&self, unit: usize) -> impl Iterator<Item = CodeExtent> + '_ {
        let places = self.units.get(unit).map(Vec::as_slice).unwrap_or_default();
        let extents = places.iter();
        extents.filter_map(|place| self.extents.get(*place as usize).copied())
    }

    /// The unit of the extent that contains an address.
    #[must_use]
    pub fn unit_of(&self, address: u64) -> Option<usize> {
        self.unit_of.get(self.index_containing(address)?).copied()
    }

    /// Effect of a call to an address; `None` if it is not known.
    #[must_use]
    pub fn returns(&self, address: u64) -> Option<ReturnBehavior> {
        match self.index_starting_at(address) {
            Some(place) => self.returns.get(place).copied(),
            None if self.is_extra_entry(address) => self.returns_from_inside(address),
            None => {
                let is_lost = self.external_noreturn.binary_search(&address).is_ok();
                is_lost.then_some(ReturnBehavior::Never)
            }
        }
    }

    /// Effect of a call into the middle of an extent, if that breaks the ABI. Its returns are among
    /// those of the extent.
    pub(crate) fn returns_from_inside(&self, address: u64) -> Option<ReturnBehavior> {
        let returns = self.returns.get(self.index_containing(address)?)?;
        let returns = returns.of_some_entry();
        let is_of_registers = matches!(
            returns,
            ReturnBehavior::Registers { .. } | ReturnBehavior::Unknown
        );
        (is_of_registers && returns.breaks_abi()).then_some(returns)
    }

    /// Whether a call of some function breaks the ABI.
    #[must_use]
    pub fn breaks_abi(&self) -> bool {
        self.breaking_functions != 0
    }

    /// The functions whose calls break the ABI, or pop arguments: their starts.
    pub fn unusual_functions(&self) -> impl Iterator<Item = (u64, ReturnBehavior)> + '_ {
        let functions = self.extents.iter().zip(&self.returns);
        let functions = functions.map(|(extent, returns)| (extent.start, *returns));
        functions.filter(|(_, returns)| {
            returns.breaks_abi() || matches!(returns, ReturnBehavior::Pops(1..))
        })
    }

    /// What callers find behind a function that a table or a pointer names; `None` if that is what
    /// the ABI promises, or not known.
    pub(crate) fn returns_of_table(
        &self,
        table: JumpTable,
        image: &(impl CodeImage + ?Sized),
    ) -> Option<ReturnBehavior> {
        // Where code begins at 0, a null word of a known table names the function there.
        let entries = self.jump_table_entries(table, image);
        let entries =
            entries.take_while(|entry| table.max_index.is_some() || !table.is_null(entry));
        let mut functions = entries.map(|entry| table.target(entry)).peekable();
        // Into the middle of a function. Of other extents nobody knows where functions begin.
        if let Some(first) = functions.peek()
            && !self.is_call_target(*first)
            && (self.extent_at(*first)).is_some_and(|extent| extent.kind == ExtentKind::Function)
        {
            return Some(ReturnBehavior::Unknown);
        }
        let functions = functions.take_while(|to| self.is_call_target(*to));
        let returns = ReturnBehavior::of_any(functions.map(|to| self.returns(to)));
        if image.is_constant(table.address) {
            returns
        } else {
            ReturnBehavior::of_any([returns, None])
        }
    }

    /// Index of the extent that starts at an address.
    #[must_use]
    pub fn index_starting_at(&self, address: u64) -> Option<usize> {
        let (place, extent) = self.last_at_or_before(address)?;
        (extent.start == address).then_some(place)
    }

    /// Index of the extent that contains an address.
    #[must_use]
    pub fn index_containing(&self, address: u64) -> Option<usize> {
        let (place, extent) = self.last_at_or_before(address)?;
        (address < extent.end).then_some(place)
    }

    /// The extent that contains an address.
    #[must_use]
    pub fn extent_at(&self, address: u64) -> Option<CodeExtent> {
        let (_, extent) = self.last_at_or_before(address)?;
        (address < extent.end).then_some(extent)
    }

    /// The last extent that starts at or before an address.
    fn last_at_or_before(&self, address: u64) -> Option<(usize, CodeExtent)> {
        let near = self.index.near(address);
        let first = near.start;
        let starts = self.extents.get(first..near.end.min(self.extents.len()))?;
        let behind = first + starts.partition_point(|extent| extent.start <= address);
        let place = behind.checked_sub(1)?;
        Some((place, *self.extents.get(place)?))
    }

    /// Whether a function starts at an address.
    #[must_use]
    pub fn starts_function(&self, address: u64) -> bool {
        let extent = self.extent_at(address);
        extent.is_some_and(|extent| extent.start == address && extent.kind == ExtentKind::Function)
    }

    /// Whether an address is entered as by a call: a function's start or an extra entry.
    #[must_use]
    pub fn is_call_target(&self, address: u64) -> bool {
        self.starts_function(address) || self.is_extra_entry(address)
    }

    /// Whether an address is entered as by a call and does not start an extent.
    #[must_use]
    pub(crate) fn is_extra_entry(&self, address: u64) -> bool {
        self.extra_entries.binary_search(&address).is_ok()
    }

    /// Extra entries in a range: addresses entered as by a call that do not start an extent.
    #[must_use]
    pub fn extra_entries_in(&self, range: Range<u64>) -> &[u64] {
        let first = self
            .extra_entries
            .partition_point(|entry| *entry < range.start);
        let end = self
            .extra_entries
            .partition_point(|entry| *entry < range.end);
        self.extra_entries.get(first..end).unwrap_or_default()
    }

    /// Targets in a unit of backward jumps and of jumps from other extents. Starts of extents may
    /// be missing.
    pub(crate) fn backward_targets(&self, unit: usize) -> impl Iterator<Item = u64> + '_ {
        let places = self.units.get(unit).map(Vec::as_slice).unwrap_or_default();
        places.iter().flat_map(|place| {
            let place = *place as usize;
            let first = self
                .backward_targets_before
                .get(place)
                .copied()
                .unwrap_or(0);
            let end = self.backward_targets_before.get(place + 1).copied();
            let heads = self
                .backward_targets
                .get(first..end.unwrap_or(self.backward_targets.len()));
            heads.unwrap_or_default().iter().copied()
        })
    }

    /// Targets of calls and jumps outside all extents, ascending.
    #[must_use]
    pub fn external_targets(&self) -> &[u64] {
        &self.external_targets
    }

    /// Targets of a jump table's entries. There may be more than the table has. Null words are none:
    /// a table without a known length ends there.
    pub fn jump_table_targets<'i, I: CodeImage + ?Sized>(
        &self,
        table: JumpTable,
        image: &'i I,
    ) -> impl Iterator<Item = u64> + use<'i, I> {
        self.jump_table_entries(table, image)
            .take_while(move |entry| table.max_index.is_some() || !table.is_null(entry))
            .filter(move |entry| !table.is_null(entry))
            .map(move |entry| table.target(entry))
    }

    /// Whether a jump table of known length has null words. In an object, where code begins at 0,
    /// they lead nowhere. In a linked file, a relocation may make addresses of them.
    pub(crate) fn has_null_entries<I: CodeImage + ?Sized>(
        &self,
        table: JumpTable,
        image: &I,
    ) -> bool {
        let mut entries = self.jump_table_entries(table, image);
        table.max_index.is_some() && entries.any(|entry| table.is_null(entry))
    }

    fn jump_table_entries<'i, I: CodeImage + ?Sized>(
        &self,
        table: JumpTable,
        image: &'i I,
    ) -> impl Iterator<Item = &'i [u8]> + use<'i, I> {
        let size = table.entry_size();
        let next = self
            .data_addresses
            .partition_point(|taken| *taken <= table.address);
        // The table ends before the next taken address.
        let room = match self.data_addresses.get(next) {
            Some(next) => usize::try_from(next - table.address).unwrap_or(usize::MAX) / size,
            None => usize::MAX,
        };
        // The index may only be bounded by its type; the table may be shorter.
        let count = table
            .max_index
            .map_or(room, |last| room.min(usize::from(last) + 1));
        let bytes = image.bytes_from(table.address).unwrap_or_default();
        bytes.chunks_exact(size).take(count)
    }
}

/// Disjoint sets.
struct DisjointSets {
    parents: Vec<usize>,
}

impl DisjointSets {
    fn new(len: usize) -> DisjointSets {
        DisjointSets {
            parents: (0..len).collect(),
        }
    }

    fn root(&mut self, of: usize) -> usize {
        let mut at = of;
        loop {
            let parent = self.parents.get(at).copied().unwrap_or(at);
            let grandparent = self.parents.get(parent).copied().unwrap_or(parent);
            if parent == at {
                return at;
            }
            if let Some(slot) = self.parents.get_mut(at) {
                *slot = grandparent;
            }
            at = grandparent;
        }
    }

    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        // The first element represents the set.
        if let Some(slot) = self.parents.get_mut(a.max(b)) {
            *slot = a.min(b);
        }
    }
}
