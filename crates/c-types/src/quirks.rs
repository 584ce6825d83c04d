//! Known faults of producers.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::graph::{Graph, Type, TypeId, TypeKind, TypedSymbol};
use crate::section::CtfUnit;

/// The label of dictionaries with arrays of arrays in the source's order, regardless of `.comment`:
/// dictionaries made from DWARF, and dictionaries corrected by the linker.
pub const ARRAYS_IN_ORDER: &str = "arrays-in-order";

/// A known fault of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quirk {
    /// gcc wrote the dimensions of an array of arrays from the last to the first (its PR114186):
    /// `char nm[3][4]` reads as `char nm[4][3]`.
    ReversedArrays,
}

/// A release of gcc: the first two numbers of its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcc {
    /// `12` of 12.2.0.
    pub major: u32,
    /// `2` of 12.2.0.
    pub minor: u32,
}

impl Gcc {
    /// The release named in a line of `.comment`: `GCC: (Debian 12.2.0-14) 12.2.0`. `None` for
    /// lines of others, such as linkers.
    #[must_use]
    pub fn from_comment(line: &str) -> Option<Gcc> {
        let text = line.strip_prefix("GCC: ")?;
        let mut depth = 0_u32;
        // The text in the brackets is the distributor's choice.
        let version = text.trim_start_matches(|letter| {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => return depth > 0,
            }
            true
        });
        Gcc::from_version(version)
    }

    /// The release in DWARF's `DW_AT_producer` of a unit in C: `GNU C17 12.2.0 -mtune=generic -g`.
    #[must_use]
    pub fn from_producer(text: &str) -> Option<Gcc> {
        let text = text.strip_prefix("GNU C")?;
        let (standard, rest) = text.split_once(' ')?;
        let is_c = standard.chars().all(|letter| letter.is_ascii_digit());
        is_c.then(|| Gcc::from_version(rest)).flatten()
    }

    fn from_version(text: &str) -> Option<Gcc> {
        let version = text.split_whitespace().next()?;
        let mut numbers = version.split('.').map(|number| number.parse().ok());
        Some(Gcc {
            major: numbers.next()??,
            minor: numbers.next()??,
        })
    }

    /// The fault of its CTF. Later releases of gcc 12 and 13 are fixed, and no other producer is
    /// known to have the fault.
    #[must_use]
    pub fn quirk(self) -> Option<Quirk> {
        let is_wrong = match (self.major, self.minor) {
            (12, minor) => minor < 4,
            (13, minor) => minor < 3,
            (major, _) => major < 12,
        };
        is_wrong.then_some(Quirk::ReversedArrays)
    }
}

impl CtfUnit<'_> {
    /// Whether the dictionary has the label [`ARRAYS_IN_ORDER`].
    #[must_use]
    pub fn has_arrays_in_order(&self) -> bool {
        let mut labels = self.dict.labels().flatten();
        labels.any(|label| label.name == ARRAYS_IN_ORDER)
    }
}

/// Corrects the arrays of the wrong units of a section. Children use the corrected types of their
/// parent, which must be among the units. A graph without other owners is not copied.
pub fn reverse_arrays<'d>(units: &mut [CtfUnit<'d>], is_wrong: impl Fn(&CtfUnit<'d>) -> bool) {
    let has_arrays = |unit: &CtfUnit<'_>| unit.reading.graph.has_arrays_of_arrays();
    let has_arrays: Vec<bool> = units.iter().map(has_arrays).collect();
    if !has_arrays.contains(&true) {
        return;
    }
    let has_arrays = |number: usize| has_arrays.get(number).copied().unwrap_or_default();
    let is_wrong: Vec<bool> = units.iter().map(is_wrong).collect();
    let is_wrong = |number: usize| is_wrong.get(number).copied().unwrap_or_default();
    let parent_of = |unit: &CtfUnit<'d>| {
        let parent = unit.reading.graph.parent()?;
        let mut all = units.iter();
        all.position(|unit| std::ptr::eq(Arc::as_ptr(&unit.reading.graph), parent))
    };
    let parents: Vec<Option<usize>> = units.iter().map(parent_of).collect();
    let turn = |((number, unit), parent): ((usize, &CtfUnit<'d>), &Option<usize>)| {
        let graph = &unit.reading.graph;
        let sees_arrays = has_arrays(number) || parent.is_some_and(has_arrays);
        (is_wrong(number) && sees_arrays).then(|| {
            let is_parent_turned = parent.is_some_and(is_wrong);
            let base = if is_parent_turned { 0 } else { graph.base() };
            ArrayReverser::new(graph, base).turn()
        })
    };
    let turns = units.iter().enumerate().zip(&parents).map(turn);
    let turns: Vec<Option<ArrayRewrite<'d>>> = turns.collect();
    let is_turned: Vec<bool> = turns.iter().map(Option::is_some).collect();
    for (unit, turned) in units.iter_mut().zip(turns) {
        if let Some(turned) = turned {
            turned.apply(Arc::make_mut(&mut unit.reading.graph));
        }
    }
    for (number, parent) in parents.into_iter().enumerate() {
        let parent = parent.filter(|parent| is_turned.get(*parent) == Some(&true));
        let parent = parent.and_then(|parent| units.get(parent));
        let parent = parent.map(|parent| Arc::clone(&parent.reading.graph));
        if let (Some(parent), Some(unit)) = (parent, units.get_mut(number)) {
            unit.reading.graph = Arc::new(unit.reading.graph.on_parent(parent));
        }
    }
}

impl<'a> Graph<'a> {
    /// The graph with reversed arrays of arrays, as [`Quirk::ReversedArrays`] needs it. Ids stay;
    /// types are appended. The parent of a child stays: the child's unnamed references to its
    /// arrays are copied. If the parent is wrong, too, [`reverse_arrays`] copies nothing.
    #[must_use]
    pub fn with_reversed_arrays(&self) -> Graph<'a> {
        let mut turned = self.clone();
        ArrayReverser::new(self, self.base())
            .turn()
            .apply(&mut turned);
        turned
    }

    /// Whether the graph itself has arrays of arrays.
    #[must_use]
    pub fn has_arrays_of_arrays(&self) -> bool {
        self.types().any(|(id, _)| self.dimensions(id).len() > 1)
    }

    /// The same child with another parent, which has the parent's types under the same ids, and
    /// more behind them.
    fn on_parent(&self, parent: Arc<Graph<'a>>) -> Graph<'a> {
        let base = self.base();
        let more = parent.last().saturating_sub(base);
        let moved = |id: TypeId| {
            if id.0 > base {
                TypeId(id.0.saturating_add(more))
            } else {
                id
            }
        };
        let symbols = |symbols: &[TypedSymbol<'a>]| {
            let symbols = symbols.iter();
            let symbols = symbols.map(|symbol| symbol.with_type(moved(symbol.ty)));
            symbols.collect()
        };
        let mut graph = Graph::with_parent(parent);
        graph.unit.clone_from(&self.unit);
        graph.pointer_size = self.pointer_size;
        graph.functions = symbols(&self.functions);
        graph.objects = symbols(&self.objects);
        graph.variables = symbols(&self.variables);
        for (_, ty) in self.types() {
            graph.add(ty.clone().with_references(moved));
        }
        graph
    }

    /// The nested arrays of an array, from the outermost.
    fn dimensions(&self, mut id: TypeId) -> Vec<Dimension> {
        const MAX_DIMENSIONS: usize = 64;
        let mut dimensions = Vec::new();
        while let Some(TypeKind::Array {
            element,
            index,
            count,
        }) = self.get(id).map(|ty| &ty.kind)
        {
            if dimensions.len() == MAX_DIMENSIONS {
                return Vec::new(); // an array that contains itself
            }
            dimensions.push(Dimension {
                element: *element,
                index: *index,
                count: *count,
            });
            id = *element;
        }
        dimensions
    }
}

struct Dimension {
    element: TypeId,
    index: TypeId,
    count: u64,
}

/// The maximum depth of copies of a parent's types.
const MAX_COPY_DEPTH: u32 = 64;

/// Computes the changes of a graph with reversed arrays of arrays.
struct ArrayReverser<'g, 'a> {
    graph: &'g Graph<'a>,
    rewrite: ArrayRewrite<'a>,
    /// Reversed types up to this id are copied instead of changed.
    base: u32,
    reversed: HashMap<(TypeId, TypeId, u64), TypeId>,
    copies: HashMap<TypeId, TypeId>,
}

/// The changes of a graph with reversed arrays of arrays.
#[derive(Default)]
struct ArrayRewrite<'a> {
    /// Replaced types.
    others: Vec<(TypeId, Type<'a>)>,
    /// Appended types.
    more: Vec<Type<'a>>,
    /// The new targets of symbols' references.
    copies: HashMap<TypeId, TypeId>,
}

impl<'a> ArrayRewrite<'a> {
    /// Applies the changes to their graph.
    fn apply(self, graph: &mut Graph<'a>) {
        for (id, ty) in self.others {
            graph.set(id, ty);
        }
        for ty in self.more {
            graph.add(ty);
        }
        let symbols = [
            &mut graph.functions,
            &mut graph.objects,
            &mut graph.variables,
        ];
        for symbol in symbols.into_iter().flatten() {
            symbol.ty = self.copies.get(&symbol.ty).copied().unwrap_or(symbol.ty);
        }
    }
}

impl<'g, 'a> ArrayReverser<'g, 'a> {
    fn new(graph: &'g Graph<'a>, base: u32) -> ArrayReverser<'g, 'a> {
        ArrayReverser {
            graph,
            rewrite: ArrayRewrite::default(),
            base,
            reversed: HashMap::new(),
            copies: HashMap::new(),
        }
    }

    fn turn(mut self) -> ArrayRewrite<'a> {
        let graph = self.graph;
        for (id, ty) in graph.types() {
            if let Some(kind) = self.array(id, MAX_COPY_DEPTH) {
                self.rewrite.others.push((id, Type { kind, ..ty.clone() }));
            } else if self.base > 0 {
                let own = ty
                    .clone()
                    .with_references(|to| self.copied(to, MAX_COPY_DEPTH));
                self.rewrite.others.push((id, own));
            }
        }
        for symbol in [&graph.functions, &graph.objects, &graph.variables] {
            for symbol in symbol {
                self.copied(symbol.ty, MAX_COPY_DEPTH);
            }
        }
        self.rewrite.copies = self.copies;
        self.rewrite
    }

    /// Appends a type; returns its id.
    fn add(&mut self, ty: Type<'a>) -> TypeId {
        self.rewrite.more.push(ty);
        let more = u32::try_from(self.rewrite.more.len()).unwrap_or(u32::MAX);
        TypeId(self.graph.last().saturating_add(more))
    }

    /// The reversed form of an array of arrays; `None` for other types.
    fn array(&mut self, id: TypeId, depth: u32) -> Option<TypeKind<'a>> {
        let dimensions = self.graph.dimensions(id);
        let (last, others) = dimensions.split_last()?;
        if others.is_empty() {
            return None;
        }
        // From the innermost outwards: the first is the innermost.
        let mut element = self.copied(last.element, depth);
        for dimension in others {
            let (index, count) = (dimension.index, dimension.count);
            let key = (element, index, count);
            element = match self.reversed.get(&key) {
                Some(known) => *known,
                None => self.add(Type::unnamed(TypeKind::Array {
                    element,
                    index,
                    count,
                })),
            };
            self.reversed.insert(key, element);
        }
        Some(TypeKind::Array {
            element,
            index: last.index,
            count: last.count,
        })
    }

    /// The new target of a reference: the same type, or a copy of a parent's unnamed type that
    /// leads to arrays of arrays.
    fn copied(&mut self, id: TypeId, depth: u32) -> TypeId {
        let is_parents = id != TypeId::NONE && id.0 <= self.base;
        let ty = self.graph.get(id).filter(|_| is_parents);
        let (Some(ty), Some(depth)) = (ty, depth.checked_sub(1)) else {
            return id;
        };
        if let Some(copy) = self.copies.get(&id) {
            return *copy;
        }
        self.copies.insert(id, id);
        let ty = ty.clone();
        let copy = match self.array(id, depth) {
            Some(kind) => Type { kind, ..ty.clone() },
            None if ty.own_name().is_empty() => {
                let own = ty.clone();
                own.with_references(|to| self.copied(to, depth))
            }
            None => return id,
        };
        let copy = if copy == ty { id } else { self.add(copy) };
        self.copies.insert(id, copy);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_found_in_what_gccs_write() {
        let gcc = |major, minor| Some(Gcc { major, minor });
        for (line, expected) in [
            ("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0", gcc(12, 2)),
            ("GCC: (GNU) 8.5.0 20210514 (Red Hat 8.5.0-20)", gcc(8, 5)),
            (
                "GCC: (Alpine 12.2.1_git20220924-r10) 12.2.1 20220924",
                gcc(12, 2),
            ),
            (
                "GCC: (SUSE Linux) 13.2.1 20230912 [revision b96e66fd]",
                gcc(13, 2),
            ),
            ("GCC: (crosstool-NG 1.25.0 (own)) 11.2.0", gcc(11, 2)),
            ("GCC: 14.2.0", gcc(14, 2)),
            ("GCC: (GNU", None),
            ("Debian clang version 14.0.6", None),
            ("Linker: LLD 14.0.6", None),
        ] {
            assert_eq!(Gcc::from_comment(line), expected, "{line}");
        }
        for (text, expected) in [
            ("GNU C17 12.2.0 -mtune=generic -g -gctf", gcc(12, 2)),
            ("GNU C89 8.5.0 20210514 (Red Hat 8.5.0-20) -g", gcc(8, 5)),
            ("GNU C 4.9.2", gcc(4, 9)),
            ("GNU C++17 12.2.0 -g", None),
            ("GNU AS 2.40", None),
            ("Debian clang version 14.0.6", None),
        ] {
            assert_eq!(Gcc::from_producer(text), expected, "{text}");
        }
        let is_wrong = |major, minor| Gcc { major, minor }.quirk().is_some();
        assert!(is_wrong(11, 5) && is_wrong(12, 3) && is_wrong(13, 2));
        assert!(!is_wrong(12, 4) && !is_wrong(13, 3) && !is_wrong(14, 1) && !is_wrong(15, 0));
    }
}
