//! Jumps within a function, as arrows beside its instructions.

use unspool_profile::CodeInstruction;

/// The most arrows beside each other; the longest of more are left out.
const MAX_ARROWS: usize = 6;

/// All jumps to one instruction.
struct Arrow {
    target: usize,
    /// The instructions that jump there, in order.
    sources: Vec<usize>,
    first: usize,
    last: usize,
    /// Its column, from the right.
    column: usize,
}

/// The arrows of a function.
pub(super) struct JumpArrows {
    arrows: Vec<Arrow>,
    columns: usize,
}

impl JumpArrows {
    /// Short arrows are near the instructions, long ones around them.
    pub(super) fn new(instructions: &[CodeInstruction]) -> JumpArrows {
        let mut by_target = std::collections::BTreeMap::new();
        for (source, instruction) in instructions.iter().enumerate() {
            if let Some(target) = instruction.target {
                by_target
                    .entry(target)
                    .or_insert_with(Vec::new)
                    .push(source);
            }
        }
        let mut waiting: Vec<Arrow> = (by_target.into_iter())
            .map(|(target, sources)| {
                let ends = || sources.iter().copied().chain([target]);
                Arrow {
                    target,
                    first: ends().min().unwrap_or(target),
                    last: ends().max().unwrap_or(target),
                    column: 0,
                    sources,
                }
            })
            .collect();
        waiting.sort_by_key(|arrow| (arrow.last - arrow.first, arrow.target));
        let mut arrows: Vec<Arrow> = Vec::new();
        for mut arrow in waiting {
            let is_free = |column: &usize| {
                let mut beside = arrows.iter().filter(|other| other.column == *column);
                beside.all(|other| other.last < arrow.first || arrow.last < other.first)
            };
            if let Some(column) = (0..MAX_ARROWS).find(is_free) {
                arrow.column = column;
                arrows.push(arrow);
            }
        }
        let columns = arrows.iter().map(|arrow| arrow.column + 1).max();
        JumpArrows {
            arrows,
            columns: columns.unwrap_or(0),
        }
    }

    /// The arrows beside an instruction: two characters for each column, and two for their heads.
    pub(super) fn beside(&self, row: usize) -> String {
        let mut cells = vec![
            ' ';
            if self.columns == 0 {
                0
            } else {
                2 * self.columns + 1
            }
        ];
        let mut set = |at: usize, cell: char| {
            if let Some(place) = cells.get_mut(at) {
                *place = cell;
            }
        };
        let mut outermost: Option<(usize, bool)> = None;
        for arrow in self
            .arrows
            .iter()
            .filter(|it| it.first <= row && row <= it.last)
        {
            let at = 2 * (self.columns - 1 - arrow.column);
            let is_end = row == arrow.target || arrow.sources.contains(&row);
            let cell = match (is_end, row == arrow.first, row == arrow.last) {
                (false, ..) => '│',
                (true, true, true) => '↻',
                (true, true, false) => '┌',
                (true, false, true) => '└',
                (true, false, false) => '├',
            };
            set(at, cell);
            if is_end && outermost.is_none_or(|(other, _)| at < other) {
                outermost = Some((at, row == arrow.target));
            }
        }
        let heads = self.arrows.iter().any(|arrow| arrow.target == row);
        if let Some((start, _)) = outermost {
            for at in start + 1..cells.len() {
                let cell = match cells.get(at) {
                    Some(' ') => '─',
                    Some('│' | '├') => '┼',
                    Some('┌') => '┬',
                    Some('└') => '┴',
                    _ => continue,
                };
                if let Some(place) = cells.get_mut(at) {
                    *place = cell;
                }
            }
            if let Some(last) = cells.last_mut().filter(|_| heads) {
                *last = '▸';
            }
        }
        cells.into_iter().collect()
    }
}
