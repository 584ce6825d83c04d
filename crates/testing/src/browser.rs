//! A headless Chromium, driven by its DevTools protocol through pipes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Folder, command, packages};

/// How long a browser may need.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A browser with one tab, closed at the end of the test.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    replies: Receiver<Vec<u8>>,
    session: Option<String>,
    last_id: u64,
    /// The requests that left the page, and what went wrong in it.
    requests: Vec<String>,
    errors: Vec<String>,
    _profile: Folder,
}

impl Browser {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// It is missing: the message names its Debian package.
    #[must_use]
    pub fn start() -> Browser {
        let chromium = packages::tool("chromium").unwrap_or_else(|error| panic!("{error}"));
        let profile = Folder::new();
        // Its pipes are the descriptors 3 and 4. Root has no sandbox, nor do containers.
        let pipes = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut shell = command("sh");
        shell.args(["-c", pipes]).arg(chromium).args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
        ]);
        shell.arg(format!("--user-data-dir={}", profile.display()));
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut browser = Browser {
            input: child.stdin.take().unwrap(),
            replies: replies(child.stdout.take().unwrap()),
            child,
            session: None,
            last_id: 0,
            requests: Vec::new(),
            errors: Vec::new(),
            _profile: profile,
        };
        let tab = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": tab["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &target);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the protocol, and returns its result.
    ///
    /// # Panics
    ///
    /// It fails.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        write!(self.input, "{message}\0").unwrap();
        loop {
            let reply = self.replies.recv_timeout(TIMEOUT);
            let reply = reply.unwrap_or_else(|error| panic!("chromium: {method}: {error}"));
            let mut reply: Value = serde_json::from_slice(&reply).unwrap();
            if reply["id"] == self.last_id {
                assert_eq!(reply["error"], Value::Null, "{method}");
                return reply["result"].take();
            }
            self.note(&reply);
        }
    }

    /// Keeps events that tests ask for.
    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap();
                self.requests.push(url.to_owned());
            }
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.errors.push(params.to_string());
            }
            _ => {}
        }
    }

    /// Opens an address, and waits for the condition, an expression.
    #[track_caller]
    pub fn open(&mut self, address: &str, condition: &str) {
        self.call("Page.navigate", &json!({ "url": address }));
        self.await_that(condition);
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn await_that(&mut self, condition: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let condition = format!("Boolean({condition})");
        while self.eval(&condition) != true {
            assert!(
                Instant::now() < deadline,
                "waited 30 s for {condition}: {:?}",
                self.errors
            );
        }
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &params);
        assert_eq!(result["exceptionDetails"], Value::Null, "{expression}");
        result["result"]["value"].take()
    }

    /// Presses a key, by its name: `Enter`, `ArrowDown`, `f`.
    pub fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let text = if key == "Enter" { "\r" } else { text };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "text": text });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Presses the mouse's button at one point of the window, and releases it at another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        for (kind, (x, y)) in [
            ("mousePressed", from),
            ("mouseMoved", to),
            ("mouseReleased", to),
        ] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Sets the size of the window in pixels, and whether colours are dark.
    pub fn set_window(&mut self, width: u32, height: u32, is_dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// The memory of the processes that show pages, in bytes: what they share counts in part.
    ///
    /// # Panics
    ///
    /// `/proc` does not say.
    #[must_use]
    pub fn renderer_bytes(&self) -> u64 {
        let mut processes = vec![self.child.id()];
        let mut at = 0;
        while let Some(parent) = processes.get(at).copied() {
            let tasks = fs::read_dir(format!("/proc/{parent}/task"))
                .into_iter()
                .flatten();
            let children = tasks
                .flatten()
                .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
            let children: Vec<String> = children.collect();
            let children = children.iter().flat_map(|list| list.split_whitespace());
            processes.extend(children.map(|id| id.parse::<u32>().unwrap()));
            at += 1;
        }
        let file = |id: &u32, name: &str| fs::read_to_string(format!("/proc/{id}/{name}"));
        let is_renderer =
            |id: &&u32| file(id, "cmdline").is_ok_and(|words| words.contains("--type=renderer"));
        let size = |id: &u32| {
            let memory = file(id, "smaps_rollup").unwrap_or_default();
            let size = memory.lines().find_map(|line| line.strip_prefix("Pss:"));
            let size = size.and_then(|size| size.trim().strip_suffix(" kB"));
            size.map_or(0, |size| 1024 * size.parse::<u64>().unwrap())
        };
        processes.iter().filter(is_renderer).map(size).sum()
    }

    /// What axe-core finds wrong with the page for people who cannot see it, or use no mouse: each
    /// rule with the elements.
    ///
    /// # Panics
    ///
    /// axe-core is missing: the message says what to do.
    #[track_caller]
    pub fn accessibility_faults(&mut self) -> Vec<String> {
        let axe = packages::axe().unwrap_or_else(|error| panic!("{error}"));
        let program = fs::read_to_string(axe).unwrap();
        self.eval(&format!("{program}; 0"));
        let found = self.eval(
            "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.map(
                (it) => `${it.id}: ${it.help}: ${it.nodes.map((node) => node.html).join(' | ')}`))",
        );
        let found = found.as_array().unwrap().iter();
        found.map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// A picture of the window, as PNG.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let base64 = picture["data"].as_str().unwrap();
        crate::filter(crate::tool("base64").arg("-d"), base64.as_bytes())
    }

    /// The addresses that were requested.
    #[must_use]
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// What went wrong in the page: exceptions, violations of its policy.
    #[must_use]
    pub fn errors(&self) -> &[String] {
        &self.errors
    }
}

/// The messages of a browser, each ended by a zero byte.
fn replies(output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, replies) = mpsc::channel();
    thread::spawn(move || {
        let messages = BufReader::new(output).split(0).map_while(Result::ok);
        for message in messages {
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    replies
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}
