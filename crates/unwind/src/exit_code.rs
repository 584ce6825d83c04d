//! Code that shows the callers of its frames by its exit paths: of files, and of memory without a
//! file.

use core::fmt;
use std::sync::{Mutex, PoisonError};

use unspool_compiled_table::CompiledTable;
use unspool_elf::ElfFile;
use unspool_rows::{Abi, CodeAddr, LoadBias, Memory, Registers, Row, Vaddr};
use unspool_synthesis::{ExitRows, RemainingCode};

use crate::modules::{Module, SynthesizedRows};

/// Rows by exit paths, for walks of any threads. None if the architecture is not supported.
#[derive(Debug)]
pub(crate) struct SharedExitRows(Mutex<Option<ExitRows>>);

impl SharedExitRows {
    pub(crate) fn new(abi: Abi, max_path_insns: usize) -> Self {
        SharedExitRows(Mutex::new(ExitRows::new(abi, max_path_insns)))
    }

    /// The row of a frame by its exit path.
    pub(crate) fn row(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
        text: &impl RemainingCode,
    ) -> Option<Row<'static>> {
        let address = bias.to_vaddr(code.address());
        // A panic while they were changed leaves them usable.
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.as_mut()?.row(code, address, registers, text).copied()
    }

    fn forget(&self) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter_mut().for_each(ExitRows::forget);
    }
}

/// A file's code.
pub(crate) struct FileCode<'f> {
    file: &'f ElfFile,
    module: Module<'f>,
}

impl<'f> FileCode<'f> {
    /// `module` has the file's tables, without a bias.
    pub(crate) fn new(file: &'f ElfFile, module: Module<'f>) -> Self {
        FileCode { file, module }
    }
}

impl RemainingCode for FileCode<'_> {
    fn read(&self, address: Vaddr, into: &mut [u8]) -> usize {
        let mut segments = self.file.segments().filter(|segment| segment.executable);
        let is_code = segments.any(|segment| segment.range().contains(&address));
        let rest = self.file.rest_at(address).filter(|_| is_code);
        let copied = rest.unwrap_or_default().iter().zip(into);
        copied.map(|(from, to)| *to = *from).count()
    }

    fn row<'r>(&'r self, address: Vaddr, row: &mut Row<'r>) -> bool {
        self.module.row(address, row).is_ok()
    }
}

/// Code in memory without a file, such as trampolines made at run time.
pub struct AnonymousCode<M> {
    memory: M,
    exit_rows: SharedExitRows,
}

impl<M: Memory> AnonymousCode<M> {
    /// Code in a thread's memory, read when a walk first reaches it, and again after
    /// [`AnonymousCode::forget_rows`].
    #[must_use]
    pub fn new(memory: M, abi: Abi) -> Self {
        AnonymousCode {
            memory,
            exit_rows: SharedExitRows::new(abi, ExitRows::MAX_STUB_INSNS),
        }
    }

    /// Forgets all rows, since programs overwrite such code in place.
    pub fn forget_rows(&self) {
        self.exit_rows.forget();
    }
}

impl<M> fmt::Debug for AnonymousCode<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("AnonymousCode");
        out.field("exit_rows", &self.exit_rows);
        out.finish_non_exhaustive()
    }
}

impl<M: Memory> SynthesizedRows for AnonymousCode<M> {
    fn rows(&self) -> Option<&CompiledTable<'_>> {
        None
    }

    fn is_pending(&self) -> bool {
        false
    }

    fn exit_row(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
    ) -> Option<Row<'static>> {
        let text = MemoryCode {
            memory: &self.memory,
            bias,
        };
        self.exit_rows.row(code, bias, registers, &text)
    }
}

/// Code in memory.
struct MemoryCode<'m, M> {
    memory: &'m M,
    bias: LoadBias,
}

impl<M: Memory> RemainingCode for MemoryCode<'_, M> {
    fn read(&self, address: Vaddr, into: &mut [u8]) -> usize {
        let address = self.bias.to_runtime(address);
        // Code may end before the longest instruction would.
        let mut lengths = (1..=into.len()).rev();
        let read = lengths.find(|length| {
            let into = into.get_mut(..*length).unwrap_or_default();
            self.memory.read(address, into).is_ok()
        });
        read.unwrap_or(0)
    }

    fn row<'r>(&'r self, _: Vaddr, _: &mut Row<'r>) -> bool {
        false
    }
}
