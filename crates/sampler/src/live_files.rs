//! The files that processes of this machine have mapped, opened as soon as the kernel reports the
//! mapping.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_elf::{BuildId, ElfFile};
use unspool_files::FileId;
use unspool_process::file_provider::FileProblem;
use unspool_process::maps::{Mapping, Mappings};
use unspool_process::{
    FileIdentity, FileRoute, MappedFile, mapped_files, mapped_state, open_mapped, read_memory,
    same_file,
};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, RuntimeAddr, Unreadable};
use unspool_symbols::{own_vdso, process_root};

use crate::jit::JitProcess;
use crate::module_files::{Distinction, LocatedFile, MappedFileFinder};

/// The root directory of processes in a container or under `chroot`, kept open. It stays readable
/// after they have exited.
#[derive(Debug)]
pub(crate) struct ProcessRoot {
    /// Keeps the directory open.
    _directory: fs::File,
    path: PathBuf,
    /// Its path within its own file system: `/` for the file system's root.
    place: PathBuf,
    identity: [FileId; 2],
}

impl ProcessRoot {
    /// The root of a process, if it differs from this process's.
    fn from_pid(pid: u32) -> Option<ProcessRoot> {
        let link = process_root(pid)?;
        let directory = fs::File::open(&link).ok()?;
        Some(ProcessRoot {
            path: PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())),
            place: fs::read_link(&link).ok()?,
            identity: identity(pid)?,
            _directory: directory,
        })
    }

    /// A path to it, valid while it is kept.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file under it. Records have paths relative to this root; `/proc` lists have
    /// them relative to ours.
    pub(crate) fn join(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix(&self.place);
        let inside = inside.or_else(|_| path.strip_prefix("/"));
        self.path.join(inside.unwrap_or(path))
    }
}

/// Identifies the root of a process and its mounts.
fn identity(pid: u32) -> Option<[FileId; 2]> {
    let id = |name| {
        Some(FileId::new(
            &fs::metadata(format!("/proc/{pid}/{name}")).ok()?,
        ))
    };
    Some([id("root")?, id("ns/mnt")?])
}

/// The memory of a running process, as it is now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveMemory {
    pid: u32,
}

impl Memory for LiveMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let read = read_memory(self.pid, addr, into).unwrap_or(0);
        if read == into.len() {
            Ok(())
        } else {
            Err(Unreadable {
                addr: RuntimeAddr(addr.0.saturating_add(read as u64)),
                reason: UnreadableReason::Refused,
            })
        }
    }
}

/// Finds the files that processes of this machine have mapped.
#[derive(Debug, Default)]
pub(crate) struct LiveFiles {
    /// Roots of processes seen so far, the last one first.
    roots: Vec<Arc<ProcessRoot>>,
}

impl LiveFiles {
    /// The most roots kept: few containers on a machine start new programs at a time.
    const MAX_ROOTS: usize = 64;

    /// The root of a process, if it differs from this process's, and the process still runs.
    pub(crate) fn root(&mut self, pid: u32) -> Option<Arc<ProcessRoot>> {
        let identity = identity(pid)?;
        let is_its = |root: &Arc<ProcessRoot>| root.identity == identity;
        let root = match self.roots.iter().position(is_its) {
            Some(known) => self.roots.remove(known),
            None => Arc::new(ProcessRoot::from_pid(pid)?),
        };
        self.roots.insert(0, Arc::clone(&root));
        self.roots.truncate(LiveFiles::MAX_ROOTS);
        Some(root)
    }
}

impl MappedFileFinder for LiveFiles {
    fn file(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<LocatedFile, FileProblem> {
        let name = mapping.name.as_deref().map(Path::new);
        let name = name.unwrap_or(Path::new(""));
        if name == Path::new("[vdso]") {
            let image = own_vdso().map_err(|error| cannot_open(name, error))?;
            let file = ElfFile::from_bytes(name, image)?;
            return Ok(LocatedFile { file, root: None });
        }
        let mut worst = cannot_open(name, io::ErrorKind::NotFound.into());
        let root = self.root(pid);
        for opened in mapped_files(pid, mapping) {
            let opened = opened.map(|opened| MappedFile {
                path: root.as_ref().map_or(opened.path, |root| root.join(name)),
                ..opened
            });
            match check(opened, name, build_id) {
                Ok(file) => return Ok(LocatedFile { file, root }),
                Err(problem) => worst = worse(worst, problem),
            }
        }
        // The process may be gone and its container still known. Or another container has a user's
        // file of that name and build ID.
        let known = self.roots.iter().filter_map(|root| {
            let opened = open_mapped(root.join(name), FileRoute::Path, mapping);
            let file = check(opened, name, build_id).ok()?;
            let root = Some(Arc::clone(root));
            Some(LocatedFile { file, root })
        });
        let mut others = None;
        for found in known {
            if found.file.is_trusted() {
                return Ok(found);
            }
            others = others.or(Some(found));
        }
        others.ok_or(worst)
    }

    fn distinction(&self, pid: u32, mapping: &Mapping) -> Option<Distinction> {
        mapped_state(pid, mapping).map(Distinction::State)
    }

    fn other_file(&mut self, pid: u32, mapping: &Mapping) -> Option<fs::File> {
        same_file(pid, mapping)
    }

    fn jit_process(&mut self, pid: u32) -> Option<JitProcess> {
        let root = self.root(pid);
        JitProcess::from_pid(pid, root)
    }

    fn mappings(&self, pid: u32) -> Option<Mappings> {
        let mut text = fs::read(format!("/proc/{pid}/maps")).ok()?;
        // If the first thread has exited, the other threads report the mappings.
        if text.is_empty() {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            let maps = |thread: fs::DirEntry| fs::read(thread.path().join("maps")).ok();
            let mut all = threads.flatten().filter_map(maps);
            text = all.find(|text| !text.is_empty())?;
        }
        let mappings = Mappings::parse(&text);
        let assigned = mappings.with_copied_text(&LiveMemory { pid });
        Some(assigned.unwrap_or(mappings))
    }

    fn memory(&self, pid: u32) -> Option<LiveMemory> {
        Some(LiveMemory { pid })
    }

    fn has_ended(&self, pid: u32) -> bool {
        !Path::new(&format!("/proc/{pid}")).exists()
    }
}

fn cannot_open(name: &Path, error: io::Error) -> FileProblem {
    FileProblem::Open {
        path: name.to_path_buf(),
        error,
    }
}

/// Accepts an opened file if it is the mapped one: by its build ID if the kernel reported that,
/// else by its device and inode.
fn check(
    opened: io::Result<MappedFile>,
    name: &Path,
    build_id: Option<BuildId>,
) -> Result<ElfFile, FileProblem> {
    let opened = opened.map_err(|error| cannot_open(name, error))?;
    let file = ElfFile::from_file(&opened.path, &opened.file)?;
    let found = file.build_id();
    let is_same = match (build_id, opened.identity) {
        (Some(mapped), _) => found.is_some_and(|found| mapped.is_kernel_report_of(&found)),
        (None, FileIdentity::Same) => true,
        // Inodes of different file systems may have the same number.
        (None, FileIdentity::Unverified) => opened.route != FileRoute::Path,
        (None, FileIdentity::Replaced) => false,
    };
    if is_same {
        Ok(file)
    } else {
        Err(FileProblem::Replaced {
            path: name.to_path_buf(),
            mapped: build_id.map(Box::new),
            on_disk: found.map(Box::new),
        })
    }
}

/// The more informative of the problems with two paths to a file. A denied permission, or a wrong
/// file, says more than a missing file.
fn worse(one: FileProblem, other: FileProblem) -> FileProblem {
    let weight = |problem: &FileProblem| match problem {
        FileProblem::Open { error, .. } => match error.kind() {
            io::ErrorKind::NotFound => 0,
            io::ErrorKind::PermissionDenied => 2,
            _ => 1,
        },
        _ => 3,
    };
    if weight(&other) > weight(&one) {
        other
    } else {
        one
    }
}
