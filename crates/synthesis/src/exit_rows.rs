//! The row of a frame by the code that it has yet to run.
//!
//! Some code has no table: trampolines made at run time, `.init` and `.fini`, the functions of
//! `crtbegin.o`, and the instructions after the system call in the C library's `clone`. Where it is
//! short, the remaining instructions show their effect on the stack. By the ABI, the return address
//! is at the stack pointer or in its register when a function returns, and the registers that calls
//! preserve have the caller's values. If the path reaches code with a table, the row there is the
//! end of the path.
//!
//! The code after a call may be another function's, if the callee never returns. So padding there,
//! or code that makes a frame, ends a path.

use core::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use unspool_code_analysis::InsnDecoder;
use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::{Flow, MEMORY_BIT, Op, ReturnTarget};
use unspool_rows::{
    Abi, CfaRule, CodeAddr, LoadBias, RaState, Register, RegisterRule, Registers, Row, RuntimeAddr,
    Vaddr,
};

/// Code to follow.
pub trait RemainingCode {
    /// Copies code from an address on; yields the number of bytes, fewer at the end of the code.
    fn read(&self, address: Vaddr, into: &mut [u8]) -> usize;

    /// Decodes the row that a table has for an address; yields whether there is one.
    fn row<'r>(&'r self, address: Vaddr, row: &mut Row<'r>) -> bool;
}

/// Finds the rows of frames by their exit paths, and remembers them.
#[derive(Debug)]
pub struct ExitRows {
    decoder: InsnDecoder,
    return_address: Register,
    /// Where return addresses may be signed, nothing says whether one is.
    ra_state: RaState,
    /// Distinct rows.
    rows: Vec<Row<'static>>,
    known: HashMap<(ExitStart, Option<JumpTarget>), KnownExit>,
    max_path_insns: usize,
    insns_left: usize,
    ops: Vec<Op>,
}

/// What is known of the exits from a start.
#[derive(Debug, Clone, Copy)]
enum KnownExit {
    /// The row's index.
    Row(Option<usize>),
    /// It depends on the target of a jump in this register.
    ByTarget(u8),
}

/// The target of an indirect jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JumpTarget {
    /// In the code that is followed.
    Code(Vaddr),
    Elsewhere,
    Unknown,
}

impl JumpTarget {
    fn new(target: Vaddr, text: &impl RemainingCode) -> JumpTarget {
        match text.read(target, &mut [0]) {
            0 => JumpTarget::Elsewhere,
            _ => JumpTarget::Code(target),
        }
    }
}

/// A frame's registers, the bias of its code, and what following the code took.
struct ExitFrame<'f> {
    registers: &'f Registers,
    bias: LoadBias,
    /// The register with the target of a jump.
    target_register: Option<u8>,
    insns: usize,
}

impl ExitFrame<'_> {
    /// The target that a register has.
    fn target(&self, register: u8, text: &impl RemainingCode) -> JumpTarget {
        let target = self.registers.get(Register(register.into()));
        let target = target.map(|target| self.bias.to_vaddr(RuntimeAddr(target)));
        target.map_or(JumpTarget::Unknown, |target| JumpTarget::new(target, text))
    }

    /// The same, if a row depends on one such register only.
    fn jump_target(&mut self, register: u8, text: &impl RemainingCode) -> JumpTarget {
        if *self.target_register.get_or_insert(register) == register {
            self.target(register, text)
        } else {
            JumpTarget::Unknown
        }
    }
}

/// The facts about a frame that decide how its code leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ExitStart {
    /// The next instruction that the frame executes.
    address: Vaddr,
    /// Whether it has made a call, which returns to that instruction.
    is_return: bool,
    /// How the result register compares with zero. After a system call that starts a thread, it
    /// tells the new thread from the old one. Unknown in a frame that has made a call.
    result: Option<Ordering>,
    /// Whether the frame pointer is zero, which marks the outermost frame (psABI, "Initial Stack
    /// and Register State").
    has_zero_frame_pointer: bool,
}

/// The size of the longest instruction of all architectures, in bytes.
const MAX_INSN_BYTES: usize = 16;

/// Registers have numbers below: up to the last vector register of AArch64 that calls preserve.
const REGISTERS: usize = 80;

/// The most frames whose code is followed as far as allowed, until [`ExitRows::forget`]: a tenth of
/// a second for functions.
const MAX_FRAMES: usize = 1 << 11;

impl ExitRows {
    /// The most instructions of a function to follow from one frame, on all paths together: some 20
    /// microseconds.
    pub const MAX_FUNCTION_INSNS: usize = 256;

    /// The same for code that is not a file's. Compilers of such code may not keep to the ABI, but
    /// trampolines and stubs do, and they are short.
    pub const MAX_STUB_INSNS: usize = 16;

    /// Finds rows for one architecture, and follows that many instructions from one frame; `None`
    /// if the architecture is not supported.
    #[must_use]
    pub fn new(abi: Abi, max_path_insns: usize) -> Option<ExitRows> {
        let spec = abi.arch.spec();
        Some(ExitRows {
            decoder: InsnDecoder::new(abi)?,
            return_address: spec.return_address,
            ra_state: match spec.ra_sign_state {
                Some(_) => RaState::Signed,
                None => RaState::Plain,
            },
            rows: Vec::new(),
            known: HashMap::new(),
            max_path_insns,
            insns_left: max_path_insns * MAX_FRAMES,
            ops: Vec::new(),
        })
    }

    /// Forgets all rows, for code that may have changed since.
    pub fn forget(&mut self) {
        self.known.clear();
        self.rows.clear();
        self.insns_left = self.max_path_insns * MAX_FRAMES;
    }

    /// The row of a frame at a code address, `address` as linked. `None` if no path reaches an end,
    /// or two ends disagree. Paths that become unknown do not count: by the ABI, all paths agree.
    pub fn row(
        &mut self,
        code: CodeAddr,
        address: Vaddr,
        registers: &Registers,
        text: &impl RemainingCode,
    ) -> Option<&Row<'static>> {
        let is_return = matches!(code, CodeAddr::Return(_));
        let abi_info = self.decoder.abi_info();
        let result = registers.get(Register(abi_info.result.into()));
        let result = result.filter(|_| !is_return);
        let frame_pointer = registers.get(Register(abi_info.frame_pointer.into()));
        let start = ExitStart {
            address,
            is_return,
            result: result.map(|value| value.cast_signed().cmp(&0)),
            has_zero_frame_pointer: frame_pointer == Some(0),
        };
        let mut frame = ExitFrame {
            registers,
            bias: LoadBias(code.address().0.wrapping_sub(address.0)),
            target_register: None,
            insns: 0,
        };
        let mut key = (start, None);
        if let Some(KnownExit::ByTarget(register)) = self.known.get(&key) {
            key.1 = Some(frame.target(*register, text));
        }
        let row = match self.known.get(&key) {
            Some(KnownExit::Row(row)) => *row,
            _ if self.insns_left == 0 => None,
            _ => {
                let row = self.follow(start, &mut frame, text);
                let row = row.map(|row| self.intern(row));
                self.insns_left = self.insns_left.saturating_sub(frame.insns);
                if let Some(register) = frame.target_register {
                    let by_target = KnownExit::ByTarget(register);
                    self.known.insert((start, None), by_target);
                    key.1 = Some(frame.target(register, text));
                }
                self.known.insert(key, KnownExit::Row(row));
                row
            }
        };
        self.rows.get(row?)
    }

    fn intern(&mut self, row: Row<'static>) -> usize {
        let known = self.rows.iter().position(|known| *known == row);
        known.unwrap_or_else(|| {
            self.rows.push(row);
            self.rows.len() - 1
        })
    }

    /// Follows all paths from a point in a function on.
    fn follow(
        &mut self,
        start: ExitStart,
        frame: &mut ExitFrame<'_>,
        text: &impl RemainingCode,
    ) -> Option<Row<'static>> {
        let abi_info = self.decoder.abi_info();
        let mut first = ExitPath::new(start, abi_info);
        first.tested = start
            .result
            .filter(|_| self.is_behind_test(start.address, text));
        if start.is_return {
            first.return_from_callee(abi_info);
        }
        let mut seen = HashSet::new();
        let mut paths = vec![first];
        let (mut found, mut halts) = (None, false);
        while let Some(mut path) = paths.pop() {
            while seen.len() < self.max_path_insns && seen.insert(path.address) {
                frame.insns += 1;
                let end = match self.step(&mut path, frame, text) {
                    PathStep::Next(other) => {
                        paths.extend(other.map(|other| *other));
                        continue;
                    }
                    PathStep::Exit(row) => *row,
                    PathStep::Halt => {
                        halts |= path.is_outermost(start, abi_info);
                        break;
                    }
                    PathStep::DeadEnd => break,
                };
                match &found {
                    Some(known) if !agree(known, &end) => return None,
                    Some(_) => {}
                    None => found = Some(end),
                }
                break;
            }
        }
        let is_whole = seen.len() < self.max_path_insns;
        // The new thread of a system call has no caller, and the old one has.
        let is_undecided = halts && start.result.is_none() && !start.is_return;
        match found {
            Some(_) if is_undecided => None,
            None if halts && is_whole => {
                let mut outermost = Row::new(self.return_address);
                let rule = RegisterRule::Undefined;
                outermost.set_rule(self.return_address, Some(rule)).ok()?;
                Some(outermost)
            }
            found => found,
        }
    }

    /// Executes one instruction of a path.
    fn step(
        &mut self,
        path: &mut ExitPath,
        frame: &mut ExitFrame<'_>,
        text: &impl RemainingCode,
    ) -> PathStep {
        let abi_info = self.decoder.abi_info();
        let arrival = core::mem::replace(&mut path.arrival, Arrival::FallsThrough);
        let mut row = Row::new(self.return_address);
        if text.row(path.address, &mut row) {
            // If an entry begins behind a call, the call never returns.
            return match self.row_at_start(path, &row) {
                Some(row) if arrival != Arrival::Returns => PathStep::Exit(Box::new(row)),
                _ => PathStep::DeadEnd,
            };
        }
        let mut bytes = [0; MAX_INSN_BYTES];
        let window = bytes.get_mut(..usize::from(abi_info.max_insn_bytes));
        let length = text.read(path.address, window.unwrap_or_default());
        let bytes = bytes.get(..length).unwrap_or_default();
        let decoded = self.decoder.decode(bytes, path.address.0, &mut self.ops);
        let Some(insn) = decoded else {
            return PathStep::DeadEnd;
        };
        if self.ops.contains(&Op::Halt) {
            return PathStep::Halt;
        }
        let makes_frame = |op: &Op| {
            matches!(op, Op::Add { to, bytes, .. }
                if *to == abi_info.stack_pointer && *bytes < 0)
        };
        if arrival == Arrival::Returns && (insn.is_padding || self.ops.iter().any(makes_frame)) {
            return PathStep::DeadEnd;
        }
        if self.ops.is_empty() && insn.flow.is_none() {
            // Such as the mark of a target of indirect calls: the next may still make a frame.
            path.arrival = arrival;
        }
        let bytes = bytes.get(..insn.length).unwrap_or_default();
        if insn.flow.is_none() {
            path.tested = path.result.filter(|_| self.decoder.tests_result(bytes));
        }
        for op in &self.ops {
            if let Op::SystemCall { number } = op
                && let Some(PathValue::Number(number)) = number.map(|number| path.get(number))
                && abi_info.noreturn_syscalls.contains(&number)
            {
                return PathStep::Halt;
            }
            path.apply(*op, abi_info);
        }
        let next = path.address.offset(insn.length as u64);
        match insn.flow {
            None => path.address = next,
            Some(Flow::Call(_) | Flow::IndirectCall(_)) => {
                path.return_from_callee(abi_info);
                path.address = next;
            }
            Some(Flow::Jump(to)) => path.jump(Vaddr(to)),
            Some(Flow::Branch { to, .. }) => {
                let to = Vaddr(to);
                match self.decoder.is_taken(bytes, path.tested, path.result) {
                    Some(true) => path.jump(to),
                    Some(false) => path.address = next,
                    None => {
                        let mut other = path.clone();
                        other.jump(to);
                        path.address = next;
                        return PathStep::Next(Some(Box::new(other)));
                    }
                }
            }
            Some(Flow::IndirectJump(register)) => {
                let target = match path.get(register) {
                    PathValue::Number(to) => JumpTarget::new(Vaddr(to), text),
                    // A tail call or a switch: its target tells.
                    PathValue::Start(Slot {
                        register,
                        offset: 0,
                    }) => frame.jump_target(register, text),
                    _ => JumpTarget::Unknown,
                };
                // A tail call by a word of memory.
                let is_by_memory = path.get(register) == PathValue::GlobalWord;
                return match target {
                    JumpTarget::Code(to) => {
                        path.jump(to);
                        PathStep::Next(None)
                    }
                    JumpTarget::Unknown if !is_by_memory => PathStep::DeadEnd,
                    JumpTarget::Elsewhere | JumpTarget::Unknown => {
                        self.returned(path, abi_info.return_target_of_call())
                    }
                };
            }
            Some(Flow::Return { pops: 0, to }) => return self.returned(path, to),
            Some(Flow::Return { .. } | Flow::Resume(_) | Flow::Trap | Flow::Unknown) => {
                return PathStep::DeadEnd;
            }
        }
        PathStep::Next(None)
    }

    /// The end of a path that returns to an address on top of the stack, or in a register.
    fn returned(&self, path: &ExitPath, to: ReturnTarget) -> PathStep {
        let abi_info = self.decoder.abi_info();
        let size = i64::from(abi_info.call_pushes);
        let mut row = Row::new(self.return_address);
        row.cfa = CfaRule::RegisterOffset {
            register: Register(abi_info.stack_pointer.into()),
            offset: size,
        };
        let rule = match to {
            ReturnTarget::Stack => RegisterRule::Offset(-size),
            ReturnTarget::Register(register) => RegisterRule::Register(Register(register.into())),
        };
        let set = row.set_rule(self.return_address, Some(rule));
        let row = set.ok().and_then(|_| self.row_at_start(path, &row));
        row.map_or(PathStep::DeadEnd, |row| PathStep::Exit(Box::new(row)))
    }

    /// Whether the code before an address is a system call, the comparison of its result, and at
    /// most one conditional branch.
    fn is_behind_test(&self, address: Vaddr, text: &impl RemainingCode) -> bool {
        let mut before = [0; InsnDecoder::TEST_BYTES];
        let start = address.0.wrapping_sub(before.len() as u64);
        text.read(Vaddr(start), &mut before) == before.len()
            && self.decoder.ends_with_tested_syscall(&before)
    }

    /// The row at a path's start that means the same as a row at its end.
    fn row_at_start(&self, path: &ExitPath, end: &Row<'_>) -> Option<Row<'static>> {
        let abi_info = self.decoder.abi_info();
        let mut made = Row::new(end.return_address);
        if end.is_outermost() {
            let rule = Some(RegisterRule::Undefined);
            made.set_rule(end.return_address, rule).ok()?;
            return Some(made);
        }
        let CfaRule::RegisterOffset { register, offset } = end.cfa else {
            return None;
        };
        let register = u8::try_from(register.0).ok()?;
        let PathValue::Start(cfa) = path.get(register).plus(offset) else {
            return None;
        };
        // The return address is on the stack already.
        let is_below =
            cfa.register == abi_info.stack_pointer && cfa.offset < i64::from(abi_info.call_pushes);
        if is_below || end.signal_frame {
            return None;
        }
        made.cfa = CfaRule::RegisterOffset {
            register: Register(cfa.register.into()),
            offset: cfa.offset,
        };
        made.ra_state = self.ra_state;
        let preserved = abi_info.preserved.iter();
        for register in preserved.map(|register| Register((*register).into())) {
            let rule = path.rule_at_start(register, end, cfa, abi_info);
            made.set_rule(register, Some(rule)).ok()?;
        }
        let rule = path.rule_at_start(end.return_address, end, cfa, abi_info);
        made.set_rule(end.return_address, Some(rule)).ok()?;
        let is_known = match rule {
            RegisterRule::Offset(_) => true,
            RegisterRule::SameValue | RegisterRule::Register(_) => abi_info.call_pushes == 0,
            _ => false,
        };
        is_known.then_some(made)
    }
}

/// Whether two ends of paths have the same caller. Registers may differ: the ABI makes each right.
fn agree(a: &Row<'_>, b: &Row<'_>) -> bool {
    a.cfa == b.cfa && a.rule(a.return_address) == b.rule(b.return_address)
}

/// The result of an instruction on a path.
enum PathStep {
    /// The path goes on, and another one may begin.
    Next(Option<Box<ExitPath>>),
    /// The frame ends. The row there, expressed at the path's start.
    Exit(Box<Row<'static>>),
    /// The thread or the process ends.
    Halt,
    /// Nothing is known of where it leads.
    DeadEnd,
}

/// How control arrived at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    FallsThrough,
    Jumps,
    /// From the callee of the call before it.
    Returns,
}

/// An address relative to a register's value at the start of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    register: u8,
    offset: i64,
}

/// A value on a path, in terms of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathValue {
    /// A register's value at the start, plus an offset.
    Start(Slot),
    /// A word of memory at the start.
    Saved(Slot),
    /// A number.
    Number(u64),
    /// A word of memory at a fixed address.
    GlobalWord,
    Unknown,
}

impl PathValue {
    fn plus(self, bytes: i64) -> PathValue {
        match self {
            PathValue::Start(Slot { register, offset }) => {
                let offset = offset.checked_add(bytes);
                offset.map_or(PathValue::Unknown, |offset| {
                    PathValue::Start(Slot { register, offset })
                })
            }
            PathValue::Number(number) => PathValue::Number(number.wrapping_add_signed(bytes)),
            value if bytes == 0 => value,
            _ => PathValue::Unknown,
        }
    }
}

/// A path and the state at its end.
#[derive(Debug, Clone)]
struct ExitPath {
    address: Vaddr,
    arrival: Arrival,
    result_register: u8,
    registers: [PathValue; REGISTERS],
    /// Words that the path has stored.
    stores: Vec<(Slot, PathValue)>,
    /// How the result register compares with zero, if known.
    result: Option<Ordering>,
    /// How the value compares that was last compared with zero, if known.
    tested: Option<Ordering>,
}

impl ExitPath {
    fn new(start: ExitStart, abi_info: &AbiInfo) -> ExitPath {
        let mut registers = [PathValue::Unknown; REGISTERS];
        for (register, value) in (0..).zip(&mut registers) {
            *value = PathValue::Start(Slot {
                register,
                offset: 0,
            });
        }
        ExitPath {
            address: start.address,
            arrival: Arrival::FallsThrough,
            result_register: abi_info.result,
            registers,
            stores: Vec::new(),
            result: start.result,
            tested: None,
        }
    }

    fn get(&self, register: u8) -> PathValue {
        let value = self.registers.get(usize::from(register));
        value.copied().unwrap_or(PathValue::Unknown)
    }

    fn set(&mut self, register: u8, value: PathValue) {
        if register == self.result_register {
            self.result = None;
        }
        if let Some(slot) = self.registers.get_mut(usize::from(register)) {
            *slot = value;
        }
    }

    fn jump(&mut self, to: Vaddr) {
        self.address = to;
        self.arrival = Arrival::Jumps;
    }

    fn forget(&mut self, registers: u64) {
        for register in 0..64 {
            if registers >> register & 1 != 0 {
                self.set(register, PathValue::Unknown);
            }
        }
    }

    /// A callee leaves the stack and some registers as they were.
    fn return_from_callee(&mut self, abi_info: &AbiInfo) {
        self.forget(abi_info.clobbered);
        self.arrival = Arrival::Returns;
    }

    /// Whether the frame pointer says that this is the outermost frame.
    fn is_outermost(&self, start: ExitStart, abi_info: &AbiInfo) -> bool {
        let at_start = PathValue::Start(Slot {
            register: abi_info.frame_pointer,
            offset: 0,
        });
        match self.get(abi_info.frame_pointer) {
            PathValue::Number(number) => number == 0,
            value => value == at_start && start.has_zero_frame_pointer,
        }
    }

    /// Applies an operation. A store at an unknown address changes no saved register.
    fn apply(&mut self, op: Op, abi_info: &AbiInfo) {
        match op {
            Op::Constant { to, value } | Op::Address { to, value } => {
                self.set(to, PathValue::Number(value));
            }
            Op::Add { to, from, bytes } => self.set(to, self.get(from).plus(bytes.into())),
            Op::Load { to, base, offset } => {
                let value = match self.get(base).plus(offset.into()) {
                    PathValue::Start(slot) => self.load(slot, abi_info),
                    PathValue::Number(_) => PathValue::GlobalWord,
                    _ => PathValue::Unknown,
                };
                self.set(to, value);
            }
            Op::Unknown { to } => self.set(to, PathValue::Unknown),
            Op::Store { base, offset, from } => self.store(base, offset, self.get(from)),
            Op::Overwrite { base, offset, .. } => self.store(base, offset, PathValue::Unknown),
            // Who has yet to make the system call is not the new thread.
            Op::SystemCall { .. } => {}
            Op::AssumeStackPointer { .. } => self.forget(u64::MAX),
            op => {
                let written = op.written(abi_info.stack_pointer);
                // An operation that writes memory writes no register.
                self.forget(if written & MEMORY_BIT == 0 {
                    written
                } else {
                    0
                });
            }
        }
    }

    /// The word at an address; above the stack pointer, it is as at the start unless stored.
    fn load(&self, slot: Slot, abi_info: &AbiInfo) -> PathValue {
        let stored = self.stores.iter().rev().find(|(to, _)| *to == slot);
        match stored {
            Some((_, value)) => *value,
            None if slot.register == abi_info.stack_pointer && slot.offset < 0 => {
                PathValue::Unknown
            }
            None => PathValue::Saved(slot),
        }
    }

    fn store(&mut self, base: u8, offset: i32, value: PathValue) {
        if let PathValue::Start(slot) = self.get(base).plus(offset.into()) {
            self.stores.push((slot, value));
        }
    }

    fn rule_at_start(
        &self,
        register: Register,
        end: &Row<'_>,
        cfa: Slot,
        abi_info: &AbiInfo,
    ) -> RegisterRule<'static> {
        let at = |offset: i64| {
            let offset = cfa.offset.checked_add(offset)?;
            Some(Slot { offset, ..cfa })
        };
        let value_in = |register: Register| u8::try_from(register.0).map(|number| self.get(number));
        let value = match end.rule(register) {
            None | Some(RegisterRule::SameValue) => value_in(register).ok(),
            Some(RegisterRule::Register(from)) => value_in(from).ok(),
            Some(RegisterRule::Offset(offset)) => at(offset).map(|slot| self.load(slot, abi_info)),
            Some(RegisterRule::ValOffset(offset)) => at(offset).map(PathValue::Start),
            _ => None,
        };
        match value {
            Some(PathValue::Start(Slot {
                register: from,
                offset,
            })) => {
                let from = Register(from.into());
                match offset {
                    0 if from == register => RegisterRule::SameValue,
                    0 => RegisterRule::Register(from),
                    _ if from.0 == u16::from(cfa.register) => {
                        RegisterRule::ValOffset(offset - cfa.offset)
                    }
                    _ => RegisterRule::Undefined,
                }
            }
            Some(PathValue::Saved(slot)) if slot.register == cfa.register => {
                RegisterRule::Offset(slot.offset - cfa.offset)
            }
            _ => RegisterRule::Undefined,
        }
    }
}
