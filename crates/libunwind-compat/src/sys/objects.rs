//! Tables as machine code, if `UNSPOOL_TABLES=native` requests them: found, checked and mapped once
//! for all address spaces, and never unmapped.
//!
//! Async-signal-safe except `init`: memory is mapped directly, and nothing waits.

use core::sync::atomic::{AtomicUsize, Ordering};

use unspool_files::raw::RawFile;
use unspool_native_table::ObjectView;
use unspool_unwind::local::store::TableFolders;
use unspool_unwind::local::{self, SetOnce};
use unspool_unwind::native::NativeCode;

/// The folders to search; not set if machine code is not wanted.
static FOLDERS: SetOnce<TableFolders> = SetOnce::new();

/// The objects of modules, in order of their first look-up.
static OBJECTS: [SetOnce<CachedObject>; MAX_MODULES] = [const { SetOnce::new() }; MAX_MODULES];

/// The number of slots taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of modules. Later ones are walked by their tables.
const MAX_MODULES: usize = 1024;

/// The build ID of a module, of at most 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuildId {
    bytes: [u8; BuildId::MAX_BYTES],
    length: usize,
}

/// The object of a module.
#[derive(Debug)]
struct CachedObject {
    build_id: BuildId,
    code: Option<NativeCode>,
}

impl BuildId {
    /// The maximum length of a build ID with an object.
    pub(crate) const MAX_BYTES: usize = 32;

    /// The build ID with these bytes; `None` if they are empty or too many.
    #[must_use]
    pub(crate) fn new(bytes: &[u8]) -> Option<BuildId> {
        let mut id = BuildId {
            bytes: [0; BuildId::MAX_BYTES],
            length: bytes.len(),
        };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(id)
    }

    /// Its bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Reads from the environment whether machine code is wanted.
pub(super) fn init() {
    if local::wants_native() {
        FOLDERS.set(TableFolders::from_environment());
    }
}

/// Whether machine code is wanted.
#[inline]
pub(crate) fn is_enabled() -> bool {
    FOLDERS.get().is_some()
}

/// The code of the module with a build ID.
pub(crate) fn of_build(build_id: &BuildId) -> Option<&'static NativeCode> {
    let mut found = OBJECTS.iter().filter_map(SetOnce::get);
    if let Some(found) = found.find(|found| found.build_id == *build_id) {
        return found.code.as_ref();
    }
    let folders = FOLDERS.get()?;
    // This keeps the count near the number of slots.
    OBJECTS.get(COUNT.load(Ordering::Relaxed))?;
    let code = folders.first(build_id.bytes(), b".native.so", |file| map(file, build_id));
    let found = CachedObject {
        build_id: *build_id,
        code,
    };
    // If two threads arrive here at once, one has mapped in vain.
    let place = OBJECTS.get(COUNT.fetch_add(1, Ordering::Relaxed))?;
    place.set(found)?.code.as_ref()
}

/// Maps the code of an object, if it is that of the module and intact.
fn map(file: &RawFile, build_id: &BuildId) -> Option<NativeCode> {
    let copy = file.copy()?;
    let object = ObjectView::parse(copy.bytes()).ok()?;
    if object
        .key()
        .is_none_or(|key| key.build_id != build_id.bytes())
    {
        return None;
    }
    // SAFETY: only this user and root could have written the file, and its bytes were copied before
    // they were checked. A valid digest shows that the object has not changed since it was made.
    unsafe { NativeCode::map_trusted(&object) }
}
