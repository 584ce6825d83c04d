//! Suppression files: lines with a kind of finding, a file, a function, and a reason.

use super::pattern::matches;
use crate::finding::FindingCode;

/// A line of a suppression file: `CFI010 libcrypto.so*:bn_* REASON`.
#[derive(Debug)]
struct SuppressionRule {
    line: usize,
    code: Option<FindingCode>,
    file: String,
    function: String,
    reason: String,
    used: bool,
}

/// What is wrong with a suppression file. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuppressionError {
    /// A line's first word is something else.
    #[error("{line}: `{word}` is not a kind of finding: a line is `CFI010 FILE:FUNCTION REASON`")]
    Code {
        /// The line.
        line: usize,
        /// The word.
        word: String,
    },
    /// A line's second word is missing, or has no colon.
    #[error(
        "{0}: FILE:FUNCTION is missing: a line is `CFI010 FILE:FUNCTION REASON`, where * stands for anything"
    )]
    Place(usize),
    /// A line has no third word.
    #[error("{0}: the reason is missing: a line is `CFI010 FILE:FUNCTION REASON`")]
    Reason(usize),
}

/// The rules of a suppression file.
#[derive(Debug)]
pub struct Suppressions {
    rules: Vec<SuppressionRule>,
}

impl Suppressions {
    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// The first line that is not a rule, a comment, or empty.
    pub fn parse(text: &str) -> Result<Suppressions, SuppressionError> {
        let lines = (1..).zip(text.lines());
        let lines = lines
            .filter(|(_, text)| !text.trim().is_empty() && !text.trim_start().starts_with('#'));
        let rules = lines.map(|(line, text)| SuppressionRule::parse(line, text));
        Ok(Suppressions {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// The reason that suppresses a finding.
    pub(crate) fn reason(
        &mut self,
        code: FindingCode,
        files: &[&str],
        function: &str,
    ) -> Option<String> {
        let is_it = |rule: &&mut SuppressionRule| {
            let mut files = files.iter();
            rule.code.is_none_or(|wanted| wanted == code)
                && files.any(|file| matches(&rule.file, file))
                && matches(&rule.function, function)
        };
        let rule = self.rules.iter_mut().find(is_it)?;
        rule.used = true;
        Some(rule.reason.clone())
    }

    /// The lines that have suppressed no finding.
    pub fn unused(&self) -> impl Iterator<Item = usize> {
        self.rules
            .iter()
            .filter(|rule| !rule.used)
            .map(|rule| rule.line)
    }
}

impl SuppressionRule {
    fn parse(line: usize, text: &str) -> Result<SuppressionRule, SuppressionError> {
        let mut words = text.split_whitespace();
        let code = match words.next().unwrap_or_default() {
            "*" => None,
            word => match FindingCode::from_name(word) {
                None => {
                    let word = word.to_owned();
                    return Err(SuppressionError::Code { line, word });
                }
                code => code,
            },
        };
        let place = words.next().and_then(|place| place.split_once(':'));
        let (file, function) = place.ok_or(SuppressionError::Place(line))?;
        let reason = words.collect::<Vec<_>>().join(" ");
        if reason.is_empty() {
            return Err(SuppressionError::Reason(line));
        }
        Ok(SuppressionRule {
            line,
            code,
            file: file.to_owned(),
            function: function.to_owned(),
            reason,
            used: false,
        })
    }
}
