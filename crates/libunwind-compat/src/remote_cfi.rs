//! Unwind table entries in the target's memory, found by its `.eh_frame_hdr`.

use core::ops::ControlFlow;

use unspool_rows::{Abi, LoadBias, Memory};

use crate::abi::{self, DynInfo, Error, ProcInfo};
use crate::debug_frame;
use crate::entries::{EntryHeaders, RowAt, read_i32};

/// The target's ABI. The client converts the byte order: words are in the host's.
pub const ABI: Abi = Abi::X86_64;

/// The address of the entry that may cover `ip`, by binary search in a search table in the target.
///
/// # Errors
///
/// [`Error::NO_INFO`] if the table has none, [`Error::INVALID`] if it is not in the target; errors
/// of the memory.
pub(crate) fn search_table<M: Memory>(memory: &M, table: &DynInfo, ip: u64) -> Result<u64, Error> {
    let base = match table.format {
        abi::FORMAT_REMOTE_TABLE => table.table.segbase,
        abi::FORMAT_IP_OFFSET => table.start_ip,
        _ => return Err(Error::INVALID),
    };
    if !(table.start_ip..table.end_ip).contains(&ip) {
        return Err(Error::NO_INFO);
    }
    let wanted = ip.wrapping_sub(base).wrapping_sub(table.load_offset);
    let at = |index: u64| table.table.table_data.wrapping_add(index * 8);
    // An entry has two 32-bit numbers, so there are as many entries as words.
    let (mut low, mut high) = (0, table.table.table_len.min(u64::from(u32::MAX)));
    while low < high {
        let middle = low + (high - low) / 2;
        let start = read_i32(memory, at(middle))?;
        if i64::from(start) <= wanted.cast_signed() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let index = low.checked_sub(1).ok_or(Error::NO_INFO)?;
    let offset = read_i32(memory, at(index).wrapping_add(4))?;
    let base = table.table.segbase;
    Ok(base.wrapping_add_signed(i64::from(offset)))
}

/// `unw_dyn_info_t` to `unw_proc_info_t`: the entry of a search table that covers `ip`.
/// [`ProcInfo::unwind_info`] is the address of the FDE.
///
/// # Errors
///
/// [`Error::NO_INFO`] if none covers it, [`Error::INVALID`] for a table that is not in the target,
/// [`Error::BAD_FRAME`] for a bad entry; errors of the memory.
pub fn search<M: Memory>(memory: &M, table: &DynInfo, ip: u64) -> Result<ProcInfo, Error> {
    let address = search_table(memory, table, ip)?;
    let copied = EntryHeaders::read(memory, address, table.gp)?.copy(memory)?;
    let info = copied.parse()?.info(memory, table)?;
    if (info.start_ip..info.end_ip).contains(&ip) {
        Ok(info)
    } else {
        Err(Error::NO_INFO)
    }
}

/// Passes the rows of a procedure found by [`search`] or [`debug_frame::find`] to `visit`, like
/// `FdeWithCie::rows`.
///
/// # Errors
///
/// [`Error::NO_INFO`] for another finder's procedure, [`Error::BAD_FRAME`] for a bad entry; errors
/// of the memory and of `visit`.
pub fn rows<M: Memory>(
    memory: &M,
    info: &ProcInfo,
    visit: impl FnMut(RowAt<'_, '_>) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let copied;
    let entries = if !info.has(abi::FLAG_DEBUG_FRAME) {
        copied = EntryHeaders::read(memory, fde_address(info)?, info.gp)?.copy(memory)?;
        copied.parse()?
    } else {
        debug_frame::entries(info)?
    };
    let bias = info.start_ip.wrapping_sub(entries.addresses().start.0);
    entries.rows(LoadBias(bias), visit)
}

/// The address of the FDE that [`search`] found.
pub(crate) fn fde_address(info: &ProcInfo) -> Result<u64, Error> {
    match info.format {
        abi::FORMAT_TABLE | abi::FORMAT_REMOTE_TABLE if !info.unwind_info.is_null() => {
            u64::try_from(info.unwind_info.addr()).map_err(|_| Error::INVALID)
        }
        _ => Err(Error::NO_INFO),
    }
}

#[cfg(test)]
pub(crate) mod tests;
