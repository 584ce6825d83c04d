//! Landing pads of functions without a table that names their LSDAs (language-specific data areas).
//!
//! The LSDAs exist, but their functions are not known. Each LSDA lists its function's calls and
//! landing pads. A function is taken to have an LSDA if all of this holds and no other explanation
//! exists:
//!
//! - Each call site range with a pad begins and ends with a call, and every other one between
//!   instructions.
//! - Nothing known leads to a pad, its address is not taken, and control does not fall through into
//!   it.
//! - All code in the LSDA's range, and the code that joins it, is reached from the function's
//!   start, from the pads, or indirectly from these. Nothing else jumps there.
//! - No other LSDA with other pads fits as well.
//!
//! All of this holds for a function's own LSDA, so a single fitting one is the right one.
//! `docs/synthesis.md` has the argument and its limits.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::{Flow, ScanEvent};
use unspool_code_analysis::{
    AbstractValue, Assumptions, CodeImage as _, InsnId, Landing, LiftedCode, Lifter, ProgramCode,
};
use unspool_elf::ElfFile;

use crate::elf_code_image::ElfCodeImage;
use crate::functions::CodeReferences;
use crate::lsda::{Lsda, LsdaCallSite};
use crate::unit_rows::CallDepth;

/// Landing pads.
#[derive(Debug, Default)]
pub(crate) struct LandingPads {
    /// Ascending.
    landings: Vec<Landing>,
    /// Functions, ascending, with the stack pointer at calls without stack arguments.
    frames: Vec<(Range<u64>, AbstractValue)>,
}

impl LandingPads {
    pub(crate) fn is_empty(&self) -> bool {
        self.landings.is_empty()
    }

    /// Ascending.
    pub(crate) fn as_slice(&self) -> &[Landing] {
        &self.landings
    }

    /// Pairs of extents of a program, by index, that pads join.
    pub(crate) fn joins(&self, program: &ProgramCode) -> Vec<(usize, usize)> {
        let joins = self.landings.iter().filter_map(|landing| {
            let from = program.index_containing(landing.start)?;
            Some((from, program.index_containing(landing.pad)?))
        });
        joins.collect()
    }
}

impl Assumptions for LandingPads {
    fn args_size(&self, address: u64, sp: AbstractValue) -> u64 {
        let place = self
            .frames
            .partition_point(|(range, _)| range.end <= address);
        let frame = self.frames.get(place);
        let frame = frame.filter(|(range, _)| range.contains(&address));
        let below = frame.and_then(|(_, frame)| frame.distance_from(sp));
        below
            .and_then(|below| u64::try_from(below).ok())
            .unwrap_or(0)
    }
}

/// Knowledge about a file's code before the search for pads.
pub(crate) struct PadSearchInput<'k> {
    pub(crate) file: &'k ElfFile,
    pub(crate) abi_info: &'static AbiInfo,
    /// Code ranges, ascending.
    pub(crate) ranges: &'k [Range<u64>],
    pub(crate) program: &'k ProgramCode,
    pub(crate) references: &'k CodeReferences,
    /// Function starts, ascending.
    pub(crate) starts: &'k [u64],
    /// Reached code, ascending.
    pub(crate) reached_ranges: &'k [Range<u64>],
    /// Calls, ascending.
    pub(crate) depths: &'k [CallDepth],
}

impl PadSearchInput<'_> {
    fn is_reached(&self, address: u64) -> bool {
        let place = self
            .reached_ranges
            .partition_point(|range| range.end <= address);
        let range = self.reached_ranges.get(place);
        range.is_some_and(|range| range.start <= address)
    }

    /// Whether all code between two addresses is reached.
    fn is_all_reached(&self, start: u64, end: u64) -> bool {
        let extents = self.program.extents();
        let first = extents.partition_point(|extent| extent.end <= start);
        let extents = extents.get(first..).unwrap_or_default().iter();
        let mut extents = extents.take_while(|extent| extent.start < end);
        extents.all(|extent| {
            let place = self
                .reached_ranges
                .partition_point(|range| range.end < extent.end);
            let range = self.reached_ranges.get(place);
            range.is_some_and(|range| range.start <= extent.start)
        })
    }

    fn starts_at(&self, address: u64) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    fn depths_in(&self, range: &Range<u64>) -> &[CallDepth] {
        let first = self.depths.partition_point(|(call, _)| *call < range.start);
        let end = self.depths.partition_point(|(call, _)| *call < range.end);
        self.depths.get(first..end).unwrap_or_default()
    }
}

/// Steps for each function before the search for LSDAs is given up. Real programs take a hundred.
const MAX_STEPS_PER_FUNCTION: usize = 1 << 12;

/// Finds landing pads.
pub(crate) fn landings(
    input: &PadSearchInput<'_>,
    lifter: &mut Lifter,
    areas: &HashSet<Lsda>,
) -> LandingPads {
    let mut by_first: HashMap<u32, Vec<&Lsda>> = HashMap::new();
    for area in areas {
        if let Some(first) = area.sites_with_pads().next() {
            by_first.entry(first.end).or_default().push(area);
        }
    }
    let mut search = LsdaSearch {
        input,
        lifter,
        by_first,
        code: LiftedCode::default(),
        steps: input.starts.len().saturating_mul(MAX_STEPS_PER_FUNCTION),
    };
    let mut found = LandingPads::default();
    for range in input.ranges {
        let first = input.starts.partition_point(|start| *start < range.start);
        let starts = input.starts.get(first..).unwrap_or_default();
        let mut starts = starts
            .iter()
            .copied()
            .take_while(|start| *start < range.end)
            .peekable();
        while let Some(start) = starts.next() {
            let end = starts.peek().copied().unwrap_or(range.end);
            if let Some(area) = search.lsda_of(start, end) {
                found.add_lsda(input, start, area);
            }
        }
    }
    if search.steps == 0 {
        // Other LSDAs might fit as well.
        return LandingPads::default();
    }
    found.landings.sort_unstable_by_key(|landing| landing.start);
    found.frames.sort_unstable_by_key(|(range, _)| range.start);
    found
}

impl LandingPads {
    /// Assigns an LSDA to a function, if the size of stack arguments at its calls is known.
    /// Arguments are gone when an exception lands. Functions allocate their frames once, so calls
    /// differ only by their arguments.
    fn add_lsda(&mut self, input: &PadSearchInput<'_>, start: u64, lsda: &Lsda) {
        let reach = start..start.saturating_add(lsda.code_bytes());
        let landings = lsda.sites_with_pads().map(|site| Landing {
            start: start.saturating_add(site.start.into()),
            end: start.saturating_add(site.end.into()),
            pad: start.saturating_add(site.pad.into()),
        });
        let lands = |(call, _): &&CallDepth| {
            let mut landings = landings.clone();
            landings.any(|landing| (landing.start..landing.end).contains(call))
        };
        let depths = input.depths_in(&reach).iter();
        let top = depths.clone().map(|(_, depth)| *depth).max();
        let is_same = depths.clone().all(|(_, depth)| Some(*depth) == top);
        if !is_same && depths.filter(lands).map(|(_, depth)| *depth).max() != top {
            return;
        }
        self.landings.extend(landings.clone());
        if let Some(top) = top {
            let sp = AbstractValue::entry_value(input.abi_info.stack_pointer);
            self.frames.push((reach, sp.plus(top)));
        }
    }
}

/// The search for functions' LSDAs.
struct LsdaSearch<'s> {
    input: &'s PadSearchInput<'s>,
    lifter: &'s mut Lifter,
    /// By the end of the first call with a pad.
    by_first: HashMap<u32, Vec<&'s Lsda>>,
    /// Code of the current function.
    code: LiftedCode,
    /// Steps left.
    steps: usize,
}

impl<'s> LsdaSearch<'s> {
    /// The LSDA of the function that starts at one address and ends before another, if exactly one
    /// fits.
    fn lsda_of(&mut self, start: u64, end: u64) -> Option<&'s Lsda> {
        if self.input.is_all_reached(start, end) {
            return None;
        }
        let text = ElfCodeImage(self.input.file);
        let bytes = text.bytes(start..end)?;
        self.code.clear();
        self.lifter.lift(bytes, start, &mut self.code);
        let function = FunctionCode {
            input: self.input,
            code: &self.code,
            start,
            end,
        };
        let mut fitting = Vec::new();
        for id in self.code.ids().filter(|id| is_call(&self.code, *id)) {
            let first = u32::try_from(self.code.range(id).end - start).ok()?;
            for area in self.by_first.get(&first).into_iter().flatten() {
                if function.fits(area, &mut self.steps) {
                    fitting.push(*area);
                }
            }
        }
        fitting.retain(|area| function.accounts_for_all_code(area, self.lifter, &mut self.steps));
        let (first, others) = fitting.split_first()?;
        let is_clear = others
            .iter()
            .all(|other| other.sites_with_pads().eq(first.sites_with_pads()));
        fitting
            .into_iter()
            .max_by_key(|area| area.code_bytes())
            .filter(|_| is_clear)
    }
}

fn is_call(code: &LiftedCode, id: InsnId) -> bool {
    code.flow(id).is_some_and(Flow::is_call)
}

/// Uses up steps. Returns whether enough were left.
fn consume_steps(steps: &mut usize, count: usize) -> bool {
    *steps = steps.saturating_sub(count);
    *steps != 0
}

/// The code from one function's start to the next.
struct FunctionCode<'f> {
    input: &'f PadSearchInput<'f>,
    code: &'f LiftedCode,
    start: u64,
    end: u64,
}

impl FunctionCode<'_> {
    fn insn_at(&self, offset: u32) -> Option<InsnId> {
        let address = self.start.checked_add(offset.into())?;
        self.code
            .insn_at(address, 0..u32::try_from(self.code.len()).ok()?)
    }

    /// The instruction that ends at an offset.
    fn ends_at(&self, offset: u32) -> Option<InsnId> {
        let last = match self.insn_at(offset) {
            Some(next) => next.0.checked_sub(1).map(InsnId),
            None => self.code.ids().last(),
        };
        let end = self.start.checked_add(offset.into())?;
        last.filter(|last| self.code.range(*last).end == end)
    }

    /// Whether calls and pads are where an LSDA says.
    fn fits(&self, lsda: &Lsda, steps: &mut usize) -> bool {
        let mut sites = lsda.sites.iter();
        consume_steps(steps, 1) && sites.all(|site| consume_steps(steps, 1) && self.has(site))
    }

    fn has(&self, site: &LsdaCallSite) -> bool {
        let ends = self.insn_at(site.start).zip(self.ends_at(site.end));
        ends.is_some_and(|(first, last)| match site.pad {
            0 => true,
            pad => is_call(self.code, first) && is_call(self.code, last) && self.has_pad(pad),
        })
    }

    /// Whether code begins at an offset without a known jump to it or fall-through into it.
    fn has_pad(&self, offset: u32) -> bool {
        let Some(pad) = self.insn_at(offset) else {
            return false;
        };
        let before = pad.0.checked_sub(1).map(InsnId);
        let flow = before.and_then(|before| self.code.flow(before));
        let ends = flow.is_some_and(|flow| flow.is_call() || !flow.falls_through());
        let address = self.code.range(pad).start;
        ends && !self.code.is_padding(pad)
            && !self.input.is_reached(address)
            && !self.input.references.is_taken(address)
    }

    /// Whether the function and the pads reach all code in an LSDA's range and the code that joins
    /// it, and nothing else jumps there.
    fn accounts_for_all_code(&self, lsda: &Lsda, lifter: &mut Lifter, steps: &mut usize) -> bool {
        let reach = self.start..self.start.saturating_add(lsda.code_bytes());
        let Some(led) = self.reached_code(lsda, lifter, steps) else {
            return false;
        };
        let jumps = self
            .input
            .references
            .jumps_within(reach.start.saturating_add(1)..reach.end);
        let is_own = |(to, count): &(u64, u32)| led.jumps.get(to) == Some(count);
        if !consume_steps(steps, jumps.len()) || !jumps.iter().all(is_own) {
            return false;
        }
        let extents = self.input.program.extents();
        let first = extents.partition_point(|extent| extent.end <= self.start);
        let extents = extents.get(first..).unwrap_or_default().iter();
        let mut last = self.start;
        for extent in extents.take_while(|extent| extent.start < self.end) {
            let is_behind = reach.end <= extent.start;
            if is_behind && extent.start != last {
                break;
            }
            last = extent.end;
            let start = extent.start.max(self.start);
            // Jump table targets are not known here, nor other code that joins behind.
            let may_be_other = led.has_indirect_jump || is_behind;
            let is_led = led.reached_from.get(&extent.start) == Some(&start);
            if !is_led && (!may_be_other || !self.input.is_reached(start)) {
                return false;
            }
        }
        true
    }

    /// Code that an LSDA's function start and pads reach by direct jumps; `None` if it is too much.
    fn reached_code(
        &self,
        lsda: &Lsda,
        lifter: &mut Lifter,
        steps: &mut usize,
    ) -> Option<ReachedCode> {
        let (program, text) = (self.input.program, ElfCodeImage(self.input.file));
        let mut led = ReachedCode::default();
        let mut open: Vec<u64> = lsda
            .sites_with_pads()
            .map(|site| self.start + u64::from(site.pad))
            .collect();
        open.push(self.start);
        while let Some(address) = open.pop() {
            let is_other = address != self.start && self.input.starts_at(address);
            let Some(extent) = program.extent_at(address).filter(|_| !is_other) else {
                continue;
            };
            let from = led.reached_from.entry(extent.start).or_insert(extent.end);
            if *from <= address {
                continue;
            }
            // Code behind it was already visited.
            let range = address..core::mem::replace(from, address);
            let bytes = text.bytes(range.clone()).unwrap_or_default();
            if !consume_steps(steps, bytes.len()) {
                return None;
            }
            lifter.scan(bytes, address, |_, seen| match seen {
                ScanEvent::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) => {
                    *led.jumps.entry(to).or_default() += 1;
                    open.push(to);
                }
                ScanEvent::Flow(Flow::IndirectJump(_)) => led.has_indirect_jump = true,
                ScanEvent::FallsThroughEnd if range.end == extent.end => open.push(extent.end),
                _ => {}
            });
        }
        Some(led)
    }
}

/// Code reached from the start and the pads of a function.
#[derive(Default)]
struct ReachedCode {
    /// By extent start: the first reached address.
    reached_from: HashMap<u64, u64>,
    /// Targets of these jumps, with their number.
    jumps: HashMap<u64, u32>,
    /// Whether there is a jump without a known target.
    has_indirect_jump: bool,
}
