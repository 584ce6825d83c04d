//! framehop, with all files that were loaded when it was opened.

use std::sync::Arc;

use framehop::Unwinder as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use unspool_bench::framehop_module;
use unspool_elf::ElfFile;

use super::{MakeWalker, PeerWalker};
use crate::sys::{OwnStack, images, read_word, registers};

type Unwinder = UnwinderX86_64<Vec<u8>>;

pub(super) fn cached() -> anyhow::Result<MakeWalker> {
    let unwinder = Arc::new(unwinder()?);
    Ok(Box::new(move || {
        Box::new(Cached {
            unwinder: unwinder.clone(),
            cache: CacheX86_64::new(),
        })
    }))
}

pub(super) fn uncached() -> anyhow::Result<MakeWalker> {
    let unwinder = Arc::new(unwinder()?);
    Ok(Box::new(move || Box::new(Uncached(unwinder.clone()))))
}

struct Cached {
    unwinder: Arc<Unwinder>,
    cache: CacheX86_64,
}

impl PeerWalker for Cached {
    fn walk(&mut self, stack: &OwnStack, out: &mut [u64]) -> usize {
        walk(&self.unwinder, &mut self.cache, stack, out)
    }
}

struct Uncached(Arc<Unwinder>);

impl PeerWalker for Uncached {
    fn walk(&mut self, stack: &OwnStack, out: &mut [u64]) -> usize {
        walk(&self.0, &mut CacheX86_64::new(), stack, out)
    }
}

#[inline(never)]
fn walk(unwinder: &Unwinder, cache: &mut CacheX86_64, stack: &OwnStack, out: &mut [u64]) -> usize {
    let here = registers();
    let start = UnwindRegsX86_64::new(here.rip, here.rsp, here.rbp);
    let mut read = |address| read_word(stack, here.rsp, address).ok_or(());
    let mut frames = unwinder.iter_frames(here.rip, start, cache, &mut read);
    let mut count = 0;
    for slot in out {
        let Ok(Some(frame)) = frames.next() else {
            break;
        };
        *slot = frame.address();
        count += 1;
    }
    count
}

fn unwinder() -> anyhow::Result<Unwinder> {
    let mut unwinder = Unwinder::new();
    for image in images()? {
        let file = ElfFile::open(&image.path)?;
        if let Some(module) = framehop_module(&file, image.bias)? {
            unwinder.add_module(module);
        }
    }
    Ok(unwinder)
}
