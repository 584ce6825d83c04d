//! A verifier of annotations: one pass over a unit's instructions, in code order, that proves a
//! table's rows.
//!
//! The rows are annotations. They hold everywhere if they hold at the entry and each instruction
//! preserves them for its successors; no path is followed. At a join, a [`VerifierState`] keeps
//! only the annotated facts, and stack addresses that are the same on all edges. Each edge must
//! supply them. If a back edge does not, another pass runs with weaker assumptions.
//!
//! Most units pass. A unit that this small domain or fast decoding cannot prove goes to the
//! dataflow analysis, [`Analyzer`](crate::Analyzer). It computes what holds, not only whether the
//! rows do.

use core::ops::Range;
use std::collections::BTreeMap;

use crate::arch::{AbiInfo, DecodedInsn, FastInsn, Lifter};
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

/// The annotation of consecutive instructions.
#[derive(Debug, Clone, Copy)]
pub struct Annotation {
    /// The state that must hold.
    pub state: VerifierState,
    /// [`VerifierState::lowest_saved_slot`] of that state.
    pub lowest: i16,
    /// End of the annotated range: another annotation begins, or none.
    pub end: u64,
    /// Bytes of arguments that the unwinder pops before it enters a landing pad.
    pub args_size: i32,
}

impl Annotation {
    const NONE: Annotation = Annotation {
        state: VerifierState::UNKNOWN,
        lowest: 0,
        end: 0,
        args_size: 0,
    };
}

/// The annotations of a unit.
pub trait Annotations {
    /// Seeks to the annotation at an address in a range that ends at `end`. `None` if there is
    /// none, or if a verifier state cannot express it.
    fn seek(&mut self, address: u64, end: u64) -> Option<Annotation>;

    /// Notes that the annotation holds before an instruction.
    fn confirm(&mut self);

    /// Notes that a store around a stack address is assumed to stay inside its array.
    fn note_bounds_assumption(&mut self);

    /// Notes a return at an address with everything as at entry, and the number of argument bytes
    /// popped.
    fn note_return(&mut self, from: u64, pops: u16);
}

/// Why the verifier gives a unit up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RejectReason {
    /// Code is outside of the image.
    OutsideImage,
    /// Control goes to an address outside of the unit that may not be a function.
    OutsideUnit,
    /// An instruction cannot be decoded, or is longer than its range.
    Undecodable,
    /// There is no annotation, or a verifier state cannot express it.
    NoAnnotation,
    /// An annotation begins inside an instruction.
    MisalignedAnnotation,
    /// An annotation does not hold, or not while a signal handler runs.
    AnnotationFails,
    /// A verifier state cannot express an operation, or a join.
    OutsideDomain,
    /// No path leads to code that is not padding.
    Unreachable,
    /// A range may be left at its end.
    FallsThroughEnd,
    /// A function returns in another state than it was entered in.
    ReturnState,
    /// An address in the unit is called that is not a function.
    CallInsideUnit,
    /// A callee leaves words on the stack, or skips data after the call.
    UnusualCallee,
    /// An instruction has unknown control flow.
    UnknownFlow,
    /// The target of an indirect jump is unknown, and it may not be a tail call.
    UnknownTarget,
    /// Entries of a jump table lead elsewhere, or there are too many.
    JumpTable,
    /// A system call may return on another stack, or is unknown.
    SystemCall,
    /// Control is assumed to reach a join point, or reaches the inside of an instruction.
    UnprovenJoinPoint,
    /// The assumptions about join points were weakened too often.
    TooManyPasses,
}

impl From<OutsideDomain> for RejectReason {
    fn from(OutsideDomain: OutsideDomain) -> RejectReason {
        RejectReason::OutsideDomain
    }
}

/// Gives a unit up unless a condition holds.
#[inline(always)]
fn require(holds: bool, reason: RejectReason) -> Result<(), RejectReason> {
    if holds { Ok(()) } else { Err(reason) }
}

/// Passes before a unit is given up.
const MAX_PASSES: usize = 6;

/// Jump table entries followed for each byte of a unit. The smallest units have this many in total.
const MAX_TABLE_ENTRIES_PER_BYTE: u64 = 4;
const MIN_TABLE_ENTRIES: u64 = 1 << 12;

/// Greatest number of image addresses tracked in registers.
const MAX_TRACKED_ADDRESSES: usize = 256;

/// Least number of instructions read again where more must be known, beside those that preserve all
/// states.
const MIN_LOOKBACK_INSNS: usize = 32;

/// Verifies units; keeps its memory from one to the next.
#[derive(Debug)]
pub struct Verifier {
    lifter: Lifter,
    transfer_function: TransferFunction,
    join_points: JoinPoints,
    /// Operations of an instruction.
    ops: Vec<Op>,
    /// The instructions of a straight line that is read again.
    line: LiftedCode,
    /// Image addresses in registers.
    addresses: Vec<u64>,
    /// The units given up, by reason.
    rejections: BTreeMap<RejectReason, u64>,
}

impl Verifier {
    /// A verifier for an architecture.
    #[must_use]
    pub fn new(lifter: Lifter) -> Verifier {
        Verifier {
            transfer_function: TransferFunction::new(lifter.abi_info()),
            lifter,
            join_points: JoinPoints::default(),
            ops: Vec::new(),
            line: LiftedCode::default(),
            addresses: Vec::new(),
            rejections: BTreeMap::new(),
        }
    }

    /// Number of units that it gave up, by reason.
    #[must_use]
    pub fn rejections(&self) -> &BTreeMap<RejectReason, u64> {
        &self.rejections
    }

    /// Proves all annotations of a unit of a program. `landings` must be in the order of their
    /// starts.
    ///
    /// # Errors
    ///
    /// Why the unit is given up; nothing is then said about its annotations.
    pub fn verify(
        &mut self,
        program: &ProgramCode,
        image: &(impl CodeImage + ?Sized),
        unit: usize,
        landings: &[Landing],
        annotations: &mut impl Annotations,
    ) -> Result<(), RejectReason> {
        let verified = self.verify_in_passes(program, image, unit, landings, annotations);
        verified.inspect_err(|reason| *self.rejections.entry(*reason).or_default() += 1)
    }

    fn verify_in_passes(
        &mut self,
        program: &ProgramCode,
        image: &(impl CodeImage + ?Sized),
        unit: usize,
        landings: &[Landing],
        annotations: &mut impl Annotations,
    ) -> Result<(), RejectReason> {
        // An entry may declare more code than there is.
        let lengths = program.unit(unit).map(|extent| {
            let bytes = image.bytes(extent.start..extent.end)?;
            u64::try_from(bytes.len()).ok()
        });
        let bytes = lengths.sum::<Option<u64>>();
        let bytes = bytes.ok_or(RejectReason::OutsideImage)?;
        self.begin(program, unit, landings);
        let mut verification = Verification {
            table_entry_budget: bytes
                .saturating_mul(MAX_TABLE_ENTRIES_PER_BYTE)
                .max(MIN_TABLE_ENTRIES),
            abi_info: self.transfer_function.abi_info,
            verifier: self,
            program,
            image,
            unit,
            landings,
            annotations,
            annotation: Annotation::NONE,
            must_repeat: false,
            must_recheck: true,
            used_stack_address: false,
            lost_stack_address: false,
            tracks_image_addresses: false,
            needs_image_address: false,
        };
        for _ in 0..MAX_PASSES {
            (verification.must_repeat, verification.lost_stack_address) = (false, false);
            let before = verification.verifier.join_points.reached_count();
            if let Err(reason) = verification.verify_unit() {
                if !verification.needs_image_address || verification.tracks_image_addresses {
                    return Err(reason);
                }
                verification.tracks_image_addresses = true;
                verification.verifier.begin(program, unit, landings);
                continue;
            }
            let labels = &mut verification.verifier.join_points;
            let are_sound = labels.are_verified();
            let is_again = verification.must_repeat
                || verification.lost_stack_address && verification.used_stack_address;
            if !is_again && (are_sound || labels.reached_count() == before) {
                return require(are_sound, RejectReason::UnprovenJoinPoint);
            }
            labels.start_pass();
        }
        Err(RejectReason::TooManyPasses)
    }

    /// Collects the unit's join points that are known in advance.
    fn begin(&mut self, program: &ProgramCode, unit: usize, landings: &[Landing]) {
        let extents = program.unit(unit);
        self.addresses.clear();
        self.join_points
            .reset(extents.map(|extent| extent.start..extent.end));
        for head in program.backward_targets(unit) {
            self.join_points.add(head);
        }
        for landing in landings {
            self.join_points.add(landing.pad);
        }
    }

    /// The state behind a straight line, for any state before it, except that registers hold the
    /// given addresses behind it.
    fn state_after_line(&self, address_in: impl Fn(u8) -> Option<u64>) -> AbstractState {
        let semantics = self.transfer_function;
        let sp = semantics.abi_info.stack_pointer;
        let ops = self.line.ids().flat_map(|insn| self.line.ops_of(insn));
        let written = ops.fold(0, |all, op| all | op.written(sp));
        let mut state = AbstractState::new();
        for register in 0..=semantics.abi_info.return_address {
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
                Some(Flow::Call(_) | Flow::IndirectCall(_)) => {
                    semantics.transfer_call(&mut state, None);
                }
                Some(Flow::Branch {
                    condition: test, ..
                }) => {
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

    /// Whether a straight line shows the origin of a register's contents. The second result says
    /// whether that is a load from a table, or an address relative to such an entry.
    fn origin_in_line(&self, register: u8) -> (bool, bool) {
        let sp = self.transfer_function.abi_info.stack_pointer;
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

/// The verification of one unit.
struct Verification<'a, I: ?Sized, C> {
    verifier: &'a mut Verifier,
    abi_info: &'static AbiInfo,
    program: &'a ProgramCode,
    image: &'a I,
    unit: usize,
    landings: &'a [Landing],
    annotations: &'a mut C,
    /// The current annotation.
    annotation: Annotation,
    /// Whether less holds somewhere than the pass assumed, so that another pass is needed.
    must_repeat: bool,
    /// Whether the annotation or the state has changed since the last check of one against the
    /// other.
    must_recheck: bool,
    /// Whether something depends on a stack address in a register other than the stack and frame
    /// pointers.
    used_stack_address: bool,
    /// Whether a stack address was assumed that does not hold.
    lost_stack_address: bool,
    /// Whether registers' image addresses are tracked: for jump tables far from the jump.
    tracks_image_addresses: bool,
    /// Whether such an address is needed.
    needs_image_address: bool,
    /// Jump table entries left before the unit is given up.
    table_entry_budget: u64,
}

/// An instruction and the straight line before it.
#[derive(Debug, Clone, Copy)]
struct InsnContext {
    /// Its first address.
    start: u64,
    /// One past its last.
    end: u64,
    /// Start of the line, at most the required length back.
    line: u64,
    /// Whether control reaches it.
    reachability: Reachability,
}

impl<I: CodeImage + ?Sized, C: Annotations> Verification<'_, I, C> {
    fn verify_unit(&mut self) -> Result<(), RejectReason> {
        let entry = VerifierState::entry(self.abi_info);
        // Fragments come last: the states that functions jump with are known by then.
        for part in [ExtentKind::Function, ExtentKind::Fragment] {
            for extent in self.program.unit(self.unit) {
                if extent.kind != part {
                    continue;
                }
                let range = extent.start..extent.end;
                let start = (part == ExtentKind::Function).then_some(extent.start);
                let entries = self.program.extra_entries_in(range).iter().copied();
                let here = self.range_containing(extent.start)?;
                for address in start.into_iter().chain(entries) {
                    self.flow_into(address, &here, &entry, Reachability::Certain)?;
                }
                let mut ops = core::mem::take(&mut self.verifier.ops);
                let looked = self.verify_range(here, &mut ops);
                self.verifier.ops = ops;
                looked?;
            }
        }
        Ok(())
    }

    fn range_containing(&self, address: u64) -> Result<UnitRange, RejectReason> {
        let range = self.verifier.join_points.range_containing(address);
        range.cloned().ok_or(RejectReason::OutsideUnit)
    }

    /// Verifies a range of code.
    fn verify_range(&mut self, mut here: UnitRange, ops: &mut Vec<Op>) -> Result<(), RejectReason> {
        let Range { start, end } = here.range;
        // Fast decoding needs a window larger than an instruction.
        let bytes = self.image.bytes_from(start);
        let bytes = bytes.ok_or(RejectReason::OutsideImage)?;
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        let code = bytes.get(..length).ok_or(RejectReason::OutsideImage)?;
        let mut frame = VerifierState::entry(self.abi_info);
        let mut line = StraightLine::new(start);
        let mut reachability = Reachability::Unreachable;
        let mut is_call = false;
        let mut next = 0;
        self.annotation.end = start;
        while next < length {
            let offset = next;
            let address = start + offset as u64;
            let rest = bytes.get(offset..).unwrap_or_default();
            let fast_insn = self.verifier.lifter.fast_decode(rest);
            let fast_insn = fast_insn.filter(|fast_insn| {
                !self.tracks_image_addresses || !fast_insn.takes_relative_address()
            });
            let mut decoded = None;
            let (size, is_padding) = match &fast_insn {
                Some(fast_insn) => (fast_insn.length(), fast_insn.is_padding()),
                None => {
                    let insn = self.decode(code, offset, address, ops)?;
                    decoded = insn.flow;
                    (insn.length, insn.is_padding)
                }
            };
            next = offset + size;
            require(next <= length, RejectReason::Undecodable)?;
            require(
                address <= self.annotation.end,
                RejectReason::MisalignedAnnotation,
            )?;
            if address == self.annotation.end {
                let annotation = self.annotations.seek(address, end);
                self.annotation = annotation.ok_or(RejectReason::NoAnnotation)?;
                self.must_recheck = true;
            }
            if let Some(label) = self.verifier.join_points.get_mut(here.byte_offset + offset) {
                reachability = label.enter(
                    &mut frame,
                    reachability,
                    &self.annotation.state,
                    self.abi_info,
                )?;
                self.must_recheck = true;
                line = StraightLine::new(address);
            } else if reachability == Reachability::Unreachable {
                require(is_padding, RejectReason::Unreachable)?;
                continue;
            }
            if self.must_recheck {
                self.check_annotation(&frame)?;
                self.annotations.confirm();
                self.must_recheck = false;
            }
            is_call = false;
            if let Some(fast_insn) = &fast_insn
                && !self.tracks_image_addresses
                && fast_insn.preserves(&frame)
            {
                let claimed = self.annotation.end.min(end) - start;
                let claimed = usize::try_from(claimed).unwrap_or(length);
                next += self.skip(bytes, next..claimed, here.byte_offset, &frame);
                continue;
            }
            let at = InsnContext {
                start: address,
                end: start + next as u64,
                line: line.advance(address),
                reachability,
            };
            let flow = match &fast_insn {
                Some(fast_insn) if self.transfer_fast(fast_insn, &mut frame)? => {
                    fast_insn.flow(address)
                }
                known => {
                    if known.is_some() {
                        decoded = self.decode(code, offset, address, ops)?.flow;
                    }
                    self.transfer(ops, at, &mut frame)?;
                    decoded
                }
            };
            if let Some(flow) = flow {
                here.verified_until = at.end;
                is_call = flow.is_call();
                reachability = self.transfer_control(flow, at, &here, &mut frame)?;
            }
        }
        self.verifier.join_points.finish(start);
        // The caller at the end does not know that its callee never returns, or the unit ends
        // there.
        let ends = is_call && !self.verifier.join_points.contains(end);
        let ends = ends || reachability == Reachability::Unreachable;
        require(ends, RejectReason::FallsThroughEnd)
    }

    /// Decodes the instruction at an offset of a range's code.
    fn decode(
        &mut self,
        code: &[u8],
        offset: usize,
        address: u64,
        ops: &mut Vec<Op>,
    ) -> Result<DecodedInsn, RejectReason> {
        let rest = code.get(offset..).unwrap_or_default();
        let insn = self.verifier.lifter.decode(rest, address, ops);
        insn.ok_or(RejectReason::Undecodable)
    }

    /// Skips to the first instruction of `bytes` that may change the state, or is a join point.
    /// Returns the distance. `first` is the index of the first byte's join point.
    #[inline(never)]
    fn skip(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        first: usize,
        state: &VerifierState,
    ) -> usize {
        let Verifier {
            lifter,
            join_points: labels,
            ..
        } = &*self.verifier;
        let mut at = range.start;
        while !labels.is_join_point(first + at)
            && let Some(insn) = bytes.get(at..).and_then(|rest| lifter.fast_decode(rest))
            && insn.preserves(state)
            && at + insn.length() <= range.end
        {
            at += insn.length();
        }
        at - range.start
    }

    /// Applies an instruction by fast decoding. Returns whether that was possible.
    #[inline(always)]
    fn transfer_fast(
        &mut self,
        insn: &FastInsn<'_>,
        state: &mut VerifierState,
    ) -> Result<bool, OutsideDomain> {
        let mut is_beyond = false;
        let is_complete = insn.emit_ops(|op| {
            self.note_stack_use(op, state);
            match state.transfer(op, self.abi_info) {
                Ok(is_changed) => self.must_recheck |= is_changed,
                Err(OutsideDomain) => is_beyond = true,
            }
        });
        if is_beyond {
            Err(OutsideDomain)
        } else {
            Ok(is_complete)
        }
    }

    /// Notes whether an operation depends on a stack address in a register other than the stack and
    /// frame pointers.
    #[inline(always)]
    fn note_stack_use(&mut self, op: Op, state: &VerifierState) {
        if let Op::OverwriteIndexed { base, .. } | Op::StoreIndexed { base, .. } = op {
            if base == self.abi_info.stack_pointer || state.holds_stack_address(base) {
                self.annotations.note_bounds_assumption();
            }
            return;
        }
        let base = match op {
            Op::Add { to, from, .. } if self.abi_info.points_at_frames(to) => from,
            Op::Load { to, base, .. } if state.has_saved(to) => base,
            Op::Store { base, .. }
            | Op::StoreLow { base, .. }
            | Op::Overwrite { base, .. }
            | Op::WeakOverwrite { base, .. }
            | Op::StoreUntracked { base, .. }
            | Op::Fill { base, .. } => base,
            _ => return,
        };
        if !self.abi_info.points_at_frames(base) && state.holds_stack_address(base) {
            self.used_stack_address = true;
        }
    }

    /// The number of an address among the tracked ones; `None` if there are too many.
    fn address_number(&mut self, address: u64) -> Option<usize> {
        let addresses = &mut self.verifier.addresses;
        let known = addresses.iter().position(|known| *known == address);
        if known.is_none() && addresses.len() < MAX_TRACKED_ADDRESSES {
            addresses.push(address);
            return Some(addresses.len() - 1);
        }
        known
    }

    /// Applies an instruction.
    fn transfer(
        &mut self,
        ops: &[Op],
        context: InsnContext,
        state: &mut VerifierState,
    ) -> Result<(), RejectReason> {
        for op in ops {
            self.note_stack_use(*op, state);
            match state.transfer(*op, self.abi_info) {
                Ok(is_changed) => self.must_recheck |= is_changed,
                Err(OutsideDomain) => {
                    self.transfer_by_constants(*op, context, state)?;
                    self.must_recheck = true;
                }
            }
            if let Op::Address { to, value } = *op
                && self.tracks_image_addresses
                && let Some(number) = self.address_number(value)
            {
                state.set_image_address(to, number);
            }
        }
        Ok(())
    }

    /// Checks the annotation.
    #[inline]
    fn check_annotation(&self, state: &VerifierState) -> Result<(), RejectReason> {
        // A signal frame may overwrite memory this far below the stack pointer.
        let is_for_signals = match state.get(self.abi_info.stack_pointer) {
            RegisterContents::StackAddress(top) => {
                i32::from(self.annotation.lowest) < i32::from(top) - self.abi_info.red_zone
            }
            RegisterContents::EntryValue | RegisterContents::Other => false,
        };
        let holds = state.implies(&self.annotation.state) && !is_for_signals;
        require(holds, RejectReason::AnnotationFails)
    }

    /// Follows the edges out of an instruction of a range. Returns whether it falls through.
    fn transfer_control(
        &mut self,
        flow: Flow,
        context: InsnContext,
        here: &UnitRange,
        state: &mut VerifierState,
    ) -> Result<Reachability, RejectReason> {
        Ok(match flow {
            Flow::Jump(to) => {
                self.jump(to, context, here, state)?;
                Reachability::Unreachable
            }
            Flow::Branch { to, .. } => {
                self.jump(to, context, here, state)?;
                context.reachability
            }
            Flow::Call(_) | Flow::IndirectCall(_) => self.call(flow, context, here, state)?,
            Flow::IndirectJump(_) => {
                self.indirect_jump(context, here, state)?;
                Reachability::Unreachable
            }
            Flow::Return { pops, .. } => {
                let is_restored = state.is_as_at_entry(self.abi_info);
                require(is_restored, RejectReason::ReturnState)?;
                self.annotations.note_return(context.start, pops);
                Reachability::Unreachable
            }
            Flow::Trap => Reachability::Unreachable,
            Flow::Resume(_) | Flow::Unknown => return Err(RejectReason::UnknownFlow),
        })
    }

    fn jump(
        &mut self,
        to: u64,
        context: InsnContext,
        here: &UnitRange,
        state: &VerifierState,
    ) -> Result<(), RejectReason> {
        // A jump elsewhere may be a tail call.
        let is_call = || !self.verifier.join_points.contains(to) || self.program.is_call_target(to);
        if !here.range.contains(&to) && is_call() {
            let returns = self.program.returns(to);
            let is_usual = !returns.is_some_and(ReturnBehavior::breaks_abi);
            require(is_usual, RejectReason::UnusualCallee)
        } else {
            self.flow_into(to, here, state, context.reachability)
        }
    }

    fn call(
        &mut self,
        flow: Flow,
        context: InsnContext,
        here: &UnitRange,
        state: &mut VerifierState,
    ) -> Result<Reachability, RejectReason> {
        let returns = match flow {
            Flow::Call(to) => match self.program.returns(to) {
                None if !self.program.is_extra_entry(to)
                    && self.verifier.join_points.contains(to) =>
                {
                    return Err(RejectReason::CallInsideUnit);
                }
                returns => returns,
            },
            _ => None,
        };
        let pops = match returns {
            Some(returns) if returns.breaks_abi() => return Err(RejectReason::UnusualCallee),
            Some(ReturnBehavior::Pops(pops)) => pops,
            _ => 0,
        };
        state.transfer_call(self.abi_info)?;
        // The annotation at the call must also hold while the callee runs.
        self.check_annotation(state)?;
        if let Some(pad) = Landing::pad_of(self.landings, context.start)
            && self.verifier.join_points.contains(pad)
        {
            let mut landed = *state;
            landed.pop_arguments(self.annotation.args_size, self.abi_info)?;
            self.flow_into(pad, here, &landed, context.reachability)?;
        }
        if pops != 0 {
            state.pop_arguments(pops.into(), self.abi_info)?;
            self.must_recheck = true;
        }
        Ok(match returns {
            Some(ReturnBehavior::Never) => Reachability::Unreachable,
            _ => context.reachability,
        })
    }

    /// Follows an indirect jump: through a table, or a tail call out of the function.
    fn indirect_jump(
        &mut self,
        context: InsnContext,
        here: &UnitRange,
        state: &VerifierState,
    ) -> Result<(), RejectReason> {
        self.decode_line(context.line..context.end)?;
        let line = &self.verifier.line;
        let flow = line.ids().last().and_then(|last| line.flow(last));
        let Some(Flow::IndirectJump(register)) = flow else {
            return Err(RejectReason::UnknownTarget);
        };
        let target = self.verifier.state_after_line(|register| {
            let number = state.image_address(register)?;
            self.verifier.addresses.get(number).copied()
        });
        let target = target.get(register);
        match target.fact() {
            ValueFact::Constant(to) => return self.jump(to, context, here, state),
            // A pointer, mostly to a function elsewhere.
            ValueFact::TableTarget(table) if table.max_index == Some(0) => {
                let to = self.program.jump_table_targets(table, self.image).next();
                if let Some(to) = to.filter(|to| self.verifier.join_points.contains(*to)) {
                    return self.jump(to, context, here, state);
                }
            }
            ValueFact::TableTarget(table) => return self.table_jump(table, context, here, state),
            _ => {}
        }
        let is_as_called = state.is_stack_pointer_at_entry(self.abi_info);
        let (is_known, is_by_table) = self.verifier.origin_in_line(register);
        self.needs_image_address = is_by_table;
        let is_tail_call = is_as_called && is_known && !is_by_table;
        require(is_tail_call, RejectReason::UnknownTarget)
    }

    /// Follows a jump through a table.
    fn table_jump(
        &mut self,
        table: JumpTable,
        context: InsnContext,
        here: &UnitRange,
        state: &VerifierState,
    ) -> Result<(), RejectReason> {
        self.used_stack_address |= self.tracks_image_addresses;
        let has_null = self.program.has_null_entries(table, self.image);
        require(!has_null, RejectReason::JumpTable)?;
        let mut is_followed = false;
        for to in self.program.jump_table_targets(table, self.image) {
            let budget = self.table_entry_budget.checked_sub(1);
            self.table_entry_budget = budget.ok_or(RejectReason::JumpTable)?;
            if self.verifier.join_points.contains(to) {
                self.flow_into(to, here, state, context.reachability)?;
                is_followed = true;
            } else if self.verifier.join_points.has_end(to) {
                // Impossible indexes lead to the end of the function.
            } else if table.max_index.is_none() {
                // The table is shorter than its index allows.
                break;
            } else {
                return Err(RejectReason::JumpTable);
            }
        }
        require(is_followed, RejectReason::JumpTable)
    }

    /// Applies an operation that a verifier state cannot express, by constant operands.
    fn transfer_by_constants(
        &mut self,
        op: Op,
        context: InsnContext,
        state: &mut VerifierState,
    ) -> Result<(), RejectReason> {
        match op {
            Op::Fill {
                base,
                count: Some(count),
                size,
                ..
            } => {
                // An unknown length is assumed to stay inside a program's array.
                let count = self.constant_before(count, context)?;
                if count.is_none() {
                    self.annotations.note_bounds_assumption();
                }
                if let Some(count) = count {
                    let bytes = count.checked_mul(size.into());
                    let size = bytes.and_then(|bytes| u16::try_from(bytes).ok());
                    let size = size.ok_or(OutsideDomain)?;
                    let offset = 0;
                    let filled = Op::Overwrite { base, offset, size };
                    state.transfer(filled, self.abi_info)?;
                }
                Ok(())
            }
            Op::SystemCall { number } => {
                let number = number.ok_or(RejectReason::SystemCall)?;
                let number = self.constant_before(number, context)?;
                let AbiInfo {
                    stack_switching_syscalls: new_stack,
                    stack_sharing_syscalls: shared_stack,
                    ..
                } = self.abi_info;
                let mut are_other = new_stack.iter().chain(*shared_stack);
                let is_usual = |number| are_other.all(|other| *other != number);
                require(number.is_some_and(is_usual), RejectReason::SystemCall)
            }
            _ => Err(OutsideDomain.into()),
        }
    }

    /// The number in a register before an instruction, if the straight line before it shows that.
    fn constant_before(
        &mut self,
        register: u8,
        context: InsnContext,
    ) -> Result<Option<u64>, RejectReason> {
        self.decode_line(context.line..context.start)?;
        let state = self.verifier.state_after_line(|_| None);
        Ok(state.get(register).as_constant())
    }

    /// Decodes a straight line.
    fn decode_line(&mut self, range: Range<u64>) -> Result<(), RejectReason> {
        let bytes = self.image.bytes(range.clone());
        let bytes = bytes.ok_or(RejectReason::OutsideImage)?;
        let Verifier { lifter, line, .. } = &mut *self.verifier;
        line.clear();
        lifter.lift(bytes, range.start, line);
        Ok(())
    }

    /// Follows an edge from a range to an address.
    fn flow_into(
        &mut self,
        to: u64,
        here: &UnitRange,
        state: &VerifierState,
        reachability: Reachability,
    ) -> Result<(), RejectReason> {
        let there;
        let place = if here.range.contains(&to) {
            here
        } else {
            there = self.range_containing(to)?;
            &there
        };
        let label = self.verifier.join_points.get_or_insert(place, to);
        let (label, is_news) = label.ok_or(RejectReason::OutsideUnit)?;
        match label.join(state, reachability, self.abi_info)? {
            PrecisionLoss::None => {}
            // This is harmless unless something depends on such an address: see
            // [`Verification::note_stack_use`].
            PrecisionLoss::StackAddresses => self.lost_stack_address = true,
            PrecisionLoss::Essential => self.must_repeat = true,
        }
        self.must_repeat |= is_news;
        Ok(())
    }
}

/// The starts of the instructions before one, in a straight line.
#[derive(Debug, Clone, Copy)]
struct StraightLine {
    /// Start of the lookback.
    start: u64,
    /// Start of the lookback after that.
    next: u64,
    /// Number of instructions since.
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

    /// Advances to an instruction. Returns where its line begins.
    #[inline]
    fn advance(&mut self, at: u64) -> u64 {
        if self.count == MIN_LOOKBACK_INSNS {
            (self.start, self.next, self.count) = (self.next, at, 0);
        }
        self.count += 1;
        self.start
    }
}
