//! Arguments of functions, reported in the process itself and when it crashes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_arg_table_builder::{analyze_file, encode, prototypes_of_ctf};
use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_table_store::Store;

use crate::programs::{self, stdout, with_library};

/// A program, and a cache with its argument table.
fn with_table() -> (PathBuf, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/arguments.c");
    let options = ["-O2", "-gctf", "-Wl,--build-id=sha1"];
    let compiler = || {
        let mut cc = programs::cc();
        cc.args(options).arg(programs::include());
        cc
    };
    let mut object = compiler();
    object.arg("-c");
    let object = programs::build(object, &source, &[]);
    let program = programs::build(compiler(), &source, &programs::pkg_config());
    let file = settled(&program);
    let declarations = DeclaredTable::read(&file).unwrap();
    let subject = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file)).unwrap();
    let prototypes = prototypes_of_ctf([&ElfFile::open(&object).unwrap()]);
    let debug = DebugFiles::default();
    let table = encode(
        &analyze_file(&subject, file.symbols(), &prototypes),
        prototypes.types(),
        &debug.key(&file).unwrap(),
    )
    .unwrap();
    let home = programs::scratch("cache");
    fs::create_dir(&home).unwrap();
    let store = Store::new(None, Some(home.clone().into()), None);
    store.keep_arguments(&file, &debug, &table).unwrap();
    (program, home)
}

#[test]
fn a_program_reads_its_own_arguments() {
    let (program, home) = with_table();
    let mut command: Command = with_library(&program);
    command.env("XDG_CACHE_HOME", &home);
    let expected = "\
3 enum colour kind 8 bytes 4 certainty 2 value 5
3 signed char kind 3 bytes 1 certainty 2 value 249
3 enum access kind 8 bytes 4 certainty 2 value 13
2 struct pair kind 9 bytes 16 certainty 2 value 4294967293
2 long int kind 0 bytes 8 certainty 2 value 4000000000
2 long int kind 0 bytes 8 certainty 2 value 11
2 _Bool kind 2 bytes 1 certainty 2 value 1
";
    assert_eq!(stdout(&mut command), expected);
    // Without the table nothing is known.
    let mut command: Command = with_library(&program);
    command
        .env("XDG_CACHE_HOME", "/dev/null")
        .env("HOME", "/dev/null");
    assert_eq!(stdout(&mut command), "");
}

#[test]
fn a_crash_shows_them() {
    let (program, home) = with_table();
    let mut command = with_library(&program);
    let handler = programs::shared_objects().join("libunspool-crash.so");
    command
        .env("XDG_CACHE_HOME", &home)
        .env("CRASH", "1")
        .env("LD_PRELOAD", handler);
    let output = command.output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    for line in [
        "         #1: enum colour = GREEN\n",
        "         #2: signed char = -7\n",
        // As printed by gdb.
        "         #3: enum access = (READ | EXECUTE | unknown: 0x8)\n",
        "         #2: long int = 4000000000\n",
        "         #1: long int = 11\n",
        "         #2: _Bool = 1\n",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
}

/// Opens a file that was just built, as soon as its derived data can be cached.
pub(crate) fn settled(path: &Path) -> ElfFile {
    loop {
        let file = ElfFile::open(path).unwrap();
        if file.stamp().is_some() {
            return file;
        }
        assert!(
            file.is_trusted(),
            "{}: on a mount that is `nosuid`",
            path.display()
        );
        std::thread::yield_now();
    }
}
