//! Writes a profile during a recording.

use std::io::{self, Write};

use crate::arguments::{Argument, ArgumentsId};
use crate::completeness::{Completeness, CompletenessCounter};
use crate::file;
use crate::file::block::BlockWriter;
use crate::file::rows::{EndRecord, MetaEntry};
use crate::file::table::{TableRow, TableWriter};
use crate::intern::{
    Addresses, ArgumentInterner, FrameInterner, LastStack, ModuleInterner, RawFrame, StackInterner,
    StackLookup, number,
};
use crate::model::{
    CodeLocation, LostSamples, Meta, ProcessId, ProfileProcess, ProfileRate, ProfileSample,
    ProfileThread, ProfileUpdate, RecordedSymbol, ThreadId, Time, WeightUnit,
};
use crate::stacks::StackId;
use unspool_rows::RuntimeAddr;

/// Writes a profile, so that the output is a valid profile at any time.
///
/// Rows are collected and written in blocks: when a block of samples is full, in
/// [`flush`](ProfileWriter::flush), and at the end. A block follows all blocks that it refers to.
///
/// A sample allocates nothing if its frames and its stack are known.
#[derive(Debug)]
pub struct ProfileWriter<W: Write> {
    out: W,
    /// Whether the last write failed. The output may then end within a block, and nothing can
    /// follow it.
    has_failed: bool,
    block_writer: BlockWriter,
    modules: ModuleInterner,
    arguments: ArgumentInterner,
    frames: FrameInterner,
    interner: StackInterner,
    addresses: Vec<Addresses>,
    threads: Vec<(ProcessId, LastStack)>,
    pending: PendingRows,
    samples: u64,
    meta: Meta,
    counter: CompletenessCounter,
}

/// Pending rows.
#[derive(Debug, Default)]
struct PendingRows {
    processes: TableWriter<ProfileProcess, 4>,
    threads: TableWriter<ProfileThread, 4>,
    updates: TableWriter<ProfileUpdate, 4>,
    symbols: TableWriter<RecordedSymbol, 5>,
    samples: TableWriter<ProfileSample, 7>,
    lost: TableWriter<LostSamples, 4>,
}

impl<W: Write> ProfileWriter<W> {
    /// Starts a profile: writes its header and the metadata.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn new(out: W, meta: &Meta) -> io::Result<ProfileWriter<W>> {
        let mut writer = ProfileWriter {
            out,
            has_failed: false,
            block_writer: BlockWriter::new()?,
            modules: ModuleInterner::default(),
            arguments: ArgumentInterner::default(),
            frames: FrameInterner::default(),
            interner: StackInterner::default(),
            addresses: Vec::new(),
            threads: Vec::new(),
            pending: PendingRows::default(),
            samples: 0,
            meta: meta.clone(),
            counter: CompletenessCounter::default(),
        };
        writer
            .block_writer
            .blocks
            .extend_from_slice(&file::header());
        writer.seal_all(facts(meta))?;
        writer.write()?;
        Ok(writer)
    }

    /// The modules, which assign equal IDs to equal modules.
    pub fn modules(&mut self) -> &mut ModuleInterner {
        &mut self.modules
    }

    /// Adds a process. After `execve`, it is another process with the same PID, and so are its
    /// threads.
    pub fn process(&mut self, process: &ProfileProcess) -> ProcessId {
        let id = ProcessId(number(self.addresses.len()));
        self.addresses.push(Addresses::default());
        self.pending.processes.push(process);
        if let Some(end) = process.end {
            self.update(&ProfileUpdate::ProcessEnd(id, end));
        }
        id
    }

    /// Adds a thread of an earlier process.
    pub fn thread(&mut self, thread: &ProfileThread) -> ThreadId {
        let id = ThreadId(number(self.threads.len()));
        self.threads.push((thread.process, LastStack::default()));
        self.pending.threads.push(thread);
        if let Some(end) = thread.end {
            self.update(&ProfileUpdate::ThreadEnd(id, end));
        }
        id
    }

    /// Adds an update of an earlier process, thread or module.
    pub fn update(&mut self, update: &ProfileUpdate) {
        if let ProfileUpdate::ThreadEnd(thread, _) = update
            && let Some((_, last)) = self.threads.get_mut(thread.0 as usize)
        {
            *last = LastStack::default();
        }
        self.pending.updates.push(update);
    }

    /// Discards the code locations of this process's addresses: mappings changed, or code was
    /// generated or replaced.
    pub fn mappings_changed(&mut self, process: ProcessId) {
        if let Some(addresses) = self.addresses.get_mut(process.0 as usize) {
            addresses.forget();
        }
    }

    /// Adds a name that will not be available later.
    pub fn symbol(&mut self, symbol: &RecordedSymbol) {
        self.pending.symbols.push(symbol);
    }

    /// Adds lost samples.
    pub fn lost(&mut self, lost: &LostSamples) {
        self.counter.add_lost(lost.count);
        self.pending.lost.push(lost);
    }

    /// The ID of a list of arguments, at least one; equal lists have equal IDs.
    pub fn arguments(&mut self, arguments: &[Argument]) -> ArgumentsId {
        self.arguments.id(arguments)
    }

    /// The ID of a thread's stack; its frames are given from the innermost on, as a walk finds
    /// them.
    ///
    /// `resolve` locates an address: of an instruction, or the byte before a return address. It is
    /// called once for each frame that is new in its process since
    /// [`mappings_changed`](ProfileWriter::mappings_changed). The part shared with the thread's
    /// last stack costs only a comparison.
    pub fn stack(
        &mut self,
        thread: ThreadId,
        frames: &[RawFrame],
        resolve: impl FnMut(&mut ModuleInterner, RuntimeAddr) -> CodeLocation,
    ) -> StackId {
        let thread = self.threads.get_mut(thread.0 as usize);
        let Some((process, last)) = thread else {
            return StackId::EMPTY;
        };
        let Some(addresses) = self.addresses.get_mut(process.0 as usize) else {
            return StackId::EMPTY;
        };
        let mut finder = StackLookup {
            addresses,
            modules: &mut self.modules,
            frames: &mut self.frames,
            interner: &mut self.interner,
        };
        finder.stack(last, frames, resolve)
    }

    /// Adds a sample. Samples of each CPU must be sorted by time.
    ///
    /// # Errors
    ///
    /// Its thread or its stack is unknown ([`io::ErrorKind::InvalidInput`]), or a block became full
    /// and cannot be written.
    pub fn sample(&mut self, sample: &ProfileSample) -> io::Result<()> {
        let is_known = (sample.thread.0 as usize) < self.threads.len();
        if !is_known || !self.interner.has(sample.stack) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.pending.samples.push(sample);
        self.samples += 1;
        let (stacks, frames) = (self.interner.stacks(), self.frames.all());
        self.counter
            .add(stacks, frames, sample.stack, sample.end, 1);
        if self.pending.samples.has_full() {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// How complete the stacks of the samples so far are.
    #[must_use]
    pub fn completeness(&self) -> Completeness {
        let module = |id| self.modules.get(id);
        let frames = self.frames.all();
        self.counter.completeness(&self.meta, frames, module)
    }

    /// Writes all pending rows.
    ///
    /// # Errors
    ///
    /// It cannot be written. The output so far is a valid profile; nothing can be added to it.
    pub fn flush(&mut self) -> io::Result<()> {
        let (sealer, pending) = (&mut self.block_writer, &mut self.pending);
        pending.processes.write_blocks(sealer)?;
        pending.threads.write_blocks(sealer)?;
        self.modules.table.write_blocks(sealer)?;
        pending.updates.write_blocks(sealer)?;
        self.frames.table.write_blocks(sealer)?;
        self.arguments.table.write_blocks(sealer)?;
        self.frames.called_with.write_blocks(sealer)?;
        pending.symbols.write_blocks(sealer)?;
        self.interner.table().write_blocks(sealer)?;
        pending.samples.write_blocks(sealer)?;
        pending.lost.write_blocks(sealer)?;
        self.write()
    }

    /// Writes all pending rows and the end record with a time. Returns the output.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self, time: Time) -> io::Result<W> {
        self.flush()?;
        let samples = self.samples;
        self.seal_all([EndRecord { time, samples }])?;
        self.write()?;
        Ok(self.out)
    }

    fn seal_all<R: TableRow<N>, const N: usize>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let mut table = TableWriter::default();
        rows.into_iter().for_each(|row| table.push(&row));
        table.write_blocks(&mut self.block_writer)
    }

    /// Writes the finished blocks.
    fn write(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write to the profile failed"));
        }
        let written = self.out.write_all(&self.block_writer.blocks);
        let written = written.and_then(|()| self.out.flush());
        self.has_failed = written.is_err();
        self.block_writer.blocks.clear();
        written
    }
}

/// The stored form of the metadata.
pub(crate) fn facts(meta: &Meta) -> Vec<MetaEntry> {
    let number = |number: u64| number.to_string();
    let mut abi_info = vec![
        ("host", meta.host.clone()),
        ("kernel", meta.kernel.clone()),
        ("arch", meta.arch.clone()),
        ("tool", meta.tool.clone()),
        ("event", meta.event.name.clone()),
    ];
    abi_info.retain(|(_, value)| !value.is_empty());
    abi_info.push(("started", number(meta.started)));
    abi_info.push(("clock", number(meta.clock.0)));
    match meta.event.rate {
        ProfileRate::Unknown => {}
        ProfileRate::Frequency(hertz) => abi_info.push(("frequency", number(hertz))),
        ProfileRate::Period(events) => abi_info.push(("period", number(events))),
    }
    if meta.event.unit == WeightUnit::Nanoseconds {
        abi_info.push(("unit", "ns".into()));
    }
    abi_info.extend(meta.command.iter().map(|word| ("command", word.clone())));
    let fact = |(key, value): (&str, String)| MetaEntry {
        key: key.into(),
        value,
    };
    abi_info.into_iter().map(fact).collect()
}
