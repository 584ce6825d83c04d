//! The properties of a file that framehop needs.

use ::framehop::{ExplicitModuleSectionInfo, Module};
use unspool_elf::{ElfFile, Section};

/// A file for framehop, loaded at a bias from its linked address; `None` if it has no `.eh_frame`,
/// `.eh_frame_hdr`, `.text` or segments.
///
/// # Errors
///
/// A section of the file is bad.
pub fn framehop_module(file: &ElfFile, bias: u64) -> anyhow::Result<Option<Module<Vec<u8>>>> {
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
    let name = file.path().display().to_string();
    let range = bias + all.start.0..bias + all.end.0;
    Ok(Some(Module::new(name, range, bias, sections)))
}
