//! Where compiled tables are found: what `unspool_unwind::tables::Store` does, without an
//! allocator, for modules that have a build ID.
//!
//! In order: the module itself (`unspool compile --into`), where the loader has mapped it; the folders of
//! `UNSPOOL_TABLE_PATH`; the user's cache (`$XDG_CACHE_HOME/unspool`, else `~/.cache/unspool`); and
//! `/usr/lib/unspool/tables`. A table in a folder, and the folder, must belong to the user or root and be
//! writable by nobody else. In a setuid program the environment is ignored. Tables of arguments are looked for in the folders, too.

use core::ffi::CStr;

use unspool_compact::{Compiled, Key};
use unspool_unwind::RowRules;
use unspool_unwind::local::{self, Embedded};

use crate::sys::files::{self, About, File};

/// The folder of packaged tables.
const SYSTEM: &[u8] = b"/usr/lib/unspool/tables";

/// How exactly it is noted when a table was used last, in seconds.
const USE_NOTED: i64 = 24 * 60 * 60;

/// Finds the tables of all objects that are loaded now and have none; yields how many. They stay.
///
/// Not async-signal-safe: takes the loader's lock, opens files and reads the environment.
pub fn find_tables() -> usize {
    let modules = local::modules();
    let mut count = 0;
    modules.for_each_embedded(|module, bytes| {
        let table = (!module.has_table).then(|| embedded(module.build_id, bytes));
        count += usize::from(table.flatten().is_some_and(attach));
    });
    find_argument_tables();
    let without = modules.met().filter(|module| !module.has_table);
    let found = without.filter_map(|module| find(module.build_id));
    count + found.filter(|table| attach(table)).count()
}

/// Finds the tables of arguments of all objects that are loaded now. They stay.
///
/// Not async-signal-safe, as [`find_tables`].
pub fn find_argument_tables() {
    let modules = local::modules();
    modules.meet_all();
    for module in modules.met().filter(|module| module.arguments.is_none()) {
        if let Some(table) = find_arguments(module.build_id) {
            modules.attach_arguments(module.build_id, table);
        }
    }
}

fn attach(table: &'static Compiled<'static>) -> bool {
    let room = files::zeros(Compiled::distinct_rows(table)).unwrap_or_default();
    local::modules().attach(table, RowRules::make(table, room))
}

/// The table that a module has in itself.
fn embedded(build_id: &[u8], bytes: Embedded<'_>) -> Option<&'static Compiled<'static>> {
    let (Embedded::ForGood(found) | Embedded::Meanwhile(found)) = bytes;
    let table = Compiled::open(found).ok()?;
    if build_id.is_empty() || table.key() != Key::BuildId(build_id) {
        return None;
    }
    let bytes = match bytes {
        Embedded::ForGood(bytes) => bytes,
        // The same module may be loaded again elsewhere.
        Embedded::Meanwhile(bytes) => files::copy(bytes)?,
    };
    files::keep(Compiled::open(bytes).ok()?)
}

/// The table of the module with a build ID.
fn find(build_id: &[u8]) -> Option<&'static Compiled<'static>> {
    let is_right = |bytes: &[u8]| {
        Compiled::open(bytes).is_ok_and(|table| table.key() == Key::BuildId(build_id))
    };
    let bytes = first(build_id, b".unspool", &is_right)?;
    files::keep(Compiled::open(bytes).ok()?)
}

/// The table of arguments of the module with a build ID.
fn find_arguments(build_id: &[u8]) -> Option<&'static [u8]> {
    let is_right = |bytes: &[u8]| {
        unspool_args::Table::open(bytes).is_ok_and(|table| table.is_of_build(build_id))
    };
    first(build_id, b".args.unspool", &is_right)
}

/// The first file of a module that is right and can be trusted, by the ending of its name.
fn first(
    build_id: &[u8],
    ending: &[u8],
    is_right: &dyn Fn(&[u8]) -> bool,
) -> Option<&'static [u8]> {
    if build_id.is_empty() {
        return None;
    }
    let table = |folder: &[&[u8]]| table(folder, build_id, ending, is_right);
    let variable = |name| files::variable(name).unwrap_or_default();
    let path = variable(c"UNSPOOL_TABLE_PATH").split(|byte| *byte == b':');
    let mut path = path.filter(|folder| !folder.is_empty());
    let in_path = path.find_map(|folder| table(&[folder]));
    in_path
        .or_else(|| {
            let folder = cache(variable(c"XDG_CACHE_HOME"), variable(c"HOME"))?;
            table(&folder).inspect(|(_, file)| note_use(file))
        })
        .or_else(|| table(&[SYSTEM]))
        .map(|(bytes, _)| bytes)
}

/// The parts of the cache's path.
fn cache<'e>(cache_home: &'e [u8], home: &'e [u8]) -> Option<[&'e [u8]; 2]> {
    match (cache_home, home) {
        ([b'/', ..], _) => Some([cache_home, b"/unspool"]),
        (_, [b'/', ..]) => Some([home, b"/.cache/unspool"]),
        _ => None,
    }
}

/// A table that is in a folder, if it can be trusted and is right.
fn table(
    folder: &[&[u8]],
    build_id: &[u8],
    ending: &[u8],
    is_right: &dyn Fn(&[u8]) -> bool,
) -> Option<(&'static [u8], File)> {
    let mut path = Path::new();
    folder.iter().try_for_each(|part| path.push(part))?;
    let folder = path;
    // What is in a folder, its own `.` too, is out of reach for those who may not look into it.
    path.push(b"/.")?;
    files::about(path.terminated()?).filter(is_trusted)?;
    let mut path = folder;
    path.push(b"/")?;
    path.push_hex(build_id)?;
    path.push(ending)?;
    let file = File::open(path.terminated()?)?;
    let about = file.about().filter(|about| about.is_regular)?;
    if !is_trusted(&about) {
        return None;
    }
    let mapping = file.map(about.size)?;
    is_right(mapping.bytes()).then(|| (mapping.keep(), file))
}

/// Whether nobody else could have written it.
fn is_trusted(about: &About) -> bool {
    (about.owner == 0 || about.owner == files::effective_user()) && about.mode & 0o022 == 0
}

/// Notes that a table was used, in the time of its last modification: by it the cache decides which
/// tables to remove.
fn note_use(file: &File) {
    let is_recent = file
        .about()
        .is_some_and(|about| files::now().saturating_sub(about.modified) < USE_NOTED);
    if !is_recent {
        file.touch();
    }
}

/// A path in memory of fixed size.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    bytes: [u8; Path::MOST],
    length: usize,
}

impl Path {
    /// The kernel takes no longer one (`PATH_MAX`), the zero byte included.
    pub(crate) const MOST: usize = 4096;

    pub(crate) const fn new() -> Path {
        Path {
            bytes: [0; Path::MOST],
            length: 0,
        }
    }

    /// Adds a part; `None` if there is no room.
    pub(crate) fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.length.checked_add(part.len())?;
        self.bytes.get_mut(self.length..end)?.copy_from_slice(part);
        self.length = end;
        Some(())
    }

    fn push_hex(&mut self, bytes: &[u8]) -> Option<()> {
        let digit = |value: u8| b"0123456789abcdef".get(usize::from(value)).copied();
        bytes
            .iter()
            .try_for_each(|byte| self.push(&[digit(byte >> 4)?, digit(byte & 15)?]))
    }

    /// With a zero byte at its end, as the kernel takes it.
    pub(crate) fn terminated(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.length)?).ok()
    }
}
