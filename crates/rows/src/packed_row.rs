//! A row in one word: what walkers step by.
//!
//! Nearly every function's frame has a row of this form, and few of these rows are different. The
//! CFA is some words above the stack pointer or the frame pointer, the return address is right
//! below it, and preserved registers are in the words below that. The other forms are those of
//! frames that align their stack, of signal frames, of entries of the procedure linkage table, and
//! of outermost frames. All other rows are the interpreter's.
//!
//! [`PackedRow::row`] defines what a word means. For the registers of its [`RegisterScope`], a
//! packed row has the callers of the row that it was made from, in all frames, except that an
//! outermost frame's CFA is lost.
//!
//! ```text
//! bits 0-29   saved registers: SavedRegisters
//! bits 30-31  form: 0 the CFA is above the stack pointer · 1 above the frame pointer
//!             · 2 in memory, at the frame pointer · 3 something else
//! bit 32      the frame has pushed arguments; its landing pad expects them to be popped
//! bits 33-48  forms 0 and 1: the CFA's distance above its base, in words; not zero
//!             form 2: the distance of the CFA's word from the frame pointer, in words, signed
//!             form 3: bits 33-35  1 outermost frame · 2 signal frame; nothing was saved
//!                                 3 entry of the procedure linkage table: the CFA is two words
//!                                 above the stack pointer from a byte of each 16 on, which is in
//!                                 bits 36-39, and one word before it
//! bits 49-63  zero
//! ```
//!
//! Zero is not a row. Example: `cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]` is `0x4_0000_0040`: two words
//! from bit 33 on, and two from bit 5 on, which is `rbp`'s field.
//!
//! Only x86-64 has a layout.

use crate::arch::Arch;
use crate::encoding::EncodedRow;
use crate::register::Register;
use crate::row::{CfaRule, RaState, RegisterRule, Row};

pub mod layout;
mod meaning;
mod pack;
mod saved;

pub use meaning::PackedExpressions;
pub use saved::{SavedRegister, SavedRegisters};

use layout::{DISTANCE_SHIFT, FORM_SHIFT};
use pack::RowPacker;

/// A row in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackedRow(u64);

/// How a packed row finds the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackedForm {
    /// The CFA is above one of two registers.
    Usual {
        /// The register.
        base: CfaBase,
        /// The distance, in bytes.
        cfa_offset: u64,
    },
    /// The CFA is in memory: the frame has aligned its stack.
    Realigned {
        /// The distance of the CFA's word from the frame pointer, in bytes.
        cfa_at: i64,
    },
    /// An entry of the procedure linkage table: the CFA is a word above the stack pointer, and
    /// another one after the entry has pushed its number.
    LinkageTable {
        /// The first byte after the push, of 16.
        pushed_from: u64,
    },
    /// The kernel's signal record is at the stack pointer, and has all registers.
    Signal,
    /// There is no caller.
    Outermost,
}

/// The base of a CFA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CfaBase {
    /// The stack pointer.
    StackPointer,
    /// The frame pointer.
    FramePointer,
}

/// Where a frame's CFA is, which has a caller on its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CfaSource {
    /// The register that it is found by.
    pub base: CfaBase,
    /// The distance above that, in bytes.
    pub offset: i64,
    /// Whether it is the word there, or that address.
    pub is_loaded: bool,
}

impl PackedForm {
    /// Where the CFA of a frame at a code address is; `None` for a signal frame, and for an
    /// outermost one.
    #[inline(always)]
    #[must_use]
    pub fn cfa(self, code: u64) -> Option<CfaSource> {
        let (base, offset, is_loaded) = match self {
            PackedForm::Usual { base, cfa_offset } => (base, cfa_offset.cast_signed(), false),
            PackedForm::Realigned { cfa_at } => (CfaBase::FramePointer, cfa_at, true),
            PackedForm::LinkageTable { pushed_from } => {
                if code % 16 >= pushed_from {
                    (CfaBase::StackPointer, 16, false)
                } else {
                    (CfaBase::StackPointer, 8, false)
                }
            }
            PackedForm::Signal | PackedForm::Outermost => return None,
        };
        Some(CfaSource {
            base,
            offset,
            is_loaded,
        })
    }
}

/// The registers that a packed row must be right for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterScope {
    /// All of them.
    All,
    /// Those that calls preserve: the stack pointer, [`SavedRegisters`] and the code address.
    Preserved,
    /// Those of a walk that keeps no others: the stack pointer, the frame pointer and the code
    /// address.
    StackAndFramePointer,
}

/// Where a packed row leads from a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackedStep {
    /// To the caller.
    Caller {
        /// The return address, the word below the CFA.
        code: u64,
        /// The CFA, which is the caller's stack pointer.
        cfa: u64,
        /// The address that saved registers are below.
        saved_base: u64,
    },
    /// From a signal frame to the interrupted frame.
    Interrupted {
        /// Its code address.
        code: u64,
        /// Its stack pointer.
        stack_pointer: u64,
        /// The address of its code address in the kernel's record.
        code_at: u64,
        /// The address of that record.
        record: u64,
    },
    /// Nowhere.
    Outermost,
}

/// The registers of a walk that keeps no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRegisters {
    /// The code address.
    pub code: u64,
    /// The stack pointer.
    pub stack_pointer: u64,
    /// The frame pointer.
    pub frame_pointer: u64,
}

/// A row without the rules of its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowHead<'e> {
    /// As [`Row::cfa`].
    pub cfa: CfaRule<'e>,
    /// As [`Row::return_address`].
    pub return_address: Register,
    /// As [`Row::signal_frame`].
    pub signal_frame: bool,
    /// As [`Row::ra_state`].
    pub ra_state: RaState,
}

const FRAME_POINTER: u16 = 6;

impl PackedRow {
    /// The frame has no caller.
    pub const OUTERMOST: PackedRow = PackedRow::other(layout::OUTERMOST);

    /// All registers are in the kernel's signal record, at the stack pointer.
    pub const SIGNAL: PackedRow = PackedRow::other(layout::SIGNAL);

    /// The number of bits of a row. The others are zero.
    pub const BITS: u32 = 49;

    const FORM: u64 = (layout::OTHER as u64) << FORM_SHIFT;
    const ON_FRAME_POINTER: u64 = (layout::ON_FRAME_POINTER as u64) << FORM_SHIFT;
    const REALIGNED: u64 = (layout::REALIGNED as u64) << FORM_SHIFT;
    const ARGUMENTS: u64 = 4 << FORM_SHIFT;

    /// The form, the arguments, and the bits that are no part of a row.
    const KIND: u64 = u64::MAX << PackedRow::BITS | 7 << FORM_SHIFT;

    const fn other(number: u32) -> PackedRow {
        PackedRow(PackedRow::FORM | (number as u64) << DISTANCE_SHIFT)
    }

    /// Packs a row; `None` if it has another form.
    #[must_use]
    pub fn from_row(row: &Row<'_>, arch: Arch, scope: RegisterScope) -> Option<PackedRow> {
        let head = RowHead {
            cfa: row.cfa,
            return_address: row.return_address,
            signal_frame: row.signal_frame,
            ra_state: row.ra_state,
        };
        PackedRow::from_rules(head, row.rules(), arch, scope)
    }

    /// Packs an encoded row; `None` if it has another form, or is malformed.
    #[must_use]
    pub fn from_encoded(row: &[u8], arch: Arch, scope: RegisterScope) -> Option<PackedRow> {
        let encoded = EncodedRow::parse(row)?;
        let head = RowHead {
            cfa: encoded.cfa,
            return_address: encoded.return_address,
            signal_frame: encoded.signal_frame,
            ra_state: encoded.ra_state,
        };
        let mut rules = encoded.rules();
        let mut is_whole = true;
        let rules = core::iter::from_fn(|| {
            let rule = rules.next_rule();
            is_whole = rule.is_some();
            rule?
        });
        PackedRow::from_rules(head, rules, arch, scope).filter(|_| is_whole)
    }

    /// Packs a row from its parts: all its rules, or at least those of the registers in `scope` and
    /// of the return-address column.
    #[must_use]
    pub fn from_rules<'e>(
        head: RowHead<'e>,
        rules: impl Iterator<Item = (Register, RegisterRule<'e>)>,
        arch: Arch,
        scope: RegisterScope,
    ) -> Option<PackedRow> {
        let mut packer = RowPacker::new(head, arch, scope);
        rules.for_each(|(register, rule)| packer.add(register, rule));
        packer.pack()
    }

    /// A row of the usual form that saves no register except the frame pointer. `None` if a
    /// distance does not fit.
    #[must_use]
    pub fn usual(
        base: CfaBase,
        cfa_offset: u64,
        frame_pointer: SavedRegister,
    ) -> Option<PackedRow> {
        let words = u16::try_from(cfa_offset / 8).ok();
        let words = words.filter(|words| *words != 0 && cfa_offset.is_multiple_of(8))?;
        let saved = SavedRegisters::NONE.with(FRAME_POINTER, frame_pointer)?;
        let form = match base {
            CfaBase::StackPointer => 0,
            CfaBase::FramePointer => PackedRow::ON_FRAME_POINTER,
        };
        let distance = u64::from(words) << DISTANCE_SHIFT;
        Some(PackedRow(form | distance | u64::from(saved.bits())))
    }

    /// The reverse of [`PackedRow::word`]. [`PackedRow::form`] decides whether it is a row.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> PackedRow {
        PackedRow(word)
    }

    /// As a word.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The same row for a frame with pushed arguments.
    #[must_use]
    pub const fn with_arguments(self) -> PackedRow {
        PackedRow(self.0 | PackedRow::ARGUMENTS)
    }

    /// Whether it is [`PackedRow::with_arguments`].
    #[must_use]
    pub const fn has_arguments(self) -> bool {
        self.0 & PackedRow::ARGUMENTS != 0
    }

    /// How the caller is found; `None` if the word is not a row.
    #[inline(always)]
    #[must_use]
    pub fn form(self) -> Option<PackedForm> {
        let distance = u16::try_from(self.0 >> DISTANCE_SHIFT).ok()?;
        match self.0 & PackedRow::FORM {
            0 | PackedRow::ON_FRAME_POINTER if !self.is_usual() => None,
            0 | PackedRow::ON_FRAME_POINTER => Some(PackedForm::Usual {
                base: self.base(),
                cfa_offset: self.cfa_offset(),
            }),
            PackedRow::REALIGNED => Some(PackedForm::Realigned {
                cfa_at: 8 * i64::from(distance.cast_signed()),
            }),
            _ => self.other_form(distance),
        }
    }

    fn other_form(self, distance: u16) -> Option<PackedForm> {
        let pushed_from = distance >> (layout::PUSHED_SHIFT - DISTANCE_SHIFT);
        match PackedRow(self.0 & !PackedRow::ARGUMENTS) {
            PackedRow::OUTERMOST => Some(PackedForm::Outermost),
            PackedRow::SIGNAL => Some(PackedForm::Signal),
            _ if u32::from(distance & 7) == layout::LINKAGE_TABLE && pushed_from < 16 => {
                Some(PackedForm::LinkageTable {
                    pushed_from: pushed_from.into(),
                })
            }
            _ => None,
        }
    }

    /// The CFA's distance above the stack pointer in bytes, if that is its base, the frame has no
    /// arguments, and the word has no other bits: true for nearly all frames. One comparison.
    #[inline(always)]
    #[must_use]
    pub const fn above_stack_pointer(self) -> Option<u64> {
        match self.0 & PackedRow::KIND {
            0 => Some(self.0 >> FORM_SHIFT),
            _ => None,
        }
    }

    /// The same for the frame pointer.
    #[inline(always)]
    #[must_use]
    pub const fn above_frame_pointer(self) -> Option<u64> {
        if self.0 & PackedRow::KIND == PackedRow::ON_FRAME_POINTER {
            Some(self.0 >> FORM_SHIFT & !7)
        } else {
            None
        }
    }

    /// The base of the CFA in the usual form.
    #[inline(always)]
    #[must_use]
    pub const fn usual_base(self) -> Option<CfaBase> {
        match self.0 >> FORM_SHIFT & 3 {
            0 => Some(CfaBase::StackPointer),
            1 => Some(CfaBase::FramePointer),
            _ => None,
        }
    }

    /// The CFA's distance above its base in the usual form, in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn cfa_offset(self) -> u64 {
        8 * (self.0 >> DISTANCE_SHIFT & 0xffff)
    }

    /// The saved registers, in frames that have a caller on their stack.
    #[inline(always)]
    #[must_use]
    pub const fn saved(self) -> SavedRegisters {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        SavedRegisters::from_bits(u32::from_le_bytes([a, b, c, d]))
    }

    /// The address that saved registers are below: the CFA, or the end of the frame pointer's word.
    #[inline]
    #[must_use]
    pub const fn saved_base(self, cfa: u64, frame_pointer: u64) -> u64 {
        match self.0 & PackedRow::FORM {
            PackedRow::REALIGNED => frame_pointer.wrapping_add(8),
            _ => cfa,
        }
    }

    /// Steps from a frame at a code address. `base` is the value of the register that the step
    /// begins with ([`PackedRow::base`]), and `read` reads a word. Checks nothing of the caller.
    /// `None` if the word is not a row, or the architecture has no signal record.
    ///
    /// # Errors
    ///
    /// The first of `read`.
    #[inline(always)]
    pub fn caller<E>(
        self,
        arch: Arch,
        code: u64,
        base: u64,
        read: impl FnMut(u64) -> Result<u64, E>,
    ) -> Result<Option<PackedStep>, E> {
        if self.is_usual() {
            let cfa = base.wrapping_add(self.cfa_offset());
            return called(cfa, cfa, read);
        }
        self.unusual_caller(arch, code, base, read)
    }

    /// The same for other forms; not inlined, for the sake of the usual one.
    #[inline(never)]
    fn unusual_caller<E>(
        self,
        arch: Arch,
        code: u64,
        base: u64,
        mut read: impl FnMut(u64) -> Result<u64, E>,
    ) -> Result<Option<PackedStep>, E> {
        let Some(form) = self.form() else {
            return Ok(None);
        };
        let Some(source) = form.cfa(code) else {
            return match form {
                PackedForm::Signal => interrupted(arch, base, read),
                _ => Ok(Some(PackedStep::Outermost)),
            };
        };
        let at = base.wrapping_add_signed(source.offset);
        let cfa = if source.is_loaded { read(at)? } else { at };
        called(cfa, self.saved_base(cfa, base), read)
    }

    /// Whether the word is a row of the usual form: the distance is not zero, and higher bits are.
    #[inline(always)]
    const fn is_usual(self) -> bool {
        let distance = self.0 >> DISTANCE_SHIFT;
        self.usual_base().is_some() && distance.wrapping_sub(1) < 0xffff
    }

    /// The register that a step begins with.
    #[inline]
    #[must_use]
    pub const fn base(self) -> CfaBase {
        match self.0 & PackedRow::FORM {
            PackedRow::ON_FRAME_POINTER | PackedRow::REALIGNED => CfaBase::FramePointer,
            _ => CfaBase::StackPointer,
        }
    }

    /// The caller of a frame, by the registers of a walk that keeps no others. `read` reads a word.
    /// `None` if there is none, if a word or the caller's frame pointer cannot be recovered, or if
    /// the word is not a row. Checks nothing else of the caller.
    #[inline]
    #[must_use]
    pub fn step(
        self,
        arch: Arch,
        frame: FrameRegisters,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<FrameRegisters> {
        let read = |addr| read(addr).ok_or(());
        let base = match self.base() {
            CfaBase::StackPointer => frame.stack_pointer,
            CfaBase::FramePointer => frame.frame_pointer,
        };
        match self.caller(arch, frame.code, base, read).ok()?? {
            PackedStep::Caller {
                code,
                cfa,
                saved_base,
            } => Some(FrameRegisters {
                code,
                stack_pointer: cfa,
                frame_pointer: match self.saved().get(FRAME_POINTER)? {
                    SavedRegister::Unchanged => frame.frame_pointer,
                    SavedRegister::Below(bytes) => read(saved_base.wrapping_sub(bytes)).ok()?,
                    SavedRegister::Undefined => return None,
                },
            }),
            PackedStep::Interrupted {
                code,
                stack_pointer,
                record,
                ..
            } => {
                let spec = arch.spec();
                let at = spec.signal_record?.address(record, spec.frame_pointer?)?;
                Some(FrameRegisters {
                    code,
                    stack_pointer,
                    frame_pointer: read(at).ok()?,
                })
            }
            PackedStep::Outermost => None,
        }
    }
}

/// The caller of a frame with this CFA.
#[inline(always)]
fn called<E>(
    cfa: u64,
    saved_base: u64,
    mut read: impl FnMut(u64) -> Result<u64, E>,
) -> Result<Option<PackedStep>, E> {
    Ok(Some(PackedStep::Caller {
        code: read(cfa.wrapping_sub(8))?,
        cfa,
        saved_base,
    }))
}

/// The interrupted frame, whose registers are in the kernel's record above the trampoline's stack
/// pointer.
fn interrupted<E>(
    arch: Arch,
    stack_pointer: u64,
    mut read: impl FnMut(u64) -> Result<u64, E>,
) -> Result<Option<PackedStep>, E> {
    let spec = arch.spec();
    let Some(layout) = spec.signal_record else {
        return Ok(None);
    };
    let record = layout.at(stack_pointer);
    let at = |register| layout.address(record, register);
    let (Some(code_at), Some(stack_pointer_at)) = (at(spec.pc), at(spec.stack_pointer)) else {
        return Ok(None);
    };
    Ok(Some(PackedStep::Interrupted {
        stack_pointer: read(stack_pointer_at)?,
        code: read(code_at)?,
        code_at,
        record,
    }))
}
