//! Advice on stacks that do not reach their root.

use std::fmt;
use std::path::Path;

use crate::completeness::{Completeness, IncompleteReason, share};
use crate::model::{CodeLocation, StackEnd};
use crate::names::short_name;
use crate::runtime::Runtime;

/// Advice on stacks that end for one reason in one module.
#[derive(Debug, Clone, Copy)]
pub struct Advice<'a> {
    /// The reason, and the number of samples with it.
    pub reason: IncompleteReason<'a>,
    /// All samples.
    completeness: &'a Completeness,
}

/// Per mille of stacks: below the first, no advice is given, and below the second, a reason is not
/// worth a line.
const MIN_INCOMPLETE_PER_MILLE: u64 = 10;
const MIN_REASON_PER_MILLE: u64 = 1;

/// The most pieces of advice.
const MAX_ADVICE: usize = 4;

impl Completeness {
    /// Advice on the most frequent reasons for incomplete stacks; empty if fewer than 1 % of stacks
    /// are incomplete.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice<'_>> {
        let stacks = self.stacks();
        let is_more = |samples: u64, thousandths: u64| {
            u128::from(samples) * 1000 >= u128::from(stacks) * u128::from(thousandths)
        };
        if stacks == 0 || !is_more(self.incomplete(), MIN_INCOMPLETE_PER_MILLE) {
            return Vec::new();
        }
        let worth = (self.reasons().into_iter()).filter(|reason| {
            reason.end != StackEnd::Limit && is_more(reason.samples, MIN_REASON_PER_MILLE)
        });
        let advice = worth.map(|reason| Advice {
            reason,
            completeness: self,
        });
        advice.take(MAX_ADVICE).collect()
    }
}

impl Completeness {
    /// Advice on code that programs made at run time and that has no name: this many samples are in
    /// it. `None` for fewer than 1 % of all.
    #[must_use]
    pub fn unnamed_code_advice(&self, unnamed: u64) -> Option<String> {
        let is_more = u128::from(unnamed) * 100 >= u128::from(self.samples());
        let share = share(unnamed, self.samples());
        let options = self.options(|runtime| Some(runtime.names_option()));
        (unnamed > 0 && is_more).then(|| {
            format!(
                "{share} of samples are in code made at run time that has no name: its maker must write a perf map or a jitdump{options}"
            )
        })
    }

    /// Advice on an interpreter that most samples are in, if it can make its functions frames.
    /// `None` if it seems to do so.
    #[must_use]
    pub fn interpreter_advice(&self) -> Option<String> {
        let stacks = self.stacks();
        let (runtime, samples) = self.runtimes.iter().max_by_key(|(_, samples)| **samples)?;
        let option = runtime.functions_option().filter(|_| {
            !self.has_generated_code && u128::from(*samples) * 2 > u128::from(stacks)
        })?;
        let (share, name) = (share(*samples, stacks), runtime.name());
        Some(format!(
            "{share} of stacks are within {name}'s interpreter: {option} shows {name}'s functions by name"
        ))
    }

    /// The options of the runtimes that were found, in parentheses.
    fn options(&self, option: impl Fn(Runtime) -> Option<&'static str>) -> String {
        let found = self.runtimes.keys().filter_map(|runtime| {
            let option = option(*runtime)?;
            Some(format!("{}: {option}", runtime.name()))
        });
        match found.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            options => format!(" ({options})"),
        }
    }
}

impl Advice<'_> {
    /// The remedy.
    #[must_use]
    pub fn text(&self) -> String {
        let path = self
            .reason
            .module
            .map_or(Path::new("?"), |module| &module.path);
        let (name, path) = (short_name(path), path.display());
        let at = self.reason.location.map_or(0, CodeLocation::address);
        match self.reason.end {
            StackEnd::NoModule => {
                let options = self.completeness.options(Runtime::stacks_option);
                format!("code that a program makes at run time must keep frame pointers{options}")
            }
            StackEnd::NoFile => format!(
                "{name} could not be read: if it was replaced or deleted, restart its program; if it is another user's or in a container, record as root"
            ),
            StackEnd::NoTable => format!(
                "build {name} with its unwind table (-fasynchronous-unwind-tables, and .eh_frame not stripped), or \
                 with -fno-omit-frame-pointer"
            ),
            StackEnd::Hole => format!(
                "the unwind table of {name} has a hole at {at:#x}: assembly needs .cfi directives, C needs -fasynchronous-unwind-tables (musl is mostly built without) or a frame pointer"
            ),
            StackEnd::Pending => format!(
                "rows for the code of {name} were still being made: they are kept, so the next recording has them"
            ),
            StackEnd::BadEntry => format!(
                "the unwind table of {name} is bad at {at:#x}: `unspool verify {path}` says what is wrong"
            ),
            StackEnd::CorruptTable => format!(
                "the compiled table of {name} is damaged: `unspool compile {path}` makes a new one"
            ),
            StackEnd::NotCopied if self.completeness.is_of_perf => {
                "perf copied too little of the stacks: `perf record --call-graph dwarf,65528` copies more".to_owned()
            }
            StackEnd::CallChain => {
                "perf recorded chains of frame pointers, which do not say whether they reach the root: `perf record --call-graph dwarf,65528` records stacks".to_owned()
            }
            StackEnd::NotCopied => {
                "the kernel copies at most 64 KiB of a stack, and the frames beyond were not found: move large variables off the stack; `unspool stack PID` shows whole stacks"
                    .to_owned()
            }
            StackEnd::CodeReplaced => {
                "the process replaced code (`exec`, `dlclose`) while the kernel walked its stack: `record --unwind copy` has these stacks".to_owned()
            }
            _ => format!(
                "the unwind table of {name} leads nowhere from {at:#x}, which `unspool show --pc {at:#x} {path}` \
                 shows; a program that makes stacks must mark their ends"
            ),
        }
    }
}

/// The same with the number of stacks.
impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = share(self.reason.samples, self.completeness.stacks());
        write!(f, "for {share} of stacks: {}", self.text())
    }
}
