//! Tables as machine code, where `UNSPOOL_TABLES=native` asks for them: found, checked and mapped once for all address
//! spaces, and never unmapped.
//!
//! Async-signal-safe, but for `init`: memory is the system's, and nobody waits.

use core::sync::atomic::{AtomicUsize, Ordering};

use unspool_native_table::ObjectView;
use unspool_unwind::local::store::{TableFolders, TrustedFile};
use unspool_unwind::local::{self, SetOnce};
use unspool_unwind::native::NativeCode;

/// Where they are looked for; not set where nobody wants any.
static FOLDERS: SetOnce<TableFolders> = SetOnce::new();

/// Of the modules that were asked for, in that order.
static OBJECTS: [SetOnce<CachedObject>; MAX_MODULES] = [const { SetOnce::new() }; MAX_MODULES];

/// How many places of it were taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The most modules. Later ones are walked by their tables.
const MAX_MODULES: usize = 1024;

/// The build ID of a module, of at most 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildId {
    bytes: [u8; BuildId::MAX_BYTES],
    length: usize,
}

/// What there is for a module.
#[derive(Debug)]
struct CachedObject {
    build_id: BuildId,
    code: Option<NativeCode>,
}

impl BuildId {
    /// Modules with longer ones have no objects.
    pub const MAX_BYTES: usize = 32;

    /// The build ID with these bytes; `None` if there are none, or too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        let mut id = BuildId {
            bytes: [0; BuildId::MAX_BYTES],
            length: bytes.len(),
        };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(id)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Finds out whether the environment asks for them.
pub(super) fn init() {
    if local::wants_native() {
        FOLDERS.set(TableFolders::from_environment());
    }
}

/// Whether they are wanted.
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
    // So that the count stays near the number of places.
    OBJECTS.get(COUNT.load(Ordering::Relaxed))?;
    let code = folders.first(build_id.bytes(), b".native.so", |file| map(file, build_id));
    let found = CachedObject {
        build_id: *build_id,
        code,
    };
    // Of two threads that come here at once, one has mapped in vain.
    let place = OBJECTS.get(COUNT.fetch_add(1, Ordering::Relaxed))?;
    place.set(found)?.code.as_ref()
}

/// Maps the code of an object, if it is the one of a module and as it was made.
fn map(file: &TrustedFile, build_id: &BuildId) -> Option<NativeCode> {
    let copy = file.copy()?;
    let object = ObjectView::parse(copy.bytes()).ok()?;
    if object
        .key()
        .is_none_or(|key| key.build_id != build_id.bytes())
    {
        return None;
    }
    // SAFETY: nobody but this user and root could have written the file, whose bytes were copied before they were
    // looked at; that it is an object with the right digest says that nothing has happened to it since it was made.
    unsafe { NativeCode::map_trusted(&object) }
}
