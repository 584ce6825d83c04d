//! Unwind tables as machine code that walks run: made, and opened.

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
    /// The bytes of an object, and their parsed form.
    struct OwnedObject {
        owner: Vec<u8>,
        #[covariant]
        dependent: ObjectView,
    }

    impl {Debug}
);

/// An object with code that this process may run. Either this process made it and proved it by
/// reading the code. Or it was in a folder that only its user and root can write to
/// ([`Store`](crate::Store)); they put only such objects there.
#[derive(Debug)]
pub struct NativeObject(OwnedObject);

/// Why a file's table cannot be made into machine code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeTableError {
    /// There is no table to read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// No code can be made for it.
    #[error(transparent)]
    Outline(#[from] OutlineError),
    /// The object cannot be written.
    #[error(transparent)]
    Write(#[from] NativeError),
    /// The result is not an object.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The result is not proven right.
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

    /// Accepts bytes that nobody else could have written; the caller must have checked that. They
    /// must be an object as [`object`] writes them, unchanged; `None` if it belongs to another
    /// module.
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

    /// The parsed object.
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

/// A file's key in the form of objects.
#[must_use]
pub fn native_key(key: &TableKey) -> ModuleKey<'_> {
    ModuleKey {
        build_id: id_bytes(key),
        content: &key.content,
    }
}
