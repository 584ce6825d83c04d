//! A profile while it is recorded: its samples so far, and the names of their code.

use std::collections::HashMap;

use unspool_symbols::{KernelSymbols, NameCache, Symbolizer};

use crate::model::{CodeLocation, CpuState, Profile, ProfileFrame, ProfileSample, ThreadId};
use crate::names::{LocationName, NameResolver, NamedProfile, SourceFrame};
use crate::profile_names::ProfileNames;
use crate::stacks::StackId;

/// The samples on a CPU so far, one for each stack of each thread with their total weight, and the
/// names of their code. It grows with the profile's frames, and takes constant time for a sample.
#[derive(Debug, Default)]
pub struct LiveProfile {
    samples: HashMap<(StackId, ThreadId), ProfileSample>,
    names: LiveNames,
    /// The number of frames looked up.
    frames: usize,
}

/// The names found so far.
#[derive(Debug, Default)]
struct LiveNames(HashMap<CodeLocation, LocationName>);

impl NameResolver for LiveNames {
    fn name(&self, location: CodeLocation) -> LocationName {
        self.0.get(&location).cloned().unwrap_or_default()
    }
}

impl LiveProfile {
    /// Adds samples of the profile.
    pub fn add(&mut self, samples: &[ProfileSample]) {
        let is_on_cpu = |sample: &&ProfileSample| sample.state == CpuState::OnCpu;
        for sample in samples.iter().filter(is_on_cpu) {
            let sum = self.samples.entry((sample.stack, sample.thread));
            sum.and_modify(|sum| sum.weight = sum.weight.saturating_add(sample.weight))
                .or_insert(*sample);
        }
    }

    /// Looks up the names of the frames that are new in the profile since the last call. The
    /// kernel's are those of the running one, from its cache if there is one.
    pub fn look_up(
        &mut self,
        profile: &Profile,
        symbolizer: &Symbolizer,
        kernel_cache: Option<&NameCache>,
    ) {
        let new = profile.frames().get(self.frames..).unwrap_or_default();
        self.frames = profile.frames().len();
        if new.is_empty() {
            return;
        }
        let names = ProfileNames::look_up_frames(profile, new, symbolizer, &|_| {});
        let known = new
            .iter()
            .map(|frame| (frame.lookup, names.name(frame.lookup)));
        self.names.0.extend(known);
        self.look_up_kernel(new, kernel_cache);
    }

    fn look_up_kernel(&mut self, new: &[ProfileFrame], cache: Option<&NameCache>) {
        let addresses = new.iter().filter_map(|frame| match frame.lookup {
            CodeLocation::Kernel(address) => Some(address),
            _ => None,
        });
        let addresses: Vec<_> = addresses.collect();
        if addresses.is_empty() {
            return;
        }
        let Ok(symbols) = KernelSymbols::covering(addresses.iter().copied(), cache) else {
            return;
        };
        for address in addresses {
            if let Some(symbol) = symbols.get(address) {
                let function = SourceFrame {
                    function: symbol.name.to_owned(),
                    ..SourceFrame::default()
                };
                let name = LocationName {
                    functions: vec![function],
                    start: Some(symbol.address.0),
                    symbol_hash: Some(0),
                };
                self.names.0.insert(CodeLocation::Kernel(address), name);
            }
        }
    }

    /// The profile with the names so far.
    #[must_use]
    pub fn named<'p>(&self, profile: &'p Profile) -> NamedProfile<'p> {
        NamedProfile::new(profile, &self.names)
    }

    /// The samples: one for each stack of each thread.
    pub fn samples(&self) -> impl Iterator<Item = &ProfileSample> {
        self.samples.values()
    }
}
