//! `cargo xtask long-run`: records all processes while many come and go. The recorder's memory and
//! descriptors stay as they are after the start, and its summary agrees with the file.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use unspool_testing::Folder;

use crate::{Error, attack};

/// What goes on meanwhile: short processes, libraries that are loaded and replaced, containers.
const CHURN: &[&str] = &[
    "while :; do /bin/true; done",
    "while :; do /bin/ls /usr/lib | /usr/bin/wc -l; done",
    "while :; do unshare --mount --pid --fork /bin/true; done",
    "n=0; while :; do n=$((n + 1)); cp library lib$n.so; LD_PRELOAD=./lib$n.so /bin/true; rm lib$n.so; done",
];

/// The interval of measurements, and that of suspensions, in seconds.
const STEP: Duration = Duration::from_secs(1);
const SUSPENSION_SECONDS: u64 = 20;

/// A process with its children, killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Runs it for `--minutes N` (60) with `--unwind ENGINE` (copy); `true` if nothing grew and nothing
/// is missing.
///
/// # Errors
///
/// It cannot be run.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<bool, Error> {
    let (mut minutes, mut engine) = (60.0, OsString::from("copy"));
    while let Some(name) = args.next() {
        match (name.to_str(), args.next()) {
            (Some("--minutes"), Some(value)) => minutes = value.to_string_lossy().parse::<f64>()?,
            (Some("--unwind"), Some(value)) => engine = value,
            _ => return Err("usage: cargo xtask long-run [--minutes N] [--unwind ENGINE]".into()),
        }
    }
    let unspool = attack::build()?;
    let folder = Folder::new();
    for input in crate::seeds::files(&folder)? {
        fs::write(folder.join(input.name), input.bytes)?;
    }
    let churn: Result<Vec<Killed>, Error> = CHURN.iter().map(|text| start(text, &folder)).collect();
    let churn = churn?;
    let mut record = Command::new(&unspool);
    record.args([
        "record", "--all", "-F", "199", "-o", "profile", "--format", "json", "--unwind",
    ]);
    record
        .arg(engine)
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"));
    let recorder = record
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = recorder.id();
    let (mut sizes, mut descriptors) = (Vec::new(), Vec::new());
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    for second in 1_u64.. {
        thread::sleep(STEP);
        if Instant::now() >= end {
            break;
        }
        if second.is_multiple_of(SUSPENSION_SECONDS) {
            signal("STOP", pid)?;
            thread::sleep(STEP);
            signal("CONT", pid)?;
        }
        sizes.push(resident_kib(pid)?);
        descriptors.push(fs::read_dir(format!("/proc/{pid}/fd"))?.count());
    }
    drop(churn);
    signal("INT", pid)?;
    let summary: Value = serde_json::from_slice(&recorder.wait_with_output()?.stdout)?;
    let report = Command::new(&unspool)
        .args(["report", "--format", "json", "profile"])
        .current_dir(folder.path())
        .output()?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    // The first quarter is the start.
    let quarter = sizes.len() / 4;
    let (early, late) = (
        median(&sizes, quarter, 2 * quarter),
        median(&sizes, 3 * quarter, 4 * quarter),
    );
    let (fewest, most) = (
        median(&descriptors, quarter, 2 * quarter),
        median(&descriptors, 3 * quarter, 4 * quarter),
    );
    writeln!(
        out,
        "memory: {early} KiB early, {late} KiB late; descriptors: {fewest}, {most}"
    )?;
    let counts = |document: &Value| {
        ["stacks", "lost_samples"].map(|field| {
            let value = document.pointer(&format!("/completeness/{field}"));
            value.and_then(Value::as_u64)
        })
    };
    let [said, kept] = [counts(&summary), counts(&report)];
    writeln!(
        out,
        "stacks and lost samples: {said:?} said, {kept:?} in the file"
    )?;
    let is_flat = late <= early + early / 10 && most <= fewest + 8;
    Ok(is_flat && said == kept && !said.contains(&None))
}

fn start(text: &str, folder: &Path) -> Result<Killed, Error> {
    use std::os::unix::process::CommandExt as _;
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", text])
        .current_dir(folder)
        .process_group(0);
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(Killed(shell.spawn()?))
}

fn signal(name: &str, pid: u32) -> Result<(), Error> {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()?;
    if sent.success() {
        Ok(())
    } else {
        Err("the recorder has ended".into())
    }
}

fn resident_kib(pid: u32) -> Result<usize, Error> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = size.and_then(|size| size.trim().strip_suffix(" kB"));
    Ok(size.ok_or("the recorder has ended")?.parse()?)
}

/// The median of a part of some numbers; 0 of none.
fn median(numbers: &[usize], start: usize, end: usize) -> usize {
    let mut part = numbers.get(start..end).unwrap_or_default().to_vec();
    part.sort_unstable();
    part.get(part.len() / 2).copied().unwrap_or(0)
}
