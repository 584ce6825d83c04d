//! Debug files by build ID from debuginfod servers.
//!
//! The environment and the cache are those of elfutils' client (debuginfod_find_debuginfo(3)), so
//! that either client uses the other's downloads. These are
//! `DEBUGINFOD_CACHE_PATH/BUILDID/debuginfo`, and for ten minutes an empty file in its place if no
//! server had one. A source file is there as `source##usr##include##stdio.h`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use unspool_elf::{BuildId, ElfFile, ModuleError, SearchRoots};
use unspool_files::environment::variable;
use unspool_files::{CacheError, CacheFolder};

use crate::fetch::{Artifact, DownloadError, Fetch};
use crate::http::{self, Response};
use crate::symbolizer::LookupEvent;

/// The fewest bytes to receive within [`DebuginfodOptions::timeout`]; a slower server is given up.
const MIN_BYTES_PER_TIMEOUT: u64 = 100 << 10;
/// The number of bytes to read at once.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// The interval of progress reports, in bytes.
const PROGRESS_STEP_BYTES: u64 = 1 << 20;
/// How long a missing file is remembered, unless the cache's `cache_miss_s` says otherwise.
const MISS_AGE: Duration = Duration::from_secs(600);
/// The interval of removing old files, unless the cache's `cache_clean_interval_s` says otherwise.
const CLEAN_INTERVAL: Duration = Duration::from_secs(86_400);
/// The age at which an unused file is old, unless the cache's `max_unused_age_s` says otherwise.
const MAX_UNUSED_AGE: Duration = Duration::from_secs(604_800);
/// The setting whose time of modification is that of the last removal.
const MARKER: &str = "cache_clean_interval_s";
/// The size of the largest file of settings or headers to read, in bytes.
const MAX_SETTING_BYTES: u64 = 64 << 10;
/// The longest file name, in bytes.
const MAX_FILE_NAME_BYTES: usize = 255;

/// The servers and the limits of downloads.
#[derive(Debug, Clone)]
pub struct DebuginfodOptions {
    /// The servers, in the order of requests.
    pub urls: Vec<String>,
    /// The cache folder.
    pub cache: PathBuf,
    /// How long to wait for a server to answer, and then for each 100 KiB.
    pub timeout: Duration,
    /// The longest time of a download; `None` for any time.
    pub max_time: Option<Duration>,
    /// The largest size of a file, in bytes.
    pub max_size: u64,
    /// Additional header lines of each request, as `Name: value`.
    pub headers: Vec<String>,
}

impl DebuginfodOptions {
    /// The options from the environment: `DEBUGINFOD_URLS`, `DEBUGINFOD_CACHE_PATH`,
    /// `DEBUGINFOD_TIMEOUT` (90 seconds), `DEBUGINFOD_MAXTIME`, `DEBUGINFOD_MAXSIZE` (16 GiB),
    /// `DEBUGINFOD_HEADERS_FILE`. `None` without servers or without a cache folder.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        DebuginfodOptions::from_variables(variable)
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name: &str| variable(name)?.into_string().ok();
        let number = |name: &str| text(name)?.parse::<u64>().ok().filter(|number| *number > 0);
        let seconds = |name: &str| number(name).map(Duration::from_secs);
        let urls = text("DEBUGINFOD_URLS")?;
        // There may be words about signatures between them, which are not verified here.
        let urls = urls
            .split_whitespace()
            .filter(|word| !word.starts_with("ima:"));
        let urls: Vec<String> = urls.map(str::to_owned).collect();
        // Nobody waits for a pipe's writer here.
        let headers = variable("DEBUGINFOD_HEADERS_FILE");
        let headers = headers.map(|file| unspool_files::read(file.as_ref(), MAX_SETTING_BYTES));
        let headers = headers.and_then(|text| String::from_utf8(text.ok()?).ok());
        let headers = headers.unwrap_or_default();
        Some(DebuginfodOptions {
            cache: SearchRoots::from_variables(&variable).debuginfod_cache?,
            timeout: seconds("DEBUGINFOD_TIMEOUT").unwrap_or(Duration::from_secs(90)),
            max_time: seconds("DEBUGINFOD_MAXTIME"),
            max_size: number("DEBUGINFOD_MAXSIZE").unwrap_or(16 << 30),
            headers: headers.lines().map(str::to_owned).collect(),
            urls,
        })
        .filter(|options| !options.urls.is_empty())
    }
}

/// Fetches files from debuginfod servers into the common cache.
#[derive(Debug)]
pub struct Debuginfod {
    options: DebuginfodOptions,
    /// The servers that are not asked again, by index: a server that hangs does so for each file.
    is_unreachable: Vec<AtomicBool>,
    is_clean: Mutex<bool>,
}

impl Debuginfod {
    /// Sends no request yet.
    #[must_use]
    pub fn new(options: DebuginfodOptions) -> Self {
        Debuginfod {
            is_unreachable: options
                .urls
                .iter()
                .map(|_| AtomicBool::new(false))
                .collect(),
            is_clean: Mutex::new(false),
            options,
        }
    }

    /// Whether `curl` is available, which downloads need.
    #[must_use]
    pub fn can_download() -> bool {
        http::is_available()
    }

    /// As [`Debuginfod::new`] with [`DebuginfodOptions::from_environment`].
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        DebuginfodOptions::from_environment().map(Debuginfod::new)
    }
}

impl Fetch for Debuginfod {
    fn get(
        &self,
        id: BuildId,
        artifact: Artifact,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        let request = FileRequest {
            id,
            cache_name: artifact.name().to_owned(),
            url_path: artifact.name().to_owned(),
            check: &|url, file| check(url, file, id, artifact),
        };
        self.find(&request, report)
    }

    fn source(
        &self,
        id: BuildId,
        path: &str,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        let cache_name = source_cache_name(path);
        if !path.starts_with('/') || cache_name.len() > MAX_FILE_NAME_BYTES {
            return Ok(None);
        }
        let request = FileRequest {
            id,
            cache_name,
            url_path: format!("source{}", url_path(path)),
            check: &check_source,
        };
        self.find(&request, report)
    }
}

/// A file of a build.
struct FileRequest<'a> {
    id: BuildId,
    /// Its name in the build's folder of the cache.
    cache_name: String,
    /// The end of its URL.
    url_path: String,
    /// Whether a downloaded file, of this URL, is the right one.
    check: &'a dyn Fn(&str, &File) -> Result<(), DownloadError>,
}

impl Debuginfod {
    /// Looks in the cache, and downloads into it.
    fn find(
        &self,
        request: &FileRequest<'_>,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        let folder = self.folder(request.id);
        if let Some(file) = folder.open(&request.cache_name)? {
            let age = file
                .metadata()
                .modified()
                .ok()
                .and_then(|time| time.elapsed().ok());
            let is_recent = || age.is_some_and(|age| age <= self.setting("cache_miss_s", MISS_AGE));
            match file.metadata().len() {
                0 if is_recent() => return Ok(None),
                0 => {}
                _ => return Ok(Some(file.path().to_path_buf())),
            }
        }
        self.clean();
        let mut failed = None;
        for (url, is_lost) in self.options.urls.iter().zip(&self.is_unreachable) {
            if is_lost.load(Ordering::Relaxed) {
                continue;
            }
            let base = url.trim_end_matches('/');
            let url = format!("{base}/buildid/{}/{}", request.id, request.url_path);
            match self.fetch(&url, request, &folder, report) {
                Ok(Some(path)) => return Ok(Some(path)),
                Ok(None) => {}
                Err(error) => {
                    let lost = matches!(
                        error,
                        DownloadError::Server { .. } | DownloadError::TooSlow { .. }
                    );
                    is_lost.fetch_or(lost, Ordering::Relaxed);
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let is_asked = |lost: &AtomicBool| !lost.load(Ordering::Relaxed);
        if self.is_unreachable.iter().all(is_asked) {
            // An empty file is for a missing one. A failure to remember it is harmless.
            let _ = folder.write(&request.cache_name, b"");
        }
        Ok(None)
    }

    /// The folder for the files of a build.
    fn folder(&self, id: BuildId) -> CacheFolder {
        let is_artifact = |name: &str| {
            let names = [Artifact::DebugInfo, Artifact::Executable].map(Artifact::name);
            names.contains(&name) || name.starts_with("source##")
        };
        self.cache().subfolder(&id.to_string(), is_artifact)
    }

    fn cache(&self) -> CacheFolder {
        CacheFolder::new(self.options.cache.clone(), |name| name == MARKER)
    }

    /// Fetches one file from one server; `None` if the server does not have it.
    fn fetch(
        &self,
        url: &str,
        request: &FileRequest<'_>,
        folder: &CacheFolder,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        let started = Instant::now();
        let deadline = (self.options.max_time).and_then(|time| started.checked_add(time));
        let headers = self.options.headers.iter().map(|line| line.trim());
        let headers: Vec<&str> = headers.filter(|line| line.contains(':')).collect();
        let wait = sooner(started.checked_add(self.options.timeout), deadline);
        let response = http::get(url, &headers, wait);
        let response = response.map_err(|error| failed(url, started, &error))?;
        match response.status {
            200 => {}
            404 => return Ok(None),
            status => {
                let url = url.to_owned();
                return Err(DownloadError::Status { url, status });
            }
        }
        let mut download = Download {
            options: &self.options,
            url,
            all: response.length,
            report,
            started,
            deadline,
        };
        let done = folder.write_with(&request.cache_name, 0, |file| {
            download.copy(response, &folder.path(), file)?;
            (request.check)(url, file)
        });
        done.map(Some)
    }

    /// A number of seconds in a file of the cache.
    fn setting(&self, name: &str, default: Duration) -> Duration {
        let file = self.cache().open(name).ok().flatten();
        let text = file.and_then(|file| file.read(MAX_SETTING_BYTES).ok());
        let number = text.and_then(|text| str::from_utf8(&text).ok()?.trim().parse().ok());
        number.map_or(default, Duration::from_secs)
    }

    /// Removes files that were unused for a long time, once in a while. A file that cannot be
    /// removed stays.
    fn clean(&self) {
        let mut is_clean = self.is_clean.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_clean, true) {
            return;
        }
        let cache = self.cache();
        let interval = self.setting(MARKER, CLEAN_INTERVAL);
        let Ok(marker) = cache.open(MARKER) else {
            return;
        };
        let cleaned = marker.and_then(|marker| marker.metadata().modified().ok());
        let is_due = |time: SystemTime| time.elapsed().is_ok_and(|age| age > interval);
        if !cleaned.is_none_or(is_due) {
            return;
        }
        let _ = cache.write(MARKER, interval.as_secs().to_string().as_bytes());
        let unused = self.setting("max_unused_age_s", MAX_UNUSED_AGE);
        cache.remove_unread(unused, |name| BuildId::from_hex(name).is_some());
    }
}

/// One download.
struct Download<'a> {
    options: &'a DebuginfodOptions,
    url: &'a str,
    /// The size of the file, if the server reports it.
    all: Option<u64>,
    report: &'a dyn Fn(LookupEvent<'_>),
    started: Instant,
    /// The deadline of the whole download.
    deadline: Option<Instant>,
}

impl Download<'_> {
    /// Copies it to a file in a folder.
    fn copy(
        &mut self,
        mut from: Response,
        folder: &Path,
        to: &mut File,
    ) -> Result<(), DownloadError> {
        let mut buffer = vec![0; READ_CHUNK_BYTES];
        let (mut bytes, mut reported) = (0_u64, 0);
        let (mut window, mut in_window) = (Instant::now(), 0);
        loop {
            let wait = sooner(window.checked_add(self.options.timeout), self.deadline);
            let read = from.read(&mut buffer, wait);
            let read = read.map_err(|error| failed(self.url, self.started, &error))?;
            let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else {
                self.report(bytes);
                return Ok(());
            };
            bytes += part.len() as u64;
            in_window += part.len() as u64;
            if bytes > self.options.max_size {
                return Err(DownloadError::TooLarge {
                    url: self.url.to_owned(),
                    limit: self.options.max_size,
                });
            }
            to.write_all(part)
                .map_err(|error| CacheError::new(folder, error))?;
            if bytes - reported >= PROGRESS_STEP_BYTES {
                self.report(bytes);
                reported = bytes;
            }
            if in_window >= MIN_BYTES_PER_TIMEOUT {
                (window, in_window) = (Instant::now(), 0);
            }
        }
    }

    fn report(&self, bytes: u64) {
        (self.report)(LookupEvent::Download {
            url: self.url,
            bytes,
            all: self.all,
        });
    }
}

/// The earlier of two optional deadlines.
fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

fn failed(url: &str, started: Instant, error: &io::Error) -> DownloadError {
    let url = url.to_owned();
    match error.kind() {
        io::ErrorKind::TimedOut => DownloadError::TooSlow {
            url,
            after: started.elapsed(),
        },
        _ => DownloadError::Server {
            url,
            reason: error.to_string(),
        },
    }
}

/// The name of a source file in the cache, as elfutils' client makes it.
fn source_cache_name(path: &str) -> String {
    let path = path.replace('#', "#_").replace('/', "##");
    format!("source{path}")
}

/// A path in a URL (RFC 3986 §2).
fn url_path(path: &str) -> String {
    let mut escaped = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Whether a downloaded file is text.
fn check_source(url: &str, file: &File) -> Result<(), DownloadError> {
    let is_text = crate::sources::read_text(file).is_ok();
    is_text
        .then_some(())
        .ok_or_else(|| DownloadError::WrongFile {
            url: url.to_owned(),
            reason: "the server's file is not a source file".into(),
        })
}

/// Whether a downloaded file is a complete ELF file of the requested build and kind.
fn check(url: &str, file: &File, id: BuildId, artifact: Artifact) -> Result<(), DownloadError> {
    let wrong = |reason: String| DownloadError::WrongFile {
        url: url.to_owned(),
        reason,
    };
    let checked: Result<ElfFile, ModuleError> =
        ElfFile::from_file(artifact.name(), file).and_then(|file| {
            file.check_section_headers()?;
            Ok(file)
        });
    let file = checked.map_err(|error| wrong(error.to_string()))?;
    let has_names = |name: &str| {
        name == ".symtab" || name.starts_with(".debug_") || name.starts_with(".zdebug_")
    };
    let is_of_kind = file.sections().any(|section| {
        section.has_data
            && match artifact {
                Artifact::DebugInfo => has_names(&section.name),
                Artifact::Executable => section.executable,
            }
    });
    if !is_of_kind {
        return Err(wrong(format!(
            "the server's file is not the {} that was asked for",
            artifact.name()
        )));
    }
    match file.build_id() {
        Some(found) if found == id => Ok(()),
        Some(found) => Err(wrong(format!("the server sent build ID {found}"))),
        None => Err(wrong("the server sent a file without build ID".into())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options(variables: &[(&str, &str)]) -> Option<DebuginfodOptions> {
        DebuginfodOptions::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn options_come_from_the_environment() {
        let home = ("HOME", "/h");
        assert!(options(&[home]).is_none(), "no servers are named");
        let urls = ("DEBUGINFOD_URLS", " https://a/  ima:enforcing\thttp://b ");
        assert!(options(&[urls]).is_none(), "nowhere to keep files");
        assert!(options(&[home, ("DEBUGINFOD_URLS", "ima:ignore ")]).is_none());
        let plain = options(&[home, urls]).unwrap();
        assert_eq!(plain.urls, ["https://a/", "http://b"]);
        assert_eq!(plain.cache, Path::new("/h/.cache/debuginfod_client"));
        assert_eq!((plain.timeout.as_secs(), plain.max_time), (90, None));
        let set = [
            urls,
            ("DEBUGINFOD_CACHE_PATH", "/c"),
            ("DEBUGINFOD_TIMEOUT", "5"),
            ("DEBUGINFOD_MAXTIME", "60"),
            ("DEBUGINFOD_MAXSIZE", "1000"),
        ];
        let set = options(&set).unwrap();
        assert_eq!((set.cache.as_path(), set.max_size), (Path::new("/c"), 1000));
        assert_eq!(
            (set.timeout.as_secs(), set.max_time),
            (5, Some(Duration::from_secs(60)))
        );
    }

    /// Nobody writes to the FIFO, and nobody waits.
    #[test]
    #[cfg_attr(miri, ignore = "runs mkfifo")]
    fn headers_come_from_a_small_regular_file() {
        let folder = std::env::temp_dir().join(format!("unspool-headers-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (file, fifo) = (folder.join("file"), folder.join("fifo"));
        let headers = |path: &Path| {
            let path = path.to_str().unwrap();
            let urls = ("DEBUGINFOD_URLS", "http://a");
            let variables = [("HOME", "/h"), urls, ("DEBUGINFOD_HEADERS_FILE", path)];
            options(&variables).unwrap().headers
        };
        fs::write(&file, "A: 1\nB: 2\n").unwrap();
        assert_eq!(headers(&file), ["A: 1", "B: 2"]);
        fs::write(&file, "A: 1\n".repeat(20_000)).unwrap();
        assert_eq!(headers(&file), [""; 0]);
        let made = unspool_testing::command("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        assert_eq!(headers(&fifo), [""; 0]);
        fs::remove_dir_all(folder).unwrap();
    }
}
