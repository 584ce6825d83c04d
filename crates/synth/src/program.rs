//! A program as ranges of code: which are functions, which belong together, which never return.

use core::ops::Range;

use crate::arch::Machine;
use crate::op::{Flow, Seen};
use crate::value::JumpTable;

/// The bytes that code and its jump tables are in.
pub trait Image {
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
pub enum Part {
    /// It is a function: calls come to its first instruction.
    Function,
    /// It is a part of functions that jump into it.
    Fragment,
}

/// A range of code that is described as one: by an entry of the unwind table, or by a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// How it is come into.
    pub part: Part,
}

/// What becomes of a call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Returns {
    /// It comes back, having popped so many bytes of arguments.
    Pops(u16),
    /// It comes back, and what it has pushed stays, as outlined prologues have it.
    Leaves(Words),
    /// It comes back, and these registers are as they were, though a call may change them: bit n stands for register n.
    Keeps(u64),
    /// It comes back so many bytes behind where it was called: what lies between is data.
    Behind(u16),
    /// It never comes back.
    Never,
}

impl Returns {
    /// What becomes of a call of a function that returns in one way or in another.
    #[must_use]
    pub fn or(self, other: Returns) -> Returns {
        match (self, other) {
            (Returns::Keeps(one), Returns::Keeps(another)) => Returns::Keeps(one & another),
            // Where data is need not be known where there is code.
            (_, Returns::Keeps(_) | Returns::Behind(_)) => self,
            _ => other,
        }
    }
}

/// Words that a function leaves on its caller's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Words {
    /// From the highest on: the register that calls preserve, by its DWARF number, the value of which the word is, if it is one's.
    words: [Option<u8>; 8],
    count: u8,
}

impl Words {
    /// These words, from the highest on; `None` if they are more than outlined prologues leave.
    pub fn new(from: impl Iterator<Item = Option<u8>>) -> Option<Words> {
        let mut words = Words::default();
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
pub struct Program {
    extents: Vec<Extent>,
    returns: Vec<Returns>,
    /// Extents that are looked at together, by their places.
    units: Vec<Vec<u32>>,
    /// The unit of each extent.
    unit_of: Vec<usize>,
    /// What is come into as after a call and is no start of an extent, ascending.
    entries: Vec<u64>,
    /// Addresses that code takes of what is not code, ascending: a jump table ends before the next.
    tables: Vec<u64>,
    /// Where extents are jumped to from behind, or from another, elsewhere than at their starts; ascending.
    heads: Vec<u64>,
    /// How many of those are before each extent.
    heads_before: Vec<usize>,
    /// Where calls and jumps go that no extent has, ascending.
    outside: Vec<u64>,
    /// Those of them that never return.
    lost: Vec<u64>,
    index: Index,
}

/// Finds extents by address: for each page of code, how many extents start before it.
#[derive(Debug, Clone, Default)]
struct Index {
    base: u64,
    before: Vec<u32>,
}

impl Index {
    const PAGE_BITS: u32 = 10;

    /// The most pages; what is further away is searched for among all.
    const PAGES: u64 = 1 << 20;

    fn new(extents: &[Extent]) -> Index {
        let base = extents.first().map_or(0, |extent| extent.start);
        let last = extents.last().map_or(base, |extent| extent.start);
        let pages = ((last - base) >> Index::PAGE_BITS).min(Index::PAGES) + 1;
        let mut before = Vec::new();
        let mut place = 0_u32;
        let mut starts = extents.iter().map(|extent| extent.start).peekable();
        for page in 0..pages {
            let start = base + (page << Index::PAGE_BITS);
            while starts.next_if(|next| *next < start).is_some() {
                place += 1;
            }
            before.push(place);
        }
        Index { base, before }
    }

    /// Places of extents among which the last one is that starts at an address or before, if any does; the
    /// one before the first may be, too.
    fn near(&self, address: u64) -> Range<usize> {
        let page = address
            .checked_sub(self.base)
            .map(|distance| distance >> Index::PAGE_BITS);
        let page = page.and_then(|page| usize::try_from(page).ok());
        let Some(page) = page else {
            return 0..0;
        };
        let at = |page: usize| self.before.get(page).map(|before| *before as usize);
        match (at(page), at(page + 1)) {
            (Some(first), Some(end)) => first..end,
            (Some(first), None) => first..usize::MAX,
            (None, _) => self.before.last().map_or(0, |last| *last as usize)..usize::MAX,
        }
    }
}

/// What one look at an extent tells.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Whether it returns, or leaves to where cannot be told.
    leaves: bool,
    /// What its returns pop, if all pop the same.
    pops: Option<u16>,
    /// Where it jumps to outside itself.
    jumps: Vec<u64>,
    /// Where it jumps back to inside itself.
    heads: Vec<u64>,
    /// Where it calls outside itself.
    calls: Vec<u64>,
    /// Addresses that it takes.
    taken: Vec<u64>,
}

impl Survey {
    /// Looks at an extent.
    pub fn of(machine: &mut Machine, image: &(impl Image + ?Sized), extent: &Extent) -> Survey {
        let mut survey = Survey::default();
        survey.look(machine, image, extent);
        survey
    }

    /// Forgets all, and keeps the room.
    fn clear(&mut self) {
        for list in [
            &mut self.jumps,
            &mut self.heads,
            &mut self.calls,
            &mut self.taken,
        ] {
            list.clear();
        }
    }

    /// Looks at an extent, with the lists empty.
    fn look(&mut self, machine: &mut Machine, image: &(impl Image + ?Sized), extent: &Extent) {
        let bytes = image.bytes(extent.start..extent.end).unwrap_or_default();
        let is_inside = |to: u64| extent.start <= to && to < extent.end;
        let mut leaves = false;
        let mut pops: Option<Option<u16>> = None;
        machine.scan(bytes, extent.start, |at, seen| match seen {
            Seen::Taken(address) if !is_inside(address) => self.taken.push(address),
            Seen::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) if !is_inside(to) => {
                self.jumps.push(to);
            }
            Seen::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) if to <= at => {
                self.heads.push(to);
            }
            Seen::Flow(Flow::Call(to)) if !is_inside(to) => self.calls.push(to),
            Seen::Flow(Flow::IndirectJump(_)) => leaves = true,
            // On into whatever is there.
            Seen::End => {
                leaves = true;
                self.jumps.push(extent.end);
            }
            Seen::Flow(Flow::Return { pops: popped }) => {
                leaves = true;
                pops = match pops {
                    None => Some(Some(popped)),
                    Some(Some(known)) if known == popped => pops,
                    Some(_) => Some(None),
                };
            }
            _ => {}
        });
        self.leaves = leaves;
        self.pops = pops.flatten();
    }

    /// Where it calls outside itself.
    #[must_use]
    pub fn calls(&self) -> &[u64] {
        &self.calls
    }
}

impl Program {
    /// Looks at all code once. `extents` must be in the order of their starts, and not overlap. `entries` are
    /// addresses that are come into as after a call. `never_returns` says of addresses that are called
    /// whether the function there is known never to return.
    ///
    /// Extents that jump into each other, elsewhere than to the start of a function, are one unit.
    pub fn survey(
        machine: &mut Machine,
        image: &(impl Image + ?Sized),
        extents: Vec<Extent>,
        entries: Vec<u64>,
        never_returns: impl Fn(u64) -> bool,
    ) -> Program {
        let mut room = Survey::default();
        let look = |extent: Extent| {
            room.clear();
            room.look(machine, image, &extent);
            // As large as they are: there are many, and all are kept for a while.
            (extent, room.clone())
        };
        let pieces: Vec<(Extent, Survey)> = extents.into_iter().map(look).collect();
        let mut program = Program::gather(&pieces, entries, never_returns);
        let jumps = pieces.iter().enumerate();
        let jumps =
            jumps.flat_map(|(from, (_, survey))| survey.jumps.iter().map(move |to| (from, *to)));
        let joins = jumps.filter_map(|(from, to)| Some((from, program.joined(to)?)));
        let joins: Vec<(usize, usize)> = joins.collect();
        program.unite(joins);
        program
    }

    /// The same of extents that were looked at, with each a unit of its own until [`Program::unite`] says otherwise.
    pub fn apart<'s>(
        pieces: impl Iterator<Item = &'s (Extent, Survey)>,
        never_returns: impl Fn(u64) -> bool,
    ) -> Program {
        let mut program = Program::gather(pieces, Vec::new(), never_returns);
        program.unite([]);
        program
    }

    /// The starts of extents that were looked at which never return.
    pub fn never_returning<'s>(
        pieces: impl Iterator<Item = &'s (Extent, Survey)>,
        never_returns: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let (extents, surveys): (Vec<Extent>, Vec<&Survey>) =
            pieces.map(|(extent, survey)| (*extent, survey)).unzip();
        let mut program = Program::new(extents);
        program.close_returns(&surveys, never_returns);
        let extents = program.extents.iter().zip(&program.returns);
        let never = extents.filter(|(_, returns)| **returns == Returns::Never);
        never.map(|(extent, _)| extent.start).collect()
    }

    fn new(extents: Vec<Extent>) -> Program {
        Program {
            returns: vec![Returns::Pops(0); extents.len()],
            units: Vec::new(),
            unit_of: Vec::new(),
            entries: Vec::new(),
            tables: Vec::new(),
            heads: Vec::new(),
            heads_before: Vec::new(),
            outside: Vec::new(),
            lost: Vec::new(),
            index: Index::new(&extents),
            extents,
        }
    }

    fn gather<'s>(
        pieces: impl IntoIterator<Item = &'s (Extent, Survey)>,
        entries: Vec<u64>,
        never_returns: impl Fn(u64) -> bool,
    ) -> Program {
        let pieces = pieces.into_iter();
        let (extents, surveys): (Vec<Extent>, Vec<&Survey>) =
            pieces.map(|(extent, survey)| (*extent, survey)).unzip();
        let mut program = Program::new(extents);
        program.entries = entries;
        program.gather_addresses(&surveys);
        let outside = program.outside.iter().copied();
        program.lost = outside.filter(|to| never_returns(*to)).collect();
        program.close_returns(&surveys, never_returns);
        program
    }

    /// Takes in which addresses were called, jumped to and taken.
    fn gather_addresses(&mut self, surveys: &[&Survey]) {
        let (mut entries, mut tables) = (core::mem::take(&mut self.entries), Vec::new());
        let (mut outside, mut heads) = (Vec::new(), Vec::new());
        entries.retain(|entry| self.start_at(*entry).is_none());
        for survey in surveys {
            for to in &survey.calls {
                let near = self.last_before(*to);
                match near.and_then(|(place, _)| self.extents.get_mut(place)) {
                    // What is called is a function, whatever is declared of it.
                    Some(extent) if extent.start == *to => extent.part = Part::Function,
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
            heads.extend(&survey.heads);
            tables.extend(&survey.taken);
        }
        for list in [&mut entries, &mut tables, &mut outside, &mut heads] {
            list.sort_unstable();
            list.dedup();
        }
        (self.entries, self.tables) = (entries, tables);
        (self.outside, self.heads) = (outside, heads);
        let mut before = 0;
        for extent in &self.extents {
            let rest = self.heads.get(before..).unwrap_or_default();
            let skipped = rest.iter().take_while(|head| **head < extent.start);
            before += skipped.count();
            self.heads_before.push(before);
        }
    }

    /// A function never returns if all that it leaves by are jumps to such functions.
    fn close_returns(&mut self, surveys: &[&Survey], never_returns: impl Fn(u64) -> bool) {
        for ((extent, survey), returns) in self.extents.iter().zip(surveys).zip(&mut self.returns) {
            *returns = match survey.pops {
                _ if never_returns(extent.start) => Returns::Never,
                Some(pops) if survey.leaves => Returns::Pops(pops),
                _ => Returns::Pops(0),
            };
        }
        let mut open: Vec<(usize, &Survey)> = surveys.iter().copied().enumerate().collect();
        open.retain(|(index, survey)| {
            !survey.leaves && self.returns.get(*index) != Some(&Returns::Never)
        });
        loop {
            let before = open.len();
            open.retain(|(index, survey)| {
                let is_lost = |to: &u64| match self.containing(*to) {
                    Some(place) => {
                        place == *index || self.returns.get(place) == Some(&Returns::Never)
                    }
                    None => never_returns(*to),
                };
                let is_never = survey.jumps.iter().all(is_lost);
                if let Some(returns) = self.returns.get_mut(*index).filter(|_| is_never) {
                    *returns = Returns::Never;
                }
                !is_never
            });
            if open.len() == before {
                return;
            }
        }
    }

    /// The place of the extent that a jump goes into, elsewhere than where something is come into as after a call.
    fn joined(&self, to: u64) -> Option<usize> {
        let place = self.containing(to)?;
        (!self.is_come_into(to)).then_some(place)
    }

    /// Makes one unit of those of each of these pairs of places.
    pub fn unite(&mut self, joins: impl IntoIterator<Item = (usize, usize)>) {
        let mut sets = Sets::new(self.extents.len());
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
    pub fn enter(&mut self, address: u64) -> bool {
        let place = self.entries.binary_search(&address);
        if let Err(place) = place {
            self.entries.insert(place, address);
        }
        place.is_err()
    }

    /// Takes in what becomes of calls of the function of an extent; whether that is news.
    pub fn learn(&mut self, place: usize, returns: Returns) -> bool {
        let known = self.returns.get_mut(place);
        known.is_some_and(|known| core::mem::replace(known, returns) != returns)
    }

    /// Takes in that the extent that starts at an address is come into as after a call.
    pub fn learn_called(&mut self, start: u64) {
        let place = self.start_at(start);
        if let Some(extent) = place.and_then(|place| self.extents.get_mut(place)) {
            extent.part = Part::Function;
        }
    }

    /// The extents.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The number of units: groups of extents that must be looked at together.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// The extents of a unit.
    pub fn unit(&self, unit: usize) -> impl Iterator<Item = Extent> + '_ {
        let places = self.units.get(unit).map(Vec::as_slice).unwrap_or_default();
        let extents = places.iter();
        extents.filter_map(|place| self.extents.get(*place as usize).copied())
    }

    /// The unit that the extent is part of that has an address.
    #[must_use]
    pub fn unit_of(&self, address: u64) -> Option<usize> {
        self.unit_of.get(self.containing(address)?).copied()
    }

    /// What becomes of a call to an address; `None` if that is not known.
    #[must_use]
    pub fn returns(&self, address: u64) -> Option<Returns> {
        match self.start_at(address) {
            Some(place) => self.returns.get(place).copied(),
            None => {
                let is_lost = self.lost.binary_search(&address).is_ok();
                is_lost.then_some(Returns::Never)
            }
        }
    }

    /// The extent that starts at an address.
    #[must_use]
    pub fn start_at(&self, address: u64) -> Option<usize> {
        let (place, extent) = self.last_before(address)?;
        (extent.start == address).then_some(place)
    }

    /// The place of the extent that has an address.
    #[must_use]
    pub fn containing(&self, address: u64) -> Option<usize> {
        let (place, extent) = self.last_before(address)?;
        (address < extent.end).then_some(place)
    }

    /// The extent that has an address.
    #[must_use]
    pub fn extent_at(&self, address: u64) -> Option<Extent> {
        let (_, extent) = self.last_before(address)?;
        (address < extent.end).then_some(extent)
    }

    /// The last extent that starts at an address or before.
    fn last_before(&self, address: u64) -> Option<(usize, Extent)> {
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
        extent.is_some_and(|extent| extent.start == address && extent.part == Part::Function)
    }

    /// Whether an address is come into as after a call: where a function starts, or elsewhere.
    #[must_use]
    pub fn is_come_into(&self, address: u64) -> bool {
        self.starts_function(address) || self.is_entry(address)
    }

    /// Whether an address that is no start of an extent is come into as after a call.
    #[must_use]
    pub fn is_entry(&self, address: u64) -> bool {
        self.entries.binary_search(&address).is_ok()
    }

    /// Where code in a range is come into as after a call, beside the starts of extents.
    #[must_use]
    pub fn entries_in(&self, range: Range<u64>) -> &[u64] {
        let first = self.entries.partition_point(|entry| *entry < range.start);
        let end = self.entries.partition_point(|entry| *entry < range.end);
        self.entries.get(first..end).unwrap_or_default()
    }

    /// Where the code of a unit is jumped to from behind, or from another extent; a start of an extent may be missing.
    pub fn heads(&self, unit: usize) -> impl Iterator<Item = u64> + '_ {
        let places = self.units.get(unit).map(Vec::as_slice).unwrap_or_default();
        places.iter().flat_map(|place| {
            let place = *place as usize;
            let first = self.heads_before.get(place).copied().unwrap_or(0);
            let end = self.heads_before.get(place + 1).copied();
            let heads = self.heads.get(first..end.unwrap_or(self.heads.len()));
            heads.unwrap_or_default().iter().copied()
        })
    }

    /// Where calls and jumps go that no extent has, ascending.
    #[must_use]
    pub fn outside(&self) -> &[u64] {
        &self.outside
    }

    /// Where the entries of a jump table lead; behind its last there may be others.
    pub fn targets<'i, I: Image + ?Sized>(
        &self,
        table: JumpTable,
        image: &'i I,
    ) -> impl Iterator<Item = u64> + use<'i, I> {
        let size = table.entry_size();
        let next = self.tables.partition_point(|taken| *taken <= table.address);
        // It ends before what code takes the address of.
        let room = match self.tables.get(next) {
            Some(next) => usize::try_from(next - table.address).unwrap_or(usize::MAX) / size,
            None => usize::MAX,
        };
        // The index may be bounded by its type only: the table need not be as long.
        let count = table
            .last
            .map_or(room, |last| room.min(usize::from(last) + 1));
        let bytes = image.bytes_from(table.address).unwrap_or_default();
        let entries = bytes.chunks_exact(size).take(count);
        entries.map(move |entry| table.target(entry))
    }
}

/// Disjoint sets.
struct Sets {
    parents: Vec<usize>,
}

impl Sets {
    fn new(len: usize) -> Sets {
        Sets {
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
