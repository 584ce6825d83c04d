//! The processes that walks in the kernel know, with lists of their mappings.
//!
//! A *generation* of a process' mappings lasts until code is mapped where there was other code
//! before, or until `exec`. In one generation mappings are only added, so a walk by any of its
//! lists is right: code that a list lacks ends the walk. A walk's record has the generation that it
//! used. At the record's place in the order of time, another generation means that the walk may be
//! wrong.
//!
//! A process that replaces code is not walked in the kernel until it has not done so for a second:
//! else, many walks would be wrong.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use unspool_bpf_walk::{HandOver, ModuleMapping, WalkMaps, write_mappings};
use unspool_perf_events::Record;

use super::lists::Lists;
use crate::address_space::ProcessSpace;
use crate::processes::Processes;

/// The part of the arena with lists, in bytes.
pub(super) const LISTS: Range<usize> = WalkMaps::FREE.start..WalkMaps::FREE.start + (64 << 20);

/// The most mappings of a process.
const MAX_MAPPINGS: usize = 4096;

/// How long a process that has replaced code is not walked in the kernel.
const REPLACEMENT_PAUSE: Duration = Duration::from_secs(1);

/// The known processes.
#[derive(Debug)]
pub(crate) struct Directory {
    processes: HashMap<u32, KnownProcess>,
    /// The processes whose lists are out of date.
    changed: HashSet<u32>,
    /// The number of the last generation. They are not reused.
    last_generation: u32,
    lists: Lists,
}

#[derive(Debug, Clone, Copy)]
struct KnownProcess {
    generation: u32,
    /// What programs have: the offset of a list and its generation, or why there is none.
    published: Result<(usize, u32), HandOver>,
    /// [`ProcessSpace::replacements`] at the start of the generation.
    replacements: u32,
    /// When it has replaced code, if that was lately.
    replaced: Option<Instant>,
}

impl Default for Directory {
    fn default() -> Self {
        Directory {
            processes: HashMap::new(),
            changed: HashSet::new(),
            last_generation: 0,
            lists: Lists::new(LISTS),
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
            Some(KnownProcess {
                published: Err(HandOver::UnknownProcess | HandOver::NoRoom),
                ..
            }) => drop(self.changed.insert(pid)),
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
        let old = self.processes.get(&pid);
        let known = KnownProcess {
            generation: self.last_generation,
            published: old.map_or(Err(HandOver::UnknownProcess), |old| old.published),
            replacements: space.map_or(0, |space| space.replacements()),
            replaced: None,
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
                replacements,
                replaced: Some(Instant::now()),
                ..*known
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
            let list = match processes.known_space(pid) {
                _ if known.replaced.is_some() => Err(HandOver::ReplacedCode),
                None => Err(HandOver::UnknownProcess),
                Some(space) => self.list(maps, space),
            };
            let wanted = list.map(|list| (list, known.generation));
            if wanted == known.published {
                continue;
            }
            let published = match wanted {
                Ok((list, generation)) => {
                    let address = maps.arena().address() + list as u64;
                    let set = maps.set_process(pid, address, generation);
                    set.map_err(|_| HandOver::NoRoom).and(wanted)
                }
                Err(HandOver::UnknownProcess) => {
                    maps.remove_process(pid);
                    wanted
                }
                Err(reason) => {
                    // Where there is no room, it is not known.
                    let _ = maps.refuse_process(pid, reason);
                    wanted
                }
            };
            self.processes
                .insert(pid, KnownProcess { published, ..known });
        }
    }

    /// The offset of the list of a process' mappings, or why there is none.
    fn list(&mut self, maps: &WalkMaps, space: &ProcessSpace) -> Result<usize, HandOver> {
        let mappings = space.files().filter_map(|(range, file, bias)| {
            Some(ModuleMapping {
                start: range.start,
                end: range.end,
                bias,
                record: *file.arena_record.get()?,
            })
        });
        let mappings: Vec<_> = mappings.take(MAX_MAPPINGS + 1).collect();
        match mappings.len() {
            0 => return Err(HandOver::UnknownProcess),
            1..=MAX_MAPPINGS => {}
            _ => return Err(HandOver::NoRoom),
        }
        if let Some(list) = self.lists.offset(&mappings) {
            return Ok(list);
        }
        let offset = self.lists.reserve(mappings.clone()).or_else(|| {
            self.remove_unused_lists(maps);
            self.lists.reserve(mappings.clone())
        });
        let offset = offset.ok_or(HandOver::NoRoom)?;
        let written = write_mappings(maps.arena(), offset, &mappings);
        written.map(|_| offset).map_err(|_| HandOver::NoRoom)
    }

    /// Makes room for lists. That waits for walks, so it is rare.
    fn remove_unused_lists(&mut self, maps: &WalkMaps) {
        if !self.lists.is_worn() || maps.wait_for_walks().is_err() {
            return;
        }
        let used = self.processes.values();
        let used = used.filter_map(|known| Some(known.published.ok()?.0));
        self.lists.retain(&used.collect());
    }

    /// Forgets processes that have exited, and takes back those that do not replace code any more.
    pub(crate) fn forget_ended(&mut self, maps: &WalkMaps, processes: &Processes) {
        self.processes.retain(|pid, _| {
            let is_known = processes.known_space(*pid).is_some();
            if !is_known {
                maps.remove_process(*pid);
            }
            is_known
        });
        for (pid, known) in &mut self.processes {
            let is_over = |replaced: Instant| replaced.elapsed() >= REPLACEMENT_PAUSE;
            if known.replaced.is_some_and(is_over) {
                known.replaced = None;
                self.changed.insert(*pid);
            }
        }
    }
}
