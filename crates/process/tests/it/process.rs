//! Attaching to running programs, compared with gdb, and its effects on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unspool_process::{
    AttachOptions, FileIdentity, FileRoute, NoRegisters, Process, ProcessError, STACK_WINDOW_BYTES,
    Snapshot, Thread, ThreadState,
};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, Registers, RuntimeAddr};
use unspool_testing::{Finish as _, await_that, command, run_tool, states, this_test};

use crate::programs::{compare_registers, compile, gdb_registers, ready, start};

fn registers(thread: &Thread) -> &Registers {
    thread.registers.as_ref().unwrap()
}

fn stack_pointer(process: &Process, thread: &Thread) -> u64 {
    registers(thread)
        .get(process.abi().arch.spec().stack_pointer)
        .unwrap()
}

#[test]
fn registers_agree_with_gdb() {
    for threads in ["1", "8"] {
        let running = ready("threads.c", &[threads]);
        running.await_state('S');
        let process = Process::attach(running.pid()).unwrap();
        let ours = process.threads().to_vec();
        let arch = process.abi().arch;
        drop(process);
        running.await_state('S');
        let theirs = gdb_registers(&["-p", &running.pid().to_string()]);
        assert_eq!(ours.len(), threads.parse::<usize>().unwrap());
        for thread in &ours {
            compare_registers(arch, thread, &theirs[&thread.tid]);
        }
    }
}

#[test]
fn a_thread_has_a_name_a_state_and_its_system_call() {
    let running = ready("threads.c", &["3"]);
    running.await_state('S');
    let process = Process::attach(running.pid()).unwrap();
    let names: BTreeSet<_> = process
        .threads()
        .iter()
        .map(|t| t.name.clone().unwrap())
        .collect();
    assert_eq!(
        names,
        BTreeSet::from(["threads", "worker-1", "worker-2"].map(str::to_owned))
    );
    for thread in process.threads() {
        assert_eq!(thread.state, ThreadState::Stopped);
        let pause = if cfg!(target_arch = "aarch64") {
            73 // ppoll
        } else {
            34
        };
        assert_eq!(thread.syscall, Some(pause), "pause");
    }
    assert!(states(running.pid()).iter().all(|(_, state)| *state == 't'));
    assert_eq!(
        process.executable().unwrap().file_name().unwrap(),
        "threads"
    );
    let entry = process.auxv().entry().unwrap();
    let mapping = process.mappings().find(entry).unwrap();
    assert_eq!(mapping.path(), process.executable());
    assert!(mapping.permissions.execute);
}

#[test]
fn stacks_hold_what_each_thread_wrote() {
    let running = ready("threads.c", &["4", "200000"]);
    running.await_state('S');
    let process = Process::attach(running.pid()).unwrap();
    process.prefetch_stacks(STACK_WINDOW_BYTES, &[]);
    for kept in [false, true] {
        let mut patterns = BTreeSet::new();
        for thread in process.threads() {
            let mut bytes = [0; 512];
            let middle = stack_pointer(&process, thread) + 20_000;
            process
                .memory()
                .read(RuntimeAddr(middle), &mut bytes)
                .unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            patterns.insert(bytes[0]);
        }
        assert_eq!(
            patterns,
            BTreeSet::from([0, 1, 2, 3]),
            "after resume: {kept}"
        );
        process.resume();
    }
    let far = stack_pointer(&process, &process.threads()[0]) + 100_000;
    let error = process
        .memory()
        .read(RuntimeAddr(far), &mut [0; 8])
        .unwrap_err();
    assert_eq!(error.reason, UnreadableReason::NotRecorded);
    running.await_state('S');
}

fn counters(process: &Process, at: RuntimeAddr) -> Vec<u64> {
    let mut bytes = [0; 64];
    process.memory().read(at, &mut bytes).unwrap();
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect()
}

#[test]
fn the_target_stands_still_and_then_goes_on() {
    let mut running = start(&compile("counter.c", &[]), &["3"]);
    let line = running.line();
    let at = RuntimeAddr(u64::from_str_radix(line.strip_prefix("0x").unwrap(), 16).unwrap());
    let mut before = vec![0; 8];
    for _ in 0..5 {
        // All three counters have advanced since the last time.
        await_that("the counters to go on", || {
            let process = Process::attach(running.pid()).unwrap();
            let now = counters(&process, at);
            let moved = (0..3).all(|i| now[i] > before[i]);
            let fresh = Process::attach(running.pid());
            assert!(
                matches!(fresh, Err(ProcessError::AlreadyTraced { .. })),
                "{fresh:?}"
            );
            if moved {
                before = now;
            }
            moved
        });
    }
    // While it is stopped, no counter advances.
    let process = Process::attach(running.pid()).unwrap();
    let first = counters(&process, at);
    let mut direct = [0; 64];
    let memory = std::fs::File::open(format!("/proc/{}/mem", running.pid())).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut direct, at.0).unwrap();
    let second: Vec<u64> = direct
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    assert_eq!(first, second);
}

#[test]
fn blocked_system_calls_are_not_disturbed() {
    let mut running = ready("blocked.c", &[]);
    let start = Instant::now();
    for _ in 0..200 {
        let process = Process::attach(running.pid()).unwrap();
        assert!(
            process
                .threads()
                .iter()
                .all(|thread| thread.registers.is_ok())
        );
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    running.send("end\n");
    assert_eq!(running.rest(), "failed=0 short=0\n");
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn signals_that_come_meanwhile_are_delivered_with_their_values() {
    let mut running = ready("signals.c", &[]);
    let pid = running.pid().cast_signed();
    let mut expected = 0;
    for value in 1..=200 {
        let held = (value % 3 == 0).then(|| Process::attach(running.pid()).unwrap());
        queue_signal(pid, libc::SIGRTMIN() + 1, value);
        expected += value;
        drop(held);
        drop(Process::attach(running.pid()).unwrap());
    }
    running.close_input();
    assert_eq!(running.rest(), format!("count=200 sum={expected}\n"));
}

/// Counts the delivered signals among those sent while `meanwhile` runs.
fn check_all_are_delivered(meanwhile: impl FnOnce(u32)) {
    let mut running = ready("signals.c", &[]);
    let pid = running.pid();
    let enough = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&enough);
    let sending = std::thread::spawn(move || {
        let mut sent = 0;
        while !until.load(Ordering::Relaxed) {
            // It fails when the queue is full.
            sent += usize::from(try_queue_signal(pid.cast_signed(), counted_signal(), 1));
        }
        sent
    });
    meanwhile(pid);
    enough.store(true, Ordering::Relaxed);
    let sent = sending.join().unwrap();
    running.close_input();
    assert_eq!(running.rest(), format!("count={sent} sum={sent}\n"));
}

fn counted_signal() -> i32 {
    libc::SIGRTMIN() + 1
}

/// Attaches until a signal is about to be delivered.
fn attach_at_delivery(pid: u32) -> Process {
    let mut held = None;
    await_that("a stop before a delivery", || {
        held = None;
        let process = held.insert(Process::attach(pid).unwrap());
        process.threads()[0].state == ThreadState::Signalled(counted_signal())
    });
    held.unwrap()
}

#[test]
fn a_signal_in_the_act_of_delivery_is_delivered_once() {
    check_all_are_delivered(|pid| {
        for _ in 0..5 {
            drop(attach_at_delivery(pid));
        }
    });
}

/// A killed tracer cannot clean up; this test starts itself as a tracer that exits at once.
#[test]
fn a_signal_in_the_act_of_delivery_survives_the_tracer() {
    const TARGET: &str = "UNSPOOL_TEST_TARGET";
    if let Ok(pid) = std::env::var(TARGET) {
        let _held = attach_at_delivery(pid.parse().unwrap());
        std::process::exit(0);
    }
    check_all_are_delivered(|pid| {
        for _ in 0..5 {
            this_test(&[]).env(TARGET, pid.to_string()).succeed();
        }
    });
}

fn queue_signal(pid: i32, signal: i32, value: usize) {
    assert!(try_queue_signal(pid, signal, value));
}

#[expect(unsafe_code, reason = "sigqueue is a C function")]
fn try_queue_signal(pid: i32, signal: i32, value: usize) -> bool {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(value),
    };
    // SAFETY: sigqueue passes on the value and reads no memory.
    let result = unsafe { libc::sigqueue(pid, signal, value) };
    result == 0
}

/// Attaches to a program that always has `threads` threads or more, and starts new ones.
fn check_all_stand_still(source: &str, threads: usize, times: u32) {
    let running = ready(source, &[]);
    let mut patient = AttachOptions::default();
    patient.stop_timeout = Duration::from_secs(30);
    for _ in 0..times {
        let process = Process::attach_with(running.pid(), &patient).unwrap();
        let held: BTreeSet<u32> = process
            .threads()
            .iter()
            .filter(|thread| thread.registers.is_ok())
            .map(|thread| thread.tid)
            .collect();
        assert!(held.len() >= threads, "{:?}", process.threads());
        for (tid, state) in states(running.pid()) {
            let stands_still = state == 't' && held.contains(&tid);
            assert!(
                stands_still || matches!(state, 'X' | 'Z'),
                "{tid} {state} {held:?}"
            );
        }
    }
}

#[test]
fn threads_may_come_and_go_while_attaching() {
    check_all_stand_still("churn.c", 4, 300);
}

/// They do so faster than they can be listed. Attaching still ends, and finds all.
#[test]
fn threads_may_start_their_successors_while_attaching() {
    check_all_stand_still("relay.c", 129, 20);
}

#[test]
fn a_job_that_is_stopped_stays_stopped() {
    let running = ready("threads.c", &["2"]);
    let kill = |signal: &str| {
        let pid = running.pid().to_string();
        command("kill").args([signal, &pid]).succeed();
    };
    kill("-STOP");
    running.await_state('T');
    for _ in 0..3 {
        let process = Process::attach(running.pid()).unwrap();
        for thread in process.threads() {
            assert_eq!(thread.state, ThreadState::JobStopped);
            assert!(stack_pointer(&process, thread) > 0);
        }
        drop(process);
        running.await_state('T');
    }
    kill("-CONT");
    running.await_state('S');
    // A stop that arrives while the process is held happens when it resumes.
    let process = Process::attach(running.pid()).unwrap();
    kill("-STOP");
    drop(process);
    running.await_state('T');
}

#[test]
fn a_first_thread_that_has_ended_is_listed_without_registers() {
    let running = ready("leader_exit.c", &[]);
    await_that("the end of the first thread", || {
        states(running.pid()).contains(&(running.pid(), 'Z'))
    });
    let process = Process::attach(running.pid()).unwrap();
    let [first, second] = process.threads() else {
        panic!("{:?}", process.threads());
    };
    assert_eq!(
        (first.tid, first.state),
        (running.pid(), ThreadState::Exited)
    );
    assert_eq!(first.registers, Err(NoRegisters::Exited));
    assert!(second.registers.is_ok());
    // A thread's ID selects its process.
    let tid = second.tid;
    drop(process);
    assert_eq!(Process::attach(tid).unwrap().pid(), running.pid());
}

#[test]
fn a_thread_that_cannot_stop_is_named_and_the_others_are_shown() {
    let mut running = ready("vfork.c", &[]);
    await_that("vfork", || {
        states(running.pid()).iter().any(|(_, state)| *state == 'D')
    });
    let mut options = AttachOptions::default();
    options.stop_timeout = Duration::from_millis(50);
    let process = Process::attach_with(running.pid(), &options).unwrap();
    let first = &process.threads()[0];
    assert_eq!(first.state, ThreadState::NotStopped('D'));
    let waited = options.stop_timeout;
    assert_eq!(
        first.registers,
        Err(NoRegisters::NotStopped { waited, state: 'D' })
    );
    assert!(process.threads()[1].registers.is_ok());
    drop(process);
    // It is not left to stop later, unobserved.
    running.close_input();
    assert_eq!(running.line(), "done");
    running.await_state('S');
}

/// Whoever looks at a process may be kept busy by it, but does not keep it from running.
#[test]
fn a_process_resumes_after_the_longest_stop() {
    let running = ready("threads.c", &["3"]);
    let mut options = AttachOptions::default();
    options.max_stop = Some(Duration::from_millis(1));
    let process = Process::attach_with(running.pid(), &options).unwrap();
    await_that("a release", || {
        process.was_released() && states(running.pid()).iter().all(|(_, state)| *state != 't')
    });
    // It can change only its writable memory.
    for mapping in process.mappings().as_slice() {
        let read = process.memory().read(mapping.start, &mut [0; 8]);
        if mapping.permissions.write {
            assert_eq!(read.unwrap_err().reason, UnreadableReason::NotRecorded);
        } else if mapping.path().is_some() && mapping.permissions.read {
            assert_eq!(read, Ok(()), "{mapping:?}");
        }
    }
    let stopped = process.stopped();
    assert_eq!(process.resume(), stopped);
    assert!(process.was_released());
}

#[test]
fn attach_failures_have_a_reason() {
    let own = std::process::id();
    assert!(matches!(
        Process::attach(own),
        Err(ProcessError::Own { .. })
    ));
    for nobody in [0, 0x7fff_ffff, u32::MAX] {
        assert!(matches!(
            Process::attach(nobody),
            Err(ProcessError::NoSuchProcess { .. })
        ));
    }
    let mut child = command("true").spawn().unwrap();
    await_that("the end", || {
        states(child.id()).iter().any(|(_, state)| *state == 'Z')
    });
    let zombie = Process::attach(child.id());
    assert!(
        matches!(zombie, Err(ProcessError::Zombie { .. })),
        "{zombie:?}"
    );
    child.wait().unwrap();

    let running = ready("threads.c", &["2"]);
    let held = Process::attach(running.pid()).unwrap();
    let Err(ProcessError::AlreadyTraced { tid, name, .. }) = Process::attach(running.pid()) else {
        panic!("attached twice");
    };
    assert_eq!((tid, name.as_str()), (running.pid(), "unspool-tracer"));
    drop(held);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_32_bit_process_is_refused() {
    let program = compile("pause32.S", &["-m32", "-nostdlib", "-static"]);
    let running = start(&program, &[]);
    running.await_state('S');
    let error = Process::attach(running.pid()).unwrap_err();
    assert!(
        error.to_string().ends_with("32-bit process: not supported"),
        "{error}"
    );
}

#[test]
fn a_panic_lets_the_target_go() {
    let running = ready("threads.c", &["2"]);
    let pid = running.pid();
    let panicked = std::thread::spawn(move || {
        let _process = Process::attach(pid).unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panicked.join().is_err());
    running.await_state('S');
    drop(Process::attach(pid).unwrap());
}

#[test]
fn a_stopped_process_can_be_killed() {
    let mut running = ready("threads.c", &["8"]);
    let process = Process::attach(running.pid()).unwrap();
    running.child.kill().unwrap();
    let mut bytes = [0; 8];
    let at = stack_pointer(&process, &process.threads()[0]);
    // Both results are right: the memory may be gone already.
    let _ = process.memory().read(RuntimeAddr(at), &mut bytes);
    drop(process);
    running.child.wait().unwrap();
}

#[test]
fn the_vdso_and_build_ids_are_read_from_memory() {
    let running = ready("threads.c", &["1"]);
    let process = Process::attach(running.pid()).unwrap();
    let vdso = process.vdso_image().unwrap().unwrap();
    assert!(vdso.starts_with(b"\x7fELF"));
    assert!(vdso.len() >= 4096 && vdso.len().is_multiple_of(4096));
    let pc = RuntimeAddr(
        registers(&process.threads()[0])
            .get(process.abi().arch.spec().pc)
            .unwrap(),
    );
    let libc = process.mappings().find(pc).unwrap();
    let id: String = process
        .build_id_at(libc)
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let output = run_tool("readelf", &["-n", libc.path().unwrap().to_str().unwrap()]);
    let text = output.out;
    assert!(
        text.contains(&format!("Build ID: {id}")),
        "{id} not in {text}"
    );
    let vdso = process
        .mappings()
        .find(process.auxv().sysinfo_ehdr().unwrap())
        .unwrap();
    assert_eq!(process.build_id_at(vdso).unwrap().len(), 20);
}

#[test]
fn mapped_files_are_found_even_when_replaced() {
    let program = compile("threads.c", &[]);
    let mut running = start(&program, &["1"]);
    assert_eq!(running.line(), "ready");
    let process = Process::attach(running.pid()).unwrap();
    let text = process
        .mappings()
        .find(process.auxv().entry().unwrap())
        .unwrap()
        .clone();
    let opened = process.open_mapped_file(&text).unwrap();
    assert_eq!(opened.identity, FileIdentity::Same);
    let stack = process
        .mappings()
        .iter()
        .find(|m| m.path().is_none())
        .unwrap();
    assert!(process.open_mapped_file(stack).is_err());
    drop(process);

    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, "something else").unwrap();
    let process = Process::attach(running.pid()).unwrap();
    let text = process
        .mappings()
        .find(process.auxv().entry().unwrap())
        .unwrap();
    assert!(text.deleted);
    assert_eq!(text.path(), Some(program.as_path()));
    let opened = process.open_mapped_file(text).unwrap();
    // Not by its path, which leads to another file.
    assert!(matches!(
        opened.route,
        FileRoute::MapFiles | FileRoute::Executable
    ));
    assert_eq!(opened.identity, FileIdentity::Same);
}
