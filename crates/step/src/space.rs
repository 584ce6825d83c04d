//! The memory of a process: its modules in scope and its breakpoints.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use unspool_ir::RuntimeAddr;

use crate::compare::Stopped;
use crate::scope::{Mapped, Site};

/// The instruction that stops.
pub(crate) const INT3: u8 = 0xcc;

/// Why a breakpoint is there; it can be there for several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A function in scope begins.
    Entry,
    /// Something in scope may go on here that is not stepped there: the return from a function out of scope, a
    /// landing pad, an instruction that was not visited yet.
    Awaited,
    /// The dynamic linker says that modules have been loaded.
    Loader,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Breakpoint {
    original: u8,
    /// How many threads are stepping over it, so that it is not in memory.
    lifted: u32,
    pub(crate) is_entry: bool,
    pub(crate) is_awaited: bool,
    pub(crate) is_loader: bool,
}

impl Breakpoint {
    fn reason(&mut self, reason: Reason) -> &mut bool {
        match reason {
            Reason::Entry => &mut self.is_entry,
            Reason::Awaited => &mut self.is_awaited,
            Reason::Loader => &mut self.is_loader,
        }
    }

    fn has_none(self) -> bool {
        !(self.is_entry || self.is_awaited || self.is_loader)
    }
}

/// A memory that one process has, or several share.
#[derive(Debug)]
pub(crate) struct Space {
    memory: File,
    pub(crate) mapped: Vec<Mapped>,
    breakpoints: HashMap<u64, Breakpoint>,
    /// Breakpoints that are lifted until a thread runs at full speed again.
    raised: Vec<u64>,
}

impl Space {
    /// The memory of a stopped process, without breakpoints.
    pub(crate) fn open(tid: i32) -> io::Result<Space> {
        Ok(Space {
            memory: memory(tid)?,
            mapped: Vec::new(),
            breakpoints: HashMap::new(),
            raised: Vec::new(),
        })
    }

    /// The copy that a new process has: breakpoints that threads of the old one are stepping over right now
    /// are put back into it.
    pub(crate) fn forked(&self, tid: i32) -> io::Result<Space> {
        let mut space = Space {
            memory: memory(tid)?,
            mapped: self.mapped.clone(),
            breakpoints: self.breakpoints.clone(),
            raised: Vec::new(),
        };
        for (at, breakpoint) in &mut space.breakpoints {
            if breakpoint.lifted > 0 {
                breakpoint.lifted = 0;
                space.memory.write_all_at(&[INT3], *at)?;
            }
        }
        Ok(space)
    }

    /// What lies in memory.
    pub(crate) fn memory(&self) -> Stopped<'_> {
        Stopped::new(&self.memory)
    }

    /// Writes into memory.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, at)
    }

    /// Where an address is in a module in scope.
    pub(crate) fn site(&self, at: u64) -> Option<Site> {
        let at = RuntimeAddr(at);
        let is_in = |mapped: &&Mapped| mapped.start <= at && at < mapped.end;
        let mapped = self.mapped.iter().find(is_in)?;
        Some(Site {
            module: mapped.module,
            bias: mapped.bias,
            at: mapped.bias.to_vaddr(at),
        })
    }

    pub(crate) fn breakpoint(&self, at: u64) -> Option<Breakpoint> {
        self.breakpoints.get(&at).copied()
    }

    /// Whether there is a breakpoint at an address that nobody steps over.
    pub(crate) fn is_in_memory(&self, at: u64) -> bool {
        let breakpoint = self.breakpoints.get(&at);
        breakpoint.is_some_and(|breakpoint| breakpoint.lifted == 0)
    }

    /// Puts a breakpoint at an address, which is the start of an instruction.
    pub(crate) fn stop_at(&mut self, at: u64, reason: Reason) -> io::Result<()> {
        if let Some(known) = self.breakpoints.get_mut(&at) {
            *known.reason(reason) = true;
            return Ok(());
        }
        let mut breakpoint = Breakpoint::default();
        let mut original = [0];
        self.memory.read_exact_at(&mut original, at)?;
        [breakpoint.original] = original;
        *breakpoint.reason(reason) = true;
        self.memory.write_all_at(&[INT3], at)?;
        self.breakpoints.insert(at, breakpoint);
        Ok(())
    }

    /// Takes a reason away, and the breakpoint if there is no other.
    pub(crate) fn pass_at(&mut self, at: u64, reason: Reason) -> io::Result<()> {
        let Some(breakpoint) = self.breakpoints.get_mut(&at) else {
            return Ok(());
        };
        *breakpoint.reason(reason) = false;
        if breakpoint.has_none() && breakpoint.lifted == 0 {
            let original = breakpoint.original;
            self.breakpoints.remove(&at);
            self.memory.write_all_at(&[original], at)?;
        }
        Ok(())
    }

    /// Takes a breakpoint out of memory while a thread steps over it; says whether there is one.
    pub(crate) fn lift(&mut self, at: u64) -> io::Result<bool> {
        let Some(breakpoint) = self.breakpoints.get_mut(&at) else {
            return Ok(false);
        };
        breakpoint.lifted += 1;
        self.memory.write_all_at(&[breakpoint.original], at)?;
        Ok(true)
    }

    /// Takes a breakpoint out of memory until [`Space::settle`]: for the only thread that there is.
    pub(crate) fn raise(&mut self, at: u64) -> io::Result<()> {
        let is_there = |breakpoint: &Breakpoint| breakpoint.lifted == 0;
        if self.breakpoints.get(&at).is_some_and(is_there) {
            self.lift(at)?;
            self.raised.push(at);
        }
        Ok(())
    }

    /// Puts all raised breakpoints back.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        while let Some(at) = self.raised.pop() {
            self.lower(at)?;
        }
        Ok(())
    }

    /// Puts a lifted breakpoint back when the last thread has stepped over it.
    pub(crate) fn lower(&mut self, at: u64) -> io::Result<()> {
        let Some(breakpoint) = self.breakpoints.get_mut(&at) else {
            return Ok(());
        };
        breakpoint.lifted = breakpoint.lifted.saturating_sub(1);
        match (breakpoint.lifted, breakpoint.has_none()) {
            (0, false) => self.memory.write_all_at(&[INT3], at),
            (0, true) => {
                self.breakpoints.remove(&at);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a breakpoint of ours or of the program's own is in memory at an address.
    pub(crate) fn has_int3(&self, at: u64) -> bool {
        let mut byte = [0];
        let read = self.memory.read_exact_at(&mut byte, at);
        read.is_ok() && byte == [INT3]
    }
}

fn memory(tid: i32) -> io::Result<File> {
    let path = format!("/proc/{tid}/mem");
    OpenOptions::new().read(true).write(true).open(path)
}
