//! In another process, and in core files.

use std::ffi::OsString;

use unspool_process::core_file::Core;
use unspool_process::file_provider::{CoreFiles, FileProvider, FileSearch};
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{Process, Snapshot};
use unspool_rows::CodeAddr;
use unspool_table_store::{self as tables, Store, TableSource};
use unspool_testing::{RunningProgram, command, kernel_core, limitless};
use unspool_unwind::Modules as _;

use super::*;

/// A program at its innermost frame, killed at the end.
struct Standing(RunningProgram);

impl Standing {
    fn new(program: &Path, scene: &str) -> Standing {
        let mut running = RunningProgram::start(command(program).args([scene, "wait"]));
        assert_eq!(running.line(), "ready", "{scene}");
        Standing(running)
    }
}

fn walk(snapshot: &dyn Snapshot, files: &dyn FileProvider, store: &Store) -> WalkOutput {
    let space = SnapshotUnwinder::with_files(snapshot, files, store);
    let stack = space.walk(&snapshot.threads()[0], usize::MAX, WalkDetail::Frames);
    let stack = stack.unwrap();
    let last = stack.frames.last().unwrap().code;
    let is_certain = matches!(last, CodeAddr::Instruction(_))
        || [last.lookup(), last.address()]
            .into_iter()
            .any(|at| space.is_code(at));
    assert!(is_certain, "{last:x?}, {}", stack.end.name());
    WalkOutput {
        addresses: stack
            .frames
            .iter()
            .map(|frame| frame.code.address().0)
            .collect(),
        end: stack.end.name().to_owned(),
    }
}

/// Without compiled tables, and with one of the program.
fn stores(program: &Path) -> [Store; 2] {
    let cache = OsString::from(directory().join("cache"));
    let compiled = Store::new(None, Some(cache), None);
    let file = unspool_elf::ElfFile::open(program).unwrap();
    let made = tables::compile(&file, TableSource::Auto).unwrap();
    compiled
        .keep(&compiled.stable(&file), &made.encoded.bytes)
        .unwrap();
    [Store::new(None, None, None), compiled]
}

#[test]
fn stacks_of_another_process() {
    let program = program();
    let stores = stores(&program.path);
    let mut complaints = Vec::new();
    for case in cases::ALL {
        let standing = Standing::new(&program.path, case.name);
        let process = Process::attach(standing.0.pid()).unwrap();
        for (store, tables) in stores.iter().zip(["as linked", "compiled"]) {
            let found = walk(&process, &process, store);
            let complaint = complaint(case, &found, |name| program.symbol(name));
            complaints.extend(complaint.map(|text| format!("{tables}: {text}")));
        }
    }
    for (name, program) in files::damaged(&program.path) {
        for scene in ["ra_zero", "ra_in_data", "signal_frame", "circle", "wild_pc"] {
            let standing = Standing::new(&program, scene);
            let process = Process::attach(standing.0.pid()).unwrap();
            let found = walk(&process, &process, &stores[0]);
            if found.addresses.len() > 4000 {
                complaints.push(format!("{name}, {scene}: {found:x?}"));
            }
        }
    }
    assert_none(&complaints);
}

/// Lets the kernel write a core.
fn core(program: &Path, scene: &str) -> PathBuf {
    let folder = program.parent().unwrap();
    let mut command = limitless(program);
    let mut child = command
        .args([scene, "die"])
        .current_dir(folder)
        .spawn()
        .unwrap();
    child.wait().unwrap();
    kernel_core(folder, child.id())
}

#[test]
fn stacks_in_core_files() {
    let program = program();
    let stores = stores(&program.path);
    let mut complaints = Vec::new();
    for case in cases::ALL {
        let path = core(&program.path, case.name);
        let core = Core::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        let search = FileSearch::default();
        let files = CoreFiles::new(&core, &search).unwrap();
        for (store, tables) in stores.iter().zip(["as linked", "compiled"]) {
            let found = walk(&core, &files, store);
            let complaint = complaint(case, &found, |name| program.symbol(name));
            complaints.extend(complaint.map(|text| format!("{tables}: {text}")));
        }
    }
    assert_none(&complaints);
}
