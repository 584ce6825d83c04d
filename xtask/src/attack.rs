//! `cargo xtask attack`: attacks of another user on root's unspool (`docs/security.md`), each a
//! function.
//!
//! The attacker is a user without a name and without privileges. An attack returns an error if it
//! succeeds in any way.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// The help of `cargo xtask attack`.
pub const HELP: &str = "\
usage: cargo xtask attack [--only TEXT] [--unspool PATH]

Acts as a stranger and attacks root's unspool in each way that docs/security.md speaks of. Needs root.

  --only TEXT      only attacks with TEXT in their names
  --unspool PATH   the command to attack (default: the one of this repository, which is built)
";

/// An attack: its name in `docs/security.md`, and its function.
struct Attack {
    name: &'static str,
    run: fn(&Scene) -> Result<(), Error>,
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "truncated-libraries",
        run: truncated_libraries,
    },
    Attack {
        name: "overwritten-library",
        run: overwritten_library,
    },
    Attack {
        name: "link-in-sticky-folder",
        run: link_in_sticky_folder,
    },
    Attack {
        name: "file-in-sticky-folder",
        run: file_in_sticky_folder,
    },
    Attack {
        name: "special-files",
        run: special_files,
    },
    Attack {
        name: "link-out-of-a-root",
        run: link_out_of_a_root,
    },
    Attack {
        name: "terminal-escapes",
        run: terminal_escapes,
    },
    Attack {
        name: "source-of-root",
        run: source_of_root,
    },
    Attack {
        name: "poisoned-cache",
        run: poisoned_cache,
    },
    Attack {
        name: "costly-perf-map",
        run: |scene| costly_recording(scene, "perf-map"),
    },
    Attack {
        name: "costly-jitdump",
        run: |scene| costly_recording(scene, "jitdump"),
    },
    Attack {
        name: "deep-stack",
        run: |scene| long_stop(scene, "deep"),
    },
    Attack {
        name: "nested-values",
        run: |scene| long_stop(scene, "nested"),
    },
];

/// The attacker's user and group ID.
const STRANGER: u32 = 65_533;

/// The options of `cargo xtask attack`.
#[derive(Debug, Default)]
pub struct AttackOptions {
    only: String,
    unspool: Option<PathBuf>,
}

impl AttackOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// They are invalid.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<AttackOptions, Error> {
        let mut options = AttackOptions::default();
        while let Some(arg) = args.next() {
            let value = args.next().ok_or("an option without a value: see --help")?;
            match arg.to_str() {
                Some("--only") => options.only = value.to_string_lossy().into_owned(),
                Some("--unspool") => options.unspool = Some(value.into()),
                _ => return Err(format!("{}: see --help", arg.to_string_lossy()).into()),
            }
        }
        Ok(options)
    }
}

/// Runs the attacks; `true` if none succeeded.
///
/// # Errors
///
/// They cannot be run: this is not root, or something does not compile.
pub fn run(options: &AttackOptions, out: &mut impl Write) -> Result<bool, Error> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        writeln!(out, "cargo xtask attack acts as two users: run it as root")?;
        return Ok(false);
    }
    let unspool = match &options.unspool {
        Some(path) => path.canonicalize()?,
        None => build()?,
    };
    let mut is_clean = true;
    for attack in ATTACKS
        .iter()
        .filter(|attack| attack.name.contains(&options.only))
    {
        let scene = Scene::new(&unspool)?;
        let begun = Instant::now();
        let result = (attack.run)(&scene);
        let seconds = begun.elapsed().as_secs_f64();
        match result {
            Ok(()) => writeln!(out, "{:24} {seconds:5.1} s  held off", attack.name)?,
            Err(error) => {
                is_clean = false;
                writeln!(
                    out,
                    "{:24} {seconds:5.1} s  SUCCEEDED: {error}",
                    attack.name
                )?;
            }
        }
    }
    Ok(is_clean)
}

pub(crate) fn build() -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "unspool-cli"]);
    if build.status()?.success() {
        Ok(Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../target/debug/unspool")
            .canonicalize()?)
    } else {
        Err("unspool does not compile".into())
    }
}

/// The files of an attack: a folder of root's, with one that everyone may write to and one of the
/// attacker's.
struct Scene {
    unspool: PathBuf,
    folder: PathBuf,
    sticky_dir: PathBuf,
    foreign_dir: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process that is killed at the end of the attack.
struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        // It and its children: it leads a process group.
        let _ = Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.0.id())])
            .status();
        let _ = self.0.wait();
    }
}

impl Scene {
    fn new(unspool: &Path) -> Result<Scene, Error> {
        // It must not be below a folder that other users cannot read.
        let folder = unspool_testing::scratch(Path::new("/tmp"), "unspool-attack");
        let (sticky, strange) = (folder.join("sticky"), folder.join("strange"));
        for (path, mode) in [(&folder, 0o755), (&sticky, 0o1777), (&strange, 0o755)] {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        chown(&strange, Some(STRANGER), Some(STRANGER))?;
        Ok(Scene {
            unspool: unspool.to_owned(),
            folder,
            sticky_dir: sticky,
            foreign_dir: strange,
        })
    }

    /// Compiles a program of this task.
    fn compile(
        &self,
        source: &str,
        name: impl AsRef<OsStr>,
        options: &[&str],
    ) -> Result<PathBuf, Error> {
        let gcc = crate::packages::path("/usr/bin/gcc")?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/attack")
            .join(source);
        let program = self.folder.join(name.as_ref());
        let made = Command::new(gcc)
            .args(["-O1", "-o"])
            .arg(&program)
            .arg(source)
            .args(options)
            .status()?;
        if made.success() {
            Ok(program)
        } else {
            Err("an attack does not compile".into())
        }
    }

    /// Starts a process as a user, killed at the end of the attack.
    fn spawn(&self, user: u32, program: &Path, arguments: &[&OsStr]) -> Result<KilledChild, Error> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .uid(user)
            .gid(user)
            .process_group(0)
            .current_dir(&self.foreign_dir);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(KilledChild(command.spawn()?))
    }

    /// Root's command, with a fresh cache, at most 4 GiB of memory and a time limit in seconds.
    fn unspool(&self, seconds: u32) -> Command {
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["-s", "ABRT", "-k", "1", &seconds.to_string()]);
        command.args(["/usr/bin/prlimit", "--as=4294967296", "--core=0"]);
        command
            .arg(&self.unspool)
            .env("XDG_CACHE_HOME", self.folder.join("cache"));
        command.stdin(Stdio::null());
        command
    }

    /// The command's output; an error if a signal killed it, or it took too long.
    fn survive(&self, command: &mut Command) -> Result<Output, Error> {
        let output = command.output()?;
        let status = output.status;
        // As `timeout` reports it: 124 after the time limit, 128 and more after a signal.
        let is_dead = status.signal().is_some()
            || status.code().is_some_and(|code| code == 124 || code >= 128);
        if is_dead || String::from_utf8_lossy(&output.stderr).contains("panicked") {
            Err(output_text(command, &output).into())
        } else {
            Ok(output)
        }
    }

    /// The most memory that the command had, in bytes.
    fn peak(&self, command: &mut Command) -> Result<u64, Error> {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut peak = 0;
        let status = loop {
            // `timeout` has started it.
            for pid in children(&child.id().to_string()) {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let size = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let size = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse().ok());
                peak = peak.max(size.unwrap_or(0_u64) << 10);
            }
            if let Some(status) = child.try_wait()? {
                break status;
            }
            thread::sleep(Duration::from_millis(2));
        };
        if status.success() {
            Ok(peak)
        } else {
            Err(format!("{command:?}: {status}").into())
        }
    }

    fn succeed(&self, command: &mut Command) -> Result<String, Error> {
        let output = self.survive(command)?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(output_text(command, &output).into())
        }
    }
}

/// A process of the attacker's that costs much, ready to be looked at, and the file with the time
/// for which it stood still.
struct CostlyProcess {
    child: KilledChild,
    stopped: PathBuf,
}

impl CostlyProcess {
    fn start(scene: &Scene, mode: &str) -> Result<CostlyProcess, Error> {
        let program = scene.compile("costly.c", "costly", &["-g", "-pthread"])?;
        let stopped = scene.foreign_dir.join(mode);
        let arguments = [mode.as_ref(), stopped.as_os_str()];
        let child = scene.spawn(STRANGER, &program, &arguments)?;
        // It makes its stack at once, and code after a description of that.
        thread::sleep(Duration::from_millis(500));
        let makes_code = !matches!(mode, "deep" | "nested");
        let begun = Instant::now();
        while makes_code
            && !fs::read_to_string(format!("/proc/{}/maps", pid(&child)))?.contains(" rwxp ")
        {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("a costly process does not begin".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(CostlyProcess { child, stopped })
    }

    fn stopped(&self) -> Result<Duration, Error> {
        let bytes = fs::read(&self.stopped)?;
        let nanoseconds = u64::from_le_bytes(bytes.as_slice().try_into()?);
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for CostlyProcess {
    fn drop(&mut self) {
        let pid = pid(&self.child);
        for name in [format!("perf-{pid}.map"), format!("jit-{pid}.dump")] {
            let _ = fs::remove_file(Path::new("/tmp").join(name));
        }
    }
}

/// A process that describes more code than there is memory. It costs root's recording 64 MiB more
/// than another process at most.
fn costly_recording(scene: &Scene, mode: &str) -> Result<(), Error> {
    const MAX_COST_BYTES: u64 = 64 << 20;
    let cost = |mode: &str| -> Result<u64, Error> {
        let process = CostlyProcess::start(scene, mode)?;
        let mut record = scene.unspool(30);
        record.args(["record", "-d", "1", "-p", &pid(&process.child), "-o"]);
        scene.peak(record.arg(scene.folder.join("profile")))
    };
    let (usual, costly) = (cost("nothing")?, cost(mode)?);
    if costly <= usual + MAX_COST_BYTES {
        Ok(())
    } else {
        Err(format!("{} MiB of memory, usually {}", costly >> 20, usual >> 20).into())
    }
}

/// A process whose stack or variables are endless. Root's reports let it go within two seconds.
fn long_stop(scene: &Scene, mode: &str) -> Result<(), Error> {
    // The last half is for a busy machine: it was stopped for two seconds.
    const MAX_STOP: Duration = Duration::from_millis(2500);
    let process = CostlyProcess::start(scene, mode)?;
    let values = [
        "--locals",
        "--strings",
        "--registers",
        "--max-frames",
        "1000",
    ];
    for options in [&[][..], &["--args", "--max-frames", "1000"], &values] {
        let before = process.stopped()?;
        let mut stack = scene.unspool(60);
        stack.arg("stack").args(options).arg(pid(&process.child));
        scene.succeed(&mut stack)?;
        let stop = process.stopped()?.saturating_sub(before);
        if stop > MAX_STOP {
            return Err(format!("{options:?}: it stood still for {stop:?}").into());
        }
    }
    Ok(())
}

fn output_text(command: &Command, output: &Output) -> String {
    let arguments = command.get_args().map(OsStr::to_string_lossy);
    let arguments = arguments.collect::<Vec<_>>().join(" ");
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!(
        "{}: {}: {}",
        arguments.escape_debug(),
        output.status,
        stderr.escape_debug()
    )
}

fn pid(child: &KilledChild) -> String {
    child.0.id().to_string()
}

/// The children of a process.
fn children(pid: &str) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn truncated_libraries(scene: &Scene) -> Result<(), Error> {
    changed_libraries(scene, "truncate")
}

fn overwritten_library(scene: &Scene) -> Result<(), Error> {
    changed_libraries(scene, "overwrite")
}

/// The attacker's process changes the libraries that its children run, while everything is recorded
/// and their stacks are shown. Nothing crashes, and the stacks of another process are complete.
fn changed_libraries(scene: &Scene, how: &str) -> Result<(), Error> {
    let library = ["-shared", "-fPIC", "-g"];
    let first = scene.compile("library.c", "first.so", &library)?;
    let second = scene.compile(
        "library.c",
        "second.so",
        &[&library[..], &["-DSECOND"]].concat(),
    )?;
    let changes = scene.compile("changes.c", "changes", &["-ldl"])?;
    let victim = scene.compile("victim.c", "victim", &["-g"])?;
    let victim = scene.spawn(0, &victim, &[])?;
    let arguments = [
        how.as_ref(),
        scene.foreign_dir.as_os_str(),
        first.as_os_str(),
        second.as_os_str(),
    ];
    let stranger = scene.spawn(STRANGER, &changes, &arguments)?;
    let profile = scene.folder.join("profile");
    let mut record = scene.unspool(30);
    record
        .args(["record", "--all", "-F", "499", "-d", "3", "-o"])
        .arg(&profile);
    let recorded = thread::scope(|scope| {
        let recorder = scope.spawn(|| scene.succeed(&mut record));
        while !recorder.is_finished() {
            for child in children(&pid(&stranger)) {
                scene.survive(scene.unspool(20).args(["stack", "--args", &child]))?;
            }
            thread::sleep(Duration::from_millis(20));
        }
        recorder
            .join()
            .map_err(|_| Error::from("the recorder's thread"))?
    });
    recorded?;
    let script = scene.succeed(scene.unspool(20).arg("script").arg(&profile))?;
    let pid = pid(&victim);
    let stacks: Vec<&str> = script
        .split("\n\n")
        .filter(|stack| is_of(stack, &pid))
        .collect();
    let is_complete = |stack: &&&str| {
        ["inner+", "outer+", "main+"]
            .iter()
            .all(|name| stack.contains(name))
    };
    let in_user = stacks.iter().filter(|stack| stack.contains("/victim)"));
    let (all, complete) = (in_user.clone().count(), in_user.filter(is_complete).count());
    // A sample may be taken between two functions.
    if all > 50 && all - complete <= all / 50 {
        Ok(())
    } else {
        Err(format!("{complete} of {all} stacks of another process are complete").into())
    }
}

/// Whether a sample of `unspool script` is from a process: `victim 1234 [000] …`.
fn is_of(stack: &str, pid: &str) -> bool {
    stack.split_whitespace().nth(1) == Some(pid)
}

/// Commands that write to OUT, with the files that they need in the folder.
const WRITERS: &[&[&str]] = &[
    &["record", "-o", "OUT", "--", "/bin/true"],
    &["stack", "-o", "OUT", "PID"],
    &["report", "PROFILE", "-o", "OUT"],
    &["report", "PROFILE", "--format", "folded", "-o", "OUT"],
    &["compile", "FILE", "-o", "OUT"],
    &["compile", "FILE", "--into", "OUT"],
    &["synth", "FILE", "-o", "OUT"],
    &["convert", "FILE", "--to", "sframe", "-o", "OUT"],
    &["check", "--run", "-o", "OUT", "--", "/bin/true"],
    &["man", "OUT"],
];

/// Runs the writers, each with an output, and `judge` after each.
fn write_to(
    scene: &Scene,
    output: &Path,
    judge: &mut dyn FnMut(&Output) -> Result<(), String>,
) -> Result<(), Error> {
    let victim = scene.compile("victim.c", "victim", &["-g"])?;
    let process = scene.spawn(0, &victim, &[])?;
    let profile = scene.folder.join("recorded");
    scene.succeed(
        scene
            .unspool(20)
            .args(["record", "-d", "0.2", "-p", &pid(&process), "-o"])
            .arg(&profile),
    )?;
    for arguments in WRITERS {
        let mut command = scene.unspool(20);
        for argument in *arguments {
            match *argument {
                "OUT" => command.arg(output),
                "PID" => command.arg(pid(&process)),
                "PROFILE" => command.arg(&profile),
                "FILE" => command.arg(&victim),
                other => command.arg(other),
            };
        }
        let done = scene.survive(&mut command)?;
        judge(&done).map_err(|wrong| format!("{wrong}: {}", output_text(&command, &done)))?;
    }
    Ok(())
}

/// A kernel setting that is off during an attack.
struct SwitchedOff(PathBuf, Vec<u8>);

impl SwitchedOff {
    fn new(name: &str) -> Result<SwitchedOff, Error> {
        let path = Path::new("/proc/sys/fs").join(name);
        let before = fs::read(&path)?;
        // Where it cannot be changed, the kernel's rule applies in addition to ours.
        let _ = fs::write(&path, "0");
        Ok(SwitchedOff(path, before))
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, &self.1);
    }
}

/// The attacker's links: to a file, to a folder, and within a path.
fn link_in_sticky_folder(scene: &Scene) -> Result<(), Error> {
    let _off = SwitchedOff::new("protected_symlinks")?;
    let private = scene.folder.join("private");
    fs::create_dir(&private)?;
    let precious = private.join("precious");
    fs::write(&precious, "precious")?;
    let links = [
        ("file", precious.clone()),
        ("nothing", private.join("new")),
        ("folder", private.clone()),
    ];
    for (name, target) in &links {
        let link = scene.sticky_dir.join(name);
        symlink(target, &link)?;
        std::os::unix::fs::lchown(&link, Some(STRANGER), Some(STRANGER))?;
    }
    for output in ["file", "nothing", "folder/new", "folder/precious"] {
        write_to(scene, &scene.sticky_dir.join(output), &mut |done| {
            let names = fs::read_dir(&private)
                .map(Iterator::count)
                .unwrap_or_default();
            match (fs::read(&precious), names, done.status.success()) {
                (Ok(content), 1, false) if content == b"precious" => Ok(()),
                (_, _, true) => Err("it was written by way of a stranger's link".to_owned()),
                _ => Err("a file of root's was changed by way of a stranger's link".to_owned()),
            }
        })?;
    }
    Ok(())
}

/// A file and a FIFO of the attacker, who reads the data written there.
fn file_in_sticky_folder(scene: &Scene) -> Result<(), Error> {
    let _off = [
        SwitchedOff::new("protected_regular")?,
        SwitchedOff::new("protected_fifos")?,
    ];
    let (file, fifo) = (scene.sticky_dir.join("file"), scene.sticky_dir.join("fifo"));
    fs::write(&file, "strange")?;
    let made = Command::new("/usr/bin/mkfifo")
        .args(["-m", "666"])
        .arg(&fifo)
        .status()?;
    if !made.success() {
        return Err("no FIFO".into());
    }
    for path in [&file, &fifo] {
        chown(path, Some(STRANGER), Some(STRANGER))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    }
    // Keeps both ends of the FIFO open, so that no open blocks.
    let hold = [
        OsStr::new("-c"),
        OsStr::new("exec sleep 100 <>\"$0\""),
        fifo.as_os_str(),
    ];
    let _reader = scene.spawn(STRANGER, Path::new("/bin/sh"), &hold)?;
    thread::sleep(Duration::from_millis(100));
    for path in [&file, &fifo] {
        let before = fs::metadata(path)?;
        write_to(scene, path, &mut |done| {
            let now = fs::metadata(path).map(|now| (now.ino(), now.uid(), now.len()));
            let is_same = now.is_ok_and(|now| now == (before.ino(), STRANGER, before.len()));
            if is_same && !done.status.success() {
                Ok(())
            } else {
                Err("it was written to a stranger's file".to_owned())
            }
        })?;
    }
    Ok(())
}

/// Commands that read IN.
const READERS: &[&[&str]] = &[
    &["report", "IN"],
    &["script", "IN"],
    &["diff", "IN", "IN"],
    &["stack", "--core", "IN"],
    &["show", "IN"],
    &["compile", "IN", "-o", "/dev/null"],
    &["verify", "IN"],
    &["verify", "/bin/true", "IN"],
    &["check", "IN"],
    &["check", "--suppressions", "IN", "/bin/true"],
    &["check", "--baseline", "IN", "/bin/true"],
    &["synth", "IN", "-o", "/dev/null"],
    &["convert", "IN", "--to", "sframe"],
    &["annotate", "IN"],
    &["stats", "IN"],
    &["ctf", "dump", "IN"],
    &["ctf", "diff", "IN", "IN"],
];

/// Files that are not regular, as input and as output. A command exits by itself, or by a
/// termination signal while it waits for a pipe's writer.
fn special_files(scene: &Scene) -> Result<(), Error> {
    let (fifo, socket, folder) = (
        scene.folder.join("fifo"),
        scene.folder.join("socket"),
        scene.folder.join("empty"),
    );
    if !Command::new("/usr/bin/mkfifo")
        .arg(&fifo)
        .status()?
        .success()
    {
        return Err("no FIFO".into());
    }
    let _listener = UnixListener::bind(&socket)?;
    fs::create_dir(&folder)?;
    for arguments in READERS {
        for input in [
            &*fifo,
            &socket,
            &folder,
            Path::new("/dev/zero"),
            Path::new("/dev/tty"),
        ] {
            // Only a FIFO without a writer blocks.
            let seconds = if input == fifo { "0.4" } else { "8" };
            let mut command = Command::new("/usr/bin/timeout");
            command.args(["-s", "INT", "-k", "2", seconds]);
            command.args(["/usr/bin/prlimit", "--as=4294967296"]);
            command.arg(&scene.unspool);
            let named = arguments.iter().map(|argument| match *argument {
                "IN" => input.as_os_str(),
                other => other.as_ref(),
            });
            command.args(named).stdin(Stdio::null());
            command.env("XDG_CACHE_HOME", scene.folder.join("cache"));
            let output = command.output()?;
            let code = output.status.code();
            // 124: the first signal ended it.
            let is_waiting = code == Some(124) && input == fifo;
            if !(is_waiting || matches!(code, Some(0..=2))) {
                return Err(output_text(&command, &output).into());
            }
        }
    }
    for output in [&*fifo, &socket, &folder] {
        write_to(scene, output, &mut |done| {
            if done.status.success() && output != folder {
                Err("it was written to".to_owned())
            } else {
                Ok(())
            }
        })?;
    }
    // A pipe with a reader is written to.
    let reader = Command::new("/bin/cat")
        .arg(&fifo)
        .stdout(Stdio::piped())
        .spawn()?;
    thread::sleep(Duration::from_millis(100));
    let mut record = scene.unspool(20);
    scene.succeed(
        record
            .args(["record", "-o"])
            .arg(&fifo)
            .args(["--", "/bin/true"]),
    )?;
    let read = reader.wait_with_output()?.stdout;
    if read.starts_with(b"unsprof\0") {
        Ok(())
    } else {
        Err(format!("a pipe's reader got {} bytes", read.len()).into())
    }
}

/// In the attacker's root folder, `/tmp` is a link to a folder of root's. As the attacker sees it,
/// that leads nowhere. Names from there are not shown.
fn link_out_of_a_root(scene: &Scene) -> Result<(), Error> {
    let (root, private) = (scene.foreign_dir.join("root"), scene.folder.join("private"));
    fs::create_dir(&root)?;
    fs::create_dir(&private)?;
    symlink(&private, root.join("tmp"))?;
    let program = scene.compile("container.c", "container", &[])?;
    let user = STRANGER.to_string();
    let process = scene.spawn(0, &program, &[root.as_os_str(), user.as_ref()])?;
    let map = format!("perf-{}.map", pid(&process));
    fs::write(private.join(&map), "0 ffffffffffff0000 precious_name\n")?;
    thread::sleep(Duration::from_millis(200));
    let profile = scene.folder.join("profile");
    let report = || {
        let mut record = scene.unspool(20);
        record.args(["record", "-d", "0.5", "-p", &pid(&process), "-o"]);
        scene.succeed(record.arg(&profile))?;
        scene.succeed(scene.unspool(20).arg("report").arg(&profile))
    };
    if report()?.contains("precious_name") {
        return Err("a link led out of the process's root".into());
    }
    // Its own names are.
    fs::remove_file(root.join("tmp"))?;
    fs::create_dir(root.join("tmp"))?;
    fs::copy(private.join(&map), root.join("tmp").join(&map))?;
    if report()?.contains("precious_name") {
        Ok(())
    } else {
        Err("the process's own names are not shown".into())
    }
}

/// A program whose debug information names a file that only root may read as its source.
fn source_of_root(scene: &Scene) -> Result<(), Error> {
    let (secret, source) = (scene.folder.join("secret.c"), scene.folder.join("spins.c"));
    fs::write(&secret, "SECRET\n")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let text = format!(
        "# 1 \"{}\"\nint main(void) {{ for (;;); }}\n",
        secret.display()
    );
    fs::write(&source, text)?;
    let program = scene.compile(&source.to_string_lossy(), "spins", &["-g"])?;
    chown(&program, Some(STRANGER), Some(STRANGER))?;
    let process = scene.spawn(STRANGER, &program, &[])?;
    let profile = scene.folder.join("profile");
    let mut record = scene.unspool(20);
    record.args(["record", "-d", "0.5", "-p", &pid(&process), "-o"]);
    scene.succeed(record.arg(&profile))?;
    for option in ["--source", "--disasm"] {
        let mut report = scene.unspool(20);
        report.args(["report", option, "main"]).arg(&profile);
        let output = scene.survive(&mut report)?;
        let is_refused = String::from_utf8_lossy(&output.stderr).contains("is another user's");
        if String::from_utf8_lossy(&output.stdout).contains("SECRET") || !is_refused {
            return Err(output_text(&report, &output).into());
        }
    }
    Ok(())
}

/// Names that would control a terminal, end a line, or reverse text: of a file, a function, a
/// thread.
fn terminal_escapes(scene: &Scene) -> Result<(), Error> {
    let name = "\u{1b}]0;x\u{7}\u{202e}\u{9b}31m\nFORGED\u{2066}";
    let program = scene.compile("named.c", OsStr::new(name), &["-g"])?;
    // A symbol's name, of the same length.
    let mut bytes = fs::read(&program)?;
    let (from, to) = (
        b"function_XXXXXXXXXXXXXXXX",
        b"f\x1b[31m\nFORGED\xe2\x80\xae\xc2\x9b\x7f______",
    );
    let places: Vec<usize> = (bytes.windows(from.len()).enumerate())
        .filter(|(_, it)| it == from)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        if let Some(place) = bytes.get_mut(at..at + from.len()) {
            place.copy_from_slice(to);
        }
    }
    fs::write(&program, bytes)?;
    let process = scene.spawn(STRANGER, &program, &[OsStr::from_bytes(b"\x1b[2J\nFORGED")])?;
    let profile = scene.folder.join("profile");
    let recorded = scene.survive(
        scene
            .unspool(20)
            .args(["record", "-d", "0.5", "-p", &pid(&process), "-o"])
            .arg(&profile),
    )?;
    let mut outputs = vec![("record".to_owned(), recorded)];
    let pid = pid(&process);
    let prof = profile.to_string_lossy();
    let file = program.to_string_lossy();
    let missing = format!("{file}.missing");
    let commands: &[&[&str]] = &[
        &["stack", "--args", "--locals", "--registers", &pid],
        &["report", &prof],
        &["report", "--format", "folded", &prof],
        &["report", "--as", "perf-script", &prof],
        &["report", "--as", "flamegraph", &prof],
        &["script", &prof],
        &["script", "--header", &prof],
        &["diff", &prof, &prof],
        &["show", &file],
        &["check", &file],
        &["check", "--format", "github", &file],
        &["stats", &file],
        &["verify", &file],
        &["compile", "-o", "/dev/null", &file],
        &["synth", "-o", "/dev/null", &file],
        &["convert", "--to", "sframe", &file],
        &["ctf", "dump", &file],
        &["show", &missing],
        &["report", &missing],
        &["stack", "--core", &missing],
        &["record", "-o", "/dev/null", "--", &missing],
    ];
    for arguments in commands {
        outputs.push((
            arguments.join(" "),
            scene.survive(scene.unspool(20).args(*arguments))?,
        ));
    }
    for (command, output) in &outputs {
        for text in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(text);
            let steers = |c: char| {
                (c.is_control() && !"\n\t".contains(c))
                    || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            if let Some(line) = text
                .lines()
                .find(|line| line.contains(steers) || line.starts_with("FORGED"))
            {
                return Err(format!(
                    "unspool {}: {}",
                    command.escape_debug(),
                    line.escape_debug()
                )
                .into());
            }
        }
    }
    let shown = |(command, _): &&(String, Output)| command.starts_with("stack --args");
    let stack = outputs
        .iter()
        .find(shown)
        .map(|(_, output)| String::from_utf8_lossy(&output.stdout).into_owned());
    if stack.is_some_and(|stack| stack.contains("\\u{1b}") && stack.contains("\\nFORGED")) {
        Ok(())
    } else {
        Err("the names are not shown at all".into())
    }
}

/// The attacker runs a program with the build ID of a root program, and other rows. It is at
/// another path and, in a separate mount namespace, at the same path. Root records all processes
/// and shows stacks, with an empty cache and with the cache left by that. The stacks of root's
/// program are complete.
fn poisoned_cache(scene: &Scene) -> Result<(), Error> {
    let build = |name: &str, room: &str| {
        let options = [
            "-fomit-frame-pointer",
            "-fno-optimize-sibling-calls",
            "-Wl,--build-id=0xc0ffee",
            room,
        ];
        scene.compile("honest.c", name, &options)
    };
    let (honest, strange) = (
        build("honest", "-DROOM=64")?,
        build("poisoned", "-DROOM=4000")?,
    );
    chown(&strange, Some(STRANGER), Some(STRANGER))?;
    let plain = scene.spawn(STRANGER, &strange, &[])?;
    let unshare = crate::packages::path("/usr/bin/unshare")?;
    let script = "mount --bind \"$0\" \"$1\" && exec \"$1\"";
    let bind = ["-rm", "sh", "-c", script].map(OsStr::new);
    let bind = [&bind[..], &[strange.as_os_str(), honest.as_os_str()]].concat();
    let _in_its_place = scene.spawn(STRANGER, &unshare, &bind)?;
    let profile = scene.folder.join("profile");
    let record = |seconds: &str| {
        let mut record = scene.unspool(30);
        record
            .args(["record", "-a", "-d", seconds, "-o"])
            .arg(&profile);
        scene.succeed(&mut record)
    };
    // The attacker's program comes first, and is cached if anything is.
    record("1")?;
    scene.succeed(scene.unspool(10).args(["stack", &pid(&plain)]))?;
    for cache in ["cold", "warm"] {
        let victim = scene.spawn(0, &honest, &[])?;
        record("2")?;
        let mut report = scene.unspool(30);
        report.arg("report").arg(&profile);
        report.args(["--format", "folded", "--process", &pid(&victim)]);
        let stacks = scene.succeed(&mut report)?;
        let own = stacks.lines().filter(|line| line.contains("inner"));
        let is_whole = |line: &&str| line.contains("main;outer;middle;inner");
        let (whole, others): (Vec<&str>, Vec<&str>) = own.partition(is_whole);
        if whole.is_empty() || !others.is_empty() {
            return Err(format!("{cache}: stacks of the honest program: {stacks}").into());
        }
        let stack = scene.succeed(scene.unspool(10).args(["stack", &pid(&victim)]))?;
        let wanted = ["middle+", "outer+", "main+", "complete"];
        if !wanted.iter().all(|part| stack.contains(part)) {
            return Err(format!("{cache}: {stack}").into());
        }
    }
    Ok(())
}
