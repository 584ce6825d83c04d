//! Whether this process sees all of the machine.

use std::fs;
use std::path::Path;

/// The numbers of the first namespaces (`PROC_USER_INIT_INO`, `PROC_PID_INIT_INO` of the kernel's
/// linux/proc_ns.h), by which the kernel names them in `/proc/self/ns`.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What container runtimes leave behind in what they run, and their names.
const RUNTIME_MARKERS: [(&str, &str); 3] = [
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
    ("/run/host/container-manager", "container"),
];

/// What of the machine this process is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Whether its users are the machine's: elsewhere rights count for nothing that is the machine's.
    pub has_user_namespace: bool,
    /// Whether there are processes of the machine that it cannot see.
    pub has_pid_namespace: bool,
    /// The container runtime that has left a trace.
    pub runtime: Option<&'static str>,
}

impl ContainerInfo {
    /// Looks around.
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
