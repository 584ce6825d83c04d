//! Core files: as they are, compressed, or from standard input.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use unspool_process::core_file::{Core, CoreError};

/// The first bytes of compressed files, and the programs that decompress them.
const COMPRESSED: [(&[u8], &str); 4] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
];

/// Opens a core file; `-` is standard input.
pub(super) fn open(path: &Path) -> anyhow::Result<Core> {
    let file = if path.as_os_str() == "-" {
        Some(standard_input()?)
    } else {
        // If it cannot be opened, `Core::open` says why.
        unspool_files::open(path)
            .ok()
            .filter(|file| decompressor(file).is_some())
    };
    let core = match file {
        None => Core::open(path),
        Some(file) => match decompressor(&file) {
            Some(program) => {
                let file = decompressed(program, file);
                Core::from_file(&file.with_context(|| path.display().to_string())?, path)
            }
            None => Core::from_file(&file, path),
        },
    };
    core.map_err(|error| match error {
        CoreError::Open { .. } => anyhow::Error::from(error),
        error => anyhow::Error::from(error).context(path.display().to_string()),
    })
}

/// Standard input as a file, since the parts of a core are not read in order.
fn standard_input() -> anyhow::Result<File> {
    let mut file = tempfile::tempfile().context("no temporary file for the core")?;
    io::copy(&mut io::stdin().lock(), &mut file).context("cannot read standard input")?;
    Ok(file)
}

/// The program that decompresses a file, if it is compressed.
fn decompressor(file: &File) -> Option<&'static str> {
    let mut start = [0; 6];
    let length = file.read_at(&mut start, 0).ok()?;
    let start = start.get(..length)?;
    let mut known = COMPRESSED.iter();
    let found = known.find(|(magic, _)| start.starts_with(magic));
    found.map(|(_, program)| *program)
}

/// The contents of a compressed file. The system's programs are current, and a fault in one is in
/// another process.
fn decompressed(program: &str, mut file: File) -> anyhow::Result<File> {
    let to = tempfile::tempfile().context("no temporary file for the core")?;
    file.rewind()?;
    let output = Command::new(program)
        .arg("-dc")
        .stdin(file)
        .stdout(to.try_clone()?)
        .stderr(Stdio::piped())
        .output()
        .with_context(|| {
            format!("cannot run {program}, which decompresses it: install {program}")
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} cannot decompress it: {}", said.trim());
    }
    Ok(to)
}
