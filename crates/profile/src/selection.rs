//! The selection of samples.

use std::ops::Range;

use crate::model::{CpuState, Profile, ProfileProcess, ProfileSample, ProfileThread, Time};
use crate::names::NamedProfile;
use crate::wait::{WaitReason, WaitReasons};

/// A selection of samples: those that pass all conditions.
#[derive(Default)]
pub struct Selection<'a> {
    /// Samples of these threads, by ID or name; of all if empty.
    pub threads: Vec<String>,
    /// Samples of these processes, by ID or name; of all if empty.
    pub processes: Vec<String>,
    /// Samples in this time range.
    pub time: Option<Range<Time>>,
    /// On-CPU or off-CPU samples.
    pub state: Option<CpuState>,
    /// Samples of threads that wait for one of these; all if empty.
    pub waits: Vec<WaitReason>,
    /// Samples with a frame in a module whose name, without folders, passes this.
    pub module: Option<NamePredicate<'a>>,
    /// Samples with a frame in a function whose name passes this.
    pub function: Option<NamePredicate<'a>>,
}

/// Whether a name is selected.
pub type NamePredicate<'a> = Box<dyn Fn(&str) -> bool + 'a>;

impl std::fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selection").finish_non_exhaustive()
    }
}

impl Selection<'_> {
    /// The selected samples of a profile, in its order.
    #[must_use]
    pub fn samples<'p>(&self, named: &NamedProfile<'p>) -> Vec<&'p ProfileSample> {
        let profile = named.profile;
        let thread = |thread: &ProfileThread| self.is_meant(profile, thread);
        let threads: Vec<bool> = profile.threads().iter().map(thread).collect();
        let stacks = self.stacks(named);
        let waits = (!self.waits.is_empty()).then(|| WaitReasons::new(named));
        let is_meant = |sample: &&ProfileSample| {
            let in_time = self.time.as_ref().is_none_or(|t| t.contains(&sample.time));
            let in_state = self.state.is_none_or(|state| state == sample.state);
            let in_thread = threads.get(sample.thread.0 as usize) == Some(&true);
            let in_stack = stacks
                .as_ref()
                .is_none_or(|stacks| stacks.get(sample.stack.0 as usize) == Some(&[true, true]));
            let in_wait = || {
                let reason = waits.as_ref().map(|waits| waits.get(sample));
                reason.is_none_or(|reason| reason.is_some_and(|it| self.waits.contains(&it)))
            };
            in_time && in_state && in_thread && in_stack && in_wait()
        };
        profile.samples().iter().filter(is_meant).collect()
    }

    fn is_meant(&self, profile: &Profile, thread: &ProfileThread) -> bool {
        let named = |words: &[String], name: &str, number: u32| {
            let is_it = |word: &String| word == name || *word == number.to_string();
            words.is_empty() || words.iter().any(is_it)
        };
        let in_process =
            |process: &ProfileProcess| named(&self.processes, &process.name, process.pid);
        named(&self.threads, &thread.name, thread.tid)
            && profile.process(thread.process).is_some_and(in_process)
    }

    /// For each stack, whether it has a frame in a selected module, and one in a selected function;
    /// `None` without such conditions.
    fn stacks(&self, named: &NamedProfile<'_>) -> Option<Vec<[bool; 2]>> {
        if self.module.is_none() && self.function.is_none() {
            return None;
        }
        let passes = |predicate: &Option<NamePredicate<'_>>, name: &str| {
            predicate.as_ref().is_none_or(|test| test(name))
        };
        let functions: Vec<bool> = (named.functions().iter())
            .map(|function| {
                let names = [&function.name, function.plain_name()];
                names.iter().any(|name| passes(&self.function, name))
            })
            .collect();
        let frames: Vec<[bool; 2]> = (0..crate::intern::number(named.profile.frames().len()))
            .map(|id| {
                let id = crate::model::FrameId(id);
                let mut lines = named.lines_of(id).iter();
                let is_meant = |n: u32| functions.get(n as usize) == Some(&true);
                let in_function = lines.any(|line| is_meant(line.function.0));
                [passes(&self.module, named.module_of(id)), in_function]
            })
            .collect();
        let mut stacks = vec![[self.module.is_none(), self.function.is_none()]];
        for node in named.profile.stacks().nodes() {
            let [module, function] = frames.get(node.frame.0 as usize).copied()?;
            let [m, f] = stacks.get(node.parent.0 as usize).copied()?;
            stacks.push([m || module, f || function]);
        }
        Some(stacks)
    }
}
