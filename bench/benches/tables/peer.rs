//! framehop, which combines lookup and step: it has no separate lookup.

use std::cell::RefCell;

use anyhow::Context as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use unspool_bench::framehop_module;
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

/// framehop, with this one module.
pub(crate) struct FramehopPeer {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: RefCell<CacheX86_64>,
}

impl FramehopPeer {
    pub(crate) fn new(file: &ElfFile) -> anyhow::Result<Self> {
        let module = framehop_module(file, 0)?;
        let mut unwinder = UnwinderX86_64::new();
        unwinder.add_module(module.context("no .eh_frame, .eh_frame_hdr, .text or segments")?);
        Ok(FramehopPeer {
            unwinder,
            cache: RefCell::new(CacheX86_64::new()),
        })
    }

    /// The return address of the frame whose call returns to this address; 0 if it has none.
    pub(crate) fn step_return(&self, address: Vaddr) -> u64 {
        FrameAddress::from_return_address(address.0).map_or(0, |address| self.unwind(address))
    }

    /// The same for a frame that is about to execute the instruction there.
    pub(crate) fn step(&self, pc: Vaddr) -> u64 {
        self.unwind(FrameAddress::from_instruction_pointer(pc.0))
    }

    fn unwind(&self, address: FrameAddress) -> u64 {
        let mut registers = UnwindRegsX86_64::new(address.address(), 0x7fff_0000, 0x7fff_1000);
        let mut read = |addr: u64| Ok(addr ^ 0x1000);
        let caller = self.unwinder.unwind_frame(
            address,
            &mut registers,
            &mut self.cache.borrow_mut(),
            &mut read,
        );
        caller.ok().flatten().unwrap_or(0)
    }
}

/// Its version, which the workspace's lock file fixes.
pub(crate) fn version() -> anyhow::Result<&'static str> {
    let lock = include_str!("../../../Cargo.lock");
    let after = lock.split("name = \"framehop\"\nversion = \"").nth(1);
    after
        .and_then(|after| after.split('"').next())
        .context("no framehop in Cargo.lock")
}
