//! The memory of a process: its modules in scope, its breakpoints, and copies of the instructions under them.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use libc::c_int;
use unspool_process::maps::Mappings;
use unspool_rows::RuntimeAddr;

use crate::compare::StoppedMemory;
use crate::displaced::DisplacedInstruction;
use crate::instruction::MAX_INSTRUCTION_BYTES;
use crate::remote::{self, SYSCALL};
use crate::scope::{MappedModule, ModuleAddress};

/// The instruction that stops.
pub(crate) const INT3: u8 = 0xcc;

/// Room for copies that is made at once, in bytes.
const COPY_AREA_BYTES: u64 = 1 << 16;
/// So often it is tried to make room near an address: another thread may take it.
const ATTEMPTS: u32 = 3;
/// So far from a place modules are that it is near to, in bytes: half of what instructions reach.
const MAX_DISPLACEMENT_BYTES: u64 = 1 << 30;
/// What a copy takes of it.
const SLOT_BYTES: u64 = 16;

/// Why a breakpoint is there; it can be there for several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakpointReason {
    /// A function in scope begins.
    Entry,
    /// Something in scope may go on here that is not stepped there: the return from a function out of scope, a
    /// landing pad, an instruction that was not visited yet.
    Resume,
    /// The dynamic linker says that modules have been loaded.
    Loader,
}

/// What is known of an address where a breakpoint is or was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Breakpoint {
    /// What the program has there, an instruction and what may follow it.
    original: [u8; MAX_INSTRUCTION_BYTES],
    /// The copy of it, if some thread has gone on from here.
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
    pub(crate) fn is_there(&self) -> bool {
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
    /// What is taken of it, in bytes. The first slot is an instruction `syscall`.
    used: u64,
}

/// A memory that one process has, or several share.
#[derive(Debug)]
pub(crate) struct TracedMemory {
    memory: File,
    pub(crate) mapped: Vec<MappedModule>,
    breakpoints: HashMap<u64, Breakpoint>,
    copy_areas: Vec<CopyArea>,
    /// How often breakpoints were put or taken away, and instructions copied.
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

    /// The copy that a new process has. The old one has been changed `changes` times in all up to some time before
    /// it was copied.
    pub(crate) fn forked(&self, tid: i32, changes: u64) -> io::Result<TracedMemory> {
        let mut space = TracedMemory {
            memory: memory(tid)?,
            mapped: self.mapped.clone(),
            breakpoints: self.breakpoints.clone(),
            copy_areas: self.copy_areas.clone(),
            changes: 0,
        };
        if self.changes != changes {
            // Whatever was done since then may be missing in the copy.
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

    /// What lies in memory.
    pub(crate) fn memory(&self) -> StoppedMemory<'_> {
        StoppedMemory::new(&self.memory)
    }

    /// Writes words into memory.
    pub(crate) fn fill(&self, at: u64, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write_all_at(&bytes, at)
    }

    /// Writes a word into memory. Where there is none any more, nobody misses it.
    pub(crate) fn set_word(&self, at: u64, word: u64) {
        let _ = self.memory.write_all_at(&word.to_le_bytes(), at);
    }

    /// Where an address is in a module in scope.
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

    /// What is known of an address where a breakpoint is, or was: a thread may have stopped there just before
    /// it was taken away.
    pub(crate) fn breakpoint(&self, at: u64) -> Option<Breakpoint> {
        self.breakpoints.get(&at).copied()
    }

    /// Puts a breakpoint at an address, which is the start of an instruction. Where there is no memory any more
    /// nothing will be executed.
    pub(crate) fn stop_at(&mut self, at: u64, reason: BreakpointReason) {
        let known = self.breakpoints.get(&at).copied();
        if let Some(mut known) = known.filter(Breakpoint::is_there) {
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

    /// Takes a reason away, and the breakpoint if there is no other.
    pub(crate) fn pass_at(&mut self, at: u64, reason: BreakpointReason) {
        let known = self.breakpoints.get(&at).copied();
        if let Some(mut known) = known.filter(Breakpoint::is_there) {
            *known.reason(reason) = false;
            self.breakpoints.insert(at, known);
            if !known.is_there() {
                self.changes += 1;
                self.write(at, &known);
            }
        }
    }

    /// Brings memory in line with what is known of a breakpoint.
    pub(crate) fn write(&self, at: u64, known: &Breakpoint) {
        let [original, ..] = known.original;
        let byte = if known.is_there() { INT3 } else { original };
        let _ = self.memory.write_all_at(&[byte], at);
    }

    /// Forgets the breakpoints of memory that is no more.
    pub(crate) fn forget(&mut self, mapped: &MappedModule) {
        let is_in = |at: u64| mapped.start.0 <= at && at < mapped.end.0;
        self.breakpoints.retain(|at, _| !is_in(*at));
    }

    /// The bytes of the program at an address; behind the last byte of memory zeros.
    pub(crate) fn original(&self, at: u64) -> Option<[u8; MAX_INSTRUCTION_BYTES]> {
        let mut bytes = [0; MAX_INSTRUCTION_BYTES];
        let read = self.memory.read_at(&mut bytes, at).ok()?;
        for (at, byte) in (at..).zip(&mut bytes) {
            if let Some(known) = self.breakpoints.get(&at).filter(|known| known.is_there()) {
                [*byte, ..] = known.original;
            }
        }
        (read > 0).then_some(bytes)
    }

    /// How a thread that has stopped at an address can execute the instruction there; `None` if no breakpoint
    /// is in the way.
    pub(crate) fn aside(&mut self, tid: i32, at: u64) -> io::Result<Option<DisplacedInstruction>> {
        let known = self.breakpoints.get(&at).filter(|known| known.is_there());
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

    /// Copies an instruction to where there is room for it.
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

    /// Whether there is room for copies of all instructions around an address.
    pub(crate) fn has_room(&self, near: u64) -> bool {
        let mut rooms = self.copy_areas.iter();
        rooms.any(|room| room.start.abs_diff(near) < MAX_DISPLACEMENT_BYTES)
    }

    /// Has a thread, which must have stopped outside of any system call, make room for copies of instructions
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

    /// Has a thread, which must have stopped outside of any system call, map memory at an address, or if that is
    /// not free elsewhere.
    pub(crate) fn map(&self, tid: i32, at: u64, size: u64, access: c_int) -> io::Result<u64> {
        let syscall = match self.copy_areas.first() {
            Some(room) => Some(room.start),
            None => remote::find_syscall(&mappings(tid)?, &self.memory),
        };
        let syscall = syscall.ok_or(io::ErrorKind::Unsupported)?;
        remote::map(tid, syscall, at, size, access)
    }

    /// An address in the memory for copies at which nothing is.
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

fn mappings(tid: i32) -> io::Result<Mappings> {
    let text = std::fs::read(format!("/proc/{tid}/maps"))?;
    Ok(Mappings::parse(&text))
}

fn memory(tid: i32) -> io::Result<File> {
    let path = format!("/proc/{tid}/mem");
    OpenOptions::new().read(true).write(true).open(path)
}
