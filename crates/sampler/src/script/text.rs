//! Samples in the layout of `perf script`.

use std::io::{self, Write};

use unspool_files::escape_bytes;
use unspool_perf_events::FileEvent;

use super::digits::{decimal, task, zeros};
use super::frames::FrameTexts;

/// The fields of a sample and its frames that are printed, named as in `perf script -F`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field that is printed or not"
)]
pub struct ScriptFields {
    /// The name of the thread.
    pub comm: bool,
    /// The process.
    pub pid: bool,
    /// The thread.
    pub tid: bool,
    /// The processor.
    pub cpu: bool,
    /// The time.
    pub time: bool,
    /// The weight.
    pub period: bool,
    /// The name of the event.
    pub event: bool,
    /// The addresses of frames.
    pub ip: bool,
    /// The functions of frames (`sym`).
    pub symbol: bool,
    /// The offsets from their functions (`symoff`).
    pub offset: bool,
    /// The files of frames.
    pub dso: bool,
    /// The source lines of frames (`srcline`), each on a line of its own.
    pub source_line: bool,
    /// The arguments of functions, where a profile has them.
    pub args: bool,
}

impl ScriptFields {
    /// The fields that perf prints by default.
    pub const DEFAULT: ScriptFields = ScriptFields {
        comm: true,
        pid: false,
        tid: true,
        cpu: true,
        time: true,
        period: true,
        event: true,
        ip: true,
        symbol: true,
        offset: true,
        dso: true,
        source_line: false,
        args: false,
    };
}

/// The printed properties of an event.
#[derive(Debug)]
pub(super) struct ScriptEvent<'f> {
    pub(super) name: &'f str,
    pub(super) has_cpu: bool,
    pub(super) has_time: bool,
    pub(super) has_period: bool,
}

impl<'f> From<&'f FileEvent> for ScriptEvent<'f> {
    fn from(event: &'f FileEvent) -> Self {
        ScriptEvent {
            name: &event.name,
            has_cpu: event.format.has_cpu(),
            has_time: event.format.has_time(),
            has_period: event.format.has_period(),
        }
    }
}

/// A sample, without its frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleLine {
    /// The event, by its index.
    pub(super) event: usize,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: u32,
    pub(super) time: u64,
    pub(super) period: u64,
    /// Whether it has a stack, not only an address.
    pub(super) has_stack: bool,
}

/// Prints a sample of a thread with that name, and the frames with these numbers.
pub(super) type PrintSample<'p> = dyn FnMut(&SampleLine, &[u8], &[u32]) -> io::Result<()> + 'p;

/// The size of the output buffer, in bytes.
const CHUNK: usize = 256 << 10;

/// Prints samples.
pub(super) struct Printer<'f, 'w> {
    events: &'f [ScriptEvent<'f>],
    /// The width of event names.
    width: usize,
    fields: ScriptFields,
    in_nanoseconds: bool,
    buffer: Vec<u8>,
    out: &'w mut dyn Write,
}

impl<'f, 'w> Printer<'f, 'w> {
    pub(super) fn new(
        events: &'f [ScriptEvent<'f>],
        fields: ScriptFields,
        in_nanoseconds: bool,
        out: &'w mut dyn Write,
    ) -> Self {
        let width = match events {
            [_] => 0,
            _ => events
                .iter()
                .map(|event| event.name.len())
                .max()
                .unwrap_or(0),
        };
        Printer {
            events,
            width,
            fields,
            in_nanoseconds,
            buffer: Vec::with_capacity(CHUNK + (64 << 10)),
            out,
        }
    }

    /// Prints a sample of a thread with a given name, with its frames.
    pub(super) fn print(
        &mut self,
        sample: &SampleLine,
        name: &[u8],
        stack: &[u32],
        frames: &FrameTexts,
    ) -> io::Result<()> {
        self.head(sample, name);
        let out = &mut self.buffer;
        if !self.fields.ip {
            out.push(b'\n');
        } else if sample.has_stack {
            out.push(b'\n');
            for frame in stack {
                out.push(b'\t');
                out.extend_from_slice(frames.get(*frame));
            }
            out.push(b'\n');
        } else {
            out.push(b' ');
            stack
                .iter()
                .for_each(|frame| out.extend_from_slice(frames.get(*frame)));
        }
        match self.buffer.len() {
            0..CHUNK => Ok(()),
            _ => self.write(),
        }
    }

    fn head(&mut self, sample: &SampleLine, name: &[u8]) {
        let Some(event) = self.events.get(sample.event) else {
            return;
        };
        let (fields, out) = (self.fields, &mut self.buffer);
        if fields.comm {
            let name = escape_bytes(name);
            let width = if fields.ip && sample.has_stack {
                0
            } else {
                16_usize
            };
            out.resize(out.len() + width.saturating_sub(name.len()), b' ');
            out.extend_from_slice(&name);
            out.push(b' ');
        }
        match (fields.pid, fields.tid) {
            (true, true) => {
                task(out, sample.pid, 5);
                out.push(b'/');
                let start = out.len();
                task(out, sample.tid, 0);
                out.resize(out.len().max(start + 5), b' ');
                out.push(b' ');
            }
            (true, false) => {
                task(out, sample.pid, 5);
                out.push(b' ');
            }
            (false, true) => {
                task(out, sample.tid, 5);
                out.push(b' ');
            }
            (false, false) => {}
        }
        if fields.cpu && event.has_cpu {
            out.push(b'[');
            zeros(out, sample.cpu.into(), 3);
            out.extend(b"] ");
        }
        if fields.time && event.has_time {
            let (seconds, rest) = (sample.time / 1_000_000_000, sample.time % 1_000_000_000);
            decimal(out, seconds, 5);
            out.push(b'.');
            if self.in_nanoseconds {
                zeros(out, rest, 9);
            } else {
                zeros(out, rest / 1000, 6);
            }
            out.extend(b": ");
        }
        if fields.period && event.has_period {
            decimal(out, sample.period, 10);
            out.push(b' ');
        }
        if fields.event {
            out.resize(
                out.len() + self.width.saturating_sub(event.name.len()),
                b' ',
            );
            out.extend_from_slice(&escape_bytes(event.name.as_bytes()));
            out.extend(b": ");
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest of the buffer.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }
}
