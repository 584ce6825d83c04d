//! Processes as the kernel's records tell of them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use unspool_elf::{BuildId, DELETED_SUFFIX};
use unspool_perf_events::{MmapFile, MmapRecord, Record};
use unspool_process::file_provider::FileProblem;
use unspool_process::maps::{Device, Mapping, Permissions};
use unspool_rows::{Abi, Arch, Endian, LoadBias, RuntimeAddr};
use unspool_symbols::JitCode;
use unspool_unwind::modules::ModuleSlot;

use crate::address_space::{ProcessSpace, Region, RegionContent, segment};
use crate::jit::{JitDumpReader, JitProcess};
use crate::module_files::{ModuleFile, ModuleFiles};

/// The process that the kernel's own code belongs to, in records.
const KERNEL: u32 = u32::MAX;

/// Of the processes whose stacks are unwound.
const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// What processes have mapped, as far as records have told.
pub struct Processes {
    files: ModuleFiles,
    spaces: HashMap<u32, Arc<ProcessSpace>>,
    slots: ModuleSlots,
    /// What processes tell of the code that they make.
    dumps: HashMap<u32, JitDumpReader>,
    /// The processes whose first thread has ended, and others may go on.
    leaderless: Vec<u32>,
    /// When there are so many, those that are gone are forgotten.
    max_leaderless: usize,
}

/// So many are forgotten together, at least: to find out who is gone takes a microsecond for each.
const MIN_FORGOTTEN_PROCESSES: usize = 64;

/// The numbers of modules at addresses, which are never given twice.
#[derive(Debug, Default)]
struct ModuleSlots {
    known: HashMap<(u32, u64), ModuleSlot>,
    last: u16,
}

impl ModuleSlots {
    /// `None` when there is no number left.
    fn of(&mut self, file: &ModuleFile, bias: LoadBias) -> Option<ModuleSlot> {
        let key = (file.number, bias.0);
        if let Some(place) = self.known.get(&key) {
            return Some(*place);
        }
        let place = ModuleSlot(self.last.checked_add(1)?);
        self.last = place.0;
        self.known.insert(key, place);
        Some(place)
    }
}

impl Processes {
    /// No process is known yet.
    #[must_use]
    pub fn new(files: ModuleFiles) -> Self {
        Processes {
            files,
            spaces: HashMap::new(),
            slots: ModuleSlots::default(),
            dumps: HashMap::new(),
            leaderless: Vec::new(),
            max_leaderless: MIN_FORGOTTEN_PROCESSES,
        }
    }

    /// Follows what a record tells. `true` if addresses of its process may mean something else now.
    pub fn note(&mut self, record: &Record<'_>) -> bool {
        match record {
            Record::Mmap(mapped) if mapped.pid != KERNEL && mapped.is_executable => {
                let build_id = match mapped.file {
                    MmapFile::BuildId(id) => BuildId::new(id),
                    _ => None,
                };
                let mapping = mapping(mapped);
                self.note_dump(mapped.pid, &mapping);
                self.map(mapped.pid, &mapping, build_id);
                true
            }
            Record::Comm(named) if named.is_exec => {
                self.spaces.insert(named.pid, Arc::default());
                self.dumps.remove(&named.pid);
                true
            }
            Record::Fork(task) if task.pid != task.parent_pid => {
                let parent = self.spaces.get(&task.parent_pid).cloned();
                // A parent that nobody knows is looked at when the child is sampled.
                match parent {
                    Some(parent) => drop(self.spaces.insert(task.pid, parent)),
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

    /// Forgets the processes that are gone.
    fn forget_ended(&mut self) {
        let (files, spaces, dumps) = (&self.files, &mut self.spaces, &mut self.dumps);
        self.leaderless.retain(|pid| {
            let has_ended = files.has_ended(*pid);
            if has_ended {
                spaces.remove(pid);
                dumps.remove(pid);
            }
            !has_ended
        });
        self.max_leaderless = MIN_FORGOTTEN_PROCESSES.max(2 * self.leaderless.len());
    }

    /// Finds out what identifies the contents of a file, however long that takes.
    pub(crate) fn identify(&self, file: &ModuleFile) {
        self.files.identify(file);
    }

    /// Where a process that makes code may name it, if that can be known.
    pub(crate) fn jit_process(&mut self, pid: u32) -> Option<JitProcess> {
        self.files.jit_process(pid)
    }

    /// All code that a process has told to have made in its jitdump, which is closed.
    pub(crate) fn take_jit_code(&mut self, pid: u32) -> Vec<JitCode> {
        let dump = self.dumps.remove(&pid);
        dump.map(JitDumpReader::into_codes).unwrap_or_default()
    }

    /// Follows what a process tells of the code that it makes.
    fn note_jit_code(&mut self, pid: u32) {
        let Some(dump) = self.dumps.get_mut(&pid) else {
            return;
        };
        let space = self.spaces.entry(pid).or_default();
        dump.read_more(|code| Arc::make_mut(space).add_jit_code(code, ABI));
    }

    /// What a process has mapped. Who is not known is asked for what it has mapped now.
    pub fn space(&mut self, pid: u32) -> Arc<ProcessSpace> {
        self.note_jit_code(pid);
        if let Some(space) = self.spaces.get(&pid) {
            return Arc::clone(space);
        }
        self.spaces.insert(pid, Arc::default());
        let mappings = self.files.mappings(pid).unwrap_or_default();
        for mapping in mappings
            .iter()
            .filter(|mapping| mapping.permissions.execute)
        {
            self.note_dump(pid, mapping);
            self.map(pid, mapping, None);
        }
        self.spaces.get(&pid).cloned().unwrap_or_default()
    }

    fn note_dump(&mut self, pid: u32, mapping: &Mapping) {
        let name = mapping.name.as_deref();
        if name.is_some_and(|name| JitDumpReader::is_meant(name.as_bytes()))
            && let Some(dump) = self.files.dump(pid, mapping)
        {
            self.dumps.insert(pid, dump);
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
            name: mapping.name.as_deref().map(|name| match mapping.deleted {
                true => [name.as_bytes(), DELETED_SUFFIX.as_bytes()].concat().into(),
                false => name.as_bytes().into(),
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
        let is_vdso = mapping.name.as_deref().is_some_and(|name| name == "[vdso]");
        if mapping.path().is_none() && !is_vdso {
            return Ok(RegionContent::Anonymous);
        }
        let file = self.files.open(pid, mapping, build_id)?;
        let bias = file.tables.file().load_bias(&segment(mapping));
        let bias = bias.ok_or_else(|| FileProblem::NoSegment {
            path: file.name.clone(),
        })?;
        Ok(RegionContent::File {
            slot: self.slots.of(&file, bias),
            file,
            bias,
        })
    }

    /// Whether numbers for modules are running out: then rules that were learned have to be forgotten,
    /// and [`Processes::renumber`] begins anew.
    #[must_use]
    pub fn is_out_of_slots(&self) -> bool {
        self.slots.last == u16::MAX
    }

    /// Numbers the modules of all processes anew.
    pub fn renumber(&mut self) {
        self.slots = ModuleSlots::default();
        for space in self.spaces.values_mut() {
            let places = &mut self.slots;
            Arc::make_mut(space).renumber(|file, bias| places.of(file, bias));
        }
    }
}

/// A record of a mapping, as `/proc` would have it.
fn mapping(mapped: &MmapRecord<'_>) -> Mapping {
    let (name, deleted) = match mapped.name.strip_suffix(DELETED_SUFFIX.as_bytes()) {
        Some(name) => (name, true),
        None => (mapped.name, false),
    };
    let (device, inode) = match mapped.file {
        MmapFile::Inode {
            major,
            minor,
            inode,
        } => (Device { major, minor }, inode),
        _ => (Device::default(), 0),
    };
    // What the kernel calls memory without a file.
    let is_named = !name.is_empty() && name != b"//anon";
    Mapping {
        start: RuntimeAddr(mapped.start),
        end: RuntimeAddr(mapped.start.saturating_add(mapped.size)),
        offset: mapped.offset,
        permissions: Permissions {
            read: true,
            write: false,
            execute: mapped.is_executable,
            private: true,
        },
        device,
        inode,
        name: is_named.then(|| OsStr::from_bytes(name).to_owned()),
        deleted,
    }
}
