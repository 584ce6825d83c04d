//! Unwind tables as machine code that walks run on: made, and opened.

use std::ops::Range;
use std::sync::Arc;

use self_cell::self_cell;
use unspool_compact::Code;
use unspool_ir::{CodeAddr, LoadBias, Register, Registers, Row, RuntimeAddr, Table, Vaddr};
use unspool_module::{ElfFile, TableKey};
use unspool_native::proof::{Unproven, prove};
use unspool_native::{
    Key, NativeError, Object, ObjectError, Outline, OutlineError, Status, object,
};

use super::compile::{self, id_bytes};
use super::source::{self, From, SourceError};
use crate::arch;
use crate::modules::{Module, Native, NativeStep, NativeTarget, ReadNumber};
use crate::native::{NativeCode, NativeFrame, NativeMemory};

self_cell!(
    /// The bytes of an object, and what they are.
    struct Parsed {
        owner: Vec<u8>,
        #[covariant]
        dependent: Object,
    }

    impl {Debug}
);

/// An object whose code this process may run: it has made it and proven it by reading the code, or has found it where
/// only its user and root can write ([`Store`](super::Store)), and put such objects.
#[derive(Debug)]
pub struct NativeObject(Parsed);

/// Why a file's table cannot be made into machine code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// There is no table to read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is not one that code can be made for.
    #[error(transparent)]
    Outline(#[from] OutlineError),
    /// The object cannot be written.
    #[error(transparent)]
    Write(#[from] NativeError),
    /// What was made is no object.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// What was made is not proven to be right.
    #[error("{0}: its machine code is not proven: {1}; this is a bug in unspool, please report it")]
    Unproven(Vaddr, Unproven),
}

impl NativeObject {
    /// Makes the object of a file's table, and proves it.
    ///
    /// # Errors
    ///
    /// [`MakeError`].
    pub fn make(file: &ElfFile, key: &TableKey) -> Result<NativeObject, MakeError> {
        let reading = source::read(file, From::Auto)?;
        NativeObject::of(&reading.table, key)
    }

    /// Makes the object of the table of the module with this key, and proves it.
    ///
    /// # Errors
    ///
    /// [`MakeError`].
    pub fn of(table: &Table, key: &TableKey) -> Result<NativeObject, MakeError> {
        let bytes = object(&Outline::of(table)?, native_key(key))?;
        let made = NativeObject::parse(bytes)?;
        let proof = prove(made.object(), table)?;
        match proof.unproven.first() {
            Some((at, unproven)) => Err(MakeError::Unproven(*at, *unproven)),
            None => Ok(made),
        }
    }

    /// Takes bytes that nobody else could have written: whoever calls this has seen to that. They must be an object as
    /// [`object`] writes them, unchanged; `None` if it is that of another module.
    pub(super) fn trusted(
        bytes: Vec<u8>,
        key: &TableKey,
    ) -> Result<Option<NativeObject>, ObjectError> {
        let found = NativeObject::parse(bytes)?;
        let is_of = found.object().key() == Some(native_key(key));
        Ok(is_of.then_some(found))
    }

    fn parse(bytes: Vec<u8>) -> Result<NativeObject, ObjectError> {
        Parsed::try_new(bytes, |bytes| Object::parse(bytes)).map(NativeObject)
    }

    pub(crate) fn object(&self) -> &Object<'_> {
        self.0.borrow_dependent()
    }

    /// Its bytes, an ELF file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.borrow_owner()
    }
}

/// A file's key as objects have it.
#[must_use]
pub fn native_key(key: &TableKey) -> Key<'_> {
    Key {
        build_id: id_bytes(key),
        content: &key.content,
    }
}

/// The machine code of a file's table, and what a walk must know of the file beside.
#[derive(Debug)]
pub(super) struct NativeTable {
    code: NativeCode,
    module: ModuleCode,
    /// Where the program begins: that nothing calls this code, its entry says.
    entry: Option<Range<Vaddr>>,
}

self_cell!(
    /// The code of a file, as it was linked.
    struct ModuleCode {
        owner: Arc<ElfFile>,
        #[covariant]
        dependent: Code,
    }

    impl {Debug}
);

impl NativeTable {
    /// `module` is the file as it is walked without machine code.
    pub(super) fn new(code: NativeCode, file: &Arc<ElfFile>, module: &Module<'_>) -> Self {
        let entry = module.entry.and_then(|entry| {
            let mut row = Row::new(Register(0));
            let found = module.entry_by_table(entry, &mut row).ok()?;
            (found.start == entry).then_some(found)
        });
        NativeTable {
            code,
            module: ModuleCode::new(Arc::clone(file), |file| compile::code(file)),
            entry,
        }
    }

    /// Whether a frame needs more than its row: that of the program's entry, and one that a signal handler may return to.
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
        code.is_none_or(|code| arch::begins_trampoline(arch, code))
    }
}

impl Native for NativeTable {
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
        let mut frame = NativeFrame::of(registers);
        let address = bias.to_vaddr(code.lookup());
        let to = match self.code.step(&mut frame, address, bias, &mut memory)? {
            Status::Caller => NativeTarget::Caller,
            Status::Interrupted => NativeTarget::Interrupted,
            Status::Outermost => NativeTarget::Outermost,
            _ => return None,
        };
        Some(NativeStep {
            to,
            cfa: RuntimeAddr(frame.cfa),
            values: frame.values,
            known: frame.known,
        })
    }
}
