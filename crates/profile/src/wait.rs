//! What a thread off its CPU waits for, by the functions that it waits in.

use crate::model::{CpuState, FrameEvidence, ProfileSample};
use crate::names::NamedProfile;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// A lock, or a notification of another thread: a futex, or a lock of the kernel.
    Lock,
    /// A time.
    Sleep,
    /// One of several files, by `poll`, `select` or `epoll_wait`.
    Events,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A terminal.
    Terminal,
    /// A disk, or the memory of a file.
    Disk,
    /// A page of memory.
    Memory,
    /// Another process, for example its end.
    Process,
    /// A signal.
    Signal,
    /// A CPU: it could run.
    Cpu,
    /// Unknown: the functions are none of those that are known.
    Unknown,
}

/// The starts of names of functions that wait, of the kernel and of the C library. The first match
/// from the innermost function outwards counts.
const WAITING_FUNCTIONS: &[(WaitReason, &[&str])] = &[
    (
        WaitReason::Lock,
        &[
            "futex_",
            "do_futex",
            "__x64_sys_futex",
            "__futex",
            "__lll_lock",
            "pthread_mutex_",
            "___pthread_mutex",
            "pthread_cond_",
            "___pthread_cond",
            "__pthread_rwlock",
            "sem_",
            "rwsem_",
            "__mutex_lock",
            "mutex_lock",
            "__down",
            "down_",
            "rtlock",
        ],
    ),
    (
        WaitReason::Sleep,
        &[
            "hrtimer_nanosleep",
            "do_nanosleep",
            "clock_nanosleep",
            "nanosleep",
            "__clock_nanosleep",
        ],
    ),
    (
        WaitReason::Events,
        &[
            "ep_poll",
            "do_epoll",
            "epoll_",
            "do_poll",
            "do_sys_poll",
            "poll",
            "__poll",
            "ppoll",
            "do_select",
            "core_sys_select",
            "select",
            "__select",
            "pselect",
            "io_cqring_wait",
        ],
    ),
    (
        WaitReason::Pipe,
        &[
            "pipe_",
            "anon_pipe_",
            "fifo_",
            "wait_for_partner",
            "eventfd_",
        ],
    ),
    (
        WaitReason::Socket,
        &[
            "unix_",
            "tcp_",
            "udp_",
            "inet_",
            "inet6_",
            "sk_wait",
            "sk_stream",
            "__skb_wait",
            "__skb_recv",
            "skb_recv",
            "sock_",
            "__sys_accept",
            "netlink_",
            "vsock_",
        ],
    ),
    (WaitReason::Terminal, &["n_tty_", "tty_"]),
    (
        WaitReason::Disk,
        &[
            "io_schedule",
            "folio_wait",
            "folio_lock",
            "wait_on_page",
            "filemap_",
            "blk_",
            "bio_",
            "submit_bio",
            "jbd2_",
            "ext4_",
            "xfs_",
            "btrfs_",
            "f2fs_",
            "nfs_",
            "fuse_",
            "balance_dirty",
            "do_fsync",
            "vfs_fsync",
            "wait_on_buffer",
            "__wait_on_buffer",
        ],
    ),
    (
        WaitReason::Memory,
        &[
            "handle_mm_fault",
            "do_user_addr_fault",
            "do_swap_page",
            "__alloc_pages",
            "try_to_free",
        ],
    ),
    (
        WaitReason::Process,
        &[
            "do_wait",
            "kernel_wait",
            "wait4",
            "waitid",
            "__wait4",
            "wait_for_vfork",
            "ptrace_stop",
            "do_exit",
            "coredump_",
        ],
    ),
    (
        WaitReason::Signal,
        &[
            "do_sigtimedwait",
            "sigsuspend",
            "do_signal_stop",
            "pause",
            "__ia32_sys_pause",
            "__x64_sys_pause",
            "signalfd_",
        ],
    ),
    (
        WaitReason::Cpu,
        &[
            "exit_to_user_mode",
            "irqentry_exit",
            "preempt_schedule",
            "__cond_resched",
            "do_sched_yield",
            "sched_yield",
            "__sched_yield",
        ],
    ),
];

/// The frames of the program's part that are looked at: the C library's.
const MAX_USER_FRAMES: usize = 4;

impl WaitReason {
    /// All of them.
    pub const ALL: [WaitReason; 12] = [
        WaitReason::Lock,
        WaitReason::Sleep,
        WaitReason::Events,
        WaitReason::Pipe,
        WaitReason::Socket,
        WaitReason::Terminal,
        WaitReason::Disk,
        WaitReason::Memory,
        WaitReason::Process,
        WaitReason::Signal,
        WaitReason::Cpu,
        WaitReason::Unknown,
    ];

    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WaitReason::Lock => "a lock or another thread",
            WaitReason::Sleep => "a time",
            WaitReason::Events => "events (poll)",
            WaitReason::Pipe => "a pipe",
            WaitReason::Socket => "a socket",
            WaitReason::Terminal => "a terminal",
            WaitReason::Disk => "a disk",
            WaitReason::Memory => "memory",
            WaitReason::Process => "another process",
            WaitReason::Signal => "a signal",
            WaitReason::Cpu => "a CPU",
            WaitReason::Unknown => "unknown",
        }
    }
}

/// The reasons of a profile's functions.
#[derive(Debug)]
pub struct WaitReasons<'a> {
    named: &'a NamedProfile<'a>,
    /// For each function, what it waits for.
    by_function: Vec<Option<WaitReason>>,
}

impl<'a> WaitReasons<'a> {
    /// Looks at the names of all functions.
    #[must_use]
    pub fn new(named: &'a NamedProfile<'a>) -> WaitReasons<'a> {
        let functions = named.functions().iter();
        WaitReasons {
            named,
            by_function: functions.map(|function| reason(&function.name)).collect(),
        }
    }

    /// What a sample off a CPU waits for; `None` for one on a CPU.
    #[must_use]
    pub fn get(&self, sample: &ProfileSample) -> Option<WaitReason> {
        if sample.state == CpuState::OnCpu {
            return None;
        }
        let mut user = 0;
        for (id, frame) in self.named.frames(sample.stack) {
            user += usize::from(frame.evidence != FrameEvidence::Kernel);
            if user > MAX_USER_FRAMES {
                break;
            }
            let functions = self
                .named
                .lines_of(id)
                .iter()
                .map(|line| line.function.0 as usize);
            let mut reasons =
                functions.filter_map(|id| self.by_function.get(id).copied().flatten());
            if let Some(reason) = reasons.next() {
                return Some(reason);
            }
        }
        Some(WaitReason::Unknown)
    }
}

/// What a function waits for.
fn reason(function: &str) -> Option<WaitReason> {
    let waits = |(_, starts): &&(WaitReason, &[&str])| {
        starts.iter().any(|start| function.starts_with(start))
    };
    WAITING_FUNCTIONS
        .iter()
        .find(waits)
        .map(|(reason, _)| *reason)
}
