//! Unwind information that a target has registered with `_U_dyn_register` for generated code: a
//! list in its memory.

use unspool_rows::memory::read_uint;
use unspool_rows::{Memory, RuntimeAddr};

use crate::abi::{self, DynInfo, Error, ProcInfo, RemoteTable};
use crate::remote_cfi::{self, ABI};

/// The maximum number of entries to read: a list may be circular.
const MAX_LIST_ENTRIES: usize = 1 << 16;

/// The only version of `unw_dyn_info_list_t`.
const VERSION: u64 = 1;

/// The procedure of an address, by the `unw_dyn_info_list_t` at `list`. For one described by
/// operations ([`abi::FORMAT_DYNAMIC`]), only its addresses are known, as with libunwind on x86-64.
///
/// # Errors
///
/// [`Error::NO_INFO`] if nothing is registered for the address, [`Error::BAD_VERSION`] for a list
/// of another version; those of [`remote_cfi::search`].
pub(crate) fn find<M: Memory>(memory: &M, list: u64, ip: u64) -> Result<ProcInfo, Error> {
    let read = |addr: u64, size| {
        let read = read_uint(memory, RuntimeAddr(addr), size, ABI.endian);
        read.map_err(|_| Error::INVALID)
    };
    if read(list, 4)? != VERSION {
        return Err(Error::BAD_VERSION);
    }
    let mut next = read(list.wrapping_add(8), 8)?;
    for _ in 0..MAX_LIST_ENTRIES {
        if next == 0 {
            break;
        }
        // `unw_dyn_info_t`, in words.
        let word = |at: u64| read(next.wrapping_add(8 * at), 8);
        let (start_ip, end_ip) = (word(2)?, word(3)?);
        if !(start_ip..end_ip).contains(&ip) {
            next = word(0)?;
            continue;
        }
        let table = DynInfo {
            start_ip,
            end_ip,
            gp: word(4)?,
            format: i32::try_from(read(next.wrapping_add(40), 4)?).map_err(|_| Error::NO_INFO)?,
            load_offset: word(6)?,
            table: RemoteTable {
                name_ptr: word(7)?,
                segbase: word(8)?,
                table_len: word(9)?,
                table_data: word(10)?,
            },
            ..DynInfo::NONE
        };
        return procedure(memory, &table, ip);
    }
    Err(Error::NO_INFO)
}

fn procedure<M: Memory>(memory: &M, table: &DynInfo, ip: u64) -> Result<ProcInfo, Error> {
    match table.format {
        abi::FORMAT_DYNAMIC => Ok(described(table)),
        _ => remote_cfi::search(memory, table, ip),
    }
}

/// A procedure described by operations, without these.
#[must_use]
pub(crate) fn described(table: &DynInfo) -> ProcInfo {
    ProcInfo {
        start_ip: table.start_ip,
        end_ip: table.end_ip,
        gp: table.gp,
        // `unw_dyn_proc_info_t`: the name, the personality routine, flags in 4 bytes, and the
        // operations.
        handler: table.table.segbase,
        flags: table.table.table_len & 0xffff_ffff,
        ..ProcInfo::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    use crate::client::AlignedMemory;
    use crate::remote_cfi::tests::{BASE, target};

    const LIST: u64 = 0x1000;
    const FUNCTION: u64 = BASE + 0x8000;

    /// The result for a target with an entry for [`FUNCTION`], and these words at [`LIST`].
    fn found(words: &[u64], ip: u64) -> Result<ProcInfo, Error> {
        let (bytes, _) = target(&[FUNCTION]);
        let word = |addr: u64| {
            let at = usize::try_from(addr.checked_sub(LIST)? / 8).ok()?;
            let from_base = addr
                .checked_sub(BASE)
                .and_then(|at| usize::try_from(at).ok());
            match words.get(at) {
                Some(word) => Some(*word),
                None => Some(u64::from_le_bytes(*bytes.get(from_base?..)?.first_chunk()?)),
            }
        };
        find(
            &AlignedMemory::new(|addr| word(addr).ok_or(Error::INVALID)),
            LIST,
            ip,
        )
    }

    /// An entry of the list, with the next one at `next`.
    fn entry(next: u64, addresses: [u64; 2], format: i32, load_offset: u64) -> [u64; 11] {
        let (_, table) = target(&[FUNCTION]);
        let [start, end] = addresses;
        let RemoteTable {
            segbase,
            table_len,
            table_data,
            ..
        } = table.table;
        let format = u64::from(format.unsigned_abs());
        [
            next,
            0,
            start,
            end,
            0,
            format,
            load_offset,
            0,
            segbase,
            table_len,
            table_data,
        ]
    }

    #[test]
    fn an_address_is_found_by_what_is_registered_for_it() {
        let far = FUNCTION + 0x1000;
        let second = LIST + 16 + 88;
        let list: Vec<u64> = [1 | 7 << 32, LIST + 16]
            .into_iter()
            .chain(entry(second, [far, far + 32], abi::FORMAT_DYNAMIC, 0))
            .chain(entry(
                0,
                [FUNCTION, FUNCTION + 64],
                abi::FORMAT_REMOTE_TABLE,
                0,
            ))
            .collect();
        let info = found(&list, FUNCTION + 3).unwrap();
        assert_eq!((info.start_ip, info.end_ip), (FUNCTION, FUNCTION + 16));
        assert!(!info.unwind_info.is_null());
        // Within the table's addresses, but in no entry.
        assert_eq!(found(&list, FUNCTION + 16).err(), Some(Error::NO_INFO));
        let info = found(&list, far + 31).unwrap();
        assert_eq!(
            (info.start_ip, info.end_ip, info.format),
            (far, far + 32, 0)
        );
        assert!(info.unwind_info.is_null());
        // The second and third words have another meaning in a search table.
        assert_eq!((info.handler, info.flags), (BASE, 1));
        for elsewhere in [0, FUNCTION - 1, far + 32, u64::MAX] {
            assert_eq!(found(&list, elsewhere).err(), Some(Error::NO_INFO));
        }
    }

    #[test]
    fn a_bad_list_ends() {
        let addresses = [FUNCTION, FUNCTION + 64];
        let circle = |next, format| -> Vec<u64> {
            let entry = entry(next, addresses, format, 0);
            [1, LIST + 16].into_iter().chain(entry).collect()
        };
        let remote = abi::FORMAT_REMOTE_TABLE;
        assert_eq!(
            found(&circle(LIST + 16, remote), 5).err(),
            Some(Error::NO_INFO)
        );
        assert_eq!(found(&circle(0x10, remote), 5).err(), Some(Error::INVALID));
        assert_eq!(found(&circle(0, 77), FUNCTION).err(), Some(Error::INVALID));
        assert_eq!(found(&[1, 0], FUNCTION).err(), Some(Error::NO_INFO));
        assert_eq!(found(&[2, 0], FUNCTION).err(), Some(Error::BAD_VERSION));
        assert_eq!(found(&[], FUNCTION).err(), Some(Error::INVALID));
    }
}
