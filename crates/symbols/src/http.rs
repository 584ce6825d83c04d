//! HTTP by the system's `curl`: the system keeps its TLS and its certificates current. A program
//! that often runs as root should have none of its own.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// The most bytes of a response's head, including those of redirections: curl's own limit.
const MAX_HEAD_BYTES: u64 = 300 << 10;
/// The most bytes to read of curl's error message.
const MAX_MESSAGE_BYTES: u64 = 4 << 10;

/// A response after its head was read.
pub(crate) struct Response {
    /// The HTTP status, after redirections.
    pub(crate) status: u16,
    /// The length of the body in bytes, if the server reports it.
    pub(crate) length: Option<u64>,
    curl: Curl,
    body: io::Take<BufReader<CurlOutput>>,
}

/// Requests a URL with these header lines (`Name: value`). The response's head must arrive by the
/// deadline; `None` for any time.
///
/// # Errors
///
/// curl cannot be run, or there is no response; the kind is `TimedOut` after the deadline.
pub(crate) fn get(url: &str, headers: &[&str], deadline: Option<Instant>) -> io::Result<Response> {
    let mut curl = Curl::start(url, headers)?;
    let stdout = curl.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let pipe = CurlOutput { stdout, deadline };
    let mut body = BufReader::new(pipe).take(MAX_HEAD_BYTES);
    let Some(head) = Head::read(&mut body)? else {
        if body.limit() == 0 {
            // curl would wait for a reader of the rest.
            return Err(io::Error::other("the head of the response does not end"));
        }
        return Err(curl
            .failure()?
            .unwrap_or_else(|| io::Error::other("curl: no HTTP response")));
    };
    body.set_limit(u64::MAX);
    Ok(Response {
        status: head.status,
        length: head.length,
        curl,
        body,
    })
}

/// Whether `curl` can be run.
pub(crate) fn is_available() -> bool {
    let mut command = Command::new("curl");
    let command = command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Response {
    /// Reads more of the body until the deadline; 0 at its end.
    ///
    /// # Errors
    ///
    /// As for [`get`], and if the body is truncated.
    pub(crate) fn read(&mut self, into: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        self.body.get_mut().get_mut().deadline = deadline;
        match self.body.read(into)? {
            0 => self.curl.failure()?.map_or(Ok(0), Err),
            read => Ok(read),
        }
    }
}

/// The head of a response.
#[derive(Debug, Default, PartialEq)]
struct Head {
    status: u16,
    length: Option<u64>,
    is_redirection: bool,
}

impl Head {
    /// The head of the final response, after redirections and interim ones; `None` if the text ends
    /// before.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Head>> {
        let mut head = Head::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            if text.starts_with("HTTP/") {
                let status = text.split_ascii_whitespace().nth(1);
                let status = status.and_then(|status| status.parse().ok());
                head = Head {
                    status: status.unwrap_or_default(),
                    ..Head::default()
                };
            } else if let Some((name, value)) = text.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    head.length = value.trim().parse().ok();
                }
                head.is_redirection |= name.eq_ignore_ascii_case("location");
            } else if text.is_empty() {
                let goes_on = match head.status {
                    100..200 => true,
                    300..400 => head.is_redirection,
                    _ => false,
                };
                if !goes_on {
                    return Ok(Some(head));
                }
            }
        }
    }
}

/// A running curl, killed on drop.
struct Curl {
    child: Child,
}

impl Curl {
    fn start(url: &str, headers: &[&str]) -> io::Result<Curl> {
        let mut command = Command::new("curl");
        // Must be first: no .curlrc may change the behaviour.
        command.arg("--disable");
        command.args([
            "--silent",
            "--show-error",
            "--include",
            "--suppress-connect-headers",
        ]);
        command.args(["--location", "--max-redirs", "10", "--proto", "=http,https"]);
        if url.starts_with("https:") {
            command.args(["--proto-redir", "=https"]);
        }
        command.args([
            "--user-agent",
            concat!("unspool/", env!("CARGO_PKG_VERSION")),
        ]);
        // Not as arguments, which other users can read: these may contain passwords.
        command.args(["--header", "@-", "--globoff", "--url", url]);
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot run curl ({error}): install the package curl"),
            )
        })?;
        let mut curl = Curl { child };
        if let Some(mut stdin) = curl.child.stdin.take() {
            // If curl exited early, the error is reported below.
            let _ = stdin.write_all((headers.join("\n") + "\n").as_bytes());
        }
        Ok(curl)
    }

    /// Why it failed, if it did.
    fn failure(&mut self) -> io::Result<Option<io::Error>> {
        let mut text = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            stderr.take(MAX_MESSAGE_BYTES).read_to_end(&mut text)?;
        }
        let status = self.child.wait()?;
        let text = String::from_utf8_lossy(&text);
        let why = match text.trim() {
            "" => format!("curl: {status}"),
            text => text.to_owned(),
        };
        Ok((!status.success()).then(|| io::Error::other(why)))
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// curl's output, read until a deadline.
struct CurlOutput {
    stdout: ChildStdout,
    deadline: Option<Instant>,
}

impl Read for CurlOutput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            // `None` if that is longer than the system can wait.
            let left = Timespec::try_from(left).ok();
            let mut waited = [PollFd::new(&self.stdout, PollFlags::IN)];
            if left.is_some_and(|left| left == Timespec::default())
                || retry_on_intr(|| poll(&mut waited, left.as_ref()))? == 0
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.stdout.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> (Option<Head>, &str) {
        let mut rest = text.as_bytes();
        let head = Head::read(&mut rest).unwrap();
        (head, std::str::from_utf8(rest).unwrap())
    }

    #[test]
    fn the_head_of_the_last_response() {
        let plain = Head {
            status: 200,
            length: Some(5),
            is_redirection: false,
        };
        for before in [
            "",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 302 Found\r\nContent-Length: 7\r\nlocation: /x\r\n\r\n",
        ] {
            let text = format!("{before}HTTP/2 200 \r\ncontent-length: 5\r\n\r\nHTTP/");
            assert_eq!(head(&text), (Some(Head { ..plain }), "HTTP/"));
        }
        let cached = Head {
            status: 304,
            ..Head::default()
        };
        assert_eq!(head("HTTP/1.1 304 Not Modified\n\n"), (Some(cached), ""));
        assert_eq!(
            head("HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"),
            (None, "")
        );
        assert_eq!(head("HTTP/1.1 200 OK\r\nX: y\r\n"), (None, ""));
    }
}
