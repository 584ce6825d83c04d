//! Why a process could not be looked at.

use std::io;
use std::path::PathBuf;

use crate::process::procfs;

/// Why a process could not be attached to, or a command could not be run under control.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no process of this id, or it ended in the meantime.
    #[error("process {pid}: no such process")]
    NoSuchProcess {
        /// The process.
        pid: u32,
    },
    /// The process has ended, but its parent has not collected its status yet.
    #[error("process {pid} has ended (zombie); only its parent can still learn its exit status")]
    Zombie {
        /// The process.
        pid: u32,
    },
    /// A process cannot trace itself.
    #[error("process {pid} is this one: a process cannot trace itself")]
    Own {
        /// The process.
        pid: u32,
    },
    /// A kernel thread has no user memory.
    #[error("process {pid} is a kernel thread, which has no user stack")]
    KernelThread {
        /// The process.
        pid: u32,
    },
    /// Another tracer, such as a debugger or strace, is attached; there can be only one.
    #[error(
        "thread {tid} of process {pid} is already traced by process {tracer} ({name}): detach that one first"
    )]
    AlreadyTraced {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The tracer's process or thread id.
        tracer: u32,
        /// The tracer's name, or `?`.
        name: String,
    },
    /// The system does not let this user trace the process.
    #[error("may not trace process {pid} (thread {tid}): {}", remedy(*ptrace_scope))]
    Refused {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The value of `/proc/sys/kernel/yama/ptrace_scope`, if the kernel has it.
        ptrace_scope: Option<u32>,
    },
    /// The process is a 32-bit one.
    #[error("process {pid}: 32-bit process: not supported")]
    ThirtyTwoBit {
        /// The process.
        pid: u32,
    },
    /// This program was not built for an architecture whose processes it can read.
    #[error("live processes are supported on x86-64 and AArch64 only")]
    Architecture,
    /// A file under `/proc` could not be read.
    #[error("cannot read {}", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A request to the kernel failed for another reason than those above.
    #[error("{request} of thread {tid} failed")]
    Ptrace {
        /// The request, such as `PTRACE_SEIZE`.
        request: &'static str,
        /// The thread.
        tid: u32,
        /// The reason.
        source: io::Error,
    },
    /// The command could not be started.
    #[error("cannot run `{program}`")]
    Spawn {
        /// The program that was to be run.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The thread that does the tracing could not be started, or ended early.
    #[error("the tracing thread failed")]
    Tracer {
        /// The reason.
        source: io::Error,
    },
    /// The process is still held by the [`Process`](super::Process) of its fatal signal.
    #[error("process {pid} is still held at its fatal signal: drop that `Process` first")]
    StillHeld {
        /// The process.
        pid: u32,
    },
}

/// What to do when the system refuses, by Yama's setting (Documentation/admin-guide/LSM/Yama).
fn remedy(ptrace_scope: Option<u32>) -> &'static str {
    match ptrace_scope {
        Some(1) => {
            "kernel.yama.ptrace_scope is 1, so only descendants may be traced; run as root \
             (CAP_SYS_PTRACE), or `sudo sysctl kernel.yama.ptrace_scope=0`"
        }
        Some(2) => {
            "kernel.yama.ptrace_scope is 2, so CAP_SYS_PTRACE is needed; run as root, or \
             `sudo sysctl kernel.yama.ptrace_scope=0`"
        }
        Some(3) => {
            "kernel.yama.ptrace_scope is 3, which forbids tracing until the next boot; set it \
             lower in /etc/sysctl.d and restart"
        }
        _ => {
            "it belongs to another user, has gained privileges, or a container or seccomp forbids \
             ptrace; run as its user or as root (CAP_SYS_PTRACE), in a container with \
             `--cap-add=SYS_PTRACE`"
        }
    }
}

impl ProcessError {
    /// Turns the failure of a ptrace request into the fact behind it.
    pub(super) fn from_ptrace(
        pid: i32,
        tid: i32,
        request: &'static str,
        source: io::Error,
    ) -> ProcessError {
        let (id, thread) = (pid.unsigned_abs(), tid.unsigned_abs());
        match source.raw_os_error() {
            Some(libc::ESRCH) => ProcessError::NoSuchProcess { pid: id },
            Some(libc::EPERM | libc::EACCES) => Self::from_refusal(pid, tid),
            _ => ProcessError::Ptrace {
                request,
                tid: thread,
                source,
            },
        }
    }

    fn from_refusal(pid: i32, tid: i32) -> ProcessError {
        let (id, thread) = (pid.unsigned_abs(), tid.unsigned_abs());
        let Ok(status) = procfs::Status::read(pid, tid) else {
            return ProcessError::NoSuchProcess { pid: id };
        };
        if status.tracer != 0 {
            return ProcessError::AlreadyTraced {
                pid: id,
                tid: thread,
                tracer: status.tracer.unsigned_abs(),
                name: procfs::name(status.tracer, status.tracer).unwrap_or_else(|| "?".into()),
            };
        }
        if status.has_ended() && pid == tid {
            return ProcessError::Zombie { pid: id };
        }
        if status.kernel_thread {
            return ProcessError::KernelThread { pid: id };
        }
        ProcessError::Refused {
            pid: id,
            tid: thread,
            ptrace_scope: procfs::ptrace_scope(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_refusal_names_the_setting_and_the_command() {
        for (scope, words) in [
            (Some(1), "`sudo sysctl kernel.yama.ptrace_scope=0`"),
            (Some(2), "CAP_SYS_PTRACE"),
            (Some(3), "until the next boot"),
            (None, "--cap-add=SYS_PTRACE"),
        ] {
            let error = ProcessError::Refused {
                pid: 7,
                tid: 8,
                ptrace_scope: scope,
            };
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
