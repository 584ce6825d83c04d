//! Files that others change while they are mapped, and targets of outputs; caches, and opening.
#![cfg(test)]

mod caches;
mod opening;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use tempfile::{TempDir, tempdir};
use unspool_files::output::{append, check_writable, create, replace};
use unspool_files::{FileMap, guard, open};
use unspool_testing::{Finish, command};

const SIZE: usize = 1 << 20;

fn mapped(folder: &TempDir, name: &str) -> (File, FileMap) {
    let path = folder.path().join(name);
    fs::write(&path, vec![7; SIZE]).unwrap();
    let map = FileMap::new(&open(&path).unwrap()).unwrap();
    (File::options().write(true).open(&path).unwrap(), map)
}

fn sum(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| usize::from(*byte)).sum()
}

/// Without the guard, each of these would kill the process.
#[test]
fn a_file_that_is_truncated_is_an_error() {
    guard::install().unwrap();
    let folder = tempdir().unwrap();
    let (file, map) = mapped(&folder, "truncated");
    let (_other, whole) = mapped(&folder, "whole");
    assert_eq!(sum(&map), 7 * SIZE);
    file.set_len(0x3000).unwrap();
    assert!(
        map.check_intact().is_ok(),
        "nothing that is lost was read yet"
    );
    assert_eq!(sum(&map[..0x3000]), 7 * 0x3000);
    assert_eq!(map[SIZE - 1], 0);
    let said = map.check_intact().unwrap_err().to_string();
    assert!(said.contains("truncated while it was read"), "{said}");
    assert_eq!(sum(&map), 7 * 0x3000);
    assert_eq!(sum(&whole), 7 * SIZE);
    whole.check_intact().unwrap();
}

/// Many threads, in lost pages and others; and maps that come and go meanwhile.
#[test]
fn threads_fault_at_once() {
    guard::install().unwrap();
    let folder = tempdir().unwrap();
    for round in 0..20 {
        let (file, map) = mapped(&folder, &format!("file{round}"));
        let map = Arc::new(map);
        file.set_len(0x5000).unwrap();
        let readers = [0, 1, 2, 3].map(|reader| {
            let (map, folder) = (
                Arc::clone(&map),
                folder.path().join(format!("{round}-{reader}")),
            );
            thread::spawn(move || {
                fs::write(&folder, vec![1; SIZE]).unwrap();
                let own = FileMap::new(&open(&folder).unwrap()).unwrap();
                assert_eq!(sum(&map), 7 * 0x5000);
                map.check_intact().unwrap_err();
                assert_eq!(sum(&own), SIZE);
                own.check_intact().unwrap();
            })
        });
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    }
}

/// The slot of an old map does not apply to a new one at its address.
#[test]
fn a_loss_is_of_one_map() {
    guard::install().unwrap();
    let folder = tempdir().unwrap();
    for round in 0..8 {
        let (file, map) = mapped(&folder, &format!("lost{round}"));
        file.set_len(0).unwrap();
        assert_eq!(sum(&map), 0);
        map.check_intact().unwrap_err();
        drop(map);
        let (_file, map) = mapped(&folder, &format!("kept{round}"));
        assert_eq!(sum(&map), 7 * SIZE);
        map.check_intact().unwrap();
    }
}

#[test]
fn an_output_takes_its_place_as_a_whole() {
    let folder = tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "old").unwrap();
    symlink("file", &link).unwrap();
    let old = fs::metadata(&file).unwrap();
    check_writable(&link).unwrap();
    let failed = replace(&link, None, |mut file| {
        file.write_all(b"half")?;
        Err::<(), _>(io::Error::other("no more"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no more");
    assert_eq!(fs::read(&file).unwrap(), b"old");
    let mode = Some(fs::Permissions::from_mode(0o640));
    replace(&link, mode, |mut file| file.write_all(b"new")).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert!(link.is_symlink());
    let new = fs::metadata(&file).unwrap();
    assert_ne!(new.ino(), old.ino());
    assert_eq!(new.permissions().mode() & 0o7777, 0o640);
    append(&link).unwrap().write_all(b" and more").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new and more");
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "nothing is left behind"
    );
}

/// Like a full disk: `/dev/full`, and a file size limit.
#[test]
fn an_output_that_does_not_fit_leaves_nothing() {
    let written = replace(Path::new("/dev/full"), None, |mut file| {
        file.write_all(b"new")
    });
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
    let folder = tempdir().unwrap();
    for path in ["missing/file", ".", "..", "", "file/"] {
        assert!(
            check_writable(&folder.path().join(path)).is_err() || path == "file/",
            "{path}"
        );
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn links_are_followed_as_the_kernel_does() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    symlink("a/b", at("relative")).unwrap();
    symlink(at("a"), at("absolute")).unwrap();
    symlink("../c", at("a/b/up")).unwrap();
    symlink("circle", at("circle")).unwrap();
    let write = |path: &str| replace(&at(path), None, |mut file| file.write_all(path.as_bytes()));
    for (path, real) in [
        ("relative/x", "a/b/x"),
        ("absolute/b/../y", "a/y"),
        ("absolute/b/up", "a/c"),
        ("a/./b//z", "a/b/z"),
    ] {
        write(path).unwrap();
        assert_eq!(fs::read_to_string(at(real)).unwrap(), path);
    }
    assert_eq!(
        write("circle").unwrap_err().raw_os_error(),
        Some(libc::ELOOP)
    );
    assert_eq!(
        write("a/y/z").unwrap_err().kind(),
        io::ErrorKind::NotADirectory
    );
}

#[test]
fn pipes_are_written_to_if_somebody_reads() {
    let folder = tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    command("mkfifo").arg(&fifo).succeed();
    let write = || replace(&fifo, None, |mut file| file.write_all(b"through"));
    let refused = write().unwrap_err().to_string();
    assert_eq!(refused, "a pipe that nobody reads: start its reader first");
    let mut reader = command("cat")
        .arg(&fifo)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while write().is_err() {
        thread::yield_now();
    }
    let mut read = String::new();
    reader
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut read)
        .unwrap();
    assert_eq!(read, "through");
    assert!(reader.wait().unwrap().success());
}

#[test]
fn an_old_file_is_moved_and_only_the_owner_reads_the_new() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("unspool.prof");
    let old = folder.path().join("unspool.prof.old");
    for (round, moved) in [(1, false), (2, true), (3, true)] {
        let (mut file, created) = create(&path).unwrap();
        write!(file, "{round}").unwrap();
        assert_eq!(created.backup_path(), moved.then_some(&*old));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), round.to_string());
        if moved {
            assert_eq!(fs::read_to_string(&old).unwrap(), (round - 1).to_string());
        }
    }
}

#[test]
fn failed_writes_are_removed() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("unspool.prof");
    create(&path).unwrap().1.undo().unwrap();
    assert!(!path.exists());
    fs::write(&path, "good").unwrap();
    let (mut file, created) = create(&path).unwrap();
    write!(file, "nothing").unwrap();
    created.undo().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "good");
    let old = path.with_file_name("unspool.prof.old");
    assert!(!old.exists());
    // The one before that stays, too, and nothing else is left.
    fs::write(&old, "better").unwrap();
    let created = create(&path).unwrap().1;
    assert_eq!(fs::read_to_string(&old).unwrap(), "good");
    created.undo().unwrap();
    assert_eq!(fs::read_to_string(&old).unwrap(), "better");
    drop(create(&path).unwrap());
    assert_eq!(fs::read_to_string(&old).unwrap(), "good");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// Another process may write to the same path.
#[test]
fn a_renamed_file_is_found() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("unspool.prof");
    let (first, second) = (create(&path).unwrap().1, create(&path).unwrap().1);
    assert_eq!(first.current_path(), second.backup_path().unwrap());
    assert_eq!(second.current_path(), path);
}

#[test]
fn a_device_stays_where_it_is() {
    let folder = tempdir().unwrap();
    let link = folder.path().join("null");
    symlink("/dev/null", &link).unwrap();
    let (_, created) = create(&link).unwrap();
    assert!(created.backup_path().is_none());
    created.undo().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(create(folder.path()).is_err(), "a folder is no file");
}

#[test]
fn a_link_to_a_file_is_moved_and_its_target_is_left_alone() {
    let folder = tempdir().unwrap();
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &link).unwrap();
    write!(create(&link).unwrap().0, "new").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(fs::read_to_string(&link).unwrap(), "new");
}

/// A dangling link is never followed.
#[test]
fn a_dangling_link_is_moved() {
    let folder = tempdir().unwrap();
    let link = folder.path().join("link");
    symlink(folder.path().join("nowhere"), &link).unwrap();
    assert!(create(&link).unwrap().1.backup_path().is_some());
    assert!(!folder.path().join("nowhere").exists());
}
