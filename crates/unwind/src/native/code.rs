//! Machine code of a table that walks run on.

use std::fmt;
use std::io;

use unspool_ir::{CodeAddr, LoadBias, Registers, RuntimeAddr};
use unspool_native::Status;

use super::{NativeFrame, NativeMemory, sys};
use crate::modules::{NativeStep, NativeTarget, ReadNumber};
use crate::tables::NativeObject;

/// Machine code of a table, mapped.
pub(crate) struct NativeCode {
    map: sys::Map,
    entry: u64,
}

impl fmt::Debug for NativeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeCode").finish_non_exhaustive()
    }
}

impl NativeCode {
    /// Maps the code of an object: the bytes that were looked at, not their file once more. Nothing is ever
    /// writable and executable.
    pub(crate) fn map(object: &NativeObject) -> io::Result<NativeCode> {
        let object = object.object();
        Ok(NativeCode {
            map: sys::Map::new(&object.mapped())?,
            entry: object.entry(),
        })
    }

    /// Steps from a frame; `None` where there is no caller, or only the interpreter can say.
    pub(crate) fn step(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
        read: ReadNumber<'_>,
    ) -> Option<NativeStep> {
        let read = |address, size| read(RuntimeAddr(address), u8::try_from(size).ok()?);
        let memory = NativeMemory {
            stack: &[],
            read: &read,
        };
        let mut frame = NativeFrame::of(registers);
        let address = bias.to_vaddr(code.lookup()).0;
        let status = self
            .map
            .step(self.entry, &mut frame, address, bias.0, &memory);
        let targets = [
            (Status::Caller, NativeTarget::Caller),
            (Status::Interrupted, NativeTarget::Interrupted),
            (Status::Outermost, NativeTarget::Outermost),
        ];
        let mut targets = targets.into_iter();
        let (_, to) = targets.find(|(expected, _)| expected.number() == status)?;
        Some(NativeStep {
            to,
            cfa: RuntimeAddr(frame.cfa),
            values: frame.registers,
            known: frame.known,
        })
    }
}
