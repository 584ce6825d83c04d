//! Opening files: special ones, and files below other roots.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, inotify, renameat_with};
use rustix::process::geteuid;
use rustix::thread::{Uid, set_thread_res_uid};
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

/// Whether a file has been opened since the last call.
fn watch_opening(path: &Path) -> impl Fn() -> bool {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).unwrap();
    move || rustix::io::read(&watch, &mut [0; 256]).is_ok()
}

/// The kernel tells who opens a FIFO. Opening a device may do something: some reset, or wait.
#[test]
fn special_files_are_not_even_opened() {
    let folder = tempdir().unwrap();
    let (fifo, link) = (folder.path().join("fifo"), folder.path().join("link"));
    assert!(command("mkfifo").arg(&fifo).status().unwrap().success());
    symlink("fifo", &link).unwrap();
    let is_opened = watch_opening(&fifo);
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

/// A file that cannot be read, and a FIFO that takes its place at any moment.
#[test]
fn a_path_that_changes_leads_to_no_fifo() {
    let folder = tempdir().unwrap();
    let (path, fifo) = (folder.path().join("path"), folder.path().join("fifo"));
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    fs::write(&path, "").unwrap();
    assert!(command("mkfifo").arg(&fifo).status().unwrap().success());
    set_mode(folder.path(), 0o755).unwrap();
    set_mode(&path, 0).unwrap();
    set_mode(&fifo, 0o666).unwrap();
    let is_opened = watch_opening(&fifo);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &path, CWD, &fifo, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let opener = scope.spawn(|| {
            // Root can read the file. Only this thread becomes another user.
            let nobody = Uid::from_raw(65534);
            if geteuid().is_root() {
                set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            for _ in 0..20_000 {
                assert!(open(&path).is_err());
                assert!(RawFile::open(&c_string(&path)).is_none());
            }
        });
        let opened = opener.join();
        is_over.store(true, Ordering::Relaxed);
        opened.unwrap();
    });
    assert!(!is_opened());
}

/// Others can truncate their files at any time.
#[test]
fn files_of_others_are_copied() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    for (mode, after) in [(0o600, "1x345"), (0o622, "12345")] {
        fs::write(&path, "12345").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let map = RawFile::open(&c_string(&path))
            .unwrap()
            .map_or_copy()
            .unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        writer.write_at(b"x", 1).unwrap();
        assert_eq!(str::from_utf8(map.bytes()), Ok(after), "{mode:o}");
    }
    let sparse = File::options().write(true).open(&path).unwrap();
    sparse.set_len((1 << 30) + 1).unwrap();
    assert!(
        RawFile::open(&c_string(&path))
            .unwrap()
            .map_or_copy()
            .is_none()
    );
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
