//! Files of a core that are not where the core says: found by their build IDs.

use unspool_elf::{BuildId, ElfFile};
use unspool_process::Snapshot as _;
use unspool_process::core_file::Core;
use unspool_process::file_provider::{CoreFiles, FileProblem, FileProvider};
use unspool_process::maps::Mapping;
use unspool_symbols::ModuleFinder;

/// The files of a core: at their paths, or else in the user's folders and on debuginfod's servers.
pub(super) struct FoundFiles<'c> {
    pub(super) core: &'c Core,
    pub(super) files: CoreFiles<'c>,
    pub(super) finder: ModuleFinder,
}

impl FileProvider for FoundFiles<'_> {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        let by_id = || {
            let id = BuildId::new(&self.core.build_id_at(mapping).ok()?)?;
            self.finder.executable(id, &|_| {})
        };
        let found = self.files.file(mapping);
        found.or_else(|problem| by_id().ok_or(problem))
    }
}
