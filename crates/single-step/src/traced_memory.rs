//! The memory of a process: its modules in scope, its breakpoints, and copies of the instructions
//! under them.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use libc::c_int;
use unspool_compiled_table::call_test::{CALL_WINDOW_BYTES, CallTest};
use unspool_process::maps::Mappings;
use unspool_rows::{RuntimeAddr, Vaddr};

use crate::compare::StoppedMemory;
use crate::displaced::DisplacedInstruction;
use crate::instruction::MAX_INSTRUCTION_BYTES;
use crate::remote::{self, SYSCALL};
use crate::scope::{MappedModule, ModuleAddress};
use crate::x86_64::ABI;

/// The breakpoint instruction.
pub(crate) const INT3: u8 = 0xcc;

/// Size of a memory area for copies, in bytes.
const COPY_AREA_BYTES: u64 = 1 << 16;
/// Attempts to map memory near an address: another thread may take it.
const ATTEMPTS: u32 = 3;
/// Greatest distance of a copy area from the modules that use it, in bytes: half the reach of
/// instructions.
const MAX_DISPLACEMENT_BYTES: u64 = 1 << 30;
/// Size of one copy's slot, in bytes.
const SLOT_BYTES: u64 = 16;

/// Why a breakpoint is there; there may be several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakpointReason {
    /// A function in scope begins.
    Entry,
    /// Code in scope may continue here unstepped: after the return from a function out of scope, at
    /// a landing pad, or at an instruction not visited yet.
    Resume,
    /// The dynamic linker reports loaded modules.
    Loader,
}

/// State of an address where a breakpoint is or was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Breakpoint {
    /// The program's bytes there: an instruction and perhaps what follows it.
    original: [u8; MAX_INSTRUCTION_BYTES],
    /// The copy of it, if a thread has continued from here.
    displaced: Option<DisplacedInstruction>,
    pub(crate) is_entry: bool,
    pub(crate) is_resume: bool,
    pub(crate) is_loader: bool,
}

impl Breakpoint {
    fn reason(&mut self, reason: BreakpointReason) -> &mut bool {
        match reason {
            BreakpointReason::Entry => &mut self.is_entry,
            BreakpointReason::Resume => &mut self.is_resume,
            BreakpointReason::Loader => &mut self.is_loader,
        }
    }

    /// Whether it is in memory.
    pub(crate) fn is_set(&self) -> bool {
        self.is_entry || self.is_resume || self.is_loader
    }

    /// Whether the program has a breakpoint of its own there.
    pub(crate) fn is_own(&self) -> bool {
        self.original.first() == Some(&INT3)
    }
}

/// Memory for copies of instructions.
#[derive(Debug, Clone, Copy)]
struct CopyArea {
    start: u64,
    /// Bytes in use. The first slot is a `syscall` instruction.
    used: u64,
}

/// Memory of one process, or shared by several.
#[derive(Debug)]
pub(crate) struct TracedMemory {
    memory: File,
    pub(crate) mapped: Vec<MappedModule>,
    breakpoints: HashMap<u64, Breakpoint>,
    copy_areas: Vec<CopyArea>,
    /// Number of changes: breakpoints set or removed, and instructions copied.
    pub(crate) changes: u64,
}

impl TracedMemory {
    /// The memory of a stopped process, without breakpoints.
    pub(crate) fn open(tid: i32) -> io::Result<TracedMemory> {
        Ok(TracedMemory {
            memory: memory(tid)?,
            mapped: Vec::new(),
            breakpoints: HashMap::new(),
            copy_areas: Vec::new(),
            changes: 0,
        })
    }

    /// The copy in a new process. The old memory had `changes` changes in all at some time before
    /// the copy.
    pub(crate) fn forked(&self, tid: i32, changes: u64) -> io::Result<TracedMemory> {
        let mut space = TracedMemory {
            memory: memory(tid)?,
            mapped: self.mapped.clone(),
            breakpoints: self.breakpoints.clone(),
            copy_areas: self.copy_areas.clone(),
            changes: 0,
        };
        if self.changes != changes {
            // Later changes may be missing in the copy.
            space.copy_areas.clear();
            for known in space.breakpoints.values_mut() {
                known.displaced = None;
            }
            for (at, known) in &space.breakpoints {
                space.write(*at, known);
            }
        }
        Ok(space)
    }

    /// The memory's contents.
    pub(crate) fn memory(&self) -> StoppedMemory<'_> {
        StoppedMemory::new(&self.memory)
    }

    /// Writes words into memory.
    pub(crate) fn fill(&self, at: u64, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write_all_at(&bytes, at)
    }

    /// Writes a word into memory. Unmapped memory is ignored.
    pub(crate) fn set_word(&self, at: u64, word: u64) {
        let _ = self.memory.write_all_at(&word.to_le_bytes(), at);
    }

    /// The location of an address in a module in scope.
    pub(crate) fn site(&self, at: u64) -> Option<ModuleAddress> {
        let at = RuntimeAddr(at);
        let is_in = |mapped: &&MappedModule| mapped.start <= at && at < mapped.end;
        let mapped = self.mapped.iter().find(is_in)?;
        Some(ModuleAddress {
            module: mapped.module,
            bias: mapped.bias,
            at: mapped.bias.to_vaddr(at),
        })
    }

    /// The state of an address where a breakpoint is, or was: a thread may have stopped there just
    /// before its removal.
    pub(crate) fn breakpoint(&self, at: u64) -> Option<Breakpoint> {
        self.breakpoints.get(&at).copied()
    }

    /// Sets a breakpoint at an address, which is the start of an instruction. In unmapped memory
    /// nothing will be executed.
    pub(crate) fn stop_at(&mut self, at: u64, reason: BreakpointReason) {
        let known = self.breakpoints.get(&at).copied();
        if let Some(mut known) = known.filter(Breakpoint::is_set) {
            *known.reason(reason) = true;
            self.breakpoints.insert(at, known);
            return;
        }
        let Some(original) = self.original(at) else {
            return;
        };
        let same = known.filter(|known| known.original == original);
        let mut breakpoint = Breakpoint {
            original,
            displaced: same.and_then(|known| known.displaced),
            is_entry: false,
            is_resume: false,
            is_loader: false,
        };
        *breakpoint.reason(reason) = true;
        self.changes += 1;
        self.write(at, &breakpoint);
        self.breakpoints.insert(at, breakpoint);
    }

    /// Removes a reason, and the breakpoint if there is no other.
    pub(crate) fn pass_at(&mut self, at: u64, reason: BreakpointReason) {
        let known = self.breakpoints.get(&at).copied();
        if let Some(mut known) = known.filter(Breakpoint::is_set) {
            *known.reason(reason) = false;
            self.breakpoints.insert(at, known);
            if !known.is_set() {
                self.changes += 1;
                self.write(at, &known);
            }
        }
    }

    /// Writes the state of a breakpoint to memory.
    pub(crate) fn write(&self, at: u64, known: &Breakpoint) {
        let [original, ..] = known.original;
        let byte = if known.is_set() { INT3 } else { original };
        let _ = self.memory.write_all_at(&[byte], at);
    }

    /// Drops the breakpoints of unmapped memory.
    pub(crate) fn forget(&mut self, mapped: &MappedModule) {
        let is_in = |at: u64| mapped.start.0 <= at && at < mapped.end.0;
        self.breakpoints.retain(|at, _| !is_in(*at));
    }

    /// The program's bytes at an address; zeros behind the end of memory.
    pub(crate) fn original(&self, at: u64) -> Option<[u8; MAX_INSTRUCTION_BYTES]> {
        let mut bytes = [0; MAX_INSTRUCTION_BYTES];
        let read = self.memory.read_at(&mut bytes, at).ok()?;
        for (at, byte) in (at..).zip(&mut bytes) {
            if let Some(known) = self.breakpoints.get(&at).filter(|known| known.is_set()) {
                [*byte, ..] = known.original;
            }
        }
        (read > 0).then_some(bytes)
    }

    /// Whether a call is before an address: in the program's own bytes, without breakpoints.
    pub(crate) fn follows_call(&self, pc: u64) -> bool {
        let start = pc.checked_sub(CALL_WINDOW_BYTES as u64);
        let before = start.and_then(|start| self.original(start)?.first_chunk().copied());
        let test = before.zip(CallTest::anywhere(ABI.arch));
        test.is_some_and(|(before, calls)| calls.passes(Vaddr(pc), before))
    }

    /// How a thread stopped at an address can execute the instruction there; `None` if no
    /// breakpoint is in the way.
    pub(crate) fn aside(&mut self, tid: i32, at: u64) -> io::Result<Option<DisplacedInstruction>> {
        let known = self.breakpoints.get(&at).filter(|known| known.is_set());
        let Some(Breakpoint {
            original,
            displaced: aside,
            ..
        }) = known.copied()
        else {
            return Ok(None);
        };
        if aside.is_some() {
            return Ok(aside);
        }
        let mut aside = self.copied(at, original);
        for _ in 0..ATTEMPTS {
            if aside.is_none() {
                self.make_room(tid, at)?;
                aside = self.copied(at, original);
            }
        }
        let aside = aside.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        if let Some(known) = self.breakpoints.get_mut(&at) {
            known.displaced = Some(aside);
        }
        Ok(Some(aside))
    }

    /// Copies an instruction to a free slot.
    fn copied(
        &mut self,
        at: u64,
        original: [u8; MAX_INSTRUCTION_BYTES],
    ) -> Option<DisplacedInstruction> {
        for room in self
            .copy_areas
            .iter_mut()
            .filter(|room| room.used < COPY_AREA_BYTES)
        {
            let mut bytes = original;
            let copy = room.start + room.used;
            if let Some(aside) = DisplacedInstruction::new(at, copy, &mut bytes) {
                self.memory.write_all_at(&bytes, copy).ok()?;
                room.used += SLOT_BYTES;
                self.changes += 1;
                return Some(aside);
            }
        }
        None
    }

    /// Whether there are free slots for copies of all instructions around an address.
    pub(crate) fn has_room(&self, near: u64) -> bool {
        let mut rooms = self.copy_areas.iter();
        rooms.any(|room| room.start.abs_diff(near) < MAX_DISPLACEMENT_BYTES)
    }

    /// Makes a thread, which must have stopped outside of any system call, map memory for copies
    /// near an address.
    pub(crate) fn make_room(&mut self, tid: i32, near: u64) -> io::Result<()> {
        let maps = mappings(tid)?;
        let at =
            remote::free_near(&maps, near, COPY_AREA_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let access = libc::PROT_READ | libc::PROT_EXEC;
        let start = self.map(tid, at, COPY_AREA_BYTES, access)?;
        self.memory.write_all_at(&SYSCALL, start)?;
        self.copy_areas.push(CopyArea {
            start,
            used: SLOT_BYTES,
        });
        self.changes += 1;
        Ok(())
    }

    /// Makes a thread, which must have stopped outside of any system call, map memory at an
    /// address, or elsewhere if that is not free.
    pub(crate) fn map(&self, tid: i32, at: u64, size: u64, access: c_int) -> io::Result<u64> {
        let syscall = match self.copy_areas.first() {
            Some(room) => Some(room.start),
            None => remote::find_syscall(&mappings(tid)?, &self.memory),
        };
        let syscall = syscall.ok_or(io::ErrorKind::Unsupported)?;
        remote::map(tid, syscall, at, size, access)
    }

    /// A free address in the memory for copies.
    pub(crate) fn free_slot(&mut self) -> Option<u64> {
        let room = self
            .copy_areas
            .iter_mut()
            .find(|room| room.used < COPY_AREA_BYTES)?;
        let slot = room.start + room.used;
        room.used += SLOT_BYTES;
        Some(slot)
    }
}

/// The mappings of a process.
pub(crate) fn mappings(tid: i32) -> io::Result<Mappings> {
    let text = std::fs::read(format!("/proc/{tid}/maps"))?;
    Ok(Mappings::parse(&text))
}

fn memory(tid: i32) -> io::Result<File> {
    let path = format!("/proc/{tid}/mem");
    OpenOptions::new().read(true).write(true).open(path)
}
