//! Sections, segments and build IDs of real files, compared with binutils.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{PROGRAM, binutils, compile, directory};
use unspool_elf::{ContentKey, ElfFile, ElfKind, ModuleError, SectionSource, SegmentMapping};
use unspool_rows::{Arch, LoadBias, RuntimeAddr, Vaddr};
use unspool_testing::{Finish as _, command, hex};

/// (name, address, offset, size) of each section, as readelf prints them. Those that are not loaded
/// have the address 0: GNU ld 2.44 gives `.note.GNU-stack` another.
fn readelf_sections(path: &Path) -> Vec<(String, u64, u64, u64)> {
    let text = binutils("readelf", [path.as_os_str().to_str().unwrap(), "-SW"]);
    let lines = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('['));
    lines
        .filter_map(|line| line.split_once("] "))
        .filter(|(index, _)| index.trim().parse::<u32>().is_ok_and(|index| index > 0))
        .map(|(_, line)| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Its column may be empty.
            let is_loaded = fields.len() == 10 && fields[6].contains('A');
            (
                fields[0].to_owned(),
                if is_loaded { hex(fields[2]) } else { 0 },
                hex(fields[3]),
                hex(fields[4]),
            )
        })
        .collect()
}

fn section(path: &Path, name: &str) -> (u64, u64, u64) {
    let sections = readelf_sections(path);
    let found = sections.iter().find(|section| section.0 == name).unwrap();
    (found.1, found.2, found.3)
}

#[test]
fn a_linked_program() {
    let dir = directory("a_linked_program");
    for (name, arguments, kind) in [
        ("pie", &["-fpie", "-pie"][..], ElfKind::Dynamic),
        ("fixed", &["-no-pie"], ElfKind::Executable),
        ("shared", &["-fpic", "-shared"], ElfKind::Dynamic),
        (
            "lld_like",
            &["-Wl,-z,separate-code", "-Wl,--emit-relocs", "-g"],
            ElfKind::Dynamic,
        ),
    ] {
        let path = compile(&dir, name, PROGRAM, arguments);
        let file = ElfFile::open(&path).unwrap();
        assert_eq!((file.kind(), file.abi().arch), (kind, Arch::X86_64));
        let ours: Vec<_> = file
            .sections()
            .map(|s| {
                (
                    s.name.into_owned(),
                    s.address.map_or(0, |a| a.0),
                    s.offset,
                    s.size,
                )
            })
            .collect();
        assert_eq!(ours, readelf_sections(&path));

        let frames = file.eh_frames().unwrap();
        let (address, offset, size) = section(&path, ".eh_frame");
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].name, ".eh_frame");
        assert_eq!(frames[0].source, SectionSource::ProgramHeader);
        assert_eq!((frames[0].address.0, frames[0].offset), (address, offset));
        assert_eq!(frames[0].data.len() as u64, size);
        let header = file.eh_frame_hdr().unwrap().unwrap();
        let (address, _, size) = section(&path, ".eh_frame_hdr");
        assert_eq!(
            (header.address.0, header.data.len() as u64),
            (address, size)
        );
        assert_eq!(file.bytes_at(header.address, size), Some(header.data));
        assert_eq!(file.text_base().unwrap().0, section(&path, ".text").0);
        assert!(file.debug_frames().unwrap().is_empty());
    }
}

#[test]
fn build_ids_are_those_readelf_prints() {
    let dir = directory("build_ids_are_those_readelf_prints");
    for (name, style) in [
        ("sha1", "sha1"),
        ("md5", "md5"),
        ("given", "0x0123456789abcdef"),
    ] {
        let path = compile(&dir, name, PROGRAM, &[&format!("-Wl,--build-id={style}")]);
        let file = ElfFile::open(&path).unwrap();
        let text = binutils("readelf", [Path::new("-n"), &path]);
        let expected = text
            .lines()
            .find_map(|l| l.trim().strip_prefix("Build ID: "))
            .unwrap();
        assert_eq!(file.build_id().unwrap().to_string(), expected);
        assert_eq!(file.content_key().unwrap().to_string(), expected);

        let headerless = ElfFile::from_bytes("headerless", without_sections(&path)).unwrap();
        assert_eq!(headerless.build_id(), file.build_id());
    }
    let path = compile(&dir, "none", PROGRAM, &["-Wl,--build-id=none"]);
    let file = ElfFile::open(&path).unwrap();
    assert_eq!(file.build_id(), None);
    let Some(ContentKey::Hash(_)) = file.content_key() else {
        panic!("a hash")
    };
    let text = binutils("sha256sum", [&path]);
    assert!(text.starts_with(&file.content_key().unwrap().to_string()["sha256-".len()..]));
}

/// The file with `e_shoff`, `e_shnum` and `e_shstrndx` set to 0.
fn without_sections(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    bytes
}

#[test]
fn without_section_headers_the_header_leads_to_the_tables() {
    let dir = directory("without_section_headers");
    let path = compile(&dir, "program", PROGRAM, &[]);
    let whole = ElfFile::open(&path).unwrap();
    let file = ElfFile::from_bytes("headerless", without_sections(&path)).unwrap();
    assert_eq!(file.sections().count(), 0);
    let (expected, found) = (whole.eh_frames().unwrap(), file.eh_frames().unwrap());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].address, expected[0].address);
    assert_eq!(found[0].offset, expected[0].offset);
    assert!(found[0].data.starts_with(expected[0].data));
    assert_eq!(
        file.eh_frame_hdr().unwrap().unwrap().data,
        whole.eh_frame_hdr().unwrap().unwrap().data
    );
}

#[test]
fn a_stale_copy_is_not_taken_for_the_tables() {
    let dir = directory("a_stale_copy");
    let path = compile(&dir, "program", PROGRAM, &[]);
    let stale = dir.join("stale");
    fs::write(&stale, [0xff; 64]).unwrap();
    let bolted = dir.join("bolted");
    // The output of a post-link optimiser: the live section under another name, and as `.eh_frame`
    // a copy that nothing points to.
    let arguments = [
        "--rename-section=.eh_frame=.live".to_owned(),
        format!("--add-section=.bolt.org.eh_frame={}", stale.display()),
        path.display().to_string(),
        bolted.display().to_string(),
    ];
    binutils("objcopy", arguments);
    binutils(
        "objcopy",
        [
            format!("--add-section=.eh_frame={}", stale.display()),
            bolted.display().to_string(),
        ],
    );
    let file = ElfFile::open(&bolted).unwrap();
    let frames = file.eh_frames().unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].name, ".live");
    let whole = ElfFile::open(&path).unwrap();
    assert_eq!(frames[0].data, whole.eh_frames().unwrap()[0].data);
}

#[test]
fn debug_frame_in_every_compression() {
    let dir = directory("debug_frame_in_every_compression");
    let arguments = ["-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions"];
    let plain = compile(&dir, "plain", PROGRAM, &arguments);
    let expected = ElfFile::open(&plain).unwrap();
    let expected = expected.debug_frames().unwrap()[0].data.to_vec();
    assert_eq!(expected.len() as u64, section(&plain, ".debug_frame").2);
    for style in ["zlib", "zlib-gnu"] {
        let path = dir.join(style);
        let option = format!("--compress-debug-sections={style}");
        binutils(
            "objcopy",
            [option.as_ref(), plain.as_os_str(), path.as_os_str()],
        );
        let file = ElfFile::open(&path).unwrap();
        assert_eq!(file.debug_frames().unwrap()[0].data, expected, "{style}");
        let info = file.section_named(".debug_info").unwrap().unwrap();
        let whole = ElfFile::open(&plain).unwrap();
        assert_eq!(
            info.data,
            whole.section_named(".debug_info").unwrap().unwrap().data
        );
        assert!(
            file.bytes().len() < whole.bytes().len(),
            "{style} compresses"
        );
    }
}

/// `program` with its `.debug_frame` replaced by these bytes, flagged as compressed.
fn with_compressed_debug_frame(program: &Path, compressed: &[u8]) -> ElfFile {
    let section = program.with_extension("section");
    fs::write(&section, compressed).unwrap();
    let changed = program.with_extension("changed");
    let update = format!("--update-section=.debug_frame={}", section.display());
    binutils(
        "objcopy",
        [update.as_ref(), program.as_os_str(), changed.as_os_str()],
    );
    let mut bytes = fs::read(&changed).unwrap();
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap());
    let file = ElfFile::open(&changed).unwrap();
    let index = file
        .sections()
        .find(|s| s.name == ".debug_frame")
        .unwrap()
        .index;
    let flags = usize::try_from(table).unwrap() + index * 64 + 8;
    bytes[flags + 1] |= 0x8;
    ElfFile::from_bytes("changed", bytes).unwrap()
}

/// An `Elf64_Chdr` followed by data.
fn compressed(kind: u32, size: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(kind.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(size.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn zstd_and_what_compression_headers_may_claim() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    const ZSTD: u32 = 2;

    let dir = directory("zstd_and_claims");
    let arguments = ["-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions"];
    let plain = compile(&dir, "plain", PROGRAM, &arguments);
    let whole = ElfFile::open(&plain).unwrap();
    let expected = whole.debug_frames().unwrap()[0].data;
    let size = expected.len() as u64;
    let data = compress_to_vec(expected, CompressionLevel::Fastest);

    let file = with_compressed_debug_frame(&plain, &compressed(ZSTD, size, &data));
    assert_eq!(file.debug_frames().unwrap()[0].data, expected);
    for (bytes, why) in [
        (compressed(ZSTD, size + 1, &data), "size does not match"),
        (compressed(ZSTD, size, &data[..9]), "Invalid zstd"),
        (
            compressed(ZSTD, 5 << 30, &data),
            "5368709120 bytes decompressed from",
        ),
        (compressed(7, size, &data), "Unsupported"),
        (vec![1, 0, 0], "the compression header is cut short"),
    ] {
        let file = with_compressed_debug_frame(&plain, &bytes);
        let error = file.debug_frames().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(
            error.starts_with("changed: section .debug_frame at offset 0x"),
            "{error}"
        );
        assert_eq!(file.eh_frames().unwrap().len(), 1);
    }
}

/// Two claim 640 MiB each. A file that may be a stranger's gets 1 GiB in all. A refused claim
/// between them does not count, and brings no sum back to zero.
#[test]
fn compressed_sections_of_strangers_have_a_limit_together() {
    let dir = directory("compressed_sections_of_strangers");
    let claim = |(name, size): (&str, u64)| {
        let size = size.swap_bytes();
        let head = format!(".ascii \"ZLIB\"\n.quad {size:#x}\n");
        format!(".section {name}, \"\", @progbits\n{head}.fill 400000\n")
    };
    fs::write(
        dir.join("claims.s"),
        [
            (".zdebug_a", 640 << 20),
            (".zdebug_huge", 0_u64.wrapping_sub(640 << 20)),
            (".zdebug_b", 640 << 20),
        ]
        .map(claim)
        .concat(),
    )
    .unwrap();
    binutils(
        "as",
        [
            &dir.join("claims.s"),
            Path::new("-o"),
            &dir.join("claims.o"),
        ],
    );
    let file = ElfFile::from_bytes("claims", fs::read(dir.join("claims.o")).unwrap()).unwrap();
    let errors = [".zdebug_a", ".zdebug_huge", ".zdebug_b"]
        .map(|name| file.section_named(name).unwrap_err().to_string());
    assert!(
        errors[0].contains("the zlib stream is corrupt"),
        "{errors:?}"
    );
    let left = (1 << 30) - (640 << 20);
    for error in &errors[1..] {
        assert!(
            error.contains(&format!("at most {left} are allowed")),
            "{errors:?}"
        );
    }
}

#[test]
fn a_separate_debug_file_has_no_loaded_bytes() {
    let dir = directory("a_separate_debug_file");
    let path = compile(&dir, "program", PROGRAM, &["-g"]);
    let debug = dir.join("program.debug");
    binutils("objcopy", [Path::new("--only-keep-debug"), &path, &debug]);
    let (whole, file) = (
        ElfFile::open(&path).unwrap(),
        ElfFile::open(&debug).unwrap(),
    );
    assert_eq!(file.build_id(), whole.build_id());
    assert!(file.eh_frames().unwrap().is_empty());
    assert_eq!(file.eh_frame_hdr().unwrap(), None);
    assert_eq!(file.bytes_at(whole.entry(), 1), None);
    assert!(whole.bytes_at(whole.entry(), 1).is_some());
    assert_eq!(
        file.section_of(whole.entry()),
        whole.section_of(whole.entry())
    );
    assert!(file.section_named(".debug_info").unwrap().is_some());
}

#[test]
fn addresses_and_offsets() {
    let dir = directory("addresses_and_offsets");
    let path = compile(&dir, "program", PROGRAM, &[]);
    let file = ElfFile::open(&path).unwrap();
    for name in [".text", ".data", ".rodata"] {
        let (address, offset, size) = section(&path, name);
        assert_eq!(file.vaddr_of_offset(offset), Some(Vaddr(address)));
        assert_eq!(file.offset_of_vaddr(Vaddr(address)), Some(offset));
        let bytes = file.bytes_at(Vaddr(address), size).unwrap();
        assert_eq!(bytes, file.section_named(name).unwrap().unwrap().data);
        let (found, start) = file.section_of(Vaddr(address + size - 1)).unwrap();
        assert_eq!((found.as_ref(), start), (name, Vaddr(address)));
    }
    let (bss, _, _) = section(&path, ".bss");
    assert_eq!(file.bytes_at(Vaddr(bss), 1), None);
    let text = section(&path, ".text");
    assert!(file.executable_ranges()[0].contains(&Vaddr(text.0)));
    assert_eq!(file.program_headers_vaddr(), Some(Vaddr(0x40)));
    assert!(file.program_interpreter().unwrap().contains("ld-linux"));
}

#[test]
fn the_bias_of_every_module_of_this_process() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut modules: BTreeMap<&str, Vec<SegmentMapping>> = BTreeMap::new();
    for line in maps.lines() {
        if let Some(path) = line.find('/') {
            modules
                .entry(&line[path..])
                .or_default()
                .push(mapping(line));
        }
    }
    assert!(modules.len() > 2);
    for (path, mappings) in &modules {
        let Ok(file) = ElfFile::open(path) else {
            continue;
        };
        // Other tests map files as data meanwhile.
        let Some(code) = mappings.iter().find(|mapping| mapping.executable) else {
            continue;
        };
        // The first page of each of these is the first page of the file.
        let expected = mappings
            .iter()
            .filter(|mapping| mapping.file_offset == 0 && mapping.start <= code.start)
            .map(|mapping| mapping.start.0)
            .max()
            .unwrap();
        assert_eq!(file.address_range().unwrap().start, Vaddr(0));
        assert_eq!(file.load_bias(code), Some(LoadBias(expected)), "{path}");
    }
    let here = the_bias_of_every_module_of_this_process as fn() as usize as u64;
    let program = fs::read_link("/proc/self/exe").unwrap();
    let file = ElfFile::open(&program).unwrap();
    let mut own = modules[program.to_str().unwrap()].iter();
    let code = own.find(|mapping| mapping.executable).unwrap();
    let bias = file.load_bias(code).unwrap();
    let place = bias.to_vaddr(RuntimeAddr(here));
    assert_eq!(file.section_of(place).unwrap().0, ".text");
}

/// Prints the address of `main`, and the mappings.
const PRINT_MAPS: &str = "\
#include <stdio.h>
int main(void)
{
    static int data[5000] = { 1 };
    char line[4096];
    printf(\"%lx\\n\", (unsigned long)main);
    FILE *maps = fopen(\"/proc/self/maps\", \"r\");
    while (fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return data[0] - 1;
}
";

#[test]
fn the_bias_of_modules_under_other_alignments() {
    let dir = directory("other_alignments");
    for (name, arguments) in [
        ("shared_pages", &["-Wl,-z,noseparate-code"][..]),
        (
            "one_page",
            &["-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-Os"],
        ),
        ("aligned_64k", &["-Wl,-z,max-page-size=0x10000"]),
        (
            "aligned_2m",
            &["-Wl,-z,max-page-size=0x200000", "-Wl,-z,noseparate-code"],
        ),
        ("fixed", &["-no-pie", "-Wl,-z,noseparate-code"]),
        ("high", &["-no-pie", "-Wl,-Ttext-segment=0x70000000"]),
    ] {
        let path = compile(&dir, name, PRINT_MAPS, arguments);
        let file = ElfFile::open(&path).unwrap();
        let text = command(&path).arg("").succeed();
        let (main, maps) = text.split_once('\n').unwrap();
        let linked = file.symbols().named("main").next().unwrap().address;
        let ours = maps
            .lines()
            .filter(|line| line.ends_with(path.to_str().unwrap()));
        let code = ours.map(mapping).find(|mapping| mapping.executable);
        let bias = file.load_bias(&code.unwrap()).unwrap();
        assert_eq!(
            bias.to_vaddr(RuntimeAddr(hex(main))),
            linked,
            "{name}: {text}"
        );
    }
}

/// A line of `/proc/PID/maps`.
fn mapping(line: &str) -> SegmentMapping {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (start, end) = fields[0].split_once('-').unwrap();
    SegmentMapping {
        start: RuntimeAddr(hex(start)),
        length: hex(end) - hex(start),
        file_offset: hex(fields[2]),
        executable: fields[1].contains('x'),
        page_size: 4096,
    }
}

#[test]
fn other_files_are_rejected_by_name() {
    let dir = directory("what_is_no_elf_file");
    let text = dir.join("text");
    fs::write(&text, "#!/bin/sh\n").unwrap();
    let empty = dir.join("empty");
    fs::write(&empty, "").unwrap();
    let short = dir.join("short");
    fs::write(&short, b"\x7fELF\x02\x01\x01").unwrap();
    for (path, expected) in [
        (&text, "text: not an ELF file: it starts with #!/bin/s"),
        (&empty, "empty: the file is empty"),
        (
            &short,
            "short: the ELF header at offset 0x0 (0x40 bytes) runs past the end of the file at 0x7: \
             there are 7 bytes of at least 64; is it an incomplete download or copy?",
        ),
        (&dir, "what_is_no_elf_file: a folder, not a regular file"),
    ] {
        let error = ElfFile::open(path).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
        assert!(error.starts_with(dir.to_str().unwrap()), "{error}");
    }
    let error = ElfFile::open(dir.join("absent")).unwrap_err();
    assert!(matches!(error, ModuleError::Io { .. }), "{error}");
}

/// Development packages install some of them under library names, and patterns match them.
#[test]
fn linker_scripts_are_recognized() {
    let is_script = |path: &Path| {
        let error = ElfFile::open(path).unwrap_err();
        matches!(error, ModuleError::LinkerScript { .. })
    };
    // From the Debian package libc6-dev.
    assert!(is_script("/usr/lib/x86_64-linux-gnu/libc.so".as_ref()));
    let dir = directory("linker_scripts");
    for (text, expected) in [
        ("INPUT(libncurses.so.6 -ltinfo)\n", true),
        ("/* a */ /* b */\nGROUP( libtinfo.so )\n", true),
        ("/* a */\nint input;\n", false),
        ("INPUTS(a)", false),
        ("/* INPUT(a)", false),
        ("/*/ INPUT(a)", false),
        ("", false),
    ] {
        let path = dir.join("script.so");
        fs::write(&path, text).unwrap();
        assert_eq!(is_script(&path), expected, "{text}");
    }
}

/// Another file may replace a file between opening its path and reading it.
#[test]
fn an_open_file_is_read_whatever_its_path_leads_to() {
    for padding in [0, 100_000] {
        let directory = directory("open-file");
        let path = compile(&directory, "replaced", PROGRAM, &["-g"]);
        let mut before = fs::read(&path).unwrap();
        before.resize(before.len() + padding, 0);
        fs::write(&path, &before).unwrap();
        let open = fs::File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        let file = ElfFile::from_file(&path, &open).unwrap();
        drop(open);
        assert!(file.bytes() == before);
        assert_eq!(file.path(), path);
        assert_ne!(file.state().unwrap().size, 7);
        assert!(ElfFile::open(&path).is_err());
    }
}
