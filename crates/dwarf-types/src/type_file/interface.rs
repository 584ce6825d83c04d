//! Two versions of a file, compared by the types of what they export.

use std::collections::BTreeSet;

use unspool_c_types::{ExportName, Exports, Graph, Interface, InterfaceDiff, PrivateTypes, diff};

use super::{LoadedTypes, PublicHeaders, TypeFileError, TypeLoader, TypesNotice};
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
    /// The part of it that public headers declare; `None` if all of it is public.
    pub public: Option<PublicInterface<'d>>,
}

/// The public part of an interface.
#[derive(Debug)]
pub struct PublicInterface<'d> {
    /// The headers that declare its functions and data.
    pub headers: &'d PublicHeaders,
    /// The types that they do not define.
    pub private: PrivateTypes,
}

impl<'d> VersionInterface<'d> {
    /// The changes to a newer version, as [`TypeLoader::interface_diff`].
    #[must_use]
    pub fn diff(&self, new: &VersionInterface<'_>) -> InterfaceDiff {
        let [mut ours, mut theirs] = [self.compared(new), new.compared(self)];
        let private_exports = self.remove_private(new, &mut ours, &mut theirs);
        let found = diff(self.interface(&ours), new.interface(&theirs));
        InterfaceDiff {
            private_exports,
            ..found
        }
    }

    /// Its types, with some of its names.
    fn interface<'i>(&'i self, exports: &'i Exports) -> Interface<'i, 'd> {
        Interface {
            graph: &self.graph,
            exports,
            private: self.public.as_ref().map(|public| &public.private),
        }
    }

    /// Removes the names from two versions that no header declares: old ones that the old headers
    /// do not, and new ones that the new headers do not. Returns them.
    fn remove_private(
        &self,
        new: &VersionInterface<'_>,
        ours: &mut Exports,
        theirs: &mut Exports,
    ) -> Vec<String> {
        let is_private = |version: &VersionInterface<'_>, name: &ExportName| {
            let public = version.public.as_ref();
            public.is_some_and(|public| !public.headers.declares(name))
        };
        let mut private = BTreeSet::new();
        let plain = |name: &ExportName| ExportName::new(name.kind, &*name.name);
        let known: BTreeSet<_> = ours.symbols.keys().map(plain).collect();
        ours.symbols.retain(|name, _| {
            let is_private = is_private(self, name);
            if is_private {
                private.insert(plain(name));
            }
            !is_private
        });
        theirs.symbols.retain(|name, _| {
            let name = plain(name);
            let is_private = if known.contains(&name) {
                private.contains(&name)
            } else {
                is_private(new, &name)
            };
            if is_private {
                private.insert(name);
            }
            !is_private
        });
        private.iter().map(ToString::to_string).collect()
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
        let public = self.public.as_ref().map(|public| PublicInterface {
            headers: public.headers,
            private: PrivateTypes::new(&graph, |space, name| {
                !public.private_types.contains(&(space, name.into()))
            }),
        });
        Ok(VersionInterface {
            exports: self.exports()?,
            graph,
            public,
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
