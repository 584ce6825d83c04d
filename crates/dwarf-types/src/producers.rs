//! Finding the gcc versions that wrote a file's CTF, and so its faults. CTF itself does not record
//! them.

use gimli::UnitType;
use unspool_c_types::{CtfUnit, Gcc, Quirk};
use unspool_elf::{DebugFiles, ElfFile};

use crate::attributes::text;
use crate::index::{DieIndex, DieRef};
use crate::program::join_directory;
use crate::split::{self, SplitFiles};

/// The order of dimensions in arrays of arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayOrder {
    /// The source's order.
    Source,
    /// The reverse order ([`Quirk::ReversedArrays`]), with the name of the gcc that wrote it.
    Reversed(String),
    /// The gcc version is unknown.
    Unknown,
}

impl ArrayOrder {
    fn from_gcc(gcc: Option<Gcc>, said: &str) -> ArrayOrder {
        match gcc.map(Gcc::quirk) {
            Some(Some(Quirk::ReversedArrays)) => ArrayOrder::Reversed(said.to_owned()),
            Some(_) => ArrayOrder::Source,
            None => ArrayOrder::Unknown,
        }
    }

    /// The common order; unknown if they differ, or there are none.
    fn common<'o>(orders: impl IntoIterator<Item = &'o ArrayOrder>) -> ArrayOrder {
        let mut orders = orders.into_iter();
        let first = orders.next().unwrap_or(&ArrayOrder::Unknown);
        let is_same = |other: &ArrayOrder| match first {
            ArrayOrder::Reversed(_) => matches!(other, ArrayOrder::Reversed(_)),
            _ => other == first,
        };
        if orders.all(is_same) {
            first.clone()
        } else {
            ArrayOrder::Unknown
        }
    }
}

/// The gcc versions of a file's units.
#[derive(Debug)]
pub enum Producers {
    /// One order for all.
    Uniform(ArrayOrder),
    /// The order of each unit, with its name; names may be ambiguous.
    Units(Vec<(String, ArrayOrder)>),
}

impl Producers {
    /// The order by the gccs in a file's `.comment`; `None` if they differ, or none is named.
    #[must_use]
    pub fn from_comment(file: &ElfFile) -> Option<Producers> {
        let lines = file.comments().map(String::from_utf8_lossy);
        let orders = lines.filter(|line| line.starts_with("GCC: "));
        let orders: Vec<_> = orders
            .map(|line| ArrayOrder::from_gcc(Gcc::from_comment(&line), &line))
            .collect();
        match ArrayOrder::common(&orders) {
            ArrayOrder::Unknown => None,
            order => Some(Producers::Uniform(order)),
        }
    }

    /// The orders by a file's DWARF, in it or in its debug files: each unit names its gcc.
    /// Unreadable units are ignored.
    #[must_use]
    pub fn from_dwarf(file: &ElfFile, debug: &DebugFiles) -> Producers {
        let opened = SplitFiles::default();
        let Ok((index, splits)) = split::units(file, debug, &opened) else {
            return Producers::Uniform(ArrayOrder::Unknown);
        };
        let is_unit = |kind| matches!(kind, UnitType::Compilation | UnitType::Skeleton(_));
        let units = index.roots().filter(|(kind, _)| is_unit(*kind));
        let units = units.filter_map(|(_, root)| splits.split_unit(&index, root));
        let units = units.filter_map(|(rest, root)| producer_order(&rest, root));
        Producers::Units(units.collect())
    }

    /// The order in a dictionary of the file: from its own label, else from the unit with its name.
    /// For a dictionary shared by many units, their common order.
    #[must_use]
    pub fn order(&self, dictionary: &CtfUnit<'_>) -> ArrayOrder {
        let units = match self {
            _ if dictionary.has_arrays_in_order() => return ArrayOrder::Source,
            Producers::Uniform(order) => return order.clone(),
            Producers::Units(units) => units,
        };
        let is_child = dictionary.dict.is_child();
        let own = dictionary.reading.graph.unit.as_deref();
        let own = own.or(is_child.then_some(dictionary.name));
        let of_it = units
            .iter()
            .filter(|(name, _)| own.is_none_or(|own| own == name));
        ArrayOrder::common(of_it.map(|(_, order)| order))
    }
}

/// The name of a unit, and the order of its gcc; `None` for units that gcc did not compile from C.
fn producer_order(index: &DieIndex<'_>, root: DieRef) -> Option<(String, ArrayOrder)> {
    let entry = index.entry(root).ok()?;
    let producer = text(index, root, &entry, gimli::DW_AT_producer)?;
    let order = ArrayOrder::from_gcc(
        Some(Gcc::from_producer(&producer)?),
        producer_version(&producer),
    );
    let name = text(index, root, &entry, gimli::DW_AT_name)?;
    let folder = text(index, root, &entry, gimli::DW_AT_comp_dir);
    Some((join_directory(name, folder).into_owned(), order))
}

/// A producer's name and version, without the options.
fn producer_version(producer: &str) -> &str {
    producer.split(" -").next().unwrap_or(producer)
}
