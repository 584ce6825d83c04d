//! What another user can do to root's `unspool`, tried with a second user.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::programs::{scratch, stdout};
use crate::{Error, packages};

/// The user `nobody`.
const STRANGER: u32 = 65534;

/// A program that is busy in `inner`, called by `middle`, `outer` and `main`. With another `ROOM` its rows are others at
/// the same addresses.
const PROGRAM: &str = "\
volatile unsigned long sum;
__attribute__((noinline)) void inner(void) {
    volatile char room[ROOM];
    for (unsigned n = 0; n < 1000000; n++) { room[n % ROOM] = 1; sum += n; }
}
__attribute__((noinline)) void middle(void) { volatile char room[ROOM]; room[0] = 1; inner(); room[1] = 1; }
__attribute__((noinline)) void outer(void) { volatile char room[ROOM]; room[0] = 1; middle(); room[1] = 1; }
int main(void) { for (;;) outer(); }
";

/// A stranger runs a program with the build ID of an honest one, and other rows: at a path of their own, and, in a mount
/// namespace of their own, at the honest one's. Root records all processes and looks at stacks, with an empty cache and
/// with what that left. The honest program's stacks are whole.
///
/// # Errors
///
/// They are not; or this is not root, or something cannot be run.
pub fn poisoned_cache(unspool: &Path) -> Result<(), Error> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Err("attack: only root runs programs of another user: run it with sudo".into());
    }
    let folder = scratch(&std::env::temp_dir(), "unspool-attack");
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    let tried = try_to_poison(unspool, &folder);
    fs::remove_dir_all(&folder)?;
    tried
}

fn try_to_poison(unspool: &Path, folder: &Path) -> Result<(), Error> {
    let honest = build(folder, "honest", 64)?;
    let strange = build(folder, "strange", 4000)?;
    chown(&strange, Some(STRANGER), Some(STRANGER))?;
    let plain = run_by_stranger(Command::new(&strange))?;
    let mut bind = Command::new(packages::path("/usr/bin/unshare")?);
    let script = "mount --bind \"$0\" \"$1\" && exec \"$1\"";
    bind.args(["-rm", "sh", "-c", script])
        .args([&strange, &honest]);
    let _in_its_place = run_by_stranger(bind)?;
    let unspool = |arguments: &[&str]| {
        let mut command = Command::new(unspool);
        command.current_dir(folder).args(arguments);
        command.env("XDG_CACHE_HOME", folder.join("cache"));
        stdout(&mut command)
    };
    // What the stranger runs comes first, and is kept if anything is.
    unspool(&["record", "-a", "-d", "1", "-o", "profile"])?;
    unspool(&["stack", &plain.0.id().to_string()])?;
    for cache in ["cold", "warm"] {
        let victim = Running(Command::new(&honest).spawn()?);
        let pid = victim.0.id().to_string();
        unspool(&["record", "-a", "-d", "2", "-o", "profile"])?;
        let stacks = unspool(&["report", "profile", "--as", "folded", "--process", &pid])?;
        let own = stacks.lines().filter(|line| line.contains("inner"));
        let is_whole = |line: &str| line.contains("main;outer;middle;inner");
        let (whole, others): (Vec<&str>, Vec<&str>) = own.partition(|line| is_whole(line));
        if whole.is_empty() || !others.is_empty() {
            return Err(
                format!("poisoned_cache: {cache}: stacks of the honest program: {stacks}").into(),
            );
        }
        let stack = unspool(&["stack", &pid])?;
        if !["middle+", "outer+", "main+", "complete"]
            .iter()
            .all(|part| stack.contains(part))
        {
            return Err(format!("poisoned_cache: {cache}: {stack}").into());
        }
    }
    Ok(())
}

fn build(folder: &Path, name: &str, room: u32) -> Result<PathBuf, Error> {
    let (source, program) = (folder.join("program.c"), folder.join(name));
    fs::write(&source, PROGRAM)?;
    let mut gcc = Command::new(packages::path("/usr/bin/gcc")?);
    gcc.args(["-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"])
        .args(["-Wl,--build-id=0xc0ffee", &format!("-DROOM={room}"), "-o"])
        .args([&program, &source]);
    stdout(&mut gcc)?;
    Ok(program)
}

fn run_by_stranger(mut command: Command) -> Result<Running, Error> {
    command.uid(STRANGER).gid(STRANGER).stdout(Stdio::null());
    Ok(Running(command.spawn()?))
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
