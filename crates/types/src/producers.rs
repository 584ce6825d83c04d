//! Which gccs wrote a file's CTF, which nothing in CTF tells, and so what is wrong with it.

use gimli::UnitType;
use unspool_ctf::{Gcc, Quirk, Unit};
use unspool_module::{DebugFiles, ElfFile};

use crate::entry::text;
use crate::index::{Index, Place};
use crate::program::in_folder;
use crate::split::{self, SplitFiles};

/// How arrays of arrays are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// As the source has them.
    Source,
    /// The wrong way round ([`Quirk::ReversedArrays`]), by the gcc that says so of itself.
    Reversed(String),
    /// Which gcc wrote them is not known.
    Unknown,
}

impl Order {
    fn of(gcc: Option<Gcc>, said: &str) -> Order {
        match gcc.map(Gcc::quirk) {
            Some(Some(Quirk::ReversedArrays)) => Order::Reversed(said.to_owned()),
            Some(_) => Order::Source,
            None => Order::Unknown,
        }
    }

    /// What all of them are; unknown if they are not all the same, or there are none.
    fn common<'o>(orders: impl IntoIterator<Item = &'o Order>) -> Order {
        let mut orders = orders.into_iter();
        let first = orders.next().unwrap_or(&Order::Unknown);
        let is_same = |other: &Order| match first {
            Order::Reversed(_) => matches!(other, Order::Reversed(_)),
            _ => other == first,
        };
        match orders.all(is_same) {
            true => first.clone(),
            false => Order::Unknown,
        }
    }
}

/// The gccs that a file's units were made by.
#[derive(Debug)]
pub enum Producers {
    /// What they have in common.
    Alike(Order),
    /// With the names of the units, which may be different.
    Units(Vec<(String, Order)>),
}

impl Producers {
    /// Of a file whose `.comment` names gccs that all store arrays in the same way; `None` if they do not, or none is named.
    #[must_use]
    pub fn of_comment(file: &ElfFile) -> Option<Producers> {
        let lines = file.comments().map(String::from_utf8_lossy);
        let orders = lines.filter(|line| line.starts_with("GCC: "));
        let orders: Vec<_> = orders
            .map(|line| Order::of(Gcc::of_comment(&line), &line))
            .collect();
        match Order::common(&orders) {
            Order::Unknown => None,
            order => Some(Producers::Alike(order)),
        }
    }

    /// Of a file with DWARF, in it or in its debug files: each unit says which gcc made it. What cannot be read says nothing.
    #[must_use]
    pub fn of_dwarf(file: &ElfFile, debug: &DebugFiles) -> Producers {
        let opened = SplitFiles::default();
        let Ok((index, splits)) = split::units(file, debug, &opened) else {
            return Producers::Alike(Order::Unknown);
        };
        let is_unit = |kind| matches!(kind, UnitType::Compilation | UnitType::Skeleton(_));
        let units = index.roots().filter(|(kind, _)| is_unit(*kind));
        let units = units.filter_map(|(_, root)| splits.rest(&index, root));
        let units = units.filter_map(|(rest, root)| made(&rest, root));
        Producers::Units(units.collect())
    }

    /// How a dictionary of the file stores arrays of arrays: if it says so itself, else as the unit's gcc does whose name it has, or, of what many units share, all do.
    #[must_use]
    pub fn order(&self, dictionary: &Unit<'_>) -> Order {
        let units = match self {
            _ if dictionary.has_arrays_in_order() => return Order::Source,
            Producers::Alike(order) => return order.clone(),
            Producers::Units(units) => units,
        };
        let is_child = dictionary.dict.header().is_child();
        let own = dictionary.reading.graph.unit.as_deref();
        let own = own.or(is_child.then_some(dictionary.name));
        let of_it = units
            .iter()
            .filter(|(name, _)| own.is_none_or(|own| own == name));
        Order::common(of_it.map(|(_, order)| order))
    }
}

/// The name of a unit, and how arrays are stored by the gcc that made it; `None` of what no gcc has made out of C.
fn made(index: &Index<'_>, root: Place) -> Option<(String, Order)> {
    let entry = index.entry(root).ok()?;
    let producer = text(index, root, &entry, gimli::DW_AT_producer)?;
    let order = Order::of(Some(Gcc::of_producer(&producer)?), said(&producer));
    let name = text(index, root, &entry, gimli::DW_AT_name)?;
    let folder = text(index, root, &entry, gimli::DW_AT_comp_dir);
    Some((in_folder(name, folder).into_owned(), order))
}

/// A producer's name and version, without the options.
fn said(producer: &str) -> &str {
    producer.split(" -").next().unwrap_or(producer)
}
