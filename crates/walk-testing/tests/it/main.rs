//! Packed rows against the interpreter, with the harness: rows of all kinds, in frames with any
//! registers.
#![cfg(test)]

use unspool_rows::packed_row::{CfaBase, PackedStep, SavedRegister, SavedRegisters};
use unspool_rows::{
    Arch, FrameRegisters, Memory, PackedRow, Register, RegisterScope, Registers, RuntimeAddr,
};
use unspool_walk_testing::memory::CaseMemory;
use unspool_walk_testing::random::CaseRandom;
use unspool_walk_testing::rows_of::{all_kinds, packable, table};
use unspool_walk_testing::stack::ABI;
use unspool_walk_testing::step::{
    CaseFrame, CaseOutcome, StepFailure, StepKind, StepTally, Stepper, compare_steps, ends, frames,
};

const ARCH: Arch = Arch::X86_64;
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

fn word(memory: &CaseMemory, addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(RuntimeAddr(addr), &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn failed(frame: &CaseFrame<'_>) -> CaseOutcome {
    CaseOutcome {
        kind: StepKind::Failed(StepFailure::Unspecified),
        cfa: None,
        registers: frame.registers,
    }
}

/// Steps by packed rows with all registers, as cursors do.
struct AllRegisters;

impl AllRegisters {
    fn caller(memory: &CaseMemory, frame: &CaseFrame<'_>, row: PackedRow) -> Option<CaseOutcome> {
        let known = |register| frame.registers.get(register);
        let base = match row.base() {
            CfaBase::StackPointer => known(RSP),
            CfaBase::FramePointer => known(RBP),
        };
        let read = |addr| word(memory, addr).ok_or(());
        let step = row.caller(ARCH, known(RIP)?, base?, read).ok()??;
        let mut registers = Registers::new();
        let (kind, cfa) = match step {
            PackedStep::Outermost => (StepKind::Outermost, None),
            PackedStep::Interrupted {
                stack_pointer,
                record,
                ..
            } => {
                for number in 0..17 {
                    let at = ARCH
                        .spec()
                        .signal_record?
                        .address(record, Register(number))?;
                    if let Some(value) = word(memory, at) {
                        registers.set(Register(number), value);
                    }
                }
                (StepKind::Interrupted, Some(stack_pointer))
            }
            PackedStep::Caller {
                code,
                cfa,
                saved_base,
            } => {
                for number in SavedRegisters::REGISTERS {
                    let value = match row.saved().get(number)? {
                        SavedRegister::Unchanged => known(Register(number)),
                        SavedRegister::Below(bytes) => word(memory, saved_base.wrapping_sub(bytes)),
                        SavedRegister::Undefined => None,
                    };
                    if let Some(value) = value {
                        registers.set(Register(number), value);
                    }
                }
                registers.set(RSP, cfa);
                registers.set(RIP, code);
                (StepKind::Caller, Some(cfa))
            }
        };
        Some(CaseOutcome {
            kind,
            cfa,
            registers: match kind {
                StepKind::Outermost => frame.registers,
                _ => registers,
            },
        })
    }
}

impl Stepper for AllRegisters {
    fn tracked(&self) -> Vec<Register> {
        (0..17).map(Register).collect()
    }

    fn step(&mut self, memory: &CaseMemory, frames: &[CaseFrame<'_>]) -> Vec<Option<CaseOutcome>> {
        let step = |frame: &CaseFrame<'_>| {
            // A packed entry of the procedure linkage table needs its address.
            frame.registers.get(RIP)?;
            let row = PackedRow::from_row(frame.row.as_ref()?, ARCH, RegisterScope::All)?;
            Some(AllRegisters::caller(memory, frame, row).unwrap_or_else(|| failed(frame)))
        };
        frames.iter().map(step).collect()
    }
}

/// Steps by packed rows with a walk's registers.
struct WalkRegisters;

impl Stepper for WalkRegisters {
    fn tracked(&self) -> Vec<Register> {
        vec![RBP, RSP, RIP]
    }

    fn step(&mut self, memory: &CaseMemory, frames: &[CaseFrame<'_>]) -> Vec<Option<CaseOutcome>> {
        let step = |frame: &CaseFrame<'_>| {
            let known = |register| frame.registers.get(register);
            let registers = FrameRegisters {
                code: known(RIP)?,
                stack_pointer: known(RSP)?,
                frame_pointer: known(RBP)?,
            };
            let row = frame.row.as_ref()?;
            let scope = RegisterScope::StackAndFramePointer;
            let packed = PackedRow::from_row(row, ARCH, scope)?;
            // Without a caller, or a register of it, the walk leaves the frame to the interpreter.
            let caller = packed.step(ARCH, registers, |addr| word(memory, addr))?;
            let mut found = Registers::new();
            found.set(RBP, caller.frame_pointer);
            found.set(RSP, caller.stack_pointer);
            found.set(RIP, caller.code);
            Some(CaseOutcome {
                kind: if row.signal_frame {
                    StepKind::Interrupted
                } else {
                    StepKind::Caller
                },
                cfa: Some(caller.stack_pointer),
                registers: found,
            })
        };
        frames.iter().map(step).collect()
    }
}

/// Steps from both ends of all rows, several times.
fn compare(stepper: &mut impl Stepper, rows: &[String]) -> StepTally {
    let table = table(rows);
    let mut random = CaseRandom::default();
    let memory = CaseMemory::new(&mut random);
    let addresses = ends(&table).repeat(60);
    let frames = frames(&table, &addresses, 20, &mut random);
    compare_steps(stepper, ABI, &memory, &frames)
}

#[test]
fn packed_rows_step_as_their_rows_do() {
    let rows = packable();
    for tally in [
        compare(&mut AllRegisters, &rows),
        compare(&mut WalkRegisters, &rows),
    ] {
        assert!(tally.callers > 2000, "{tally:?}");
    }
    // All of these pack: only addresses outside of them, and frames without an address, are left.
    let tally = compare(&mut AllRegisters, &rows);
    assert!(tally.left * 4 < tally.steps * 5, "{tally:?}");
}

#[test]
fn rows_of_all_kinds_pack_or_are_left_alone() {
    let rows = all_kinds();
    for tally in [
        compare(&mut AllRegisters, &rows),
        compare(&mut WalkRegisters, &rows),
    ] {
        assert!(tally.callers > 100 && tally.left > tally.steps, "{tally:?}");
    }
}
