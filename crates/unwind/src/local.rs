//! The stacks of the own process.
//!
//! [`walk`] walks the stack of the thread that asks, any thread, and finds what the thread keeps for
//! that by itself ([`prepare_thread`]); [`OwnThread`] is the same for whoever hands that around. What a
//! walk needs is found once and kept in memory of fixed size; the walk itself is a [`crate::walk`].
//!
//! | | async-signal-safe | allocates | system calls | locks |
//! |---|---|---|---|---|
//! | [`prepare`] | no | what the C library may, to print statistics | yes | the loader's |
//! | [`prepare_thread`] | no | memory of its own, and what the C library may | yes | the C library's |
//! | [`walk`], [`walk_from`], [`with_memory`] | yes | no | only to ask whether memory outside of the known stack is mapped | no |
//! | [`with_cursor`], [`OwnCursor`] | yes | no | as [`walk`] | no |
//! | [`OwnThread::new`] | no | may | yes | may |
//! | [`OwnThread::walk`] | yes | no | only to ask whether memory outside of the known stack is mapped | no |
//! | [`OwnModules::prepare`], [`OwnModules::meet_all`], [`OwnModules::for_each_embedded`] | no | no | no | the loader's |
//! | [`OwnModules::attach`], [`OwnModules::loaded`] | yes | no | no | no |
//! | [`OwnMemory::with_own_stack`], [`ReadableMemory`] | yes | no | once for each page of the stack, and for memory outside of it | no |
//! | [`rules::resize`], [`rules::begin`] | no | no | `mmap` | no |
//! | [`rules::current`] | yes | no | no | no |
//! | [`store::TableFolders::from_environment`], [`wants_native`] | no | no | no | no |
//! | [`store::TableFolders::first`] | yes | `mmap`, for what is found | for files | no |
//! | [`map_tables`] | no | yes | yes | the loader's |
//!
//! `docs/safety.md` has the argument that no walk follows a bad pointer, and what has to hold because
//! nobody can check it: the code that the stack returns to stays mapped
//! while it is walked (unloading code that is still to be returned to is an error of the program
//! in any case), and the first page of a loaded object is readable.

use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use unspool_rows::{Abi, Arch, CodeAddr, Endian, Register, RuntimeAddr};

use crate::walk::{InnermostFrame, Memo, WalkResult, Walker};
use sys::CapturedRegisters;

mod cursor;
mod elf;
#[cfg(feature = "std")]
mod map_tables;
mod memory;
mod modules;
pub mod rules;
pub mod stats;
pub mod store;
mod sys;
mod thread;

pub use cursor::{OwnCursor, RegisterLocation, RegisterLocationArray, with_cursor};
#[cfg(feature = "std")]
pub use map_tables::{MappedTables, map_tables};
pub use memory::OwnMemory;
pub use modules::{LoadedModule, ModuleBytes, OwnModules};
pub use sys::{ReadableMemory, SetOnce, is_privileged};
pub use thread::{PrepareError, SignalRegisters, prepare_thread, walk, walk_from, with_memory};

/// The ABI of the own process.
pub const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// Whether `UNSPOOL_TABLES` asks for tables as machine code. Not async-signal-safe.
#[must_use]
pub fn wants_native() -> bool {
    sys::variable(c"UNSPOOL_TABLES") == Some(b"native")
}

/// The modules of the process.
static MODULES: OwnModules = OwnModules::new();

/// Whether a thread has begun to look which modules are there for good.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// The modules of the own process.
#[must_use]
pub fn modules() -> &'static OwnModules {
    &MODULES
}

/// Does once what helps the walks of all threads: has the kernel provide memory for their rules, as
/// much as [`rules`] says, and asks the loader which modules will stay.
pub fn prepare() {
    if !IS_PREPARED.swap(true, Ordering::Relaxed) {
        rules::begin();
        sys::populate(rules::current());
        MODULES.prepare();
        if stats::begin() {
            sys::print_at_exit();
        }
    }
}

/// What a thread keeps for walks of its own stack: 60 KiB.
///
/// It stays with its thread, whose stack is read without asking whether it is there:
///
/// ```compile_fail,E0277
/// let mut thread = unspool_unwind::local::OwnThread::new();
/// std::thread::spawn(move || thread.walk(&mut []));
/// ```
#[derive(Debug)]
pub struct OwnThread {
    memo: Memo,
    stack: Range<u64>,
    /// Another thread's stack may lie where this one's was, and end before it.
    stays: PhantomData<*const ()>,
}

impl OwnThread {
    /// Looks up where the stack of this thread is. On other stacks every page is asked for.
    #[must_use]
    pub fn new() -> Self {
        prepare();
        let mut thread = OwnThread {
            memo: Memo::new(),
            stack: sys::stack().unwrap_or_default(),
            stays: PhantomData,
        };
        // The first walk waits for its code and its memory: not the one that is asked for.
        thread.walk(&mut [RuntimeAddr(0); 64]);
        thread
    }

    /// Walks the own stack: the first address is where this function returns to.
    ///
    /// Async-signal-safe.
    #[inline(never)]
    pub fn walk(&mut self, addresses: &mut [RuntimeAddr]) -> WalkResult {
        let mut captured = CapturedRegisters::EMPTY;
        captured.fill();
        let memory = OwnMemory::new(&captured, &self.stack);
        let (walker, memo) = (Walker::new(ABI, rules::current()), &mut self.memo);
        stats::counted(|| walker.walk_again(memo, &captured, &MODULES, &memory, addresses))
    }

    /// Does the same without the memory of the last walk.
    #[inline(never)]
    pub fn walk_afresh(&self, addresses: &mut [RuntimeAddr]) -> WalkResult {
        let mut captured = CapturedRegisters::EMPTY;
        captured.fill();
        let memory = OwnMemory::new(&captured, &self.stack);
        let walker = Walker::new(ABI, rules::current());
        stats::counted(|| walker.walk(&captured, &MODULES, &memory, addresses))
    }
}

/// The function that walks is not part of what it shows.
impl InnermostFrame for CapturedRegisters {
    fn code(&self) -> CodeAddr {
        CodeAddr::Return(RuntimeAddr(self.code))
    }

    fn stack_pointer(&self) -> u64 {
        self.stack_pointer
    }

    fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        CapturedRegisters::OTHERS.into_iter().zip(self.others)
    }

    fn is_shown(&self) -> bool {
        false
    }
}

impl Default for OwnThread {
    fn default() -> Self {
        OwnThread::new()
    }
}
