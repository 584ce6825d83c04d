//! The page of a profile, in a headless Chromium: from the command to the first frame, each act,
//! its memory, and the file's size.
//!
//! `cargo bench -p unspool-bench --bench page -- [PROFILE…]`. Without files, it makes two: 20,000
//! and a million samples of 60 frames (`large.rs`). The browser runs already. The first frame of a
//! blank page, from disk, is subtracted. Both share the machine's processors with the command.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

#[path = "../../crates/profile/tests/it/large.rs"]
mod large;

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::json;
use unspool_bench::{Scratch, median, unspool};
use unspool_testing::Browser;

const ROUNDS: usize = 10;

/// Stores when the second frame after the page was shown begins: the first is then on the screen.
const NOTE_FIRST_FRAME: &str = "
const wait = () => {
  if (!document.body || !(document.body.dataset.ready || document.title === 'blank')) return setTimeout(wait, 1);
  requestAnimationFrame(() => requestAnimationFrame(() => {
    window.firstFrame = performance.timeOrigin + performance.now();
  }));
};
wait();";

/// Between two acts: people look at what they see.
const PAUSE: Duration = Duration::from_secs(1);

/// Times an act in milliseconds: until the second frame after the page has shown the change.
const TIME_ACT: &str = "
window.timeAct = async (act) => {
  const before = document.body.dataset.ready;
  const start = performance.now();
  act();
  while (document.body.dataset.ready === before) await new Promise((done) => setTimeout(done));
  for (let n = 0; n < 2; n++) await new Promise((done) => requestAnimationFrame(done));
  return performance.now() - start;
};";

/// Each act: its name, and what does it.
const ACTS: [(&str, &str); 16] = [
    ("list", "document.querySelector('[data-view=list]').click()"),
    (
        "by total",
        "Array.from(document.querySelectorAll('th button')).find((it) => it.textContent === 'total').click()",
    ),
    (
        "by module",
        "Array.from(document.querySelectorAll('#view button')).find((it) => it.textContent === 'by module').click()",
    ),
    ("tree", "document.querySelector('[data-view=tree]').click()"),
    ("callers tree", "document.getElementById('callers').click()"),
    (
        "callees again",
        "document.getElementById('callers').click()",
    ),
    (
        "select",
        "document.querySelector('#view tbody tr:last-child').click(); location.hash += '&by=function'",
    ),
    (
        "around",
        "document.querySelector('[data-view=around]').click()",
    ),
    (
        "source",
        "document.querySelector('[data-view=source]').click()",
    ),
    (
        "instructions",
        "document.querySelector('[data-view=code]').click()",
    ),
    (
        "graph",
        "document.querySelector('[data-view=flame]').click()",
    ),
    (
        "by time",
        "document.querySelector('[data-view=time]').click()",
    ),
    (
        "search",
        "const it = document.getElementById('search'); it.value = 'a'; it.dispatchEvent(new Event('change'))",
    ),
    (
        "stretch",
        "const it = document.getElementById('to'); it.value = '5'; it.dispatchEvent(new Event('change'))",
    ),
    (
        "hide",
        "Array.from(document.querySelectorAll('#actions button')).find((it) => it.textContent === 'Hide').click()",
    ),
    ("recursion", "document.getElementById('recursion').click()"),
];

fn main() -> anyhow::Result<()> {
    let given = std::env::args_os().skip(1).filter(|arg| arg != "--bench");
    let mut files: Vec<PathBuf> = given.map(PathBuf::from).collect();
    let scratch = Scratch::new()?;
    if files.is_empty() {
        for samples in [20_000, 1_000_000] {
            let path = scratch.join(&format!("{samples}.prof"));
            large::write(BufWriter::new(File::create(&path)?), samples)?;
            files.push(path);
        }
    }
    let blank = scratch.join("blank.html");
    std::fs::write(&blank, "<!doctype html><title>blank</title><p>blank</p>")?;
    let command = unspool()?;
    for file in &files {
        measure(&command, file, &blank, &scratch)?;
    }
    Ok(())
}

/// A server of a page, ended with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn milliseconds_since_1970() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e3)
}

fn measure(command: &Path, file: &Path, blank: &Path, scratch: &Scratch) -> anyhow::Result<()> {
    let page = scratch.join("page.html");
    let written = Command::new(command)
        .args(["report", "--format", "html", "-o"])
        .args([&page, file])
        .stderr(Stdio::null())
        .status()?;
    anyhow::ensure!(written.success(), "unspool report failed");
    let mut browser = Browser::start();
    browser.set_window(1280, 800, false);
    let source = json!({ "source": NOTE_FIRST_FRAME });
    browser.call("Page.addScriptToEvaluateOnNewDocument", &source);
    let (mut answered, mut shown, mut blanks) = (Vec::new(), Vec::new(), Vec::new());
    let mut blank_memory = 0;
    let mut served = None;
    for _ in 0..ROUNDS {
        let start = milliseconds_since_1970()?;
        browser.open(&format!("file://{}", blank.display()), "window.firstFrame");
        blanks.push(browser.eval("firstFrame").as_f64().unwrap_or_default() - start);
        blank_memory = browser.renderer_bytes();
        drop(served.take());
        let start = milliseconds_since_1970()?;
        let mut child = Command::new(command)
            .args(["view", "--no-open"])
            .arg(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut address)?;
        served = Some(Server(child));
        answered.push(milliseconds_since_1970()? - start);
        browser.open(address.trim(), "window.firstFrame");
        shown.push(browser.eval("firstFrame").as_f64().unwrap_or_default() - start);
    }
    let marks = "JSON.stringify(performance.getEntriesByType('measure').map((it) => [it.name, Math.round(it.duration)]))";
    println!("{}", file.display());
    println!("  page: {} bytes", std::fs::metadata(&page)?.len());
    println!("  the command answers after {:.0} ms", median(answered));
    println!("  in the page: {}", browser.eval(marks));
    let (shown, blank) = (median(shown), median(blanks));
    println!(
        "  first frame: {:.0} ms; {shown:.0} ms, less a blank page's {blank:.0} ms",
        shown - blank
    );
    browser.call("HeapProfiler.collectGarbage", &json!({}));
    let memory = browser.renderer_bytes().saturating_sub(blank_memory);
    println!(
        "  memory: {} MB more than the blank page",
        memory / 1_000_000
    );
    browser.eval(TIME_ACT);
    for (name, act) in ACTS {
        std::thread::sleep(PAUSE);
        let timed = browser.eval(&format!("timeAct(() => {{ {act} }})"));
        println!("  {name}: {:.0} ms", timed.as_f64().unwrap_or_default());
    }
    browser.call("HeapProfiler.collectGarbage", &json!({}));
    let memory = browser.renderer_bytes().saturating_sub(blank_memory);
    println!("  memory after all that: {} MB", memory / 1_000_000);
    println!("  errors: {:?}", browser.errors());
    Ok(())
}
