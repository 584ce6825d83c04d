//! The program that walks a thread's stack, and the memory that it shares with this process.
//!
//! It has one body and two heads ([`WalkHead`]): one for performance events, and one for tests.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fs, io};

use unspool_bpf::insn::{AluOp, Cond, Reg, Size, Src};
use unspool_bpf::{
    Arena, AsmError, Assembler, Code, Helper, KernelBtf, Kfunc, Label, LoadError, Map, MapError,
    MapOfMaps, PercpuArray, ProgType, Program, RingBuf, Subprog,
};

use crate::lookup::{IS_FIRST_OF_PIECE, IS_LAST_OF_PIECE, lookup_row};
use crate::mappings::lookup_mapping;
use crate::packed_row::{
    DISTANCE_SHIFT, FORM_FRAME_POINTER, FORM_OTHER, FORM_REALIGNED, FORM_SHIFT, LINKAGE_TABLE,
    OUTERMOST, PUSHED_SHIFT, RECORD_CODE, RECORD_FRAME_POINTER, RECORD_STACK_POINTER, SAVED_MASK,
    SAVED_SHIFT, SIGNAL,
};
use crate::table::RecordField;
use crate::walk_record::{self as record, MAX_FRAMES, WalkTrigger};

use AluOp::{Add, And, Arsh, Lsh, Mul, Or, Rsh, Sub, Xor};
use Cond::{Eq, Ge, Gt, Le, Lt, Ne, Sge, Slt};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{DW, H, W};

/// The longest time of a walk in nanoseconds.
pub(crate) const MAX_WALK_NS: u32 = 100_000;
/// The most signal frames of a walk.
const MAX_SIGNALS: i32 = 16;
/// The size of the kernel's part of a call chain: one word more than 127 frames
/// (`kernel.perf_event_max_stack`) and the word before them. A chain that fills it may be cut.
const KERNEL_CHAIN_BYTES: i32 = 129 * 8;

/// The most processes with mappings.
const MAX_PROCESSES: u32 = 16_384;
/// The size of the ring of records.
const RING_BYTES: usize = 4 << 20;

// The arena: counters and a row cache for each processor, then lists and tables.
/// The size of the arena. A page takes no memory until it is written.
const ARENA_BYTES: usize = 1 << 30;
/// The most processors (`CONFIG_NR_CPUS` of x86-64).
const MAX_CPUS: usize = 8192;
/// The size of a processor's counters.
const COUNTER_SHIFT: i32 = 8;
/// The size of a processor's row cache.
const ROW_CACHE_SHIFT: i32 = 16;
const ROW_CACHES: i32 = 0x20_0000;
const _: () = assert!(ROW_CACHES as usize == MAX_CPUS << COUNTER_SHIFT);

// An entry of a row cache.
/// The address of the module as linked.
const CACHED_CODE: i16 = 0;
/// The address of the table's record, with the table's version in the upper half.
const CACHED_TABLE: i16 = 8;
/// The packed row, with the flags of [`lookup_row`] 32 bits higher.
const CACHED_ROW: i16 = 16;
/// The size of an entry.
const CACHED_SHIFT: i32 = 5;

// A processor's memory.
/// The part of the user's stack that was read last, and room for a word that begins in it.
const WINDOW_END: i16 = 2048;
const WINDOW_BYTES: i32 = WINDOW_END as i32;
const WINDOW: i16 = 0;
/// The variables of the walk.
///
/// The verifier knows nothing of a number from this memory. So each round of the loop is the same
/// for it, and it follows only one. On the stack it would follow each value.
const LOCALS: i16 = WINDOW_END + 16;
/// The record.
const RECORD: i16 = LOCALS + 8 * (Local::CodeBefore as i16 + 1);
const FRAMES: i16 = RECORD + record::HEADER_BYTES;
const SCRATCH_BYTES: u32 = FRAMES as u32 + MAX_FRAMES as u32 * 8;

/// Why a walk ended before the stack's root. The sample is handed over: the kernel then writes it
/// with the thread's registers and a copy of its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum HandOver {
    /// The thread has no user stack: it belongs to the kernel, or is in the middle of `exec`.
    NoUserStack,
    /// The thread does not run 64-bit code.
    Compat,
    /// The process has no mappings.
    UnknownProcess,
    /// The process has replaced code lately.
    ReplacedCode,
    /// There is no room for the process' mappings.
    NoRoom,
    /// The kernel's own frames are not available.
    NoKernelFrames,
    /// No mapping with a table has the address.
    NoMapping,
    /// The table has no row for the address.
    NoRow,
    /// The row does not pack.
    OtherRow,
    /// A return address is at the border of a function, and may follow no call.
    FunctionBorder,
    /// The CFA is not above the stack pointer.
    BadCfa,
    /// The stack is unmapped, or not in memory.
    Unreadable,
    /// A return address is zero.
    ZeroReturnAddress,
    /// There are too many frames.
    Limit,
    /// The walk takes too long.
    Deadline,
    /// The ring of records is full.
    RingFull,
}

impl HandOver {
    /// All reasons, in the order of their numbers.
    pub const ALL: [HandOver; 16] = [
        HandOver::NoUserStack,
        HandOver::Compat,
        HandOver::UnknownProcess,
        HandOver::ReplacedCode,
        HandOver::NoRoom,
        HandOver::NoKernelFrames,
        HandOver::NoMapping,
        HandOver::NoRow,
        HandOver::OtherRow,
        HandOver::FunctionBorder,
        HandOver::BadCfa,
        HandOver::Unreadable,
        HandOver::ZeroReturnAddress,
        HandOver::Limit,
        HandOver::Deadline,
        HandOver::RingFull,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HandOver::NoUserStack => "no-user-stack",
            HandOver::Compat => "compat",
            HandOver::UnknownProcess => "unknown-process",
            HandOver::ReplacedCode => "replaced-code",
            HandOver::NoRoom => "no-room",
            HandOver::NoKernelFrames => "no-kernel-frames",
            HandOver::NoMapping => "no-mapping",
            HandOver::NoRow => "no-row",
            HandOver::OtherRow => "other-row",
            HandOver::FunctionBorder => "function-border",
            HandOver::BadCfa => "bad-cfa",
            HandOver::Unreadable => "unreadable",
            HandOver::ZeroReturnAddress => "zero-return-address",
            HandOver::Limit => "limit",
            HandOver::Deadline => "deadline",
            HandOver::RingFull => "ring-full",
        }
    }

    /// What it means, as the end of a sentence.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            HandOver::NoUserStack => "the thread has no user stack",
            HandOver::Compat => "the thread does not run 64-bit code",
            HandOver::UnknownProcess => "the process was not known yet",
            HandOver::ReplacedCode => "the process had replaced code lately",
            HandOver::NoRoom => "there is no room for the process' mappings",
            HandOver::NoKernelFrames => "the kernel's own frames are not available",
            HandOver::NoMapping => "the code has no compiled table there",
            HandOver::NoRow => "the table has no row for the code",
            HandOver::OtherRow => "the row is of no kind that is walked there",
            HandOver::FunctionBorder => "a return address is at the border of a function",
            HandOver::BadCfa => "the row does not fit the stack",
            HandOver::Unreadable => "the stack was not in memory",
            HandOver::ZeroReturnAddress => "a return address is zero",
            HandOver::Limit => "there are too many frames",
            HandOver::Deadline => "the walk takes too long",
            HandOver::RingFull => "the walks were not read fast enough",
        }
    }
}

/// The numbers of the counters after those of hand-overs.
const COMPLETE: i32 = HandOver::RingFull as i32 + 1;
const FRAMES_SUM: i32 = COMPLETE + 1;
const NANOSECONDS: i32 = COMPLETE + 2;
const LONGEST: i32 = COMPLETE + 3;
const SAMPLES: i32 = COMPLETE + 4;
const PERIODS: i32 = COMPLETE + 5;

/// The numbers of walks, of all processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Walks that reached the root of the stack.
    pub complete: u64,
    /// Walks that were handed over, by the number of their reason.
    pub handed_over: [u64; HandOver::ALL.len()],
    /// The frames of all these.
    pub frames: u64,
    /// The time that all these took.
    pub nanoseconds: u64,
    /// The time that the longest one took.
    pub longest_ns: u64,
    /// Walks at [`WalkTrigger::Sample`].
    pub samples: u64,
    /// The sum of the periods of these. Their events count more if the kernel skips the program.
    pub periods: u64,
}

impl WalkCounts {
    /// The number of all walks.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.complete + self.handed_over.iter().sum::<u64>()
    }

    /// The number of walks that were handed over for a reason.
    #[must_use]
    pub fn count(&self, reason: HandOver) -> u64 {
        self.handed_over.get(reason as usize).copied().unwrap_or(0)
    }
}

/// Where the program runs.
#[derive(Debug, Clone, Copy)]
pub enum WalkHead {
    /// At a performance event's overflow. Returns 1 to hand a sample over. Returns 0 after a
    /// complete walk: the kernel writes no sample then.
    PerfEvent(KernelOffsets, KernelSample),
    /// In [`Program::test_run`], with the same results. The context is a `struct pt_regs`, a
    /// period, the `struct pt_regs` at the entry to the kernel, and the address of that in the
    /// kernel.
    Test(KernelOffsets),
}

/// What the kernel does after a complete walk at a performance event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelSample {
    /// It writes no sample.
    Omitted,
    /// It writes its usual sample, too: to compare both.
    Written,
}

/// What the program needs to know of the running kernel: offsets, and this process' PID namespace.
#[derive(Debug, Clone, Copy)]
pub struct KernelOffsets {
    cast_context: Kfunc,
    /// `bpf_perf_event_data_kern.data`
    data: i16,
    /// `perf_sample_data.time`
    time: i16,
    /// `task_struct.flags`
    task_flags: i16,
    /// The word with `task_struct.in_execve`, and its bit.
    in_exec: (i16, i32),
    /// Device and inode; `None` for the initial namespace.
    pid_namespace: Option<(u64, u64)>,
}

impl KernelOffsets {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// The kernel's types cannot be read, or lack one of these. Or `/proc` is not mounted.
    pub fn read() -> io::Result<KernelOffsets> {
        let btf = KernelBtf::read()?;
        let missing = || {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's types lack a member",
            )
        };
        let mut offsets = KernelOffsets::find(&btf).ok_or_else(missing)?;
        // perf's records have the IDs of this process' namespace.
        let namespace = fs::metadata("/proc/self/ns/pid")?;
        if namespace.ino() != INITIAL_PID_NAMESPACE {
            offsets.pid_namespace = Some((kernel_device(namespace.dev()), namespace.ino()));
        }
        Ok(offsets)
    }

    fn find(btf: &KernelBtf) -> Option<KernelOffsets> {
        let bits = |structure, member| btf.member_bits(structure, member);
        let bytes = |structure, member| i16::try_from(bits(structure, member)? / 8).ok();
        let in_exec = bits("task_struct", "in_execve")?;
        Some(KernelOffsets {
            cast_context: btf.kfunc("bpf_cast_to_kern_ctx")?,
            data: bytes("bpf_perf_event_data_kern", "data")?,
            time: bytes("perf_sample_data", "time")?,
            task_flags: bytes("task_struct", "flags")?,
            in_exec: (
                i16::try_from(in_exec / 32 * 4).ok()?,
                (1_u32 << (in_exec % 32)).cast_signed(),
            ),
            pid_namespace: None,
        })
    }
}

/// `PROC_PID_INIT_INO`
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;

/// A device's number in the kernel (`MKDEV`), from that of `stat`.
fn kernel_device(device: u64) -> u64 {
    let major = device >> 8 & 0xfff;
    let minor = device & 0xff | device >> 12 & 0xfff00;
    major << 20 | minor
}

/// Why the program cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkLoadError {
    /// It cannot be assembled.
    #[error(transparent)]
    Assemble(#[from] AsmError),
    /// The kernel refuses it.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The memory of the programs that walk stacks.
#[derive(Debug)]
pub struct WalkMaps {
    arena: Arc<Arena>,
    processes: Map,
    scratch: PercpuArray,
    records: RingBuf,
    /// Replacing the element waits for all programs that run.
    grace_period: MapOfMaps,
    grace_element: Map,
}

impl WalkMaps {
    /// Where the arena is free, in bytes: for lists of mappings, and for tables. Rows of tables are
    /// cached. So another table at the same place needs another
    /// [`crate::ArenaRecord::with_version`].
    pub const FREE: std::ops::Range<usize> =
        MAX_CPUS * ((1 << COUNTER_SHIFT) + (1 << ROW_CACHE_SHIFT))..ARENA_BYTES;

    /// Creates the memory for `cpus` processors, whose numbers are smaller.
    ///
    /// # Errors
    ///
    /// The kernel refuses a map. The message has the remedy.
    pub fn new(cpus: usize) -> Result<WalkMaps, MapError> {
        let grace_element = Map::new_array(8, 1)?;
        let maps = WalkMaps {
            arena: Arc::new(Arena::new(ARENA_BYTES)?),
            processes: Map::new_hash(4, 8, MAX_PROCESSES)?,
            scratch: PercpuArray::new(SCRATCH_BYTES, 1)?,
            records: RingBuf::new(RING_BYTES)?,
            grace_period: MapOfMaps::new_array(1, &grace_element)?,
            grace_element,
        };
        // Programs can write only to memory that was written before.
        let cpus = cpus.min(MAX_CPUS);
        for (start, size) in [(0, COUNTER_SHIFT), (ROW_CACHES as usize, ROW_CACHE_SHIFT)] {
            let _ = maps.arena.write(start, &vec![0; cpus << size]);
        }
        Ok(maps)
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The ring of records; [`crate::WalkRecord`] reads one. Nothing is woken by a record.
    pub fn records(&mut self) -> &mut RingBuf {
        &mut self.records
    }

    /// Publishes a process' list of mappings. Its walks note `generation` in their records.
    ///
    /// # Errors
    ///
    /// There are too many processes.
    pub fn set_process(&self, pid: u32, list: u64, generation: u32) -> io::Result<()> {
        // One word. The kernel can reuse an element while a program reads it, so two words could be
        // of two processes. An arena never crosses a multiple of 4 GiB.
        let value = list << 32 | u64::from(generation);
        self.processes
            .update(&pid.to_le_bytes(), &value.to_le_bytes())
    }

    /// Publishes that a process' samples are handed over for a reason.
    ///
    /// # Errors
    ///
    /// There are too many processes.
    pub fn refuse_process(&self, pid: u32, reason: HandOver) -> io::Result<()> {
        self.set_process(pid, reason as u64, 0)
    }

    /// Removes a process, if it is there: its samples are handed over.
    ///
    /// # Errors
    ///
    /// The kernel refuses, and programs still have the process.
    pub fn remove_process(&self, pid: u32) -> io::Result<()> {
        match self.processes.delete(&pid.to_le_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until all walks have ended that run now, some 10 ms. Then no walk uses a list that no
    /// process has.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn wait_for_walks(&self) -> io::Result<()> {
        self.grace_period
            .update(&0_u32.to_le_bytes(), &self.grace_element)
    }

    /// The numbers of walks so far.
    #[must_use]
    pub fn counts(&self, cpus: usize) -> WalkCounts {
        let mut counts = WalkCounts::default();
        for cpu in 0..cpus.min(MAX_CPUS) {
            let start = cpu << COUNTER_SHIFT;
            let mut longest = 0;
            let sums = counts.handed_over.iter_mut();
            let sums = sums.chain([
                &mut counts.complete,
                &mut counts.frames,
                &mut counts.nanoseconds,
                &mut longest,
                &mut counts.samples,
                &mut counts.periods,
            ]);
            for (offset, sum) in (start..).step_by(8).zip(sums) {
                let word = self.arena.word(offset);
                *sum += word.map_or(0, |word| word.load(Ordering::Relaxed));
            }
            counts.longest_ns = counts.longest_ns.max(longest);
        }
        counts
    }

    /// Loads the program with a head, for one trigger.
    ///
    /// # Errors
    ///
    /// The kernel refuses it. The error has the verifier's log.
    pub fn load(&self, head: WalkHead, trigger: WalkTrigger) -> Result<Program, WalkLoadError> {
        let prog_type = match head {
            WalkHead::PerfEvent(..) => ProgType::PerfEvent,
            WalkHead::Test(_) => ProgType::Syscall,
        };
        Ok(Program::load(&self.assemble(head, trigger)?, prog_type)?)
    }

    fn assemble(&self, head: WalkHead, trigger: WalkTrigger) -> Result<Code<'_>, AsmError> {
        let mut asm = Assembler::new("walk");
        let ends = HandOver::ALL.map(|_| asm.new_label());
        let walk = WalkProgram {
            maps: self,
            head,
            trigger,
            ends,
            used: Cell::new(0),
            complete: asm.new_label(),
            count: asm.new_label(),
            lookup_row: lookup_row(&mut asm),
            lookup_mapping: lookup_mapping(&mut asm),
            read_window: read_window(&mut asm, &self.scratch),
        };
        walk.begin(&mut asm);
        walk.frames(&mut asm);
        walk.end(&mut asm);
        asm.finish()
    }
}

/// The offsets of what is on the program's stack: the key of a look-up, the context, and the
/// thread's IDs in a PID namespace (`struct bpf_pidns_info`).
const KEY: i16 = -8;
const CONTEXT: i16 = -16;
const NAMESPACE_IDS: i16 = -24;

/// A variable of the walk: its index in the memory at [`LOCALS`].
#[derive(Debug, Clone, Copy)]
enum Local {
    /// The arena's address in this process.
    Arena,
    /// The time at the start.
    Start,
    /// The address of the thread's registers at its entry to the kernel.
    EntryRegisters,
    /// The list of mappings.
    List,
    /// The processor's row cache, and the entry for the code address.
    RowCache,
    CachedRow,
    /// The number of frames, those of the kernel included.
    Frames,
    /// What to subtract from the code address for look-ups: 1 for return addresses.
    CallAdjustment,
    /// [`record::IS_INSTRUCTION`] if a signal interrupted the frame, else 0.
    InterruptedBit,
    /// The number of signal frames.
    Signals,
    /// The mapping of the last look-up.
    MappingStart,
    MappingEnd,
    Bias,
    Table,
    /// The address of the window, and the number of addresses in it where a word begins.
    WindowStart,
    WindowWords,
    /// The code address as linked.
    LinkedCode,
    /// The packed row, with flags as in the cache.
    Row,
    Cfa,
    /// The address that saved registers are below.
    SavedBase,
    /// The 8 bytes before a return address.
    CodeBefore,
}

impl Local {
    fn offset(self) -> i16 {
        LOCALS + 8 * self as i16
    }
}

fn load(asm: &mut Assembler<'_>, dst: Reg, local: Local) {
    asm.ldx(DW, dst, SCRATCH, local.offset());
}

fn store(asm: &mut Assembler<'_>, local: Local, src: impl Into<Src>) {
    asm.st(DW, SCRATCH, local.offset(), src);
}

// The registers of the walk.
/// The processor's memory.
const SCRATCH: Reg = R6;
const CODE: Reg = R7;
const STACK_POINTER: Reg = R8;
const FRAME_POINTER: Reg = R9;

/// `struct pt_regs`
const REGS_BP: i16 = 32;
const REGS_IP: i16 = 128;
const REGS_CS: i16 = 136;
const REGS_SP: i16 = 152;
const REGS_BYTES: i16 = 168;
/// The context's period, behind the registers.
const PERIOD: i16 = REGS_BYTES;
/// The rest of a test's context.
const TEST_ENTRY: i16 = PERIOD + 8;
const TEST_ENTRY_ADDRESS: i16 = TEST_ENTRY + REGS_BYTES;
/// The code segment of 64-bit code.
const USER_CS: i32 = 0x33;

/// The part of the kernel's addresses with entry stacks (`CPU_ENTRY_AREA_PGD`), in units of 512
/// GiB.
const ENTRY_AREA: i32 = -4;
const ENTRY_AREA_SHIFT: i32 = 39;

/// `PF_IO_WORKER`, `PF_USER_WORKER`, `PF_KTHREAD`
const TASK_WITHOUT_STACK: i32 = 0x10 | 0x4000 | 0x20_0000;

struct WalkProgram<'m> {
    maps: &'m WalkMaps,
    head: WalkHead,
    trigger: WalkTrigger,
    /// The ends of walks, by the numbers of [`HandOver`].
    ends: [Label; HandOver::ALL.len()],
    /// Those that something jumps to, as bits. The verifier refuses unreachable code.
    used: Cell<u32>,
    complete: Label,
    /// Where an end is counted, by its number in `R1`.
    count: Label,
    lookup_row: Subprog,
    lookup_mapping: Subprog,
    read_window: Subprog,
}

impl<'m> WalkProgram<'m> {
    fn end_label(&self, reason: HandOver) -> Label {
        self.used.set(self.used.get() | 1 << reason as u32);
        // There is a label for each reason.
        self.ends
            .get(reason as usize)
            .copied()
            .unwrap_or(self.complete)
    }

    /// Reads the context and the process' entry, and begins the record.
    fn begin(&self, asm: &mut Assembler<'m>) {
        asm.st(DW, R10, CONTEXT, R1);
        let found = asm.new_label();
        asm.st(W, R10, KEY, 0);
        look_up(asm, &self.maps.scratch);
        asm.jmp(Ne, R0, 0, found);
        asm.mov64(R0, 1);
        asm.exit();
        asm.bind(found);
        asm.mov64(SCRATCH, R0);
        asm.ld_map_value(R1, &*self.maps.arena, 0);
        store(asm, Local::Arena, R1);
        asm.call(Helper::KTIME_GET_NS);
        store(asm, Local::Start, R0);
        store(asm, Local::Frames, 0);
        self.begin_record(asm);
        self.user_registers(asm);
        self.find_list(asm);
        for local in [
            Local::CallAdjustment,
            Local::InterruptedBit,
            Local::Signals,
            Local::MappingStart,
            Local::MappingEnd,
            Local::WindowStart,
            Local::WindowWords,
        ] {
            store(asm, local, 0);
        }
    }

    /// Finds the process' list of mappings.
    fn find_list(&self, asm: &mut Assembler<'m>) {
        asm.ldx(W, R1, SCRATCH, RECORD + record::PID);
        asm.st(W, R10, KEY, R1);
        look_up(asm, &self.maps.processes);
        asm.jmp(Eq, R0, 0, self.end_label(HandOver::UnknownProcess));
        asm.ldx(DW, R1, R0, 0);
        asm.st(W, SCRATCH, RECORD + record::GENERATION, R1);
        asm.alu64(Rsh, R1, 32);
        // No list is there in the arena: it is the number of a reason.
        asm.jmp(Lt, R1, COMPLETE, self.count);
        store(asm, Local::List, R1);
    }

    /// Sets the IDs of the thread and its process in the record.
    fn thread_ids(&self, asm: &mut Assembler<'m>) {
        let (tid, pid) = (RECORD + record::TID, RECORD + record::PID);
        let (WalkHead::PerfEvent(kernel, _) | WalkHead::Test(kernel)) = self.head;
        if let Some((device, inode)) = kernel.pid_namespace {
            asm.ld_imm64(R1, device);
            asm.ld_imm64(R2, inode);
            asm.mov64(R3, R10);
            asm.alu64(Add, R3, i32::from(NAMESPACE_IDS));
            asm.mov64(R4, 8);
            asm.call(Helper::GET_NS_CURRENT_PID_TGID);
            asm.jmp(Ne, R0, 0, self.end_label(HandOver::UnknownProcess));
            for (offset, field) in [(NAMESPACE_IDS, tid), (NAMESPACE_IDS + 4, pid)] {
                asm.ldx(W, R1, R10, offset);
                asm.st(W, SCRATCH, field, R1);
            }
        } else {
            asm.call(Helper::GET_CURRENT_PID_TGID);
            asm.st(W, SCRATCH, tid, R0);
            asm.alu64(Rsh, R0, 32);
            asm.st(W, SCRATCH, pid, R0);
        }
    }

    fn begin_record(&self, asm: &mut Assembler<'m>) {
        let field = |field: i16| RECORD + field;
        asm.call(Helper::GET_SMP_PROCESSOR_ID);
        asm.st(W, SCRATCH, field(record::CPU), R0);
        asm.alu64(Lsh, R0, ROW_CACHE_SHIFT);
        asm.alu64(Add, R0, ROW_CACHES);
        load(asm, R1, Local::Arena);
        asm.alu64(Add, R0, R1);
        store(asm, Local::RowCache, R0);
        asm.ldx(DW, R1, R10, CONTEXT);
        asm.ldx(DW, R2, R1, PERIOD);
        asm.st(DW, SCRATCH, field(record::PERIOD), R2);
        asm.st(W, SCRATCH, field(record::TRIGGER), self.trigger as i32);
        match self.head {
            WalkHead::PerfEvent(kernel, _) => {
                // The time of the sample that a hand-over would yield.
                asm.call_kfunc(kernel.cast_context);
                asm.ldx(DW, R1, R0, kernel.data);
                asm.ldx(DW, R0, R1, kernel.time);
            }
            WalkHead::Test(_) => load(asm, R0, Local::Start),
        }
        asm.st(DW, SCRATCH, field(record::TIME), R0);
        self.thread_ids(asm);
    }

    /// Sets the walk's registers, and notes the kernel's frames.
    fn user_registers(&self, asm: &mut Assembler<'m>) {
        let (in_kernel, known) = (asm.new_label(), asm.new_label());
        let registers = |asm: &mut Assembler<'m>, from: Reg, offset: i16| {
            asm.ldx(DW, R1, from, offset + REGS_CS);
            // The rest of the word may have flags (FRED).
            asm.alu64(And, R1, 0xffff);
            asm.jmp(Ne, R1, USER_CS, self.end_label(HandOver::Compat));
            asm.ldx(DW, CODE, from, offset + REGS_IP);
            asm.ldx(DW, STACK_POINTER, from, offset + REGS_SP);
            asm.ldx(DW, FRAME_POINTER, from, offset + REGS_BP);
        };
        asm.st(H, SCRATCH, RECORD + record::KERNEL_FRAMES, 0);
        asm.ldx(DW, R5, R10, CONTEXT);
        asm.ldx(DW, R1, R5, REGS_CS);
        asm.alu64(And, R1, 3);
        asm.jmp(Ne, R1, 3, in_kernel);
        registers(asm, R5, 0);
        asm.ja(known);
        asm.bind(in_kernel);
        if let WalkHead::PerfEvent(kernel, _) = self.head {
            self.kernel_frames(asm);
            self.task_registers(asm, kernel);
            asm.mov64(R4, R0);
            asm.ldx(DW, R5, R10, CONTEXT);
            self.check_entry(asm);
            registers(asm, R4, 0);
        } else {
            asm.ldx(DW, R1, R5, TEST_ENTRY_ADDRESS);
            store(asm, Local::EntryRegisters, R1);
            self.check_entry(asm);
            registers(asm, R5, TEST_ENTRY);
        }
        asm.bind(known);
        asm.ldx(H, R1, SCRATCH, RECORD + record::KERNEL_FRAMES);
        store(asm, Local::Frames, R1);
    }

    /// `R0 =` the thread's registers at its entry to the kernel.
    fn task_registers(&self, asm: &mut Assembler<'m>, kernel: KernelOffsets) {
        let none = self.end_label(HandOver::NoUserStack);
        asm.call(Helper::GET_CURRENT_TASK_BTF);
        asm.ldx(W, R1, R0, kernel.task_flags);
        asm.jmp(Cond::Set, R1, TASK_WITHOUT_STACK, none);
        let (word, bit) = kernel.in_exec;
        asm.ldx(W, R1, R0, word);
        asm.jmp32(Cond::Set, R1, bit, none);
        asm.mov64(R1, R0);
        asm.call(Helper::TASK_PT_REGS);
        store(asm, Local::EntryRegisters, R0);
    }

    /// Hands over if a non-maskable interrupt came before the kernel had pushed the registers at
    /// its entry, from the last to `bp`: they are those of an earlier entry. The stack pointer of
    /// the context `R5` is then still the process', or among these registers. Or it is on the
    /// processor's entry stack, from which exceptions copy them. perf (`perf_get_regs_user`) tests
    /// the first two, except that it needs no `bp`.
    fn check_entry(&self, asm: &mut Assembler<'m>) {
        let none = self.end_label(HandOver::NoUserStack);
        asm.ldx(DW, R2, R5, REGS_SP);
        asm.jmp(Sge, R2, 0, none);
        asm.mov64(R1, R2);
        asm.alu64(Arsh, R1, ENTRY_AREA_SHIFT);
        asm.jmp(Eq, R1, ENTRY_AREA, none);
        load(asm, R1, Local::EntryRegisters);
        asm.alu64(Sub, R2, R1);
        asm.alu64(Sub, R2, i32::from(REGS_BP + 1));
        asm.jmp(Lt, R2, i32::from(REGS_BYTES - REGS_BP), none);
    }

    /// Copies the kernel's part of the call chain, which perf has made before.
    fn kernel_frames(&self, asm: &mut Assembler<'m>) {
        asm.mov64(R1, R5);
        asm.mov64(R2, SCRATCH);
        asm.alu64(Add, R2, i32::from(FRAMES));
        asm.mov64(R3, KERNEL_CHAIN_BYTES);
        asm.mov64(R4, 0);
        asm.call(Helper::GET_STACK);
        let none = self.end_label(HandOver::NoKernelFrames);
        asm.jmp(Slt, R0, 0, none);
        asm.jmp(Ge, R0, KERNEL_CHAIN_BYTES, none);
        asm.alu64(Rsh, R0, 3);
        asm.st(H, SCRATCH, RECORD + record::KERNEL_FRAMES, R0);
    }

    /// The loop: one frame in each round.
    fn frames(&self, asm: &mut Assembler<'m>) {
        let again = asm.bind_new_label();
        let (has_time, found) = (asm.new_label(), asm.new_label());
        asm.may_goto(self.end_label(HandOver::Limit));
        load(asm, R1, Local::Frames);
        asm.jmp(
            Ge,
            R1,
            i32::from(MAX_FRAMES),
            self.end_label(HandOver::Limit),
        );
        asm.mov64(R2, R1);
        asm.alu64(Add, R2, 1);
        store(asm, Local::Frames, R2);
        load(asm, R3, Local::InterruptedBit);
        asm.alu64(Or, R3, CODE);
        asm.alu64(Lsh, R1, 3);
        asm.alu64(Add, R1, SCRATCH);
        asm.st(DW, R1, FRAMES, R3);
        asm.alu64(And, R2, 15);
        asm.jmp(Ne, R2, 0, has_time);
        self.check_time(asm);
        asm.bind(has_time);
        load(asm, R1, Local::CallAdjustment);
        asm.alu64(Sub, CODE, R1);
        self.find_table(asm);
        self.find_row(asm);
        self.find_cfa(asm, found);
        self.interrupted(asm, again);
        asm.bind(found);
        self.step(asm);
        asm.ja(again);
    }

    /// Ends a walk that takes too long.
    fn check_time(&self, asm: &mut Assembler<'m>) {
        asm.call(Helper::KTIME_GET_NS);
        load(asm, R1, Local::Start);
        asm.alu64(Sub, R0, R1);
        let late = self.end_label(HandOver::Deadline);
        asm.jmp(Gt, R0, MAX_WALK_NS.cast_signed(), late);
    }

    /// Finds the table for the code address.
    fn find_table(&self, asm: &mut Assembler<'m>) {
        let (search, found) = (asm.new_label(), asm.new_label());
        load(asm, R1, Local::MappingStart);
        asm.jmp(Lt, CODE, R1, search);
        load(asm, R1, Local::MappingEnd);
        asm.jmp(Lt, CODE, R1, found);
        asm.bind(search);
        load(asm, R1, Local::List);
        asm.mov64(R2, CODE);
        asm.call_subprog(self.lookup_mapping);
        asm.jmp(Eq, R0, 0, self.end_label(HandOver::NoMapping));
        asm.cast_kern(R0, R0);
        for (local, offset) in [
            (Local::MappingStart, 0),
            (Local::MappingEnd, 8),
            (Local::Bias, 16),
            (Local::Table, 24),
        ] {
            asm.ldx(DW, R1, R0, offset);
            store(asm, local, R1);
        }
        asm.bind(found);
    }

    /// `R1 =` the packed row of the code address, and `R4 =` the flags of `lookup_row`.
    fn find_row(&self, asm: &mut Assembler<'m>) {
        let (miss, found) = (asm.new_label(), asm.new_label());
        let (table, code, entry) = (R1, R2, R3);
        load(asm, table, Local::Table);
        asm.mov64(code, CODE);
        load(asm, R3, Local::Bias);
        asm.alu64(Sub, code, R3);
        asm.mov64(entry, table);
        asm.alu64(Rsh, entry, 6);
        asm.alu64(Xor, entry, code);
        // Fibonacci hashing (Knuth, volume 3, 6.4).
        asm.alu32(Mul, entry, 0x9e37_79b1_u32.cast_signed());
        asm.alu32(Rsh, entry, 32 - (ROW_CACHE_SHIFT - CACHED_SHIFT));
        asm.alu64(Lsh, entry, CACHED_SHIFT);
        load(asm, R4, Local::RowCache);
        asm.alu64(Add, entry, R4);
        store(asm, Local::CachedRow, entry);
        asm.cast_kern(entry, entry);
        for (offset, expected) in [(CACHED_CODE, code), (CACHED_TABLE, table)] {
            asm.ldx(DW, R4, entry, offset);
            asm.jmp(Ne, R4, expected, miss);
        }
        asm.ldx(DW, R1, entry, CACHED_ROW);
        asm.ja(found);
        asm.bind(miss);
        store(asm, Local::LinkedCode, code);
        self.look_up_row(asm);
        load(asm, R3, Local::CachedRow);
        asm.cast_kern(R3, R3);
        asm.st(DW, R3, CACHED_ROW, R1);
        for (offset, local) in [
            (CACHED_CODE, Local::LinkedCode),
            (CACHED_TABLE, Local::Table),
        ] {
            load(asm, R2, local);
            asm.st(DW, R3, offset, R2);
        }
        asm.bind(found);
        store(asm, Local::Row, R1);
        asm.mov64(R4, R1);
        asm.alu64(Rsh, R4, 32);
    }

    /// `R1 =` the packed row of the address `R2` in the table `R1`, with the flags of `lookup_row`.
    fn look_up_row(&self, asm: &mut Assembler<'m>) {
        asm.call_subprog(self.lookup_row);
        asm.jmp(Eq, R0, 0, self.end_label(HandOver::NoRow));
        asm.mov64(R4, R0);
        asm.alu64(And, R4, IS_FIRST_OF_PIECE | IS_LAST_OF_PIECE);
        asm.alu64(Lsh, R4, 32);
        asm.alu64(And, R0, IS_FIRST_OF_PIECE - 1);
        asm.alu64(Sub, R0, 1);
        asm.alu64(Lsh, R0, 3);
        load(asm, R1, Local::Table);
        asm.cast_kern(R1, R1);
        asm.ldx(W, R1, R1, RecordField::PackedRows.offset());
        asm.alu64(Add, R1, R0);
        asm.cast_kern(R1, R1);
        asm.ldx(DW, R1, R1, 0);
        asm.jmp(Eq, R1, 0, self.end_label(HandOver::OtherRow));
        asm.alu64(Or, R1, R4);
    }

    /// `R3 =` the CFA by the packed row in `R1`, then jumps to `found`. A signal frame has none.
    fn find_cfa(&self, asm: &mut Assembler<'m>, found: Label) {
        let (others, by_stack_pointer, realigned, usual) = (
            asm.new_label(),
            asm.new_label(),
            asm.new_label(),
            asm.new_label(),
        );
        let signal = asm.new_label();
        let load_form = |asm: &mut Assembler<'m>| {
            asm.mov64(R2, R1);
            asm.alu64(Rsh, R2, FORM_SHIFT);
            asm.alu64(And, R2, 3);
        };
        load_form(asm);
        asm.jmp(Eq, R2, FORM_OTHER, others);
        self.check_border(asm);
        load(asm, R1, Local::Row);
        load_form(asm);
        asm.jmp(Eq, R2, FORM_REALIGNED, realigned);
        asm.mov64(R3, FRAME_POINTER);
        asm.jmp(Eq, R2, FORM_FRAME_POINTER, by_stack_pointer);
        asm.mov64(R3, STACK_POINTER);
        asm.bind(by_stack_pointer);
        asm.alu64(Rsh, R1, DISTANCE_SHIFT);
        asm.alu64(And, R1, 0xffff);
        asm.alu64(Lsh, R1, 3);
        asm.alu64(Add, R3, R1);
        asm.bind(usual);
        store(asm, Local::SavedBase, R3);
        asm.ja(found);
        asm.bind(realigned);
        // 16 bits with a sign.
        asm.alu64(Lsh, R1, 48 - DISTANCE_SHIFT);
        asm.alu64(Arsh, R1, 48);
        asm.alu64(Lsh, R1, 3);
        asm.alu64(Add, R1, FRAME_POINTER);
        self.read_word(asm, R1, R3);
        asm.mov64(R1, FRAME_POINTER);
        asm.alu64(Add, R1, 8);
        store(asm, Local::SavedBase, R1);
        asm.ja(found);
        asm.bind(others);
        asm.mov64(R2, R1);
        asm.alu64(Rsh, R2, DISTANCE_SHIFT);
        asm.alu64(And, R2, 7);
        asm.jmp(Eq, R2, OUTERMOST, self.complete);
        asm.jmp(Eq, R2, SIGNAL, signal);
        asm.jmp(Ne, R2, LINKAGE_TABLE, self.end_label(HandOver::OtherRow));
        asm.mov64(R3, STACK_POINTER);
        asm.alu64(Add, R3, 8);
        asm.alu64(Rsh, R1, PUSHED_SHIFT);
        asm.alu64(And, R1, 15);
        load(asm, R2, Local::CallAdjustment);
        asm.alu64(Add, R2, CODE);
        asm.alu64(And, R2, 15);
        asm.jmp(Lt, R2, R1, usual);
        asm.alu64(Add, R3, 8);
        asm.ja(usual);
        asm.bind(signal);
    }

    /// Ends the walk at a return address that follows no call: whoever made the stack put it there.
    /// `R4` has the flags of its row. Clobbers `R0` to `R5`.
    fn check_border(&self, asm: &mut Assembler<'m>) {
        let inside = asm.new_label();
        let none = self.end_label(HandOver::FunctionBorder);
        load(asm, R3, Local::CallAdjustment);
        asm.jmp(Eq, R3, 0, inside);
        // A call has more than one byte.
        asm.jmp(Cond::Set, R4, IS_FIRST_OF_PIECE, none);
        asm.alu64(And, R4, IS_LAST_OF_PIECE);
        asm.jmp(Eq, R4, 0, inside);
        // A function can end with a call that does not return. Else the next one begins here.
        asm.mov64(R1, SCRATCH);
        asm.alu64(Add, R1, i32::from(Local::CodeBefore.offset()));
        asm.mov64(R2, 8);
        asm.mov64(R3, CODE);
        asm.alu64(Sub, R3, 7);
        asm.call(Helper::PROBE_READ_USER);
        asm.jmp(Ne, R0, 0, none);
        load(asm, R1, Local::CodeBefore);
        // `call target`, `call *place(%rip)`, `call *register`: the usual ones.
        for (shift, mask, call) in [(24, 0xff, 0xe8), (16, 0xffff, 0x15ff), (48, 0xf8ff, 0xd0ff)] {
            asm.mov64(R2, R1);
            asm.alu64(Rsh, R2, shift);
            asm.alu64(And, R2, mask);
            asm.jmp(Eq, R2, call, inside);
        }
        asm.ja(none);
        asm.bind(inside);
    }

    /// Goes on with the frame that a signal interrupted.
    fn interrupted(&self, asm: &mut Assembler<'m>, again: Label) {
        load(asm, R1, Local::Signals);
        asm.jmp(Ge, R1, MAX_SIGNALS, self.end_label(HandOver::Limit));
        asm.alu64(Add, R1, 1);
        store(asm, Local::Signals, R1);
        for (register, offset) in [
            (FRAME_POINTER, RECORD_FRAME_POINTER),
            (CODE, RECORD_CODE),
            (STACK_POINTER, RECORD_STACK_POINTER),
        ] {
            asm.mov64(R1, STACK_POINTER);
            asm.alu64(Add, R1, offset);
            self.read_word(asm, R1, register);
        }
        asm.ld_imm64(R1, record::IS_INSTRUCTION);
        store(asm, Local::InterruptedBit, R1);
        store(asm, Local::CallAdjustment, 0);
        asm.ja(again);
    }

    /// Goes on with the caller, whose CFA is `R3`.
    fn step(&self, asm: &mut Assembler<'m>) {
        let is_unchanged = asm.new_label();
        asm.jmp(Le, R3, STACK_POINTER, self.end_label(HandOver::BadCfa));
        store(asm, Local::Cfa, R3);
        load(asm, R1, Local::Row);
        asm.alu64(Rsh, R1, SAVED_SHIFT);
        asm.alu64(And, R1, SAVED_MASK);
        asm.jmp(Eq, R1, SAVED_MASK, self.end_label(HandOver::OtherRow));
        asm.jmp(Eq, R1, 0, is_unchanged);
        asm.alu64(Lsh, R1, 3);
        load(asm, R2, Local::SavedBase);
        asm.alu64(Sub, R2, R1);
        self.read_word(asm, R2, FRAME_POINTER);
        asm.bind(is_unchanged);
        load(asm, STACK_POINTER, Local::Cfa);
        asm.mov64(R1, STACK_POINTER);
        asm.alu64(Sub, R1, 8);
        self.read_word(asm, R1, CODE);
        asm.jmp(Eq, CODE, 0, self.end_label(HandOver::ZeroReturnAddress));
        store(asm, Local::InterruptedBit, 0);
        store(asm, Local::CallAdjustment, 1);
    }

    /// `dst =` the word of the user's stack at an address. Clobbers `R0` to `R5`.
    fn read_word(&self, asm: &mut Assembler<'m>, address: Reg, dst: Reg) {
        let (inside, miss) = (asm.new_label(), asm.new_label());
        asm.mov64(R4, address);
        asm.mov64(R1, address);
        load(asm, R2, Local::WindowStart);
        asm.alu64(Sub, R1, R2);
        load(asm, R2, Local::WindowWords);
        asm.jmp(Ge, R1, R2, miss);
        asm.alu64(And, R1, WINDOW_BYTES - 1);
        asm.alu64(Add, R1, SCRATCH);
        asm.ldx(DW, dst, R1, WINDOW);
        asm.ja(inside);
        asm.bind(miss);
        store(asm, Local::WindowStart, R4);
        asm.mov64(R1, R4);
        asm.call_subprog(self.read_window);
        asm.jmp(Eq, R0, 0, self.end_label(HandOver::Unreadable));
        store(asm, Local::WindowWords, R0);
        // Frames of one window take a few microseconds, and reading one can take longer.
        self.check_time(asm);
        asm.ldx(DW, dst, SCRATCH, WINDOW);
        asm.bind(inside);
    }

    /// The ends of walks.
    fn end(&self, asm: &mut Assembler<'m>) {
        asm.bind(self.complete);
        load(asm, R3, Local::Frames);
        asm.st(H, SCRATCH, RECORD + record::ALL_FRAMES, R3);
        asm.jmp(
            Gt,
            R3,
            i32::from(MAX_FRAMES),
            self.end_label(HandOver::Limit),
        );
        asm.alu64(Lsh, R3, 3);
        asm.alu64(Add, R3, i32::from(record::HEADER_BYTES));
        asm.mov64(R2, SCRATCH);
        asm.alu64(Add, R2, i32::from(RECORD));
        asm.ld_map_fd(R1, &self.maps.records);
        // The reader comes often enough: a wake-up would cost more than the walk.
        asm.mov64(R4, 1); // BPF_RB_NO_WAKEUP
        asm.call(Helper::RINGBUF_OUTPUT);
        asm.jmp(Ne, R0, 0, self.end_label(HandOver::RingFull));
        asm.mov64(R1, COMPLETE);
        asm.ja(self.count);
        let is_used = |reason: &HandOver| self.used.get() >> *reason as u32 & 1 != 0;
        let reasons = HandOver::ALL.iter().zip(self.ends);
        for (reason, label) in reasons.filter(|(reason, _)| is_used(reason)) {
            asm.bind(label);
            asm.mov64(R1, *reason as i32);
            asm.ja(self.count);
        }
        asm.bind(self.count);
        self.count(asm);
    }

    /// Counts an end by its number in `R1`, and returns 0 after a complete walk.
    fn count(&self, asm: &mut Assembler<'m>) {
        let (end, counters, is_short) = (R7, R8, asm.new_label());
        asm.mov64(end, R1);
        asm.call(Helper::KTIME_GET_NS);
        load(asm, R1, Local::Start);
        asm.alu64(Sub, R0, R1);
        asm.ldx(W, counters, SCRATCH, RECORD + record::CPU);
        asm.alu64(Lsh, counters, COUNTER_SHIFT);
        load(asm, R1, Local::Arena);
        asm.alu64(Add, counters, R1);
        asm.mov64(R1, counters);
        asm.alu64(Add, R1, LONGEST * 8);
        asm.cast_kern(R1, R1);
        asm.ldx(DW, R2, R1, 0);
        asm.jmp(Le, R0, R2, is_short);
        asm.st(DW, R1, 0, R0);
        asm.bind(is_short);
        let add = |asm: &mut Assembler<'m>, counter: i32, term: Src| {
            asm.mov64(R3, counters);
            asm.alu64(Add, R3, counter * 8);
            asm.cast_kern(R3, R3);
            asm.ldx(DW, R4, R3, 0);
            asm.alu64(Add, R4, term);
            asm.st(DW, R3, 0, R4);
        };
        add(asm, NANOSECONDS, R0.into());
        load(asm, R1, Local::Frames);
        add(asm, FRAMES_SUM, R1.into());
        if self.trigger == WalkTrigger::Sample {
            asm.ldx(DW, R1, SCRATCH, RECORD + record::PERIOD);
            add(asm, PERIODS, R1.into());
            add(asm, SAMPLES, 1.into());
        }
        asm.mov64(R1, end);
        asm.alu64(Lsh, R1, 3);
        asm.alu64(Add, counters, R1);
        add(asm, 0, 1.into());
        let is_complete = asm.new_label();
        let is_written = matches!(self.head, WalkHead::PerfEvent(_, KernelSample::Written));
        asm.mov64(R0, i32::from(is_written));
        asm.jmp(Eq, end, COMPLETE, is_complete);
        asm.mov64(R0, 1);
        asm.bind(is_complete);
        asm.exit();
    }
}

/// `R0 =` the element of a map with the key at [`KEY`].
fn look_up<'m>(asm: &mut Assembler<'m>, map: &'m impl AsFd) {
    asm.mov64(R2, R10);
    asm.alu64(Add, R2, i32::from(KEY));
    asm.ld_map_fd(R1, map);
    asm.call(Helper::MAP_LOOKUP_ELEM);
}

/// Assembles `u64 read_window(address)`: reads the user's stack from an address on.
///
/// The result is the number of addresses at which a word begins in the window; 0 if there is no
/// word at the first.
fn read_window<'m>(asm: &mut Assembler<'m>, scratch: &'m PercpuArray) -> Subprog {
    const PAGE: i32 = 4096;
    asm.subprog("read_window", 1, |asm| {
        let (none, found, read, done) = (
            asm.new_label(),
            asm.new_label(),
            asm.new_label(),
            asm.new_label(),
        );
        let (address, size) = (R7, R8);
        asm.mov64(address, R1);
        asm.st(W, R10, KEY, 0);
        look_up(asm, scratch);
        asm.jmp(Ne, R0, 0, found);
        asm.bind(none);
        asm.mov64(R0, 0);
        asm.exit();
        asm.bind(found);
        asm.mov64(R6, R0);
        asm.mov64(R1, R6);
        asm.mov64(R2, WINDOW_BYTES);
        asm.mov64(R3, address);
        asm.call(Helper::PROBE_READ_USER);
        asm.mov64(size, WINDOW_BYTES);
        asm.jmp(Eq, R0, 0, done);
        // The next page is not there. If the window does not reach it, this one is not either.
        asm.mov64(R1, address);
        asm.alu64(And, R1, PAGE - 1);
        asm.mov64(size, PAGE);
        asm.alu64(Sub, size, R1);
        asm.jmp(Ge, size, WINDOW_BYTES, none);
        // A word can begin in one page and end in the next.
        asm.jmp(Ge, size, 8, read);
        asm.mov64(size, 8);
        asm.bind(read);
        asm.mov64(R1, R6);
        asm.mov64(R2, size);
        asm.mov64(R3, address);
        asm.call(Helper::PROBE_READ_USER);
        asm.jmp(Ne, R0, 0, none);
        asm.bind(done);
        asm.mov64(R0, size);
        asm.alu64(Sub, R0, 7);
        asm.exit();
    })
}
