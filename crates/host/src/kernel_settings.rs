//! The kernel's settings (`/proc/sys/kernel`).

use std::fs;
use std::str::FromStr;

/// The kernel's settings. `None` for a setting that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelSettings {
    /// `kernel.perf_event_paranoid`: 2 permits users to profile their own processes without the
    /// kernel, 1 with it, 0 all processes. 3 and 4 (of some distributions) permit nothing.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_mlock_kb`: the ring buffer memory of a user for each CPU, in KiB, in
    /// addition to the user's own limit.
    pub mlock_kib: Option<u64>,
    /// `kernel.perf_event_max_sample_rate`: samples a second.
    pub max_sample_rate: Option<u64>,
    /// `kernel.perf_event_max_stack`: the most frames that the kernel walks.
    pub max_stack_frames: Option<u64>,
    /// `kernel.perf_cpu_time_max_percent`: the share of CPU time for sampling, in percent, above
    /// which the kernel lowers the rate; 0 and 100 for no limit.
    pub max_cpu_percent: Option<u64>,
    /// `kernel.kptr_restrict`: who cannot see kernel addresses. 0: users without the privileges
    /// that perf needs for them, 1: those without `CAP_SYSLOG`, 2: everyone.
    pub kptr_restrict: Option<i32>,
    /// `kernel.yama.ptrace_scope`: who may trace processes; `None` without Yama.
    pub ptrace_scope: Option<u32>,
}

impl KernelSettings {
    /// Reads them from `/proc/sys`.
    #[must_use]
    pub fn read() -> KernelSettings {
        KernelSettings {
            paranoid: read("perf_event_paranoid"),
            mlock_kib: read("perf_event_mlock_kb"),
            max_sample_rate: read("perf_event_max_sample_rate"),
            max_stack_frames: read("perf_event_max_stack"),
            max_cpu_percent: read("perf_cpu_time_max_percent"),
            kptr_restrict: read("kptr_restrict"),
            ptrace_scope: read("yama/ptrace_scope"),
        }
    }
}

fn read<T: FromStr>(name: &str) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    text.trim().parse().ok()
}
