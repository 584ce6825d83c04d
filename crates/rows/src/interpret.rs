//! The meaning of a row: the plain interpreter.
//!
//! [`step`] is written to be read beside `docs/semantics.md`. Every faster way of unwinding is
//! compared with it. All rules are evaluated in one frame: they read the registers and memory of
//! *this* frame, never a register that another rule just recovered.

use crate::addr::{LoadBias, RuntimeAddr};
use crate::arch::{Abi, DefaultRule};
use crate::expression::ExpressionError;
use crate::memory::{Memory, Unreadable, read_word};
use crate::register::{Register, Registers};
use crate::row::{CfaRule, RaState, RegisterRule, Row};

/// The inputs of [`step`] except the row: a frame, for finding its caller.
#[derive(Debug)]
pub struct FrameContext<'a, M: Memory + ?Sized> {
    /// The architecture and byte order.
    pub abi: Abi,
    /// The registers of this frame, with its own code address in [`crate::arch::ArchSpec::pc`].
    pub registers: &'a Registers,
    /// The memory of the thread.
    pub memory: &'a M,
    /// The load bias of the row's module (`DW_OP_addr` needs it).
    pub bias: LoadBias,
    /// The bits of a return address that pointer authentication may have changed: zero without it.
    pub pac_mask: u64,
}

/// Where the caller's value of a register is.
///
/// To *set* a register of the caller, write there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterLocation {
    /// In the same register of this frame.
    SameRegister,
    /// In memory.
    Memory(RuntimeAddr),
    /// In another register of this frame.
    Register(Register),
    /// Nowhere: it was computed, as the CFA is.
    Value,
    /// Nowhere: it cannot be recovered.
    Unrecoverable,
}

/// One register of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveredRegister {
    /// The location of its value.
    pub location: RegisterLocation,
    /// Its value. `None` if it is unrecoverable, if its location cannot be read, or if it is in a
    /// register that is itself unknown.
    pub value: Option<u64>,
    /// Why there is no value although there is a location.
    pub error: Option<RegisterError>,
}

/// Why a register that has a rule has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Its location in memory cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its expression has no value.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}

/// The caller of a frame.
#[derive(Debug, Clone, Copy)]
pub struct CallerFrame {
    /// The canonical frame address of the callee, the frame that was given.
    pub cfa: RuntimeAddr,
    /// The return address, without authentication bits and without ARM's Thumb bit. `None` if the
    /// row says that it is undefined: the given frame is the outermost one.
    pub return_address: Option<RuntimeAddr>,
    /// The address where the return address was read, if that was in memory.
    pub return_address_at: Option<RuntimeAddr>,
    /// The caller's known registers.
    pub registers: Registers,
}

/// Why a row leads to no caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The row defines no CFA.
    #[error("the row defines no CFA")]
    NoCfa,
    /// The CFA is based on a register that is unknown in this frame.
    #[error("the CFA is based on register {}, whose value is unknown in this frame", .0.0)]
    UnknownCfaRegister(Register),
    /// The CFA's expression has no value.
    #[error("the CFA's expression: {0}")]
    CfaExpression(ExpressionError),
    /// The row has no rule for the return address, and the ABI has no default for it.
    #[error("the row has no rule for the return address")]
    NoReturnAddress,
    /// The return address has a rule, but no value.
    #[error("the return address: {0}")]
    ReturnAddress(RegisterError),
    /// The return address is in a register that is unknown in this frame.
    #[error("the return address is in a register whose value is unknown in this frame")]
    UnknownReturnAddress,
}

/// The CFA of `frame` (DWARF 5 §6.4.1). It is computed before any register rule.
///
/// # Errors
///
/// [`StepError`], its CFA variants.
pub fn cfa<M: Memory + ?Sized>(
    row: &Row<'_>,
    frame: &FrameContext<'_, M>,
) -> Result<RuntimeAddr, StepError> {
    let value = match row.cfa {
        CfaRule::Undefined => return Err(StepError::NoCfa),
        CfaRule::RegisterOffset { register, offset } => frame
            .registers
            .get(register)
            .ok_or(StepError::UnknownCfaRegister(register))?
            .wrapping_add_signed(offset),
        CfaRule::Expression(expression) => expression
            .evaluate(frame, None)
            .map_err(StepError::CfaExpression)?,
    };
    Ok(RuntimeAddr(
        value & frame.abi.arch.spec().address_size.mask(),
    ))
}

/// The caller's value of one register, and its location.
#[must_use]
pub fn recover<M: Memory + ?Sized>(
    row: &Row<'_>,
    frame: &FrameContext<'_, M>,
    cfa: RuntimeAddr,
    register: Register,
) -> RecoveredRegister {
    let Some(rule) = row.rule(register) else {
        return match frame.abi.arch.unspecified(register) {
            DefaultRule::SameValue => same(frame, RegisterLocation::SameRegister, register),
            DefaultRule::Cfa => RecoveredRegister {
                location: RegisterLocation::Value,
                value: Some(cfa.0),
                error: None,
            },
            // An interrupted frame has made no call: a register without a rule was not touched.
            DefaultRule::Unknown if row.signal_frame => {
                same(frame, RegisterLocation::SameRegister, register)
            }
            DefaultRule::Unknown => RecoveredRegister {
                location: RegisterLocation::Unrecoverable,
                value: None,
                error: None,
            },
        };
    };
    let at_cfa =
        |offset: i64| cfa.0.wrapping_add_signed(offset) & frame.abi.arch.spec().address_size.mask();
    match rule {
        RegisterRule::Undefined => RecoveredRegister {
            location: RegisterLocation::Unrecoverable,
            value: None,
            error: None,
        },
        RegisterRule::SameValue => same(frame, RegisterLocation::SameRegister, register),
        RegisterRule::Register(other) => same(frame, RegisterLocation::Register(other), other),
        RegisterRule::Offset(offset) => load(frame, RuntimeAddr(at_cfa(offset))),
        RegisterRule::ValOffset(offset) => RecoveredRegister {
            location: RegisterLocation::Value,
            value: Some(at_cfa(offset)),
            error: None,
        },
        RegisterRule::Expression(expression) => match expression.evaluate(frame, Some(cfa.0)) {
            Ok(addr) => load(frame, RuntimeAddr(addr)),
            Err(error) => failed(error),
        },
        RegisterRule::ValExpression(expression) => match expression.evaluate(frame, Some(cfa.0)) {
            Ok(value) => RecoveredRegister {
                location: RegisterLocation::Value,
                value: Some(value),
                error: None,
            },
            Err(error) => failed(error),
        },
    }
}

fn same<M: Memory + ?Sized>(
    frame: &FrameContext<'_, M>,
    location: RegisterLocation,
    source: Register,
) -> RecoveredRegister {
    RecoveredRegister {
        location,
        value: frame.registers.get(source),
        error: None,
    }
}

fn load<M: Memory + ?Sized>(frame: &FrameContext<'_, M>, addr: RuntimeAddr) -> RecoveredRegister {
    let read = read_word(
        frame.memory,
        addr,
        frame.abi.arch.spec().address_size,
        frame.abi.endian,
    );
    RecoveredRegister {
        location: RegisterLocation::Memory(addr),
        value: read.ok(),
        error: read.err().map(RegisterError::Unreadable),
    }
}

fn failed(error: ExpressionError) -> RecoveredRegister {
    RecoveredRegister {
        location: RegisterLocation::Unrecoverable,
        value: None,
        error: Some(RegisterError::Expression(error)),
    }
}

/// Steps from `frame` to its caller, by `row`.
///
/// A register that cannot be recovered is unknown in the caller and does not stop the step; the
/// CFA and the return address must have values. Allocates nothing; bounded by the number of
/// rules; async-signal-safe if the frame's memory is.
///
/// # Errors
///
/// [`StepError`] when the CFA or the return address has no value.
pub fn step<M: Memory + ?Sized>(
    row: &Row<'_>,
    frame: &FrameContext<'_, M>,
) -> Result<CallerFrame, StepError> {
    let spec = frame.abi.arch.spec();
    let cfa = cfa(row, frame)?;
    let (return_address, return_address_at) = match return_address(row, frame, cfa)? {
        Some((address, at)) => (Some(address), at),
        None => (None, None),
    };

    let mut registers = Registers::new();
    for (register, _) in frame.registers.iter() {
        // Registers without a rule: unchanged, the CFA, or unrecoverable.
        if row.rule(register).is_none() {
            keep(&mut registers, register, recover(row, frame, cfa, register));
        }
    }
    for (register, _) in row.rules() {
        keep(&mut registers, register, recover(row, frame, cfa, register));
    }
    keep(
        &mut registers,
        spec.stack_pointer,
        recover(row, frame, cfa, spec.stack_pointer),
    );
    match return_address {
        Some(addr) => registers.set(spec.pc, addr.0),
        None => registers.clear(spec.pc),
    }
    Ok(CallerFrame {
        cfa,
        return_address,
        return_address_at,
        registers,
    })
}

fn keep(registers: &mut Registers, register: Register, recovered: RecoveredRegister) {
    if let Some(value) = recovered.value {
        registers.set(register, value);
    }
}

/// The caller's code address: the recovered value of the return-address column. With it, the
/// address where it was read, if in memory.
fn return_address<M: Memory + ?Sized>(
    row: &Row<'_>,
    frame: &FrameContext<'_, M>,
    cfa: RuntimeAddr,
) -> Result<Option<(RuntimeAddr, Option<RuntimeAddr>)>, StepError> {
    let column = row.return_address;
    if row.rule(column) == Some(RegisterRule::Undefined) {
        return Ok(None);
    }
    let recovered = recover(row, frame, cfa, column);
    let at = match recovered.location {
        RegisterLocation::Memory(at) => Some(at),
        _ => None,
    };
    match (recovered.value, recovered.error) {
        (Some(value), _) => {
            let address = RuntimeAddr(plain_address(row, frame, cfa, value));
            Ok(Some((address, at)))
        }
        (None, Some(error)) => Err(StepError::ReturnAddress(error)),
        (None, None) if recovered.location == RegisterLocation::Unrecoverable => {
            Err(StepError::NoReturnAddress)
        }
        (None, None) => Err(StepError::UnknownReturnAddress),
    }
}

/// Removes all bits that are not part of the address: AArch64's authentication code, ARM's Thumb
/// bit.
fn plain_address<M: Memory + ?Sized>(
    row: &Row<'_>,
    frame: &FrameContext<'_, M>,
    cfa: RuntimeAddr,
    value: u64,
) -> u64 {
    let authentication = if is_signed(row, frame, cfa) {
        frame.pac_mask
    } else {
        0
    };
    value & !authentication & !frame.abi.arch.spec().mode_bits
}

/// Whether the return address is signed. A rule for the pseudo-register can say so too (AADWARF64,
/// "Call frame instructions"). If its value is unknown, the address counts as signed: stripping an
/// unsigned address of user space changes nothing.
fn is_signed<M: Memory + ?Sized>(
    row: &Row<'_>,
    frame: &FrameContext<'_, M>,
    cfa: RuntimeAddr,
) -> bool {
    let register = frame.abi.arch.spec().ra_sign_state;
    let by_rule = register.filter(|register| row.rule(*register).is_some());
    let is_set = |register| {
        let state = recover(row, frame, cfa, register).value;
        state.is_none_or(|state| state & RA_STATE_BITS != 0)
    };
    row.ra_state != RaState::Plain || by_rule.is_some_and(is_set)
}

/// The bits of `RA_SIGN_STATE` with a meaning (AADWARF64, "DWARF register names", note 8).
const RA_STATE_BITS: u64 = 0xf;

#[cfg(test)]
mod tests;
