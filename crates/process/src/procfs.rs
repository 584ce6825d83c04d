//! A process's files in `/proc` (proc(5)).

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::string::{String, ToString as _};

use unspool_elf::DELETED_SUFFIX;

/// The limit of bytes read from a file under `/proc`. Files that are read whole are small, except
/// `maps`: about 100 bytes for each of at most some 65,530 mappings.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The path of a file of the process's directory.
pub(crate) fn path(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Reads a whole file of the process's directory.
pub(crate) fn read(pid: i32, file: &str) -> io::Result<Vec<u8>> {
    read_path(&path(pid, file))
}

fn read_path(path: &Path) -> io::Result<Vec<u8>> {
    // The kernel returns 4 KiB of `maps` per call.
    let mut bytes = Vec::with_capacity(4096);
    fs::File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The ID of the calling thread, as `/proc` shows it: the first thread of its process may have
/// ended.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn own_thread() -> io::Result<i32> {
    let link = fs::read_link("/proc/thread-self")?;
    let name = link.file_name().and_then(OsStr::to_str);
    let id = name.and_then(|name| name.parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The IDs of the threads.
pub(crate) fn tasks(pid: i32) -> io::Result<Vec<i32>> {
    let mut tasks = Vec::new();
    for entry in fs::read_dir(path(pid, "task"))? {
        let name = entry?.file_name();
        tasks.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(tasks)
}

/// The owner of the process's files here: its user, or root if the process is not dumpable. (The
/// directory belongs to the user in any case.)
pub(crate) fn owner(pid: i32) -> Option<u32> {
    fs::metadata(path(pid, "status"))
        .ok()
        .map(|file| file.uid())
}

/// Whether `tid` is a thread of `pid`.
pub(crate) fn is_thread_of(pid: i32, tid: i32) -> bool {
    path(pid, &format!("task/{tid}")).exists()
}

/// The name of a thread.
pub(crate) fn name(pid: i32, tid: i32) -> Option<String> {
    let bytes = read(pid, &format!("task/{tid}/comm")).ok()?;
    let name = String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
    Some(name.into_owned())
}

/// Parts of `/proc/PID/task/TID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskStatus {
    /// The letter of the state: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, …
    pub(crate) state: char,
    /// The thread's process.
    pub(crate) tgid: i32,
    /// The tracer, or 0.
    pub(crate) tracer: i32,
    /// The effective user id.
    pub(crate) user: u32,
    /// The thread has no user memory: it runs in the kernel only, or has ended.
    pub(crate) kernel_thread: bool,
    /// Signals that are ignored or handled; bit 0 is signal 1.
    handled: u64,
}

impl TaskStatus {
    /// Reads the file.
    pub(crate) fn read(pid: i32, tid: i32) -> io::Result<TaskStatus> {
        let bytes = read(pid, &format!("task/{tid}/status"))?;
        Ok(TaskStatus::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> TaskStatus {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map(|rest| rest.trim_start_matches([':', '\t', ' ']))
        };
        let number = |key| {
            value(key)
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0)
        };
        let mask = |key| value(key).and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        TaskStatus {
            state: value("State:")
                .and_then(|text| text.chars().next())
                .unwrap_or('?'),
            tgid: number("Tgid:"),
            tracer: number("TracerPid:"),
            user: value("Uid:")
                .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
                .unwrap_or(0),
            kernel_thread: value("VmSize:").is_none(),
            handled: mask("SigIgn:").unwrap_or(0) | mask("SigCgt:").unwrap_or(0),
        }
    }

    /// The thread has ended and waits to be collected.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// The signal is neither ignored nor handled.
    pub(crate) fn takes_default_action(&self, signal: i32) -> bool {
        let bit = u32::try_from(signal.saturating_sub(1)).unwrap_or(u32::MAX);
        1_u64
            .checked_shl(bit)
            .is_some_and(|mask| self.handled & mask == 0)
    }
}

/// Whether the system reports `error` for a process or thread that is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The executable's path as the kernel prints it, without the mark of a deleted file.
pub(crate) fn executable(pid: i32) -> Option<PathBuf> {
    let target = fs::read_link(path(pid, "exe")).ok()?;
    let plain = target
        .to_str()
        .and_then(|text| text.strip_suffix(DELETED_SUFFIX))
        .map(str::to_string);
    Some(plain.map_or(target, PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_fields() {
        let text = "Name:\tState: x\nState:\tD (disk sleep)\nTgid:\t12\nTracerPid:\t34\n\
                    Uid:\t1\t2\t3\t4\n\
                    SigIgn:\t0000000000001000\nSigCgt:\t0000000000000400\nVmSize:\t    2564 kB\n";
        let status = TaskStatus::parse(text);
        assert_eq!((status.state, status.tgid, status.tracer), ('D', 12, 34));
        assert_eq!(status.user, 2);
        assert!(!status.kernel_thread && !status.has_ended());
        assert!(!status.takes_default_action(libc::SIGSEGV));
        assert!(!status.takes_default_action(libc::SIGPIPE));
        assert!(status.takes_default_action(libc::SIGBUS));
        assert!(status.takes_default_action(64));
        assert!(!status.takes_default_action(65) && !status.takes_default_action(0));
    }

    #[test]
    fn a_status_without_the_fields_is_not_an_error() {
        let status = TaskStatus::parse("");
        assert_eq!((status.state, status.tracer), ('?', 0));
    }
}
