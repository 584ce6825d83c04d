//! Files that are cut short or lie: an error or less than all, never a panic or a hang.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::sync::Arc;

use common::{PROGRAM, compile, directory};
use unspool_ir::{RuntimeAddr, Vaddr};
use unspool_module::{DebugFiles, ElfFile, Lines, Mapping, SearchRoots, Symbols};

/// Asks a file everything; returns how much of it could be answered.
fn ask_everything(bytes: Vec<u8>, addr: Vaddr) -> usize {
    let Ok(file) = ElfFile::from_bytes("hostile", bytes) else {
        return 0;
    };
    let file = Arc::new(file);
    let mut answers = 0;
    let mut count = |answered: bool| answers += usize::from(answered);
    for section in file.sections() {
        count(file.section(section.index).is_ok());
    }
    count(file.eh_frames().is_ok_and(|sections| !sections.is_empty()));
    count(file.eh_frame_hdr().is_ok_and(|section| section.is_some()));
    count(
        file.debug_frames()
            .is_ok_and(|sections| !sections.is_empty()),
    );
    count(file.sframes().is_ok_and(|sections| !sections.is_empty()));
    count(file.build_id().is_some());
    count(file.content_key().to_string().len() > 2);
    count(file.program_interpreter().is_some());
    count(file.program_headers_vaddr().is_some());
    count(file.text_base().is_some());
    count(file.data_base().is_some());
    count(file.check_section_headers().is_ok());
    count(file.check_program_headers().is_ok());
    count(file.bytes_at(addr, 4).is_some());
    count(file.section_of(addr).is_some());
    count(!file.executable_ranges().is_empty());
    count(file.address_range().is_some());
    let mapping = Mapping {
        start: RuntimeAddr(0x7000_0000),
        length: 0x1000,
        file_offset: 0x1000,
        executable: true,
        page_size: 4096,
    };
    count(file.load_bias(&mapping).is_some());
    count(file.symbols().lookup(addr).is_some());
    count(!Symbols::new(&file, Some(&file)).is_empty());
    let files = DebugFiles::locate(
        &file,
        &SearchRoots {
            roots: Vec::new(),
            debuginfod_cache: None,
        },
    );
    count(files.rejected.is_empty());
    count(
        Lines::new(file, &files, &[addr])
            .frames(addr)
            .is_ok_and(|frames| !frames.is_empty()),
    );
    answers
}

/// Small files of several kinds, and the address of a function in each.
fn samples(test: &str) -> Vec<(Vec<u8>, Vaddr)> {
    let dir = directory(test);
    let program = "int puts(const char *); int main(void) { return puts(\"x\"); }";
    [
        ("program", &["-g", "-gz"][..]),
        ("object", &["-c", "-g", "-ffunction-sections"]),
        ("i386", &["-c", "-g", "-m32"]),
        (
            "frames",
            &[
                "-g",
                "-fno-asynchronous-unwind-tables",
                "-nostdlib",
                "-static",
                "-e",
                "main",
                "-Dputs=main",
            ],
        ),
    ]
    .into_iter()
    .map(|(name, arguments)| {
        let source = if name == "frames" {
            "int main(int n) { return n; }"
        } else {
            program
        };
        let path = compile(&dir, name, source, arguments);
        let file = ElfFile::open(&path).unwrap();
        let main = file.symbols().named("main").next().unwrap().address;
        (file.bytes().to_vec(), main)
    })
    .collect()
}

#[test]
fn every_prefix() {
    for (bytes, addr) in samples("every_prefix") {
        let whole = ask_everything(bytes.clone(), addr);
        assert!(whole > 15, "{whole}");
        let step = if bytes.len() > 8192 { 37 } else { 11 };
        let lengths = (0..200).chain((200..bytes.len()).step_by(step));
        for length in lengths {
            let answers = ask_everything(bytes[..length].to_vec(), addr);
            assert!(answers <= whole);
            assert!(length >= 64 || answers == 0 || bytes[4] == 1);
        }
    }
}

#[test]
fn changed_bytes() {
    // A cheap generator: the same changes in each run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (bytes, addr) in samples("changed_bytes") {
        let table = match bytes[4] {
            1 => u64::from(u32::from_le_bytes(bytes[0x20..0x24].try_into().unwrap())),
            _ => u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()),
        };
        let table = usize::try_from(table).unwrap();
        for round in 0..1500 {
            let mut changed = bytes.clone();
            for _ in 0..1 + round % 4 {
                // Mostly the header tables, where lies go furthest.
                let range = match round % 3 {
                    0 => 16..0x200,
                    1 => table..bytes.len(),
                    _ => 0..bytes.len(),
                };
                let at = range.start + usize::try_from(random()).unwrap() % range.len();
                let values = [
                    0,
                    1,
                    0x7f,
                    0x80,
                    0xff,
                    u8::try_from(random() & 0xff).unwrap(),
                ];
                changed[at] = values[usize::try_from(random() % 6).unwrap()];
            }
            ask_everything(changed, addr);
        }
    }
}

#[test]
fn a_cut_file_says_so_instead_of_having_no_tables() {
    let dir = directory("a_cut_file");
    let path = compile(&dir, "program", PROGRAM, &[]);
    let whole = ElfFile::open(&path).unwrap();
    // Behind the program headers, before the tables.
    let cut = ElfFile::from_bytes("cut", whole.bytes()[..0x800].to_vec()).unwrap();
    let error = cut.eh_frames().unwrap_err().to_string();
    assert!(
        error.contains("runs past the end of the file at 0x800"),
        "{error}"
    );
    let error = cut.section_named(".text").unwrap_err().to_string();
    assert!(
        error.contains("the section header table at offset 0x"),
        "{error}"
    );
    assert_eq!(cut.symbols().problems().len(), 1);
    // A relocatable file has nothing but its section headers.
    let path = compile(&dir, "object", PROGRAM, &["-c"]);
    let whole = ElfFile::open(&path).unwrap();
    let cut = ElfFile::from_bytes("cut", whole.bytes()[..0x200].to_vec()).unwrap();
    assert!(
        cut.eh_frames()
            .unwrap_err()
            .to_string()
            .contains("the section header table")
    );
}

#[test]
fn files_can_be_shared_between_threads() {
    fn assert<T: Send + Sync>() {}
    assert::<ElfFile>();
    assert::<Symbols>();
    assert::<Lines>();
    assert::<DebugFiles>();
}
