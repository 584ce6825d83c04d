//! Unwind tables as machine code that walks run on: made, and opened.

use self_cell::self_cell;
use unspool_elf::{ElfFile, TableKey};
use unspool_native_table::proof::{ProofFailure, prove};
use unspool_native_table::{
    ModuleKey, NativeError, ObjectError, ObjectView, Outline, OutlineError, object,
};
use unspool_rows::{Table, Vaddr};

use crate::compile::id_bytes;
use crate::source::{self, SourceError, TableSource};

self_cell!(
    /// The bytes of an object, and what they are.
    struct OwnedObject {
        owner: Vec<u8>,
        #[covariant]
        dependent: ObjectView,
    }

    impl {Debug}
);

/// An object whose code this process may run: it has made it and proven it by reading the code, or has found it where
/// only its user and root can write ([`Store`](crate::Store)), and put such objects.
#[derive(Debug)]
pub struct NativeObject(OwnedObject);

/// Why a file's table cannot be made into machine code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeTableError {
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
    Unproven(Vaddr, ProofFailure),
}

impl NativeObject {
    /// Makes the object of a file's table, and proves it.
    ///
    /// # Errors
    ///
    /// [`NativeTableError`].
    pub fn from_file(file: &ElfFile, key: &TableKey) -> Result<NativeObject, NativeTableError> {
        let reading = source::read(file, TableSource::Auto)?;
        NativeObject::from_table(&reading.table, key)
    }

    /// Makes the object of the table of the module with this key, and proves it.
    ///
    /// # Errors
    ///
    /// [`NativeTableError`].
    pub fn from_table(table: &Table, key: &TableKey) -> Result<NativeObject, NativeTableError> {
        let bytes = object(&Outline::from_table(table)?, native_key(key))?;
        let made = NativeObject::parse(bytes)?;
        let proof = prove(made.object(), table)?;
        match proof.unproven.first() {
            Some((at, unproven)) => Err(NativeTableError::Unproven(*at, *unproven)),
            None => Ok(made),
        }
    }

    /// Takes bytes that nobody else could have written: whoever calls this has seen to that. They must be an object as
    /// [`object`] writes them, unchanged; `None` if it is that of another module.
    pub(crate) fn trusted(
        bytes: Vec<u8>,
        key: &TableKey,
    ) -> Result<Option<NativeObject>, ObjectError> {
        let found = NativeObject::parse(bytes)?;
        let is_of = found.object().key() == Some(native_key(key));
        Ok(is_of.then_some(found))
    }

    fn parse(bytes: Vec<u8>) -> Result<NativeObject, ObjectError> {
        OwnedObject::try_new(bytes, |bytes| ObjectView::parse(bytes)).map(NativeObject)
    }

    /// What its bytes say.
    #[must_use]
    pub fn object(&self) -> &ObjectView<'_> {
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
pub fn native_key(key: &TableKey) -> ModuleKey<'_> {
    ModuleKey {
        build_id: id_bytes(key),
        content: &key.content,
    }
}
