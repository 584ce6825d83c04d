//! The text of `perf script`. Each sample has a line with command, tid, time, weight and event,
//! then a line for each frame, and an empty one.
//!
//! perf prints addresses of the process; these are addresses in the module's file, since only they
//! denote the same code in another run.

use std::io::{self, Write};

use super::View;
use unspool_files::EscapedText;

use crate::model::{CodeLocation, CpuState, FrameId, ProfileFrame, ProfileSample};
use crate::names::NamedProfile;

/// Writes the samples, by time.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut samples = view.samples.clone();
    samples.sort_by_key(|sample| sample.time);
    for sample in samples {
        header(out, view.named, sample)?;
        for (id, frame) in view.named.frames(sample.stack) {
            print_frame(out, view.named, id, frame)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn header(out: &mut dyn Write, named: &NamedProfile<'_>, sample: &ProfileSample) -> io::Result<()> {
    let thread = named.profile.thread(sample.thread);
    let tid = thread.map_or(0, |thread| thread.tid);
    let name = comm(thread.map_or("", |thread| &thread.name), tid);
    let micros = sample.time.0 / 1000;
    let event = match sample.state {
        CpuState::OnCpu => named.profile.meta().event.name.as_str(),
        CpuState::OffCpu => "off-cpu",
    };
    writeln!(
        out,
        "{name} {tid:5} [{:03}] {:5}.{:06}: {:10} {event}: ",
        sample.cpu,
        micros / 1_000_000,
        micros % 1_000_000,
        sample.weight
    )
}

/// A thread's name, on one line; without one, perf's placeholder.
fn comm(name: &str, tid: u32) -> String {
    match name {
        "" => format!(":{tid}"),
        name => EscapedText(name).to_string(),
    }
}

fn print_frame(
    out: &mut dyn Write,
    named: &NamedProfile<'_>,
    id: FrameId,
    frame: &ProfileFrame,
) -> io::Result<()> {
    let address = frame.location().address();
    let module = match frame.lookup {
        CodeLocation::Module(module, _) => named.profile.module(module),
        _ => None,
    };
    let dso = match module {
        Some(module) => module.path.to_string_lossy(),
        None => named.module_of(id).into(),
    };
    let is_known = named.has_name(id);
    for line in named.lines_of(id) {
        let name = if is_known || named.offset(id).is_some() {
            named.function_name(line.function)
        } else {
            "[unknown]"
        };
        write!(out, "\t{address:16x} {}", EscapedText(name))?;
        match (line.is_inlined, named.offset(id)) {
            (true, _) => writeln!(out, " (inlined)")?,
            (false, Some(offset)) => writeln!(out, "+{offset:#x} ({})", EscapedText(&dso))?,
            (false, None) => writeln!(out, " ({})", EscapedText(&dso))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::comm;

    /// A thread can have any name.
    #[test]
    fn names_of_threads_are_part_of_a_line() {
        assert_eq!(comm("a;b 1/2", 7), "a;b 1/2");
        assert_eq!(comm("two\nlines\u{1b}[1m", 7), "two\\nlines\\u{1b}[1m");
        assert_eq!(comm("", 7), ":7");
    }
}
