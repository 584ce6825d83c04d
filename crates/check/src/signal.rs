//! Checks signal frames: are the registers where the kernel puts them?
//!
//! A handler returns into a trampoline, which asks the kernel to resume the thread where it was
//! interrupted. At that time, all registers are in the kernel's `ucontext_t` at the stack pointer
//! (Linux, `arch/x86/include/uapi/asm/sigcontext.h`).

use core::ops::Range;

use unspool_rows::arch::RegisterName;
use unspool_rows::interpret::{self, FrameContext, RegisterLocation};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{
    Fde, LoadBias, Memory, Register, Registers, Row, RowId, RuntimeAddr, Unreadable, Vaddr,
};

use crate::declared_row::RuleLocation as Claim;
use crate::finding::{Finding, FindingCode, Severity};
use crate::subject::CheckSubject;

/// An artificial stack pointer: each word read has its own address as value.
const FAKE_STACK_POINTER: u64 = 0x7000_0000_0000;

struct EchoMemory;

impl Memory for EchoMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = addr.0.to_le_bytes();
        if into.len() != bytes.len() {
            return Err(Unreadable {
                addr,
                reason: UnreadableReason::Unmapped,
            });
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }
}

impl CheckSubject<'_> {
    /// Whether a row of a signal frame is looked up for a trampoline's instruction at an address:
    /// [`findings`] has what is wrong with it.
    pub(crate) fn is_signal_trampoline(&self, row: RowId, at: u64) -> bool {
        let is_declared = self
            .row_checker
            .declared(row)
            .is_some_and(|row| row.signal_frame);
        is_declared
            && self
                .program()
                .extent_at(at)
                .and_then(|extent| self.fde_of(&extent))
                .and_then(|(_, fde)| trampoline(self, fde, MAX_TRAMPOLINE_BYTES))
                .is_some_and(|code| code.start.0.saturating_sub(1) <= at && at < code.end.0)
    }

    /// The start of an instruction's row.
    pub(crate) fn row_at(&self, at: Vaddr) -> Option<Vaddr> {
        let extent = self.program().extent_at(at.0)?;
        let (_, fde) = self.fde_of(&extent)?;
        let rows = self.table().rows(fde).take_while(|row| row.start <= at);
        rows.last().map(|row| row.start)
    }
}

/// The faults in the rows of trampolines.
pub(crate) fn findings(subject: &CheckSubject<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for fde in subject.table().fdes() {
        let rows = || subject.table().rows(fde);
        let declared = rows()
            .next()
            .and_then(|row| subject.row_checker.declared(row.row));
        let Some(declared) = declared else { continue };
        if !declared.signal_frame {
            let is_outermost = declared.return_address == Claim::Undefined;
            // Perhaps behind the byte that is looked up.
            if !is_outermost && trampoline(subject, fde, 2).is_some() {
                findings.push(Finding::undeclared_signal_frame(fde.start));
            }
            continue;
        }
        let Some(trampoline) = trampoline(subject, fde, MAX_TRAMPOLINE_BYTES) else {
            continue;
        };
        if trampoline.start == fde.start {
            findings.push(Finding::new(
                fde.start,
                FindingCode::SignalFrame,
                Severity::Refuted,
            ));
        }
        // After a handler's return, unwinders look up the byte before.
        let looked_up = Vaddr(trampoline.start.0.saturating_sub(1)).max(fde.start);
        let row_of = |at| rows().take_while(|row| row.start <= at).last();
        let Some(found) = row_of(looked_up) else {
            continue;
        };
        let is_own = row_of(trampoline.start).is_some_and(|own| own.row == found.row);
        let at = if is_own { trampoline.start } else { looked_up };
        // A thread may be interrupted at any of its instructions.
        let others = rows().filter(|row| looked_up < row.start && row.start < trampoline.end);
        let others = others.filter(|row| row.row != found.row);
        let judged = [(found.row, at)].into_iter();
        for (row, at) in judged.chain(others.map(|row| (row.row, row.start))) {
            let row = subject.table().row(row);
            findings.extend(row.iter().flat_map(|row| wrong_registers(subject, row, at)));
        }
    }
    findings
}

/// Greatest size of a trampoline's entry.
const MAX_TRAMPOLINE_BYTES: usize = 64;

/// The code of a trampoline in an entry, if it begins among this many bytes.
fn trampoline(subject: &CheckSubject<'_>, fde: &Fde, among: usize) -> Option<Range<Vaddr>> {
    let size = (fde.end.0 - fde.start.0).min(MAX_TRAMPOLINE_BYTES as u64);
    let bytes = subject.file().bytes_at(fde.start, size)?;
    let starts = (0..bytes.len().min(among)).filter_map(|at| bytes.get(at..));
    let starts = (0..).zip(starts);
    let arch = subject.table().abi().arch;
    let mut found = starts.filter_map(|(distance, rest)| {
        let length = arch.trampoline_at(rest)?.len() as u64;
        let start = fde.start.offset(distance);
        Some(start..start.offset(length))
    });
    found.next()
}

fn wrong_registers(subject: &CheckSubject<'_>, row: &Row<'_>, at: Vaddr) -> Vec<Finding> {
    let abi = subject.table().abi();
    let spec = abi.arch.spec();
    let Some(record) = spec.signal_record else {
        return Vec::new();
    };
    let mut registers = Registers::new();
    registers.set(spec.stack_pointer, FAKE_STACK_POINTER);
    registers.set(spec.pc, at.0);
    let frame = FrameContext {
        abi,
        registers: &registers,
        memory: &EchoMemory,
        bias: LoadBias(0),
        pac_mask: 0,
    };
    let text = |address: u64| {
        let distance = address.wrapping_sub(FAKE_STACK_POINTER).cast_signed();
        let name = RegisterName(spec.stack_pointer, abi.arch);
        format!("[{name}{distance:+}]")
    };
    let cfa = interpret::cfa(row, &frame).ok();
    let is_wrong = |(offset, register): (u64, u16)| {
        let wanted = record.at(FAKE_STACK_POINTER) + offset;
        let is_needed = spec.preserved.contains(&register)
            || [spec.stack_pointer, spec.pc].contains(&Register(register));
        let register = Register(register);
        if !is_needed && row.rule(register).is_none() {
            return None;
        }
        let is_sp = register == spec.stack_pointer;
        let found = match cfa {
            // The CFA of a signal frame is the interrupted code's stack pointer.
            Some(cfa) if is_sp && row.rule(register).is_none() => Some(cfa.0),
            Some(cfa) => match interpret::recover(row, &frame, cfa, register).location {
                RegisterLocation::Memory(address) => Some(address.0),
                _ => None,
            },
            None => None,
        };
        (found != Some(wanted)).then_some((register, found, wanted))
    };
    // Registers with the same distance from their declared location have one cause.
    let mut causes: Vec<(Option<u64>, Finding, Vec<String>)> = Vec::new();
    let numbered = record.offsets.iter().copied().zip(0..);
    let mut in_order: Vec<(u64, u16)> = numbered.collect();
    in_order.sort_unstable();
    for (register, found, wanted) in in_order.into_iter().filter_map(is_wrong) {
        let name = RegisterName(register, abi.arch).to_string();
        let distance = found.map(|found| wanted.wrapping_sub(found));
        let mut known = causes.iter_mut();
        if let Some((.., others)) = known.find(|(known, ..)| *known == distance) {
            others.push(name);
            continue;
        }
        let finding = Finding {
            subject: name,
            declared: found.map_or_else(|| "elsewhere".to_owned(), text),
            computed: text(wanted),
            ..Finding::new(at, FindingCode::SignalFrame, Severity::Refuted)
        };
        causes.push((distance, finding, Vec::new()));
    }
    let findings = causes.into_iter().map(|(_, mut finding, others)| {
        if !others.is_empty() {
            finding.subject = format!("{} (as {})", finding.subject, others.join(", "));
        }
        finding
    });
    findings.collect()
}
