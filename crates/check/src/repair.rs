//! Repairs of entries with refuted rows, from the rows that the code proves.

use core::ops::Range;
use std::collections::BTreeSet;

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::rows::SavedLocation;
use unspool_code_analysis::{
    AbstractState, Analysis, Analyzer, CodeExtent, InsnId, Lifter, MissingRow, ProvenRules,
};
use unspool_rows::table::{RowStart, TableError};
use unspool_rows::{Register, Row, RowId, Table, Vaddr};

use crate::declared_row::RuleLocation;
use crate::finding::{Finding, Severity};
use crate::report::CheckReport;
use crate::row_checker::{Aspect, RowVerdicts, Verdict};
use crate::subject::CheckSubject;
use crate::unit::{CheckedRow, TableAssumptions};

/// Why an entry is not repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RepairRefusal {
    /// The code proves no row there.
    #[error(transparent)]
    Row(#[from] MissingRow),
    /// A register that calls preserve has no location any more. Its author may use a private
    /// convention.
    #[error("a register that calls preserve was overwritten and is saved nowhere")]
    LostRegister,
    /// The stack at its first instruction is not that after a call.
    #[error(
        "the function returns without the return address on top of the stack: it is not entered by a call"
    )]
    NotAFunction,
    /// The row finds the caller's stack pointer by a rule, or is that of a signal's frame.
    #[error("a rule of its own finds the caller's stack pointer: only its author knows from where")]
    OwnRule,
    /// The author allows a finding in it.
    #[error("a comment in the source allows what is found there")]
    Allowed,
}

/// Result for the entries with refuted rows.
#[derive(Debug)]
pub struct RepairedEntries {
    /// The repaired entries, each with all of its rows. Everything that is not refuted is
    /// unchanged, and so is the rest of the entry.
    pub table: Table,
    /// Entries that stay unchanged: the first instruction without a repair, and why.
    pub refused: Vec<(Vaddr, RepairRefusal)>,
}

impl CheckSubject<'_> {
    /// Repairs the rows that a report of this file refutes. An entry is repaired as a whole or not
    /// at all: not if a finding in it is allowed.
    ///
    /// # Errors
    ///
    /// There are too many rows.
    pub fn repair(
        &self,
        report: &CheckReport,
        mut is_allowed: impl FnMut(&Finding) -> bool,
    ) -> Result<RepairedEntries, TableError> {
        let mut mended = RepairedEntries {
            table: Table::new(self.table().abi()),
            refused: Vec::new(),
        };
        let Some(machine) = Lifter::new(self.table().abi()) else {
            return Ok(mended);
        };
        let mut analyzer = Analyzer::new(machine);
        let refuted = report.findings.iter();
        let refuted = refuted.filter(|finding| finding.severity == Severity::Refuted);
        let (allowed, wrong): (Vec<_>, Vec<_>) = refuted.partition(|finding| is_allowed(finding));
        let allowed: BTreeSet<u64> = allowed.iter().map(|finding| finding.address.0).collect();
        let units: BTreeSet<usize> = wrong
            .iter()
            .filter_map(|finding| self.program().unit_of(finding.address.0))
            .collect();
        for unit in units {
            let rows = self.rows_of(unit);
            let analysis = self.analyze(
                &mut analyzer,
                unit,
                &TableAssumptions::new(self, unit, &rows),
            );
            let mut repairs = RepairCollector {
                subject: self,
                analysis: &analysis,
                rows: &rows,
                all: Vec::new(),
                failed: None,
            };
            analysis.visit(|insn, state| repairs.visit_insn(insn, state, &mut mended.table));
            if let Some(error) = repairs.failed {
                return Err(error);
            }
            let all = repairs.all;
            for extent in self.program().unit(unit) {
                self.repair_extent(&extent, &all, &allowed, &mut mended)?;
            }
        }
        Ok(mended)
    }

    /// Applies the repairs of an extent, which are among these, to its entry, unless a finding at
    /// one of its addresses is allowed.
    fn repair_extent(
        &self,
        extent: &CodeExtent,
        repairs: &[RowRepair],
        allowed: &BTreeSet<u64>,
        into: &mut RepairedEntries,
    ) -> Result<(), TableError> {
        let place = |at| repairs.partition_point(|repair| repair.range.start < at);
        let own = repairs.get(place(extent.start)..place(extent.end));
        let own = own.unwrap_or_default();
        let Some((_, fde)) = self.fde_of(extent).filter(|_| !own.is_empty()) else {
            return Ok(());
        };
        if let Some(at) = allowed.range(extent.start..extent.end).next() {
            into.refused.push((Vaddr(*at), RepairRefusal::Allowed));
            return Ok(());
        }
        let failed = own
            .iter()
            .find_map(|repair| Some((repair, repair.row.err()?)));
        if let Some((repair, why)) = failed {
            into.refused.push((Vaddr(repair.range.start), why));
            return Ok(());
        }
        let mut old = Vec::new();
        for start in self.table().rows(fde) {
            if let Some(row) = self.table().row(start.row) {
                let row = into.table.intern(&row)?;
                old.push(RowStart { row, ..start });
            }
        }
        let ends = own.iter().map(|repair| repair.range.end);
        let starts = own.iter().map(|repair| repair.range.start);
        let starts = starts.chain(ends.filter(|end| *end < fde.end.0));
        let starts = starts.chain(old.iter().map(|row| row.start.0));
        let mut rows: Vec<RowStart> = Vec::new();
        for start in starts.collect::<BTreeSet<u64>>() {
            let last = own.partition_point(|repair| repair.range.start <= start);
            let repair = last.checked_sub(1).and_then(|last| own.get(last));
            let repair = repair.filter(|repair| repair.range.contains(&start));
            let before = old.partition_point(|row| row.start.0 <= start);
            let before = before.checked_sub(1).and_then(|last| old.get(last));
            let row = match repair {
                Some(repair) => repair.row.ok(),
                None => before.map(|row| row.row),
            };
            if let Some(row) = row.filter(|row| rows.last().is_none_or(|last| last.row != *row)) {
                let start = Vaddr(start);
                rows.push(RowStart { start, row });
            }
        }
        into.table.push(fde.header(), &rows)?;
        Ok(())
    }
}

/// The new row of an instruction, or the refusal.
struct RowRepair {
    range: Range<u64>,
    row: Result<RowId, RepairRefusal>,
}

/// Collects the instructions of a unit with refuted rows.
struct RepairCollector<'r> {
    subject: &'r CheckSubject<'r>,
    analysis: &'r Analysis<'r>,
    rows: &'r [CheckedRow],
    all: Vec<RowRepair>,
    failed: Option<TableError>,
}

impl RepairCollector<'_> {
    /// Visits an instruction; its new row goes into a table.
    fn visit_insn(&mut self, insn: InsnId, state: &AbstractState, into: &mut Table) {
        let (code, abi_info) = (self.analysis.code(), self.subject.abi_info());
        let at = code.range(insn);
        let behind = self.rows.partition_point(|row| row.start.0 <= at.start);
        let row = behind.checked_sub(1).and_then(|last| self.rows.get(last));
        let Some(row) = row.map(|row| row.row) else {
            return;
        };
        if self.subject.is_signal_trampoline(row, at.start) {
            return;
        }
        let check = |state: &AbstractState| self.subject.row_checker.check(row, state, at.start);
        let (found, rules) = match code.flow(insn) {
            // The row of a call is the caller's row while the callee runs.
            Some(Flow::Call(_) | Flow::IndirectCall(_)) => (
                check(state).join(&check(&self.analysis.state_during_call(state))),
                ProvenRules::from_call_state(state, abi_info),
            ),
            _ => (check(state), ProvenRules::from_state(state, abi_info)),
        };
        if found.worst() != Verdict::Refuted {
            return;
        }
        let declared = self.subject.row_checker.declared(row);
        let has_own_rule = declared.is_some_and(|row| row.signal_frame || row.has_own_cfa());
        let row = match rules {
            _ if has_own_rule => Err(RepairRefusal::OwnRule),
            _ if self.is_below_return(code.flow(insn), state) => Err(RepairRefusal::NotAFunction),
            Err(why) => Err(why.into()),
            Ok(rules) => match self.repaired_row(row, &found, &rules, into) {
                Ok(row) => row,
                Err(error) => {
                    self.failed = Some(error);
                    return;
                }
            },
        };
        self.all.push(RowRepair { range: at, row });
    }

    /// Whether an instruction returns to another address than the return address, with the stack
    /// pointer above it.
    fn is_below_return(&self, flow: Option<Flow>, state: &AbstractState) -> bool {
        let abi_info = self.subject.abi_info();
        let cfa = self
            .subject
            .row_checker
            .actual_cfa(RuleLocation::Undefined, state);
        let is_above = cfa.is_some_and(|(register, distance)| {
            register == abi_info.stack_pointer && distance < abi_info.call_pushes.into()
        });
        is_above && matches!(flow, Some(Flow::Return { to, .. }) if !abi_info.is_return(to, state))
    }

    /// A row with refuted rules replaced by proven ones.
    fn repaired_row(
        &self,
        declared: RowId,
        found: &RowVerdicts,
        rules: &ProvenRules,
        into: &mut Table,
    ) -> Result<Result<RowId, RepairRefusal>, TableError> {
        let (abi_info, table) = (self.subject.abi_info(), self.subject.table());
        let mut proven = Table::new(table.abi());
        let id = rules.intern(&mut proven, abi_info)?;
        let rows = table.row(declared).zip(proven.row(id));
        let Some((mut row, proven)) = rows else {
            return Ok(Err(RepairRefusal::LostRegister));
        };
        let refuted = found.aspects(abi_info);
        for (aspect, _) in refuted.filter(|(_, verdict)| *verdict == Verdict::Refuted) {
            let set = match aspect {
                Aspect::Cfa => {
                    row.cfa = proven.cfa;
                    // The caller's stack pointer is the CFA.
                    row.set_rule(Register(abi_info.stack_pointer.into()), None)
                }
                Aspect::ReturnAddress => copy_rule(&mut row, &proven, abi_info.return_address),
                Aspect::Register(register) => {
                    let mut saved = rules.preserved(abi_info);
                    if saved.any(|known| known == (register, SavedLocation::Undefined)) {
                        return Ok(Err(RepairRefusal::LostRegister));
                    }
                    copy_rule(&mut row, &proven, register)
                }
            };
            // Rows have room for all registers of an architecture.
            debug_assert!(set.is_ok());
        }
        into.intern(&row).map(Ok)
    }
}

/// Copies a register's rule from another row.
fn copy_rule<'e>(
    row: &mut Row<'e>,
    from: &Row<'e>,
    register: u8,
) -> Result<Option<unspool_rows::RegisterRule<'e>>, unspool_rows::row::TooManyRules> {
    let register = Register(register.into());
    row.set_rule(register, from.rule(register))
}
