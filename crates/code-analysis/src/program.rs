//! A program as ranges of code: which are functions, which belong together, which never return.

use core::ops::Range;

use crate::arch::Lifter;
use crate::op::{Flow, ScanEvent};
use crate::value::JumpTable;

/// The bytes that code and its jump tables are in.
pub trait CodeImage {
    /// The bytes from an address to the end of what is there; `None` if nothing is.
    fn bytes_from(&self, address: u64) -> Option<&[u8]>;

    /// Bytes of a range; `None` if not all are there.
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        self.bytes_from(range.start)?.get(..length)
    }
}

/// How a range of code is come into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// It is a function: calls come to its first instruction.
    Function,
    /// It is a part of functions that jump into it.
    Fragment,
}

/// A range of code that is described as one: by an entry of the unwind table, or by a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeExtent {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// How it is come into.
    pub kind: ExtentKind,
}

/// What becomes of a call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReturnBehavior {
    /// It comes back, having popped so many bytes of arguments.
    Pops(u16),
    /// It comes back, and what it has pushed stays, as outlined prologues have it.
    LeavesWords(PushedWords),
    /// It comes back, and these registers are as they were, though a call may change them: bit n stands for register n.
    PreservesExtra(u64),
    /// It comes back so many bytes behind where it was called: what lies between is data.
    SkipsData(u16),
    /// It never comes back.
    Never,
}

impl ReturnBehavior {
    /// What becomes of a call of a function that returns in one way or in another.
    #[must_use]
    pub fn join(self, other: ReturnBehavior) -> ReturnBehavior {
        match (self, other) {
            (ReturnBehavior::PreservesExtra(one), ReturnBehavior::PreservesExtra(another)) => {
                ReturnBehavior::PreservesExtra(one & another)
            }
            // Where data is need not be known where there is code.
            (_, ReturnBehavior::PreservesExtra(_) | ReturnBehavior::SkipsData(_)) => self,
            _ => other,
        }
    }
}

/// Words that a function leaves on its caller's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PushedWords {
    /// From the highest on: the register that calls preserve, by its DWARF number, the value of which the word is, if it is one's.
    words: [Option<u8>; 8],
    count: u8,
}

impl PushedWords {
    /// These words, from the highest on; `None` if they are more than outlined prologues leave.
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

/// What one look at all code tells.
#[derive(Debug, Clone)]
pub struct ProgramCode {
    extents: Vec<CodeExtent>,
    returns: Vec<ReturnBehavior>,
    /// Extents that are looked at together, by their places.
    units: Vec<Vec<u32>>,
    /// The unit of each extent.
    unit_of: Vec<usize>,
    /// What is come into as after a call and is no start of an extent, ascending.
    extra_entries: Vec<u64>,
    /// Addresses that code takes of what is not code, ascending: a jump table ends before the next.
    data_addresses: Vec<u64>,
    /// Where extents are jumped to from behind, or from another, elsewhere than at their starts; ascending.
    backward_targets: Vec<u64>,
    /// How many of those are before each extent.
    backward_targets_before: Vec<usize>,
    /// Where calls and jumps go that no extent has, ascending.
    external_targets: Vec<u64>,
    /// Those of them that never return.
    external_noreturn: Vec<u64>,
    index: ExtentIndex,
}

/// Finds extents by address: for each page of code, how many extents start before it.
#[derive(Debug, Clone, Default)]
struct ExtentIndex {
    base: u64,
    extents_before: Vec<u32>,
}

impl ExtentIndex {
    const PAGE_BITS: u32 = 10;

    /// The most pages; what is further away is searched for among all.
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

    /// Places of extents among which the last one is that starts at an address or before, if any does; the
    /// one before the first may be, too.
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

/// What one look at an extent tells.
#[derive(Debug, Clone, Default)]
pub struct ExtentScan {
    /// Whether it returns, or leaves to where cannot be told.
    may_return: bool,
    /// What its returns pop, if all pop the same.
    pops: Option<u16>,
    /// Where it jumps to outside itself.
    jumps: Vec<u64>,
    /// Where it jumps back to inside itself.
    backward_targets: Vec<u64>,
    /// Where it calls outside itself.
    calls: Vec<u64>,
    /// Addresses that it takes.
    taken_addresses: Vec<u64>,
}

impl ExtentScan {
    /// Looks at an extent.
    pub fn new(
        machine: &mut Lifter,
        image: &(impl CodeImage + ?Sized),
        extent: &CodeExtent,
    ) -> ExtentScan {
        let mut survey = ExtentScan::default();
        survey.scan(machine, image, extent);
        survey
    }

    /// Forgets all, and keeps the room.
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

    /// Looks at an extent, with the lists empty.
    fn scan(
        &mut self,
        machine: &mut Lifter,
        image: &(impl CodeImage + ?Sized),
        extent: &CodeExtent,
    ) {
        let bytes = image.bytes(extent.start..extent.end).unwrap_or_default();
        let is_inside = |to: u64| extent.start <= to && to < extent.end;
        let mut leaves = false;
        let mut pops: Option<Option<u16>> = None;
        machine.scan(bytes, extent.start, |at, seen| match seen {
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
            ScanEvent::Flow(Flow::IndirectJump(_)) => leaves = true,
            // On into whatever is there.
            ScanEvent::FallsThroughEnd => {
                leaves = true;
                self.jumps.push(extent.end);
            }
            ScanEvent::Flow(Flow::Return { pops: popped }) => {
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

    /// Where it calls outside itself.
    #[must_use]
    pub fn calls(&self) -> &[u64] {
        &self.calls
    }
}

impl ProgramCode {
    /// Looks at all code once. `extents` must be in the order of their starts, and not overlap. `entries` are
    /// addresses that are come into as after a call. `never_returns` says of addresses that are called
    /// whether the function there is known never to return.
    ///
    /// Extents that jump into each other, elsewhere than to the start of a function, are one unit.
    pub fn scan(
        machine: &mut Lifter,
        image: &(impl CodeImage + ?Sized),
        extents: Vec<CodeExtent>,
        entries: Vec<u64>,
        never_returns: impl Fn(u64) -> bool,
    ) -> ProgramCode {
        let mut room = ExtentScan::default();
        let look = |extent: CodeExtent| {
            room.clear();
            room.scan(machine, image, &extent);
            // As large as they are: there are many, and all are kept for a while.
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

    /// The same of extents that were looked at, with each a unit of its own until [`ProgramCode::unite`] says otherwise.
    pub fn with_separate_units<'s>(
        pieces: impl Iterator<Item = &'s (CodeExtent, ExtentScan)>,
        never_returns: impl Fn(u64) -> bool,
    ) -> ProgramCode {
        let mut program = ProgramCode::from_scans(pieces, Vec::new(), never_returns);
        program.unite([]);
        program
    }

    /// The starts of extents that were looked at which never return.
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

    /// Takes in which addresses were called, jumped to and taken.
    fn gather_addresses(&mut self, surveys: &[&ExtentScan]) {
        let (mut entries, mut tables) = (core::mem::take(&mut self.extra_entries), Vec::new());
        let (mut outside, mut heads) = (Vec::new(), Vec::new());
        entries.retain(|entry| self.index_starting_at(*entry).is_none());
        for survey in surveys {
            for to in &survey.calls {
                let near = self.last_at_or_before(*to);
                match near.and_then(|(place, _)| self.extents.get_mut(place)) {
                    // What is called is a function, whatever is declared of it.
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

    /// A function never returns if all that it leaves by are jumps to such functions.
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

    /// The place of the extent that a jump goes into, elsewhere than where something is come into as after a call.
    fn extent_jumped_into(&self, to: u64) -> Option<usize> {
        let place = self.index_containing(to)?;
        (!self.is_call_target(to)).then_some(place)
    }

    /// Makes one unit of those of each of these pairs of places.
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

    /// Takes in that an address is come into as after a call; whether that is news.
    pub fn add_entry(&mut self, address: u64) -> bool {
        let place = self.extra_entries.binary_search(&address);
        if let Err(place) = place {
            self.extra_entries.insert(place, address);
        }
        place.is_err()
    }

    /// Takes in what becomes of calls of the function of an extent; whether that is news.
    pub fn set_return_behavior(&mut self, place: usize, returns: ReturnBehavior) -> bool {
        let known = self.returns.get_mut(place);
        known.is_some_and(|known| core::mem::replace(known, returns) != returns)
    }

    /// Takes in that the extent that starts at an address is come into as after a call.
    pub fn mark_function(&mut self, start: u64) {
        let place = self.index_starting_at(start);
        if let Some(extent) = place.and_then(|place| self.extents.get_mut(place)) {
            extent.kind = ExtentKind::Function;
        }
    }

    /// The extents.
    #[must_use]
    pub fn extents(&self) -> &[CodeExtent] {
        &self.extents
    }

    /// The number of units: groups of extents that must be looked at together.
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

    /// The unit that the extent is part of that has an address.
    #[must_use]
    pub fn unit_of(&self, address: u64) -> Option<usize> {
        self.unit_of.get(self.index_containing(address)?).copied()
    }

    /// What becomes of a call to an address; `None` if that is not known.
    #[must_use]
    pub fn returns(&self, address: u64) -> Option<ReturnBehavior> {
        match self.index_starting_at(address) {
            Some(place) => self.returns.get(place).copied(),
            None => {
                let is_lost = self.external_noreturn.binary_search(&address).is_ok();
                is_lost.then_some(ReturnBehavior::Never)
            }
        }
    }

    /// The extent that starts at an address.
    #[must_use]
    pub fn index_starting_at(&self, address: u64) -> Option<usize> {
        let (place, extent) = self.last_at_or_before(address)?;
        (extent.start == address).then_some(place)
    }

    /// The place of the extent that has an address.
    #[must_use]
    pub fn index_containing(&self, address: u64) -> Option<usize> {
        let (place, extent) = self.last_at_or_before(address)?;
        (address < extent.end).then_some(place)
    }

    /// The extent that has an address.
    #[must_use]
    pub fn extent_at(&self, address: u64) -> Option<CodeExtent> {
        let (_, extent) = self.last_at_or_before(address)?;
        (address < extent.end).then_some(extent)
    }

    /// The last extent that starts at an address or before.
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

    /// Whether an address is come into as after a call: where a function starts, or elsewhere.
    #[must_use]
    pub fn is_call_target(&self, address: u64) -> bool {
        self.starts_function(address) || self.is_extra_entry(address)
    }

    /// Whether an address that is no start of an extent is come into as after a call.
    #[must_use]
    pub fn is_extra_entry(&self, address: u64) -> bool {
        self.extra_entries.binary_search(&address).is_ok()
    }

    /// Where code in a range is come into as after a call, beside the starts of extents.
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

    /// Where the code of a unit is jumped to from behind, or from another extent; a start of an extent may be missing.
    pub fn backward_targets(&self, unit: usize) -> impl Iterator<Item = u64> + '_ {
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

    /// Where calls and jumps go that no extent has, ascending.
    #[must_use]
    pub fn external_targets(&self) -> &[u64] {
        &self.external_targets
    }

    /// Where the entries of a jump table lead; behind its last there may be others.
    pub fn jump_table_targets<'i, I: CodeImage + ?Sized>(
        &self,
        table: JumpTable,
        image: &'i I,
    ) -> impl Iterator<Item = u64> + use<'i, I> {
        let size = table.entry_size();
        let next = self
            .data_addresses
            .partition_point(|taken| *taken <= table.address);
        // It ends before what code takes the address of.
        let room = match self.data_addresses.get(next) {
            Some(next) => usize::try_from(next - table.address).unwrap_or(usize::MAX) / size,
            None => usize::MAX,
        };
        // The index may be bounded by its type only: the table need not be as long.
        let count = table
            .max_index
            .map_or(room, |last| room.min(usize::from(last) + 1));
        let bytes = image.bytes_from(table.address).unwrap_or_default();
        let entries = bytes.chunks_exact(size).take(count);
        entries.map(move |entry| table.target(entry))
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
        // The first one stands for all.
        if let Some(slot) = self.parents.get_mut(a.max(b)) {
            *slot = a.min(b);
        }
    }
}
