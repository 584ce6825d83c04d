//! Compiled tables mapped by `unspool_prepare`: those cached by `Store`, if they can be trusted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_testing::packages;

use unspool_table_store::{self as tables, Store, TableSource};

use unspool_elf::{ElfFile, embed};

use crate::programs::{self, stdout, with_library};

/// The output of `prepare.c`: the number of mapped tables, whether the program has one, and whether
/// its stack equals the C library's backtrace.
fn prepare(program: &Path, variable: &str, value: &Path) -> String {
    let mut command: Command = with_library(program);
    command
        .env_remove("UNSPOOL_TABLE_PATH")
        .env("HOME", "/dev/null")
        .env("XDG_CACHE_HOME", "/dev/null")
        .env(variable, value);
    stdout(&mut command)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A program with a build ID, and a cache with its table.
fn with_table() -> (PathBuf, PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut cc = programs::cc();
    cc.args(["-O1", "-Wl,--build-id=sha1"]);
    let program = programs::build(cc, &folder.join("prepare.c"), &programs::pkg_config());
    let home = programs::scratch("cache");
    fs::create_dir(&home).unwrap();
    let store = Store::new(None, Some(home.clone().into()), None);
    let file = ElfFile::open(&program).unwrap();
    let made = tables::compile(&file, TableSource::Auto).unwrap();
    let table = store
        .keep(&store.stable(&file), &made.encoded.bytes)
        .unwrap();
    (program, home, table)
}

/// Embeds its table into a file.
fn embed_table(path: &Path) {
    let file = ElfFile::open(path).unwrap();
    let made = tables::compile(&file, TableSource::Auto).unwrap();
    let elf = embed(&file, tables::EMBEDDED_SECTION, &made.encoded.bytes, 64).unwrap();
    drop(file);
    fs::remove_file(path).unwrap();
    fs::write(path, elf).unwrap();
    mode(path, 0o755);
}

/// The program has its own table, at any link address.
#[test]
fn a_table_in_the_module_itself() {
    let (program, _, _) = with_table();
    assert_eq!(prepare(&program, "HOME", Path::new("/dev/null")), NONE);
    embed_table(&program);
    assert_eq!(prepare(&program, "HOME", Path::new("/dev/null")), FOUND);
}

/// The table of a library is kept after unloading: the library may be loaded again.
#[test]
fn a_table_in_a_library_that_is_unloaded() {
    let (program, _, _) = with_table();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let [library, other] = ["-DSTEP=1", "-DSTEP=2"].map(|step| {
        let mut cc = programs::cc();
        cc.args([
            "-O1",
            "-shared",
            "-fPIC",
            "-Wl,--build-id=sha1",
            "-DNAME=inner",
            step,
        ]);
        programs::build(cc, &folder.join("library.c"), &[])
    });
    embed_table(&library);
    let mut command = with_library(&program);
    command.env("HOME", "/dev/null").args([library, other]);
    command.env("XDG_CACHE_HOME", "/dev/null");
    assert_eq!(stdout(&mut command), "1 tables; same\n");
}

const FOUND: &str = "1 tables, the program's too; same\n";
const NONE: &str = "0 tables; same\n";

#[test]
fn tables_are_found_where_the_store_keeps_them() {
    let (program, home, table) = with_table();
    assert_eq!(prepare(&program, "XDG_CACHE_HOME", &home), FOUND);
    let cache = table.parent().unwrap();
    assert_eq!(prepare(&program, "UNSPOOL_TABLE_PATH", cache), FOUND);
    let user = programs::scratch("home");
    fs::create_dir(&user).unwrap();
    fs::rename(&home, user.join(".cache")).unwrap();
    assert_eq!(
        prepare(&program, "HOME", &user),
        NONE,
        "XDG_CACHE_HOME counts"
    );
    let mut command = with_library(&program);
    command.env_remove("XDG_CACHE_HOME").env("HOME", &user);
    assert_eq!(stdout(&mut command), FOUND);
}

#[test]
fn tables_that_others_can_write_are_not_used() {
    let (program, home, table) = with_table();
    let cache = table.parent().unwrap();
    for (path, bad, good) in [(&*table, 0o666, 0o600), (cache, 0o777, 0o700)] {
        mode(path, bad);
        assert_eq!(prepare(&program, "XDG_CACHE_HOME", &home), NONE);
        mode(path, good);
        assert_eq!(prepare(&program, "XDG_CACHE_HOME", &home), FOUND);
    }
}

#[test]
fn tables_of_other_modules_are_not_used() {
    let (program, home, table) = with_table();
    fs::copy(table_of_libc(), &table).unwrap();
    assert_eq!(prepare(&program, "XDG_CACHE_HOME", &home), NONE);
    fs::write(&table, b"unspool").unwrap();
    assert_eq!(prepare(&program, "XDG_CACHE_HOME", &home), NONE);
    fs::remove_file(&table).unwrap();
    fs::create_dir(&table).unwrap();
    assert_eq!(prepare(&program, "XDG_CACHE_HOME", &home), NONE);
}

/// A table with another build ID.
fn table_of_libc() -> PathBuf {
    let home = programs::scratch("other");
    fs::create_dir(&home).unwrap();
    let store = Store::new(None, Some(home.into()), None);
    let libc = packages::path("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let libc = ElfFile::open(&libc).unwrap();
    let made = tables::compile(&libc, TableSource::Auto).unwrap();
    store
        .keep(&store.stable(&libc), &made.encoded.bytes)
        .unwrap()
}
