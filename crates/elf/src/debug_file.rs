//! Separate debug files: distributions put there what they strip.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use unspool_files::environment::{cache_home_path, variable};
use unspool_files::{CacheError, FileId, FileState, open_trusted};

use crate::build_id::{BuildId, TableKey};
use crate::elf::{ElfFile, truncated_hash, until_nul};
use crate::error::ModuleError;
use crate::lines::split_paths;

const DEBUG_DIRECTORY: &str = "usr/lib/debug";

/// Where separate debug files are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRoots {
    /// File system roots, each with its `usr/lib/debug`: `/`, or the root of a container.
    pub roots: Vec<PathBuf>,
    /// A directory of files named `<build ID>/debuginfo`, as debuginfod clients keep it.
    pub debuginfod_cache: Option<PathBuf>,
    /// The directory that perf keeps copies in (`~/.debug`), as
    /// `.build-id/<first 2 digits>/<other digits>/debug`.
    pub perf_cache: Option<PathBuf>,
}

impl Default for SearchRoots {
    /// The root of this system only.
    fn default() -> Self {
        SearchRoots {
            roots: vec![PathBuf::from("/")],
            debuginfod_cache: None,
            perf_cache: None,
        }
    }
}

impl SearchRoots {
    /// This system, perf's build-ID cache (`PERF_BUILDID_DIR`, else `~/.debug`), and the cache of
    /// debuginfod's clients (`DEBUGINFOD_CACHE_PATH`, else `debuginfod_client` in `XDG_CACHE_HOME`
    /// or `~/.cache`), as [`variable`] reports them.
    #[must_use]
    pub fn from_environment() -> Self {
        SearchRoots::from_variables(variable)
    }

    /// The same for the given variables; empty ones count as not set, and so does a relative
    /// `XDG_CACHE_HOME` or `HOME`.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).map(PathBuf::from);
        let caches = || cache_home_path(variable("XDG_CACHE_HOME"), variable("HOME"));
        let downloads = || Some(caches()?.join("debuginfod_client"));
        let home = || folder("HOME").filter(|home| home.is_absolute());
        SearchRoots {
            debuginfod_cache: folder("DEBUGINFOD_CACHE_PATH").or_else(downloads),
            perf_cache: folder("PERF_BUILDID_DIR").or_else(|| Some(home()?.join(".debug"))),
            ..SearchRoots::default()
        }
    }

    /// The path of the separate debug file of the build with that ID.
    #[must_use]
    pub fn debug_files(&self, id: BuildId) -> Vec<PathBuf> {
        let Some(path) = build_id_path(id) else {
            return Vec::new();
        };
        let name = format!("{path}.debug");
        let roots = self.roots.iter();
        let installed = roots.map(|root| root.join(DEBUG_DIRECTORY).join(&name));
        let copies = self.copies(id, "debuginfo", "debug");
        installed.chain(copies.filter_map(Result::ok)).collect()
    }

    /// Why copies of that debug file in caches are not used.
    fn rejected_copies(&self, id: BuildId) -> impl Iterator<Item = ModuleError> {
        let copies = self.copies(id, "debuginfo", "debug");
        copies.filter_map(|copy| Some(ModuleError::Cache(Arc::new(copy.err()?))))
    }

    /// Paths where caches would keep a copy of the file with that ID.
    #[must_use]
    pub fn executables(&self, id: BuildId) -> Vec<PathBuf> {
        let copies = self.copies(id, "executable", "elf");
        copies.filter_map(Result::ok).collect()
    }

    /// The copies that debuginfod's clients and perf keep, under these names. Files that another
    /// user could have put there are errors. They are looked up by build ID, and anybody can make a
    /// file with any build ID.
    fn copies(
        &self,
        id: BuildId,
        debuginfod: &str,
        perf: &str,
    ) -> impl Iterator<Item = Result<PathBuf, CacheError>> + use<> {
        let download = self.debuginfod_cache.as_deref();
        let download = download.map(|cache| (cache, Path::new(&id.to_string()).join(debuginfod)));
        let kept = self.perf_cache.as_deref().zip(build_id_path(id));
        let kept = kept.map(|(cache, path)| (cache, Path::new(&path).join(perf)));
        let copies = download.into_iter().chain(kept);
        let opened = copies.filter_map(|(cache, path)| open_trusted(cache, &path).transpose());
        let opened: Vec<_> = opened.collect();
        // A debuginfod client leaves an empty file where a server had none.
        opened.into_iter().filter_map(|file| match file {
            Ok(file) if file.metadata().len() == 0 => None,
            file => Some(file.map(|file| file.path().to_path_buf())),
        })
    }
}

/// `.build-id/ab/cdef…`
fn build_id_path(id: BuildId) -> Option<String> {
    let digits = id.to_string();
    let (first, rest) = digits.split_at_checked(2)?;
    Some(format!(".build-id/{first}/{rest}"))
}

/// The separate debug files of one module.
#[derive(Debug, Clone, Default)]
pub struct DebugFiles {
    /// The debug file with the symbol table and the debug information stripped from the module.
    pub debug: Option<Arc<ElfFile>>,
    /// The file that several debug files share (`.gnu_debugaltlink`, as `dwz` makes it).
    pub supplementary: Option<Arc<ElfFile>>,
    /// Files with the right name that are broken, or belong to another build.
    pub rejected: Vec<ModuleError>,
}

impl DebugFiles {
    /// Looks for the separate debug files of `file`, unless it has debug information itself. The
    /// build ID is searched in each root's `/usr/lib/debug/.build-id`, in the debuginfod cache and
    /// in perf's. Then the name in `.gnu_debuglink` is searched beside the file, in `.debug` beside
    /// it, and under each root's `/usr/lib/debug`.
    ///
    /// A file is taken if its build ID is the same; where one of the two has none, if its
    /// CRC-32 is that in `.gnu_debuglink`, which reads all of it. Nothing is downloaded.
    #[must_use]
    pub fn locate(file: &ElfFile, roots: &SearchRoots) -> DebugFiles {
        DebugFiles::locate_or(file, roots, &mut |_| None)
    }

    /// As [`DebugFiles::locate`], but if no file is found, `fetch` is asked for the path of one
    /// with that build ID. It is checked like any other.
    pub fn locate_or(
        file: &ElfFile,
        roots: &SearchRoots,
        fetch: &mut dyn FnMut(BuildId) -> Option<PathBuf>,
    ) -> DebugFiles {
        let mut found = DebugFiles::default();
        let mut fetched = |id: Option<BuildId>| Vec::from_iter(id.and_then(&mut *fetch));
        if !has_debug_info(file) {
            let by_id = DebugFileCheck::from_build_id(file);
            let paths = by_id.build_id.map(|id| roots.debug_files(id));
            found.debug = found.first_of(&paths.unwrap_or_default(), &by_id);
            if let (None, Some(link)) = (&found.debug, DebugLink::from_file(file)) {
                let check = DebugFileCheck {
                    build_id: file.build_id(),
                    checksum: Some(link.checksum),
                };
                found.debug = found.first_of(&link.candidates(file, roots), &check);
            }
            if found.debug.is_none() {
                let id = by_id.build_id.into_iter();
                found
                    .rejected
                    .extend(id.flat_map(|id| roots.rejected_copies(id)));
                found.debug = found.first_of(&fetched(by_id.build_id), &by_id);
            }
        }
        let debug = found.debug.clone();
        if let Some(link) = AltLink::from_file(debug.as_deref().unwrap_or(file)) {
            let candidates = link.candidates(debug.as_deref().unwrap_or(file), roots);
            let check = DebugFileCheck {
                build_id: Some(link.build_id),
                checksum: None,
            };
            found.supplementary = found.first_of(&candidates, &check);
            if found.supplementary.is_none() {
                found.supplementary = found.first_of(&fetched(check.build_id), &check);
            }
        }
        found
    }

    /// A cache key for data derived from `file` and these debug files: a hash of their
    /// [stamps](ElfFile::stamp), of the stamps of the packages beside them (`.dwp`), and of the
    /// states of the files of split units (`.dwo`), even if they are missing. `None` if one of them
    /// has no stamp. Reads the headers of units; more only if units are split.
    ///
    /// A file with the right name and build ID is not necessarily right: any user who may put a
    /// file beside a copy of `file` chooses its content.
    #[must_use]
    pub fn key(&self, file: &ElfFile) -> Option<TableKey> {
        let mut stamps = Vec::new();
        let files = [
            Some(file),
            self.debug.as_deref(),
            self.supplementary.as_deref(),
        ];
        for file in files {
            let Some(file) = file else {
                stamps.push(0);
                continue;
            };
            stamps.push(1);
            stamps.extend(file.stamp()?);
            let mut package = file.path().as_os_str().to_owned();
            package.push(".dwp");
            if unspool_files::metadata(package.as_ref()).is_ok_and(|found| found.is_file()) {
                stamps.extend(ElfFile::open(package).ok()?.stamp()?);
            } else {
                stamps.push(0);
            }
        }
        let source = self.debug.as_deref().unwrap_or(file);
        let folders = [file, source].map(|file| file.path().parent().unwrap_or(Path::new("")));
        for path in split_paths(source, &folders) {
            stamps.extend(path.as_os_str().as_bytes());
            match unspool_files::metadata(&path) {
                Ok(found) => stamps.extend(FileState::new(&found).bytes()),
                Err(_) => stamps.push(0),
            }
        }
        Some(TableKey {
            build_id: file.build_id(),
            content: truncated_hash(&stamps),
        })
    }

    /// The first file that exists and passes; files that do not pass are recorded.
    fn first_of(&mut self, candidates: &[PathBuf], check: &DebugFileCheck) -> Option<Arc<ElfFile>> {
        let exists = |path: &&PathBuf| unspool_files::metadata(path).is_ok();
        for path in candidates.iter().filter(exists) {
            match ElfFile::open(path).and_then(|file| check.pass(file)) {
                Ok(file) => return Some(Arc::new(file)),
                Err(error) => self.rejected.push(error),
            }
        }
        None
    }
}

fn has_debug_info(file: &ElfFile) -> bool {
    file.indices_named(".debug_info").next().is_some()
}

/// The required identity of a debug file.
struct DebugFileCheck {
    build_id: Option<BuildId>,
    checksum: Option<u32>,
}

impl DebugFileCheck {
    fn from_build_id(file: &ElfFile) -> DebugFileCheck {
        DebugFileCheck {
            build_id: file.build_id(),
            checksum: None,
        }
    }

    fn pass(&self, file: ElfFile) -> Result<ElfFile, ModuleError> {
        if let (Some(expected), Some(found)) = (self.build_id, file.build_id()) {
            let file_path = || file.path().to_path_buf();
            return if expected == found {
                Ok(file)
            } else {
                Err(ModuleError::WrongBuild {
                    file: file_path(),
                    expected: Box::new(expected),
                    found: Box::new(found),
                })
            };
        }
        let Some(expected) = self.checksum else {
            return Ok(file);
        };
        let found = crc32fast::hash(file.bytes());
        if expected == found {
            Ok(file)
        } else {
            Err(ModuleError::WrongChecksum {
                file: file.path().to_path_buf(),
                expected,
                found,
            })
        }
    }
}

/// The directory of a file, and the same directory seen from its search root.
struct Directory {
    path: PathBuf,
    inside: PathBuf,
}

impl Directory {
    /// The path has no symbolic links if it exists. Links under another root mean something else
    /// here, even that of `/proc/PID/root` itself; and the kernel names mapped files without links.
    fn from_file(file: &ElfFile, roots: &SearchRoots) -> Directory {
        let mut others = roots
            .roots
            .iter()
            .filter(|root| root.as_path() != Path::new("/"));
        let under = others.find_map(|root| file.path().strip_prefix(root).ok());
        let path = match under {
            Some(_) => file.path().to_path_buf(),
            None => fs::canonicalize(file.path()).unwrap_or_else(|_| file.path().to_path_buf()),
        };
        let parent = |path: &Path| path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Directory {
            inside: relative(&parent(under.unwrap_or(&path))),
            path: parent(&path),
        }
    }
}

/// The path without its root.
fn relative(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// `.gnu_debuglink`: a file name, padding to 4 bytes, and the CRC-32 of the file.
struct DebugLink {
    name: PathBuf,
    checksum: u32,
}

impl DebugLink {
    fn from_file(file: &ElfFile) -> Option<DebugLink> {
        let data = file.section_named(".gnu_debuglink").ok()??.data;
        let name = until_nul(data);
        let at = (name.len() + 1).next_multiple_of(4);
        let checksum = data.get(at..)?.first_chunk()?;
        // A plain name only: a path in it could lead anywhere.
        let plain = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
        plain.then(|| DebugLink {
            name: PathBuf::from(OsStr::from_bytes(name)),
            checksum: if file.is_little_endian() {
                u32::from_le_bytes(*checksum)
            } else {
                u32::from_be_bytes(*checksum)
            },
        })
    }

    fn candidates(&self, file: &ElfFile, roots: &SearchRoots) -> Vec<PathBuf> {
        let directory = Directory::from_file(file, roots);
        let mut paths = vec![
            directory.path.join(&self.name),
            directory.path.join(".debug").join(&self.name),
        ];
        for root in &roots.roots {
            let debug = root.join(DEBUG_DIRECTORY).join(&directory.inside);
            paths.push(debug.join(&self.name));
        }
        // A file with the debug information of others may link to its own name.
        let is_itself = |path: &PathBuf| {
            let found = unspool_files::metadata(path).ok();
            found.is_some_and(|found| {
                file.state()
                    .is_some_and(|own| own.id == FileId::new(&found))
            })
        };
        paths.retain(|path| !is_itself(path));
        paths
    }
}

/// `.gnu_debugaltlink`: a path, and the build ID of the file.
struct AltLink {
    path: PathBuf,
    build_id: BuildId,
}

impl AltLink {
    fn from_file(file: &ElfFile) -> Option<AltLink> {
        let data = file.section_named(".gnu_debugaltlink").ok()??.data;
        let path = until_nul(data);
        let build_id = BuildId::new(data.get(path.len() + 1..)?)?;
        Some(AltLink {
            path: PathBuf::from(OsStr::from_bytes(path)),
            build_id,
        })
    }

    fn candidates(&self, file: &ElfFile, roots: &SearchRoots) -> Vec<PathBuf> {
        let mut paths = roots.debug_files(self.build_id);
        if self.path.is_absolute() {
            paths.extend(
                roots
                    .roots
                    .iter()
                    .map(|root| root.join(relative(&self.path))),
            );
        } else {
            paths.push(Directory::from_file(file, roots).path.join(&self.path));
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two cache directories for these variables.
    fn caches(variables: &[(&str, &str)]) -> [Option<PathBuf>; 2] {
        let roots = SearchRoots::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        });
        [roots.debuginfod_cache, roots.perf_cache]
    }

    #[test]
    fn the_caches_that_the_environment_names() {
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(caches(&[]), [None, None]);
        let home = ("HOME", "/h");
        let (downloads, perf) = (path("/h/.cache/debuginfod_client"), path("/h/.debug"));
        assert_eq!(caches(&[home]), [downloads.clone(), perf.clone()]);
        let cache = ("XDG_CACHE_HOME", "/c");
        let both = [path("/c/debuginfod_client"), perf.clone()];
        assert_eq!(caches(&[home, cache]), both);
        // Relative paths would be looked up in whatever folder the command runs.
        let relative = ("XDG_CACHE_HOME", "c");
        assert_eq!(caches(&[home, relative]), [downloads.clone(), perf]);
        assert_eq!(caches(&[("HOME", "h"), relative]), [None, None]);
        let named = [("DEBUGINFOD_CACHE_PATH", "/d"), ("PERF_BUILDID_DIR", "/p")];
        assert_eq!(
            caches(&[home, named[0], named[1]]),
            [path("/d"), path("/p")]
        );
    }
}
