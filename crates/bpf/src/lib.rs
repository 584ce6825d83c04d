//! Assembles, loads and runs BPF programs, without a compiler.
//!
//! An [`Assembler`] makes [`Code`] from instructions ([`insn`]), labels and subprograms. A
//! [`Program`] is code that the kernel's verifier accepted. It runs once for a test, or at each
//! overflow of a performance event. Maps are memory that programs keep or share: [`Map`],
//! [`PercpuArray`], [`MapOfMaps`], [`Arena`], [`RingBuf`].
//!
//! ```no_run
//! use unspool_bpf::insn::{AluOp::*, Reg::*, Size::*};
//! use unspool_bpf::{Arena, Assembler, ProgType, Program};
//!
//! let arena = Arena::new(4096)?;
//! let mut asm = Assembler::new("count");
//! asm.ld_map_value(R1, &arena, 0);
//! asm.cast_kern(R1, R1);
//! asm.ldx(DW, R0, R1, 0);
//! asm.alu64(Add, R0, 1);
//! asm.st(DW, R1, 0, R0);
//! asm.exit();
//! let program = Program::load(&asm.finish()?, ProgType::RawTracepoint)?;
//! assert_eq!(program.test_run(&mut [])?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs declare the licence `Dual MIT/GPL`. Without it, the kernel refuses helpers that read
//! memory. `LICENSE` says what that means for this crate. Arenas and `may_goto` need Linux 6.9.
//! Only little-endian machines are supported.
//!
//! `ARCHITECTURE.md` (Decisions) says why this is not an existing library.
//!
//! Descriptors are closed at `exec`, and never pinned. The kernel frees programs and maps when the
//! process ends.

mod arena;
mod asm;
mod btf;
mod error;
mod helper;
pub mod insn;
mod map;
mod program;
mod ringbuf;
mod sys;

pub use arena::Arena;
pub use asm::{AsmError, Assembler, Code, Label, Subprog};
pub use btf::{KernelBtf, Kfunc};
pub use error::{LoadError, MapError};
pub use helper::Helper;
pub use map::{Map, MapOfMaps, MapType, PercpuArray};
pub use program::{Link, ProgType, Program, ProgramInfo, RunStats};
pub use ringbuf::RingBuf;
