//! framehop, with all files that are loaded when it is opened.

use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use unspool_module::{ElfFile, Section};

use super::{Make, Walker};
use crate::sys::{Image, Stack, images, read_word, registers};

type Unwinder = UnwinderX86_64<Vec<u8>>;

pub(super) fn cached() -> anyhow::Result<Make> {
    let unwinder = Arc::new(unwinder()?);
    Ok(Box::new(move || {
        Box::new(Cached {
            unwinder: unwinder.clone(),
            cache: CacheX86_64::new(),
        })
    }))
}

pub(super) fn uncached() -> anyhow::Result<Make> {
    let unwinder = Arc::new(unwinder()?);
    Ok(Box::new(move || Box::new(Uncached(unwinder.clone()))))
}

struct Cached {
    unwinder: Arc<Unwinder>,
    cache: CacheX86_64,
}

impl Walker for Cached {
    fn walk(&mut self, stack: &Stack, out: &mut [u64]) -> usize {
        walk(&self.unwinder, &mut self.cache, stack, out)
    }
}

struct Uncached(Arc<Unwinder>);

impl Walker for Uncached {
    fn walk(&mut self, stack: &Stack, out: &mut [u64]) -> usize {
        walk(&self.0, &mut CacheX86_64::new(), stack, out)
    }
}

#[inline(never)]
fn walk(unwinder: &Unwinder, cache: &mut CacheX86_64, stack: &Stack, out: &mut [u64]) -> usize {
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
        if let Some(module) = module(&image)? {
            unwinder.add_module(module);
        }
    }
    Ok(unwinder)
}

/// What framehop wants to know of a file; nothing without unwind tables.
fn module(image: &Image) -> anyhow::Result<Option<Module<Vec<u8>>>> {
    let file = ElfFile::open(&image.path)?;
    let (Some(eh_frame), Some(hdr), Some(text), Some(all)) = (
        file.eh_frames()?.into_iter().next(),
        file.eh_frame_hdr()?,
        file.section_named(".text")?,
        file.address_range(),
    ) else {
        return Ok(None);
    };
    let range = |section: &Section<'_>| {
        let start = section.address.0;
        Some(start..start + section.data.len() as u64)
    };
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(&text),
        text: Some(text.data.to_vec()),
        eh_frame_svma: range(&eh_frame),
        eh_frame: Some(eh_frame.data.to_vec()),
        eh_frame_hdr_svma: range(&hdr),
        eh_frame_hdr: Some(hdr.data.to_vec()),
        ..Default::default()
    };
    let name = image.path.display().to_string();
    let range = image.bias + all.start.0..image.bias + all.end.0;
    Ok(Some(Module::new(name, range, image.bias, sections)))
}
