//! Whether this process sees all of the machine.

use std::fs;
use std::path::Path;

/// The inode numbers of the initial namespaces (`PROC_USER_INIT_INO`, `PROC_PID_INIT_INO` of the
/// kernel's linux/proc_ns.h), as `/proc/self/ns` shows them.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Files and variables that container runtimes set, and the runtimes' names.
const RUNTIME_MARKERS: [(&str, &str); 3] = [
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
    ("/run/host/container-manager", "container"),
];

/// The namespaces and the container of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Whether it is in another user namespace than the initial one: there, privileges do not apply
    /// to the machine.
    pub has_user_namespace: bool,
    /// Whether it is in another PID namespace than the initial one: it cannot see all processes of
    /// the machine.
    pub has_pid_namespace: bool,
    /// The container runtime that was recognized.
    pub runtime: Option<&'static str>,
}

impl ContainerInfo {
    /// Reads them from the system.
    #[must_use]
    pub fn read() -> ContainerInfo {
        let differs = |name: &str, first: &str| {
            let namespace = fs::read_link(Path::new("/proc/self/ns").join(name));
            namespace.is_ok_and(|namespace| namespace.as_os_str() != first)
        };
        let trace = RUNTIME_MARKERS
            .iter()
            .find(|(path, _)| Path::new(path).exists());
        ContainerInfo {
            has_user_namespace: differs("user", INITIAL_USER_NAMESPACE),
            has_pid_namespace: differs("pid", INITIAL_PID_NAMESPACE),
            runtime: trace.map(|(_, name)| *name),
        }
    }

    /// Whether it looks like a container.
    #[must_use]
    pub fn is_container(&self) -> bool {
        self.has_user_namespace || self.has_pid_namespace || self.runtime.is_some()
    }
}
