//! Any bytes as a target's memory with a search table and entries: nothing panics, and the row of an
//! address is the one that `unspool_cfi` finds in the same entry.
//!
//! The first byte says how many entries the search table has, which stands in front of the section.
#![no_main]

use core::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use unspool_cfi::evaluate::Evaluator;
use unspool_cfi::{CfiSection, Cie, ParsedFde, SectionKind};
use unspool_libunwind_compat::abi::{self, DynInfo, Error, ProcInfo, RemoteTable};
use unspool_libunwind_compat::client::AlignedMemory;
use unspool_libunwind_compat::remote_cfi;
use unspool_rows::{Memory, Vaddr};

const BASE: u64 = 0x1000;

fuzz_target!(|data: &[u8]| {
    let [count, rest @ ..] = data else { return };
    let memory = AlignedMemory::new(|addr| {
        let at = usize::try_from(addr.checked_sub(BASE).ok_or(Error::INVALID)?).unwrap();
        let word = rest.get(at..).and_then(|rest| rest.first_chunk());
        word.map(|word| u64::from_le_bytes(*word))
            .ok_or(Error::INVALID)
    });
    let entries = u64::from(*count);
    let formats = [abi::FORMAT_REMOTE_TABLE, abi::FORMAT_IP_OFFSET];
    for (format, load_offset) in formats.into_iter().zip([0, 0x40]) {
        let table = DynInfo {
            start_ip: 0,
            end_ip: u64::MAX,
            format,
            load_offset,
            table: RemoteTable {
                name_ptr: 0,
                segbase: BASE,
                table_len: entries,
                table_data: BASE,
            },
            ..DynInfo::NONE
        };
        let starts = rest.chunks_exact(8).take(usize::from(*count)).map(|entry| {
            let start = i32::from_le_bytes(*entry.first_chunk().unwrap());
            BASE.wrapping_add_signed(i64::from(start))
        });
        for ip in starts.chain([0, BASE]).take(32) {
            for ip in [ip, ip.wrapping_add(1), ip.wrapping_add(load_offset)] {
                if let Ok(info) = remote_cfi::search(&memory, &table, ip) {
                    assert!((info.start_ip..info.end_ip).contains(&ip));
                    check(rest, &memory, &info, ip, load_offset);
                }
            }
        }
    }
});

fn check<M: Memory>(rest: &[u8], memory: &M, info: &ProcInfo, ip: u64, bias: u64) {
    let section = CfiSection {
        kind: SectionKind::EhFrame,
        data: rest,
        address: Vaddr(BASE),
        text_base: None,
        data_base: Some(Vaddr(0)), // `DynInfo::gp`
        abi: remote_cfi::ABI,
    };
    let mut found = None;
    let read = remote_cfi::rows(memory, info, |at| {
        assert!(at.start < at.end);
        if (at.start..at.end).contains(&ip) {
            found = Some(format!("{:?}", at.row));
        }
        Ok(ControlFlow::Continue(()))
    });
    let offset = (info.unwind_info.addr() as u64).wrapping_sub(BASE);
    let expected = row_in(&section, offset, Vaddr(ip.wrapping_sub(bias)));
    match read {
        Ok(()) => assert_eq!(found, expected),
        Err(error) => assert_eq!(expected, None, "{error:?}"),
    }
}

/// The row of an entry at an address, printed.
fn row_in(section: &CfiSection<'_>, offset: u64, pc: Vaddr) -> Option<String> {
    let entry = section.entry(offset).ok()??;
    let cie = Cie::parse_at(section, entry.cie?).ok()?;
    let fde = ParsedFde::parse(section, &cie, entry).ok()?;
    let mut evaluator = Evaluator::new();
    let mut rows = evaluator.rows_of(section, &cie, &fde).ok()?;
    let mut found = None;
    while let Some(range) = rows.advance().ok()? {
        if range.start <= pc && pc < range.end {
            found = Some(format!("{:?}", rows.row()));
        }
    }
    found
}
