//! Records of the kernel (`struct perf_event_header` and the fields after it).
//!
//! The fields of a record depend on its event: a [`SampleFormat`]. All numbers are little-endian.

use std::ops::Range;

use perf_event_open_sys::bindings as abi;

use crate::registers::SampledRegisters;

/// Why a record could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It ends too early.
    #[error("the record ends within its {field}")]
    Truncated {
        /// The missing field.
        field: &'static str,
    },
    /// A name does not end.
    #[error("the record's name does not end")]
    EndlessName,
}

/// The header of all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The type of the record: `PERF_RECORD_…`.
    pub kind: u32,
    /// Bits that depend on the type: `PERF_RECORD_MISC_…`.
    pub misc: u16,
    /// The size in bytes, including this header.
    pub size: u16,
}

impl RecordHeader {
    /// In bytes.
    pub const SIZE: usize = 8;

    /// Reads the header at the start of some bytes; `None` if there are too few.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<RecordHeader> {
        let [a, b, c, d, e, f, g, h] = *bytes.first_chunk::<{ RecordHeader::SIZE }>()?;
        Some(RecordHeader {
            kind: u32::from_le_bytes([a, b, c, d]),
            misc: u16::from_le_bytes([e, f]),
            size: u16::from_le_bytes([g, h]),
        })
    }
}

/// The mode of the executed code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuMode {
    /// A process.
    User,
    /// The kernel, for a process or for itself.
    Kernel,
    /// A hypervisor, or a guest.
    Other,
}

impl CpuMode {
    pub(crate) fn from_misc(misc: u16) -> CpuMode {
        match u32::from(misc) & abi::PERF_RECORD_MISC_CPUMODE_MASK {
            abi::PERF_RECORD_MISC_USER => CpuMode::User,
            abi::PERF_RECORD_MISC_KERNEL => CpuMode::Kernel,
            _ => CpuMode::Other,
        }
    }
}

/// The time and origin of a record, in the fields that the event has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleId {
    /// The process ID.
    pub pid: u32,
    /// The thread ID.
    pub tid: u32,
    /// In nanoseconds, of the event's clock.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The event, by the ID that the kernel assigned.
    pub id: u64,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Record<'r> {
    /// A sample.
    Sample(SampleRecord<'r>),
    /// A file or memory was mapped.
    Mmap(MmapRecord<'r>),
    /// A thread has a new name, perhaps because of `exec`.
    Comm(CommRecord<'r>),
    /// A thread or process was created.
    Fork(TaskRecord),
    /// A thread or process exited.
    Exit(TaskRecord),
    /// Records were lost because the ring was full.
    Lost {
        /// The number of lost records.
        count: u64,
    },
    /// A context switch.
    Switch {
        /// The thread left its CPU; otherwise it was switched in.
        out: bool,
        /// It was still runnable.
        preempted: bool,
    },
    /// The event is too frequent: the kernel starts or stops suppressing it.
    Throttle {
        /// Suppression starts.
        begins: bool,
    },
    /// The user's part of a call chain, recorded when the thread returned from the kernel.
    DeferredChain {
        /// The number that ends the chain of its samples ([`CallChain::deferred`]).
        cookie: u64,
        /// The user addresses, without a marker.
        chain: CallChain<'r>,
    },
    /// Another record.
    Other,
}

/// A sample: the executed code and its stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRecord<'r> {
    /// The mode of the executed code.
    pub mode: CpuMode,
    /// The instruction pointer.
    pub ip: u64,
    /// The number of events that it stands for, or the nanoseconds of a clock.
    pub period: u64,
    /// The kernel's call chain.
    pub chain: CallChain<'r>,
    /// The user registers.
    pub user: UserRegisters<'r>,
    /// The top of the user stack.
    pub stack: UserStackDump<'r>,
    /// The raw data of a tracepoint.
    pub raw: &'r [u8],
}

impl SampleRecord<'_> {
    /// A sample without fields.
    pub(crate) fn new(mode: CpuMode) -> Self {
        SampleRecord {
            mode,
            ip: 0,
            period: 1,
            chain: CallChain::default(),
            user: UserRegisters::NotRequested,
            stack: UserStackDump::default(),
            raw: &[],
        }
    }
}

/// The user registers of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserRegisters<'r> {
    /// The event does not request them.
    #[default]
    NotRequested,
    /// There are none: the sample is of a kernel thread.
    NoUser,
    /// They are a 32-bit process's.
    ThirtyTwoBit,
    /// These.
    Known(SampledRegisters<'r>),
}

impl<'r> UserRegisters<'r> {
    /// The registers, if they are known.
    #[must_use]
    pub fn known(self) -> Option<SampledRegisters<'r>> {
        match self {
            UserRegisters::Known(registers) => Some(registers),
            _ => None,
        }
    }

    /// The bytes of their values.
    pub(crate) fn words(self) -> &'r [u8] {
        self.known().map_or(&[], SampledRegisters::words)
    }

    /// The same registers with the values in other memory.
    pub(crate) fn with_words(self, words: &[u8]) -> UserRegisters<'_> {
        match self {
            UserRegisters::NotRequested => UserRegisters::NotRequested,
            UserRegisters::NoUser => UserRegisters::NoUser,
            UserRegisters::ThirtyTwoBit => UserRegisters::ThirtyTwoBit,
            UserRegisters::Known(registers) => UserRegisters::Known(registers.with_words(words)),
        }
    }
}

/// A copy of the top of a stack, from the stack pointer on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserStackDump<'r> {
    /// The copied bytes.
    pub bytes: &'r [u8],
    /// The requested size in bytes: fewer copied bytes mean that the stack's memory ends there.
    pub requested_bytes: usize,
}

/// The kernel's call chain, with markers (`PERF_CONTEXT_…`) before kernel and user addresses.
///
/// The user addresses are the last, and are words of the process's memory: one that looks like a
/// marker is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallChain<'r>(&'r [u8]);

impl<'r> CallChain<'r> {
    /// The addresses and markers, innermost first.
    pub fn words(self) -> impl ExactSizeIterator<Item = u64> + Clone + 'r {
        let (words, _) = self.0.as_chunks::<8>();
        words.iter().map(|word| u64::from_le_bytes(*word))
    }

    /// The addresses and markers before the user addresses.
    pub(crate) fn before_user(self) -> impl Iterator<Item = u64> + 'r {
        self.words()
            .take_while(|word| *word != abi::PERF_CONTEXT_USER)
    }

    /// The kernel addresses, innermost first.
    pub fn kernel(self) -> impl Iterator<Item = u64> + 'r {
        let mut is_in = false;
        self.before_user().filter(move |word| {
            let is_mark = is_mark(*word);
            if is_mark {
                is_in = *word == abi::PERF_CONTEXT_KERNEL;
            }
            is_in && !is_mark
        })
    }

    /// The user addresses, innermost first.
    pub fn user(self) -> impl Iterator<Item = u64> + 'r {
        self.words()
            .skip_while(|word| *word != abi::PERF_CONTEXT_USER)
            .filter(|word| !is_mark(*word))
    }

    /// The number of the user addresses if they are in a later record
    /// ([`Record::DeferredChain`]).
    #[must_use]
    pub fn deferred(self) -> Option<u64> {
        let mut words = self.before_user();
        words.find(|word| *word == abi::PERF_CONTEXT_USER_DEFERRED)?;
        words.next()
    }

    /// The bytes of the words.
    pub(crate) fn as_bytes(self) -> &'r [u8] {
        self.0
    }

    pub(crate) fn from_bytes(bytes: &'r [u8]) -> Self {
        CallChain(bytes)
    }
}

/// Whether a word of a call chain is no address.
fn is_mark(word: u64) -> bool {
    word >= abi::PERF_CONTEXT_MAX
}

/// A mapping of a file or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MmapRecord<'r> {
    /// The process ID; 0xffff_ffff for the kernel.
    pub pid: u32,
    /// The ID of the mapping thread.
    pub tid: u32,
    /// The mode of its code.
    pub mode: CpuMode,
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The file offset of its start, in bytes.
    pub offset: u64,
    /// The file, if the kernel identified it.
    pub file: MmapFile<'r>,
    /// Whether it is executable.
    pub is_executable: bool,
    /// The file's path in the process, or a name in brackets.
    pub name: &'r [u8],
}

/// The identity of a mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmapFile<'r> {
    /// Not recorded.
    Unknown,
    /// Device and inode.
    Inode {
        /// The device's major number.
        major: u32,
        /// The device's minor number.
        minor: u32,
        /// The inode number.
        inode: u64,
    },
    /// The build ID.
    BuildId(&'r [u8]),
}

/// A thread's new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommRecord<'r> {
    /// The process ID.
    pub pid: u32,
    /// The thread ID.
    pub tid: u32,
    /// The name.
    pub name: &'r [u8],
    /// The process called `exec`: its earlier mappings are gone.
    pub is_exec: bool,
}

/// A created or exited thread, and its creator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskRecord {
    /// The process ID.
    pub pid: u32,
    /// The thread ID.
    pub tid: u32,
    /// The process ID of its creator.
    pub parent_pid: u32,
    /// The thread ID of its creator.
    pub parent_tid: u32,
}

/// The fields of an event's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleFormat {
    /// `sample_type` of the event.
    pub sample_type: u64,
    /// `read_format` of the event.
    pub read_format: u64,
    /// `branch_sample_type` of the event.
    pub branch_sample_type: u64,
    /// `sample_regs_user` of the event.
    pub user_registers: u64,
    /// `sample_regs_intr` of the event.
    pub interrupted_registers: u64,
    /// Whether records other than samples have time and origin, too (`sample_id_all`).
    pub has_sample_id: bool,
    /// Whether mappings may have build IDs: an event of the recording requested them. Linux (as of
    /// 6.18) also sets their bit in later records of the same mapping, for events that did not
    /// request them. These have device and inode in place of the build ID.
    pub has_build_ids: bool,
}

impl SampleFormat {
    fn has(&self, bit: u32) -> bool {
        self.sample_type & u64::from(bit) != 0
    }

    /// Whether samples have a stack, as call chain or copy.
    #[must_use]
    pub fn has_chain(&self) -> bool {
        self.has(abi::PERF_SAMPLE_CALLCHAIN)
    }

    /// Whether samples have a copy of the top of the user stack.
    #[must_use]
    pub fn has_stack_copy(&self) -> bool {
        self.has(abi::PERF_SAMPLE_STACK_USER)
    }

    /// Whether samples have the CPU.
    #[must_use]
    pub fn has_cpu(&self) -> bool {
        self.has(abi::PERF_SAMPLE_CPU)
    }

    /// Whether samples have the time.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.has(abi::PERF_SAMPLE_TIME)
    }

    /// Whether samples have the period.
    #[must_use]
    pub fn has_period(&self) -> bool {
        self.has(abi::PERF_SAMPLE_PERIOD)
    }

    /// Reads a record with its time and origin.
    pub fn read<'r>(
        &self,
        header: RecordHeader,
        bytes: &'r [u8],
    ) -> Result<(SampleId, Record<'r>), BadRecord> {
        let body = bytes.get(RecordHeader::SIZE..).unwrap_or_default();
        let misc = header.misc;
        let has = |bit: u32| u32::from(misc) & bit != 0;
        if header.kind == abi::PERF_RECORD_SAMPLE {
            let (origin, sample) = self.sample(misc, body)?;
            return Ok((origin, Record::Sample(sample)));
        }
        let (body, origin) = self.split_origin(body)?;
        let mut fields = RecordFields(body);
        let record = match header.kind {
            abi::PERF_RECORD_MMAP => Record::Mmap(fields.mapped(misc, MmapFileForm::Path)?),
            abi::PERF_RECORD_MMAP2 => {
                let has_build_id = self.has_build_ids && has(abi::PERF_RECORD_MISC_MMAP_BUILD_ID);
                let named_by = if has_build_id {
                    MmapFileForm::BuildId
                } else {
                    MmapFileForm::Inode
                };
                Record::Mmap(fields.mapped(misc, named_by)?)
            }
            abi::PERF_RECORD_COMM => Record::Comm(CommRecord {
                pid: fields.u32("process")?,
                tid: fields.u32("thread")?,
                name: fields.name()?,
                is_exec: has(abi::PERF_RECORD_MISC_COMM_EXEC),
            }),
            abi::PERF_RECORD_FORK => Record::Fork(fields.task()?),
            abi::PERF_RECORD_EXIT => Record::Exit(fields.task()?),
            abi::PERF_RECORD_LOST => {
                fields.u64("event")?;
                Record::Lost {
                    count: fields.u64("count")?,
                }
            }
            abi::PERF_RECORD_LOST_SAMPLES => Record::Lost {
                count: fields.u64("count")?,
            },
            abi::PERF_RECORD_SWITCH | abi::PERF_RECORD_SWITCH_CPU_WIDE => Record::Switch {
                out: has(abi::PERF_RECORD_MISC_SWITCH_OUT),
                preempted: has(abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT),
            },
            abi::PERF_RECORD_CALLCHAIN_DEFERRED => {
                const FIELD: &str = "call chain";
                let (cookie, count) = (fields.u64(FIELD)?, fields.u64(FIELD)?);
                Record::DeferredChain {
                    cookie,
                    chain: CallChain(fields.words(count, FIELD)?),
                }
            }
            abi::PERF_RECORD_THROTTLE => Record::Throttle { begins: true },
            abi::PERF_RECORD_UNTHROTTLE => Record::Throttle { begins: false },
            _ => Record::Other,
        };
        Ok((origin, record))
    }

    /// The time of a record, without reading the rest of it; `None` if it has none.
    #[must_use]
    pub fn time(&self, header: RecordHeader, bytes: &[u8]) -> Option<u64> {
        if !self.has(abi::PERF_SAMPLE_TIME) {
            return None;
        }
        let body = bytes.get(RecordHeader::SIZE..)?;
        let count = |bits: &[u32]| bits.iter().filter(|bit| self.has(**bit)).count() * 8;
        let at = if header.kind == abi::PERF_RECORD_SAMPLE {
            count(&[
                abi::PERF_SAMPLE_IDENTIFIER,
                abi::PERF_SAMPLE_IP,
                abi::PERF_SAMPLE_TID,
            ])
        } else if self.has_sample_id {
            let from_end = count(&[
                abi::PERF_SAMPLE_TIME,
                abi::PERF_SAMPLE_ID,
                abi::PERF_SAMPLE_STREAM_ID,
                abi::PERF_SAMPLE_CPU,
                abi::PERF_SAMPLE_IDENTIFIER,
            ]);
            body.len().checked_sub(from_end)?
        } else {
            return None;
        };
        let word = body.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }

    /// The event ID of a record, without reading the rest of it; `None` if it has none.
    #[must_use]
    pub fn id(&self, header: RecordHeader, bytes: &[u8]) -> Option<u64> {
        let body = bytes.get(RecordHeader::SIZE..)?;
        let count = |bits: &[u32]| bits.iter().filter(|bit| self.has(**bit)).count() * 8;
        let is_first = self.has(abi::PERF_SAMPLE_IDENTIFIER);
        if !is_first && !self.has(abi::PERF_SAMPLE_ID) {
            return None;
        }
        let at = match header.kind {
            abi::PERF_RECORD_SAMPLE if is_first => 0,
            abi::PERF_RECORD_SAMPLE => count(&[
                abi::PERF_SAMPLE_IP,
                abi::PERF_SAMPLE_TID,
                abi::PERF_SAMPLE_TIME,
                abi::PERF_SAMPLE_ADDR,
            ]),
            _ if !self.has_sample_id => return None,
            _ if is_first => body.len().checked_sub(8)?,
            _ => {
                let behind = [
                    abi::PERF_SAMPLE_ID,
                    abi::PERF_SAMPLE_STREAM_ID,
                    abi::PERF_SAMPLE_CPU,
                ];
                body.len().checked_sub(count(&behind))?
            }
        };
        let word = body.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }

    /// The fields for thread and time: they are adjacent in all records.
    fn read_task_and_time(
        &self,
        fields: &mut RecordFields<'_>,
        sample_id: &mut SampleId,
    ) -> Result<(), BadRecord> {
        if self.has(abi::PERF_SAMPLE_TID) {
            sample_id.pid = fields.u32("process")?;
            sample_id.tid = fields.u32("thread")?;
        }
        if self.has(abi::PERF_SAMPLE_TIME) {
            sample_id.time = fields.u64("time")?;
        }
        Ok(())
    }

    /// The fields for event and CPU.
    fn read_event_and_cpu(
        &self,
        fields: &mut RecordFields<'_>,
        sample_id: &mut SampleId,
    ) -> Result<(), BadRecord> {
        if self.has(abi::PERF_SAMPLE_ID) {
            sample_id.id = fields.u64("event")?;
        }
        if self.has(abi::PERF_SAMPLE_STREAM_ID) {
            fields.u64("stream")?;
        }
        if self.has(abi::PERF_SAMPLE_CPU) {
            sample_id.cpu = fields.u32("processor")?;
            fields.u32("processor")?;
        }
        Ok(())
    }

    /// Splits a record other than a sample at its trailing time and origin.
    fn split_origin<'r>(&self, body: &'r [u8]) -> Result<(&'r [u8], SampleId), BadRecord> {
        if !self.has_sample_id {
            return Ok((body, SampleId::default()));
        }
        const WORDS: [u32; 6] = [
            abi::PERF_SAMPLE_TID,
            abi::PERF_SAMPLE_TIME,
            abi::PERF_SAMPLE_ID,
            abi::PERF_SAMPLE_STREAM_ID,
            abi::PERF_SAMPLE_CPU,
            abi::PERF_SAMPLE_IDENTIFIER,
        ];
        let size = WORDS.iter().filter(|bit| self.has(**bit)).count() * 8;
        let truncated = BadRecord::Truncated { field: "origin" };
        let at = body.len().checked_sub(size).ok_or(truncated)?;
        let (body, trailer) = body.split_at_checked(at).ok_or(truncated)?;
        let mut fields = RecordFields(trailer);
        let mut origin = SampleId::default();
        self.read_task_and_time(&mut fields, &mut origin)?;
        self.read_event_and_cpu(&mut fields, &mut origin)?;
        if self.has(abi::PERF_SAMPLE_IDENTIFIER) {
            origin.id = fields.u64("event")?;
        }
        Ok((body, origin))
    }

    fn sample<'r>(
        &self,
        misc: u16,
        body: &'r [u8],
    ) -> Result<(SampleId, SampleRecord<'r>), BadRecord> {
        let mut fields = RecordFields(body);
        let mut origin = SampleId::default();
        let mut sample = SampleRecord::new(CpuMode::from_misc(misc));
        self.before_chain(&mut fields, &mut origin, &mut sample)?;
        self.chain(&mut fields, &mut sample)?;
        self.before_stack(&mut fields, &mut sample)?;
        self.stack(&mut fields, &mut sample)?;
        // The remaining fields are not used.
        Ok((origin, sample))
    }

    /// Splits a sample record around its call chain and its copied stack.
    pub(crate) fn split_at_stack<'r>(&self, bytes: &'r [u8]) -> Result<SplitSample<'r>, BadRecord> {
        let body = bytes.get(RecordHeader::SIZE..).unwrap_or_default();
        let mut fields = RecordFields(body);
        let mut sample = SampleRecord::new(CpuMode::Other);
        self.before_chain(&mut fields, &mut SampleId::default(), &mut sample)?;
        let before = fields.since(body);
        self.chain(&mut fields, &mut sample)?;
        let start = fields.0;
        self.before_stack(&mut fields, &mut sample)?;
        let between = fields.since(start);
        self.stack(&mut fields, &mut sample)?;
        Ok(SplitSample {
            before,
            chain: sample.chain,
            between,
            after: fields.0,
        })
    }

    fn before_chain(
        &self,
        fields: &mut RecordFields<'_>,
        sample_id: &mut SampleId,
        sample: &mut SampleRecord<'_>,
    ) -> Result<(), BadRecord> {
        if self.has(abi::PERF_SAMPLE_IDENTIFIER) {
            sample_id.id = fields.u64("event")?;
        }
        if self.has(abi::PERF_SAMPLE_IP) {
            sample.ip = fields.u64("address")?;
        }
        self.read_task_and_time(fields, sample_id)?;
        if self.has(abi::PERF_SAMPLE_ADDR) {
            fields.u64("data address")?;
        }
        self.read_event_and_cpu(fields, sample_id)?;
        if self.has(abi::PERF_SAMPLE_PERIOD) {
            sample.period = fields.u64("period")?;
        }
        if self.has(abi::PERF_SAMPLE_READ) {
            self.skip_read(fields)?;
        }
        Ok(())
    }

    fn chain<'r>(
        &self,
        fields: &mut RecordFields<'r>,
        sample: &mut SampleRecord<'r>,
    ) -> Result<(), BadRecord> {
        if self.has(abi::PERF_SAMPLE_CALLCHAIN) {
            let count = fields.u64("call chain")?;
            sample.chain = CallChain(fields.words(count, "call chain")?);
        }
        Ok(())
    }

    fn before_stack<'r>(
        &self,
        fields: &mut RecordFields<'r>,
        sample: &mut SampleRecord<'r>,
    ) -> Result<(), BadRecord> {
        if self.has(abi::PERF_SAMPLE_RAW) {
            let size = fields.u32("data")?;
            sample.raw = fields.take(size.into(), "data")?;
        }
        if self.has(abi::PERF_SAMPLE_BRANCH_STACK) {
            self.skip_branches(fields)?;
        }
        Ok(())
    }

    fn stack<'r>(
        &self,
        fields: &mut RecordFields<'r>,
        sample: &mut SampleRecord<'r>,
    ) -> Result<(), BadRecord> {
        if self.has(abi::PERF_SAMPLE_REGS_USER) {
            sample.user = fields.registers(self.user_registers)?;
        }
        if self.has(abi::PERF_SAMPLE_STACK_USER) {
            sample.stack = fields.stack()?;
        }
        Ok(())
    }

    fn skip_read(&self, fields: &mut RecordFields<'_>) -> Result<(), BadRecord> {
        const FIELD: &str = "counts";
        let has = |bit: u32| u64::from(self.read_format & u64::from(bit) != 0);
        let times =
            has(abi::PERF_FORMAT_TOTAL_TIME_ENABLED) + has(abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
        let value = 1 + has(abi::PERF_FORMAT_ID) + has(abi::PERF_FORMAT_LOST);
        let words = match has(abi::PERF_FORMAT_GROUP) {
            0 => Some(value + times),
            _ => {
                let count = fields.u64(FIELD)?;
                count
                    .checked_mul(value)
                    .and_then(|words| words.checked_add(times))
            }
        };
        let words = words.ok_or(BadRecord::Truncated { field: FIELD })?;
        fields.words(words, FIELD).map(drop)
    }

    fn skip_branches(&self, fields: &mut RecordFields<'_>) -> Result<(), BadRecord> {
        const FIELD: &str = "branches";
        let has = |bit: u32| self.branch_sample_type & u64::from(bit) != 0;
        let count = fields.u64(FIELD)?;
        if has(abi::PERF_SAMPLE_BRANCH_HW_INDEX) {
            fields.u64(FIELD)?;
        }
        let words = count.checked_mul(3);
        let words = words.ok_or(BadRecord::Truncated { field: FIELD })?;
        fields.words(words, FIELD)?;
        if has(abi::PERF_SAMPLE_BRANCH_COUNTERS) {
            fields.words(count, FIELD)?;
        }
        Ok(())
    }
}

/// The parts of a sample record around its stack, without the header.
pub(crate) struct SplitSample<'r> {
    /// Up to the call chain, or where it would be.
    pub(crate) before: &'r [u8],
    pub(crate) chain: CallChain<'r>,
    /// From there to the user registers, or where they would be.
    pub(crate) between: &'r [u8],
    /// From the end of the copied stack on.
    pub(crate) after: &'r [u8],
}

/// The file fields of a mapping record, other than the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MmapFileForm {
    /// None, and no protection either: `PERF_RECORD_MMAP`.
    Path,
    Inode,
    BuildId,
}

/// The remaining bytes of a record.
pub(crate) struct RecordFields<'r>(pub(crate) &'r [u8]);

impl<'r> RecordFields<'r> {
    /// The bytes read since `start` remained.
    fn since(&self, start: &'r [u8]) -> &'r [u8] {
        let read = start.len().saturating_sub(self.0.len());
        start.get(..read).unwrap_or_default()
    }

    pub(crate) fn take(&mut self, size: u64, field: &'static str) -> Result<&'r [u8], BadRecord> {
        let size = usize::try_from(size).ok();
        let split = size.and_then(|size| self.0.split_at_checked(size));
        let (taken, rest) = split.ok_or(BadRecord::Truncated { field })?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn words(&mut self, count: u64, field: &'static str) -> Result<&'r [u8], BadRecord> {
        let size = count.checked_mul(8);
        self.take(size.ok_or(BadRecord::Truncated { field })?, field)
    }

    fn array<const SIZE: usize>(&mut self, field: &'static str) -> Result<[u8; SIZE], BadRecord> {
        let split = self.0.split_first_chunk::<SIZE>();
        let (array, rest) = split.ok_or(BadRecord::Truncated { field })?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, BadRecord> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, BadRecord> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A name that ends with a zero byte.
    pub(crate) fn name(&mut self) -> Result<&'r [u8], BadRecord> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let Range { end, .. } = 0..end.ok_or(BadRecord::EndlessName)?;
        Ok(self.0.get(..end).unwrap_or_default())
    }

    fn task(&mut self) -> Result<TaskRecord, BadRecord> {
        let pid = self.u32("process")?;
        let parent_pid = self.u32("parent")?;
        Ok(TaskRecord {
            pid,
            parent_pid,
            tid: self.u32("thread")?,
            parent_tid: self.u32("parent")?,
        })
    }

    fn mapped(&mut self, misc: u16, form: MmapFileForm) -> Result<MmapRecord<'r>, BadRecord> {
        let has = |bit: u32| u32::from(misc) & bit != 0;
        let [pid, tid] = [self.u32("process")?, self.u32("thread")?];
        let [start, size] = [self.u64("address")?, self.u64("size")?];
        let offset = self.u64("offset")?;
        let file = match form {
            MmapFileForm::Path => MmapFile::Unknown,
            MmapFileForm::Inode => self.inode()?,
            MmapFileForm::BuildId => self.build_id()?,
        };
        let mut is_executable = !has(abi::PERF_RECORD_MISC_MMAP_DATA);
        if form != MmapFileForm::Path {
            is_executable = self.u32("protection")? & libc::PROT_EXEC.unsigned_abs() != 0;
            self.u32("flags")?;
        }
        Ok(MmapRecord {
            pid,
            tid,
            mode: CpuMode::from_misc(misc),
            start,
            size,
            offset,
            file,
            is_executable,
            name: self.name()?,
        })
    }

    fn inode(&mut self) -> Result<MmapFile<'r>, BadRecord> {
        let [major, minor] = [self.u32("device")?, self.u32("device")?];
        let inode = self.u64("inode")?;
        self.u64("inode's generation")?;
        Ok(match inode {
            0 => MmapFile::Unknown,
            _ => MmapFile::Inode {
                major,
                minor,
                inode,
            },
        })
    }

    fn build_id(&mut self) -> Result<MmapFile<'r>, BadRecord> {
        const FIELD: &str = "build ID";
        let [size, _, _, _] = self.array(FIELD)?;
        let bytes = self.take(20, FIELD)?;
        let bytes = bytes.get(..size.into());
        Ok(MmapFile::BuildId(
            bytes.ok_or(BadRecord::Truncated { field: FIELD })?,
        ))
    }

    fn registers(&mut self, mask: u64) -> Result<UserRegisters<'r>, BadRecord> {
        const FIELD: &str = "registers";
        let abi = self.u64(FIELD)?;
        if abi == abi::PERF_SAMPLE_REGS_ABI_NONE.into() {
            return Ok(UserRegisters::NoUser);
        }
        let words = self.words(mask.count_ones().into(), FIELD)?;
        Ok(if abi == abi::PERF_SAMPLE_REGS_ABI_64.into() {
            UserRegisters::Known(SampledRegisters::new(mask, words))
        } else {
            UserRegisters::ThirtyTwoBit
        })
    }

    fn stack(&mut self) -> Result<UserStackDump<'r>, BadRecord> {
        const FIELD: &str = "stack";
        let asked = self.u64(FIELD)?;
        let bytes = self.take(asked, FIELD)?;
        if bytes.is_empty() {
            return Ok(UserStackDump::default());
        }
        let read = usize::try_from(self.u64(FIELD)?).ok();
        let read = read.and_then(|read| bytes.get(..read));
        Ok(UserStackDump {
            bytes: read.ok_or(BadRecord::Truncated { field: FIELD })?,
            requested_bytes: bytes.len(),
        })
    }
}
