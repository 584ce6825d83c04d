//! Is what a row says true in a state?

use std::collections::HashMap;

use unspool_ir::{Abi, Row, RowId, Table};
use unspool_synth::arch::Facts;
use unspool_synth::state::Slot;
use unspool_synth::sweep::frame::{Frame, Held};
use unspool_synth::{Known, State, Value};

use crate::declared::{Declared, Place};
use crate::witness::{WithExpressions, Witness};

/// Whether something that a row says is true, whichever way control came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is.
    Proven,
    /// Neither can be shown.
    Unproven,
    /// It is not.
    Refuted,
}

/// What of a row is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// The CFA.
    Cfa,
    /// The return address.
    ReturnAddress,
    /// A register that calls preserve.
    Register(u8),
}

/// What was found of a row before one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// Of the CFA.
    pub cfa: Verdict,
    /// Of the return address.
    pub return_address: Verdict,
    /// Of the preserved registers, in the order of [`Facts::preserved`].
    pub preserved: [Verdict; Declared::MOST],
}

impl Judgement {
    /// All is true.
    pub const PROVEN: Judgement = Judgement {
        cfa: Verdict::Proven,
        return_address: Verdict::Proven,
        preserved: [Verdict::Proven; Declared::MOST],
    };

    /// The worst of the return address and the preserved registers.
    #[must_use]
    pub fn registers(&self) -> Verdict {
        let worst = self.preserved.iter().copied().max();
        worst.unwrap_or(Verdict::Proven).max(self.return_address)
    }

    /// The worst of all.
    #[must_use]
    pub fn worst(&self) -> Verdict {
        self.registers().max(self.cfa)
    }

    /// For each aspect the worse of two.
    #[must_use]
    pub fn worse(mut self, other: &Judgement) -> Judgement {
        self.cfa = self.cfa.max(other.cfa);
        self.return_address = self.return_address.max(other.return_address);
        for (mine, theirs) in self.preserved.iter_mut().zip(other.preserved) {
            *mine = (*mine).max(theirs);
        }
        self
    }

    /// The same, with nothing worse than a verdict.
    #[must_use]
    pub(crate) fn at_worst(mut self, worst: Verdict) -> Judgement {
        let own = [&mut self.cfa, &mut self.return_address];
        for verdict in own.into_iter().chain(&mut self.preserved) {
            *verdict = worst.min(*verdict);
        }
        self
    }

    /// The aspects and what was found of each.
    pub fn aspects(&self, facts: &Facts) -> impl Iterator<Item = (Aspect, Verdict)> + use<'_> {
        let registers = facts.preserved.iter().copied().map(Aspect::Register);
        let own = [
            (Aspect::Cfa, self.cfa),
            (Aspect::ReturnAddress, self.return_address),
        ];
        own.into_iter()
            .chain(registers.zip(self.preserved.iter().copied()))
    }
}

/// Judges the rows of one table.
#[derive(Debug)]
pub(crate) struct Judge<'t> {
    pub(crate) facts: &'static Facts,
    table: &'t Table,
    declared: Vec<Option<Declared>>,
    proofs: Vec<Option<Proof>>,
    /// What rows say of frames, if they say no more; and the lowest slot in that.
    claims: Vec<Option<(Frame, i16)>>,
    /// The rows that have expressions.
    expressions: HashMap<RowId, WithExpressions<'t>>,
    /// The CFA, as the states have it.
    cfa: Value,
}

impl<'t> Judge<'t> {
    pub(crate) fn new(table: &'t Table, facts: &'static Facts) -> Judge<'t> {
        let ids = (0..u32::try_from(table.distinct_rows()).unwrap_or(u32::MAX)).map(RowId);
        let declared: Vec<_> = ids
            .map(|id| Some(Declared::of(&table.row(id)?, facts)))
            .collect();
        let cfa = Value::at_entry(facts.stack_pointer).plus(facts.call_pushes.into());
        let proof = |declared: &Option<Declared>| Proof::of(declared.as_ref()?, facts, cfa);
        let expressions = (0..).map(RowId).zip(&declared);
        let expressions = expressions.filter_map(|(id, declared)| {
            declared.as_ref().filter(|row| row.has_expression)?;
            Some((id, WithExpressions::new(table.row(id)?, table.abi())))
        });
        Judge {
            facts,
            table,
            expressions: expressions.collect(),
            proofs: declared.iter().map(proof).collect(),
            claims: declared
                .iter()
                .map(|row| claim(row.as_ref()?, facts).map(|frame| (frame, frame.lowest())))
                .collect(),
            declared,
            cfa,
        }
    }

    pub(crate) fn abi(&self) -> Abi {
        self.table.abi()
    }

    /// A row of the table.
    pub(crate) fn row(&self, id: RowId) -> Option<Row<'t>> {
        self.table.row(id)
    }

    /// The CFA, as the states have it.
    pub(crate) fn cfa_at_entry(&self) -> Value {
        self.cfa
    }

    /// The registers that the expressions of a row read: bit n stands for register n.
    pub(crate) fn expressions_read(&self, id: RowId) -> u64 {
        self.expressions.get(&id).map_or(0, WithExpressions::reads)
    }

    /// What a row says.
    pub(crate) fn declared(&self, row: RowId) -> Option<&Declared> {
        self.declared.get(row.0 as usize)?.as_ref()
    }

    /// Whether it shows at a glance that all is true that a row says, as it mostly is.
    #[inline]
    pub(crate) fn is_proven_plainly(&self, id: RowId, state: &State) -> bool {
        let proof = self.proofs.get(id.0 as usize).and_then(Option::as_ref);
        proof.is_some_and(|proof| {
            // They are in the order downwards.
            let lowest = proof.slots.last();
            proof.holds(state) && !lowest.is_some_and(|slot| self.is_for_signals(slot.at, state))
        })
    }

    /// What a row says of frames, if it says no more.
    #[inline]
    pub(crate) fn claim(&self, id: RowId) -> Option<(Frame, i16)> {
        *self.claims.get(id.0 as usize)?
    }

    /// Judges a row before the instruction at `pc`.
    pub(crate) fn judge(&self, id: RowId, state: &State, pc: u64) -> Judgement {
        let Some(declared) = self.declared(id) else {
            return Judgement::PROVEN;
        };
        if declared.return_address == Place::Undefined || declared.signal_frame {
            // The outermost frame: nothing is claimed of a caller. What was interrupted did not call: the layout
            // of such a frame is looked at elsewhere.
            return Judgement::PROVEN;
        }
        let plainly = self.plainly(declared, state);
        let judgement = match self.expressions.get(&id) {
            Some(row) => Witness {
                facts: self.facts,
                abi: self.abi(),
                row,
                declared,
                state,
                pc,
            }
            .judge(plainly),
            None => plainly,
        };
        let is_elsewhere =
            self.is_on_other_stack(declared, state) || self.describes_context(declared, state);
        match is_elsewhere {
            true => judgement.at_worst(Verdict::Unproven),
            false => judgement,
        }
    }

    /// Whether a row counts from the stack pointer of which nothing is known, as where another stack was taken: whose frame it
    /// describes is not known either.
    fn is_on_other_stack(&self, declared: &Declared, state: &State) -> bool {
        let sp = self.facts.stack_pointer;
        let value = state.get(sp);
        declared.cfa.counts_from(sp) && (value == Value::UNKNOWN || value.is_anywhere())
    }

    /// Whether a row describes a context that control is about to go to, as those of `longjmp` do: it has a rule of its own
    /// for the stack pointer, and its CFA is no address of this stack. What is in such a context is an agreement.
    fn describes_context(&self, declared: &Declared, state: &State) -> bool {
        let has_rule = !matches!(declared.stack_pointer, None | Some(Place::Cfa(_)));
        let is_elsewhere = match declared.cfa {
            Place::Register(register, _) => match state.get(register).known() {
                Known::Entry(origin, _) => origin.0 != self.facts.stack_pointer.into(),
                Known::Base(..) => false,
                _ => true,
            },
            _ => false,
        };
        has_rule && is_elsewhere
    }

    /// Whether the kernel may write a signal's frame over a slot: it is below the red zone.
    pub(crate) fn is_for_signals(&self, at: Value, state: &State) -> bool {
        let above = at.distance_from(state.get(self.facts.stack_pointer));
        above.is_some_and(|above| above < -i64::from(self.facts.red_zone))
    }

    /// Judges the CFA alone; what is an expression is unproven.
    pub(crate) fn cfa(&self, declared: &Declared, state: &State) -> Verdict {
        match declared.cfa {
            Place::Register(register, offset) => {
                let value = state.get(register);
                let is_preserved = self.facts.preserved.contains(&register);
                match value.is_read_at_fixed_address() && !is_preserved {
                    true => Verdict::Unproven,
                    false => is_value(value.plus(offset), self.cfa_of(declared, state)),
                }
            }
            _ => Verdict::Unproven,
        }
    }

    /// What a row calls the CFA, from which it counts: where the caller's stack pointer is, or, if it has a rule for that which adds
    /// something, what it takes for it, if that is as much less.
    fn cfa_of(&self, declared: &Declared, state: &State) -> Value {
        match (declared.cfa, declared.stack_pointer) {
            (Place::Register(register, offset), Some(Place::Cfa(added)))
                if state.get(register).plus(offset).plus(added) == self.cfa =>
            {
                self.cfa.plus(added.saturating_neg())
            }
            _ => self.cfa,
        }
    }

    /// Judges all that is no expression; what is, is unproven.
    fn plainly(&self, declared: &Declared, state: &State) -> Judgement {
        let mut judgement = Judgement::PROVEN;
        judgement.cfa = self.cfa(declared, state);
        let cfa = self.cfa_of(declared, state);
        let column = self.facts.return_address;
        let returns_to = self
            .moved_return_address(declared.return_address, cfa, state)
            .unwrap_or(Value::at_entry(column));
        judgement.return_address = self.place(declared.return_address, cfa, returns_to, state);
        let claims = self.facts.preserved.iter().zip(&declared.preserved);
        for ((register, place), verdict) in claims.zip(&mut judgement.preserved) {
            *verdict = self.place(*place, cfa, Value::at_entry(*register), state);
        }
        if let Some(place) = declared.stack_pointer {
            let found = self.place(place, cfa, self.cfa, state);
            judgement.cfa = judgement.cfa.max(found);
        }
        judgement
    }

    /// What is where a row says that the return address is, if code has moved that over data behind the call: it is where a return would
    /// take it from, or there is none any more.
    fn moved_return_address(&self, place: Place, cfa: Value, state: &State) -> Option<Value> {
        let (column, pushes) = (self.facts.return_address, i64::from(self.facts.call_pushes));
        let own = self.cfa.plus(-pushes);
        let above = own.distance_from(state.get(self.facts.stack_pointer));
        let is_popped = above.is_some_and(|above| above < 0);
        let found = match place {
            Place::Register(register, offset) if is_popped => state.get(register).plus(offset),
            Place::AtCfa(offset) if cfa.plus(offset) == own => state.load(own)?,
            _ => return None,
        };
        found.behind_return(column).map(|_| found)
    }

    /// Takes back what was refuted of registers for which a row finds what another one of its entry says that they are by
    /// agreement with callers.
    pub(crate) fn spare_agreed(
        &self,
        found: &mut Judgement,
        row: &Declared,
        state: &State,
        of_entry: &[&Declared],
    ) {
        let claims = row.preserved.iter().zip(&mut found.preserved);
        for (at, (place, verdict)) in claims.enumerate() {
            let Place::Register(other, offset) = *place else {
                continue;
            };
            let above = state.get(other).plus(offset).distance_from(self.cfa);
            let is_agreed = |above| {
                let says = |other: &Declared| other.preserved.get(at) == Some(&Place::Cfa(above));
                of_entry.iter().copied().any(says)
            };
            if *verdict == Verdict::Refuted && above.is_some_and(is_agreed) {
                *verdict = Verdict::Unproven;
            }
        }
    }

    /// Whether the value that is wanted is where a row says. Offsets are taken from what `cfa` really is: a wrong one is told
    /// once.
    fn place(&self, place: Place, cfa: Value, wanted: Value, state: &State) -> Verdict {
        match place {
            Place::Undefined => Verdict::Proven,
            Place::Register(register, _) if is_pushed(register, self.facts) => Verdict::Refuted,
            Place::Register(register, offset) => is_value(state.get(register).plus(offset), wanted),
            Place::AtCfa(offset) => {
                let at = cfa.plus(offset);
                let slot = state.load(at);
                // What is above the return address is the caller's.
                let is_own = at.distance_from(self.cfa).is_some_and(|above| above < 0);
                let unknown = match is_own {
                    true => Value::FRESH,
                    false => Value::UNKNOWN,
                };
                let found = is_value(slot.unwrap_or(unknown), wanted);
                match self.is_for_signals(at, state) {
                    true => found.max(Verdict::Unproven),
                    false => found,
                }
            }
            // By agreement with the callers it may be.
            Place::Cfa(offset) => match cfa.plus(offset) == wanted {
                true => Verdict::Proven,
                false => Verdict::Unproven,
            },
            Place::Expression => Verdict::Unproven,
        }
    }

    /// The state at the start of code that only its row says how it is come into.
    pub(crate) fn entry(&self, declared: &Declared) -> Option<State> {
        let sp = self.facts.stack_pointer;
        let Place::Register(register, offset) = declared.cfa else {
            return None;
        };
        let mut state = State::new();
        if register != sp {
            return None;
        }
        state.set(sp, self.cfa.plus(offset.checked_neg()?));
        let registers = self.facts.preserved.iter().zip(&declared.preserved);
        let column = self.facts.return_address;
        let own = [(&column, &declared.return_address)];
        for (register, place) in registers.chain(own) {
            let value = Value::at_entry(*register);
            if let Place::AtCfa(offset) = place {
                state.set(*register, Value::UNKNOWN);
                state.store(self.cfa.plus(*offset), value);
            }
        }
        Some(state)
    }

    /// Where the CFA really is: a register and what must be added to it. If there are several, that of the claim is told, or else the
    /// stack pointer.
    pub(crate) fn true_cfa(&self, claim: Place, state: &State) -> Option<(u8, i64)> {
        let claimed = match claim {
            Place::Register(register, _) => Some(register),
            _ => None,
        };
        let first = claimed.into_iter().chain([self.facts.stack_pointer]);
        // What calls change is of no use behind the next one.
        let preserved = self.facts.preserved.iter().copied();
        let registers = first.chain(preserved).chain(0..self.facts.return_address);
        let mut found = registers.filter_map(|register| {
            let distance = self.cfa.distance_from(state.get(register))?;
            Some((register, distance))
        });
        found.next()
    }

    /// Where the value that a register had at entry really is. If it is in several places, the first is told, or a slot
    /// if a slot is claimed.
    pub(crate) fn true_place(&self, register: u8, claim: Place, state: &State) -> Option<Place> {
        let wanted = Value::at_entry(register);
        let slots = state.slots().iter();
        let mut found = slots.filter(|slot| slot.holds == wanted);
        let slot = found.find_map(|slot| slot.at.distance_from(self.cfa));
        let is_own = state.get(register) == wanted && register != self.facts.return_address;
        match (slot, claim) {
            (Some(offset), Place::AtCfa(_)) => Some(Place::AtCfa(offset)),
            _ if is_own => Some(Place::Register(register, 0)),
            (Some(offset), _) => Some(Place::AtCfa(offset)),
            (None, _) => {
                let mut others = 0..self.facts.return_address;
                let other = others.find(|other| state.get(*other) == wanted)?;
                Some(Place::Register(other, 0))
            }
        }
    }
}

/// What a row says of frames, if it says no more.
fn claim(declared: &Declared, facts: &Facts) -> Option<Frame> {
    let mut claim = Frame::UNKNOWN;
    let Place::Register(register, offset) = declared.cfa else {
        return None;
    };
    let distance = i16::try_from(offset).ok()?.checked_neg()?;
    let pushed = i64::from(facts.call_pushes);
    let is_plain = facts.points_at_frames(register)
        && declared.return_address == Place::AtCfa(-pushed)
        && matches!(declared.stack_pointer, None | Some(Place::Cfa(0)))
        && !declared.signal_frame;
    if !is_plain || !claim.know(register, Held::Stack(distance)) {
        return None;
    }
    for (register, place) in facts.preserved.iter().zip(&declared.preserved) {
        let is_told = match *place {
            Place::Undefined => true,
            Place::Register(own, 0) if own == *register => {
                claim.get(*register) == Held::Other && claim.know(*register, Held::Own)
            }
            Place::AtCfa(offset) => claim.know_saved(*register, i16::try_from(offset).ok()?),
            _ => false,
        };
        if !is_told {
            return None;
        }
    }
    Some(claim)
}

/// What shows at a glance that all is true that a row says, as it mostly is.
#[derive(Debug)]
struct Proof {
    /// What registers hold.
    registers: Vec<(u8, Value)>,
    /// What slots hold, in the order in which they are mostly saved: downwards.
    slots: Vec<Slot>,
}

impl Proof {
    /// The proof of a row; `None` if it takes more than looking at registers and slots.
    fn of(declared: &Declared, facts: &Facts, cfa: Value) -> Option<Proof> {
        let mut proof = Proof {
            registers: Vec::new(),
            slots: Vec::new(),
        };
        let preserved = facts.preserved.iter().zip(&declared.preserved);
        let registers = preserved.chain([(&facts.return_address, &declared.return_address)]);
        let registers = registers.map(|(register, place)| (Value::at_entry(*register), *place));
        let own = [declared.cfa].into_iter().chain(declared.stack_pointer);
        for (holds, place) in registers.chain(own.map(|place| (cfa, place))) {
            match place {
                Place::Register(register, _) if is_pushed(register, facts) => return None,
                Place::Register(register, offset) => {
                    let base = holds.plus(offset.checked_neg()?);
                    if !base.is_address() {
                        return None;
                    }
                    proof.registers.push((register, base));
                }
                Place::AtCfa(offset) => {
                    let at = cfa.plus(offset);
                    proof.slots.push(Slot { at, holds });
                }
                _ => return None,
            }
        }
        let below_cfa = |slot: &Slot| cfa.distance_from(slot.at);
        proof.slots.sort_by_key(below_cfa);
        Some(proof)
    }

    fn holds(&self, state: &State) -> bool {
        let mut registers = self.registers.iter();
        let mut slots = state.slots().iter();
        registers.all(|(register, value)| state.get(*register) == *value)
            && self
                .slots
                .iter()
                .all(|slot| slots.any(|known| known == slot))
    }
}

/// Whether a column stands for a return address that calls push: no register has it.
fn is_pushed(register: u8, facts: &Facts) -> bool {
    register == facts.return_address && facts.call_pushes != 0
}

fn is_value(value: Value, wanted: Value) -> Verdict {
    if value == wanted {
        return Verdict::Proven;
    }
    match value.known() {
        Known::Unknown => Verdict::Unproven,
        Known::Base(..) if value.is_anywhere() => Verdict::Unproven,
        _ => Verdict::Refuted,
    }
}
