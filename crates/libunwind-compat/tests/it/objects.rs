//! Steps by machine code of tables (`UNSPOOL_TABLES=native`), compared with Debian's libunwind.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_elf::ElfFile;
use unspool_rows::{Table, text};
use unspool_table_store::{NativeObject, Store, own_key};
use unspool_testing::{command, packages};

use crate::programs;

const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu";
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// A cache of objects.
struct ObjectCache {
    home: PathBuf,
}

impl ObjectCache {
    fn new() -> ObjectCache {
        let home = programs::scratch("objects");
        fs::create_dir(&home).unwrap();
        ObjectCache { home }
    }

    /// With the objects of files.
    fn from_files(files: &[&Path]) -> ObjectCache {
        let cache = ObjectCache::new();
        for path in files {
            let file = ElfFile::open(path).unwrap();
            let object = NativeObject::from_file(&file, &own_key(&file)).unwrap();
            cache.keep(path, &object);
        }
        cache
    }

    /// With an object for one file by which all its code is outermost.
    fn lying(path: &Path) -> ObjectCache {
        ObjectCache::saying(path, "cfa=rsp+8  ra=undefined")
    }

    /// With an object for one file that has this row for all its code.
    fn saying(path: &Path, row: &str) -> ObjectCache {
        let cache = ObjectCache::new();
        let key = own_key(&ElfFile::open(path).unwrap());
        cache.keep(
            path,
            &NativeObject::from_table(&everywhere(row), &key).unwrap(),
        );
        cache
    }

    /// Stores an object as that of a file.
    fn keep(&self, path: &Path, object: &NativeObject) {
        let file = ElfFile::open(path).unwrap();
        let store = Store::new(None, Some(self.home.clone().into()), None);
        store.keep_native(&store.stable(&file), object).unwrap();
    }

    fn folder(&self) -> PathBuf {
        self.home.join("unspool")
    }

    /// The only object, linked to under the build ID's name.
    fn object(&self) -> PathBuf {
        let entries = fs::read_dir(self.folder()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut objects = paths.filter(|path| !path.is_symlink());
        let object = objects.next().unwrap();
        assert!(objects.next().is_none());
        object
    }

    /// A command with walks that use the objects.
    fn command(&self, program: &Path) -> Command {
        let mut command = command(program);
        command.env("UNSPOOL_TABLES", "native");
        command.env("XDG_CACHE_HOME", &self.home);
        command
    }
}

impl Drop for ObjectCache {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.home).unwrap();
    }
}

fn everywhere(row: &str) -> Table {
    let text = format!("arch x86-64 little\nfn 0x1000..0x8000000\n  0x1000  {row}\n");
    text::parse(&text).unwrap()
}

fn compile(source: &str) -> PathBuf {
    programs::compile_with(source, &["-Wl,--build-id=sha1"])
}

fn theirs(name: &str) -> PathBuf {
    packages::path(&format!("{DEBIAN}/{name}")).unwrap()
}

fn assert_same(ours: &str, theirs: &str) {
    let [ours, theirs] = [ours, theirs].map(programs::without_debug_names);
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, theirs);
}

/// From a signal's context and from the handler: the values of registers in every frame. In each
/// frame once, their locations, and the effect of changing them. And backtraces. Frames are the
/// program's and the C library's.
#[test]
fn the_own_stack_has_the_same_frames() {
    let (program, ours) = (compile("objects.c"), programs::shared_objects());
    let cache = ObjectCache::from_files(&[&program, LIBC.as_ref()]);
    let mut command = cache.command(&program);
    command.arg(theirs("libunwind.so.8"));
    command.arg(ours.join("libunwind.so.8"));
    let text = programs::stdout(&mut command);
    let walks: Vec<_> = text.split("== library\n").skip(1).collect();
    let [theirs, ours, their_handler, our_handler] = walks[..] else {
        panic!("{} walks", walks.len());
    };
    assert!(theirs.contains("frame 35 ") && their_handler.contains("backtrace 4"));
    assert_same(ours, theirs);
    assert_same(our_handler, their_handler);
}

/// The number of frames in the first walk by our library. Later walks use the rules cached when
/// locations were asked for.
fn frames(command: &mut Command) -> usize {
    let text = programs::stdout(command.arg(programs::shared_objects().join("libunwind.so.8")));
    let lines = text.lines().take_while(|line| !line.starts_with("end"));
    lines.filter(|line| line.starts_with("frame ")).count()
}

/// An object that contradicts the table shows whether objects are used.
#[test]
fn objects_that_somebody_else_could_have_written_are_not_run() {
    let program = compile("objects.c");
    let right = frames(&mut command(&program));
    assert!(right > 35);
    let lies = |change: &dyn Fn(&ObjectCache)| {
        let cache = ObjectCache::lying(&program);
        change(&cache);
        let found = frames(&mut cache.command(&program));
        assert!(found == right || found * 2 < right, "{found} of {right}");
        found != right
    };
    assert!(lies(&|_| {}));
    let set_mode = |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    assert!(lies(&|cache| set_mode(cache.object(), 0o444).unwrap()));
    assert!(!lies(&|cache| set_mode(cache.object(), 0o664).unwrap()));
    assert!(!lies(&|cache| set_mode(cache.object(), 0o646).unwrap()));
    assert!(!lies(&|cache| set_mode(cache.folder(), 0o777).unwrap()));
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        assert!(!lies(
            &|cache| chown(cache.object(), Some(65534), None).unwrap()
        ));
        assert!(!lies(
            &|cache| chown(cache.folder(), Some(65534), None).unwrap()
        ));
    }
    let change = |cache: &ObjectCache, change: &dyn Fn(&mut Vec<u8>)| {
        let object = cache.object();
        let mut bytes = fs::read(&object).unwrap();
        change(&mut bytes);
        fs::write(object, bytes).unwrap();
    };
    for at in [0, 0x18, 0x300, 0x400] {
        assert!(!lies(&|cache| change(cache, &|bytes| bytes[at] ^= 1)));
    }
    assert!(!lies(&|cache| change(cache, &|bytes| bytes.truncate(600))));
    assert!(!lies(&|cache| change(cache, &Vec::clear)));
    assert!(!lies(&|cache| change(cache, &|bytes| bytes.push(0))));
    // Another module's object under this one's name.
    assert!(!lies(&|cache| {
        let other = own_key(&ElfFile::open(LIBC).unwrap());
        let object =
            NativeObject::from_table(&everywhere("cfa=rsp+8  ra=undefined"), &other).unwrap();
        cache.keep(&program, &object);
    }));
}

/// Objects are not used without a request.
#[test]
fn objects_are_run_where_the_environment_says_so() {
    let program = compile("objects.c");
    let cache = ObjectCache::lying(&program);
    let right = frames(&mut command(&program));
    for value in ["", "compact", "Native", "native "] {
        let mut command = cache.command(&program);
        command.env("UNSPOOL_TABLES", value);
        assert_eq!(frames(&mut command), right, "{value}");
    }
}

/// A traced process, which only gives words of its memory: its module is found by these.
#[test]
fn a_traced_process_has_the_same_frames() {
    let program = compile("ptrace.c");
    let look = |mut command: Command, library: PathBuf, ptrace: PathBuf| {
        command.env("LD_LIBRARY_PATH", library.parent().unwrap());
        programs::stdout(command.args([library, ptrace]))
    };
    let expected = look(
        command(&program),
        theirs("libunwind-x86_64.so.8"),
        theirs("libunwind-ptrace.so.0"),
    );
    let ours = |cache: &ObjectCache| {
        let folder = programs::shared_objects();
        let library = folder.join("libunwind-x86_64.so.8");
        let ptrace = folder.join("libunwind-ptrace.so.0");
        look(cache.command(&program), library, ptrace)
    };
    assert_same(
        &ours(&ObjectCache::from_files(&[&program, LIBC.as_ref()])),
        &expected,
    );
    // The objects are used.
    let frames = |text: &str| text.lines().filter(|line| line.contains("info=")).count();
    assert!(frames(&ours(&ObjectCache::lying(&program))) < frames(&expected));
}

/// A client that asks for locations in each frame, with and without caching.
#[test]
fn a_client_that_asks_for_places_has_the_same_frames() {
    let (program, ours) = (compile("walk.c"), programs::shared_objects());
    let cache = ObjectCache::from_files(&[&program, LIBC.as_ref()]);
    let mut command = cache.command(&program);
    command.arg("5").arg(theirs("libunwind-x86_64.so.8"));
    let text = programs::stdout(command.arg(ours.join("libunwind-x86_64.so.8")));
    let mut walks = text.split("== library\n").skip(1);
    let theirs = walks.next().unwrap();
    assert_same(walks.next().unwrap(), theirs);
}

/// Backtraces for exceptions show registers: they use the table.
#[test]
fn exceptions_are_thrown_as_ever() {
    let program = programs::compile_cxx("../../../exceptions/tests/programs/exceptions.cc");
    let ours = programs::shared_objects().join("libunwind.so.8");
    let run = |mut command: Command| {
        let output = command.env("LD_PRELOAD", &ours).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (text, output.status.code())
    };
    let expected = run(command(&program));
    assert_eq!(expected.1, Some(3));
    let cache = ObjectCache::from_files(&[&program, LIBC.as_ref()]);
    assert_eq!(run(cache.command(&program)), expected);
}

/// The first step in a module opens its object. That has no effects visible to the caller, perhaps
/// a signal handler.
#[test]
fn looking_for_objects_leaves_errno_alone_and_cancels_no_thread() {
    let program = compile("cancelled.c");
    let library = programs::shared_objects().join("libunwind.so.8");
    let walk = |cache: &ObjectCache| programs::stdout(cache.command(&program).arg(&library));
    let end = "errno as before\nat its end\n";
    assert_eq!(walk(&ObjectCache::new()), format!("step 1, {end}"));
    // An object was found.
    assert_eq!(
        walk(&ObjectCache::lying(&program)),
        format!("step 0, {end}")
    );
}

/// A module of another address space is searched page by page, but only once.
#[test]
fn a_remote_module_is_not_looked_for_at_each_page() {
    let program = compile("far.c");
    let library = programs::shared_objects().join("libunwind-x86_64.so.8");
    let steps = |cache: &ObjectCache| {
        let text = programs::stdout(cache.command(&program).arg(&library));
        let steps = text.lines().map(|line| {
            let (step, reads) = line.split_once(' ').unwrap();
            (step.parse::<i32>().unwrap(), reads.parse::<u64>().unwrap())
        });
        steps.collect::<Vec<_>>()
    };
    let found = steps(&ObjectCache::from_files(&[&program]));
    assert_eq!(found.len(), 64);
    // The last is 4,000 pages from the start of the module.
    for step in [found, steps(&ObjectCache::new())].concat() {
        assert!(step.0 == 1 && step.1 < 500, "{step:?}");
    }
    assert!(
        steps(&ObjectCache::lying(&program))
            .iter()
            .all(|step| step.0 == 0)
    );
}

/// A library replaces another, in the own process and in another: each has its own object.
#[test]
fn a_library_in_the_place_of_another_is_not_taken_for_it() {
    let options = ["-shared", "-fPIC", "-Wl,--build-id=sha1"];
    let library = |frame| programs::compile_with("reloaded.c", &[&options[..], &[frame]].concat());
    let [one, other] = ["-DFRAME=64", "-DFRAME=96"].map(library);
    let ours = programs::shared_objects();
    let options = [
        "-Wl,--build-id=sha1",
        "-Wl,--no-as-needed",
        "-l:libunwind.so.8",
    ];
    let own = programs::compile_with("reload.c", &options);
    let remote = compile("turns.c");
    let cache = ObjectCache::from_files(&[&one, &other, &own, &remote, LIBC.as_ref()]);
    let mut local = cache.command(&own);
    local.env("LD_LIBRARY_PATH", ours);
    let text = programs::stdout(local.args([&one, &other]));
    assert_eq!(text, "5 steps\n".repeat(4));
    let walk = |mut command: Command, library: &Path| {
        programs::stdout(command.arg(library).args([&one, &other]))
    };
    let name = "libunwind-x86_64.so.8";
    let text = walk(cache.command(&remote), &ours.join(name));
    assert_eq!(text, walk(command(&remote), &theirs(name)));
    assert_eq!(text, "5 steps\n".repeat(8));
}

/// Each step continues without reading memory: only a limit ends this.
#[test]
fn a_walk_that_leads_nowhere_ends() {
    let program = compile("endless.c");
    let library = programs::shared_objects().join("libunwind-x86_64.so.8");
    let most = unspool_unwind::Cursor::MAX_STACK_CHANGES;
    for (row, interrupted) in [
        ("cfa=rsp+8  ra=rbx", 0),
        ("cfa=rsp+8  ra=rbx  signal", most),
    ] {
        let cache = ObjectCache::saying(&program, row);
        let text = programs::stdout(cache.command(&program).arg(&library));
        // UNW_EBADFRAME
        let end = format!("{most} steps to {interrupted} interrupted frames, then -7\n");
        assert_eq!(text, end);
    }
}

/// The row before a signal handler's trampoline is not the trampoline's.
#[test]
fn a_trampoline_without_a_table_is_known() {
    let program = compile("restorer.c");
    let cache = ObjectCache::from_files(&[&program, LIBC.as_ref()]);
    let library = programs::shared_objects().join("libunwind.so.8");
    let text = programs::stdout(cache.command(&program).arg(library));
    // The trampoline, the interrupted `main`, the C library's two and `_start`.
    assert_eq!(text, "1\n1 interrupted\n1\n1\n1\n0\n");
}

/// The mappings of an object can be executed or read, but not written.
#[test]
fn code_cannot_be_written_to() {
    let program = compile("mapped.c");
    let cache = ObjectCache::from_files(&[&program, LIBC.as_ref()]);
    let library = programs::shared_objects().join("libunwind.so.8");
    let text = programs::stdout(cache.command(&program).arg(library));
    let fields = |line: &str| {
        let mut fields = line.split_whitespace();
        let range = fields.next().unwrap().to_owned();
        (range, fields.next().unwrap().to_owned())
    };
    let maps: Vec<_> = text.lines().map(fields).collect();
    assert_eq!(maps.len(), 4, "{text}");
    for pair in maps.chunks(2) {
        let [(index, read_only), (code, executable)] = pair else {
            unreachable!()
        };
        assert_eq!((&read_only[..], &executable[..]), ("r--p", "r-xp"));
        assert_eq!(
            index.split_once('-').unwrap().1,
            code.split_once('-').unwrap().0
        );
    }
}
