//! Suppressed findings: those with a reason in a suppression file, and those of a baseline.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use unspool_check::FindingCode;

use crate::text::pattern::matches;

/// Why a finding does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suppression {
    pub(super) kind: SuppressionKind,
    pub(super) reason: String,
}

/// The source of a suppression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuppressionKind {
    /// A comment in the source.
    Comment,
    /// A line of a suppression file.
    File,
    /// The baseline.
    Baseline,
}

impl SuppressionKind {
    /// As it is printed.
    pub(super) fn name(self) -> &'static str {
        match self {
            SuppressionKind::Comment => "comment",
            SuppressionKind::File => "file",
            SuppressionKind::Baseline => "baseline",
        }
    }
}

/// The identity of a finding, whatever its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FindingIdentity {
    pub(super) code: String,
    /// The name of the file, without its folders.
    pub(super) file: String,
    /// Empty if no symbol names it.
    pub(super) function: String,
    pub(super) subject: String,
}

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

/// A suppression file.
#[derive(Debug)]
pub(super) struct Suppressions {
    rules: Vec<SuppressionRule>,
}

impl Suppressions {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Suppressions> {
        let text = crate::commands::read_text(path)?;
        let lines = (1..).zip(text.lines());
        let lines = lines
            .filter(|(_, text)| !text.trim().is_empty() && !text.trim_start().starts_with('#'));
        let rules = lines.map(|(line, text)| {
            rule(line, text).with_context(|| format!("{}:{line}", path.display()))
        });
        Ok(Suppressions {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// The reason that suppresses a finding.
    pub(super) fn reason(
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

    /// The unused lines.
    pub(super) fn unused(&self) -> impl Iterator<Item = usize> {
        self.rules
            .iter()
            .filter(|rule| !rule.used)
            .map(|rule| rule.line)
    }
}

fn rule(line: usize, text: &str) -> anyhow::Result<SuppressionRule> {
    let mut words = text.split_whitespace();
    let code = match words.next().unwrap_or_default() {
        "*" => None,
        word => match FindingCode::from_name(word) {
            Some(code) => Some(code),
            None => {
                bail!("`{word}` is not a kind of finding: a line is `CFI010 FILE:FUNCTION REASON`")
            }
        },
    };
    let place = words.next().and_then(|place| place.split_once(':'));
    let Some((file, function)) = place else {
        bail!(
            "FILE:FUNCTION is missing: a line is `CFI010 FILE:FUNCTION REASON`, where * stands for anything"
        );
    };
    let reason = words.collect::<Vec<_>>().join(" ");
    if reason.is_empty() {
        bail!("the reason is missing: a line is `CFI010 FILE:FUNCTION REASON`");
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

/// How many findings of each identity are known.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    known: BTreeMap<FindingIdentity, usize>,
}

/// The file of a baseline.
#[derive(Debug, Serialize, Deserialize)]
struct BaselineDocument {
    schema: String,
    version: u32,
    findings: Vec<BaselineEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BaselineEntry {
    #[serde(flatten)]
    identity: FindingIdentity,
    count: usize,
}

const SCHEMA: &str = "unspool.check.baseline";

impl Baseline {
    /// Reads a file that [`Baseline::write`] wrote.
    pub(super) fn read(path: &Path) -> anyhow::Result<Baseline> {
        let text = crate::commands::read_text(path)?;
        let document: BaselineDocument =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        if (document.schema.as_str(), document.version) != (SCHEMA, 1) {
            bail!(
                "{}: not a baseline: --write-baseline writes a new one",
                path.display()
            );
        }
        let known = document.findings.into_iter();
        Ok(Baseline {
            known: known.map(|entry| (entry.identity, entry.count)).collect(),
        })
    }

    /// Adds one finding.
    pub(super) fn add(&mut self, identity: FindingIdentity) {
        *self.known.entry(identity).or_default() += 1;
    }

    /// Whether a finding is one of the known ones; each is taken once.
    pub(super) fn take(&mut self, identity: &FindingIdentity) -> bool {
        match self.known.get_mut(identity) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// The number of findings, or of remaining ones, in files with certain names.
    pub(super) fn count(&self, is_wanted: impl Fn(&str) -> bool) -> usize {
        let known = self.known.iter();
        let known = known.filter(|(identity, _)| is_wanted(&identity.file));
        known.map(|(_, count)| count).sum()
    }

    /// Writes it to a file.
    pub(super) fn write(self, path: &Path) -> anyhow::Result<()> {
        let findings = self
            .known
            .into_iter()
            .map(|(identity, count)| BaselineEntry { identity, count });
        let document = BaselineDocument {
            schema: SCHEMA.to_owned(),
            version: 1,
            findings: findings.collect(),
        };
        let mut text = serde_json::to_vec_pretty(&document)?;
        text.push(b'\n');
        crate::commands::write(path, &text, None)
    }
}
