//! Assembly source as lines, with directives inserted and removed.

use core::cell::OnceCell;
use core::fmt::{self, Write as _};
use core::ops::Range;
use std::path::Path;

use crate::conditions::{AssembledLines, ConditionLayout, LineVisibility, SourceDialect};

/// A text and its changes.
#[derive(Debug, Clone)]
pub struct AssemblySource {
    lines: Vec<SourceLine>,
    /// The lines of the original text.
    original_lines: Vec<String>,
    ending: &'static str,
    dialect: SourceDialect,
    /// The original lines that made code, if known.
    assembled: Option<AssembledLines>,
    /// The kinds of the lines; computed on demand, and again after a change.
    layout: OnceCell<ConditionLayout>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceLine {
    /// Its number in the original text, counted from 0; `None` if it was inserted.
    original: Option<usize>,
    /// With its line ending.
    text: String,
}

/// The gap between two instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsnGap {
    /// The lines, counted from 1.
    pub lines: Range<u32>,
    /// Those of them that are each one directive about rows.
    pub directives: Vec<u32>,
}

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// Only white space, labels, comments.
    Blank,
    /// Only a directive that changes rows.
    RowDirective,
    /// Another directive that makes no code and stays in its section.
    NoCode,
    /// Begins or ends a conditional branch.
    Condition,
    /// Makes code, begins or ends an entry, leaves the section, or is unknown.
    Boundary,
}

/// Directives that change rows, without `.cfi_`.
const ROW_DIRECTIVES: [&str; 14] = [
    "adjust_cfa_offset",
    "def_cfa",
    "def_cfa_offset",
    "def_cfa_register",
    "escape",
    "offset",
    "register",
    "rel_offset",
    "remember_state",
    "restore",
    "restore_state",
    "same_value",
    "undefined",
    "val_offset",
];

/// Directives that make no code.
const NO_CODE_DIRECTIVES: [&str; 14] = [
    ".align", ".balign", ".p2align", ".globl", ".global", ".local", ".weak", ".hidden", ".type",
    ".size", ".loc", ".file", ".set", ".equ",
];

impl LineKind {
    /// The kind of a line in a text without preprocessor.
    pub(crate) fn classify(line: &str) -> LineKind {
        let code = statement(line);
        let (word, _) = split_word(code);
        let is_one = !code.contains(';');
        let row = word
            .strip_prefix(".cfi_")
            .filter(|name| ROW_DIRECTIVES.contains(name));
        let row = row.filter(|_| !is_outermost(code));
        match word {
            "" => LineKind::Blank,
            _ if row.is_some() && is_one && !line.trim_start().contains(':') => {
                LineKind::RowDirective
            }
            _ if NO_CODE_DIRECTIVES.contains(&word) && is_one => LineKind::NoCode,
            _ => LineKind::Boundary,
        }
    }
}

/// Whether a directive declares that there is no caller. Only the author knows that.
fn is_outermost(directive: &str) -> bool {
    let register = directive.strip_prefix(".cfi_undefined");
    register.is_some_and(|register| {
        matches!(register.trim().trim_start_matches('%'), "rip" | "ra" | "16")
    })
}

/// A line without labels and comments.
pub(crate) fn statement(line: &str) -> &str {
    let mut rest = line.trim();
    loop {
        if rest.starts_with('#') || rest.starts_with("//") || rest.starts_with('*') {
            return "";
        }
        if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment
                .split_once("*/")
                .map_or("", |(_, behind)| behind)
                .trim_start();
            continue;
        }
        let (word, behind) = split_word(rest);
        match word.strip_suffix(':') {
            Some(_) => rest = behind,
            None => break,
        }
    }
    let comment = ["#", "//", "/*"]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min();
    rest.get(..comment.unwrap_or(rest.len()))
        .unwrap_or_default()
        .trim_end()
}

/// The first word of a text, up to a colon or white space, and the rest.
pub(crate) fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_whitespace() || c == ':');
    let end = end.map_or(text.len(), |end| match text.get(end..end + 1) {
        Some(":") => end + 1,
        _ => end,
    });
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

impl AssemblySource {
    /// A text that the assembler reads as it is: `.s`.
    #[must_use]
    pub fn new(text: &str) -> AssemblySource {
        AssemblySource::with_dialect(text, SourceDialect::Plain)
    }

    /// A text that the C preprocessor reads before the assembler: `.S`.
    #[must_use]
    pub fn preprocessed(text: &str) -> AssemblySource {
        AssemblySource::with_dialect(text, SourceDialect::Preprocessed)
    }

    /// Whether a file is assembly source, by its name.
    #[must_use]
    pub fn is_assembly_path(path: &Path) -> bool {
        matches!(extension(path), Some("s" | "S" | "sx" | "asm"))
    }

    /// The text of a file, whose name says whether the C preprocessor reads it.
    #[must_use]
    pub fn for_path(path: &Path, text: &str) -> AssemblySource {
        match extension(path) {
            Some("S" | "sx") => AssemblySource::preprocessed(text),
            _ => AssemblySource::new(text),
        }
    }

    fn with_dialect(text: &str, dialect: SourceDialect) -> AssemblySource {
        let old: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let lines = old.iter().cloned().enumerate();
        AssemblySource {
            lines: lines
                .map(|(number, text)| SourceLine {
                    original: Some(number),
                    text,
                })
                .collect(),
            original_lines: old,
            ending: if text.contains("\r\n") { "\r\n" } else { "\n" },
            dialect,
            assembled: None,
            layout: OnceCell::new(),
        }
    }

    /// Sets the lines, counted from 1, that made code in the current text: conditional branches
    /// without such a line are excluded.
    #[must_use]
    pub fn with_assembled(mut self, lines: impl IntoIterator<Item = u32>) -> AssemblySource {
        let lines = lines.into_iter().filter_map(|line| {
            let place = usize::try_from(line).ok()?.checked_sub(1)?;
            self.lines.get(place)?.original
        });
        self.assembled = Some(lines.collect());
        self.layout.take();
        self
    }

    pub(crate) fn layout(&self) -> &ConditionLayout {
        self.layout.get_or_init(|| self.read_layout())
    }

    fn read_layout(&self) -> ConditionLayout {
        let texts = self.lines.iter().map(|line| line.text.as_str());
        ConditionLayout::parse(texts, self.dialect, |number| {
            let place = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
            let old = place.and_then(|place| self.lines.get(place)?.original);
            let assembled = self.assembled.as_ref();
            assembled
                .zip(old)
                .is_some_and(|(lines, old)| lines.contains(&old))
        })
    }

    /// Whether a label with that name is on a line.
    pub(crate) fn has_label(&self, number: u32, name: &str) -> bool {
        let mut rest = self.line(number).unwrap_or_default().trim_start();
        loop {
            let (word, behind) = split_word(rest);
            match word.strip_suffix(':') {
                Some(label) if label.trim_matches('"') == name => return true,
                Some(_) => rest = behind,
                None => return false,
            }
        }
    }

    /// The line of the first condition within the entry around a line.
    #[must_use]
    pub fn condition_around(&self, number: u32) -> Option<u32> {
        let layout = self.layout();
        let entry = self.entry_around(number)?;
        let mut branches = layout.branches().map(|(_, branch)| branch.condition);
        branches.find(|condition| entry.contains(condition))
    }

    /// Whether insertions before two lines are assembled under the same conditions.
    #[must_use]
    pub fn has_same_conditions(&self, one: u32, other: u32) -> bool {
        let layout = self.layout();
        let before = |line: u32| layout.branch_after(line.saturating_sub(1));
        before(one) == before(other)
    }

    /// Whether conditional branches above a line, in the same entry, change the CFA's distance. If
    /// they are excluded, rules relative to the CFA mean other locations.
    #[must_use]
    pub fn has_conditional_cfa_shift(&self, number: u32) -> bool {
        let layout = self.layout();
        let here = layout.branch_after(number.saturating_sub(1));
        let Some(entry) = self.entry_around(number) else {
            return false;
        };
        let shift = |line: u32| {
            let inner = layout.branch_after(line);
            let is_apart = !layout.encloses(inner, here);
            let adjusted = self
                .directive(line)
                .strip_prefix(".cfi_adjust_cfa_offset")
                .filter(|_| is_apart);
            adjusted.and_then(|bytes| bytes.trim().parse::<i64>().ok())
        };
        (entry.start..number).filter_map(shift).sum::<i64>() != 0
    }

    /// Whether an insertion before a line is assembled exactly where the line is, together with the
    /// code line before it.
    #[must_use]
    pub fn has_unconditional_gap(&self, number: u32) -> bool {
        let layout = self.layout();
        let start = self.gap_in(layout, number).start;
        layout.branch_after(number) == layout.branch_after(start.saturating_sub(1))
    }

    /// Whether there are changes.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.changes().iter().any(|(mark, _)| *mark != ' ')
    }

    /// All original and current lines: a space before common ones, `-` before removed, `+` before
    /// inserted ones.
    fn changes(&self) -> Vec<(char, &str)> {
        let mut changes = Vec::new();
        let mut added = Vec::new();
        let mut next = 0;
        let gone = |range: Range<usize>| {
            let gone = self.original_lines.get(range).unwrap_or_default();
            gone.iter().map(|text| ('-', text.as_str()))
        };
        for line in &self.lines {
            let old = line
                .original
                .filter(|number| self.original_lines.get(*number) == Some(&line.text));
            match old {
                Some(number) => {
                    changes.extend(gone(next..number));
                    changes.append(&mut added);
                    changes.push((' ', line.text.as_str()));
                    next = number + 1;
                }
                None => added.push(('+', line.text.as_str())),
            }
        }
        changes.extend(gone(next..self.original_lines.len()));
        changes.append(&mut added);
        changes
    }

    fn line(&self, number: u32) -> Option<&str> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        Some(self.lines.get(place)?.text.as_str())
    }

    /// The lines, counted from 1.
    pub fn numbered_lines(&self) -> impl Iterator<Item = (u32, &str)> {
        (1..).zip(self.lines.iter().map(|line| line.text.as_str()))
    }

    /// Whether a line has only white space, labels, comments.
    #[must_use]
    pub fn is_blank(&self, number: u32) -> bool {
        self.layout().kind(number) == Some(LineKind::Blank)
    }

    /// The directive on a line, without comments: `.cfi_offset %rbx, -16`.
    #[must_use]
    pub fn directive(&self, number: u32) -> &str {
        self.line(number).map_or("", statement)
    }

    /// The original number of a line; `None` if it was inserted.
    #[must_use]
    pub fn original(&self, number: u32) -> Option<u32> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        let old = self.lines.get(place)?.original?;
        u32::try_from(old + 1).ok()
    }

    /// The original number of the last original line above a line; 0 if there is none.
    #[must_use]
    pub(crate) fn original_line_above(&self, number: u32) -> u32 {
        let mut above = (1..number).rev();
        above.find_map(|line| self.original(line)).unwrap_or(0)
    }

    /// The gap between a line and the code line before it. Lines that are excluded where the line
    /// is assembled, as in conditional branches, do not count.
    #[must_use]
    pub fn gap_before(&self, number: u32) -> InsnGap {
        let layout = self.layout();
        let lines = self.gap_in(layout, number);
        self.gap(layout, lines, number)
    }

    fn gap_in(&self, layout: &ConditionLayout, number: u32) -> Range<u32> {
        let mut above = (1..number).rev();
        let border = above.find(|line| self.is_border(layout, *line, number));
        border.map_or(1, |line| line + 1)..number
    }

    /// The gap between a line and the next code line.
    #[must_use]
    pub fn gap_after(&self, number: u32) -> InsnGap {
        let layout = self.layout();
        let mut below = number + 1..=layout.count();
        let border = below.find(|line| self.is_border(layout, *line, number));
        let end = border.unwrap_or(layout.count() + 1);
        self.gap(layout, number + 1..end, number)
    }

    /// Whether a line ends the gap next to code line `of`: it may be assembled together with that
    /// line, and is a boundary or may hide one.
    fn is_border(&self, layout: &ConditionLayout, line: u32, of: u32) -> bool {
        let near = |line| {
            let is_known = self.assembled.is_some();
            layout.visibility(layout.branch_after(line), layout.branch_after(of), is_known)
        };
        match layout.kind(line) {
            Some(LineKind::Boundary) => near(line) == LineVisibility::Assembled,
            // It is not known whether there is code between these.
            Some(LineKind::Condition) => {
                let above = line.saturating_sub(1);
                near(line) == LineVisibility::Unknown || near(above) == LineVisibility::Unknown
            }
            _ => false,
        }
    }

    fn gap(&self, layout: &ConditionLayout, lines: Range<u32>, of: u32) -> InsnGap {
        let is_row = |line: &u32| {
            let near = || {
                let is_known = self.assembled.is_some();
                layout.visibility(
                    layout.branch_after(*line),
                    layout.branch_after(of),
                    is_known,
                )
            };
            layout.kind(*line) == Some(LineKind::RowDirective)
                && near() == LineVisibility::Assembled
        };
        InsnGap {
            directives: lines.clone().filter(is_row).collect(),
            lines,
        }
    }

    /// The lines before which a directive can stand that holds from an instruction on. The first is
    /// behind the directives that follow the previous instruction, where people write it. Others
    /// are directly before the instruction's line or its labels, if assembled under the same
    /// conditions.
    #[must_use]
    pub fn insertion_points_before(&self, number: u32) -> Vec<u32> {
        let layout = self.layout();
        let gap = self.gap_in(layout, number);
        let above = layout.branch_after(gap.start.saturating_sub(1));
        let is_place = |line: &u32| layout.is_insertion_point(line.saturating_sub(1), above);
        let mut ends = gap
            .clone()
            .filter(|line| layout.kind(*line) != Some(LineKind::RowDirective));
        let behind = ends.find(is_place).unwrap_or(number);
        let bare = gap
            .clone()
            .rev()
            .take_while(|line| layout.kind(*line) == Some(LineKind::Blank));
        let bare = bare.last().unwrap_or(number);
        let mut places = vec![behind];
        places.extend((bare..=number).find(|line| bare > behind && is_place(line)));
        places.dedup();
        places
    }

    /// Whether a line is assembled more than once, or where its macro is used.
    #[must_use]
    pub fn is_repeated(&self, number: u32) -> bool {
        let mut depth = 0_usize;
        for line in self
            .lines
            .iter()
            .take(usize::try_from(number).unwrap_or(usize::MAX))
        {
            match split_word(statement(&line.text)).0 {
                ".macro" | ".rept" | ".irp" | ".irpc" => depth += 1,
                ".endm" | ".endr" => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        depth > 0
    }

    /// Inserts directives before a line, indented like the line before.
    pub fn insert<'d>(&mut self, before: u32, directives: impl IntoIterator<Item = &'d str>) {
        let like = self.line(before.saturating_sub(1)).unwrap_or_default();
        let width = like.len() - like.trim_start_matches([' ', '\t']).len();
        let indent = like.get(..width).filter(|indent| !indent.is_empty());
        let indent = indent.unwrap_or("\t").to_owned();
        let ending = self.ending;
        let lines = directives.into_iter().map(|directive| SourceLine {
            original: None,
            text: format!("{indent}{directive}{ending}"),
        });
        let lines: Vec<SourceLine> = lines.collect();
        let place = usize::try_from(before)
            .map_or(0, |before| before.saturating_sub(1))
            .min(self.lines.len());
        if let Some(last) = place
            .checked_sub(1)
            .and_then(|last| self.lines.get_mut(last))
            && !last.text.ends_with('\n')
        {
            last.text.push_str(ending);
        }
        self.lines.splice(place..place, lines);
        self.layout.take();
    }

    /// Removes a line.
    pub fn remove(&mut self, number: u32) {
        let place = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        if let Some(place) = place.filter(|place| *place < self.lines.len()) {
            self.lines.remove(place);
            self.layout.take();
        }
    }

    /// Replaces the directive on a line; the indentation stays.
    pub fn replace(&mut self, number: u32, directive: &str) {
        let indent = self
            .line(number)
            .map(|line| line.len() - line.trim_start().len());
        let indent = self
            .line(number)
            .zip(indent)
            .and_then(|(line, width)| line.get(..width));
        let text = format!("{}{directive}{}", indent.unwrap_or("\t"), self.ending);
        let place = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        if let Some(line) = place.and_then(|place| self.lines.get_mut(place)) {
            *line = SourceLine {
                original: None,
                text,
            };
            self.layout.take();
        }
    }

    /// Restores the author's lines where inserted lines are equal.
    pub fn restore_unchanged_lines(&mut self) {
        self.layout.take();
        let mut next = 0;
        let numbers: Vec<usize> = self.lines.iter().filter_map(|line| line.original).collect();
        let mut kept = numbers.into_iter().peekable();
        for line in &mut self.lines {
            if let Some(number) = line.original {
                next = number + 1;
                kept.next();
                continue;
            }
            let end = kept.peek().copied().unwrap_or(self.original_lines.len());
            let gone = self.original_lines.get(next..end).unwrap_or_default();
            let words = |text: &str| {
                statement(text)
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            let own = words(&line.text);
            let same = (next..).zip(gone).find(|(_, text)| words(text) == own);
            if let Some((number, text)) = same {
                *line = SourceLine {
                    original: Some(number),
                    text: text.clone(),
                };
                next = number + 1;
            }
        }
    }

    /// The lines of the entry around a line: from `.cfi_startproc` to `.cfi_endproc`. `None` if
    /// macros write these.
    #[must_use]
    pub fn entry_around(&self, number: u32) -> Option<Range<u32>> {
        self.entries().find(|entry| entry.contains(&number))
    }

    /// The last entry that ends before a line.
    #[must_use]
    pub fn entry_before(&self, number: u32) -> Option<Range<u32>> {
        self.entries()
            .take_while(|entry| entry.end <= number)
            .last()
    }

    /// The first entry that begins behind a line.
    #[must_use]
    pub fn entry_after(&self, number: u32) -> Option<Range<u32>> {
        self.entries().find(|entry| number < entry.start)
    }

    fn entries(&self) -> impl Iterator<Item = Range<u32>> {
        let mut start = None;
        let numbered = (1..).zip(&self.lines);
        numbered.filter_map(move |(number, line)| {
            match split_word(statement(&line.text)).0 {
                ".cfi_startproc" => start = Some(number),
                ".cfi_endproc" => return start.take().map(|start| start..number + 1),
                _ => {}
            }
            None
        })
    }

    /// Whether an entry's first row is that of a called function: no directive changes it.
    #[must_use]
    pub fn begins_like_function(&self, entry: &Range<u32>) -> bool {
        self.gap_after(entry.start).directives.is_empty()
    }

    /// Removes all directives of an entry. Returns whether they can be written again: rows can, but
    /// not personality routines and the like, nor directives that share their line.
    #[must_use]
    pub fn strip(&mut self, entry: Range<u32>) -> bool {
        let mut is_whole = true;
        let layout = self.layout().clone();
        let start = layout.branch_after(entry.start);
        for line in entry.rev() {
            let text = self.directive(line);
            if !text.contains(".cfi_") {
                continue;
            }
            // Excluded lines are not written again.
            let near =
                layout.visibility(layout.branch_after(line), start, self.assembled.is_some());
            let is_alone = !self.line(line).unwrap_or_default().contains(':');
            let is_frame = is_alone && matches!(text, ".cfi_startproc" | ".cfi_endproc");
            let is_known = near == LineVisibility::Assembled;
            if is_known && (is_frame || layout.kind(line) == Some(LineKind::RowDirective)) {
                self.remove(line);
            } else {
                is_whole = false;
            }
        }
        is_whole
    }

    /// The changes in the format of `diff -u`; empty if there are none.
    #[must_use]
    pub fn diff(&self, name: &str) -> String {
        let changes = self.changes();
        let changed: Vec<usize> = (0..changes.len())
            .filter(|place| changes.get(*place).is_some_and(|(mark, _)| *mark != ' '))
            .collect();
        let mut hunks: Vec<Range<usize>> = Vec::new();
        for place in changed {
            let (start, end) = (
                place.saturating_sub(DIFF_CONTEXT_LINES),
                (place + DIFF_CONTEXT_LINES + 1).min(changes.len()),
            );
            match hunks.last_mut() {
                Some(last) if start <= last.end => last.end = end,
                _ => hunks.push(start..end),
            }
        }
        let mut out = String::new();
        for hunk in hunks {
            if out.is_empty() {
                let _ = write!(out, "--- a/{name}\n+++ b/{name}\n");
            }
            let before = changes.get(..hunk.start).unwrap_or_default();
            let own = changes.get(hunk).unwrap_or_default();
            let count = |part: &[(char, &str)], but: char| {
                part.iter().filter(|(mark, _)| *mark != but).count()
            };
            let range = |but| match (count(before, but), count(own, but)) {
                (before, 0) => format!("{before},0"),
                (before, length) => format!("{},{length}", before + 1),
            };
            let _ = writeln!(out, "@@ -{} +{} @@", range('+'), range('-'));
            for (mark, text) in own {
                let _ = write!(out, "{mark}{text}");
                if !text.ends_with('\n') {
                    out.push_str("\n\\ No newline at end of file\n");
                }
            }
        }
        out
    }
}

/// Lines of context in a diff.
const DIFF_CONTEXT_LINES: usize = 3;

impl fmt::Display for AssemblySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines
            .iter()
            .try_for_each(|line| f.write_str(&line.text))
    }
}
