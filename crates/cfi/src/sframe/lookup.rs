//! One address → one entry → one row, straight from section bytes.
//!
//! Async-signal-safe: fixed storage, no allocation, no lock. The result is that of [`super::read`]
//! and [`super::table`]: among the entries that cover the address, the one that begins last, and
//! among equals the first.

use core::ops::Range;

use unspool_rows::expression::operation::{DW_OP_BREG0, DW_OP_DEREF};
use unspool_rows::{Expression, Register, Row, Vaddr};

use super::error::SframeError;
use super::frame::{FreBase, FreValue, SframeAbi};
use super::reader::{SframeFde, SubSection, SubSections};

/// Looks single addresses up in a section.
#[derive(Debug, Clone, Copy)]
pub struct SframeLookup<'a> {
    data: &'a [u8],
    address: Vaddr,
    abi: SframeAbi,
}

impl<'a> SframeLookup<'a> {
    /// Looks up in a section of a file for that machine. `address` is the section's first byte, as
    /// linked. Reads nothing yet.
    #[must_use]
    pub fn new(data: &'a [u8], address: Vaddr, abi: SframeAbi) -> Self {
        SframeLookup { data, address, abi }
    }

    /// The entry that covers `pc`.
    ///
    /// Takes time logarithmic in the number of entries if the section is sorted; linkers and
    /// unspool write such sections. Otherwise it is linear.
    ///
    /// # Errors
    ///
    /// No readable entry covers `pc`, and an inspected entry or part is bad.
    pub fn entry(&self, pc: Vaddr) -> Result<Option<SframeFde<'a>>, SframeError> {
        let mut last: Option<SframeFde<'a>> = None;
        let mut bad = None;
        for (_, part) in SubSections::new(self.data, self.address) {
            match part.and_then(|part| self.entry_of(&part, pc)) {
                Ok(Some(found)) if last.as_ref().is_none_or(|last| last.start < found.start) => {
                    last = Some(found);
                }
                Ok(_) => {}
                Err(error) => bad = Some(error),
            }
        }
        match (last, bad) {
            (None, Some(error)) => Err(error),
            (last, _) => Ok(last),
        }
    }

    fn entry_of(
        &self,
        subsection: &SubSection<'a>,
        pc: Vaddr,
    ) -> Result<Option<SframeFde<'a>>, SframeError> {
        if subsection.header.abi != self.abi {
            return Err(SframeError::OtherMachine(subsection.header.abi.number()));
        }
        if subsection.header.is_sorted() {
            return subsection.find(pc);
        }
        let entries = subsection.entries().filter_map(|(_, entry)| entry.ok());
        let covering = entries.filter(|entry| entry.start <= pc && pc < entry.end());
        let later = |last: SframeFde<'a>, next: SframeFde<'a>| {
            if next.start > last.start { next } else { last }
        };
        Ok(covering.reduce(later))
    }

    /// Makes `row` the one that holds at `pc`, and returns the addresses of its entry; `None` if no
    /// row holds there. Then, and after an error, the content of `row` has no meaning.
    ///
    /// A flexible row (version 3) may need an expression, and this function cannot allocate one. It
    /// uses precomputed expressions, for registers 0 to 31 and offsets that are multiples of 8 from
    /// -1024 to 1016 bytes.
    ///
    /// # Errors
    ///
    /// The entry is bad, or [`SframeError::NotReady`].
    pub fn row<'e>(
        &self,
        pc: Vaddr,
        row: &mut Row<'e>,
    ) -> Result<Option<Range<Vaddr>>, SframeError> {
        let Some(entry) = self.entry(pc)? else {
            return Ok(None);
        };
        let Some(frame) = entry.frame(pc)? else {
            return Ok(None);
        };
        frame.write(self.abi, entry.is_signal_frame, row, &mut |place| {
            ready(place)
        })?;
        Ok(Some(entry.start..entry.end()))
    }
}

const REGISTERS: usize = 32;
const OFFSETS: usize = 256;
/// The minimum offset, and the step, in bytes.
const MIN_CFA_OFFSET: i16 = -1024;
const STEP: i16 = 8;

/// Loads from each register plus each offset, as operations (`DW_OP_breg`N, `DW_OP_deref`), padded
/// with a zero.
static LOAD_INSTRUCTIONS: [[[u8; 4]; OFFSETS]; REGISTERS] = loads();

const fn loads() -> [[[u8; 4]; OFFSETS]; REGISTERS] {
    let mut all = [[[0; 4]; OFFSETS]; REGISTERS];
    let mut registers = all.as_mut_slice();
    let mut opcode = DW_OP_BREG0;
    while let Some((of_register, rest)) = registers.split_first_mut() {
        let mut offsets = of_register.as_mut_slice();
        let mut offset = MIN_CFA_OFFSET;
        while let Some((slot, rest)) = offsets.split_first_mut() {
            *slot = load(opcode, offset);
            offset += STEP;
            offsets = rest;
        }
        opcode += 1;
        registers = rest;
    }
    all
}

/// The offset is a signed LEB128 number.
const fn load(opcode: u8, offset: i16) -> [u8; 4] {
    let [low, _] = (offset & 0x7f).to_le_bytes();
    let [high, _] = (offset >> 7 & 0x7f).to_le_bytes();
    if has_one_byte(offset) {
        [opcode, low, DW_OP_DEREF, 0]
    } else {
        [opcode, low | 0x80, high, DW_OP_DEREF]
    }
}

const fn has_one_byte(offset: i16) -> bool {
    -64 <= offset && offset < 64
}

/// The precomputed expression of a location, if there is one.
fn ready(value: FreValue) -> Result<Expression<'static>, SframeError> {
    let FreBase::Register(register) = value.base else {
        return Err(SframeError::TooLarge);
    };
    let missing = SframeError::NotReady {
        register,
        offset: value.offset,
    };
    expression(register, value).ok_or(missing)
}

fn expression(register: Register, value: FreValue) -> Option<Expression<'static>> {
    let offset = i16::try_from(value.offset).ok()?;
    let above = offset
        .checked_sub(MIN_CFA_OFFSET)
        .filter(|above| above % STEP == 0)?;
    let at = usize::try_from(above / STEP).ok()?;
    let bytes = LOAD_INSTRUCTIONS.get(usize::from(register.0))?.get(at)?;
    let length = if has_one_byte(offset) { 2 } else { 3 };
    let length = length + usize::from(value.is_loaded);
    bytes.get(..length).map(Expression)
}
