//! Which directives make the rows of a function, and behind which lines they stand.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_ir::Vaddr;
use unspool_module::ElfFile;
use unspool_recover::{Function, Text};
use unspool_synth::{Code, Image, Machine, Rules};

use crate::directives::Writer;
use crate::follow::{Insn, Work};
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
        insns: &[Insn],
        repeated: &HashSet<u32>,
    ) -> Result<Directives, (u32, Why)> {
        let (Some(first), Some(last)) = (insns.first(), insns.last()) else {
            return Ok(Vec::new());
        };
        let mut all = Directives::new();
        let mut starts = vec![".cfi_startproc".to_owned()];
        let at_entry = Rules::at_entry(self.writer.facts);
        starts.extend(self.writer.change(&at_entry, &first.rules));
        check(first.line, repeated)?;
        all.push((first.line.saturating_sub(1), starts));
        let remembered = remembered(insns, self.writer);
        for (place, pair) in insns.windows(2).enumerate() {
            let [before, after] = pair else { continue };
            let place = place + 1;
            let mut directives = Vec::new();
            let begins = remembered.iter().filter(|range| range.start == place);
            directives.extend(begins.map(|_| ".cfi_remember_state".to_owned()));
            match remembered.iter().any(|range| range.end == place) {
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
            all.push((before.line, directives));
        }
        check(last.line, repeated)?;
        all.push((last.line, vec![".cfi_endproc".to_owned()]));
        Ok(all)
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
/// it takes no more directives than saying the row anew. One stretch is inside another, or outside.
fn remembered(insns: &[Insn], writer: Writer) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (place, pair) in insns.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let place = place + 1;
        if before.goes_on || writer.change(&before.rules, &after.rules).len() < 2 {
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
        if !found.iter().any(crosses) {
            found.push(range);
        }
    }
    found
}
