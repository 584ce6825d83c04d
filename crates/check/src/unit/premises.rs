//! What the code of a unit does not show, and the analysis takes from the table or from a guess.

use unspool_code_analysis::dataflow::EdgeKind;
use unspool_code_analysis::program::CodeImage as _;
use unspool_code_analysis::{AbstractState, AbstractValue, Assumptions, ReturnBehavior};
use unspool_synthesis::ElfCodeImage;

use super::CheckedRow;
use crate::declared_row::DeclaredRow;
use crate::origin::CodeOrigin;
use crate::row_checker::{RowChecker, Verdict};
use crate::subject::CheckSubject;

/// How the function of a unit is entered.
#[derive(Debug, Clone, Default)]
pub(super) enum EntryPremise {
    /// As its first row says. The code may suggest something else.
    #[default]
    Unsettled,
    /// In a state that explains how it leaves.
    Assumed(Box<AssumedEntry>),
    /// As its first row says.
    AsCalled,
    /// As its first row says, or with the return address in a register, to which it jumps at an
    /// address.
    PerhapsLinked(u64, u8),
}

impl EntryPremise {
    pub(super) fn assumed(&self) -> Option<&AssumedEntry> {
        match self {
            EntryPremise::Assumed(entry) => Some(entry),
            _ => None,
        }
    }
}

/// A function that is not entered as by a call.
#[derive(Debug, Clone)]
pub(super) struct AssumedEntry {
    /// Its start.
    pub(super) start: u64,
    /// Its state there.
    pub(super) state: AbstractState,
    /// The jump that suggests it, and the register. It may also be a tail call.
    pub(super) jump: Option<(u64, u8)>,
}

/// What the code does not show: how a function is entered, and the targets of unresolved jumps.
#[derive(Debug, Default)]
pub(super) struct Premises {
    pub(super) entry: EntryPremise,
    /// Starts of unreached code.
    pub(super) targets: Vec<u64>,
    /// All unreached instructions, ascending.
    pub(super) unreached: Vec<u64>,
}

/// Assumes that the table is right where the code alone does not show whether control reaches an
/// address.
pub(crate) struct TableAssumptions<'s> {
    /// The rows of the unit, ascending.
    rows: &'s [CheckedRow],
    subject: &'s CheckSubject<'s>,
    row_checker: &'s RowChecker<'s>,
    origin: CodeOrigin,
    guesses: &'s [u64],
    assumed_entry: Option<&'s AssumedEntry>,
    /// Registers that calls change by the unit's convention: bit n stands for register n.
    changed_by_calls: u64,
}

impl<'s> TableAssumptions<'s> {
    pub(crate) fn new(
        subject: &'s CheckSubject<'s>,
        unit: usize,
        rows: &'s [CheckedRow],
    ) -> TableAssumptions<'s> {
        TableAssumptions {
            rows,
            subject,
            row_checker: &subject.row_checker,
            origin: subject.origin_of_unit(unit),
            guesses: &[],
            assumed_entry: None,
            changed_by_calls: rows
                .first()
                .map_or(0, |row| subject.unpreserved_at(row.start.0)),
        }
    }

    /// The same with premises that the code does not show.
    pub(super) fn with_premises(mut self, premises: &'s Premises) -> TableAssumptions<'s> {
        self.guesses = &premises.targets;
        self.assumed_entry = premises.entry.assumed();
        self
    }

    /// The row declared for an address of the unit.
    pub(crate) fn declared_at(&self, address: u64) -> Option<&DeclaredRow> {
        self.row_checker.declared_in(self.rows, address)
    }
}

impl Assumptions for TableAssumptions<'_> {
    fn flows_in(&self, edge_kind: EdgeKind, address: u64, state: &AbstractState) -> bool {
        let is_certain = self.origin == CodeOrigin::HandWritten
            && match edge_kind {
                EdgeKind::CallReturn => false,
                EdgeKind::KnownReturn => true,
                // Other code may enter the part, as its first row says.
                EdgeKind::ExtentJump => self.subject.program().index_starting_at(address).is_none(),
            };
        is_certain
            || self.declared_at(address).is_none_or(|declared| {
                self.row_checker.check_cfa(declared, state) != Verdict::Refuted
            })
    }

    fn function_entry_state(&self, address: u64) -> Option<AbstractState> {
        if let Some(entry) = self.assumed_entry.filter(|entry| entry.start == address) {
            return Some(entry.state.clone());
        }
        if self.subject.is_declared_entry(address) {
            return self.row_checker.entry_state(self.declared_at(address)?);
        }
        let register = self.link_register(address)?;
        let abi_info = self.row_checker.abi_info;
        let mut state = AbstractState::new();
        state.set(
            register,
            AbstractValue::entry_value(abi_info.return_address),
        );
        state.set(abi_info.stack_pointer, self.row_checker.cfa_value());
        Some(state)
    }

    fn fragment_entry_state(&self, address: u64) -> Option<AbstractState> {
        match self.assumed_entry.filter(|entry| entry.start == address) {
            Some(entry) => Some(entry.state.clone()),
            None => self.row_checker.entry_state(self.declared_at(address)?),
        }
    }

    fn link_register(&self, address: u64) -> Option<u8> {
        self.subject.link_register(address)
    }

    fn changed_by_calls(&self) -> u64 {
        self.changed_by_calls
    }

    fn unknown_callee(&self) -> Option<ReturnBehavior> {
        let callee = self.subject.unknown_callee();
        callee.filter(|_| self.origin == CodeOrigin::HandWritten)
    }

    fn indirect_targets(&self) -> &[u64] {
        self.guesses
    }

    fn is_nested_function(&self, address: u64) -> bool {
        // Unwinders treat it as a frame of its own.
        let declared = self.declared_at(address);
        declared.is_some_and(|declared| declared.is_function_entry(self.row_checker.abi_info))
    }

    /// A hand-written breakpoint in other code, which is not padding.
    fn resumes_after_trap(&self, address: u64) -> bool {
        let breakpoint = self.row_checker.abi_info.breakpoint;
        let code = ElfCodeImage(self.subject.file());
        let bytes = code.bytes_from(address).unwrap_or_default();
        let rest = bytes.strip_prefix(breakpoint).unwrap_or_default();
        self.origin == CodeOrigin::HandWritten && !rest.is_empty() && !rest.starts_with(breakpoint)
    }

    fn args_size(&self, address: u64, _: AbstractValue) -> u64 {
        let declared = self.declared_at(address);
        declared.map_or(0, |declared| declared.args_size)
    }
}
