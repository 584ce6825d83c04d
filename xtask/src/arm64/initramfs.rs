//! The machine's first files: busybox, the kernel's modules for shared folders, and a script that
//! mounts the root.
//!
//! The format is a "newc" archive of cpio (Linux, Documentation/driver-api/early-userspace/
//! buffer-format.rst).

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// The modules, in the order in which they are loaded.
const MODULES: [&str; 4] = ["netfs", "9pnet", "9pnet_virtio", "9p"];

/// The kinds of files, with their permissions.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;

/// Makes the archive for the kernel whose modules are below a folder.
pub(super) fn make(busybox: &Path, modules: &Path) -> Result<Vec<u8>, Error> {
    let mut archive = Vec::new();
    for name in ["bin", "dev", "proc", "modules", "root"] {
        add(&mut archive, name, FOLDER, &[])?;
    }
    add(&mut archive, "bin/busybox", PROGRAM, &fs::read(busybox)?)?;
    add(&mut archive, "init", PROGRAM, include_bytes!("init.sh"))?;
    for (number, name) in MODULES.iter().enumerate() {
        let file = find(modules, &format!("{name}.ko.xz"))?
            .ok_or_else(|| format!("the kernel has no module {name}"))?;
        let name = format!("modules/{number}");
        add(&mut archive, &name, DATA, &fs::read(file)?)?;
    }
    add(&mut archive, "TRAILER!!!", 0, &[])?;
    Ok(archive)
}

/// Appends a file.
fn add(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) -> Result<(), Error> {
    let inode = u32::try_from(archive.len())?;
    let sizes = [
        u32::try_from(content.len())?,
        u32::try_from(name.len() + 1)?,
    ];
    let [content_size, name_size] = sizes;
    // Inode, mode, user, group, links, time, size, 2 device numbers, 2 of the file, name, checksum.
    let fields = [
        inode,
        mode,
        0,
        0,
        1,
        0,
        content_size,
        0,
        0,
        0,
        0,
        name_size,
        0,
    ];
    archive.extend(b"070701");
    for field in fields {
        archive.extend(format!("{field:08x}").bytes());
    }
    archive.extend(name.bytes());
    archive.push(0);
    pad(archive);
    archive.extend(content);
    pad(archive);
    Ok(())
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// A file by its name, anywhere below a folder.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>, Error> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == name {
            return Ok(Some(entry.path()));
        }
        if entry.file_type()?.is_dir()
            && let Some(path) = find(&entry.path(), name)?
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
