//! Edits of assembly source: what is put in, taken out, changed, or moved, and how that is told.

use core::fmt;

use serde_json::{Value, json};
use unspool_assembly::AssemblySource;

/// One thing that is done to a text. Lines are counted from 1, before the edit that it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineEdit {
    /// A directive is put in before a line.
    Insert { before: u32, directive: String },
    /// A line is taken out.
    Remove { line: u32 },
    /// A line becomes another directive.
    Replace { line: u32, replacement: String },
    /// The directive of a line goes before another one.
    Move { line: u32, before: u32 },
}

impl LineEdit {
    fn line(&self) -> u32 {
        match *self {
            LineEdit::Insert { before, .. } => before,
            LineEdit::Remove { line }
            | LineEdit::Replace { line, .. }
            | LineEdit::Move { line, .. } => line,
        }
    }

    fn apply(&self, source: &mut AssemblySource) {
        match self {
            LineEdit::Insert { before, directive } => source.insert(*before, [directive.as_str()]),
            LineEdit::Remove { line } => source.remove(*line),
            LineEdit::Replace {
                line,
                replacement: by,
            } => source.replace(*line, by),
            LineEdit::Move { line, before } => {
                let directive = source.directive(*line).to_owned();
                // The one further down comes first: it moves no line of the other.
                if line < before {
                    source.insert(*before, [directive.as_str()]);
                    source.remove(*line);
                } else {
                    source.remove(*line);
                    source.insert(*before, [directive.as_str()]);
                }
            }
        }
    }

    /// The same by the lines of the file that a text was made of; `None` if they are not its lines any more.
    fn step(&self, source: &AssemblySource) -> Option<EditStep> {
        let after = |before: u32| source.original_line_above(before);
        let own = |line: u32| Some((source.original(line)?, source.directive(line).to_owned()));
        Some(match self {
            LineEdit::Insert { before, directive } => EditStep::Insert {
                after: after(*before),
                directive: directive.clone(),
            },
            LineEdit::Remove { line } => {
                let (line, directive) = own(*line)?;
                EditStep::Remove { line, directive }
            }
            LineEdit::Replace {
                line,
                replacement: by,
            } => {
                let (line, directive) = own(*line)?;
                let by = by.clone();
                EditStep::Replace {
                    line,
                    directive,
                    replacement: by,
                }
            }
            LineEdit::Move { line, before } => {
                let (line, directive) = own(*line)?;
                let after = after(*before);
                EditStep::Move {
                    line,
                    directive,
                    after,
                }
            }
        })
    }
}

/// Changes that are made at once, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit(pub(super) Vec<LineEdit>);

impl Edit {
    /// The text with the changes.
    pub(super) fn applied(&self, source: &AssemblySource) -> AssemblySource {
        let mut changed = source.clone();
        let mut changes: Vec<&LineEdit> = self.0.iter().collect();
        changes.sort_by_key(|change| change.line());
        for change in changes.into_iter().rev() {
            change.apply(&mut changed);
        }
        changed
    }

    /// Whether it writes a directive that says a distance from the CFA, or all of the CFA's.
    pub(super) fn is_counted_from_cfa(&self) -> bool {
        let mut written = self.0.iter().filter_map(|change| match change {
            LineEdit::Insert { directive, .. }
            | LineEdit::Replace {
                replacement: directive,
                ..
            } => split(directive),
            LineEdit::Remove { .. } | LineEdit::Move { .. } => None,
        });
        let counted = [".cfi_offset", ".cfi_def_cfa", ".cfi_def_cfa_offset"];
        written.any(|(name, _)| counted.contains(&name))
    }

    /// What it does to the file that the text was made of.
    pub(super) fn advice(&self, source: &AssemblySource) -> Option<Advice> {
        let steps = self.0.iter().map(|change| change.step(source));
        steps.collect::<Option<_>>().map(Advice::Steps)
    }
}

/// A change, by the lines of a file. What is `after` line 0 is at its begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditStep {
    Insert {
        after: u32,
        directive: String,
    },
    Remove {
        line: u32,
        directive: String,
    },
    Replace {
        line: u32,
        directive: String,
        replacement: String,
    },
    Move {
        line: u32,
        directive: String,
        after: u32,
    },
}

impl EditStep {
    fn as_json(&self) -> Value {
        match self {
            EditStep::Insert { after, directive } => {
                json!({ "do": "write", "directive": directive, "after_line": after })
            }
            EditStep::Remove { line, directive } => {
                json!({ "do": "remove", "directive": directive, "line": line })
            }
            EditStep::Replace {
                line,
                directive,
                replacement: by,
            } => json!({ "do": "replace", "directive": directive, "line": line, "by": by }),
            EditStep::Move {
                line,
                directive,
                after,
            } => {
                json!({ "do": "move", "directive": directive, "line": line, "after_line": after })
            }
        }
    }
}

impl fmt::Display for EditStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditStep::Insert { after, directive } => {
                write!(f, "write after line {after}: {directive}")
            }
            EditStep::Remove { line, directive } => write!(f, "remove line {line}: {directive}"),
            EditStep::Replace {
                line,
                directive,
                replacement: by,
            } => write!(f, "write in line {line}: {by}, in place of {directive}"),
            EditStep::Move {
                line,
                directive,
                after,
            } => write!(f, "move line {line} after line {after}: {directive}"),
        }
    }
}

/// What `--fix` does about a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Advice {
    /// It changes lines.
    Steps(Vec<EditStep>),
    /// It takes the function's directives out, and writes all that it needs.
    Annotate,
}

impl Advice {
    pub(super) fn as_json(&self) -> Value {
        match self {
            Advice::Steps(steps) => steps.iter().map(EditStep::as_json).collect(),
            Advice::Annotate => json!([{ "do": "annotate" }]),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Steps(steps) => {
                let steps: Vec<String> = steps.iter().map(EditStep::to_string).collect();
                f.write_str(&steps.join("; "))
            }
            Advice::Annotate => f.write_str("--fix writes all directives of the function"),
        }
    }
}

/// A directive changed to what another one would mend, if both are about the same.
pub(super) fn correct(directive: &str, fix: &str) -> Option<String> {
    let (name, operands) = split(directive)?;
    let (fix_name, fix_operands) = split(fix)?;
    let number = operands.last().and_then(|number| parse(number));
    let is_of_cfa =
        |name: &str| name.starts_with(".cfi_def_cfa") || name == ".cfi_adjust_cfa_offset";
    if let (Some(number), ".cfi_adjust_cfa_offset", true) = (number, fix_name, is_of_cfa(name)) {
        let sum = number + parse(fix_operands.last()?)?;
        let is_nothing = name == fix_name && sum == 0;
        let mut operands: Vec<String> = operands
            .iter()
            .map(|operand| (*operand).to_owned())
            .collect();
        *operands.last_mut()? = sum.to_string();
        return (!is_nothing).then(|| format!("{name} {}", operands.join(", ")));
    }
    let register = |operands: &[&str]| {
        operands
            .first()
            .map(|name| name.trim_start_matches('%').to_owned())
    };
    let is_same = match (is_of_cfa(name), is_of_cfa(fix_name)) {
        (true, true) => true,
        (false, false) => register(&operands) == register(&fix_operands),
        _ => false,
    };
    is_same.then(|| fix.to_owned())
}

/// A directive with names for its registers, which stand there as numbers. `None` if none does.
pub(super) fn with_names(
    directive: &str,
    name_of: impl Fn(u16) -> Option<String>,
) -> Option<String> {
    let (name, operands) = split(directive)?;
    let registers = match name {
        ".cfi_register" => 2,
        ".cfi_def_cfa"
        | ".cfi_def_cfa_register"
        | ".cfi_offset"
        | ".cfi_rel_offset"
        | ".cfi_val_offset"
        | ".cfi_restore"
        | ".cfi_same_value"
        | ".cfi_undefined" => 1,
        _ => 0,
    };
    let named = (0..).zip(&operands).map(|(place, operand)| {
        let number = operand.parse().ok().filter(|_| place < registers);
        let name = number.and_then(&name_of);
        name.unwrap_or_else(|| (*operand).to_owned())
    });
    let named: Vec<String> = named.collect();
    (named != operands).then(|| format!("{name} {}", named.join(", ")))
}

/// The name of a directive, and its operands.
fn split(directive: &str) -> Option<(&str, Vec<&str>)> {
    let (name, operands) = directive.split_once(char::is_whitespace)?;
    Some((name, operands.split(',').map(str::trim).collect()))
}

fn parse(number: &str) -> Option<i64> {
    match number.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}
