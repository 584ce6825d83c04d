//! One look at each instruction of a unit, in the order of the code, that shows that what a table claims holds everywhere.
//!
//! What is claimed holds everywhere if it holds at the entry, and each instruction hands it on to whatever comes behind it: no path need be
//! followed. So where paths meet just what is claimed there is kept of a [`VerifierState`], and addresses of the stack that are the same on all;
//! each way there must bring that along. A jump from behind that does not has all be looked at again, with less taken for certain.
//!
//! This is what most units take. What a frame does not tell, and whatever does not show at a glance, is left to
//! [`Analyzer`](crate::Analyzer), which finds what holds and not only whether it does.

use core::ops::Range;

use crate::arch::{AbiInfo, FastInsn, Lifter};
use crate::code::LiftedCode;
use crate::dataflow::Landing;
use crate::op::{BranchEdge, Flow, Op};
use crate::program::{CodeImage, ExtentKind, ProgramCode, ReturnBehavior};
use crate::state::AbstractState;
use crate::transfer::{BranchFact, TransferFunction};
use crate::value::{AbstractValue, JumpTable, ValueFact};

mod join_points;
pub mod state;

use join_points::{JoinPoints, Reachability, UnitRange};
use state::{OutsideDomain, PrecisionLoss, RegisterContents, VerifierState};

/// What is claimed before instructions one after another.
#[derive(Debug, Clone, Copy)]
pub struct Annotation {
    /// What must be known.
    pub frame: VerifierState,
    /// [`VerifierState::lowest`] of that.
    pub lowest: i16,
    /// Where the next claim begins, or nothing is claimed.
    pub end: u64,
    /// How many bytes of arguments the unwinder takes off the stack when an exception lands.
    pub args_size: i32,
}

impl Annotation {
    const NONE: Annotation = Annotation {
        frame: VerifierState::UNKNOWN,
        lowest: 0,
        end: 0,
        args_size: 0,
    };
}

/// What is claimed of a unit.
pub trait Annotations {
    /// Goes to what is claimed from an address on, of a range that ends at `end`. `None` if nothing is, or no frame tells it.
    fn seek(&mut self, address: u64, end: u64) -> Option<Annotation>;

    /// Is told that what is claimed holds before an instruction.
    fn confirm(&mut self);

    /// Is told that something is stored around an address of the stack of which it is assumed that it is inside its array.
    fn note_bounds_assumption(&mut self);

    /// Is told that control returns from an address, with all as it was at entry, and how many bytes of arguments are popped.
    fn note_return(&mut self, from: u64, pops: u16);
}

/// So many times all is looked at before a unit is given up.
const MAX_PASSES: usize = 6;

/// So many entries of jump tables are followed for each byte of a unit, and so many of the smallest.
const MAX_TABLE_ENTRIES_PER_BYTE: u64 = 4;
const MIN_TABLE_ENTRIES: u64 = 1 << 12;

/// So many addresses are kept that registers may hold.
const MAX_TRACKED_ADDRESSES: usize = 256;

/// At least so many instructions before one of which more must be known are looked at for that, beside those that leave frames as they are.
const MIN_LOOKBACK_INSNS: usize = 32;

/// Looks at units; keeps its room from one to the next.
#[derive(Debug)]
pub struct Verifier {
    machine: Lifter,
    semantics: TransferFunction,
    labels: JoinPoints,
    /// What an instruction does.
    ops: Vec<Op>,
    /// The instructions of a straight line of which more must be known.
    line: LiftedCode,
    /// Addresses that registers may hold.
    addresses: Vec<u64>,
}

impl Verifier {
    /// One for a machine.
    #[must_use]
    pub fn new(machine: Lifter) -> Verifier {
        Verifier {
            semantics: TransferFunction::new(machine.abi_info()),
            machine,
            labels: JoinPoints::default(),
            ops: Vec::new(),
            line: LiftedCode::default(),
            addresses: Vec::new(),
        }
    }

    /// Whether all that is claimed of a unit of a program shows to hold. `landings` must be in the order of their starts.
    pub fn verify(
        &mut self,
        program: &ProgramCode,
        image: &(impl CodeImage + ?Sized),
        unit: usize,
        landings: &[Landing],
        claims: &mut impl Annotations,
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
        let mut sweep = Verification {
            table_entry_budget: bytes
                .saturating_mul(MAX_TABLE_ENTRIES_PER_BYTE)
                .max(MIN_TABLE_ENTRIES),
            facts: self.semantics.facts,
            sweeper: self,
            program,
            image,
            unit,
            landings,
            annotations: claims,
            annotation: Annotation::NONE,
            must_repeat: false,
            must_recheck: true,
            used_stack_address: false,
            lost_stack_address: false,
            tracks_image_addresses: false,
            needs_image_address: false,
        };
        for _ in 0..MAX_PASSES {
            (sweep.must_repeat, sweep.lost_stack_address) = (false, false);
            let before = sweep.sweeper.labels.reached_count();
            if sweep.verify_unit().is_none() {
                if !sweep.needs_image_address || sweep.tracks_image_addresses {
                    return false;
                }
                sweep.tracks_image_addresses = true;
                sweep.sweeper.begin(program, unit, landings);
                continue;
            }
            let labels = &mut sweep.sweeper.labels;
            let are_sound = labels.are_verified();
            let is_again =
                sweep.must_repeat || sweep.lost_stack_address && sweep.used_stack_address;
            if !is_again && (are_sound || labels.reached_count() == before) {
                return are_sound;
            }
            labels.start_pass();
        }
        false
    }

    /// Finds what must be known to be come to before it is looked at.
    fn begin(&mut self, program: &ProgramCode, unit: usize, landings: &[Landing]) {
        let extents = program.unit(unit);
        self.addresses.clear();
        self.labels
            .reset(extents.map(|extent| extent.start..extent.end));
        for head in program.backward_targets(unit) {
            self.labels.add(head);
        }
        for landing in landings {
            self.labels.add(landing.pad);
        }
    }

    /// What is known behind instructions of a straight line, whatever holds before them but for addresses that registers hold behind them.
    fn state_after_line(&self, address_in: impl Fn(u8) -> Option<u64>) -> AbstractState {
        let semantics = self.semantics;
        let sp = semantics.facts.stack_pointer;
        let ops = self.line.ids().flat_map(|insn| self.line.ops_of(insn));
        let written = ops.fold(0, |all, op| all | op.written(sp));
        let mut state = AbstractState::new();
        for register in 0..=semantics.facts.return_address {
            let address = address_in(register).filter(|_| written >> register & 1 == 0);
            state.set(
                register,
                address.map_or(AbstractValue::UNKNOWN, AbstractValue::constant),
            );
        }
        for insn in self.line.ids() {
            for (at, op) in (0..).zip(self.line.ops_of(insn)) {
                semantics.transfer(&mut state, *op, at);
            }
            match self.line.flow(insn) {
                Some(Flow::Call(_) | Flow::IndirectCall) => {
                    semantics.transfer_call(&mut state, None);
                }
                Some(Flow::Branch { test, .. }) => {
                    if let BranchFact::RegisterIs(register, value) =
                        semantics.branch_fact(&state, test, BranchEdge::FallThrough)
                    {
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
    fn origin_in_line(&self, register: u8) -> (bool, bool) {
        let sp = self.semantics.facts.stack_pointer;
        let bit = |register: u8| 1_u64 << (register & 63);
        let ops = self.line.ids().flat_map(|insn| self.line.ops_of(insn));
        let (mut written, mut found) = (0_u64, 0_u64);
        for op in ops {
            let is_found = |from: u8| found & bit(from) != 0;
            written |= op.written(sp);
            found = match *op {
                Op::LoadIndexed { to, .. } | Op::LoadSum { to, .. } => found | bit(to),
                Op::Sum { to, a, b } if is_found(a) || is_found(b) => found | bit(to),
                Op::Add { to, from, .. } if is_found(from) => found | bit(to),
                op => found & !op.written(sp),
            };
        }
        (written & bit(register) != 0, found & bit(register) != 0)
    }
}

/// The work on one unit. What yields `None` gives it up.
struct Verification<'a, I: ?Sized, C> {
    sweeper: &'a mut Verifier,
    facts: &'static AbiInfo,
    program: &'a ProgramCode,
    image: &'a I,
    unit: usize,
    landings: &'a [Landing],
    annotations: &'a mut C,
    /// What is claimed.
    annotation: Annotation,
    /// Whether less holds somewhere than what was taken for certain.
    must_repeat: bool,
    /// Whether what is claimed, or what holds, is not what it was when it was asked whether the one follows from the other.
    must_recheck: bool,
    /// Whether something depends on an address of the stack in another register than those that point at frames.
    used_stack_address: bool,
    /// Whether such an address was taken for certain that is not.
    lost_stack_address: bool,
    /// Whether it is kept which registers hold addresses of the image: of jump tables that are far from the jump.
    tracks_image_addresses: bool,
    /// Whether such an address must be known.
    needs_image_address: bool,
    /// How many more entries of jump tables are followed before the unit is given up.
    table_entry_budget: u64,
}

/// An instruction, and the straight line that leads to it.
#[derive(Debug, Clone, Copy)]
struct InsnContext {
    /// Its first address.
    start: u64,
    /// One past its last.
    end: u64,
    /// Where a line begins that is as long as one must be, or as far as there is one.
    line: u64,
    /// Whether control comes to it.
    reachability: Reachability,
}

impl<I: CodeImage + ?Sized, C: Annotations> Verification<'_, I, C> {
    fn verify_unit(&mut self) -> Option<()> {
        let entry = VerifierState::entry(self.facts);
        // What functions have elsewhere comes behind them: by then it is known with what they jump there.
        for part in [ExtentKind::Function, ExtentKind::Fragment] {
            for extent in self.program.unit(self.unit) {
                if extent.kind != part {
                    continue;
                }
                let range = extent.start..extent.end;
                let start = (part == ExtentKind::Function).then_some(extent.start);
                let entries = self.program.extra_entries_in(range).iter().copied();
                let here = self.sweeper.labels.range_containing(extent.start)?.clone();
                for address in start.into_iter().chain(entries) {
                    self.flow_into(address, &here, &entry, Reachability::Certain)?;
                }
                let mut ops = core::mem::take(&mut self.sweeper.ops);
                let looked = self.verify_range(here, &mut ops);
                self.sweeper.ops = ops;
                looked?;
            }
        }
        Some(())
    }

    /// Looks at a range of code.
    fn verify_range(&mut self, mut here: UnitRange, ops: &mut Vec<Op>) -> Option<()> {
        let Range { start, end } = here.range;
        // A glance takes more than an instruction has.
        let bytes = self.image.bytes_from(start)?;
        let length = usize::try_from(end - start).ok()?;
        let code = bytes.get(..length)?;
        let mut frame = VerifierState::entry(self.facts);
        let mut line = StraightLine::new(start);
        let mut comes = Reachability::Unreachable;
        let mut is_call = false;
        let mut next = 0;
        self.annotation.end = start;
        while next < length {
            let offset = next;
            let address = start + offset as u64;
            let rest = bytes.get(offset..)?;
            let glance = self.sweeper.machine.fast_decode(rest);
            let glance = glance
                .filter(|glance| !self.tracks_image_addresses || !glance.takes_relative_address());
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
            (address <= self.annotation.end).then_some(())?;
            if address == self.annotation.end {
                self.annotation = self.annotations.seek(address, end)?;
                self.must_recheck = true;
            }
            if let Some(label) = self.sweeper.labels.get_mut(here.byte_offset + offset) {
                comes = label.enter(&mut frame, comes, &self.annotation.frame, self.facts)?;
                self.must_recheck = true;
                line = StraightLine::new(address);
            } else if comes == Reachability::Unreachable {
                // Nothing leads there.
                is_padding.then_some(())?;
                continue;
            }
            if self.must_recheck {
                self.check_annotation(&frame)?;
                self.annotations.confirm();
                self.must_recheck = false;
            }
            is_call = false;
            if let Some(glance) = &glance
                && !self.tracks_image_addresses
                && glance.preserves(&frame)
            {
                let claimed = usize::try_from(self.annotation.end.min(end) - start).ok()?;
                next += self.skip(bytes, next..claimed, here.byte_offset, &frame);
                continue;
            }
            let at = InsnContext {
                start: address,
                end: start + next as u64,
                line: line.advance(address),
                reachability: comes,
            };
            let flow = match &glance {
                Some(glance) if self.transfer_fast(glance, &mut frame)? => glance.flow(address),
                known => {
                    if known.is_some() {
                        let rest = code.get(offset..)?;
                        decoded = self.sweeper.machine.decode(rest, address, ops)?.flow;
                    }
                    self.transfer(ops, at, &mut frame)?;
                    decoded
                }
            };
            if let Some(flow) = flow {
                here.verified_until = at.end;
                is_call = matches!(flow, Flow::Call(_) | Flow::IndirectCall);
                comes = self.transfer_control(flow, at, &here, &mut frame)?;
            }
        }
        self.sweeper.labels.finish(start);
        // Who calls at the end does not know that it never comes back, or that is all there is.
        let ends = is_call && !self.sweeper.labels.contains(end);
        (comes == Reachability::Unreachable || ends).then_some(())
    }

    /// Goes on to the first of those instructions of a range of `bytes` that is not known to leave the frame as it is, or that is jumped
    /// to; how far that is. `first` is the place of the first byte's label.
    #[inline(never)]
    fn skip(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        first: usize,
        frame: &VerifierState,
    ) -> usize {
        let Verifier {
            machine, labels, ..
        } = &*self.sweeper;
        let mut at = range.start;
        while !labels.is_join_point(first + at)
            && let Some(glance) = bytes.get(at..).and_then(|rest| machine.fast_decode(rest))
            && glance.preserves(frame)
            && at + glance.length() <= range.end
        {
            at += glance.length();
        }
        at - range.start
    }

    /// Does what an instruction does, if a glance tells that; whether it does.
    #[inline(always)]
    fn transfer_fast(&mut self, glance: &FastInsn<'_>, frame: &mut VerifierState) -> Option<bool> {
        let mut is_beyond = false;
        let is_told = glance.emit_ops(|op| {
            self.note_stack_use(op, frame);
            match frame.transfer(op, self.facts) {
                Ok(is_changed) => self.must_recheck |= is_changed,
                Err(OutsideDomain) => is_beyond = true,
            }
        });
        (!is_beyond).then_some(is_told)
    }

    /// Notes whether an operation depends on an address of the stack in another register than those that point at frames.
    #[inline(always)]
    fn note_stack_use(&mut self, op: Op, frame: &VerifierState) {
        if let Op::OverwriteIndexed { base, .. } | Op::StoreIndexed { base, .. } = op {
            if base == self.facts.stack_pointer || frame.holds_stack_address(base) {
                self.annotations.note_bounds_assumption();
            }
            return;
        }
        let base = match op {
            Op::Add { to, from, .. } if self.facts.points_at_frames(to) => from,
            Op::Load { to, base, .. } if frame.has_saved(to) => base,
            Op::Store { base, .. }
            | Op::StoreLow { base, .. }
            | Op::Overwrite { base, .. }
            | Op::WeakOverwrite { base, .. }
            | Op::StoreUntracked { base, .. }
            | Op::InvertMemory { base, .. }
            | Op::Fill { base, .. } => base,
            _ => return,
        };
        if !self.facts.points_at_frames(base) && frame.holds_stack_address(base) {
            self.used_stack_address = true;
        }
    }

    /// The number of an address among those that frames know; `None` if there are too many.
    fn address_number(&mut self, address: u64) -> Option<usize> {
        let addresses = &mut self.sweeper.addresses;
        let known = addresses.iter().position(|known| *known == address);
        if known.is_none() && addresses.len() < MAX_TRACKED_ADDRESSES {
            addresses.push(address);
            return Some(addresses.len() - 1);
        }
        known
    }

    /// Does what an instruction does.
    fn transfer(&mut self, ops: &[Op], at: InsnContext, frame: &mut VerifierState) -> Option<()> {
        for op in ops {
            self.note_stack_use(*op, frame);
            match frame.transfer(*op, self.facts) {
                Ok(is_changed) => self.must_recheck |= is_changed,
                Err(OutsideDomain) => {
                    self.transfer_by_constants(*op, at, frame)?;
                    self.must_recheck = true;
                }
            }
            if let Op::Address { to, value } = *op
                && self.tracks_image_addresses
                && let Some(number) = self.address_number(value)
            {
                frame.set_image_address(to, number);
            }
        }
        Some(())
    }

    /// Whether what is claimed holds.
    #[inline]
    fn check_annotation(&self, frame: &VerifierState) -> Option<()> {
        // A signal's frame may be written over what is so far below the stack pointer.
        let is_for_signals = match frame.get(self.facts.stack_pointer) {
            RegisterContents::StackAddress(top) => {
                i32::from(self.annotation.lowest) < i32::from(top) - self.facts.red_zone
            }
            RegisterContents::EntryValue | RegisterContents::Other => false,
        };
        let holds = frame.implies(&self.annotation.frame) && !is_for_signals;
        holds.then_some(())
    }

    /// Looks at where control goes from an instruction of a range; whether it goes on behind it.
    fn transfer_control(
        &mut self,
        flow: Flow,
        at: InsnContext,
        here: &UnitRange,
        frame: &mut VerifierState,
    ) -> Option<Reachability> {
        Some(match flow {
            Flow::Jump(to) => {
                self.jump(to, at, here, frame)?;
                Reachability::Unreachable
            }
            Flow::Branch { to, .. } => {
                self.jump(to, at, here, frame)?;
                at.reachability
            }
            Flow::Call(_) | Flow::IndirectCall => self.call(flow, at, here, frame)?,
            Flow::IndirectJump(_) => {
                self.indirect_jump(at, here, frame)?;
                Reachability::Unreachable
            }
            Flow::Return { pops } => {
                frame.is_as_at_entry(self.facts).then_some(())?;
                self.annotations.note_return(at.start, pops);
                Reachability::Unreachable
            }
            Flow::Trap => Reachability::Unreachable,
        })
    }

    fn jump(
        &mut self,
        to: u64,
        at: InsnContext,
        here: &UnitRange,
        frame: &VerifierState,
    ) -> Option<()> {
        // Elsewhere it may be a call of its own.
        let is_call = || !self.sweeper.labels.contains(to) || self.program.is_call_target(to);
        match !here.range.contains(&to) && is_call() {
            true => Some(()),
            false => self.flow_into(to, here, frame, at.reachability),
        }
    }

    fn call(
        &mut self,
        flow: Flow,
        at: InsnContext,
        here: &UnitRange,
        frame: &mut VerifierState,
    ) -> Option<Reachability> {
        let returns = match flow {
            Flow::Call(to) => match self.program.returns(to) {
                None if !self.program.is_extra_entry(to) && self.sweeper.labels.contains(to) => {
                    return None;
                }
                returns => returns,
            },
            _ => None,
        };
        let pops = match returns {
            Some(ReturnBehavior::Pops(pops)) => pops,
            None | Some(ReturnBehavior::PreservesExtra(_) | ReturnBehavior::Never) => 0,
            Some(ReturnBehavior::LeavesWords(_) | ReturnBehavior::SkipsData(_)) => return None,
        };
        frame.transfer_call(self.facts).ok()?;
        // While the callee runs, what is claimed at the call is asked for, too.
        self.check_annotation(frame)?;
        if let Some(pad) = Landing::pad_of(self.landings, at.start)
            && self.sweeper.labels.contains(pad)
        {
            let mut landed = *frame;
            landed
                .pop_arguments(self.annotation.args_size, self.facts)
                .ok()?;
            self.flow_into(pad, here, &landed, at.reachability)?;
        }
        if pops != 0 {
            frame.pop_arguments(pops.into(), self.facts).ok()?;
            self.must_recheck = true;
        }
        Some(match returns {
            Some(ReturnBehavior::Never) => Reachability::Unreachable,
            _ => at.reachability,
        })
    }

    /// Follows a jump to where no number says: through a table, or out of the function as a call of its own would be.
    fn indirect_jump(
        &mut self,
        at: InsnContext,
        here: &UnitRange,
        frame: &VerifierState,
    ) -> Option<()> {
        self.decode_line(at.line..at.end)?;
        let last = self.sweeper.line.ids().last()?;
        let Some(Flow::IndirectJump(register)) = self.sweeper.line.flow(last) else {
            return None;
        };
        let target = self.sweeper.state_after_line(|register| {
            let number = frame.image_address(register)?;
            self.sweeper.addresses.get(number).copied()
        });
        let target = target.get(register);
        match target.fact() {
            ValueFact::Constant(to) => return self.jump(to, at, here, frame),
            // A pointer, mostly to a function elsewhere.
            ValueFact::TableTarget(table) if table.max_index == Some(0) => {
                let to = self.program.jump_table_targets(table, self.image).next();
                if let Some(to) = to.filter(|to| self.sweeper.labels.contains(*to)) {
                    return self.jump(to, at, here, frame);
                }
            }
            ValueFact::TableTarget(table) => return self.table_jump(table, at, here, frame),
            _ => {}
        }
        let is_as_called = frame.is_stack_pointer_at_entry(self.facts);
        let (is_known, is_by_table) = self.sweeper.origin_in_line(register);
        self.needs_image_address = is_by_table;
        (is_as_called && is_known && !is_by_table).then_some(())
    }

    /// Follows a jump through a table.
    fn table_jump(
        &mut self,
        table: JumpTable,
        at: InsnContext,
        here: &UnitRange,
        frame: &VerifierState,
    ) -> Option<()> {
        self.used_stack_address |= self.tracks_image_addresses;
        let mut is_followed = false;
        for to in self.program.jump_table_targets(table, self.image) {
            self.table_entry_budget = self.table_entry_budget.checked_sub(1)?;
            match self.sweeper.labels.contains(to) {
                true => {
                    self.flow_into(to, here, frame, at.reachability)?;
                    is_followed = true;
                }
                // What cannot be leads to the end of the function.
                false if self.sweeper.labels.has_end(to) => {}
                // The table is not as long as its index may be great.
                false if table.max_index.is_none() => break,
                false => return None,
            }
        }
        is_followed.then_some(())
    }

    /// Does what an operation does that no frame tells, but that a number says.
    fn transfer_by_constants(
        &mut self,
        op: Op,
        at: InsnContext,
        frame: &mut VerifierState,
    ) -> Option<()> {
        match op {
            Op::Fill {
                base,
                count: Some(count),
                size,
            } => {
                // How much is filled that no number says is a program's array.
                let count = self.constant_before(count, at)?;
                if count.is_none() {
                    self.annotations.note_bounds_assumption();
                }
                if let Some(count) = count {
                    let size = u16::try_from(count.checked_mul(size.into())?).ok()?;
                    let offset = 0;
                    let filled = Op::Overwrite { base, offset, size };
                    frame.transfer(filled, self.facts).ok()?;
                }
                Some(())
            }
            Op::SystemCall { number } => {
                let number = self.constant_before(number?, at)??;
                let AbiInfo {
                    stack_switching_syscalls: new_stack,
                    stack_sharing_syscalls: shared_stack,
                    ..
                } = self.facts;
                let mut are_other = new_stack.iter().chain(*shared_stack);
                are_other.all(|other| *other != number).then_some(())
            }
            _ => None,
        }
    }

    /// The number that a register holds before an instruction, if the line that leads there says so.
    fn constant_before(&mut self, register: u8, at: InsnContext) -> Option<Option<u64>> {
        self.decode_line(at.line..at.start)?;
        let state = self.sweeper.state_after_line(|_| None);
        Some(state.get(register).as_constant())
    }

    /// Decodes a straight line.
    fn decode_line(&mut self, range: Range<u64>) -> Option<()> {
        let bytes = self.image.bytes(range.clone())?;
        let Verifier { machine, line, .. } = &mut *self.sweeper;
        line.clear();
        machine.lift(bytes, range.start, line);
        Some(())
    }

    /// Lets a frame arrive at an address by a jump from a range.
    fn flow_into(
        &mut self,
        to: u64,
        here: &UnitRange,
        frame: &VerifierState,
        comes: Reachability,
    ) -> Option<()> {
        let there;
        let place = match here.range.contains(&to) {
            true => here,
            false => {
                there = self.sweeper.labels.range_containing(to)?.clone();
                &there
            }
        };
        let (label, is_news) = self.sweeper.labels.get_or_insert(place, to)?;
        match label.join(frame, comes, self.facts).ok()? {
            PrecisionLoss::None => {}
            // It does not matter as long as nothing follows from such an address: see `Verification::note_stack_use`.
            PrecisionLoss::StackAddresses => self.lost_stack_address = true,
            PrecisionLoss::Essential => self.must_repeat = true,
        }
        self.must_repeat |= is_news;
        Some(())
    }
}

/// Where the instructions begin that lead in a straight line to one.
#[derive(Debug, Clone, Copy)]
struct StraightLine {
    /// As far as is looked back.
    start: u64,
    /// Where the next ones begin.
    next: u64,
    /// How many there are of these.
    count: usize,
}

impl StraightLine {
    fn new(start: u64) -> StraightLine {
        StraightLine {
            start,
            next: start,
            count: 0,
        }
    }

    /// Goes on to an instruction; where the line begins that leads there.
    #[inline]
    fn advance(&mut self, at: u64) -> u64 {
        if self.count == MIN_LOOKBACK_INSNS {
            (self.start, self.next, self.count) = (self.next, at, 0);
        }
        self.count += 1;
        self.start
    }
}
