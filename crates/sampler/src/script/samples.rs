//! The samples of a recording, with unwound stacks.

use std::io;
use std::num::NonZero;
use std::sync::Arc;

use hashbrown::HashMap;
use unspool_perf_events::{DataFile, FileRecord, Record};
use unspool_profile::FrameEvidence;
use unspool_rows::{CodeAddr, RuntimeAddr};
use unspool_unwind::OutOfMemory;

use super::frames::{AddressKind, FrameSet};
use super::text::{PrintSample, SampleLine};
use crate::{ProcessSpace, Replay};

/// A sample of a thread.
#[derive(Debug, Clone, Copy)]
struct StoredSample {
    sample: SampleLine,
    /// The name of the thread.
    name: usize,
    /// The end of its frames in the list of all.
    end: usize,
}

/// A process with unchanged mappings.
#[derive(Debug)]
struct ProcessFrames {
    space: Arc<ProcessSpace>,
    /// The frames at its addresses, by address kind.
    known: [HashMap<u64, u32>; AddressKind::COUNT],
}

/// All samples of a recording by perf.
#[derive(Debug)]
pub(super) struct UnwoundSamples {
    max_frames: usize,
    processes: HashMap<u32, ProcessFrames>,
    /// The names of threads, by their numbers.
    threads: HashMap<u32, usize>,
    names: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, usize>,
    samples: Vec<StoredSample>,
    stacks: Vec<u32>,
}

impl UnwoundSamples {
    pub(super) fn new(max_frames: Option<NonZero<usize>>) -> UnwoundSamples {
        UnwoundSamples {
            max_frames: max_frames.map_or(usize::MAX, NonZero::get),
            processes: HashMap::new(),
            threads: HashMap::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
            samples: Vec::new(),
            stacks: Vec::new(),
        }
    }

    /// Takes a record.
    pub(super) fn take(
        &mut self,
        file: &DataFile,
        record: &FileRecord<'_>,
        replay: &mut Replay,
        frames: &mut FrameSet,
    ) -> Result<(), OutOfMemory> {
        match &record.record {
            Record::Sample(sample) => {
                self.sample(file, record, sample, replay, frames);
                return Ok(());
            }
            Record::Comm(named) => {
                let name = self.number(named.name);
                self.threads.insert(named.tid, name);
            }
            Record::Fork(task) => match self.threads.get(&task.parent_tid) {
                Some(name) => drop(self.threads.insert(task.tid, *name)),
                None => drop(self.threads.remove(&task.tid)),
            },
            _ => {}
        }
        if replay.note(&record.record)? {
            let pid = match &record.record {
                Record::Mmap(mapped) => mapped.pid,
                Record::Comm(named) => named.pid,
                Record::Fork(task) | Record::Exit(task) => task.pid,
                _ => return Ok(()),
            };
            self.processes.remove(&pid);
        }
        Ok(())
    }

    /// The index of a thread's name.
    fn number(&mut self, name: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.to_vec());
        self.numbers.insert(name.to_vec(), number);
        number
    }

    /// The name of a thread, or perf's name for an unnamed one.
    fn name_of(&mut self, tid: u32) -> usize {
        if let Some(name) = self.threads.get(&tid) {
            return *name;
        }
        let name = match tid {
            0 => "swapper".to_owned(),
            _ => format!(":{}", tid.cast_signed()),
        };
        let name = self.number(name.as_bytes());
        self.threads.insert(tid, name);
        name
    }

    fn sample(
        &mut self,
        file: &DataFile,
        record: &FileRecord<'_>,
        sample: &unspool_perf_events::SampleRecord<'_>,
        replay: &mut Replay,
        frames: &mut FrameSet,
    ) {
        let origin = record.sample_id;
        let name = self.name_of(origin.tid);
        let event = file.events().get(record.event);
        let has_stack = event.is_some_and(|event| event.format.has_chain());
        let process = self
            .processes
            .entry(origin.pid)
            .or_insert_with(|| ProcessFrames {
                space: replay.space(origin.pid),
                known: Default::default(),
            });
        let pid = origin.pid;
        if has_stack {
            let unwound = replay.unwind(&process.space, origin.tid, sample);
            for frame in unwound.frames.iter().take(self.max_frames) {
                let (address, shown) = match (frame.code, frame.evidence) {
                    (CodeAddr::Return(address), FrameEvidence::FramePointer)
                        if sample.stack.requested_bytes == 0 =>
                    {
                        (address, AddressKind::Return)
                    }
                    (code, _) => (code.lookup(), AddressKind::Lookup),
                };
                let number = process.frame(frames, pid, address, shown);
                self.stacks.push(number);
            }
        } else {
            let address = RuntimeAddr(sample.ip);
            let number = process.frame(frames, pid, address, AddressKind::Runtime);
            self.stacks.push(number);
        }
        let sample = SampleLine {
            event: record.event,
            pid,
            tid: origin.tid,
            cpu: origin.cpu,
            time: origin.time,
            period: sample.period,
            has_stack,
        };
        self.samples.push(StoredSample {
            sample,
            name,
            end: self.stacks.len(),
        });
    }

    /// Prints the samples, each with the name of its thread and the numbers of its frames.
    pub(super) fn each(&self, print: &mut PrintSample<'_>) -> io::Result<()> {
        let mut start = 0;
        for taken in &self.samples {
            let stack = self.stacks.get(start..taken.end).unwrap_or_default();
            start = taken.end;
            let name = self.names.get(taken.name);
            print(&taken.sample, name.map_or(&b""[..], Vec::as_slice), stack)?;
        }
        Ok(())
    }
}

impl ProcessFrames {
    #[inline]
    fn frame(
        &mut self,
        frames: &mut FrameSet,
        pid: u32,
        address: RuntimeAddr,
        address_kind: AddressKind,
    ) -> u32 {
        let [lookup, of_return, runtime] = &mut self.known;
        let known = match address_kind {
            AddressKind::Lookup => lookup,
            AddressKind::Return => of_return,
            AddressKind::Runtime => runtime,
        };
        if let Some(number) = known.get(&address.0) {
            return *number;
        }
        let number = frames.add(&self.space, pid, address, address_kind);
        known.insert(address.0, number);
        number
    }
}
