//! Builds the test programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a tool to its end; a missing one fails the test and names the Debian package.
pub(crate) fn tool(name: &str, package: &str, arguments: &[&str]) -> Output {
    match Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) => output,
        Err(error) => panic!("cannot run {name}: {error}; install the Debian package {package}"),
    }
}

/// A new directory of its own for one test; removed unless the test fails.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub(crate) fn below(parent: &Path) -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("stack-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A built program in a directory of its own.
pub(crate) struct Program {
    pub(crate) directory: Directory,
    pub(crate) path: PathBuf,
}

impl Program {
    /// Compiles `source` of the folder `programs`; the compiler follows from its extension.
    pub(crate) fn build(source: &str, options: &[&str]) -> Program {
        let directory = Directory::new();
        let path = compile(&directory, source, options);
        Program { directory, path }
    }

    /// Compiles with another compiler of the C language.
    pub(crate) fn build_with(compiler: Compiler, source: &str, options: &[&str]) -> Program {
        let directory = Directory::new();
        let path = compiler.run(&directory, source, options);
        Program { directory, path }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Compiles a further source into a directory; returns the result.
pub(crate) fn compile(directory: &Directory, source: &str, options: &[&str]) -> PathBuf {
    let compiler = match source.rsplit_once('.').unwrap().1 {
        "cc" => CXX,
        "rs" => RUST,
        _ => CC,
    };
    compiler.run(directory, source, options)
}

/// A compiler and how to ask it.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    name: &'static str,
    package: &'static str,
    options: &'static [&'static str],
}

const CC: Compiler = Compiler {
    name: "gcc",
    package: "gcc",
    options: &["-g", "-pthread"],
};

const CXX: Compiler = Compiler {
    name: "g++",
    package: "g++",
    options: &["-g", "-pthread", "-std=c++17"],
};

const RUST: Compiler = Compiler {
    name: "rustc",
    package: "rustc",
    options: &["-g", "--edition=2024"],
};

pub(crate) const MUSL: Compiler = Compiler {
    name: "musl-gcc",
    package: "musl-tools",
    options: &["-g", "-static"],
};

impl Compiler {
    fn run(self, directory: &Directory, source: &str, options: &[&str]) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let from = folder.join(source);
        let to = directory.path().join(source.split('.').next().unwrap());
        let mut arguments = self.options.to_vec();
        arguments.extend(["-o", to.to_str().unwrap(), from.to_str().unwrap()]);
        arguments.extend(options);
        let output = tool(self.name, self.package, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {source}: {errors}", self.name);
        to
    }
}
