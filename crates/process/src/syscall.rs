//! The names of system calls.

/// The name of system call `number` of this machine's architecture, for instance `futex`. `None` if
/// it is not one of those that threads typically wait in.
#[must_use]
pub fn syscall_name(number: u64) -> Option<&'static str> {
    let number = libc::c_long::try_from(number).ok()?;
    let entry = NAMES.iter().find(|(found, _)| *found == number);
    entry.and_then(|(_, name)| name.strip_prefix("SYS_"))
}

/// The names and numbers of constants.
macro_rules! numbered {
    ($($(#[$only:meta])? $name:ident),* $(,)?) => {
        &[$($(#[$only])? (libc::$name, stringify!($name))),*]
    };
}

const NAMES: &[(libc::c_long, &str)] = numbered![
    SYS_accept,
    SYS_accept4,
    SYS_clock_nanosleep,
    SYS_clone,
    SYS_clone3,
    SYS_close,
    SYS_connect,
    SYS_copy_file_range,
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_execve,
    SYS_exit,
    SYS_exit_group,
    SYS_fallocate,
    SYS_fcntl,
    SYS_fdatasync,
    SYS_flock,
    #[cfg(target_arch = "x86_64")]
    SYS_fork,
    SYS_fsync,
    SYS_ftruncate,
    SYS_futex,
    SYS_futex_waitv,
    SYS_getrandom,
    SYS_io_getevents,
    SYS_io_uring_enter,
    SYS_ioctl,
    SYS_madvise,
    SYS_mmap,
    SYS_mprotect,
    SYS_mq_timedreceive,
    SYS_mq_timedsend,
    SYS_msgrcv,
    SYS_msgsnd,
    SYS_msync,
    SYS_munmap,
    SYS_nanosleep,
    #[cfg(target_arch = "x86_64")]
    SYS_open,
    SYS_openat,
    #[cfg(target_arch = "x86_64")]
    SYS_pause,
    #[cfg(target_arch = "x86_64")]
    SYS_poll,
    SYS_ppoll,
    SYS_pread64,
    SYS_preadv,
    SYS_preadv2,
    SYS_pselect6,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_read,
    SYS_readv,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_restart_syscall,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_sched_yield,
    #[cfg(target_arch = "x86_64")]
    SYS_select,
    SYS_semop,
    SYS_semtimedop,
    SYS_sendfile,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_splice,
    SYS_sync,
    SYS_syncfs,
    SYS_tee,
    SYS_tgkill,
    SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    SYS_vfork,
    SYS_vmsplice,
    SYS_wait4,
    SYS_waitid,
    SYS_write,
    SYS_writev,
];
