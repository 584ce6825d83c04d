//! Processes with files that are not at their paths for this process.

use std::fs;
use std::path::Path;

use unspool_testing::{Folder, RunningProgram, run_tool, tool};

use crate::stack::build::{BuiltProgram, compile};
use crate::stack::compare::{compare, has_functions};
use crate::stack::debugger::gdb_process;
use crate::stack::unspool::report;

/// Makes a file system that only the program sees, with the program, its libraries and its debug
/// information, and starts it there.
const START: &str = r#"
set -e
root=$1 program=$2 debug=$3 link=$4
mount -t tmpfs none "$root"
mkdir -p "$root$(dirname "$debug")" "$root/bin"
ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
objcopy --only-keep-debug "$program" "$root$debug"
strip -o "$root/bin/contained" "$program"
if [ "$link" ]; then
    objcopy --remove-section=.note.gnu.build-id --add-gnu-debuglink="$root$debug" "$root/bin/contained"
fi
exec chroot "$root" /bin/contained 5
"#;

/// The path of a debug file by build ID.
fn debug_path(program: &Path) -> String {
    let output = run_tool("eu-readelf", &["-n", program.to_str().unwrap()]);
    let text = output.out;
    let id = text.split("Build ID: ").nth(1).unwrap();
    let (first, rest) = id.lines().next().unwrap().trim().split_at(2);
    format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")
}

/// Starts a program so; it is ready.
fn start(directory: &Folder, program: &Path, debug: &str, link: &str) -> RunningProgram {
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut command = tool("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", START, "start"]);
    let [inside, program] = [&root, program].map(|path| path.to_str().unwrap());
    command.args([inside, program, debug, link]);
    let mut running = RunningProgram::start(&mut command);
    running.await_ready();
    assert!(
        !root.join("bin/contained").exists(),
        "it is seen from outside"
    );
    running
}

/// A debug file beside the program is looked up in the program's own file system.
#[test]
fn a_debug_file_beside_a_program_with_a_file_system_of_its_own() {
    let directory = Folder::new();
    let path = compile(&directory, "recursion.c", &["-O2", "-g"]);
    for debug in [
        "/bin/.debug/contained.debug",
        "/usr/lib/debug/bin/contained.debug",
    ] {
        let running = start(&directory, &path, debug, "by its name");
        let pid = running.pid();
        let ours = report(&directory, &["--reliable", &pid.to_string()]);
        let frames = ours.json["threads"][0]["frames"].as_array().unwrap();
        let main = frames.iter().find(|frame| frame["symbol"] == "main");
        let main = main.unwrap_or_else(|| panic!("{debug}: {}", ours.json));
        let source = main["functions"][0]["file"].as_str();
        let is_its = source.is_some_and(|file| file.ends_with("/recursion.c"));
        assert!(is_its, "{debug}: {main}");
        drop(running);
        fs::remove_dir(directory.path().join("root")).unwrap();
    }
}

/// As in a container: the paths of the process are invalid for others. Its mapped files are found
/// by the kernel's links and in its own root. gdb enters the process's root, which takes privileges.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn a_process_with_a_file_system_of_its_own() {
    let directory = Folder::new();
    let path = compile(&directory, "recursion.c", &["-O2", "-g"]);
    let debug = debug_path(&path);
    assert!(!Path::new(&debug).exists());
    let running = start(&directory, &path, &debug, "");
    let program = BuiltProgram { directory, path };
    let pid = running.pid();
    let gdb = gdb_process(pid, &program.directory.path().join("gdb.core"));
    for _ in ["no compiled tables", "compiled tables"] {
        let ours = report(&program.directory, &["--reliable", &pid.to_string()]);
        let stack = &ours.threads[&pid];
        // gdb finds the frames but not the files that name them.
        let mut gdb = gdb.clone();
        for (theirs, ours) in gdb.get_mut(&pid).unwrap().iter_mut().zip(&stack.frames) {
            theirs.names.clone_from(&ours.names);
        }
        compare(&ours, &gdb, "in a container");
        let expected = ["small", "large", "small", "main", "_start"];
        assert!(has_functions(stack, &expected), "{stack:?}");
        assert_eq!(stack.guesses(), Vec::<&str>::new());
        let frames = ours.json["threads"][0]["frames"].as_array().unwrap();
        let main = frames
            .iter()
            .find(|frame| frame["symbol"] == "main")
            .unwrap();
        let source = main["functions"][0]["file"].as_str();
        assert!(
            source.is_some_and(|file| file.ends_with("/recursion.c")),
            "{main}"
        );
    }
}
