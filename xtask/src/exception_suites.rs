//! Runs gcc's own tests of exceptions with libgcc's unwinder and with ours.
//!
//! Neither its sources nor files made from them are kept in the repository.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, debian, shared_objects};

/// The parts of gcc's tests that run programs with exceptions, cleanups and forced unwinds.
const PARTS: [&str; 5] = [
    "gcc/testsuite/g++.dg/eh",
    "gcc/testsuite/g++.old-deja/g++.eh",
    "gcc/testsuite/g++.dg/abi/forced.C",
    "gcc/testsuite/gcc.dg/cleanup-*",
    "libstdc++-v3/testsuite/18_support",
];

/// The headers and functions that tests of libstdc++ share.
const UTILITIES: &str = "libstdc++-v3/testsuite/util";

/// Runs the tests; returns whether ours passes all that libgcc passes.
///
/// # Errors
///
/// A file cannot be fetched or written, or a command is missing.
pub fn run(out: &mut impl Write) -> Result<bool, Error> {
    let folder = shared_objects::target_folder()?.join("exception-suites");
    let source = source(&folder)?;
    shared_objects::build_exceptions(&folder)?;
    shared_objects::build(&folder)?;
    let libraries = ["libunspool-eh.so", "libunwind.so.8"].map(|soname| folder.join(soname));
    let mut tests = Vec::new();
    collect(&source, &mut tests)?;
    tests.sort();
    for library in &libraries {
        check_preloading(library)?;
    }
    let mut passed = [0; 3];
    let mut compiled = 0;
    let mut differing = Vec::new();
    for test in &tests {
        let Some(program) = test.build(&source, &folder)? else {
            continue;
        };
        compiled += 1;
        let with_libgcc = passes(&program, None)?;
        passed[0] += usize::from(with_libgcc);
        for (library, passed) in libraries.iter().zip(&mut passed[1..]) {
            let with_ours = passes(&program, Some(library))?;
            *passed += usize::from(with_libgcc && with_ours);
            if with_libgcc && !with_ours {
                differing.push(format!("{} with {}", test.name(), library.display()));
            }
        }
        fs::remove_file(program)?;
    }
    let [libgcc, eh, libunwind] = passed;
    writeln!(
        out,
        "{} tests are to run a program, {compiled} compile; libgcc passes {libgcc}, of these \
         libunspool-eh.so {eh}, libunwind.so.8 {libunwind}",
        tests.len()
    )?;
    for name in &differing {
        writeln!(out, "  {name}")?;
    }
    Ok(differing.is_empty() && libgcc > 0)
}

/// The tests' folder in gcc's source, fetched once.
fn source(folder: &Path) -> Result<PathBuf, Error> {
    let source = folder.join("gcc");
    if source.exists() {
        return Ok(source);
    }
    debian::source(folder, "bookworm", "gcc-12")?;
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("gcc-12") && name.ends_with(".tar.xz"))
    };
    let mut archives = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.path().is_dir() {
            archives.extend(
                fs::read_dir(entry.path())?
                    .flatten()
                    .map(|file| file.path()),
            );
        }
    }
    let archive = archives.into_iter().find(is_archive);
    let archive = archive.ok_or("gcc's source has another form than expected")?;
    let unpacked = folder.join("gcc.new");
    let _ = fs::remove_dir_all(&unpacked); // What an interrupted run has left.
    fs::create_dir_all(&unpacked)?;
    debian::run(
        Command::new("tar")
            .args(["--strip-components=1", "--wildcards", "-xf"])
            .arg(archive)
            .args(
                PARTS
                    .iter()
                    .chain([&UTILITIES])
                    .map(|part| format!("*/{part}")),
            )
            .current_dir(&unpacked),
    )?;
    fs::rename(&unpacked, &source)?;
    Ok(source)
}

/// A test that runs a program.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SuiteTest {
    path: PathBuf,
    text: String,
}

/// Collects the tests in a folder.
fn collect(folder: &Path, into: &mut Vec<SuiteTest>) -> Result<(), Error> {
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with(UTILITIES) {
                collect(&path, into)?;
            }
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        if text.contains("dg-do run") {
            into.push(SuiteTest { path, text });
        }
    }
    Ok(())
}

impl SuiteTest {
    fn name(&self) -> String {
        self.path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// What the quoted arguments of a directive are.
    fn directive(&self, name: &str) -> Vec<&str> {
        let lines = self.text.lines().filter(|line| line.contains(name));
        let quoted = lines.filter_map(|line| line.split('"').nth(1));
        quoted.flat_map(str::split_whitespace).collect()
    }

    /// Builds the program. `None` if it does not compile: it is for another target.
    fn build(&self, source: &Path, folder: &Path) -> Result<Option<PathBuf>, Error> {
        let program = folder.join("program");
        let is_c = self
            .path
            .extension()
            .is_some_and(|extension| extension == "c");
        let is_library = self
            .path
            .components()
            .any(|part| part.as_os_str() == "18_support");
        let mut compiler = Command::new(if is_c { "gcc" } else { "g++" });
        if self.text.contains("c++14_down") {
            compiler.arg("-std=gnu++14");
        }
        if self.text.contains("! c++11") {
            compiler.arg("-std=gnu++98");
        }
        compiler
            .args(self.directive("dg-options"))
            .args(self.directive("dg-additional-options"))
            .arg(&self.path);
        for other in self.directive("dg-additional-sources") {
            compiler.arg(self.path.with_file_name(other));
        }
        if is_library {
            let utilities = source.join(UTILITIES);
            compiler
                .arg("-I")
                .arg(&utilities)
                .arg(utilities.join("testsuite_hooks.cc"));
        }
        let status = compiler
            .args(["-w", "-pthread", "-o"])
            .arg(&program)
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success().then_some(program))
    }
}

/// Checks that the loader preloads a library. It only warns where it cannot, and goes on with libgcc.
fn check_preloading(library: &Path) -> Result<(), Error> {
    let mut command = Command::new("true");
    let output = command.env("LD_PRELOAD", library).output()?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: cannot be preloaded: {text}", library.display()).into())
}

/// Whether a program ends with success.
fn passes(program: &Path, preloaded: Option<&Path>) -> Result<bool, Error> {
    let mut command = Command::new("timeout");
    command.arg("20").arg(program);
    if let Some(library) = preloaded {
        command.env("LD_PRELOAD", library);
    }
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command.status()?.success())
}
