//! `unspool compile FILE -o OUT`, including verification, as a process: wall time and memory.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use unspool_bench::{Durations, Usage, millis, time, wait};
use unspool_elf::{ElfFile, Section};
use unspool_table_store as tables;

use crate::{ROUNDS, per};

/// The cost of the command for one file.
pub(crate) struct Cost {
    took: Durations,
    /// The peak resident memory in bytes, in any run, including the file's own pages.
    peak: u64,
    /// The peak of anonymous memory in bytes, in one more run. It is polled, so short peaks may be
    /// missed.
    anonymous: u64,
}

/// Runs the command.
pub(crate) fn measure(unspool: &Path, file: &Path, output: &Path) -> anyhow::Result<Cost> {
    let mut command = Command::new(unspool);
    command
        .arg("compile")
        .arg(file)
        .arg("-o")
        .arg(output)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut cost = Cost {
        took: Durations::default(),
        peak: 0,
        anonymous: 0,
    };
    // The first run loads the file into memory.
    finish(command.spawn()?)?;
    for _ in 0..ROUNDS {
        let (took, peak) = time(|| finish(command.spawn()?));
        cost.took.extend([took]);
        cost.peak = cost.peak.max(peak?);
    }
    let child = command.spawn()?;
    cost.anonymous = watch(child.id());
    finish(child)?;
    let own = status_bytes("self", "VmHWM:").context("no VmHWM in /proc/self/status")?;
    anyhow::ensure!(
        cost.peak > own,
        "the peak of {} bytes may be this program's own",
        cost.peak
    );
    Ok(cost)
}

/// Waits for success; returns the peak resident memory in bytes.
fn finish(child: Child) -> anyhow::Result<u64> {
    let Usage { status, peak, .. } = wait(child)?;
    anyhow::ensure!(status.success(), "unspool compile: {status}");
    Ok(peak)
}

/// The peak of a process's anonymous memory, polled until it exits, in bytes. It is not waited for
/// yet, so its PID is not reused.
fn watch(pid: u32) -> u64 {
    let pid = pid.to_string();
    let mut most = 0;
    // An exited process has no such line.
    while let Some(bytes) = status_bytes(&pid, "RssAnon:") {
        most = most.max(bytes);
        thread::sleep(Duration::from_micros(200));
    }
    most
}

/// A value of `/proc/PID/status`, which is in kilobytes, in bytes.
fn status_bytes(pid: &str, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Prints the cost and the size of the input.
pub(crate) fn print(cost: &Cost, file: &ElfFile) -> anyhow::Result<()> {
    let read = bytes_read(file)?;
    println!(
        "  unspool compile -o      {:>9.2} ms, at most {:.2}",
        millis(cost.took.median()),
        millis(cost.took.max())
    );
    println!(
        "    peak resident         {:>9.2} MB, of it anonymous {:.2} (as seen)",
        megabytes(cost.peak),
        megabytes(cost.anonymous),
    );
    println!(
        "    file, code + CFI      {:>9.2} MB, {:.2}; peak is {:.2} of the file, {:.2} of code + CFI",
        megabytes(file.bytes().len() as u64),
        megabytes(read),
        per(cost.peak as f64, file.bytes().len() as f64),
        per(cost.peak as f64, read as f64),
    );
    Ok(())
}

/// The bytes that compiling reads: executable code, `.eh_frame` and `.eh_frame_hdr`.
fn bytes_read(file: &ElfFile) -> anyhow::Result<u64> {
    let code = tables::code(file).ranges;
    let size = |section: &Section<'_>| section.data.len();
    let code: usize = code.iter().map(|(_, bytes)| bytes.len()).sum();
    let frames: usize = file.eh_frames()?.iter().map(size).sum();
    let hdr = file.eh_frame_hdr()?.as_ref().map_or(0, size);
    Ok((code + frames + hdr) as u64)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
