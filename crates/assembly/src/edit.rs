//! Edits of assembly source: insertions, removals, replacements and moves, and their descriptions.

use core::fmt;

use serde::Serialize;

use crate::source::AssemblySource;

/// One step of an edit. Lines are counted from 1, before the edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEdit {
    /// Inserts a directive before a line.
    Insert {
        /// The line.
        before: u32,
        /// The directive.
        directive: String,
    },
    /// Removes a line.
    Remove {
        /// The line.
        line: u32,
    },
    /// Replaces a line by another directive.
    Replace {
        /// The line.
        line: u32,
        /// The other directive.
        replacement: String,
    },
    /// Moves the directive of a line to before another line.
    Move {
        /// The directive's line.
        line: u32,
        /// The line that it is moved to.
        before: u32,
    },
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
            LineEdit::Replace { line, replacement } => source.replace(*line, replacement),
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
            LineEdit::Replace { line, replacement } => {
                let (line, directive) = own(*line)?;
                EditStep::Replace {
                    line,
                    directive,
                    replacement: replacement.clone(),
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
pub struct Edit(pub Vec<LineEdit>);

impl Edit {
    /// The text after the changes.
    #[must_use]
    pub fn applied(&self, source: &AssemblySource) -> AssemblySource {
        let mut changed = source.clone();
        let mut edits: Vec<&LineEdit> = self.0.iter().collect();
        edits.sort_by_key(|change| change.line());
        for change in edits.into_iter().rev() {
            change.apply(&mut changed);
        }
        changed
    }

    /// Whether it writes a directive with an offset from the CFA, or a CFA definition.
    #[must_use]
    pub fn is_counted_from_cfa(&self) -> bool {
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

    /// The changes in lines of the file that the text was made from; `None` if one is of a line
    /// that is not from that file.
    #[must_use]
    pub fn steps(&self, source: &AssemblySource) -> Option<Vec<EditStep>> {
        self.0.iter().map(|change| change.step(source)).collect()
    }
}

/// A change in lines of the original file, for people ([`Display`](fmt::Display)) and for programs
/// ([`Serialize`], `docs/json.md`). `after` line 0 is the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum EditStep {
    /// Writes a directive.
    Insert {
        /// The preceding line.
        #[serde(rename = "after_line")]
        after: u32,
        /// The directive.
        directive: String,
    },
    /// Removes a directive.
    Remove {
        /// Its line.
        line: u32,
        /// The directive.
        directive: String,
    },
    /// Replaces a directive.
    Replace {
        /// Its line.
        line: u32,
        /// The directive.
        directive: String,
        /// The other directive.
        replacement: String,
    },
    /// Moves a directive.
    Move {
        /// Its line.
        line: u32,
        /// The directive.
        directive: String,
        /// The line to precede it.
        #[serde(rename = "after_line")]
        after: u32,
    },
    /// Removes the function's directives, and writes all that it needs.
    Annotate,
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
            EditStep::Annotate => f.write_str("--fix writes all directives of the function"),
        }
    }
}

/// A directive corrected by the operands of the proposed one, if both are about the same rule.
#[must_use]
pub fn correct_directive(directive: &str, fix: &str) -> Option<String> {
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
pub fn name_registers(directive: &str, name_of: impl Fn(u16) -> Option<String>) -> Option<String> {
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
