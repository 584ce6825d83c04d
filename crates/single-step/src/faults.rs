//! Faults in rows: pending until their frame has ended, then recorded by cause.

use std::collections::{BTreeMap, BTreeSet};

use unspool_check::{Aspect, FindingCode, RuleLocation};
use unspool_code_analysis::value::MAX_SKIPPED_BYTES;
use unspool_rows::Vaddr;

use crate::compare::RowFault;
use crate::shadow_stack::{ShadowFrame, ShadowStack};
use crate::sys::Regs;
use crate::x86_64::general;

/// Key of faults with one cause: the module, the function, the fault.
pub(crate) type FaultCause = (usize, usize, RowFault);

/// A fault in a frame that has not ended.
#[derive(Debug)]
pub(crate) struct PendingFault {
    pub(crate) cause: FaultCause,
    pub(crate) at: Vaddr,
    /// The value by the row.
    pub(crate) found: Option<u64>,
    /// The actual location, if it was found.
    pub(crate) truth: Option<RuleLocation>,
    pub(crate) frame: ShadowFrame,
}

/// The faults seen in a thread's frames that have not ended.
#[derive(Debug, Default)]
pub(crate) struct PendingFaults(pub(crate) Vec<PendingFault>);

/// Faults with one cause.
#[derive(Debug)]
pub(crate) struct FaultRecord {
    pub(crate) places: BTreeSet<Vaddr>,
    pub(crate) times: u64,
    /// The actual location at the first place seen, if it was found.
    pub(crate) truth: Option<RuleLocation>,
}

/// The faults of a run.
#[derive(Debug, Default)]
pub(crate) struct FaultLog(pub(crate) BTreeMap<FaultCause, FaultRecord>);

impl FaultLog {
    /// Records faults that are certain.
    pub(crate) fn record(&mut self, faults: impl IntoIterator<Item = PendingFault>) {
        for fault in faults {
            let record = self.0.entry(fault.cause).or_insert_with(|| FaultRecord {
                places: BTreeSet::new(),
                times: 0,
                truth: fault.truth,
            });
            record.places.insert(fault.at);
            record.times += 1;
        }
    }
}

impl PendingFaults {
    /// Decides about faults in frames that have ended, and returns the certain ones. If control
    /// went elsewhere than to the caller, as in `longjmp`, the row need not find the caller: the
    /// target of the jump is as good. A frame on a stack that was left, as in `setcontext`, may
    /// continue one day; but a row that found exactly the current state is done.
    pub(crate) fn resolve(&mut self, shadow: &ShadowStack, regs: &Regs) -> Vec<PendingFault> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let row = |pending: &PendingFault| (pending.frame.key, pending.at);
        let has_arrived = |pending: &&PendingFault| {
            pending.is_of_return()
                && pending.found == Some(regs.rip)
                && shadow.has_left(&pending.frame)
        };
        let arrived: Vec<(u64, Vaddr)> = self.0.iter().filter(has_arrived).map(row).collect();
        let ended = self.0.extract_if(.., |pending| {
            !shadow.has(&pending.frame) || arrived.contains(&row(pending))
        });
        ended.filter(|fault| fault.is_certain(regs)).collect()
    }
}

impl PendingFault {
    /// Whether it concerns the return address.
    fn is_of_return(&self) -> bool {
        let difference = self.cause.2.difference();
        difference.is_some_and(|finding| finding.code == FindingCode::ReturnAddress)
    }

    /// Whether it is a fault, given the registers behind its frame's end.
    fn is_certain(&self, regs: &Regs) -> bool {
        if self.is_behind_data(regs) {
            return false;
        }
        let is_return = self.frame.returns_to(regs.rip, regs.rsp);
        is_return
            || self
                .found
                .is_none_or(|found| found != self.value_at_target(regs))
    }

    /// Whether a row has found the return address, or its location while the callee moved it past
    /// inline data, and control returned behind that data.
    fn is_behind_data(&self, regs: &Regs) -> bool {
        let moved = regs.rip.saturating_sub(u64::from(MAX_SKIPPED_BYTES))..=regs.rip;
        let way = self.frame.pc..=regs.rip;
        self.is_of_return()
            && moved.contains(&self.frame.pc)
            && self.found.is_some_and(|found| way.contains(&found))
    }

    /// The value after a jump that it concerns.
    fn value_at_target(&self, regs: &Regs) -> u64 {
        let difference = self.cause.2.difference();
        match difference.map(|difference| difference.aspect) {
            Some(Aspect::Cfa) => regs.rsp,
            Some(Aspect::ReturnAddress) => regs.rip,
            Some(Aspect::Register(number)) => {
                let value = general(regs).get(usize::from(number)).copied();
                value.unwrap_or(0)
            }
            None => 0,
        }
    }
}
