//! Stacks of samples.

use unspool_ir::memory::UnreadableReason;
use unspool_ir::{Abi, Arch, CodeAddr, Endian, Register, Registers, RuntimeAddr};
use unspool_perf::Sample;
use unspool_profile::{End, Evidence, RawFrame};
use unspool_unwind::{
    Cursor, MappedRules, Memo, NoMemory, NoRow, RulesSize, Step, Top, Walker, evidence,
};

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
        })
    }

    /// Forgets what was learned of modules: their numbers mean others now.
    ///
    /// # Errors
    ///
    /// The kernel has no memory.
    pub fn forget(&mut self) -> Result<(), NoMemory> {
        *self = Unwinder::new(self.arch)?;
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
        let memory = StackCopy::new(space, &top, sample.stack);
        let walker = Walker::new(abi, self.rules.rules());
        let slot = tid as usize % MEMOS;
        let walk = match self.memos.get_mut(slot) {
            Some(memo) => walker.walk_again(memo, &top, space, &memory, &mut self.addresses),
            None => walker.walk(&top, space, &memory, &mut self.addresses),
        };
        if walk.guesses != 0 || walk.interrupted != 0 {
            return self.step_by_step(&top, abi, space, &memory);
        }
        let addresses = self.addresses.get(..walk.frames).unwrap_or_default();
        let Some((first, callers)) = addresses.split_first() else {
            return end(walk.end);
        };
        self.frames.push(RawFrame {
            code: CodeAddr::Instruction(*first),
            evidence: Evidence::Registers,
        });
        self.frames.extend(callers.iter().map(|address| RawFrame {
            code: CodeAddr::Return(*address),
            evidence: Evidence::Cfi,
        }));
        end(walk.end)
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

    /// Does the same slowly, and notes of each frame how it was found.
    fn step_by_step(
        &mut self,
        top: &Innermost<'_>,
        abi: Abi,
        space: &Space,
        memory: &StackCopy<'_>,
    ) -> End {
        let mut registers = Registers::new();
        for (register, value) in top.others() {
            registers.set(register, value);
        }
        let mut cursor = Cursor::at(abi, top.code(), registers);
        self.frames.push(RawFrame {
            code: top.code(),
            evidence: Evidence::Registers,
        });
        for _ in 1..MOST_FRAMES {
            match cursor.step(space, memory) {
                Step::Caller(found) => self.frames.push(RawFrame {
                    code: cursor.code(),
                    evidence: match found.evidence {
                        evidence::Evidence::Cfi => Evidence::Cfi,
                        evidence::Evidence::SignalTrampoline => Evidence::SignalTrampoline,
                        evidence::Evidence::BadCall => Evidence::BadCall,
                        evidence::Evidence::FramePointer => Evidence::FramePointer,
                    },
                }),
                Step::End(last) => return end(last),
            }
        }
        End::Limit
    }
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

fn end(end: evidence::End) -> End {
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
