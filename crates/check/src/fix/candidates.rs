//! Edits that may fix a finding.

use std::ops::Range;

use unspool_assembly::{AssemblySource, Edit, LineEdit, correct_directive, name_registers};
use unspool_rows::{Arch, Register};

use super::FixRefusal;
use super::draft::DraftFinding;
use super::fixer::{FixScope, Fixer};
use crate::finding::FindingCode;
use crate::hint::{Hint, i386_register};

impl Fixer<'_> {
    /// Edits that may fix a finding, the likelier first. A directive is on the wrong side of the
    /// instruction, superfluous, wrong, or missing.
    pub(super) fn edits(
        &self,
        source: &AssemblySource,
        finding: &DraftFinding,
        scope: FixScope,
    ) -> Result<Vec<Edit>, FixRefusal> {
        if let Some(refusal) = finding.refusal() {
            return Err(refusal);
        }
        let line = finding.line.ok_or(FixRefusal::NoLine)?;
        if finding.shares_line {
            return Err(FixRefusal::OneLine);
        }
        if source.is_repeated(line) {
            return Err(FixRefusal::Repeated);
        }
        if finding.key.code == FindingCode::EntryTooShort {
            return Ok(extend_entry(source, line));
        }
        let mut edits = Vec::new();
        let places = source.insertion_points_before(line);
        let above = source.gap_before(line).directives;
        let (removable, below) = match scope {
            FixScope::Whole => (above.as_slice(), source.gap_after(line).directives),
            FixScope::Part => (&[][..], Vec::new()),
        };
        if let (Some(Hint::I386Numbering { arch, .. }), FixScope::Whole) = (finding.hint, scope) {
            edits.extend(self.with_i386_registers(source, line, arch));
        }
        let moved = |from: u32, before: u32| {
            let is_alike = source.has_same_conditions(from, before);
            is_alike.then(|| Edit(vec![LineEdit::Move { line: from, before }]))
        };
        let behind = removable.iter().rev();
        edits.extend(behind.filter_map(|directive| moved(*directive, line + 1)));
        let first = places.first().copied().unwrap_or(line);
        edits.extend(below.iter().filter_map(|below| moved(*below, first)));
        let take_out = |line: &u32| Edit(vec![LineEdit::Remove { line: *line }]);
        edits.extend(removable.iter().rev().map(take_out));
        edits.extend(above.iter().rev().filter_map(|line| {
            let replacement = correct_directive(source.directive(*line), finding.fix.as_ref()?)?;
            Some(Edit(vec![LineEdit::Replace {
                line: *line,
                replacement,
            }]))
        }));
        if finding.is_behind_exit {
            edits.extend(remember_state(source, line));
        }
        // After an exit, no earlier instruction leads to the row. The directive must then not
        // depend on a condition.
        let places = places.into_iter();
        let places =
            places.filter(|_| !finding.is_behind_exit || source.has_unconditional_gap(line));
        edits.extend(places.filter_map(|before| {
            let directive = finding.fix.clone()?;
            Some(Edit(vec![LineEdit::Insert { before, directive }]))
        }));
        // An offset from the CFA would be right only if no condition leaves out a line.
        if source.has_conditional_cfa_shift(line) {
            edits.retain(|edit| !edit.is_counted_from_cfa());
        }
        Ok(edits)
    }

    /// The entry around a line, with i386 names in place of register numbers.
    fn with_i386_registers(&self, source: &AssemblySource, line: u32, arch: Arch) -> Option<Edit> {
        let name = |number: u16| {
            let number = Register(number);
            let meant = i386_register(number, arch).unwrap_or(number);
            let name = arch.assembler_name(meant)?;
            Some(self.written(&format!("%{name}")))
        };
        let changes = source.entry_around(line)?.filter_map(|line| {
            let by = name_registers(source.directive(line), name)?;
            Some(LineEdit::Replace {
                line,
                replacement: by,
            })
        });
        Some(Edit(changes.collect()))
    }
}

/// The entries that may be removed and rewritten.
pub(super) fn entries_to_remove(
    source: &AssemblySource,
    finding: &DraftFinding,
) -> Vec<Vec<Range<u32>>> {
    let Some(line) = finding.line else {
        return Vec::new();
    };
    let around = source.entry_around(line);
    let before = source.entry_before(line);
    let behind = source.entry_after(line);
    let sets = match around {
        Some(around) => vec![vec![Some(around.clone())], vec![Some(around), behind]],
        None => vec![
            vec![],
            vec![before.clone()],
            vec![behind.clone()],
            vec![before, behind],
        ],
    };
    let whole = sets.into_iter().filter_map(|set| set.into_iter().collect());
    // Code after an exit that does not start like a function is not a function, or its author knows
    // more.
    let begins = |set: &Vec<Range<u32>>| {
        set.first()
            .is_none_or(|entry| source.begins_like_function(entry))
    };
    whole.filter(begins).collect()
}

/// Moves the end of the entry around a line to later lines, one candidate for each.
fn extend_entry(source: &AssemblySource, line: u32) -> Vec<Edit> {
    /// The most lines to try, each of which is a run of the assembler.
    const MAX_LINES: usize = 20;
    let Some(entry) = source.entry_around(line) else {
        return Vec::new();
    };
    let end = entry.end - 1;
    let next = source.entry_after(end);
    let lines = (entry.end..next.map_or(u32::MAX, |next| next.start)).take(MAX_LINES);
    let lines = lines.take_while(|line| source.numbered_lines().any(|(number, _)| number == *line));
    let longer = |behind: u32| {
        Edit(vec![LineEdit::Move {
            line: end,
            before: behind + 1,
        }])
    };
    lines.map(longer).collect()
}

/// Saves the rows before an epilogue, and restores them after the exit before a line. There is a
/// candidate for each instruction at which the epilogue may start, the last first.
fn remember_state(source: &AssemblySource, line: u32) -> Vec<Edit> {
    /// The most instructions with directives in an epilogue.
    const MAX_INSTRUCTIONS: usize = 10;
    let mut edits = Vec::new();
    let behind_exit = source.gap_before(line).lines.start;
    let Some(entry) = source.entry_around(line) else {
        return edits;
    };
    let mut here = behind_exit.saturating_sub(1);
    while here > entry.start && edits.len() < MAX_INSTRUCTIONS {
        let gap = source.gap_before(here);
        here = gap.lines.start.saturating_sub(1);
        if gap.directives.is_empty() || here <= entry.start {
            continue;
        }
        let before = source.insertion_points_before(here).last().copied();
        let write = |before: u32, directive: &str| LineEdit::Insert {
            before,
            directive: directive.to_owned(),
        };
        let before = before.unwrap_or(here);
        if !source.has_same_conditions(before, behind_exit) {
            continue;
        }
        edits.push(Edit(vec![
            write(before, ".cfi_remember_state"),
            write(behind_exit, ".cfi_restore_state"),
        ]));
    }
    edits
}
