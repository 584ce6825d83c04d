//! Whether this process sees all of the machine.

use std::fs;
use std::path::Path;

/// The numbers of the first namespaces (`PROC_USER_INIT_INO`, `PROC_PID_INIT_INO` of the kernel's
/// linux/proc_ns.h), by which the kernel names them in `/proc/self/ns`.
const FIRST_USERS: &str = "user:[4026531837]";
const FIRST_PROCESSES: &str = "pid:[4026531836]";

/// What container runtimes leave behind in what they run, and their names.
const TRACES: [(&str, &str); 3] = [
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
    ("/run/host/container-manager", "container"),
];

/// What of the machine this process is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether its users are the machine's: elsewhere rights count for nothing that is the machine's.
    pub has_own_users: bool,
    /// Whether there are processes of the machine that it cannot see.
    pub has_own_processes: bool,
    /// The container runtime that has left a trace.
    pub runtime: Option<&'static str>,
}

impl Surroundings {
    /// Looks around.
    #[must_use]
    pub fn look() -> Surroundings {
        let differs = |name: &str, first: &str| {
            let namespace = fs::read_link(Path::new("/proc/self/ns").join(name));
            namespace.is_ok_and(|namespace| namespace.as_os_str() != first)
        };
        let trace = TRACES.iter().find(|(path, _)| Path::new(path).exists());
        Surroundings {
            has_own_users: differs("user", FIRST_USERS),
            has_own_processes: differs("pid", FIRST_PROCESSES),
            runtime: trace.map(|(_, name)| *name),
        }
    }

    /// Whether it looks like a container.
    #[must_use]
    pub fn is_container(&self) -> bool {
        self.has_own_users || self.has_own_processes || self.runtime.is_some()
    }
}
