//! The stacks of the own process.
//!
//! [`walk`] walks the stack of the calling thread, any thread, and finds the thread's prepared
//! state by itself ([`prepare_thread`]). [`OwnThread`] is the same state as a value. Everything
//! that a walk needs is found once and kept in memory of fixed size. The walk itself is a
//! [`crate::walk`].
//!
//! | | async-signal-safe | allocates | system calls | locks |
//! |---|---|---|---|---|
//! | [`prepare`] | no | only the C library, to print statistics | yes | the loader's |
//! | [`prepare_thread`] | no | its own memory; the C library may | yes | the C library's |
//! | [`walk`], [`walk_from`], [`with_memory`] | yes | no | outside of the known stack | no |
//! | [`with_cursor`], [`OwnCursor`] | yes | no | as [`walk`] | no |
//! | [`OwnThread::new`] | no | may | yes | may |
//! | [`OwnThread::walk`] | yes | no | outside of the known stack | no |
//! | [`OwnModules::prepare`], [`OwnModules::discover_all`] | no | no | no | the loader's |
//! | [`OwnModules::for_each_embedded`] | no | no | no | the loader's |
//! | [`OwnModules::attach`], [`OwnModules::loaded`] | yes | no | no | no |
//! | [`OwnMemory::with_own_stack`], [`ReadableMemory`] | yes | no | stack pages; outside | no |
//! | [`pool`] | yes | no | no | no |
//! | [`OwnModules::bytes_from`], [`OwnModules::symbol`], [`OwnModules::with_unwind_table`] | yes | no | no | no |
//! | [`fork_safe_lock`] | no | no | if it is taken | its own |
//! | [`rules::resize`], [`rules::begin`] | no | no | `mmap` | no |
//! | [`rules::current`] | yes | no | no | no |
//! | [`store::TableFolders::from_environment`], [`wants_native`] | no | no | no | no |
//! | [`store::TableFolders::first`] | yes | `mmap`, for found files | for files | no |
//! | [`map_tables`] | no | yes | yes | the loader's |
//!
//! The system calls of walks only ask whether memory is mapped, for each page of the stack once.
//!
//! `docs/safety.md` argues that no walk follows a bad pointer, and lists the assumptions that
//! cannot be checked. First, the code that the stack returns to stays mapped while it is walked:
//! unloading such code is a program error in any case. Second, the first page of a loaded object is
//! readable.

use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use unspool_files::environment::variable_bytes;
pub use unspool_rows::RuntimeAddr;
use unspool_rows::{Abi, CodeAddr, Register};

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
mod symbols;
mod sys;
mod thread;

pub use cursor::{OwnCursor, OwnRegisterLocation, RegisterLocationArray, with_cursor};
#[cfg(feature = "std")]
pub use map_tables::{MappedTables, map_tables};
pub use memory::OwnMemory;
pub use modules::{LoadedModule, ModuleBytes, OwnModules, OwnUnwindTable};
pub use sys::pool::{self, BufferPool, PooledBuffer};
pub use sys::{
    ReadableBlocks, ReadableMemory, SetOnce, StackTrust, WordBlock, caller_registers,
    fork_safe_lock,
};
pub use thread::{PrepareError, SignalRegisters, prepare_thread, walk, walk_from, with_memory};

/// The ABI of the own process.
pub const ABI: Abi = Abi::HOST;

/// Whether `UNSPOOL_TABLES` requests tables as machine code. Not async-signal-safe.
#[must_use]
pub fn wants_native() -> bool {
    variable_bytes(c"UNSPOOL_TABLES") == Some(b"native")
}

/// The modules of the process.
static MODULES: OwnModules = OwnModules::new();

/// Whether a thread has begun to find the permanent modules.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// The modules of the own process.
#[must_use]
pub fn modules() -> &'static OwnModules {
    &MODULES
}

/// Prepares once what speeds up the walks of all threads. The kernel provides memory for their
/// rules, in the size of [`rules`], and the loader is asked which modules are permanent.
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

/// A thread's state for walks of its own stack: 60 KiB.
///
/// It stays with its thread, because the thread's stack is read without checking that it is mapped:
///
/// ```compile_fail,E0277
/// let mut thread = unspool_unwind::local::OwnThread::new();
/// std::thread::spawn(move || thread.walk(&mut []));
/// ```
#[derive(Debug)]
pub struct OwnThread {
    memo: Memo,
    stack: Range<u64>,
    /// Another thread's stack may have taken this one's addresses, and end before it.
    stays: PhantomData<*const ()>,
}

impl OwnThread {
    /// Finds the bounds of this thread's stack. On other stacks the kernel is asked about every
    /// page.
    #[must_use]
    pub fn new() -> Self {
        prepare();
        let mut thread = OwnThread {
            memo: Memo::new(),
            stack: sys::stack().unwrap_or_default(),
            stays: PhantomData,
        };
        // The first walk waits for its code and its memory, so it is done here.
        thread.walk(&mut [RuntimeAddr(0); 64]);
        thread
    }

    /// Walks the own stack: the first address is this function's return address.
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

    /// Walks without the memo of the last walk.
    #[inline(never)]
    pub fn walk_afresh(&self, addresses: &mut [RuntimeAddr]) -> WalkResult {
        let mut captured = CapturedRegisters::EMPTY;
        captured.fill();
        let memory = OwnMemory::new(&captured, &self.stack);
        let walker = Walker::new(ABI, rules::current());
        stats::counted(|| walker.walk(&captured, &MODULES, &memory, addresses))
    }
}

/// The walking function is not part of the result.
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
