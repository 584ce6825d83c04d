//! What call sites say of exceptions, without asking the personality routine.
//!
//! That is known only of personality routines whose rules are: C's, C++'s and Rust's, by their
//! names. They treat two kinds of call sites alike, whatever the exception: those without a landing
//! pad, and those with a landing pad and no action. These are nearly all.

use unspool_cfi::byte_reader::ByteReader;
use unspool_cfi::lsda::{Lsda, SiteAction};
use unspool_cfi::{CfiSection, SectionKind};
use unspool_rows::{CodeAddr, RuntimeAddr};
use unspool_unwind::local::{self, ABI};

use crate::facts::{EntryFacts, FrameAction};
use crate::sys::personalities;

/// What exceptions do in frames at a code address of an entry.
pub(crate) fn action(code: CodeAddr, entry: &EntryFacts) -> FrameAction {
    let personality = personalities::routine(entry.procedure.personality);
    if personality == 0 {
        return FrameAction::Continue;
    }
    if !is_known(personality) {
        return FrameAction::Personality;
    }
    if entry.procedure.lsda == 0 {
        return FrameAction::Continue;
    }
    by_lsda(code, entry).unwrap_or(FrameAction::Personality)
}

/// Whether the rules of a personality routine are known. Its module exports it by one of these
/// names, which are trusted; or, in a program that is not position-independent, it is the program's entry of the
/// procedure linkage table for one that was loaded at the start.
fn is_known(personality: u64) -> bool {
    const NAMES: [&[u8]; 3] = [
        b"__gxx_personality_v0",
        b"__gcc_personality_v0",
        b"rust_eh_personality",
    ];
    personalities::linked_personalities().contains(&personality)
        || local::modules().is_exported(RuntimeAddr(personality), &NAMES)
}

/// `None` if the LSDA cannot be read.
fn by_lsda(code: CodeAddr, EntryFacts { procedure, bias }: &EntryFacts) -> Option<FrameAction> {
    let lsda = RuntimeAddr(procedure.lsda);
    let section = CfiSection {
        kind: SectionKind::EhFrame,
        data: local::modules().bytes_from(lsda)?,
        address: bias.to_vaddr(lsda),
        text_base: None,
        data_base: None,
        abi: ABI,
    };
    let mut reader = ByteReader::new(section.data, 0, section.data.len() as u64, ABI.endian);
    let function = bias.to_vaddr(RuntimeAddr(procedure.start));
    let pc = bias.to_vaddr(code.lookup());
    let mut lsda = Lsda::parse(&section, Some(function), &mut reader).ok()?;
    Some(match lsda.action_at(function, pc).ok()? {
        SiteAction::Continue => FrameAction::Continue,
        SiteAction::CleanUp(pad) => FrameAction::CleanUp(bias.to_runtime(pad).0),
        SiteAction::Personality => FrameAction::Personality,
    })
}
