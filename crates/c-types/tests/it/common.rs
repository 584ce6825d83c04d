//! Shared test helpers: C sources compiled by gcc, and the CTF in files.

pub(crate) mod graphs;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use unspool_c_types::{CtfSection, ElfContext, ElfStrings};
use unspool_testing::tool;

/// The CTF of a file, and its tables for CTF.
pub(crate) struct Ctf {
    pub bytes: Vec<u8>,
    dynamic: [Vec<u8>; 2],
}

/// A folder for compiling C sources.
pub(crate) struct CtfFolder(unspool_testing::Folder);

impl Deref for CtfFolder {
    type Target = unspool_testing::Folder;

    fn deref(&self) -> &unspool_testing::Folder {
        &self.0
    }
}

impl CtfFolder {
    pub(crate) fn new() -> CtfFolder {
        CtfFolder(unspool_testing::Folder::new())
    }

    /// Compiles sources of the folder `c`, with their types as CTF.
    pub(crate) fn compile(&self, names: &[&str]) {
        for name in names {
            let source = source(name);
            let source = source.display();
            self.tool("gcc", &format!("-gctf -O1 -c {source} -o {name}.o"));
        }
    }

    /// The CTF of an ELF file, extracted by objcopy.
    pub(crate) fn ctf(&self, file: &str) -> Ctf {
        let part = |section: &str| {
            let to = format!("{file}.{section}.part");
            let words = format!("--dump-section {section}={to} {file} /dev/null");
            // If the section does not exist, it fails and writes nothing.
            self.started(&mut tool("objcopy"), &words).output().unwrap();
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
    pub(crate) fn elf(&self) -> ElfContext<'_> {
        let [dynstr, dynsym] = &self.dynamic;
        ElfContext {
            strings: ElfStrings {
                dynstr,
                ..ElfStrings::default()
            },
            dynsym,
            ..ElfContext::BARE_64
        }
    }

    pub(crate) fn open(&self) -> CtfSection<'_> {
        CtfSection::open(&self.bytes, self.elf()).unwrap()
    }
}

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"))
}

/// Small sources on one subject each, grouped by case: names and paths.
pub(crate) fn cases() -> Vec<(String, Vec<PathBuf>)> {
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
