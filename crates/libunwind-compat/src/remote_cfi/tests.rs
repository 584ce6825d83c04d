use super::*;
use std::vec::Vec;

use unspool_rows::row::RegisterRule;
use unspool_rows::{CfaRule, Register};

use crate::abi::RemoteTable;
use crate::client::AlignedMemory;

pub(crate) const BASE: u64 = 0x4000_0000;

/// A target's memory that begins at [`BASE`].
fn memory(bytes: &[u8]) -> impl Memory {
    AlignedMemory::new(move |addr| {
        let at = usize::try_from(addr.checked_sub(BASE).ok_or(Error::INVALID)?).unwrap();
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map(|word| u64::from_le_bytes(*word))
            .ok_or(Error::INVALID)
    })
}

fn entry(out: &mut Vec<u8>, body: &[u8]) -> u64 {
    let at = BASE + out.len() as u64;
    let padded = body.len().next_multiple_of(4);
    out.extend(u32::try_from(padded).unwrap().to_le_bytes());
    out.extend(body);
    out.resize(out.len() + padded - body.len(), 0);
    at
}

/// `zR` with absolute 8-byte addresses, CFA rsp+8, return address at CFA-8.
const CIE: [u8; 18] = [
    0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x04, 0x0c, 7, 8, 0x90, 1,
];

/// FDEs of functions of 16 bytes at these addresses, and their search table, sorted. Each function
/// pushes rbx with its first byte, and all FDEs have one CIE.
pub(crate) fn target(functions: &[u64]) -> (Vec<u8>, DynInfo) {
    let mut bytes = Vec::new();
    entry(&mut bytes, &CIE);
    let mut table = Vec::new();
    for function in functions {
        let back = u32::try_from(bytes.len() + 4).unwrap();
        let mut body = back.to_le_bytes().to_vec();
        body.extend(function.to_le_bytes());
        body.extend(16_u64.to_le_bytes());
        body.extend([0, 0x41, 0x0e, 16, 0x83, 2]);
        table.push((*function, entry(&mut bytes, &body)));
    }
    let data = BASE + bytes.len() as u64;
    table.sort_unstable();
    for (function, fde) in &table {
        for address in [function, fde] {
            let offset = i32::try_from(address.wrapping_sub(BASE).cast_signed()).unwrap();
            bytes.extend(offset.to_le_bytes());
        }
    }
    bytes.resize(bytes.len() + 8, 0xee);
    let info = DynInfo {
        start_ip: 0,
        end_ip: u64::MAX,
        format: abi::FORMAT_REMOTE_TABLE,
        table: RemoteTable {
            name_ptr: 0,
            segbase: BASE,
            table_len: table.len() as u64,
            table_data: data,
        },
        ..DynInfo::NONE
    };
    (bytes, info)
}

fn found(bytes: &[u8], table: &DynInfo, ip: u64) -> Result<ProcInfo, Error> {
    search(&memory(bytes), table, ip)
}

#[test]
fn every_address_finds_its_function_and_row() {
    let functions = [0x4000_9000, 0x4000_8000, 0x3fff_0000, 0x4000_8010];
    for count in 0..=functions.len() {
        let (bytes, table) = target(&functions[..count]);
        for function in functions {
            for offset in [u64::MAX, 0, 1, 15, 16] {
                let ip = function.wrapping_add(offset);
                let covering = functions[..count]
                    .iter()
                    .find(|start| (**start..**start + 16).contains(&ip));
                let info = match (covering, found(&bytes, &table, ip)) {
                    (Some(start), Ok(info)) => {
                        assert_eq!((info.start_ip, info.end_ip), (*start, start + 16));
                        info
                    }
                    (None, Err(error)) => {
                        assert_eq!(error, Error::NO_INFO);
                        continue;
                    }
                    (covering, other) => panic!("{ip:#x}: {covering:?}, {other:?}"),
                };
                check_rows(&bytes, &info);
            }
        }
    }
}

fn check_rows(bytes: &[u8], info: &ProcInfo) {
    let mut seen = Vec::new();
    rows(&memory(bytes), info, |at| {
        let CfaRule::RegisterOffset { offset, .. } = at.row.cfa else {
            panic!("{:?}", at.row);
        };
        let rbx = match at.row.rule(Register(3)) {
            Some(RegisterRule::Offset(offset)) => Some(offset),
            None => None,
            other => panic!("{other:?}"),
        };
        seen.push((at.start, at.end, offset, rbx));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    let first = info.start_ip;
    // The data alignment factor is -8.
    assert_eq!(
        seen,
        [
            (first, first + 1, 8, None),
            (first + 1, info.end_ip, 16, Some(-16))
        ]
    );
}

#[test]
fn a_table_may_be_moved() {
    let (bytes, mut table) = target(&[0x4000_8000, 0x4000_8100]);
    table.load_offset = 0x100;
    let info = found(&bytes, &table, 0x4000_8105).unwrap();
    assert_eq!((info.start_ip, info.end_ip), (0x4000_8100, 0x4000_8110));
    check_rows(&bytes, &info);
    assert_eq!(
        found(&bytes, &table, 0x4000_8005).err(),
        Some(Error::NO_INFO)
    );

    table.load_offset = 0;
    table.end_ip = 0x4000_8005;
    assert!(found(&bytes, &table, 0x4000_8004).is_ok());
    assert_eq!(
        found(&bytes, &table, 0x4000_8005).err(),
        Some(Error::NO_INFO)
    );
    table.format = abi::FORMAT_TABLE;
    assert_eq!(
        found(&bytes, &table, 0x4000_8004).err(),
        Some(Error::INVALID)
    );
}

/// `DW_EH_PE_datarel`: relative to the client's global pointer.
#[test]
fn pointers_may_be_relative_to_the_global_pointer() {
    const GLOBAL: u64 = 0x4000_7000;
    let mut cie = CIE;
    cie[12] = 0x3b;
    let mut bytes = Vec::new();
    entry(&mut bytes, &cie);
    let mut body = u32::try_from(bytes.len() + 4)
        .unwrap()
        .to_le_bytes()
        .to_vec();
    body.extend(0x1000_i32.to_le_bytes());
    body.extend([16, 0, 0, 0, 0, 0x41, 0x0e, 16, 0x83, 2]);
    let fde = entry(&mut bytes, &body);
    let table_data = BASE + bytes.len() as u64;
    for address in [GLOBAL + 0x1000, fde] {
        let offset = u32::try_from(address - BASE).unwrap();
        bytes.extend(offset.to_le_bytes());
    }
    bytes.resize(bytes.len() + 8, 0xee);
    let table = DynInfo {
        end_ip: u64::MAX,
        gp: GLOBAL,
        format: abi::FORMAT_REMOTE_TABLE,
        table: RemoteTable {
            segbase: BASE,
            table_len: 1,
            table_data,
            ..DynInfo::NONE.table
        },
        ..DynInfo::NONE
    };
    let info = found(&bytes, &table, 0x4000_8008).unwrap();
    assert_eq!((info.start_ip, info.end_ip), (0x4000_8000, 0x4000_8010));
    check_rows(&bytes, &info);
}

/// With any wrong byte, the result is an error or a row, soon.
#[test]
fn bad_bytes_do_no_harm() {
    let (bytes, table) = target(&[0x4000_8000, 0x4000_9000]);
    let (mut good, mut bad) = (0, 0);
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let seen = found(&changed, &table, 0x4000_8004)
                .and_then(|info| rows(&memory(&changed), &info, |_| Ok(ControlFlow::Continue(()))));
            match seen {
                Ok(()) => good += 1,
                Err(_) => bad += 1,
            }
        }
        let seen = found(&bytes[..at], &table, 0x4000_8004);
        assert!(seen.is_err() || at + 16 > bytes.len());
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}
