//! GNU binutils, built from Debian's source below the target folder, and its test files.
//!
//! Neither its sources nor files made from them are kept in the repository.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, debian, shared_objects};

/// A version and its source.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) version: &'static str,
    /// Its Debian release, and the needed parts of its source.
    debian: &'static str,
    package: &'static str,
}

/// It writes version 2 of SFrame.
pub(crate) const V2_44: Release = Release {
    version: "2.44",
    debian: "trixie",
    package: "binutils=2.44-3",
};

/// It writes version 3 of SFrame.
pub(crate) const V2_47: Release = Release {
    version: "2.47",
    debian: "sid",
    package: "binutils=2.47-6",
};

/// The targets to build assemblers for, and their names in tests. The first one's readelf and
/// objcopy serve all targets.
pub(crate) const TARGETS: [(&str, &str); 3] = [
    ("x86_64-linux-gnu", "x86_64"),
    ("aarch64-linux-gnu", "aarch64"),
    ("s390x-linux-gnu", "s390x"),
];

/// The built tools.
pub(crate) struct Binutils {
    folder: PathBuf,
    /// The source, with its tests.
    pub(crate) source: PathBuf,
}

impl Binutils {
    /// Fetches and builds missing tools.
    pub(crate) fn fetch_and_build(
        release: &Release,
        targets: &[(&str, &str)],
        out: &mut impl Write,
    ) -> Result<Binutils, Error> {
        let name = format!("binutils-{}", release.version);
        let folder = shared_objects::target_folder()?.join(&name);
        let source = folder.join(&name);
        if !source.exists() {
            debian::source(&folder, release.debian, release.package)?;
        }
        for tool in ["bison", "flex", "make", "gcc"] {
            let found = Command::new(tool).arg("--version").output();
            found.map_err(|error| {
                format!("cannot run {tool}: {error}; install the package {tool}")
            })?;
        }
        let tools = Binutils { folder, source };
        for (target, _) in targets {
            if !tools.folder.join(format!("{target}.done")).exists() {
                writeln!(out, "building binutils {} for {target}", release.version)?;
                out.flush()?;
                tools.build(target)?;
            }
        }
        Ok(tools)
    }

    fn build(&self, target: &str) -> Result<(), Error> {
        let build = self.folder.join(target);
        fs::create_dir_all(&build)?;
        let mut configure = Command::new(self.source.join("configure"));
        configure
            .arg("--quiet")
            .arg(format!("--prefix={}", self.installed().display()))
            .args(
                [
                    "gdb",
                    "gdbserver",
                    "sim",
                    "gprofng",
                    "gprof",
                    "gold",
                    "nls",
                    "werror",
                ]
                .map(|without| format!("--disable-{without}")),
            )
            .args(["--with-zstd=no", "CFLAGS=-O1", "CXXFLAGS=-O1"])
            .current_dir(&build);
        let is_own = target.starts_with(env::consts::ARCH);
        if is_own {
            configure.arg(format!(
                "--enable-targets={}",
                TARGETS.map(|(target, _)| target).join(",")
            ))
        } else {
            configure.arg(format!("--target={target}"))
        };
        debian::run(&mut configure)?;
        let steps: [&[&str]; 2] = if is_own {
            [&["all"], &["install"]]
        } else {
            [&["all-gas", "all-ld"], &["install-gas", "install-ld"]]
        };
        for goals in steps {
            let mut make = Command::new("make");
            make.args(["--silent", "-j2", "MAKEINFO=true"])
                .args(goals)
                .current_dir(&build);
            debian::run(&mut make)?;
        }
        fs::write(self.folder.join(format!("{target}.done")), "")?;
        Ok(())
    }

    /// The folder of installed tools, libraries and headers.
    pub(crate) fn installed(&self) -> PathBuf {
        self.folder.join("installed")
    }

    /// The build folder of a target.
    pub(crate) fn build_folder(&self, target: &str) -> PathBuf {
        self.folder.join(target)
    }

    /// An empty folder to work in.
    pub(crate) fn work(&self, name: &str) -> Result<PathBuf, Error> {
        let work = self.folder.join(name);
        if work.exists() {
            fs::remove_dir_all(&work)?;
        }
        fs::create_dir_all(&work)?;
        Ok(work)
    }

    /// A tool for a target.
    pub(crate) fn tool(&self, target: &str, name: &str) -> Command {
        let prefix = if target.starts_with(env::consts::ARCH) {
            String::new()
        } else {
            format!("{target}-")
        };
        Command::new(self.installed().join("bin").join(format!("{prefix}{name}")))
    }
}

/// The directives in a test of binutils: how to make its input, and its expected output.
#[derive(Debug, Default)]
pub(crate) struct BinutilsTest {
    pub(crate) compiler: Vec<String>,
    pub(crate) assembler: Vec<String>,
    pub(crate) linker: Vec<String>,
    pub(crate) sources: Vec<String>,
    /// Whether ld must warn.
    pub(crate) has_warning: bool,
    /// The expected lines, in the form of [`crate::expected`].
    pub(crate) lines: String,
}

impl BinutilsTest {
    pub(crate) fn read(path: &Path) -> Result<BinutilsTest, Error> {
        let mut test = BinutilsTest::default();
        let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let end = text.find("\n\n").unwrap_or(text.len());
        let (options, lines) = text.split_at(end);
        for line in options.lines() {
            if let Some(options) = line.strip_prefix("#as:") {
                test.assembler = words(options);
            } else if let Some(options) = line.strip_prefix("#cc:") {
                test.compiler = words(options);
            } else if let Some(options) = line.strip_prefix("#ld:") {
                test.linker = words(options);
            } else if let Some(source) = line.strip_prefix("#source:") {
                test.sources.extend(words(source).into_iter().take(1));
            } else if line.starts_with("#warning:") {
                test.has_warning = true;
            }
        }
        test.lines = lines.to_owned();
        Ok(test)
    }
}

/// The files of a folder with this extension, sorted.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<BTreeSet<PathBuf>, Error> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let own = path.extension().map_or_else(OsString::new, OsString::from);
        if own == extension && path.is_file() {
            found.insert(path);
        }
    }
    Ok(found)
}

/// The name of a file without its extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
