//! Walks with one file's tables.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::{LoadBias, PackedRow, Register, RegisterScope, Row, Vaddr};
use unspool_table_store::{self as tables, NativeObject, Store, TableBytes, TableSource};
use unspool_testing::Folder;
use unspool_unwind::{Evidence, FileTables};

/// Compiles a library with one function, `answer`.
fn library(folder: &Folder, name: &str, build_id: &str) -> ElfFile {
    folder.write("library.c", "int answer(void) { return 42; }");
    let options = format!("-shared -fPIC -nostdlib -Wl,--build-id={build_id} -o {name} library.c");
    folder.tool("gcc", &options);
    ElfFile::open(folder.join(name)).unwrap()
}

/// Addresses missing in the search table are found by scanning the section; walks find them once
/// there is a compiled table.
#[test]
fn walks_wait_for_the_table_where_the_search_table_has_gaps() {
    let folder = Folder::new();
    let file = library(&folder, "library.so", "sha1");
    let header = file.eh_frame_hdr().unwrap().unwrap().data;
    let mut bytes = fs::read(file.path()).unwrap();
    let at = bytes.windows(header.len()).position(|part| part == header);
    // The count of entries is after four bytes and the address of the section.
    let count = at.unwrap() + 8;
    bytes[count..count + 4].fill(0);
    let path = folder.write("unlisted.so", bytes);
    let listed = folder.tool("nm", "-D unlisted.so");
    let line = listed.lines().find(|line| line.ends_with(" T answer"));
    let answer = u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap();
    let file = Arc::new(ElfFile::open(&path).unwrap());
    let has_row = |tables: &FileTables| {
        let mut row = Row::new(Register(0));
        let module = tables.module(LoadBias(0), None, None);
        module.row(Vaddr(answer), &mut row).is_ok()
    };
    assert!(has_row(&FileTables::new(Arc::clone(&file))));
    let for_walks = FileTables::new(Arc::clone(&file)).for_walks();
    assert!(!has_row(&for_walks));
    let made = tables::compile(&file, TableSource::Auto).unwrap();
    assert!(for_walks.attach(TableBytes::Memory(made.encoded.bytes)));
    assert!(has_row(&for_walks));
}

/// A function that only `.debug_frame` describes, beside another's `.eh_frame`.
#[test]
fn walks_have_the_rows_of_both_sections() {
    let folder = Folder::new();
    folder.write("first.c", "int first(void) { return 1; }");
    folder.write("second.c", "int second(void) { return 2; }");
    folder.tool("gcc", "-c -g -fPIC first.c");
    folder.tool(
        "gcc",
        "-c -g -fPIC -fno-asynchronous-unwind-tables second.c",
    );
    folder.tool("gcc", "-shared -nostdlib -o library.so first.o second.o");
    let file = Arc::new(ElfFile::open(folder.join("library.so")).unwrap());
    for name in ["first", "second"] {
        let symbol = file.symbols().iter().find(|symbol| symbol.name == name);
        let pc = symbol.unwrap().address.offset(1);
        for is_for_walks in [false, true] {
            let mut tables = FileTables::new(Arc::clone(&file));
            if is_for_walks {
                let made = tables::compile(&file, TableSource::Auto).unwrap();
                tables = tables.for_walks();
                assert!(tables.attach(TableBytes::Memory(made.encoded.bytes)));
            }
            let mut row = Row::new(Register(0));
            let module = tables.module(LoadBias(0), None, None);
            let found = module.row(pc, &mut row).unwrap();
            assert_eq!(found.evidence, Evidence::Cfi, "{name}");
        }
    }
}

/// Machine code of another module is replaced, and a notice says why.
#[test]
fn walks_run_no_machine_code_of_another_module() {
    let folder = Folder::new();
    // Under any umask, nobody else can write into it.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let store = Store::new(
        None,
        Some(folder.join("cache").into()),
        Some("/nowhere".into()),
    );
    let keep = |file: &ElfFile| {
        let object = NativeObject::from_file(file, &tables::own_key(file)).unwrap();
        let path = store.keep_native(file, &object).unwrap();
        (path, object.bytes().to_vec())
    };
    let file = Arc::new(library(&folder, "library.so", "sha1"));
    let (path, own) = keep(&file);
    let (_, bytes) = keep(&library(&folder, "other.so", "0x1234"));
    fs::write(&path, &bytes).unwrap();

    let tables = FileTables::new(Arc::clone(&file));
    let mut notices = Vec::new();
    assert!(tables.module(LoadBias(0), None, None).native.is_none());
    tables.run_native(&store, file.path(), &mut notices);
    assert!(tables.module(LoadBias(0), None, None).native.is_some());
    let notice = format!("{}: the table of another module", path.display());
    let notices: Vec<String> = notices.iter().map(ToString::to_string).collect();
    assert_eq!(notices, [notice]);
    assert_eq!(fs::read(&path).unwrap(), own);
}

/// The rows of real files pack, except for few addresses: walkers leave those to the interpreter.
#[test]
fn the_rows_of_nearly_all_addresses_pack() {
    for name in [
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ] {
        let path = unspool_testing::packages::path(name).unwrap();
        let file = ElfFile::open(&path).unwrap();
        let table = tables::read(&file, TableSource::Auto).unwrap().table;
        let arch = table.abi().arch;
        for scope in [RegisterScope::All, RegisterScope::StackAndFramePointer] {
            let (mut all, mut unpacked) = (0, 0);
            for span in table.spans() {
                let bytes = span.end.0 - span.start.0;
                let row = table.row(span.row).unwrap();
                all += bytes;
                if PackedRow::from_row(&row, arch, scope).is_none() {
                    unpacked += bytes;
                }
            }
            assert!(
                unpacked * 30 < all,
                "{name}, {scope:?}: {unpacked} of {all}"
            );
        }
    }
}
