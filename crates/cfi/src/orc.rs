//! ORC, the unwind tables of the Linux kernel for x86-64, read into rows.
//!
//! `objtool` makes them from the kernel's code. `.orc_unwind_ip` has the code addresses: each is a
//! distance of four bytes from its own field. `.orc_unwind` has an entry of six bytes for each
//! (`arch/x86/include/asm/orc_types.h`):
//!
//! | bytes | field |
//! |---|---|
//! | 0–1 | the offset of the CFA, signed |
//! | 2–3 | the offset of the saved frame pointer, signed |
//! | 4–5 | bits 0–3: the register of the CFA; 4–7: that of the saved frame pointer; 8–11: the type |
//!
//! An entry holds up to the next address. Only the stack pointer, the frame pointer and the code
//! address are tracked. The layout of the last four bits changed twice ([`OrcVersion`]).
//!
//! LoongArch has ORC, too, with other fields. It is not read.

use alloc::vec::Vec;
use core::ops::Range;

use unspool_rows::expression::operation::{DW_OP_BREG0, DW_OP_CONSTS, DW_OP_DEREF, DW_OP_PLUS};
use unspool_rows::leb128::put_signed;
use unspool_rows::table::{FdeHeader, RowStart};
use unspool_rows::{Abi, CfaRule, Expression, Register, RegisterRule, Row, RowId, Table, Vaddr};

/// The code that ORC tables are of.
pub const ABI: Abi = Abi::X86_64;
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);
/// The other general registers, whose values in the caller are not known.
const UNTRACKED: [u16; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The kernel's saved registers (`struct pt_regs`): the offset of each, in bytes.
const PT_REGS: [(u16, i64); 17] = [
    (15, 0),
    (14, 8),
    (13, 16),
    (12, 24),
    (6, 32),
    (3, 40),
    (11, 48),
    (10, 56),
    (9, 64),
    (8, 72),
    (0, 80),
    (2, 88),
    (1, 96),
    (4, 104),
    (5, 112),
    (16, 128),
    (7, 152),
];

/// The bytes of an entry.
const ENTRY_BYTES: usize = 6;

/// A layout of ORC's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrcVersion {
    /// Linux 4.14 to 6.2: bits 8 and 9 are the type, 10 the end of the stack.
    V1,
    /// Linux 6.3: bit 10 is the signal, 11 the end of the stack.
    V2,
    /// Since Linux 6.4: bits 8 to 10 are the type, which can be the end of the stack; 11 the signal.
    V3,
}

impl OrcVersion {
    /// The version by the contents of `.orc_header`, a hash of the kernel's header file. `None` for
    /// a hash that is not known.
    #[must_use]
    pub fn from_header(hash: &[u8]) -> Option<OrcVersion> {
        const V2: [u8; 20] = [
            0xdb, 0x84, 0xae, 0xd4, 0x10, 0x3b, 0x31, 0xdd, 0x51, 0xe0, 0x17, 0xf8, 0xf7, 0x97,
            0x83, 0xca, 0x98, 0x5c, 0x2c, 0x51,
        ];
        const V3: [u8; 20] = [
            0xfe, 0x5d, 0x32, 0xbf, 0x58, 0x1b, 0xd6, 0x3b, 0x2c, 0xa9, 0xa5, 0xc6, 0x5b, 0xa5,
            0xa6, 0x25, 0xea, 0xb3, 0xfe, 0x24,
        ];
        match hash {
            hash if hash == V2 => Some(OrcVersion::V2),
            hash if hash == V3 => Some(OrcVersion::V3),
            _ => None,
        }
    }

    /// The version by the kernel's release, for a file without `.orc_header`.
    #[must_use]
    pub fn from_release(major: u32, minor: u32) -> OrcVersion {
        match (major, minor) {
            (..6, _) | (6, ..3) => OrcVersion::V1,
            (6, 3) => OrcVersion::V2,
            _ => OrcVersion::V3,
        }
    }

    /// The type of an entry, and whether the caller was interrupted.
    fn decode(self, flags: u16) -> Result<(OrcType, bool), OrcError> {
        let bit = |bit: u16| flags >> bit & 1 != 0;
        let (kind, is_end, is_signal) = match self {
            OrcVersion::V1 => (flags >> 8 & 3, bit(10), None),
            OrcVersion::V2 => (flags >> 8 & 3, bit(11), Some(bit(10))),
            OrcVersion::V3 => {
                let signal = Some(bit(11));
                match flags >> 8 & 7 {
                    0 => return Ok((OrcType::Hole, false)),
                    1 => (0, true, signal),
                    kind => (kind - 2, false, signal),
                }
            }
        };
        let has_cfa = flags & 0xf != 0;
        let kind = match kind {
            _ if is_end => OrcType::End,
            _ if !has_cfa && self != OrcVersion::V3 => OrcType::Hole,
            0 => OrcType::Call,
            1 => OrcType::Registers,
            2 => OrcType::SomeRegisters,
            other => return Err(OrcError::Type { number: other }),
        };
        let is_interrupt = matches!(kind, OrcType::Registers | OrcType::SomeRegisters);
        Ok((kind, is_signal.unwrap_or(is_interrupt)))
    }
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrcType {
    /// Nothing is known of the code.
    Hole,
    /// The outermost frame.
    End,
    /// A function that was called: the return address is below the CFA.
    Call,
    /// All registers are at the CFA.
    Registers,
    /// The processor's record of an interrupt is at the CFA.
    SomeRegisters,
}

/// Why an entry cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrcError {
    /// It has an unknown type.
    #[error("type {number} is not known")]
    Type {
        /// Its number.
        number: u16,
    },
    /// The CFA is computed from an unknown register.
    #[error("register {number} of the CFA is not known")]
    CfaRegister {
        /// Its number.
        number: u16,
    },
    /// The frame pointer is saved relative to an unknown register.
    #[error("register {number} of the saved frame pointer is not known")]
    FramePointer {
        /// Its number.
        number: u16,
    },
    /// No later entry says where its code ends.
    #[error("it is the last one, and not an end")]
    NoEnd,
    /// The sections have different numbers of entries.
    #[error(".orc_unwind has {entries} entries, and .orc_unwind_ip {addresses}")]
    Lengths {
        /// The entries.
        entries: usize,
        /// The addresses.
        addresses: usize,
    },
    /// There are too many rows.
    #[error("there are too many rows")]
    TooLarge,
}

/// An entry that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ORC entry {entry} ({address}): {error}")]
pub struct OrcProblem {
    /// Its index in the file.
    pub entry: usize,
    /// Its code address.
    pub address: Vaddr,
    /// The fault.
    pub error: OrcError,
}

/// ORC's sections.
#[derive(Debug, Clone, Copy)]
pub struct OrcSections<'a> {
    /// `.orc_unwind_ip`.
    pub addresses: &'a [u8],
    /// Its first byte's address.
    pub start: Vaddr,
    /// `.orc_unwind`.
    pub entries: &'a [u8],
    /// The layout of the entries.
    pub version: OrcVersion,
    /// Whether the offset is added to the word at the stack pointer. Until Linux 5.11, it is added
    /// to the stack pointer itself ([`OrcSections::adds_after_load`]).
    pub adds_after_load: bool,
}

/// An entry, decoded.
#[derive(Debug, Clone, Copy)]
struct OrcEntry {
    address: Vaddr,
    index: usize,
    kind: OrcType,
    is_signal: bool,
    cfa: (u16, i16),
    frame_pointer: (u16, i16),
}

impl OrcSections<'_> {
    /// [`OrcSections::adds_after_load`] by the kernel's release.
    #[must_use]
    pub fn adds_after_load(major: u32, minor: u32) -> bool {
        (major, minor) >= (5, 12)
    }

    /// The rows: an entry for each run of code, cut at `starts`, which are ascending. Bad entries
    /// are reported, and leave a hole.
    #[must_use]
    pub fn table(&self, starts: &[Vaddr]) -> (Table, Vec<OrcProblem>) {
        let mut problems = Vec::new();
        let entries = self.sorted(&mut problems);
        let mut table = Table::new(ABI);
        let mut run: Vec<RowStart> = Vec::new();
        let mut origin = 0;
        let mut cuts = starts.iter().copied().peekable();
        for (place, entry) in entries.iter().enumerate() {
            let problem = |error| OrcProblem {
                entry: entry.index,
                address: entry.address,
                error,
            };
            let row = match (entry.kind, entries.get(place + 1)) {
                (OrcType::Hole, _) => None,
                (_, None) => {
                    problems.push(problem(OrcError::NoEnd));
                    None
                }
                (_, Some(_)) => match self.row(entry, &mut table) {
                    Ok(row) => Some(row),
                    Err(error) => {
                        problems.push(problem(error));
                        None
                    }
                },
            };
            let Some(row) = row else {
                push(&mut table, &mut run, origin, entry.address);
                continue;
            };
            let end = entries
                .get(place + 1)
                .map_or(entry.address, |next| next.address);
            let mut start = entry.address;
            while cuts.next_if(|cut| *cut < start).is_some() {}
            if cuts.next_if_eq(&start).is_some() {
                push(&mut table, &mut run, origin, start);
            }
            loop {
                if run.is_empty() {
                    origin = (entry.index * ENTRY_BYTES) as u64;
                }
                if run.last().is_none_or(|last| last.row != row) {
                    run.push(RowStart { start, row });
                }
                let Some(cut) = cuts.next_if(|cut| *cut < end) else {
                    break;
                };
                push(&mut table, &mut run, origin, cut);
                start = cut;
            }
        }
        (table, problems)
    }

    /// The entries by ascending addresses; modules have them in any order. Where two have one
    /// address, the one that is not a hole holds.
    fn sorted(&self, problems: &mut Vec<OrcProblem>) -> Vec<OrcEntry> {
        let (addresses, _) = self.addresses.as_chunks::<4>();
        let (entries, _) = self.entries.as_chunks::<ENTRY_BYTES>();
        if addresses.len() != entries.len() {
            let lengths = OrcError::Lengths {
                entries: entries.len(),
                addresses: addresses.len(),
            };
            problems.push(OrcProblem {
                entry: addresses.len().min(entries.len()),
                address: self.start,
                error: lengths,
            });
        }
        let mut sorted = Vec::with_capacity(entries.len());
        for (index, (address, entry)) in addresses.iter().zip(entries).enumerate() {
            let field = self.start.offset((index * 4) as u64);
            let distance = i64::from(i32::from_le_bytes(*address));
            let address = Vaddr(field.0.wrapping_add_signed(distance));
            let [cfa, cfa_high, saved, saved_high, low, high] = *entry;
            let flags = u16::from_le_bytes([low, high]);
            let (kind, is_signal) = self.version.decode(flags).unwrap_or_else(|error| {
                problems.push(OrcProblem {
                    entry: index,
                    address,
                    error,
                });
                (OrcType::Hole, false)
            });
            sorted.push(OrcEntry {
                address,
                index,
                kind,
                is_signal,
                cfa: (flags & 0xf, i16::from_le_bytes([cfa, cfa_high])),
                frame_pointer: (flags >> 4 & 0xf, i16::from_le_bytes([saved, saved_high])),
            });
        }
        // Of equal addresses the last one stays.
        sorted.sort_by_key(|entry| (entry.address, entry.kind != OrcType::Hole));
        sorted.reverse();
        sorted.dedup_by_key(|entry| entry.address);
        sorted.reverse();
        sorted
    }

    /// The row of an entry that is not a hole.
    fn row(&self, entry: &OrcEntry, table: &mut Table) -> Result<RowId, OrcError> {
        let (mut cfa_bytes, mut saved_bytes) = (Vec::new(), Vec::new());
        let mut row = Row::new(RIP);
        row.signal_frame = entry.is_signal;
        let mut rules: Vec<(Register, RegisterRule<'_>)> = UNTRACKED
            .map(|register| (Register(register), RegisterRule::Undefined))
            .into();
        if entry.kind == OrcType::End {
            row.signal_frame = false;
            row.cfa = CfaRule::RegisterOffset {
                register: RSP,
                offset: 0,
            };
            rules.extend([RBP, RIP].map(|register| (register, RegisterRule::Undefined)));
        } else {
            row.cfa = self.cfa(entry.cfa, &mut cfa_bytes)?;
            match entry.kind {
                OrcType::Registers => {
                    let saved = PT_REGS
                        .map(|(register, at)| (Register(register), RegisterRule::Offset(at)));
                    rules = saved.into();
                }
                OrcType::SomeRegisters => {
                    rules.extend([
                        (RIP, RegisterRule::Offset(0)),
                        (RSP, RegisterRule::Offset(24)),
                    ]);
                }
                _ => rules.push((RIP, RegisterRule::Offset(-8))),
            }
            let (number, offset) = entry.frame_pointer;
            let offset = i64::from(offset);
            let saved = match number {
                0 => None,
                1 => Some(RegisterRule::Offset(offset)),
                4 => {
                    register_plus(RBP, offset, &mut saved_bytes);
                    Some(RegisterRule::Expression(Expression(&saved_bytes)))
                }
                number => return Err(OrcError::FramePointer { number }),
            };
            rules.extend(saved.map(|rule| (RBP, rule)));
        }
        for (register, rule) in rules {
            row.set_rule(register, Some(rule))
                .map_err(|_| OrcError::TooLarge)?;
        }
        table.intern(&row).map_err(|_| OrcError::TooLarge)
    }

    fn cfa<'b>(
        &self,
        (number, offset): (u16, i16),
        bytes: &'b mut Vec<u8>,
    ) -> Result<CfaRule<'b>, OrcError> {
        let offset = i64::from(offset);
        let (register, offset) = match number {
            2 => (Register(1), 0),
            3 => (Register(5), 0),
            4 => (RBP, offset),
            5 => (RSP, offset),
            6 => (Register(10), 0),
            7 => (Register(13), 0),
            8 => {
                register_plus(RBP, offset, bytes);
                bytes.push(DW_OP_DEREF);
                return Ok(CfaRule::Expression(Expression(bytes)));
            }
            9 if self.adds_after_load => {
                register_plus(RSP, 0, bytes);
                bytes.extend([DW_OP_DEREF, DW_OP_CONSTS]);
                put_signed(bytes, offset);
                bytes.push(DW_OP_PLUS);
                return Ok(CfaRule::Expression(Expression(bytes)));
            }
            9 => {
                register_plus(RSP, offset, bytes);
                bytes.push(DW_OP_DEREF);
                return Ok(CfaRule::Expression(Expression(bytes)));
            }
            number => return Err(OrcError::CfaRegister { number }),
        };
        Ok(CfaRule::RegisterOffset { register, offset })
    }
}

/// The operation that yields a register plus an offset.
fn register_plus(register: Register, offset: i64, bytes: &mut Vec<u8>) {
    // The numbers here are below 32.
    let number = u8::try_from(register.0).unwrap_or(0);
    bytes.push(DW_OP_BREG0 + number);
    put_signed(bytes, offset);
}

/// Ends an entry of the table.
fn push(table: &mut Table, run: &mut Vec<RowStart>, origin: u64, end: Vaddr) {
    let range = run.first().map(|first| Range {
        start: first.start,
        end,
    });
    if let Some(range) = range.filter(|range| range.start < range.end) {
        // The rows ascend, and end before `end`.
        let _ = table.push(
            FdeHeader {
                start: range.start,
                end: range.end,
                personality: None,
                lsda: None,
                origin,
            },
            run,
        );
    }
    run.clear();
}
