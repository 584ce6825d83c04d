//! The command's cache of compiled tables: its contents, concurrent writers, failures to write, and
//! `unspool cache`.
//!
//! As root, these tests also run the command as other users.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use unspool_testing::{
    Finish as _, Folder, RunningProgram, TextOutput, await_state, command, run_tool, set_age,
    set_mode, tool,
};

use crate::harness;
use crate::json;
use crate::stack::build::BuiltProgram;
use crate::stack::run::ready;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The users `nobody` and `daemon`: two different users, neither of them root.
const NOBODY: u32 = 65534;
const DAEMON: u32 = 1;

/// A program that waits in a function `small`, `large` or `variable`.
fn program() -> BuiltProgram {
    BuiltProgram::build("recursion.c", &["-O1"])
}

fn wait(program: &BuiltProgram) -> RunningProgram {
    ready(program, &["10"])
}

/// `unspool` with `cache` below the directory as `XDG_CACHE_HOME`.
fn unspool(directory: &Folder) -> Command {
    with_environment(harness::unspool(), directory)
}

/// `unspool`, started by `sh` after these commands.
fn unspool_after(commands: &str, directory: &Folder) -> Command {
    let mut shell = command("sh");
    let exec = format!("{commands}; exec \"$0\" \"$@\"");
    shell.args(["-c", &exec, env!("CARGO_BIN_EXE_unspool")]);
    with_environment(shell, directory)
}

fn with_environment(mut command: Command, directory: &Folder) -> Command {
    command
        .current_dir(directory.path())
        .env("XDG_CACHE_HOME", directory.path().join("cache"))
        .env_remove("HOME");
    command
}

#[derive(Debug, PartialEq)]
struct Printed {
    status: ExitStatus,
    out: String,
    err: String,
}

fn printed(command: &mut Command) -> Printed {
    let TextOutput { status, out, err } = command.finish();
    Printed { status, out, err }
}

impl Printed {
    /// Asserts success without a notice; returns the output.
    fn quiet(self) -> String {
        assert!(self.status.success() && self.err.is_empty(), "{self:?}");
        self.out
    }

    /// Asserts success and a complete stack.
    fn assert_stack(&self) {
        assert!(self.status.success(), "{self:?}");
        for text in ["  small+0x", "  large+0x", "  variable+0x", "  complete: "] {
            assert!(self.out.contains(text), "{text}: {self:?}");
        }
    }

    /// Asserts a complete stack, and that all notices are about tables that cannot be stored, with
    /// this reason.
    fn assert_not_kept(&self, reason: &str) {
        self.assert_stack();
        assert!(!self.err.is_empty(), "{reason}: {self:?}");
        for line in self.err.lines() {
            let is_notice = line.starts_with("unspool: ")
                && line.contains("no compiled table kept: ")
                && line.contains(reason);
            assert!(is_notice, "{reason}: {line}");
        }
    }
}

impl Printed {
    /// Asserts a single notice for all modules, with their names and a remedy.
    fn assert_one_notice(&self, program: &BuiltProgram) {
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        let names = [program.path(), "/libc.so.6"].map(|path| path.rsplit('/').next().unwrap());
        for text in names.into_iter().chain(["XDG_CACHE_HOME", "--no-cache"]) {
            assert!(self.err.contains(text), "{text}: {self:?}");
        }
        assert!(!self.err.contains("map_files"), "{self:?}");
    }
}

fn stack(running: &RunningProgram, mut unspool: Command) -> Printed {
    printed(unspool.arg("stack").arg(running.pid().to_string()))
}

fn cache(directory: &Folder) -> PathBuf {
    directory.path().join("cache/unspool")
}

/// The regular files of a folder by name, with their bytes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let contents = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    entries.map(contents).collect()
}

fn names(folder: &Path) -> Vec<String> {
    contents(folder).into_keys().collect()
}

fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// The key of a file's tables: its build ID from `readelf`, and a hash from `sha256sum`.
fn key(path: &str) -> String {
    let notes = tool("readelf").args(["-n", path]).succeed();
    let after = notes.split("Build ID: ").nth(1).unwrap();
    let hash = command("sha256sum").arg(path).succeed();
    format!(
        "{}-{}",
        after.split_whitespace().next().unwrap(),
        &hash[..40]
    )
}

/// A library of this code, which interposes functions of libc.
fn before_libc(directory: &Folder, code: &str) -> PathBuf {
    let at = |name: &str| directory.path().join(name);
    let (source, library) = (at("before_libc.c"), at("before_libc.so"));
    fs::write(&source, code).unwrap();
    let files = ["-o", library.to_str().unwrap(), source.to_str().unwrap()];
    let built = run_tool("gcc", &[&["-shared", "-fPIC"], &files[..]].concat());
    assert!(built.status.success(), "{built:?}");
    library
}

// Contents of the cache.

#[test]
fn missing_tables_are_made_once_and_then_used() {
    let program = program();
    let running = wait(&program);
    let directory = &program.directory;
    let first = stack(&running, unspool(directory));
    first.assert_stack();
    assert_eq!(first.err, "");
    let folder = cache(directory);
    let own = folder.join(format!("{}.unspool", key(program.path())));
    assert!(own.exists());
    assert!(names(&folder).len() >= 2, "the program and libc");
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let made = inode(&own);

    stack(&running, unspool(directory)).assert_stack();
    assert_eq!(inode(&own), made, "not made again");

    // What is wrong with a table is reported once, and the table is compiled again.
    let whole = fs::read(&own).unwrap();
    fs::write(&own, &whole[..whole.len() / 2]).unwrap();
    let printed = stack(&running, unspool(directory));
    printed.assert_stack();
    let expected = format!("unspool: {}: table is truncated", own.display());
    assert!(printed.err.starts_with(&expected), "{printed:?}");
    assert_eq!(printed.err.lines().count(), 1, "{printed:?}");
    assert_eq!(fs::read(&own).unwrap(), whole);
    assert_eq!(stack(&running, unspool(directory)).err, "");
}

#[test]
fn nobody_else_may_look_into_the_cache_whatever_the_umask_is() {
    for umask in ["0", "022", "077"] {
        let program = program();
        let directory = &program.directory;
        let mut unspool = unspool_after(&format!("umask {umask}"), directory);
        printed(unspool.args(["compile", program.path()])).quiet();
        let folder = cache(directory);
        let modes = [folder.parent().unwrap(), &folder].map(mode);
        assert_eq!(modes, [0o700, 0o700], "umask {umask}");
        let tables = names(&folder);
        assert_eq!(tables, [format!("{}.unspool", key(program.path()))]);
        assert_eq!(mode(&folder.join(&tables[0])), 0o600, "umask {umask}");
    }
}

/// Notices name a file itself, not the kernel's link to it.
#[test]
fn a_stale_table_in_a_program_itself_is_named() {
    let BuiltProgram { directory, path } = program();
    let own = path.to_str().unwrap();
    printed(unspool(&directory).args(["compile", own, "--into", own])).quiet();
    let mut bytes = fs::read(&path).unwrap();
    let table = bytes
        .windows(10)
        .position(|start| start == b"unspool\0\x02\0");
    bytes[table.unwrap() + 8] = 77;
    fs::write(&path, bytes).unwrap();
    let program = BuiltProgram { directory, path };
    let running = wait(&program);
    let printed = stack(&running, unspool(&program.directory));
    printed.assert_stack();
    let expected = format!(
        "unspool: {}: version 77 of compiled tables ",
        program.path()
    );
    assert!(printed.err.starts_with(&expected), "{printed:?}");
    assert_eq!(printed.err.lines().count(), 1, "{printed:?}");
}

/// A corrupt compiled table is not used, and is replaced.
#[test]
fn a_corrupt_table_is_done_without() {
    let program = program();
    let running = wait(&program);
    let directory = &program.directory;
    stack(&running, unspool(directory)).assert_stack();
    let path = cache(directory).join(format!("{}.unspool", key(program.path())));
    let good = fs::read(&path).unwrap();
    // The section of rows becomes ones: an entry of the directory has the tag, flags, the offset and
    // the length (`docs/formats.md`).
    let mut bad = good.clone();
    let entry = bad.windows(4).position(|word| word == b"ROWX").unwrap();
    let field = |n: usize| {
        let bytes = good[entry + 4 * n..].first_chunk().unwrap();
        usize::try_from(u32::from_le_bytes(*bytes)).unwrap()
    };
    bad[field(2)..field(2) + field(3)].fill(0xff);
    fs::write(&path, bad).unwrap();
    let printed = stack(&running, unspool(directory));
    printed.assert_stack();
    let corrupt = "the compiled table is corrupt: ";
    let expected = format!("unspool: {}: {corrupt}", path.display());
    assert!(printed.err.starts_with(&expected), "{printed:?}");
    assert_eq!(printed.err.lines().count(), 1, "{printed:?}");
    assert!(fs::read(&path).unwrap() == good);
}

/// With `--no-cache`, neither the cache's contents nor a failure to write it matters.
#[test]
fn without_the_cache_nothing_is_read_or_written() {
    let program = program();
    let running = wait(&program);
    let directory = &program.directory;
    let without = |mut unspool: Command| {
        unspool.args(["stack", "--no-cache", &running.pid().to_string()]);
        let printed = printed(&mut unspool);
        printed.assert_stack();
        assert_eq!(printed.err, "");
    };
    without(unspool(directory));
    assert!(!directory.path().join("cache").exists());
    let mut homeless = unspool(directory);
    homeless.env_remove("XDG_CACHE_HOME");
    without(homeless);

    stack(&running, unspool(directory)).assert_stack();
    let folder = cache(directory);
    let own = folder.join(format!("{}.unspool", key(program.path())));
    fs::write(&own, "no table").unwrap();
    let before = contents(&folder);
    without(unspool(directory));
    assert!(contents(&folder) == before);
    let own_is_noticed = stack(&running, unspool(directory)).err;
    assert!(
        own_is_noticed.contains("not a compiled"),
        "{own_is_noticed}"
    );
}

// Failures to write.

/// A file size limit causes write errors if the program ignores the signal: at the first byte, or
/// within a table.
#[test]
fn on_a_full_disk_the_stack_is_shown_and_nothing_is_left_behind() {
    let program = program();
    let running = wait(&program);
    for blocks in [0, 1, 4] {
        let directory = Folder::new();
        let limit = format!("trap '' XFSZ; ulimit -f {blocks}");
        let printed = stack(&running, unspool_after(&limit, &directory));
        printed.assert_stack();
        let folder = cache(&directory);
        assert!(!printed.err.is_empty(), "libc's table is larger");
        for line in printed.err.lines() {
            let expected = format!("no compiled table kept: {}/", folder.display());
            assert!(line.contains(&expected), "{line}");
            assert!(line.contains(": File too large (os error 27); "), "{line}");
        }
        let left = names(&folder);
        assert!(
            !left.iter().any(|name| is_temporary(name)),
            "{blocks}: {left:?}"
        );
        if blocks < 4 {
            printed.assert_not_kept("File too large");
            assert_eq!(left, [""; 0]);
        }
        // When there is room again, tables are stored.
        stack(&running, unspool(&directory)).assert_stack();
        assert_eq!(stack(&running, unspool(&directory)).err, "");
    }
}

/// A failing or full disk whose error is reported only by `fsync`: simulated by an interposed
/// library.
#[test]
fn a_table_that_does_not_reach_the_disk_is_not_kept() {
    let program = program();
    let running = wait(&program);
    let directory = &program.directory;
    let code = "#include <errno.h>\nint fdatasync(int fd) { return errno = EIO, -1; }\n\
                int fsync(int fd) { return fdatasync(fd); }\n";
    let mut unspool = unspool(directory);
    unspool.env("LD_PRELOAD", before_libc(directory, code));
    stack(&running, unspool).assert_not_kept(": Input/output error (os error 5)");
    assert_eq!(names(&cache(directory)), [""; 0]);
}

/// An unusable home: the stack is shown all the same, with the reason for not storing tables.
#[test]
fn without_a_usable_home_the_stack_is_shown() {
    let program = program();
    let running = wait(&program);
    let directory = &program.directory;
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = directory.path().join("missing");
    let cases: [(&Path, &[&str]); 4] = [
        (&file, &["Not a directory"]),
        (&missing, &["No such file or directory"]),
        (Path::new("/proc"), &["No such file or directory"]),
        (
            Path::new("/sys"),
            &[
                "Permission denied",
                "Operation not permitted",
                "Read-only file system",
            ],
        ),
    ];
    for (home, reasons) in cases {
        let mut unspool = unspool(directory);
        unspool.env_remove("XDG_CACHE_HOME").env("HOME", home);
        let printed = stack(&running, unspool);
        printed.assert_not_kept(&format!(" {}/.cache: ", home.display()));
        let is_reported = |reason: &&str| printed.err.contains(reason);
        assert!(reasons.iter().any(is_reported), "{printed:?}");
        printed.assert_one_notice(&program);
    }
    assert_eq!(fs::read(&file).unwrap(), b"");
    assert!(!missing.exists());

    for unset in ["", "relative"] {
        let mut unspool = unspool(directory);
        unspool.env("XDG_CACHE_HOME", unset);
        let why = "no cache folder: neither XDG_CACHE_HOME nor HOME names one";
        let printed = stack(&running, unspool);
        printed.assert_not_kept(why);
        printed.assert_one_notice(&program);
    }
    assert!(!directory.path().join("relative").exists());
}

// Environment and owners.

/// An empty part of the variable is not the working directory, unlike in a shell.
#[test]
fn folders_of_the_table_path() {
    let program = program();
    let running = wait(&program);
    let directory = &program.directory;
    stack(&running, unspool(directory)).assert_stack();
    let name = format!("{}.unspool", key(program.path()));
    set_mode(directory.path(), 0o755);
    fs::write(directory.path().join(&name), "no table").unwrap();
    set_mode(&directory.path().join(&name), 0o644);
    let whole = directory.path().join("whole");
    fs::create_dir(&whole).unwrap();
    set_mode(&whole, 0o755);
    fs::copy(cache(directory).join(&name), whole.join(&name)).unwrap();
    for (path, noticed) in [
        ("", false),
        (":", false),
        ("/nowhere::/nowhere", false),
        (".", true),
        ("/nowhere:.", true),
        ("whole:.", false),
        (".:whole", true),
    ] {
        let mut unspool = unspool(directory);
        unspool.env("UNSPOOL_TABLE_PATH", path);
        let printed = stack(&running, unspool);
        printed.assert_stack();
        let notice = format!("unspool: ./{name}: not a compiled unwind table\n");
        let expected = if noticed { notice.as_str() } else { "" };
        assert_eq!(printed.err, expected, "{path:?}");
    }
}

/// A program whose real and effective users differ, such as a setuid program, ignores the
/// environment.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn a_privileged_program_ignores_the_environment() {
    let program = program();
    let directory = &program.directory;
    fs::write(directory.path().join("file"), "").unwrap();
    let environment = |mut command: Command, arguments: &[&str]| {
        command = with_environment(command, directory);
        command.env("HOME", directory.path());
        printed(command.args(arguments))
    };
    let plain = || harness::unspool();
    let compile = ["compile", program.path()];
    environment(plain(), &compile).quiet();
    let before = contents(&cache(directory));
    assert_eq!(before.len(), 1);
    let privileged = || {
        let version = run_tool("setpriv", &["--version"]);
        assert!(version.status.success());
        let mut command = tool("setpriv");
        command.args(["--ruid", &NOBODY.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_unspool"));
        command
    };
    printed(unspool(directory).args(["cache", "clean"])).quiet();
    for arguments in [&compile[..], &["cache", "list"], &["cache", "clean"]] {
        let printed = environment(privileged(), arguments);
        assert_eq!(printed.status.code(), Some(2), "{printed:?}");
        let why = ": no cache folder: neither XDG_CACHE_HOME nor HOME names one\n";
        let is_why = printed.out.is_empty() && printed.err.ends_with(why);
        assert!(is_why && printed.err.lines().count() == 1, "{printed:?}");
    }
    assert_eq!(names(&cache(directory)), [""; 0]);
    assert!(!directory.path().join(".cache").exists());

    // A notice would name the folders of the table path.
    let running = wait(&program);
    let bad = directory.path().join("bad");
    fs::create_dir(&bad).unwrap();
    set_mode(&bad, 0o777);
    for (command, noticed) in [(plain(), true), (privileged(), false)] {
        let mut command = with_environment(command, directory);
        command.env("UNSPOOL_TABLE_PATH", &bad);
        let printed = stack(&running, command);
        printed.assert_stack();
        assert_eq!(
            printed.err.contains(&bad.display().to_string()),
            noticed,
            "{printed:?}"
        );
    }
}

/// An ordinary user uses their own tables and those of root, and no others.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn an_ordinary_user_trusts_root_and_nobody_else() {
    let program = program();
    // Accessible for every user, unlike the build folder.
    let directory = Folder::below(&std::env::temp_dir());
    set_mode(directory.path(), 0o755);
    let at = |name: &str| directory.path().join(name);
    for (name, from) in [
        ("unspool", env!("CARGO_BIN_EXE_unspool")),
        ("recursion", program.path()),
    ] {
        fs::copy(from, at(name)).unwrap();
        set_mode(&at(name), 0o755);
    }
    for (name, owner) in [("cache", NOBODY), ("tables", 0)] {
        fs::create_dir(at(name)).unwrap();
        set_mode(&at(name), 0o755);
        chown(at(name), Some(owner), None).unwrap();
    }
    let ids = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let as_nobody = |name: &str| {
        let mut command = tool("setpriv");
        command.args(ids).arg(at(name));
        let mut command = with_environment(command, &directory);
        command.env("UNSPOOL_TABLE_PATH", at("tables"));
        command
    };
    let mut running = RunningProgram::start(as_nobody("recursion").arg("10"));
    assert_eq!(running.line(), "ready");
    await_state(running.pid(), 'S');
    let show = || stack(&running, as_nobody("unspool"));

    let first = show();
    first.assert_stack();
    assert_eq!(first.err, "");
    assert_eq!(show().err, "", "their own are used");
    let table = format!("{}.unspool", key(program.path()));
    let (own, packaged) = (cache(&directory).join(&table), at("tables").join(&table));
    assert_eq!(fs::metadata(&own).unwrap().uid(), NOBODY);

    // An invalid table shows by its notice that it was opened.
    fs::write(&packaged, "no table").unwrap();
    set_mode(&packaged, 0o644);
    let opened = format!(
        "unspool: {}: not a compiled unwind table\n",
        packaged.display()
    );
    let refused = format!(
        "unspool: {}: not trusted: owned by user 1, mode 644; ",
        packaged.display()
    );
    for (owner, expected) in [(0, &opened), (NOBODY, &opened), (DAEMON, &refused)] {
        chown(&packaged, Some(owner), None).unwrap();
        let printed = show();
        printed.assert_stack();
        assert!(printed.err.starts_with(expected), "{owner}: {printed:?}");
        assert_eq!(printed.err.lines().count(), 1, "{owner}: {printed:?}");
    }
    fs::remove_file(&packaged).unwrap();

    // Root's table in the user's cache is used, though its time of use cannot be recorded.
    set_mode(&own, 0o644);
    chown(&own, Some(0), None).unwrap();
    set_age(&own, 24 * 30 * HOUR);
    assert_eq!(show().err, "");
    // A cache that only root can read is reported once; the folder cannot be written to either.
    let folder = cache(&directory);
    chown(&folder, Some(0), None).unwrap();
    let printed = show();
    printed.assert_stack();
    let closed = format!("unspool: {}: Permission denied", folder.display());
    let lines = printed.err.lines();
    assert_eq!(
        lines.filter(|line| line.starts_with(&closed)).count(),
        1,
        "{printed:?}"
    );
    // A third user's cache is refused.
    set_mode(&folder, 0o755);
    chown(&folder, Some(DAEMON), None).unwrap();
    let printed = show();
    printed.assert_stack();
    let refused = format!(
        "unspool: {}: not trusted: owned by user 1, mode 755; ",
        folder.display()
    );
    let lines = printed.err.lines();
    assert_eq!(
        lines.filter(|line| line.starts_with(&refused)).count(),
        1,
        "{printed:?}"
    );
}

// `unspool cache`.

fn list_json(directory: &Folder) -> Value {
    let arguments = ["cache", "list", "--format", "json"];
    json::document(printed(unspool(directory).args(arguments)).quiet())
}

fn list_text(directory: &Folder) -> String {
    printed(unspool(directory).args(["cache", "list"])).quiet()
}

fn clean(directory: &Folder) -> String {
    printed(unspool(directory).args(["cache", "clean"])).quiet()
}

fn assert_empty(directory: &Folder) {
    let folder = cache(directory);
    assert_eq!(
        list_text(directory),
        format!("0 tables, 0 bytes in {}\n", folder.display())
    );
    let expected = json!({
        "schema": "unspool.cache",
        "version": 2,
        "bytes": 0,
        "tables": [],
        "modules_with_names": 0,
        "name_bytes": 0,
    });
    assert_eq!(list_json(directory), expected);
    assert_eq!(clean(directory), "removed 0 tables, 0 bytes\n");
}

#[test]
fn listing_and_cleaning() {
    let directory = Folder::new();
    assert_empty(&directory);
    assert!(
        !directory.path().join("cache").exists(),
        "looking makes no folder"
    );
    let folder = cache(&directory);
    fs::create_dir_all(&folder).unwrap();
    set_mode(&folder, 0o700);
    assert_empty(&directory);

    let (first, second) = ("aa".repeat(20), "sha256-".to_owned() + &"bb".repeat(20));
    for (name, size, hours) in [(&second, 12345, 0), (&first, 67, 50)] {
        let path = folder.join(format!("{name}.unspool"));
        fs::write(&path, vec![0; size]).unwrap();
        set_age(&path, HOUR * hours);
    }
    fs::create_dir(folder.join("keys")).unwrap();
    set_mode(&folder.join("keys"), 0o700);
    fs::write(folder.join("keys/07f"), "a key").unwrap();
    let expected = format!(
        "        67     50 h  {first}.unspool\n     12345      0 h  {second}.unspool\n\
         2 tables, 12412 bytes in {}\n",
        folder.display()
    );
    assert_eq!(list_text(&directory), expected);
    let listed = list_json(&directory);
    assert_eq!(listed["bytes"], 12412);
    let tables = listed["tables"].as_array().unwrap();
    let named = [(&first, 67_u64, 50), (&second, 12345, 0)];
    assert_eq!(tables.len(), named.len());
    for (table, (name, size, hours)) in tables.iter().zip(named) {
        let path = folder.join(format!("{name}.unspool"));
        assert_eq!(table["path"], path.to_str().unwrap());
        assert_eq!(table["bytes"], size);
        assert_eq!(table["seconds_since_use"].as_u64().unwrap() / 3600, hours);
    }

    let arguments = ["cache", "clean", "--format", "json"];
    let removed = printed(unspool(&directory).args(arguments)).quiet();
    let expected = json!({
        "schema": "unspool.cache-clean",
        "version": 2,
        "tables_removed": 2,
        "bytes": 12412,
        "modules_with_names": 0,
        "name_bytes": 0,
    });
    assert_eq!(json::document(removed), expected);
    assert!(!folder.join("keys/07f").exists());
    assert_empty(&directory);
}

#[test]
fn names_that_are_kept_are_listed_and_removed_too() {
    let directory = Folder::new();
    let folder = cache(&directory).join("names");
    fs::create_dir_all(&folder).unwrap();
    set_mode(&cache(&directory), 0o700);
    fs::write(folder.join("ab".repeat(20)), [0; 100]).unwrap();
    fs::write(folder.join("notes"), "not ours").unwrap();
    let (tables, named) = (cache(&directory), folder.display());
    let expected = format!(
        "0 tables, 0 bytes in {}\nnames of 1 modules, 100 bytes in {named}\n",
        tables.display()
    );
    assert_eq!(list_text(&directory), expected);
    assert_eq!(list_json(&directory)["name_bytes"], 100);
    let removed = clean(&directory);
    let expected = "removed 0 tables, 0 bytes\nremoved the names of 1 modules, 100 bytes\n";
    assert_eq!(removed, expected);
    assert_eq!(names(&folder), ["notes"]);
}

/// If the folder is not a folder, or untrusted, `cache` reports it.
#[test]
fn a_cache_that_cannot_be_looked_at_is_an_error() {
    let directory = Folder::new();
    let folder = cache(&directory);
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    fs::write(&folder, "").unwrap();
    let expected = format!(
        "unspool: error: {}: Not a directory (os error 20)\n",
        folder.display()
    );
    let compile = printed(unspool(&directory).args(["compile", "/bin/true"]));
    assert_eq!(compile.status.code(), Some(2), "{compile:?}");
    for text in [
        "/bin/true: ",
        "XDG_CACHE_HOME",
        "--output",
        "not a directory",
    ] {
        assert!(compile.err.contains(text), "{text}: {compile:?}");
    }
    let list = printed(unspool(&directory).args(["cache", "list"]));
    assert_eq!((list.status.code(), list.err), (Some(2), expected));
    fs::remove_file(&folder).unwrap();
    symlink("nowhere", &folder).unwrap();
    assert_empty(&directory);
    fs::remove_file(&folder).unwrap();

    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o770);
    let clean = printed(unspool(&directory).args(["cache", "clean"]));
    assert_eq!(clean.status.code(), Some(2), "{clean:?}");
    let expected = format!("unspool: error: {}: not trusted: ", folder.display());
    assert!(clean.err.starts_with(&expected), "{clean:?}");
}

/// It only reads, and so does not report a read-only cache.
#[test]
fn a_closed_output_pipe_is_accepted() {
    let directory = Folder::new();
    let mut command = unspool(&directory);
    command.args(["cache", "list"]).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}
