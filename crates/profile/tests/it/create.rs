//! Where a recording goes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use unspool_profile::{create, take_back};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn an_old_file_is_moved_and_only_the_owner_reads_the_new() {
    let path = folder("create-old").join("unspool.prof");
    for (round, moved) in [(1, false), (2, true), (3, true)] {
        let mut created = create(&path).unwrap();
        write!(created.file, "{round}").unwrap();
        let old = path.with_file_name("unspool.prof.old");
        assert_eq!(created.moved_to, moved.then_some(old.clone()));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), round.to_string());
        if moved {
            assert_eq!(fs::read_to_string(old).unwrap(), (round - 1).to_string());
        }
    }
}

#[test]
fn what_came_to_nothing_is_taken_back() {
    let path = folder("create-back").join("unspool.prof");
    let created = create(&path).unwrap();
    take_back(&path, created.moved_to.as_deref()).unwrap();
    assert!(!path.exists());
    fs::write(&path, "good").unwrap();
    let mut created = create(&path).unwrap();
    write!(created.file, "nothing").unwrap();
    take_back(&path, created.moved_to.as_deref()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "good");
    assert!(!path.with_file_name("unspool.prof.old").exists());
}

#[test]
fn a_device_stays_where_it_is() {
    let folder = folder("create-device");
    let link = folder.join("null");
    symlink("/dev/null", &link).unwrap();
    assert!(create(&link).unwrap().moved_to.is_none());
    take_back(&link, None).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(create(&folder).is_err(), "a folder is no file");
}

#[test]
fn a_link_to_a_file_is_moved_and_its_target_is_left_alone() {
    let folder = folder("create-link");
    let (target, link) = (folder.join("target"), folder.join("link"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &link).unwrap();
    write!(create(&link).unwrap().file, "new").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(fs::read_to_string(&link).unwrap(), "new");
}

/// A link that leads nowhere is followed by nobody.
#[test]
fn a_dangling_link_is_moved() {
    let folder = folder("create-dangling");
    let link = folder.join("link");
    symlink(folder.join("nowhere"), &link).unwrap();
    assert!(create(&link).unwrap().moved_to.is_some());
    assert!(!folder.join("nowhere").exists());
}
