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
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_bpf_walk::{HandOver, ModuleMapping, WalkMaps, write_mappings};
use unspool_perf_events::Record;

use super::lists::Lists;
use super::tables::ArenaTables;
use crate::address_space::ProcessSpace;
use crate::module_files::ModuleFile;
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
    /// Whether a sample was handed over for lack of a table that will still be loaded.
    is_waiting: bool,
}

/// What programs have of a process: the offset of a list and its generation, or why there is none.
type Published = Result<(usize, u32), HandOver>;

#[derive(Debug, Clone, Copy)]
struct KnownProcess {
    generation: u32,
    published: Published,
    /// [`ProcessSpace::replacements`] at the start of the generation.
    replacements: u32,
    /// Whether tables of its files will still be loaded.
    is_loading: bool,
    /// When it has replaced code, if that was lately.
    replaced: Option<Instant>,
}

impl Default for Directory {
    fn default() -> Self {
        Directory {
            processes: HashMap::new(),
            changed: HashSet::new(),
            last_generation: 0,
            is_waiting: false,
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
        let Some(known) = self.processes.get(&pid) else {
            self.begin(pid, processes);
            return;
        };
        self.is_waiting |= known.is_loading;
        if known.published == Err(HandOver::UnknownProcess) {
            self.changed.insert(pid);
        }
    }

    /// Whether a sample was handed over since the last call for lack of a table that will still be
    /// loaded.
    pub(crate) fn take_waiting(&mut self) -> bool {
        std::mem::take(&mut self.is_waiting)
    }

    /// Whether a walk of a process by a generation is right.
    pub(crate) fn is_current(&self, pid: u32, generation: u32) -> bool {
        let known = self.processes.get(&pid);
        known.is_some_and(|known| known.generation == generation)
    }

    /// Files have got tables: the lists of processes that lacked some are out of date.
    pub(crate) fn change_loading(&mut self) {
        let loading = self.processes.iter().filter(|(_, known)| known.is_loading);
        self.changed.extend(loading.map(|(pid, _)| pid));
    }

    /// Begins a generation of each process, since it is not known what they have mapped.
    pub(crate) fn begin_all(&mut self) {
        self.last_generation += 1;
        for known in self.processes.values_mut() {
            *known = KnownProcess {
                generation: self.last_generation,
                replacements: 0,
                replaced: None,
                ..*known
            };
        }
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
            is_loading: false,
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
            let space = processes.known_space(pid);
            let is_loading = space.is_some_and(|space| {
                let mut files = space.files();
                files.any(|(_, file, _)| file.arena_table.is_pending())
            });
            let list = match space {
                _ if known.replaced.is_some() => Err(HandOver::ReplacedCode),
                None => Err(HandOver::UnknownProcess),
                Some(space) => self.list(maps, space),
            };
            let wanted = list.map(|list| (list, known.generation));
            let known = KnownProcess {
                published: replace(maps, pid, known.published, wanted),
                is_loading,
                ..known
            };
            self.processes.insert(pid, known);
        }
    }

    /// The offset of the list of a process' mappings, or why there is none.
    fn list(&mut self, maps: &WalkMaps, space: &ProcessSpace) -> Result<usize, HandOver> {
        let mappings = space.files().filter_map(|(range, file, bias)| {
            Some(ModuleMapping {
                start: range.start,
                end: range.end,
                bias,
                record: file.arena_table.record()?,
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
        match write_mappings(maps.arena(), offset, &mappings) {
            Ok(_) => Ok(offset),
            Err(_) => {
                self.lists.remove(&mappings);
                Err(HandOver::NoRoom)
            }
        }
    }

    /// Makes room for lists. That waits for walks, so it is rare.
    fn remove_unused_lists(&mut self, maps: &WalkMaps) {
        if !self.lists.is_worn() || maps.wait_for_walks().is_err() {
            return;
        }
        self.lists.retain(&self.used_lists());
    }

    /// The offsets of the lists that programs have.
    fn used_lists(&self) -> HashSet<usize> {
        let known = self.processes.values();
        known
            .filter_map(|known| Some(known.published.ok()?.0))
            .collect()
    }

    /// Removes tables that nobody has mapped, if others have no room. Returns the files to load
    /// then.
    pub(crate) fn make_room(
        &mut self,
        maps: &WalkMaps,
        tables: &ArenaTables,
        processes: &Processes,
    ) -> Vec<Arc<ModuleFile>> {
        if !tables.is_full() {
            return Vec::new();
        }
        self.publish(maps, processes);
        let listed = self.lists.records(&self.used_lists());
        let mapped = processes.mapped_files().map(|file| file.number);
        tables.make_room(&listed, &mapped.collect(), || maps.wait_for_walks())
    }

    /// Forgets processes that have exited, and takes back those that do not replace code any more.
    pub(crate) fn forget_ended(&mut self, maps: &WalkMaps, processes: &Processes) {
        self.processes.retain(|pid, _| {
            processes.known_space(*pid).is_some() || maps.remove_process(*pid).is_err()
        });
        for (pid, known) in &mut self.processes {
            let is_over = |replaced: Instant| replaced.elapsed() >= REPLACEMENT_PAUSE;
            if known.replaced.is_some_and(is_over) {
                known.replaced = None;
                self.changed.insert(*pid);
            }
            if known.published == Err(HandOver::NoRoom) {
                self.changed.insert(*pid);
            }
        }
    }
}

/// Gives programs what is `wanted` of a process, of which they have what is `published`. Returns
/// what they have then.
fn replace(maps: &WalkMaps, pid: u32, published: Published, wanted: Published) -> Published {
    if wanted == published {
        return wanted;
    }
    let set = match wanted {
        Ok((list, generation)) => {
            let address = maps.arena().address() + list as u64;
            maps.set_process(pid, address, generation)
        }
        Err(HandOver::UnknownProcess) => maps.remove_process(pid),
        Err(reason) => maps.refuse_process(pid, reason),
    };
    match set {
        Ok(()) => wanted,
        // Programs must not keep a list whose memory is reused. Removal needs no memory.
        Err(_) if maps.remove_process(pid).is_ok() => Err(HandOver::NoRoom),
        Err(_) => published,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process for which there is no room is not known, whatever was known of it.
    #[test]
    #[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
    fn processes_have_no_room_in_a_full_map() {
        let maps = WalkMaps::new(1).unwrap();
        let list = Ok((LISTS.start, 7));
        let unknown = Err(HandOver::UnknownProcess);
        let (mut known, mut pid) = (Vec::new(), 1);
        while replace(&maps, pid, unknown, list) == list {
            known.push(pid);
            pid += 1;
        }
        assert_eq!(known.len(), 16_384);
        assert_eq!(replace(&maps, pid, unknown, list), Err(HandOver::NoRoom));
        let replaced = Err(HandOver::ReplacedCode);
        assert_eq!(
            replace(&maps, pid, unknown, replaced),
            Err(HandOver::NoRoom)
        );
        assert_eq!(replace(&maps, 1, list, replaced), replaced);
        assert_eq!(replace(&maps, 1, replaced, unknown), unknown);
        assert_eq!(replace(&maps, pid, Err(HandOver::NoRoom), list), list);
    }
}
