//! Archives and compressed files against the tools that made them, and against bytes changed at
//! random.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_elf::{Archive, Container, ElfFile};
use unspool_testing::{Finish, tool};

fn run_tool(folder: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = tool(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Objects of three sizes, their archive, and one of them compressed in each way.
fn files(folder: &Path) -> Vec<PathBuf> {
    for (name, size) in [("a", 1), ("with_a_name_that_is_long", 3), ("c", 10_000)] {
        let source = format!("{name}.s");
        fs::write(
            folder.join(&source),
            format!("\t.data\n\t.fill {size}, 1, 7\n"),
        )
        .unwrap();
        run_tool(
            folder,
            "/usr/bin/as",
            &["-o", &format!("{name}.o"), &source],
        );
    }
    run_tool(
        folder,
        "/usr/bin/ar",
        &[
            "rcs",
            "lib.a",
            "a.o",
            "a.s",
            "with_a_name_that_is_long.o",
            "c.o",
        ],
    );
    run_tool(folder, "/usr/bin/xz", &["--keep", "c.o"]);
    run_tool(folder, "/usr/bin/zstd", &["-q", "c.o"]);
    run_tool(folder, "/usr/bin/gzip", &["--keep", "c.o"]);
    ["lib.a", "c.o.xz", "c.o.zst", "c.o.gz"]
        .map(|name| folder.join(name))
        .to_vec()
}

#[test]
fn members_equal_the_archived_files() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let Container::Archive(members) = Container::open(&files[0]).unwrap() else {
        panic!("no archive");
    };
    let members: Vec<ElfFile> = members.into_iter().map(Result::unwrap).collect();
    let names = ["a.o", "with_a_name_that_is_long.o", "c.o"];
    assert_eq!(members.len(), names.len());
    for (member, name) in members.iter().zip(names) {
        assert_eq!(member.bytes(), read(name), "{name}");
        assert_eq!(member.path(), folder.path().join(format!("lib.a({name})")));
    }
    for path in &files[1..] {
        let Container::File(file) = Container::open(path).unwrap() else {
            panic!("{} is an archive", path.display());
        };
        assert_eq!(file.bytes(), read("c.o"), "{}", path.display());
        assert_eq!(file.path(), path);
    }
}

/// An archive with replaced members equals the archivers' own archive of these members. The symbol
/// index has numbers of 4 bytes, or of 8, which LLVM's archiver can write.
#[test]
fn members_are_replaced_as_archivers_do_it() {
    for (archiver, magic) in [("/usr/bin/ar", "/ "), ("/usr/bin/llvm-ar", "/SYM64/ ")] {
        let folder = tempfile::tempdir().unwrap();
        let (expected, others) = globals(folder.path(), archiver, [3000, 4, 9001]);
        let (before, _) = globals(folder.path(), archiver, [1, 20_000, 6]);
        assert!(before[8..].starts_with(magic.as_bytes()), "{archiver}");
        let archive = Archive::open(folder.path().join("lib.a")).unwrap().unwrap();
        let members = archive.members().unwrap().into_iter();
        let replaced: BTreeMap<u64, Vec<u8>> =
            members.map(|member| member.start).zip(others).collect();
        assert_eq!(archive.with(&BTreeMap::new()).unwrap(), before);
        assert!(archive.with(&replaced).unwrap() == expected, "{archiver}");
        assert_ne!(before.len(), expected.len());
    }
}

/// An archive of objects with symbols, of these sizes, and of other files, of odd and even sizes;
/// and the objects.
fn globals(folder: &Path, archiver: &str, sizes: [usize; 3]) -> (Vec<u8>, [Vec<u8>; 3]) {
    const NAMES: [&str; 3] = ["first", "with_a_name_that_is_long", "last"];
    for (name, size) in NAMES.into_iter().zip(sizes) {
        let text = format!("\t.globl {name}, {name}2\n{name}: {name}2:\n\t.fill {size}, 1, 7\n");
        fs::write(folder.join("source.s"), text).unwrap();
        let object = format!("{name}.o");
        run_tool(folder, "/usr/bin/as", &["-o", &object, "source.s"]);
    }
    fs::write(folder.join("odd.txt"), "odd").unwrap();
    fs::write(folder.join("even.txt"), "even").unwrap();
    let objects = NAMES.map(|name| format!("{name}.o"));
    let [first, second, last] = objects.each_ref();
    let _ = fs::remove_file(folder.join("lib.a"));
    tool(archiver)
        .args(["rcsD", "lib.a", first, "odd.txt", second, "even.txt", last])
        .env("SYM64_THRESHOLD", "0")
        .current_dir(folder)
        .succeed();
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    (read("lib.a"), objects.map(|name| read(&name)))
}

/// A thin archive has only names, and BSD's form is not written.
#[test]
fn archives_that_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    run_tool(folder.path(), "/usr/bin/ar", &["rcsT", "thin.a", "a.o"]);
    let error = Archive::open(folder.path().join("thin.a")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("thin.a: it cannot be unpacked"), "{error}");
    for index in ["s", "S"] {
        let options = format!("rc{index}");
        let members = ["--format=bsd", &options, "bsd.a", "a.o", "c.o"];
        run_tool(folder.path(), "/usr/bin/llvm-ar", &members);
        let archive = Archive::open(folder.path().join("bsd.a")).unwrap().unwrap();
        let members = archive.members().unwrap().into_iter();
        let others: BTreeMap<u64, Vec<u8>> =
            members.map(|member| (member.start, vec![0; 10])).collect();
        assert_eq!(others.len(), 2);
        let error = archive.with(&others).unwrap_err().to_string();
        assert!(error.contains("not an archive in GNU's format"), "{error}");
        fs::remove_file(folder.path().join("bsd.a")).unwrap();
    }
    assert!(Archive::open(folder.path().join("c.o")).unwrap().is_none());
}

#[test]
fn changed_bytes_are_errors_or_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let (mut good, mut bad) = (0, 0);
    for path in files(folder.path()) {
        let whole = fs::read(&path).unwrap();
        for _ in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..=below(4) {
                let at = below(bytes.len().min(400));
                bytes[at] = u8::try_from(below(256)).unwrap();
            }
            bytes.truncate(bytes.len() - below(2) * below(64));
            let changed = folder.path().join("changed");
            fs::write(&changed, &bytes).unwrap();
            if let Ok(Some(archive)) = Archive::open(&changed) {
                let members = archive.members().unwrap_or_default().into_iter();
                let others = members.map(|member| (member.start, vec![0; below(5000)]));
                let _ = archive.with(&others.collect());
            }
            match Container::open(&changed) {
                Ok(_) => good += 1,
                Err(error) => {
                    assert!(error.to_string().contains("changed"), "{error}");
                    bad += 1;
                }
            }
        }
    }
    assert!(good > 50 && bad > 300, "{good} {bad}");
}
