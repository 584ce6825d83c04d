//! An open event.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perf_event_open_sys::bindings as abi;

use crate::error::{OpenError, OpenRefusal};
use crate::event::PerfEvent;
use crate::record::SampleFormat;
use crate::sys;

/// The sampling rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleRate {
    /// Samples per second.
    Frequency(u64),
    /// Events per sample.
    Period(u64),
}

/// The target of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTarget {
    /// A thread, and optionally the threads and processes that it creates.
    Thread(u32),
    /// Everything that runs on the CPU.
    Everyone,
}

impl fmt::Display for EventTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventTarget::Thread(tid) => write!(f, "thread {tid}"),
            EventTarget::Everyone => f.write_str("all processes"),
        }
    }
}

/// An event to open, and the fields of its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventAttr {
    /// The event.
    pub event: PerfEvent,
    /// The sampling rate.
    pub rate: SampleRate,
    /// The user registers in a sample: [`crate::user_mask`].
    pub user_registers: u64,
    /// The size of the stack copy in a sample, in bytes: a multiple of 8, below 64 KiB; 0 for none.
    pub stack_bytes: u32,
    /// Whether kernel code is counted and kernel frames are recorded.
    pub with_kernel: bool,
    /// Whether the kernel walks the user stack by frame pointers.
    pub with_frame_pointers: bool,
    /// Whether threads and processes created later are counted too.
    pub inherits: bool,
    /// Whether counting starts only when the process calls `exec`.
    pub from_exec: bool,
    /// Whether mappings, names, forks and exits are recorded too: files with their build IDs, if
    /// the kernel knows them.
    pub with_tasks: bool,
    /// Whether context switches are recorded.
    pub with_switches: bool,
    /// The number of bytes of records after which a waiting reader is woken.
    pub wake_after: u32,
}

impl EventAttr {
    /// The fields of the records.
    #[must_use]
    pub fn layout(&self) -> SampleFormat {
        let attr = self.attributes();
        SampleFormat {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            user_registers: attr.sample_regs_user,
            interrupted_registers: attr.sample_regs_intr,
            has_sample_id: true,
            // On a kernel without build IDs the bit is not set.
            has_build_ids: attr.build_id() != 0,
        }
    }

    fn attributes(&self) -> abi::perf_event_attr {
        let mut attr = abi::perf_event_attr {
            type_: self.event.kind(),
            config: self.event.config(),
            sample_regs_user: self.user_registers,
            sample_stack_user: self.stack_bytes,
            clockid: libc::CLOCK_MONOTONIC,
            ..abi::perf_event_attr::default()
        };
        match self.rate {
            SampleRate::Frequency(frequency) => {
                attr.set_freq(1);
                attr.__bindgen_anon_1.sample_freq = frequency;
            }
            SampleRate::Period(period) => attr.__bindgen_anon_1.sample_period = period,
        }
        let has_chain = self.with_kernel || self.with_frame_pointers;
        let parts = [
            (abi::PERF_SAMPLE_IDENTIFIER, true),
            (abi::PERF_SAMPLE_IP, true),
            (abi::PERF_SAMPLE_TID, true),
            (abi::PERF_SAMPLE_TIME, true),
            (abi::PERF_SAMPLE_CPU, true),
            (abi::PERF_SAMPLE_PERIOD, true),
            (abi::PERF_SAMPLE_CALLCHAIN, has_chain),
            (abi::PERF_SAMPLE_REGS_USER, self.user_registers != 0),
            (abi::PERF_SAMPLE_STACK_USER, self.stack_bytes != 0),
        ];
        let there = parts.iter().filter(|(_, is_there)| *is_there);
        attr.sample_type = there.fold(0, |all, (part, _)| all | u64::from(*part));
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_disabled(1);
        attr.set_inherit(self.inherits.into());
        attr.set_enable_on_exec(self.from_exec.into());
        let modifiers = self.event.modifiers();
        let without_kernel = !self.with_kernel || modifiers.without_kernel;
        attr.set_exclude_kernel(without_kernel.into());
        attr.set_exclude_user(modifiers.without_user.into());
        attr.set_precise_ip(modifiers.precision.into());
        attr.set_exclude_hv(1);
        attr.set_exclude_callchain_user((!self.with_frame_pointers).into());
        attr.set_exclude_callchain_kernel((!self.with_kernel).into());
        attr.set_mmap(self.with_tasks.into());
        attr.set_mmap2(self.with_tasks.into());
        attr.set_build_id(self.with_tasks.into());
        attr.set_comm(self.with_tasks.into());
        attr.set_comm_exec(self.with_tasks.into());
        attr.set_task(self.with_tasks.into());
        attr.set_context_switch(self.with_switches.into());
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = self.wake_after;
        attr
    }
}

/// An open event, counted until this is dropped.
#[derive(Debug)]
pub struct Counter {
    file: OwnedFd,
}

impl Counter {
    /// Opens an event on one CPU, without counting it yet.
    pub fn open(attr: &EventAttr, target: EventTarget, cpu: u32) -> Result<Counter, OpenError> {
        let mut attributes = attr.attributes();
        let tid = match target {
            EventTarget::Thread(tid) => i32::try_from(tid).unwrap_or(i32::MAX),
            EventTarget::Everyone => -1,
        };
        let cpu = i32::try_from(cpu).unwrap_or(i32::MAX);
        let opened = match sys::open(&mut attributes, tid, cpu) {
            // Before Linux 5.12 the kernel does not report build IDs.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && attr.with_tasks => {
                attributes.set_build_id(0);
                sys::open(&mut attributes, tid, cpu)
            }
            opened => opened,
        };
        let file = opened.map_err(|error| {
            let rate = match attr.rate {
                SampleRate::Frequency(rate) => Some(rate),
                SampleRate::Period(_) => None,
            };
            OpenError {
                event: attr.event.clone(),
                target,
                reason: OpenRefusal::from_error(error, target, attr.with_kernel, rate),
            }
        })?;
        Ok(Counter { file })
    }

    /// Starts counting.
    pub fn enable(&self) -> io::Result<()> {
        sys::enable(self.file.as_fd())
    }

    /// Stops counting.
    pub fn disable(&self) -> io::Result<()> {
        sys::disable(self.file.as_fd())
    }

    /// What it has counted so far, with the counts of threads that inherited it.
    pub fn count(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        File::from(self.file.try_clone()?).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }

    /// Redirects its records to the ring of another event on the same CPU.
    pub fn write_to_ring_of(&self, other: &Counter) -> io::Result<()> {
        sys::redirect(self.file.as_fd(), other.file.as_fd())
    }

    /// The ID by which records refer to it.
    pub fn id(&self) -> io::Result<u64> {
        sys::id(self.file.as_fd())
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
