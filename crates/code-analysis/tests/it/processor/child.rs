//! A process that executes single instructions.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Stdio};

use libc::pid_t;
use unspool_testing::command;

use crate::processor::sys::{self, UserRegs};

/// Address of its stack. Addresses of 32 bits do not reach it.
pub(crate) const STACK: u64 = 0x1000_0000_0000;
pub(crate) const STACK_BYTES: usize = 1 << 16;

/// Address of the memory that the segments `fs` and `gs` have where the stack is.
const SEGMENT: u64 = 0x3000_0000_0000;

/// The base of these segments.
pub(crate) const SEGMENT_BASE: u64 = SEGMENT - STACK;

/// Address of the executed instruction.
pub(crate) const CODE: u64 = 0x2000_0000_0800;
const CODE_PAGE: u64 = CODE & !0xfff;

/// How an instruction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepEnd {
    /// It was executed.
    Done,
    /// The processor, or its system, does not have the instruction.
    Unknown,
    /// It raised another signal.
    Signal(i32),
}

/// A processor's state, restricted to what the analysis models.
pub(crate) struct ProcessorState {
    pub(crate) registers: UserRegs,
    pub(crate) stack: Vec<u8>,
    pub(crate) extended: Vec<u8>,
}

/// The process.
pub(crate) struct TraceeProcess {
    child: Child,
    memory: File,
    /// Its registers when it was ready.
    pub(crate) registers: UserRegs,
    pub(crate) extended: Vec<u8>,
}

impl Drop for TraceeProcess {
    fn drop(&mut self) {
        // It may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Input of `ldtilecfg`: 8 tiles of 16 rows of 64 bytes.
fn tiles() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    for tile in 0..8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = 16;
    }
    bytes
}

impl TraceeProcess {
    /// Starts a process that may use all of the processor.
    pub(crate) fn start() -> io::Result<TraceeProcess> {
        let mut command = command("/bin/true");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .env_clear();
        sys::trace(&mut command);
        let child = command.spawn()?;
        let pid = pid_t::try_from(child.id()).map_err(io::Error::other)?;
        sys::wait(pid)?;
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        let registers = sys::registers(pid)?;
        let mut traced = TraceeProcess {
            child,
            memory,
            registers,
            extended: Vec::new(),
        };
        let stack_bytes = STACK_BYTES as u64;
        for (at, bytes) in [
            (STACK, stack_bytes),
            (SEGMENT, stack_bytes),
            (CODE_PAGE, 0x2000),
        ] {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let [flags, rights] = [flags, rights].map(i32::cast_unsigned).map(u64::from);
            let mapped = traced.call(libc::SYS_mmap, [at, bytes, rights, flags, u64::MAX, 0])?;
            assert_eq!(mapped, at, "mmap");
        }
        // ARCH_REQ_XCOMP_PERM for tile state; fails on a processor without tiles.
        const REQUEST: u64 = 0x1023;
        let has_tiles = traced.call(libc::SYS_arch_prctl, [REQUEST, 18, 0, 0, 0, 0])? == 0;
        if has_tiles {
            traced.memory.write_all_at(&tiles(), STACK)?;
            let mut registers = traced.registers;
            registers.rax = STACK;
            traced.registers = registers;
            // ldtilecfg (%rax)
            let ended = traced.run_at(&registers, &[0xc4, 0xe2, 0x78, 0x49, 0x00])?;
            assert_eq!(ended, libc::SIGTRAP, "ldtilecfg");
        }
        traced.extended = sys::extended_state(traced.pid())?;
        Ok(traced)
    }

    fn pid(&self) -> pid_t {
        pid_t::try_from(self.child.id()).unwrap_or(0)
    }

    fn run_at(&mut self, registers: &UserRegs, insn: &[u8]) -> io::Result<i32> {
        let at = if self.extended.is_empty() {
            registers.rip
        } else {
            CODE
        };
        self.memory.write_all_at(insn, at)?;
        let registers = UserRegs {
            rip: at,
            ..*registers
        };
        sys::set_registers(self.pid(), &registers)?;
        sys::step(self.pid())
    }

    /// Makes it execute a system call.
    fn call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = UserRegs {
            rax: number.cast_unsigned(),
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        self.run_at(&registers, &[0x0f, 0x05])?;
        Ok(sys::registers(self.pid())?.rax)
    }

    /// Executes an instruction from a state, with all its repetitions. Returns the resulting state.
    pub(crate) fn execute(
        &mut self,
        insn: &[u8],
        from: &mut ProcessorState,
    ) -> (StepEnd, ProcessorState) {
        let executed = self.try_execute(insn, from);
        executed.unwrap_or_else(|error| panic!("{}: {error}", super::hexadecimal(insn)))
    }

    fn try_execute(
        &mut self,
        insn: &[u8],
        from: &mut ProcessorState,
    ) -> io::Result<(StepEnd, ProcessorState)> {
        /// More than the repetitions in any test.
        const MAX_REPETITIONS: usize = 64;
        let pid = self.pid();
        let mut code = [0x90; 64];
        code[..insn.len()].copy_from_slice(insn);
        self.memory.write_all_at(&code, CODE)?;
        self.memory.write_all_at(&from.stack, STACK)?;
        sys::set_extended_state(pid, &mut from.extended)?;
        sys::set_registers(pid, &from.registers)?;
        let mut end = StepEnd::Done;
        let mut registers = from.registers;
        for _ in 0..MAX_REPETITIONS {
            end = match sys::step(pid)? {
                libc::SIGTRAP => StepEnd::Done,
                libc::SIGILL => StepEnd::Unknown,
                signal => StepEnd::Signal(signal),
            };
            registers = sys::registers(pid)?;
            if end != StepEnd::Done || registers.rip != CODE {
                break;
            }
        }
        let mut stack = vec![0; STACK_BYTES];
        self.memory.read_exact_at(&mut stack, STACK)?;
        let extended = sys::extended_state(pid)?;
        Ok((
            end,
            ProcessorState {
                registers,
                stack,
                extended,
            },
        ))
    }
}
