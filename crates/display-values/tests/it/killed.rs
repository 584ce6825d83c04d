//! Programs that are killed, and the values of their frames.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::OnceLock;

use unspool_arg_table_builder::find_or_build;
use unspool_display_values::{
    ArgTables, DebugInfo, DebugInfoFiles, FrameValues, ValueQuery, WithFiles,
};
use unspool_elf::{DebugFiles, SearchRoots};
use unspool_process::core_file::Core;
use unspool_process::file_provider::{CoreFiles, FileProvider, FileSearch};
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{CommandEvent, Snapshot, Store, TracedCommand};

/// What of the frames is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Arguments,
    /// With the texts at pointers.
    Variables,
    Both {
        with_strings: bool,
    },
}

/// A frame of the thread that is killed.
pub(crate) struct KilledFrame {
    pub(crate) pc: u64,
    /// The symbol of its function.
    pub(crate) symbol: String,
    pub(crate) values: FrameValues,
}

/// The frames with the values of their functions, and problems.
pub(crate) struct KilledStack {
    pub(crate) frames: Vec<KilledFrame>,
    pub(crate) problems: Vec<String>,
}

/// The path of a file of these tests.
pub(crate) fn test_file(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join(name)
}

/// A store with a cache for all of these tests: the C library's table takes longer than a program's.
pub(crate) fn store() -> Store {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    let cache = CACHE.get_or_init(|| {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let _ = std::fs::remove_dir_all(&cache); // what another build has left, if it has
        std::fs::create_dir_all(&cache).unwrap();
        cache
    });
    Store::new(None, Some(cache.into()), None)
}

/// The stack of a program when a signal is about to kill it.
pub(crate) fn killed(command: Command, shown: Shown) -> KilledStack {
    let mut traced = TracedCommand::spawn(command).unwrap();
    let CommandEvent::Fatal(process) = traced.run_until_fatal_signal().unwrap() else {
        panic!("it is not killed");
    };
    let stack = stack(&*process, &*process, shown);
    drop(process);
    let end = traced.run_until_fatal_signal().unwrap();
    assert!(matches!(end, CommandEvent::Exited(_)));
    stack
}

/// The stack in a program's core file.
pub(crate) fn stack_of_core(core: &Path, program: &Path) -> KilledStack {
    let search = FileSearch {
        executable: Some(program.to_owned()),
        ..FileSearch::default()
    };
    let mut core = Core::open(core).unwrap();
    core.find_objects(&search).unwrap();
    let files = CoreFiles::new(&core, &search).unwrap();
    // gdb shows the elements of Rust's slices, but not the targets of C's pointers.
    let with_strings = program.with_extension("rs").exists();
    stack(&core, &files, Shown::Both { with_strings })
}

fn stack(snapshot: &dyn Snapshot, files: &dyn FileProvider, shown: Shown) -> KilledStack {
    let store = store();
    let unwinder = SnapshotUnwinder::with_files(snapshot, files, &store);
    let thread = snapshot.threads().first().unwrap();
    let stack = unwinder.walk(thread, 200, WalkDetail::Registers).unwrap();
    let mut problems = Vec::new();
    let tables = ArgTables::load(&unwinder, [&stack].into_iter(), |file| {
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        let found = find_or_build(file, &debug, &store);
        problems.extend(found.missing.iter().map(ToString::to_string));
        found.table.map(Rc::new)
    });
    let files = DebugInfoFiles::open(&unwinder, [&stack].into_iter(), None);
    let debug_info = DebugInfo::read(&files);
    let memory = WithFiles {
        memory: snapshot.memory(),
        unwinder: &unwinder,
    };
    let query = ValueQuery {
        snapshot,
        unwinder: &unwinder,
        memory: &memory,
        tables: (shown != Shown::Variables).then_some(&tables),
        debug_info: Some(&debug_info),
        with_locals: shown != Shown::Arguments,
        with_strings: matches!(shown, Shown::Variables | Shown::Both { with_strings: true }),
    };
    let values = query.frames(&stack, 0..stack.frames.len());
    let frames = stack.frames.iter().zip(values).map(|(frame, values)| {
        let symbol = unwinder.locate(frame.code).and_then(|at| {
            let symbol = at.module.file.symbols().lookup(at.lookup)?;
            Some(unspool_elf::demangle(&symbol.name).into_owned())
        });
        KilledFrame {
            pc: frame.code.address().0,
            symbol: symbol.unwrap_or_default(),
            values,
        }
    });
    let frames = frames.collect();
    let found = debug_info.take_problems().into_iter();
    problems.extend(found.map(|problem| problem.to_string()));
    KilledStack { frames, problems }
}
