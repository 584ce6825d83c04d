//! What is said of a recording, as it comes or as one document at the end.

use std::fmt::Display;
use std::io;

use serde_json::json;
use unspool_perf::Event;
use unspool_profile::{Grouped, share};
use unspool_sampling::{Summary, Totals};

use crate::args::{Format, RecordArgs};
use crate::commands::{exit_code, report};
use crate::output::{self, Layout};

/// How many files are named that could not be used.
const MOST_FILES: usize = 10;

/// What was said so far.
pub(super) struct Told<'a> {
    args: &'a RecordArgs,
    /// Of the document, which is written at the end.
    notices: Vec<String>,
}

impl<'a> Told<'a> {
    pub(super) fn new(args: &'a RecordArgs) -> Told<'a> {
        Told {
            args,
            notices: Vec::new(),
        }
    }

    /// Says something worth knowing.
    pub(super) fn notice(&mut self, notice: &dyn Display) {
        match self.args.format {
            _ if self.args.quiet => {}
            Format::Text => output::notice(notice),
            Format::Json => self.notices.push(notice.to_string()),
        }
    }

    /// Says what the recording came to, and what the profile that was written lacks.
    pub(super) fn end(mut self, summary: &Summary, event: &Event) -> io::Result<()> {
        if self.args.quiet {
            return Ok(());
        }
        if self.args.format == Format::Text {
            self.summary(summary);
        }
        for problem in summary.unusable.iter().take(MOST_FILES) {
            self.notice(&output::with_causes(&**problem));
        }
        if summary.totals.lost > 0 {
            self.notice(
                &"samples were lost because the machine was too busy to take them in time: ask for fewer (-F)",
            );
        }
        match self.args.format {
            Format::Text => Ok(()),
            Format::Json => self.document(summary, event),
        }
    }

    fn summary(&mut self, summary: &Summary) {
        let totals = &summary.totals;
        let lost = match totals.lost {
            0 => String::new(),
            lost => format!(", {} lost", Grouped(lost)),
        };
        self.notice(&format_args!(
            "{}: {} samples in {:.1} s{lost}",
            self.args.output.display(),
            Grouped(totals.samples),
            summary.elapsed.as_secs_f64(),
        ));
        self.notice(&summary.completeness.summary());
        for advice in summary.completeness.advice() {
            self.notice(&advice);
        }
    }

    /// Standard output is the command's if there is one; then it is the last line of standard error.
    fn document(&self, summary: &Summary, event: &Event) -> io::Result<()> {
        let totals = &summary.totals;
        let command = self.args.cmd.iter().map(|word| word.to_string_lossy());
        let body = json!({
            "profile": self.args.output.to_string_lossy(),
            "command": command.collect::<Vec<_>>(),
            "status": summary.status.and_then(exit_code),
            "event": event.name(),
            "seconds": summary.elapsed.as_secs_f64(),
            "samples": totals.samples,
            "lost": totals.lost,
            "damaged": summary.damaged,
            "completeness": report::complete(&summary.completeness),
            "notices": self.notices,
        });
        match self.args.cmd.is_empty() {
            true => output::document("record", &body),
            false => output::write_document(&mut io::stderr(), Layout::Line, "record", &body),
        }
    }
}

/// How many of the stacks are complete.
pub(super) fn complete(totals: &Totals) -> String {
    match totals.samples - totals.without_stack {
        0 => "none".to_owned(),
        stacks => share(totals.complete, stacks),
    }
}
