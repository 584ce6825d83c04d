//! Which directives make the rows of a function, and behind which lines they stand.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_ir::Vaddr;
use unspool_module::ElfFile;
use unspool_recover::{Function, Text};
use unspool_synth::{Cfa, Code, Image, Machine, Rules};

use crate::directives::Writer;
use crate::follow::{Insn, Work};
use crate::layout::BranchId;
use crate::refusal::Why;

/// Directives with the line that they stand behind.
pub(crate) type Directives = Vec<(u32, Vec<String>)>;

/// Lines that make instructions in more than one place.
pub(crate) fn repeated(
    file: &ElfFile,
    functions: &[Function],
    line_of: impl Fn(Vaddr) -> Option<u32>,
    writer: Writer,
) -> HashSet<u32> {
    let mut stretches: HashMap<u32, u32> = HashMap::new();
    for function in functions {
        let Some(mut machine) = Machine::of(writer.abi) else {
            break;
        };
        let mut code = Code::default();
        let range = function.extent.start..function.extent.end;
        let image = Text(file);
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

impl<L: Fn(Vaddr) -> Option<u32>> Work<'_, L> {
    /// The directives of a function, by the line that they stand behind.
    pub(crate) fn directives(
        &self,
        name: &str,
        insns: &[Insn],
        repeated: &HashSet<u32>,
    ) -> Result<Directives, (u32, Why)> {
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
        let at_entry = Rules::at_entry(self.writer.facts);
        starts.extend(self.writer.change(&at_entry, &first.rules));
        let mut all = vec![Placed::new(start, starts, first.rules)];
        let remembered = self.remembered(insns, start..end);
        for (place, pair) in insns.windows(2).enumerate() {
            let [before, after] = pair else { continue };
            let place = place + 1;
            let mut directives = Vec::new();
            let begins = remembered.iter().filter(|range| range.start == place);
            directives.extend(begins.map(|_| ".cfi_remember_state".to_owned()));
            let is_restored = remembered.iter().any(|range| range.end == place);
            match is_restored {
                true => directives.push(".cfi_restore_state".to_owned()),
                false => directives.extend(self.writer.change(&before.rules, &after.rules)),
            }
            if directives.is_empty() {
                continue;
            }
            let rest = insns.get(place..).unwrap_or_default();
            let is_same_line = before.line == after.line;
            if is_same_line && !self.is_padding_to_line_end(rest, before.line) {
                return Err((before.line, Why::OneLine));
            }
            check(before.line, repeated)?;
            let behind = match before.goes_on || is_restored {
                true => before.line,
                false => self.place_of(before.line, after.line)?,
            };
            all.push(Placed {
                is_anew: !before.goes_on && !is_restored,
                ..Placed::new(behind, directives, after.rules)
            });
        }
        check(last.line, repeated)?;
        self.check_conditions(&mut all, start..last.line)?;
        all.push(Placed::new(
            end,
            vec![".cfi_endproc".to_owned()],
            last.rules,
        ));
        let all = all.into_iter();
        Ok(all.map(|placed| (placed.behind, placed.texts)).collect())
    }

    fn conditional(&self, line: u32) -> (u32, Why) {
        let layout = self.source.layout();
        let own = layout.branch(layout.behind(line));
        let inside = own.map(|branch| branch.condition);
        // A function that is not in a condition has one within, or is cut off by one.
        let mut below = layout.branches().map(|(_, branch)| branch.condition);
        let condition = inside.filter(|condition| *condition > 0);
        let condition = condition.or_else(|| below.find(|condition| *condition > line));
        (line, Why::Conditional(condition.unwrap_or(line)))
    }

    /// The line behind which a row is said anew that control does not come to from the instruction before.
    fn place_of(&self, before: u32, after: u32) -> Result<u32, (u32, Why)> {
        let layout = self.source.layout();
        let place = match layout.behind(before) == layout.behind(after) {
            true => Some(before),
            false => layout.between(before, after, layout.behind(after)),
        };
        place.ok_or_else(|| self.conditional(after))
    }

    /// Where a row is remembered and restored.
    fn remembered(&self, insns: &[Insn], entry: Range<u32>) -> Vec<Range<usize>> {
        let mut branches = self.source.layout().branches();
        // What is remembered is right whatever was left out before.
        let least = match branches.any(|(_, branch)| entry.contains(&branch.condition)) {
            true => 1,
            false => 2,
        };
        let line = |place: usize| insns.get(place).map_or(0, |insn| insn.line);
        remembered(insns, self.writer, least, |range| {
            let before = |place: usize| self.source.layout().behind(line(place.saturating_sub(1)));
            before(range.start) == before(range.end)
        })
    }

    /// Whether directives are right whatever is left out of the branches of conditions inside a function; those that
    /// count from the CFA are written so that they are.
    fn check_conditions(&self, all: &mut [Placed], entry: Range<u32>) -> Result<(), (u32, Why)> {
        let layout = self.source.layout();
        let frame = layout.behind(entry.start);
        let own = layout
            .branches()
            .filter(|(id, branch)| // What is in the last one is over where that ends.
            entry.contains(&branch.start) && entry.contains(&branch.end) && layout.is_around(frame, *id));
        let mut shifts: Vec<Shift> = Vec::new();
        for (id, branch) in own {
            let at = |line: u32| all.iter().rfind(|placed| placed.behind < line);
            let (Some(before), Some(after)) = (at(branch.start), at(branch.end)) else {
                continue;
            };
            if before.rules == after.rules {
                continue;
            }
            let refusal = (after.behind, Why::Conditional(branch.condition));
            let (Cfa::Register(old, from), Cfa::Register(new, to)) =
                (before.rules.cfa, after.rules.cfa)
            else {
                return Err(refusal);
            };
            if old != new || layout.has_alternative(id) {
                return Err(refusal);
            }
            shifts.push(Shift {
                branch: id,
                parent: branch.parent,
                condition: branch.condition,
                end: branch.end,
                bytes: to - from,
            });
        }
        for placed in all {
            let here = layout.behind(placed.behind);
            let before = |shift: &&Shift| shift.end <= placed.behind;
            if let Some(shift) = shifts.iter().find(before).filter(|_| placed.is_anew) {
                return Err((placed.behind, Why::Conditional(shift.condition)));
            }
            let counted = shifts.iter().filter(|shift| {
                before(shift)
                    && layout.is_around(shift.parent, here)
                    && !layout.is_around(shift.branch, here)
            });
            let counted: Vec<&Shift> = counted.collect();
            let bytes: i64 = counted.iter().map(|shift| shift.bytes).sum();
            if let Some(shift) = counted.last().filter(|_| bytes != 0)
                && !placed.make_relative()
            {
                return Err((placed.behind, Why::Conditional(shift.condition)));
            }
        }
        Ok(())
    }

    /// Whether the assembler has put in all the instructions that follow on a line, to align the next.
    fn is_padding_to_line_end(&self, rest: &[Insn], line: u32) -> bool {
        let own = rest.iter().take_while(|insn| insn.line == line);
        own.clone().all(|insn| {
            let bytes = self
                .file
                .bytes_at(Vaddr(insn.range.start), insn.range.end - insn.range.start);
            bytes.is_some_and(is_nop)
        })
    }
}

/// Directives at a place.
struct Placed {
    /// The line that they stand behind.
    behind: u32,
    texts: Vec<String>,
    /// The row behind them.
    rules: Rules,
    /// Whether they say a row that control brings from elsewhere.
    is_anew: bool,
}

impl Placed {
    fn new(behind: u32, texts: Vec<String>, rules: Rules) -> Placed {
        Placed {
            behind,
            texts,
            rules,
            is_anew: false,
        }
    }

    /// Has nothing be counted from the CFA, but from the register that the CFA is counted from. Whether that can be.
    fn make_relative(&mut self) -> bool {
        let Cfa::Register(_, distance) = self.rules.cfa else {
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

/// What a branch of a condition does to the distance of the CFA, in bytes.
struct Shift {
    branch: BranchId,
    parent: BranchId,
    condition: u32,
    end: u32,
    bytes: i64,
}

fn check(line: u32, repeated: &HashSet<u32>) -> Result<(), (u32, Why)> {
    match repeated.contains(&line) {
        true => Err((line, Why::Repeated)),
        false => Ok(()),
    }
}

/// The encodings that assemblers align with: `nop` with any prefixes and operands, `xchg %ax, %ax`.
fn is_nop(bytes: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x66 | 0x2e);
    let opcode = bytes.iter().position(|byte| !is_prefix(byte));
    let rest = opcode
        .and_then(|opcode| bytes.get(opcode..))
        .unwrap_or_default();
    matches!(rest, [0x90] | [0x0f, 0x1f, ..])
}

/// Where a row is remembered (before the instruction with the number of the start) and restored (the end).
///
/// That is done where control comes from elsewhere with a row that was left behind, for an epilogue in between, and
/// saying the row anew takes so many directives at least. One stretch is inside another, or outside.
fn remembered(
    insns: &[Insn],
    writer: Writer,
    least: usize,
    is_possible: impl Fn(&Range<usize>) -> bool,
) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (place, pair) in insns.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let place = place + 1;
        if before.goes_on || writer.change(&before.rules, &after.rules).len() < least {
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
