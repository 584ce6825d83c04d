//! Core files of the kernel and of gdb's `gcore`, compared with gdb and readelf.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_elf::ElfFile;
use unspool_process::core_file::{Core, CoreError, CoreProblem};
use unspool_process::file_provider::{CoreFiles, FileProblem, FileSearch};
use unspool_process::maps::Mapping;
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{NoBuildId, Snapshot, Store, ThreadState};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, Registers, RuntimeAddr, Unreadable};
use unspool_testing::{RunningProgram, limitless, run_tool};

use crate::programs::{compare_registers, compile, directory, gdb_registers, start};

/// Lets the kernel write a core of `crash HOW THREADS` beside the program.
fn kernel_core(program: &Path, arguments: &[&str]) -> PathBuf {
    kernel_core_of(limitless(program).args(arguments), program)
}

/// The same of another command that runs the program.
fn kernel_core_of(command: &mut Command, program: &Path) -> PathBuf {
    let folder = program.parent().unwrap();
    let mut child = command.current_dir(folder).spawn().unwrap();
    let status = child.wait().unwrap();
    assert!(status.core_dumped(), "{status}");
    unspool_testing::kernel_core(folder, child.id())
}

/// Lets gdb write a core of a running process.
fn gdb_core(running: &RunningProgram) -> PathBuf {
    let prefix = directory().join("core");
    let pid = running.pid().to_string();
    let output = run_tool("gcore", &["-o", prefix.to_str().unwrap(), &pid]);
    let path = PathBuf::from(format!("{}.{pid}", prefix.display()));
    assert!(path.exists(), "{output}");
    path
}

/// Registers of all threads against gdb, mappings against readelf.
fn check(program: &Path, path: &Path, threads: usize) -> Core {
    let core = Core::open(path).unwrap();
    assert_eq!(core.problems(), []);
    assert_eq!(core.threads().len(), threads);
    let theirs = gdb_registers(&[program.to_str().unwrap(), path.to_str().unwrap()]);
    for thread in core.threads() {
        assert_eq!(thread.state, ThreadState::Recorded);
        compare_registers(core.abi().arch, thread, &theirs[&thread.tid]);
    }
    check_files(&core, path);
    check_stacks(&core, program, path);
    core
}

/// Every mapped file that elfutils shows is a mapping, and there are no others.
fn check_files(core: &Core, path: &Path) {
    let output = run_tool("eu-readelf", &["-n", path.to_str().unwrap()]);
    let text = output.out;
    let lines = text
        .lines()
        .skip_while(|line| !line.ends_with(" files:"))
        .skip(1);
    let mut found = 0;
    for line in lines.take_while(|line| line.starts_with("      ")) {
        // start-end offset size path
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let [start, end, offset] =
            [start, end, words[1]].map(|word| u64::from_str_radix(word, 16).unwrap());
        let mapping = core.mappings().find(RuntimeAddr(start)).unwrap();
        assert_eq!(
            (mapping.start.0, mapping.end.0, mapping.offset),
            (start, end, offset),
            "{line}"
        );
        assert_eq!(mapping.path().unwrap(), Path::new(words[3]));
        found += 1;
    }
    assert!(found > 4, "{text}");
    let files = core
        .mappings()
        .iter()
        .filter(|mapping| mapping.path().is_some());
    assert_eq!(files.count(), found);
}

/// The words at each thread's stack pointer are those that gdb reads.
fn check_stacks(core: &Core, program: &Path, path: &Path) {
    for thread in core.threads() {
        let stack_pointer = core.abi().arch.spec().stack_pointer;
        let at = thread
            .registers
            .as_ref()
            .unwrap()
            .get(stack_pointer)
            .unwrap();
        let mut bytes = [0; 128];
        core.memory().read(RuntimeAddr(at), &mut bytes).unwrap();
        let (program, path) = (program.to_str().unwrap(), path.to_str().unwrap());
        let examine = format!("x/16xg {at:#x}");
        let output = run_tool("gdb", &["-nx", "-batch", program, path, "-ex", &examine]);
        let text = output.out;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("0x") && line.contains(":\t"));
        let words: Vec<u64> = lines
            .flat_map(|line| {
                line.split_whitespace()
                    .filter_map(|word| word.strip_prefix("0x"))
            })
            .filter_map(|word| u64::from_str_radix(word, 16).ok())
            .collect();
        let ours: Vec<u64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        assert!(words.ends_with(&ours), "{text} {ours:x?}");
    }
}

#[test]
fn a_core_of_the_kernel() {
    for threads in [1, 6] {
        let program = compile("crash.c", &[]);
        let path = kernel_core(&program, &["segv", &threads.to_string()]);
        let core = check(&program, &path, threads);
        let signal = core.signal().unwrap();
        assert_eq!(signal.tid, core.threads()[0].tid);
        assert_eq!(signal.name(), Some("SIGSEGV"));
        assert_eq!(
            (signal.code, signal.address),
            (1, Some(RuntimeAddr(0x12_3450)))
        );
        let process = core.process().unwrap();
        assert_eq!(process.name, "crash");
        assert!(process.arguments.contains("segv"), "{process:?}");
        let named = core.threads().iter().filter(|thread| thread.name.is_some());
        assert_eq!(
            named.map(|thread| thread.tid).collect::<Vec<_>>(),
            [process.pid]
        );
    }
}

#[test]
fn the_signal_says_why() {
    let program = compile("crash.c", &[]);
    let core = Core::open(kernel_core(&program, &["abort"])).unwrap();
    let signal = core.signal().unwrap();
    assert_eq!(signal.name(), Some("SIGABRT"));
    assert_eq!(signal.sender.unwrap().pid, core.process().unwrap().pid);
    // Other processors report each address.
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let core = Core::open(kernel_core(&compile("crash.c", &[]), &["noncanonical"])).unwrap();
    assert_eq!(
        (
            core.signal().unwrap().address,
            core.signal().unwrap().sender
        ),
        (None, None)
    );
}

#[test]
fn a_core_of_gdb() {
    for threads in [1, 4] {
        let program = compile("threads.c", &[]);
        let mut running = start(&program, &[&threads.to_string(), "5000"]);
        assert_eq!(running.line(), "ready");
        running.await_state('S');
        let path = gdb_core(&running);
        let core = check(&program, &path, threads);
        assert_eq!(core.process().unwrap().pid, running.pid());
    }
}

#[test]
fn permissions_names_and_the_auxiliary_vector() {
    let program = compile("crash.c", &[]);
    let core = Core::open(kernel_core(&program, &["segv"])).unwrap();
    let text = core.mappings().find(core.auxv().entry().unwrap()).unwrap();
    assert_eq!(text.path(), Some(program.as_path()));
    assert!(text.permissions.execute && !text.permissions.write);
    let stack_pointer = core.abi().arch.spec().stack_pointer;
    let at = core.threads()[0]
        .registers
        .as_ref()
        .unwrap()
        .get(stack_pointer)
        .unwrap();
    let stack = core.mappings().find(RuntimeAddr(at)).unwrap();
    assert_eq!(stack.name.as_deref(), Some("[stack]".as_ref()));
    assert!(stack.permissions.write && !stack.permissions.execute);
    let vdso = core
        .mappings()
        .find(core.auxv().sysinfo_ehdr().unwrap())
        .unwrap();
    assert_eq!(vdso.name.as_deref(), Some("[vdso]".as_ref()));
    assert!(core.vdso_image().unwrap().unwrap().starts_with(b"\x7fELF"));
    assert_eq!(core.build_id_at(vdso).unwrap().len(), 20);
}

#[test]
fn text_is_mapped_but_not_recorded() {
    // The kernel records the first page of a file, which may have text, too.
    let program = compile("crash.c", &["-Wl,-z,separate-code"]);
    let core = Core::open(kernel_core(&program, &["segv"])).unwrap();
    let entry = core.auxv().entry().unwrap();
    let error = core.memory().read(entry, &mut [0; 16]).unwrap_err();
    assert_eq!(
        error,
        Unreadable {
            addr: entry,
            reason: UnreadableReason::NotRecorded
        }
    );
    let error = core
        .memory()
        .read(RuntimeAddr(0x1000), &mut [0; 8])
        .unwrap_err();
    assert_eq!(error, Unreadable::unmapped(RuntimeAddr(0x1000)));
    let error = core
        .memory()
        .read(RuntimeAddr(u64::MAX - 2), &mut [0; 8])
        .unwrap_err();
    assert_eq!(error.reason, UnreadableReason::Unmapped);
    // A read that begins in recorded memory and leaves it reports the first missing address.
    let heap_end = core.mappings().iter().find(|mapping| {
        let last = RuntimeAddr(mapping.end.0 - 8);
        core.mappings().find(mapping.end).is_none() && core.memory().read(last, &mut [0; 8]).is_ok()
    });
    let end = heap_end.unwrap().end;
    let error = core
        .memory()
        .read(RuntimeAddr(end.0 - 8), &mut [0; 16])
        .unwrap_err();
    assert_eq!(error, Unreadable::unmapped(end));
}

#[test]
fn build_ids_are_read_from_the_core() {
    let program = compile("crash.c", &["-Wl,--build-id=sha1"]);
    let core = Core::open(kernel_core(&program, &["segv"])).unwrap();
    let text = core.mappings().find(core.auxv().entry().unwrap()).unwrap();
    let id: String = core
        .build_id_at(text)
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let output = run_tool("readelf", &["-n", program.to_str().unwrap()]);
    let notes = output.out;
    assert!(
        notes.contains(&format!("Build ID: {id}")),
        "{id} not in {notes}"
    );

    let program = compile("crash.c", &["-Wl,--build-id=none"]);
    let core = Core::open(kernel_core(&program, &["segv"])).unwrap();
    let text = core.mappings().find(core.auxv().entry().unwrap()).unwrap();
    let found = core.build_id_at(text);
    // GNU ld 2.44 puts the other notes behind the page that the kernel records.
    let is_missing =
        |error: &NoBuildId| matches!(error, NoBuildId::Absent { .. } | NoBuildId::Unreadable(_));
    assert!(found.as_ref().is_err_and(is_missing), "{found:?}");
}

/// Uses every query of a core.
fn use_all(core: &Core) {
    for mapping in core.mappings() {
        let _ = core.build_id_at(mapping);
        let mut bytes = [0; 64];
        let _ = core.memory().read(mapping.start, &mut bytes);
        let _ = core
            .memory()
            .read(RuntimeAddr(mapping.end.0.wrapping_sub(32)), &mut bytes);
    }
    let _ = core.vdso_image();
    for problem in core.problems() {
        assert!(!problem.to_string().is_empty());
    }
}

#[test]
fn a_core_may_be_cut_anywhere() {
    let program = compile("crash.c", &[]);
    let whole = fs::read(kernel_core(&program, &["segv", "3"])).unwrap();
    let complete = Core::from_bytes(whole.clone()).unwrap();
    let early = 0..8192.min(whole.len());
    let late = (8192..whole.len()).step_by(7919);
    let mut last_threads = 0;
    for length in early.step_by(3).chain(late) {
        match Core::from_bytes(whole[..length].to_vec()) {
            Ok(core) => {
                assert!(!core.problems().is_empty(), "cut at {length} unnoticed");
                assert!(core.threads().len() >= last_threads);
                last_threads = core.threads().len();
                for (ours, real) in core.threads().iter().zip(complete.threads()) {
                    assert_eq!(ours.tid, real.tid);
                    // The note with the vector registers follows the one with the others.
                    let (ours, real) = (ours.registers.as_ref(), real.registers.as_ref());
                    let general = |registers: &Registers| registers.first::<17>();
                    assert_eq!(ours.map(general), real.map(general));
                    let mut vectors = ours.iter().flat_map(|own| own.iter());
                    assert!(vectors.all(|(register, value)| {
                        real.is_ok_and(|real| real.get(register) == Some(value))
                    }));
                }
                use_all(&core);
            }
            Err(CoreError::Empty) => assert_eq!(length, 0),
            Err(CoreError::NotElf) => assert!(length < 4),
            Err(CoreError::TooShort { length: found, .. }) => {
                assert_eq!(found, u64::try_from(length).unwrap());
                assert!(length < 64 + 56);
            }
            Err(other) => panic!("{length}: {other}"),
        }
    }
    assert_eq!(last_threads, 3);
    let half = Core::from_bytes(whole[..whole.len() / 2].to_vec()).unwrap();
    let lost = half.mappings().iter().filter_map(|mapping| {
        let last = RuntimeAddr(mapping.end.0 - 1);
        half.memory()
            .read(last, &mut [0])
            .err()
            .map(|error| error.reason)
    });
    assert!(lost.clone().any(|why| why == UnreadableReason::Truncated));
    assert!(
        half.problems()
            .iter()
            .any(|problem| matches!(problem, CoreProblem::Truncated { .. }))
    );
}

#[test]
fn damaged_headers_and_notes_never_panic() {
    let program = compile("crash.c", &[]);
    let whole = fs::read(kernel_core(&program, &["segv", "2"])).unwrap();
    let headers = 5000.min(whole.len());
    // Sets every byte of the headers and notes in turn to values that make sizes extreme.
    let mut bytes = whole[..whole.len().min(20_000)].to_vec();
    for at in 0..headers {
        for value in [0, 0xff, bytes[at] ^ 0x80] {
            let kept = std::mem::replace(&mut bytes[at], value);
            if let (Ok(core), 0) = (Core::from_bytes(bytes.clone()), at % 16) {
                use_all(&core);
            }
            bytes[at] = kept;
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_core_of_a_32_bit_process_is_refused() {
    let program = compile("pause32.S", &["-m32", "-nostdlib", "-static"]);
    let error = Core::open(kernel_core(&program, &["crash"])).unwrap_err();
    assert!(matches!(error, CoreError::Class { class: 1 }), "{error}");
}

#[test]
fn invalid_core_files_are_rejected_with_a_reason() {
    assert!(matches!(
        Core::open("/no/such/core"),
        Err(CoreError::Open { .. })
    ));
    assert!(matches!(
        Core::from_bytes(Vec::new()),
        Err(CoreError::Empty)
    ));
    assert!(matches!(
        Core::from_bytes(b"text file".to_vec()),
        Err(CoreError::NotElf)
    ));
    let program = compile("crash.c", &[]);
    let error = Core::open(&program).unwrap_err();
    assert!(matches!(error, CoreError::NotCore { .. }), "{error}");
}

const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;

/// A copy of a core in which nobody knows the notes of these types.
fn without_notes(core: &Path, kinds: &[u32]) -> PathBuf {
    let mut bytes = fs::read(core).unwrap();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let size = |bytes: &[u8], at: usize| word(bytes, at) as usize;
    let (headers, count) = (size(&bytes, 32), usize::from(bytes[56]));
    let notes = (0..count).map(|index| headers + 56 * index);
    let notes: Vec<usize> = notes.filter(|at| word(&bytes, *at) == 4).collect();
    for header in notes {
        let mut at = size(&bytes, header + 8);
        let end = at + size(&bytes, header + 32);
        while at < end {
            let length = [at, at + 4].map(|at| size(&bytes, at).next_multiple_of(4));
            if kinds.contains(&word(&bytes, at + 8)) {
                bytes[at + 8..at + 12].fill(0xff);
            }
            at += 12 + length[0] + length[1];
        }
    }
    let copy = directory().join("core");
    fs::write(&copy, bytes).unwrap();
    copy
}

/// The return addresses of all threads, which are all reliable.
fn reliable_stacks(core: &Core, search: &FileSearch) -> Vec<Vec<RuntimeAddr>> {
    let files = CoreFiles::new(core, search).unwrap();
    let store = Store::new(None, None, None);
    let unwinder = SnapshotUnwinder::with_files(core, &files, &store);
    let walk = |thread| unwinder.walk(thread, 1000, WalkDetail::Frames).unwrap();
    let stacks = core.threads().iter().map(walk);
    let addresses = stacks.map(|stack| {
        assert!(stack.is_reliable(), "{stack:?}");
        stack
            .frames
            .iter()
            .map(|frame| frame.code.address())
            .collect()
    });
    addresses.collect()
}

/// The loaded objects of a core say what the list of files would.
#[test]
fn a_core_without_a_list_of_files() {
    let program = compile("crash.c", &[]);
    let kernel = program.with_extension("core");
    fs::rename(kernel_core(&program, &["segv", "3"]), &kernel).unwrap();
    let shell = format!(
        "echo 0x23 > /proc/self/coredump_filter; exec {} segv 3",
        program.display()
    );
    let without_headers = kernel_core_of(limitless("sh").args(["-c", &shell]), &program);
    let running = {
        let program = compile("threads.c", &[]);
        let mut running = start(&program, &["3", "5000"]);
        assert_eq!(running.line(), "ready");
        running.await_state('S');
        running
    };
    let other = compile("crash.c", &["-O2"]);
    let given = FileSearch {
        executable: Some(program.clone()),
        ..FileSearch::default()
    };
    let at_paths = FileSearch::default();
    let root = directory();
    let recorded = Core::open(&without_headers).unwrap();
    for path in recorded.mappings().iter().filter_map(Mapping::path) {
        let copy = root.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(path, copy).unwrap();
    }
    // The loader has other names of the same folders.
    for name in ["lib", "lib64"] {
        let linked = fs::read_link(Path::new("/").join(name)).unwrap();
        std::os::unix::fs::symlink(linked, root.join(name)).unwrap();
    }
    let below_root = FileSearch {
        sysroot: Some(root),
        ..FileSearch::default()
    };
    let current = std::env::current_dir().unwrap();
    let up: PathBuf = current.components().skip(1).map(|_| "..").collect();
    let relative = FileSearch {
        executable: Some(up.join(program.strip_prefix("/").unwrap())),
        ..FileSearch::default()
    };
    let by_auxv: [(&Path, &[u32], &FileSearch); 8] = [
        (&kernel, &[NT_FILE], &at_paths),
        (&kernel, &[NT_FILE, NT_AUXV], &given),
        (&kernel, &[NT_FILE, NT_AUXV], &relative),
        (&without_headers, &[NT_FILE], &relative),
        (&without_headers, &[NT_FILE], &at_paths),
        (&without_headers, &[NT_FILE, NT_AUXV], &given),
        (&without_headers, &[NT_FILE], &below_root),
        (&gdb_core(&running), &[NT_FILE], &at_paths),
    ];
    for (path, missing, search) in by_auxv {
        let mut core = Core::open(without_notes(path, missing)).unwrap();
        assert!(
            core.mappings()
                .iter()
                .all(|mapping| mapping.path().is_none())
        );
        core.find_objects(search).unwrap();
        let whole = Core::open(path).unwrap();
        for mapping in whole
            .mappings()
            .iter()
            .filter(|mapping| mapping.path().is_some())
        {
            let found = core.mappings().find(mapping.start).unwrap();
            // Its name is in the program's read-only data, which this core lacks.
            let name = mapping.path().unwrap().file_name().unwrap();
            let is_loader = name.to_string_lossy().starts_with("ld-linux-");
            if is_loader && *path == *without_headers {
                continue;
            }
            let file = |mapping: &Mapping| fs::canonicalize(mapping.path()?).ok();
            assert_eq!(file(found), file(mapping), "{found:?} {mapping:?}");
            assert_eq!(found.offset, mapping.offset);
        }
        let stacks = reliable_stacks(&whole, &at_paths);
        assert_eq!(reliable_stacks(&core, search), stacks, "{missing:x?}");
    }
    let wrong = FileSearch {
        executable: Some(other.clone()),
        ..FileSearch::default()
    };
    let mut core = Core::open(without_notes(&kernel, &[NT_FILE])).unwrap();
    core.find_objects(&wrong).unwrap();
    let problem = CoreFiles::new(&core, &wrong).unwrap_err();
    let id = |path: &Path| ElfFile::open(path).unwrap().build_id().unwrap();
    let ids = format!(
        "build ID {} is mapped, {} is on disk",
        id(&program),
        id(&other)
    );
    assert!(problem.to_string().ends_with(&ids), "{problem}");
    let mut core = Core::open(without_notes(&kernel, &[NT_FILE, NT_AUXV])).unwrap();
    // Its segments may have the sizes of the right one's.
    let placed = core.find_objects(&wrong);
    let problem = placed.and_then(|()| CoreFiles::new(&core, &wrong).map(drop));
    let problem = problem.unwrap_err();
    let is_refused = matches!(
        problem,
        FileProblem::Unplaced { .. } | FileProblem::OtherProgram { .. }
    );
    assert!(is_refused, "{problem}");
}
