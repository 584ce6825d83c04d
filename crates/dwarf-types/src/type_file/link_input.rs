//! The types of a file as units for the linker of CTF.

use std::sync::Arc;

use unspool_c_types::{CtfSection, Graph, LinkUnit, Type, TypeKind};

use super::btf::LoadedBtf;
use super::{StoredTypes, TypeFile, TypeFileError, TypeLoader, TypesNotice};

/// The CTF or BTF of a file, opened to be linked.
#[derive(Debug)]
pub struct LinkInput<'i> {
    /// The file.
    pub file: &'i TypeFile,
    types: LinkTypes<'i>,
    /// The size of the stored types in bytes.
    pub size: usize,
}

#[derive(Debug)]
enum LinkTypes<'i> {
    Ctf(CtfSection<'i>),
    Btf(LoadedBtf<'i>),
}

/// The units of a file.
#[derive(Debug)]
pub struct LinkUnits<'d> {
    /// The units under their final names, with arrays as in the source.
    pub units: Vec<LinkUnit<'d>>,
    /// Whether the order of its arrays is known.
    pub is_order_known: bool,
    /// Whether all of it was read completely.
    pub is_clean: bool,
}

impl TypeLoader<'_> {
    /// The stored types of a file, to be linked. `None` if there are none.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn link_input(self, file: &TypeFile) -> Result<Option<LinkInput<'_>>, TypeFileError> {
        let (types, size) = match file.stored()? {
            Some(StoredTypes::Ctf(bytes, elf)) => {
                let section = CtfSection::open(bytes, elf);
                let section = section.map_err(|error| file.ctf_error(error))?;
                self.report_ctf(file, &section.problems);
                (LinkTypes::Ctf(section), bytes.len())
            }
            Some(StoredTypes::Btf(bytes, pointer_size)) => {
                let read = self.read_btf(file, bytes, pointer_size, None)?;
                (LinkTypes::Btf(read), bytes.len())
            }
            None => return Ok(None),
        };
        Ok(Some(LinkInput { file, types, size }))
    }

    /// The units of a file's types.
    ///
    /// # Errors
    ///
    /// A dictionary of its CTF cannot be read.
    pub fn link_units<'d>(self, input: &'d LinkInput<'d>) -> Result<LinkUnits<'d>, TypeFileError> {
        let file = input.file;
        match &input.types {
            LinkTypes::Ctf(section) => {
                let units = section.units();
                let mut units = units.map_err(|error| file.ctf_error(error))?;
                let arrays = self.restore_arrays(file, &mut units);
                arrays.report_unknown(file, self);
                let mut is_clean = section.problems.is_empty();
                for unit in &units {
                    is_clean &= unit.reading.problems.is_empty();
                    self.report_ctf(file, &unit.reading.problems);
                }
                let units = units.into_iter().map(|unit| {
                    let graph = unit.reading.graph;
                    let name = graph.unit.clone().unwrap_or(unit.name.into());
                    LinkUnit {
                        name,
                        child: None,
                        graph,
                    }
                });
                Ok(LinkUnits {
                    units: units.collect(),
                    is_order_known: !arrays.is_unknown,
                    is_clean,
                })
            }
            LinkTypes::Btf(btf) => {
                let units = btf.graphs.iter().map(|graph| {
                    let mut graph = Graph::clone(graph);
                    self.report_lost(file, &graph);
                    graph.reduce_to_ctf();
                    LinkUnit {
                        name: file.path().to_string_lossy(),
                        child: None,
                        graph: Arc::new(graph),
                    }
                });
                Ok(LinkUnits {
                    units: units.collect(),
                    is_order_known: btf.is_order_known,
                    is_clean: btf.is_clean,
                })
            }
        }
    }

    /// Reports what CTF cannot say of BTF.
    fn report_lost(self, file: &TypeFile, graph: &Graph<'_>) {
        let is_tag = |ty: &Type<'_>| matches!(ty.kind, TypeKind::TypeTag { .. });
        let tags = graph.types().filter(|(_, ty)| is_tag(ty)).count();
        let counts = [
            (graph.declaration_tags.len(), "tags of declarations"),
            (tags, "tags of types"),
            (graph.sections.len(), "sections"),
        ];
        let lost = counts.iter().filter(|(count, _)| *count > 0);
        let lost: Vec<_> = lost
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !lost.is_empty() {
            self.report(TypesNotice::NotInCtf {
                file: file.path(),
                lost: &lost.join(", "),
            });
        }
    }
}
