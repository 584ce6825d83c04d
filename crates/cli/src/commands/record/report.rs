//! The messages about a recording: as they occur, or as one document at the end.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use serde_json::json;
use unspool_perf_events::PerfEvent;
use unspool_process::signal_name;
use unspool_profile::{Completeness, GroupedDigits, share};
use unspool_sampler::{ChildProcess, HandOver, RecordSummary, WalkSummary};

use crate::args::Format;
use crate::args::programs::RecordArgs;
use crate::commands::{exit_code, report};
use crate::output::{self, JsonLayout};

/// The default profile of `unspool report`.
const DEFAULT_PROFILE: &str = "unspool.prof";

/// The signals of programs that crash.
const CRASHES: [i32; 6] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// The most unusable files to name.
const MAX_FILES_NAMED: usize = 10;

/// The most remaining processes to name.
const MAX_PROCESSES_NAMED: usize = 10;

/// The messages so far.
pub(super) struct RecordReport<'a> {
    args: &'a RecordArgs,
    /// Where the profile is: another recording may have renamed it.
    pub(super) path: PathBuf,
    /// Whether the kernel's work is left out, because this user may not see it.
    pub(super) without_kernel: bool,
    /// For the document, which is written at the end.
    notices: Vec<String>,
}

impl<'a> RecordReport<'a> {
    pub(super) fn new(args: &'a RecordArgs) -> RecordReport<'a> {
        RecordReport {
            args,
            path: args.output.clone(),
            without_kernel: false,
            notices: Vec::new(),
        }
    }

    /// Prints a notice.
    pub(super) fn notice(&mut self, notice: &dyn Display) {
        match self.args.format {
            _ if self.args.quiet => {}
            Format::Text => output::notice(notice),
            Format::Json => self.notices.push(notice.to_string()),
        }
    }

    /// Reports that the profile cannot be written any more.
    pub(super) fn cannot_write(&mut self, error: &io::Error, command_goes_on: bool) {
        let path = self.args.output.display();
        output::error(&format_args!(
            "{path}: cannot write the profile; what it has so far can be read: {error}"
        ));
        if command_goes_on {
            self.notice(&"the command continues, and is no longer recorded");
        }
    }

    /// Reports the result of the recording, and what is missing in the profile.
    pub(super) fn end(mut self, summary: &RecordSummary, event: &PerfEvent) -> io::Result<()> {
        if self.args.quiet {
            return Ok(());
        }
        if self.args.format == Format::Text {
            self.summary(summary);
        }
        for problem in summary.unusable.iter().take(MAX_FILES_NAMED) {
            self.notice(&output::with_causes(&**problem));
        }
        for nothing in &summary.unmatched_arguments {
            self.notice(nothing);
        }
        if !summary.still_running.is_empty() {
            self.notice(&still_running(&summary.still_running));
        }
        if summary.completeness.lost > 0 {
            self.notice(&format_args!(
                "samples were lost: the machine was too busy: {}",
                summary.completeness.rate.remedy()
            ));
        }
        if summary.lost_task_records > 0 {
            self.notice(&format_args!(
                "{} records of mappings and processes were lost: the machine was too busy: what \
                 they say was read from /proc, and a stack can lack frames",
                GroupedDigits(summary.lost_task_records)
            ));
        }
        if summary.cut_jitdumps > 0 {
            self.notice(&format_args!(
                "{} jitdumps exceed a limit (docs/security.md): later code has no names",
                GroupedDigits(summary.cut_jitdumps)
            ));
        }
        let signal = summary.status.and_then(|status| status.signal());
        if let Some(name) = signal
            .filter(|signal| CRASHES.contains(signal))
            .and_then(signal_name)
        {
            self.notice(&format_args!(
                "the command was killed by {name}: `unspool stack -- CMD` shows where"
            ));
        }
        if summary.completeness.samples() == 0 {
            self.notice(&self.why_empty(summary));
        }
        let waits = if self.args.off_cpu { " --by wait" } else { "" };
        match self.args.format {
            Format::Text if summary.completeness.samples() == 0 => {}
            Format::Text => self.notice(&format_args!(
                "next: unspool report{waits}{}",
                self.profile()
            )),
            Format::Json => self.document(summary, event)?,
        }
        Ok(())
    }

    /// Why there are no samples, and the remedy.
    fn why_empty(&self, summary: &RecordSummary) -> String {
        let (what, remedy) = match (&self.args.event, self.args.off_cpu) {
            (Some(event), false) if self.without_kernel => (
                format!("no {event} in user mode while it was recorded"),
                "this user may not count the kernel's: `unspool doctor` shows how to change that",
            ),
            (Some(event), false) => (
                format!("no {event} while it was recorded"),
                "choose another event with -e",
            ),
            (_, true) => (
                "it neither ran nor woke up while it was recorded".to_owned(),
                "`unspool stack PID` shows where it is now",
            ),
            (None, false) if self.args.is_of_command() && summary.status.is_some() => (
                format!(
                    "the command used the processor too briefly, in {:.1} s",
                    summary.elapsed.as_secs_f64()
                ),
                "--off-cpu shows where it waits, -F max takes the most samples",
            ),
            (None, false) => (
                "it did not run while it was recorded".to_owned(),
                "--off-cpu shows where it waits, `unspool stack PID` where it is now",
            ),
        };
        format!("no samples: {what}: {remedy}")
    }

    /// The profile as an argument of commands that would not find it by default.
    fn profile(&self) -> String {
        let path = self.path.to_string_lossy();
        let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
        match &*path {
            DEFAULT_PROFILE => String::new(),
            path if path.chars().all(is_plain) => format!(" {path}"),
            path => format!(" '{}'", path.replace('\'', r"'\''")),
        }
    }

    fn summary(&mut self, summary: &RecordSummary) {
        let completeness = &summary.completeness;
        let lost = match completeness.lost {
            0 => String::new(),
            lost => format!(", {} lost", GroupedDigits(lost)),
        };
        let path = self.path.clone();
        self.notice(&format_args!(
            "{}: {} sample{} in {:.1} s{lost}",
            path.display(),
            GroupedDigits(completeness.samples()),
            if completeness.samples() == 1 { "" } else { "s" },
            summary.elapsed.as_secs_f64(),
        ));
        if completeness.samples() > 0 {
            self.notice(&completeness.summary());
        }
        if let Some(walks) = &summary.walks {
            let walked = share(walks.counts.complete, walks.counts.all().max(1));
            let missed = match walks.missed {
                0 => String::new(),
                missed => format!(
                    "; it took {} samples fewer than it counted",
                    GroupedDigits(missed)
                ),
            };
            let counts = &walks.counts;
            let why = HandOver::ALL
                .into_iter()
                .max_by_key(|why| counts.count(*why));
            let others = match why {
                Some(why) if counts.count(why) * 10 > counts.all() => {
                    format!(
                        ", {} not: {}",
                        share(counts.count(why), counts.all()),
                        why.description()
                    )
                }
                _ => String::new(),
            };
            self.notice(&format_args!(
                "{walked} of stacks were walked in the kernel{others}{missed}"
            ));
        }
        for advice in completeness.advice() {
            self.notice(&advice);
        }
        if let Some(advice) = completeness.interpreter_advice() {
            self.notice(&advice);
        }
    }

    /// With a command, standard output is the command's: the document is then the last line of
    /// standard error.
    fn document(&self, summary: &RecordSummary, event: &PerfEvent) -> io::Result<()> {
        let completeness = &summary.completeness;
        let command = self.args.cmd.iter().map(|word| word.to_string_lossy());
        let body = json!({
            "profile": self.path.to_string_lossy(),
            "command": command.collect::<Vec<_>>(),
            "exit_status": summary.status.and_then(exit_code),
            "event": event.name(),
            "duration_seconds": summary.elapsed.as_secs_f64(),
            "samples": completeness.samples(),
            "lost_records": completeness.lost,
            "lost_task_records": summary.lost_task_records,
            "unreadable_records": summary.damaged,
            "cut_jitdumps": summary.cut_jitdumps,
            "error": summary.failure.as_ref().map(ToString::to_string),
            "completeness": report::complete(completeness),
            "walks": summary.walks.as_ref().map(walks),
            "notices": self.notices,
        });
        if self.args.cmd.is_empty() {
            output::document("record", &body)
        } else {
            output::write_document(&mut io::stderr(), JsonLayout::Line, "record", &body)
        }
    }
}

/// The numbers of walks in the kernel, and why others were handed over.
fn walks(summary: &WalkSummary) -> serde_json::Value {
    let counts = &summary.counts;
    let reasons = HandOver::ALL
        .into_iter()
        .filter(|reason| counts.count(*reason) > 0);
    let reasons = reasons.map(|reason| (reason.name(), counts.count(reason)));
    json!({
        "complete": counts.complete,
        "outdated": summary.outdated,
        "missed": summary.missed,
        "tables_without_room": summary.tables_without_room,
        "frames": counts.frames,
        "nanoseconds": counts.nanoseconds,
        "longest_nanoseconds": counts.longest_ns,
        "compared": summary.comparison.compared,
        "different": summary.comparison.described,
        "handed_over": reasons.collect::<BTreeMap<_, _>>(),
    })
}

/// The number of complete stacks.
pub(super) fn complete(completeness: &Completeness) -> String {
    match completeness.stacks() {
        0 => "none".to_owned(),
        stacks => share(completeness.complete, stacks),
    }
}

/// The processes that still run, and how to record them.
fn still_running(processes: &[ChildProcess]) -> String {
    let shown = processes.iter().take(MAX_PROCESSES_NAMED);
    let names: Vec<_> = (shown.clone())
        .map(|process| format!("{} ({})", process.name, process.pid))
        .collect();
    let pids: Vec<_> = shown.map(|process| process.pid.to_string()).collect();
    let others = match processes.len() - names.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let (what, them) = match processes.len() {
        1 => ("a process that started meanwhile goes on, and is", "it"),
        _ => ("processes that started meanwhile go on, and are", "them"),
    };
    let (names, pids) = (names.join(", "), pids.join(","));
    format!("{what} not recorded any more: {names}{others}: record {them} with -p {pids}")
}
