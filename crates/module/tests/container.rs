//! Archives and compressed files against the tools that made them, and against bytes changed at random.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_module::{Container, ElfFile};

fn tool(folder: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let program = xtask::packages::path(program).unwrap();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
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
        tool(
            folder,
            "/usr/bin/as",
            &["-o", &format!("{name}.o"), &source],
        );
    }
    tool(
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
    tool(folder, "/usr/bin/xz", &["--keep", "c.o"]);
    tool(folder, "/usr/bin/zstd", &["-q", "c.o"]);
    tool(folder, "/usr/bin/gzip", &["--keep", "c.o"]);
    ["lib.a", "c.o.xz", "c.o.zst", "c.o.gz"]
        .map(|name| folder.join(name))
        .to_vec()
}

#[test]
fn what_is_held_is_what_was_put_in() {
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
