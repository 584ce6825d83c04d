//! The live list of a recording.
//!
//! A separate thread reads the profile as it is written, and looks up the names.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unspool_profile::{
    FunctionId, LiveProfile, Profile, ProfileReader, ProfileSample, ThreadId, aggregate,
};
use unspool_symbols::{ModuleFinder, NameCache, NameDetail, Symbolizer};

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
    let mut live = LiveProfile::default();
    let mut next = Instant::now();
    while let Ok(bytes) = copies.recv() {
        reader.source().extend(bytes);
        for more in copies.try_iter() {
            reader.source().extend(more);
        }
        if reader.read_more().is_err() {
            return;
        }
        live.add(&reader.take_samples());
        let begun = Instant::now();
        if begun >= next {
            let profile = reader.profile();
            live.look_up(
                profile,
                &symbolizer(),
                NameCache::from_environment().as_ref(),
            );
            display.show(top(&live, profile));
            next = Instant::now() + MIN_REFRESH_INTERVAL.max(begun.elapsed() * REFRESH_COST_FACTOR);
        }
    }
}

/// Names of functions from files that are on this machine, in one thread: the target needs the CPUs.
fn symbolizer() -> Symbolizer {
    let finder = ModuleFinder::from_environment().offline();
    Symbolizer::new(finder, NameDetail::Functions).with_threads(1)
}

/// The heaviest functions and threads of the samples so far.
fn top(live: &LiveProfile, profile: &Profile) -> LiveTop {
    let named = live.named(profile);
    let samples: Vec<&ProfileSample> = live.samples().collect();
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
