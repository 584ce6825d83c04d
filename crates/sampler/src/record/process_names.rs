//! Names and parents of processes and threads that no record names.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use unspool_perf_events::Record;

/// Names and parents: from earlier records, and from the system for running processes.
///
/// An exited process stays known until the kernel reuses its ID: samples of a thread's exit follow
/// the exit record.
#[derive(Debug)]
pub(crate) struct ProcessNames {
    /// Whether the system may be queried.
    is_live: bool,
    /// The names of threads.
    names: HashMap<u32, String>,
    /// The parents of processes.
    parents: HashMap<u32, u32>,
    /// Created processes that have not exited.
    children: BTreeSet<u32>,
}

/// A process that another one created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildProcess {
    /// Its process ID.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl ProcessNames {
    /// For a running recording, before its first record.
    pub(crate) fn running() -> ProcessNames {
        ProcessNames {
            is_live: true,
            ..ProcessNames::recorded()
        }
    }

    /// For a finished recording, before its first record.
    pub(crate) fn recorded() -> ProcessNames {
        ProcessNames {
            is_live: false,
            names: HashMap::new(),
            parents: HashMap::new(),
            children: BTreeSet::new(),
        }
    }

    /// Applies a record: a new thread has the name of its creator.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(named) => {
                let name = String::from_utf8_lossy(named.name).into_owned();
                self.names.insert(named.tid, name);
            }
            Record::Fork(task) => {
                // It may be gone when its name is requested.
                let name = self.name(task.parent_pid, task.parent_tid);
                if !name.is_empty() {
                    self.names.insert(task.parent_tid, name.clone());
                    self.names.insert(task.tid, name);
                } else {
                    drop(self.names.remove(&task.tid));
                }
                if task.pid != task.parent_pid {
                    self.parents.insert(task.pid, task.parent_pid);
                    self.children.insert(task.pid);
                }
            }
            Record::Exit(task) if task.pid == task.tid => drop(self.children.remove(&task.pid)),
            _ => {}
        }
    }

    /// Forgets names and parents that the system can be asked for: records are missing.
    pub(crate) fn forget(&mut self) {
        if self.is_live {
            self.names.clear();
            self.parents.clear();
        }
    }

    /// Created processes that still run: no record reports their exit, and the system has them.
    pub(crate) fn still_running(&self) -> Vec<ChildProcess> {
        let is_there = |pid: &&u32| !self.system_file(&format!("{pid}/stat")).is_empty();
        let there = self.children.iter().filter(is_there);
        there
            .map(|&pid| ChildProcess {
                pid,
                name: self.name(pid, pid),
            })
            .collect()
    }

    /// The name of a thread of a process; empty if unknown.
    pub(crate) fn name(&self, pid: u32, tid: u32) -> String {
        if let Some(name) = self.names.get(&tid) {
            return name.clone();
        }
        let name = self.system_file(&format!("{pid}/task/{tid}/comm"));
        String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
    }

    /// The parent of a process; 0 if unknown.
    pub(crate) fn parent(&self, pid: u32) -> u32 {
        if let Some(parent) = self.parents.get(&pid) {
            return *parent;
        }
        let stat = self.system_file(&format!("{pid}/stat"));
        let stat = String::from_utf8_lossy(&stat);
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = after_name.split_ascii_whitespace().nth(1);
        parent.and_then(|parent| parent.parse().ok()).unwrap_or(0)
    }

    /// A file below `/proc`; empty if the system may not be queried or does not have it.
    fn system_file(&self, path: &str) -> Vec<u8> {
        if self.is_live {
            fs::read(Path::new("/proc").join(path)).unwrap_or_default()
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use unspool_perf_events::{CommRecord, TaskRecord};

    use super::*;

    /// In a running recording, too, a process that exits before its first sample is read has a name
    /// and a parent.
    #[test]
    fn exited_processes_keep_their_recorded_names() {
        let ours = std::process::id();
        // No process has these IDs: the system's go up to 2^22.
        let [shell, child, thread] = [1 << 23, (1 << 23) + 1, (1 << 23) + 2];
        let fork = |pid, tid, parent| {
            Record::Fork(TaskRecord {
                pid,
                tid,
                parent_pid: parent,
                parent_tid: parent,
            })
        };
        let mut process_names = ProcessNames::running();
        assert_eq!(
            (
                process_names.name(child, child),
                process_names.parent(child)
            ),
            (String::new(), 0)
        );
        process_names.note(&Record::Comm(CommRecord {
            pid: shell,
            tid: shell,
            name: b"shell",
            is_exec: true,
        }));
        process_names.note(&fork(child, child, shell));
        process_names.note(&fork(child, thread, child));
        assert_eq!(
            (
                process_names.name(child, child),
                process_names.parent(child)
            ),
            ("shell".into(), shell)
        );
        assert_eq!(process_names.name(child, thread), "shell");

        // The system knows the names of processes that started before the recording.
        process_names.note(&fork(child, child, ours));
        assert_eq!(
            (
                process_names.name(child, child),
                process_names.parent(child)
            ),
            (process_names.name(ours, ours), ours)
        );
        assert_ne!(process_names.name(ours, ours), "");
    }
}
