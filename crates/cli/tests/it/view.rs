//! `unspool view` and `record --view`: the page, served to its user.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use unspool_profile::{CpuState, FrameEvidence};
use unspool_testing::{
    Finish as _, Folder, NOBODY, RunningProgram, UserFolder, await_that, run_tool, send_signal,
    tool,
};

use crate::harness::{self, unspool_by};
use crate::report::{clean, record_states, recorded, symbol};

/// Root's user ID, and that of somebody else.
const ROOT: u32 = 0;
const STRANGER: u32 = 65_533;

/// What curl is asked for a status.
const STATUS: [&str; 5] = [
    "--silent",
    "--output",
    "/dev/null",
    "--write-out",
    "%{http_code}",
];

/// The status of a user's request, `000` without an answer.
fn ask_as(user: u32, address: &str) -> String {
    let mut curl = tool("setpriv");
    curl.arg(format!("--reuid={user}")).arg("--clear-groups");
    curl.arg("curl").args(STATUS).arg(address).finish().out
}

/// The status of a request by this user.
fn ask(arguments: &[&str]) -> String {
    tool("curl").args(STATUS).args(arguments).finish().out
}

/// A folder with a program in place of `xdg-open`, which writes its argument into the file `opened`.
fn with_opener(command: &mut Command, folder: &Path) {
    let opener = folder.join("xdg-open");
    fs::write(
        &opener,
        "#!/bin/sh\necho \"$1\" > \"${0%/*}/new\"\nmv \"${0%/*}/new\" \"${0%/*}/opened\"\n",
    )
    .unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
}

/// The address that was opened.
fn opened(folder: &Path) -> String {
    let path = folder.join("opened");
    await_that("the browser", || path.exists());
    fs::read_to_string(path).unwrap().trim_end().to_owned()
}

#[test]
fn page_is_served_at_its_address_only() {
    let (folder, _, profile) = recorded();
    let mut view = harness::unspool();
    view.args(["view", "--no-open", &profile]);
    let mut view = RunningProgram::start(&mut view);
    let address = view.line();
    let (server, secret) = address.trim_end_matches('/').rsplit_once('/').unwrap();
    assert_eq!(secret.len(), 32, "{address}");
    let report = ["report", "--format", "html", &profile];
    let page = harness::unspool().args(report).succeed();
    let served = folder.join("served.html");
    let head = run_tool(
        "curl",
        &[
            "--silent",
            "--dump-header",
            "-",
            "--output",
            served.to_str().unwrap(),
            &address,
        ],
    );
    assert_eq!(fs::read_to_string(&served).unwrap(), page);
    for header in [
        "HTTP/1.1 200 OK",
        "Content-Type: text/html; charset=utf-8",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "X-Frame-Options: DENY",
    ] {
        assert!(
            head.out.lines().any(|line| line == header),
            "{header}: {head}"
        );
    }
    let last = if secret.ends_with('0') { '1' } else { '0' };
    let other = format!("{server}/{}{last}/", &secret[..31]);
    let longer = format!("{address}x");
    for wrong in [server, &other, &longer] {
        assert_eq!(ask(&[wrong]), "404", "{wrong}");
    }
    assert_eq!(ask(&["--request", "POST", &address]), "404");
    let without_slash = address.trim_end_matches('/');
    for right in [&["--head", &address][..], &[without_slash]] {
        assert_eq!(ask(right), "200", "{right:?}");
    }
    // An idle connection does not stop others.
    let port = server.rsplit(':').next().unwrap().parse().unwrap();
    let _idle = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(ask(&[&address]), "200");
    // It listens on the loopback interface alone.
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap());
    let listening = tables.iter().flat_map(|table| table.lines());
    let ours = format!(":{port:04X} ");
    let ours = listening.filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        (state == "0A" && format!("{local} ").ends_with(&ours)).then(|| local.to_owned())
    });
    assert_eq!(ours.collect::<Vec<_>>(), [format!("0100007F:{port:04X}")]);
}

/// The comparison that is served is that of `diff`, and has the waits of both.
#[test]
fn two_profiles_are_compared_by_their_waits_too() {
    let (folder, program, before) = recorded();
    let after = folder.join("after.prof");
    let stack = vec![(symbol(&program, "work").0 + 8, FrameEvidence::Registers)];
    let samples = [CpuState::OnCpu, CpuState::OffCpu].map(|state| (stack.clone(), 1_000, state));
    record_states(&after, &program, &samples);
    let after = after.to_str().unwrap();
    let page = clean(&["diff", "--format", "html", &before, after]);
    let mut view = harness::unspool();
    view.args(["view", "--no-open", "--before", &before, after]);
    let mut view = RunningProgram::start(&mut view);
    let served = run_tool("curl", &["--silent", &view.line()]);
    assert_eq!(served.out, page);
    let on_cpu = ["diff", "--format", "html", "--state", "on", &before, after];
    assert_ne!(clean(&on_cpu), page);
}

/// A process's arguments are public, so others learn the address.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn other_users_get_no_page() {
    let (_folder, _, profile) = recorded();
    let folder = UserFolder::new(NOBODY);
    let profile = folder.copy(profile.as_ref(), "profile", 0o644);
    let reuid = format!("--reuid={NOBODY}");
    let mut view = unspool_by(&["setpriv", &reuid, "--clear-groups"], &folder);
    with_opener(view.arg("view").arg(&profile), &folder);
    let mut view = RunningProgram::start(&mut view);
    let address = view.line();
    assert_eq!(opened(&folder), address);
    let answers = [NOBODY, ROOT, STRANGER].map(|user| ask_as(user, &address));
    assert_eq!(answers, ["200", "200", "000"]);
}

/// Root starts no browser, but the user who became root can open the page.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn roots_page_is_for_the_user_of_sudo() {
    let (folder, _, profile) = recorded();
    let notes = folder.join("notes");
    let mut view = harness::unspool();
    with_opener(view.args(["view", &profile]), &folder);
    view.env("SUDO_UID", NOBODY.to_string());
    view.stderr(File::create(&notes).unwrap());
    let mut view = RunningProgram::start(&mut view);
    let address = view.line();
    let answers = [NOBODY, ROOT, STRANGER].map(|user| ask_as(user, &address));
    assert_eq!(answers, ["200", "200", "000"]);
    let notes = fs::read_to_string(notes).unwrap();
    assert!(notes.contains("no browser is started as root"), "{notes}");
    assert!(!folder.join("opened").exists());
}

#[test]
fn over_ssh_the_port_is_forwarded() {
    let (folder, _, profile) = recorded();
    let notes = folder.join("notes");
    let mut view = harness::unspool();
    with_opener(view.args(["view", &profile]), &folder);
    view.env("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.7 2222");
    view.stderr(File::create(&notes).unwrap());
    let mut view = RunningProgram::start(&mut view);
    let address = view.line();
    let port = address.split([':', '/']).nth(4).unwrap();
    let forward = format!("ssh -N -L {port}:127.0.0.1:{port} -p 2222 192.0.2.7 (");
    await_that("the note", || {
        fs::read_to_string(&notes).unwrap().contains("Ctrl-C")
    });
    let notes = fs::read_to_string(&notes).unwrap();
    assert!(notes.contains(&forward), "{notes}");
    assert!(!folder.join("opened").exists());
}

#[test]
fn record_shows_at_the_end() {
    let folder = Folder::new();
    let mut record = harness::unspool_in(
        &folder,
        &[
            "record",
            "--view",
            "sh",
            "-c",
            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
        ],
    );
    let mut record = RunningProgram::start(&mut record);
    let address = record.line();
    assert_eq!(ask(&[&address]), "200");
    // The recording has taken signals, which have their usual effect again.
    send_signal(record.pid(), "INT");
    assert_eq!(record.end().signal(), Some(2));
}

/// A pipe's data is gone when it is to be shown.
#[test]
fn a_pipe_is_not_recorded_to_be_shown() {
    let folder = Folder::new();
    folder.tool("mkfifo", "pipe");
    for (output, kind) in [
        ("pipe", "pipe"),
        ("/dev/null", "device"),
        ("/dev/stdout", "pipe"),
    ] {
        let words = ["record", "--view", "-o", output, "touch", "started"];
        let refused = harness::unspool_in(&folder, &words).finish().ended_with(2);
        let reason = format!("{output}: a {kind}: --view shows a recording in a regular file");
        assert!(refused.err.contains(&reason), "{refused}");
        assert!(!folder.join("started").exists());
    }
}

#[test]
fn nothing_is_served_without_samples() {
    let (_folder, _, profile) = recorded();
    let view = ["view", "--no-open", "--thread", "8", &profile];
    let view = harness::unspool().args(view).finish().ended_with(1);
    assert_eq!(view.out, "");
    assert!(view.err.contains("no sample passes --thread 8"), "{view}");
}
