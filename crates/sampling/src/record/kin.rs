//! What processes and threads are called and who began them, where no record of their own says so.

use std::collections::HashMap;
use std::fs;

use unspool_perf::Record;

/// Who knows it.
#[derive(Debug)]
pub(crate) enum Kin {
    /// The system, which still has them.
    Running,
    /// What was recorded before: a thread is called like the one that began it.
    Recorded {
        /// The names of threads.
        names: HashMap<u32, String>,
        /// The parents of processes.
        parents: HashMap<u32, u32>,
    },
}

impl Kin {
    /// Of a recording of which nothing was read yet.
    pub(crate) fn recorded() -> Kin {
        Kin::Recorded {
            names: HashMap::new(),
            parents: HashMap::new(),
        }
    }

    /// Remembers what a record tells.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        let Kin::Recorded { names, parents } = self else {
            return;
        };
        match record {
            Record::Named(named) => {
                let name = String::from_utf8_lossy(named.name).into_owned();
                names.insert(named.tid, name);
            }
            Record::Fork(task) => {
                match names.get(&task.parent_tid).cloned() {
                    Some(name) => drop(names.insert(task.tid, name)),
                    None => drop(names.remove(&task.tid)),
                }
                if task.pid != task.parent_pid {
                    parents.insert(task.pid, task.parent_pid);
                }
            }
            _ => {}
        }
    }

    /// The name of a thread of a process; empty if nobody knows it.
    pub(crate) fn name(&self, pid: u32, tid: u32) -> String {
        match self {
            Kin::Running => {
                let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
                String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
            }
            Kin::Recorded { names, .. } => names.get(&tid).cloned().unwrap_or_default(),
        }
    }

    /// The parent of a process; 0 if nobody knows it.
    pub(crate) fn parent(&self, pid: u32) -> u32 {
        match self {
            Kin::Running => {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
                let parent = after_name.split_ascii_whitespace().nth(1);
                parent.and_then(|parent| parent.parse().ok()).unwrap_or(0)
            }
            Kin::Recorded { parents, .. } => parents.get(&pid).copied().unwrap_or(0),
        }
    }
}
