//! The privileges of this process (`/proc/self`).

use std::fmt;
use std::fs;

/// A capability (capabilities(7)) that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// Lock any amount of memory.
    IpcLock,
    /// Trace processes of other users, and those that Yama protects.
    SysPtrace,
    /// Many operations, including those of `Perfmon` and `Bpf`.
    SysAdmin,
    /// See kernel addresses that are hidden from others.
    Syslog,
    /// Open any performance event.
    Perfmon,
    /// Load programs into the kernel.
    Bpf,
}

impl Capability {
    /// Its number in linux/capability.h.
    fn number(self) -> u32 {
        match self {
            Capability::IpcLock => 14,
            Capability::SysPtrace => 19,
            Capability::SysAdmin => 21,
            Capability::Syslog => 34,
            Capability::Perfmon => 38,
            Capability::Bpf => 39,
        }
    }

    /// The kernel's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Capability::IpcLock => "CAP_IPC_LOCK",
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Syslog => "CAP_SYSLOG",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

/// A resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceLimit {
    /// In bytes.
    Bytes(u64),
    /// No limit.
    Unlimited,
}

impl fmt::Display for ResourceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResourceLimit::Bytes(bytes) => write!(f, "{} KiB", bytes >> 10),
            ResourceLimit::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// The privileges of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Privileges {
    /// The effective capabilities, as bits.
    capabilities: u64,
    /// `RLIMIT_MEMLOCK` (`ulimit -l`): the memory that it may lock. `None` if it cannot be read.
    pub memlock_limit: Option<ResourceLimit>,
}

impl Privileges {
    /// Reads them from the system.
    #[must_use]
    pub fn read() -> Privileges {
        let text = |name: &str| fs::read_to_string(format!("/proc/self/{name}"));
        Privileges::from_texts(
            &text("status").unwrap_or_default(),
            &text("limits").unwrap_or_default(),
        )
    }

    fn from_texts(status: &str, limits: &str) -> Privileges {
        let effective = (status.lines()).find_map(|line| line.strip_prefix("CapEff:"));
        let capabilities = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        let locked = (limits.lines()).find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = locked.and_then(|line| line.split_ascii_whitespace().next());
        Privileges {
            capabilities: capabilities.unwrap_or(0),
            memlock_limit: match soft {
                Some("unlimited") => Some(ResourceLimit::Unlimited),
                soft => soft
                    .and_then(|soft| soft.parse().ok())
                    .map(ResourceLimit::Bytes),
            },
        }
    }

    /// Whether it has a capability in its own user namespace; the kernel may require it in the
    /// initial one.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities & 1 << capability.number() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel() {
        let status = "Name:\tcat\nCapPrm:\t0000000000000000\nCapEff:\t0000004000080000\n";
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n";
        let rights = Privileges::from_texts(status, limits);
        assert!(rights.has(Capability::SysPtrace) && rights.has(Capability::Perfmon));
        assert!(!rights.has(Capability::SysAdmin) && !rights.has(Capability::Bpf));
        assert_eq!(rights.memlock_limit, Some(ResourceLimit::Bytes(8 << 20)));
        let unlimited =
            "Max locked memory         unlimited            unlimited            bytes\n";
        let rights = Privileges::from_texts("", unlimited);
        assert_eq!(rights.memlock_limit, Some(ResourceLimit::Unlimited));
        assert_eq!(Privileges::from_texts("", ""), Privileges::default());
    }
}
