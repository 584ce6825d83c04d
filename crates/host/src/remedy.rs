//! Remedies for refusals.

use std::fmt;

/// A remedy for a refusal, in words and as a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Lower `kernel.perf_event_paranoid`.
    Paranoid {
        /// The highest sufficient value.
        needed: i32,
    },
    /// Permit performance events in the container.
    PerfInContainer,
    /// Permit performance events of other users' processes.
    PerfOfOthers,
    /// Raise `kernel.perf_event_max_sample_rate`.
    SampleRate {
        /// The requested rate, in samples a second.
        wanted: u64,
    },
    /// Allow more memory for ring buffers.
    RingMemory,
    /// Allow more open files.
    OpenFiles,
    /// Permit tracing by Yama.
    PtraceScope {
        /// The value of `kernel.yama.ptrace_scope`.
        scope: u32,
    },
    /// Permit tracing of another user's process.
    PtraceOfOthers,
    /// Permit tracing of an undumpable process.
    PtraceOfUndumpable,
    /// Permit tracing in the container.
    PtraceInContainer,
    /// Make kernel addresses visible.
    KernelAddresses {
        /// The value of `kernel.kptr_restrict`; `None` if unknown.
        restrict: Option<i32>,
    },
    /// Mount the tracing file system.
    MountTracefs,
    /// Make the mounted tracing file system readable.
    ReadTracefs,
    /// BPF programs have to be loaded.
    Bpf,
}

impl Remedy {
    /// The command that removes the cause for all programs, if there is one: without the backquotes
    /// of the text.
    #[must_use]
    pub fn command(self) -> Option<String> {
        let fixed = |command: &str| Some(command.to_owned());
        match self {
            Remedy::Paranoid { needed } => {
                Some(format!("sudo sysctl kernel.perf_event_paranoid={needed}"))
            }
            Remedy::SampleRate { wanted } => Some(format!(
                "sudo sysctl kernel.perf_event_max_sample_rate={wanted}"
            )),
            Remedy::RingMemory => fixed("sudo sysctl kernel.perf_event_mlock_kb=65536"),
            Remedy::OpenFiles => fixed("ulimit -n $(ulimit -Hn)"),
            Remedy::PtraceScope { scope: 0..=2 } => fixed("sudo sysctl kernel.yama.ptrace_scope=0"),
            // See kallsyms_show_value in the kernel's kernel/ksyms_common.c.
            Remedy::KernelAddresses { restrict: Some(0) } => {
                Remedy::Paranoid { needed: 1 }.command()
            }
            Remedy::KernelAddresses { restrict: Some(1) } => {
                fixed("sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1")
            }
            Remedy::KernelAddresses { .. } => fixed("sudo sysctl kernel.kptr_restrict=1"),
            Remedy::MountTracefs => fixed("sudo mount -t tracefs tracefs /sys/kernel/tracing"),
            Remedy::ReadTracefs => fixed("sudo mount -o remount,mode=755 /sys/kernel/tracing"),
            Remedy::Bpf
            | Remedy::PerfInContainer
            | Remedy::PerfOfOthers
            | Remedy::PtraceScope { .. }
            | Remedy::PtraceOfOthers
            | Remedy::PtraceOfUndumpable
            | Remedy::PtraceInContainer => None,
        }
    }

    /// The text without the command.
    fn text(self) -> &'static str {
        match self {
            Remedy::Paranoid { .. }
            | Remedy::ReadTracefs
            | Remedy::KernelAddresses {
                restrict: Some(0 | 1),
            } => "run as root, or ",
            Remedy::KernelAddresses { .. } => "run as root after ",
            Remedy::PtraceScope { scope: 0..=2 } => "run as root (CAP_SYS_PTRACE), or ",
            Remedy::PtraceScope { .. } => "set it lower in /etc/sysctl.d and restart",
            Remedy::PerfInContainer => {
                "run a container with `--cap-add=PERFMON` and a seccomp profile that allows perf_event_open"
            }
            Remedy::PerfOfOthers => "run as that user or as root",
            Remedy::SampleRate { .. } => "ask for fewer, or ",
            Remedy::RingMemory => "run as root, raise `ulimit -l`, or ",
            Remedy::PtraceOfOthers => {
                "run as that user or with CAP_SYS_PTRACE (as root, in a container with `--cap-add=SYS_PTRACE`)"
            }
            Remedy::PtraceOfUndumpable => "run as root (CAP_SYS_PTRACE)",
            Remedy::PtraceInContainer => "run a container with `--cap-add=SYS_PTRACE`",
            Remedy::Bpf => {
                "run as root (CAP_BPF and CAP_PERFMON; in a container, the seccomp profile must \
                 allow bpf)"
            }
            Remedy::OpenFiles | Remedy::MountTracefs => "",
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match self.command() {
            Some(command) => write!(f, "`{command}`"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_a_sentence_with_its_command() {
        for (remedy, text) in [
            (
                Remedy::Paranoid { needed: 1 },
                "run as root, or `sudo sysctl kernel.perf_event_paranoid=1`",
            ),
            (
                Remedy::PtraceScope { scope: 2 },
                "run as root (CAP_SYS_PTRACE), or `sudo sysctl kernel.yama.ptrace_scope=0`",
            ),
            (
                Remedy::PtraceScope { scope: 3 },
                "set it lower in /etc/sysctl.d and restart",
            ),
            (
                Remedy::KernelAddresses { restrict: Some(1) },
                "run as root, or `sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`",
            ),
            (
                Remedy::KernelAddresses { restrict: Some(2) },
                "run as root after `sudo sysctl kernel.kptr_restrict=1`",
            ),
            (Remedy::OpenFiles, "`ulimit -n $(ulimit -Hn)`"),
        ] {
            assert_eq!(remedy.to_string(), text);
        }
    }
}
