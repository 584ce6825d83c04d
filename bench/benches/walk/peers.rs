//! The peers, and how to call each.

mod framehop;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use crate::sys::{
    Backtrace, BacktraceSymbol, CachingPolicy, Dialect, Library, OwnStack, UnwCursor,
    UnwindBacktrace, frame_pointers, set_cache_size, set_caching_policy,
};
use crate::workload::{Build, folder};

/// A walker of its own thread's stack.
pub(crate) trait PeerWalker {
    /// Writes the addresses of frames, from its own or its caller's outwards, until the room or the
    /// stack ends: returns their number. Callers have return addresses.
    fn walk(&mut self, stack: &OwnStack, out: &mut [u64]) -> usize;
}

/// Creates a walker for one thread. State shared by threads exists already.
pub(crate) type MakeWalker = Box<dyn Fn() -> Box<dyn PeerWalker> + Send + Sync>;

/// A selectable walker.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The build of the workload that it walks.
    pub(crate) build: Build,
    /// Opens its libraries, after the workload was loaded.
    pub(crate) open: OpenPeer,
}

pub(crate) type OpenPeer = fn() -> anyhow::Result<MakeWalker>;

/// The peer that all are compared with.
pub(crate) const BASE: &str = "frame pointers";

/// All peers, unspool's after the base.
pub(crate) fn all() -> Vec<Peer> {
    let base = Peer {
        name: BASE,
        build: Build::FramePointers,
        open: || Ok(make(frame_pointers)),
    };
    [base]
        .into_iter()
        .chain(crate::ours::all())
        .chain(others())
        .collect()
}

fn others() -> impl Iterator<Item = Peer> {
    let others: [(&'static str, OpenPeer); 17] = [
        ("libgcc _Unwind_Backtrace", || {
            let peer = UnwindBacktrace::from_library(Library::open(Path::new("libgcc_s.so.1"))?)?;
            Ok(make(move |_, out| peer.walk(out)))
        }),
        ("glibc backtrace", || {
            backtrace(
                Library::open(Path::new("libc.so.6"))?,
                BacktraceSymbol::Glibc,
            )
        }),
        ("libunwind 1.6 unw_backtrace", || {
            backtrace(debian("1.6-fast")?, BacktraceSymbol::Libunwind)
        }),
        ("libunwind 1.6 step no cache", || {
            step(debian("1.6-none")?, &NO_CACHE)
        }),
        ("libunwind 1.6 step global", || {
            step(debian("1.6-global")?, &GLOBAL)
        }),
        ("libunwind 1.6 step global 64k", || {
            step(debian("1.6-global64k")?, &GLOBAL_64K)
        }),
        ("libunwind 1.6 step per thread", || {
            step(debian("1.6-thread")?, &PER_THREAD)
        }),
        ("libunwind 1.8 unw_backtrace", || {
            backtrace(newer("1.8-fast")?, BacktraceSymbol::Libunwind)
        }),
        ("libunwind 1.8 step no cache", || {
            step(newer("1.8-none")?, &NO_CACHE)
        }),
        ("libunwind 1.8 step global", || {
            step(newer("1.8-global")?, &GLOBAL)
        }),
        ("libunwind 1.8 step global 64k", || {
            step(newer("1.8-global64k")?, &GLOBAL_64K)
        }),
        ("libunwind 1.8 step per thread", || {
            step(newer("1.8-thread")?, &AS_BUILT)
        }),
        ("LLVM libunwind step", || {
            let cursor = UnwCursor::from_library(llvm()?, Dialect::Llvm)?;
            Ok(make(move |_, out| cursor.walk(out)))
        }),
        ("LLVM libunwind _Unwind_Backtrace", || {
            let peer = UnwindBacktrace::from_library(llvm()?)?;
            Ok(make(move |_, out| peer.walk(out)))
        }),
        ("framehop cache", framehop::cached),
        ("framehop new cache each walk", framehop::uncached),
        ("crate unwinding", || {
            let peer = UnwindBacktrace::from_library(built("libunwinding_peer.so")?)?;
            Ok(make(move |_, out| peer.walk(out)))
        }),
    ];
    others.into_iter().map(|(name, open)| Peer {
        name,
        build: Build::NoFramePointers,
        open,
    })
}

impl<F: FnMut(&OwnStack, &mut [u64]) -> usize + Send> PeerWalker for F {
    fn walk(&mut self, stack: &OwnStack, out: &mut [u64]) -> usize {
        self(stack, out)
    }
}

/// Unspool's `unw_step`, with default settings.
pub(crate) fn unspool_step() -> anyhow::Result<MakeWalker> {
    step(of_capi()?, &AS_BUILT)
}

/// Unspool's `unw_backtrace`.
pub(crate) fn unspool_backtrace() -> anyhow::Result<MakeWalker> {
    backtrace(of_capi()?, BacktraceSymbol::Libunwind)
}

/// Walkers without state.
fn make(
    walk: impl Fn(&OwnStack, &mut [u64]) -> usize + Copy + Send + Sync + 'static,
) -> MakeWalker {
    Box::new(move || Box::new(walk))
}

fn backtrace(library: Library, symbol: BacktraceSymbol) -> anyhow::Result<MakeWalker> {
    let peer = Backtrace::from_library(library, symbol)?;
    Ok(make(move |_, out| peer.walk(out)))
}

/// How libunwind caches register states; `None` keeps the default.
struct Caching {
    policy: Option<CachingPolicy>,
    entries: Option<usize>,
}

const NO_CACHE: Caching = Caching {
    policy: Some(CachingPolicy::None),
    entries: None,
};

const GLOBAL: Caching = Caching {
    policy: Some(CachingPolicy::Global),
    entries: None,
};

const GLOBAL_64K: Caching = Caching {
    policy: Some(CachingPolicy::Global),
    entries: Some(65_536),
};

const PER_THREAD: Caching = Caching {
    policy: Some(CachingPolicy::PerThread),
    entries: None,
};

/// When asked for per-thread caches, libunwind uses the global one even if it was built with them.
const AS_BUILT: Caching = Caching {
    policy: None,
    entries: None,
};

fn step(library: Library, caching: &Caching) -> anyhow::Result<MakeWalker> {
    let cursor = UnwCursor::from_library(library, Dialect::Nongnu)?;
    if let Some(policy) = caching.policy {
        set_caching_policy(library, policy)?;
    }
    if let Some(entries) = caching.entries {
        // The first walk allocates a cache of the default size, whatever was set before.
        cursor.walk(&mut [0; 4]);
        set_cache_size(library, entries)?;
    }
    Ok(make(move |_, out| cursor.walk(out)))
}

/// Debian's libunwind.
fn debian(copy: &str) -> anyhow::Result<Library> {
    let file = Path::new("/usr/lib/x86_64-linux-gnu/libunwind.so.8");
    anyhow::ensure!(
        file.exists(),
        "not there: install Debian's package libunwind8"
    );
    open_copy(file, copy)
}

/// The newer libunwind that `cargo xtask bench-peers` has built.
fn newer(copy: &str) -> anyhow::Result<Library> {
    open_copy(&built_file("libunwind.so.8")?, copy)
}

/// The newest installed libunwind of LLVM.
fn llvm() -> anyhow::Result<Library> {
    let place = |version| format!("/usr/lib/llvm-{version}/lib/libunwind.so.1.0");
    let mut files = (13..40).rev().map(|version| PathBuf::from(place(version)));
    let file = files.find(|file| file.exists());
    Library::open(&file.context("not there: install Debian's package libunwind-16")?)
}

/// Opens a copy of a library, with its own settings and caches. The linker identifies libraries by
/// name, so each name must be unique.
fn open_copy(file: &Path, copy: &str) -> anyhow::Result<Library> {
    let folder = folder()?
        .join("copies")
        .join(std::process::id().to_string());
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(copy);
    std::fs::copy(file, &path)?;
    let opened = Library::open(&path);
    std::fs::remove_dir_all(&folder)?;
    opened
}

fn built(name: &str) -> anyhow::Result<Library> {
    Library::open(&built_file(name)?)
}

/// A peer built by `cargo xtask bench-peers`.
fn built_file(name: &str) -> anyhow::Result<PathBuf> {
    let file = target_folder()?.join("bench-peers").join(name);
    anyhow::ensure!(file.exists(), "not there: run cargo xtask bench-peers");
    Ok(file)
}

/// Unspool's shared object with libunwind's names, as built by `cargo xtask shared-objects`.
fn of_capi() -> anyhow::Result<Library> {
    let file = target_folder()?.join("shared-object/libunwind/libunwind.so.8");
    let about = file
        .metadata()
        .context("not there: run cargo xtask shared-objects")?;
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for name in [
        "rows",
        "cfi",
        "compiled-table",
        "unwind",
        "libunwind-compat",
    ] {
        anyhow::ensure!(
            !has_newer(&crates.join(name).join("src"), about.modified()?)?,
            "older than its sources: run cargo xtask shared-objects"
        );
    }
    Library::open(&file)
}

/// Whether a folder has a file changed after a time.
fn has_newer(folder: &Path, time: SystemTime) -> anyhow::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let is_newer = if entry.file_type()?.is_dir() {
            has_newer(&entry.path(), time)?
        } else {
            entry.metadata()?.modified()? > time
        };
        if is_newer {
            return Ok(true);
        }
    }
    Ok(false)
}

fn target_folder() -> anyhow::Result<&'static Path> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    folder.context("no target folder")
}
