//! Two versions of a file, compared by the types of what they export.

use unspool_c_types::{Exports, Graph, Interface, InterfaceDiff, diff};

use super::{LoadedTypes, TypeFileError, TypeLoader, TypesNotice};
use crate::elf::elf_context;

impl TypeLoader<'_> {
    /// The changes of the interface from an older version of a file to a newer one. If only one
    /// version has exports, its exports with types in both versions are compared; if neither has
    /// (bare CTF or BTF), all names with types.
    ///
    /// # Errors
    ///
    /// The symbols of a file cannot be read.
    pub fn interface_diff(
        self,
        old: &LoadedTypes<'_>,
        new: &LoadedTypes<'_>,
    ) -> Result<InterfaceDiff, TypeFileError> {
        let [old, new] = [old, new].map(|types| {
            let interface = types.interface()?;
            let exports = interface.exports.as_ref();
            if exports.is_some_and(|all| all.symbols.is_empty()) {
                self.report(TypesNotice::NoExports { file: &types.path });
            }
            Ok::<_, TypeFileError>(interface)
        });
        Ok(old?.diff(&new?))
    }
}

/// The interface of a version of a file.
#[derive(Debug)]
pub struct VersionInterface<'d> {
    /// All its types.
    pub graph: Graph<'d>,
    /// Its exports; `None` if unknown, as in a bare CTF or BTF file.
    pub exports: Option<Exports>,
}

impl VersionInterface<'_> {
    /// The changes to a newer version, as [`TypeLoader::interface_diff`].
    #[must_use]
    pub fn diff(&self, new: &VersionInterface<'_>) -> InterfaceDiff {
        let [ours, theirs] = [self.compared(new), new.compared(self)];
        let old = Interface {
            graph: &self.graph,
            exports: &ours,
        };
        let new = Interface {
            graph: &new.graph,
            exports: &theirs,
        };
        diff(old, new)
    }

    /// The names to compare with another version.
    fn compared(&self, other: &VersionInterface<'_>) -> Exports {
        let typed = Exports::with_types(&self.graph);
        match (&self.exports, &other.exports) {
            (Some(own), Some(_)) => own.clone(),
            (Some(own), None) => own.common(&typed),
            (None, Some(others)) => {
                let others = others.common(&Exports::with_types(&other.graph));
                others.common(&typed)
            }
            (None, None) => typed,
        }
    }
}

impl<'d> LoadedTypes<'d> {
    fn interface(&self) -> Result<VersionInterface<'d>, TypeFileError> {
        let mut graph = self.one_graph();
        self.add_aliases(&mut graph);
        Ok(VersionInterface {
            graph,
            exports: self.exports()?,
        })
    }

    /// The exports of the files. `None` if one has no symbols.
    ///
    /// # Errors
    ///
    /// Their symbols cannot be read.
    pub fn exports(&self) -> Result<Option<Exports>, TypeFileError> {
        let mut all = Exports::default();
        for file in &self.files {
            let Some(exports) = Exports::from_elf(elf_context(file)?) else {
                return Ok(None);
            };
            all.symbols.extend(exports.symbols);
            all.versions.extend(exports.versions);
            all.soname = file.soname().map(Into::into);
        }
        Ok((!self.files.is_empty()).then_some(all))
    }
}
