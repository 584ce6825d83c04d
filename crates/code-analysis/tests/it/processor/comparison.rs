//! Compares what the analysis claims to be preserved with what happened.

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::code::LiftedCode;
use unspool_code_analysis::op::{BranchCondition, Flow, Op, ResumePoint};
use unspool_code_analysis::state::SCRATCH;
use unspool_code_analysis::verifier::state::{RegisterContents, VerifierState};
use unspool_code_analysis::{AbstractState, AbstractValue, InsnId, Lifter, ValueFact};

use crate::processor::child::{CODE, ProcessorState, SEGMENT_BASE, STACK, STACK_BYTES};
use crate::processor::sys::UserRegs;

/// The stack pointer at entry. The CFA, 8 above, is a multiple of 16.
pub(crate) const ENTRY: u64 = STACK + 0x8008;

/// The general registers by their DWARF numbers.
pub(crate) fn numbered(registers: &UserRegs) -> [u64; 16] {
    let it = registers;
    [
        it.rax, it.rdx, it.rcx, it.rbx, it.rsi, it.rdi, it.rbp, it.rsp, it.r8, it.r9, it.r10,
        it.r11, it.r12, it.r13, it.r14, it.r15,
    ]
}

/// A sequence of numbers that looks random (the constants are Knuth's, for MMIX).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.next() >> 8).expect("64 bits") % length
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        self.0.rotate_left(29)
    }
}

/// The direction flag.
pub(crate) const DIRECTION: u64 = 1 << 10;

/// A state of the processor to execute from, one of several kinds.
pub(crate) fn setting(
    kind: u64,
    ready: &UserRegs,
    extended: &[u8],
    abi_info: &AbiInfo,
) -> ProcessorState {
    let mut random = Random(kind);
    let mut registers = *ready;
    registers.rip = CODE;
    registers.orig_rax = u64::MAX;
    registers.eflags = if kind % 4 == 1 {
        0x202 | DIRECTION
    } else {
        0x202
    };
    [registers.fs_base, registers.gs_base] = [SEGMENT_BASE; 2];
    registers.rsp = ENTRY - 0x108;
    registers.rbp = STACK + 0x9000;
    registers.rdi = STACK + 0x6000;
    registers.rsi = STACK + 0xa000;
    registers.rcx = 1 + kind % 4;
    let others = [
        0x6400, 0x6800, 0x6c00, 0x7000, 0x7400, 0x9400, 0x9800, 0x9c00,
    ];
    let mut others = others.map(|at| STACK + at + 64 * (random.next() & 3));
    if kind % 4 == 2 {
        others = [(); 8].map(|()| random.next());
    }
    [
        registers.r8,
        registers.r9,
        registers.r10,
        registers.r11,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
    ] = others;
    [registers.rax, registers.rbx, registers.rdx] = match kind % 4 {
        0 => [STACK + 0x5000, STACK + 0x5400, STACK + 0x5800],
        1 => [random.next() & 0xff, 0x1d, 0],
        2 => [random.next(), random.next(), 0],
        _ => [7, STACK + 0x5400, 0],
    };
    if kind % 4 == 3 {
        // Operands of `iretq` and others: a segment, flags, a stack. The top of the stack is not a
        // selector.
        registers.rcx = 0;
        registers.rbx = registers.ss;
        registers.r12 = 0;
        registers.r13 = registers.cs;
        registers.r14 = 0x202;
        registers.r15 = registers.rsp + 40;
    }
    let saved = abi_info
        .preserved
        .iter()
        .map(|register| numbered(&registers)[usize::from(*register)]);
    let saved: Vec<u64> = saved.collect();
    let words = saved.iter().cycle().take(STACK_BYTES / 8);
    let stack = words.flat_map(|word| word.to_le_bytes()).collect();
    let mut extended = extended.to_vec();
    fill(&mut extended, kind, &mut random);
    ProcessorState {
        registers,
        stack,
        extended,
    }
}

/// Fills vector and mask registers, mostly with small multiples of 8, so that scatters hit mapped
/// memory.
fn fill(extended: &mut [u8], kind: u64, random: &mut Random) {
    // The legacy region, then those of AVX, of masks and of AVX-512 (Intel SDM, volume 1,
    // "XSAVE-Managed State").
    const FEATURES: u64 = 0xe7;
    let supported = u64::from_le_bytes(*extended[464..].first_chunk().expect("XSAVE's area"));
    let used = u64::from_le_bytes(*extended[512..].first_chunk().expect("XSAVE's area"));
    let filled = used | FEATURES & supported;
    extended[512..520].copy_from_slice(&filled.to_le_bytes());
    for (feature, range) in [
        (1, 160..416),
        (2, 576..832),
        (6, 1152..1664),
        (7, 1664..2688),
    ] {
        if supported >> feature & 1 == 0 {
            continue;
        }
        for lane in extended[range].chunks_exact_mut(8) {
            let number = match kind % 4 {
                2 => random.next(),
                _ => 8 * (random.next() & 15),
            };
            lane.copy_from_slice(&number.to_le_bytes());
        }
    }
    if supported >> 5 & 1 != 0 {
        for lane in extended[1088..1152].chunks_exact_mut(8) {
            lane.copy_from_slice(&random.next().to_le_bytes());
        }
    }
}

/// How the analysis describes registers before the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegisterModel {
    /// By stack addresses and numbers.
    Concrete,
    /// By their entry values.
    EntryValues,
}

fn is_on_stack(value: u64) -> bool {
    (STACK..STACK + STACK_BYTES as u64).contains(&value)
}

/// A stack address relative to the stack pointer at entry.
fn place(sp: u8, at: u64) -> AbstractValue {
    let distance = at.wrapping_sub(ENTRY).cast_signed();
    AbstractValue::entry_value(sp).plus(distance)
}

/// The abstract state before an instruction. The contents of `slots` (stack addresses) are known.
pub(crate) fn state(
    model: RegisterModel,
    before: &ProcessorState,
    slots: &[u64],
    abi_info: &AbiInfo,
) -> AbstractState {
    let sp = abi_info.stack_pointer;
    let mut state = AbstractState::new();
    for (register, value) in (0..).zip(numbered(&before.registers)) {
        let known = match model {
            _ if register == sp => place(sp, value),
            RegisterModel::EntryValues => continue,
            RegisterModel::Concrete if is_on_stack(value) => place(sp, value),
            // Preserved registers are among the saved ones.
            RegisterModel::Concrete if abi_info.preserved.contains(&register) => continue,
            RegisterModel::Concrete => AbstractValue::constant(value),
        };
        state.set(register, known);
    }
    for at in slots {
        let word = usize::try_from((at - STACK) / 8).expect("it is of the stack");
        let saved = abi_info.preserved[word % abi_info.preserved.len()];
        state.store(place(sp, *at), AbstractValue::entry_value(saved));
    }
    state
}

/// The concrete value of an abstract one, if it has exactly one.
fn concrete(value: AbstractValue, entry: &[u64; 16], abi_info: &AbiInfo) -> Option<u64> {
    match value.fact() {
        ValueFact::EntryValue(register, offset) => {
            let register = u8::try_from(register.0).ok()?;
            let origin = if register == abi_info.stack_pointer {
                ENTRY
            } else {
                *entry.get(usize::from(register))?
            };
            Some(origin.wrapping_add_signed(offset.into()))
        }
        ValueFact::Constant(number) => Some(number),
        _ => None,
    }
}

fn word(stack: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at.checked_sub(STACK)?).ok()?;
    stack
        .get(at..)?
        .first_chunk()
        .map(|word| u64::from_le_bytes(*word))
}

/// What an abstract state claims that does not hold after an execution. `entry` has the registers
/// before it.
pub(crate) fn contradictions(
    state: &AbstractState,
    entry: &[u64; 16],
    after: &ProcessorState,
    abi_info: &AbiInfo,
) -> Vec<String> {
    let mut found = Vec::new();
    for (register, value) in (0..).zip(numbered(&after.registers)) {
        let said = state.get(register);
        let is_so = match said.fact() {
            ValueFact::AtMost(most) => value <= most.into(),
            _ => concrete(said, entry, abi_info).is_none_or(|said| said == value),
        };
        if !is_so {
            found.push(format!("register {register} is {value:#x}, not {said:?}"));
        }
    }
    // A report states this assumption for the whole function.
    let slots = if state.assumes_bounds() {
        &[]
    } else {
        state.slots()
    };
    for slot in slots {
        let is_so = || {
            let at = concrete(slot.address, entry, abi_info)?;
            let holds = concrete(slot.value, entry, abi_info)?;
            Some((at, word(&after.stack, at)? == holds))
        };
        if let Some((at, false)) = is_so() {
            found.push(format!("{at:#x} does not hold {:?}", slot.value));
        }
    }
    found
}

/// Registers that calls preserve, except the frame pointer, which has a stack address here.
fn kept_registers(abi_info: &AbiInfo) -> impl Iterator<Item = u8> {
    let frame_pointer = abi_info.frame_pointer;
    (abi_info.preserved.iter().copied()).filter(move |register| *register != frame_pointer)
}

/// Stack words with saved registers in the states of [`kept_setting`].
fn kept_slots(registers: &UserRegs) -> Vec<u64> {
    let near = |at: u64| [at - 8, at, at + 8];
    let places = [registers.rsp, registers.rsi, registers.rdi, registers.rbp];
    places.into_iter().flat_map(near).collect()
}

/// Kinds of states from [`kept_setting`]. From that number on they are the same, with the bits of
/// saved values inverted.
pub(crate) const KEPT_KINDS: u64 = 4;

/// A state whose saved values are nowhere else: not in registers, nor in other stack words. In some
/// kinds an operation with a register that calls do not preserve changes nothing.
pub(crate) fn kept_setting(
    kind: u64,
    ready: &UserRegs,
    extended: &[u8],
    abi_info: &AbiInfo,
) -> ProcessorState {
    let mut state = setting(2, ready, extended, abi_info);
    // Other numbers than those in registers.
    let mut random = Random(100 + kind);
    let it = &mut state.registers;
    it.eflags = 0x202;
    it.rcx = 1;
    if kind >= KEPT_KINDS {
        for register in [
            &mut it.rbx,
            &mut it.r12,
            &mut it.r13,
            &mut it.r14,
            &mut it.r15,
        ] {
            *register = !*register;
        }
    }
    if !kind.is_multiple_of(KEPT_KINDS) {
        let idle = [0, u64::MAX, 1][usize::try_from(kind % KEPT_KINDS - 1).expect("a kind")];
        [it.rax, it.rdx, it.r8, it.r9, it.r10, it.r11] = [idle; 6];
        it.rcx = idle & 1;
    }
    let numbers = numbered(it);
    let saved = abi_info.preserved;
    let slots = kept_slots(it);
    for (word, bytes) in state.stack.chunks_exact_mut(8).enumerate() {
        let at = STACK + 8 * word as u64;
        let value = if slots.contains(&at) {
            numbers[usize::from(saved[word % saved.len()])]
        } else {
            random.next()
        };
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    state
}

/// An executed instruction.
pub(crate) struct Executed<'e> {
    pub(crate) code: iced_x86::Code,
    pub(crate) bytes: &'e [u8],
    pub(crate) before: &'e ProcessorState,
    pub(crate) after: &'e ProcessorState,
}

/// Compares claims about instructions with their execution.
pub(crate) struct Checker {
    pub(crate) lifter: Lifter,
    pub(crate) abi_info: &'static AbiInfo,
    code: LiftedCode,
}

impl Checker {
    pub(crate) fn new(lifter: Lifter) -> Checker {
        Checker {
            abi_info: lifter.abi_info(),
            lifter,
            code: LiftedCode::default(),
        }
    }

    /// Operations and control flow of an instruction.
    pub(crate) fn lift(&mut self, bytes: &[u8]) -> (Vec<Op>, Option<Flow>) {
        self.code.clear();
        self.lifter.lift(bytes, CODE, &mut self.code);
        let ops = self.code.ops_of(InsnId(0)).to_vec();
        (ops, self.code.flow(InsnId(0)))
    }

    /// Claims that the execution contradicts.
    pub(crate) fn differences(&mut self, it: &Executed<'_>) -> Vec<String> {
        let (ops, flow) = self.lift(it.bytes);
        let mut found = Vec::new();
        if is_listed(it.code, it.bytes) {
            return found;
        }
        self.compare_flow(it, flow, &mut found);
        if matches!(
            flow,
            Some(
                Flow::Call(_)
                    | Flow::IndirectCall(_)
                    | Flow::Return { .. }
                    | Flow::Resume(_)
                    | Flow::Trap
            )
        ) {
            return found;
        }
        let changed = changed(it);
        for words in [RegisterModel::Concrete, RegisterModel::EntryValues] {
            self.compare_state(it, words, &ops, &changed, &mut found);
            self.compare_frame(it, words, &ops, &changed, &mut found);
        }
        self.compare_flags(it, &ops, flow, &mut found);
        found
    }

    /// Saved values that an execution from [`kept_setting`] left or moved, where the analysis has
    /// something else.
    pub(crate) fn false_losses(&mut self, it: &Executed<'_>) -> Vec<String> {
        let (ops, flow) = self.lift(it.bytes);
        // Other runs choose otherwise.
        let is_choice = ops.iter().any(|op| matches!(op, Op::Choose { .. }));
        if flow.is_some() || is_choice || is_listed(it.code, it.bytes) {
            return Vec::new();
        }
        let abi_info = self.abi_info;
        let slots = kept_slots(&it.before.registers);
        let mut state = state(RegisterModel::Concrete, it.before, &slots, abi_info);
        for op in &ops {
            state.transfer(*op, 0, abi_info);
        }
        let entry = numbered(&it.before.registers);
        let saved = |value: u64| {
            kept_registers(abi_info).find(|register| entry[usize::from(*register)] == value)
        };
        let is_lost = |said: Option<AbstractValue>| {
            said.is_none_or(|said| matches!(said.fact(), ValueFact::Fresh | ValueFact::AtMost(_)))
        };
        let mut found = Vec::new();
        for (register, value) in (0..).zip(numbered(&it.after.registers)) {
            if let Some(of) = saved(value)
                && is_lost(Some(state.get(register)))
            {
                found.push(format!("register {register} has that of {of}: {ops:?}"));
            }
        }
        for (word, bytes) in (0..).zip(it.after.stack.as_chunks().0) {
            let at = STACK + 8 * word;
            if let Some(of) = saved(u64::from_le_bytes(*bytes))
                && is_lost(state.load(place(abi_info.stack_pointer, at)))
            {
                found.push(format!("{at:#x} has that of {of}: {ops:?}"));
            }
        }
        found
    }

    fn compare_flow(&self, it: &Executed<'_>, flow: Option<Flow>, found: &mut Vec<String>) {
        let next = CODE + it.bytes.len() as u64;
        let (rip, sp) = (it.after.registers.rip, it.after.registers.rsp);
        let moved = sp.wrapping_sub(it.before.registers.rsp).cast_signed();
        let registers = numbered(&it.before.registers);
        let in_register = |register: u8| registers.get(usize::from(register)) == Some(&rip);
        let on_stack = |above: u64| word(&it.before.stack, it.before.registers.rsp + above);
        let is_so = match flow {
            // While interrupts are held off, two are executed.
            None => rip == next || rip == next + 1,
            // Where a transaction is aborted.
            Some(Flow::Branch { to, .. }) => rip == next || rip == to || rip == to + 1,
            Some(Flow::Jump(to)) => rip == to,
            Some(Flow::Call(to)) => rip == to && moved == -8,
            // A far call also pushes a segment, which a far return pops.
            Some(Flow::IndirectCall(_)) => moved == -8 || moved == -16,
            Some(Flow::Return { pops, .. }) => {
                moved == 8 + i64::from(pops) && on_stack(0) == Some(rip)
            }
            Some(Flow::IndirectJump(register)) => register == SCRATCH || in_register(register),
            Some(Flow::Resume(ResumePoint::Register { address, .. })) => in_register(address),
            Some(Flow::Resume(ResumePoint::Stack { stack_pointer_at })) => {
                on_stack(0) == Some(rip) && on_stack(stack_pointer_at.into()) == Some(sp)
            }
            Some(Flow::Resume(ResumePoint::Elsewhere)) => true,
            Some(Flow::Trap | Flow::Unknown) => false,
        };
        if !is_so {
            found.push(format!(
                "{flow:?}: went to {rip:#x}, the stack pointer {moved:+}"
            ));
        }
    }

    fn compare_state(
        &self,
        it: &Executed<'_>,
        model: RegisterModel,
        ops: &[Op],
        changed: &[u64],
        found: &mut Vec<String>,
    ) {
        let abi_info = self.abi_info;
        let entry = numbered(&it.before.registers);
        let mut slots = match model {
            RegisterModel::Concrete => changed.to_vec(),
            // Code does not write there through addresses that are unknown here.
            RegisterModel::EntryValues => Vec::new(),
        };
        let sp = it.before.registers.rsp;
        let near = [sp, sp + 0x40, STACK + 0x9040, STACK + 0x6000];
        slots.extend(
            near.iter()
                .filter(|at| !changed.contains(at) && model == RegisterModel::Concrete),
        );
        let mut state = state(model, it.before, &slots, abi_info);
        if it.before.registers.eflags & DIRECTION != 0 {
            state.transfer(Op::Direction { is_down: true }, 0, abi_info);
        }
        for op in ops {
            state.transfer(*op, 0, abi_info);
        }
        let contradicted = contradictions(&state, &entry, it.after, abi_info);
        found.extend(
            contradicted
                .iter()
                .map(|said| format!("{model:?}: {said}: {ops:?}")),
        );
    }

    fn compare_frame(
        &self,
        it: &Executed<'_>,
        model: RegisterModel,
        ops: &[Op],
        changed: &[u64],
        found: &mut Vec<String>,
    ) {
        let abi_info = self.abi_info;
        let cfa = ENTRY + 8;
        let distance = |at: u64| i16::try_from(at.wrapping_sub(cfa).cast_signed());
        let mut frame = VerifierState::UNKNOWN;
        let entry = numbered(&it.before.registers);
        for (register, value) in (0..).zip(entry) {
            let is_address = register == abi_info.stack_pointer
                || model == RegisterModel::Concrete && is_on_stack(value);
            let held = match distance(value) {
                Ok(distance) if is_address => RegisterContents::StackAddress(distance),
                _ if abi_info.preserved.contains(&register) => RegisterContents::EntryValue,
                _ => RegisterContents::Other,
            };
            let _ = frame.set_register(register, held);
        }
        // Each is saved where memory changed, if possible.
        for (place, register) in abi_info.preserved.iter().enumerate() {
            let is_its = |at: &&u64| {
                usize::try_from((**at - STACK) / 8)
                    .is_ok_and(|word| word % abi_info.preserved.len() == place)
            };
            let at = changed.iter().filter(is_its).find(|at| **at < cfa - 8);
            if let Some(at) = at
                && model == RegisterModel::Concrete
                && let Ok(at) = distance(*at)
            {
                let _ = frame.set_saved_at(*register, at);
            }
        }
        let mut window = it.bytes.to_vec();
        window.resize(32, 0xcc);
        let insn = self.lifter.fast_decode(&window);
        let mut is_complete = false;
        let mut is_beyond = false;
        // A report states this assumption for the whole function.
        let known = frame;
        let assumes_bounds = |op: &Op| {
            matches!(*op, Op::OverwriteIndexed { base, .. } | Op::StoreIndexed { base, .. }
                if base == abi_info.stack_pointer || known.holds_stack_address(base))
        };
        let mut is_assumed = false;
        if let Some(insn) = &insn {
            if insn.length() != it.bytes.len() {
                return found.push(format!("{model:?}: {} bytes at a glance", insn.length()));
            }
            is_complete = insn.preserves(&frame);
            if !is_complete {
                let mut after = frame;
                is_complete = insn.emit_ops(|op| {
                    is_assumed |= assumes_bounds(&op);
                    is_beyond |= after.transfer(op, abi_info).is_err();
                });
                if is_complete {
                    frame = after;
                }
            }
        }
        if !is_complete {
            is_assumed = ops.iter().any(assumes_bounds);
            is_beyond = ops.iter().any(|op| frame.transfer(*op, abi_info).is_err());
        }
        if is_beyond {
            return;
        }
        for (register, value) in (0..).zip(numbered(&it.after.registers)) {
            let is_so = match frame.get(register) {
                RegisterContents::EntryValue => entry.get(usize::from(register)) == Some(&value),
                RegisterContents::StackAddress(distance) => {
                    cfa.wrapping_add_signed(distance.into()) == value
                }
                RegisterContents::Other => true,
            };
            if !is_so {
                found.push(format!(
                    "{model:?}, one look: register {register} is {value:#x}: {ops:?}"
                ));
            }
        }
        for register in abi_info.preserved.iter().filter(|_| !is_assumed) {
            let Some(at) = frame.saved_at(*register) else {
                continue;
            };
            let holds = word(&it.after.stack, cfa.wrapping_add_signed(at.into()));
            if holds.is_some_and(|holds| Some(&holds) != entry.get(usize::from(*register))) {
                found.push(format!(
                    "{model:?}, one look: register {register} is not saved at {at}: {ops:?}"
                ));
            }
        }
    }

    /// Flags that a later branch may depend on, and the string direction.
    fn compare_flags(
        &mut self,
        it: &Executed<'_>,
        ops: &[Op],
        flow: Option<Flow>,
        found: &mut Vec<String>,
    ) {
        const CARRY_AND_ZERO: u64 = 0x41;
        let changed = it.before.registers.eflags ^ it.after.registers.eflags;
        let directed = ops.iter().find_map(|op| match op {
            Op::Direction { is_down } => Some(*is_down),
            _ => None,
        });
        let is_down = it.after.registers.eflags & DIRECTION != 0;
        let was_down = it.before.registers.eflags & DIRECTION != 0;
        if is_down != directed.unwrap_or(was_down) {
            found.push("the direction flag is another".into());
        }
        if flow.is_some() {
            return;
        }
        // cmp $0x77, %eax (a number that no other instruction has); the instruction; ja
        let line = [&[0x83, 0xf8, 0x77], it.bytes, &[0x77, 0]].concat();
        self.code.clear();
        self.lifter.lift(&line, CODE, &mut self.code);
        let depends = matches!(
            self.code.flow(InsnId(2)),
            Some(Flow::Branch {
                condition: BranchCondition::AtMost { limit: 0x77, .. },
                ..
            })
        );
        let is_kept =
            changed & CARRY_AND_ZERO == 0 && it.before.registers.rax == it.after.registers.rax;
        if depends && !is_kept {
            found.push("a comparison is not kept".into());
        }
    }
}

/// Opcodes that are executed, but not as their manual says, or not as assumed (docs/checking.md).
pub(crate) fn is_listed(code: iced_x86::Code, bytes: &[u8]) -> bool {
    use iced_x86::Mnemonic as M;
    const PLAIN_VMMCALL_BYTES: usize = 3;
    let is_cut = code.mnemonic() == M::Vmmcall && bytes.len() > PLAIN_VMMCALL_BYTES;
    is_cut
        || matches!(
            code.mnemonic(),
            // A debugger resumes after it.
            M::Int3
        // The flags are the pushed ones: the direction flag is clear.
        | M::Popf | M::Popfd | M::Popfq
        // Linux emulates them, and one more instruction.
        | M::Sgdt | M::Sidt | M::Sldt | M::Smsw | M::Str
        // A hypervisor takes it for a shorter instruction, and VMMCALL with a prefix.
        | M::Vmgexit
        )
}

/// Changed words of the stack; if there are many, the first, the last and some between.
fn changed(it: &Executed<'_>) -> Vec<u64> {
    const MAX_WORDS: usize = 16;
    let both = it
        .before
        .stack
        .chunks_exact(8)
        .zip(it.after.stack.chunks_exact(8));
    let places = (STACK..).step_by(8).zip(both);
    let changed = places.filter(|(_, (before, after))| before != after);
    let changed: Vec<u64> = changed.map(|(at, _)| at).collect();
    let step = changed.len().div_ceil(MAX_WORDS).max(1);
    let some = changed.iter().step_by(step).copied();
    some.chain(changed.last().copied().filter(|_| step > 1))
        .collect()
}
