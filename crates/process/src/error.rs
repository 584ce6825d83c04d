//! Why a process could not be inspected.

use std::io;
use std::path::PathBuf;

use unspool_host::{KernelSettings, Remedy};

use crate::procfs;

/// Why a process could not be attached to, or a command could not be run under control.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no process with this ID, or it ended meanwhile.
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
    #[error("may not trace process {pid} (thread {tid}): {reason}")]
    Refused {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The reason, and what to do about it.
        reason: AttachRefusal,
    },
    /// The process is a 32-bit one.
    #[error("process {pid}: 32-bit process: not supported")]
    ThirtyTwoBit {
        /// The process.
        pid: u32,
    },
    /// Live processes are not supported on this program's architecture.
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
    /// A request to the kernel failed for any other reason.
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
        /// The program.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The tracing thread could not be started, or ended early.
    #[error("the tracing thread failed")]
    Tracer {
        /// The reason.
        source: io::Error,
    },
    /// The [`Process`](crate::Process) of its fatal signal still holds the process.
    #[error("process {pid} is still held at its fatal signal: drop that `Process` first")]
    StillHeld {
        /// The process.
        pid: u32,
    },
}

/// Why the system does not let this user trace a process, and what to do about it (ptrace(2),
/// "Ptrace access mode checking").
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachRefusal {
    /// It belongs to another user.
    #[error("it belongs to user {owner}; {}", self.remedy())]
    OtherUser {
        /// Its effective user id.
        owner: u32,
    },
    /// Only root may inspect it: it was set-user-ID, its file is not readable, or it called
    /// `PR_SET_DUMPABLE`.
    #[error(
        "it has gained privileges or closed its memory (PR_SET_DUMPABLE); {}",
        self.remedy()
    )]
    Undumpable,
    /// A setting of the security module Yama (Documentation/admin-guide/LSM/Yama).
    #[error(
        "kernel.yama.ptrace_scope is {scope}, {}; {}",
        yama_rule(*scope),
        self.remedy()
    )]
    Yama {
        /// The value of `/proc/sys/kernel/yama/ptrace_scope`.
        scope: u32,
    },
    /// Another reason: a container, seccomp or another security module.
    #[error(
        "a container, seccomp or a security module forbids ptrace; {}",
        self.remedy()
    )]
    Forbidden,
}

impl AttachRefusal {
    /// The remedy.
    #[must_use]
    pub fn remedy(self) -> Remedy {
        match self {
            AttachRefusal::OtherUser { .. } => Remedy::PtraceOfOthers,
            AttachRefusal::Undumpable => Remedy::PtraceOfUndumpable,
            AttachRefusal::Yama { scope } => Remedy::PtraceScope { scope },
            AttachRefusal::Forbidden => Remedy::PtraceInContainer,
        }
    }
}

fn yama_rule(scope: u32) -> &'static str {
    match scope {
        1 => "so only descendants may be traced",
        2 => "so CAP_SYS_PTRACE is needed",
        _ => "which forbids tracing until the next boot",
    }
}

/// The conditions on which this user may trace a process.
#[derive(Debug, Clone, Copy)]
struct TraceAccess {
    own_user: u32,
    owner: u32,
    is_undumpable: bool,
    ptrace_scope: Option<u32>,
}

impl TraceAccess {
    fn read(pid: i32, owner: u32) -> TraceAccess {
        let own = std::process::id().cast_signed();
        TraceAccess {
            own_user: procfs::TaskStatus::read(own, own).map_or(0, |status| status.user),
            owner,
            is_undumpable: procfs::owner(pid).is_some_and(|found| found != owner),
            ptrace_scope: KernelSettings::read().ptrace_scope,
        }
    }

    /// Yama's strictest setting applies to all; the kernel checks the others in this order.
    fn refusal(self) -> AttachRefusal {
        match self.ptrace_scope {
            Some(scope @ 3..) => AttachRefusal::Yama { scope },
            _ if self.owner != self.own_user => AttachRefusal::OtherUser { owner: self.owner },
            _ if self.is_undumpable => AttachRefusal::Undumpable,
            Some(scope @ 1..) => AttachRefusal::Yama { scope },
            _ => AttachRefusal::Forbidden,
        }
    }
}

impl ProcessError {
    /// Why reading about a thread is refused, whether it is traced or not.
    pub(crate) fn from_refusal(pid: i32, tid: i32) -> ProcessError {
        let (id, thread) = (pid.unsigned_abs(), tid.unsigned_abs());
        match procfs::TaskStatus::read(pid, tid) {
            Err(_) => ProcessError::NoSuchProcess { pid: id },
            Ok(status) if status.has_ended() && pid == tid => ProcessError::Zombie { pid: id },
            Ok(status) if status.kernel_thread => ProcessError::KernelThread { pid: id },
            Ok(status) => ProcessError::Refused {
                pid: id,
                tid: thread,
                reason: TraceAccess::read(pid, status.user).refusal(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_refusal_names_the_cause_and_the_remedy() {
        let own = TraceAccess {
            own_user: 1000,
            owner: 1000,
            is_undumpable: false,
            ptrace_scope: None,
        };
        let scope = |scope| TraceAccess {
            ptrace_scope: Some(scope),
            ..own
        };
        let other = |access| TraceAccess { owner: 0, ..access };
        for (access, words) in [
            (own, "`--cap-add=SYS_PTRACE`"),
            (scope(0), "`--cap-add=SYS_PTRACE`"),
            (scope(1), "ptrace_scope is 1, so only descendants"),
            (scope(2), "`sudo sysctl kernel.yama.ptrace_scope=0`"),
            (scope(3), "until the next boot"),
            (other(own), "belongs to user 0; run as that user"),
            (other(scope(1)), "belongs to user 0; run as that user"),
            (other(scope(3)), "until the next boot"),
            (
                TraceAccess {
                    is_undumpable: true,
                    ..scope(1)
                },
                "PR_SET_DUMPABLE",
            ),
        ] {
            let message = access.refusal().to_string();
            assert!(message.contains(words), "{access:?}: {message}");
        }
    }
}
