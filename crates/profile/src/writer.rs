//! Writing a profile while it is recorded.

use std::io::{self, Write};

use crate::arguments::{Argument, ArgumentsId};
use crate::completeness::{Completeness, Count};
use crate::file;
use crate::file::block::Sealer;
use crate::file::rows::{Fact, Totals};
use crate::file::table::{Row, Table};
use crate::intern::{
    Addresses, Arguments, Finder, Frames, LastStack, Modules, RawFrame, Tree, number,
};
use crate::model::{
    Change, Lost, Meta, Place, Process, ProcessId, Rate, Sample, Symbol, Thread, ThreadId, Time,
    Unit,
};
use crate::stacks::StackId;
use unspool_ir::RuntimeAddr;

/// Writes a profile, so that what was written is a profile at any time.
///
/// What is told is gathered and written block by block: when a block of samples is full, at
/// [`flush`](Writer::flush), and at the end. A block comes after all that it refers to.
///
/// Nothing is allocated for a sample whose frames and stack were there before.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    /// Whether the last write failed. There may be half a block then, and nothing can come after it.
    has_failed: bool,
    sealer: Sealer,
    modules: Modules,
    arguments: Arguments,
    frames: Frames,
    tree: Tree,
    addresses: Vec<Addresses>,
    threads: Vec<(ProcessId, LastStack)>,
    pending: Pending,
    samples: u64,
    meta: Meta,
    count: Count,
}

/// Rows that wait to be written.
#[derive(Debug, Default)]
struct Pending {
    processes: Table<Process, 4>,
    threads: Table<Thread, 4>,
    changes: Table<Change, 4>,
    symbols: Table<Symbol, 5>,
    samples: Table<Sample, 7>,
    lost: Table<Lost, 4>,
}

impl<W: Write> Writer<W> {
    /// Begins a profile: writes its header and what is known of the recording.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn new(out: W, meta: &Meta) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            out,
            has_failed: false,
            sealer: Sealer::new()?,
            modules: Modules::default(),
            arguments: Arguments::default(),
            frames: Frames::default(),
            tree: Tree::default(),
            addresses: Vec::new(),
            threads: Vec::new(),
            pending: Pending::default(),
            samples: 0,
            meta: meta.clone(),
            count: Count::default(),
        };
        writer.sealer.blocks.extend_from_slice(&file::header());
        writer.seal_all(facts(meta))?;
        writer.write()?;
        Ok(writer)
    }

    /// The number of a module, which is the same for an equal one.
    pub fn modules(&mut self) -> &mut Modules {
        &mut self.modules
    }

    /// A process. One that calls `execve` is another from then on, with the same pid, and so are its
    /// threads.
    pub fn process(&mut self, process: &Process) -> ProcessId {
        let id = ProcessId(number(self.addresses.len()));
        self.addresses.push(Addresses::default());
        self.pending.processes.push(process);
        if let Some(end) = process.end {
            self.change(&Change::ProcessEnd(id, end));
        }
        id
    }

    /// A thread of a process that was told before.
    pub fn thread(&mut self, thread: &Thread) -> ThreadId {
        let id = ThreadId(number(self.threads.len()));
        self.threads.push((thread.process, LastStack::default()));
        self.pending.threads.push(thread);
        if let Some(end) = thread.end {
            self.change(&Change::ThreadEnd(id, end));
        }
        id
    }

    /// News of a process, thread or module that was told before.
    pub fn change(&mut self, change: &Change) {
        if let Change::ThreadEnd(thread, _) = change
            && let Some((_, last)) = self.threads.get_mut(thread.0 as usize)
        {
            *last = LastStack::default();
        }
        self.pending.changes.push(change);
    }

    /// From now on, addresses of this process may stand for something else: something was mapped or
    /// unmapped, or code was made or replaced.
    pub fn mappings_changed(&mut self, process: ProcessId) {
        if let Some(addresses) = self.addresses.get_mut(process.0 as usize) {
            addresses.forget();
        }
    }

    /// A name that will not be known later.
    pub fn symbol(&mut self, symbol: &Symbol) {
        self.pending.symbols.push(symbol);
    }

    /// Samples that were lost.
    pub fn lost(&mut self, lost: &Lost) {
        self.count.lose(lost.count);
        self.pending.lost.push(lost);
    }

    /// The number of what a function was called with, which is the same for an equal one: at least one
    /// argument.
    pub fn arguments(&mut self, arguments: &[Argument]) -> ArgumentsId {
        self.arguments.id(arguments)
    }

    /// The number of a stack of a thread, whose frames are given from the innermost on, as a walk
    /// finds them.
    ///
    /// `resolve` says where an address is: that of an instruction, or the byte before a return
    /// address. It is asked once for each frame that its process has not had since
    /// [`mappings_changed`](Writer::mappings_changed). What a stack shares with the thread's last one
    /// costs a comparison only.
    pub fn stack(
        &mut self,
        thread: ThreadId,
        frames: &[RawFrame],
        resolve: impl FnMut(&mut Modules, RuntimeAddr) -> Place,
    ) -> StackId {
        let thread = self.threads.get_mut(thread.0 as usize);
        let Some((process, last)) = thread else {
            return StackId::EMPTY;
        };
        let Some(addresses) = self.addresses.get_mut(process.0 as usize) else {
            return StackId::EMPTY;
        };
        let mut finder = Finder {
            addresses,
            modules: &mut self.modules,
            frames: &mut self.frames,
            tree: &mut self.tree,
        };
        finder.stack(last, frames, resolve)
    }

    /// A sample. Of each CPU they come in the order of their times.
    ///
    /// # Errors
    ///
    /// Its thread or its stack was not told before ([`io::ErrorKind::InvalidInput`]), or a block
    /// became full and cannot be written.
    pub fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let is_known = (sample.thread.0 as usize) < self.threads.len();
        if !is_known || !self.tree.has(sample.stack) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.pending.samples.push(sample);
        self.samples += 1;
        let (stacks, frames) = (self.tree.stacks(), self.frames.all());
        self.count.add(stacks, frames, sample.stack, sample.end, 1);
        match self.pending.samples.has_full() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// How complete the stacks of the samples are that were told so far.
    #[must_use]
    pub fn completeness(&self) -> Completeness {
        let module = |id| self.modules.get(id);
        let frames = self.frames.all();
        self.count.completeness(&self.meta, frames, module)
    }

    /// Writes all that was told.
    ///
    /// # Errors
    ///
    /// It cannot be written. What was written before is a profile; nothing can be added to it.
    pub fn flush(&mut self) -> io::Result<()> {
        let (sealer, pending) = (&mut self.sealer, &mut self.pending);
        pending.processes.seal(sealer)?;
        pending.threads.seal(sealer)?;
        self.modules.table.seal(sealer)?;
        pending.changes.seal(sealer)?;
        self.frames.table.seal(sealer)?;
        self.arguments.table.seal(sealer)?;
        self.frames.called_with.seal(sealer)?;
        pending.symbols.seal(sealer)?;
        self.tree.table().seal(sealer)?;
        pending.samples.seal(sealer)?;
        pending.lost.seal(sealer)?;
        self.write()
    }

    /// Writes all that was told, and that the recording ended properly, then. Yields where it was
    /// written to.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self, time: Time) -> io::Result<W> {
        self.flush()?;
        let samples = self.samples;
        self.seal_all([Totals { time, samples }])?;
        self.write()?;
        Ok(self.out)
    }

    fn seal_all<R: Row<N>, const N: usize>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let mut table = Table::default();
        rows.into_iter().for_each(|row| table.push(&row));
        table.seal(&mut self.sealer)
    }

    /// Writes the blocks that were made.
    fn write(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write to the profile failed"));
        }
        let written = self.out.write_all(&self.sealer.blocks);
        let written = written.and_then(|()| self.out.flush());
        self.has_failed = written.is_err();
        self.sealer.blocks.clear();
        written
    }
}

/// What is known of a recording, as it is stored.
fn facts(meta: &Meta) -> Vec<Fact> {
    let number = |number: u64| number.to_string();
    let mut facts = vec![
        ("host", meta.host.clone()),
        ("kernel", meta.kernel.clone()),
        ("arch", meta.arch.clone()),
        ("tool", meta.tool.clone()),
        ("event", meta.event.name.clone()),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts.push(("started", number(meta.started)));
    facts.push(("clock", number(meta.clock.0)));
    match meta.event.rate {
        Rate::Unknown => {}
        Rate::Frequency(hertz) => facts.push(("frequency", number(hertz))),
        Rate::Period(events) => facts.push(("period", number(events))),
    }
    if meta.event.unit == Unit::Nanoseconds {
        facts.push(("unit", "ns".into()));
    }
    facts.extend(meta.command.iter().map(|word| ("command", word.clone())));
    let fact = |(key, value): (&str, String)| Fact {
        key: key.into(),
        value,
    };
    facts.into_iter().map(fact).collect()
}
