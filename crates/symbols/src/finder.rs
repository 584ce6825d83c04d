//! Finds the file of a module, and its debug files.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use unspool_elf::{
    BuildId, ContentKey, DELETED_SUFFIX, DebugFiles, ElfFile, ModuleError, SearchRoots,
};
use unspool_files::FileId;

use crate::debuginfod::Debuginfod;
use crate::fetch::{Artifact, DownloadError, Fetch};
use crate::problem::SymbolProblem;
use crate::symbolizer::LookupEvent;
use crate::vdso::own_vdso;

/// The identity of a module in a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModuleIdentity {
    /// The path in the process.
    pub path: PathBuf,
    /// The identity of the mapped contents, if known. Without it, the path must suffice.
    pub content: Option<ContentKey>,
    /// The root directory of the process, if it differs from ours: `/proc/PID/root`
    /// ([`process_root`]), or a copy of another machine's file system.
    pub root: Option<PathBuf>,
}

/// The root of a process (`/proc/PID/root`), if it is readable and paths lead to other files there
/// (another root, or other mounts).
#[must_use]
pub fn process_root(pid: u32) -> Option<PathBuf> {
    let identity = |process: &str, what: &str| {
        let path = format!("/proc/{process}/{what}");
        fs::metadata(path).map(|file| FileId::new(&file)).ok()
    };
    let process = pid.to_string();
    let is_other = |what| Some(identity(&process, what)? != identity("self", what)?);
    let is_seen_otherwise = is_other("root")? || is_other("ns/mnt")?;
    is_seen_otherwise.then(|| PathBuf::from(format!("/proc/{pid}/root")))
}

/// Finds files of modules and their debug files.
///
/// A file with another build ID than requested is never used; without a build ID, its hash must
/// match.
#[derive(Debug, Clone, Default)]
pub struct ModuleFinder {
    roots: SearchRoots,
    fetch: Option<Arc<dyn Fetch>>,
}

/// A path where a file may be.
struct Candidate {
    path: PathBuf,
    /// Whether it is only the mapped file if its build ID or hash matches.
    is_guess: bool,
}

impl ModuleFinder {
    /// Looks for debug files in these roots, and for files themselves in those that have them.
    #[must_use]
    pub fn new(roots: SearchRoots) -> Self {
        ModuleFinder { roots, fetch: None }
    }

    /// Fetches files that are not found locally, for example from debuginfod servers.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        ModuleFinder {
            fetch: Some(fetch),
            ..self
        }
    }

    /// The same without downloads: for work that others wait for.
    #[must_use]
    pub fn offline(&self) -> Self {
        ModuleFinder {
            fetch: None,
            ..self.clone()
        }
    }

    /// Finds files as the user has configured it: in local folders
    /// ([`SearchRoots::from_environment`]), and on debuginfod's servers if the environment names
    /// some.
    #[must_use]
    pub fn from_environment() -> Self {
        let finder = ModuleFinder::new(SearchRoots::from_environment());
        match Debuginfod::from_environment() {
            Some(servers) => finder.with_fetch(Arc::new(servers)),
            None => finder,
        }
    }

    /// Finds the file with a build ID that has the code, not only names.
    pub fn executable(&self, id: BuildId, report: &dyn Fn(LookupEvent<'_>)) -> Option<ElfFile> {
        let local = self.roots.executables(id).into_iter();
        let fetched = || self.fetch(id, Artifact::Executable, report).ok().flatten();
        let mut paths = local.chain(iter::once_with(fetched).flatten());
        paths.find_map(|path| accept(open(&path), Some(ContentKey::BuildId(id))).ok())
    }

    /// Finds the file of a module at its path. If its build ID is known, it also looks in the
    /// caches, and then for the debug file, which has all names. `report` receives the progress of
    /// downloads.
    ///
    /// # Errors
    ///
    /// [`SymbolProblem::NotFound`] is the last of the problems; the earlier ones report files that
    /// exist and were not used.
    pub fn open(
        &self,
        module: &ModuleIdentity,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<ElfFile, Vec<SymbolProblem>> {
        let mut problems = Vec::new();
        let mut try_path = |path: &Path| match accept(open(path), module.content) {
            Ok(file) => Some(Ok(file)),
            Err(SymbolProblem::File(error)) if is_missing(&error) => None,
            Err(problem) => Some(Err(problem)),
        };
        let build_id = module.content.and_then(ContentKey::build_id);
        let is_allowed = |candidate: &Candidate| !candidate.is_guess || module.content.is_some();
        for candidate in self.candidates(module).into_iter().filter(is_allowed) {
            match try_path(&candidate.path) {
                Some(Ok(file)) => return Ok(file),
                tried => problems.extend(tried.and_then(Result::err)),
            }
        }
        // A debug file has all names, and is needed for a stripped file anyway.
        for artifact in [Artifact::DebugInfo, Artifact::Executable] {
            let path = build_id.map(|id| self.fetch(id, artifact, report));
            match path.transpose().map(Option::flatten) {
                Ok(path) => match path.as_deref().and_then(&mut try_path) {
                    Some(Ok(file)) => return Ok(file),
                    tried => problems.extend(tried.and_then(Result::err)),
                },
                Err(error) => problems.push(SymbolProblem::Download(error)),
            }
        }
        problems.push(SymbolProblem::NotFound {
            path: module.path.clone(),
            build_id: build_id.map(Box::new),
        });
        Err(problems)
    }

    /// Finds the debug files of a module's file, and the problems of fetching them; `root` is that
    /// of its [`ModuleIdentity`].
    pub fn debug_files(
        &self,
        file: &ElfFile,
        root: Option<&Path>,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> (DebugFiles, Vec<DownloadError>) {
        let mut failed = Vec::new();
        let mut fetch = |id| match self.fetch(id, Artifact::DebugInfo, report) {
            Ok(path) => path,
            Err(error) => {
                failed.push(error);
                None
            }
        };
        let files = DebugFiles::locate_or(file, &self.roots_under(root), &mut fetch);
        (files, failed)
    }

    fn fetch(
        &self,
        id: BuildId,
        artifact: Artifact,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        let fetch = self.fetch.as_ref();
        fetch.map_or(Ok(None), |fetch| fetch.get(id, artifact, report))
    }

    /// The roots for debug files: under another root first.
    fn roots_under(&self, root: Option<&Path>) -> SearchRoots {
        let mut roots = self.roots.clone();
        roots.roots.splice(0..0, root.map(Path::to_path_buf));
        roots
    }

    fn candidates(&self, module: &ModuleIdentity) -> Vec<Candidate> {
        let certain = |path| Candidate {
            path,
            is_guess: false,
        };
        let guess = |path| Candidate {
            path,
            is_guess: true,
        };
        let mut candidates = Vec::new();
        match &module.root {
            Some(root) => {
                candidates.push(certain(join_under_root(root, &module.path)));
                candidates.push(guess(module.path.clone()));
            }
            None => candidates.push(certain(module.path.clone())),
        }
        let whole = candidates.iter().map(|candidate| candidate.path.clone());
        let renewed: Vec<_> = whole.filter_map(|path| without_deleted(&path)).collect();
        candidates.extend(renewed.into_iter().map(guess));
        if let Some(id) = module.content.and_then(ContentKey::build_id) {
            let roots = self.roots_under(module.root.as_deref());
            candidates.extend(roots.executables(id).into_iter().map(guess));
            candidates.extend(roots.debug_files(id).into_iter().map(guess));
        }
        candidates
    }
}

fn open(path: &Path) -> Result<ElfFile, ModuleError> {
    if path != Path::new("[vdso]") {
        return ElfFile::open(path);
    }
    let image = own_vdso().map_err(|source| ModuleError::Io {
        file: path.to_path_buf(),
        source: Arc::new(source),
    })?;
    ElfFile::from_bytes(path, image)
}

fn accept(
    file: Result<ElfFile, ModuleError>,
    expected: Option<ContentKey>,
) -> Result<ElfFile, SymbolProblem> {
    let file = file.map_err(SymbolProblem::File)?;
    let path = || file.path().to_path_buf();
    let found = file.build_id();
    match expected {
        Some(ContentKey::BuildId(expected)) => {
            if found.is_some_and(|found| expected.is_kernel_report_of(&found)) {
                Ok(file)
            } else {
                Err(SymbolProblem::OtherBuild {
                    file: path(),
                    expected: Box::new(expected),
                    found: found.map(Box::new),
                })
            }
        }
        Some(hash) if file.content_key() != Some(hash) => {
            Err(SymbolProblem::OtherFile { file: path() })
        }
        _ => Ok(file),
    }
}

fn is_missing(error: &ModuleError) -> bool {
    matches!(error, ModuleError::Io { source, .. }
        if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// An absolute path under another root.
fn join_under_root(root: &Path, path: &Path) -> PathBuf {
    let names = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)));
    let relative: PathBuf = names.collect();
    root.join(relative)
}

/// The former path of a deleted file: a new file may be there, or the same one again.
fn without_deleted(path: &Path) -> Option<PathBuf> {
    let path = path
        .as_os_str()
        .as_bytes()
        .strip_suffix(DELETED_SUFFIX.as_bytes())?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_under_a_root() {
        for (path, expected) in [
            ("/usr/lib/libx.so", "/proc/1/root/usr/lib/libx.so"),
            ("/../../etc/passwd", "/proc/1/root/etc/passwd"),
            ("[vdso]", "/proc/1/root/[vdso]"),
        ] {
            let path = join_under_root(Path::new("/proc/1/root"), Path::new(path));
            assert_eq!(path, Path::new(expected));
        }
    }
}
