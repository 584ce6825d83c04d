//! The tracing thread.
//!
//! The kernel accepts ptrace requests only from the very thread that attached. When that thread
//! ends, the kernel releases everything that it still traces. So each traced process gets its own
//! thread. Its end is the last safeguard: on a panic, on an early return, and for a target's thread
//! that never stopped and so cannot be detached from.

use std::io;
use std::string::ToString as _;
use std::sync::mpsc;
use std::thread;

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
}

impl Tracer {
    /// Starts the thread.
    pub(super) fn start() -> Result<Tracer, ProcessError> {
        let (jobs, incoming) = mpsc::channel::<TracerJob>();
        let handle = thread::Builder::new()
            .name("unspool-tracer".to_string())
            .spawn(move || {
                let mut state = None;
                incoming.into_iter().for_each(|job| job(&mut state));
            })
            .map_err(|source| ProcessError::Tracer { source })?;
        Ok(Tracer {
            jobs: Some(jobs),
            handle: Some(handle),
        })
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

impl Drop for Tracer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(handle) = self.handle.take() {
            // A panic in a job printed its own message; the thread is gone either way.
            let _ = handle.join();
        }
    }
}
