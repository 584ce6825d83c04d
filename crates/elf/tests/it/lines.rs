//! Lines and inlined functions, compared with addr2line of binutils; and the debug files that
//! contain them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{PROGRAM, binutils, compile, directory};
use unspool_elf::{DebugFiles, ElfFile, InlineFrame, Lines, ModuleError, SearchRoots};
use unspool_rows::Vaddr;
use unspool_testing::{Finish as _, set_mode, tool};

/// (function, file:line) of each frame, as addr2line prints them.
fn expected(path: &Path, addr: u64) -> Vec<(String, String)> {
    let text = binutils(
        "addr2line",
        [
            "-i",
            "-f",
            "-e",
            path.to_str().unwrap(),
            &format!("{addr:#x}"),
        ],
    );
    let lines: Vec<&str> = text.lines().collect();
    let place = |line: &str| line.split(" (discriminator").next().unwrap().to_owned();
    lines
        .chunks(2)
        .map(|pair| (pair[0].to_owned(), place(pair[1])))
        .collect()
}

fn printed(frames: &[InlineFrame]) -> Vec<(String, String)> {
    let unknown = || "??".to_owned();
    frames
        .iter()
        .map(|frame| {
            let file = frame.file.clone().unwrap_or_else(unknown);
            let line = frame.line.map_or("?".to_owned(), |line| line.to_string());
            (
                frame.function.clone().unwrap_or_else(unknown),
                format!("{file}:{line}"),
            )
        })
        .collect()
}

/// Every address of the functions of [`PROGRAM`] that `unstripped` has.
fn addresses(unstripped: &Path) -> Vec<u64> {
    addresses_of(unstripped, &["outer", "local", "main"])
}

fn addresses_of(path: &Path, functions: &[&str]) -> Vec<u64> {
    let file = ElfFile::open(path).unwrap();
    functions
        .iter()
        .flat_map(|name| file.symbols().named(name).collect::<Vec<_>>())
        .flat_map(|symbol| symbol.address.0..symbol.address.0 + symbol.size)
        .collect()
}

/// Compares all addresses in the functions of `unstripped` with our results from `path`.
fn check(unstripped: &Path, path: &Path, files: &DebugFiles) {
    let addresses = addresses(unstripped);
    let known: Vec<Vaddr> = addresses.iter().copied().map(Vaddr).collect();
    let lines = Lines::new(Arc::new(ElfFile::open(path).unwrap()), files, &known);
    let mut inlined = 0;
    for addr in addresses {
        let frames = printed(&lines.frames(Vaddr(addr)).unwrap());
        assert_eq!(frames, expected(unstripped, addr), "at {addr:#x}");
        inlined += usize::from(frames.len() > 1);
    }
    assert!(inlined > 0);
    assert!(lines.problems().is_empty());
    assert_eq!(lines.frames(Vaddr(0)).unwrap(), []);
}

#[test]
fn every_address_of_a_program() {
    let dir = directory("every_address_of_a_program");
    for (name, arguments) in [
        ("dwarf4", &["-gdwarf-4"][..]),
        ("dwarf5", &["-gdwarf-5", "-O1"]),
        ("compressed", &["-g", "-gz"]),
        ("fixed", &["-g", "-no-pie", "-ffunction-sections"]),
    ] {
        let path = compile(&dir, name, PROGRAM, arguments);
        check(&path, &path, &DebugFiles::default());
    }
}

/// Addresses in units that were not announced are found too. So are names in other units: the
/// inlined function is described in the first unit, its copy in the unit of the link.
#[test]
fn a_part_of_the_units() {
    let dir = directory("a_part_of_the_units");
    let functions = ["outer", "main", "other"];
    let source = "int puts(const char *);\nint doubled(int n) { return puts(\"y\") * n; }\n\
                  __attribute__((noinline)) int other(int n)\n{\n  return doubled(n) + 1;\n}\n";
    fs::write(dir.join("other.c"), source).unwrap();
    let program = PROGRAM.replace("abs(", "other(");
    let other = dir.join("other.c");
    for (name, arguments) in [
        ("dwarf4", &["-gdwarf-4", "-O1"][..]),
        ("dwarf5", &["-g", "-O2"]),
        ("link", &["-g", "-O2", "-flto", "-flto-partition=none"]),
    ] {
        let arguments = [arguments, &[other.to_str().unwrap()]].concat();
        let path = compile(&dir, name, &program, &arguments);
        let module = Arc::new(ElfFile::open(&path).unwrap());
        let all = addresses_of(&path, &functions);
        assert!(all.len() > 30);
        // The addr2line of binutils 2.40 takes file names from the wrong unit.
        let numbers = |frames: Vec<(String, String)>| -> Vec<(String, String)> {
            let number = |place: String| place.rsplit(':').next().unwrap().to_owned();
            let frame = |(function, place)| (function, number(place));
            frames.into_iter().map(frame).collect()
        };
        let expected: Vec<_> = all
            .iter()
            .map(|addr| numbers(expected(&path, *addr)))
            .collect();
        for announced in functions {
            let announced = Vaddr(addresses_of(&path, &[announced])[0]);
            let lines = Lines::new(module.clone(), &DebugFiles::default(), &[announced]);
            for (addr, expected) in all.iter().zip(&expected) {
                let found = printed(&lines.frames(Vaddr(*addr)).unwrap());
                assert_eq!(numbers(found), *expected, "{name} at {addr:#x}");
            }
        }
    }
}

/// A function's name is in another unit, and the entry contains the form of the reference
/// (`DW_FORM_indirect`). No compiler writes this.
#[test]
fn an_indirect_reference_to_another_unit() {
    let dir = directory("an_indirect_reference");
    let source = include_str!("indirect_reference.c");
    let path = compile(&dir, "program", source, &["-no-pie"]);
    let module = Arc::new(ElfFile::open(&path).unwrap());
    let main = module.symbols().named("main").next().unwrap().address;
    for announced in [&[][..], &[main]] {
        let lines = Lines::new(module.clone(), &DebugFiles::default(), announced);
        let frames = lines.frames(main).unwrap();
        assert_eq!(frames[0].function.as_deref(), Some("in_another_unit"));
    }
}

/// Compares the functions and the innermost lines of `split` with those of `whole`, the same
/// program without split debug information; returns whether there were functions.
fn check_split(split: &Path, whole: &Path, lines: &Lines) -> bool {
    let mut functions = false;
    for addr in addresses(split) {
        let found = printed(&lines.frames(Vaddr(addr)).unwrap());
        let wanted = expected(whole, addr);
        let place = found[0].1.replace("/program.c:", "/whole.c:");
        assert_eq!(place, wanted[0].1);
        let names = |frames: &[(String, String)]| {
            frames
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        functions = names(&found) != ["??"];
        assert!(!functions || names(&found) == names(&wanted), "{found:?}");
    }
    functions
}

#[test]
fn split_debug_information() {
    // The dwp of binutils 2.40 only makes packages of DWARF 4.
    for (version, packs) in [("-gdwarf-4", true), ("-gdwarf-5", false)] {
        let dir = directory("split_debug_information");
        let path = compile(&dir, "program", PROGRAM, &["-gsplit-dwarf", version]);
        let whole = compile(&dir, "whole", PROGRAM, &[version]);
        assert_eq!(addresses(&path), addresses(&whole));
        let is_object = |path: &PathBuf| path.extension().is_some_and(|e| e == "dwo");
        let mut entries = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let object = entries.find(is_object).unwrap();
        let open = || {
            Lines::new(
                Arc::new(ElfFile::open(&path).unwrap()),
                &DebugFiles::default(),
                &[],
            )
        };

        let lines = open();
        assert!(check_split(&path, &whole, &lines));
        assert!(lines.problems().is_empty(), "{:?}", lines.problems());

        // Somebody else could have written the part of the program that is there.
        set_mode(&object, 0o646);
        let lines = open();
        assert!(!check_split(&path, &whole, &lines));
        let problem = lines.problems()[0].to_string();
        assert!(
            problem.contains(".dwo: not used: users can write to it"),
            "{problem}"
        );
        // Whoever could, could write the program as well.
        set_mode(&path, 0o757);
        assert!(check_split(&path, &whole, &open()));
        set_mode(&path, 0o755);
        set_mode(&object, 0o644);

        let moved = dir.join("moved");
        fs::rename(&object, &moved).unwrap();
        let lines = open();
        assert!(!check_split(&path, &whole, &lines));
        assert_eq!(lines.problems().len(), 1);
        assert!(lines.problems()[0].to_string().contains(".dwo"));

        if packs {
            let package = dir.join("program.dwp");
            binutils(
                "dwp",
                ["-o".as_ref(), package.as_os_str(), moved.as_os_str()],
            );
            assert!(check_split(&path, &whole, &open()));
            set_mode(&package, 0o646);
            let refused = open().frames(Vaddr(addresses(&path)[0])).unwrap_err();
            assert!(refused.to_string().contains(".dwp: not used"), "{refused}");
        }
    }
}

/// A program, its stripped form with a debug link, and its debug file.
struct StrippedProgram {
    directory: PathBuf,
    whole: PathBuf,
    stripped: PathBuf,
    debug: PathBuf,
}

fn strip(test: &str, build_id: &str) -> StrippedProgram {
    let directory = directory(test);
    let whole = compile(
        &directory,
        "whole",
        PROGRAM,
        &["-g", &format!("-Wl,--build-id={build_id}")],
    );
    let (stripped, debug) = (directory.join("stripped"), directory.join("whole.debug"));
    binutils("objcopy", [Path::new("--only-keep-debug"), &whole, &debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    binutils(
        "objcopy",
        [
            "-S".as_ref(),
            link.as_ref(),
            whole.as_os_str(),
            stripped.as_os_str(),
        ],
    );
    StrippedProgram {
        directory,
        whole,
        stripped,
        debug,
    }
}

fn locate(stripped: &Path, root: &Path) -> DebugFiles {
    let roots = SearchRoots {
        roots: vec![root.to_path_buf()],
        debuginfod_cache: Some(root.join("cache")),
        perf_cache: Some(root.join("perf")),
    };
    DebugFiles::locate(&ElfFile::open(stripped).unwrap(), &roots)
}

fn found(files: &DebugFiles) -> Option<&Path> {
    files.debug.as_ref().map(|file| file.path())
}

#[test]
fn a_debug_link_in_every_place() {
    for build_id in ["sha1", "none"] {
        let StrippedProgram {
            directory,
            whole,
            stripped,
            debug,
        } = strip("a_debug_link", build_id);
        let root = directory.join("root");
        let relative = directory.strip_prefix("/").unwrap();
        for place in [
            directory.clone(),
            directory.join(".debug"),
            root.join("usr/lib/debug").join(relative),
        ] {
            let path = place.join("whole.debug");
            fs::create_dir_all(&place).unwrap();
            let bytes = fs::read(&debug).unwrap();
            fs::remove_file(&debug).unwrap();
            fs::write(&path, &bytes).unwrap();
            let files = locate(&stripped, &root);
            assert_eq!(found(&files), Some(path.as_path()), "{:?}", files.rejected);
            check(&whole, &stripped, &files);
            fs::remove_file(&path).unwrap();
            assert_eq!(found(&locate(&stripped, &root)), None);
            fs::write(&debug, bytes).unwrap();
        }
    }
}

#[test]
fn by_build_id() {
    let StrippedProgram {
        directory,
        whole,
        stripped,
        debug,
    } = strip("by_build_id", "sha1");
    let root = directory.join("root");
    let id = ElfFile::open(&whole)
        .unwrap()
        .build_id()
        .unwrap()
        .to_string();
    for place in [
        root.join(format!(
            "usr/lib/debug/.build-id/{}/{}.debug",
            &id[..2],
            &id[2..]
        )),
        root.join(format!("cache/{id}/debuginfo")),
        root.join(format!("perf/.build-id/{}/{}/debug", &id[..2], &id[2..])),
    ] {
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&debug, &place).unwrap();
        let files = locate(&stripped, &root);
        assert_eq!(found(&files), Some(place.as_path()));
        check(&whole, &stripped, &files);
        fs::remove_file(&place).unwrap();
    }
    // A file with debug information needs no other file.
    assert_eq!(found(&locate(&whole, &root)), None);
    // A debuginfod client leaves this if no server has a file.
    fs::write(root.join(format!("cache/{id}/debuginfo")), "").unwrap();
    assert!(locate(&stripped, &root).rejected.is_empty());
}

#[test]
fn fetched_as_a_last_resort() {
    let StrippedProgram {
        directory,
        whole,
        stripped,
        debug,
    } = strip("fetched", "sha1");
    let id = ElfFile::open(&whole).unwrap().build_id();
    let file = ElfFile::open(&stripped).unwrap();
    let roots = SearchRoots {
        roots: Vec::new(),
        ..SearchRoots::default()
    };
    let away = directory.join("away");
    let fetch = |to: &Path| {
        let mut asked = Vec::new();
        let files = DebugFiles::locate_or(&file, &roots, &mut |id| {
            asked.push(id);
            Some(to.to_path_buf())
        });
        (files, asked)
    };
    // It is in the file's own folder.
    assert_eq!(fetch(&away).1, []);
    fs::rename(&debug, &away).unwrap();
    let (files, asked) = fetch(&away);
    assert_eq!(
        (found(&files), asked),
        (Some(away.as_path()), Vec::from_iter(id))
    );
    check(&whole, &stripped, &files);
    let other = compile(&directory, "other", "int main(void) { return 0; }", &["-g"]);
    let (files, _) = fetch(&other);
    assert!(matches!(
        files.rejected[..],
        [ModuleError::WrongBuild { .. }]
    ));
    assert_eq!(found(&files), None);
}

#[test]
fn the_wrong_debug_file_is_rejected() {
    let StrippedProgram {
        directory,
        stripped,
        debug,
        ..
    } = strip("the_wrong_debug_file", "sha1");
    let other = compile(&directory, "other", "int main(void) { return 0; }", &["-g"]);
    fs::copy(&other, &debug).unwrap();
    let files = locate(&stripped, &directory);
    assert_eq!(found(&files), None);
    assert!(
        matches!(files.rejected[..], [ModuleError::WrongBuild { .. }]),
        "{:?}",
        files.rejected
    );

    let StrippedProgram {
        directory,
        stripped,
        debug,
        ..
    } = strip("the_wrong_checksum", "none");
    let mut bytes = fs::read(&debug).unwrap();
    bytes.push(0);
    fs::write(&debug, bytes).unwrap();
    let files = locate(&stripped, &directory);
    assert_eq!(found(&files), None);
    assert!(
        matches!(files.rejected[..], [ModuleError::WrongChecksum { .. }]),
        "{:?}",
        files.rejected
    );
}

#[test]
fn a_supplementary_file() {
    let dir = directory("a_supplementary_file");
    // dwz moves parts shared by two files into a third.
    let one = compile(&dir, "one", PROGRAM, &["-gdwarf-4"]);
    let two = compile(&dir, "two", PROGRAM, &["-gdwarf-4"]);
    let whole = dir.join("whole");
    fs::copy(&one, &whole).unwrap();
    let shared = dir.join("shared.dwz");
    let arguments = [
        "-m".as_ref(),
        shared.as_os_str(),
        "-r".as_ref(),
        one.as_os_str(),
        two.as_os_str(),
    ];
    binutils("dwz", arguments);
    let files = DebugFiles::locate(&ElfFile::open(&one).unwrap(), &SearchRoots::default());
    let path = files
        .supplementary
        .as_ref()
        .map(|file| file.path().to_path_buf());
    assert_eq!(path, Some(shared), "{:?}", files.rejected);
    check(&whole, &one, &files);
}

/// Functions local to a file: gcc writes no linkage names for them.
const HIDDEN: &str = "\
namespace app {
namespace {
enum class Kind : short { one };
typedef unsigned long Size;
struct Worker {
    int n = 0;
    Worker() {}
    ~Worker() { n = 0; }
    int run(int k, const char *const *, Kind) const volatile { return k; }
    int &get(int (&a)[3]) && { return a[0]; }
    operator bool() const { return n; }
    bool operator<(const Worker &) const { return true; }
    template <class T> Worker &operator<<(T t) { n += t; return *this; }
    static Size all(...) { return 1; }
    template <class T> T go(T t, Size) {
        struct Local { T operator()(long long z, short) { return T(z); } } local;
        return t + local(4, 1);
    }
};
template <class... T> int count(T...) { return sizeof...(T); }
void with(void (*f)(int, Worker *), int (Worker::*)(int, const char *const *, Kind) const volatile) { f(1, nullptr); }
}
inline namespace v1 { class Outer { public: class Inner { public: static int call(int k); }; }; }
static int twice(int k) { return 2 * k; }
int Outer::Inner::call(int k)
{
    auto first = [](int n) { return n + 1; };
    auto second = [k](int n) { return n + k; };
    auto other = [](long n) { { auto inner = [n](int m) { return m + n; }; return inner(2); } };
    auto generic = [](auto n, int) { return n; };
    union { int a; float b; } u = { twice(k) };
    int array[3] = { first(k), second(k), generic(k, 4) };
    Worker w, x;
    with([](int, Worker *) {}, &Worker::run);
    return u.a + other(k) + w.run(array[1], nullptr, Kind::one) + Worker().get(array) + (w < x) + bool(w)
        + Worker::all(1) + (x << k).n + w.go(2.0, 3) + w.go(2L, 3) + count(1, 2u) + count();
}
}
extern \"C\" int plain(int n) { return n + app::Outer::Inner::call(n); }
int main(int c, char **) { return plain(c); }
";

/// Compiles [`HIDDEN`]; returns the program.
fn hidden(dir: &Path, arguments: &[&str]) -> PathBuf {
    let (source, program) = (dir.join("hidden.cpp"), dir.join(arguments.concat()));
    fs::write(&source, HIDDEN).unwrap();
    let mut gxx = tool("g++");
    gxx.args(["-std=c++20", "-g"]).args(arguments).arg(&source);
    gxx.arg("-o").arg(&program).succeed();
    program
}

/// The address and the name of each function symbol, by c++filt.
fn symbols_by_cxxfilt(program: &Path) -> Vec<(Vaddr, String)> {
    let text = binutils("nm", ["-C", program.to_str().unwrap()]);
    let symbol = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let name = rest
            .strip_prefix("t ")
            .or(rest.strip_prefix("T "))
            .or(rest.strip_prefix("W "));
        Some((
            Vaddr(u64::from_str_radix(address, 16).ok()?),
            name?.to_owned(),
        ))
    };
    text.lines().filter_map(symbol).collect()
}

#[test]
fn names_that_are_put_together_of_scopes_and_types() {
    let dir = directory("names_that_are_put_together_of_scopes_and_types");
    let program = hidden(&dir, &["-O0"]);
    let file = Arc::new(ElfFile::open(&program).unwrap());
    let lines = Lines::new(file, &DebugFiles::default(), &[]);
    let symbols = symbols_by_cxxfilt(&program);
    let mut compared = 0;
    for (address, name) in &symbols {
        let frames = lines.frames(*address).unwrap();
        let Some(function) = frames.last().and_then(|frame| frame.function.as_ref()) else {
            continue; // of the C library's start files
        };
        // Only its symbol distinguishes the invoker of a lambda.
        if !name.contains("_FUN") {
            assert_eq!(function, name, "at {address}");
            compared += usize::from(name.starts_with("app::"));
        }
    }
    assert!(compared > 15, "{compared} of {symbols:#?}");

    // An inlined function has the same name as its out-of-line copy.
    let program = hidden(&dir, &["-O2"]);
    let file = Arc::new(ElfFile::open(&program).unwrap());
    let code = addresses_of(&program, &["plain"]);
    let lines = Lines::new(file, &DebugFiles::default(), &[]);
    let mut inlined = std::collections::BTreeSet::new();
    for address in code {
        let frames = lines.frames(Vaddr(address)).unwrap();
        let (_, within) = frames.split_last().unwrap();
        inlined.extend(within.iter().filter_map(|frame| frame.function.clone()));
    }
    assert!(!inlined.is_empty());
    for name in inlined {
        assert!(symbols.iter().any(|(_, other)| *other == name), "{name}");
    }
}

/// Code without debug information, of an object without `-g`: the debug information is not read
/// again for it. A package of split debug information that appears later is not noticed.
#[test]
fn code_without_lines_reads_nothing_again() {
    let folder = unspool_testing::Folder::new();
    folder.write("with.c", "int with(int a) { return a + 1; }");
    folder.write("without.c", "int without(int a) { return a - 1; }");
    folder.tool("gcc", "-g -fPIC -c with.c");
    folder.tool("gcc", "-fPIC -c without.c");
    folder.tool("gcc", "-shared -o lib.so with.o without.o");
    let path = folder.path().join("lib.so");
    let file = Arc::new(ElfFile::open(&path).unwrap());
    let [with, without] = ["with", "without"].map(|name| addresses_of(&path, &[name])[0]);
    for announced in [&[][..], &[Vaddr(with)]] {
        let lines = Lines::new(Arc::clone(&file), &DebugFiles::default(), announced);
        assert_eq!(lines.frames(Vaddr(with)).unwrap().len(), 1);
        assert_eq!(lines.frames(Vaddr(without)).unwrap(), []);
        folder.write("lib.so.dwp", "not a package");
        assert_eq!(lines.frames(Vaddr(without)).unwrap(), []);
        assert_eq!(lines.frames(Vaddr(with)).unwrap().len(), 1);
        fs::remove_file(folder.path().join("lib.so.dwp")).unwrap();
    }
}
