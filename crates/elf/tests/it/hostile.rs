//! Files that are truncated or inconsistent: an error or a partial result, never a panic or a hang.

use std::sync::Arc;

use crate::common::{PROGRAM, compile, directory};
use unspool_elf::{
    DebugFiles, ElfFile, Lines, NewEhFrame, SearchRoots, SegmentMapping, Symbols,
    eh_frame_of_object, replace_eh_frame,
};
use unspool_rows::{RuntimeAddr, Vaddr};

/// Reads every part of a file; returns the number of parts that could be read.
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
    count(
        file.table_key()
            .is_some_and(|key| key.to_string().len() > 2),
    );
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
    let mapping = SegmentMapping {
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
            perf_cache: None,
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
                // Mostly the header tables: wrong values there have the widest effect.
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
        error.contains("the segment PT_GNU_EH_FRAME at offset 0x")
            && error.contains("runs past the end of the file at 0x800: there are 2048 bytes of"),
        "{error}"
    );
    let error = cut.section_named(".text").unwrap_err().to_string();
    assert!(
        error.contains("the section header table at offset 0x"),
        "{error}"
    );
    assert_eq!(cut.symbols().problems().len(), 1);
    // Without section headers, a relocatable file has nothing.
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

/// A file with `count` functions at the address 0x1000. All names except the last are the ends of
/// one string of `length` bytes.
fn overlapping_names(count: u32, length: u32) -> Vec<u8> {
    let mut strings = vec![0];
    strings.extend(std::iter::repeat_n(b'_', length as usize));
    strings.extend(b"\0plain\0");
    let mut symbols = vec![0; 24];
    for index in 0..count {
        let name = if index + 1 == count {
            length + 2
        } else {
            1 + index % length
        };
        symbols.extend(name.to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]); // STB_GLOBAL STT_FUNC, in section 1
        symbols.extend(0x1000_u64.to_le_bytes());
        symbols.extend(16_u64.to_le_bytes());
    }
    let mut file = vec![0; 64];
    let mut sections = vec![0; 64];
    let code = [0x90; 16].to_vec();
    for (kind, flags, address, link, data) in [
        (1_u32, 6_u64, 0x1000_u64, 0_u32, code), // SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR
        (2, 0, 0, 3, symbols),                   // SHT_SYMTAB
        (3, 0, 0, 0, strings),                   // SHT_STRTAB
    ] {
        sections.extend([0; 4]);
        sections.extend(kind.to_le_bytes());
        for field in [flags, address, file.len() as u64, data.len() as u64] {
            sections.extend(field.to_le_bytes());
        }
        sections.extend(link.to_le_bytes());
        sections.extend([0; 4]);
        for field in [8_u64, 24] {
            sections.extend(field.to_le_bytes());
        }
        file.extend(data);
    }
    let at = file.len() as u64;
    file.extend(sections);
    file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
    file[0x14] = 1;
    file[0x28..0x30].copy_from_slice(&at.to_le_bytes());
    file[0x34..0x40].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, 4, 0, 0, 0]);
    file
}

/// Each name alone is as long as the file: comparing whole names would take days.
#[test]
fn names_that_overlap() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let bytes = overlapping_names(100_000, 4_000_000);
        let file = ElfFile::from_bytes("overlapping", bytes).unwrap();
        let name = |symbols: &Symbols| symbols.lookup(Vaddr(0x1008)).unwrap().name.into_owned();
        assert_eq!(name(file.symbols()), "plain");
        assert_eq!(
            name(&Symbols::for_addresses(&file, None, &[Vaddr(0x1008)])),
            "plain"
        );
        assert_eq!(file.symbols().named("plain").count(), 1);
        assert_eq!(file.symbols().named("_").count(), 0);
        assert_eq!(file.symbols().len(), 100_000);
        done.send(()).unwrap();
    });
    let within = std::time::Duration::from_secs(120);
    assert!(
        is_done.recv_timeout(within).is_ok(),
        "failed, or no answer in {within:?}"
    );
}

/// A program with that many units. Their abbreviations begin one behind another in one table of
/// 20,000.
fn overlapping_abbreviations(units: u32) -> (Arc<ElfFile>, Vaddr) {
    let dir = directory(&format!("overlapping_abbreviations_{units}"));
    let source = format!(
        r#"int main(void) {{ return 0; }}
        __asm__(".pushsection .debug_abbrev,\"\",@progbits\n"
                ".rept 20000\n .byte 0x81,0x80,0,0x11,0,0,0\n .endr\n .byte 0\n.popsection\n"
                ".pushsection .debug_info,\"\",@progbits\n"
                ".set n,0\n .rept {units}\n .long 8\n .short 4\n .long n*7\n .byte 8,0\n"
                ".set n,n+1\n .endr\n.popsection\n"
                ".pushsection .debug_aranges,\"\",@progbits\n"
                ".long 44\n .short 2\n .long 0\n .byte 8,0,0,0,0,0\n"
                ".quad main,8,0,0\n.popsection\n");"#
    );
    let path = compile(&dir, "program", &source, &["-no-pie"]);
    let file = ElfFile::open(path).unwrap();
    let main = file.symbols().named("main").next().unwrap().address;
    (Arc::new(file), main)
}

/// Reading them for each unit takes time quadratic in the file's size.
#[test]
fn abbreviations_that_overlap() {
    let (file, main) = overlapping_abbreviations(400);
    for announced in [&[][..], &[main]] {
        let lines = Lines::new(file.clone(), &DebugFiles::default(), announced);
        // A look-up of a unit that `.debug_aranges` names reads only that unit.
        let error = lines.frames(Vaddr(1)).unwrap_err().to_string();
        assert!(
            error.contains(".debug_abbrev") && error.contains("1608580 bytes together"),
            "{error}"
        );
    }
    let (file, main) = overlapping_abbreviations(8);
    let lines = Lines::new(file, &DebugFiles::default(), &[]);
    assert_eq!(lines.frames(main).unwrap(), []);
}

#[test]
fn a_name_that_is_cut_says_so() {
    let file = ElfFile::from_bytes("long", overlapping_names(2, 100_000)).unwrap();
    let symbols: Vec<_> = file.symbols().iter().collect();
    assert_eq!(symbols[1].name, "plain");
    assert_eq!(symbols[0].name, "_".repeat(64 * 1024) + "…");
    // Names are found by all of their bytes.
    assert_eq!(file.symbols().named(&"_".repeat(100_000)).count(), 1);
    assert_eq!(file.symbols().named(&symbols[0].name).count(), 0);
    let file = ElfFile::from_bytes("longest", overlapping_names(2, 64 * 1024)).unwrap();
    assert_eq!(
        file.symbols().iter().next().unwrap().name,
        "_".repeat(64 * 1024)
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

/// Rewrites an object file's table with an address added. Returns whether the result has these
/// bytes, and can be rewritten again. Inconsistent section names may change.
fn rewrite(bytes: Vec<u8>) -> bool {
    let Ok(file) = ElfFile::from_bytes("hostile", bytes) else {
        return false;
    };
    let Ok(old) = eh_frame_of_object(&file) else {
        return false;
    };
    let kept = [(0..old.len() as u64, 8)];
    let bytes = [&[7; 8][..], old, &[9; 8][..]].concat();
    let pointers = [(8 + old.len() as u64, Vaddr(0))];
    let new = NewEhFrame {
        bytes: &bytes,
        kept: &kept,
        pointers: &pointers,
    };
    let Ok(written) = replace_eh_frame(&file, &new) else {
        return false;
    };
    assert!(written.len() < file.bytes().len() * 2 + 0x10000);
    let written = ElfFile::from_bytes("written", written).unwrap();
    let is_there = eh_frame_of_object(&written).is_ok_and(|found| found == bytes);
    let again = NewEhFrame {
        kept: &[(0..bytes.len() as u64, 0)],
        ..new
    };
    is_there && replace_eh_frame(&written, &again).is_ok()
}

#[test]
fn object_files_that_lie_are_not_written() {
    let dir = directory("object_files_that_lie");
    let source = "int puts(const char *); int main(void) { return puts(\"x\"); }";
    for (name, options) in [
        ("without", &["-c", "-fno-asynchronous-unwind-tables"][..]),
        ("with", &["-c", "-g", "-ffunction-sections"]),
    ] {
        let path = compile(&dir, name, source, options);
        let whole = std::fs::read(path).unwrap();
        assert!(rewrite(whole.clone()));
        for length in (0..whole.len()).step_by(3) {
            assert!(!rewrite(whole[..length].to_vec()), "{length}");
        }
        let mut written = 0;
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                written += usize::from(rewrite(bytes));
            }
        }
        assert!(written > whole.len(), "{written}");
    }
}
