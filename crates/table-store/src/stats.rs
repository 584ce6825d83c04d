//! How much is in a file's unwind table, in each of its forms.

use std::collections::BTreeMap;
use std::fmt;

use unspool_cfi::instruction::Instruction;
use unspool_cfi::{CfiEntry, CfiSection, Cie, Instructions, ParsedFde};
use unspool_compiled_table::{EncodedTable, TablePart};
use unspool_elf::{ElfFile, ModuleError, SectionInfo};
use unspool_native_table::Outline;
use unspool_rows::{CfaRule, RegisterRule, RowId, Table};

use crate::compile::own_key;
use crate::native::native_key;
use crate::source::{SourceError, SourceTable, TableSource, sections};

/// The statistics of one file's unwind table, or the sum of several.
///
/// ```
/// use unspool_elf::ElfFile;
/// use unspool_table_store::{FileStats, TableSource, compile};
///
/// let file = ElfFile::open("/bin/true")?;
/// let compiled = compile(&file, TableSource::Auto)?;
/// let stats = FileStats::from_file(&file, &compiled.source, Some(&compiled.encoded))?;
/// assert!(stats.rows > stats.distinct_rows && stats.table_bytes() > 0);
/// assert_eq!(stats.rows, stats.rows_per_entry.sum);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FileStats {
    /// The path; or what the sum is called.
    pub file: String,
    /// The number of files.
    pub file_count: u64,
    /// The number of CIEs.
    pub cies: u64,
    /// The number of FDEs.
    pub fdes: u64,
    /// The FDEs of each section, by its name.
    pub fdes_by_section: BTreeMap<String, u64>,
    /// FDEs that cover no address.
    pub empty_fdes: u64,
    /// Entries that could not be read, or are in doubt.
    pub bad_entries: u64,
    /// The number of rows.
    pub rows: u64,
    /// Rows with different rules. In a sum, each file's are counted.
    pub distinct_rows: u64,
    /// Rows that the compiled form cannot represent.
    pub unrepresentable_rows: u64,
    /// Bytes of code that an entry covers.
    pub entry_sizes: Distribution,
    /// Rows of an entry.
    pub rows_per_entry: Distribution,
    /// Bytes of code and of `.rodata`.
    pub program_bytes: u64,
    /// Bytes of the sections of the table.
    pub section_bytes: u64,
    /// Bytes of their search table (`.eh_frame_hdr`).
    pub hdr_bytes: u64,
    /// Bytes of the parts of the compiled table.
    pub parts: [(TablePart, u64); 4],
    /// Loaded bytes of the native object, 0 if there is none.
    pub native_bytes: u64,
    /// Bytes of the sections of files that have a native object.
    pub native_section_bytes: u64,
    /// Instructions by their meaning.
    pub instructions: KindCounts,
    /// Instructions by their stored opcode.
    pub opcodes: KindCounts,
    /// Rules of registers, in all rows.
    pub rules: KindCounts,
    /// The same by register.
    pub registers: KindCounts,
    /// Rules of the CFA, in all rows.
    pub cfa_rules: KindCounts,
}

impl FileStats {
    /// Counts what was read of a file, and the compiled table if there is one.
    ///
    /// # Errors
    ///
    /// The file's sections cannot be read.
    pub fn from_file(
        file: &ElfFile,
        source_table: &SourceTable,
        encoded: Option<&EncodedTable>,
    ) -> Result<FileStats, SourceError> {
        let table = &source_table.table;
        let is_program = |s: &SectionInfo<'_>| s.executable || s.name.starts_with(".rodata");
        let part = |part| (part, encoded.map_or(0, |encoded| encoded.part(part) as u64));
        let section_bytes = source_table.sections.iter().map(|origin| origin.size).sum();
        let native_bytes = native_bytes(file, table)?;
        let mut figures = FileStats {
            file: file.path().display().to_string(),
            file_count: 1,
            cies: source_table.counts.cies.into(),
            fdes: source_table.counts.fdes.into(),
            fdes_by_section: source_table
                .sections
                .iter()
                .map(|section| (section.name.clone(), section.entries.len() as u64))
                .collect(),
            empty_fdes: source_table.counts.empty_fdes.into(),
            bad_entries: source_table.problems.len() as u64,
            rows: table.row_count() as u64,
            distinct_rows: table.distinct_rows() as u64,
            unrepresentable_rows: match encoded {
                Some(_) => 0,
                None => table.row_count() as u64,
            },
            entry_sizes: table
                .fdes()
                .iter()
                .map(|fde| fde.end.0 - fde.start.0)
                .collect(),
            rows_per_entry: table
                .fdes()
                .iter()
                .map(|fde| table.rows(fde).len() as u64)
                .collect(),
            program_bytes: file.sections().filter(is_program).map(|s| s.size).sum(),
            section_bytes,
            hdr_bytes: source_table.hdr_size,
            parts: [
                TablePart::Header,
                TablePart::Rows,
                TablePart::Entries,
                TablePart::Calls,
            ]
            .map(part),
            native_bytes: native_bytes.unwrap_or(0),
            native_section_bytes: native_bytes.map_or(0, |_| section_bytes),
            instructions: KindCounts::default(),
            opcodes: KindCounts::default(),
            rules: KindCounts::default(),
            registers: KindCounts::default(),
            cfa_rules: KindCounts::default(),
        };
        figures.count_rules(table);
        match sections(file, TableSource::Auto) {
            Ok(sections) => sections
                .iter()
                .for_each(|(section, _)| figures.count_instructions(section)),
            Err(SourceError::Missing { .. }) => {} // SFrame has no instructions.
            Err(error) => return Err(error),
        }
        Ok(figures)
    }

    /// Bytes of the sections of the table, with their search table.
    #[must_use]
    pub fn source_bytes(&self) -> u64 {
        self.section_bytes + self.hdr_bytes
    }

    /// Bytes of the compiled table.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    fn count_rules(&mut self, table: &Table) {
        let mut times = vec![0_u64; table.distinct_rows()];
        let rows = table.fdes().iter().flat_map(|fde| table.rows(fde));
        for start in rows {
            if let Some(times) = times.get_mut(start.row.0 as usize) {
                *times += 1;
            }
        }
        for (id, times) in (0..).zip(times) {
            let Some(row) = table.row(RowId(id)) else {
                continue;
            };
            self.cfa_rules.add(cfa_kind(&row.cfa), times);
            for (register, rule) in row.rules() {
                self.rules.add(rule_kind(&rule), times);
                let name = table.abi().arch.register_name(register);
                self.registers.add(name.unwrap_or("other"), times);
            }
        }
    }

    fn count_instructions(&mut self, section: &CfiSection<'_>) {
        for (_, entry) in section.entries() {
            let Ok(entry) = entry else { continue };
            // Unreadable entries are counted as bad elsewhere.
            let Some((cie, offset, len)) = instructions_of(section, entry) else {
                continue;
            };
            for (at, instruction) in Instructions::new(section, &cie, offset, len).flatten() {
                self.instructions.add(instruction_kind(&instruction), 1);
                let opcode = usize::try_from(at).ok().and_then(|at| section.data.get(at));
                self.opcodes
                    .add(opcode.map_or("other", |opcode| opcode_name(*opcode)), 1);
            }
        }
    }

    /// Adds another file's statistics.
    pub fn add(&mut self, other: &FileStats) {
        self.file_count += other.file_count;
        self.cies += other.cies;
        self.fdes += other.fdes;
        for (section, fdes) in &other.fdes_by_section {
            *self.fdes_by_section.entry(section.clone()).or_default() += fdes;
        }
        self.empty_fdes += other.empty_fdes;
        self.bad_entries += other.bad_entries;
        self.rows += other.rows;
        self.distinct_rows += other.distinct_rows;
        self.unrepresentable_rows += other.unrepresentable_rows;
        self.entry_sizes.add_all(&other.entry_sizes);
        self.rows_per_entry.add_all(&other.rows_per_entry);
        self.program_bytes += other.program_bytes;
        self.section_bytes += other.section_bytes;
        self.hdr_bytes += other.hdr_bytes;
        for ((_, bytes), (_, more)) in self.parts.iter_mut().zip(other.parts) {
            *bytes += more;
        }
        self.native_bytes += other.native_bytes;
        self.native_section_bytes += other.native_section_bytes;
        self.instructions.add_all(&other.instructions);
        self.opcodes.add_all(&other.opcodes);
        self.rules.add_all(&other.rules);
        self.registers.add_all(&other.registers);
        self.cfa_rules.add_all(&other.cfa_rules);
    }
}

/// The loaded bytes of a table's native object; 0 if it cannot be compiled to one.
fn native_bytes(file: &ElfFile, table: &Table) -> Result<Option<u64>, ModuleError> {
    let Ok(outline) = Outline::from_table(table) else {
        return Ok(None);
    };
    let key = own_key(file);
    let Ok(object) = unspool_native_table::object(&outline, native_key(&key)) else {
        return Ok(None);
    };
    let object = ElfFile::from_bytes(file.path(), object)?;
    let loaded = object.sections().filter(|s| s.address.is_some());
    Ok(Some(loaded.map(|s| s.size).sum()))
}

/// The CIE of an entry's instructions, and their location.
fn instructions_of<'a>(
    section: &CfiSection<'a>,
    entry: CfiEntry<'a>,
) -> Option<(Cie<'a>, u64, usize)> {
    match entry.cie {
        None => {
            let cie = Cie::parse(section, entry).ok()?;
            let place = (cie.instructions_offset, cie.instructions.len());
            Some((cie, place.0, place.1))
        }
        Some(offset) => {
            let cie = Cie::parse_at(section, offset).ok()?;
            let fde = ParsedFde::parse(section, &cie, entry).ok()?;
            Some((cie, fde.instructions_offset, fde.instructions.len()))
        }
    }
}

fn cfa_kind(rule: &CfaRule<'_>) -> &'static str {
    match rule {
        CfaRule::Undefined => "undefined",
        CfaRule::RegisterOffset { .. } => "register+offset",
        CfaRule::Expression(_) => "expression",
    }
}

fn rule_kind(rule: &RegisterRule<'_>) -> &'static str {
    match rule {
        RegisterRule::Undefined => "undefined",
        RegisterRule::SameValue => "same_value",
        RegisterRule::Offset(_) => "offset",
        RegisterRule::ValOffset(_) => "val_offset",
        RegisterRule::Register(_) => "register",
        RegisterRule::Expression(_) => "expression",
        RegisterRule::ValExpression(_) => "val_expression",
    }
}

fn instruction_kind(instruction: &Instruction<'_>) -> &'static str {
    match instruction {
        Instruction::SetLoc(_) => "set_loc",
        Instruction::AdvanceLoc(_) => "advance_loc",
        Instruction::DefCfa(..) => "def_cfa",
        Instruction::DefCfaRegister(_) => "def_cfa_register",
        Instruction::DefCfaOffset(_) => "def_cfa_offset",
        Instruction::DefCfaExpression(_) => "def_cfa_expression",
        Instruction::Undefined(_) => "undefined",
        Instruction::SameValue(_) => "same_value",
        Instruction::Offset(..) => "offset",
        Instruction::ValOffset(..) => "val_offset",
        Instruction::Register(..) => "register",
        Instruction::Expression(..) => "expression",
        Instruction::ValExpression(..) => "val_expression",
        Instruction::Restore(_) => "restore",
        Instruction::RememberState => "remember_state",
        Instruction::RestoreState => "restore_state",
        Instruction::ArgsSize(_) => "GNU_args_size",
        Instruction::NegateRaState => "AARCH64_negate_ra_state",
        Instruction::NegateRaStateWithPc => "AARCH64_negate_ra_state_with_pc",
        Instruction::SetRaState(..) => "AARCH64_set_ra_state",
        Instruction::Nop => "nop",
    }
}

/// The name of an opcode without `DW_CFA_` (DWARF 5 §7.24 and what GNU and Arm add).
fn opcode_name(opcode: u8) -> &'static str {
    match opcode {
        0x40..=0x7f => "advance_loc",
        0x80..=0xbf => "offset",
        0xc0..=0xff => "restore",
        0x00 => "nop",
        0x01 => "set_loc",
        0x02 => "advance_loc1",
        0x03 => "advance_loc2",
        0x04 => "advance_loc4",
        0x05 => "offset_extended",
        0x06 => "restore_extended",
        0x07 => "undefined",
        0x08 => "same_value",
        0x09 => "register",
        0x0a => "remember_state",
        0x0b => "restore_state",
        0x0c => "def_cfa",
        0x0d => "def_cfa_register",
        0x0e => "def_cfa_offset",
        0x0f => "def_cfa_expression",
        0x10 => "expression",
        0x11 => "offset_extended_sf",
        0x12 => "def_cfa_sf",
        0x13 => "def_cfa_offset_sf",
        0x14 => "val_offset",
        0x15 => "val_offset_sf",
        0x16 => "val_expression",
        0x1d => "MIPS_advance_loc8",
        0x2b => "AARCH64_set_ra_state",
        0x2c => "AARCH64_negate_ra_state_with_pc",
        0x2d => "AARCH64_negate_ra_state",
        0x2e => "GNU_args_size",
        0x2f => "GNU_negative_offset_extended",
        _ => "other",
    }
}

/// How often each kind occurs.
#[derive(Debug, Clone, Default)]
pub struct KindCounts(BTreeMap<&'static str, u64>);

impl KindCounts {
    fn add(&mut self, kind: &'static str, times: u64) {
        if times > 0 {
            *self.0.entry(kind).or_default() += times;
        }
    }

    fn add_all(&mut self, other: &KindCounts) {
        other
            .0
            .iter()
            .for_each(|(kind, times)| self.add(kind, *times));
    }

    /// The count of all kinds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// Kinds and counts, the most frequent first.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(kind, count)| (*kind, *count)).collect();
        all.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
        all.into_iter()
    }
}

impl fmt::Display for KindCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "shares have two digits")]
        let share = |count: u64| 100.0 * count as f64 / self.sum().max(1) as f64;
        for (n, (kind, count)) in self.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{kind} {:.2} %", share(count))?;
        }
        Ok(())
    }
}

/// The distribution of a number: how often each value occurs.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    values: BTreeMap<u64, u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl Distribution {
    fn add_all(&mut self, other: &Distribution) {
        for (value, count) in &other.values {
            *self.values.entry(*value).or_default() += count;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The least value that at least this percentage of all values do not exceed.
    #[must_use]
    pub fn quantile(&self, percent: u64) -> u64 {
        let count: u64 = self.values.values().sum();
        let wanted = (count * percent).div_ceil(100);
        let mut seen = 0;
        let reached = self.values.iter().find(|(_, times)| {
            seen += **times;
            seen >= wanted
        });
        reached.map_or(0, |(value, _)| *value)
    }
}

impl FromIterator<u64> for Distribution {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut distribution = Distribution::default();
        for number in numbers {
            *distribution.values.entry(number).or_default() += 1;
            distribution.sum = distribution.sum.saturating_add(number);
        }
        distribution
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| self.quantile(percent));
        write!(f, "median {p50}, 90 % {p90}, 99 % {p99}, greatest {max}")
    }
}
