//! `unspool doctor`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde_json::json;
use unspool_machine::Remedy;

use crate::args::{DoctorArgs, Format};
use crate::output::{self, Failure, Plain};

mod checks;
mod trials;

use trials::Trials;

/// One thing that this machine allows, or does not.
struct Check {
    /// A word that does not change.
    code: &'static str,
    /// What it is, for people.
    subject: &'static str,
    /// How it is.
    value: String,
    state: State,
    /// What that means for which command.
    meaning: String,
    /// What changes it.
    remedy: Option<Cure>,
}

/// How much of what is wanted there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// All that any command wants.
    Ok,
    /// Some command does less, or does not work.
    Limited,
    /// `record CMD` does not work.
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Failed => "failed",
        }
    }
}

/// What changes something, in words and as a command.
struct Cure {
    text: String,
    command: Option<String>,
}

impl From<Remedy> for Cure {
    fn from(remedy: Remedy) -> Cure {
        Cure {
            text: remedy.to_string(),
            command: remedy.command(),
        }
    }
}

impl Check {
    fn ok(code: &'static str, subject: &'static str, value: impl Into<String>) -> Check {
        Check {
            code,
            subject,
            value: value.into(),
            state: State::Ok,
            meaning: String::new(),
            remedy: None,
        }
    }

    fn limited(self, remedy: Option<impl Into<Cure>>) -> Check {
        Check {
            state: State::Limited,
            remedy: remedy.map(Into::into),
            ..self
        }
    }

    /// Limited unless it is as it should be.
    fn limited_unless(self, is_well: bool, remedy: impl Into<Cure>) -> Check {
        match is_well {
            true => self,
            false => self.limited(Some(remedy)),
        }
    }

    fn meaning(self, meaning: impl Into<String>) -> Check {
        Check {
            meaning: meaning.into(),
            ..self
        }
    }
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let trials = Trials::run();
    let checks = checks::all(&trials);
    match args.format {
        Format::Text => text(&checks)?,
        Format::Json => json(&checks, &trials)?,
    }
    Ok(match trials.recording {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(Failure::FINDINGS),
    })
}

fn text(checks: &[Check]) -> io::Result<()> {
    let mut out = output::text();
    for check in checks {
        let (state, subject) = (check.state.name(), check.subject);
        writeln!(out, "{state:8} {subject}: {}", Plain(&check.value))?;
        if !check.meaning.is_empty() {
            writeln!(out, "{:8} {}", "", Plain(&check.meaning))?;
        }
        // The text of an error has it already.
        let remedy = check.remedy.as_ref().map(|remedy| &remedy.text);
        if let Some(remedy) = remedy.filter(|text| !check.meaning.contains(text.as_str())) {
            writeln!(out, "{:8} to change that: {}", "", Plain(remedy))?;
        }
    }
    out.flush()
}

fn json(checks: &[Check], trials: &Trials) -> io::Result<()> {
    let check = |check: &Check| {
        json!({
            "code": check.code,
            "subject": check.subject,
            "value": check.value,
            "state": check.state.name(),
            "meaning": check.meaning,
            "remedy": check.remedy.as_ref().map(|remedy| &remedy.text),
            "command": check.remedy.as_ref().and_then(|remedy| remedy.command.as_ref()),
        })
    };
    output::document(
        "doctor",
        &json!({
            "record_works": trials.recording.is_ok(),
            "checks": checks.iter().map(check).collect::<Vec<_>>(),
        }),
    )
}
