//! The processes that walks in the kernel know, with lists of their mappings.
//!
//! A *generation* of a process' mappings lasts until code is mapped where there was other code
//! before, or until `exec`. In one generation mappings are only added, so a walk by any of its
//! lists is right: code that a list lacks ends the walk. A walk's record has the generation that it
//! used. At the record's place in the order of time, another generation means that the walk may be
//! wrong.
//!
//! A process that replaces code is not walked in the kernel any more until its next `exec`.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use unspool_bpf_walk::{ModuleMapping, WalkMaps, write_mappings};
use unspool_perf_events::Record;

use crate::address_space::ProcessSpace;
use crate::processes::Processes;

/// The part of the arena with lists, in bytes.
pub(super) const LISTS: Range<usize> = WalkMaps::FREE.start..WalkMaps::FREE.start + (64 << 20);

/// The most mappings of a process.
const MAX_MAPPINGS: usize = 4096;

/// The known processes.
#[derive(Debug)]
pub(crate) struct Directory {
    processes: HashMap<u32, KnownProcess>,
    /// The processes whose lists are out of date.
    changed: HashSet<u32>,
    /// The number of the last generation. They are not reused.
    last_generation: u32,
    /// The addresses of lists. Equal ones are shared.
    lists: HashMap<Vec<ModuleMapping>, u64>,
    /// Where the arena is free for lists, in bytes.
    free: usize,
}

#[derive(Debug, Clone, Copy)]
struct KnownProcess {
    generation: u32,
    /// The list that programs have.
    published: Option<u64>,
    /// [`ProcessSpace::replacements`] at the start of the generation.
    replacements: u32,
    /// Whether it has replaced code.
    is_volatile: bool,
}

impl Default for Directory {
    fn default() -> Self {
        Directory {
            processes: HashMap::new(),
            changed: HashSet::new(),
            last_generation: 0,
            lists: HashMap::new(),
            free: LISTS.start,
        }
    }
}

impl Directory {
    /// Follows a record that `processes` has noted already.
    pub(crate) fn note(&mut self, record: &Record<'_>, processes: &Processes) {
        match record {
            Record::Comm(named) if named.is_exec => self.begin(named.pid, processes),
            Record::Fork(task) if task.pid != task.parent_pid => self.begin(task.pid, processes),
            Record::Mmap(mapped) if mapped.is_executable => self.change(mapped.pid, processes),
            _ => {}
        }
    }

    /// A sample of a process was handed over: it may have become known by that.
    pub(crate) fn note_handed_over(&mut self, pid: u32, processes: &Processes) {
        match self.processes.get(&pid) {
            None => self.begin(pid, processes),
            Some(known) if known.published.is_none() && !known.is_volatile => {
                self.changed.insert(pid);
            }
            Some(_) => {}
        }
    }

    /// Whether a walk of a process by a generation is right.
    pub(crate) fn is_current(&self, pid: u32, generation: u32) -> bool {
        let known = self.processes.get(&pid);
        known.is_some_and(|known| known.generation == generation)
    }

    /// All lists are out of date: files have got tables.
    pub(crate) fn change_all(&mut self) {
        self.changed.extend(self.processes.keys());
    }

    fn begin(&mut self, pid: u32, processes: &Processes) {
        let space = processes.known_space(pid);
        self.last_generation += 1;
        let known = KnownProcess {
            generation: self.last_generation,
            published: None,
            replacements: space.map_or(0, |space| space.replacements()),
            is_volatile: false,
        };
        self.processes.insert(pid, known);
        self.changed.insert(pid);
    }

    fn change(&mut self, pid: u32, processes: &Processes) {
        let Some(known) = self.processes.get_mut(&pid) else {
            return;
        };
        let space = processes.known_space(pid);
        let replacements = space.map_or(0, |space| space.replacements());
        if replacements != known.replacements {
            self.last_generation += 1;
            *known = KnownProcess {
                generation: self.last_generation,
                published: None,
                replacements,
                is_volatile: true,
            };
        }
        self.changed.insert(pid);
    }

    /// Gives programs the lists of all processes that have changed.
    pub(crate) fn publish(&mut self, maps: &WalkMaps, processes: &Processes) {
        for pid in std::mem::take(&mut self.changed) {
            let Some(known) = self.processes.get(&pid).copied() else {
                continue;
            };
            let space = processes.known_space(pid).filter(|_| !known.is_volatile);
            let list = space.and_then(|space| self.list(maps, space));
            if list.is_some() && list == known.published {
                continue;
            }
            let published = list.filter(|list| {
                let set = maps.set_process(pid, *list, known.generation);
                set.is_ok()
            });
            if published.is_none() {
                maps.remove_process(pid);
            }
            self.processes
                .insert(pid, KnownProcess { published, ..known });
        }
    }

    /// The address of the list of a process' mappings. `None` if there are none, or too many.
    fn list(&mut self, maps: &WalkMaps, space: &ProcessSpace) -> Option<u64> {
        let mappings = space.files().filter_map(|(range, file, bias)| {
            Some(ModuleMapping {
                start: range.start,
                end: range.end,
                bias,
                record: *file.arena_record.get()?,
            })
        });
        let mappings: Vec<_> = mappings.take(MAX_MAPPINGS + 1).collect();
        if mappings.is_empty() || mappings.len() > MAX_MAPPINGS {
            return None;
        }
        if let Some(list) = self.lists.get(&mappings) {
            return Some(*list);
        }
        let bytes = (mappings.len() + 1) * size_of::<ModuleMapping>();
        if self.free + bytes > LISTS.end {
            return None;
        }
        let written = write_mappings(maps.arena(), self.free, &mappings).ok()?;
        self.free = written.end();
        self.lists.insert(mappings, written.address());
        Some(written.address())
    }

    /// Forgets processes that have exited.
    pub(crate) fn forget_ended(&mut self, maps: &WalkMaps, processes: &Processes) {
        self.processes.retain(|pid, known| {
            let is_known = processes.known_space(*pid).is_some();
            if !is_known && known.published.is_some() {
                maps.remove_process(*pid);
            }
            is_known
        });
    }
}
