//! Tables as SFrame, and ELF files with another `.sframe`. Each result is read back and compared before
//! it is returned.

use std::cell::RefCell;
use std::path::PathBuf;

use unspool_cfi::sframe::{
    self, SearchProblem, SframeAbi, SframeConversion, SframeFunction, SframeImage, SframeSection,
    SframeVersion, SframeWriteError,
};
use unspool_elf::{ElfFile, EmbedError, ModuleError, embed_sframe};
use unspool_rows::Vaddr;

use crate::source::{SourceError, SourceTable, TableSource, read, sections};

/// A file's table as SFrame.
#[derive(Debug)]
pub struct SframeTable {
    /// The functions, and what SFrame cannot express of the table.
    pub conversion: SframeConversion,
    /// Problems of a `.sframe`'s order that were corrected.
    pub reordered: Vec<SearchProblem>,
    /// The table that was read.
    pub source: SourceTable,
    abi: SframeAbi,
    image: SframeImage,
}

/// Why a file has no table as SFrame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SframeFileError {
    /// SFrame is not for its machine.
    #[error("{}: SFrame is for x86-64, AArch64 and big-endian s390x only", file.display())]
    Machine {
        /// The file.
        file: PathBuf,
    },
    /// It has no such table.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It cannot be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// It has no `.sframe`.
    #[error("no .sframe")]
    Missing,
    /// The section would be too large.
    #[error("{}: {error}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        error: SframeWriteError,
    },
    /// The section cannot be at the address.
    #[error(transparent)]
    Address(#[from] SframeWriteError),
    /// The file has no room for the section.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The result has other functions than were to be written.
    #[error(
        "the result differs from what was to be written: this is a bug in unspool, please report it"
    )]
    Mismatch,
}

impl SframeTable {
    /// A file's table as SFrame of a version. An existing `.sframe` is put in order.
    ///
    /// ```
    /// use unspool_cfi::sframe::SframeVersion;
    /// use unspool_elf::ElfFile;
    /// use unspool_rows::Vaddr;
    /// use unspool_table_store::{SframeTable, TableSource};
    ///
    /// let file = ElfFile::open("/bin/true")?;
    /// let table = SframeTable::from_file(&file, TableSource::Auto, SframeVersion::V2)?;
    /// assert_eq!(table.bytes_at(Vaddr(0x1000))?.len(), table.size());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SframeFileError`].
    pub fn from_file(
        file: &ElfFile,
        from: TableSource,
        version: SframeVersion,
    ) -> Result<SframeTable, SframeFileError> {
        let path = || file.path().to_owned();
        let abi = SframeAbi::from_abi(file.abi());
        let abi = abi.ok_or_else(|| SframeFileError::Machine { file: path() })?;
        let has_cfi = || sections(file, TableSource::Auto).is_ok();
        let is_sframe = from == TableSource::Sframe || (from == TableSource::Auto && !has_cfi());
        let source = read(file, if is_sframe { TableSource::Sframe } else { from })?;
        let (conversion, reordered) = if is_sframe {
            let own = read_functions(file, abi)?;
            let fitted = sframe::fit(&own.functions, abi, version);
            (fitted, own.disorder(usize::MAX))
        } else {
            (sframe::functions(&source.table, abi, version), Vec::new())
        };
        let image = SframeImage::new(&conversion.functions, abi, version);
        let image = image.map_err(|error| SframeFileError::Write {
            file: path(),
            error,
        })?;
        Ok(SframeTable {
            conversion,
            reordered,
            source,
            abi,
            image,
        })
    }

    /// The size of the section in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.image.len()
    }

    /// The section for an address.
    ///
    /// # Errors
    ///
    /// A function is too far from there.
    pub fn bytes_at(&self, address: Vaddr) -> Result<Vec<u8>, SframeFileError> {
        let bytes = self.image.bytes_at(address)?;
        self.check(&sframe::read(&bytes, address, self.abi).functions)?;
        Ok(bytes)
    }

    /// A file with this table as its `.sframe`.
    ///
    /// # Errors
    ///
    /// The file has no room for it, or its functions are too far from there.
    pub fn embed(&self, file: &ElfFile) -> Result<Vec<u8>, SframeFileError> {
        let failed: RefCell<Option<SframeWriteError>> = RefCell::new(None);
        let content = |address: Vaddr| {
            self.image.bytes_at(address).unwrap_or_else(|error| {
                failed.replace(Some(error));
                Vec::new()
            })
        };
        let elf = embed_sframe(file, self.image.len() as u64, &content)?;
        if let Some(error) = failed.take() {
            let file = file.path().to_owned();
            return Err(SframeFileError::Write { file, error });
        }
        let back = ElfFile::from_bytes(file.path(), elf.as_slice())?;
        self.check(&read_functions(&back, self.abi)?.functions)?;
        Ok(elf)
    }

    /// Compares what was written with the intended functions.
    fn check(&self, back: &[SframeFunction]) -> Result<(), SframeFileError> {
        let without_origin = |function: &SframeFunction| SframeFunction {
            origin: 0,
            ..function.clone()
        };
        let intended = self.conversion.functions.iter().map(without_origin);
        if intended.eq(back.iter().map(without_origin)) {
            Ok(())
        } else {
            Err(SframeFileError::Mismatch)
        }
    }
}

/// The functions of a file's `.sframe`.
fn read_functions(file: &ElfFile, abi: SframeAbi) -> Result<SframeSection, SframeFileError> {
    let sections = file.sframes()?;
    let section = sections.first().ok_or(SframeFileError::Missing)?;
    Ok(sframe::read(section.data, section.address, abi))
}
