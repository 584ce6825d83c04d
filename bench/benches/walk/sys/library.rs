//! Shared libraries, opened so that their symbols do not interpose each other.

use std::cell::OnceCell;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use anyhow::Context as _;

/// A shared library. It is never closed: walkers may keep pointers into it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: any thread may use a handle of dlopen (dlopen(3): MT-Safe), and it is not closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens it with its symbols hidden from others, and preferring its own.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Library::open_so(path, libc::RTLD_LOCAL | libc::RTLD_DEEPBIND)
    }

    /// Opens it with its symbols visible to libraries opened later.
    pub(crate) fn open_for_all(path: &Path) -> anyhow::Result<Self> {
        Library::open_so(path, libc::RTLD_GLOBAL)
    }

    fn open_so(path: &Path, flags: c_int) -> anyhow::Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::RTLD_NOW | flags;
        // SAFETY: the name ends with a zero byte. Only system libraries and those built by this
        // benchmark are opened; their constructors have no requirements.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(handle).map(Library).with_context(error)
    }

    /// The address of a symbol.
    pub(crate) fn symbol(self, name: &CStr) -> anyhow::Result<NonNull<c_void>> {
        // SAFETY: the handle is open and the name ends with a zero byte.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(address).with_context(|| format!("no symbol {}", name.to_string_lossy()))
    }
}

/// Why the last call of this thread failed.
fn error() -> String {
    // SAFETY: the call has no requirements.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "dlopen fails".to_owned();
    }
    // SAFETY: it ends with a zero byte and lives until this thread's next call (dlerror(3)).
    let message = unsafe { CStr::from_ptr(message) };
    message.to_string_lossy().into_owned()
}

/// A file that is mapped into this process.
#[derive(Debug)]
pub(crate) struct LoadedFile {
    pub(crate) path: PathBuf,
    /// The value to add to addresses of the file.
    pub(crate) bias: u64,
}

/// All loaded files that can be read: not the vDSO.
pub(crate) fn images() -> anyhow::Result<Vec<LoadedFile>> {
    let mut images: Vec<LoadedFile> = Vec::new();
    // SAFETY: `note` is called only during this call, and with `images` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut images).cast()) };
    if let Some(own) = images.first_mut() {
        own.path = std::env::current_exe()?; // Its name is empty.
    }
    images.retain(|image| image.path.is_absolute() && image.path.exists());
    Ok(images)
}

/// # Safety
///
/// `info` is from dl_iterate_phdr, and `images` a `Vec<LoadedFile>` without other users.
unsafe extern "C" fn note(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    images: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let info = unsafe { &*info };
    // SAFETY: guaranteed by the caller.
    let images = unsafe { &mut *images.cast::<Vec<LoadedFile>>() };
    // SAFETY: the dynamic linker's names end with a zero byte and live as long as the library.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    images.push(LoadedFile {
        path: PathBuf::from(OsStr::from_bytes(name.to_bytes())),
        bias: info.dlpi_addr,
    });
    0
}

/// The addresses to which this thread's stack may grow, from the lowest.
///
/// To be called once: for the main thread it reads /proc/self/maps.
pub(crate) fn stack_of_thread() -> anyhow::Result<Range<u64>> {
    thread_local! {
        static STACK: OnceCell<Range<u64>> = const { OnceCell::new() };
    }
    STACK.with(|stack| match stack.get() {
        Some(known) => Ok(known.clone()),
        None => {
            let found = find_stack()?;
            Ok(stack.get_or_init(|| found).clone())
        }
    })
}

fn find_stack() -> anyhow::Result<Range<u64>> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the call has no requirements.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread is running; the pointer is to memory of the right type.
    let failed = unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) };
    anyhow::ensure!(failed == 0, "pthread_getattr_np fails: {failed}");
    let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: pthread_getattr_np has initialised them; the other pointers are to valid variables.
    let failed =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size) };
    // SAFETY: initialised above, and not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    anyhow::ensure!(failed == 0, "pthread_attr_getstack fails: {failed}");
    let lowest = lowest.addr() as u64;
    Ok(lowest..lowest + size as u64)
}
