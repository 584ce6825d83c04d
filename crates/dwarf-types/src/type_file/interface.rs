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
        let [old, new] = [self.version(old)?, self.version(new)?];
        let exports = [old.compared(&new), new.compared(&old)];
        let [one, two] = &exports;
        let old = Interface {
            graph: &old.graph,
            exports: one,
        };
        let new = Interface {
            graph: &new.graph,
            exports: two,
        };
        Ok(diff(old, new))
    }

    fn version<'d>(self, types: &LoadedTypes<'d>) -> Result<InterfaceVersion<'d>, TypeFileError> {
        let exports = types.exports()?;
        if exports.as_ref().is_some_and(|all| all.symbols.is_empty()) {
            self.report(TypesNotice::NoExports { file: &types.path });
        }
        Ok(InterfaceVersion {
            graph: types.with_aliases(),
            exports,
        })
    }
}

/// One of the two versions.
struct InterfaceVersion<'d> {
    graph: Graph<'d>,
    /// Its exports; `None` if unknown, as in a bare CTF or BTF file.
    exports: Option<Exports>,
}

impl InterfaceVersion<'_> {
    /// The names to compare with another version.
    fn compared(&self, other: &InterfaceVersion<'_>) -> Exports {
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

impl LoadedTypes<'_> {
    /// The exports of the files. `None` if one has no symbols.
    fn exports(&self) -> Result<Option<Exports>, TypeFileError> {
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
