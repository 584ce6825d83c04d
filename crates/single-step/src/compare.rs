//! Compares a row with the truth.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use unspool_check::{Aspect, DeclaredRow, FindingCode, RuleLocation, wording};
use unspool_code_analysis::arch::AbiInfo;
use unspool_rows::interpret::{self, FrameContext as View};
use unspool_rows::{Abi, LoadBias, Memory, Register, RegisterRule, Registers, Row, RuntimeAddr};
use unspool_rows::{CfaRule, Unreadable};

use crate::shadow_stack::ShadowFrame;

/// Memory of a stopped process; bytes around the last read are cached.
#[derive(Debug)]
pub(crate) struct StoppedMemory<'a> {
    file: &'a File,
    cache: RefCell<ReadCache>,
}

#[derive(Debug)]
struct ReadCache {
    start: u64,
    length: usize,
    bytes: [u8; CACHE_BYTES],
}

const CACHE_BYTES: usize = 256;
/// Start of the cached bytes before a read, in bytes: registers are saved below the return address.
const READ_BEHIND_BYTES: u64 = 192;

impl<'a> StoppedMemory<'a> {
    pub(crate) fn new(file: &'a File) -> StoppedMemory<'a> {
        StoppedMemory {
            file,
            cache: RefCell::new(ReadCache {
                start: 0,
                length: 0,
                bytes: [0; CACHE_BYTES],
            }),
        }
    }

    /// The 8 bytes at an address.
    pub(crate) fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(RuntimeAddr(at), &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

impl ReadCache {
    fn copy(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let kept = self.bytes.get(..self.length)?.get(from..)?;
        into.copy_from_slice(kept.get(..into.len())?);
        Some(())
    }
}

impl Memory for StoppedMemory<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let mut kept = self.cache.borrow_mut();
        if kept.copy(addr.0, into).is_some() {
            return Ok(());
        }
        let start = addr.0.saturating_sub(READ_BEHIND_BYTES);
        kept.start = start;
        kept.length = self.file.read_at(&mut kept.bytes, start).unwrap_or(0);
        if kept.copy(addr.0, into).is_some() {
            return Ok(());
        }
        // A page before it may not be readable.
        let exact = self.file.read_exact_at(into, addr.0);
        exact.map_err(|_| Unreadable::unmapped(addr))
    }
}

/// A fault in an instruction's row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowFault {
    /// There is no row.
    Missing,
    /// A rule is wrong.
    Mismatch(RowMismatch),
    /// A signal frame is not declared as such.
    UndeclaredSignal,
}

impl RowFault {
    /// The wrong rule.
    pub(crate) fn difference(&self) -> Option<&RowMismatch> {
        match self {
            RowFault::Mismatch(difference) => Some(difference),
            RowFault::Missing | RowFault::UndeclaredSignal => None,
        }
    }
}

/// A rule that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowMismatch {
    pub(crate) code: FindingCode,
    pub(crate) aspect: Aspect,
    pub(crate) declared: String,
    /// Further key of findings with one cause.
    pub(crate) distance: Option<i64>,
}

/// A row, the state at an instruction that it covers, and the truth there.
pub(crate) struct RowComparison<'a> {
    pub(crate) abi: Abi,
    pub(crate) abi_info: &'static AbiInfo,
    pub(crate) row: Row<'a>,
    pub(crate) registers: &'a Registers,
    pub(crate) memory: StoppedMemory<'a>,
    pub(crate) bias: LoadBias,
    pub(crate) truth: &'a ShadowFrame,
}

impl RowComparison<'_> {
    /// The wrong rules, each with the value that it yields. A row without a caller has no rules
    /// that could be wrong.
    pub(crate) fn differences(&self) -> Vec<(RowMismatch, Option<u64>)> {
        let row = &self.row;
        if row.is_outermost() {
            return Vec::new();
        }
        let declared = DeclaredRow::from_row(row, self.abi_info);
        let mut found = Vec::new();
        let stack_pointer = Register(self.abi_info.stack_pointer.into());
        let is_counted = row.rule(stack_pointer).is_none();
        let declared_cfa = interpret::cfa(row, &self.view()).ok();
        let sp = declared_cfa.and_then(|cfa| self.recover(cfa, stack_pointer));
        if sp != Some(self.truth.sp) {
            let difference = if is_counted || declared_cfa.is_none() {
                self.cfa_mismatch(sp)
            } else {
                self.stack_pointer_mismatch(sp)
            };
            found.push((difference, sp));
        }
        // Offsets from a wrong CFA are not separate faults.
        let cfa = match declared_cfa {
            Some(cfa) if !is_counted => cfa,
            _ => RuntimeAddr(self.truth.sp),
        };
        let pc = self.recover(cfa, row.return_address);
        if pc != Some(self.truth.pc) {
            let difference = RowMismatch {
                code: FindingCode::ReturnAddress,
                aspect: Aspect::ReturnAddress,
                declared: wording::register(row, row.return_address, self.abi),
                distance: None,
            };
            found.push((difference, pc));
        }
        let preserved = self.abi_info.preserved.iter().zip(declared.preserved);
        for ((number, declared), truth) in preserved.zip(self.truth.saved) {
            let register = Register((*number).into());
            let is_lost = row.rule(register) == Some(RegisterRule::Undefined);
            let value = self.recover(cfa, register);
            if !is_lost && value != Some(truth) {
                let difference = RowMismatch {
                    code: match declared {
                        RuleLocation::Register(..) => FindingCode::RegisterLost,
                        RuleLocation::Expression => FindingCode::Expression,
                        _ => FindingCode::SavedElsewhere,
                    },
                    aspect: Aspect::Register(*number),
                    declared: wording::register(row, register, self.abi),
                    distance: None,
                };
                found.push((difference, value));
            }
        }
        found
    }

    /// The return address by the row.
    pub(crate) fn return_address(&self) -> Option<u64> {
        let cfa = interpret::cfa(&self.row, &self.view()).ok()?;
        self.recover(cfa, self.row.return_address)
    }

    fn view(&self) -> View<'_, StoppedMemory<'_>> {
        View {
            abi: self.abi,
            registers: self.registers,
            memory: &self.memory,
            bias: self.bias,
            pac_mask: 0,
        }
    }

    fn recover(&self, cfa: RuntimeAddr, register: Register) -> Option<u64> {
        interpret::recover(&self.row, &self.view(), cfa, register).value
    }

    fn cfa_mismatch(&self, found: Option<u64>) -> RowMismatch {
        let distance = found.map(|found| self.truth.sp.wrapping_sub(found).cast_signed());
        let is_counted = matches!(self.counted_from_a_register(),
            Some(RuleLocation::Register(register, _)) if Some(register) == self.declared_register());
        let is_near = is_counted
            && distance.is_some_and(|distance| distance.unsigned_abs() < MAX_SAVE_DISTANCE_BYTES);
        let code = match (self.row.cfa, is_near) {
            (CfaRule::Expression(_), _) => FindingCode::Expression,
            (_, true) => FindingCode::CfaOffset,
            _ => FindingCode::CfaRegister,
        };
        RowMismatch {
            code,
            aspect: Aspect::Cfa,
            declared: wording::cfa(&self.row, self.abi),
            distance: distance.filter(|_| is_near),
        }
    }

    fn stack_pointer_mismatch(&self, found: Option<u64>) -> RowMismatch {
        let stack_pointer = Register(self.abi_info.stack_pointer.into());
        let distance = found.map(|found| self.truth.sp.wrapping_sub(found).cast_signed());
        RowMismatch {
            code: FindingCode::SavedElsewhere,
            aspect: Aspect::Register(self.abi_info.stack_pointer),
            declared: wording::register(&self.row, stack_pointer, self.abi),
            distance: distance.filter(|distance| distance.unsigned_abs() < MAX_SAVE_DISTANCE_BYTES),
        }
    }

    /// The actual location of a value that a mismatch concerns; `None` if it is not found.
    pub(crate) fn truth_of(&self, mismatch: &RowMismatch) -> Option<RuleLocation> {
        let wanted = match mismatch.aspect {
            Aspect::ReturnAddress => self.truth.pc,
            of => match place_of(of, self.abi_info) {
                Some(place) => *self.truth.saved.get(place)?,
                None => return self.counted_from_a_register(),
            },
        };
        let own = match mismatch.aspect {
            Aspect::Register(own) => Some(own),
            Aspect::Cfa | Aspect::ReturnAddress => None,
        };
        let own = own.filter(|own| self.registers.get(Register((*own).into())) == Some(wanted));
        // A small number may be anywhere by chance.
        let is_telling = wanted >= 256;
        let slot = |red_zone| {
            let below = self.slot_of(wanted, red_zone).filter(|_| is_telling)?;
            Some(RuleLocation::CfaOffset(-below.cast_signed()))
        };
        // A row that declares a register saved intends to give its slot, although the register may
        // not be overwritten yet.
        let is_saved = own.is_some_and(|own| {
            let rule = self.row.rule(Register(own.into()));
            matches!(rule, Some(RegisterRule::Offset(_)))
        });
        let saved = is_saved.then(|| slot(0)).flatten();
        let kept = own.map(|own| RuleLocation::Register(own, 0));
        let elsewhere = || {
            let mut others = self.numbered();
            let (other, _) = others.find(|(_, value)| is_telling && *value == wanted)?;
            Some(RuleLocation::Register(other, 0))
        };
        let red_zone = self.abi_info.red_zone.unsigned_abs().into();
        saved.or(kept).or_else(|| slot(red_zone)).or_else(elsewhere)
    }

    /// Distance below the CFA of the frame's word with a value; the search ends a number of bytes
    /// below the stack pointer.
    fn slot_of(&self, value: u64, below_sp: u64) -> Option<u64> {
        let lowest = self
            .registers
            .get(Register(self.abi_info.stack_pointer.into()));
        let lowest = lowest.unwrap_or(0).saturating_sub(below_sp);
        let words = (1..=MAX_SEARCH_WORDS).map(|number| 8 * number);
        let mut words = words.take_while(|below| self.truth.sp.saturating_sub(*below) >= lowest);
        words.find(|below| self.memory.word(self.truth.sp.wrapping_sub(*below)) == Some(value))
    }

    /// The general registers with their values.
    fn numbered(&self) -> impl Iterator<Item = (u8, u64)> {
        let numbers = self.registers.iter();
        let numbers = numbers.map(|(register, value)| (u8::try_from(register.0), value));
        numbers.filter_map(|(number, value)| Some((number.ok().filter(|it| *it < 16)?, value)))
    }

    /// The register that the row's CFA is relative to.
    fn declared_register(&self) -> Option<u8> {
        match self.row.cfa {
            CfaRule::RegisterOffset { register, .. } => u8::try_from(register.0).ok(),
            _ => None,
        }
    }

    /// The true CFA as a register and an offset.
    fn counted_from_a_register(&self) -> Option<RuleLocation> {
        let declared = self.declared_register();
        // Tables use rsp and rbp.
        let sp = self.abi_info.stack_pointer;
        let first = declared
            .into_iter()
            .chain([sp, self.abi_info.frame_pointer]);
        let first = first.map(|number| (number, self.registers.get(Register(number.into()))));
        let first = first.map(|(number, value)| (number, value.unwrap_or(0)));
        let places = first.chain(self.numbered()).map(|(number, value)| {
            let offset = self.truth.sp.wrapping_sub(value).cast_signed();
            (number, offset)
        });
        let near = places.filter(|(_, offset)| offset.unsigned_abs() < MAX_SAVE_DISTANCE_BYTES);
        // A register that points above the CFA is mostly near by chance: it belongs to the caller's
        // frame.
        let (number, offset) = near.min_by_key(|(number, offset)| *offset < 0 && *number != sp)?;
        Some(RuleLocation::Register(number, offset))
    }
}

/// A register's index among those that calls preserve.
pub(crate) fn place_of(of: Aspect, abi_info: &AbiInfo) -> Option<usize> {
    let Aspect::Register(register) = of else {
        return None;
    };
    abi_info
        .preserved
        .iter()
        .position(|number| *number == register)
}

/// Upper limit of distances in a frame, in bytes.
const MAX_SAVE_DISTANCE_BYTES: u64 = 1 << 20;
/// Greatest number of 8-byte words of a frame that are searched for a register.
const MAX_SEARCH_WORDS: u64 = 512;
