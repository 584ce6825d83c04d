//! The names of types with their namespaces, as Rust writes them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::attributes::text;
use crate::error::TypesError;
use crate::index::{DieIndex, DieRef};
use crate::unit::language;

/// The maximum length of a path, in names.
const MAX_PATH_NAMES: usize = 64;

/// The parents of types and namespaces in a unit, by offset.
type Parents = HashMap<usize, usize>;

/// The paths of types.
#[derive(Default)]
pub(super) struct TypePaths {
    /// By the root entries of units.
    units: RefCell<HashMap<DieRef, Rc<Parents>>>,
}

impl TypePaths {
    /// The path of a type.
    pub(super) fn path(&self, index: &DieIndex<'_>, die: DieRef) -> Result<String, TypesError> {
        let (unit, _) = index.unit(die)?;
        let offset = unit.header.offset().0 + unit.header.root_offset().0;
        let parents = self.parents(index, DieRef { offset, ..die })?;
        let mut names = Vec::new();
        let mut next = Some(die.offset);
        while let Some(offset) = next.filter(|_| names.len() < MAX_PATH_NAMES) {
            let place = DieRef { offset, ..die };
            let name = text(index, place, &index.entry(place)?, gimli::DW_AT_name);
            names.extend(name);
            next = parents.get(&offset).copied();
        }
        names.reverse();
        Ok(names.join("::"))
    }

    fn parents(&self, index: &DieIndex<'_>, root: DieRef) -> Result<Rc<Parents>, TypesError> {
        if let Some(known) = self.units.borrow().get(&root) {
            return Ok(Rc::clone(known));
        }
        let mut parents = Parents::new();
        let mut open: Vec<(usize, usize)> = Vec::new();
        index.descendants(root, |place, depth, entry| {
            let is_around = matches!(
                entry.tag(),
                gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_union_type
                    | gimli::DW_TAG_enumeration_type
            );
            if is_around {
                while open.pop_if(|(around, _)| *around >= depth).is_some() {}
                if let Some((_, parent)) = open.last() {
                    parents.insert(place.offset, *parent);
                }
                open.push((depth, place.offset));
            }
            Ok(is_around)
        })?;
        let parents = Rc::new(parents);
        let kept = Rc::clone(&parents);
        self.units.borrow_mut().insert(root, kept);
        Ok(parents)
    }
}

/// Whether a unit is in Rust.
pub(super) fn is_rust(index: &DieIndex<'_>, root: DieRef) -> bool {
    language(index, root) == Some(gimli::DW_LANG_Rust)
}
