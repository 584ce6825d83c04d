//! Writing functions as a section of version 2 or 3.
//!
//! Entries ascend. Starts are relative to the section in version 2, for readers older than the
//! first erratum. They are relative to the field in version 3, as in GNU as. No two entries share
//! rows.

use alloc::vec::Vec;

use unspool_rows::{Endian, Register, Vaddr};

use super::convert::{SframeConversion, Unrepresentable, UnrepresentableReason};
use super::frame::{
    FrameRowEntry, FreBase, FreContents, FreRules, FreValue, SframeAbi, SframeVersion,
};
use super::section::{SframeFunction, repair};

/// The maximum number of rows of a function in version 3; this writer applies it to all versions.
pub(super) const MAX_ROWS: usize = u16::MAX as usize;

/// Size of a header in bytes.
const HEADER: usize = 28;

/// Why functions cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SframeWriteError {
    /// Only versions 2 and 3 are written.
    #[error("version {0} cannot be written; 2 and 3 can")]
    Version(u8),
    /// A row that the version cannot represent. [`fit`](super::fit) removes these beforehand.
    #[error("the row at {at}: {reason}")]
    Row {
        /// Its address.
        at: Vaddr,
        /// The reason.
        reason: UnrepresentableReason,
    },
    /// More than 2 GiB from the section.
    #[error(
        "{address} is more than 2 GiB from the section at {section}, for which version 3 is needed"
    )]
    Far {
        /// The address.
        address: Vaddr,
        /// The section.
        section: Vaddr,
    },
    /// More than 4 GiB, or more rows of a function than the version can count.
    #[error("there are too many entries or rows")]
    TooLarge,
}

/// The functions in order, without the rows that a version cannot represent. These are reported.
#[must_use]
pub fn fit(
    functions: &[SframeFunction],
    abi: SframeAbi,
    version: SframeVersion,
) -> SframeConversion {
    let mut fitting = SframeConversion::default();
    for function in repair(functions) {
        if function.rows.is_empty() {
            continue;
        }
        let check =
            |row: &FrameRowEntry| is_flexible(row.contents, function.is_signal_frame, abi, version);
        let mut checks = function.rows.iter().map(check);
        match checks.try_fold(false, |any, row| row.map(|is| any || is)) {
            Ok(true) => fitting.flexible += 1,
            Ok(false) => fitting.plain += 1,
            Err(reason) if function.block.is_some() => {
                fitting.incomplete += 1;
                fitting.unrepresentable.push(Unrepresentable {
                    start: function.start,
                    end: function.end(),
                    origin: function.origin,
                    reason,
                });
                continue;
            }
            Err(_) => {
                fitting.incomplete += 1;
                split(&function, check, &mut fitting);
                continue;
            }
        }
        fitting.functions.push(function);
    }
    fitting
}

/// The pieces of a function between unrepresentable rows.
fn split(
    function: &SframeFunction,
    check: impl Fn(&FrameRowEntry) -> Result<bool, UnrepresentableReason>,
    fitting: &mut SframeConversion,
) {
    let starts = function.rows.iter().map(|row| row.offset);
    let ends = starts.clone().skip(1).chain([function.size]);
    let mut from = starts.clone().next().unwrap_or(0);
    let at = |offset: u32| function.start.offset(offset.into());
    for ((row, start), end) in function.rows.iter().zip(starts).zip(ends) {
        if let Err(reason) = check(row) {
            let piece = function.part(at(from), at(start));
            fitting
                .functions
                .extend(piece.filter(|piece| piece.size > 0));
            from = end;
            fitting.unrepresentable.push(Unrepresentable {
                start: at(start),
                end: at(end),
                origin: function.origin,
                reason,
            });
        }
    }
    let piece = function.part(at(from), function.end());
    fitting
        .functions
        .extend(piece.filter(|piece| piece.size > 0));
}

/// Whether a row needs a flexible entry.
///
/// # Errors
///
/// The version cannot represent the row.
pub(super) fn is_flexible(
    fre: FreContents,
    is_signal_frame: bool,
    abi: SframeAbi,
    version: SframeVersion,
) -> Result<bool, UnrepresentableReason> {
    if is_signal_frame && version < SframeVersion::V3 {
        return Err(UnrepresentableReason::SignalFrame);
    }
    let FreContents::Rules(places) = fre else {
        return Ok(false);
    };
    let mut words = DataWords::default();
    match words.put_default(&places, abi, version) {
        Ok(()) => Ok(false),
        Err(why) if version < SframeVersion::V3 => Err(why),
        Err(_) => {
            let mut words = DataWords::default();
            words.put_flexible(&places, abi).map(|()| true)
        }
    }
}

/// The data words of a row.
#[derive(Debug, Default, Clone, Copy)]
struct DataWords {
    words: [DataWord; 6],
    count: u8,
}

/// A data word: a signed offset, or a control word.
#[derive(Debug, Clone, Copy)]
enum DataWord {
    Offset(i32),
    Control(u32),
}

impl Default for DataWord {
    fn default() -> Self {
        DataWord::Control(0)
    }
}

impl DataWord {
    /// As 4 bytes; the low ones are the word if it is shorter.
    fn bits(self) -> u32 {
        match self {
            DataWord::Offset(offset) => offset.cast_unsigned(),
            DataWord::Control(control) => control,
        }
    }

    /// Its size in bytes: 1, 2 or 4.
    fn bytes(self) -> u8 {
        let (fits_1, fits_2) = match self {
            DataWord::Offset(offset) => {
                (i8::try_from(offset).is_ok(), i16::try_from(offset).is_ok())
            }
            DataWord::Control(word) => (u8::try_from(word).is_ok(), u16::try_from(word).is_ok()),
        };
        match (fits_1, fits_2) {
            (true, _) => 1,
            (_, true) => 2,
            _ => 4,
        }
    }
}

impl DataWords {
    fn as_slice(&self) -> &[DataWord] {
        self.words
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    fn put(&mut self, word: DataWord) {
        if let Some(slot) = self.words.get_mut(usize::from(self.count)) {
            *slot = word;
            self.count += 1;
        }
    }

    fn put_offset(&mut self, offset: i64) -> Result<(), UnrepresentableReason> {
        let offset = i32::try_from(offset).map_err(|_| UnrepresentableReason::Offset(offset))?;
        self.put(DataWord::Offset(offset));
        Ok(())
    }

    fn put_cfa_offset(&mut self, offset: i64, abi: SframeAbi) -> Result<(), UnrepresentableReason> {
        let stored = abi.stored_cfa_offset(offset);
        let stored = stored.and_then(|stored| i32::try_from(stored).ok());
        self.put(DataWord::Offset(
            stored.ok_or(UnrepresentableReason::CfaOffset(offset))?,
        ));
        Ok(())
    }

    /// Puts the words of a default row; the error is the reason why it needs a flexible one.
    fn put_default(
        &mut self,
        rules: &FreRules,
        abi: SframeAbi,
        version: SframeVersion,
    ) -> Result<(), UnrepresentableReason> {
        let FreBase::Register(register) = rules.cfa.base else {
            return Err(UnrepresentableReason::CfaExpression);
        };
        let is_usual = [abi.stack_pointer(), abi.frame_pointer()].contains(&register);
        if !rules.cfa.is_loaded && is_usual {
            self.put_cfa_offset(rules.cfa.offset, abi)?;
        } else {
            return Err(UnrepresentableReason::CfaRegister(register));
        }
        let fixed = abi.fixed_return_address();
        let ra = rules.return_address;
        match (fixed, ra, rules.frame_pointer) {
            (0, None, None) => {}
            (0, None, Some(_)) if abi == SframeAbi::S390x => self.put_offset(0)?,
            (0, None, Some(_)) => return Err(UnrepresentableReason::FramePointerAlone),
            (0, Some(ra), _) => self.put_saved(ra, abi, version)?,
            (fixed, ra, _) if ra == Some(FreValue::saved(fixed.into())) => {}
            _ => return Err(UnrepresentableReason::Flexible),
        }
        match rules.frame_pointer {
            Some(fp) => self.put_saved(fp, abi, version),
            None => Ok(()),
        }
    }

    /// Puts the location of a saved register: on the stack, or on s390x before version 3 in a
    /// register.
    fn put_saved(
        &mut self,
        value: FreValue,
        abi: SframeAbi,
        version: SframeVersion,
    ) -> Result<(), UnrepresentableReason> {
        let is_s390x = abi == SframeAbi::S390x;
        match value {
            FreValue {
                base: FreBase::Register(Register(number)),
                offset: 0,
                is_loaded: false,
            } if is_s390x && version < SframeVersion::V3 => {
                self.put_offset(i64::from(number) << 1 | 1)
            }
            _ => match value.saved_at() {
                // 0 stands for "not saved", odd numbers for registers.
                Some(offset) if !is_s390x || (offset != 0 && offset % 2 == 0) => {
                    self.put_offset(offset)
                }
                _ => Err(UnrepresentableReason::Flexible),
            },
        }
    }

    /// Puts the words of a flexible row.
    fn put_flexible(
        &mut self,
        rules: &FreRules,
        abi: SframeAbi,
    ) -> Result<(), UnrepresentableReason> {
        if rules.cfa.base == FreBase::Cfa {
            return Err(UnrepresentableReason::CfaExpression);
        }
        self.put_control(rules.cfa, UnrepresentableReason::CfaExpression)?;
        self.put_cfa_offset(rules.cfa.offset, abi)?;
        let fixed = i64::from(abi.fixed_return_address());
        let usual = (fixed != 0).then(|| FreValue::saved(fixed));
        match (rules.return_address, rules.frame_pointer) {
            (ra, None) if ra == usual => {}
            (ra, Some(_)) if ra == usual => self.put(DataWord::Control(0)),
            (Some(ra), _) => {
                self.put_control(ra, UnrepresentableReason::ReturnAddress)?;
                self.put_offset(ra.offset)?;
            }
            (None, _) => return Err(UnrepresentableReason::ReturnAddress),
        }
        if let Some(fp) = rules.frame_pointer {
            self.put_control(fp, UnrepresentableReason::FramePointer)?;
            self.put_offset(fp.offset)?;
        }
        Ok(())
    }

    fn put_control(
        &mut self,
        value: FreValue,
        reason: UnrepresentableReason,
    ) -> Result<(), UnrepresentableReason> {
        let base = match value.base {
            FreBase::Cfa => 0,
            FreBase::Register(Register(number)) => u32::from(number) << 3 | 1,
        };
        match base | u32::from(value.is_loaded) << 1 {
            0 => Err(reason), // this would be padding
            control => {
                self.put(DataWord::Control(control));
                Ok(())
            }
        }
    }
}

/// A section, and the offsets of its addresses.
#[derive(Debug, Clone)]
pub struct SframeImage {
    bytes: Vec<u8>,
    version: SframeVersion,
    endian: Endian,
    /// The offset of each address, and the address.
    pointers: Vec<(usize, Vaddr)>,
}

impl SframeImage {
    /// Writes ascending functions.
    ///
    /// # Errors
    ///
    /// The version is 1 or cannot represent a row, or the section would be too large.
    pub fn new(
        functions: &[SframeFunction],
        abi: SframeAbi,
        version: SframeVersion,
    ) -> Result<SframeImage, SframeWriteError> {
        if version == SframeVersion::V1 {
            return Err(SframeWriteError::Version(version.number()));
        }
        let mut sorted: Vec<&SframeFunction> =
            functions.iter().filter(|f| !f.rows.is_empty()).collect();
        sorted.sort_by_key(|function| function.start);
        let mut writing = SframeWriter {
            abi,
            version,
            index: Vec::new(),
            rows: Vec::new(),
            count: 0,
            pointers: Vec::new(),
        };
        for function in &sorted {
            writing.put(function)?;
        }
        writing.finish(sorted.len())
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes; always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of the section at an address.
    ///
    /// # Errors
    ///
    /// A function is too far away.
    pub fn bytes_at(&self, section: Vaddr) -> Result<Vec<u8>, SframeWriteError> {
        let mut bytes = self.bytes.clone();
        for (place, address) in &self.pointers {
            let (from, size) = match self.version {
                SframeVersion::V3 => (section.offset(*place as u64), 8),
                SframeVersion::V1 | SframeVersion::V2 => (section, 4),
            };
            let distance = address.0.wrapping_sub(from.0);
            if size == 4 && i32::try_from(distance.cast_signed()).is_err() {
                return Err(SframeWriteError::Far {
                    address: *address,
                    section,
                });
            }
            if let Some(slot) = bytes.get_mut(*place..*place + size) {
                let distance = number(distance, size, self.endian);
                slot.iter_mut()
                    .zip(distance)
                    .for_each(|(to, byte)| *to = byte);
            }
        }
        Ok(bytes)
    }
}

/// The low bytes of a number, in a byte order.
fn number(number: u64, size: usize, endian: Endian) -> impl Iterator<Item = u8> {
    let (bytes, skipped) = match endian {
        Endian::Little => (number.to_le_bytes(), 0),
        Endian::Big => (number.to_be_bytes(), 8_usize.saturating_sub(size)),
    };
    bytes.into_iter().skip(skipped).take(size)
}

struct SframeWriter {
    abi: SframeAbi,
    version: SframeVersion,
    index: Vec<u8>,
    rows: Vec<u8>,
    /// The number of rows.
    count: u32,
    /// The offset of each address in `index`, and the address.
    pointers: Vec<(usize, Vaddr)>,
}

impl SframeWriter {
    fn endian(&self) -> Endian {
        self.abi.abi().endian
    }

    fn bytes(&self, value: u64, size: usize) -> impl Iterator<Item = u8> + use<> {
        number(value, size, self.endian())
    }

    fn put_index(&mut self, value: u64, size: usize) {
        let bytes = self.bytes(value, size);
        self.index.extend(bytes);
    }

    fn put_rows(&mut self, value: u64, size: usize) {
        let bytes = self.bytes(value, size);
        self.rows.extend(bytes);
    }

    fn put(&mut self, function: &SframeFunction) -> Result<(), SframeWriteError> {
        let is_v3 = self.version == SframeVersion::V3;
        let outermost = [FrameRowEntry {
            offset: 0,
            contents: FreContents::Outermost,
        }];
        // A function that is outermost throughout has no rows in version 3.
        let rows = match function.rows.as_slice() {
            rows if is_v3 && rows == outermost && function.block.is_none() => &[],
            rows => rows,
        };
        let mut is_flexible = false;
        for row in rows {
            let at = function.start.offset(row.offset.into());
            let kind = self::is_flexible(
                row.contents,
                function.is_signal_frame,
                self.abi,
                self.version,
            );
            is_flexible |= kind.map_err(|reason| SframeWriteError::Row { at, reason })?;
        }
        let last = rows.last().map_or(0, |row| row.offset);
        let (row_type, offset_bytes) = match (u8::try_from(last), u16::try_from(last)) {
            (Ok(_), _) => (0, 1),
            (_, Ok(_)) => (1, 2),
            _ => (2, 4),
        };
        let info = row_type
            | u8::from(function.block.is_some()) << 4
            | u8::from(function.has_key_b) << 5
            | u8::from(function.is_signal_frame) << 7;
        let rows_at = self.rows.len() as u64;
        let count = u32::try_from(rows.len()).map_err(|_| SframeWriteError::TooLarge)?;
        self.pointers.push((self.index.len(), function.start));
        self.put_index(0, if is_v3 { 8 } else { 4 });
        self.put_index(function.size.into(), 4);
        self.put_index(rows_at, 4);
        let block = function.block.unwrap_or(0);
        if is_v3 {
            let count = u16::try_from(count).map_err(|_| SframeWriteError::TooLarge)?;
            self.put_rows(count.into(), 2);
            self.rows.extend([info, u8::from(is_flexible), block]);
        } else {
            self.put_index(count.into(), 4);
            self.index.extend([info, block, 0, 0]);
        }
        for row in rows {
            self.put_rows(row.offset.into(), offset_bytes);
            let at = function.start.offset(row.offset.into());
            self.put_frame(row.contents, is_flexible)
                .map_err(|reason| SframeWriteError::Row { at, reason })?;
        }
        let total = self.count.checked_add(count);
        self.count = total.ok_or(SframeWriteError::TooLarge)?;
        Ok(())
    }

    fn put_frame(
        &mut self,
        fre: FreContents,
        is_flexible: bool,
    ) -> Result<(), UnrepresentableReason> {
        let FreContents::Rules(places) = fre else {
            self.rows.push(0);
            return Ok(());
        };
        let mut words = DataWords::default();
        if is_flexible {
            words.put_flexible(&places, self.abi)?;
        } else {
            words.put_default(&places, self.abi, self.version)?;
        }
        let of_stack = places.cfa.base == FreBase::Register(self.abi.stack_pointer());
        let bytes = words.as_slice().iter().map(|word| word.bytes()).max();
        let (size, bytes) = match bytes {
            Some(4) => (2, 4),
            Some(2) => (1, 2),
            _ => (0, 1),
        };
        let signed = u8::from(places.is_signed) << 7;
        self.rows
            .push(u8::from(of_stack) | words.count << 1 | size << 5 | signed);
        for word in words.as_slice() {
            self.put_rows(word.bits().into(), bytes);
        }
        Ok(())
    }

    fn finish(mut self, entries: usize) -> Result<SframeImage, SframeWriteError> {
        /// Magic number, as a number.
        const MAGIC: u64 = 0xdee2;
        /// Entries ascend.
        const SORTED: u8 = 1;
        /// Starts are relative to their fields.
        const RELATIVE_TO_FIELD: u8 = 4;
        let word = |len: usize| u32::try_from(len).map_err(|_| SframeWriteError::TooLarge);
        let counts = [
            word(entries)?,
            self.count,
            word(self.rows.len())?,
            0,
            word(self.index.len())?,
        ];
        let flags = match self.version {
            SframeVersion::V3 => SORTED | RELATIVE_TO_FIELD,
            SframeVersion::V1 | SframeVersion::V2 => SORTED,
        };
        let fixed = self.abi.fixed_return_address().cast_unsigned();
        let mut bytes: Vec<u8> = self.bytes(MAGIC, 2).collect();
        bytes.extend([self.version.number(), flags, self.abi.number()]);
        bytes.extend([0, fixed, 0]);
        for count in counts {
            bytes.extend(self.bytes(count.into(), 4));
        }
        let pointers = self.pointers.iter();
        let pointers = pointers.map(|(place, address)| (HEADER + place, *address));
        let pointers = pointers.collect();
        bytes.append(&mut self.index);
        bytes.append(&mut self.rows);
        word(bytes.len())?;
        Ok(SframeImage {
            bytes,
            version: self.version,
            endian: self.abi.abi().endian,
            pointers,
        })
    }
}
