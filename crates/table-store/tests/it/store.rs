//! Finding and keeping tables: the order of the folders, the trust in a file's owner, and
//! concurrent writers and readers. The folder of packaged tables is tested beside the code.
//!
//! Run by root, these tests also give files to another user; other users cannot.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use unspool_elf::{ElfFile, TableKey, embed};
use unspool_table_store::{
    self as tables, NativeObject, Store, StoreError, TableBytes, TableOrigin, TableSource,
};
use unspool_testing::{Finish as _, await_that, run_tool, set_age, set_mode, tool};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The user `nobody`, who is neither root nor the user that runs the tests.
const STRANGER: u32 = 65534;

/// A folder for one test alone, with a library and its table; removed unless the test fails.
struct StoreFixture {
    folder: PathBuf,
    file: ElfFile,
    table: Vec<u8>,
}

impl StoreFixture {
    fn new() -> StoreFixture {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("store-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        make_folder(&folder);
        let file = library(&folder, "library.so", &["-Wl,--build-id=sha1"]);
        let made = tables::compile(&file, TableSource::Auto).unwrap();
        StoreFixture {
            folder,
            file,
            table: made.encoded.bytes,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The store with the cache `cache/unspool`.
    fn store(&self) -> Store {
        self.store_with_path(&[])
    }

    /// The same, with these folders searched before it.
    fn store_with_path(&self, path: &[&str]) -> Store {
        let path = std::env::join_paths(path.iter().map(|name| self.at(name))).unwrap();
        let cache = OsString::from(self.at("cache"));
        Store::new(Some(path), Some(cache), Some("/nowhere".into()))
    }

    /// The file of the module's table in a folder.
    fn place(&self, folder: &str) -> PathBuf {
        let name = format!("{}.unspool", self.file.table_key().unwrap());
        self.at(folder).join(name)
    }

    /// Puts bytes at the path of the module's table.
    fn put(&self, folder: &str, bytes: &[u8]) -> PathBuf {
        if !self.at(folder).exists() {
            make_folder(&self.at(folder));
        }
        let path = self.place(folder);
        write(&path, bytes);
        path
    }

    /// The table with a mark: bytes after the table's end are not part of it.
    fn marked(&self, mark: u8) -> Vec<u8> {
        [self.table.as_slice(), &[mark; 7]].concat()
    }
}

impl Drop for StoreFixture {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Under any umask, nobody else can write into it.
fn make_folder(path: &Path) {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).unwrap();
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    set_mode(path, 0o600);
}

fn age(path: &Path) -> Duration {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    modified.elapsed().unwrap_or_default()
}

fn is_root() -> bool {
    run_tool("id", &["-u"]).out == "0\n"
}

fn library(folder: &Path, name: &str, options: &[&str]) -> ElfFile {
    let (source, path) = (folder.join("library.c"), folder.join(name));
    fs::write(&source, "int answer(void) { return 42; }").unwrap();
    let files = ["-o", path.to_str().unwrap(), source.to_str().unwrap()];
    let arguments = [&["-shared", "-fPIC", "-nostdlib"], &files[..], options].concat();
    tool("gcc").args(arguments).succeed();
    ElfFile::open(path).unwrap()
}

/// A store's results: the bytes with their origin, and the notices.
fn find(store: &Store, file: &ElfFile) -> (Option<(Vec<u8>, TableOrigin)>, Vec<String>) {
    let mut notices = Vec::new();
    let found = store.find(file, &mut notices);
    let found = found.map(|(bytes, place)| {
        let bytes = match bytes {
            TableBytes::Mapped(map) => map.to_vec(),
            TableBytes::Memory(bytes) => bytes,
            TableBytes::Embedded => Vec::new(),
        };
        (bytes, place)
    });
    let notices = notices.iter().map(ToString::to_string).collect();
    (found, notices)
}

/// Asserts that the table is found at a path, with these bytes, and without notices.
fn assert_found(store: &Store, file: &ElfFile, path: PathBuf, bytes: &[u8]) {
    let expected = Some((bytes.to_vec(), TableOrigin::File(path)));
    assert_eq!(find(store, file), (expected, Vec::new()));
}

fn assert_nothing_found(store: &Store, file: &ElfFile) {
    assert_eq!(find(store, file), (None, Vec::new()));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// A file without build ID that differs from others in its last byte.
fn numbered(byte: u8) -> ElfFile {
    let mut header = [0; 65];
    header[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    header[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    header[52] = 64; // e_ehsize
    header[64] = byte;
    ElfFile::from_bytes("numbered", header.to_vec()).unwrap()
}

fn hash(byte: u8) -> TableKey {
    numbered(byte).table_key().unwrap()
}

fn stored_names(store: &Store) -> Vec<String> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let stored = store.list().unwrap();
    stored.iter().map(|table| name(&table.path)).collect()
}

// The order.

#[test]
fn the_file_itself_comes_first_then_the_path_then_the_cache() {
    let world = StoreFixture::new();
    let store = world.store_with_path(&["first", "second"]);
    let elf = embed(&world.file, tables::EMBEDDED_SECTION, &world.table, 64).unwrap();
    fs::write(world.at("embedded.so"), elf).unwrap();
    let embedded = ElfFile::open(world.at("embedded.so")).unwrap();
    assert_eq!(embedded.build_id(), world.file.build_id());

    let first = world.put("first", &world.marked(1));
    let second = world.put("second", &world.marked(2));
    let cached = store.keep(&world.file, &world.marked(3)).unwrap();
    assert_eq!(cached, world.place("cache/unspool"));

    let own = Some((Vec::new(), TableOrigin::Embedded));
    assert_eq!(find(&store, &embedded), (own, Vec::new()));
    for (mark, path) in [(1, first), (2, second), (3, cached)] {
        assert_found(&store, &world.file, path.clone(), &world.marked(mark));
        fs::remove_file(path).unwrap();
    }
    assert_nothing_found(&store, &world.file);
}

#[test]
fn a_stale_table_in_the_file_itself_is_named_and_the_next_place_is_tried() {
    let world = StoreFixture::new();
    let other = library(&world.folder, "other.so", &["-Wl,--build-id=0x1234"]);
    let others = tables::compile(&other, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    let mut old = world.table.clone();
    old[8] = 99;
    for (table, why) in [
        (old, "version 99 of compiled tables is not supported"),
        (others, "the table of another module"),
    ] {
        let elf = embed(&world.file, tables::EMBEDDED_SECTION, &table, 64).unwrap();
        let path = world.at("embedded.so");
        fs::write(&path, elf).unwrap();
        let embedded = ElfFile::open(&path).unwrap();
        let own = tables::compile(&embedded, TableSource::Auto)
            .unwrap()
            .encoded
            .bytes;
        let cached = world.store().keep(&embedded, &own).unwrap();
        let (found, notices) = find(&world.store(), &embedded);
        assert_eq!(found, Some((own, TableOrigin::File(cached))));
        assert_eq!(notices.len(), 1, "{notices:?}");
        let expected = format!("{}: {why}", path.display());
        assert!(notices[0].starts_with(&expected), "{notices:?}");
    }
}

#[test]
fn without_a_place_nothing_is_kept() {
    let cache = |cache_home: &str| Store::new(None, Some(cache_home.into()), Some("home".into()));
    assert_eq!(cache("/a").cache_folder(), Some("/a/unspool".into()));
    let none = cache("relative");
    for result in [
        none.keep(&numbered(1), b"").map(drop),
        none.list().map(drop),
    ] {
        assert!(matches!(result, Err(StoreError::NoCache)), "{result:?}");
    }
}

// Writing.

/// Writers constantly replace a table by others of other lengths. Each reader maps a whole one.
#[test]
fn several_writers_and_readers_see_whole_tables() {
    let world = StoreFixture::new();
    let versions: Vec<Vec<u8>> = (1..=4_u8)
        .map(|mark| {
            let filler = vec![mark; 30_000 * usize::from(mark)];
            [world.table.as_slice(), &filler].concat()
        })
        .collect();
    let (file, ends) = (&world.file, AtomicBool::new(false));
    let store = world.store();
    store.keep(file, &versions[0]).unwrap();
    thread::scope(|scope| {
        for version in &versions {
            let (store, ends) = (&store, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    store.keep(file, version).unwrap();
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    (0..300)
                        .map(|_| find(&store, &world.file))
                        .find(|(found, notices)| {
                            let is_whole =
                                |(bytes, _): &(Vec<u8>, TableOrigin)| versions.contains(bytes);
                            !found.as_ref().is_some_and(is_whole) || !notices.is_empty()
                        })
                })
            })
            .collect();
        let bad: Vec<_> = readers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        ends.store(true, Ordering::Relaxed);
        for bad in bad {
            let bad = bad
                .unwrap()
                .map(|(found, notices)| (found.map(|f| f.0.len()), notices));
            assert_eq!(bad, None, "length and notices of what is not whole");
        }
    });
    assert_eq!(stored_names(&world.store()).len(), 1);
    assert_eq!(names(&world.at("cache/unspool")).len(), 2, "and its link");
}

/// A mapped table stays unchanged when another replaces it.
#[test]
fn a_table_in_use_is_replaced_and_not_overwritten() {
    let world = StoreFixture::new();
    let store = world.store();
    store.keep(&world.file, &world.marked(1)).unwrap();
    let (held, _) = store.find(&world.file, &mut Vec::new()).unwrap();
    store.keep(&world.file, &world.table).unwrap();
    let TableBytes::Mapped(map) = held else {
        panic!("{held:?}")
    };
    assert_eq!(map.to_vec(), world.marked(1));
    store.clean().unwrap();
    assert_eq!(map.to_vec(), world.marked(1));
}

// Trust.

/// Each way in which others could have written a file or its folder.
#[derive(Debug, Clone, Copy)]
enum Flaw {
    Mode { of_folder: bool, mode: u32 },
    Owner { of_folder: bool },
}

fn flaws() -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for of_folder in [false, true] {
        for mode in [0o720, 0o702, 0o777] {
            flaws.push(Flaw::Mode { of_folder, mode });
        }
        if is_root() {
            flaws.push(Flaw::Owner { of_folder });
        }
    }
    flaws
}

impl Flaw {
    /// Creates the flaw; yields the flawed path, and the rest of the notice.
    fn make(self, folder: &Path, file: &Path) -> (PathBuf, String) {
        let (of_folder, owner, mode) = match self {
            Flaw::Mode { of_folder, mode } => (of_folder, None, mode),
            Flaw::Owner { of_folder } => (of_folder, Some(STRANGER), 0o700),
        };
        let path = if of_folder { folder } else { file };
        set_mode(path, mode);
        chown(path, owner, None).unwrap();
        let owner = fs::metadata(path).unwrap().uid();
        let text = format!(
            "{}: not trusted: owned by user {owner}, mode {mode:o}; it must belong to you or root \
             (chown) and be writable by nobody else (chmod go-w)",
            path.display()
        );
        (path.to_path_buf(), text)
    }
}

#[test]
fn files_writable_by_others_are_rejected_and_the_next_folder_is_tried() {
    for place in ["first", "cache/unspool"] {
        for flaw in flaws() {
            let world = StoreFixture::new();
            let store = world.store_with_path(&["first"]);
            let flawed = world.put(place, &world.marked(1));
            let (_, notice) = flaw.make(&world.at(place), &flawed);
            let next = (place == "first").then(|| world.put("cache/unspool", &world.marked(2)));
            let expected = next.map(|next| (world.marked(2), TableOrigin::File(next)));
            let found = find(&store, &world.file);
            assert_eq!(found, (expected, vec![notice]), "{place} {flaw:?}");
        }
    }
}

#[test]
fn nothing_is_written_into_a_folder_that_others_could_write_into() {
    for flaw in flaws() {
        let world = StoreFixture::new();
        let folder = world.at("cache/unspool");
        let cached = world.put("cache/unspool", &world.marked(1));
        let (path, notice) = flaw.make(&folder, &cached);
        let kept = world.store().keep(&world.file, &world.table);
        if path == folder {
            assert_eq!(kept.unwrap_err().to_string(), notice, "{flaw:?}");
            assert_eq!(fs::read(&cached).unwrap(), world.marked(1));
            let cleaned = world.store().clean();
            assert_eq!(cleaned.unwrap_err().to_string(), notice, "{flaw:?}");
            assert!(cached.exists());
        } else {
            // An untrusted file is replaced.
            assert_eq!(kept.unwrap(), cached, "{flaw:?}");
            assert_found(&world.store(), &world.file, cached, &world.table);
        }
    }
}

// Machine code.

/// The machine code that a store finds, and the notices.
fn find_native(store: &Store, file: &ElfFile) -> (Option<Vec<u8>>, Vec<String>) {
    let mut notices = Vec::new();
    let found = store.find_native(file, &mut notices);
    let notices = notices.iter().map(ToString::to_string).collect();
    (found.map(|object| object.bytes().to_vec()), notices)
}

/// The machine code of a file's table, kept in the world's cache.
fn keep_native(fixture: &StoreFixture, file: &ElfFile) -> (PathBuf, Vec<u8>) {
    let object = NativeObject::from_file(file, &tables::own_key(file)).unwrap();
    let path = fixture.store().keep_native(file, &object).unwrap();
    (path, object.bytes().to_vec())
}

#[test]
fn machine_code_that_others_could_have_written_is_refused() {
    for flaw in flaws() {
        let world = StoreFixture::new();
        let (path, bytes) = keep_native(&world, &world.file);
        let found = find_native(&world.store(), &world.file);
        assert_eq!(found, (Some(bytes), Vec::new()));
        let (_, notice) = flaw.make(&world.at("cache/unspool"), &path);
        let found = find_native(&world.store(), &world.file);
        assert_eq!(found, (None, vec![notice]), "{flaw:?}");
    }
}

#[test]
fn machine_code_that_was_changed_is_refused() {
    let world = StoreFixture::new();
    let (path, bytes) = keep_native(&world, &world.file);
    // Headers, notes, digest, index, code, and the gaps between.
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        write(&path, &changed);
        let (found, notices) = find_native(&world.store(), &world.file);
        assert_eq!((found, notices.len()), (None, 1), "byte {at:#x}");
        let end = "; another is made";
        assert!(notices[0].ends_with(end), "byte {at:#x}: {notices:?}");
    }
    for length in [0, 1, 63, 64, 4096, bytes.len() - 1] {
        write(&path, &bytes[..length.min(bytes.len() - 1)]);
        let (found, notices) = find_native(&world.store(), &world.file);
        assert_eq!((found, notices.len()), (None, 1), "{length} bytes");
    }
    write(&path, &[&bytes[..], b"more"].concat());
    assert_eq!(find_native(&world.store(), &world.file).0, None);
}

#[test]
fn machine_code_of_another_module_is_refused() {
    let world = StoreFixture::new();
    let other = library(&world.folder, "other.so", &["-Wl,--build-id=0x1234"]);
    let (path, _) = keep_native(&world, &world.file);
    let (_, bytes) = keep_native(&world, &other);
    write(&path, &bytes);
    let notice = format!("{}: the table of another module", path.display());
    let found = find_native(&world.store(), &world.file);
    assert_eq!(found, (None, vec![notice]));
}

/// All modules are searched in the same folders.
#[test]
fn one_notice_about_a_folder_is_enough() {
    let world = StoreFixture::new();
    let other = library(&world.folder, "other.so", &["-Wl,--build-id=0x1234"]);
    make_folder(&world.at("first"));
    set_mode(&world.at("first"), 0o777);
    let store = world.store_with_path(&["first"]);
    let mut notices = Vec::new();
    for file in [&world.file, &other, &world.file] {
        assert!(store.find(file, &mut notices).is_none());
    }
    assert_eq!(notices.len(), 1, "{notices:?}");
}

/// An ordinary user cannot search a folder of root's. Root can, and then only links in a circle are
/// tested.
#[test]
fn a_folder_out_of_reach_is_named_and_the_next_place_is_tried() {
    let world = StoreFixture::new();
    let cached = world.put("cache/unspool", &world.table);
    symlink(world.at("circle"), world.at("circle")).unwrap();
    world.put("closed", &world.marked(1));
    set_mode(&world.at("closed"), 0);
    let closed = if is_root() { "circle" } else { "closed" };
    for closed in ["circle", closed] {
        let store = world.store_with_path(&[closed]);
        let (found, notices) = find(&store, &world.file);
        let expected = TableOrigin::File(cached.clone());
        assert_eq!(found, Some((world.table.clone(), expected)));
        let start = format!("{}: ", world.at(closed).display());
        assert!(notices[0].starts_with(&start), "{notices:?}");
        assert_eq!(notices.len(), 1, "{notices:?}");
    }
    set_mode(&world.at("closed"), 0o700);
}

// Stale tables.

#[test]
fn a_stale_table_is_named_and_the_next_that_is_kept_replaces_it() {
    let world = StoreFixture::new();
    let other = library(&world.folder, "other.so", &["-Wl,--build-id=0x1234"]);
    let others = tables::compile(&other, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    let changed = |at: usize, byte: u8| {
        let mut bytes = world.table.clone();
        bytes[at] = byte;
        bytes
    };
    let cut = world.table.len() - 1;
    let cases: [(Vec<u8>, &str); 7] = [
        (
            changed(8, 99),
            "version 99 of compiled tables is not supported",
        ),
        (changed(9, 1), "version 2"),
        (world.table[..cut].to_vec(), "table is truncated: "),
        (world.table[..20].to_vec(), "table is truncated: 0x14 bytes"),
        (Vec::new(), "not a compiled unwind table"),
        (b"something else".to_vec(), "not a compiled unwind table"),
        (others, "the table of another module"),
    ];
    for (stale, why) in cases {
        let path = world.put("cache/unspool", &stale);
        let (found, notices) = find(&world.store(), &world.file);
        assert_eq!(found, None, "{why}");
        assert_eq!(notices.len(), 1, "{why}: {notices:?}");
        let expected = format!("{}: {why}", path.display());
        assert!(notices[0].starts_with(&expected), "{notices:?}");

        world.store().keep(&world.file, &world.table).unwrap();
        assert_found(&world.store(), &world.file, path, &world.table);
    }
    assert_eq!(stored_names(&world.store()).len(), 1);
    assert_eq!(names(&world.at("cache/unspool")).len(), 2, "and its link");
}

// Use.

#[test]
fn a_table_that_is_found_counts_as_used() {
    let world = StoreFixture::new();
    let store = world.store();
    let path = store.keep(&world.file, &world.table).unwrap();
    set_age(&path, 40 * DAY);
    assert!(find(&store, &world.file).0.is_some());
    assert!(age(&path) < DAY / 3, "{:?}", age(&path));
    let refused = store.with_cache_limit(1).keep(&world.file, &world.table);
    let text = refused.unwrap_err().to_string();
    assert!(text.ends_with("; the cache is limited to 1"), "{text}");
}

/// Tables that the user did not put into the cache are not touched.
#[test]
fn finding_a_table_elsewhere_changes_nothing_there() {
    let world = StoreFixture::new();
    let path = world.put("first", &world.table);
    set_age(&path, 40 * DAY);
    let store = world.store_with_path(&["first"]);
    assert_found(&store, &world.file, path.clone(), &world.table);
    assert!(age(&path) > 39 * DAY);
}

// Foreign files.

// Remembered keys.

/// A library without build ID, large enough for its key to be remembered.
fn large_library(fixture: &StoreFixture) -> PathBuf {
    let file = library(&fixture.folder, "large.so", &["-Wl,--build-id=none"]);
    assert_eq!(file.build_id(), None);
    let path = file.path().to_path_buf();
    let padded = File::options().write(true).open(&path).unwrap();
    padded.set_len(2 << 20).unwrap();
    path
}

/// The only remembered key.
fn key_file(fixture: &StoreFixture) -> Option<PathBuf> {
    let keys = fixture.at("cache/unspool/keys");
    let names = if keys.exists() {
        names(&keys)
    } else {
        Vec::new()
    };
    assert!(names.len() <= 1, "{names:?}");
    names.first().map(|name| keys.join(name))
}

/// The path of the table that the store finds for a file.
fn find_new(fixture: &StoreFixture, path: &Path) -> Option<PathBuf> {
    let store = fixture.store_with_path(&["first"]);
    match find(&store, &ElfFile::open(path).unwrap()) {
        (Some((_, TableOrigin::File(path))), _) => Some(path),
        (found, notices) => {
            assert_eq!(found, None, "{notices:?}");
            None
        }
    }
}

/// Writes another key for a file into the cache. The found table shows whether the store uses it:
/// only while the file is unchanged.
#[test]
fn a_remembered_key_is_used_until_the_file_changes() {
    let world = StoreFixture::new();
    let path = large_library(&world);
    let file = ElfFile::open(&path).unwrap();
    let table = tables::compile(&file, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    let key = file.table_key().unwrap();
    make_folder(&world.at("first"));
    let put = |key: &TableKey, table: &[u8]| {
        let path = world.at("first").join(format!("{key}.unspool"));
        write(&path, table);
        path
    };
    let own = put(&key, &table);
    // Not remembered at first: the file has just been written.
    await_that("the key to be remembered", || {
        assert_eq!(find_new(&world, &path), Some(own.clone()));
        key_file(&world).is_some()
    });
    let remembered = key_file(&world).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(
        (mode(&remembered), mode(remembered.parent().unwrap())),
        (0o600, 0o700)
    );
    assert_eq!(
        find_new(&world, &path),
        Some(own.clone()),
        "with the remembered key"
    );

    // Another key, with a table for that key.
    let other = hash(0x5a);
    let at = table
        .windows(20)
        .position(|bytes| bytes == key.content)
        .unwrap();
    let mut others = table.clone();
    others[at..at + 20].copy_from_slice(&other.content);
    let wrong = put(&other, &others);
    let line = fs::read_to_string(&remembered).unwrap();
    let lie = line.replace(&key.to_string(), &other.to_string());
    assert_ne!(line, lie);
    write(&remembered, lie.as_bytes());
    assert_eq!(
        find_new(&world, &path),
        Some(wrong.clone()),
        "it is believed"
    );

    // Not if others could have written it.
    for flawed in remembered.ancestors().take(3) {
        let mode = mode(flawed);
        set_mode(flawed, mode | 0o020);
        assert_eq!(
            find_new(&world, &path),
            Some(own.clone()),
            "{}",
            flawed.display()
        );
        set_mode(flawed, mode);
        write(&remembered, lie.as_bytes());
    }
    // Not if the line is malformed.
    for bad in [
        lie.trim_end(),
        &lie[1..],
        "",
        "garbage\n",
        &format!("{lie}\n"),
    ] {
        write(&remembered, bad.as_bytes());
        assert_eq!(find_new(&world, &path), Some(own.clone()), "{bad:?}");
    }
    // Not if a byte of the file changed, though its size and its time are the same.
    write(&remembered, lie.as_bytes());
    assert_eq!(find_new(&world, &path), Some(wrong));
    let changed = File::options().write(true).open(&path).unwrap();
    let modified = changed.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&changed, b"!", (2 << 20) - 1).unwrap();
    changed.set_modified(modified).unwrap();
    drop(changed);
    assert_eq!(find_new(&world, &path), None);
    let file = ElfFile::open(&path).unwrap();
    assert_ne!(file.table_key(), Some(key));
    let table = tables::compile(&file, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    let new = put(&file.table_key().unwrap(), &table);
    assert_eq!(find_new(&world, &path), Some(new));

    world.store().clean().unwrap();
    assert_eq!(key_file(&world), None);
}

#[test]
fn hashes_that_are_quick_to_get_or_not_certain_to_stay_are_not_remembered() {
    let world = StoreFixture::new();
    let small = library(&world.folder, "small.so", &["-Wl,--build-id=none"]);
    // Other writers can change it without a new time, through a shared mapping.
    let open = library(&world.folder, "open.so", &["-Wl,--build-id=0x99"]);
    let grown = File::options().write(true).open(open.path()).unwrap();
    grown.set_len(2 << 20).unwrap();
    set_mode(open.path(), 0o666);
    let open = ElfFile::open(open.path()).unwrap();
    // The last to change: once its key is remembered, the others' could be too.
    let large = large_library(&world);
    let image = ElfFile::from_bytes(&large, fs::read(&large).unwrap()).unwrap();
    await_that("the key to be remembered", || {
        for file in [&small, &image, &open] {
            assert_nothing_found(&world.store(), file);
            assert_eq!(key_file(&world), None);
        }
        assert_eq!(find_new(&world, &large), None);
        key_file(&world).is_some()
    });
}

// Files with the same build ID.

/// The file with another byte in its code, and the same build ID.
fn changed(fixture: &StoreFixture, name: &str, change: u8) -> PathBuf {
    let code = fixture.file.executable_ranges()[0].start;
    let at = fixture.file.offset_of_vaddr(code).unwrap();
    let mut bytes = fs::read(fixture.file.path()).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= change;
    let path = fixture.at(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn two_files_of_one_build_id_have_tables_side_by_side() {
    let world = StoreFixture::new();
    let other = ElfFile::open(changed(&world, "other.so", 1)).unwrap();
    assert_eq!(other.build_id(), world.file.build_id());
    let others = tables::compile(&other, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    assert_ne!(others, world.table);
    let store = world.store();
    let theirs = store.keep(&other, &others).unwrap();
    assert_nothing_found(&store, &world.file);
    let own = store.keep(&world.file, &world.table).unwrap();
    assert_found(&store, &world.file, own, &world.table);
    assert_found(&store, &other, theirs, &others);
    assert_eq!(stored_names(&store).len(), 2);
}

/// Bytes that change while a table is made: the key and the table belong to the same bytes.
#[test]
fn stored_tables_match_the_hashed_bytes() {
    let world = StoreFixture::new();
    let grow = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
    };
    let honest = changed(&world, "honest.so", 0);
    grow(&honest);
    let fresh = ElfFile::open(&honest).unwrap();
    let table = tables::compile(&fresh, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;

    let (store, path) = (world.store(), world.at("stranger.so"));
    fs::copy(&honest, &path).unwrap();
    let mapped = ElfFile::open(&path).unwrap();
    assert!(!mapped.is_private());
    let refused = store.keep(&mapped, &table).unwrap_err();
    assert!(
        matches!(refused, tables::StoreError::Changeable { .. }),
        "{refused}"
    );

    let stable = store.stable(&mapped);
    let code = world.file.executable_ranges()[0].start;
    let at = world.file.offset_of_vaddr(code).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xcc; 4], at).unwrap();
    let made = tables::compile(&stable, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    assert_eq!(made, table, "what was copied has not changed");
    let kept = store.keep(&stable, &made).unwrap();
    assert_found(&store, &ElfFile::open(&honest).unwrap(), kept, &table);
    assert_nothing_found(&store, &ElfFile::open(&path).unwrap());
}

/// A lookup by build ID only finds the table of a file of this system.
#[test]
fn a_build_id_leads_to_the_table_of_a_file_that_nobody_else_can_write_to() {
    let world = StoreFixture::new();
    let store = world.store();
    let link = world
        .at("cache/unspool")
        .join(format!("{}.unspool", world.file.build_id().unwrap()));
    let keep = |path: &Path| {
        let file = ElfFile::open(path).unwrap();
        let table = tables::compile(&file, TableSource::Auto)
            .unwrap()
            .encoded
            .bytes;
        store.keep(&file, &table).unwrap()
    };
    let other = changed(&world, "other.so", 1);
    set_mode(&other, 0o777);
    keep(&other);
    assert!(!link.exists(), "others can write to it");
    let own = keep(world.file.path());
    let target = || fs::canonicalize(&link).unwrap();
    assert_eq!(target(), own);
    set_mode(&other, 0o755);
    // As a process sees it in other mounts: its path leads to another file here.
    let foreign = ElfFile::from_file(world.file.path(), &File::open(&other).unwrap()).unwrap();
    let table = tables::compile(&foreign, TableSource::Auto)
        .unwrap()
        .encoded
        .bytes;
    store.keep(&foreign, &table).unwrap();
    assert_eq!(target(), own);
    // A dangling link is removed when a new table is kept.
    fs::remove_file(&own).unwrap();
    store.keep(&numbered(1), &[1; 9]).unwrap();
    assert!(fs::symlink_metadata(&link).is_err());
    keep(world.file.path());
    store.clean().unwrap();
    assert_eq!(names(&world.at("cache/unspool")), [""; 0]);
}

/// Whatever other users run and change, in any order, a file has the same table as with an empty
/// cache.
#[test]
fn no_order_of_files_of_one_build_id_gives_a_file_another_table() {
    let world = StoreFixture::new();
    let names = ["a.so", "b.so", "c.so"];
    let contents: Vec<Vec<u8>> = (0..4)
        .map(|change| {
            let mut content = fs::read(changed(&world, "content.so", change)).unwrap();
            content.resize(80 << 10, 0); // so that its hash is remembered
            content
        })
        .collect();
    let mut fresh = Vec::new();
    for content in &contents {
        let file = ElfFile::from_bytes("fresh", content.clone()).unwrap();
        fresh.push(
            tables::compile(&file, TableSource::Auto)
                .unwrap()
                .encoded
                .bytes,
        );
    }
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut at = [0; 3];
    let path = |place: usize| world.at(names[place]);
    for place in 0..names.len() {
        fs::write(path(place), &contents[0]).unwrap();
    }
    let mut found_tables = 0;
    for _ in 0..400 {
        let place = random(names.len());
        match random(4) {
            0 => {
                at[place] = random(contents.len());
                // In place or by renaming, as packages and compilers do.
                match random(2) {
                    0 => fs::write(path(place), &contents[at[place]]).unwrap(),
                    _ => {
                        fs::write(world.at("new"), &contents[at[place]]).unwrap();
                        fs::rename(world.at("new"), path(place)).unwrap();
                    }
                }
            }
            1 if random(20) == 0 => drop(world.store().clean().unwrap()),
            _ => {
                let (store, file) = (world.store(), ElfFile::open(path(place)).unwrap());
                let (found, notices) = find(&store, &file);
                assert_eq!(notices, [""; 0]);
                found_tables += usize::from(found.is_some());
                let table = match found {
                    Some((table, _)) => table,
                    None => {
                        let file = store.stable(&file);
                        let made = tables::compile(&file, TableSource::Auto)
                            .unwrap()
                            .encoded
                            .bytes;
                        store.keep(&file, &made).unwrap();
                        made
                    }
                };
                assert_eq!(table, fresh[at[place]]);
            }
        }
    }
    assert!(found_tables > 100, "{found_tables}");
}
