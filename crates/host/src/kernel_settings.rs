//! The kernel's settings (`/proc/sys/kernel`).

use std::fs;
use std::str::FromStr;

/// What the kernel is set to. Nothing where it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelSettings {
    /// `kernel.perf_event_paranoid`: 2 leaves users their own processes without the kernel, 1 with it,
    /// 0 all processes, 3 and 4 (of some distributions) nothing.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_mlock_kb`: how much ring buffer a user may have for each processor, in KiB,
    /// beside what the user may lock anyway.
    pub mlock_kib: Option<u64>,
    /// `kernel.perf_event_max_sample_rate`: samples a second.
    pub max_sample_rate: Option<u64>,
    /// `kernel.perf_event_max_stack`: frames of a stack that the kernel walks.
    pub max_stack_frames: Option<u64>,
    /// `kernel.perf_cpu_time_max_percent`: the share of a processor that sampling may take, in percent,
    /// before the kernel lowers the rate; 0 and 100 for any.
    pub max_cpu_percent: Option<u64>,
    /// `kernel.kptr_restrict`: whether addresses of the kernel are hidden: 0 from users without rights
    /// as perf asks for them, 1 from those without `CAP_SYSLOG`, 2 from all.
    pub kptr_restrict: Option<i32>,
    /// `kernel.yama.ptrace_scope`: who may trace processes; nothing where Yama is not there.
    pub ptrace_scope: Option<u32>,
}

impl KernelSettings {
    /// Asks the kernel.
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
