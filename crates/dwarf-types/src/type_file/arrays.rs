//! The order of array dimensions in CTF and BTF, which some gccs stored in reverse.

use unspool_c_types::{BtfReading, CtfUnit, Graph, reverse_arrays};

use super::{TypeFile, TypeLoader, TypesNotice};
use crate::producers::{ArrayOrder, Producers};

/// How a file stores multidimensional arrays.
#[derive(Debug, Default)]
pub(super) struct ArrayOrderInfo {
    /// The gcc that stored some in reverse.
    pub(super) reversed_by: Option<String>,
    /// Dictionaries of unknown order; their arrays stay as stored.
    unknown: Vec<String>,
    /// Whether there are such arrays in an unknown order.
    pub(super) is_unknown: bool,
}

impl TypeFile {
    /// How multidimensional arrays of BTF are stored. It is known only if all compilers that the
    /// file names are gccs of one kind. pahole, which makes most BTF, stores one dimension.
    pub(super) fn btf_array_order(&self, readings: &[BtfReading<'_>]) -> ArrayOrder {
        let mut graphs = readings.iter().map(|one| &one.graph);
        if !graphs.any(Graph::has_arrays_of_arrays) {
            return ArrayOrder::Source;
        }
        let is_gcc = |line: &[u8]| line.starts_with(b"GCC: ");
        let file = self.elf().filter(|file| file.comments().all(is_gcc));
        match file.and_then(Producers::from_comment) {
            Some(Producers::Uniform(order)) => order,
            _ => ArrayOrder::Unknown,
        }
    }
}

impl TypeLoader<'_> {
    /// The gcc versions that made a file: from its `.comment`, else from its DWARF.
    fn producers(self, file: &TypeFile) -> Producers {
        match file.elf() {
            Some(file) => Producers::from_comment(file)
                .unwrap_or_else(|| Producers::from_dwarf(file, &self.debug_files(file))),
            None => Producers::Uniform(ArrayOrder::Unknown),
        }
    }

    /// Restores the source's order of array dimensions in a file's dictionaries, where it is known.
    pub(super) fn restore_arrays(
        self,
        file: &TypeFile,
        units: &mut [CtfUnit<'_>],
    ) -> ArrayOrderInfo {
        let has_arrays = |unit: &CtfUnit<'_>| unit.reading.graph.has_arrays_of_arrays();
        let mut arrays = ArrayOrderInfo::default();
        if !units.iter().any(has_arrays) {
            return arrays;
        }
        let producers = self.producers(file);
        arrays.is_unknown = true;
        // Dictionaries without arrays may refer to their parent's.
        for unit in &*units {
            match producers.order(unit) {
                ArrayOrder::Source => arrays.is_unknown = false,
                ArrayOrder::Reversed(by) => {
                    arrays.is_unknown = false;
                    arrays.reversed_by = Some(by);
                }
                ArrayOrder::Unknown if has_arrays(unit) => {
                    arrays.unknown.push(unit.name.to_owned());
                }
                ArrayOrder::Unknown => {}
            }
        }
        reverse_arrays(units, |unit| {
            matches!(producers.order(unit), ArrayOrder::Reversed(_))
        });
        arrays
    }
}

impl ArrayOrderInfo {
    /// Reports arrays of unknown order.
    pub(super) fn report_unknown(&self, file: &TypeFile, loader: TypeLoader<'_>) {
        if !self.unknown.is_empty() {
            loader.report(TypesNotice::UnknownArrayOrder {
                file: file.path(),
                dictionaries: &self.unknown,
            });
        }
    }
}
