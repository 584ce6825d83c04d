//! Assembly source as lines, into which directives are put and from which they are taken.

use core::fmt::{self, Write as _};
use core::ops::Range;

/// A text, and what was changed in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    lines: Vec<Line>,
    /// The lines of the text that was read.
    old: Vec<String>,
    ending: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// Its number in the text that was read, counted from 0; none of what was put in.
    old: Option<usize>,
    /// With its line ending.
    text: String,
}

/// What is between two instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The lines, counted from 1.
    pub lines: Range<u32>,
    /// Those of them that are one directive about rows each.
    pub directives: Vec<u32>,
}

/// What a line is to those around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing is on it but white space, labels, comments.
    Bare,
    /// A directive that changes rows, and nothing else.
    Row,
    /// Other directives that make no code and stay in their section.
    Passive,
    /// What makes code, begins or ends an entry, leaves the section, or is not known.
    Border,
}

/// Directives that change rows, without `.cfi_`.
const ROW: [&str; 14] = [
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
const PASSIVE: [&str; 20] = [
    ".align", ".balign", ".p2align", ".globl", ".global", ".local", ".weak", ".hidden", ".type",
    ".size", ".loc", ".file", ".set", ".if", ".ifdef", ".ifndef", ".else", ".elseif", ".endif",
    ".equ",
];

impl Kind {
    fn of(line: &str) -> Kind {
        let code = statement(line);
        let (word, _) = split_word(code);
        let is_one = !code.contains(';');
        let row = word.strip_prefix(".cfi_").filter(|name| ROW.contains(name));
        let row = row.filter(|_| !is_outermost(code));
        match word {
            "" => Kind::Bare,
            _ if row.is_some() && is_one && !line.trim_start().contains(':') => Kind::Row,
            _ if PASSIVE.contains(&word) && is_one => Kind::Passive,
            _ => Kind::Border,
        }
    }
}

/// Whether a directive says that there is no caller. That is the author's to know.
fn is_outermost(directive: &str) -> bool {
    let register = directive.strip_prefix(".cfi_undefined");
    register.is_some_and(|register| {
        matches!(register.trim().trim_start_matches('%'), "rip" | "ra" | "16")
    })
}

/// What a line has beside labels and comments.
fn statement(line: &str) -> &str {
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

/// The first word of a text, to a colon or white space, and what is behind.
fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_whitespace() || c == ':');
    let end = end.map_or(text.len(), |end| match text.get(end..end + 1) {
        Some(":") => end + 1,
        _ => end,
    });
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

impl Source {
    /// Takes a text.
    #[must_use]
    pub fn new(text: &str) -> Source {
        let old: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let lines = old.iter().cloned().enumerate();
        Source {
            lines: lines
                .map(|(number, text)| Line {
                    old: Some(number),
                    text,
                })
                .collect(),
            old,
            ending: match text.contains("\r\n") {
                true => "\r\n",
                false => "\n",
            },
        }
    }

    /// Whether anything was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.changes().iter().any(|(mark, _)| *mark != ' ')
    }

    /// All lines, of before and of now: a space before those of both, `-` before those that went, `+` before new ones.
    fn changes(&self) -> Vec<(char, &str)> {
        let mut changes = Vec::new();
        let mut added = Vec::new();
        let mut next = 0;
        let gone = |range: Range<usize>| {
            let gone = self.old.get(range).unwrap_or_default();
            gone.iter().map(|text| ('-', text.as_str()))
        };
        for line in &self.lines {
            let old = line
                .old
                .filter(|number| self.old.get(*number) == Some(&line.text));
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
        changes.extend(gone(next..self.old.len()));
        changes.append(&mut added);
        changes
    }

    fn line(&self, number: u32) -> Option<&str> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        Some(self.lines.get(place)?.text.as_str())
    }

    /// The lines, counted from 1.
    pub fn texts(&self) -> impl Iterator<Item = (u32, &str)> {
        (1..).zip(self.lines.iter().map(|line| line.text.as_str()))
    }

    /// Whether there is nothing on a line but white space, labels, comments.
    #[must_use]
    pub fn is_bare(&self, number: u32) -> bool {
        self.kind(number) == Some(Kind::Bare)
    }

    fn kind(&self, number: u32) -> Option<Kind> {
        self.line(number).map(Kind::of)
    }

    /// The directive on a line, without comments: `.cfi_offset %rbx, -16`.
    #[must_use]
    pub fn directive(&self, number: u32) -> &str {
        self.line(number).map_or("", statement)
    }

    /// The number that a line had in the text that was read; `None` if it was put in.
    #[must_use]
    pub fn original(&self, number: u32) -> Option<u32> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        let old = self.lines.get(place)?.old?;
        u32::try_from(old + 1).ok()
    }

    /// The number that the last line above a line had in the text that was read, of those that were there; 0 if there is none.
    #[must_use]
    pub fn original_above(&self, number: u32) -> u32 {
        let mut above = (1..number).rev();
        above.find_map(|line| self.original(line)).unwrap_or(0)
    }

    /// What is between a line and the one before it that makes code.
    #[must_use]
    pub fn gap_before(&self, number: u32) -> Gap {
        let above = (1..number)
            .rev()
            .find(|line| self.kind(*line) == Some(Kind::Border));
        self.gap(above.map_or(1, |line| line + 1)..number)
    }

    /// What is between a line and the next that makes code.
    #[must_use]
    pub fn gap_behind(&self, number: u32) -> Gap {
        let below = (number + 1..)
            .find(|line| !matches!(self.kind(*line), Some(kind) if kind != Kind::Border));
        self.gap(number + 1..below.unwrap_or(number + 1))
    }

    fn gap(&self, lines: Range<u32>) -> Gap {
        let directives = lines
            .clone()
            .filter(|line| self.kind(*line) == Some(Kind::Row));
        Gap {
            directives: directives.collect(),
            lines,
        }
    }

    /// The lines before which a directive can stand that is to hold from an instruction on: behind the directives that
    /// follow the instruction before, which is where people write it, and directly before its own line or its labels.
    #[must_use]
    pub fn places_before(&self, number: u32) -> Vec<u32> {
        let gap = self.gap_before(number).lines;
        let behind = gap.clone().find(|line| self.kind(*line) != Some(Kind::Row));
        let bare = gap
            .clone()
            .rev()
            .take_while(|line| self.kind(*line) == Some(Kind::Bare));
        let mut places = vec![behind.unwrap_or(number), bare.last().unwrap_or(number)];
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

    /// Puts directives in before a line, with the indentation of that before.
    pub fn insert<'d>(&mut self, before: u32, directives: impl IntoIterator<Item = &'d str>) {
        let like = self.line(before.saturating_sub(1)).unwrap_or_default();
        let width = like.len() - like.trim_start_matches([' ', '\t']).len();
        let indent = like.get(..width).filter(|indent| !indent.is_empty());
        let indent = indent.unwrap_or("\t").to_owned();
        let ending = self.ending;
        let lines = directives.into_iter().map(|directive| Line {
            old: None,
            text: format!("{indent}{directive}{ending}"),
        });
        let lines: Vec<Line> = lines.collect();
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
    }

    /// Takes a line out.
    pub fn remove(&mut self, number: u32) {
        let place = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        if let Some(place) = place.filter(|place| *place < self.lines.len()) {
            self.lines.remove(place);
        }
    }

    /// Writes another directive on a line, with the same indentation.
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
            *line = Line { old: None, text };
        }
    }

    /// Has lines that were put in be the author's own again where these say the same.
    pub fn keep_what_was_said(&mut self) {
        let mut next = 0;
        let numbers: Vec<usize> = self.lines.iter().filter_map(|line| line.old).collect();
        let mut kept = numbers.into_iter().peekable();
        for line in &mut self.lines {
            if let Some(number) = line.old {
                next = number + 1;
                kept.next();
                continue;
            }
            let end = kept.peek().copied().unwrap_or(self.old.len());
            let gone = self.old.get(next..end).unwrap_or_default();
            let words = |text: &str| {
                statement(text)
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            let own = words(&line.text);
            let same = (next..).zip(gone).find(|(_, text)| words(text) == own);
            if let Some((number, text)) = same {
                *line = Line {
                    old: Some(number),
                    text: text.clone(),
                };
                next = number + 1;
            }
        }
    }

    /// The lines of the entry that a line is in: from `.cfi_startproc` to `.cfi_endproc`. None if macros write these.
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
    pub fn entry_behind(&self, number: u32) -> Option<Range<u32>> {
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

    /// Whether an entry's first row is that of a function that was called: nothing is said of it.
    #[must_use]
    pub fn begins_as_called(&self, entry: &Range<u32>) -> bool {
        self.gap_behind(entry.start).directives.is_empty()
    }

    /// Takes out all directives of an entry. Whether what it loses by that can be written anew: rows, but not personality
    /// routines and the like, and not what shares its line with something else.
    #[must_use]
    pub fn strip(&mut self, entry: Range<u32>) -> bool {
        let mut is_whole = true;
        for line in entry.rev() {
            let text = self.directive(line);
            if !text.contains(".cfi_") {
                continue;
            }
            let is_alone = !self.line(line).unwrap_or_default().contains(':');
            let is_frame = is_alone && matches!(text, ".cfi_startproc" | ".cfi_endproc");
            match is_frame || self.kind(line) == Some(Kind::Row) {
                true => self.remove(line),
                false => is_whole = false,
            }
        }
        is_whole
    }

    /// How the text differs from the one that was read, as `diff -u` writes it; empty if it does not.
    #[must_use]
    pub fn diff(&self, name: &str) -> String {
        let changes = self.changes();
        let changed: Vec<usize> = (0..changes.len())
            .filter(|place| changes.get(*place).is_some_and(|(mark, _)| *mark != ' '))
            .collect();
        let mut hunks: Vec<Range<usize>> = Vec::new();
        for place in changed {
            let (start, end) = (
                place.saturating_sub(CONTEXT),
                (place + CONTEXT + 1).min(changes.len()),
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
const CONTEXT: usize = 3;

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines
            .iter()
            .try_for_each(|line| f.write_str(&line.text))
    }
}
