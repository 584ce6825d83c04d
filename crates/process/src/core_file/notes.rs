//! The notes of a core file: threads, the signal, the mapped files (core(5), `elfcore.h`).

use unspool_rows::{Arch, Registers};

use super::{CoreProblem, ProcessInfo};
use crate::little_endian::{i32_at, u16_at, u32_at, u64_at};
use crate::note::{ElfNote, ElfNotes, TruncatedNote};
use crate::registers::{self, RegisterLayout};
use crate::{AuxVector, NoRegisters, Signal, Thread, ThreadState};

const NT_PRSTATUS: u32 = 1;
const NT_PRFPREG: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_ARM_SVE: u32 = 0x405;
const NT_ARM_PAC_MASK: u32 = 0x406;

/// `struct elf_prstatus`: `pr_cursig`, `pr_pid` and `pr_reg`, the same on both architectures.
const PRSTATUS_SIGNAL: usize = 12;
const PRSTATUS_PID: usize = 32;
const PRSTATUS_REGISTERS: usize = 112;
/// After the registers: `pr_fpvalid` and padding.
const PRSTATUS_TAIL: usize = 8;

/// `struct elf_prpsinfo`: 136 bytes; `pr_pid`, `pr_fname` (16 bytes), `pr_psargs` (80 bytes).
const PRPSINFO_SIZE: usize = 136;
const PRPSINFO_PID: usize = 24;
const PRPSINFO_NAME: usize = 40;
const PRPSINFO_ARGUMENTS: usize = 56;

/// The minimum size of a useful `siginfo_t`.
const MIN_SIGINFO_BYTES: usize = 24;

/// The limit of reported problems: a hostile file could have millions.
const MAX_PROBLEMS: usize = 1000;

/// A mapped file in the `NT_FILE` note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedFileNote {
    pub(super) start: u64,
    pub(super) end: u64,
    /// In bytes.
    pub(super) offset: u64,
    pub(super) name: Vec<u8>,
}

/// The contents of all notes.
#[derive(Debug, Default)]
pub(super) struct CoreNotes {
    pub(super) threads: Vec<Thread>,
    pub(super) signal: Option<Signal>,
    pub(super) process: Option<ProcessInfo>,
    pub(super) auxv: AuxVector,
    pub(super) files: Vec<MappedFileNote>,
    pub(super) pac_mask: u64,
    pub(super) problems: Vec<CoreProblem>,
}

impl CoreNotes {
    /// Reads the notes of one segment, which begins at file offset `base`.
    pub(super) fn read(&mut self, arch: Arch, base: u64, bytes: &[u8]) {
        let Some(layout) = registers::layout(arch) else {
            return;
        };
        for note in ElfNotes::new(bytes, 4) {
            let problem = match note {
                Ok(note) => self.take(layout, base, &note).err(),
                Err(TruncatedNote { offset, size, .. }) => Some(CoreProblem::CutNote {
                    offset: base.saturating_add(offset),
                    size,
                }),
            };
            let room = self.problems.len() < MAX_PROBLEMS;
            self.problems.extend(problem.filter(|_| room));
        }
    }

    fn take(
        &mut self,
        layout: &RegisterLayout,
        base: u64,
        note: &ElfNote<'_>,
    ) -> Result<(), CoreProblem> {
        let bad = |kind, expected| CoreProblem::BadNote {
            offset: base.saturating_add(note.offset),
            kind,
            found: note.desc.len(),
            expected,
        };
        match (note.name, note.kind) {
            (b"CORE", NT_PRSTATUS) => {
                let expected = PRSTATUS_REGISTERS + layout.size + PRSTATUS_TAIL;
                let complete = self.take_thread(layout, expected, note.desc);
                complete.ok_or(bad("NT_PRSTATUS", expected))
            }
            (b"CORE", NT_PRFPREG) => {
                if let Some(registers) = self.last_registers() {
                    layout.decode_vectors(note.desc, registers);
                }
                Ok(())
            }
            (b"LINUX", NT_ARM_SVE) if layout.has_scalable_vectors => {
                if let Some(registers) = self.last_registers() {
                    layout.decode_scalable_vectors(note.desc, registers);
                }
                Ok(())
            }
            (b"CORE", NT_PRPSINFO) => {
                self.process = process_info(note.desc).or(self.process.take());
                let complete = note.desc.len() == PRPSINFO_SIZE;
                complete
                    .then_some(())
                    .ok_or(bad("NT_PRPSINFO", PRPSINFO_SIZE))
            }
            (b"CORE", NT_SIGINFO) => self
                .take_siginfo(note.desc)
                .ok_or(bad("NT_SIGINFO", MIN_SIGINFO_BYTES)),
            (b"CORE", NT_AUXV) => {
                self.auxv = AuxVector::parse(note.desc);
                Ok(())
            }
            (b"CORE", NT_FILE) => {
                let (files, needed) = files(note.desc);
                self.files.extend(files);
                needed.map_or(Ok(()), |needed| Err(bad("NT_FILE", needed)))
            }
            (b"LINUX", NT_ARM_PAC_MASK) if layout.has_pac_mask => {
                self.pac_mask = u64_at(note.desc, 8).ok_or(bad("NT_ARM_PAC_MASK", 16))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The registers of the last thread, which a note of vector registers follows.
    fn last_registers(&mut self) -> Option<&mut Registers> {
        self.threads.last_mut()?.registers.as_mut().ok()
    }

    /// Adds a thread if its id can be read; `None` if the note does not have the right size.
    fn take_thread(&mut self, layout: &RegisterLayout, expected: usize, desc: &[u8]) -> Option<()> {
        let tid = u32_at(desc, PRSTATUS_PID)?;
        let registers_end = PRSTATUS_REGISTERS.checked_add(layout.size)?;
        let block = desc
            .get(PRSTATUS_REGISTERS..registers_end)
            .filter(|_| desc.len() == expected);
        let decoded = block.and_then(|block| layout.decode(block));
        let found = desc
            .len()
            .saturating_sub(PRSTATUS_REGISTERS + PRSTATUS_TAIL);
        let wrong_size = NoRegisters::Size {
            found,
            expected: layout.size,
        };
        if self.threads.is_empty() {
            self.signal = current_signal(tid, desc);
        }
        self.threads.push(Thread {
            tid,
            name: None,
            state: ThreadState::Recorded,
            syscall: decoded.and_then(|decoded| decoded.syscall),
            registers: decoded.map(|decoded| decoded.registers).ok_or(wrong_size),
        });
        decoded.map(drop)
    }

    /// The note follows its thread's; the first one is the fatal signal's.
    fn take_siginfo(&mut self, desc: &[u8]) -> Option<()> {
        let tid = self.threads.last().map_or(0, |thread| thread.tid);
        let signal = Signal::parse(tid, desc)?;
        if self.threads.len() <= 1 && signal.number != 0 {
            self.signal = Some(signal);
        }
        Some(())
    }

    /// Gives the first thread its name in `NT_PRPSINFO`.
    pub(super) fn name_first_thread(&mut self) {
        if let Some(process) = &self.process {
            let first = self
                .threads
                .iter_mut()
                .find(|thread| thread.tid == process.pid);
            if let Some(thread) = first {
                thread.name = Some(process.name.clone());
            }
        }
    }
}

/// The signal in `pr_cursig`, for cores without `NT_SIGINFO`.
fn current_signal(tid: u32, prstatus: &[u8]) -> Option<Signal> {
    let number = i32::from(u16_at(prstatus, PRSTATUS_SIGNAL)?);
    let code = i32_at(prstatus, 4)?;
    let signal = Signal {
        tid,
        number,
        code,
        address: None,
        sender: None,
    };
    (number != 0).then_some(signal)
}

fn process_info(desc: &[u8]) -> Option<ProcessInfo> {
    Some(ProcessInfo {
        pid: u32_at(desc, PRPSINFO_PID)?,
        name: text(desc.get(PRPSINFO_NAME..PRPSINFO_ARGUMENTS)?),
        arguments: text(desc.get(PRPSINFO_ARGUMENTS..PRPSINFO_SIZE)?)
            .trim_end()
            .into(),
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

/// The entries of `NT_FILE`: a count, the page size, then start, end and offset in pages of each,
/// then the names, each with a final zero. If the note is too short for its count, yields the
/// complete entries and the minimum size in bytes that the note should have.
fn files(desc: &[u8]) -> (Vec<MappedFileNote>, Option<usize>) {
    let (Some(count), Some(page_size)) = (u64_at(desc, 0), u64_at(desc, 8)) else {
        return (Vec::new(), Some(16));
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let names_at = count.saturating_mul(24).saturating_add(16);
    let needed = names_at.saturating_add(count);
    let Some((entries, names)) = desc.split_at_checked(names_at) else {
        return (Vec::new(), Some(needed));
    };
    let entries = entries.get(16..).unwrap_or(&[]).chunks_exact(24);
    let files: Vec<MappedFileNote> = entries
        .zip(names.split_inclusive(|byte| *byte == 0))
        .map_while(|(entry, name)| file(entry, page_size, name))
        .collect();
    let missing = (files.len() < count).then_some(needed);
    (files, missing)
}

fn file(entry: &[u8], page_size: u64, name: &[u8]) -> Option<MappedFileNote> {
    Some(MappedFileNote {
        start: u64_at(entry, 0)?,
        end: u64_at(entry, 8)?,
        offset: u64_at(entry, 16)?.saturating_mul(page_size),
        name: name.strip_suffix(&[0])?.to_vec(),
    })
}
