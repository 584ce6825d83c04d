//! Sections put into linked files: other tools accept the files, and the files run as before.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{binutils, compile, compile_cxx, directory};
use unspool_elf::{ElfFile, EmbedError, embed};
use unspool_rows::Vaddr;
use unspool_testing::{Finish as _, command, tool};

const NAME: &str = ".unspool";
const MAGIC: &[u8] = b"unspool\0";

/// Prints the modules in which it finds an embedded section in memory, and a sum of the bytes.
const FINDER: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <string.h>

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const unsigned char *at = (const unsigned char *)info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || p->p_flags != PF_R || p->p_filesz < 1000)
            continue;
        if (memcmp(at, "unspool", 8) != 0)
            continue;
        unsigned sum = 0;
        for (int k = 0; k < 1000; k++)
            sum = sum * 31 + at[k];
        printf("found %u\n", sum);
    }
    return 0;
}

int main(void)
{
    dl_iterate_phdr(look, 0);
    puts("done");
    return 0;
}
"#;

fn content(length: usize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((bytes.len()..length).map(|at| u8::try_from(at * 7 % 251).unwrap()));
    bytes
}

/// The expected output of the finder for such content.
fn found(length: usize) -> String {
    let first = &content(length)[..1000];
    let sum = first.iter().fold(0u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    format!("found {sum}\n")
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Embeds content of that length into a copy of the file in the same folder.
fn embedded(path: &Path, suffix: &str, length: usize) -> PathBuf {
    let file = ElfFile::open(path).unwrap();
    let bytes = embed(&file, NAME, &content(length), 64).unwrap();
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    write(Path::new(&name), &bytes);
    PathBuf::from(name)
}

fn succeed(command: &mut Command) -> String {
    command.succeed()
}

/// The messages of eu-elflint without its wrong ones: it adds the size of the symbol to the address
/// of the relocation, and complains if a read-only segment is that near (0.188).
fn complaints(path: &Path) -> BTreeSet<String> {
    let mut lint = tool("eu-elflint");
    let lint = lint.arg("--gnu-ld").arg(path).finish();
    lint.out
        .lines()
        .filter(|line| !line.contains("read-only section modified"))
        .map(str::to_owned)
        .collect()
}

/// The warnings of readelf.
fn warnings(path: &Path) -> String {
    tool("readelf").arg("-lSdWn").arg(path).finish().err
}

/// The sections that may move by the documentation.
fn may_move(name: &str) -> bool {
    let notes = name.starts_with(".note.");
    notes || matches!(name, ".interp" | ".hash" | ".gnu.hash" | ".dynsym")
}

/// Checks that every section is unchanged, and in its place unless it may move.
fn check_kept(old: &ElfFile, new: &ElfFile) {
    assert_eq!(old.build_id(), new.build_id());
    assert_eq!(old.entry(), new.entry());
    let pairs = old.sections().zip(new.sections());
    for (before, after) in pairs {
        assert_eq!((&before.name, before.kind), (&after.name, after.kind));
        if before.name == ".shstrtab" {
            continue;
        }
        assert_eq!(before.size, after.size, "{}", before.name);
        if !may_move(&before.name) {
            let places = [&before, &after].map(|s| (s.address, s.offset));
            assert_eq!(places[0], places[1], "{}", before.name);
        }
        if before.has_data && before.size > 0 && before.name != ".dynamic" {
            let [a, b] = [old, new].map(|file| file.section(before.index).unwrap().unwrap().data);
            // Symbols of sections that moved have other values.
            let symbols = matches!(&*before.name, ".symtab" | ".dynsym");
            assert!(a == b || symbols, "{}", before.name);
        }
    }
    for (before, mut after) in old.segments().zip(new.segments()) {
        if before.file_offset == 0 && after.file_size < before.file_size + 57 {
            // The first segment may consist of the program headers only.
            (after.file_size, after.mem_size) = (before.file_size, before.mem_size);
        }
        assert_eq!(before, after);
    }
}

/// Checks the properties of every file with the section, and returns that file.
fn check(path: &Path) -> PathBuf {
    let old = ElfFile::open(path).unwrap();
    let result = embedded(path, ".with", 5000);
    let new = ElfFile::open(&result).unwrap();
    let (addr, bytes) = new.embedded(NAME, MAGIC).unwrap();
    assert_eq!(bytes, content(5000));
    assert_eq!(addr.0 % 64, 0);
    assert_eq!(new.bytes_at(addr, 5000), Some(bytes));
    let section = new.section_named(NAME).unwrap().unwrap();
    assert_eq!((section.address, section.data), (addr, bytes));
    check_kept(&old, &new);
    assert_eq!(warnings(&result), warnings(path));
    let new_complaints = complaints(&result);
    let new_complaints: Vec<_> = new_complaints
        .difference(&complaints(path))
        .cloned()
        .collect();
    assert!(new_complaints.is_empty(), "{path:?}: {new_complaints:?}");
    check_replacing(&result);
    result
}

/// Checks that embedding again leaves no trace of the earlier content.
fn check_replacing(path: &Path) {
    let first = fs::read(path).unwrap();
    let again = |path: &Path, suffix, length| {
        let path = embedded(path, suffix, length);
        (fs::read(&path).unwrap(), path)
    };
    assert!(again(path, ".again", 5000).0 == first);
    let (bytes, smaller) = again(path, ".smaller", 3000);
    assert!(bytes.len() <= first.len());
    assert!(again(&smaller, ".back", 5000).0 == first);
    let (_, larger) = again(path, ".larger", 50_000);
    let file = ElfFile::open(&larger).unwrap();
    assert_eq!(file.embedded(NAME, MAGIC).unwrap().1, content(50_000));
    assert!(again(&larger, ".back", 5000).0 == first);
}

/// The file as rewritten by these tools.
fn rewritten(path: &Path) -> Vec<PathBuf> {
    let copy = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        fs::copy(path, &name).unwrap();
        PathBuf::from(name)
    };
    let (strip, eu_strip, objcopy) = (copy(".strip"), copy(".eu-strip"), copy(".objcopy"));
    binutils("strip", [&strip]);
    binutils("eu-strip", [&eu_strip]);
    binutils("objcopy", [&objcopy]);
    let again = embedded(&strip, ".again", 4000);
    let twice = embedded(&again, ".twice", 4000);
    assert!(fs::read(&again).unwrap() == fs::read(&twice).unwrap());
    assert!(fs::metadata(&again).unwrap().len() <= fs::metadata(&strip).unwrap().len() + 8);
    let larger = embedded(&strip, ".larger", 40_000);
    vec![strip, eu_strip, objcopy, again, larger]
}

/// The file with `PT_NOTE` for `PT_GNU_PROPERTY`, so that neither header counts as removable and
/// room must be made.
fn without_property(path: &Path) -> PathBuf {
    let mut bytes = fs::read(path).unwrap();
    let count = usize::from(bytes[56]);
    for at in (0..count).map(|index| 64 + 56 * index) {
        if bytes[at..at + 4] == 0x6474_e553u32.to_le_bytes() {
            bytes[at..at + 4].copy_from_slice(&4u32.to_le_bytes());
        }
    }
    let result = path.with_extension("notes");
    write(&result, &bytes);
    result
}

fn debugger_works(path: &Path) {
    let commands = ["info functions main", "break main", "run", "bt"];
    let commands = commands.iter().flat_map(|command| ["-ex", command]);
    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch"]).args(commands).arg(path);
    let output = succeed(gdb.env("DEBUGINFOD_URLS", ""));
    assert!(output.contains("main(void)"), "{output}");
    assert!(output.contains("#0  main ()"), "{output}");
}

const LINKED: [(&str, &[&str]); 5] = [
    ("pie", &["-g", "-pie", "-fPIE"]),
    ("fixed", &["-g", "-no-pie"]),
    ("static", &["-g", "-static"]),
    ("static-pie", &["-g", "-static-pie"]),
    (
        "one-page",
        &["-g", "-Wl,-z,noseparate-code,-z,max-page-size=0x200000"],
    ),
];

#[test]
fn programs_run_as_before() {
    let dir = directory("embed_programs");
    for (name, arguments) in LINKED {
        let plain = compile(&dir, name, FINDER, arguments);
        for path in [without_property(&plain), plain] {
            let result = check(&path);
            let expected = format!("{}done\n", found(5000));
            assert_eq!(succeed(&mut command(&result)), expected, "{result:?}");
            debugger_works(&result);
            for path in rewritten(&result) {
                let output = succeed(&mut command(&path));
                assert_eq!(output, format!("{}done\n", found(1000)), "{path:?}");
            }
        }
    }
}

#[test]
fn libraries_are_found_in_memory_and_throw() {
    let dir = directory("embed_libraries");
    let thrower = "void thrower(int n) { if (n > 2) throw n; thrower(n + 1); }";
    let library = compile_cxx(&dir, "libthrower.so", thrower, &["-shared", "-fPIC", "-g"]);
    let main = "#include <cstdio>\n\
        extern \"C\" int finder(); void thrower(int);\n\
        int main() { finder(); try { thrower(0); } catch (int n) { std::printf(\"%d\\n\", n); } }";
    let finder = FINDER.replace("int main(void)", "int finder(void)");
    compile(&dir, "libfinder.so", &finder, &["-shared", "-fPIC"]);
    let at = format!("-L{}", dir.display());
    let link = [&at, "-lthrower", "-lfinder"].map(|a: &str| a);
    let program = compile_cxx(&dir, "program", main, &link);
    let with_library = |path: &Path, program: &Path| {
        fs::copy(path, dir.join("used.so")).unwrap();
        fs::rename(dir.join("used.so"), &library).unwrap();
        succeed(command(program).env("LD_LIBRARY_PATH", &dir))
    };
    let kept = dir.join("original.so");
    fs::copy(&library, &kept).unwrap();
    assert_eq!(with_library(&kept, &program), "done\n3\n");
    let result = check(&kept);
    let once = found(5000);
    assert_eq!(with_library(&result, &program), format!("{once}done\n3\n"));
    let both = check(&program);
    assert_eq!(
        with_library(&result, &both),
        format!("{once}{once}done\n3\n")
    );
    for path in rewritten(&result) {
        assert_eq!(with_library(&path, &program), format!("{once}done\n3\n"));
    }
}

#[test]
fn the_systems_loader_and_c_library_work() {
    let dir = directory("embed_system");
    let program = compile(&dir, "program", FINDER, &[]);
    let loader = ElfFile::open(&program).unwrap();
    let loader = PathBuf::from(loader.program_interpreter().unwrap().into_owned());
    let libraries = succeed(command(&loader).arg("--list").arg(&program));
    let library = libraries
        .split_whitespace()
        .find(|word| word.ends_with("/libc.so.6"));
    for (name, path) in [
        ("ld.so", loader.as_path()),
        ("libc.so.6", Path::new(library.unwrap())),
    ] {
        let copy = dir.join(name);
        fs::copy(path, &copy).unwrap();
        fs::rename(check(&copy), &copy).unwrap();
    }
    let mut command = command(dir.join("ld.so"));
    command.arg("--library-path").args([&dir, &program]);
    assert_eq!(succeed(&mut command), format!("{0}{0}done\n", found(5000)));
}

#[test]
fn files_without_section_headers() {
    let dir = directory("embed_bare");
    for (name, arguments) in LINKED {
        let path = compile(&dir, name, FINDER, arguments);
        let bare = |path: &Path, suffix| {
            let mut bytes = fs::read(path).unwrap();
            bytes[40..48].fill(0);
            bytes[60..64].fill(0);
            let path = path.with_extension(suffix);
            write(&path, &bytes);
            path
        };
        let first = embedded(&bare(&path, "bare"), ".with", 5000);
        assert_eq!(
            fs::read(embedded(&first, ".again", 5000)).unwrap(),
            fs::read(&first).unwrap()
        );
        let larger = embedded(&first, ".larger", 60_000);
        // Its section headers are removed later, when its segment contains more than the section.
        let guests = embedded(&without_property(&path), ".guests", 5000);
        let later = bare(&guests, "later");
        let later_larger = embedded(&later, ".larger", 60_000);
        for (path, length) in [
            (first, 5000),
            (larger, 60_000),
            (later, 5000),
            (later_larger, 60_000),
        ] {
            assert_eq!(
                succeed(&mut command(&path)),
                format!("{}done\n", found(length))
            );
            let file = ElfFile::open(&path).unwrap();
            let (_, bytes) = file.embedded(NAME, MAGIC).unwrap();
            assert!(bytes.starts_with(&content(length)), "{path:?}");
            assert!(bytes.len() < length + 32 && bytes[length..].iter().all(|byte| *byte == 0));
            assert_eq!(file.embedded(NAME, b"another\0"), None);
        }
    }
}

/// Links an object file of any architecture: this linker supports all.
fn link(object: &Path, output: &str, arguments: &[&str]) -> PathBuf {
    let linked = object.with_extension(output);
    let mut linker = tool("ld.lld");
    linker
        .args(arguments)
        .arg("-o")
        .args([linked.as_path(), object])
        .succeed();
    linked
}

/// Files that cannot be run here, only inspected.
#[test]
fn other_classes_and_byte_orders() {
    let dir = directory("embed_other");
    let text = dir.join("source.s");
    let source = ".globl _start\n.text\n_start:\n.4byte 0\n.data\n.globl word\nword: .4byte 1\n";
    fs::write(&text, source).unwrap();
    let dynamic = [
        "-pie",
        "-E",
        "--build-id",
        "--hash-style=both",
        "--dynamic-linker=/lib/ld.so",
    ];
    for triple in [
        "i686-linux-gnu",
        "aarch64-linux-gnu",
        "powerpc-linux-gnu",
        "armv7-linux-gnueabi",
    ] {
        let object = dir.join(triple).with_extension("o");
        let target = format!("--triple={triple}");
        let arguments = ["--filetype=obj", &target, "-o"].map(AsRef::as_ref);
        let paths = [object.as_os_str(), text.as_os_str()];
        binutils("llvm-mc", arguments.into_iter().chain(paths));
        for path in [
            link(&object, "pie", &dynamic),
            link(&object, "fixed", &["-static"]),
        ] {
            let result = check(&path);
            let file = ElfFile::open(&result).unwrap();
            let (addr, _) = file.embedded(NAME, MAGIC).unwrap();
            let segment = file
                .segments()
                .find(|segment| segment.vaddr == addr)
                .unwrap();
            let first = file.segments().next().unwrap();
            assert_eq!(segment.align, first.align);
            assert_eq!(
                segment.vaddr.0 % segment.align,
                segment.file_offset % segment.align
            );
        }
    }
}

fn refused(file: &ElfFile) -> String {
    embed(file, NAME, &content(100), 8).unwrap_err().to_string()
}

#[test]
fn unembeddable_sections_are_rejected() {
    let dir = directory("embed_refused");
    let path = compile(&dir, "program", FINDER, &["-g"]);
    let file = ElfFile::open(&path).unwrap();
    let with = |name, content: &[u8], align| embed(&file, name, content, align).unwrap_err();
    assert!(matches!(with("", &content(9), 8), EmbedError::Name { .. }));
    assert!(matches!(
        with("a\0b", &content(9), 8),
        EmbedError::Name { .. }
    ));
    assert!(matches!(
        with("a", &content(9), 12),
        EmbedError::Align { .. }
    ));
    assert!(matches!(
        with("a", &content(9), 8192),
        EmbedError::Align { .. }
    ));
    assert!(matches!(with("a", b"short", 8), EmbedError::Content { .. }));
    assert!(matches!(with("a", &[0; 64], 8), EmbedError::Content { .. }));
    assert!(matches!(
        with(".text", &content(9), 8),
        EmbedError::NameTaken { .. }
    ));

    let object = compile(&dir, "object", FINDER, &["-c"]);
    let message = refused(&ElfFile::open(&object).unwrap());
    assert!(
        message.ends_with("is a relocatable file, which must be linked first"),
        "{message}"
    );
    let debug = dir.join("debug");
    binutils(
        "objcopy",
        [
            "--only-keep-debug".as_ref(),
            path.as_os_str(),
            debug.as_os_str(),
        ],
    );
    let error = embed(&ElfFile::open(&debug).unwrap(), NAME, &content(100), 8).unwrap_err();
    assert!(matches!(error, EmbedError::DebugFile { .. }), "{error}");

    let bytes = fs::read(&path).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        refused(&ElfFile::from_bytes("changed", bytes).unwrap())
    };
    let core = changed(&|bytes| bytes[16] = 4);
    assert!(core.ends_with("changed is a core file"), "{core}");
    let trailing = changed(&|bytes| bytes.extend(b"payload"));
    assert!(
        trailing.contains("7 bytes at offset") && trailing.contains("belong to no section"),
        "{trailing}"
    );
    let truncated = changed(&|bytes| bytes.truncate(bytes.len() - 1));
    assert!(
        truncated.contains("runs past the end of the file"),
        "{truncated}"
    );
    let segments = changed(&|bytes| bytes[56] = 0);
    assert!(segments.contains("without loadable segments"), "{segments}");
}

#[test]
fn program_headers_alone_in_their_page() {
    let dir = directory("embed_alone");
    let source = "void _start(void) { __asm__ volatile (\"syscall\" : : \"a\"(60), \"D\"(0)); }";
    let bare = [
        "-static",
        "-nostdlib",
        "-Wl,--build-id=none",
        "-fcf-protection=none",
    ];
    let path = compile(&dir, "bare", source, &bare);
    let count = |file: &ElfFile| 64 + 56 * u64::from(file.bytes()[56]);
    let old = ElfFile::open(&path).unwrap();
    assert_eq!(old.segments().next().unwrap().file_size, count(&old));
    let result = check(&path);
    let new = ElfFile::open(&result).unwrap();
    assert_eq!(new.segments().next().unwrap().file_size, count(&new));
    assert_eq!(count(&new), count(&old) + 56);
    succeed(&mut command(&result));
    for path in rewritten(&result) {
        succeed(&mut command(&path));
    }
    // patchelf leaves such bytes; other bytes may have a meaning.
    let followed_by = |byte| {
        let mut bytes = fs::read(&path).unwrap();
        bytes[usize::try_from(count(&old)).unwrap()..0x1000].fill(byte);
        embed(
            &ElfFile::from_bytes("bare", bytes).unwrap(),
            NAME,
            &content(100),
            8,
        )
    };
    assert!(followed_by(b'X').is_ok());
    let error = followed_by(b'Y').unwrap_err().to_string();
    assert!(error.ends_with("something unknown follows"), "{error}");
}

#[test]
fn no_room() {
    let dir = directory("embed_no_room");
    let library = [
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-Wl,--build-id=none,--hash-style=sysv",
    ];
    let path = compile(&dir, "small.so", "int a(void) { return 1; }", &library);
    let bytes = fs::read(&path).unwrap();
    let file = ElfFile::from_bytes("small.so", bytes.clone()).unwrap();
    assert!(embed(&file, NAME, &content(100), 8).is_ok());
    let hash = file.section_named(".hash").unwrap().unwrap().offset;
    assert_eq!(hash, 64 + 56 * u64::from(bytes[56]));
    // An unknown type for the hash table.
    let mut bytes = bytes;
    let table = usize::from_le_bytes(*bytes[40..].first_chunk().unwrap());
    let header = table + 64 * file.sections().next().unwrap().index;
    bytes[header + 4] = 1;
    let error = embed(
        &ElfFile::from_bytes("small.so", bytes).unwrap(),
        NAME,
        &content(100),
        8,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.ends_with("(56 bytes at offset 0x200): .hash cannot move"),
        "{error}"
    );
}

/// The constants of a program that looks for the section may begin with its magic bytes, and are
/// a read-only segment too.
#[test]
fn constants_that_look_alike() {
    let dir = directory("embed_alike");
    let source = "const char magic[8] = \"unspool\"; int f(void) { return 1; }";
    let path = compile(&dir, "alike.so", source, &["-shared", "-fPIC", "-nostdlib"]);
    let file = ElfFile::open(&path).unwrap();
    let constants = file.section_named(".rodata").unwrap().unwrap();
    assert!(constants.data.starts_with(MAGIC));
    assert!(
        file.segments()
            .any(|segment| segment.vaddr == constants.address && !segment.executable)
    );
    assert_eq!(file.embedded(NAME, MAGIC), None);
    let file = ElfFile::open(check(&path)).unwrap();
    let mut bytes = file.bytes().to_vec();
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    let bare = ElfFile::from_bytes("alike", bytes).unwrap();
    let again = embed(&bare, NAME, &content(7000), 8).unwrap();
    let again = ElfFile::from_bytes("again", again).unwrap();
    assert_eq!(again.segments().count(), file.segments().count());
    assert_eq!(again.bytes_at(constants.address, 8), Some(MAGIC));
    assert!(
        again
            .embedded(NAME, MAGIC)
            .unwrap()
            .1
            .starts_with(&content(7000))
    );
}

/// Damage is an error or changes the result; it is never a panic or a hang.
#[test]
fn damaged_files() {
    let dir = directory("embed_damaged");
    let path = compile(
        &dir,
        "lib.so",
        "int a(void) { return 1; }",
        &["-shared", "-fPIC", "-s"],
    );
    let with = fs::read(embedded(&path, ".with", 2000)).unwrap();
    let content = content(3000);
    for original in [fs::read(&path).unwrap(), with] {
        let table = usize::from_le_bytes(*original[40..].first_chunk().unwrap());
        let damaged = (0..1024).chain(table..original.len());
        for (at, value) in damaged.flat_map(|at| [0, 0x7f, 0xff].map(|value| (at, value))) {
            let mut bytes = original.clone();
            bytes[at] = value;
            if let Ok(file) = ElfFile::from_bytes("damaged", bytes) {
                let _ = file.embedded(NAME, MAGIC);
                if let Ok(result) = embed(&file, NAME, &content, 8) {
                    assert!(result.len() <= original.len() + 16384);
                    let result = ElfFile::from_bytes("result", result).unwrap();
                    let found = result.embedded(NAME, MAGIC);
                    let (Vaddr(addr), bytes) =
                        found.unwrap_or_else(|| panic!("{at:#x} {value:#x}"));
                    assert!(addr > 0 && bytes.starts_with(&content));
                }
            }
        }
        for length in (0..original.len()).step_by(37) {
            if let Ok(file) = ElfFile::from_bytes("short", &original[..length]) {
                assert!(embed(&file, NAME, &content, 8).is_err(), "{length}");
            }
        }
    }
}
