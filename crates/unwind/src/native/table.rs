//! The machine code of a file's table, for walks.

use std::ops::Range;
use std::sync::Arc;

use self_cell::self_cell;
use unspool_compiled_table::ExecutableCode;
use unspool_elf::ElfFile;
use unspool_native_table::StepStatus;
use unspool_rows::{CodeAddr, LoadBias, Register, Registers, Row, RuntimeAddr, Vaddr};
use unspool_table_store as tables;

use super::{NativeCode, NativeFrame, NativeMemory};
use crate::modules::{Module, NativeStep, NativeTarget, NativeUnwinder, ReadNumber};

/// The machine code of a file's table, and what a walk must know about the file.
#[derive(Debug)]
pub(crate) struct NativeTable {
    code: NativeCode,
    module: ModuleCode,
    /// The program's entry code: its entry shows that it has no caller.
    entry: Option<Range<Vaddr>>,
}

self_cell!(
    /// The code of a file, as linked.
    struct ModuleCode {
        owner: Arc<ElfFile>,
        #[covariant]
        dependent: ExecutableCode,
    }

    impl {Debug}
);

impl NativeTable {
    /// `module` is the file's module without machine code.
    pub(crate) fn new(code: NativeCode, file: &Arc<ElfFile>, module: &Module<'_>) -> Self {
        let entry = module.entry.and_then(|entry| {
            let mut row = Row::new(Register(0));
            let found = module.entry_by_table(entry, &mut row).ok()?;
            (found.start == entry).then_some(found)
        });
        NativeTable {
            code,
            module: ModuleCode::new(Arc::clone(file), |file| tables::code(file)),
            entry,
        }
    }

    /// Whether a frame needs more than its row: at the program's entry, or at a possible return
    /// address of a signal handler.
    fn is_special(&self, code: CodeAddr, bias: LoadBias) -> bool {
        let lookup = bias.to_vaddr(code.lookup());
        if self
            .entry
            .as_ref()
            .is_some_and(|entry| entry.contains(&lookup))
        {
            return true;
        }
        let CodeAddr::Return(address) = code else {
            return false;
        };
        let address = bias.to_vaddr(address);
        let mut ranges = self.module.borrow_dependent().ranges.iter();
        let code = ranges.find_map(|(start, code)| {
            let offset = address.0.checked_sub(start.0)?;
            code.get(usize::try_from(offset).ok()?..)
        });
        let arch = self.module.borrow_owner().abi().arch;
        code.is_none_or(|code| arch.begins_trampoline(code))
    }
}

impl NativeUnwinder for NativeTable {
    fn step(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
        read: ReadNumber<'_>,
    ) -> Option<NativeStep> {
        if self.is_special(code, bias) {
            return None;
        }
        let mut memory = NativeMemory {
            stack: &[],
            read: |address, size| read(RuntimeAddr(address), u8::try_from(size).ok()?),
        };
        let mut frame = NativeFrame::from_registers(registers);
        let address = bias.to_vaddr(code.lookup());
        let target = match self.code.step(&mut frame, address, bias, &mut memory)? {
            StepStatus::Caller => NativeTarget::Caller,
            StepStatus::Interrupted => NativeTarget::Interrupted,
            StepStatus::Outermost => NativeTarget::Outermost,
            _ => return None,
        };
        Some(NativeStep {
            target,
            cfa: RuntimeAddr(frame.cfa),
            values: frame.values,
            known: frame.known,
        })
    }
}
