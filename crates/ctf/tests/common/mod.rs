//! What tests share: C sources compiled by gcc, and the CTF in files.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

pub mod graphs;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use unspool_ctf::{ElfContext, ElfStrings, Section};
use xtask::packages;

/// A folder in which C sources are compiled.
pub struct Folder(TempDir);

/// The CTF of a file, and what it needs of it.
pub struct Ctf {
    pub bytes: Vec<u8>,
    dynamic: [Vec<u8>; 2],
}

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a tool of the system, which must not fail.
    pub fn tool(&self, tool: &str, words: &str) -> String {
        let program = packages::path(&format!("/usr/bin/{tool}")).unwrap();
        let mut command = Command::new(program);
        command
            .args(words.split_whitespace())
            .current_dir(self.path());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool} {words}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Compiles sources of this folder's neighbour `c`, with their types as CTF.
    pub fn compile(&self, names: &[&str]) {
        for name in names {
            let source = source(name);
            let source = source.display();
            self.tool("gcc", &format!("-gctf -O1 -c {source} -o {name}.o"));
        }
    }

    /// The CTF of an ELF file, taken out by objcopy.
    pub fn ctf(&self, file: &str) -> Ctf {
        let part = |section: &str| {
            let to = format!("{file}.{section}.part");
            let words = format!("--dump-section {section}={to} {file} /dev/null");
            let program = packages::path("/usr/bin/objcopy").unwrap();
            let mut command = Command::new(program);
            command
                .args(words.split_whitespace())
                .current_dir(self.path());
            command.output().unwrap();
            // It writes nothing for a section that is not there.
            std::fs::read(self.path().join(to)).unwrap_or_default()
        };
        let bytes = part(".ctf");
        assert!(!bytes.is_empty(), "{file} has no .ctf");
        Ctf {
            bytes,
            dynamic: [".dynstr", ".dynsym"].map(part),
        }
    }
}

impl Ctf {
    pub fn elf(&self) -> ElfContext<'_> {
        let [dynstr, dynsym] = &self.dynamic;
        ElfContext {
            strings: ElfStrings {
                dynstr,
                ..ElfStrings::default()
            },
            dynsym,
            is_64: true,
            ..ElfContext::default()
        }
    }

    pub fn open(&self) -> Section<'_> {
        Section::open(&self.bytes, self.elf()).unwrap()
    }
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"))
}

/// Small sources of one subject each, those of a case together: their names and paths.
pub fn cases() -> Vec<(String, Vec<PathBuf>)> {
    let inside = |path: &Path| {
        let mut paths: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        paths
    };
    let cases = inside(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/cases"));
    assert!(cases.len() >= 12, "{cases:?}");
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    cases
        .iter()
        .map(|path| (name(path), inside(path)))
        .collect()
}
