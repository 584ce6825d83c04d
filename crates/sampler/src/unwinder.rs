//! Stacks of samples.

use unspool_perf_events::{CallChain, CpuMode, SampleRecord, UserRegisters};
use unspool_profile::{FrameEvidence, RawFrame, StackEnd};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Abi, CodeAddr, Memory, Register, Registers, RuntimeAddr};
use unspool_table_store::TableForm;
use unspool_unwind::{
    Cursor, InnermostFrame, MappedRuleCache, Memo, NoRow, OutOfMemory, RuleCacheSize, Step, Walker,
    evidence,
};

use crate::address_space::ProcessSpace;
use crate::go_stack::{GoroutineStack, ThreadWalk};
use crate::stack_copy::StackCopy;
use crate::stack_extension::{Extension, StackExtensions};

/// A stack after unwinding.
#[derive(Debug, Clone, Copy)]
pub struct UnwoundStack<'u> {
    /// The frames, innermost first; kernel frames come before those of the process.
    pub frames: &'u [RawFrame],
    /// Why the walk ended.
    pub end: StackEnd,
}

impl<'u> UnwoundStack<'u> {
    /// The frames of the process.
    #[must_use]
    pub(crate) fn user_frames(&self) -> &'u [RawFrame] {
        let is_kernel = |frame: &RawFrame| frame.evidence == FrameEvidence::Kernel;
        let start = self.frames.partition_point(is_kernel);
        self.frames.get(start..).unwrap_or_default()
    }
}

/// Unwinds samples of any processes, and remembers the rules it learned.
///
/// Unwinding allocates nothing and makes no system call once every module is known.
pub(crate) struct Unwinder {
    abi: Abi,
    form: TableForm,
    rules: MappedRuleCache,
    /// The last stacks of threads, by the low bits of their IDs. The thread need not be known: a
    /// remembered stack is compared before it is used.
    memos: Vec<Memo>,
    addresses: Vec<RuntimeAddr>,
    frames: Vec<RawFrame>,
    goroutine_stack: GoroutineStack,
    stack_extensions: StackExtensions,
    /// Whether a copy was too short since it was asked.
    had_short_copy: bool,
}

/// Memory for rules: enough for 16 MiB of code.
const RULE_CACHE_BYTES: usize = 4 << 20;

/// The number of threads with a remembered last stack.
const MAX_MEMOS: usize = 32;

/// The most frames of a stack.
const MAX_FRAMES: usize = 1 << 16;

impl Unwinder {
    /// An empty unwinder. Samples are of processes of one ABI; tables have one form.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(crate) fn new(abi: Abi, form: TableForm) -> Result<Self, OutOfMemory> {
        let size = RuleCacheSize::from_bytes(RULE_CACHE_BYTES).unwrap_or(RuleCacheSize::DEFAULT);
        Ok(Unwinder {
            abi,
            form,
            rules: MappedRuleCache::new(size)?,
            memos: (0..MAX_MEMOS).map(|_| Memo::new()).collect(),
            addresses: vec![RuntimeAddr(0); MAX_FRAMES],
            frames: Vec::new(),
            goroutine_stack: GoroutineStack::default(),
            stack_extensions: StackExtensions::default(),
            had_short_copy: false,
        })
    }

    /// Also reads the memory of threads if stacks are larger than the copies: the threads must
    /// still run on this machine.
    #[must_use]
    pub(crate) fn with_live_threads(mut self) -> Self {
        self.stack_extensions.is_live = true;
        self
    }

    /// Whether a walk has needed memory that its sample lacks, since the last call. What the thread
    /// has there changes while it runs, so such samples should be unwound soon.
    pub(crate) fn take_short_copy(&mut self) -> bool {
        std::mem::take(&mut self.had_short_copy)
    }

    /// Discards the rules of modules, because their slots have a new meaning.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(crate) fn forget(&mut self) -> Result<(), OutOfMemory> {
        let stack_extensions = std::mem::take(&mut self.stack_extensions);
        *self = Unwinder {
            stack_extensions,
            ..Unwinder::new(self.abi, self.form)?
        };
        Ok(())
    }

    /// Unwinds the stack of a sample of a thread.
    pub(crate) fn unwind(
        &mut self,
        space: &ProcessSpace,
        tid: u32,
        sample: &SampleRecord<'_>,
    ) -> UnwoundStack<'_> {
        self.frames.clear();
        let kernel = sample.chain.kernel().map(|address| RawFrame {
            code: CodeAddr::Instruction(RuntimeAddr(address)),
            evidence: FrameEvidence::Kernel,
            arguments: None,
        });
        self.frames.extend(kernel);
        let end = self.unwind_user(space, tid, sample);
        UnwoundStack {
            frames: &self.frames,
            end,
        }
    }

    fn unwind_user(
        &mut self,
        space: &ProcessSpace,
        tid: u32,
        sample: &SampleRecord<'_>,
    ) -> StackEnd {
        if sample.stack.requested_bytes == 0 && sample.chain.user().next().is_some() {
            return self.kernel_call_chain(sample);
        }
        let Some(top) = SampleTop::from_sample(sample, space, self.abi) else {
            return self.sampled_address(sample);
        };
        // A process in the middle of `exec` has no stack any more.
        if sample.stack.bytes.is_empty() && sample.chain.kernel().next().is_some() {
            return StackEnd::NoUserRegisters;
        }
        let copy = StackCopy::new(space, &top, sample.stack.bytes);
        self.walk(space, tid, &top, copy, sample.chain)
    }

    /// Walks and notes the frames; extends the copy if the stack does not end in it.
    fn walk(
        &mut self,
        space: &ProcessSpace,
        tid: u32,
        top: &SampleTop<'_>,
        copy: StackCopy<'_>,
        chain: CallChain<'_>,
    ) -> StackEnd {
        let walker = Walker::new(top.abi(), self.rules.rules()).with_pac_mask(top.pac_mask());
        let walker = match self.form {
            TableForm::Compact => walker,
            TableForm::Native => walker.with_cursor_only(),
        };
        let is_live = self.stack_extensions.is_live;
        let slot = tid as usize % MAX_MEMOS;
        let mut memo = self.memos.get_mut(slot);
        let mut walk = |memory: &StackCopy<'_>, addresses: &mut [RuntimeAddr]| match &mut memo {
            Some(memo) => walker.walk_again(memo, top, space, memory, addresses),
            None => walker.walk(top, space, memory, addresses),
        };
        let mut found = walk(&copy, &mut self.addresses);
        self.had_short_copy |= found.end.unreadable().is_some();
        let copied = found.frames;
        let mut memory = copy;
        let (known, sources) = self.stack_extensions.of_thread(tid);
        let callers = 1..copied;
        let code = match self.addresses.get(callers).and_then(<[_]>::last) {
            Some(last) => CodeAddr::Return(*last),
            None => top.code,
        };
        let mut longer = None;
        if let Some(splice_point) = copy.splice_point(&found, code) {
            for source in sources {
                match known.extend(*source, &copy, &splice_point) {
                    Extension::Available => {
                        let walked = walk(&copy.with(known.bytes()), &mut self.addresses);
                        if stack_end(walked.end).is_root() {
                            longer = Some(walked);
                            break;
                        }
                    }
                    Extension::SourceExhausted => {}
                    Extension::Exhausted => break,
                }
            }
        }
        match longer {
            Some(longer) => {
                found = longer;
                memory = copy.with(known.bytes());
            }
            // The frames found in the copy do not change.
            None => known.set(&copy),
        }
        let outermost = self.frames.len() + copied;
        let is_by_tables = found.guesses + found.interrupted + found.synthesized == 0;
        let before = self.frames.len();
        let mut end = if is_by_tables {
            let addresses = self.addresses.get(..found.frames).unwrap_or_default();
            push(top, addresses, &mut self.frames);
            found.end
        } else {
            step_by_step(top, space, &memory, &mut self.frames)
        };
        if is_live {
            let walk = ThreadWalk {
                top,
                space,
                tid,
                memory: &memory,
                chain,
            };
            let frames = &mut self.frames;
            end = self.goroutine_stack.extend(&walk, frames, before, end);
        }
        for frame in self.frames.iter_mut().skip(outermost) {
            frame.evidence = FrameEvidence::Spliced;
        }
        stack_end(end)
    }

    /// Takes the sampled address as a frame, where nothing else is known of a stack.
    fn sampled_address(&mut self, sample: &SampleRecord<'_>) -> StackEnd {
        let is_user = sample.mode == CpuMode::User;
        let evidence = match sample.mode {
            CpuMode::User => Some(FrameEvidence::Registers),
            // The kernel's own chain begins with it.
            CpuMode::Kernel if self.frames.is_empty() => Some(FrameEvidence::Kernel),
            CpuMode::Kernel | CpuMode::Other => None,
        };
        self.frames.extend(evidence.map(|evidence| RawFrame {
            code: CodeAddr::Instruction(RuntimeAddr(sample.ip)),
            evidence,
            arguments: None,
        }));
        let is_deferred = sample.chain.deferred().is_some();
        let has_chain = sample.chain.words().len() > 0 && !is_deferred;
        match sample.user {
            UserRegisters::ThirtyTwoBit => StackEnd::ThirtyTwoBit,
            UserRegisters::NotRequested if is_user || !has_chain => StackEnd::NoCallers,
            _ => StackEnd::NoUserRegisters,
        }
    }

    /// Takes the frames that the kernel found by frame pointers, in a recording without copied
    /// stacks.
    fn kernel_call_chain(&mut self, sample: &SampleRecord<'_>) -> StackEnd {
        let mut addresses = sample.chain.user().map(RuntimeAddr);
        self.frames.extend(addresses.next().map(|first| RawFrame {
            code: CodeAddr::Instruction(first),
            evidence: FrameEvidence::Registers,
            arguments: None,
        }));
        self.frames.extend(addresses.map(|address| RawFrame {
            code: CodeAddr::Return(address),
            evidence: FrameEvidence::FramePointer,
            arguments: None,
        }));
        StackEnd::CallChain
    }
}

/// Notes frames that were found by tables.
fn push(top: &SampleTop<'_>, addresses: &[RuntimeAddr], frames: &mut Vec<RawFrame>) {
    frames.extend(addresses.first().map(|_| top.frame()));
    let callers = addresses.iter().skip(1);
    frames.extend(callers.map(|address| RawFrame {
        code: CodeAddr::Return(*address),
        evidence: FrameEvidence::Cfi,
        arguments: None,
    }));
}

/// Walks one frame at a time, and notes how each was found.
fn step_by_step(
    top: &SampleTop<'_>,
    space: &ProcessSpace,
    memory: &dyn Memory,
    frames: &mut Vec<RawFrame>,
) -> evidence::End {
    let mut cursor = top.cursor();
    frames.push(top.frame());
    for _ in 1..MAX_FRAMES {
        match cursor.step(space, memory) {
            Step::Caller(found) => frames.push(RawFrame {
                code: cursor.code(),
                evidence: match found.evidence {
                    evidence::Evidence::Cfi => FrameEvidence::Cfi,
                    evidence::Evidence::Synthesized => FrameEvidence::Synthesized,
                    evidence::Evidence::SignalTrampoline => FrameEvidence::SignalTrampoline,
                    evidence::Evidence::BadCall => FrameEvidence::BadCall,
                    evidence::Evidence::FramePointer => FrameEvidence::FramePointer,
                },
                arguments: None,
            }),
            Step::End(end) => return end,
        }
    }
    evidence::End::Limit
}

/// The innermost user frame of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleTop<'s> {
    abi: Abi,
    pac_mask: u64,
    registers: unspool_perf_events::SampledRegisters<'s>,
    code: CodeAddr,
    stack_pointer: u64,
    frame_pointer: u64,
}

impl<'s> SampleTop<'s> {
    pub(crate) fn abi(&self) -> Abi {
        self.abi
    }

    /// The bits of a code address that may hold a signature.
    pub(crate) fn pac_mask(&self) -> u64 {
        self.pac_mask
    }

    /// A register, by its DWARF number.
    pub(crate) fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(self.abi.arch, register)
    }

    pub(crate) fn from_sample(
        sample: &SampleRecord<'s>,
        space: &ProcessSpace,
        abi: Abi,
    ) -> Option<Self> {
        let registers = sample.user.known()?;
        let arch = abi.arch;
        let spec = arch.spec();
        let stack_pointer = registers.get(arch, spec.stack_pointer)?;
        Some(SampleTop {
            abi,
            pac_mask: arch.pac_mask(RuntimeAddr(space.end().max(stack_pointer))),
            registers,
            code: CodeAddr::Instruction(RuntimeAddr(registers.get(arch, spec.pc)?)),
            stack_pointer,
            frame_pointer: registers.get(arch, spec.frame_pointer?)?,
        })
    }

    /// A cursor there.
    pub(crate) fn cursor(&self) -> Cursor {
        let mut registers = Registers::new();
        for (register, value) in self.registers.iter(self.abi.arch) {
            registers.set(register, value);
        }
        let spec = self.abi.arch.spec();
        registers.set(spec.stack_pointer, self.stack_pointer);
        if let Some(register) = spec.frame_pointer {
            registers.set(register, self.frame_pointer);
        }
        Cursor::with_code(self.abi, self.code, registers).with_pac_mask(self.pac_mask)
    }

    fn frame(&self) -> RawFrame {
        RawFrame {
            code: self.code,
            evidence: FrameEvidence::Registers,
            arguments: None,
        }
    }
}

impl InnermostFrame for SampleTop<'_> {
    fn code(&self) -> CodeAddr {
        self.code
    }

    fn stack_pointer(&self) -> u64 {
        self.stack_pointer
    }

    fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        self.registers.iter(self.abi.arch)
    }
}

/// Why a walk ended, in the profile's form.
fn stack_end(end: evidence::End) -> StackEnd {
    use evidence::End as Walked;
    let is_cut = |unreadable: Option<unspool_rows::memory::Unreadable>| {
        unreadable.is_some_and(|unreadable| unreadable.reason == UnreadableReason::NotRecorded)
    };
    match end {
        Walked::Outermost => StackEnd::Outermost,
        Walked::EntryPoint => StackEnd::EntryPoint,
        _ if is_cut(end.unreadable()) => StackEnd::NotCopied,
        Walked::NoRow(no_row)
        | Walked::Guess {
            missing: no_row, ..
        } => match no_row {
            NoRow::NoModule => StackEnd::NoModule,
            NoRow::NoFile => StackEnd::NoFile,
            NoRow::NoTable => StackEnd::NoTable,
            NoRow::Hole => StackEnd::Hole,
            NoRow::Pending => StackEnd::Pending,
            NoRow::BadEntry(_) | NoRow::BadSframe(_) => StackEnd::BadEntry,
            NoRow::CorruptTable(_) => StackEnd::CorruptTable,
            _ => StackEnd::StepFailed,
        },
        Walked::NotCode(_) => StackEnd::NotCode,
        Walked::ZeroReturnAddress => StackEnd::ZeroReturnAddress,
        Walked::Loop => StackEnd::Loop,
        Walked::TooManyStacks => StackEnd::TooManyStacks,
        Walked::Limit => StackEnd::Limit,
        _ => StackEnd::StepFailed,
    }
}
