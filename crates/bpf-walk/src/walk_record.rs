//! The record of a complete walk in the ring.
//!
//! ```text
//! 0   the time of the sample, as perf has it, in nanoseconds
//! 8   the process' ID, 4 bytes
//! 12  the thread's ID, 4 bytes
//! 16  the sample's period
//! 24  the generation of the process' mappings, 4 bytes
//! 28  the processor, 4 bytes
//! 32  the number of words below that are of the kernel's call chain, 2 bytes
//! 34  the number of all words below, 2 bytes
//! 36  the number of the trigger, 4 bytes
//! 40  code addresses, 8 bytes each, the innermost one first
//! ```
//!
//! All numbers are little-endian. An address of the process is that of an instruction if it is the
//! innermost, or has bit 63; else it is a return address.

use unspool_rows::{CodeAddr, RuntimeAddr};

pub(crate) const TIME: i16 = 0;
pub(crate) const PID: i16 = 8;
pub(crate) const TID: i16 = 12;
pub(crate) const PERIOD: i16 = 16;
pub(crate) const GENERATION: i16 = 24;
pub(crate) const CPU: i16 = 28;
pub(crate) const KERNEL_FRAMES: i16 = 32;
pub(crate) const ALL_FRAMES: i16 = 34;
pub(crate) const TRIGGER: i16 = 36;
pub(crate) const HEADER_BYTES: i16 = 40;

/// The bit of an address of the process whose instruction a signal interrupted.
pub(crate) const IS_INSTRUCTION: u64 = 1 << 63;

/// The most frames of a walk, the kernel's included.
pub const MAX_FRAMES: u16 = 1024;

/// When a program walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkTrigger {
    /// At a sample of a running thread.
    Sample,
    /// When a thread stops running.
    SwitchOut,
}

impl WalkTrigger {
    const ALL: [WalkTrigger; 2] = [WalkTrigger::Sample, WalkTrigger::SwitchOut];
}

/// The record of a complete walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkRecord<'r> {
    /// When the program walked.
    pub trigger: WalkTrigger,
    /// The time of the sample, in nanoseconds of the event's clock.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The sample's period.
    pub period: u64,
    /// The generation of the mappings that the walk used.
    pub generation: u32,
    /// The processor.
    pub cpu: u32,
    kernel: &'r [u8],
    user: &'r [u8],
}

impl<'r> WalkRecord<'r> {
    /// Reads a record; `None` if it is malformed.
    #[must_use]
    pub fn parse(bytes: &'r [u8]) -> Option<WalkRecord<'r>> {
        let half = |at: i16| {
            let bytes = bytes.get(usize::try_from(at).ok()?..)?;
            Some(u16::from_le_bytes(*bytes.first_chunk()?))
        };
        let number = |at: i16| {
            let bytes = bytes.get(usize::try_from(at).ok()?..)?;
            Some(u32::from_le_bytes(*bytes.first_chunk()?))
        };
        let word = |at: i16| Some(u64::from(number(at + 4)?) << 32 | u64::from(number(at)?));
        let frames = bytes.get(usize::try_from(HEADER_BYTES).ok()?..)?;
        let frames = frames.get(..usize::from(half(ALL_FRAMES)?) * 8)?;
        let (kernel, user) = frames.split_at_checked(usize::from(half(KERNEL_FRAMES)?) * 8)?;
        let trigger = usize::try_from(number(TRIGGER)?).ok()?;
        Some(WalkRecord {
            trigger: *WalkTrigger::ALL.get(trigger)?,
            time: word(TIME)?,
            pid: number(PID)?,
            tid: number(TID)?,
            period: word(PERIOD)?,
            generation: number(GENERATION)?,
            cpu: number(CPU)?,
            kernel,
            user,
        })
    }

    /// The kernel's frames, the innermost one first.
    pub fn kernel_frames(&self) -> impl Iterator<Item = RuntimeAddr> + use<'r> {
        /// `PERF_CONTEXT_MAX`: words from here on say where the next addresses are.
        const FIRST_CONTEXT: u64 = 4095_u64.wrapping_neg();
        words(self.kernel)
            .filter(|word| *word < FIRST_CONTEXT)
            .map(RuntimeAddr)
    }

    /// The process' frames, the innermost one first.
    pub fn user_frames(&self) -> impl Iterator<Item = CodeAddr> + use<'r> {
        words(self.user).enumerate().map(|(number, word)| {
            let address = RuntimeAddr(word & !IS_INSTRUCTION);
            if number == 0 || word & IS_INSTRUCTION != 0 {
                CodeAddr::Instruction(address)
            } else {
                CodeAddr::Return(address)
            }
        })
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| u64::from_le_bytes(*word))
}
