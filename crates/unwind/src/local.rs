//! The stacks of the own process.
//!
//! [`OwnThread`] walks the stack of the thread that asks. What a walk needs is found once and
//! kept in memory of fixed size; the walk itself is a [`crate::walk`].
//!
//! | | async-signal-safe | allocates | system calls | locks |
//! |---|---|---|---|---|
//! | [`OwnThread::new`] | no | may | yes | may |
//! | [`OwnThread::walk`] | yes | no | only to ask whether memory outside of the known stack is mapped | no |
//! | [`OwnModules::prepare`] | no | no | no | the loader's |
//! | [`OwnModules::attach`] | no | no | no | no |
//!
//! What has to hold, because nobody can check it: the code that the stack returns to stays mapped
//! while it is walked (unloading code that is still to be returned to is an error of the program
//! in any case), and the first page of a loaded object is readable.

use core::sync::atomic::{AtomicBool, Ordering};

use unspool_ir::{Abi, Arch, CodeAddr, Endian, RuntimeAddr};

use crate::walk::{Memo, Rules, Top, Walk, Walker};

mod elf;
mod memory;
mod modules;
mod sys;

pub use memory::OwnMemory;
pub use modules::OwnModules;

/// The ABI of the own process.
pub const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// The rules that all threads of the process share.
static RULES: Rules = Rules::new();

/// The modules of the process.
static MODULES: OwnModules = OwnModules::new();

/// Whether a thread has begun to look which modules are there for good.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// The modules of the own process.
#[must_use]
pub fn modules() -> &'static OwnModules {
    &MODULES
}

/// What a thread keeps for walks of its own stack: 60 KiB.
#[derive(Debug)]
pub struct OwnThread {
    walker: Walker<'static>,
    memo: Memo,
    stack_end: u64,
}

impl OwnThread {
    /// Looks up where the stack of this thread ends.
    ///
    /// For this thread only: on another one's stack every page is asked for.
    #[must_use]
    pub fn new() -> Self {
        if !IS_PREPARED.swap(true, Ordering::Relaxed) {
            MODULES.prepare();
        }
        OwnThread {
            walker: Walker::new(ABI, &RULES),
            memo: Memo::new(),
            stack_end: sys::stack_end().unwrap_or(0),
        }
    }

    /// Walks the own stack: the first address is where this function returns to.
    ///
    /// Async-signal-safe.
    pub fn walk(&mut self, addresses: &mut [RuntimeAddr]) -> Walk {
        sys::with_captured(|captured| {
            let (top, memory) = self.begin(captured);
            let Self { walker, memo, .. } = self;
            walker.walk_again(memo, &top, &MODULES, &memory, addresses)
        })
    }

    /// Does the same without the memory of the last walk.
    pub fn walk_afresh(&mut self, addresses: &mut [RuntimeAddr]) -> Walk {
        sys::with_captured(|captured| {
            let (top, memory) = self.begin(captured);
            self.walker.walk(&top, &MODULES, &memory, addresses)
        })
    }

    #[inline]
    fn begin<'c>(&self, captured: &'c sys::Captured) -> (Top<'c>, OwnMemory) {
        let top = Top {
            code: CodeAddr::Return(RuntimeAddr(captured.return_address)),
            stack_pointer: captured.stack_pointer,
            frame_pointer: captured.frame_pointer,
            others: &captured.others,
        };
        (top, OwnMemory::new(captured, self.stack_end))
    }
}

impl Default for OwnThread {
    fn default() -> Self {
        OwnThread::new()
    }
}
