//! A listing of instructions with declared and actual CFA.

use unspool_code_analysis::{Analyzer, Disassembler};
use unspool_elf::ElfKind;
use unspool_rows::Vaddr;

use crate::declared_row::RuleLocation;
use crate::row_checker::Aspect;
use crate::subject::CheckSubject;
use crate::unit::TableAssumptions;
use crate::wording;

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingLine {
    /// Its address.
    pub address: Vaddr,
    /// The instruction in GNU assembler syntax.
    pub text: String,
    /// The row's CFA before it; empty if there is no row.
    pub declared: String,
    /// The actual CFA; empty if it is unknown or the instruction is unreached.
    pub computed: String,
    /// Whether the CFA is known to be elsewhere than declared; `None` if the row's CFA is not
    /// relative to a register.
    pub is_elsewhere: Option<bool>,
}

impl CheckSubject<'_> {
    /// The instructions around an address: this many before it, and this many from it on.
    #[must_use]
    pub(crate) fn listing(
        &self,
        analyzer: &mut Analyzer,
        at: Vaddr,
        before: usize,
        behind: usize,
    ) -> Vec<ListingLine> {
        let Some(unit) = self.program().unit_of(at.0) else {
            return Vec::new();
        };
        let rows = self.rows_of(unit);
        let guide = TableAssumptions::new(self, unit, &rows);
        let analysis = self.analyze(analyzer, unit, &guide);
        let code = analysis.code();
        let Some(middle) = code.ids().find(|id| code.range(*id).start >= at.0) else {
            return Vec::new();
        };
        let extent = self.program().index_containing(at.0);
        let is_near = |id: &unspool_code_analysis::InsnId| {
            let address = code.range(*id).start;
            let distance = i64::from(id.0) - i64::from(middle.0);
            let far = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            -far(before) <= distance
                && distance < far(behind)
                && self.program().index_containing(address) == extent
        };
        let near: Vec<_> = code.ids().filter(is_near).collect();
        let mut disassembler = Disassembler::new(self.file().abi());
        let mut declared_locations = Vec::with_capacity(near.len());
        let mut lines: Vec<ListingLine> = near
            .iter()
            .map(|id| {
                let address = code.range(*id).start;
                let behind = rows.partition_point(|row| row.start.0 <= address);
                let row = behind.checked_sub(1).and_then(|place| rows.get(place));
                let declared = row.and_then(|row| self.row_checker.declared(row.row));
                let location = declared.map_or(RuleLocation::Undefined, |declared| declared.cfa);
                declared_locations.push(location);
                ListingLine {
                    address: Vaddr(address),
                    text: self.instruction_text(disassembler.as_mut(), code.range(*id)),
                    declared: row
                        .map_or_else(String::new, |row| self.rule_text(row.row, Aspect::Cfa)),
                    computed: String::new(),
                    is_elsewhere: matches!(location, RuleLocation::Register(..)).then_some(false),
                }
            })
            .collect();
        analysis.visit(|id, state| {
            let Some(place) = near.iter().position(|near| *near == id) else {
                return;
            };
            let location = declared_locations
                .get(place)
                .copied()
                .unwrap_or(RuleLocation::Undefined);
            let truth = self.row_checker.actual_cfa(location, state);
            if let (Some(line), Some((register, offset))) = (lines.get_mut(place), truth) {
                let truth = RuleLocation::Register(register, offset);
                line.computed = wording::location_text(truth, Aspect::Cfa, self.table().abi());
                line.is_elsewhere = line.is_elsewhere.map(|_| truth != location);
            }
        });
        lines
    }

    /// The section of code at an address and the distance from its start, in an object file with
    /// several: addresses of its layout mean nothing to a reader.
    pub(crate) fn code_section(&self, at: Vaddr) -> Option<(String, u64)> {
        let is_object = self.file().kind() == ElfKind::Relocatable;
        let has_several = is_object && self.file().executable_ranges().len() > 1;
        let (name, start) = self.file().section_of(at).filter(|_| has_several)?;
        Some((name.into_owned(), at.0.saturating_sub(start.0)))
    }

    /// The text of an instruction. A callee outside an object file has no address yet, but a name.
    fn instruction_text(
        &self,
        disassembler: Option<&mut Disassembler>,
        range: core::ops::Range<u64>,
    ) -> String {
        let bytes = self
            .file()
            .bytes_at(Vaddr(range.start), range.end - range.start);
        let own_section = self.code_section(Vaddr(range.start));
        let name = |target| {
            if let Some(name) = self.file().undefined_name(Vaddr(target)) {
                return Some(name.into_owned());
            }
            let (section, offset) = self.code_section(Vaddr(target))?;
            let is_own = own_section.as_ref().is_some_and(|(own, _)| *own == section);
            Some(if is_own {
                format!("{offset:#x}")
            } else {
                format!("{section}+{offset:#x}")
            })
        };
        let instruction = disassembler
            .zip(bytes)
            .and_then(|(disassembler, bytes)| disassembler.disassemble(bytes, range.start, name));
        instruction.map_or_else(String::new, |instruction| instruction.text)
    }
}
