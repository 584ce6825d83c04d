//! Entries of `.debug_frame`, which is only in the file and not in the target's memory: for
//! programs without `.eh_frame` (DWARF 5 §6.4.1).

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiSection, Lookup, SectionKind};
use unspool_rows::{LoadBias, RuntimeAddr, Vaddr};

use crate::abi::{self, Error, ProcInfo, UnwWord};
use crate::entries::FdeWithCie;
use crate::image;
use crate::remote_cfi::ABI;
use crate::sys::debug_frame_entry::DebugFrameEntry;

/// The procedure of an address by the section of a file, which is scanned from its start. The entry
/// is stored in `debug_frame_entry`, and [`ProcInfo::unwind_info`] points at it.
///
/// # Errors
///
/// [`Error::NO_INFO`] if the file has no such section, or it is compressed, or no entry covers the
/// address.
pub fn find(
    file: &[u8],
    bias: LoadBias,
    ip: u64,
    debug_frame_entry: &DebugFrameEntry,
) -> Result<ProcInfo, Error> {
    let data = image::section(file, b".debug_frame").ok_or(Error::NO_INFO)?;
    let lookup = Lookup::new(section(data), None, HdrTrust::Suspect);
    let entry = lookup.entry(bias.to_vaddr(RuntimeAddr(ip)));
    let (_, fde) = entry.map_err(|_| Error::BAD_FRAME)?.ok_or(Error::NO_INFO)?;
    Ok(ProcInfo {
        start_ip: bias.to_runtime(fde.start).0,
        end_ip: bias.to_runtime(fde.end).0,
        format: abi::FORMAT_TABLE,
        flags: UnwWord::from(abi::FLAG_DEBUG_FRAME),
        unwind_info: debug_frame_entry.set(data, fde.offset),
        ..ProcInfo::EMPTY
    })
}

/// The entry found by [`find`].
///
/// # Errors
///
/// [`Error::NO_INFO`] if another finder made `info`, [`Error::BAD_FRAME`] for a bad entry.
pub(crate) fn entries(info: &ProcInfo) -> Result<FdeWithCie<'_>, Error> {
    let (data, offset) = DebugFrameEntry::from_proc_info(info).ok_or(Error::NO_INFO)?;
    FdeWithCie::in_section(section(data), offset)
}

fn section(data: &[u8]) -> CfiSection<'_> {
    CfiSection {
        kind: SectionKind::DebugFrame,
        data,
        address: Vaddr(0),
        text_base: None,
        data_base: None,
        abi: ABI,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libunwind has its own structure there.
    #[test]
    fn entries_of_another_library_are_left_alone() {
        let theirs = [0_u64; 16];
        let there = core::ptr::from_ref(&theirs).cast_mut().cast();
        let known = DebugFrameEntry::empty();
        let ours = known.set(&[], 0);
        for (unwind_info, error) in [
            (core::ptr::null_mut(), Error::NO_INFO),
            (there, Error::NO_INFO),
            (ours, Error::BAD_FRAME),
        ] {
            let info = ProcInfo {
                format: abi::FORMAT_TABLE,
                flags: UnwWord::from(abi::FLAG_DEBUG_FRAME),
                unwind_info,
                ..ProcInfo::EMPTY
            };
            assert_eq!(entries(&info).err(), Some(error));
        }
    }
}
