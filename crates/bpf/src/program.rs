//! Programs: loading, test runs, and attachment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::asm::Code;
use crate::btf;
use crate::error::LoadError;
use crate::sys::{self, ProgDef};

/// `BPF_F_SLEEPABLE`
const SLEEPABLE: u32 = 1 << 4;
/// The size of the buffer for the verifier's log. Linux 6.4 and later keep a log's end.
const LOG_BYTES: usize = 1 << 20;

/// The type of a program: where it runs, and its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgType {
    /// Runs at a performance event's overflow. Context: `struct bpf_perf_event_data`.
    PerfEvent,
    /// Runs at a tracepoint, and in [`Program::test_run`]. Context: its arguments, 8 bytes each.
    RawTracepoint,
    /// Runs only in [`Program::test_run`], and may sleep. Context: any bytes, writable.
    Syscall,
}

impl ProgType {
    /// The number in `enum bpf_prog_type`, and flags.
    fn parts(self) -> (u32, u32) {
        match self {
            ProgType::PerfEvent => (7, 0),
            ProgType::RawTracepoint => (17, 0),
            ProgType::Syscall => (31, SLEEPABLE),
        }
    }
}

/// A program in the kernel. It is unloaded when this and its [`Link`]s are dropped.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Verifies and loads code, with its functions' types.
    ///
    /// # Errors
    ///
    /// The kernel refuses the program. The error has the verifier's log.
    pub fn load(code: &Code<'_>, prog_type: ProgType) -> Result<Program, LoadError> {
        let name = code.name().to_owned();
        let types = btf::func_types(code.funcs());
        let btf = match sys::btf_load(&types.btf) {
            Ok(btf) => btf,
            Err(error) => return Err(LoadError::Btf { name, error }),
        };
        let (prog_type, flags) = prog_type.parts();
        let insns = code.bytes();
        let def = ProgDef {
            prog_type,
            flags,
            name: sys::name(&name),
            insns: &insns,
            btf: btf.as_fd(),
            func_info: &types.func_info,
        };
        match sys::prog_load(&def, &mut []) {
            Ok(fd) => Ok(Program { fd }),
            Err(error) => Err(LoadError::Prog {
                name,
                error,
                log: verifier_log(&def),
            }),
        }
    }

    /// Runs the program once, and returns its result. Programs of type [`ProgType::Syscall`] can
    /// change `ctx`.
    ///
    /// # Errors
    ///
    /// The program reads beyond `ctx`, or is of type [`ProgType::PerfEvent`] (`ENOTSUPP`, 524).
    pub fn test_run(&self, ctx: &mut [u8]) -> io::Result<u32> {
        sys::prog_test_run(self.fd.as_fd(), ctx)
    }

    /// Attaches the program to a performance event. It then runs at each overflow. If it returns 0,
    /// the kernel writes no sample.
    ///
    /// # Errors
    ///
    /// The program is not of type [`ProgType::PerfEvent`], or the event already has a program.
    pub fn attach(&self, event: impl AsFd, cookie: u64) -> io::Result<Link> {
        let fd = sys::link_perf_event(self.fd.as_fd(), event.as_fd(), cookie)?;
        Ok(Link { _fd: fd })
    }

    /// Reads the kernel's information on the program.
    ///
    /// # Errors
    ///
    /// Linux before 5.16 does not have all of it.
    pub fn info(&self) -> io::Result<ProgramInfo> {
        let info = sys::prog_info(self.fd.as_fd())?;
        Ok(ProgramInfo {
            id: info.id,
            btf_id: info.btf_id,
            jited_bytes: info.jited_prog_len,
            verified_insns: info.verified_insns,
            run_count: info.run_cnt,
            run_time_ns: info.run_time_ns,
        })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The verifier's log of a program that was refused.
fn verifier_log(def: &ProgDef<'_>) -> String {
    let mut log = vec![0; LOG_BYTES];
    // The result does not matter: the program was refused before.
    let _ = sys::prog_load(def, &mut log);
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The attachment of a program to a performance event. Dropping it detaches the program.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

/// The kernel's information on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramInfo {
    /// The program's ID, for `bpftool prog`.
    pub id: u32,
    /// The ID of its types, for `bpftool btf`.
    pub btf_id: u32,
    /// The size of its machine code. 0 if it is interpreted (`net.core.bpf_jit_enable`).
    pub jited_bytes: u32,
    /// The number of instructions that the verifier processed, repetitions included.
    pub verified_insns: u32,
    /// The number of its runs while [`RunStats`] were enabled.
    pub run_count: u64,
    /// The total time of these runs.
    pub run_time_ns: u64,
}

/// Statistics on the runs of all programs. The kernel collects them until this is dropped.
#[derive(Debug)]
pub struct RunStats {
    _fd: OwnedFd,
}

impl RunStats {
    /// Enables the statistics.
    ///
    /// # Errors
    ///
    /// The process does not have `CAP_SYS_ADMIN`.
    pub fn enable() -> io::Result<RunStats> {
        Ok(RunStats {
            _fd: sys::enable_stats()?,
        })
    }
}
