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

    fn is_constant(&self, address: u64) -> bool {
        let mut sections = self.0.sections().filter(|section| {
            let start = section.address.map_or(u64::MAX, |start| start.0);
            address
                .checked_sub(start)
                .is_some_and(|at| at < section.size)
        });
        // The dynamic linker writes these before any code runs.
        let is_set_once = |name: &str| {
            [".data.rel.ro", ".got"]
                .iter()
                .any(|set| name.starts_with(set))
        };
        sections.all(|section| !section.writable || is_set_once(&section.name))
    }
}
