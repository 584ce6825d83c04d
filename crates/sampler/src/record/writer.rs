//! Writes a profile from records.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use unspool_perf_events::{MmapRecord, Record, SampleId, SampleRecord};
use unspool_profile::{
    Completeness, CpuState, LossOrigin, LostSamples, ProcessId, ProfileProcess, ProfileThread,
    ProfileUpdate, ProfileWriter, StackEnd, StackId, ThreadId, Time,
};

use unspool_process::file_provider::FileProblem;

use super::code_seen::CodeSeen;
use super::merge::RingKind;
use super::process_names::{ChildProcess, ProcessNames};
use crate::arguments::{ArgumentRecorder, UnwoundSample};
use crate::processes::Processes;
use crate::unwinder::Unwinder;

/// Writes a profile from records.
pub(crate) struct RecordWriter<W: Write> {
    writer: ProfileWriter<W>,
    processes: Processes,
    unwinder: Unwinder,
    kin: ProcessNames,
    ids: HashMap<u32, ProcessId>,
    threads: HashMap<u32, ThreadEntry>,
    met: CodeSeen,
    /// The arguments of functions, if they are recorded.
    arguments: Option<ArgumentRecorder>,
    /// The blocked threads, by their IDs.
    blocked: HashMap<u32, BlockedThread>,
}

/// A finished profile.
pub(crate) struct WrittenProfile<W> {
    /// The output, if all of it was written.
    pub(crate) out: io::Result<W>,
    /// How complete the stacks are.
    pub(crate) completeness: Completeness,
    /// Why files could not be used.
    pub(crate) unusable: Vec<Arc<FileProblem>>,
}

/// A thread that is in the profile.
#[derive(Debug, Clone, Copy)]
struct ThreadEntry {
    id: ThreadId,
    process: ProcessId,
}

/// A thread that does not run.
#[derive(Debug, Clone, Copy)]
struct BlockedThread {
    since: u64,
    thread: ThreadId,
    stack: StackId,
    end: StackEnd,
}

impl<W: Write> RecordWriter<W> {
    pub(crate) fn new(
        writer: ProfileWriter<W>,
        processes: Processes,
        unwinder: Unwinder,
        kin: ProcessNames,
    ) -> Self {
        RecordWriter {
            writer,
            processes,
            unwinder,
            kin,
            ids: HashMap::new(),
            threads: HashMap::new(),
            met: CodeSeen::default(),
            arguments: None,
            blocked: HashMap::new(),
        }
    }

    /// Records the arguments of functions.
    pub(crate) fn with_arguments(mut self, arguments: Option<ArgumentRecorder>) -> Self {
        self.arguments = arguments;
        self
    }

    /// How complete the stacks are so far.
    pub(crate) fn completeness(&self) -> Completeness {
        self.writer.completeness()
    }

    /// Processes that others created and that still run.
    pub(crate) fn still_running(&self) -> Vec<ChildProcess> {
        self.kin.still_running()
    }

    /// Applies a record.
    pub(crate) fn note(
        &mut self,
        kind: RingKind,
        origin: SampleId,
        record: &Record<'_>,
    ) -> io::Result<()> {
        let time = Time(origin.time);
        self.kin.note(record);
        match record {
            Record::Sample(sample) => return self.sample(kind, origin, sample),
            Record::Switch { out: false, .. } => return self.resume(origin),
            Record::Lost { count } => {
                self.writer.lost(&LostSamples {
                    time,
                    cpu: origin.cpu,
                    count: *count,
                    by: LossOrigin::Kernel,
                });
            }
            Record::Comm(named) => {
                let name = String::from_utf8_lossy(named.name).into_owned();
                if named.is_exec {
                    self.end_process(named.pid, time);
                }
                let thread = self.thread(named.pid, named.tid, time, Some(&name));
                self.writer
                    .change(&ProfileUpdate::ThreadName(thread.id, name.clone()));
                if named.pid == named.tid {
                    self.writer
                        .change(&ProfileUpdate::ProcessName(thread.process, name));
                }
            }
            Record::Exit(task) => {
                self.blocked.remove(&task.tid);
                if let Some(thread) = self.threads.remove(&task.tid) {
                    self.writer
                        .change(&ProfileUpdate::ThreadEnd(thread.id, time));
                }
                if task.pid == task.tid {
                    self.end_process(task.pid, time);
                }
            }
            Record::Mmap(MmapRecord { pid, .. }) => {
                if let Some(process) = self.ids.get(pid) {
                    self.writer.mappings_changed(*process);
                }
            }
            _ => {}
        }
        if self.processes.note(record) && self.processes.is_out_of_slots() {
            self.processes.renumber();
            self.unwinder.forget().map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn end_process(&mut self, pid: u32, time: Time) {
        if let Some(process) = self.ids.remove(&pid) {
            self.name_jit_code(pid, process);
            self.writer
                .change(&ProfileUpdate::ProcessEnd(process, time));
        }
        // A later process with this ID has other threads.
        self.threads.remove(&pid);
    }

    /// Writes the names of code that a process has generated.
    fn name_jit_code(&mut self, pid: u32, process: ProcessId) {
        let codes = self.processes.take_jit_code(pid);
        self.met.name_jit_code(process, codes, &mut self.writer);
    }

    fn process(&mut self, pid: u32, time: Time) -> ProcessId {
        if let Some(process) = self.ids.get(&pid) {
            return *process;
        }
        let process = self.writer.process(&ProfileProcess {
            pid,
            parent_pid: self.kin.parent(pid),
            start: time,
            end: None,
            name: self.kin.name(pid, pid),
        });
        self.ids.insert(pid, process);
        process
    }

    fn thread(&mut self, pid: u32, tid: u32, time: Time, name: Option<&str>) -> ThreadEntry {
        if let Some(thread) = self.threads.get(&tid) {
            return *thread;
        }
        let process = self.process(pid, time);
        let id = self.writer.thread(&ProfileThread {
            process,
            tid,
            start: time,
            end: None,
            name: name.map_or_else(|| self.kin.name(pid, tid), str::to_owned),
        });
        let thread = ThreadEntry { id, process };
        self.threads.insert(tid, thread);
        thread
    }

    fn sample(
        &mut self,
        kind: RingKind,
        origin: SampleId,
        sample: &SampleRecord<'_>,
    ) -> io::Result<()> {
        let time = Time(origin.time);
        let thread = self.thread(origin.pid, origin.tid, time, None);
        let space = self.processes.space(origin.pid);
        let stack = self.unwinder.unwind(&space, origin.tid, sample);
        let taken = UnwoundSample {
            space: &space,
            tid: origin.tid,
            sample,
            frames: stack.frames,
        };
        let frames = match &mut self.arguments {
            Some(arguments) => arguments.note(taken, |list| self.writer.arguments(list)),
            None => stack.frames,
        };
        let met = &mut self.met;
        let id = self.writer.stack(thread.id, frames, |known, address| {
            met.locate(known, &space, thread.process, address)
        });
        met.name_unusable(&mut self.writer);
        let processes = &mut self.processes;
        met.note_jit_process(thread.process, || processes.jit_process(origin.pid));
        let end = match stack.end {
            // Work of the kernel itself.
            StackEnd::NoUserRegisters if origin.pid == 0 => StackEnd::KernelThread,
            end => end,
        };
        if kind == RingKind::OffCpu {
            let since = origin.time;
            let blocked = BlockedThread {
                since,
                thread: thread.id,
                stack: id,
                end,
            };
            self.blocked.insert(origin.tid, blocked);
            return Ok(());
        }
        self.writer.sample(&unspool_profile::ProfileSample {
            time,
            thread: thread.id,
            cpu: origin.cpu,
            stack: id,
            weight: sample.period,
            state: CpuState::OnCpu,
            end,
        })
    }

    /// A thread runs again: its sample covers the time that it was blocked.
    fn resume(&mut self, origin: SampleId) -> io::Result<()> {
        match self.blocked.remove(&origin.tid) {
            Some(blocked) => self.write_blocked(blocked, origin.time, origin.cpu),
            None => Ok(()),
        }
    }

    fn write_blocked(&mut self, blocked: BlockedThread, until: u64, cpu: u32) -> io::Result<()> {
        self.writer.sample(&unspool_profile::ProfileSample {
            time: Time(until),
            thread: blocked.thread,
            cpu,
            stack: blocked.stack,
            weight: until.saturating_sub(blocked.since),
            state: CpuState::OffCpu,
            end: blocked.end,
        })
    }

    /// Writes the pending rows.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.met.write_contents(&mut self.writer);
        self.writer.flush()
    }

    /// Writes the pending rows and the end record.
    pub(crate) fn finish(mut self, time: u64) -> WrittenProfile<W> {
        let rest = self.write_rest(time);
        WrittenProfile {
            completeness: self.completeness(),
            unusable: self.met.problems(),
            out: rest.and_then(|()| self.writer.finish(Time(time))),
        }
    }

    /// Writes data that is complete only at the end.
    fn write_rest(&mut self, time: u64) -> io::Result<()> {
        for (_, blocked) in std::mem::take(&mut self.blocked) {
            self.write_blocked(blocked, time, 0)?;
        }
        for (pid, process) in std::mem::take(&mut self.ids) {
            self.name_jit_code(pid, process);
        }
        let processes = &self.processes;
        self.met
            .write_names(&mut self.writer, |file| processes.identify(file));
        Ok(())
    }
}
