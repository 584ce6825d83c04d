//! A file's code and data, for the analysis.

use unspool_code_analysis::CodeImage;
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

/// A file's bytes as loaded.
#[derive(Debug, Clone, Copy)]
pub struct ElfCodeImage<'f>(pub &'f ElfFile);

impl CodeImage for ElfCodeImage<'_> {
    fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        self.0.rest_at(Vaddr(address))
    }
}
