//! One look at each instruction of a unit, in the order of the code, that shows that what a table claims holds everywhere.
//!
//! What is claimed holds everywhere if it holds at the entry, and each instruction hands it on to whatever comes behind it: no path need be
//! followed. So where paths meet just what is claimed there is kept of a [`Frame`], and addresses of the stack that are the same on all;
//! each way there must bring that along. A jump from behind that does not has all be looked at again, with less taken for certain.
//!
//! This is what most units take. What a frame does not tell, and whatever does not show at a glance, is left to
//! [`Analyzer`](crate::Analyzer), which finds what holds and not only whether it does.

use core::ops::Range;

use crate::analysis::Landing;
use crate::apply::{Semantics, Told};
use crate::arch::{Facts, Glance, Machine};
use crate::code::Code;
use crate::op::{Flow, Op, Way};
use crate::program::{Image, Part, Program, Returns};
use crate::state::State;
use crate::value::{JumpTable, Known, Value};

pub mod frame;
mod labels;

use frame::{Beyond, Frame, Held, Lack};
use labels::{Comes, Labels, Place};

/// What is claimed before instructions one after another.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// What must be known.
    pub frame: Frame,
    /// [`Frame::lowest`] of that.
    pub lowest: i16,
    /// Where the next claim begins, or nothing is claimed.
    pub end: u64,
    /// How many bytes of arguments the unwinder takes off the stack when an exception lands.
    pub args_size: i32,
}

impl Claim {
    const NONE: Claim = Claim {
        frame: Frame::UNKNOWN,
        lowest: 0,
        end: 0,
        args_size: 0,
    };
}

/// What is claimed of a unit.
pub trait Claims {
    /// Goes to what is claimed from an address on, of a range that ends at `end`. `None` if nothing is, or no frame tells it.
    fn turn(&mut self, address: u64, end: u64) -> Option<Claim>;

    /// Is told that what is claimed holds before an instruction.
    fn hold(&mut self);

    /// Is told that something is stored around an address of the stack of which it is assumed that it is inside its array.
    fn assume_bounds(&mut self);

    /// Is told that control returns from an address, with all as it was at entry, and how many bytes of arguments are popped.
    fn returns(&mut self, from: u64, pops: u16);
}

/// So many times all is looked at before a unit is given up.
const MOST_SWEEPS: usize = 6;

/// So many entries of jump tables are followed for each byte of a unit, and so many of the smallest.
const ENTRIES_PER_BYTE: u64 = 4;
const LEAST_ENTRIES: u64 = 1 << 12;

/// So many addresses are kept that registers may hold.
const MOST_ADDRESSES: usize = 256;

/// At least so many instructions before one of which more must be known are looked at for that, beside those that leave frames as they are.
const LINE: usize = 32;

/// Looks at units; keeps its room from one to the next.
#[derive(Debug)]
pub struct Sweeper {
    machine: Machine,
    semantics: Semantics,
    labels: Labels,
    /// What an instruction does.
    ops: Vec<Op>,
    /// The instructions of a straight line of which more must be known.
    line: Code,
    /// Addresses that registers may hold.
    addresses: Vec<u64>,
}

impl Sweeper {
    /// One for a machine.
    #[must_use]
    pub fn new(machine: Machine) -> Sweeper {
        Sweeper {
            semantics: Semantics::new(machine.facts()),
            machine,
            labels: Labels::default(),
            ops: Vec::new(),
            line: Code::default(),
            addresses: Vec::new(),
        }
    }

    /// Whether all that is claimed of a unit of a program shows to hold. `landings` must be in the order of their starts.
    pub fn sweep(
        &mut self,
        program: &Program,
        image: &(impl Image + ?Sized),
        unit: usize,
        landings: &[Landing],
        claims: &mut impl Claims,
    ) -> bool {
        // An entry may claim to be of more code than there is.
        let lengths = program.unit(unit).map(|extent| {
            let bytes = image.bytes(extent.start..extent.end)?;
            u64::try_from(bytes.len()).ok()
        });
        let Some(bytes) = lengths.sum::<Option<u64>>() else {
            return false;
        };
        self.begin(program, unit, landings);
        let mut sweep = Sweep {
            entries: bytes.saturating_mul(ENTRIES_PER_BYTE).max(LEAST_ENTRIES),
            facts: self.semantics.facts,
            sweeper: self,
            program,
            image,
            unit,
            landings,
            claims,
            claim: Claim::NONE,
            is_again: false,
            is_new: true,
            uses: false,
            lacks: false,
            keeps_addresses: false,
            misses_address: false,
        };
        for _ in 0..MOST_SWEEPS {
            (sweep.is_again, sweep.lacks) = (false, false);
            let before = sweep.sweeper.labels.reached();
            if sweep.look_at_all().is_none() {
                if !sweep.misses_address || sweep.keeps_addresses {
                    return false;
                }
                sweep.keeps_addresses = true;
                sweep.sweeper.begin(program, unit, landings);
                continue;
            }
            let labels = &mut sweep.sweeper.labels;
            let are_sound = labels.are_sound();
            let is_again = sweep.is_again || sweep.lacks && sweep.uses;
            if !is_again && (are_sound || labels.reached() == before) {
                return are_sound;
            }
            labels.again();
        }
        false
    }

    /// Finds what must be known to be come to before it is looked at.
    fn begin(&mut self, program: &Program, unit: usize, landings: &[Landing]) {
        let extents = program.unit(unit);
        self.addresses.clear();
        self.labels
            .begin(extents.map(|extent| extent.start..extent.end));
        for head in program.heads(unit) {
            self.labels.add(head);
        }
        for landing in landings {
            self.labels.add(landing.pad);
        }
    }

    /// What is known behind instructions of a straight line, whatever holds before them but for addresses that registers hold behind them.
    fn behind_line(&self, address_in: impl Fn(u8) -> Option<u64>) -> State {
        let semantics = self.semantics;
        let sp = semantics.facts.stack_pointer;
        let ops = self.line.ids().flat_map(|insn| self.line.ops_of(insn));
        let written = ops.fold(0, |all, op| all | op.written(sp));
        let mut state = State::new();
        for register in 0..=semantics.facts.return_address {
            let address = address_in(register).filter(|_| written >> register & 1 == 0);
            state.set(register, address.map_or(Value::UNKNOWN, Value::constant));
        }
        for insn in self.line.ids() {
            for (at, op) in (0..).zip(self.line.ops_of(insn)) {
                semantics.apply(&mut state, *op, at);
            }
            match self.line.flow(insn) {
                Some(Flow::Call(_) | Flow::IndirectCall) => semantics.call(&mut state, None),
                Some(Flow::Branch { test, .. }) => {
                    if let Told::Holds(register, value) = semantics.told(&state, test, Way::On) {
                        state.set(register, value);
                    }
                }
                _ => {}
            }
        }
        state
    }

    /// Whether a straight line says where what a register holds behind it comes from, and whether that was loaded from a table there, or counts from such
    /// an entry.
    fn comes_from(&self, register: u8) -> (bool, bool) {
        let sp = self.semantics.facts.stack_pointer;
        let bit = |register: u8| 1_u64 << (register & 63);
        let ops = self.line.ids().flat_map(|insn| self.line.ops_of(insn));
        let (mut written, mut found) = (0_u64, 0_u64);
        for op in ops {
            let is_found = |from: u8| found & bit(from) != 0;
            written |= op.written(sp);
            found = match *op {
                Op::LoadEntry { to, .. } | Op::LoadSum { to, .. } => found | bit(to),
                Op::Sum { to, a, b } if is_found(a) || is_found(b) => found | bit(to),
                Op::Add { to, from, .. } if is_found(from) => found | bit(to),
                op => found & !op.written(sp),
            };
        }
        (written & bit(register) != 0, found & bit(register) != 0)
    }
}

/// The work on one unit. What yields `None` gives it up.
struct Sweep<'a, I: ?Sized, C> {
    sweeper: &'a mut Sweeper,
    facts: &'static Facts,
    program: &'a Program,
    image: &'a I,
    unit: usize,
    landings: &'a [Landing],
    claims: &'a mut C,
    /// What is claimed.
    claim: Claim,
    /// Whether less holds somewhere than what was taken for certain.
    is_again: bool,
    /// Whether what is claimed, or what holds, is not what it was when it was asked whether the one follows from the other.
    is_new: bool,
    /// Whether something depends on an address of the stack in another register than those that point at frames.
    uses: bool,
    /// Whether such an address was taken for certain that is not.
    lacks: bool,
    /// Whether it is kept which registers hold addresses of the image: of jump tables that are far from the jump.
    keeps_addresses: bool,
    /// Whether such an address must be known.
    misses_address: bool,
    /// How many more entries of jump tables are followed before the unit is given up.
    entries: u64,
}

/// An instruction, and the straight line that leads to it.
#[derive(Debug, Clone, Copy)]
struct At {
    /// Its first address.
    start: u64,
    /// One past its last.
    end: u64,
    /// Where a line begins that is as long as one must be, or as far as there is one.
    line: u64,
    /// Whether control comes to it.
    comes: Comes,
}

impl<I: Image + ?Sized, C: Claims> Sweep<'_, I, C> {
    fn look_at_all(&mut self) -> Option<()> {
        let entry = Frame::entry(self.facts);
        // What functions have elsewhere comes behind them: by then it is known with what they jump there.
        for part in [Part::Function, Part::Fragment] {
            for extent in self.program.unit(self.unit) {
                if extent.part != part {
                    continue;
                }
                let range = extent.start..extent.end;
                let start = (part == Part::Function).then_some(extent.start);
                let entries = self.program.entries_in(range).iter().copied();
                let here = self.sweeper.labels.place(extent.start)?.clone();
                for address in start.into_iter().chain(entries) {
                    self.flow_into(address, &here, &entry, Comes::Surely)?;
                }
                let mut ops = core::mem::take(&mut self.sweeper.ops);
                let looked = self.look_at(here, &mut ops);
                self.sweeper.ops = ops;
                looked?;
            }
        }
        Some(())
    }

    /// Looks at a range of code.
    fn look_at(&mut self, mut here: Place, ops: &mut Vec<Op>) -> Option<()> {
        let Range { start, end } = here.range;
        // A glance takes more than an instruction has.
        let bytes = self.image.bytes_from(start)?;
        let length = usize::try_from(end - start).ok()?;
        let code = bytes.get(..length)?;
        let mut frame = Frame::entry(self.facts);
        let mut line = Line::new(start);
        let mut comes = Comes::Never;
        let mut is_call = false;
        let mut next = 0;
        self.claim.end = start;
        while next < length {
            let offset = next;
            let address = start + offset as u64;
            let rest = bytes.get(offset..)?;
            let glance = self.sweeper.machine.glance(rest);
            let glance = glance.filter(|glance| !self.keeps_addresses || !glance.takes_address());
            let mut decoded = None;
            let (size, is_padding) = match &glance {
                Some(glance) => (glance.length(), glance.is_padding()),
                None => {
                    let rest = code.get(offset..)?;
                    let insn = self.sweeper.machine.decode(rest, address, ops)?;
                    decoded = insn.flow;
                    (insn.length, insn.is_padding)
                }
            };
            next = offset + size;
            (next <= length).then_some(())?;
            // A claim that begins inside an instruction is false.
            (address <= self.claim.end).then_some(())?;
            if address == self.claim.end {
                self.claim = self.claims.turn(address, end)?;
                self.is_new = true;
            }
            if let Some(label) = self.sweeper.labels.of(here.first + offset) {
                comes = label.pass(&mut frame, comes, &self.claim.frame, self.facts)?;
                self.is_new = true;
                line = Line::new(address);
            } else if comes == Comes::Never {
                // Nothing leads there.
                is_padding.then_some(())?;
                continue;
            }
            if self.is_new {
                self.hold(&frame)?;
                self.claims.hold();
                self.is_new = false;
            }
            is_call = false;
            if let Some(glance) = &glance
                && !self.keeps_addresses
                && glance.leaves(&frame)
            {
                let claimed = usize::try_from(self.claim.end.min(end) - start).ok()?;
                next += self.skip(bytes, next..claimed, here.first, &frame);
                continue;
            }
            let at = At {
                start: address,
                end: start + next as u64,
                line: line.go_on(address),
                comes,
            };
            let flow = match &glance {
                Some(glance) if self.tell(glance, &mut frame)? => glance.flow(address),
                known => {
                    if known.is_some() {
                        let rest = code.get(offset..)?;
                        decoded = self.sweeper.machine.decode(rest, address, ops)?.flow;
                    }
                    self.apply(ops, at, &mut frame)?;
                    decoded
                }
            };
            if let Some(flow) = flow {
                here.done = at.end;
                is_call = matches!(flow, Flow::Call(_) | Flow::IndirectCall);
                comes = self.leave(flow, at, &here, &mut frame)?;
            }
        }
        self.sweeper.labels.finish(start);
        // Who calls at the end does not know that it never comes back, or that is all there is.
        let ends = is_call && !self.sweeper.labels.contains(end);
        (comes == Comes::Never || ends).then_some(())
    }

    /// Goes on to the first of those instructions of a range of `bytes` that is not known to leave the frame as it is, or that is jumped
    /// to; how far that is. `first` is the place of the first byte's label.
    #[inline(never)]
    fn skip(&self, bytes: &[u8], range: Range<usize>, first: usize, frame: &Frame) -> usize {
        let Sweeper {
            machine, labels, ..
        } = &*self.sweeper;
        let mut at = range.start;
        while !labels.has(first + at)
            && let Some(glance) = bytes.get(at..).and_then(|rest| machine.glance(rest))
            && glance.leaves(frame)
            && at + glance.length() <= range.end
        {
            at += glance.length();
        }
        at - range.start
    }

    /// Does what an instruction does, if a glance tells that; whether it does.
    #[inline(always)]
    fn tell(&mut self, glance: &Glance<'_>, frame: &mut Frame) -> Option<bool> {
        let mut is_beyond = false;
        let is_told = glance.tell(|op| {
            self.note_use(op, frame);
            match frame.apply(op, self.facts) {
                Ok(is_changed) => self.is_new |= is_changed,
                Err(Beyond) => is_beyond = true,
            }
        });
        (!is_beyond).then_some(is_told)
    }

    /// Notes whether an operation depends on an address of the stack in another register than those that point at frames.
    #[inline(always)]
    fn note_use(&mut self, op: Op, frame: &Frame) {
        if let Op::OverwriteNear { base, .. } | Op::StoreEntry { base, .. } = op {
            if base == self.facts.stack_pointer || frame.is_stack(base) {
                self.claims.assume_bounds();
            }
            return;
        }
        let base = match op {
            Op::Add { to, from, .. } if self.facts.points_at_frames(to) => from,
            Op::Load { to, base, .. } if frame.is_saved(to) => base,
            Op::Store { base, .. }
            | Op::StoreLow { base, .. }
            | Op::Overwrite { base, .. }
            | Op::OverwritePerhaps { base, .. }
            | Op::StoreUnfollowed { base, .. }
            | Op::Mix { base, .. }
            | Op::Fill { base, .. } => base,
            _ => return,
        };
        if !self.facts.points_at_frames(base) && frame.is_stack(base) {
            self.uses = true;
        }
    }

    /// The number of an address among those that frames know; `None` if there are too many.
    fn number_of(&mut self, address: u64) -> Option<usize> {
        let addresses = &mut self.sweeper.addresses;
        let known = addresses.iter().position(|known| *known == address);
        if known.is_none() && addresses.len() < MOST_ADDRESSES {
            addresses.push(address);
            return Some(addresses.len() - 1);
        }
        known
    }

    /// Does what an instruction does.
    fn apply(&mut self, ops: &[Op], at: At, frame: &mut Frame) -> Option<()> {
        for op in ops {
            self.note_use(*op, frame);
            match frame.apply(*op, self.facts) {
                Ok(is_changed) => self.is_new |= is_changed,
                Err(Beyond) => {
                    self.apply_beyond(*op, at, frame)?;
                    self.is_new = true;
                }
            }
            if let Op::Address { to, value } = *op
                && self.keeps_addresses
                && let Some(number) = self.number_of(value)
            {
                frame.know_address(to, number);
            }
        }
        Some(())
    }

    /// Whether what is claimed holds.
    #[inline]
    fn hold(&self, frame: &Frame) -> Option<()> {
        // A signal's frame may be written over what is so far below the stack pointer.
        let is_for_signals = match frame.get(self.facts.stack_pointer) {
            Held::Stack(top) => i32::from(self.claim.lowest) < i32::from(top) - self.facts.red_zone,
            Held::Own | Held::Other => false,
        };
        let holds = frame.has(&self.claim.frame) && !is_for_signals;
        holds.then_some(())
    }

    /// Looks at where control goes from an instruction of a range; whether it goes on behind it.
    fn leave(&mut self, flow: Flow, at: At, here: &Place, frame: &mut Frame) -> Option<Comes> {
        Some(match flow {
            Flow::Jump(to) => {
                self.jump(to, at, here, frame)?;
                Comes::Never
            }
            Flow::Branch { to, .. } => {
                self.jump(to, at, here, frame)?;
                at.comes
            }
            Flow::Call(_) | Flow::IndirectCall => self.call(flow, at, here, frame)?,
            Flow::IndirectJump(_) => {
                self.jump_by(at, here, frame)?;
                Comes::Never
            }
            Flow::Return { pops } => {
                frame.is_as_called(self.facts).then_some(())?;
                self.claims.returns(at.start, pops);
                Comes::Never
            }
            Flow::Trap => Comes::Never,
        })
    }

    fn jump(&mut self, to: u64, at: At, here: &Place, frame: &Frame) -> Option<()> {
        // Elsewhere it may be a call of its own.
        let is_call = || !self.sweeper.labels.contains(to) || self.program.is_come_into(to);
        match !here.range.contains(&to) && is_call() {
            true => Some(()),
            false => self.flow_into(to, here, frame, at.comes),
        }
    }

    fn call(&mut self, flow: Flow, at: At, here: &Place, frame: &mut Frame) -> Option<Comes> {
        let returns = match flow {
            Flow::Call(to) => match self.program.returns(to) {
                None if !self.program.is_entry(to) && self.sweeper.labels.contains(to) => {
                    return None;
                }
                returns => returns,
            },
            _ => None,
        };
        let pops = match returns {
            Some(Returns::Pops(pops)) => pops,
            None | Some(Returns::Keeps(_) | Returns::Never) => 0,
            Some(Returns::Leaves(_) | Returns::Behind(_)) => return None,
        };
        frame.call(self.facts).ok()?;
        // While the callee runs, what is claimed at the call is asked for, too.
        self.hold(frame)?;
        if let Some(pad) = Landing::pad_of(self.landings, at.start)
            && self.sweeper.labels.contains(pad)
        {
            let mut landed = *frame;
            landed.pop(self.claim.args_size, self.facts).ok()?;
            self.flow_into(pad, here, &landed, at.comes)?;
        }
        if pops != 0 {
            frame.pop(pops.into(), self.facts).ok()?;
            self.is_new = true;
        }
        Some(match returns {
            Some(Returns::Never) => Comes::Never,
            _ => at.comes,
        })
    }

    /// Follows a jump to where no number says: through a table, or out of the function as a call of its own would be.
    fn jump_by(&mut self, at: At, here: &Place, frame: &Frame) -> Option<()> {
        self.read_line(at.line..at.end)?;
        let last = self.sweeper.line.ids().last()?;
        let Some(Flow::IndirectJump(register)) = self.sweeper.line.flow(last) else {
            return None;
        };
        let target = self.sweeper.behind_line(|register| {
            let number = frame.address_of(register)?;
            self.sweeper.addresses.get(number).copied()
        });
        let target = target.get(register);
        match target.known() {
            Known::Constant(to) => return self.jump(to, at, here, frame),
            // A pointer, mostly to a function elsewhere.
            Known::Target(table) if table.last == Some(0) => {
                let to = self.program.targets(table, self.image).next();
                if let Some(to) = to.filter(|to| self.sweeper.labels.contains(*to)) {
                    return self.jump(to, at, here, frame);
                }
            }
            Known::Target(table) => return self.jump_through(table, at, here, frame),
            _ => {}
        }
        let is_as_called = frame.is_stack_as_called(self.facts);
        let (is_known, is_by_table) = self.sweeper.comes_from(register);
        self.misses_address = is_by_table;
        (is_as_called && is_known && !is_by_table).then_some(())
    }

    /// Follows a jump through a table.
    fn jump_through(
        &mut self,
        table: JumpTable,
        at: At,
        here: &Place,
        frame: &Frame,
    ) -> Option<()> {
        self.uses |= self.keeps_addresses;
        let mut is_followed = false;
        for to in self.program.targets(table, self.image) {
            self.entries = self.entries.checked_sub(1)?;
            match self.sweeper.labels.contains(to) {
                true => {
                    self.flow_into(to, here, frame, at.comes)?;
                    is_followed = true;
                }
                // What cannot be leads to the end of the function.
                false if self.sweeper.labels.has_end(to) => {}
                // The table is not as long as its index may be great.
                false if table.last.is_none() => break,
                false => return None,
            }
        }
        is_followed.then_some(())
    }

    /// Does what an operation does that no frame tells, but that a number says.
    fn apply_beyond(&mut self, op: Op, at: At, frame: &mut Frame) -> Option<()> {
        match op {
            Op::Fill {
                base,
                count: Some(count),
                size,
            } => {
                // How much is filled that no number says is a program's array.
                let count = self.number_before(count, at)?;
                if count.is_none() {
                    self.claims.assume_bounds();
                }
                if let Some(count) = count {
                    let size = u16::try_from(count.checked_mul(size.into())?).ok()?;
                    let offset = 0;
                    let filled = Op::Overwrite { base, offset, size };
                    frame.apply(filled, self.facts).ok()?;
                }
                Some(())
            }
            Op::SystemCall { number } => {
                let number = self.number_before(number?, at)??;
                let Facts {
                    new_stack,
                    shared_stack,
                    ..
                } = self.facts;
                let mut are_other = new_stack.iter().chain(*shared_stack);
                are_other.all(|other| *other != number).then_some(())
            }
            _ => None,
        }
    }

    /// The number that a register holds before an instruction, if the line that leads there says so.
    fn number_before(&mut self, register: u8, at: At) -> Option<Option<u64>> {
        self.read_line(at.line..at.start)?;
        let state = self.sweeper.behind_line(|_| None);
        Some(state.get(register).as_constant())
    }

    /// Decodes a straight line.
    fn read_line(&mut self, range: Range<u64>) -> Option<()> {
        let bytes = self.image.bytes(range.clone())?;
        let Sweeper { machine, line, .. } = &mut *self.sweeper;
        line.clear();
        machine.lift(bytes, range.start, line);
        Some(())
    }

    /// Lets a frame arrive at an address by a jump from a range.
    fn flow_into(&mut self, to: u64, here: &Place, frame: &Frame, comes: Comes) -> Option<()> {
        let there;
        let place = match here.range.contains(&to) {
            true => here,
            false => {
                there = self.sweeper.labels.place(to)?.clone();
                &there
            }
        };
        let (label, is_news) = self.sweeper.labels.need(place, to)?;
        match label.take_in(frame, comes, self.facts).ok()? {
            Lack::Nothing => {}
            // It does not matter as long as nothing follows from such an address: see `Sweep::note_use`.
            Lack::Minor => self.lacks = true,
            Lack::Major => self.is_again = true,
        }
        self.is_again |= is_news;
        Some(())
    }
}

/// Where the instructions begin that lead in a straight line to one.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// As far as is looked back.
    start: u64,
    /// Where the next ones begin.
    next: u64,
    /// How many there are of these.
    count: usize,
}

impl Line {
    fn new(start: u64) -> Line {
        Line {
            start,
            next: start,
            count: 0,
        }
    }

    /// Goes on to an instruction; where the line begins that leads there.
    #[inline]
    fn go_on(&mut self, at: u64) -> u64 {
        if self.count == LINE {
            (self.start, self.next, self.count) = (self.next, at, 0);
        }
        self.count += 1;
        self.start
    }
}
