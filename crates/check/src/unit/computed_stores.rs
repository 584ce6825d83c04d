//! Stores of hand-written code that only a run can place: proofs depend on that they stay in the
//! program's arrays.

use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::program::CodeImage as _;
use unspool_code_analysis::{AbstractState, AbstractValue, Analysis, SideEffect, SideEffects};
use unspool_synthesis::ElfCodeImage;

use super::register_set;
use crate::subject::CheckSubject;

/// Stands for memory that is not on the stack, and for registers that are not tracked, in sets of
/// registers.
const ELSEWHERE: u64 = 1 << 62;

impl CheckSubject<'_> {
    /// Whether a unit stores through a register that it computed from a stack address, at a distance
    /// that the code does not show, or has a callee store to the slot of a saved register.
    pub(super) fn has_computed_stores(&self, analysis: &Analysis<'_>) -> bool {
        let mut origins = StackOrigins::default();
        let (abi_info, code) = (analysis.abi_info(), analysis.code());
        let (sp, image) = (abi_info.stack_pointer, ElfCodeImage(self.file()));
        let mut side_effects = SideEffects::new(self.table().abi());
        let mut effects = Vec::new();
        let mut shares_slot = false;
        analysis.visit_ops(|insn, op, state| {
            let on_stack = |register: u8| analysis.is_on_stack(state.get(register));
            let Some(op) = op else {
                let is_call = code.flow(insn).is_some_and(Flow::is_call);
                shares_slot |= is_call && self.passes_saved_slot(state);
                return;
            };
            shares_slot |= matches!(op, Op::SystemCall { .. }) && self.passes_saved_slot(state);
            let sources = match op {
                // The distance is known.
                Op::Add { from, .. } if on_stack(from) => 0,
                Op::Add { from, .. } | Op::Bound { from, .. } | Op::Escape { from } => 1 << from,
                Op::Sum { a, b, .. } => 1 << a | 1 << b,
                Op::Difference { a, .. } => 1 << a,
                Op::AddUnknown { base, .. } => 1 << base,
                Op::Advance { to, .. } => 1 << to,
                Op::Choose { to, from } => 1 << to | 1 << from,
                Op::Compute { from, .. } => from.into(),
                Op::Store { from, base, .. } if !on_stack(base) => 1 << from,
                Op::Load { base, .. } if on_stack(base) => 0,
                Op::LoadIndexed {
                    base: Some(base), ..
                } if on_stack(base) => 0,
                Op::Load { .. } | Op::LoadIndexed { .. } | Op::Unknown { .. } => ELSEWHERE,
                Op::Clobber { .. } => {
                    let range = code.range(insn);
                    effects.clear();
                    if let Some(side_effects) = &mut side_effects
                        && let Some(bytes) = image.bytes(range.clone())
                    {
                        side_effects.lift(bytes, range.start, &mut effects);
                    }
                    effects.iter().fold(0, |all, effect| match effect {
                        SideEffect::Escape { registers } => all | registers,
                        _ => all,
                    })
                }
                _ => 0,
            };
            let mut written = op.written(sp)
                & register_set(|register| register < abi_info.machine_registers && register != sp);
            written |= match op {
                Op::Store { base, .. } if !on_stack(base) => ELSEWHERE,
                Op::Escape { .. } => ELSEWHERE,
                _ => 0,
            };
            origins.addresses |= match op {
                Op::Add { to, from, .. } if on_stack(from) => 1 << to & written,
                _ => 0,
            };
            let is_stack = register_set(|register| {
                register < abi_info.machine_registers && on_stack(register)
            });
            if sources & is_stack != 0 {
                origins.computed |= written;
            } else if sources != 0 && written != 0 {
                origins.moves.push((sources, written));
            }
            let base = match op {
                Op::StoreIndexed { base, .. }
                | Op::OverwriteIndexed { base, .. }
                | Op::Fill { base, .. } => Some(base),
                op => op.stored().map(|(base, ..)| base),
            };
            let base = base.map(|base| (base, state.get(base)));
            if let Some((base, value)) = base.filter(|(_, value)| !value.is_address()) {
                origins.stores |= 1 << base;
                // Stack addresses of two paths.
                let is_joined = value == AbstractValue::UNKNOWN;
                origins.joined_stores |= u64::from(is_joined) << base;
            }
        });
        shares_slot || origins.reaches_a_store()
    }

    /// Whether a callee gets the address of a saved register's slot in a register.
    fn passes_saved_slot(&self, state: &AbstractState) -> bool {
        let abi_info = self.abi_info();
        let passed = (0..abi_info.machine_registers)
            .filter(|register| abi_info.clobbered >> register & 1 != 0);
        let mut saved = passed.filter_map(|register| state.load(state.get(register)));
        let is_saved = |value: AbstractValue| {
            let preserved = abi_info.preserved.iter().chain([&abi_info.return_address]);
            preserved
                .copied()
                .any(|register| value == AbstractValue::entry_value(register))
        };
        saved.any(is_saved)
    }
}

/// Where a unit's registers get addresses from, regardless of the order. Sets of registers: bit n
/// stands for register n.
#[derive(Debug, Default)]
struct StackOrigins {
    /// Registers that hold a known stack address somewhere.
    addresses: u64,
    /// Registers computed from one.
    computed: u64,
    /// Registers computed from others: the sources, and the results.
    moves: Vec<(u64, u64)>,
    /// Registers of which nothing is known where something is stored through them.
    stores: u64,
    /// Those of them that may hold different stack addresses on different paths.
    joined_stores: u64,
}

impl StackOrigins {
    fn reaches_a_store(&self) -> bool {
        let mut computed = self.computed;
        loop {
            let before = computed;
            for (sources, results) in &self.moves {
                if sources & computed != 0 {
                    computed |= results;
                }
            }
            if computed == before {
                return computed & self.stores | self.addresses & self.joined_stores != 0;
            }
        }
    }
}
