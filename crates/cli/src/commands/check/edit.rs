//! Edits of assembly source: insertions, removals, replacements and moves, and their descriptions.

use core::fmt;

use serde_json::{Value, json};
use unspool_assembly::AssemblySource;

/// One step of an edit. Lines are counted from 1, before the edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineEdit {
    /// Inserts a directive before a line.
    Insert { before: u32, directive: String },
    /// Removes a line.
    Remove { line: u32 },
    /// Replaces a line by another directive.
    Replace { line: u32, replacement: String },
    /// Moves the directive of a line to before another line.
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
                // The later line comes first, so that line numbers stay valid.
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

    /// The same in lines of the file that the text was made from; `None` if they are no longer its
    /// lines.
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

/// Simultaneous changes, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit(pub(super) Vec<LineEdit>);

impl Edit {
    /// The text after the changes.
    pub(super) fn applied(&self, source: &AssemblySource) -> AssemblySource {
        let mut changed = source.clone();
        let mut edits: Vec<&LineEdit> = self.0.iter().collect();
        edits.sort_by_key(|change| change.line());
        for change in edits.into_iter().rev() {
            change.apply(&mut changed);
        }
        changed
    }

    /// Whether it writes a directive with an offset from the CFA, or a CFA definition.
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

    /// Its effect on the file that the text was made from.
    pub(super) fn advice(&self, source: &AssemblySource) -> Option<FixAction> {
        let steps = self.0.iter().map(|change| change.step(source));
        steps.collect::<Option<_>>().map(FixAction::Steps)
    }
}

/// A change, in lines of a file. `after` line 0 is the start of the file.
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

/// The action of `--fix` on a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FixAction {
    /// It changes lines.
    Steps(Vec<EditStep>),
    /// It removes the function's directives, and writes all that it needs.
    Annotate,
}

impl FixAction {
    pub(super) fn as_json(&self) -> Value {
        match self {
            FixAction::Steps(steps) => steps.iter().map(EditStep::as_json).collect(),
            FixAction::Annotate => json!([{ "do": "annotate" }]),
        }
    }
}

impl fmt::Display for FixAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixAction::Steps(steps) => {
                let steps: Vec<String> = steps.iter().map(EditStep::to_string).collect();
                f.write_str(&steps.join("; "))
            }
            FixAction::Annotate => f.write_str("--fix writes all directives of the function"),
        }
    }
}

/// A directive corrected by the operands of the proposed one, if both are about the same rule.
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

/// A directive with register names in place of numbers. `None` if it has no such numbers.
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
