//! Compiling a file's table, and proving the result. Both use two threads.

use std::ops::Deref;
use std::panic::resume_unwind;
use std::thread;

use unspool_compiled_table::{
    CompiledTable, EncodeError, EncodedTable, ExecutableCode, Mismatch, ModuleKey,
    SourceComparison, TableOpenError, check_digest, compare_calls, compare_rows, encode,
};
use unspool_elf::{BuildId, ElfFile, ElfKind, ModuleError, TableKey};
use unspool_rows::Table;

use crate::source::{self, SourceError, SourceTable, TableSource};

/// A compiled table and its source.
#[derive(Debug, Clone)]
pub struct CompiledFile {
    /// The source.
    pub source: SourceTable,
    /// The table.
    pub encoded: EncodedTable,
}

/// Why a file's table cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// There is no table to read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file changed meanwhile.
    #[error(transparent)]
    File(#[from] ModuleError),
    /// The rows cannot be written.
    #[error("{file}: {error}")]
    Encode {
        /// The file.
        file: String,
        /// Why.
        error: EncodeError,
    },
    /// The compiled table cannot be opened.
    #[error(transparent)]
    Open(#[from] TableOpenError),
    /// The compiled table has other rows than its source.
    #[error(
        "{file}: the compiled table differs from its source at {}: {}; this is a bug in unspool, please report it",
        .mismatch.at, .mismatch.what
    )]
    Mismatch {
        /// The file.
        file: String,
        /// The first difference.
        mismatch: Mismatch,
    },
}

/// The executable code of a file, for the call-site part. None for a relocatable file: its code is
/// not final. None for a file that declares that it patches its own code.
#[must_use]
pub fn code(file: &ElfFile) -> ExecutableCode<'_> {
    if file.kind() == ElfKind::Relocatable || patches_itself(file) {
        return ExecutableCode::default();
    }
    let ranges = file.executable_ranges().into_iter().filter_map(|range| {
        let bytes = file.bytes_at(range.start, range.end.0 - range.start.0)?;
        Some((range.start, bytes))
    });
    ExecutableCode {
        ranges: ranges.collect(),
    }
}

/// Whether the program turns no-operations into calls while it runs (XRay,
/// `-fpatchable-function-entry`). The call test reads the file's bytes, which lack these calls.
fn patches_itself(file: &ElfFile) -> bool {
    let patched = ["xray_instr_map", "__patchable_function_entries"];
    file.sections()
        .any(|section| patched.contains(&&*section.name))
        || file
            .segments()
            .any(|segment| segment.executable && segment.writable)
}

/// Reads and compiles the table of a file, keyed by its build ID and a hash of its bytes. If the
/// file is too large to be hashed, the table can be used, but is not kept.
///
/// # Errors
///
/// There is no table to read, its rows cannot be written as one, or the file was written to
/// meanwhile.
pub fn compile(file: &ElfFile, source: TableSource) -> Result<CompiledFile, CompileError> {
    source::check_exists(file, source)?; // else the code would be searched for calls in vain
    let code = code(file);
    let arch = file.abi().arch;
    let calls = || {
        let _ = file.content_hash(); // reads the whole file; is kept for later
        code.call_addresses(arch)
    };
    let (reading, calls) = join(|| source::read(file, source), &calls);
    let reading = reading?;
    let key = own_key(file);
    let encoded = encode(&reading.table, as_key(&key), &code, &calls).map_err(|error| {
        CompileError::Encode {
            file: file.path().to_string_lossy().into_owned(),
            error,
        }
    })?;
    file.check_unchanged()?;
    Ok(CompiledFile {
        source: reading,
        encoded,
    })
}

/// Compiles the table of a file as [`compile`] does, and proves that the result has the rows of its
/// source.
///
/// # Errors
///
/// As for [`compile`]. A result with other rows is an error, too.
pub fn compile_verified(
    file: &ElfFile,
    source: TableSource,
) -> Result<(CompiledFile, SourceComparison), CompileError> {
    let made = compile(file, source)?;
    let comparison = verify(file, &made.source.table, &made.encoded.bytes)?;
    match comparison.mismatches.first() {
        None => Ok((made, comparison)),
        Some(mismatch) => Err(CompileError::Mismatch {
            file: file.path().to_string_lossy().into_owned(),
            mismatch: *mismatch,
        }),
    }
}

/// Compares a compiled table with its source, over every address.
///
/// # Errors
///
/// The bytes are not a table, or were changed.
pub fn verify(
    file: &ElfFile,
    source: &Table,
    table: &[u8],
) -> Result<SourceComparison, TableOpenError> {
    let compiled = CompiledTable::open(table)?;
    check_digest(table)?;
    let code = code(file);
    let calls = || compare_calls(source, &compiled, &code);
    let (mut comparison, calls) = join(|| compare_rows(source, &compiled), &calls);
    comparison.add(calls);
    Ok(comparison)
}

/// Runs one function here and another in parallel, or afterwards if no thread can be started.
fn join<A, B: Send>(here: impl FnOnce() -> A, beside: &(impl Fn() -> B + Sync)) -> (A, B) {
    thread::scope(
        |scope| match thread::Builder::new().spawn_scoped(scope, beside) {
            Ok(thread) => {
                let first = here();
                let second = thread.join();
                (first, second.unwrap_or_else(|panic| resume_unwind(panic)))
            }
            Err(_) => (here(), beside()),
        },
    )
}

/// Whether a table has the key of this file's table. Hashes the file.
#[must_use]
pub fn is_table_of(table: &CompiledTable<'_>, file: &ElfFile) -> bool {
    file.table_key()
        .is_some_and(|key| table.key() == as_key(&key))
}

/// The key of a file's tables, even if it is too large to be hashed.
#[must_use]
pub fn own_key(file: &ElfFile) -> TableKey {
    file.table_key().unwrap_or(TableKey {
        build_id: file.build_id(),
        content: [0; 20],
    })
}

/// A file's key in the table format's form.
pub(crate) fn as_key(key: &TableKey) -> ModuleKey<'_> {
    ModuleKey {
        build_id: id_bytes(key),
        content: &key.content,
    }
}

/// The bytes of the build ID; empty without one.
pub(crate) fn id_bytes(key: &TableKey) -> &[u8] {
    key.build_id.as_ref().map_or(&[], BuildId::as_bytes)
}

/// A file in the form from which kept tables are made: with its bytes in memory. So the key's hash
/// is that of the source bytes, even if the file is written to meanwhile. A file that is too large
/// for that ([`ElfFile::private_copy`]) is used as it is; then nothing is kept.
#[derive(Debug)]
pub enum StableFile<'f> {
    /// The file itself.
    Own(&'f ElfFile),
    /// Its copy.
    Copy(Box<ElfFile>),
}

impl<'f> StableFile<'f> {
    pub(crate) fn new(file: &'f ElfFile) -> StableFile<'f> {
        match file.private_copy() {
            Some(copy) => StableFile::Copy(Box::new(copy)),
            None => StableFile::Own(file),
        }
    }
}

impl Deref for StableFile<'_> {
    type Target = ElfFile;

    fn deref(&self) -> &ElfFile {
        match self {
            StableFile::Own(file) => file,
            StableFile::Copy(file) => file,
        }
    }
}
