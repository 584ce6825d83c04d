//! Caches: trust, room, and others who write to them at the same time. The tests of
//! `unspool-table-store` have the rest.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use tempfile::{TempDir, tempdir};
use unspool_files::raw::{RawFile, effective_user};
use unspool_files::{
    CacheEntry, CacheError, CacheErrorReason, CacheFolder, RemovedFiles, open_trusted,
};
use unspool_testing::{set_age, set_mode};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The user `nobody`.
const STRANGER: u32 = 65534;

fn cache(folder: &TempDir) -> CacheFolder {
    CacheFolder::new(folder.path().join("caches/ours"), |name| {
        name.starts_with("entry")
    })
}

fn names(cache: &CacheFolder) -> Vec<String> {
    let entries = cache.entries().unwrap();
    let name = |entry: CacheEntry| entry.path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.into_iter().map(name).collect()
}

/// A removal in a folder that others can write to could remove what they have put in its place.
#[test]
fn a_folder_of_others_is_neither_read_nor_cleaned() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder);
    let below = cache.subfolder("below", |_| true);
    let kept = [cache.write("entry", b"1"), below.write("any", b"22")].map(Result::unwrap);
    let is_refused = |path: &Path| {
        for refused in [
            below.entries().map(drop),
            below.remove_all().map(drop),
            below.open("any").map(drop),
            below.write("more", b"").map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(
                matches!(error.reason, CacheErrorReason::Untrusted { .. }),
                "{error}"
            );
            assert_eq!(error.path, path);
        }
    };
    for open in [cache.path(), below.path()] {
        set_mode(&open, 0o770);
        is_refused(&open);
        set_mode(&open, 0o700);
        if effective_user() == 0 {
            chown(&open, Some(STRANGER), None).unwrap();
            is_refused(&open);
            chown(&open, Some(0), None).unwrap();
        }
    }
    assert!(kept.iter().all(|path| path.exists()));
    let removed = |count, bytes| RemovedFiles { count, bytes };
    assert_eq!(below.remove_all().unwrap(), removed(1, 2));
    assert_eq!(cache.remove_all().unwrap(), removed(1, 1));
}

/// Each folder on the way counts, and what a link leads to.
#[test]
fn a_trusted_path_is_trusted_in_all_its_parts() {
    let folder = tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), "x").unwrap();
    symlink("a", root.join("link")).unwrap();
    let open = |path: &str| open_trusted(root, Path::new(path));
    for path in ["a/b/file", "link/b/file"] {
        let file = open(path).unwrap().unwrap();
        assert_eq!(
            (file.path(), file.read(1).unwrap()),
            (&*root.join(path), b"x".to_vec())
        );
        let larger = file.read(0).unwrap_err();
        assert!(
            matches!(larger.reason, CacheErrorReason::TooLarge { .. }),
            "{larger}"
        );
    }
    for missing in ["a/c/file", "a/b/other", "a/b/file/file"] {
        assert!(open(missing).unwrap().is_none(), "{missing}");
    }
    assert!(matches!(
        open("a/b").unwrap_err().reason,
        CacheErrorReason::NotRegular
    ));
    for (part, path) in [
        ("a", "a/b/file"),
        ("a/b", "link/b/file"),
        ("a/b/file", "a/b/file"),
    ] {
        set_mode(&root.join(part), 0o722);
        let error = open(path).unwrap_err();
        assert!(
            matches!(error.reason, CacheErrorReason::Untrusted { .. }),
            "{error}"
        );
        set_mode(&root.join(part), 0o700);
    }
    assert!(open("link/b/file").unwrap().is_some());
}

#[test]
fn folders_are_made_but_no_home() {
    let folder = tempdir().unwrap();
    let home = folder.path().join("home");
    let below = CacheFolder::new(home.join(".cache/ours"), |_| true).subfolder("below", |_| true);
    let error = below.write("file", b"").unwrap_err();
    assert_eq!(error.path, home.join(".cache"));
    assert!(!home.exists());
    fs::create_dir(&home).unwrap();
    below.check_writable().unwrap();
    for made in [".cache", ".cache/ours", ".cache/ours/below"] {
        let mode = fs::metadata(home.join(made)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o700, "{made}");
    }
    assert_eq!(names(&below), [""; 0]);
    for in_the_way in ["a file", "a dangling link"] {
        let place = home.join(".cache/ours");
        fs::remove_dir_all(home.join(".cache")).unwrap();
        fs::create_dir(home.join(".cache")).unwrap();
        match in_the_way {
            "a file" => fs::write(&place, "file").unwrap(),
            _ => symlink("nowhere", &place).unwrap(),
        }
        let error = below.write("file", b"").unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{}: not a directory", place.display()),
            "{in_the_way}"
        );
        assert!(below.open("file").unwrap().is_none());
    }
}

/// Files of root would be in the user's way. `sudo` can keep the user's `HOME`. Needs root.
#[test]
fn root_makes_no_cache_in_the_home_of_another_user() {
    if effective_user() != 0 {
        return;
    }
    let home = tempdir().unwrap();
    chown(&home, Some(STRANGER), None).unwrap();
    let cache = CacheFolder::new(home.path().join(".cache/ours"), |_| true);
    let error = cache.write("file", b"").unwrap_err().to_string();
    let expected = "no cache is made in a folder of user 65534; set XDG_CACHE_HOME to one of yours";
    assert_eq!(error, format!("{}: {expected}", home.path().display()));
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
}

/// Without `/proc`, and where it is root's: in a process that may not be dumped.
#[test]
fn a_process_with_less_of_proc_opens_files_and_keeps_some() {
    const FOLDER: &str = "UNSPOOL_TEST_FOLDER";
    let in_process = |folder: &Path| {
        let cache = CacheFolder::new(folder.join("ours"), |_| true);
        let path = cache.write("file", b"x").unwrap();
        assert_eq!(cache.open("file").unwrap().unwrap().read(1).unwrap(), b"x");
        assert_eq!(unspool_files::read(&path, 1).unwrap(), b"x");
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        assert!(RawFile::open(&path).is_some());
    };
    match std::env::var_os(FOLDER) {
        Some(folder) if effective_user() == 0 => {
            rustix::process::chroot(folder).unwrap();
            assert!(!Path::new("/proc").exists());
            in_process(Path::new("/"));
        }
        Some(folder) => {
            let behavior = rustix::process::DumpableBehavior::NotDumpable;
            rustix::process::set_dumpable_behavior(behavior).unwrap();
            assert_eq!(fs::metadata("/proc/self/fd").unwrap().uid(), 0);
            in_process(Path::new(&folder));
        }
        None => {
            let users = [STRANGER, 0].into_iter().filter(|_| effective_user() == 0);
            for user in users.map(Some).chain([None]) {
                let folder = tempdir().unwrap();
                chown(&folder, user, None).unwrap();
                let mut child = Command::new("/proc/self/exe");
                child.env(FOLDER, folder.path()).arg("--exact");
                child.arg("caches::a_process_with_less_of_proc_opens_files_and_keeps_some");
                user.map(|user| child.uid(user));
                let output = child.output().unwrap();
                assert!(output.status.success(), "{output:?}");
            }
        }
    }
}

/// A file that is being written is no entry: nobody lists, counts or evicts it.
#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder).with_limit(10);
    let written = cache.write_with("entry1", 8, |file| {
        file.write_all(&[1; 8]).unwrap();
        assert_eq!(names(&cache), [""; 0]);
        // That makes room: the limit is for both.
        cache.write("entry2", &[2; 8])?;
        assert_eq!(cache.remove_all()?.count, 1);
        Ok::<_, CacheError>(())
    });
    assert_eq!(fs::read(written.unwrap()).unwrap(), [1; 8]);
    assert_eq!(names(&cache), ["entry1"]);
}

/// Other files and folders stay, whatever their names, and so do targets of links.
#[test]
fn only_the_files_of_a_cache_are_listed_and_removed() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder).with_limit(10);
    cache.write("entry1", &[1; 8]).unwrap();
    let others: [&[u8]; 4] = [b"notes", b"\xff\xfe", b"\n entry", b"\x1b[2J"];
    let others = others.map(|name| cache.path().join(OsStr::from_bytes(name)));
    others
        .iter()
        .for_each(|other| fs::write(other, [0; 100]).unwrap());
    let place = cache.path().join("entry-folder");
    fs::create_dir(&place).unwrap();
    fs::write(folder.path().join("precious"), "precious").unwrap();
    symlink("../../precious", cache.path().join("entry-link")).unwrap();
    cache.link("entry-nowhere", "entry1").unwrap();
    assert_eq!(names(&cache), ["entry1"]);

    // Nothing makes room for what cannot be there, or is there.
    let larger = cache.write("entry2", &[0; 11]).unwrap_err().to_string();
    assert!(
        larger.ends_with("/entry2: a file of 11 bytes; the cache is limited to 10"),
        "{larger}"
    );
    assert_eq!(cache.write("entry-folder", b"").unwrap_err().path, place);
    assert_eq!(cache.open("entry-folder").unwrap_err().path, place);
    cache.write("entry1", &[1; 10]).unwrap();
    assert_eq!(names(&cache), ["entry1"]);
    // The least recently used file makes room, and its link goes with it.
    cache.write("entry2", &[2; 10]).unwrap();
    assert_eq!(names(&cache), ["entry2"]);
    let is_there = |name: &str| cache.path().join(name).is_symlink();
    assert!(is_there("entry-link") && !is_there("entry-nowhere"));
    let removed = RemovedFiles {
        count: 1,
        bytes: 10,
    };
    assert_eq!(cache.remove_all().unwrap(), removed);
    assert!(!is_there("entry-link"));
    assert_eq!(
        fs::read_dir(cache.path()).unwrap().count(),
        others.len() + 1
    );
    assert!(folder.path().join("precious").exists());
}

/// Reading a file does not count as use: backups and searches do that.
#[test]
fn the_least_recently_used_files_make_room() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder).with_limit(40);
    for (number, hours) in [(1, 40), (2, 70), (3, 50), (4, 60)] {
        let path = cache.write(&format!("entry{number}"), &[0; 10]).unwrap();
        set_age(&path, HOUR * hours);
    }
    let path = |name: &str| cache.path().join(name);
    let read = File::options().write(true).open(path("entry2")).unwrap();
    let times = fs::FileTimes::new().set_accessed(SystemTime::now());
    read.set_times(times).unwrap();
    cache.write("entry5", &[0; 10]).unwrap();
    assert_eq!(names(&cache), ["entry1", "entry3", "entry4", "entry5"]);
    cache.write("entry6", &[0; 11]).unwrap();
    assert_eq!(names(&cache), ["entry1", "entry5", "entry6"]);
    // Not noted again within the day: that would write to the disk at every look-up.
    for (hours, is_noted) in [(12, false), (40 * 24, true)] {
        set_age(&path("entry1"), HOUR * hours);
        cache.open("entry1").unwrap().unwrap().note_use();
        let used = fs::metadata(path("entry1")).unwrap().modified().unwrap();
        assert_eq!(used.elapsed().unwrap_or_default() < HOUR, is_noted);
    }
}

/// A file that another process has evicted first is no error.
#[test]
fn several_make_room_at_the_same_time() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder).with_limit(100);
    thread::scope(|scope| {
        for writer in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for number in 0..200 {
                    let name = format!("entry{writer}-{number}");
                    cache.write(&name, &[0; 9]).unwrap();
                }
            });
        }
    });
    cache.write("entry", b"").unwrap();
    let total: u64 = cache
        .entries()
        .unwrap()
        .iter()
        .map(|entry| entry.size)
        .sum();
    assert!(total <= 100, "{total}");
}

/// Whatever its size and the cache's limit: a killed download left it.
#[test]
fn leftovers_are_removed_after_an_hour() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder);
    cache.write("entry", b"").unwrap();
    let leftover = |name: &str, age| {
        let path = cache.path().join(name);
        fs::write(&path, "half").unwrap();
        set_age(&path, age);
        path
    };
    let old = ["entry.0123456789abcdef.tmp", "entry.17.0.tmp", "entry.17.1"];
    let old = old.map(|name| leftover(name, 2 * HOUR));
    let new = leftover("entry.1123456789abcdef.tmp", HOUR / 2);
    let others = leftover("notes.0123456789abcdef.tmp", 2 * HOUR);
    cache.write("entry", b"").unwrap();
    assert!(old.iter().all(|path| !path.exists()), "{old:?}");
    assert!(new.exists() && others.exists());
}

#[test]
fn several_may_clean_at_the_same_time() {
    let folder = tempdir().unwrap();
    let cache = cache(&folder);
    for number in 0..100 {
        cache.write(&format!("entry{number}"), &[0; 10]).unwrap();
    }
    let removed = thread::scope(|scope| {
        let cleaning = [(); 4].map(|()| scope.spawn(|| cache.remove_all().unwrap()));
        cleaning.map(|thread| thread.join().unwrap())
    });
    let sum = removed.map(|removed| removed.count).iter().sum::<usize>();
    assert_eq!(sum, 100, "each file is counted once: {removed:?}");
}
