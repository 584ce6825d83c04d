//! The live list of a recording.
//!
//! A separate thread reads the profile as it is written, and looks up the names.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unspool_profile::{
    CodeLocation, CpuState, FunctionId, LocationName, NameResolver, NamedProfile, Profile,
    ProfileFrame, ProfileNames, ProfileReader, ProfileSample, SourceFrame, StackId, ThreadId,
    aggregate,
};
use unspool_symbols::{KernelSymbols, ModuleFinder, NameCache, NameDetail, Symbolizer};

use super::display::DisplayHandle;
use crate::commands::report::percent;
use crate::output::EscapedText;
use crate::text::fit::fit;

/// Writes a profile to its file, and sends a copy to the follower.
pub(super) struct TeeWriter {
    file: File,
    copies: Option<Sender<Vec<u8>>>,
}

impl TeeWriter {
    pub(super) fn new(file: File) -> TeeWriter {
        TeeWriter { file, copies: None }
    }

    /// Starts the follower, which updates the display.
    pub(super) fn read_along(&mut self, display: DisplayHandle) -> io::Result<Follower> {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new().name("live".into());
        let thread = thread.spawn(move || follow(&receiver, &display))?;
        self.copies = Some(sender);
        Ok(Follower {
            thread: Some(thread),
        })
    }
}

impl Write for TeeWriter {
    /// Writes all of it: the follower needs whole blocks.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.file.write_all(bytes) {
            // No more data will follow.
            self.copies = None;
            return Err(error);
        }
        if let Some(copies) = &self.copies {
            // A follower that has stopped gets no data.
            let _ = copies.send(bytes.to_vec());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads along until the profile is finished.
pub(super) struct Follower {
    thread: Option<JoinHandle<()>>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The profile has everything that it did not show.
            let _ = thread.join();
        }
    }
}

/// The shortest time between two updates of the list, and the same as a multiple of an update's own
/// duration: the target needs the CPUs.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(400);
const REFRESH_COST_FACTOR: u32 = 10;

fn follow(copies: &Receiver<Vec<u8>>, display: &DisplayHandle) {
    let Ok(first) = copies.recv() else { return };
    let Ok(mut reader) = ProfileReader::new(VecDeque::from(first)) else {
        return;
    };
    let mut seen = LiveProfile::default();
    let mut next = Instant::now();
    while let Ok(bytes) = copies.recv() {
        reader.source().extend(bytes);
        for more in copies.try_iter() {
            reader.source().extend(more);
        }
        if reader.read_more().is_err() {
            return;
        }
        seen.add(&reader.take_samples());
        let begun = Instant::now();
        if begun >= next {
            seen.look_up(reader.profile());
            display.show(seen.top(reader.profile()));
            next = Instant::now() + MIN_REFRESH_INTERVAL.max(begun.elapsed() * REFRESH_COST_FACTOR);
        }
    }
}

/// The samples so far.
#[derive(Default)]
struct LiveProfile {
    /// One sample for each stack of each thread, with their total weight.
    samples: HashMap<(StackId, ThreadId), ProfileSample>,
    names: LiveNames,
    /// The number of frames looked up.
    frames: usize,
}

/// The names found so far.
#[derive(Default)]
struct LiveNames {
    known: HashMap<CodeLocation, LocationName>,
}

impl NameResolver for LiveNames {
    fn name(&self, location: CodeLocation) -> LocationName {
        self.known.get(&location).cloned().unwrap_or_default()
    }
}

impl LiveProfile {
    fn add(&mut self, samples: &[ProfileSample]) {
        let on_cpu = samples
            .iter()
            .filter(|sample| sample.state == CpuState::OnCpu);
        for sample in on_cpu {
            let sum = self.samples.entry((sample.stack, sample.thread));
            sum.and_modify(|sum| sum.weight = sum.weight.saturating_add(sample.weight))
                .or_insert(*sample);
        }
    }

    /// Looks up the names of new frames.
    fn look_up(&mut self, profile: &Profile) {
        let new = profile.frames().get(self.frames..).unwrap_or_default();
        self.frames = profile.frames().len();
        if new.is_empty() {
            return;
        }
        let finder = ModuleFinder::from_environment().offline();
        let symbolizer = Symbolizer::new(finder, NameDetail::Functions);
        let symbolizer = symbolizer.with_threads(1);
        let names = ProfileNames::look_up_frames(profile, new, &symbolizer, &|_| {});
        let known = new
            .iter()
            .map(|frame| (frame.lookup, names.name(frame.lookup)));
        self.names.known.extend(known);
        self.look_up_kernel(new);
    }

    fn look_up_kernel(&mut self, new: &[ProfileFrame]) {
        let addresses = new.iter().filter_map(|frame| match frame.lookup {
            CodeLocation::Kernel(address) => Some(address),
            _ => None,
        });
        let addresses: Vec<_> = addresses.collect();
        if addresses.is_empty() {
            return;
        }
        let cache = NameCache::from_environment();
        let Ok(symbols) = KernelSymbols::covering(addresses.iter().copied(), cache.as_ref()) else {
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
                self.names.known.insert(CodeLocation::Kernel(address), name);
            }
        }
    }

    fn top(&self, profile: &Profile) -> LiveTop {
        let named = NamedProfile::new(profile, &self.names);
        let samples: Vec<&ProfileSample> = self.samples.values().collect();
        let all = aggregate::total(&samples);
        let functions = aggregate::functions(&named, &samples);
        let function = |weight: aggregate::Weight<FunctionId>| {
            let function = named.function(weight.key);
            LiveRow {
                own: percent(weight.own, all),
                total: percent(weight.total, all),
                name: function.map_or_else(String::new, ToString::to_string),
            }
        };
        let thread = |weight: aggregate::Weight<ThreadId>| {
            let thread = profile.thread(weight.key);
            let name = thread.map_or_else(String::new, |t| format!("{} ({})", t.name, t.tid));
            (percent(weight.own, all), name)
        };
        LiveTop {
            functions: functions.into_iter().take(MAX_ROWS).map(function).collect(),
            threads: (aggregate::threads(&samples).into_iter().take(MAX_ROWS))
                .map(thread)
                .collect(),
        }
    }
}

/// A line of the list, cut to the width.
fn row_of(width: usize, shares: String, name: &str) -> String {
    let room = width.saturating_sub(shares.len());
    shares + &fit(&EscapedText(name).to_string(), room)
}

/// The most functions, and the most threads, in the list.
const MAX_ROWS: usize = 200;

/// The heaviest functions and threads.
pub(super) struct LiveTop {
    functions: Vec<LiveRow>,
    threads: Vec<(f64, String)>,
}

struct LiveRow {
    own: f64,
    total: f64,
    name: String,
}

impl LiveTop {
    /// At most this many lines, of this many columns: functions, and below them threads.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let threads = self.threads.len().min(height / 4);
        let titles = 4;
        let functions = height.saturating_sub(threads + titles);
        let mut lines = vec![String::new(), "     own    total  function".to_owned()];
        lines.extend(self.functions.iter().take(functions).map(|row| {
            let LiveRow { own, total, name } = row;
            row_of(width, format!("{own:6.2} % {total:6.2} %  "), name)
        }));
        lines.extend([String::new(), "   share  thread".to_owned()]);
        let threads = self.threads.iter().take(threads);
        lines.extend(threads.map(|(share, name)| row_of(width, format!("{share:6.2} %  "), name)));
        lines.truncate(height);
        lines
    }
}
