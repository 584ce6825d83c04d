//! `unspool doctor`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde_json::json;
use unspool_host::Remedy;

use crate::args::Format;
use crate::args::programs::DoctorArgs;
use crate::output::{self, EscapedText, ExitCodes};

mod checks;
mod trials;

use trials::Trials;

/// A property of this machine.
struct HostCheck {
    /// A stable identifier.
    code: &'static str,
    /// Its name in the text.
    subject: &'static str,
    /// Its current value; `None` for a setting that the kernel does not have.
    value: Option<String>,
    state: CheckState,
    /// Its consequences for each command.
    consequence: String,
    /// How to change it.
    remedy: Option<RemedyText>,
}

/// Whether a property is sufficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckState {
    /// Enough for every command.
    Ok,
    /// Some command does less, or does not work.
    Limited,
    /// `record CMD` does not work.
    Failed,
}

impl CheckState {
    fn name(self) -> &'static str {
        match self {
            CheckState::Ok => "ok",
            CheckState::Limited => "limited",
            CheckState::Failed => "failed",
        }
    }
}

/// A remedy, in words and as a command.
struct RemedyText {
    text: String,
    command: Option<String>,
}

impl From<Remedy> for RemedyText {
    fn from(remedy: Remedy) -> RemedyText {
        RemedyText {
            text: remedy.to_string(),
            command: remedy.command(),
        }
    }
}

impl HostCheck {
    fn ok(code: &'static str, subject: &'static str, value: impl Into<String>) -> HostCheck {
        HostCheck {
            code,
            subject,
            value: Some(value.into()),
            state: CheckState::Ok,
            consequence: String::new(),
            remedy: None,
        }
    }

    /// A setting of the kernel, by its name.
    fn setting(code: &'static str, name: &'static str, value: Option<impl ToString>) -> HostCheck {
        HostCheck {
            value: value.map(|value| value.to_string()),
            ..HostCheck::ok(code, name, "")
        }
    }

    fn limited(self, remedy: Option<impl Into<RemedyText>>) -> HostCheck {
        HostCheck {
            state: CheckState::Limited,
            remedy: remedy.map(Into::into),
            ..self
        }
    }

    /// Limited, unless the condition holds.
    fn limited_unless(self, is_well: bool, remedy: impl Into<RemedyText>) -> HostCheck {
        if is_well {
            self
        } else {
            self.limited(Some(remedy))
        }
    }

    fn consequence(self, consequence: impl Into<String>) -> HostCheck {
        HostCheck {
            consequence: consequence.into(),
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
        Err(_) => ExitCode::from(ExitCodes::FINDINGS),
    })
}

fn text(checks: &[HostCheck]) -> io::Result<()> {
    let mut out = output::text();
    for check in checks {
        let (state, subject) = (check.state.name(), check.subject);
        let value = check.value.as_deref().unwrap_or("not there");
        writeln!(out, "{state:8} {subject}: {}", EscapedText(value))?;
        if !check.consequence.is_empty() {
            writeln!(out, "{:8} {}", "", EscapedText(&check.consequence))?;
        }
        // The error's text includes it already.
        let remedy = check.remedy.as_ref().map(|remedy| &remedy.text);
        if let Some(remedy) = remedy.filter(|text| !check.consequence.contains(text.as_str())) {
            writeln!(out, "{:8} to change that: {}", "", EscapedText(remedy))?;
        }
    }
    out.flush()
}

fn json(checks: &[HostCheck], trials: &Trials) -> io::Result<()> {
    let check = |check: &HostCheck| {
        json!({
            "code": check.code,
            "subject": check.subject,
            "value": check.value,
            "state": check.state.name(),
            "consequence": check.consequence,
            "remedy": check.remedy.as_ref().map(|remedy| &remedy.text),
            "command": check.remedy.as_ref().and_then(|remedy| remedy.command.as_ref()),
        })
    };
    output::document(
        "doctor",
        &json!({
            "can_record": trials.recording.is_ok(),
            "checks": checks.iter().map(check).collect::<Vec<_>>(),
        }),
    )
}
