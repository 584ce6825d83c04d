//! Conditions of a text's lines: the preprocessor's and the assembler's own.

use std::collections::HashSet;

use crate::source::{LineKind, split_word, statement};

/// Kinds of a text's lines. Lines are counted from 1, and 0 is before the first.
#[derive(Debug, Clone)]
pub(crate) struct ConditionLayout {
    lines: Vec<LayoutLine>,
    branches: Vec<ConditionBranch>,
}

#[derive(Debug, Clone, Copy)]
struct LayoutLine {
    kind: LineKind,
    /// The branch of the text behind it.
    branch: BranchId,
    /// Whether the next line continues this one, or a comment that begins here.
    continues: bool,
}

/// The number of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BranchId(usize);

/// Outside of all conditions.
const OUTSIDE: BranchId = BranchId(0);

/// The text between `#if` and `#else`, or `#else` and `#endif`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConditionBranch {
    pub(crate) parent: BranchId,
    /// The line of the `#if`.
    pub(crate) condition: u32,
    /// The line that begins the branch.
    pub(crate) start: u32,
    /// The line that ends the branch.
    pub(crate) end: u32,
    /// Whether a line in it makes code, if assembled.
    has_code: bool,
    /// Whether a line in it made code.
    is_assembled: bool,
}

/// Effect of a line on conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionStep {
    Open,
    Next,
    Close,
}

/// The lines of a text that a preprocessor reads before the assembler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceDialect {
    /// None: a line that begins with `#` is a comment.
    Plain,
    /// Lines that begin with `#`.
    Preprocessed,
}

impl ConditionLayout {
    /// Parses the lines of a text. `is_assembled` says which of them, counted from 1, are known to
    /// have made code.
    pub(crate) fn parse<'t>(
        texts: impl Iterator<Item = &'t str>,
        dialect: SourceDialect,
        is_assembled: impl Fn(u32) -> bool,
    ) -> ConditionLayout {
        let mut layout = ConditionLayout {
            lines: vec![LayoutLine {
                kind: LineKind::Blank,
                branch: OUTSIDE,
                continues: false,
            }],
            branches: vec![ConditionBranch {
                parent: OUTSIDE,
                condition: 0,
                start: 0,
                end: u32::MAX,
                has_code: true,
                is_assembled: true,
            }],
        };
        let mut here = OUTSIDE;
        let mut open = Continuation::Nothing;
        for (number, text) in (1..).zip(texts) {
            let (kind, steps) = match open {
                Continuation::Macro => (LineKind::NoCode, Vec::new()),
                Continuation::Comment => (classify_in_comment(text), Vec::new()),
                Continuation::Nothing => classify_line(text, dialect),
            };
            open = open.behind(text, dialect);
            for step in steps {
                here = layout.step(here, step, number);
            }
            if kind == LineKind::Boundary {
                layout.note_code(here, is_assembled(number));
            }
            layout.lines.push(LayoutLine {
                kind,
                branch: here,
                continues: open != Continuation::Nothing,
            });
        }
        layout
    }

    fn step(&mut self, here: BranchId, step: ConditionStep, line: u32) -> BranchId {
        let (parent, condition) = match (step, self.branch(here)) {
            (ConditionStep::Open, _) => (here, line),
            // A line that closes nothing is not a condition.
            (_, Some(_)) if here == OUTSIDE => return OUTSIDE,
            (_, Some(branch)) => (branch.parent, branch.condition),
            (_, None) => return OUTSIDE,
        };
        if step != ConditionStep::Open
            && let Some(branch) = self.branches.get_mut(here.0)
        {
            branch.end = line;
        }
        if step == ConditionStep::Close {
            return parent;
        }
        self.branches.push(ConditionBranch {
            parent,
            condition,
            start: line,
            end: u32::MAX,
            has_code: false,
            is_assembled: false,
        });
        BranchId(self.branches.len() - 1)
    }

    fn note_code(&mut self, inner: BranchId, is_assembled: bool) {
        let around: Vec<BranchId> = self.enclosing(inner).collect();
        for id in around {
            if let Some(branch) = self.branches.get_mut(id.0) {
                branch.has_code = true;
                branch.is_assembled |= is_assembled;
            }
        }
    }

    pub(crate) fn branch(&self, id: BranchId) -> Option<&ConditionBranch> {
        self.branches.get(id.0)
    }

    /// All branches, without the text outside of all conditions.
    pub(crate) fn branches(&self) -> impl Iterator<Item = (BranchId, &ConditionBranch)> {
        let branches = self.branches.iter().enumerate().skip(1);
        branches.map(|(place, branch)| (BranchId(place), branch))
    }

    /// A branch and its enclosing ones, the innermost first.
    pub(crate) fn enclosing(&self, id: BranchId) -> impl Iterator<Item = BranchId> {
        let parent = |id: &BranchId| (*id != OUTSIDE).then(|| self.branch(*id).map(|b| b.parent));
        core::iter::successors(Some(id), move |id| parent(id).flatten())
    }

    /// The branch of the text behind a line.
    pub(crate) fn branch_after(&self, line: u32) -> BranchId {
        self.line(line).map_or(OUTSIDE, |line| line.branch)
    }

    fn line(&self, number: u32) -> Option<&LayoutLine> {
        self.lines.get(usize::try_from(number).ok()?)
    }

    pub(crate) fn kind(&self, number: u32) -> Option<LineKind> {
        self.line(number).map(|line| line.kind)
    }

    /// Number of lines.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lines.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Whether one branch is assembled wherever another is.
    pub(crate) fn encloses(&self, outer: BranchId, inner: BranchId) -> bool {
        self.enclosing(inner).any(|id| id == outer)
    }

    /// The innermost branch that encloses two.
    pub(crate) fn common(&self, a: BranchId, b: BranchId) -> BranchId {
        let mut around = self.enclosing(a);
        around.find(|id| self.encloses(*id, b)).unwrap_or(OUTSIDE)
    }

    /// Whether a line can be inserted behind one so that it is in a branch.
    pub(crate) fn is_insertion_point(&self, line: u32, branch: BranchId) -> bool {
        let line = self.line(line);
        line.is_some_and(|line| line.branch == branch && !line.continues)
    }

    /// The first line between two, inclusive, with an insertion point of a branch behind it.
    pub(crate) fn first_insertion_point(
        &self,
        from: u32,
        to: u32,
        branch: BranchId,
    ) -> Option<u32> {
        let lines = from..to.max(from.saturating_add(1));
        lines
            .into_iter()
            .find(|line| self.is_insertion_point(*line, branch))
    }

    /// Whether another branch of the same condition may make code.
    pub(crate) fn has_alternative(&self, id: BranchId) -> bool {
        let Some(own) = self.branch(id) else {
            return false;
        };
        let mut others = self.branches().filter(|(other, _)| *other != id);
        others.any(|(_, other)| other.condition == own.condition && other.has_code)
    }

    /// The visibility of a branch from a line elsewhere: see [`LineVisibility`].
    pub(crate) fn visibility(
        &self,
        id: BranchId,
        line: BranchId,
        is_known: bool,
    ) -> LineVisibility {
        let mut outer = LineVisibility::Assembled;
        for id in self.enclosing(id) {
            if self.encloses(id, line) {
                break;
            }
            let Some(branch) = self.branch(id) else { break };
            let mut conditions = self.enclosing(line).filter_map(|id| self.branch(id));
            let is_excluded = id != OUTSIDE
                && conditions.any(|other| {
                    other.condition == branch.condition && other.start != branch.start
                });
            if is_excluded || is_known && branch.has_code && !branch.is_assembled {
                return LineVisibility::Excluded;
            }
            if !is_known && branch.has_code {
                outer = LineVisibility::Unknown;
            }
        }
        outer
    }

    /// The lines behind which a function's entry begins and ends, given the lines of its first and
    /// last instruction. Both are in the same branch, which is one that its label is in. `is_label`
    /// is true for the line of the label, `is_size` for that of the size directive.
    pub(crate) fn entry(
        &self,
        first: u32,
        last: u32,
        is_label: impl Fn(u32) -> bool,
        is_size: impl Fn(u32) -> bool,
    ) -> Option<(u32, u32)> {
        let inner = self.branch_after(first);
        let is_live = |line: u32| self.encloses(self.branch_after(line), inner);
        let is_border = |line: &u32| is_live(*line) && self.kind(*line) == Some(LineKind::Boundary);
        let above = (1..first).rev();
        let begin = if is_label(first) {
            first
        } else {
            above
                .clone()
                .find(|line| is_border(line) || is_live(*line) && is_label(*line))
                .unwrap_or(0)
        };
        let both = self.common(inner, self.branch_after(last));
        let branch = self.common(self.branch_after(begin), both);
        let top = above.clone().find(is_border).unwrap_or(0);
        // Code that is excluded now may be the first or last of the function.
        let left_out = (begin + 1..first).find(|line| self.kind(*line) == Some(LineKind::Boundary));
        let condition = left_out.and_then(|line| {
            let around = self.enclosing(self.branch_after(line));
            let around = around.take_while(|id| !self.encloses(*id, inner));
            self.branch(around.last()?).map(|branch| branch.condition)
        });
        let start = (top..condition.unwrap_or(first))
            .rev()
            .find(|line| self.is_insertion_point(*line, branch))?;
        let outer = self.branch_after(last);
        let is_next = |line: &u32| {
            self.kind(*line) == Some(LineKind::Boundary)
                && self.encloses(self.branch_after(*line), outer)
        };
        let next = (last + 1..=self.count()).find(is_next);
        let mut below = last + 1..next.unwrap_or(self.count() + 1);
        let size = below.find(|line| is_size(*line) && self.branch_after(*line) == branch);
        let mut skipped = last + 1..size.unwrap_or(last);
        let is_left_out = skipped.any(|line| self.kind(line) == Some(LineKind::Boundary));
        let from = match size.filter(|_| is_left_out) {
            Some(size) => size - 1,
            None => last,
        };
        let end = (from..=self.count()).find(|line| self.is_insertion_point(*line, branch))?;
        next.is_none_or(|next| end < next).then_some((start, end))
    }
}

/// Whether a line is assembled, given that another one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineVisibility {
    Assembled,
    Excluded,
    Unknown,
}

/// A construct that continues behind the end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Continuation {
    Nothing,
    /// A comment between `/*` and `*/`.
    Comment,
    /// A preprocessor line that ends with `\`.
    Macro,
}

impl Continuation {
    fn behind(self, text: &str, dialect: SourceDialect) -> Continuation {
        let text = text.trim_end_matches(['\n', '\r']);
        let is_macro = self == Continuation::Macro
            || self == Continuation::Nothing
                && dialect == SourceDialect::Preprocessed
                && text.trim_start().starts_with('#');
        if is_macro && text.ends_with('\\') {
            return Continuation::Macro;
        }
        if is_in_comment(text, self == Continuation::Comment, dialect) {
            Continuation::Comment
        } else {
            Continuation::Nothing
        }
    }
}

/// Whether a comment continues behind a line.
fn is_in_comment(text: &str, mut is_comment: bool, dialect: SourceDialect) -> bool {
    let mut is_string = false;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let next = chars.peek().copied();
        match (char, next) {
            ('*', Some('/')) if is_comment => {
                is_comment = false;
                chars.next();
            }
            _ if is_comment => {}
            ('\\', _) if is_string => drop(chars.next()),
            ('"', _) => is_string = !is_string,
            _ if is_string => {}
            ('\'', _) => drop(chars.next()),
            ('/', Some('/')) => return false,
            ('#', _) if dialect == SourceDialect::Plain => return false,
            ('/', Some('*')) => {
                is_comment = true;
                chars.next();
            }
            _ => {}
        }
    }
    is_comment
}

/// The kind of a line that begins in a comment.
fn classify_in_comment(text: &str) -> LineKind {
    match text.split_once("*/") {
        Some((_, behind)) if !statement(behind).is_empty() => LineKind::Boundary,
        _ => LineKind::Blank,
    }
}

/// The kind of a line, and its effect on conditions.
fn classify_line(text: &str, dialect: SourceDialect) -> (LineKind, Vec<ConditionStep>) {
    let preprocessor = text.trim_start().strip_prefix('#');
    if let Some(line) = preprocessor.filter(|_| dialect == SourceDialect::Preprocessed) {
        let line = line.trim_start();
        let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let word = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
        return match word {
            "if" | "ifdef" | "ifndef" => (LineKind::Condition, vec![ConditionStep::Open]),
            "elif" | "elifdef" | "elifndef" | "else" => {
                (LineKind::Condition, vec![ConditionStep::Next])
            }
            "endif" => (LineKind::Condition, vec![ConditionStep::Close]),
            "include" | "include_next" | "import" => (LineKind::Boundary, Vec::new()),
            "define" | "undef" | "pragma" | "line" | "error" | "warning" => {
                (LineKind::NoCode, Vec::new())
            }
            _ => (LineKind::Blank, Vec::new()),
        };
    }
    let code = statement(text);
    let steps = code.split(';').filter_map(|part| step_of(part.trim()));
    let steps: Vec<ConditionStep> = steps.collect();
    if steps.is_empty() || code.contains(';') {
        (LineKind::classify(text), steps)
    } else {
        (LineKind::Condition, steps)
    }
}

fn step_of(statement: &str) -> Option<ConditionStep> {
    match split_word(statement).0 {
        ".else" | ".elseif" => Some(ConditionStep::Next),
        ".endif" => Some(ConditionStep::Close),
        word if word.starts_with(".if") => Some(ConditionStep::Open),
        _ => None,
    }
}

/// Numbers of the original lines that made code.
pub(crate) type AssembledLines = HashSet<usize>;
