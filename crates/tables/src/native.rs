//! Unwind tables as machine code that walks run on: made, and opened.

use self_cell::self_cell;
use unspool_ir::{Table, Vaddr};
use unspool_module::{ElfFile, TableKey};
use unspool_native::proof::{Unproven, prove};
use unspool_native::{Key, NativeError, Object, ObjectError, Outline, OutlineError, object};

use crate::compile::id_bytes;
use crate::source::{self, From, SourceError};

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
/// only its user and root can write ([`Store`](crate::Store)), and put such objects.
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
    pub(crate) fn trusted(
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

    /// What its bytes say.
    #[must_use]
    pub fn object(&self) -> &Object<'_> {
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
