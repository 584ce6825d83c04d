//! Types and constants compared with libunwind's own header.

use std::fmt::Write;

use crate::programs;
use unspool_libunwind_compat::abi::{
    self, Accessors, DynInfo, Error, FloatRegister, OpaqueCursor, ProcInfo, RemoteTable,
    SaveLocation,
};
use unspool_testing::command;

/// Our value for each name printed by `layout.c`.
fn ours(line: &str) -> i64 {
    let mut words = line.split(' ');
    let (kind, name) = (words.next().unwrap(), words.next().unwrap());
    let found = match kind {
        "sizeof" => SIZES.iter().find(|(known, _)| *known == name),
        "offsetof" => OFFSETS.iter().find(|(known, _)| *known == name),
        _ => return i64::from(VALUES.iter().find(|(known, _)| *known == name).unwrap().1),
    };
    i64::try_from(found.unwrap_or_else(|| panic!("{line}")).1).unwrap()
}

macro_rules! sizes {
    ($($name:ident),*) => { &[$((stringify!($name), size_of::<$name>())),*] };
}

macro_rules! offsets {
    ($($name:ident: $($member:ident)*;)*) => {
        &[$($((concat!(stringify!($name), ".", stringify!($member)),
               std::mem::offset_of!($name, $member))),*),*]
    };
}

const SIZES: &[(&str, usize)] = sizes![
    OpaqueCursor,
    FloatRegister,
    ProcInfo,
    DynInfo,
    RemoteTable,
    SaveLocation,
    AccessorsIn1_6,
    Accessors
];

#[allow(non_camel_case_types, reason = "a version")]
type AccessorsIn1_6 = [u8; Accessors::SIZE_IN_1_6];

const OFFSETS: &[(&str, usize)] = offsets![
    ProcInfo: start_ip end_ip lsda handler gp flags format unwind_info_size unwind_info extra;
    DynInfo: next prev start_ip end_ip gp format load_offset table;
    RemoteTable: name_ptr segbase table_len table_data;
    SaveLocation: kind value extra;
    Accessors: find_proc_info put_unwind_info get_dyn_info_list_addr access_mem access_reg
        access_fpreg resume get_proc_name get_elf_filename get_proc_ip_range ptrauth_insn_mask;
];

const VALUES: &[(&str, i32)] = &[
    ("RIP", abi::RIP),
    ("RSP", abi::RSP),
    ("RBP", abi::RBP),
    ("RAX", abi::RAX),
    ("RDX", abi::RDX),
    ("CFA", abi::CFA),
    ("UNSPECIFIED", Error::UNSPECIFIED.0),
    ("NO_MEMORY", Error::NO_MEMORY.0),
    ("BAD_REGISTER", Error::BAD_REGISTER.0),
    ("READ_ONLY_REGISTER", Error::READ_ONLY_REGISTER.0),
    ("STOP", Error::STOP.0),
    ("INVALID_IP", Error::INVALID_IP.0),
    ("BAD_FRAME", Error::BAD_FRAME.0),
    ("INVALID", Error::INVALID.0),
    ("BAD_VERSION", Error::BAD_VERSION.0),
    ("NO_INFO", Error::NO_INFO.0),
    ("CACHE_NONE", abi::CACHE_NONE),
    ("CACHE_GLOBAL", abi::CACHE_GLOBAL),
    ("CACHE_PER_THREAD", abi::CACHE_PER_THREAD),
    ("FORMAT_DYNAMIC", abi::FORMAT_DYNAMIC),
    ("FORMAT_TABLE", abi::FORMAT_TABLE),
    ("FORMAT_REMOTE_TABLE", abi::FORMAT_REMOTE_TABLE),
    ("FORMAT_IP_OFFSET", abi::FORMAT_IP_OFFSET),
    ("FLAG_DEBUG_FRAME", abi::FLAG_DEBUG_FRAME.cast_signed()),
    ("SAVED_NONE", abi::SAVED_NONE),
    ("SAVED_MEMORY", abi::SAVED_MEMORY),
    ("SAVED_REGISTER", abi::SAVED_REGISTER),
];

#[test]
fn the_header_says_the_same() {
    let layout = programs::compile("layout.c");
    let theirs = programs::stdout(&mut command(layout));
    let mut all = String::new();
    for line in theirs.lines() {
        let (question, _) = line.rsplit_once(' ').unwrap();
        writeln!(all, "{question} {}", ours(line)).unwrap();
    }
    assert_eq!(all, theirs);
}
