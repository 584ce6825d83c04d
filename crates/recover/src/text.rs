//! The bytes of a file's code and data, for the analysis.

use unspool_ir::Vaddr;
use unspool_module::ElfFile;
use unspool_synth::Image;

/// The bytes of a file as they are loaded.
#[derive(Debug, Clone, Copy)]
pub struct Text<'f>(pub &'f ElfFile);

impl Image for Text<'_> {
    fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        self.0.rest_at(Vaddr(address))
    }
}
