//! What this machine allows (`/proc/sys/kernel`).

use std::fs;
use std::str::FromStr;

/// What this machine allows. Nothing where the kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// `kernel.perf_event_paranoid`: 2 leaves users their own processes without the kernel, 1 with it,
    /// 0 all processes, 3 and 4 (of some distributions) nothing.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_mlock_kb`: how much ring buffer a user may have for each processor, in KiB.
    pub locked_kib: Option<u64>,
    /// `kernel.perf_event_max_sample_rate`: samples a second.
    pub most_samples: Option<u64>,
    /// `kernel.perf_event_max_stack`: frames of a stack that the kernel walks.
    pub most_frames: Option<u64>,
    /// `kernel.kptr_restrict`: whether addresses of the kernel are hidden.
    pub hidden_addresses: Option<i32>,
}

impl Limits {
    /// Asks the kernel.
    #[must_use]
    pub fn read() -> Limits {
        Limits {
            paranoid: read("perf_event_paranoid"),
            locked_kib: read("perf_event_mlock_kb"),
            most_samples: read("perf_event_max_sample_rate"),
            most_frames: read("perf_event_max_stack"),
            hidden_addresses: read("kptr_restrict"),
        }
    }
}

fn read<T: FromStr>(name: &str) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    text.trim().parse().ok()
}
