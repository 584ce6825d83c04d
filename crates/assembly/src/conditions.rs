//! Which lines of a text are assembled under which conditions: those of the preprocessor, and the assembler's own.

use std::collections::HashSet;

use crate::source::{LineKind, split_word, statement};

/// What the lines of a text are. Lines are counted from 1, and 0 is before the first.
#[derive(Debug, Clone)]
pub(crate) struct ConditionLayout {
    lines: Vec<LayoutLine>,
    branches: Vec<ConditionBranch>,
}

#[derive(Debug, Clone, Copy)]
struct LayoutLine {
    kind: LineKind,
    /// The branch that the text behind it is in.
    branch: BranchId,
    /// Whether the next line is a part of this one, or of a comment that begins here.
    continues: bool,
}

/// A number of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BranchId(usize);

/// What is outside of all conditions.
const OUTSIDE: BranchId = BranchId(0);

/// What is between `#if` and `#else`, or `#else` and `#endif`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConditionBranch {
    pub(crate) parent: BranchId,
    /// The line of the `#if`.
    pub(crate) condition: u32,
    /// The line that begins it.
    pub(crate) start: u32,
    /// The line that ends it.
    pub(crate) end: u32,
    /// Whether a line in it makes code, if it is assembled.
    has_code: bool,
    /// Whether a line in it has made code.
    is_assembled: bool,
}

/// What a line does to conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionStep {
    Open,
    Next,
    Close,
}

/// Which of a text's lines a preprocessor reads before the assembler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceDialect {
    /// None: what begins with `#` is a comment.
    Plain,
    /// Those that begin with `#`.
    Preprocessed,
}

impl ConditionLayout {
    /// Reads the lines of a text. `is_assembled` says which of them, counted from 1, are known to have made code.
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
            // What closes nothing is no condition.
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

    /// The branches between conditions, but not what is outside of all.
    pub(crate) fn branches(&self) -> impl Iterator<Item = (BranchId, &ConditionBranch)> {
        let branches = self.branches.iter().enumerate().skip(1);
        branches.map(|(place, branch)| (BranchId(place), branch))
    }

    /// A branch and those that it is in, the innermost first.
    pub(crate) fn enclosing(&self, id: BranchId) -> impl Iterator<Item = BranchId> {
        let parent = |id: &BranchId| (*id != OUTSIDE).then(|| self.branch(*id).map(|b| b.parent));
        core::iter::successors(Some(id), move |id| parent(id).flatten())
    }

    /// The branch that the text behind a line is in.
    pub(crate) fn branch_after(&self, line: u32) -> BranchId {
        self.line(line).map_or(OUTSIDE, |line| line.branch)
    }

    fn line(&self, number: u32) -> Option<&LayoutLine> {
        self.lines.get(usize::try_from(number).ok()?)
    }

    pub(crate) fn kind(&self, number: u32) -> Option<LineKind> {
        self.line(number).map(|line| line.kind)
    }

    /// How many lines there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lines.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Whether what is in one branch is assembled wherever what is in another one is.
    pub(crate) fn encloses(&self, outer: BranchId, inner: BranchId) -> bool {
        self.enclosing(inner).any(|id| id == outer)
    }

    /// The innermost branch that two are in.
    pub(crate) fn common(&self, a: BranchId, b: BranchId) -> BranchId {
        let mut around = self.enclosing(a);
        around.find(|id| self.encloses(*id, b)).unwrap_or(OUTSIDE)
    }

    /// Whether a line can be put in behind one, so that it is in a branch.
    pub(crate) fn is_insertion_point(&self, line: u32, branch: BranchId) -> bool {
        let line = self.line(line);
        line.is_some_and(|line| line.branch == branch && !line.continues)
    }

    /// The first line between two, from the first on, behind which there is a place in a branch.
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

    /// What a branch is to a line elsewhere: see [`LineVisibility`].
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

    /// Where the entry of a function begins and ends that has its first and last instruction on two lines: behind which
    /// lines, both in the same branch, which is one that its label is in. The two lines that `is_label` and `is_size` are
    /// true of are the label, and the directive that says the size.
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
        let begin = match is_label(first) {
            true => first,
            false => above
                .clone()
                .find(|line| is_border(line) || is_live(*line) && is_label(*line))
                .unwrap_or(0),
        };
        let both = self.common(inner, self.branch_after(last));
        let branch = self.common(self.branch_after(begin), both);
        let top = above.clone().find(is_border).unwrap_or(0);
        // Code that is left out now may be the first of the function, or its last.
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

/// Whether a line is assembled, as far as can be told for another one that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineVisibility {
    Assembled,
    Excluded,
    Unknown,
}

/// What goes on behind the end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Continuation {
    Nothing,
    /// A comment between `/*` and `*/`.
    Comment,
    /// A line of the preprocessor that ends with `\`.
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
        match is_in_comment(text, self == Continuation::Comment, dialect) {
            true => Continuation::Comment,
            false => Continuation::Nothing,
        }
    }
}

/// Whether a comment goes on behind a line.
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

/// What a line is that begins in a comment.
fn classify_in_comment(text: &str) -> LineKind {
    match text.split_once("*/") {
        Some((_, behind)) if !statement(behind).is_empty() => LineKind::Boundary,
        _ => LineKind::Blank,
    }
}

/// What a line is, and what it does to conditions.
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
    match steps.is_empty() || code.contains(';') {
        true => (LineKind::classify(text), steps),
        false => (LineKind::Condition, steps),
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

/// The numbers of lines that were read, of those that have made code.
pub(crate) type AssembledLines = HashSet<usize>;
