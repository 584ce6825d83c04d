//! The transfer function: effects of operations on an abstract state.

use crate::arch::AbiInfo;
use crate::op::{BranchCondition, BranchEdge, FillContents, Op, ReturnTarget, UNBOUNDED, bits};
use crate::program::{PushedWords, ReturnBehavior};
use crate::state::{AbstractState, SCRATCH};
use crate::value::{AbstractValue, JumpTable, JumpTableEncoding, ValueFact};

impl AbstractState {
    /// Applies an operation of instruction `at`.
    pub fn transfer(&mut self, op: Op, at: u32, abi_info: &'static AbiInfo) {
        TransferFunction::new(abi_info).transfer(self, op, at);
    }
}

/// Applies operations to states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferFunction {
    pub(crate) abi_info: &'static AbiInfo,
    /// Values that the caller needs after the return: the registers that calls preserve, and the
    /// return address. Bit n stands for register n.
    saved_registers: u64,
    /// Registers that calls change beside those of the ABI: bit n stands for register n.
    pub(crate) changed_by_calls: u64,
}

impl TransferFunction {
    pub(crate) fn new(abi_info: &'static AbiInfo) -> TransferFunction {
        let saved = abi_info.preserved.iter().chain([&abi_info.return_address]);
        TransferFunction {
            abi_info,
            saved_registers: saved.fold(0, |all, register| all | 1 << (register & 63)),
            changed_by_calls: 0,
        }
    }

    /// The state at a function's entry.
    pub(crate) fn entry(self) -> AbstractState {
        let mut state = AbstractState::new();
        if self.abi_info.return_target_of_call() == ReturnTarget::Stack {
            let sp = state.get(self.abi_info.stack_pointer);
            state.store(sp, AbstractValue::entry_value(self.abi_info.return_address));
        }
        state
    }

    /// The stack pointer at entry.
    pub(crate) fn entry_sp(self) -> AbstractValue {
        AbstractValue::entry_value(self.abi_info.stack_pointer)
    }

    /// Whether an address is on the stack, if it is known at all.
    pub(crate) fn is_on_stack(self, at: AbstractValue) -> bool {
        match at.fact() {
            ValueFact::EntryValue(register, _) => register.0 == self.abi_info.stack_pointer.into(),
            ValueFact::SymbolicBase(..) => true,
            _ => false,
        }
    }

    /// Sets register `to` after instruction `at`.
    #[inline]
    fn set(self, state: &mut AbstractState, to: u8, value: AbstractValue, at: u32) {
        let is_lost = to == self.abi_info.stack_pointer
            && !value.is_address()
            && value != AbstractValue::UNKNOWN;
        if is_lost && value.is_read_at_fixed_address() {
            self.set_loaded(state, to, value);
        } else if is_lost {
            // Its address is unknown; distances from it are not.
            state.set_symbolic_base(to, at);
        } else {
            state.set(to, value);
        }
    }

    /// Sets register `to` to a value from memory. A stack pointer from memory was saved earlier: of
    /// this stack or of another.
    fn set_loaded(self, state: &mut AbstractState, to: u8, value: AbstractValue) {
        let is_kept = to == self.abi_info.stack_pointer && !value.is_address();
        state.set(
            to,
            if is_kept {
                AbstractValue::UNKNOWN
            } else {
                value
            },
        );
    }

    /// Whether unwinding needs a value: a preserved register's entry value, the return address, or
    /// the CFA or an address above.
    fn is_saved(self, value: AbstractValue) -> bool {
        match value.as_entry() {
            Some((register, offset)) if register == self.abi_info.stack_pointer => offset >= 0,
            Some((register, offset)) => {
                offset == 0 && self.saved_registers >> (register & 63) & 1 != 0
            }
            None => false,
        }
    }

    /// Whether no callee changes a slot with this value. That holds for a value that [is
    /// saved](TransferFunction::is_saved), and for a frame pointer: the address where the caller's
    /// frame pointer is saved. It also holds for the address of a save in a frame that the stack
    /// pointer has left. An address in the current frame may be the end of an array below.
    fn survives_call(self, state: &AbstractState, value: AbstractValue) -> bool {
        let is_left = || {
            let sp = state.get(self.abi_info.stack_pointer);
            let is_elsewhere = sp.is_address() && !sp.is_unconstrained();
            value.is_address() && is_elsewhere && value.distance_from(sp).is_none()
        };
        self.is_saved(value)
            || state.load(value).is_some_and(|saved| {
                let is_frame_pointer =
                    saved == AbstractValue::entry_value(self.abi_info.frame_pointer);
                is_frame_pointer || self.is_saved(saved) && is_left()
            })
    }

    /// Whether unwinding may need a value.
    fn may_be_saved(self, value: AbstractValue) -> bool {
        value == AbstractValue::UNKNOWN || self.is_saved(value)
    }

    /// The result of a computation about which nothing more is known.
    fn computed_value(self, to: u8, operands: [AbstractValue; 2]) -> AbstractValue {
        // A stack pointer minus something is another stack pointer.
        let is_own = |value: AbstractValue| {
            to != self.abi_info.stack_pointer
                && matches!(value.as_entry(), Some((register, _)) if register == to)
        };
        let may_be_kept = |value: &AbstractValue| {
            is_own(*value)
                || *value == AbstractValue::UNKNOWN
                || to != self.abi_info.stack_pointer && self.is_saved(*value)
        };
        if operands.iter().any(may_be_kept) {
            AbstractValue::UNKNOWN
        } else {
            AbstractValue::FRESH
        }
    }

    /// Applies an operation of instruction `at`.
    #[inline(always)]
    pub(crate) fn transfer(self, state: &mut AbstractState, op: Op, at: u32) {
        match op {
            Op::Add { to, from, bytes } => {
                let old = state.get(from);
                let is_kept = to == self.abi_info.stack_pointer && old.is_read_at_fixed_address();
                let value = if is_kept { old } else { old.plus(bytes.into()) };
                self.set(state, to, value, at);
            }
            Op::Clobber { registers } => {
                for register in bits(registers) {
                    self.set(state, register, AbstractValue::FRESH, at);
                }
            }
            Op::Load { to, base, offset } => {
                let value = self.load_value(state, state.get(base).plus(offset.into()));
                self.set_loaded(state, to, value);
            }
            Op::Store { base, offset, from } => {
                let place = state.get(base).plus(offset.into());
                let value = state.get(from);
                match place.is_address() {
                    true => state.store(place, value),
                    false if self.is_saved(value) => state.escape(),
                    false => {}
                }
            }
            Op::Overwrite { base, offset, size } => {
                overwrite(state, base, offset, size.into());
            }
            Op::StoreLow {
                base, offset, size, ..
            } => overwrite(state, base, offset, size.into()),
            Op::WeakOverwrite { base, offset, size } => {
                let place = state.get(base).plus(offset.into());
                if place.is_address() && size != UNBOUNDED {
                    state.invalidate_indexed(place, size.into());
                }
                overwrite_perhaps(state, place, size);
            }
            Op::StoreUntracked { base, offset, size } => {
                let place = state.get(base).plus(offset.into());
                if place.is_address() && size == 8 && state.has_escaped() {
                    state.store(place, AbstractValue::UNKNOWN);
                } else {
                    overwrite(state, base, offset, size.into());
                }
            }
            Op::EscapeMemory { base, offset, size } => {
                let place = state.get(base).plus(offset.into());
                if state.has_within(place, size.into(), |holds| self.is_saved(holds)) {
                    state.escape();
                }
            }
            Op::Escape { from } => {
                if self.is_saved(state.get(from)) {
                    state.escape();
                }
            }
            Op::Fill {
                base,
                count,
                size,
                contents,
            } => self.fill(state, base, (count, size), contents),
            Op::Advance { to, count, size } => {
                let value = self.advanced(state, to, count, size);
                self.set(state, to, value, at);
            }
            Op::Compute { to, from } => {
                // An unknown value is combined with others: then a saved one is left by chance.
                let is_left = |register: u8| to >> register & 1 != 0 || from.is_power_of_two();
                let is_any = bits(from.into()).any(|from| {
                    let value = state.get(from);
                    self.is_saved(value) || value == AbstractValue::UNKNOWN && is_left(from)
                });
                let value = if is_any {
                    AbstractValue::UNKNOWN
                } else {
                    AbstractValue::FRESH
                };
                for to in bits(to.into()) {
                    self.set(state, to, value, at);
                }
            }
            Op::Choose { to, from } => {
                let values = [to, from].map(|register| state.get(register));
                let value = match values {
                    [old, new] if old == new => old,
                    _ if values.contains(&AbstractValue::UNKNOWN) => AbstractValue::UNKNOWN,
                    // Both happen.
                    _ => AbstractValue::FRESH,
                };
                self.set(state, to, value, at);
            }
            Op::StoreIndexed {
                base,
                index,
                offset,
                from,
            } => {
                self.store_entry(state, (base, index, offset), from, at);
            }
            Op::OverwriteIndexed { .. }
            | Op::OverwriteTileRows { .. }
            | Op::OverwriteUnbounded { .. }
            | Op::SaveState { .. } => self.overwrite_array(state, op),
            Op::Direction { is_down } => state.set_direction(is_down),
            Op::Halt => {}
            Op::LoadLow { to, .. } | Op::SignExtend { to, .. } => {
                self.set(state, to, AbstractValue::FRESH, at);
            }
            Op::AddUnknown { to, .. } => {
                let value = self.sum_with_unknown(to);
                self.set(state, to, value, at);
            }
            Op::Constant { to, value } | Op::Address { to, value } => {
                self.set(state, to, AbstractValue::constant(value), at);
            }
            Op::Unknown { to } => state.set(to, AbstractValue::UNKNOWN),
            Op::Bound { to, from, limit } => {
                self.set(state, to, narrow(state.get(from), limit), at);
            }
            Op::SystemCall { number } => self.system_call(state, number),
            Op::AssumeStackPointer { offset } => self.assume_stack_pointer(state, offset),
            Op::Align { multiple } => self.align(state, multiple, at),
            Op::Sum { to, a, b } => {
                let value = self.sum(to, state.get(a), state.get(b));
                self.set(state, to, value, at);
            }
            Op::Difference { to, a, b } => {
                let value = self.difference(to, state.get(a), state.get(b));
                self.set(state, to, value, at);
            }
            Op::LoadSum { to, a, b, offset } => {
                let numbers = [state.get(a), state.get(b)].map(AbstractValue::as_constant);
                let value = match numbers {
                    [Some(table), None] | [None, Some(table)] => {
                        // The other operand counts bytes, so its bound is not that of an index.
                        AbstractValue::relative_table_entry(
                            table.wrapping_add_signed(offset.into()),
                            None,
                        )
                    }
                    _ => AbstractValue::FRESH,
                };
                self.set(state, to, value, at);
            }
            Op::LoadIndexed {
                to,
                base,
                index,
                size,
                offset,
            } => {
                let base = base.map_or(AbstractValue::constant(0), |base| state.get(base));
                let (place, index) = (base.plus(offset.into()), state.get(index));
                let known = state.indexed().filter(|_| size == 8);
                let value = match known.and_then(|slot| slot.address(place, index)) {
                    Some(place) => self.load_value(state, place),
                    None => self.table_entry(place, index, size),
                };
                self.set_loaded(state, to, value);
            }
        }
    }

    /// Stores 8 bytes at 8 times an index above a stack address. A saved register there is found by
    /// the same index; all else belongs to arrays.
    #[inline(never)]
    fn store_entry(
        self,
        state: &mut AbstractState,
        (base, index, offset): (u8, u8, i32),
        from: u8,
        at: u32,
    ) {
        let value = state.get(from);
        let is_lost =
            base == self.abi_info.stack_pointer && state.get(base) == AbstractValue::UNKNOWN;
        if is_lost && self.is_saved(value) {
            // Its address is unknown; the slot is relative to it.
            state.name_unconstrained_base(base, at);
        }
        let place = state.get(base).plus(offset.into());
        let number = state.get(index);
        let known = match (state.indexed(), number.as_constant()) {
            (_, Some(number)) => Some(place.plus(number.cast_signed().saturating_mul(8))),
            (Some(slot), None) => slot.address(place, number),
            (None, None) => None,
        };
        if let Some(place) = known.filter(|place| place.is_address()) {
            state.store_into_array(place, value);
        } else {
            self.assume_bounds(state, place);
        }
        if known.is_none_or(|place| !place.is_address()) && self.is_saved(value) {
            // The index may get a symbolic base. It must not if it is unknown: then it may be an
            // entry value.
            if self.is_on_stack(place) && number != AbstractValue::UNKNOWN {
                state.store_indexed(place, index, value, at);
            } else {
                state.escape();
            }
        }
    }

    /// How many bytes a string instruction reads or writes, if that is known.
    fn string_bytes(self, state: &AbstractState, count: Option<u8>, size: u8) -> Option<i64> {
        /// Larger than any frame.
        const MAX_COUNT: u64 = 1 << 20;
        let count = count.map_or(Some(1), |count| state.get(count).as_constant())?;
        let count = i64::try_from(count).ok().filter(|_| count < MAX_COUNT)?;
        Some(count * i64::from(size))
    }

    /// The result of [`Op::Advance`].
    fn advanced(self, state: &AbstractState, to: u8, count: Option<u8>, size: u8) -> AbstractValue {
        let old = state.get(to);
        match self.string_bytes(state, count, size) {
            Some(bytes) if old.is_address() && !state.is_down() => old.plus(bytes),
            _ => AbstractValue::FRESH,
        }
    }

    /// Applies [`Op::Fill`]. An unknown length is assumed to stay inside a program's array.
    #[inline(never)]
    fn fill(
        self,
        state: &mut AbstractState,
        base: u8,
        (count, size): (Option<u8>, u8),
        contents: FillContents,
    ) {
        let place = state.get(base);
        let Some(bytes) = self.string_bytes(state, count, size) else {
            return self.assume_bounds(state, place);
        };
        if bytes == 0 {
            return;
        }
        let may_save = self.may_save(state, contents, bytes);
        if may_save {
            state.escape();
        }
        // The lowest byte is elsewhere if it fills downwards.
        let before = if state.is_down() {
            bytes - i64::from(size)
        } else {
            0
        };
        if !place.is_address() {
        } else if may_save || state.is_down() {
            state.overwrite_weakly(place.plus(-before), before + bytes);
        } else {
            state.overwrite(place, bytes);
        }
    }

    /// Whether what is stored may be a value that unwinding needs.
    fn may_save(self, state: &AbstractState, contents: FillContents, bytes: i64) -> bool {
        match contents {
            FillContents::Register(from) => self.may_be_saved(state.get(from)),
            FillContents::Memory(from) => {
                let before = if state.is_down() { bytes } else { 0 };
                let copied = state.get(from).plus(-before);
                state.has_escaped()
                    || copied == AbstractValue::UNKNOWN
                    || state.has_within(copied, before + bytes, |holds| self.may_be_saved(holds))
            }
            FillContents::Other => false,
        }
    }

    /// Notes that a store around a stack address is assumed to stay inside its array.
    fn assume_bounds(self, state: &mut AbstractState, at: AbstractValue) {
        if self.is_on_stack(at) {
            state.assume_bounds();
        }
    }

    /// Applies an operation that writes several elements of an array, or an element that only a run
    /// knows. A program's arrays contain no saved registers.
    #[inline(never)]
    fn overwrite_array(self, state: &mut AbstractState, op: Op) {
        match op {
            Op::OverwriteIndexed {
                base,
                index,
                scale,
                offset,
                size,
            } => {
                let base = state.get(base);
                if !base.is_address() {
                    return;
                }
                let index = index.map(|index| state.get(index));
                if let Some(number) = index.and_then(AbstractValue::as_constant) {
                    let above = i64::from(scale).wrapping_mul(number.cast_signed());
                    let place = base.plus(above.saturating_add(offset.into()));
                    return overwrite_perhaps(state, place, size);
                }
                if let Some(slot) = state.indexed()
                    && index.is_none_or(|index| slot.is_found_by(base, index))
                {
                    state.forget_indexed();
                }
                self.assume_bounds(state, base);
            }
            Op::OverwriteTileRows {
                base,
                index,
                scale,
                offset,
                size,
                count,
            } => {
                let base = state.get(base);
                let stride = state.get(index).as_constant().map(u64::cast_signed);
                let stride = stride.map(|stride| stride.saturating_mul(scale.into()));
                match stride.filter(|stride| (0..i64::from(UNBOUNDED)).contains(stride)) {
                    Some(stride) => {
                        let bytes = stride * i64::from(count.saturating_sub(1)) + i64::from(size);
                        let place = base.plus(offset.into());
                        if place.is_address() {
                            state.overwrite_weakly(place, bytes);
                        }
                    }
                    None => state.overwrite_unbounded(base),
                }
            }
            Op::OverwriteUnbounded { base } => state.overwrite_unbounded(state.get(base)),
            Op::SaveState {
                base,
                offset,
                chosen,
            } => {
                let chosen = chosen.map(|register| state.get(register).as_constant());
                let place = state.get(base).plus(offset.into());
                if place.is_address() {
                    state.overwrite_weakly(place, most_bytes(self.abi_info.state_bytes(chosen)));
                }
            }
            _ => {}
        }
    }

    /// Applies [`Op::SystemCall`]. If a child runs first on the same stack, memory below the stack
    /// pointer may be the child's.
    #[inline(never)]
    fn system_call(self, state: &mut AbstractState, number: Option<u8>) {
        let abi_info = self.abi_info;
        let number = number.and_then(|number| state.get(number).as_constant());
        let argument = |place: usize| {
            let register = abi_info.arguments.get(place)?;
            state.get(*register).as_constant()
        };
        let has_new_stack =
            number.is_some_and(|number| abi_info.stack_switching_syscalls.contains(&number));
        let is_shared = match number {
            Some(number) if number == abi_info.clone_syscall => {
                let has_own_memory =
                    argument(0).is_some_and(|it| it & abi_info.share_memory_flag == 0);
                let is_elsewhere = argument(1).is_some_and(|stack| stack != 0);
                !has_own_memory && !is_elsewhere
            }
            Some(number) => has_new_stack || abi_info.stack_sharing_syscalls.contains(&number),
            None => true,
        };
        if is_shared {
            state.invalidate_below(state.get(abi_info.stack_pointer));
        }
        if has_new_stack {
            state.set(abi_info.stack_pointer, AbstractValue::UNKNOWN);
        }
    }

    /// Contents of 8 bytes at an address.
    fn load_value(self, state: &AbstractState, place: AbstractValue) -> AbstractValue {
        match place.fact() {
            ValueFact::Unknown => AbstractValue::UNKNOWN,
            ValueFact::EntryValue(register, offset) => match state.load(place) {
                Some(value) => value,
                // The caller owns the memory above the return address.
                None if register.0 == self.abi_info.stack_pointer.into() && offset > 0 => {
                    AbstractValue::UNKNOWN
                }
                None => AbstractValue::FRESH,
            },
            // Above a relocated stack pointer there may be older contents.
            ValueFact::SymbolicBase(_, offset) => {
                let unknown = if offset < 0 && place.is_relocated_stack() {
                    AbstractValue::FRESH
                } else {
                    AbstractValue::UNKNOWN
                };
                state.load(place).unwrap_or(unknown)
            }
            // It may be a jump target.
            ValueFact::Constant(address) => AbstractValue::table_target(JumpTable {
                address,
                max_index: Some(0),
                encoding: JumpTableEncoding::Absolute64,
            }),
            _ if state.has_escaped() => AbstractValue::UNKNOWN,
            _ => AbstractValue::FRESH,
        }
    }

    #[inline(never)]
    fn table_entry(self, table: AbstractValue, index: AbstractValue, size: u8) -> AbstractValue {
        let last = match index.fact() {
            ValueFact::AtMost(last) => Some(last),
            ValueFact::Constant(last) => u16::try_from(last).ok(),
            _ => None,
        };
        match (table.as_constant(), size) {
            (Some(table), 4) => AbstractValue::relative_table_entry(table, last),
            (Some(address), _) => AbstractValue::table_target(JumpTable {
                address,
                max_index: last,
                encoding: JumpTableEncoding::Absolute64,
            }),
            (None, _) if self.is_on_stack(table) || table == AbstractValue::UNKNOWN => {
                AbstractValue::UNKNOWN
            }
            (None, _) => AbstractValue::FRESH,
        }
    }

    #[inline(never)]
    fn difference(self, to: u8, a: AbstractValue, b: AbstractValue) -> AbstractValue {
        match b.as_constant() {
            Some(bytes) => a.plus(bytes.cast_signed().wrapping_neg()),
            None => self.computed_value(to, [a, b]),
        }
    }

    #[inline(never)]
    fn sum(self, to: u8, a: AbstractValue, b: AbstractValue) -> AbstractValue {
        let distance = |distance: AbstractValue, address: AbstractValue| match (
            distance.fact(),
            address.as_constant(),
        ) {
            (
                ValueFact::RelativeTableEntry {
                    table,
                    max_index: last,
                },
                Some(address),
            ) if table == address => Some(AbstractValue::table_target(JumpTable {
                address,
                max_index: last,
                encoding: JumpTableEncoding::Relative32,
            })),
            _ => None,
        };
        if let Some(target) = distance(a, b).or_else(|| distance(b, a)) {
            return target;
        }
        match (a.as_constant(), b.as_constant()) {
            (_, Some(bytes)) => a.plus(bytes.cast_signed()),
            (Some(bytes), _) => b.plus(bytes.cast_signed()),
            _ if to == self.abi_info.stack_pointer => self.sum_with_unknown(to),
            _ => self.computed_value(to, [a, b]),
        }
    }

    /// Result of adding an unknown number to a register. The stack pointer may have its old value
    /// again.
    fn sum_with_unknown(self, to: u8) -> AbstractValue {
        if to == self.abi_info.stack_pointer {
            AbstractValue::UNKNOWN
        } else {
            AbstractValue::FRESH
        }
    }

    /// Applies [`Op::Align`]. A value may be saved in several adjacent slots above the stack
    /// pointer. If these are enough, one of them is at a fixed distance above the aligned stack
    /// pointer, however far the alignment lowers that. The slot at this distance gets the value.
    #[inline(never)]
    fn align(self, state: &mut AbstractState, multiple: u32, at: u32) {
        /// Such code saves a value twice, or four times.
        const MAX_DUPLICATED_ALIGNMENT: u32 = 64;
        const WORD: i64 = 8;
        let sp = self.abi_info.stack_pointer;
        let old = state.get(sp);
        state.align(sp, multiple, at);
        let ways = i64::from(multiple) / WORD;
        if multiple > MAX_DUPLICATED_ALIGNMENT || !self.is_on_stack(old) {
            return;
        }
        for above in ways - 1..2 * ways {
            let slots = (0..ways).map(|way| state.load(old.plus((above - way) * WORD)));
            let Some(Some(saved)) = same(slots) else {
                continue;
            };
            if self.survives_call(state, saved) {
                state.store_into_array(
                    AbstractValue::symbolic_base(at, 0).plus(above * WORD),
                    saved,
                );
            }
        }
    }

    /// Applies [`Op::AssumeStackPointer`].
    #[inline(never)]
    pub(crate) fn assume_stack_pointer(self, state: &mut AbstractState, offset: i32) {
        state.set(
            self.abi_info.stack_pointer,
            self.entry_sp().plus(offset.into()),
        );
        // Saved values belong to another activation: registers may hold values of the previous one.
        let is_saved = |register: &&u8| {
            let mut slots = state.slots().iter();
            slots.any(|slot| slot.value == AbstractValue::entry_value(**register))
        };
        let saved = self.abi_info.preserved.iter().filter(is_saved);
        let saved = saved.fold(0, |all, register| all | 1 << (register & 63));
        state.forget(self.abi_info.clobbered | saved);
        state.invalidate_all_matching(|state, holds| !self.survives_call(state, holds));
    }

    /// Whether a thread never returns from an operation, given the state before its instruction.
    pub(crate) fn never_returns(self, op: &Op, state: &AbstractState) -> bool {
        match *op {
            Op::SystemCall { number } => {
                let number = number.and_then(|number| state.get(number).as_constant());
                number.is_some_and(|number| self.abi_info.noreturn_syscalls.contains(&number))
            }
            Op::Halt => true,
            _ => false,
        }
    }

    /// Whether contents below the stack pointer are known.
    pub(crate) fn has_values_below(self, state: &AbstractState) -> bool {
        state.has_below(state.get(self.abi_info.stack_pointer))
    }

    /// Applies the effect of a call's callee on registers and on memory below the stack pointer.
    pub(crate) fn transfer_callee(self, state: &mut AbstractState) {
        self.transfer_callee_except(state, 0);
    }

    /// The same, except for some registers.
    fn transfer_callee_except(self, state: &mut AbstractState, kept: u64) {
        state.forget_indexed();
        state.forget_below(state.get(self.abi_info.stack_pointer));
        // A callee may change these but need not: callers in the same file may rely on that.
        let clobbered = self.abi_info.clobbered & !kept | self.changed_by_calls;
        state.forget(clobbered | 1 << SCRATCH);
    }

    /// Applies a callee's effect and its return, which may pop arguments or leave words.
    pub(crate) fn transfer_call(self, state: &mut AbstractState, returns: Option<ReturnBehavior>) {
        let (kept, lost, unknown, words) = match returns {
            Some(ReturnBehavior::Registers {
                kept,
                lost,
                unknown,
                words,
            }) => (kept, lost, unknown, words),
            _ => (0, 0, 0, 0),
        };
        self.transfer_callee_except(state, kept);
        for word in bits(words) {
            let at = state
                .get(self.abi_info.stack_pointer)
                .plus(8 * i64::from(word));
            if state.load(at).is_some() {
                state.store(at, AbstractValue::UNKNOWN);
            }
        }
        for register in bits(lost & !unknown) {
            state.set(register, AbstractValue::FRESH);
        }
        state.forget(unknown);
        // A callee that has the address of a stack slot may change it; no callee has that of a
        // saved register.
        state.invalidate_after_call(|state, holds| {
            holds.is_address() && !self.survives_call(state, holds)
        });
        let sp = state.get(self.abi_info.stack_pointer);
        match returns {
            Some(ReturnBehavior::Pops(pops @ 1..)) => {
                state.set(self.abi_info.stack_pointer, sp.plus(pops.into()));
            }
            Some(ReturnBehavior::LeavesWords(words)) => self.push_left_words(state, sp, words),
            Some(ReturnBehavior::Unknown) => {
                state.forget_slots();
                state.forget((1 << self.abi_info.return_address) - 1);
            }
            _ => {}
        }
    }

    /// Pushes the words that a callee leaves.
    #[inline(never)]
    fn push_left_words(self, state: &mut AbstractState, mut sp: AbstractValue, words: PushedWords) {
        for word in words.iter() {
            sp = sp.plus(-8);
            if sp.is_address() {
                let holds = word.map_or(AbstractValue::UNKNOWN, |register| state.get(register));
                state.store(sp, holds);
            }
        }
        state.set(self.abi_info.stack_pointer, sp);
    }

    /// Pushes the return address of a call within the same function, or puts it into its register.
    pub(crate) fn push_return(self, state: &mut AbstractState, address: u64) {
        if let ReturnTarget::Register(register) = self.abi_info.return_target_of_call() {
            state.set(register, AbstractValue::constant(address));
            return;
        }
        let sp = state.get(self.abi_info.stack_pointer);
        let sp = sp.plus(-i64::from(self.abi_info.call_pushes));
        state.set(self.abi_info.stack_pointer, sp);
        if sp.is_address() {
            state.store(sp, AbstractValue::constant(address));
        }
    }

    /// Pops the return address, if it was pushed.
    pub(crate) fn pop_return(self, state: &mut AbstractState) {
        let sp = state.get(self.abi_info.stack_pointer);
        let popped = sp.plus(self.abi_info.call_pushes.into());
        state.set(self.abi_info.stack_pointer, popped);
    }

    /// Whether a preserved register may still hold its entry value. That is worth more than a
    /// bound.
    fn holds_entry(self, state: &AbstractState, register: u8) -> bool {
        self.abi_info.preserved.contains(&register) && state.get(register).is_address()
    }

    /// The fact that a taken edge implies.
    pub(crate) fn branch_fact(
        self,
        state: &AbstractState,
        condition: BranchCondition,
        edge: BranchEdge,
    ) -> BranchFact {
        match condition {
            BranchCondition::Equal {
                a,
                b,
                holds_on: when,
            } => {
                let (first, second) = (state.get(a), state.get(b));
                if let Some(distance) = first.distance_from(second) {
                    return if (distance == 0) == (when == edge) {
                        BranchFact::None
                    } else {
                        BranchFact::Infeasible
                    };
                }
                // Facts about one of two equal values hold for the other.
                match (first.is_address(), second.is_address()) {
                    (true, false) if when == edge => BranchFact::RegisterIs(b, first),
                    (false, true) if when == edge => BranchFact::RegisterIs(a, second),
                    _ => BranchFact::None,
                }
            }
            BranchCondition::AtMost {
                register,
                limit,
                holds_on: when,
            } if when == edge && !self.holds_entry(state, register) => {
                BranchFact::RegisterIs(register, narrow(state.get(register), limit.into()))
            }
            BranchCondition::None | BranchCondition::AtMost { .. } => BranchFact::None,
        }
    }
}

/// The fact that a branch edge implies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BranchFact {
    /// Nothing.
    None,
    /// A register holds this value.
    RegisterIs(u8, AbstractValue),
    /// The edge is infeasible.
    Infeasible,
}

/// The common value, if all are equal.
fn same<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// Strong update of `size` bytes at a register plus `offset`.
fn overwrite(state: &mut AbstractState, base: u8, offset: i32, size: i64) {
    let place = state.get(base).plus(offset.into());
    if place.is_address() {
        state.overwrite(place, size);
    }
}

/// Weak update of `size` bytes at an address.
fn overwrite_perhaps(state: &mut AbstractState, place: AbstractValue, size: u16) {
    match size {
        _ if !place.is_address() => {}
        UNBOUNDED => state.overwrite_weakly(place, most_bytes(size)),
        size => state.overwrite_in_array(place, size.into()),
    }
}

/// The greatest number of bytes that an operation writes.
fn most_bytes(size: u16) -> i64 {
    match size {
        UNBOUNDED => u32::MAX.into(),
        size => size.into(),
    }
}

/// A value truncated to at most `limit`.
fn narrow(value: AbstractValue, limit: u32) -> AbstractValue {
    match value.fact() {
        ValueFact::AtMost(most) => AbstractValue::at_most(u64::from(limit.min(most.into()))),
        ValueFact::Constant(number) if number <= limit.into() => value,
        ValueFact::RelativeTableEntry { .. } if limit >= 0x7fff_ffff => value,
        _ => AbstractValue::at_most(limit.into()),
    }
}
