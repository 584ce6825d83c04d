//! Serves one page on the loopback interface, to its user and root, if they know its address.
//! Root's page is for the user as well who became root by sudo.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use unspool_files::environment::variable;
use unspool_files::raw::effective_user;

/// The longest request.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Browsers open connections ahead, and leave them idle.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The most connections at a time; more are closed.
const MAX_CONNECTIONS: usize = 32;
/// How long to wait if there is no descriptor for another connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A page and its addresses.
pub(super) struct PageServer {
    listener: TcpListener,
    port: u16,
    page: Arc<ServedPage>,
}

struct ServedPage {
    html: Vec<u8>,
    /// The path of the page, without its slashes.
    secret: String,
    /// The users who get the page.
    users: Vec<u32>,
    connections: AtomicUsize,
}

impl PageServer {
    /// Listens on a port that the kernel chooses.
    pub(super) fn new(html: Vec<u8>) -> io::Result<PageServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(PageServer {
            port: listener.local_addr()?.port(),
            listener,
            page: Arc::new(ServedPage {
                html,
                secret: random_hex()?,
                users: users(),
                connections: AtomicUsize::new(0),
            }),
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address of the page.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.page.secret)
    }

    /// Answers requests, without end.
    pub(super) fn run(&self) -> io::Result<()> {
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                thread::sleep(RETRY_INTERVAL);
                continue;
            };
            let page = Arc::clone(&self.page);
            if page.connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                page.connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            thread::Builder::new().spawn(move || {
                // A browser that goes away is not an error.
                if page.is_for(&stream) {
                    let _ = page.answer(stream);
                }
                page.connections.fetch_sub(1, Ordering::Relaxed);
            })?;
        }
        Ok(())
    }
}

/// The users who get the page.
fn users() -> Vec<u32> {
    let own = effective_user();
    let caller = variable("SUDO_UID").filter(|_| own == 0);
    let caller = caller.and_then(|user| user.to_str()?.parse().ok());
    [Some(own), Some(0), caller].into_iter().flatten().collect()
}

impl ServedPage {
    /// Whether one of the users owns the other end of a connection. That takes longer the more
    /// sockets anybody has.
    fn is_for(&self, stream: &TcpStream) -> bool {
        let ends = stream
            .peer_addr()
            .and_then(|client| Ok([client, stream.local_addr()?]));
        let owner = ends.and_then(owner_of).ok().flatten();
        owner.is_some_and(|owner| self.users.contains(&owner))
    }

    /// Answers a request, and closes the connection.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(CONNECTION_TIMEOUT))?;
        stream.set_write_timeout(Some(CONNECTION_TIMEOUT))?;
        let request = read_request(&mut stream)?;
        let (method, path) = split(&request).unwrap_or_default();
        let secret = path.trim_matches('/');
        let is_page = matches!(method, "GET" | "HEAD") && is_equal(secret, &self.secret);
        let (status, kind, body) = if is_page {
            ("200 OK", "text/html", self.html.as_slice())
        } else {
            let body =
                &b"Not the address of the page: copy the one that unspool has printed.\n"[..];
            ("404 Not Found", "text/plain", body)
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n",
            body.len()
        )?;
        if method == "HEAD" {
            return Ok(());
        }
        stream.write_all(body)
    }
}

/// The head of a request.
fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut part)?;
        request.extend_from_slice(part.get(..length).unwrap_or_default());
        if length == 0 || request.len() > MAX_REQUEST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(request)
}

/// The user who owns the first end of a connection. `None` if it is closed (proc_pid_net(5)).
fn owner_of(ends: [SocketAddr; 2]) -> io::Result<Option<u32>> {
    let ends = ends.map(|end| match end.ip() {
        // The address is a number of the machine, the port is not.
        IpAddr::V4(ip) => format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), end.port()),
        IpAddr::V6(_) => String::new(),
    });
    let connections = fs::read_to_string("/proc/self/net/tcp")?;
    let owner = connections.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = ends.iter().all(|end| words.next() == Some(end));
        words.nth(4).filter(|_| is_it)?.parse().ok()
    });
    Ok(owner)
}

/// The method and the path of a request.
fn split(request: &[u8]) -> Option<(&str, &str)> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    Some((words.next()?, words.next()?))
}

/// Whether two texts are equal, in a time that does not say where they differ.
fn is_equal(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let difference = pairs.fold(0, |difference, (a, b)| difference | (a ^ b));
    one.len() == other.len() && difference == 0
}

/// 128 random bits in hexadecimal.
fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
