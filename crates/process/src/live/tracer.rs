//! The tracing thread.
//!
//! The kernel accepts ptrace requests only from the very thread that attached. When that thread
//! ends, the kernel releases everything that it still traces. So each traced process gets its own
//! thread. Its end is the last safeguard: on a panic, on an early return, and for a target's thread
//! that never stopped and so cannot be detached from.

use std::io;
use std::string::ToString as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::tracees::Tracees;
use crate::ProcessError;

type TracerJob = Box<dyn FnOnce(&mut TracerState) + Send>;

/// The thread's state between two jobs. Only this thread drops it.
pub(super) type TracerState = Option<Tracees>;

/// A thread that runs jobs one after the other until this value is dropped.
#[derive(Debug)]
pub(super) struct Tracer {
    jobs: Option<mpsc::Sender<TracerJob>>,
    handle: Option<thread::JoinHandle<()>>,
    early_release: Arc<EarlyRelease>,
}

/// The release of threads that were stopped for as long as allowed.
#[derive(Debug, Default)]
struct EarlyRelease {
    has_begun: AtomicBool,
    /// How long they were stopped.
    stopped: OnceLock<Duration>,
}

impl Tracer {
    /// Starts the thread.
    pub(super) fn start() -> Result<Tracer, ProcessError> {
        let (jobs, incoming) = mpsc::channel::<TracerJob>();
        let early_release = Arc::new(EarlyRelease::default());
        let release = Arc::clone(&early_release);
        let handle = thread::Builder::new()
            .name("unspool-tracer".to_string())
            .spawn(move || {
                let mut state = None;
                loop {
                    match next_job(&incoming, &state) {
                        Ok(job) => job(&mut state),
                        Err(RecvTimeoutError::Timeout) => release.run(&mut state),
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
            })
            .map_err(|source| ProcessError::Tracer { source })?;
        Ok(Tracer {
            jobs: Some(jobs),
            handle: Some(handle),
            early_release,
        })
    }

    /// Whether the threads were released, or are being released, because they were stopped for as
    /// long as allowed.
    pub(super) fn has_released(&self) -> bool {
        self.early_release.has_begun.load(Ordering::SeqCst)
    }

    /// For how long they were stopped until then.
    pub(super) fn stopped_until_release(&self) -> Option<Duration> {
        self.early_release.stopped.get().copied()
    }

    /// Runs `job` on the thread and waits for its result.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut TracerState) -> T + Send + 'static,
    ) -> Result<T, ProcessError> {
        let (answer, result) = mpsc::sync_channel(1);
        let job: TracerJob = Box::new(move |state| {
            // The receiver waits below, so this cannot fail.
            let _ = answer.send(job(state));
        });
        let ended = || ProcessError::Tracer {
            source: io::ErrorKind::BrokenPipe.into(),
        };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(job).map_err(|_| ended())?;
        result.recv().map_err(|_| ended())
    }
}

/// The next job; a timeout if the threads have been stopped for as long as allowed.
fn next_job(
    incoming: &mpsc::Receiver<TracerJob>,
    state: &TracerState,
) -> Result<TracerJob, RecvTimeoutError> {
    let Some(deadline) = state.as_ref().and_then(Tracees::deadline) else {
        return incoming.recv().map_err(|_| RecvTimeoutError::Disconnected);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(RecvTimeoutError::Timeout);
    }
    incoming.recv_timeout(left)
}

impl EarlyRelease {
    fn run(&self, state: &mut TracerState) {
        self.has_begun.store(true, Ordering::SeqCst);
        if let Some(mut tracees) = state.take() {
            self.stopped.get_or_init(|| tracees.release());
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(handle) = self.handle.take() {
            // A panic in a job printed its own message; the thread is gone either way.
            let _ = handle.join();
        }
    }
}
