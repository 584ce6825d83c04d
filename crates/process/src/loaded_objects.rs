//! The objects that a process has loaded: the program, its libraries and the vDSO.
//!
//! An address belongs to the object whose segments span it, whatever is mapped there now. A program
//! may copy its text to huge pages, and a core need not name any file. Objects are found by the ELF
//! headers in memory, and by the dynamic loader's list (`r_debug` and `link_map` of `<link.h>`).

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use unspool_elf::{BuildId, ElfFile};
use unspool_rows::{LoadBias, Memory, RuntimeAddr, Vaddr};

use crate::little_endian::u64_at;
use crate::maps::{Device, Mapping, Mappings, Permissions};
use crate::program_header::{self, PF_X, PT_DYNAMIC, ProgramHeader};
use crate::{AuxVector, build_id};

/// The limit of objects, and of entries of the loader's list.
const MAX_OBJECTS: usize = 10_000;
/// The limit of program headers of all objects together, which is that of Linux for mappings: an
/// object has about 13.
const MAX_PROGRAM_HEADERS: usize = 1 << 16;
/// The limit of objects that are asked for the loader's list, of which only the program has one.
const MAX_PROGRAM_CANDIDATES: usize = 64;
/// The limit of entries of a dynamic section; real ones have about 30.
const MAX_DYNAMIC_ENTRIES: u64 = 1024;
/// `PATH_MAX` of Linux.
const MAX_PATH_BYTES: usize = 4096;
/// The bytes of a path that are read at a time; a divisor of page sizes.
const PIECE_BYTES: u64 = 256;
const DT_NULL: u64 = 0;
const DT_DEBUG: u64 = 21;

/// A loaded object.
#[derive(Debug)]
struct LoadedObject {
    bias: LoadBias,
    headers: Vec<ProgramHeader>,
    file: ObjectFile,
    /// Whether a mapping of the file's beginning is recorded.
    is_recorded: bool,
}

/// The file of an object, as its mappings have it.
#[derive(Debug, Clone, Default)]
struct ObjectFile {
    name: Option<OsString>,
    deleted: bool,
    device: Device,
    inode: u64,
}

impl ObjectFile {
    fn of_mapping(mapping: &Mapping) -> ObjectFile {
        ObjectFile {
            name: mapping.name.clone(),
            deleted: mapping.deleted,
            device: mapping.device,
            inode: mapping.inode,
        }
    }

    fn named(name: impl Into<OsString>) -> ObjectFile {
        ObjectFile {
            name: Some(name.into()),
            ..ObjectFile::default()
        }
    }
}

impl LoadedObject {
    /// The object with its ELF header at the start of a mapping.
    fn at(mapping: &Mapping, memory: &dyn Memory) -> Option<LoadedObject> {
        let headers = program_header::of_image(memory, mapping.start).ok()?;
        Some(LoadedObject {
            bias: program_header::bias(&headers, mapping.start)?,
            headers,
            file: ObjectFile::of_mapping(mapping),
            is_recorded: mapping.path().is_some(),
        })
    }

    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers.iter().filter(|header| header.is_load())
    }

    /// Whether a loadable segment contains an address.
    fn spans(&self, addr: RuntimeAddr) -> bool {
        let into = |load: &ProgramHeader| self.bias.to_vaddr(addr).0.wrapping_sub(load.vaddr.0);
        self.loads().any(|load| into(load) < load.memory_size)
    }

    /// The mappings of a file that lie where the object's segments are.
    fn file_mappings<'m>(&self, mappings: &'m Mappings) -> impl Iterator<Item = &'m Mapping> {
        let loads = self.loads().filter(|load| load.file_size > 0);
        let ends = loads.flat_map(|load| [(load, 0), (load, load.file_size - 1)]);
        ends.filter_map(|(load, into)| {
            let addr = RuntimeAddr(self.bias.to_runtime(load.vaddr).0.wrapping_add(into));
            let mapping = mappings.find(addr)?;
            mapping.path()?;
            let offset = mapping.offset.wrapping_add(addr.0 - mapping.start.0);
            (offset == load.offset.wrapping_add(into)).then_some(mapping)
        })
    }

    /// The file of a mapping of the object's segments.
    fn mapped_file(&self, mappings: &Mappings) -> Option<ObjectFile> {
        let found = self.file_mappings(mappings).next();
        found.map(ObjectFile::of_mapping)
    }

    /// Whether it is loaded, and not only its header mapped as data: a mapping of another segment
    /// is where it belongs.
    fn is_loaded(&self, mappings: &Mappings) -> bool {
        let mut found = self.file_mappings(mappings);
        found.any(|mapping| mapping.offset > 0) || self.loads().count() == 1
    }

    /// The ranges of some segments' file contents, in whole pages.
    fn ranges(
        &self,
        page_size: u64,
        is_meant: impl Fn(&ProgramHeader) -> bool,
    ) -> impl Iterator<Item = Mapping> {
        self.loads()
            .filter(move |load| is_meant(load))
            .filter_map(move |load| {
                let before = load.vaddr.0 % page_size;
                let start = self.bias.to_runtime(Vaddr(load.vaddr.0 - before));
                let size = load.file_size.checked_add(before)?;
                let size = size.checked_next_multiple_of(page_size)?;
                Some(Mapping {
                    start,
                    end: RuntimeAddr(start.0.checked_add(size)?),
                    offset: load.offset.checked_sub(before)?,
                    permissions: Permissions::default(),
                    device: self.file.device,
                    inode: self.file.inode,
                    name: self.file.name.clone(),
                    deleted: self.file.deleted,
                    by_object: true,
                })
            })
    }

    /// The address of the dynamic section.
    fn dynamic(&self) -> Option<RuntimeAddr> {
        let header = self.headers.iter().find(|header| header.kind == PT_DYNAMIC);
        header.map(|header| self.bias.to_runtime(header.vaddr))
    }
}

/// See [`Mappings::with_copied_text`].
pub(crate) fn with_copied_text(mappings: &Mappings, memory: &dyn Memory) -> Option<Mappings> {
    let is_code = |mapping: &Mapping| mapping.permissions.execute && mapping.name.is_none();
    if !mappings.iter().any(is_code) {
        return None;
    }
    // The page of the header may be a copy, too.
    let is_header = |mapping: &&Mapping| mapping.path().is_some() || is_code(mapping);
    let objects: Vec<_> = by_headers(mappings, memory, is_header).collect();
    let named = objects.iter().filter(|object| object.file.name.is_some());
    let loaded = named.filter(|object| object.is_loaded(mappings));
    let code = loaded.flat_map(|object| object.ranges(PAGE_SIZE, |load| load.flags & PF_X != 0));
    let owners = Mappings::from_list(code.collect());
    let is_copied = |mapping: &Mapping| is_code(mapping) && owners.have_some_of(mapping);
    let is_any = mappings.iter().any(is_copied);
    is_any.then(|| mappings.clone().assigned_to(&owners, is_copied))
}

/// The page size of x86-64, and the smallest of AArch64.
const PAGE_SIZE: u64 = 4096;

/// The objects whose headers are in memory.
fn by_headers(
    mappings: &Mappings,
    memory: &dyn Memory,
    is_meant: impl Fn(&&Mapping) -> bool,
) -> impl Iterator<Item = LoadedObject> {
    let first_pages = mappings.iter().filter(|mapping| mapping.offset == 0);
    let candidates = first_pages.filter(is_meant).take(MAX_OBJECTS);
    let found = candidates.filter_map(|mapping| LoadedObject::at(mapping, memory));
    let mut headers = 0;
    let within_limit = found.take_while(move |object| {
        headers += object.headers.len();
        headers <= MAX_PROGRAM_HEADERS
    });
    within_limit.map(move |mut object| {
        if object.file.name.is_none() {
            object.file = object.mapped_file(mappings).unwrap_or_default();
        }
        object
    })
}

/// The objects of a core, which may have no list of mapped files.
pub(crate) struct CoreObjects<'a> {
    pub(crate) memory: &'a dyn Memory,
    pub(crate) auxv: &'a AuxVector,
    /// The program's file, if it is given.
    pub(crate) program: Option<&'a ElfFile>,
    /// Opens a library by its path in the process.
    pub(crate) open: &'a dyn Fn(&Path) -> Option<ElfFile>,
    /// The path of a file with a build ID.
    pub(crate) find: &'a dyn Fn(BuildId) -> Option<PathBuf>,
}

impl CoreObjects<'_> {
    /// Gives mappings without a name the files of the objects that span them, and adds the parts
    /// of objects that no mapping has. `None`: the given program cannot be placed.
    pub(crate) fn assign(&self, mappings: Mappings) -> Option<Mappings> {
        let is_unnamed = |mapping: &Mapping| mapping.name.is_none();
        let is_header = |mapping: &&Mapping| mapping.path().is_some() || is_unnamed(mapping);
        let mut objects: Vec<_> = by_headers(&mappings, self.memory, is_header).collect();
        let is_placed = self.add_program(&mappings, &mut objects);
        self.add_libraries(&mappings, &mut objects);
        for object in &mut objects {
            if object.file.name.is_none() {
                let found = self.build_id(object).and_then(|id| (self.find)(id));
                object.file = found.map(ObjectFile::named).unwrap_or_default();
            }
        }
        objects.retain(|object| object.file.name.is_some());
        let ranges = |is_meant: fn(&LoadedObject) -> bool| {
            let meant = objects.iter().filter(|object| is_meant(object));
            let ranges = meant.flat_map(|object| object.ranges(self.page_size(), |_| true));
            Mappings::from_list(ranges.collect())
        };
        let assigned = mappings.assigned_to(&ranges(|_| true), is_unnamed);
        is_placed.then(|| assigned.with_gaps_filled(&ranges(|object| !object.is_recorded)))
    }

    /// The build ID of an object, in memory.
    fn build_id(&self, object: &LoadedObject) -> Option<BuildId> {
        let id = build_id::of_headers(self.memory, &object.headers, object.bias);
        BuildId::new(&id.ok()??)
    }

    fn page_size(&self) -> u64 {
        self.auxv.page_size().unwrap_or(PAGE_SIZE)
    }

    /// Adds the program, or its name; `false` if its file is given and cannot be placed.
    fn add_program(&self, mappings: &Mappings, objects: &mut Vec<LoadedObject>) -> bool {
        let id = self.program.and_then(ElfFile::build_id);
        let is_program = |object: &LoadedObject| match self.auxv.phdr().or(self.auxv.entry()) {
            Some(addr) => object.spans(addr),
            None => id.is_some() && self.build_id(object) == id,
        };
        if let Some(object) = objects.iter_mut().find(|object| is_program(object)) {
            if object.file.name.is_none() {
                let given = self.program.map(|file| absolute(file.path()));
                let name = given.or_else(|| self.program_name());
                object.file = name.map(ObjectFile::named).unwrap_or_default();
            }
            return true;
        }
        let started = self.program_name();
        let opened = match self.program {
            None => started
                .as_deref()
                .and_then(|name| (self.open)(Path::new(name))),
            Some(_) => None,
        };
        let Some(program) = self.program.or(opened.as_ref()) else {
            return true;
        };
        let placed = self.place(program, mappings);
        // The path in the process, not that of the opened file.
        let given = self.program.map(|given| absolute(given.path()));
        let path = given.or(started);
        objects.extend(placed.map(|bias| LoadedObject {
            bias,
            headers: program_header::of_file(program.bytes()),
            file: path.map(ObjectFile::named).unwrap_or_default(),
            is_recorded: false,
        }));
        // Where a mapping of the program is recorded, the name is, too.
        let is_recorded = |addr| {
            mappings
                .find(addr)
                .is_some_and(|found| found.path().is_some())
        };
        self.program.is_none()
            || placed.is_some()
            || match self.auxv.entry() {
                Some(entry) => is_recorded(entry),
                None => mappings.iter().any(|mapping| mapping.path().is_some()),
            }
    }

    /// The bias of the program, whose header is not in memory.
    fn place(&self, program: &ElfFile, mappings: &Mappings) -> Option<LoadBias> {
        let Some(entry) = self.auxv.entry() else {
            let headers = program_header::of_file(program.bytes());
            return bias_by_layout(&headers, mappings, self.page_size());
        };
        let bias = LoadBias(entry.0.wrapping_sub(program.entry().0));
        let headers = self.auxv.phdr().map(|addr| bias.to_vaddr(addr));
        let is_there = headers.is_none() || headers == program.program_headers_vaddr();
        let is_unnamed = mappings
            .find(entry)
            .is_none_or(|found| found.path().is_none());
        (is_there && is_unnamed).then_some(bias)
    }

    /// The path that the program was started by (`AT_EXECFN`). A relative one is tried in the
    /// current folder: the core does not say the process's.
    fn program_name(&self) -> Option<OsString> {
        let name = read_string(self.memory, self.auxv.execfn()?)?;
        Some(absolute(Path::new(&name)))
    }

    /// Adds the libraries of the dynamic loader's list, or their names.
    fn add_libraries(&self, mappings: &Mappings, objects: &mut Vec<LoadedObject>) {
        let is_program = |object: &&LoadedObject| {
            let addr = self.auxv.phdr().or(self.auxv.entry());
            addr.is_none_or(|addr| object.spans(addr))
        };
        let programs = objects
            .iter()
            .filter(is_program)
            .take(MAX_PROGRAM_CANDIDATES);
        let mut lists = programs.filter_map(LoadedObject::dynamic);
        let list = lists.find_map(|dynamic| link_map(self.memory, dynamic));
        let list = list.unwrap_or_default();
        for entry in list {
            let known = objects.iter_mut().find(|object| object.bias == entry.bias);
            if let Some(object) = known {
                if object.file.name.is_none() && !entry.name.is_empty() {
                    object.file = ObjectFile::named(entry.name);
                }
            } else if Path::new(&entry.name).is_absolute()
                && mappings
                    .find(entry.dynamic)
                    .is_none_or(|found| found.path().is_none())
                && let Some(file) = (self.open)(Path::new(&entry.name))
            {
                objects.push(LoadedObject {
                    bias: entry.bias,
                    headers: program_header::of_file(file.bytes()),
                    file: ObjectFile::named(entry.name),
                    is_recorded: false,
                });
            }
        }
    }
}

/// An absolute path: a mapping's file has one.
pub(crate) fn absolute(path: &Path) -> OsString {
    std::path::absolute(path).map_or_else(|_| path.into(), Into::into)
}

/// The only bias at which each segment of a file begins a mapping with its permissions.
fn bias_by_layout(
    headers: &[ProgramHeader],
    mappings: &Mappings,
    page_size: u64,
) -> Option<LoadBias> {
    let loads: Vec<_> = headers.iter().filter(|header| header.is_load()).collect();
    let first = loads.first()?.vaddr.0;
    let fits = |bias: &LoadBias| {
        loads.iter().all(|load| {
            let start = bias.to_runtime(Vaddr(load.vaddr.0 - load.vaddr.0 % page_size));
            let mapping = mappings.find(start);
            mapping.is_some_and(|mapping| {
                mapping.start == start && mapping.permissions.execute == (load.flags & PF_X != 0)
            })
        })
    };
    let starts = mappings.iter().filter(|mapping| mapping.name.is_none());
    let biases =
        starts.map(|mapping| LoadBias(mapping.start.0.wrapping_sub(first - first % page_size)));
    let mut fitting = biases.filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

/// An entry of the dynamic loader's list.
#[derive(Debug)]
struct LinkMapEntry {
    bias: LoadBias,
    /// The path of a library; empty for the program.
    name: OsString,
    /// The dynamic section.
    dynamic: RuntimeAddr,
}

/// The dynamic loader's list, which the dynamic section of the program leads to.
fn link_map(memory: &dyn Memory, dynamic: RuntimeAddr) -> Option<Vec<LinkMapEntry>> {
    let debug = (0..MAX_DYNAMIC_ENTRIES)
        .map_while(|index| dynamic.0.checked_add(index * 16))
        .map_while(|addr| words::<2>(memory, addr))
        .take_while(|[tag, _]| *tag != DT_NULL)
        .find(|[tag, _]| *tag == DT_DEBUG);
    // `struct r_debug`: the version, then the address of the first entry.
    let [_, debug] = debug?;
    let [_, mut next] = words::<2>(memory, debug).filter(|[_, first]| *first != 0)?;
    let mut seen = HashSet::new();
    let mut list = Vec::new();
    while next != 0 && seen.len() < MAX_OBJECTS && seen.insert(next) {
        // `struct link_map`.
        let Some([bias, name, dynamic, after]) = words(memory, next) else {
            break;
        };
        list.push(LinkMapEntry {
            bias: LoadBias(bias),
            name: read_string(memory, RuntimeAddr(name)).unwrap_or_default(),
            dynamic: RuntimeAddr(dynamic),
        });
        next = after;
    }
    Some(list)
}

fn words<const N: usize>(memory: &dyn Memory, addr: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; N * 8];
    memory.read(RuntimeAddr(addr), &mut bytes).ok()?;
    let mut words = [0; N];
    for (index, word) in words.iter_mut().enumerate() {
        *word = u64_at(&bytes, index * 8)?;
    }
    Some(words)
}

/// Text up to its final zero.
fn read_string(memory: &dyn Memory, addr: RuntimeAddr) -> Option<OsString> {
    let mut text = Vec::new();
    while text.len() < MAX_PATH_BYTES {
        let at = addr.0.checked_add(text.len() as u64)?;
        // What follows in the page is mapped, too.
        let mut piece = vec![0; usize::try_from(PIECE_BYTES - at % PIECE_BYTES).ok()?];
        memory.read(RuntimeAddr(at), &mut piece).ok()?;
        let end = piece.iter().position(|byte| *byte == 0);
        text.extend(piece.get(..end.unwrap_or(piece.len()))?);
        if end.is_some() {
            return Some(OsString::from_vec(text)).filter(|text| text.len() <= MAX_PATH_BYTES);
        }
    }
    None
}
