//! Objects of machine code compared with the tables of their files: by reading, then by running.

use unspool_elf::{ElfFile, TableKey};
use unspool_native_table::{ObjectView, Outline, object, proof};
use unspool_rows::Vaddr;
use unspool_table_store::{NativeTableError, SourceTable, TableSource, native_key, own_key, read};

use super::run::{RunError, RunReport, run_apart};

/// What was found when an object of machine code was compared with the rows that it was made from.
#[derive(Debug)]
pub struct NativeVerification {
    /// By reading the code.
    pub read: proof::ObjectProof,
    /// By running it, if reading found nothing: unproven code is not run.
    pub run: Option<RunReport>,
    /// Problems of the source: entries left out, or read in doubt.
    pub bad_entries: usize,
}

/// Why an object was not compared with a file's rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeVerifyError {
    /// The file's table cannot be read or made into code, or the bytes are not an object.
    #[error(transparent)]
    Table(#[from] NativeTableError),
    /// It is the object of another file.
    #[error("the table of another module than {file}, whose key is {key}")]
    OtherModule {
        /// The file.
        file: String,
        /// Its key.
        key: TableKey,
    },
    /// The code was not run to its end.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Compares an object with the rows of its file. An object that is not proven by reading it is not
/// run. Others are run in a process of their own, behind a fence.
///
/// ```
/// use unspool_elf::ElfFile;
/// use unspool_unwind::native::verify_compiled;
///
/// let found = verify_compiled(&ElfFile::open("/bin/true")?)?;
/// assert!(found.read.rows > 0 && found.run.is_some());
/// assert_eq!(found.differences(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`NativeVerifyError`].
pub fn verify_object(
    file: &ElfFile,
    object: &[u8],
) -> Result<NativeVerification, NativeVerifyError> {
    let object = ObjectView::parse(object).map_err(NativeTableError::from)?;
    let key = own_key(file);
    if object.key() != Some(native_key(&key)) {
        let file = file.path().display().to_string();
        return Err(NativeVerifyError::OtherModule { file, key });
    }
    let source = read(file, TableSource::Auto).map_err(NativeTableError::from)?;
    let outline = Outline::from_table(&source.table).map_err(NativeTableError::from)?;
    compare(&object, &outline, &source)
}

/// Makes the object of a file's table in memory, and compares it with the rows.
///
/// # Errors
///
/// [`NativeVerifyError`].
pub fn verify_compiled(file: &ElfFile) -> Result<NativeVerification, NativeVerifyError> {
    let source = read(file, TableSource::Auto).map_err(NativeTableError::from)?;
    let outline = Outline::from_table(&source.table).map_err(NativeTableError::from)?;
    let bytes = object(&outline, native_key(&own_key(file))).map_err(NativeTableError::from)?;
    let object = ObjectView::parse(&bytes).map_err(NativeTableError::from)?;
    compare(&object, &outline, &source)
}

fn compare(
    object: &ObjectView<'_>,
    outline: &Outline<'_>,
    source: &SourceTable,
) -> Result<NativeVerification, NativeVerifyError> {
    let read = proof::prove(object, &source.table).map_err(NativeTableError::from)?;
    let run = if read.unproven.is_empty() {
        Some(run_apart(object, outline)?)
    } else {
        None
    };
    Ok(NativeVerification {
        read,
        run,
        bad_entries: source.problems.len(),
    })
}

/// The most locations to report of those that reading found.
const MAX_EXAMPLES: usize = 16;

impl NativeVerification {
    /// The number of differences.
    #[must_use]
    pub fn differences(&self) -> u64 {
        let in_run = self.run.as_ref().map_or(0, |run| run.differences);
        self.read.unproven.len() as u64 + in_run
    }

    /// Whether there are neither differences nor problems of the source.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.differences() == 0 && self.bad_entries == 0
    }

    /// The first differences: addresses in the file, and messages.
    pub fn mismatches(&self) -> impl Iterator<Item = (Vaddr, String)> {
        let unproven = self.read.unproven.iter().take(MAX_EXAMPLES);
        let unproven = unproven.map(|(at, why)| (*at, format!("not proven: {why}")));
        let first = self.run.iter().flat_map(|run| run.first);
        let first = first.take_while(|at| *at != 0);
        let yields = first.map(|at| {
            (
                Vaddr(at),
                String::from("run, the code yields another frame"),
            )
        });
        unproven.chain(yields)
    }
}
