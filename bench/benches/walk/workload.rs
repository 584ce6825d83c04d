//! The walked functions: built once, with and without frame pointers, and loaded.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command};

use anyhow::Context as _;
use unspool_bench::Random;

use crate::source::{FUNCTIONS, OBJECTS, REALIGNED, SITES, object};
use crate::sys::{CallInstruction, Library, WorkFunctions};

/// How the functions are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    FramePointers,
    NoFramePointers,
}

impl Build {
    fn name(self) -> &'static str {
        match self {
            Build::FramePointers => "fp",
            Build::NoFramePointers => "nofp",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Build::FramePointers => &["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"],
            Build::NoFramePointers => &["-fomit-frame-pointer"],
        }
    }

    /// Compiles missing objects, and opens all of them.
    pub(crate) fn load(self) -> anyhow::Result<WorkFunctions> {
        let files = self.compile()?;
        let libraries: Result<Vec<Library>, _> =
            files.iter().map(|file| Library::open(file)).collect();
        WorkFunctions::load(&libraries?, FUNCTIONS + REALIGNED)
    }

    /// The objects' files. Their names identify the source, so that an outdated one is never used.
    pub(crate) fn compile(self) -> anyhow::Result<Vec<PathBuf>> {
        let folder = folder()?;
        let mut files = Vec::new();
        let mut running: Option<(Child, PathBuf, PathBuf)> = None;
        for number in 0..OBJECTS {
            let source = object(number);
            let mut hasher = DefaultHasher::new();
            (&source, self.flags()).hash(&mut hasher);
            let stem = format!("{}-{number}-{:016x}", self.name(), hasher.finish());
            let file = folder.join(format!("{stem}.so"));
            files.push(file.clone());
            if file.exists() {
                continue;
            }
            let text = folder.join(format!("{stem}.c"));
            std::fs::write(&text, source)?;
            let unfinished = folder.join(format!("{stem}.{}", std::process::id()));
            let child = self.compiler(&text, &unfinished)?;
            // Two at a time.
            if let Some(before) = running.replace((child, unfinished, file)) {
                finish(before)?;
            }
        }
        running.map(finish).transpose()?;
        Ok(files)
    }

    fn compiler(self, source: &FilePath, output: &FilePath) -> anyhow::Result<Child> {
        Command::new("cc")
            .args(["-O2", "-fPIC", "-shared", "-w", "-fno-ipa-icf"])
            .args(self.flags())
            .arg("-o")
            .args([output, source])
            .spawn()
            .context("cannot run cc (Debian package gcc)")
    }
}

fn finish((mut child, unfinished, file): (Child, PathBuf, PathBuf)) -> anyhow::Result<()> {
    anyhow::ensure!(child.wait()?.success(), "cc failed");
    std::fs::rename(unfinished, file)?;
    Ok(())
}

/// The benchmark's folder for its files: below the target folder.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let folder = FilePath::new(env!("CARGO_TARGET_TMPDIR")).join("walk");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// This many different call sites, at random over all functions of ordinary shape.
pub(crate) fn sites(count: usize, random: &mut Random) -> Vec<CallInstruction> {
    pick(count, 0..FUNCTIONS, random)
}

/// This many different call sites of functions with an expression as CFA.
pub(crate) fn realigned_sites(count: usize, random: &mut Random) -> Vec<CallInstruction> {
    pick(count, FUNCTIONS..FUNCTIONS + REALIGNED, random)
}

fn pick(
    count: usize,
    functions: std::ops::Range<usize>,
    random: &mut Random,
) -> Vec<CallInstruction> {
    let mut all: Vec<CallInstruction> = functions
        .flat_map(|function| (0..SITES).map(move |number| CallInstruction { function, number }))
        .collect();
    for place in 0..count.min(all.len()) {
        let other = place + random.below(all.len() - place);
        all.swap(place, other);
    }
    all.truncate(count);
    all
}
