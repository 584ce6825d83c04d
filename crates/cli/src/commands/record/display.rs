//! The terminal display during a recording.
//!
//! A separate thread draws, so that the recorder never waits for a terminal.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use unspool_profile::GroupedDigits;
use unspool_sampler::RecordProgress;

use super::live::LiveTop;
use super::report::complete;
use crate::output::EscapedText;

/// The data to display.
#[derive(Default)]
struct DisplayState {
    progress: Option<RecordProgress>,
    top: Option<Arc<LiveTop>>,
    is_over: bool,
}

/// The state shared by the recorder and the drawing thread.
#[derive(Default)]
struct SharedState {
    state: Mutex<DisplayState>,
    changed: Condvar,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, DisplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DisplayMode {
    /// One line.
    Line,
    /// A list that fills the terminal.
    Screen,
}

/// A terminal on standard error that shows the progress of a recording.
pub(super) struct Display {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
}

/// Access to the displayed data for other threads.
#[derive(Clone)]
pub(super) struct DisplayHandle(Arc<SharedState>);

impl DisplayHandle {
    pub(super) fn show(&self, top: LiveTop) {
        self.0.state().top = Some(Arc::new(top));
    }
}

impl Display {
    /// Whether there is a terminal that can be drawn on.
    pub(super) fn is_possible() -> bool {
        io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Starts to draw, on each update.
    pub(super) fn begin(mode: DisplayMode) -> io::Result<Display> {
        let shared = Arc::new(SharedState::default());
        let drawn = Arc::clone(&shared);
        let thread = thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || match mode {
            DisplayMode::Line => draw(&drawn, &mut LineDisplay::default()),
            DisplayMode::Screen => draw(&drawn, &mut ScreenDisplay::begin()),
        })?;
        Ok(Display {
            shared,
            thread: Some(thread),
        })
    }

    /// Access for the source of the list.
    pub(super) fn handle(&self) -> DisplayHandle {
        DisplayHandle(Arc::clone(&self.shared))
    }

    /// Updates the progress. Does not wait.
    pub(super) fn progress(&self, progress: RecordProgress) {
        self.shared.state().progress = Some(progress);
        self.shared.changed.notify_one();
    }
}

/// Leaves the terminal as it was.
impl Drop for Display {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A failure to draw does not matter any more.
            let _ = thread.join();
        }
    }
}

/// A style of drawing; its output is erased when it is dropped.
trait Draw {
    fn draw(&mut self, status: &str, top: Option<&LiveTop>);
}

fn draw(shared: &SharedState, by: &mut impl Draw) {
    let mut last = None;
    loop {
        let mut state = shared.state();
        while state.progress.is_none() && !state.is_over {
            let waited = shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over {
            return;
        }
        let (progress, top) = (state.progress.take(), state.top.clone());
        drop(state);
        if let Some(progress) = progress {
            by.draw(&status(&progress, last.as_ref()), top.as_deref());
            last = Some(progress);
        }
    }
}

/// One line: the time, the number of samples, the rate, the incomplete stacks.
fn status(now: &RecordProgress, last: Option<&RecordProgress>) -> String {
    let (before, since) = last.map_or((0, Duration::ZERO), |last| {
        (last.completeness.samples(), last.elapsed)
    });
    let samples = now.completeness.samples();
    let new = samples.saturating_sub(before);
    let millis = now.elapsed.saturating_sub(since).as_millis().max(1);
    let rate = u128::from(new) * 1000 / millis;
    format!(
        "{} s: {} samples ({}/s), {} lost, {} complete",
        now.elapsed.as_secs(),
        GroupedDigits(samples),
        GroupedDigits(u64::try_from(rate).unwrap_or(u64::MAX)),
        GroupedDigits(now.completeness.lost),
        complete(&now.completeness)
    )
}

/// The size of the terminal in columns and rows.
fn size() -> (usize, usize) {
    terminal_size::terminal_size_of(io::stderr()).map_or((80, 24), |(width, height)| {
        (width.0.into(), height.0.into())
    })
}

/// Writes to the terminal; if it is gone, nothing is shown.
fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The part of a text that fits into a line.
fn cut(text: &str, width: usize) -> String {
    let text = EscapedText(text).to_string();
    if text.chars().count() <= width {
        text
    } else {
        let cut: String = text.chars().take(width.saturating_sub(1)).collect();
        cut + "…"
    }
}

/// A line that is redrawn.
#[derive(Default)]
struct LineDisplay {
    turn: usize,
}

const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

impl Draw for LineDisplay {
    fn draw(&mut self, status: &str, _: Option<&LiveTop>) {
        let spinner = SPINNER.iter().cycle().nth(self.turn % SPINNER.len());
        self.turn += 1;
        let line = format!("{} {status}", spinner.unwrap_or(&' '));
        // In the last column, some terminals go to the next line.
        let (width, _) = size();
        write(&format!("\r{}\x1b[K", cut(&line, width.saturating_sub(1))));
    }
}

impl Drop for LineDisplay {
    fn drop(&mut self) {
        if self.turn > 0 {
            write("\r\x1b[K");
        }
    }
}

/// The terminal's alternate screen, which preserves the first one.
struct ScreenDisplay {
    is_bold: bool,
}

impl ScreenDisplay {
    fn begin() -> ScreenDisplay {
        write("\x1b[?1049h");
        ScreenDisplay {
            is_bold: AutoStream::choice(&io::stderr()) != ColorChoice::Never,
        }
    }
}

impl Drop for ScreenDisplay {
    fn drop(&mut self) {
        write("\x1b[?1049l");
    }
}

impl Draw for ScreenDisplay {
    fn draw(&mut self, status: &str, top: Option<&LiveTop>) {
        let (width, height) = size();
        let mut lines = vec![format!("unspool record, {status}; Ctrl-C ends it")];
        match top {
            Some(top) => lines.extend(top.lines(width, height.saturating_sub(lines.len()))),
            None => lines.push("finding names …".to_owned()),
        }
        let mut text = "\x1b[H".to_owned();
        for (n, line) in lines.iter().take(height).enumerate() {
            let line = cut(line, width);
            let end = if n == 0 { "" } else { "\r\n" };
            // The rest of the line is erased first: in the last column, that would erase the last
            // letter.
            let _ = if self.is_bold && n == 0 {
                write!(text, "{end}\x1b[K\x1b[1m{line}\x1b[0m")
            } else {
                write!(text, "{end}\x1b[K{line}")
            };
        }
        if lines.len() < height {
            text.push_str("\r\n\x1b[J");
        }
        write(&text);
    }
}
