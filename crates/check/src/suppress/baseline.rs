//! Baselines: findings that are known, whatever their address.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use crate::file_report::FileReport;
use crate::locate::LocatedFinding;

/// The identity of a finding, whatever its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FindingIdentity {
    pub(crate) code: String,
    /// The name of the file, without its folders.
    pub(crate) file: String,
    /// Empty if no symbol names it.
    pub(crate) function: String,
    pub(crate) subject: String,
}

impl FindingIdentity {
    /// The identity of a finding in a file.
    pub(crate) fn new(path: &Path, finding: &LocatedFinding) -> FindingIdentity {
        FindingIdentity {
            code: finding.finding.code.to_string(),
            file: file_name(&path.to_string_lossy()).to_owned(),
            function: finding.function_name().to_owned(),
            subject: finding.finding.subject.clone(),
        }
    }
}

/// The part after the last slash.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The known findings, which do not count: how many of each identity. It is serialized as a
/// document of its own.
#[derive(Debug, Default)]
pub struct Baseline {
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

/// Why a text is not a baseline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// It is not JSON, or lacks a field.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is a document of another schema.
    #[error("not a baseline: --write-baseline writes a new one")]
    OtherDocument,
}

const SCHEMA: &str = "unspool.check.baseline";

impl Baseline {
    /// Parses a document that was serialized.
    ///
    /// # Errors
    ///
    /// It is another document.
    pub fn from_json(text: &str) -> Result<Baseline, BaselineError> {
        let document: BaselineDocument = serde_json::from_str(text)?;
        if (document.schema.as_str(), document.version) != (SCHEMA, 1) {
            return Err(BaselineError::OtherDocument);
        }
        let known = document.findings.into_iter();
        Ok(Baseline {
            known: known.map(|entry| (entry.identity, entry.count)).collect(),
        })
    }

    /// The unsuppressed findings of files.
    #[must_use]
    pub fn from_reports(reports: &[FileReport]) -> Baseline {
        let mut baseline = Baseline::default();
        for file in reports {
            for finding in file.unsuppressed() {
                let identity = FindingIdentity::new(&file.path, finding);
                *baseline.known.entry(identity).or_default() += 1;
            }
        }
        baseline
    }

    /// Whether a finding is one of the known ones; each is taken once.
    pub(crate) fn take(&mut self, identity: &FindingIdentity) -> bool {
        match self.known.get_mut(identity) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// The number of its findings that were not taken.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known.values().sum()
    }

    /// The number of its findings in these files that were not taken: they are gone. Nothing is
    /// known about files that were not checked.
    #[must_use]
    pub fn count_gone(&self, checked: &[FileReport]) -> usize {
        let is_checked = |name: &str| {
            let mut checked = checked.iter();
            checked.any(|file| file_name(&file.path.to_string_lossy()) == name)
        };
        let known = self.known.iter();
        let known = known.filter(|(identity, _)| is_checked(&identity.file));
        known.map(|(_, count)| count).sum()
    }
}

impl Serialize for Baseline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = |(identity, count): (&FindingIdentity, &usize)| BaselineEntry {
            identity: identity.clone(),
            count: *count,
        };
        let document = BaselineDocument {
            schema: SCHEMA.to_owned(),
            version: 1,
            findings: self.known.iter().map(entry).collect(),
        };
        document.serialize(serializer)
    }
}
