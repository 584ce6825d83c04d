//! A program traced by this thread: all of its threads are stopped whenever one is inspected.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};

use libc::{c_int, pid_t};

use sys::TraceeStatus;

mod sys;

/// Single-steps a whole command, and does nothing else; returns the number of instructions.
///
/// # Errors
///
/// The system refuses.
pub fn single_step(command: &mut Command) -> io::Result<u64> {
    let mut tracee = Tracee::start(command)?;
    let first = tracee.first();
    let mut steps = 1;
    while tracee.step(first)? != TraceeStop::Ended {
        steps += 1;
    }
    Ok(steps)
}

/// A thread of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pid_t);

impl Tid {
    /// Its ID.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0.unsigned_abs()
    }
}

/// A traced program, with all its threads.
#[derive(Debug)]
pub struct Tracee {
    child: Child,
    first: pid_t,
    threads: BTreeMap<pid_t, TraceeThread>,
}

#[derive(Debug, Default)]
struct TraceeThread {
    is_running: bool,
    /// Whether a `SIGSTOP` is pending for it, from this tracer or from the kernel, which starts
    /// each new thread with one.
    is_being_stopped: bool,
    /// The signal with which it stopped while another one was waited for.
    pending_signal: Option<c_int>,
    /// A signal to resume with.
    injected_signal: c_int,
}

/// The next event of a resumed thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceeStop {
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has exited; for a program, the last of its threads.
    Ended,
}

impl Tracee {
    /// Starts a program, stopped before its first instruction.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn start(command: &mut Command) -> io::Result<Tracee> {
        sys::trace(command);
        let child = command.spawn()?;
        let first = pid_t::try_from(child.id()).map_err(io::Error::other)?;
        let tracee = Tracee {
            child,
            first,
            threads: BTreeMap::from([(first, TraceeThread::default())]),
        };
        sys::wait(first)?;
        // If the measurement is killed, the program is killed, too.
        sys::follow(first, libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE)?;
        Ok(tracee)
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its first thread.
    #[must_use]
    pub fn first(&self) -> Tid {
        Tid(self.first)
    }

    /// Resumes all threads until one of them gets a signal; then all are stopped. That thread gets
    /// the signal only by [`Tracee::inject_signal`]. `None` when the program has exited.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn cont(&mut self) -> io::Result<Option<(Tid, i32)>> {
        loop {
            let mut threads = self.threads.iter_mut();
            let untold =
                threads.find_map(|(tid, own)| Some((Tid(*tid), own.pending_signal.take()?)));
            if untold.is_some() {
                return Ok(untold);
            }
            for (tid, thread) in &mut self.threads {
                if !thread.is_running {
                    let given = std::mem::take(&mut thread.injected_signal);
                    resumed(sys::cont(*tid, given))?;
                    thread.is_running = true;
                }
            }
            if self.threads.is_empty() {
                return Ok(None);
            }
            self.wait(-1)?;
            self.stop_all()?;
        }
    }

    /// Delivers a signal to a thread when it resumes.
    pub fn inject_signal(&mut self, thread: Tid, signal: i32) {
        if let Some(thread) = self.threads.get_mut(&thread.0) {
            thread.injected_signal = signal;
        }
    }

    /// Single-steps one thread, while all others are stopped: it must not wait for these.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn step(&mut self, thread: Tid) -> io::Result<TraceeStop> {
        loop {
            let Some(own) = self.threads.get_mut(&thread.0) else {
                return Ok(TraceeStop::Ended);
            };
            if let Some(signal) = own.pending_signal.take() {
                return Ok(TraceeStop::Signal(signal));
            }
            resumed(sys::step(thread.0))?;
            own.is_running = true;
            self.wait(thread.0)?;
        }
    }

    /// The registers of a thread.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn registers(&self, thread: Tid) -> io::Result<libc::user_regs_struct> {
        sys::registers(thread.0)
    }

    /// The low eight bytes of its vector registers, in their order.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn vectors(&self, thread: Tid) -> io::Result<[u64; 16]> {
        let state = sys::vectors(thread.0)?;
        let mut low = [0; 16];
        for (low, words) in low.iter_mut().zip(state.xmm_space.chunks(4)) {
            if let [first, second, ..] = words {
                *low = u64::from(*first) | u64::from(*second) << 32;
            }
        }
        Ok(low)
    }

    /// Changes its registers.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn set_registers(&self, thread: Tid, registers: &libc::user_regs_struct) -> io::Result<()> {
        sys::set_registers(thread.0, registers)
    }

    /// Waits for the next stop or exit of a thread, or of any if it is -1, and records it.
    fn wait(&mut self, tid: pid_t) -> io::Result<()> {
        let (tid, status) = sys::wait(tid)?;
        let TraceeStatus::Stopped { signal, event } = status else {
            self.threads.remove(&tid);
            return Ok(());
        };
        // A new thread may stop before it is announced.
        let is_announced = self.threads.contains_key(&tid);
        let thread = self.threads.entry(tid).or_default();
        thread.is_running = false;
        match (signal, event) {
            (libc::SIGSTOP, 0) if thread.is_being_stopped || !is_announced => {
                thread.is_being_stopped = false;
            }
            (_, libc::PTRACE_EVENT_CLONE) => {
                let new = sys::event_message(tid)?;
                self.threads.entry(new).or_insert(TraceeThread {
                    is_running: true,
                    is_being_stopped: true,
                    ..TraceeThread::default()
                });
            }
            _ => thread.pending_signal = Some(signal),
        }
        Ok(())
    }

    fn stop_all(&mut self) -> io::Result<()> {
        loop {
            let process = self.first;
            let mut is_any_running = false;
            for (tid, thread) in &mut self.threads {
                if thread.is_running && !thread.is_being_stopped {
                    resumed(sys::stop(process, *tid))?;
                    thread.is_being_stopped = true;
                }
                is_any_running |= thread.is_running;
            }
            if !is_any_running {
                return Ok(());
            }
            self.wait(-1)?;
        }
    }
}

/// Ignores that a thread was killed meanwhile: its exit is reported next.
fn resumed(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        done => done,
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            let _ = self.child.kill(); // There is no one to report to.
            // The first thread exits when all others have been waited for.
            while !self.threads.is_empty() && self.wait(-1).is_ok() {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::collections::HashMap;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::process::Command;

    use unspool_elf::ElfFile;

    use super::{Tracee, TraceeStop};
    use crate::Scratch;

    /// Threads that wait for each other, call a function, and get signals.
    const PROGRAM: &str = "
        #include <pthread.h>
        #include <signal.h>
        #include <stdlib.h>
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static volatile int calls, signals;
        __attribute__((noinline, noclone)) void called(void) { calls++; }
        static void handler(int signal) { signals++; }
        static void *works(void *unused) {
            for (int round = 0; round < 200; round++) {
                called();
                pthread_mutex_lock(&mutex);
                called();
                pthread_mutex_unlock(&mutex);
                if (round % 50 == 0)
                    raise(SIGUSR1);
            }
            return unused;
        }
        int main(void) {
            pthread_t threads[4];
            signal(SIGUSR1, handler);
            for (int at = 0; at < 4; at++)
                pthread_create(&threads[at], 0, works, 0);
            for (int at = 0; at < 4; at++)
                pthread_join(threads[at], 0);
            exit(signals == 0);
        }";

    #[test]
    fn each_thread_stops_at_each_breakpoint() {
        let folder = Scratch::new().unwrap();
        let options = ["-static", "-no-pie", "-pthread"];
        let program = folder.compile("program", "program.c", PROGRAM, &options);
        let program = program.unwrap();
        let file = ElfFile::open(&program).unwrap();
        let at = file.symbols().named("called").next().unwrap().address.0;
        let mut tracee = Tracee::start(&mut Command::new(&program)).unwrap();
        let memory = format!("/proc/{}/mem", tracee.pid());
        let memory = File::options().read(true).write(true).open(memory).unwrap();
        let mut byte = [0];
        memory.read_exact_at(&mut byte, at).unwrap();
        memory.write_all_at(&[0xcc], at).unwrap();
        let mut stops = HashMap::new();
        let mut signals = 0;
        while let Some((thread, signal)) = tracee.cont().unwrap() {
            if signal != libc::SIGTRAP {
                signals += 1;
                tracee.inject_signal(thread, signal);
                continue;
            }
            let mut registers = tracee.registers(thread).unwrap();
            registers.rip -= 1;
            assert_eq!(registers.rip, at);
            tracee.set_registers(thread, &registers).unwrap();
            *stops.entry(thread).or_insert(0) += 1;
            // A thread that runs meanwhile would miss it.
            memory.write_all_at(&byte, at).unwrap();
            assert_eq!(
                tracee.step(thread).unwrap(),
                TraceeStop::Signal(libc::SIGTRAP)
            );
            memory.write_all_at(&[0xcc], at).unwrap();
        }
        let mut stops: Vec<i32> = stops.into_values().collect();
        stops.sort_unstable();
        assert_eq!((stops, signals), (vec![400; 4], 16));
    }
}
