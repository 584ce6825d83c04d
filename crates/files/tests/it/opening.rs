//! Opening files: special ones, and files below other roots.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use tempfile::tempdir;
use unspool_files::raw::{RawFile, decimal};
use unspool_files::{metadata, open, open_input, open_no_link, read};
use unspool_testing::command;

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn raw_text(file: Option<RawFile>) -> Option<Vec<u8>> {
    Some(file?.map()?.bytes().to_vec())
}

/// The kernel tells who opens a FIFO. Opening a device may do something: some reset, or wait.
#[test]
fn special_files_are_not_even_opened() {
    let folder = tempdir().unwrap();
    let (fifo, link) = (folder.path().join("fifo"), folder.path().join("link"));
    assert!(command("mkfifo").arg(&fifo).status().unwrap().success());
    symlink("fifo", &link).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let is_opened = || rustix::io::read(&watch, &mut [0; 256]).is_ok();
    for path in [&fifo, &link] {
        assert_eq!(open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            read(path, 9).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(RawFile::open(&c_string(path)).is_none());
        assert!(!metadata(path).unwrap().is_file());
        assert!(!is_opened());
    }
    let both = File::options().read(true).write(true).open(&fifo).unwrap();
    assert!(is_opened(), "the kernel tells");
    drop(both);
    assert!(RawFile::open(c"/dev/zero").is_none());
}

#[test]
fn a_file_is_read_to_its_limit() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "12345").unwrap();
    assert_eq!(read(&path, 5).unwrap(), b"12345");
    assert_eq!(
        read(&path, 4).unwrap_err().kind(),
        io::ErrorKind::FileTooLarge
    );
    let file = || RawFile::open(&c_string(&path)).unwrap();
    assert_eq!(file().copy().unwrap().bytes(), b"12345");
    let mut bytes = [0; 3];
    assert_eq!(file().read_at(3, &mut bytes), Some(2));
    assert_eq!(file().read_exact_at(2, &mut bytes), Some(()));
    assert_eq!(&bytes, b"345");
    assert_eq!(file().read_exact_at(3, &mut bytes), None);
    for number in [0, 7, 10, 4_294_967_295_u32] {
        let digits = number.to_string();
        assert_eq!(decimal(number, &mut [0; 10]), digits.as_bytes());
    }
}

/// Files in another root, and links there: what `chroot` finds, and nothing outside.
#[test]
fn links_of_another_root_stay_in_it() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("root/etc")).unwrap();
    fs::create_dir_all(at("outside")).unwrap();
    fs::write(at("root/etc/file"), "inside").unwrap();
    fs::write(at("outside/secret"), "outside").unwrap();
    let absolute = |name: &str| at(name).to_str().unwrap().to_owned();
    let links: [(&str, &str, Option<&str>); 6] = [
        ("absolute", "/etc/file", Some("inside")),
        ("up", "../../../../etc/file", Some("inside")),
        ("loop", "loop", None),
        ("out", &absolute("outside/secret"), None),
        ("above", "../outside/secret", None),
        ("proc", "/proc/self/root/etc/passwd", None),
    ];
    let folders = [("folder", "/etc"), ("out-folder", &absolute("outside"))];
    for (name, target) in links
        .iter()
        .map(|(name, target, _)| (*name, *target))
        .chain(folders)
    {
        symlink(target, at("root").join(name)).unwrap();
    }
    let root = File::open(at("root")).unwrap();
    let root = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
    let more = [
        ("etc/file", Some("inside")),
        ("folder/file", Some("inside")),
        ("out-folder/secret", None),
        ("../outside/secret", None),
        ("../../etc/file", Some("inside")),
    ];
    let links = links.iter().map(|(name, _, expected)| (*name, *expected));
    for (name, expected) in links.chain(more) {
        let path = root.join(name);
        let found = open(&path).and_then(io::read_to_string).ok();
        assert_eq!(found.as_deref(), expected, "{name}");
        let found = open_input(&path).is_ok();
        assert_eq!(found, expected.is_some(), "{name}");
        assert_eq!(metadata(&path).is_ok(), expected.is_some(), "{name}");
        let found = RawFile::open_in_root(&c_string(&root), &c_string(Path::new(name)));
        assert_eq!(
            raw_text(found).as_deref(),
            expected.map(str::as_bytes),
            "{name}"
        );
    }
    // The last link is not followed, earlier ones are.
    assert!(open_no_link(&root.join("absolute")).is_err());
    let mut text = String::new();
    let mut file = open_no_link(&root.join("folder/file")).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "inside");
}
