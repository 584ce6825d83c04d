//! Which gccs wrote a file's CTF, which nothing in CTF tells, and so what is wrong with it.

use gimli::UnitType;
use unspool_c_types::{CtfUnit, Gcc, Quirk};
use unspool_elf::{DebugFiles, ElfFile};

use crate::attributes::text;
use crate::index::{DieIndex, DieRef};
use crate::program::join_directory;
use crate::split::{self, SplitFiles};

/// How arrays of arrays are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayOrder {
    /// As the source has them.
    Source,
    /// The wrong way round ([`Quirk::ReversedArrays`]), by the gcc that says so of itself.
    Reversed(String),
    /// Which gcc wrote them is not known.
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

    /// What all of them are; unknown if they are not all the same, or there are none.
    fn common<'o>(orders: impl IntoIterator<Item = &'o ArrayOrder>) -> ArrayOrder {
        let mut orders = orders.into_iter();
        let first = orders.next().unwrap_or(&ArrayOrder::Unknown);
        let is_same = |other: &ArrayOrder| match first {
            ArrayOrder::Reversed(_) => matches!(other, ArrayOrder::Reversed(_)),
            _ => other == first,
        };
        match orders.all(is_same) {
            true => first.clone(),
            false => ArrayOrder::Unknown,
        }
    }
}

/// The gccs that a file's units were made by.
#[derive(Debug)]
pub enum Producers {
    /// What they have in common.
    Uniform(ArrayOrder),
    /// With the names of the units, which may be different.
    Units(Vec<(String, ArrayOrder)>),
}

impl Producers {
    /// Of a file whose `.comment` names gccs that all store arrays in the same way; `None` if they do not, or none is named.
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

    /// Of a file with DWARF, in it or in its debug files: each unit says which gcc made it. What cannot be read says nothing.
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

    /// How a dictionary of the file stores arrays of arrays: if it says so itself, else as the unit's gcc does whose name it has, or, of what many units share, all do.
    #[must_use]
    pub fn order(&self, dictionary: &CtfUnit<'_>) -> ArrayOrder {
        let units = match self {
            _ if dictionary.has_arrays_in_order() => return ArrayOrder::Source,
            Producers::Uniform(order) => return order.clone(),
            Producers::Units(units) => units,
        };
        let is_child = dictionary.dict.header().is_child();
        let own = dictionary.reading.graph.unit.as_deref();
        let own = own.or(is_child.then_some(dictionary.name));
        let of_it = units
            .iter()
            .filter(|(name, _)| own.is_none_or(|own| own == name));
        ArrayOrder::common(of_it.map(|(_, order)| order))
    }
}

/// The name of a unit, and how arrays are stored by the gcc that made it; `None` of what no gcc has made out of C.
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
