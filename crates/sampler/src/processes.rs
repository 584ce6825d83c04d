//! Processes, according to the kernel's records.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Weak};

use unspool_elf::{BuildId, DELETED_SUFFIX};
use unspool_perf_events::{MmapFile, MmapRecord, Record};
use unspool_process::file_provider::FileProblem;
use unspool_process::generated_code::is_jitdump;
use unspool_process::maps::{Device, Mapping, Permissions};
use unspool_rows::{Abi, LoadBias, RuntimeAddr};
use unspool_symbols::JitCode;
use unspool_unwind::AnonymousCode;
use unspool_unwind::modules::ModuleSlot;

use crate::address_space::{ProcessSpace, Region, RegionContent, segment};
use crate::jit::{JitDumps, JitProcess};
use crate::live_files::LiveMemory;
use crate::module_files::{ModuleFile, ModuleFiles};

/// The process ID of kernel code in records.
const KERNEL: u32 = u32::MAX;

/// The mappings of processes, according to the records so far.
pub(crate) struct Processes {
    abi: Abi,
    files: ModuleFiles,
    spaces: HashMap<u32, Arc<ProcessSpace>>,
    slots: ModuleSlots,
    /// The code in memory without a file.
    anonymous: Vec<Weak<AnonymousCode<LiveMemory>>>,
    /// The jitdumps of processes.
    dumps: JitDumps,
    /// The processes whose first thread has exited, while others may still run.
    leaderless: Vec<u32>,
    /// At this many, exited processes are removed.
    max_leaderless: usize,
}

/// The fewest to remove at a time: checking whether one has exited takes a microsecond.
const MIN_FORGOTTEN_PROCESSES: usize = 64;

/// The numbers of modules at addresses, never reused.
#[derive(Debug, Default)]
struct ModuleSlots {
    slots: HashMap<(u32, u64), ModuleSlot>,
    last: u16,
}

impl ModuleSlots {
    /// `None` when there is no number left.
    fn get_or_assign(&mut self, file: &ModuleFile, bias: LoadBias) -> Option<ModuleSlot> {
        let key = (file.number, bias.0);
        if let Some(place) = self.slots.get(&key) {
            return Some(*place);
        }
        let place = ModuleSlot(self.last.checked_add(1)?);
        self.last = place.0;
        self.slots.insert(key, place);
        Some(place)
    }
}

impl Processes {
    /// Without any process. All will have this ABI.
    #[must_use]
    pub(crate) fn new(abi: Abi, files: ModuleFiles) -> Self {
        Processes {
            abi,
            files,
            spaces: HashMap::new(),
            slots: ModuleSlots::default(),
            anonymous: Vec::new(),
            dumps: JitDumps::default(),
            leaderless: Vec::new(),
            max_leaderless: MIN_FORGOTTEN_PROCESSES,
        }
    }

    /// Applies a record. `true` if addresses of its process may have a new meaning.
    pub(crate) fn note(&mut self, record: &Record<'_>) -> bool {
        match record {
            Record::Mmap(mapped) if mapped.pid != KERNEL && mapped.is_executable => {
                let build_id = match mapped.file {
                    MmapFile::BuildId(id) => BuildId::new(id),
                    _ => None,
                };
                // The record is of one mapping: an unknown process has others.
                if !self.spaces.contains_key(&mapped.pid) {
                    self.read_space(mapped.pid);
                }
                let mapping = self.with_object(mapped.pid, mapping(mapped));
                self.note_dump(mapped.pid, &mapping);
                self.map(mapped.pid, &mapping, build_id);
                true
            }
            Record::Comm(named) if named.is_exec => {
                self.spaces.insert(named.pid, Arc::default());
                self.dumps.remove(named.pid);
                true
            }
            Record::Fork(task) if task.pid != task.parent_pid => {
                let parent = self.spaces.get(&task.parent_pid).cloned();
                // An unknown parent's mappings are read when the child is sampled.
                match parent {
                    Some(parent) => {
                        let space = parent.forked(|| self.anonymous_code(task.pid));
                        self.spaces.insert(task.pid, space);
                    }
                    None => drop(self.spaces.remove(&task.pid)),
                }
                true
            }
            Record::Exit(task) if task.pid == task.tid => {
                self.leaderless.push(task.pid);
                if self.leaderless.len() >= self.max_leaderless {
                    self.forget_ended();
                }
                false
            }
            _ => false,
        }
    }

    /// The mappings of a process, if they are known.
    pub(crate) fn known_space(&self, pid: u32) -> Option<&Arc<ProcessSpace>> {
        self.spaces.get(&pid)
    }

    /// The files that processes have mapped, once for each mapping.
    pub(crate) fn mapped_files(&self) -> impl Iterator<Item = &Arc<ModuleFile>> {
        let files = self.spaces.values().flat_map(|space| space.files());
        files.map(|(_, file, _)| file)
    }

    /// Loads a table for walks in the kernel that was removed.
    pub(crate) fn load_table(&self, file: &Arc<ModuleFile>) {
        self.files.load_table(file);
    }

    /// Forgets all mappings, since records are missing. They are read from the system again.
    pub(crate) fn forget(&mut self) {
        self.spaces.clear();
    }

    /// Removes processes that have exited.
    fn forget_ended(&mut self) {
        let (files, spaces, dumps) = (&self.files, &mut self.spaces, &mut self.dumps);
        self.leaderless.retain(|pid| {
            let has_ended = files.has_ended(*pid);
            if has_ended {
                spaces.remove(pid);
                dumps.remove(*pid);
            }
            !has_ended
        });
        self.max_leaderless = MIN_FORGOTTEN_PROCESSES.max(2 * self.leaderless.len());
    }

    /// Computes the identity of a file's contents, however long that takes.
    pub(crate) fn identify(&self, file: &ModuleFile) {
        self.files.identify(file);
    }

    /// Where a process that generates code may describe it, if known.
    pub(crate) fn jit_process(&mut self, pid: u32) -> Option<JitProcess> {
        self.files.jit_process(pid)
    }

    /// All code that a process has described in its jitdump, which is closed.
    pub(crate) fn take_jit_code(&mut self, pid: u32) -> Vec<JitCode> {
        self.dumps.take(pid)
    }

    /// The number of jitdumps that were not read to their ends.
    pub(crate) fn cut_jitdumps(&self) -> u64 {
        self.dumps.cut()
    }

    /// Reads the jitdump records that a process has added.
    fn note_jit_code(&mut self, pid: u32) {
        let (spaces, abi) = (&mut self.spaces, self.abi);
        self.dumps.read_more(pid, |code| {
            let space = spaces.entry(pid).or_default();
            Arc::make_mut(space).add_jit_code(code, abi);
        });
    }

    /// The mappings of a process. Those of an unknown process are read from the system.
    pub(crate) fn space(&mut self, pid: u32) -> Arc<ProcessSpace> {
        if !self.spaces.contains_key(&pid) {
            self.read_space(pid);
        }
        self.note_jit_code(pid);
        self.spaces.get(&pid).cloned().unwrap_or_default()
    }

    fn read_space(&mut self, pid: u32) {
        self.spaces.insert(pid, Arc::default());
        let mappings = self.files.mappings(pid).unwrap_or_default();
        for mapping in mappings
            .iter()
            .filter(|mapping| mapping.permissions.execute)
        {
            self.note_dump(pid, mapping);
            self.map(pid, mapping, None);
        }
    }

    fn note_dump(&mut self, pid: u32, mapping: &Mapping) {
        if is_jitdump(mapping)
            && let Some(file) = self.files.other_file(pid, mapping)
        {
            self.dumps.add(pid, file);
        }
    }

    /// Gives memory that was mapped over a file's code the file, if a loaded object spans it: the
    /// process has copied its text. Code of a library that is gone is not that.
    fn with_object(&self, pid: u32, mapping: Mapping) -> Mapping {
        let space = self.known_space(pid);
        let replaces = space.is_some_and(|space| space.locate(mapping.start).is_some());
        if mapping.name.is_some() || !replaces {
            return mapping;
        }
        let mappings = self.files.mappings(pid);
        let now = mappings.and_then(|now| now.find(mapping.start).cloned());
        match now.filter(|now| now.by_object && mapping.end <= now.end) {
            Some(now) => Mapping {
                start: mapping.start,
                end: mapping.end,
                offset: now.offset.saturating_add(mapping.start.0 - now.start.0),
                ..now
            },
            None => mapping,
        }
    }

    fn map(&mut self, pid: u32, mapping: &Mapping, build_id: Option<BuildId>) {
        let content = match self.content(pid, mapping, build_id) {
            Ok(content) => content,
            Err(problem) => RegionContent::Unusable(Arc::new(problem)),
        };
        let space = self.spaces.entry(pid).or_default();
        Arc::make_mut(space).insert(Region {
            start: mapping.start.0,
            end: mapping.end.0,
            file_start: mapping.start.0.wrapping_sub(mapping.offset),
            name: mapping.name.as_deref().map(|name| {
                if mapping.deleted {
                    [name.as_bytes(), DELETED_SUFFIX.as_bytes()].concat().into()
                } else {
                    name.as_bytes().into()
                }
            }),
            content,
        });
    }

    fn content(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<RegionContent, FileProblem> {
        if mapping.is_anonymous() {
            return Ok(RegionContent::Anonymous(self.anonymous_code(pid)));
        }
        let file = self.files.open(pid, mapping, build_id)?;
        let bias = file.tables.file().load_bias(&segment(mapping));
        let bias = bias.ok_or_else(|| FileProblem::NoSegment {
            path: file.name.clone(),
        })?;
        Ok(RegionContent::File {
            slot: self.slots.get_or_assign(&file, bias),
            file,
            bias,
        })
    }

    /// The code of a process in memory without a file, if it can be read.
    fn anonymous_code(&mut self, pid: u32) -> Option<Arc<AnonymousCode<LiveMemory>>> {
        let code = Arc::new(AnonymousCode::new(self.files.memory(pid)?, self.abi));
        self.anonymous.push(Arc::downgrade(&code));
        Some(code)
    }

    /// Reads code in memory without a file again when it is next needed: it may have changed. More
    /// of jitdumps may be read, too.
    pub(crate) fn refresh_generated_code(&mut self) {
        self.dumps.refill();
        self.anonymous.retain(|code| {
            let code = code.upgrade();
            code.inspect(|code| code.forget_rows()).is_some()
        });
    }

    /// Whether module slots are running out. Then learned rules must be discarded, and
    /// [`Processes::renumber`] starts again.
    #[must_use]
    pub(crate) fn is_out_of_slots(&self) -> bool {
        self.slots.last == u16::MAX
    }

    /// Assigns new slots to the modules of all processes.
    pub(crate) fn renumber(&mut self) {
        self.slots = ModuleSlots::default();
        for space in self.spaces.values_mut() {
            let places = &mut self.slots;
            Arc::make_mut(space).renumber(|file, bias| places.get_or_assign(file, bias));
        }
    }
}

/// A record of a mapping, as `/proc` would have it.
fn mapping(mmap: &MmapRecord<'_>) -> Mapping {
    let (name, deleted) = match mmap.name.strip_suffix(DELETED_SUFFIX.as_bytes()) {
        Some(name) => (name, true),
        None => (mmap.name, false),
    };
    let (device, inode) = match mmap.file {
        MmapFile::Inode {
            major,
            minor,
            inode,
        } => (Device { major, minor }, inode),
        _ => (Device::default(), 0),
    };
    // The kernel's name for memory without a file.
    let is_named = !name.is_empty() && name != b"//anon";
    Mapping {
        start: RuntimeAddr(mmap.start),
        end: RuntimeAddr(mmap.start.saturating_add(mmap.size)),
        offset: mmap.offset,
        permissions: Permissions {
            read: true,
            write: false,
            execute: mmap.is_executable,
            private: true,
        },
        device,
        inode,
        name: is_named.then(|| OsStr::from_bytes(name).to_owned()),
        deleted,
        by_object: false,
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process;

    use unspool_perf_events::CpuMode;
    use unspool_table_store::Store;

    use super::*;
    use crate::live_files::LiveFiles;

    /// Records may begin, or begin again after a loss, with a mapping of a process that has others.
    #[test]
    fn a_mapping_of_an_unknown_process_does_not_hide_its_others() {
        let files = Box::new(LiveFiles::default());
        let files = ModuleFiles::without_compiler(files, Store::new(None, None, None));
        let mut processes = Processes::new(Abi::X86_64, files);
        let added = RuntimeAddr(0x1000_0000);
        let code = RuntimeAddr(added_mapping as *const () as u64);
        for _ in 0..2 {
            processes.note(&Record::Mmap(added_mapping(added)));
            let space = processes.space(process::id());
            let (name, _) = space.mapped(code).unwrap();
            let name = name.map(OsStr::from_bytes).unwrap();
            assert_eq!(name, env::current_exe().unwrap());
            assert_eq!(space.mapped(added), Some((None, 0)));
            processes.forget();
        }
    }

    fn added_mapping(start: RuntimeAddr) -> MmapRecord<'static> {
        MmapRecord {
            pid: process::id(),
            tid: process::id(),
            mode: CpuMode::User,
            start: start.0,
            size: 4096,
            offset: 0,
            file: MmapFile::Unknown,
            is_executable: true,
            name: b"//anon",
        }
    }
}
