//! The formats of other tools. Each is written from the samples of a [`View`].

pub mod firefox;
#[cfg(feature = "flamegraph")]
pub mod flamegraph;
pub mod folded;
pub mod html;
pub mod perf_script;
pub mod pprof;
pub mod speedscope;

use std::collections::HashMap;

use crate::model::{CpuState, ProfileSample, WeightUnit};
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

    /// The command as typed, except for quotes; the event if there was none.
    #[must_use]
    pub fn title(&self) -> String {
        let meta = self.named.profile.meta();
        if meta.command.is_empty() {
            "what was running".to_owned()
        } else {
            meta.command.join(" ")
        }
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
