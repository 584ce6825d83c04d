//! The checks, and their consequences.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use unspool_host::{Capability, ContainerInfo, KernelSettings, Privileges, Remedy};
use unspool_perf_events::PerfEvent;
use unspool_process::{AttachRefusal, ProcessError};
use unspool_profile::GroupedDigits;
use unspool_symbols::{Debuginfod, DebuginfodOptions, KernelSymbols};
use unspool_table_store::Store;

use super::trials::{OpenedEvent, Trials, Use};
use super::{CheckState, HostCheck, RemedyText};
use crate::output;

/// All checks, the most important first.
pub(super) fn all(trials: &Trials) -> Vec<HostCheck> {
    let (limits, rights) = (KernelSettings::read(), Privileges::read());
    let mut checks = vec![recording(trials)];
    checks.extend(events(trials));
    checks.extend([
        everything(trials),
        kernel_walk(trials),
        paranoid(&limits, trials),
        rings(&limits, rights, trials),
        rate(&limits),
        time(&limits),
        depth(&limits),
        kernel_names(&limits),
        tracing(trials),
        ptrace_scope(&limits, rights),
        tracefs(),
        perf_maps(),
        cache(),
        debug_files(),
        capabilities(rights),
        btf(),
        surroundings(),
    ]);
    checks
}

fn recording(trials: &Trials) -> HostCheck {
    let check = |value: &str| HostCheck::ok("record", "record CMD", value);
    match &trials.recording {
        Ok(recorded) => check("works").consequence(format!(
            "samples by {}, {}",
            recorded.event,
            if recorded.has_kernel {
                "with the kernel's frames"
            } else {
                "without the kernel's frames"
            }
        )),
        Err(error) => HostCheck {
            state: CheckState::Failed,
            ..check("does not work")
                .consequence(output::with_causes(error))
                .limited(error.remedy())
        },
    }
}

fn events(trials: &Trials) -> impl Iterator<Item = HostCheck> {
    trials.events.iter().map(|tried| {
        let check = |value: &str| HostCheck::ok("event", tried.name, value);
        let used_for = match tried.used_for {
            Use::Samples => {
                "record: samples by the first of cycles, cpu-clock, task-clock that can be opened"
            }
            Use::OffCpu => "record --off-cpu",
            Use::OnRequest => "record -e",
        };
        match &tried.outcome {
            Ok(OpenedEvent { has_kernel: true }) => check("can be opened").consequence(used_for),
            Ok(OpenedEvent { has_kernel: false }) if tried.used_for == Use::OffCpu => {
                check("can be opened, without the kernel's work")
                    .consequence("record --off-cpu does not work: it needs that, too")
                    .limited(Some(Remedy::Paranoid { needed: 1 }))
            }
            Ok(_) => check("can be opened, without the kernel's work").consequence(used_for),
            Err(refused) => check("cannot be opened")
                .consequence(format!("{used_for}: {}", refused.why()))
                .limited(refused.remedy()),
        }
    })
}

fn everything(trials: &Trials) -> HostCheck {
    let check = |value: &str| HostCheck::ok("system-wide", "record --all", value);
    match &trials.everything {
        Ok(()) => check("works"),
        Err(error) => check("does not work")
            .consequence(error.reason.to_string())
            .limited(error.reason.remedy()),
    }
}

fn kernel_walk(trials: &Trials) -> HostCheck {
    let check = |value: &str| HostCheck::ok("kernel-walk", "record --unwind kernel", value);
    match &trials.kernel_walk {
        Ok(()) => check("works"),
        Err(error) => check("does not work")
            .consequence(output::with_causes(error))
            .limited(error.remedy()),
    }
}

fn paranoid(settings: &KernelSettings, trials: &Trials) -> HostCheck {
    let name = "kernel.perf_event_paranoid";
    let check = HostCheck::setting("perf-event-paranoid", name, settings.paranoid);
    match (trials.has_kernel(), &trials.everything) {
        (true, Ok(())) => check.consequence("does not restrict this user"),
        (true, Err(_)) => check
            .consequence("no record --all")
            .limited(Some(Remedy::Paranoid { needed: 0 })),
        (false, _) => check
            .consequence("record: nothing of the kernel's, no --off-cpu; no --all, which needs 0")
            .limited(Some(Remedy::Paranoid { needed: 1 })),
    }
}

/// The memory available for rings, and the rings of the trial.
fn rings(settings: &KernelSettings, privileges: Privileges, trials: &Trials) -> HostCheck {
    let locked = privileges
        .memlock_limit
        .map_or("?".to_owned(), |amount| amount.to_string());
    let value = format!(
        "kernel.perf_event_mlock_kb {} for each processor, ulimit -l {locked}",
        settings
            .mlock_kib
            .map_or("?".to_owned(), |amount| amount.to_string())
    );
    let check = HostCheck::ok("ring-memory", "ring buffers", value);
    let Ok(recorded) = &trials.recording else {
        return check;
    };
    let kib = recorded.rings.iter().max().map_or(0, |bytes| bytes >> 10);
    let count = recorded.rings.len();
    check
        .consequence(format!(
            "record: {count} rings of {} KiB, {} samples with their stacks each at least",
            GroupedDigits(kib as u64),
            kib / LARGEST_SAMPLE_KIB
        ))
        .limited_unless(kib >= GOOD_RING_KIB, Remedy::RingMemory)
}

/// The ring space of the largest sample.
const LARGEST_SAMPLE_KIB: usize = 64;

/// A ring that fills after a tenth of a second at 999 Hz, at the earliest.
const GOOD_RING_KIB: usize = 100 * LARGEST_SAMPLE_KIB;

fn rate(settings: &KernelSettings) -> HostCheck {
    let name = "kernel.perf_event_max_sample_rate";
    let check = HostCheck::setting("perf-event-max-sample-rate", name, settings.max_sample_rate);
    let check =
        check.consequence("record --freq can be as high; the kernel lowers it on a busy machine");
    let is_well = settings
        .max_sample_rate
        .is_none_or(|most| most >= USUAL_RATE);
    check.limited_unless(is_well, Remedy::SampleRate { wanted: USUAL_RATE })
}

/// The highest usual rate, in samples a second.
const USUAL_RATE: u64 = 10_000;

fn time(settings: &KernelSettings) -> HostCheck {
    let name = "kernel.perf_cpu_time_max_percent";
    let check = HostCheck::setting("perf-cpu-time-max-percent", name, settings.max_cpu_percent);
    check.consequence(match settings.max_cpu_percent {
        Some(1..=99) => {
            "record: where sampling takes more of a processor, the kernel lowers the rate"
        }
        _ => "record: the kernel never lowers the rate",
    })
}

fn depth(settings: &KernelSettings) -> HostCheck {
    let name = "kernel.perf_event_max_stack";
    let check = HostCheck::setting("perf-event-max-stack", name, settings.max_stack_frames);
    check.consequence("record: so many of the kernel's frames; those of programs have no limit")
}

fn kernel_names(settings: &KernelSettings) -> HostCheck {
    let name = "kernel.kptr_restrict";
    let check = HostCheck::setting("kptr-restrict", name, settings.kptr_restrict);
    match KernelSymbols::from_running_kernel() {
        Ok(_) => check.consequence("record, report: the kernel's functions have names"),
        Err(hidden) => check
            .consequence(format!(
                "record, report: the kernel's functions have no names: {hidden}"
            ))
            .limited(hidden.remedy()),
    }
}

fn tracing(trials: &Trials) -> HostCheck {
    let check = |value: &str| HostCheck::ok("stack", "stack -- CMD", value);
    match &trials.tracing {
        Ok(()) => check("works"),
        Err(error) => {
            let remedy = match error {
                ProcessError::Refused { reason, .. } => Some(reason.remedy()),
                _ => None,
            };
            check("does not work")
                .consequence(output::with_causes(error))
                .limited(remedy)
        }
    }
}

fn ptrace_scope(settings: &KernelSettings, privileges: Privileges) -> HostCheck {
    let name = "kernel.yama.ptrace_scope";
    let check = HostCheck::setting("ptrace-scope", name, settings.ptrace_scope);
    match (
        settings.ptrace_scope.unwrap_or(0),
        privileges.has(Capability::SysPtrace),
    ) {
        (0..=2, true) => check.consequence("stack PID: any process, by CAP_SYS_PTRACE"),
        (0, false) => check.consequence("stack PID: any process of this user"),
        (scope, _) => {
            let why = AttachRefusal::Yama { scope };
            check
                .consequence(format!("stack PID: {why}"))
                .limited(Some(why.remedy()))
        }
    }
}

fn tracefs() -> HostCheck {
    let check = |value: &str| HostCheck::ok("tracefs", "/sys/kernel/tracing", value);
    match "sched:sched_switch".parse::<PerfEvent>() {
        Ok(_) => check("can be read").consequence("record -e: tracepoints by their names"),
        Err(error) => check("cannot be read")
            .consequence(format!("record -e: no tracepoints: {error}"))
            .limited(error.remedy()),
    }
}

/// The folder to which programs that generate code write its names.
fn perf_maps() -> HostCheck {
    let folder = Path::new("/tmp");
    let check = |value: &str| HostCheck::ok("perf-maps", "/tmp", value);
    match try_to_write(folder) {
        Ok(()) => check("can be written").consequence(
            "programs that make code can name it in /tmp/perf-PID.map, where they are asked to",
        ),
        Err(error) => check(&format!("cannot be written: {error}"))
            .consequence("programs that make code cannot name it in /tmp/perf-PID.map")
            .limited(Some(command("sudo chmod 1777 /tmp"))),
    }
}

fn try_to_write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("unspool-doctor-{}", std::process::id()));
    File::create_new(&path)?;
    fs::remove_file(&path)
}

fn cache() -> HostCheck {
    let store = Store::from_environment();
    let check = |value: String| HostCheck::ok("cache", "cache", value);
    match store.check_cache() {
        Ok(folder) => check(folder.display().to_string())
            .consequence("stack, record, compile: tables are kept; report: names are"),
        Err(error) => check("cannot be used".to_owned())
            .consequence(format!(
                "stack, record, report: tables and names are found anew each time: {error}"
            ))
            .limited(Some(command("export XDG_CACHE_HOME=FOLDER"))),
    }
}

fn debug_files() -> HostCheck {
    let check = |value: String| HostCheck::ok("debuginfod", "DEBUGINFOD_URLS", value);
    match DebuginfodOptions::from_environment() {
        Some(_) if !Debuginfod::can_download() => check("curl is not installed".to_owned())
            .consequence("report, diff: debug files that are missing cannot be downloaded")
            .limited(Some(command("apt-get install curl"))),
        Some(options) => check(options.urls.join(" "))
            .consequence("report, diff: debug files that are missing are downloaded"),
        None => check("not set".to_owned())
            .consequence("report, diff: functions of stripped files have names only if their debug files are installed")
            .limited(Some(command(
                "export DEBUGINFOD_URLS=https://debuginfod.elfutils.org",
            ))),
    }
}

fn capabilities(privileges: Privileges) -> HostCheck {
    let wanted = [
        Capability::Perfmon,
        Capability::SysPtrace,
        Capability::IpcLock,
        Capability::Syslog,
        Capability::SysAdmin,
        Capability::Bpf,
    ];
    let held = wanted.into_iter().filter(|wanted| privileges.has(*wanted));
    let held: Vec<&str> = held.map(Capability::name).collect();
    let value = if held.is_empty() {
        "none".to_owned()
    } else {
        held.join(" ")
    };
    HostCheck::ok("capabilities", "capabilities", value).consequence(
        "CAP_PERFMON: all of record; CAP_SYS_PTRACE: stack PID of any process; CAP_IPC_LOCK: large ring buffers; \
         CAP_BPF: record --unwind kernel",
    )
}

fn btf() -> HostCheck {
    let path = "/sys/kernel/btf/vmlinux";
    let check = |value: &str| HostCheck::ok("btf", path, value);
    let check = match File::open(path) {
        Ok(_) => check("can be read"),
        Err(_) => check("cannot be read"),
    };
    check.consequence("ctf type, ctf show: the kernel's types")
}

fn surroundings() -> HostCheck {
    let around = ContainerInfo::read();
    let check = |value: &str| HostCheck::ok("container", "container", value);
    if !around.is_container() {
        return check("no");
    }
    let parts = [
        (around.has_user_namespace, "users of its own"),
        (around.has_pid_namespace, "processes of its own"),
        (around.runtime.is_some(), "a file system of its own"),
    ];
    let parts = parts.iter().filter(|(is_so, _)| *is_so);
    let parts: Vec<&str> = parts.map(|(_, what)| *what).collect();
    let check = check(&format!("yes: {}", parts.join(", ")));
    match around {
        ContainerInfo {
            has_user_namespace: true,
            ..
        } => check.consequence(
            "record, stack: root here is not root of the machine, and may no more than its user",
        ),
        ContainerInfo {
            has_pid_namespace: true,
            ..
        } => check.consequence("record --all: processes outside have no numbers and no files here"),
        _ => check,
    }
}

fn command(text: &str) -> RemedyText {
    RemedyText {
        text: format!("`{text}`"),
        command: Some(text.to_owned()),
    }
}
