//! Writes a profile from records.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use unspool_perf_events::{MmapRecord, Record, SampleId, SampleRecord};
use unspool_profile::{
    Completeness, CpuState, FrameEvidence, LossOrigin, LostSamples, ProcessId, ProfileProcess,
    ProfileThread, ProfileUpdate, ProfileWriter, RawFrame, StackEnd, StackId, ThreadId, Time,
};

use unspool_bpf_walk::{WalkRecord, WalkTrigger};
use unspool_process::file_provider::FileProblem;
use unspool_rows::CodeAddr;

use super::code_seen::CodeSeen;
use super::merge::RingKind;
use super::process_names::{ChildProcess, ProcessNames};
use crate::arguments::{ArgumentRecorder, UnwoundSample};
use crate::kernel_walk::{Directory, KernelWalk, WalkComparer, WalkComparison};
use crate::processes::Processes;
use crate::unwinder::Unwinder;

/// Writes a profile from records.
pub(crate) struct RecordWriter<W: Write> {
    writer: ProfileWriter<W>,
    processes: Processes,
    unwinder: Unwinder,
    process_names: ProcessNames,
    ids: HashMap<u32, ProcessId>,
    threads: HashMap<u32, ThreadEntry>,
    code_seen: CodeSeen,
    /// The threads whose names may have changed without a record.
    renamed: HashSet<u32>,
    /// The records of mappings and tasks that the kernel had no room for.
    lost_task_records: u64,
    /// The arguments of functions, if they are recorded.
    arguments: Option<ArgumentRecorder>,
    /// The blocked threads, by their IDs.
    blocked: HashMap<u32, BlockedThread>,
    /// The processes that walks in the kernel know, if there are such walks.
    directory: Option<Directory>,
    /// The frames of the last walk in the kernel.
    walked: Vec<RawFrame>,
    /// The walks in the kernel that were not used.
    outdated_walks: u64,
    /// Compares walks in the kernel with those of copies, instead of writing them.
    comparer: Option<WalkComparer>,
}

/// A finished profile.
pub(crate) struct WrittenProfile<W> {
    /// The output, if all of it was written.
    pub(crate) out: io::Result<W>,
    /// How complete the stacks are.
    pub(crate) completeness: Completeness,
    /// Why files could not be used.
    pub(crate) unusable: Vec<Arc<FileProblem>>,
    /// The records of mappings and tasks that the kernel had no room for.
    pub(crate) lost_task_records: u64,
    /// The jitdumps that were not read to their ends.
    pub(crate) cut_jitdumps: u64,
    /// The walks in the kernel that were not used.
    pub(crate) outdated_walks: u64,
    /// How walks in the kernel compare with those of copies.
    pub(crate) comparison: WalkComparison,
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
        process_names: ProcessNames,
    ) -> Self {
        RecordWriter {
            writer,
            processes,
            unwinder,
            process_names,
            ids: HashMap::new(),
            threads: HashMap::new(),
            code_seen: CodeSeen::default(),
            renamed: HashSet::new(),
            lost_task_records: 0,
            arguments: None,
            blocked: HashMap::new(),
            directory: None,
            walked: Vec::new(),
            outdated_walks: 0,
            comparer: None,
        }
    }

    /// Keeps a directory of processes for walks in the kernel.
    pub(crate) fn with_directory(mut self, directory: Option<Directory>) -> Self {
        self.directory = directory;
        self
    }

    /// Compares walks in the kernel with those of copies, instead of writing them.
    pub(crate) fn with_comparer(mut self, comparer: Option<WalkComparer>) -> Self {
        self.comparer = comparer;
        self
    }

    /// Records the arguments of functions.
    pub(crate) fn with_arguments(mut self, arguments: Option<ArgumentRecorder>) -> Self {
        self.arguments = arguments;
        self
    }

    /// Whether a stack was larger than its copy since the last call.
    pub(crate) fn take_short_copy(&mut self) -> bool {
        self.unwinder.take_short_copy()
    }

    /// How complete the stacks are so far.
    pub(crate) fn completeness(&self) -> Completeness {
        self.writer.completeness()
    }

    /// Processes that others created and that still run.
    pub(crate) fn still_running(&self) -> Vec<ChildProcess> {
        self.process_names.still_running()
    }

    /// Applies a record.
    pub(crate) fn note(
        &mut self,
        kind: RingKind,
        sample_id: SampleId,
        record: &Record<'_>,
    ) -> io::Result<()> {
        let time = Time(sample_id.time);
        self.process_names.note(record);
        match record {
            Record::Sample(sample) => return self.sample(kind, sample_id, sample),
            Record::Switch { out: false, .. } => return self.resume(sample_id),
            Record::Lost { count } if kind == RingKind::Tasks => {
                self.lost_task_records += count;
                self.forget_tasks();
            }
            Record::Lost { count } => {
                self.writer.lost(&LostSamples {
                    time,
                    cpu: sample_id.cpu,
                    count: *count,
                    origin: LossOrigin::Kernel,
                });
            }
            Record::Comm(named) => {
                let name = String::from_utf8_lossy(named.name).into_owned();
                if named.is_exec {
                    self.end_process(named.pid, time);
                }
                let thread = self.thread(named.pid, named.tid, time, Some(&name));
                self.writer
                    .update(&ProfileUpdate::ThreadName(thread.id, name.clone()));
                if named.pid == named.tid {
                    self.writer
                        .update(&ProfileUpdate::ProcessName(thread.process, name));
                }
            }
            Record::Exit(task) => {
                self.blocked.remove(&task.tid);
                if let Some(thread) = self.threads.remove(&task.tid) {
                    self.writer
                        .update(&ProfileUpdate::ThreadEnd(thread.id, time));
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
        if let Some(directory) = &mut self.directory {
            directory.note(record, &self.processes);
        }
        Ok(())
    }

    /// Forgets what records of mappings, processes and threads have said, since some are missing.
    /// It is read from the system when it is next needed.
    pub(crate) fn forget_tasks(&mut self) {
        self.processes.forget();
        self.process_names.forget();
        self.renamed.extend(self.threads.keys());
        for process in self.ids.values() {
            self.writer.mappings_changed(*process);
        }
        if let Some(directory) = &mut self.directory {
            directory.begin_all();
        }
    }

    fn end_process(&mut self, pid: u32, time: Time) {
        if let Some(process) = self.ids.remove(&pid) {
            self.name_jit_code(pid, process);
            self.writer
                .update(&ProfileUpdate::ProcessEnd(process, time));
        }
        // A later process with this ID has other threads.
        self.threads.remove(&pid);
    }

    /// Writes the names of code that a process has generated.
    fn name_jit_code(&mut self, pid: u32, process: ProcessId) {
        let codes = self.processes.take_jit_code(pid);
        self.code_seen
            .name_jit_code(process, codes, &mut self.writer);
    }

    fn process(&mut self, pid: u32, time: Time) -> ProcessId {
        if let Some(process) = self.ids.get(&pid) {
            return *process;
        }
        let process = self.writer.process(&ProfileProcess {
            pid,
            parent_pid: self.process_names.parent(pid),
            start: time,
            end: None,
            name: self.process_names.name(pid, pid),
        });
        self.ids.insert(pid, process);
        process
    }

    fn thread(&mut self, pid: u32, tid: u32, time: Time, name: Option<&str>) -> ThreadEntry {
        if let Some(thread) = self.threads.get(&tid).copied() {
            if self.renamed.remove(&tid) {
                self.rename(pid, tid, thread);
            }
            return thread;
        }
        let process = self.process(pid, time);
        let id = self.writer.thread(&ProfileThread {
            process,
            tid,
            start: time,
            end: None,
            name: name.map_or_else(|| self.process_names.name(pid, tid), str::to_owned),
        });
        let thread = ThreadEntry { id, process };
        self.threads.insert(tid, thread);
        thread
    }

    /// Writes the name that a thread has now.
    fn rename(&mut self, pid: u32, tid: u32, thread: ThreadEntry) {
        let name = self.process_names.name(pid, tid);
        if name.is_empty() {
            return;
        }
        if pid == tid {
            let renamed = ProfileUpdate::ProcessName(thread.process, name.clone());
            self.writer.update(&renamed);
        }
        self.writer
            .update(&ProfileUpdate::ThreadName(thread.id, name));
    }

    fn sample(
        &mut self,
        kind: RingKind,
        sample_id: SampleId,
        sample: &SampleRecord<'_>,
    ) -> io::Result<()> {
        let time = Time(sample_id.time);
        let thread = self.thread(sample_id.pid, sample_id.tid, time, None);
        let space = self.processes.space(sample_id.pid);
        if let Some(directory) = &mut self.directory {
            directory.note_handed_over(sample_id.pid, &self.processes);
        }
        let stack = self.unwinder.unwind(&space, sample_id.tid, sample);
        if let Some(comparer) = &mut self.comparer {
            comparer.note_copy(sample_id.cpu, sample_id.time, stack.frames, stack.end);
        }
        let taken = UnwoundSample {
            space: &space,
            tid: sample_id.tid,
            sample,
            frames: stack.frames,
        };
        let frames = match &mut self.arguments {
            Some(arguments) => arguments.note(taken, |list| self.writer.arguments(list)),
            None => stack.frames,
        };
        let code_seen = &mut self.code_seen;
        let id = self.writer.stack(thread.id, frames, |known, address| {
            code_seen.locate(known, &space, thread.process, address)
        });
        code_seen.name_unusable(&mut self.writer);
        let processes = &mut self.processes;
        code_seen.note_jit_process(thread.process, || processes.jit_process(sample_id.pid));
        let end = match stack.end {
            // Work of the kernel itself.
            StackEnd::NoUserRegisters if sample_id.pid == 0 => StackEnd::KernelThread,
            end => end,
        };
        let sampled = unspool_profile::ProfileSample {
            time,
            thread: thread.id,
            cpu: sample_id.cpu,
            stack: id,
            weight: sample.period,
            state: CpuState::OnCpu,
            end,
        };
        self.write_sample(kind, sample_id.tid, &sampled)
    }

    /// Writes a sample, or keeps it while its thread does not run.
    fn write_sample(
        &mut self,
        kind: RingKind,
        tid: u32,
        sample: &unspool_profile::ProfileSample,
    ) -> io::Result<()> {
        if kind != RingKind::OffCpu {
            return self.writer.sample(sample);
        }
        let blocked = BlockedThread {
            since: sample.time.0,
            thread: sample.thread,
            stack: sample.stack,
            end: sample.end,
        };
        self.blocked.insert(tid, blocked);
        Ok(())
    }

    /// Writes a sample whose stack was walked in the kernel.
    pub(crate) fn walked_sample(&mut self, walk: &WalkRecord<'_>) -> io::Result<()> {
        let time = Time(walk.time);
        let thread = self.thread(walk.pid, walk.tid, time, None);
        let space = self.processes.space(walk.pid);
        let directory = self.directory.as_ref();
        let is_right = directory.is_some_and(|it| it.is_current(walk.pid, walk.generation));
        self.walked.clear();
        self.walked
            .extend(walk.kernel_frames().map(|address| RawFrame {
                code: CodeAddr::Instruction(address),
                evidence: FrameEvidence::Kernel,
                arguments: None,
            }));
        let user = walk.user_frames().enumerate().filter(|_| is_right);
        self.walked.extend(user.map(|(number, code)| RawFrame {
            code,
            evidence: match number {
                0 => FrameEvidence::Registers,
                _ => FrameEvidence::Cfi,
            },
            arguments: None,
        }));
        if let Some(comparer) = &mut self.comparer {
            if is_right {
                comparer.compare(walk.cpu, walk.time, &self.walked);
            }
            return Ok(());
        }
        let code_seen = &mut self.code_seen;
        let stack = self
            .writer
            .stack(thread.id, &self.walked, |known, address| {
                code_seen.locate(known, &space, thread.process, address)
            });
        code_seen.name_unusable(&mut self.writer);
        self.outdated_walks += u64::from(!is_right);
        let sample = unspool_profile::ProfileSample {
            time,
            thread: thread.id,
            cpu: walk.cpu,
            stack,
            weight: walk.period,
            state: CpuState::OnCpu,
            end: if is_right {
                StackEnd::Outermost
            } else {
                StackEnd::CodeReplaced
            },
        };
        let kind = match walk.trigger {
            WalkTrigger::Sample => RingKind::OnCpu,
            WalkTrigger::SwitchOut => RingKind::OffCpu,
        };
        self.write_sample(kind, walk.tid, &sample)
    }

    /// Gives walks in the kernel the mappings of all processes that have changed.
    pub(crate) fn publish(&mut self, walk: &KernelWalk) {
        if let Some(directory) = &mut self.directory {
            if walk.tables.take_changed() {
                directory.change_loading();
            }
            if directory.take_waiting() {
                walk.tables.hurry();
            }
            directory.publish(&walk.maps, &self.processes);
        }
    }

    /// Forgets processes that have exited, and tables if there is no room for others.
    pub(crate) fn forget_ended(&mut self, walk: &KernelWalk) {
        if let Some(directory) = &mut self.directory {
            directory.forget_ended(&walk.maps, &self.processes);
            for file in directory.make_room(&walk.maps, &walk.tables, &self.processes) {
                self.processes.load_table(&file);
            }
        }
    }

    /// A thread runs again: its sample covers the time that it was blocked.
    fn resume(&mut self, sample_id: SampleId) -> io::Result<()> {
        match self.blocked.remove(&sample_id.tid) {
            Some(blocked) => self.write_blocked(blocked, sample_id.time, sample_id.cpu),
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

    /// Looks at generated code again when it is next needed.
    pub(crate) fn refresh_generated_code(&mut self) {
        self.processes.refresh_generated_code();
    }

    /// Writes the pending rows.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.code_seen.write_contents(&mut self.writer);
        self.writer.flush()
    }

    /// Writes the pending rows and the end record.
    pub(crate) fn finish(mut self, time: u64) -> WrittenProfile<W> {
        let rest = self.write_rest(time);
        WrittenProfile {
            completeness: self.completeness(),
            unusable: self.code_seen.problems(),
            lost_task_records: self.lost_task_records,
            cut_jitdumps: self.processes.cut_jitdumps(),
            outdated_walks: self.outdated_walks,
            comparison: self
                .comparer
                .map_or_else(WalkComparison::default, |it| it.result),
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
        self.code_seen
            .write_names(&mut self.writer, |file| processes.identify(file));
        Ok(())
    }
}
