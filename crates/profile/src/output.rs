//! The formats of other tools. Each is written from the samples of a [`View`].

pub mod firefox;
#[cfg(feature = "flamegraph")]
pub mod flamegraph;
pub mod folded;
pub mod html;
pub mod perf_script;
pub mod pprof;
pub mod speedscope;

use std::collections::{BTreeMap, HashMap};

use crate::model::{CpuState, Profile, ProfileSample, WeightUnit};
use crate::names::NamedProfile;

/// The data to write: some samples of a profile.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The profile, with its names.
    pub named: &'a NamedProfile<'a>,
    /// The samples.
    pub samples: Vec<&'a ProfileSample>,
}

impl View<'_> {
    /// Whether all weights are nanoseconds.
    #[must_use]
    pub fn is_time(&self) -> bool {
        let on_cpu = self.named.profile.meta().event.unit;
        let is_time = |sample: &&ProfileSample| sample.state == CpuState::OffCpu;
        on_cpu == WeightUnit::Nanoseconds || self.samples.iter().all(is_time)
    }

    /// The unit of the weights, for display.
    #[must_use]
    pub fn unit(&self) -> &str {
        if self.is_time() {
            "ns"
        } else {
            &self.named.profile.meta().event.name
        }
    }

    /// The command as typed, except for quotes; without one, the processes.
    #[must_use]
    pub fn title(&self) -> String {
        let profile = self.named.profile;
        match profile.meta().command.as_slice() {
            [] => title_of_processes(profile),
            command => command.join(" "),
        }
    }
}

/// The names and IDs of the processes; of many, only their number.
fn title_of_processes(profile: &Profile) -> String {
    /// The most processes to name.
    const MAX_NAMES: usize = 3;
    // A process has one entry for each program that it has run.
    let names = profile.processes().iter();
    let names: BTreeMap<u32, &str> = names.map(|own| (own.pid, &*own.name)).collect();
    match names.len() {
        0 => "no process".to_owned(),
        1..=MAX_NAMES => {
            let names = names.iter().map(|(pid, name)| format!("{name} ({pid})"));
            names.collect::<Vec<_>>().join(", ")
        }
        count => format!("{count} processes"),
    }
}

/// Distinct strings, in the order of their first use.
#[derive(Default)]
pub(crate) struct StringInterner {
    ids: HashMap<String, u32>,
    pub(crate) all: Vec<String>,
}

impl StringInterner {
    pub(crate) fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = crate::intern::number(self.all.len());
        self.ids.insert(text.to_owned(), id);
        self.all.push(text.to_owned());
        id
    }
}
