//! `unspool doctor` compared with `sysctl`, the events that `perf` can count, and the behaviour of
//! `unspool record`. It runs as the user who runs the test and, for root, also as another user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use unspool_testing::{command, tool};

use crate::json;

/// A user without other processes: the limit of locked memory is for all processes of a user
/// together.
fn somebody() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    100_000 + std::process::id() % 10_000 * 10 + COUNT.fetch_add(1, Ordering::Relaxed)
}

/// A user who runs programs.
struct User {
    /// The command that runs a program as this user.
    prefix: Vec<String>,
    /// A copy of the program that this user may execute.
    unspool: PathBuf,
    folder: PathBuf,
}

impl User {
    /// The user who runs the test, and for root also an unprivileged one.
    fn all(test: &str) -> Vec<User> {
        let id = output(command("id").arg("-u"), "coreutils");
        let other = somebody();
        let mut prefixes = vec![vec![]];
        if text(&id.stdout) == "0\n" {
            let (user, group) = (format!("--reuid={other}"), format!("--regid={other}"));
            prefixes.push(vec!["setpriv".into(), user, group, "--clear-groups".into()]);
        }
        let user = |(n, prefix): (usize, Vec<String>)| {
            // Accessible for every user, unlike the build folder.
            let name = format!("unspool-doctor-{}-{test}-{n}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            let unspool = folder.join("unspool");
            fs::copy(env!("CARGO_BIN_EXE_unspool"), &unspool).unwrap();
            fs::set_permissions(&unspool, fs::Permissions::from_mode(0o755)).unwrap();
            if !prefix.is_empty() {
                chown(&folder, Some(other), Some(other)).unwrap();
            }
            User {
                prefix,
                unspool,
                folder,
            }
        };
        let users: Vec<User> = prefixes.into_iter().enumerate().map(user).collect();
        // perf mounts tracefs if it is missing and permitted: before any test has checked.
        static MOUNTED: Once = Once::new();
        MOUNTED.call_once(|| {
            for user in &users {
                perf_counts(user, &["-e", "sched:sched_switch"]);
            }
        });
        users
    }

    fn command(&self, program: &str) -> Command {
        let mut words = self.prefix.iter().map(String::as_str).chain([program]);
        let mut command = command(words.next().unwrap());
        command.args(words).current_dir(&self.folder);
        command.env("HOME", &self.folder).env("LC_ALL", "C");
        command.env_remove("XDG_CACHE_HOME");
        command.env_remove("DEBUGINFOD_URLS");
        command
    }

    fn unspool(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(self.unspool.to_str().unwrap());
        output(command.args(arguments), "util-linux")
    }

    /// Its report for this user.
    fn doctor(&self) -> DoctorReport {
        DoctorReport::from_output(&self.unspool(&["doctor", "--format", "json"]))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct DoctorReport(Value);

impl DoctorReport {
    fn from_output(output: &Output) -> DoctorReport {
        assert_eq!(text(&output.stderr), "");
        let report = json::document(&output.stdout);
        assert_eq!(report["schema"], "unspool.doctor");
        let status = if report["can_record"] == true { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(status), "{report}");
        DoctorReport(report)
    }

    fn checks(&self) -> &[Value] {
        self.0["checks"].as_array().unwrap()
    }

    fn check(&self, code: &str) -> &Value {
        let check = self.checks().iter().find(|check| check["code"] == code);
        check.unwrap_or_else(|| panic!("no {code} in {}", self.0))
    }
}

fn output(command: &mut Command, package: &str) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; install the Debian package {package}")
    })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The value of a setting from `sysctl`; `None` if it does not exist.
fn sysctl(name: &str) -> Option<String> {
    let output = output(tool("sysctl").args(["-n", name]), "procps");
    let is_there = output.status.success();
    is_there.then(|| text(&output.stdout).trim().to_owned())
}

#[test]
fn settings_are_those_of_sysctl() {
    for user in User::all("settings") {
        let report = user.doctor();
        let settings = report.checks().iter().filter_map(|check| {
            let name = check["subject"].as_str().unwrap();
            name.starts_with("kernel.").then_some((name, check))
        });
        let mut count = 0;
        for (name, check) in settings {
            let value = sysctl(name).map_or(Value::Null, Value::from);
            // The kernel lowers it if sampling takes too long.
            let is_same = check["value"] == value || name.ends_with("max_sample_rate");
            assert!(is_same, "{name}={value}: {check}");
            count += 1;
        }
        assert_eq!(count, 6);
    }
}

/// Whether perf counts an event, for a process of the same user or for all.
fn perf_counts(user: &User, arguments: &[&str]) -> bool {
    let mut perf = user.command("perf");
    perf.args(["stat", "-x,"]).args(arguments).arg("true");
    let output = output(&mut perf, "linux-perf");
    let said = text(&output.stderr).to_owned() + text(&output.stdout);
    output.status.success() && !said.contains("<not supported>")
}

#[test]
fn openable_events_are_those_perf_counts() {
    for user in User::all("events") {
        let report = user.doctor();
        let events = report
            .checks()
            .iter()
            .filter(|check| check["code"] == "event");
        let mut count = 0;
        for check in events {
            let name = check["subject"].as_str().unwrap();
            let value = check["value"].as_str().unwrap();
            let (is_open, is_partial) = match value {
                "can be opened" => (true, false),
                "can be opened, without the kernel's work" => (true, true),
                "cannot be opened" => (false, false),
                value => panic!("{value}"),
            };
            assert_eq!(perf_counts(&user, &["-e", name]), is_open, "{check}");
            // For hardware events, `:k` requests kernel mode; tracepoints have no modes.
            if is_open && !name.contains(':') {
                let kernel = format!("{name}:k");
                assert_eq!(perf_counts(&user, &["-e", &kernel]), !is_partial, "{check}");
            }
            count += 1;
        }
        assert_eq!(count, 7);
        let everything = report.check("system-wide");
        let counts = perf_counts(&user, &["-a", "-e", "cpu-clock"]);
        assert_eq!(everything["value"] == "works", counts, "{everything}");
    }
}

/// Whatever is reported to work works, and other errors name the same remedy.
#[test]
fn refusals_name_the_same_remedy() {
    for user in User::all("refusals") {
        let report = user.doctor();
        for (arguments, check) in [
            (&["-e", "cpu-clock"][..], report.check("record")),
            (&["--off-cpu"], report.check("perf-event-paranoid")),
            (&["--all", "-d", "0.1"], report.check("system-wide")),
            (&["-e", "sched:sched_switch"], report.check("tracefs")),
        ] {
            let mut words = ["record"]
                .iter()
                .chain(arguments)
                .copied()
                .collect::<Vec<_>>();
            if !arguments.contains(&"--all") {
                words.extend(["--", "true"]);
            }
            let recorded = user.unspool(&words);
            let said = text(&recorded.stderr);
            let works = recorded.status.success();
            match check["code"].as_str() {
                // The setting restricts more than this option.
                Some("perf-event-paranoid") if works => {}
                _ => assert_eq!(works, check["state"] == "ok", "{check}: {said}"),
            }
            if !works {
                let remedy = check["remedy"].as_str().unwrap();
                assert!(said.contains(remedy), "{check}: {said}");
                let command = check["command"].as_str().unwrap();
                assert!(remedy.contains(command), "{check}");
            }
        }
        // Parts that are left out are reported, too.
        let recorded = user.unspool(&["record", "--", "true"]);
        let paranoid = report.check("perf-event-paranoid");
        let is_partial = text(&recorded.stderr).contains("without the kernel's frames");
        let expected = paranoid["command"] == "sudo sysctl kernel.perf_event_paranoid=1";
        assert_eq!(is_partial, expected, "{paranoid}");
        let remedy = paranoid["remedy"].as_str();
        assert!(!is_partial || text(&recorded.stderr).contains(remedy.unwrap()));
        let consequence = paranoid["consequence"].as_str().unwrap();
        assert_eq!(consequence.contains("no --all, which needs 0"), expected);
    }
}

/// A running recorder, killed at the end.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The sizes of the rings that a process has mapped, in KiB, without their first page.
fn mapped_rings(pid: u32) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let rings = maps.lines().filter(|line| line.contains("[perf_event]"));
    let size = |line: &str| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(end) - number(start)) / 1024 - 4
    };
    rings.map(size).collect()
}

/// Rings have the same size, as reported, and larger ones are not available.
#[test]
#[ignore = "needs a user whose other tests record nothing: cargo xtask root"]
fn rings_are_as_large_as_they_can_be() {
    for user in User::all("rings") {
        let mut command = user.command(user.unspool.to_str().unwrap());
        command.args(["record", "-d", "60", "--", "sleep", "60"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let recorder = Recorder(command.spawn().unwrap());
        let profile = user.folder.join("unspool.prof");
        // The profile is created after the rings.
        while fs::metadata(&profile).map_or(0, |file| file.len()) == 0 {
            std::thread::yield_now();
        }
        let rings = mapped_rings(recorder.0.id());
        drop(recorder);
        let (tasks, samples): (Vec<u64>, Vec<u64>) = rings.iter().partition(|kib| **kib == 256);
        let size = samples[0];
        assert!(samples.iter().all(|kib| *kib == size), "{rings:?}");

        let report = user.doctor();
        let check = report.check("ring-memory");
        let consequence = check["consequence"].as_str().unwrap().replace(',', "");
        let said = format!("record: {} rings of {size} KiB", samples.len());
        assert!(consequence.starts_with(&said), "{said}: {check}");

        // In addition to the user's limit, the kernel allows an amount for each CPU.
        let cpus = samples.len() as u64;
        let all = |size| tasks.len() as u64 * 260 + cpus * (size + 4);
        let limit = output(user.command("sh").args(["-c", "ulimit -l"]), "dash");
        let is_root = user.prefix.is_empty();
        if let (Ok(locked), false) = (text(&limit.stdout).trim().parse::<u64>(), is_root) {
            let each: u64 = sysctl("kernel.perf_event_mlock_kb")
                .unwrap()
                .parse()
                .unwrap();
            let limit = locked + each * cpus;
            assert!(all(size) <= limit, "{rings:?} {limit}");
            assert!(
                all(2 * size) > limit || size == 16 << 10,
                "{rings:?} {limit}"
            );
        }
    }
}

/// If `record` cannot work, the exit status reports it, and the remedy is that of its error.
#[test]
fn doctor_reports_obstacles_of_record() {
    let user = &User::all("fails")[0];
    let limited = |arguments: &[&str]| {
        let mut command = user.command("prlimit");
        command.arg("--nofile=8:8").arg(&user.unspool);
        output(command.args(arguments), "util-linux")
    };
    let report = DoctorReport::from_output(&limited(&["doctor", "--format", "json"]));
    assert_eq!(report.0["can_record"], false);
    let check = report.check("record");
    assert_eq!(check["state"], "failed");
    let recorded = limited(&["record", "--", "true"]);
    assert!(!recorded.status.success(), "{recorded:?}");
    let is_same = |text: &str| text.contains("oo many") && text.contains("open");
    let said = text(&recorded.stderr);
    assert!(
        is_same(said) && is_same(check["consequence"].as_str().unwrap()),
        "{said}: {check}"
    );
    let command = check["command"].as_str().unwrap();
    assert!(command.starts_with("ulimit -n "), "{check}");
}

/// `--unwind kernel` works where doctor says so. Elsewhere, `auto` copies stacks, and says why.
#[test]
fn stacks_are_walked_in_the_kernel_where_doctor_says_so() {
    for user in User::all("kernel-walk") {
        let report = user.doctor();
        let check = report.check("kernel-walk");
        let works = check["state"] == "ok";
        let record = |engine: &str| user.unspool(&["record", "--unwind", engine, "--", "true"]);
        let kernel = record("kernel");
        assert_eq!(kernel.status.success(), works, "{check}: {kernel:?}");
        let auto = record("auto");
        let said = text(&auto.stderr);
        assert!(auto.status.success(), "{said}");
        assert_eq!(
            said.contains("stacks are copied, up to 64 KiB: "),
            !works,
            "{said}"
        );
        assert_eq!(said.contains("were walked in the kernel"), works, "{said}");
        let is_root = user.prefix.is_empty();
        let lacks_rights = text(&kernel.stderr).contains("CAP_BPF");
        assert!(works || is_root || lacks_rights, "{kernel:?}");
    }
}

#[test]
fn the_text_says_what_the_document_does() {
    for user in User::all("text") {
        let document = user.doctor();
        let printed = user.unspool(&["doctor"]);
        let lines: Vec<&str> = text(&printed.stdout).lines().collect();
        let mut heads = lines.iter().filter(|line| !line.starts_with(' '));
        for check in document.checks() {
            let word = |name: &str| check[name].as_str().unwrap();
            let value = check["value"].as_str().unwrap_or("not there");
            let head = format!("{:8} {}: {value}", word("state"), word("subject"));
            // The memory for rings is less while other tests of this user record.
            let is_changing = ["perf-event-max-sample-rate", "ring-memory"].contains(&word("code"));
            let shown = heads.next().unwrap();
            assert!(*shown == head || is_changing, "{head}: {shown}");
            if is_changing {
                continue;
            }
            for part in ["consequence", "remedy"] {
                let part = check[part].as_str().unwrap_or_default();
                assert!(part.matches("(os error").count() < 2, "{part}");
                assert!(lines.iter().any(|line| line.contains(part)), "{part}");
            }
        }
        assert_eq!(heads.next(), None);
    }
}

#[test]
fn a_container_is_one() {
    let user = &User::all("container")[0];
    let mut command = tool("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork"]);
    command
        .arg(&user.unspool)
        .args(["doctor", "--format", "json"]);
    command.env("HOME", &user.folder);
    let report = DoctorReport::from_output(&output(&mut command, "util-linux"));
    let value = report.check("container")["value"].as_str().unwrap();
    assert!(
        value.starts_with("yes: users of its own, processes of its own"),
        "{value}"
    );
    let has_traces = ["/.dockerenv", "/run/.containerenv"].map(|path| Path::new(path).exists());
    let is_container = user.doctor().check("container")["value"] != "no";
    // Outside of a container, at least the marker files are missing.
    assert!(is_container || has_traces == [false, false]);
}
