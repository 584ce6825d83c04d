//! Writing rows as `.eh_frame`, with its search table.
//!
//! Entries with the same return address column, signal flag and personality routine share a CIE.
//! Its instructions make the most frequent first row of these entries. Entries with other first
//! rows have CIEs of their own if that is shorter. An entry's instructions encode the changes of
//! each row, in as few bytes as they can ([`SizeOptimization`]). All addresses are four bytes,
//! relative to their own location. So the sections fit anywhere within 2 GiB of the code, and their
//! length does not depend on the place.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use unspool_rows::leb128::{put_signed, put_unsigned};
use unspool_rows::{
    Abi, CfaRule, Endian, Expression, Fde, Pointer, RaState, Register, RegisterRule, Row, RowId,
    Table, Vaddr,
};

use crate::opcode;
use crate::pointer::{INDIRECT, PointerEncoding};
use remember::{RowChange, StateMarks};

mod remember;

/// Why a table cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An address is more than 2 GiB from its field.
    #[error("{address} is more than 2 GiB from the section at {section}")]
    Far {
        /// The address.
        address: Vaddr,
        /// The address of the section.
        section: Vaddr,
    },
    /// No instruction can represent a part of the row.
    #[error("the row at {at}: no call frame instruction says {what}")]
    Row {
        /// The row's address.
        at: Vaddr,
        /// The part.
        what: &'static str,
    },
    /// More than 4 GiB.
    #[error("the section would be larger than 4 GiB")]
    TooLarge,
}

/// A method to write the same rows in fewer bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeOptimization {
    /// Pads entries to multiples of 4 bytes, as assemblers do, instead of a word. Only the
    /// section's end is aligned to a word.
    Padding,
    /// Drops a row that is equal to the one before.
    Repeats,
    /// Counts offsets of the CFA in words (`DW_CFA_def_cfa_offset_sf`) if that takes fewer bytes.
    Words,
    /// Restores an earlier row by `DW_CFA_remember_state` and `DW_CFA_restore_state`.
    States,
    /// Gives entries with the same uncommon first row a CIE that makes this row.
    Beginnings,
}

impl SizeOptimization {
    /// All optimizations.
    pub const ALL: &[SizeOptimization] = &[
        SizeOptimization::Padding,
        SizeOptimization::Repeats,
        SizeOptimization::Words,
        SizeOptimization::States,
        SizeOptimization::Beginnings,
    ];
}

/// `.eh_frame`, and the offsets of its entries.
#[derive(Debug, Clone)]
pub struct EhFrame {
    bytes: Vec<u8>,
    abi: Abi,
    /// The offset of each address, and the address. It is written relative to its own location.
    pointers: Vec<(usize, Vaddr)>,
    /// The first address of each entry, and the entry's offset in the section.
    entries: Vec<(Vaddr, usize)>,
}

impl EhFrame {
    /// Writes the non-empty entries of a table, with all optimizations.
    ///
    /// # Errors
    ///
    /// No instruction can represent a row, or the section would be too large.
    pub fn from_table(table: &Table) -> Result<EhFrame, WriteError> {
        EhFrame::with_optimizations(table, SizeOptimization::ALL)
    }

    /// Writes the non-empty entries of a table, with some optimizations: to measure the effect of
    /// each.
    ///
    /// # Errors
    ///
    /// No instruction can represent a row, or the section would be too large.
    pub fn with_optimizations(
        table: &Table,
        measures: &[SizeOptimization],
    ) -> Result<EhFrame, WriteError> {
        let mut written = EhFrame {
            bytes: Vec::new(),
            abi: table.abi(),
            pointers: Vec::new(),
            entries: Vec::new(),
        };
        let mut groups: BTreeMap<CieGroup, Vec<&Fde>> = BTreeMap::new();
        for fde in table.fdes().iter().filter(|fde| fde.start < fde.end) {
            groups
                .entry(CieGroup::new(table, fde))
                .or_default()
                .push(fde);
        }
        for (group, fdes) in &groups {
            for (writer, fdes) in shared(table, fdes, measures)? {
                written.put_group(table, *group, &writer, &fdes)?;
            }
        }
        if let Some((_, last)) = written.entries.last() {
            // The next section is aligned to a word, and zeros between would end the table.
            close(
                &mut written.bytes,
                *last,
                table.abi(),
                word_bytes(table.abi()),
            )?;
        }
        written.bytes.extend([0; 4]); // the terminator
        match u32::try_from(written.bytes.len()) {
            Ok(_) => Ok(written),
            Err(_) => Err(WriteError::TooLarge),
        }
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

    /// The number of bytes of its `.eh_frame_hdr`.
    #[must_use]
    pub fn hdr_len(&self) -> usize {
        HDR + self.entries.len() * 8
    }

    /// The entries, without the terminator.
    #[must_use]
    pub fn entries(&self) -> &[u8] {
        self.bytes.strip_suffix(&[0; 4]).unwrap_or_default()
    }

    /// The addresses to write: their offset in the section, and their value.
    #[must_use]
    pub fn pointers(&self) -> &[(usize, Vaddr)] {
        &self.pointers
    }

    /// The bytes of the section at an address.
    ///
    /// # Errors
    ///
    /// An address in it is too far away.
    pub fn bytes_at(&self, section: Vaddr) -> Result<Vec<u8>, WriteError> {
        let mut bytes = self.bytes.clone();
        for (place, address) in &self.pointers {
            let from = section.offset(*place as u64);
            let distance = self.distance(from, *address, section)?;
            if let Some(slot) = bytes.get_mut(*place..*place + 4) {
                slot.copy_from_slice(&distance);
            }
        }
        Ok(bytes)
    }

    /// `.eh_frame_hdr` at an address, for the section at another (Linux Standard Base, "Exception
    /// Frame Header").
    ///
    /// # Errors
    ///
    /// An address in it is too far away.
    pub fn hdr_at(&self, hdr: Vaddr, section: Vaddr) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::from([
            1,
            PointerEncoding::PCREL_SDATA4.0,
            PointerEncoding::UDATA4.0,
            PointerEncoding::DATAREL_SDATA4.0,
        ]);
        bytes.extend(self.distance(hdr.offset(4), section, hdr)?);
        let count = u32::try_from(self.entries.len()).map_err(|_| WriteError::TooLarge)?;
        bytes.extend(self.word(count));
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        for (start, place) in entries {
            bytes.extend(self.distance(hdr, start, hdr)?);
            bytes.extend(self.distance(hdr, section.offset(place as u64), hdr)?);
        }
        Ok(bytes)
    }

    fn put_group(
        &mut self,
        table: &Table,
        group: CieGroup,
        writer: &InstructionWriter<'_>,
        fdes: &[&Fde],
    ) -> Result<(), WriteError> {
        let unit = if writer.has(SizeOptimization::Padding) {
            4
        } else {
            word_bytes(self.abi)
        };
        let cie = self.bytes.len();
        self.put_cie(group, writer, unit)?;
        for fde in fdes {
            let start = self.bytes.len();
            self.entries.push((fde.start, start));
            self.put_word(0); // the length
            let to_cie = u32::try_from(start + 4 - cie).map_err(|_| WriteError::TooLarge)?;
            self.put_word(to_cie);
            self.put_pointer(fde.start);
            let length =
                u32::try_from(fde.end.0 - fde.start.0).map_err(|_| WriteError::TooLarge)?;
            self.put_word(length);
            match fde.lsda.filter(|_| group.has_lsda) {
                Some(lsda) => {
                    self.bytes.push(4);
                    self.put_pointer(lsda);
                }
                None => self.bytes.push(0),
            }
            writer.put_rows(table, fde, &mut self.bytes)?;
            close(&mut self.bytes, start, self.abi, unit)?;
        }
        Ok(())
    }

    fn put_cie(
        &mut self,
        group: CieGroup,
        writer: &InstructionWriter<'_>,
        unit: usize,
    ) -> Result<(), WriteError> {
        let start = self.bytes.len();
        self.put_word(0); // the length
        self.put_word(0); // a CIE
        self.bytes.push(1); // the version
        let letters = [
            (b'z', true),
            (b'P', group.personality.is_some()),
            (b'L', group.has_lsda),
            (b'R', true),
            (b'S', group.signal_frame),
        ];
        let letters = letters.iter().filter(|(_, there)| *there);
        self.bytes.extend(letters.map(|(letter, _)| *letter));
        self.bytes.push(0);
        put_unsigned(&mut self.bytes, CODE_ALIGNMENT);
        put_signed(&mut self.bytes, writer.data_alignment);
        let Register(column) = group.return_address;
        self.bytes.push(u8::try_from(column).unwrap_or(u8::MAX));
        let data = 1 + 5 * u64::from(group.personality.is_some()) + u64::from(group.has_lsda);
        put_unsigned(&mut self.bytes, data);
        if let Some(personality) = group.personality {
            let (address, encoding) = match personality {
                Pointer::Direct(address) => (address, PointerEncoding::PCREL_SDATA4.0),
                Pointer::Indirect(address) => (address, PointerEncoding::PCREL_SDATA4.0 | INDIRECT),
            };
            self.bytes.push(encoding);
            self.put_pointer(address);
        }
        if group.has_lsda {
            self.bytes.push(PointerEncoding::PCREL_SDATA4.0);
        }
        self.bytes.push(PointerEncoding::PCREL_SDATA4.0);
        writer.put_initial(&mut self.bytes);
        close(&mut self.bytes, start, self.abi, unit)
    }

    fn put_pointer(&mut self, address: Vaddr) {
        self.pointers.push((self.bytes.len(), address));
        self.put_word(0);
    }

    fn put_word(&mut self, word: u32) {
        let bytes = self.word(word);
        self.bytes.extend(bytes);
    }

    fn word(&self, word: u32) -> [u8; 4] {
        self::word(word, self.abi.endian)
    }

    fn distance(&self, from: Vaddr, to: Vaddr, section: Vaddr) -> Result<[u8; 4], WriteError> {
        let distance = i32::try_from(to.0.wrapping_sub(from.0).cast_signed());
        let distance = distance.map_err(|_| WriteError::Far {
            address: to,
            section,
        })?;
        Ok(self.word(distance.cast_unsigned()))
    }
}

pub(crate) fn word_bytes(abi: Abi) -> usize {
    usize::from(abi.arch.spec().address_size.bytes())
}

/// Pads the last entry to a multiple of `align`, and writes its length.
pub(crate) fn close(
    bytes: &mut Vec<u8>,
    start: usize,
    abi: Abi,
    unit: usize,
) -> Result<(), WriteError> {
    /// `DW_CFA_nop`.
    const NOP: u8 = 0;
    let end = bytes.len().next_multiple_of(unit);
    bytes.resize(end, NOP);
    let length = u32::try_from(end - start - 4).map_err(|_| WriteError::TooLarge)?;
    if let Some(slot) = bytes.get_mut(start..start + 4) {
        slot.copy_from_slice(&word(length, abi.endian));
    }
    Ok(())
}

/// Size of an `.eh_frame_hdr` before its entries, in bytes.
const HDR: usize = 12;

const CODE_ALIGNMENT: u64 = 1;

/// The common properties of a CIE's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CieGroup {
    return_address: Register,
    signal_frame: bool,
    personality: Option<Pointer>,
    has_lsda: bool,
}

impl CieGroup {
    fn new(table: &Table, fde: &Fde) -> CieGroup {
        let first = table.rows(fde).next();
        let row = first.and_then(|first| table.row(first.row));
        CieGroup {
            return_address: row.map_or(table.abi().arch.spec().return_address, |row| {
                row.return_address
            }),
            signal_frame: row.is_some_and(|row| row.signal_frame),
            personality: fde.personality,
            has_lsda: fde.lsda.is_some(),
        }
    }
}

/// The CIEs of a group, and the entries of each.
fn shared<'t, 'f>(
    table: &'t Table,
    fdes: &[&'f Fde],
    measures: &'t [SizeOptimization],
) -> Result<Vec<(InstructionWriter<'t>, Vec<&'f Fde>)>, WriteError> {
    let mut shared: Vec<(InstructionWriter<'_>, Vec<&Fde>)> = Vec::new();
    for (first, mut fdes) in group_by_first_row(table, fdes) {
        let is_full = shared.len() >= MAX_CIES || !measures.contains(&SizeOptimization::Beginnings);
        let there = shared.iter().enumerate();
        let there = there.filter_map(|(place, (writer, _))| {
            let bytes = writer.bytes_of(table, &fdes).ok()?;
            Some((bytes, place))
        });
        let place = match there.min() {
            Some((bytes, place)) if is_full || bytes <= CIE => place,
            best => {
                let (own_bytes, own) = own(table, first, &fdes, measures)?;
                match best {
                    Some((bytes, place)) if bytes <= own_bytes + CIE => place,
                    _ => {
                        shared.push((own, Vec::new()));
                        shared.len() - 1
                    }
                }
            }
        };
        if let Some((_, its)) = shared.get_mut(place) {
            its.append(&mut fdes);
        }
    }
    Ok(shared)
}

/// A CIE for entries with the same first row, and the total size. The CIE makes this row, unless a
/// register has a rule in this row and none in a later one: no instruction removes a rule.
fn own<'t>(
    table: &'t Table,
    first: RowId,
    fdes: &[&Fde],
    measures: &'t [SizeOptimization],
) -> Result<(usize, InstructionWriter<'t>), WriteError> {
    let row = table.row(first);
    let of = |row| {
        let writer = InstructionWriter::new(table.abi(), row, measures);
        writer.bytes_of(table, fdes).map(|bytes| (bytes, writer))
    };
    of(row.as_ref()).or_else(|error| of(None).map_err(|_| error))
}

/// The approximate size of a CIE without its instructions, in bytes.
const CIE: usize = 24;

/// The maximum number of CIEs of a group: each of them is tried for all entries.
const MAX_CIES: usize = 32;

/// The entries by their first row, the most frequent row first.
fn group_by_first_row<'f>(table: &Table, fdes: &[&'f Fde]) -> Vec<(RowId, Vec<&'f Fde>)> {
    let mut by_row: BTreeMap<RowId, Vec<&Fde>> = BTreeMap::new();
    for fde in fdes {
        let first = table
            .rows(fde)
            .next()
            .map_or(RowId(u32::MAX), |start| start.row);
        by_row.entry(first).or_default().push(fde);
    }
    let mut all: Vec<_> = by_row.into_iter().collect();
    all.sort_by_key(|(_, fdes)| Reverse(fdes.len()));
    all
}

/// Writes the instructions of entries that share a CIE (DWARF 5 §6.4.2).
pub(crate) struct InstructionWriter<'r> {
    pub(crate) data_alignment: i64,
    /// The CIE's row.
    pub(crate) initial: Row<'r>,
    pub(crate) optimizations: &'r [SizeOptimization],
}

impl<'r> InstructionWriter<'r> {
    fn new(
        abi: Abi,
        initial: Option<&Row<'r>>,
        measures: &'r [SizeOptimization],
    ) -> InstructionWriter<'r> {
        let column = abi.arch.spec().return_address;
        let first = initial.copied().unwrap_or(Row::new(column));
        let mut instructions = InstructionWriter {
            data_alignment: -i64::from(abi.arch.spec().address_size.bytes()),
            initial: Row::new(first.return_address),
            optimizations: measures,
        };
        // The entries report an unrepresentable rule.
        let mut bytes = Vec::new();
        if instructions
            .put_change(&instructions.initial, &first, &mut bytes)
            .is_ok()
        {
            instructions.initial = first;
        }
        instructions
    }

    fn put_initial(&self, into: &mut Vec<u8>) {
        let nothing = Row::new(self.initial.return_address);
        let fresh = InstructionWriter {
            data_alignment: self.data_alignment,
            initial: nothing,
            optimizations: self.optimizations,
        };
        // An earlier check found that it can be represented.
        let _ = fresh.put_change(&nothing, &self.initial, into);
    }

    fn has(&self, optimization: SizeOptimization) -> bool {
        self.optimizations.contains(&optimization)
    }

    /// The size of the entries' instructions, in bytes.
    fn bytes_of(&self, table: &Table, fdes: &[&Fde]) -> Result<usize, WriteError> {
        let mut bytes = Vec::new();
        let put = fdes
            .iter()
            .try_for_each(|fde| self.put_rows(table, fde, &mut bytes));
        put.map(|()| bytes.len())
    }

    pub(crate) fn put_rows(
        &self,
        table: &Table,
        fde: &Fde,
        into: &mut Vec<u8>,
    ) -> Result<(), WriteError> {
        let changes = self.changes(table, fde)?;
        let states = if self.has(SizeOptimization::States) {
            remember::states(&changes)
        } else {
            vec![StateMarks::default(); changes.len()]
        };
        let mut at = fde.start;
        for (change, states) in changes.iter().zip(states) {
            put_advance(change.at.0 - at.0, into, table.abi().endian)?;
            at = change.at;
            if states.is_restored {
                into.push(opcode::RESTORE_STATE);
            } else {
                into.extend(&change.bytes);
            }
            if states.is_remembered {
                into.push(opcode::REMEMBER_STATE);
            }
        }
        Ok(())
    }

    /// The changes from row to row of an entry.
    fn changes(&self, table: &Table, fde: &Fde) -> Result<Vec<RowChange>, WriteError> {
        let mut changes: Vec<RowChange> = Vec::new();
        let mut before = self.initial;
        for start in table.rows(fde) {
            let is_repeated = changes.last().is_some_and(|last| last.row == start.row);
            if is_repeated && self.has(SizeOptimization::Repeats) {
                continue;
            }
            let Some(row) = table.row(start.row) else {
                continue;
            };
            let (at, mut bytes) = (start.start, Vec::new());
            let put = self.put_change(&before, &row, &mut bytes);
            put.map_err(|what| WriteError::Row { at, what })?;
            changes.push(RowChange {
                at,
                row: start.row,
                bytes,
                is_restorable: (before.args_size, before.ra_state) == (row.args_size, row.ra_state),
            });
            before = row;
        }
        Ok(changes)
    }

    /// Writes the change from one row to the next.
    fn put_change(
        &self,
        before: &Row<'_>,
        after: &Row<'_>,
        into: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        match (before.ra_state, after.ra_state) {
            (a, b) if a == b => {}
            (RaState::Plain, RaState::Signed) | (RaState::Signed, RaState::Plain) => {
                into.push(opcode::AARCH64_NEGATE_RA_STATE);
            }
            _ => return Err("how the return address is signed"),
        }
        if before.cfa != after.cfa {
            self.put_cfa(before.cfa, after.cfa, into)?;
        }
        let gone = before
            .rules()
            .filter(|(register, _)| after.rule(*register).is_none());
        for (register, _) in gone {
            match self.initial.rule(register) {
                None => put_restore(register, into),
                Some(_) => return Err("that a register has no rule any more"),
            }
        }
        for (register, rule) in after.rules() {
            if before.rule(register) == Some(rule) {
                continue;
            }
            if self.initial.rule(register) == Some(rule) {
                put_restore(register, into);
            } else {
                self.put_rule(register, rule, into)?;
            }
        }
        if before.args_size != after.args_size {
            into.push(opcode::GNU_ARGS_SIZE);
            put_unsigned(into, after.args_size);
        }
        Ok(())
    }

    fn put_cfa(
        &self,
        before: CfaRule<'_>,
        after: CfaRule<'_>,
        into: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let (register, offset) = match after {
            CfaRule::Undefined => return Err("that there is no CFA any more"),
            CfaRule::Expression(expression) => {
                into.push(opcode::DEF_CFA_EXPRESSION);
                put_expression(expression, into);
                return Ok(());
            }
            CfaRule::RegisterOffset { register, offset } => (register, offset),
        };
        let (is_same_register, is_same_offset) = match before {
            CfaRule::RegisterOffset {
                register: r,
                offset: o,
            } => (r == register, o == offset),
            _ => (false, false),
        };
        let words = self.factored(offset);
        let in_words = words.is_ok_and(|words| is_shorter(words, offset));
        match u64::try_from(offset) {
            _ if is_same_offset => {
                into.push(opcode::DEF_CFA_REGISTER);
                put_unsigned(into, register.0.into());
            }
            Ok(offset) if !(in_words && self.has(SizeOptimization::Words)) => {
                if is_same_register {
                    into.push(opcode::DEF_CFA_OFFSET);
                } else {
                    into.push(opcode::DEF_CFA);
                    put_unsigned(into, register.0.into());
                }
                put_unsigned(into, offset);
            }
            _ => {
                if is_same_register {
                    into.push(opcode::DEF_CFA_OFFSET_SF);
                } else {
                    into.push(opcode::DEF_CFA_SF);
                    put_unsigned(into, register.0.into());
                }
                put_signed(into, words?);
            }
        }
        Ok(())
    }

    fn put_rule(
        &self,
        Register(number): Register,
        rule: RegisterRule<'_>,
        into: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let mut put = |opcode: u8| {
            into.push(opcode);
            put_unsigned(into, number.into());
        };
        match rule {
            RegisterRule::Undefined => put(opcode::UNDEFINED),
            RegisterRule::SameValue => put(opcode::SAME_VALUE),
            RegisterRule::Register(Register(other)) => {
                put(opcode::REGISTER);
                put_unsigned(into, other.into());
            }
            RegisterRule::Expression(expression) => {
                put(opcode::EXPRESSION);
                put_expression(expression, into);
            }
            RegisterRule::ValExpression(expression) => {
                put(opcode::VAL_EXPRESSION);
                put_expression(expression, into);
            }
            RegisterRule::ValOffset(offset) => {
                let factored = self.factored(offset)?;
                put(opcode::VAL_OFFSET_SF);
                put_signed(into, factored);
            }
            RegisterRule::Offset(offset) => {
                let factored = self.factored(offset)?;
                match (u64::try_from(factored), short(number)) {
                    (Ok(factored), Some(low)) => {
                        into.push(opcode::OFFSET | low);
                        put_unsigned(into, factored);
                    }
                    (Ok(factored), None) => {
                        put(opcode::OFFSET_EXTENDED);
                        put_unsigned(into, factored);
                    }
                    (Err(_), _) => {
                        put(opcode::OFFSET_EXTENDED_SF);
                        put_signed(into, factored);
                    }
                }
            }
        }
        Ok(())
    }

    /// An offset in units of the data alignment.
    fn factored(&self, offset: i64) -> Result<i64, &'static str> {
        match offset % self.data_alignment {
            0 => Ok(offset / self.data_alignment),
            _ => Err("an offset that is not a multiple of a word"),
        }
    }
}

/// Whether a signed number takes fewer bytes than an unfactored offset.
fn is_shorter(words: i64, offset: i64) -> bool {
    let (mut signed, mut unsigned) = (Vec::new(), Vec::new());
    put_signed(&mut signed, words);
    put_unsigned(&mut unsigned, offset.unsigned_abs());
    signed.len() < unsigned.len()
}

/// A register that fits into the opcode.
fn short(number: u16) -> Option<u8> {
    u8::try_from(number).ok().filter(|low| *low <= 0x3f)
}

fn put_restore(Register(number): Register, into: &mut Vec<u8>) {
    match short(number) {
        Some(low) => into.push(opcode::RESTORE | low),
        None => {
            into.push(opcode::RESTORE_EXTENDED);
            put_unsigned(into, number.into());
        }
    }
}

fn put_expression(Expression(bytes): Expression<'_>, into: &mut Vec<u8>) {
    put_unsigned(into, bytes.len() as u64);
    into.extend(bytes);
}

fn put_advance(bytes: u64, into: &mut Vec<u8>, endian: Endian) -> Result<(), WriteError> {
    match (u8::try_from(bytes), u16::try_from(bytes)) {
        (Ok(0), _) => {}
        (Ok(delta @ 1..=0x3f), _) => into.push(opcode::ADVANCE_LOC | delta),
        (Ok(delta), _) => into.extend([opcode::ADVANCE_LOC1, delta]),
        (_, Ok(delta)) => {
            into.push(opcode::ADVANCE_LOC2);
            into.extend(match endian {
                Endian::Little => delta.to_le_bytes(),
                Endian::Big => delta.to_be_bytes(),
            });
        }
        _ => {
            into.push(opcode::ADVANCE_LOC4);
            into.extend(word(
                u32::try_from(bytes).map_err(|_| WriteError::TooLarge)?,
                endian,
            ));
        }
    }
    Ok(())
}

pub(crate) fn word(word: u32, endian: Endian) -> [u8; 4] {
    match endian {
        Endian::Little => word.to_le_bytes(),
        Endian::Big => word.to_be_bytes(),
    }
}
