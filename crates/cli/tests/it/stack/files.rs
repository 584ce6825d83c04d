//! Files that were deleted or replaced since they were mapped.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_testing::{
    Finish as _, Folder, RunningProgram, await_state, command, filter, run_tool, tool,
};

use crate::harness;
use crate::stack::build::{BuiltProgram, compile};
use crate::stack::compare::{
    ExpectedStack, assert_same_frames, check_live, compare, has_functions,
};
use crate::stack::debugger::gdb_process;
use crate::stack::run::ready;
use crate::stack::unspool::{Printed, printed, report, report_core, stack, unspool};

/// A program in a separate directory, with its library.
fn with_library() -> (BuiltProgram, PathBuf) {
    let directory = Folder::below(&std::env::temp_dir());
    let library = build_library(&directory, 1);
    let options = ["-O2", "-Wl,-rpath,$ORIGIN", library.to_str().unwrap()];
    let path = compile(&directory, "uses_library.c", &options);
    (BuiltProgram { directory, path }, library)
}

fn build_library(directory: &Folder, build: u32) -> PathBuf {
    let build = format!("-DBUILD={build}");
    let options = ["-O2", "-shared", "-fPIC", "-Wl,--build-id", &build];
    let made = compile(directory, "library.c", &options);
    // A linker that writes into an old file would change the mapped contents.
    let library = directory.path().join("libwaits.so");
    fs::rename(made, &library).unwrap();
    library
}

/// The build ID of a file.
fn build_id(file: &Path) -> String {
    let output = run_tool("eu-readelf", &["-n", file.to_str().unwrap()]);
    let text = output.out;
    text.split("Build ID: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned()
}

/// gdb finds the files of a process only by their paths, so it runs first.
#[test]
fn a_deleted_executable() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let running = ready(&program, &["5"]);
    let expected = ExpectedStack {
        stacks: &[&["small", "large", "small", "main", "_start"]],
        ..ExpectedStack::default()
    };
    let core = program.directory.path().join("gdb.core");
    let before = check_live(&program, running.pid(), &core, expected);
    fs::remove_file(&program.path).unwrap();
    await_state(running.pid(), 'S');
    let after = report(&program.directory, &[&running.pid().to_string()]);
    assert_same_frames(&before, &after);
}

/// The user `nobody` if root runs this test, since root may read mapped files that are deleted.
fn unprivileged(command: &mut Command) -> &mut Command {
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

/// Runs `unspool stack PID` as a user without privileges.
fn unprivileged_stack(program: &BuiltProgram, pid: u32) -> Printed {
    // A copy, since not every user may access the build folder.
    let copy = program.directory.path().join("unspool");
    if !copy.exists() {
        // A copy by another process: a file that a child of this one has open cannot be executed.
        command("cp").arg(harness::UNSPOOL).arg(&copy).succeed();
    }
    let mut command = command(copy);
    command.args(["stack", &pid.to_string()]);
    command.env("XDG_CACHE_HOME", program.directory.join("cache"));
    printed(unprivileged(&mut command))
}

fn start_unprivileged(program: &BuiltProgram) -> RunningProgram {
    let directory = program.directory.path();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let owner = fs::metadata("/proc/self").unwrap().uid();
    if owner == 0 {
        chown(directory, Some(65534), Some(65534)).unwrap();
    }
    let mut running = RunningProgram::start(unprivileged(&mut command(&program.path)));
    running.await_ready();
    running
}

#[test]
fn a_replaced_library() {
    let (program, library) = with_library();
    let running = start_unprivileged(&program);
    let before = build_id(&library);
    build_library(&program.directory, 2);
    let after = build_id(&library);
    assert_ne!(before, after);
    let printed = unprivileged_stack(&program, running.pid());
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    // AArch64's frame pointers lead on, by guesses.
    let way = if cfg!(target_arch = "x86_64") {
        "incomplete: the module's file cannot be used"
    } else {
        "not reliable: outermost frame, but frames were guessed"
    };
    let end = format!(
        "  {way}\n\nfiles that cannot be used:\n  {}: the \
         file was replaced since it was mapped: build ID {before} is mapped, {after} is on disk\n",
        library.display()
    );
    assert!(printed.out.ends_with(&end), "{}", printed.out);
    let name = library.file_name().unwrap().to_str().unwrap();
    let frame = format!("  ??  [{name}, offset 0x");
    assert!(printed.out.contains(&frame), "{}", printed.out);
}

/// The executable itself can always be read, by `/proc/PID/exe`.
#[test]
fn a_replaced_executable() {
    let (program, _) = with_library();
    let running = start_unprivileged(&program);
    fs::remove_file(&program.path).unwrap();
    fs::write(&program.path, "another file").unwrap();
    let printed = unprivileged_stack(&program, running.pid());
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    assert!(printed.out.contains("  main+0x"), "{}", printed.out);
    assert!(
        printed.out.ends_with("  complete: outermost frame\n"),
        "{}",
        printed.out
    );
}

/// A core file outlives the files that it names.
#[test]
fn a_core_file_and_other_files() {
    let (program, library) = with_library();
    let before = build_id(&library);
    let core = ready(&program, &[]).dump_core(&program.directory);
    let path = core.to_str().unwrap();
    let ours = report_core(&program.directory, &core, program.path());
    let stack_of = |report: &crate::stack::unspool::PrintedReport, functions: &[&str]| {
        has_functions(report.threads.values().next().unwrap(), functions)
    };
    assert!(stack_of(&ours, &["waits", "main", "_start"]));

    // Moved, the executable is only found by `--exe`.
    let moved = program.directory.path().join("moved");
    fs::rename(&program.path, &moved).unwrap();
    let moved_path = moved.to_str().unwrap();
    let printed = stack(&program.directory, &["--core", path]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    assert!(
        printed
            .out
            .contains("  incomplete: the module's file cannot be used\n")
    );
    assert!(
        printed.out.contains("No such file or directory"),
        "{}",
        printed.out
    );
    let ours = report_core(&program.directory, &core, moved_path);
    assert!(stack_of(&ours, &["waits", "main", "_start"]));

    // Another program, by its build ID.
    let other = BuiltProgram::build("recursion.c", &["-O2", "-Wl,--build-id"]);
    let printed = stack(&program.directory, &["--core", path, "--exe", other.path()]);
    let refusal = format!(
        "unspool: error: {}: it is not the program of this core: build ID {} is mapped, {} is on \
         disk\n",
        other.path(),
        build_id(&moved),
        build_id(&other.path)
    );
    assert_eq!((printed.status, printed.err), (2, refusal));

    build_library(&program.directory, 2);
    let printed = stack(&program.directory, &["--core", path, "--exe", moved_path]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    let ids = format!(
        "build ID {before} is mapped, {} is on disk",
        build_id(&library)
    );
    assert!(printed.out.contains(&ids), "{}", printed.out);
}

fn build_through(program: &BuiltProgram, name: &str, frame: u32) -> PathBuf {
    let frame = format!("-DFRAME={frame}");
    let options = [
        "-O2",
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-Wl,--build-id",
        &frame,
    ];
    let made = compile(&program.directory, "through.c", &options);
    let library = program.directory.path().join(name);
    fs::rename(made, &library).unwrap();
    library
}

/// One file, loaded three times and also mapped as data.
#[test]
fn copies_of_a_library() {
    let program = BuiltProgram::build("copies.c", &["-O2"]);
    let library = build_through(&program, "libthrough.so", 4);
    let running = ready(&program, &[library.to_str().unwrap()]);
    let core = program.directory.path().join("gdb.core");
    let live = report(&program.directory, &[&running.pid().to_string()]);
    let functions = ["down", "through", "through", "through", "main", "_start"];
    assert!(has_functions(&live.threads[&running.pid()], &functions));
    // Not eu-stack, which takes the data for the module.
    compare(&live, &gdb_process(running.pid(), &core), "live");
    let kernel_core = running.dump_core(&program.directory);
    for core in [core, kernel_core] {
        let recorded = report_core(&program.directory, &core, program.path());
        assert_same_frames(&live, &recorded);
    }
}

/// Two files of one name; the one on disk differs from that of the first copy.
#[test]
fn a_library_that_was_replaced_between_two_copies() {
    let program = BuiltProgram::build("copies.c", &["-O2"]);
    let library = build_through(&program, "libthrough.so", 4);
    let other = build_through(&program, "libother.so", 90);
    let (before, after) = (build_id(&library), build_id(&other));
    let arguments = [library.to_str().unwrap(), other.to_str().unwrap()];
    let running = ready(&program, &arguments);
    let core = running.dump_core(&program.directory);
    let printed = stack(&program.directory, &["--core", core.to_str().unwrap()]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    // The two later copies have a table; the first has none.
    assert_eq!(
        printed.out.matches("  through+0x").count(),
        2,
        "{}",
        printed.out
    );
    assert!(!printed.out.contains("  before+0x"), "{}", printed.out);
    let end = format!(
        "  {}: the file was replaced since it was mapped: build ID {before} is mapped, {after} \
         is on disk\n  --exe FILE names the program, --modules DIR a folder with these files\n",
        library.display()
    );
    assert!(printed.out.ends_with(&end), "{}", printed.out);
}

/// The report of a core is the same in each form.
#[test]
fn compressed_cores() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let core = ready(&program, &["5"]).dump_core(&program.directory);
    let report = |core: &str| stack(&program.directory, &["--core", core]).out;
    let frames = |report: &str| report.split_once('\n').unwrap().1.to_owned();
    let core = core.to_str().unwrap();
    let plain = frames(&report(core));
    assert!(plain.contains("main+0x"), "{plain}");
    for packer in ["zstd", "gzip", "xz", "lz4"] {
        let packed = filter(tool(packer).arg("-c"), &fs::read(core).unwrap());
        let path = format!("{core}.{packer}");
        fs::write(&path, &packed).unwrap();
        assert_eq!(frames(&report(&path)), plain, "{packer}");
        let mut command = unspool(&program.directory);
        let out = filter(command.args(["stack", "--core", "-"]), &packed);
        assert_eq!(frames(&String::from_utf8(out).unwrap()), plain, "{packer}");
        fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let cut = stack(&program.directory, &["--core", &path]);
        let said = format!("{packer} cannot decompress it: ");
        assert!(cut.status == 2 && cut.err.contains(&said), "{cut:?}");
    }
}

/// Files of another machine: below a copy of its file system, or of any name in a folder.
#[test]
fn files_of_a_core_are_elsewhere() {
    let (program, library) = with_library();
    let core = ready(&program, &[]).dump_core(&program.directory);
    let core = core.to_str().unwrap();
    let text = |options: &[&str]| {
        let printed = stack(&program.directory, &[&["--core", core], options].concat());
        printed.out
    };
    let here = text(&[]);
    assert!(here.contains("  complete: outermost frame\n"), "{here}");
    let elsewhere = Folder::new();
    for file in [&program.path, &library] {
        let copy = elsewhere.path().join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
        fs::remove_file(file).unwrap();
    }
    for file in run_tool("ldd", &["/proc/self/exe"]).out.split_whitespace() {
        let is_path = Path::new(file).is_absolute();
        if is_path {
            let copy = elsewhere.path().join(file.strip_prefix('/').unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(file, copy).unwrap();
        }
    }
    let root = elsewhere.path().to_str().unwrap();
    assert!(!text(&[]).contains("  main+0x"));
    assert_eq!(text(&["--sysroot", root]), here);
    assert_eq!(text(&["--modules", root]), here);
}
