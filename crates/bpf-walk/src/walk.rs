//! The program that walks a thread's stack, and the memory that it shares with this process.
//!
//! It has one body and two heads ([`WalkHead`]): one for performance events, and one for tests.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use unspool_bpf::insn::{AluOp, Cond, Reg, Size, Src};
use unspool_bpf::{
    Arena, AsmError, Assembler, Code, Helper, KernelBtf, Kfunc, Label, LoadError, Map, MapError,
    PercpuArray, ProgType, Program, RingBuf, Subprog,
};

use crate::lookup::{IS_FIRST_OF_PIECE, IS_LAST_OF_PIECE, lookup_row};
use crate::mappings::lookup_mapping;
use crate::packed_row::{
    DISTANCE_SHIFT, FORM_FRAME_POINTER, FORM_OTHER, FORM_REALIGNED, FORM_SHIFT, LINKAGE_TABLE,
    OUTERMOST, PUSHED_SHIFT, RECORD_CODE, RECORD_FRAME_POINTER, RECORD_STACK_POINTER, SAVED_MASK,
    SAVED_SHIFT, SIGNAL,
};
use crate::table::RecordField;
use crate::walk_record::{self as record, MAX_FRAMES};

use AluOp::{Add, And, Arsh, Lsh, Or, Rsh, Sub};
use Cond::{Eq, Ge, Gt, Le, Lt, Ne, Slt};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{DW, H, W};

/// The longest time of a walk in nanoseconds.
pub const MAX_WALK_NS: u32 = 100_000;
/// The most signal frames of a walk.
const MAX_SIGNALS: i32 = 16;
/// The most frames of the kernel.
const MAX_KERNEL_FRAMES: i32 = 127;

/// The most processes with mappings.
const MAX_PROCESSES: u32 = 16_384;
/// The size of the ring of records.
const RING_BYTES: usize = 4 << 20;

// The arena: counters of each processor, then lists and tables.
/// The size of the arena. A page takes no memory until it is written.
const ARENA_BYTES: usize = 1 << 30;
/// The size of a processor's counters.
const COUNTER_SHIFT: i32 = 8;
const COUNTER_BYTES: usize = 1 << COUNTER_SHIFT;
/// The most processors that have counters.
const MAX_COUNTED_CPUS: usize = 8192;

// A processor's memory.
/// The part of the user's stack that was read last, and room for a word that begins in it.
const WINDOW_BYTES: i32 = 1024;
const WINDOW: i16 = 0;
/// The variables of the walk.
///
/// The verifier knows nothing of a number from this memory. So each round of the loop is the same
/// for it, and it follows only one. On the stack it would follow each value.
const LOCALS: i16 = 1040;
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
    pub const ALL: [HandOver; 14] = [
        HandOver::NoUserStack,
        HandOver::Compat,
        HandOver::UnknownProcess,
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
}

/// The number of complete walks' counter.
const COMPLETE: i32 = HandOver::RingFull as i32 + 1;

/// The numbers of walks, of all processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Walks that reached the root of the stack.
    pub complete: u64,
    /// Walks that were handed over, by the number of their reason.
    pub handed_over: [u64; HandOver::ALL.len()],
}

impl WalkCounts {
    /// The number of walks that were handed over for a reason.
    #[must_use]
    pub fn of(&self, reason: HandOver) -> u64 {
        self.handed_over.get(reason as usize).copied().unwrap_or(0)
    }
}

/// Where the program runs.
#[derive(Debug, Clone, Copy)]
pub enum WalkHead {
    /// At a performance event's overflow. Returns 0 after a complete walk: the kernel writes no
    /// sample then. Returns 1 to hand a sample over.
    PerfEvent(KernelOffsets),
    /// In [`Program::test_run`]. The context is a `struct pt_regs` of this process, and a period.
    /// The results are the same.
    Test,
}

/// The offsets of the running kernel that the program needs.
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
}

impl KernelOffsets {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// The kernel's types cannot be read, or lack one of these.
    pub fn read() -> io::Result<KernelOffsets> {
        let btf = KernelBtf::read()?;
        let missing = || {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's types lack a member",
            )
        };
        KernelOffsets::find(&btf).ok_or_else(missing)
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
        })
    }
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
}

impl WalkMaps {
    /// Where the arena is free, in bytes: for lists of mappings and tables.
    pub const FREE: std::ops::Range<usize> = MAX_COUNTED_CPUS * COUNTER_BYTES..ARENA_BYTES;

    /// Creates the memory for `cpus` processors, whose numbers are smaller.
    ///
    /// # Errors
    ///
    /// The kernel refuses a map. The message has the remedy.
    pub fn new(cpus: usize) -> Result<WalkMaps, MapError> {
        let maps = WalkMaps {
            arena: Arc::new(Arena::new(ARENA_BYTES)?),
            processes: Map::new_hash(4, 16, MAX_PROCESSES)?,
            scratch: PercpuArray::new(SCRATCH_BYTES, 1)?,
            records: RingBuf::new(RING_BYTES)?,
        };
        // Programs can write only to memory that was written before.
        let bytes = cpus.min(MAX_COUNTED_CPUS) * COUNTER_BYTES;
        let _ = maps.arena.write(0, &vec![0; bytes]);
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
        let value = [list, generation.into()].map(u64::to_le_bytes);
        self.processes
            .update(&pid.to_le_bytes(), value.as_flattened())
    }

    /// Removes a process: its samples are handed over.
    pub fn remove_process(&self, pid: u32) {
        // It need not have been there.
        let _ = self.processes.delete(&pid.to_le_bytes());
    }

    /// The numbers of walks so far.
    #[must_use]
    pub fn counts(&self, cpus: usize) -> WalkCounts {
        let mut counts = WalkCounts::default();
        for cpu in 0..cpus.min(MAX_COUNTED_CPUS) {
            let start = cpu * COUNTER_BYTES;
            let load = |number: usize| {
                let word = self.arena.word(start + number * 8);
                word.map_or(0, |word| word.load(std::sync::atomic::Ordering::Relaxed))
            };
            for (number, sum) in counts.handed_over.iter_mut().enumerate() {
                *sum += load(number);
            }
            counts.complete += load(HandOver::ALL.len());
        }
        counts
    }

    /// Loads the program with a head.
    ///
    /// # Errors
    ///
    /// The kernel refuses it. The error has the verifier's log.
    pub fn load(&self, head: WalkHead) -> Result<Program, WalkLoadError> {
        let prog_type = match head {
            WalkHead::PerfEvent(_) => ProgType::PerfEvent,
            WalkHead::Test => ProgType::Syscall,
        };
        Ok(Program::load(&self.assemble(head)?, prog_type)?)
    }

    fn assemble(&self, head: WalkHead) -> Result<Code<'_>, AsmError> {
        let mut asm = Assembler::new("walk");
        let ends = HandOver::ALL.map(|_| asm.new_label());
        let walk = WalkProgram {
            maps: self,
            head,
            ends,
            used: Cell::new(0),
            complete: asm.new_label(),
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

/// The offsets of what is on the program's stack: the key of a look-up, and the context.
const KEY: i16 = -8;
const CONTEXT: i16 = -16;

/// A variable of the walk: its index in the memory at [`LOCALS`].
#[derive(Debug, Clone, Copy)]
enum Local {
    /// The arena's address in this process.
    Arena,
    /// The time at the start.
    Start,
    /// The list of mappings.
    List,
    /// The number of frames, those of the kernel included.
    Frames,
    /// What to subtract from the code address for look-ups: 1 for return addresses.
    Back,
    /// [`record::IS_INSTRUCTION`] if a signal interrupted the frame, else 0.
    Mark,
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
    /// The packed row.
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
/// The context's period, behind the registers.
const PERIOD: i16 = 168;
/// The code segment of 64-bit code.
const USER_CS: i32 = 0x33;

/// `PF_IO_WORKER`, `PF_USER_WORKER`, `PF_KTHREAD`
const TASK_WITHOUT_STACK: i32 = 0x10 | 0x4000 | 0x20_0000;

struct WalkProgram<'m> {
    maps: &'m WalkMaps,
    head: WalkHead,
    /// The ends of walks, by the numbers of [`HandOver`].
    ends: [Label; HandOver::ALL.len()],
    /// Those that something jumps to, as bits. The verifier refuses unreachable code.
    used: Cell<u32>,
    complete: Label,
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
        self.begin_record(asm);
        self.user_registers(asm);
        // The process. The upper half of the number is its ID.
        asm.ldx(W, R1, SCRATCH, RECORD + record::PID);
        asm.st(W, R10, KEY, R1);
        look_up(asm, &self.maps.processes);
        asm.jmp(Eq, R0, 0, self.end_label(HandOver::UnknownProcess));
        asm.ldx(DW, R1, R0, 0);
        store(asm, Local::List, R1);
        asm.ldx(DW, R1, R0, 8);
        asm.st(W, SCRATCH, RECORD + record::GENERATION, R1);
        for local in [
            Local::Back,
            Local::Mark,
            Local::Signals,
            Local::MappingStart,
            Local::MappingEnd,
            Local::WindowStart,
            Local::WindowWords,
        ] {
            store(asm, local, 0);
        }
    }

    fn begin_record(&self, asm: &mut Assembler<'m>) {
        let field = |field: i16| RECORD + field;
        asm.call(Helper::GET_CURRENT_PID_TGID);
        asm.st(W, SCRATCH, field(record::TID), R0);
        asm.alu64(Rsh, R0, 32);
        asm.st(W, SCRATCH, field(record::PID), R0);
        asm.call(Helper::GET_SMP_PROCESSOR_ID);
        asm.st(W, SCRATCH, field(record::CPU), R0);
        asm.ldx(DW, R1, R10, CONTEXT);
        asm.ldx(DW, R2, R1, PERIOD);
        asm.st(DW, SCRATCH, field(record::PERIOD), R2);
        match self.head {
            WalkHead::PerfEvent(kernel) => {
                // The time of the sample that a hand-over would yield.
                asm.call_kfunc(kernel.cast_context);
                asm.ldx(DW, R1, R0, kernel.data);
                asm.ldx(DW, R0, R1, kernel.time);
            }
            WalkHead::Test => load(asm, R0, Local::Start),
        }
        asm.st(DW, SCRATCH, field(record::TIME), R0);
    }

    /// Sets the walk's registers, and notes the kernel's frames.
    fn user_registers(&self, asm: &mut Assembler<'m>) {
        let (in_kernel, known) = (asm.new_label(), asm.new_label());
        let registers = |asm: &mut Assembler<'m>, from: Reg| {
            asm.ldx(DW, R1, from, REGS_CS);
            asm.jmp(Ne, R1, USER_CS, self.end_label(HandOver::Compat));
            asm.ldx(DW, CODE, from, REGS_IP);
            asm.ldx(DW, STACK_POINTER, from, REGS_SP);
            asm.ldx(DW, FRAME_POINTER, from, REGS_BP);
        };
        asm.st(H, SCRATCH, RECORD + record::KERNEL_FRAMES, 0);
        asm.ldx(DW, R5, R10, CONTEXT);
        if let WalkHead::PerfEvent(kernel) = self.head {
            asm.ldx(DW, R1, R5, REGS_CS);
            asm.alu64(And, R1, 3);
            asm.jmp(Ne, R1, 3, in_kernel);
            registers(asm, R5);
            asm.ja(known);
            asm.bind(in_kernel);
            self.kernel_frames(asm);
            let none = self.end_label(HandOver::NoUserStack);
            asm.call(Helper::GET_CURRENT_TASK_BTF);
            asm.ldx(W, R1, R0, kernel.task_flags);
            asm.jmp(Cond::Set, R1, TASK_WITHOUT_STACK, none);
            let (word, bit) = kernel.in_exec;
            asm.ldx(W, R1, R0, word);
            asm.jmp32(Cond::Set, R1, bit, none);
            asm.mov64(R1, R0);
            asm.call(Helper::TASK_PT_REGS);
            registers(asm, R0);
        } else {
            registers(asm, R5);
        }
        asm.bind(known);
        asm.ldx(H, R1, SCRATCH, RECORD + record::KERNEL_FRAMES);
        store(asm, Local::Frames, R1);
    }

    /// Copies the kernel's part of the call chain, which perf has made before.
    fn kernel_frames(&self, asm: &mut Assembler<'m>) {
        asm.mov64(R1, R5);
        asm.mov64(R2, SCRATCH);
        asm.alu64(Add, R2, i32::from(FRAMES));
        asm.mov64(R3, MAX_KERNEL_FRAMES * 8);
        asm.mov64(R4, 0);
        asm.call(Helper::GET_STACK);
        asm.jmp(Slt, R0, 0, self.end_label(HandOver::NoKernelFrames));
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
        load(asm, R3, Local::Mark);
        asm.alu64(Or, R3, CODE);
        asm.alu64(Lsh, R1, 3);
        asm.alu64(Add, R1, SCRATCH);
        asm.st(DW, R1, FRAMES, R3);
        asm.alu64(And, R2, 15);
        asm.jmp(Ne, R2, 0, has_time);
        asm.call(Helper::KTIME_GET_NS);
        load(asm, R1, Local::Start);
        asm.alu64(Sub, R0, R1);
        asm.jmp(
            Gt,
            R0,
            MAX_WALK_NS.cast_signed(),
            self.end_label(HandOver::Deadline),
        );
        asm.bind(has_time);
        load(asm, R1, Local::Back);
        asm.alu64(Sub, CODE, R1);
        self.find_table(asm);
        self.find_row(asm);
        self.find_cfa(asm, found);
        self.interrupted(asm, again);
        asm.bind(found);
        self.step(asm);
        asm.ja(again);
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
        load(asm, R1, Local::Table);
        asm.mov64(R2, CODE);
        load(asm, R3, Local::Bias);
        asm.alu64(Sub, R2, R3);
        asm.call_subprog(self.lookup_row);
        asm.jmp(Eq, R0, 0, self.end_label(HandOver::NoRow));
        asm.mov64(R4, R0);
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
        store(asm, Local::Row, R1);
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
        load(asm, R2, Local::Back);
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
        load(asm, R3, Local::Back);
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
        store(asm, Local::Mark, R1);
        store(asm, Local::Back, 0);
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
        store(asm, Local::Mark, 0);
        store(asm, Local::Back, 1);
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
        asm.ldx(DW, dst, SCRATCH, WINDOW);
        asm.bind(inside);
    }

    /// The ends of walks.
    fn end(&self, asm: &mut Assembler<'m>) {
        let count = asm.new_label();
        asm.bind(self.complete);
        asm.call(Helper::KTIME_GET_NS);
        load(asm, R1, Local::Start);
        asm.alu64(Sub, R0, R1);
        asm.st(W, SCRATCH, RECORD + record::WALK_NS, R0);
        load(asm, R1, Local::Frames);
        asm.st(H, SCRATCH, RECORD + record::ALL_FRAMES, R1);
        load(asm, R3, Local::Frames);
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
        asm.ja(count);
        let is_used = |reason: &HandOver| self.used.get() >> *reason as u32 & 1 != 0;
        let reasons = HandOver::ALL.iter().zip(self.ends);
        for (reason, label) in reasons.filter(|(reason, _)| is_used(reason)) {
            asm.bind(label);
            asm.mov64(R1, *reason as i32);
            asm.ja(count);
        }
        asm.bind(count);
        self.count(asm);
    }

    /// Counts an end by its number in `R1`, and returns 0 after a complete walk.
    fn count(&self, asm: &mut Assembler<'m>) {
        asm.mov64(R7, R1);
        asm.ldx(W, R2, SCRATCH, RECORD + record::CPU);
        asm.alu64(Lsh, R2, COUNTER_SHIFT);
        asm.alu64(Lsh, R1, 3);
        asm.alu64(Add, R1, R2);
        load(asm, R2, Local::Arena);
        asm.alu64(Add, R1, R2);
        asm.cast_kern(R1, R1);
        asm.ldx(DW, R2, R1, 0);
        asm.alu64(Add, R2, 1);
        asm.st(DW, R1, 0, R2);
        let is_complete = asm.new_label();
        asm.mov64(R0, 0);
        asm.jmp(Eq, R7, COMPLETE, is_complete);
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
