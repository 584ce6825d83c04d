//! Names compared with those from addr2line and nm of binutils; and the files that they come from.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{PROGRAM, binutils, compile, compile_cxx, directory};
use unspool_elf::{BuildId, ContentKey, ElfFile, SearchRoots, demangle};
use unspool_rows::Vaddr;
use unspool_symbols::{
    AddressName, AddressNames, InlineFrameRef, LookupEvent, ModuleFinder, ModuleIdentity,
    ModuleNames, ModuleSource, NameCache, NameDetail, SymbolProblem, SymbolRequest, Symbolizer,
};
use unspool_testing::hex;

/// Finds only the files that a test creates.
fn finder(root: &Path) -> ModuleFinder {
    ModuleFinder::new(SearchRoots {
        roots: vec![root.to_path_buf()],
        debuginfod_cache: Some(root.join("downloads")),
        perf_cache: Some(root.join("perf")),
    })
}

fn identity(path: &Path, build_id: Option<BuildId>) -> ModuleIdentity {
    ModuleIdentity {
        path: path.to_path_buf(),
        content: build_id.map(ContentKey::BuildId),
        root: None,
    }
}

fn look_up(symbolizer: &Symbolizer, module: ModuleSource, addresses: &[u64]) -> AddressNames {
    symbolizer.look_up(vec![SymbolRequest {
        module,
        addresses: addresses.iter().copied().map(Vaddr).collect(),
    }])
}

/// Every address of the functions that nm lists with a size.
fn all_addresses(path: &Path) -> Vec<u64> {
    let listed = binutils("nm", ["-S", "--defined-only", path.to_str().unwrap()]);
    let functions = listed.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [start, size, "t" | "T" | "W", _] = words[..] else {
            return None;
        };
        Some(hex(start)..hex(start) + hex(size))
    });
    functions.flatten().collect()
}

/// The output of addr2line for an address, frame by frame: the name and the source location.
fn addr2line(path: &Path, addresses: &[u64]) -> Vec<Vec<(String, String)>> {
    let list = addresses.iter().fold(String::new(), |mut list, address| {
        writeln!(list, "{address:#x}").unwrap();
        list
    });
    let file = path.with_extension("addresses");
    fs::write(&file, list).unwrap();
    let argument = format!("@{}", file.display());
    let text = binutils(
        "addr2line",
        ["-aif", "-e", path.to_str().unwrap(), &argument],
    );
    let mut found: Vec<Vec<(String, String)>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            found.push(Vec::new());
        } else {
            let place = lines.next().unwrap().split(" (disc").next().unwrap();
            let frame = (demangle(line).into_owned(), place.to_owned());
            found.last_mut().unwrap().push(frame);
        }
    }
    assert_eq!(found.len(), addresses.len());
    found
}

fn printed(frame: InlineFrameRef<'_>) -> (String, String) {
    let line = frame.line.map_or("?".into(), |line| line.to_string());
    let place = format!("{}:{line}", frame.file.unwrap_or("??"));
    (frame.function.unwrap_or("??").to_owned(), place)
}

fn frames(name: AddressName<'_>) -> Vec<(String, String)> {
    name.frames().map(printed).collect()
}

/// C++ of many files, in which functions are inlined into each other.
fn many_files(directory: &Path) -> PathBuf {
    const FILES: usize = 24;
    let mut objects = Vec::new();
    for file in 0..FILES {
        let mut source = "volatile long sink;\n".to_owned();
        for function in 0..8 {
            write!(
                source,
                "namespace n{file} {{ template <class T> [[gnu::always_inline]] inline T inner{function}(T x) {{\n\
                 sink += x;\n return x * {function} + sink;\n}}\n\
                 [[gnu::always_inline]] inline long middle{function}(long x) {{\n return inner{function}<long>(x)\n + inner{function}<int>(x);\n}}\n\
                 [[gnu::noinline]] long outer{function}(long x) {{\n long y = middle{function}(x);\n return y + middle{function}(y + sink);\n}} }}\n",
            )
            .unwrap();
        }
        // One symbol named `sink` for each file.
        let source = source.replacen("volatile", "static volatile", 1);
        let name = format!("part{file}.o");
        let object = compile_cxx(directory, &name, &source, &["-c", "-g", "-O1"]);
        objects.push(object.to_str().unwrap().to_owned());
    }
    let mut arguments: Vec<&str> = objects.iter().map(String::as_str).collect();
    arguments.push("-Wl,--build-id=sha1");
    compile(
        directory,
        "many",
        "int main(void) { return 0; }",
        &arguments,
    )
}

#[test]
fn all_addresses_of_a_big_module_in_parts() {
    let directory = directory("many_files");
    let path = many_files(&directory);
    let addresses = all_addresses(&path);
    assert!(addresses.len() > 5000, "{} are one part", addresses.len());
    let expected = addr2line(&path, &addresses);
    let module = || ModuleSource::Identity(identity(&path, None));
    let symbolizer = Symbolizer::new(finder(&directory), NameDetail::Lines);
    let names = look_up(&symbolizer.clone().with_threads(4), module(), &addresses);
    let module_names = names.module(0).unwrap();
    assert!(
        module_names.problems().is_empty(),
        "{:?}",
        module_names.problems()
    );
    let mut deepest = 0;
    for (address, expected) in addresses.iter().zip(&expected) {
        let found = frames(module_names.get(Vaddr(*address)).unwrap());
        // The compiler's own startup code has only a symbol.
        if expected[0].1 != "??:?" && expected[0].1 != "??:0" {
            assert_eq!(&found, expected, "at {address:#x}");
            deepest = deepest.max(found.len());
        }
    }
    assert_eq!(deepest, 3);
    // In one part, and reversed, it is the same.
    let backwards: Vec<u64> = addresses.iter().rev().copied().collect();
    let one = look_up(&symbolizer.with_threads(1), module(), &backwards);
    for address in &addresses {
        let (a, b) = (names.get(0, Vaddr(*address)), one.get(0, Vaddr(*address)));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!((frames(a), a.symbol), (frames(b), b.symbol));
    }
}

#[test]
fn files_without_debug_information_use_symbols() {
    let directory = directory("symbols_only");
    let path = compile(&directory, "program", PROGRAM, &["-O1"]);
    let listed = binutils("nm", ["-S", path.to_str().unwrap()]);
    let names = look_up(
        &Symbolizer::new(finder(&directory), NameDetail::Lines),
        ModuleSource::Identity(identity(&path, None)),
        &all_addresses(&path),
    );
    for function in ["outer", "local", "main"] {
        let line = listed
            .lines()
            .find(|line| line.ends_with(&format!(" {function}")));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        let (start, size) = (hex(words[0]), hex(words[1]));
        let name = names.get(0, Vaddr(start + size - 1)).unwrap();
        let symbol = name.symbol.unwrap();
        assert_eq!(
            (symbol.name, symbol.address.0, symbol.size),
            (function, start, size)
        );
        assert_eq!(frames(name), [(function.to_owned(), "??:?".to_owned())]);
        assert_eq!(name.debug_frames().len(), 0);
    }
    assert!(names.get(0, Vaddr(1)).is_none(), "it was not asked for");
}

#[test]
fn only_functions_if_no_more_is_asked_for() {
    let directory = directory("functions");
    let path = compile(&directory, "program", PROGRAM, &["-O1", "-g"]);
    let addresses = all_addresses(&path);
    let symbolizer = Symbolizer::new(finder(&directory), NameDetail::Functions);
    let names = look_up(
        &symbolizer,
        ModuleSource::Identity(identity(&path, None)),
        &addresses,
    );
    let names = names.module(0).unwrap();
    for address in addresses {
        let name = names.get(Vaddr(address)).unwrap();
        assert_eq!(name.debug_frames().len(), 0);
        assert!(name.symbol.is_some(), "at {address:#x}");
    }
}

/// A program with build ID, with and without symbols, and its debug file.
struct Stripped {
    directory: PathBuf,
    whole: PathBuf,
    stripped: PathBuf,
    debug: PathBuf,
    id: BuildId,
    /// An address in `local`, which has no dynamic symbol.
    local: u64,
}

fn strip(test: &str) -> Stripped {
    let directory = directory(test);
    let files = crate::common::strip(&directory);
    let file = ElfFile::open(&files.whole).unwrap();
    let local = file.symbols().named("local").next().unwrap().address.0;
    let id = file.build_id().unwrap();
    Stripped {
        directory,
        whole: files.whole,
        stripped: files.stripped,
        debug: files.debug,
        id,
        local,
    }
}

/// Whether `local` has its name and line.
fn is_whole(names: &ModuleNames, stripped: &Stripped) -> bool {
    let name = names.get(Vaddr(stripped.local));
    name.is_some_and(|name| frames(name) == addr2line(&stripped.whole, &[stripped.local])[0])
}

fn find(stripped: &Stripped, root: &Path, module: ModuleIdentity) -> ModuleNames {
    let symbolizer = Symbolizer::new(finder(root), NameDetail::Lines);
    let request = SymbolRequest {
        module: ModuleSource::Identity(module),
        addresses: vec![Vaddr(stripped.local)],
    };
    let names = symbolizer.look_up(vec![request]);
    names.into_modules().pop().unwrap()
}

/// Puts a copy where caches and distributions have it.
fn put(from: &Path, place: &Path) {
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(from, place).unwrap();
}

#[test]
fn the_file_is_found_where_a_build_id_tells() {
    let program = strip("by_id");
    let gone = program.directory.join("gone");
    let digits = program.id.to_string();
    let (first, rest) = digits.split_at(2);
    for (number, (place, file)) in [
        (format!("downloads/{digits}/executable"), &program.whole),
        (format!("downloads/{digits}/debuginfo"), &program.debug),
        (format!("perf/.build-id/{first}/{rest}/elf"), &program.whole),
        (
            format!("perf/.build-id/{first}/{rest}/debug"),
            &program.debug,
        ),
        (
            format!("usr/lib/debug/.build-id/{first}/{rest}.debug"),
            &program.debug,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let root = program.directory.join(format!("root{number}"));
        put(file, &root.join(&place));
        let names = find(&program, &root, identity(&gone, Some(program.id)));
        assert!(
            is_whole(&names, &program),
            "{place}: {:?}",
            names.problems()
        );
        // Without a build ID nothing proves that this is the file.
        let names = find(&program, &root, identity(&gone, None));
        assert!(names.get(Vaddr(program.local)).is_none());
        assert!(matches!(names.problems(), [SymbolProblem::NotFound { .. }]));
        // A stripped file is found: its debug file is beside it.
        if file == &program.debug {
            let names = find(&program, &root, identity(&program.stripped, None));
            assert!(
                is_whole(&names, &program),
                "{place}: {:?}",
                names.problems()
            );
        }
    }
}

#[test]
fn under_another_root_and_where_a_deleted_file_was() {
    let program = strip("other_root");
    let root = program.directory.join("container");
    put(&program.whole, &root.join("opt/program"));
    let inside = |path: &str, build_id: Option<BuildId>| ModuleIdentity {
        path: PathBuf::from(path),
        content: build_id.map(ContentKey::BuildId),
        root: Some(root.clone()),
    };
    let empty = program.directory.join("empty");
    for (module, expected) in [
        (inside("/opt/program", None), true),
        (inside("/opt/program (deleted)", Some(program.id)), true),
        // It could be another file by now.
        (inside("/opt/program (deleted)", None), false),
        // The root of an exited process: ours has the same file.
        (
            inside(program.whole.to_str().unwrap(), Some(program.id)),
            true,
        ),
        (inside(program.whole.to_str().unwrap(), None), false),
    ] {
        let names = find(&program, &empty, module.clone());
        assert_eq!(is_whole(&names, &program), expected, "{module:?}");
    }
    // Its debug file is looked up there.
    fs::copy(&program.stripped, root.join("opt/program")).unwrap();
    let digits = program.id.to_string();
    let place = format!(
        "usr/lib/debug/.build-id/{}/{}.debug",
        &digits[..2],
        &digits[2..]
    );
    put(&program.debug, &root.join(place));
    let names = find(&program, &empty, inside("/opt/program", None));
    assert!(is_whole(&names, &program), "{:?}", names.problems());
}

#[test]
fn a_file_of_another_build_is_never_used() {
    let program = strip("other_build");
    let other = compile(
        &program.directory,
        "other",
        "int main(void) { return 0; }",
        &["-g"],
    );
    let names = find(
        &program,
        &program.directory,
        identity(&other, Some(program.id)),
    );
    let [
        SymbolProblem::OtherBuild { file, expected, .. },
        SymbolProblem::NotFound { .. },
    ] = names.problems()
    else {
        panic!("{:?}", names.problems());
    };
    assert_eq!((file, **expected), (&other, program.id));
    assert!(names.get(Vaddr(program.local)).is_none());
    // A file without a build ID is not used either.
    let without = compile(
        &program.directory,
        "without",
        PROGRAM,
        &["-Wl,--build-id=none"],
    );
    let names = find(
        &program,
        &program.directory,
        identity(&without, Some(program.id)),
    );
    let [SymbolProblem::OtherBuild { found: None, .. }, _] = names.problems() else {
        panic!("{:?}", names.problems());
    };
}

#[test]
fn problems_are_reported_once() {
    let program = strip("problems");
    let addresses: Vec<u64> = (program.local..program.local + 40).collect();
    let symbolizer = Symbolizer::new(finder(&program.directory), NameDetail::Lines);
    let stripped = ModuleSource::Identity(identity(&program.stripped, None));
    let names = look_up(&symbolizer, stripped, &addresses);
    let [
        SymbolProblem::Stripped {
            unnamed: 40,
            addresses: 40,
            ..
        },
    ] = names.modules()[0].problems()
    else {
        panic!("{:?}", names.modules()[0].problems());
    };
    // Debug information truncated within an entry.
    let broken = program.directory.join("broken");
    let sections = binutils("readelf", ["-SW", program.whole.to_str().unwrap()]);
    let header = sections
        .lines()
        .find(|line| line.contains(" .debug_info "))
        .unwrap();
    let words: Vec<&str> = header
        .split(']')
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    let at = usize::try_from(hex(words[3])).unwrap();
    let mut bytes = fs::read(&program.whole).unwrap();
    bytes[at + 64..at + 120].fill(0xff);
    fs::write(&broken, bytes).unwrap();
    let names = look_up(
        &symbolizer,
        ModuleSource::Identity(identity(&broken, None)),
        &addresses,
    );
    let problems = names.modules()[0].problems();
    let [SymbolProblem::DebugInfo { addresses: 40, .. }] = problems else {
        panic!("{problems:?}");
    };
    // The symbols are still used.
    let name = names.get(0, Vaddr(program.local)).unwrap();
    assert_eq!(name.symbol.unwrap().name, "local");
}

#[test]
fn the_vdso_has_names() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("[vdso]"));
    let symbolizer = Symbolizer::new(ModuleFinder::default(), NameDetail::Functions);
    let names = look_up(
        &symbolizer,
        ModuleSource::Identity(identity(Path::new("[vdso]"), None)),
        &[],
    );
    let file = Arc::clone(names.module(0).unwrap().file().unwrap());
    let symbol = file.symbols().named("__vdso_clock_gettime").next();
    let address = symbol.unwrap().address;
    let names = look_up(
        &symbolizer,
        ModuleSource::Open { file, root: None },
        &[address.0],
    );
    let name = names.get(0, address).unwrap().symbol.unwrap();
    assert!(name.name.ends_with("clock_gettime"), "{}", name.name);
}

#[test]
fn progress_ends_when_all_is_done() {
    let program = strip("progress");
    let request = |path: &str| SymbolRequest {
        module: ModuleSource::Identity(identity(Path::new(path), None)),
        // One of them twice.
        addresses: (0..1000).chain([5]).map(Vaddr).collect(),
    };
    let (calls, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let symbolizer = Symbolizer::new(finder(&program.directory), NameDetail::Lines);
    let requests = vec![
        request("/nowhere"),
        request(program.whole.to_str().unwrap()),
    ];
    let names = symbolizer.look_up_with(requests, &|event| {
        let LookupEvent::Addresses { done, all } = event else {
            panic!("{event:?}");
        };
        assert_eq!(all, 2002);
        calls.fetch_add(1, Ordering::Relaxed);
        most.fetch_max(done, Ordering::Relaxed);
    });
    assert_eq!(most.into_inner(), 2002);
    assert!(calls.into_inner() > 2);
    assert_eq!(names.modules().len(), 2);
}

/// Waits until results for a file that was just written can be cached.
fn settle(path: &Path) {
    while ElfFile::open(path).unwrap().stamp().is_none() {
        std::thread::yield_now();
    }
}

/// Changes a text in the only file of a cache, as if it were a lookup's result.
fn forge(cache: &Path, from: &str, to: &str) {
    let file = fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    bytes.truncate(bytes.len() - 4);
    let found = bytes
        .windows(from.len())
        .position(|window| window == from.as_bytes());
    let at = found.unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

#[test]
fn names_are_kept_for_as_long_as_the_files_are_the_same() {
    let program = strip("kept");
    let cache = program.directory.join("cache");
    let symbolizer = Symbolizer::new(finder(&program.directory), NameDetail::Lines)
        .with_cache(Some(NameCache::new(cache.clone())));
    let path = program.directory.join("copy");
    fs::copy(&program.whole, &path).unwrap();
    let look_up_at = |addresses: &[u64]| {
        look_up(
            &symbolizer,
            ModuleSource::Identity(identity(&path, None)),
            addresses,
        )
    };
    let local = |names: &AddressNames| {
        let name = names.get(0, Vaddr(program.local)).unwrap();
        name.symbol.unwrap().name.to_owned()
    };
    settle(&path);
    look_up_at(&[program.local]);
    forge(&cache, "local", "LOCAL");
    // Cached names are used, and missing ones are looked up.
    let all = all_addresses(&program.whole);
    let names = look_up_at(&all);
    assert_eq!(local(&names), "LOCAL");
    let expected = addr2line(&program.whole, &all);
    for (address, mut expected) in all.iter().zip(expected) {
        let found = frames(names.get(0, Vaddr(*address)).unwrap());
        // The function has one name, whichever of its addresses was cached.
        let outermost = expected.last_mut().filter(|(name, _)| name == "local");
        if let Some((name, _)) = outermost {
            *name = "LOCAL".to_owned();
        }
        if *address != program.local && !expected[0].1.starts_with("??") {
            assert_eq!(found, expected, "at {address:#x}");
        }
    }
    // All of it is cached by then.
    assert_eq!(local(&look_up_at(&[program.local])), "LOCAL");
    // The same bytes, but that is unknown.
    fs::remove_file(&path).unwrap();
    fs::copy(&program.whole, &path).unwrap();
    assert_eq!(local(&look_up_at(&[program.local])), "local");
}

#[test]
fn nothing_is_kept_of_a_module_with_a_problem() {
    let program = strip("not_kept");
    let cache = program.directory.join("cache");
    let symbolizer = Symbolizer::new(finder(&program.directory), NameDetail::Lines)
        .with_cache(Some(NameCache::new(cache.clone())));
    let stripped = || ModuleSource::Identity(identity(&program.stripped, None));
    let names = look_up(&symbolizer, stripped(), &[program.local]);
    assert!(matches!(
        names.modules()[0].problems(),
        [SymbolProblem::Stripped { .. }]
    ));
    assert!(!cache.exists());
    // Its debug file is installed later.
    let digits = program.id.to_string();
    let place = format!("downloads/{digits}/debuginfo");
    let place = program.directory.join(place);
    put(&program.debug, &place);
    settle(&place);
    let names = look_up(&symbolizer, stripped(), &[program.local]);
    assert!(is_whole(names.module(0).unwrap(), &program));
    let kept = fs::read_dir(&cache).unwrap().next().unwrap().unwrap();
    assert!(kept.file_name().to_str().unwrap().starts_with(&digits));
}
