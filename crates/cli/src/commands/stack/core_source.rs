//! Core files: as they are, compressed, or from standard input.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek as _};
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

/// The limit of what is shown of a program's messages.
const MAX_MESSAGE_BYTES: u64 = 1000;

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

/// Standard input as a file.
fn standard_input() -> anyhow::Result<File> {
    stored(io::stdin().lock()).context("standard input")
}

/// The largest core, with its holes.
const MAX_CORE_BYTES: u64 = 1 << 40;
/// Zeros of this size are a hole in the file.
const BLOCK_BYTES: u64 = 1 << 16;

/// A core in a temporary file, since its parts are not read in order. It takes at most half of the
/// free space there.
fn stored(core: impl Read) -> anyhow::Result<File> {
    let folder = env::temp_dir();
    let to = tempfile::tempfile().with_context(|| folder.display().to_string())?;
    let space = rustix::fs::fstatvfs(&to)?;
    let limit = space.f_bavail.saturating_mul(space.f_frsize) / 2;
    if store(core, &to, limit)? {
        return Ok(to);
    }
    bail!(
        "more than {} MiB, half of the free space in {}: set TMPDIR to a folder with more space",
        limit >> 20,
        folder.display()
    )
}

/// Writes a core to a file, zeros as holes. `false` if it is larger than the limit.
fn store(mut core: impl Read, to: &File, limit: u64) -> io::Result<bool> {
    let (mut size, mut written) = (0, 0);
    let mut block = Vec::new();
    loop {
        block.clear();
        core.by_ref().take(BLOCK_BYTES).read_to_end(&mut block)?;
        let length = block.len() as u64;
        let is_hole = block.iter().all(|byte| *byte == 0);
        if !is_hole {
            written += length;
        }
        if written > limit || size + length > MAX_CORE_BYTES {
            return Ok(false);
        }
        if block.is_empty() {
            to.set_len(size)?;
            return Ok(true);
        }
        if !is_hole {
            to.write_all_at(&block, size)?;
        }
        size += length;
    }
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
    file.rewind()?;
    let mut errors = tempfile::tempfile().context("no temporary file for error messages")?;
    let mut child = Command::new(program)
        .arg("-dc")
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(errors.try_clone()?)
        .spawn()
        .with_context(|| {
            format!("cannot run {program}, which decompresses it: install {program}")
        })?;
    let core = child
        .stdout
        .take()
        .map_or_else(|| bail!("no output"), stored);
    if core.is_err() {
        // It may have ended by itself.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let core = core.with_context(|| format!("decompressed by {program}"))?;
    if !status.success() {
        let mut message = String::new();
        errors.rewind()?;
        errors
            .take(MAX_MESSAGE_BYTES)
            .read_to_string(&mut message)?;
        bail!("{program} cannot decompress it: {}", message.trim());
    }
    Ok(core)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn zeros_are_holes_and_count_as_nothing() {
        let zeros = vec![0; 1 << 20];
        let core = [&zeros[..], b"end"].concat();
        let to = tempfile::tempfile().unwrap();
        assert!(store(&core[..], &to, 3).unwrap());
        let mut found = Vec::new();
        (&to).read_to_end(&mut found).unwrap();
        assert_eq!(found, core);
        let metadata = to.metadata().unwrap();
        assert!(metadata.blocks() * 512 < metadata.size() / 2);
    }

    #[test]
    fn a_core_that_has_no_end_is_refused() {
        let to = tempfile::tempfile().unwrap();
        assert!(!store(io::repeat(1), &to, 1 << 20).unwrap());
        assert!(to.metadata().unwrap().len() <= 1 << 20);
    }
}
