//! Stacks of samples.

use unspool_ir::memory::UnreadableReason;
use unspool_ir::{Abi, Arch, CodeAddr, Endian, Register, Registers, RuntimeAddr};
use unspool_perf::Sample;
use unspool_profile::{End, Evidence, RawFrame};
use unspool_unwind::{
    Cursor, MappedRules, Memo, NoMemory, NoRow, RulesSize, Step, Top, Walker, evidence,
};

use crate::beyond::Beyond;
use crate::space::Space;
use crate::stack_copy::StackCopy;

/// A stack that was unwound.
#[derive(Debug, Clone, Copy)]
pub struct Unwound<'u> {
    /// The frames, the innermost first; those of the kernel come before those of the process.
    pub frames: &'u [RawFrame],
    /// Why there are no more.
    pub end: End,
}

/// Unwinds samples of any processes, and remembers what it learned.
///
/// Unwinding allocates nothing and makes no system call once every module was met.
pub struct Unwinder {
    arch: Arch,
    rules: MappedRules,
    /// The last stacks of threads, by the low bits of their numbers. Which thread one is of need not be
    /// known: what is remembered is compared before it is used.
    memos: Vec<Memo>,
    addresses: Vec<RuntimeAddr>,
    frames: Vec<RawFrame>,
    beyond: Beyond,
}

/// Memory for rules: of 16 MiB of code at a time.
const RULES: usize = 4 << 20;

/// How many threads' last stacks are remembered.
const MEMOS: usize = 32;

/// The most frames of a stack.
const MOST_FRAMES: usize = 1 << 16;

impl Unwinder {
    /// Nothing is learned yet. Samples are of processes of an architecture.
    ///
    /// # Errors
    ///
    /// The kernel has no memory.
    pub fn new(arch: Arch) -> Result<Self, NoMemory> {
        let size = RulesSize::from_bytes(RULES).unwrap_or(RulesSize::DEFAULT);
        Ok(Unwinder {
            arch,
            rules: MappedRules::new(size)?,
            memos: (0..MEMOS).map(|_| Memo::new()).collect(),
            addresses: vec![RuntimeAddr(0); MOST_FRAMES],
            frames: Vec::new(),
            beyond: Beyond::default(),
        })
    }

    /// Looks at the memory of threads, too, where stacks are larger than what was copied: they run on
    /// this machine, and now.
    #[must_use]
    pub fn of_running_threads(mut self) -> Self {
        self.beyond.is_live = true;
        self
    }

    /// Forgets what was learned of modules: their numbers mean others now.
    ///
    /// # Errors
    ///
    /// The kernel has no memory.
    pub fn forget(&mut self) -> Result<(), NoMemory> {
        let beyond = std::mem::take(&mut self.beyond);
        *self = Unwinder {
            beyond,
            ..Unwinder::new(self.arch)?
        };
        Ok(())
    }

    /// Unwinds the stack of a sample of a thread.
    pub fn unwind(&mut self, space: &Space, tid: u32, sample: &Sample<'_>) -> Unwound<'_> {
        self.frames.clear();
        let kernel = sample.chain.kernel().map(|address| RawFrame {
            code: CodeAddr::Instruction(RuntimeAddr(address)),
            evidence: Evidence::Kernel,
        });
        self.frames.extend(kernel);
        let end = self.unwind_user(space, tid, sample);
        Unwound {
            frames: &self.frames,
            end,
        }
    }

    fn unwind_user(&mut self, space: &Space, tid: u32, sample: &Sample<'_>) -> End {
        if sample.stack.asked == 0 && sample.chain.user().next().is_some() {
            return self.chain_of_kernel(sample);
        }
        let Some(top) = Innermost::of(sample, self.arch) else {
            return End::NoUserRegisters;
        };
        let abi = Abi {
            arch: self.arch,
            endian: Endian::Little,
        };
        let copy = StackCopy::new(space, &top, sample.stack.bytes);
        let walker = Walker::new(abi, self.rules.rules());
        let slot = tid as usize % MEMOS;
        let mut memo = self.memos.get_mut(slot);
        let mut walk = |memory: &StackCopy<'_>, addresses: &mut [RuntimeAddr]| match &mut memo {
            Some(memo) => walker.walk_again(memo, &top, space, memory, addresses),
            None => walker.walk(&top, space, memory, addresses),
        };
        let mut found = walk(&copy, &mut self.addresses);
        let copied = found.frames;
        let mut memory = copy;
        let (start, bytes) = (top.stack_pointer(), sample.stack.bytes);
        let (known, sources) = self.beyond.of(tid);
        let code = match self
            .addresses
            .get(..copied)
            .and_then(|found| found.split_last())
        {
            Some((last, [_, ..])) => CodeAddr::Return(*last),
            _ => top.code(),
        };
        let joint = copy.joint(&found, code);
        let longer = joint.and_then(|joint| {
            sources.iter().find_map(|source| {
                known.lengthen(source, start, bytes, &joint).then_some(())?;
                let longer = walk(&copy.with(known.bytes()), &mut self.addresses);
                ended(longer.end).is_root().then_some(longer)
            })
        });
        match longer {
            Some(longer) => {
                found = longer;
                memory = copy.with(known.bytes());
            }
            // The frames that were found in the copy are as they were.
            None => known.set(start, bytes),
        }
        let outermost = self.frames.len() + copied;
        let end = match found.guesses != 0 || found.interrupted != 0 {
            true => step_by_step(&top, abi, space, &memory, &mut self.frames),
            false => {
                let addresses = self.addresses.get(..found.frames).unwrap_or_default();
                push(addresses, &mut self.frames);
                found.end
            }
        };
        for frame in self.frames.iter_mut().skip(outermost) {
            frame.evidence = Evidence::Spliced;
        }
        ended(end)
    }

    /// Takes the frames that the kernel found by frame pointers, of a recording without copied stacks.
    fn chain_of_kernel(&mut self, sample: &Sample<'_>) -> End {
        let mut addresses = sample.chain.user().map(RuntimeAddr);
        self.frames.extend(addresses.next().map(|first| RawFrame {
            code: CodeAddr::Instruction(first),
            evidence: Evidence::Registers,
        }));
        self.frames.extend(addresses.map(|address| RawFrame {
            code: CodeAddr::Return(address),
            evidence: Evidence::FramePointer,
        }));
        // Nobody can tell whether it ended where the stack does.
        End::NotCopied
    }
}

/// Notes frames that were found by tables.
fn push(addresses: &[RuntimeAddr], frames: &mut Vec<RawFrame>) {
    let Some((first, callers)) = addresses.split_first() else {
        return;
    };
    frames.push(RawFrame {
        code: CodeAddr::Instruction(*first),
        evidence: Evidence::Registers,
    });
    frames.extend(callers.iter().map(|address| RawFrame {
        code: CodeAddr::Return(*address),
        evidence: Evidence::Cfi,
    }));
}

/// Walks slowly, and notes of each frame how it was found.
fn step_by_step(
    top: &Innermost<'_>,
    abi: Abi,
    space: &Space,
    memory: &StackCopy<'_>,
    frames: &mut Vec<RawFrame>,
) -> evidence::End {
    let mut registers = Registers::new();
    for (register, value) in top.others() {
        registers.set(register, value);
    }
    let mut cursor = Cursor::at(abi, top.code(), registers);
    frames.push(RawFrame {
        code: top.code(),
        evidence: Evidence::Registers,
    });
    for _ in 1..MOST_FRAMES {
        match cursor.step(space, memory) {
            Step::Caller(found) => frames.push(RawFrame {
                code: cursor.code(),
                evidence: match found.evidence {
                    evidence::Evidence::Cfi => Evidence::Cfi,
                    evidence::Evidence::SignalTrampoline => Evidence::SignalTrampoline,
                    evidence::Evidence::BadCall => Evidence::BadCall,
                    evidence::Evidence::FramePointer => Evidence::FramePointer,
                },
            }),
            Step::End(end) => return end,
        }
    }
    evidence::End::Limit
}

/// The innermost frame of a sample's process.
#[derive(Debug)]
pub(crate) struct Innermost<'s> {
    arch: Arch,
    registers: unspool_perf::Registers<'s>,
    code: u64,
    stack_pointer: u64,
    frame_pointer: u64,
}

impl<'s> Innermost<'s> {
    pub(crate) fn arch(&self) -> Arch {
        self.arch
    }

    /// A register, by its DWARF number.
    pub(crate) fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(self.arch, register)
    }

    fn of(sample: &Sample<'s>, arch: Arch) -> Option<Self> {
        let registers = sample.user?;
        let spec = arch.spec();
        let frame_pointer = match arch {
            Arch::X86_64 => Register(6),
            _ => Register(29),
        };
        Some(Innermost {
            arch,
            registers,
            code: registers.get(arch, spec.pc)?,
            stack_pointer: registers.get(arch, spec.stack_pointer)?,
            frame_pointer: registers.get(arch, frame_pointer)?,
        })
    }
}

impl Top for Innermost<'_> {
    fn code(&self) -> CodeAddr {
        CodeAddr::Instruction(RuntimeAddr(self.code))
    }

    fn stack_pointer(&self) -> u64 {
        self.stack_pointer
    }

    fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        self.registers.iter(self.arch)
    }
}

/// Why a walk ended, as profiles say it.
fn ended(end: evidence::End) -> End {
    use evidence::End as Walked;
    let is_cut = |unreadable: Option<unspool_ir::memory::Unreadable>| {
        unreadable.is_some_and(|unreadable| unreadable.why == UnreadableReason::NotRecorded)
    };
    match end {
        Walked::Outermost => End::Outermost,
        Walked::EntryPoint => End::EntryPoint,
        _ if is_cut(end.unreadable()) => End::NotCopied,
        Walked::NoRow(no_row)
        | Walked::Guess {
            missing: no_row, ..
        } => match no_row {
            NoRow::NoModule => End::NoModule,
            NoRow::NoFile => End::NoFile,
            NoRow::NoTable => End::NoTable,
            NoRow::Hole => End::Hole,
            NoRow::BadEntry(_) => End::BadEntry,
            NoRow::CorruptTable(_) => End::CorruptTable,
            _ => End::StepFailed,
        },
        Walked::ZeroReturnAddress => End::ZeroReturnAddress,
        Walked::Loop => End::Loop,
        Walked::TooManyStacks => End::TooManyStacks,
        Walked::Limit => End::Limit,
        _ => End::StepFailed,
    }
}
