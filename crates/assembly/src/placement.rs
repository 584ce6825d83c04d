//! Directives for the rows of a function, and the lines that they stand behind.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_code_analysis::{CfaLocation, CodeImage, LiftedCode, Lifter, ProvenRules};
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;
use unspool_synthesis::{ElfCodeImage, FunctionExtent};

use crate::conditions::BranchId;
use crate::directives::DirectiveWriter;
use crate::function_rows::{FunctionPlanner, PlannedInsn};
use crate::refusal::RefusalReason;

/// Directives, each with the line before them.
pub(crate) type PlacedDirectives = Vec<(u32, Vec<String>)>;

/// Lines that make instructions at several addresses.
pub(crate) fn repeated(
    file: &ElfFile,
    functions: &[FunctionExtent],
    line_of: impl Fn(Vaddr) -> Option<u32>,
    writer: DirectiveWriter,
) -> HashSet<u32> {
    let mut stretches: HashMap<u32, u32> = HashMap::new();
    for function in functions {
        let Some(mut machine) = Lifter::new(writer.abi) else {
            break;
        };
        let mut code = LiftedCode::default();
        let range = function.extent.start..function.extent.end;
        let image = ElfCodeImage(file);
        machine.lift(
            image.bytes(range).unwrap_or_default(),
            function.extent.start,
            &mut code,
        );
        let mut last = None;
        for id in code.ids() {
            let line = line_of(Vaddr(code.range(id).start));
            if let Some(line) = line.filter(|_| line != last) {
                *stretches.entry(line).or_default() += 1;
            }
            last = line;
        }
    }
    let repeated = stretches.into_iter().filter(|(_, count)| *count > 1);
    repeated.map(|(line, _)| line).collect()
}

impl<L: Fn(Vaddr) -> Option<u32>> FunctionPlanner<'_, L> {
    /// The directives of a function, by the line before them.
    pub(crate) fn directives(
        &self,
        name: &str,
        insns: &[PlannedInsn],
        repeated: &HashSet<u32>,
    ) -> Result<PlacedDirectives, (u32, RefusalReason)> {
        let (Some(first), Some(last)) = (insns.first(), insns.last()) else {
            return Ok(Vec::new());
        };
        check(first.line, repeated)?;
        let is_label = |line| self.source.has_label(line, name);
        let is_size = |line| {
            let text = self.source.directive(line);
            let size = text.strip_prefix(".size").map(str::trim_start);
            size.is_some_and(|size| size.split(',').next().map(str::trim) == Some(name))
        };
        let entry = self
            .source
            .layout()
            .entry(first.line, last.line, is_label, is_size);
        let (start, end) = entry.ok_or_else(|| self.conditional(first.line))?;
        let mut starts = vec![".cfi_startproc".to_owned()];
        let at_entry = ProvenRules::function_entry(self.writer.abi_info);
        starts.extend(self.writer.directives_between(&at_entry, &first.rules));
        let mut all = vec![DirectiveGroup::new(start, starts, first.rules)];
        let remembered = self.remember_ranges(insns, start..end);
        for (place, pair) in insns.windows(2).enumerate() {
            let [before, after] = pair else { continue };
            let place = place + 1;
            let mut directives = Vec::new();
            let begins = remembered.iter().filter(|range| range.start == place);
            directives.extend(begins.map(|_| ".cfi_remember_state".to_owned()));
            let is_restored = remembered.iter().any(|range| range.end == place);
            if is_restored {
                directives.push(".cfi_restore_state".to_owned());
            } else {
                directives.extend(self.writer.directives_between(&before.rules, &after.rules));
            }
            if directives.is_empty() {
                continue;
            }
            let rest = insns.get(place..).unwrap_or_default();
            let is_same_line = before.line == after.line;
            if is_same_line && !self.is_padding_to_line_end(rest, before.line) {
                return Err((before.line, RefusalReason::SeveralInsnsOnLine));
            }
            check(before.line, repeated)?;
            let behind = if before.falls_through || is_restored {
                before.line
            } else {
                self.insertion_point(before.line, after.line)?
            };
            all.push(DirectiveGroup {
                is_restated: !before.falls_through && !is_restored,
                ..DirectiveGroup::new(behind, directives, after.rules)
            });
        }
        check(last.line, repeated)?;
        self.check_conditions(&mut all, start..last.line)?;
        all.push(DirectiveGroup::new(
            end,
            vec![".cfi_endproc".to_owned()],
            last.rules,
        ));
        let all = all.into_iter();
        Ok(all
            .map(|placed| (placed.after_line, placed.texts))
            .collect())
    }

    fn conditional(&self, line: u32) -> (u32, RefusalReason) {
        let layout = self.source.layout();
        let own = layout.branch(layout.branch_after(line));
        let inside = own.map(|branch| branch.condition);
        // A function outside of a condition contains one, or is cut off by one.
        let mut below = layout.branches().map(|(_, branch)| branch.condition);
        let condition = inside.filter(|condition| *condition > 0);
        let condition = condition.or_else(|| below.find(|condition| *condition > line));
        (
            line,
            RefusalReason::ConditionalAssembly(condition.unwrap_or(line)),
        )
    }

    /// The line behind which a row is restated that does not come from the instruction before.
    fn insertion_point(&self, before: u32, after: u32) -> Result<u32, (u32, RefusalReason)> {
        let layout = self.source.layout();
        let place = if layout.branch_after(before) == layout.branch_after(after) {
            Some(before)
        } else {
            layout.first_insertion_point(before, after, layout.branch_after(after))
        };
        place.ok_or_else(|| self.conditional(after))
    }

    /// Ranges with a remembered and restored row.
    fn remember_ranges(&self, insns: &[PlannedInsn], entry: Range<u32>) -> Vec<Range<usize>> {
        let mut branches = self.source.layout().branches();
        // A remembered row is right whatever is excluded before.
        let least = if branches.any(|(_, branch)| entry.contains(&branch.condition)) {
            1
        } else {
            2
        };
        let line = |place: usize| insns.get(place).map_or(0, |insn| insn.line);
        remember_ranges(insns, self.writer, least, |range| {
            let before = |place: usize| {
                self.source
                    .layout()
                    .branch_after(line(place.saturating_sub(1)))
            };
            before(range.start) == before(range.end)
        })
    }

    /// Checks that directives are right if any branch inside a function is excluded. Directives
    /// relative to the CFA are rewritten to achieve that.
    fn check_conditions(
        &self,
        all: &mut [DirectiveGroup],
        entry: Range<u32>,
    ) -> Result<(), (u32, RefusalReason)> {
        let layout = self.source.layout();
        let frame = layout.branch_after(entry.start);
        let own = layout
            .branches()
            .filter(|(id, branch)| // The last branch's effects end with it.
            entry.contains(&branch.start) && entry.contains(&branch.end) && layout.encloses(frame, *id));
        let mut shifts: Vec<CfaShift> = Vec::new();
        for (id, branch) in own {
            let at = |line: u32| all.iter().rfind(|placed| placed.after_line < line);
            let (Some(before), Some(after)) = (at(branch.start), at(branch.end)) else {
                continue;
            };
            if before.rules == after.rules {
                continue;
            }
            let refusal = (
                after.after_line,
                RefusalReason::ConditionalAssembly(branch.condition),
            );
            let (CfaLocation::Register(old, from), CfaLocation::Register(new, to)) =
                (before.rules.cfa, after.rules.cfa)
            else {
                return Err(refusal);
            };
            if old != new || layout.has_alternative(id) {
                return Err(refusal);
            }
            shifts.push(CfaShift {
                branch: id,
                parent: branch.parent,
                condition: branch.condition,
                end: branch.end,
                bytes: to - from,
            });
        }
        for placed in all {
            let here = layout.branch_after(placed.after_line);
            let before = |shift: &&CfaShift| shift.end <= placed.after_line;
            if let Some(shift) = shifts.iter().find(before).filter(|_| placed.is_restated) {
                return Err((
                    placed.after_line,
                    RefusalReason::ConditionalAssembly(shift.condition),
                ));
            }
            let counted = shifts.iter().filter(|shift| {
                before(shift)
                    && layout.encloses(shift.parent, here)
                    && !layout.encloses(shift.branch, here)
            });
            let counted: Vec<&CfaShift> = counted.collect();
            let bytes: i64 = counted.iter().map(|shift| shift.bytes).sum();
            if let Some(shift) = counted.last().filter(|_| bytes != 0)
                && !placed.make_relative()
            {
                return Err((
                    placed.after_line,
                    RefusalReason::ConditionalAssembly(shift.condition),
                ));
            }
        }
        Ok(())
    }

    /// Whether the assembler made all the rest of a line's instructions to align the next.
    fn is_padding_to_line_end(&self, rest: &[PlannedInsn], line: u32) -> bool {
        let own = rest.iter().take_while(|insn| insn.line == line);
        own.clone().all(|insn| {
            let bytes = self
                .file
                .bytes_at(Vaddr(insn.range.start), insn.range.end - insn.range.start);
            bytes.is_some_and(is_nop)
        })
    }
}

/// Directives at one point.
struct DirectiveGroup {
    /// The line before them.
    after_line: u32,
    texts: Vec<String>,
    /// The row behind them.
    rules: ProvenRules,
    /// Whether they restate a row that control brings from elsewhere.
    is_restated: bool,
}

impl DirectiveGroup {
    fn new(behind: u32, texts: Vec<String>, rules: ProvenRules) -> DirectiveGroup {
        DirectiveGroup {
            after_line: behind,
            texts,
            rules,
            is_restated: false,
        }
    }

    /// Makes rules relative to the CFA's register instead of the CFA. Returns whether that is
    /// possible.
    fn make_relative(&mut self) -> bool {
        let CfaLocation::Register(_, distance) = self.rules.cfa else {
            return false;
        };
        for text in &mut self.texts {
            let Some((name, operands)) = text.split_once(' ') else {
                continue;
            };
            match (name, operands.split_once(", ")) {
                (".cfi_offset", Some((register, offset))) => {
                    let Ok(offset) = offset.parse::<i64>() else {
                        return false;
                    };
                    let offset = offset + distance;
                    *text = format!(".cfi_rel_offset {register}, {offset}");
                }
                (".cfi_def_cfa" | ".cfi_escape" | ".cfi_offset", _) => return false,
                _ => {}
            }
        }
        true
    }
}

/// Effect of a conditional branch on the CFA's distance, in bytes.
struct CfaShift {
    branch: BranchId,
    parent: BranchId,
    condition: u32,
    end: u32,
    bytes: i64,
}

fn check(line: u32, repeated: &HashSet<u32>) -> Result<(), (u32, RefusalReason)> {
    if repeated.contains(&line) {
        Err((line, RefusalReason::RepeatedLine))
    } else {
        Ok(())
    }
}

/// Alignment encodings of assemblers: `nop` with any prefixes and operands, `xchg %ax, %ax`.
fn is_nop(bytes: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x66 | 0x2e);
    let opcode = bytes.iter().position(|byte| !is_prefix(byte));
    let rest = opcode
        .and_then(|opcode| bytes.get(opcode..))
        .unwrap_or_default();
    matches!(rest, [0x90] | [0x0f, 0x1f, ..])
}

/// Ranges of instructions: a row is remembered before the first, and restored at the end.
///
/// This is for control that arrives with an earlier row, with an epilogue in between, if restating
/// the row takes at least this many directives. Two ranges are nested or disjoint.
fn remember_ranges(
    insns: &[PlannedInsn],
    writer: DirectiveWriter,
    least: usize,
    is_possible: impl Fn(&Range<usize>) -> bool,
) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (place, pair) in insns.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let place = place + 1;
        if before.falls_through
            || writer.directives_between(&before.rules, &after.rules).len() < least
        {
            continue;
        }
        let earlier = insns.get(..place).unwrap_or_default();
        let left = earlier.iter().rposition(|insn| insn.rules == after.rules);
        let Some(left) = left else { continue };
        let range = left + 1..place;
        let crosses = |other: &Range<usize>| {
            let is_apart = other.end < range.start || range.end <= other.start;
            let is_inside = range.start < other.start && other.end < range.end;
            !(is_apart || is_inside)
        };
        if !found.iter().any(crosses) && is_possible(&range) {
            found.push(range);
        }
    }
    found
}
