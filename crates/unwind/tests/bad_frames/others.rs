//! In another process, and in core files.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use unspool_unwind::core_file::Core;
use unspool_unwind::files::{CoreFiles, Files};
use unspool_unwind::process::{Process, Snapshot};
use unspool_unwind::space::{Keep, Space};
use unspool_unwind::tables::{self, From, Store};

use super::*;

/// A program at its innermost frame, killed at the end.
struct Standing(Child);

impl Standing {
    fn new(program: &Path, scene: &str) -> Standing {
        let mut child = Command::new(program)
            .args([scene, "wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{scene}");
        Standing(child)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn walk(snapshot: &dyn Snapshot, files: &dyn Files, store: &Store) -> Found {
    let space = Space::new(snapshot, files, store);
    let stack = space.walk(&snapshot.threads()[0], usize::MAX, Keep::Frames);
    let stack = stack.unwrap();
    Found {
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
    let file = unspool_module::ElfFile::open(program).unwrap();
    let made = tables::compile(&file, From::Auto).unwrap();
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
        let process = Process::attach(standing.0.id()).unwrap();
        for (store, tables) in stores.iter().zip(["as linked", "compiled"]) {
            let found = walk(&process, &process, store);
            let complaint = complaint(case, &found, |name| program.symbol(name));
            complaints.extend(complaint.map(|text| format!("{tables}: {text}")));
        }
    }
    for (name, program) in files::damaged(&program.path) {
        for scene in ["ra_zero", "ra_in_data", "signal_frame", "circle", "wild_pc"] {
            let standing = Standing::new(&program, scene);
            let process = Process::attach(standing.0.id()).unwrap();
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
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let is_plain = !pattern.starts_with('|') && !pattern.contains(['/', '%']);
    assert!(
        is_plain,
        "this test needs `sysctl kernel.core_pattern=core`, not {pattern}"
    );
    let folder = program.parent().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""])
        .arg(program)
        .args([scene, "die"])
        .current_dir(folder)
        .spawn()
        .unwrap();
    child.wait().unwrap();
    let names = [
        pattern.trim().to_owned(),
        format!("{}.{}", pattern.trim(), child.id()),
    ];
    let mut paths = names.iter().map(|name| folder.join(name));
    paths.find(|path| path.exists()).unwrap()
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
        let files = CoreFiles::new(&core, None);
        for (store, tables) in stores.iter().zip(["as linked", "compiled"]) {
            let found = walk(&core, &files, store);
            let complaint = complaint(case, &found, |name| program.symbol(name));
            complaints.extend(complaint.map(|text| format!("{tables}: {text}")));
        }
    }
    assert_none(&complaints);
}
