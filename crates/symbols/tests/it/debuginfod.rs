//! Downloads from a misbehaving server on the loopback interface.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{compile, directory, strip};
use unspool_elf::{BuildId, ContentKey, DebugFiles, ElfFile, SearchRoots};
use unspool_rows::Vaddr;
use unspool_symbols::{
    Artifact, Debuginfod, DebuginfodOptions, DownloadError, Fetch as _, LookupEvent, ModuleFinder,
    ModuleIdentity, ModuleNames, ModuleSource, NameDetail, NoSource, SourceFinder, SymbolProblem,
    SymbolRequest, Symbolizer,
};

/// A server's response to a request for a path.
type Behaviour = dyn Fn(&str, &mut TcpStream) + Send + Sync;

/// A server, and the heads of the requests it received.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(behaviour: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let heads = Arc::clone(&requests);
        // They end with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (behaviour, heads) = (Arc::clone(&behaviour), Arc::clone(&heads));
                thread::spawn(move || serve(stream, &*behaviour, &heads));
            }
        });
        Server { url, requests }
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn serve(mut stream: TcpStream, behaviour: &Behaviour, heads: &Mutex<Vec<String>>) {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while reader.read_line(&mut head).unwrap() > 2 {}
    let path = head.split(' ').nth(1).unwrap().to_owned();
    heads.lock().unwrap().push(head);
    behaviour(&path, &mut stream);
}

/// Sends a response; a client that has disconnected is not an error.
fn answer(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

fn not_found() -> Server {
    Server::new(|_, stream| answer(stream, "404 Not Found", b""))
}

/// A program, and the files that a server has of it.
struct Program {
    directory: PathBuf,
    stripped: PathBuf,
    whole: Vec<u8>,
    debug: Vec<u8>,
    id: BuildId,
    /// In a function that only the debug file names.
    local: Vaddr,
}

fn program(test: &str) -> Program {
    let directory = directory(test);
    let files = strip(&directory);
    let file = ElfFile::open(&files.whole).unwrap();
    Program {
        local: file.symbols().named("local").next().unwrap().address,
        id: file.build_id().unwrap(),
        whole: fs::read(files.whole).unwrap(),
        debug: fs::read(files.debug).unwrap(),
        stripped: files.stripped,
        directory,
    }
}

impl Program {
    fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    fn options(&self, servers: &[&Server]) -> DebuginfodOptions {
        DebuginfodOptions {
            urls: servers.iter().map(|server| server.url.clone()).collect(),
            cache: self.cache(),
            timeout: Duration::from_secs(60),
            max_time: None,
            max_size: 1 << 30,
            headers: Vec::new(),
        }
    }

    /// Gets the debug file.
    fn get(&self, options: DebuginfodOptions) -> Result<Option<PathBuf>, DownloadError> {
        Debuginfod::new(options).get(self.id, Artifact::DebugInfo, &|_| {})
    }

    fn look_up(&self, path: &Path, client: Option<Debuginfod>) -> ModuleNames {
        let mut finder = ModuleFinder::new(SearchRoots {
            roots: Vec::new(),
            ..SearchRoots::default()
        });
        if let Some(client) = client {
            finder = finder.with_fetch(Arc::new(client));
        }
        let request = SymbolRequest {
            module: ModuleSource::Identity(ModuleIdentity {
                path: path.to_path_buf(),
                content: Some(ContentKey::BuildId(self.id)),
                root: None,
            }),
            addresses: vec![self.local],
        };
        let names = Symbolizer::new(finder, NameDetail::Lines).look_up(vec![request]);
        names.into_modules().pop().unwrap()
    }

    /// Whether the name and the line of `local` were found.
    fn is_whole(&self, names: &ModuleNames) -> bool {
        let frame = names
            .get(self.local)
            .and_then(|name| name.debug_frames().next());
        frame.is_some_and(|frame| frame.function == Some("local") && frame.line.is_some())
    }

    /// The cached files of this build.
    fn cached(&self) -> Vec<String> {
        let folder = self.cache().join(self.id.to_string());
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_debug_file_is_fetched_once_and_kept_where_clients_keep_it() {
    let program = program("fetched_once");
    let (path, debug) = (
        format!("/buildid/{}/debuginfo", program.id),
        program.debug.clone(),
    );
    let server = Server::new(move |asked, stream| {
        if asked == path {
            answer(stream, "200 OK", &debug);
        } else {
            answer(stream, "404 Not Found", b"");
        }
    });
    assert!(!program.is_whole(&program.look_up(&program.stripped, None)));
    let mut options = program.options(&[&server]);
    options.headers = vec!["X-Test: yes ".to_owned(), "no header".to_owned()];
    options.urls[0].push('/');
    let names = program.look_up(&program.stripped, Some(Debuginfod::new(options.clone())));
    assert!(program.is_whole(&names), "{:?}", names.problems());
    assert!(names.problems().is_empty());
    let head = server.requests.lock().unwrap()[0].to_lowercase();
    assert!(
        head.contains("x-test: yes\r\n") && head.contains("user-agent: unspool/"),
        "{head}"
    );
    assert_eq!(program.cached(), ["debuginfo"]);
    let kept = program.cache().join(format!("{}/debuginfo", program.id));
    assert_eq!(fs::read(&kept).unwrap(), program.debug);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o077, 0);
    let names = program.look_up(&program.stripped, Some(Debuginfod::new(options)));
    assert!(program.is_whole(&names));
    assert_eq!(server.count(), 1);
}

#[test]
fn a_server_that_sends_clients_to_another() {
    let program = program("redirected");
    let debug = program.debug.clone();
    let other = Server::new(move |_, stream| answer(stream, "200 OK", &debug));
    let target = other.url.clone();
    let first = Server::new(move |_, stream| {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {target}/x\r\nContent-Length: 4\r\n");
        let _ = stream.write_all(format!("{head}Connection: close\r\n\r\nhere").as_bytes());
    });
    let path = program.get(program.options(&[&first])).unwrap().unwrap();
    assert_eq!(fs::read(path).unwrap(), program.debug);
    assert_eq!((first.count(), other.count()), (1, 1));
    // Not to a file of this machine.
    let lure = Server::new(|_, stream| {
        let head =
            "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
    });
    let mut options = program.options(&[&lure]);
    options.cache = program.directory.join("other_cache");
    let refused = program.get(options);
    assert!(
        matches!(&refused, Err(DownloadError::Server { reason, .. }) if reason.contains("file")),
        "{refused:?}"
    );
}

#[test]
fn a_missing_debug_file_falls_back_to_the_executable() {
    let program = program("executable");
    let whole = program.whole.clone();
    let server = Server::new(move |asked, stream| {
        if asked.ends_with("/executable") {
            answer(stream, "200 OK", &whole);
        } else {
            answer(stream, "404 Not Found", b"");
        }
    });
    let client = || Some(Debuginfod::new(program.options(&[&server])));
    let names = program.look_up(&program.directory.join("gone"), client());
    assert!(program.is_whole(&names), "{:?}", names.problems());
    assert_eq!(program.cached(), ["debuginfo", "executable"]);
    // A file of another build at the path is never used.
    let other = compile(
        &program.directory,
        "other",
        "int main(void) { return 0; }",
        &[],
    );
    assert!(program.is_whole(&program.look_up(&other, client())));
    assert_eq!(server.count(), 2);
}

#[test]
fn missing_files_are_not_requested_again_soon() {
    let program = program("missing");
    let servers = [not_found(), not_found()];
    let options = || program.options(&[&servers[0], &servers[1]]);
    assert_eq!(program.get(options()).unwrap(), None);
    let miss = program.cache().join(format!("{}/debuginfo", program.id));
    assert_eq!(fs::metadata(&miss).unwrap().len(), 0);
    assert_eq!(program.get(options()).unwrap(), None);
    assert_eq!((servers[0].count(), servers[1].count()), (1, 1));
    // The empty file is not a valid debug file.
    let names = program.look_up(&program.stripped, Some(Debuginfod::new(options())));
    assert!(
        matches!(names.problems(), [SymbolProblem::Stripped { .. }]),
        "{:?}",
        names.problems()
    );
    fs::write(program.cache().join("cache_miss_s"), "0\n").unwrap();
    assert_eq!(program.get(options()).unwrap(), None);
    assert_eq!((servers[0].count(), servers[1].count()), (2, 2));
}

#[test]
fn a_server_that_hangs_is_not_asked_again() {
    let program = program("hangs");
    // It waits for the client to disconnect.
    let server = Server::new(|_, stream| _ = stream.read_to_end(&mut Vec::new()));
    let mut options = program.options(&[&server]);
    // In that time a busy machine starts curl.
    options.timeout = Duration::from_secs(2);
    let client = Debuginfod::new(options);
    let get = |artifact| client.get(program.id, artifact, &|_| {});
    let Err(DownloadError::TooSlow { url, .. }) = get(Artifact::DebugInfo) else {
        panic!("it did not hang");
    };
    assert!(url.starts_with(&server.url));
    assert_eq!(get(Artifact::Executable).unwrap(), None);
    assert_eq!(server.count(), 1);
    // The server may have it all the same.
    assert_eq!(program.cached(), [""; 0]);
    let mut options = program.options(&[&server]);
    options.max_time = Some(Duration::from_millis(100));
    assert!(matches!(
        program.get(options),
        Err(DownloadError::TooSlow { .. })
    ));
}

#[test]
fn a_server_that_sends_a_byte_now_and_then_is_given_up() {
    let program = program("trickle");
    let server = Server::new(|_, stream| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        stream.write_all(head).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        while stream.write_all(b"x").is_ok() {
            let _ = stream.read(&mut [0]);
        }
    });
    let mut options = program.options(&[&server]);
    options.timeout = Duration::from_millis(200);
    assert!(matches!(
        program.get(options),
        Err(DownloadError::TooSlow { .. })
    ));
    assert_eq!(program.cached(), [""; 0]);
}

#[test]
fn a_server_that_sends_too_much() {
    let program = program("too_much");
    let endless = Server::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let mut options = program.options(&[&endless]);
    options.max_size = 1_000_000;
    let Err(DownloadError::TooLarge {
        limit: 1_000_000, ..
    }) = program.get(options)
    else {
        panic!("it was taken");
    };
    assert_eq!(program.cached(), [""; 0]);
}

#[test]
fn a_head_that_does_not_end() {
    let program = program("endless_head");
    let endless = Server::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream
            .write_all(&[b"X: ", &[b'x'; 4096][..], b"\r\n"].concat())
            .is_ok()
        {}
    });
    let error = program.get(program.options(&[&endless]));
    assert!(
        matches!(error, Err(DownloadError::Server { .. })),
        "{error:?}"
    );
    assert_eq!(program.cached(), [""; 0]);
}

#[test]
fn a_file_that_is_not_the_one_or_not_whole() {
    let program = program("wrong_file");
    let other = compile(
        &program.directory,
        "other",
        "int main(void) { return 0; }",
        &[],
    );
    let cut = &program.debug[..program.debug.len() / 2];
    for (body, expected) in [
        (fs::read(other).unwrap(), "the server sent build ID"),
        (fs::read(&program.stripped).unwrap(), "is not the debuginfo"),
        (cut.to_vec(), "incomplete"),
        (b"<html>".to_vec(), "not an ELF file"),
        (Vec::new(), "empty"),
    ] {
        let server = Server::new(move |_, stream| answer(stream, "200 OK", &body));
        let Err(DownloadError::WrongFile { reason, .. }) = program.get(program.options(&[&server]))
        else {
            panic!("{expected}: it was taken");
        };
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(program.cached(), [""; 0]);
    }
    // The connection breaks.
    let cut = cut.to_vec();
    let server = Server::new(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&cut).unwrap();
    });
    let error = program.get(program.options(&[&server]));
    assert!(
        matches!(error, Err(DownloadError::Server { .. })),
        "{error:?}"
    );
    assert_eq!(program.cached(), [""; 0]);
}

/// Its build ID matches, as in any file that another user plants.
#[test]
fn cache_files_writable_by_others_are_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let program = program("others");
    let body = program.debug.clone();
    let server = Server::new(move |_, stream| answer(stream, "200 OK", &body));
    let kept = program.get(program.options(&[&server])).unwrap().unwrap();
    for open in [&kept, kept.parent().unwrap(), &program.cache()] as [&Path; 3] {
        let mode = fs::metadata(open).unwrap().permissions().mode();
        let set_mode = |mode| fs::set_permissions(open, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(mode | 0o020);
        let refused = program.get(program.options(&[&server]));
        let is_reported =
            matches!(&refused, Err(DownloadError::Cache(error)) if error.path == *open);
        assert!(is_reported, "{refused:?}");
        // Nor in a search without a server.
        let roots = SearchRoots {
            roots: Vec::new(),
            debuginfod_cache: Some(program.cache()),
            perf_cache: None,
        };
        assert!(roots.debug_files(program.id).is_empty());
        let rejected =
            DebugFiles::locate(&ElfFile::open(&program.stripped).unwrap(), &roots).rejected;
        let said = rejected.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(
            said.iter().all(|said| said.contains("chmod go-w")) && said.len() == 1,
            "{said:?}"
        );
        set_mode(mode);
        assert_eq!(roots.debug_files(program.id), std::slice::from_ref(&kept));
    }
    assert_eq!(
        program.get(program.options(&[&server])).unwrap(),
        Some(kept)
    );
    assert_eq!(server.count(), 1);
}

#[test]
fn the_next_server_is_asked_where_one_fails() {
    let program = program("next_server");
    let debug = program.debug.clone();
    let broken = Server::new(|_, stream| answer(stream, "500 Internal Server Error", b"no"));
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let good = Server::new(move |_, stream| answer(stream, "200 OK", &debug));
    let mut options = program.options(&[&broken]);
    options.urls.push(nobody.clone());
    let names = program.look_up(&program.stripped, Some(Debuginfod::new(options.clone())));
    let problems = names.problems();
    let [
        SymbolProblem::Download(DownloadError::Server { url, .. }),
        SymbolProblem::Stripped { .. },
    ] = problems
    else {
        panic!("{problems:?}");
    };
    assert!(url.starts_with(&nobody));
    options.urls.push(good.url.clone());
    assert!(program.get(options).unwrap().is_some());
    let status = program.get(DebuginfodOptions {
        cache: program.directory.join("other_cache"),
        ..program.options(&[&broken])
    });
    assert!(
        matches!(status, Err(DownloadError::Status { status: 500, .. })),
        "{status:?}"
    );
}

#[test]
fn downloads_tell_how_far_they_are() {
    let program = program("progress");
    let debug = program.debug.clone();
    let size = debug.len() as u64;
    let server = Server::new(move |_, stream| answer(stream, "200 OK", &debug));
    let reported = Mutex::new(Vec::new());
    let client = Debuginfod::new(program.options(&[&server]));
    let path = client.get(program.id, Artifact::DebugInfo, &|event| {
        let LookupEvent::Download { bytes, all, .. } = event else {
            panic!("{event:?}");
        };
        reported.lock().unwrap().push((bytes, all));
    });
    assert!(path.unwrap().is_some());
    assert_eq!(
        reported.into_inner().unwrap().last(),
        Some(&(size, Some(size)))
    );
}

#[test]
fn files_that_nobody_uses_are_removed() {
    let program = program("clean");
    let server = not_found();
    let cache = program.cache();
    let old = cache.join("00112233445566778899aabbccddeeff00112233");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("debuginfo"), "old").unwrap();
    fs::write(cache.join("max_unused_age_s"), "0").unwrap();
    fs::write(cache.join("notes"), "not ours").unwrap();
    fs::create_dir_all(cache.join("folder")).unwrap();
    program.get(program.options(&[&server])).unwrap();
    assert!(!old.exists());
    assert!(cache.join("notes").exists() && cache.join("folder").exists());
    // Once a day is enough.
    fs::create_dir_all(&old).unwrap();
    fs::write(cache.join("cache_miss_s"), "0").unwrap();
    program.get(program.options(&[&server])).unwrap();
    assert!(old.exists());
}

/// By the path in debug information, under the name that elfutils' client gives it in the cache.
#[test]
fn sources_are_downloaded_by_their_path() {
    let program = program("sources");
    let server = Server::new(|path, stream| match path.split_once("/source") {
        Some((_, "/build/a%23b%20c/x.c")) => answer(stream, "200 OK", b"int x;\n"),
        Some((_, "/build/binary.c")) => answer(stream, "200 OK", b"\x7fELF\0"),
        _ => answer(stream, "404 Not Found", b""),
    });
    let client = Arc::new(Debuginfod::new(program.options(&[&server])));
    let get = |path: &str| client.source(program.id, path, &|_| {});
    let found = get("/build/a#b c/x.c").unwrap().unwrap();
    let folder = program.cache().join(program.id.to_string());
    assert_eq!(found, folder.join("source##build##a#_b c##x.c"));
    assert_eq!(fs::read(found).unwrap(), b"int x;\n");
    assert!(matches!(
        get("/build/binary.c"),
        Err(DownloadError::WrongFile { .. })
    ));
    for (path, requests) in [("relative.c", 2), ("/missing.c", 3), ("/missing.c", 3)] {
        assert_eq!(get(path).unwrap(), None);
        assert_eq!(server.count(), requests, "{path}");
    }
    let finder = SourceFinder::default().with_fetch(client.clone());
    let file = ElfFile::open(&program.stripped).unwrap();
    let read = |path: &str| finder.read(Path::new(path), Some(&file), &|_| {});
    let source = read("/build/a#b c/x.c").unwrap();
    assert_eq!((source.text.as_str(), source.is_newer), ("int x;\n", false));
    assert!(matches!(read("/missing.c"), Err(NoSource::NotFound(_))));
    assert!(matches!(read("/etc/shadow"), Err(NoSource::Name(_))));
    assert_eq!(server.count(), 3, "all were in the cache");
}
