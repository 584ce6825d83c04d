//! The terminal display of `unspool record`, as tmux sees it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use unspool_testing::{Finish as _, Folder, tool};

use crate::harness::{self, UNSPOOL};

/// A terminal with a shell, in a separate folder.
struct Terminal {
    socket: String,
    folder: PathBuf,
}

impl Terminal {
    fn new(test: &str) -> Terminal {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("terminal-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let socket = format!("unspool-{test}-{}", std::process::id());
        let terminal = Terminal { socket, folder };
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "-c",
            terminal.folder.to_str().unwrap(),
            "env",
            "-u",
            "NO_COLOR",
            "PS1=ready> ",
            "sh",
        ]);
        terminal.await_screen("a prompt", |screen| screen.contains("ready>"));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = tool("tmux");
        let output = command.args(["-L", &self.socket]).args(arguments).output();
        let output = output.unwrap_or_else(|error| {
            panic!("cannot run tmux: {error}; install the Debian package tmux")
        });
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a line.
    fn enter(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as expected.
    fn await_screen(&self, what: &str, is_as: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        for _ in 0..1200 {
            screen = self.screen();
            if is_as(&screen) {
                return screen;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("never {what}: {screen}");
    }

    /// tmux's value of a terminal property.
    fn knows(&self, name: &str) -> String {
        let format = format!("#{{{name}}}");
        let value = self.tmux(&["display-message", "-p", &format]);
        value.trim().to_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = tool("tmux");
        let killed = command.args(["-L", &self.socket, "kill-server"]).output();
        assert!(thread::panicking() || killed.unwrap().status.success());
    }
}

/// A program that works until it is killed.
fn burns(folder: &Path) {
    let mut gcc = tool("gcc");
    gcc.args([
        "-O1",
        "-pthread",
        "-o",
        "burns",
        &harness::source("burns.c"),
    ]);
    gcc.current_dir(folder).succeed();
}

/// The percentages and the rest of a line of the list.
fn row<'a>(screen: &'a str, name: &str) -> Option<(Vec<f64>, &'a str)> {
    let line = screen.lines().find(|line| line.contains(name))?;
    let parts: Vec<&str> = line.split('%').map(str::trim).collect();
    let (name, shares) = parts.split_last()?;
    let shares = shares.iter().map(|share| share.parse().ok());
    Some((shares.collect::<Option<_>>()?, name))
}

#[test]
fn a_list_while_recording() {
    let terminal = Terminal::new("live");
    burns(&terminal.folder);
    terminal.enter(&format!("{UNSPOOL} record --no-cache --live -- ./burns"));
    let has_all = |screen: &str| {
        let names = [
            "work_of_second  [burns]",
            "outer_of_main  [burns]",
            "second (",
        ];
        names.iter().all(|name| screen.contains(name))
    };
    let screen = terminal.await_screen("a list", has_all);
    assert_eq!(terminal.knows("alternate_on"), "1");
    let status = screen.lines().next().unwrap();
    assert!(status.starts_with("unspool record, "), "{status}");
    for word in ["samples (", "/s), 0 lost, 100 % complete"] {
        assert!(status.contains(word), "{status}");
    }
    assert!(!screen.contains("ready>"), "{screen}");

    // Two threads share all of it; the callee has no own part.
    let (inner, _) = row(&screen, "inner_of_main").unwrap();
    let (outer, _) = row(&screen, "outer_of_main").unwrap();
    let (second, _) = row(&screen, "work_of_second").unwrap();
    let (thread, _) = row(&screen, "second (").unwrap();
    assert!(
        inner[0] > 5.0 && outer[0] == 0.0 && second[0] > 5.0,
        "{screen}"
    );
    assert!((inner[1] - outer[1]).abs() < 0.1, "{screen}");
    assert!(inner[0] + second[0] > 80.0, "{screen}");
    assert!((thread[0] - second[1]).abs() < 5.0, "{screen}");

    terminal.tmux(&["send-keys", "C-c"]);
    let after = terminal.await_screen("the end", |screen| screen.contains("are complete"));
    assert_eq!(terminal.knows("alternate_on"), "0");
    assert_eq!(terminal.knows("cursor_flag"), "1");
    // The previous contents are back, and nothing of the list remains.
    assert!(after.contains("record --no-cache --live"), "{after}");
    assert!(!after.contains("work_of_second"), "{after}");
    terminal.enter("echo status=$?");
    terminal.await_screen("the status", |screen| screen.contains("status=130"));
    assert!(
        fs::metadata(terminal.folder.join("unspool.prof"))
            .unwrap()
            .len()
            > 100
    );
}

/// tmux may lose the previous contents after a change of size, so this is a separate test.
#[test]
fn a_list_is_as_large_as_the_terminal() {
    let terminal = Terminal::new("sizes");
    burns(&terminal.folder);
    terminal.enter(&format!("{UNSPOOL} record --no-cache --live -- ./burns"));
    let has_all = |screen: &str| {
        let names = ["work_of_second  [burns]", "outer_of_main  [burns]"];
        names.iter().all(|name| screen.contains(name))
    };
    terminal.await_screen("a list", has_all);
    terminal.tmux(&["resize-window", "-x", "36", "-y", "9"]);
    let small = terminal.await_screen("a small list", |screen| {
        screen
            .lines()
            .next()
            .is_some_and(|line| line.ends_with('…'))
            && screen.contains("inner_of")
    });
    assert!(small.lines().count() <= 9, "{small}");
    let longest = small.lines().map(|line| line.chars().count()).max();
    assert_eq!(longest, Some(36), "{small}");
    terminal.tmux(&["resize-window", "-x", "120", "-y", "30"]);
    terminal.await_screen("a large list", |screen| {
        screen.contains("Ctrl-C ends it") && has_all(screen)
    });
    terminal.tmux(&["send-keys", "C-c"]);
    terminal.await_screen("the end", |screen| screen.contains("are complete"));
}

/// The first line is bold unless the user has disabled that.
#[test]
fn no_color() {
    for (environment, is_bold) in [("", true), ("NO_COLOR=1 ", false)] {
        let terminal = Terminal::new(if is_bold { "bold" } else { "plain" });
        burns(&terminal.folder);
        let record = "record --no-cache --live -d 60 -- ./burns";
        terminal.enter(&format!("{environment}{UNSPOOL} {record}"));
        terminal.await_screen("a list", |screen| screen.contains("work_of_second"));
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
        assert_eq!(screen.contains("\x1b[1m"), is_bold, "{screen:?}");
        terminal.tmux(&["send-keys", "C-c"]);
        terminal.await_screen("the end", |screen| screen.contains("are complete"));
    }
}

/// One line that is erased at the end; the terminal's contents stay.
#[test]
fn a_line_while_recording() {
    let terminal = Terminal::new("line");
    burns(&terminal.folder);
    // A command would have the terminal for itself.
    terminal.enter(&format!("./burns & {UNSPOOL} record --no-cache -p $!"));
    let is_shown = |screen: &str| screen.contains("/s), 0 lost, 100 % complete");
    let screen = terminal.await_screen("a line", is_shown);
    assert!(screen.contains("ready>"), "{screen}");
    assert_eq!(terminal.knows("alternate_on"), "0");
    terminal.tmux(&["resize-window", "-x", "30", "-y", "9"]);
    let narrow = terminal.await_screen("a narrow line", |screen| {
        screen.trim_end().ends_with('…') && screen.contains("samples")
    });
    assert!(narrow.trim_end().lines().last().unwrap().chars().count() < 30);
    terminal.tmux(&["resize-window", "-x", "200", "-y", "30"]);
    terminal.tmux(&["send-keys", "C-c"]);
    let after = terminal.await_screen("the end", |screen| screen.contains("are complete"));
    assert!(!after.contains("/s)"), "{after}");
    // The terminal's echo of Ctrl-C may precede it.
    let notices = after.lines().filter(|line| line.contains("unspool.prof: "));
    assert_eq!(notices.count(), 1, "{after}");
    terminal.enter("kill %1");
}

#[test]
fn no_terminal() {
    let folder = Folder::new();
    let words = ["record", "--no-cache", "--live", "--", "true"];
    let output = harness::unspool_in(&folder, &words).finish().ended_with(0);
    let said = output.err;
    assert!(
        said.contains("--live shows nothing: standard error is not a terminal"),
        "{said}"
    );
    assert!(!said.contains('\x1b') && !said.contains('\r'), "{said:?}");
    assert!(output.out.is_empty());
}
