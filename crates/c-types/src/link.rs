//! The linker: one shared graph for the types of many units, and a child graph for each unit that
//! differs.
//!
//! Choosing the shared types:
//!
//! 1. *Classes.* Equal types of all units form a class. A reference to a tagged type counts as its
//!    tag alone. All cycles in C go through a tag, so classes are found from the leaves upwards.
//! 2. *Choices.* For each name, one class can be shared: the one that most units have. If some unit
//!    has only a forward for a tag, and others disagree on the tag, the forward is shared: the
//!    meaning in that unit is unknown.
//! 3. *Differences.* In each unit, types outside the chosen class differ, and so do types that
//!    refer to types that differ. All others are shared: every type reachable from them is equal in
//!    the unit and in the shared graph. A child has only types that differ, and they are exactly
//!    the unit's own. If a forward was chosen, pointers to it do not differ: the child completes it
//!    by its tag.

mod classes;
mod emit;
mod layer;
mod names;
mod sharing;

use std::borrow::Cow;
use std::sync::Arc;

use crate::archive::SHARED;
use crate::graph::{Enumerator, Graph, TypeKind};
use classes::TypeClasses;
use emit::Emitter;
use sharing::Choices;

/// The types of one unit, to be linked.
#[derive(Debug, Clone)]
pub struct LinkUnit<'a> {
    /// The name of its source file, and of its child. If other units have children of that name,
    /// `#0`, `#1` and so on are added, as in ld.
    pub name: Cow<'a, str>,
    /// The common child of all units with the same value here, instead of a child of its own.
    pub child: Option<Cow<'a, str>>,
    /// Its types, functions and variables.
    pub graph: Arc<Graph<'a>>,
}

impl<'a> LinkUnit<'a> {
    /// A unit named by its graph, with a child of its own.
    #[must_use]
    pub fn new(graph: Arc<Graph<'a>>) -> LinkUnit<'a> {
        LinkUnit {
            name: graph.unit.clone().unwrap_or_default(),
            child: None,
            graph,
        }
    }
}

/// The types to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Share {
    /// All types on which no units disagree.
    #[default]
    Unconflicted,
    /// Only those among them that more than one unit has.
    Duplicated,
}

/// Options of the linker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOptions {
    /// The types to share.
    pub share: Share,
    /// The maximum number of threads. The result does not depend on it.
    pub threads: usize,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            share: Share::default(),
            threads: 1,
        }
    }
}

/// The result of linking units.
#[derive(Debug, Clone)]
pub struct LinkOutput<'a> {
    /// The shared types.
    pub shared: Arc<Graph<'a>>,
    /// The children with their names: the types of single units beyond the shared ones.
    pub children: Vec<(Cow<'a, str>, Graph<'a>)>,
}

impl<'a> LinkOutput<'a> {
    /// All graphs with the names of their dictionaries, the shared one first.
    pub fn dictionaries(&self) -> impl Iterator<Item = (&str, &Graph<'a>)> {
        let children = self.children.iter();
        let children = children.map(|(name, graph)| (&**name, graph));
        std::iter::once((SHARED, &*self.shared)).chain(children)
    }

    /// The enumerators with values that CTF cannot represent, each as a message.
    #[must_use]
    pub fn wide_enumerators(&self) -> Vec<String> {
        let mut wide = Vec::new();
        for (_, graph) in self.dictionaries() {
            for (id, ty) in graph.types() {
                let TypeKind::Enum { enumerators, .. } = &ty.kind else {
                    continue;
                };
                let is_wide = |one: &&Enumerator<'_>| i32::try_from(one.value).is_err();
                wide.extend(enumerators.iter().filter(is_wide).map(|one| {
                    let ty = graph.declare(id, "");
                    let (name, value) = (&one.name, one.value);
                    format!("{ty}: {name} is {value}; CTF has only its low 32 bits")
                }));
            }
        }
        wide
    }
}

/// Links units. If units with a common child disagree, look-ups by name there find the types of the
/// first.
///
/// A linker in ten lines:
///
/// ```
/// use unspool_c_types::{ElfContext, LinkOptions, LinkUnit, CtfSection, CtfWriter, link};
///
/// fn link_sections<'a>(sections: &'a [CtfSection<'a>]) -> Vec<u8> {
///     let units = sections.iter().flat_map(CtfSection::parents);
///     let units: Vec<_> = units.map(|unit| LinkUnit::new(unit.reading.graph)).collect();
///     let linked = link(&units, LinkOptions::default());
///     CtfWriter::default().write(&linked)
/// }
/// # use unspool_c_types::{Graph, TypeKind, Member, Tag, Type, TypeId};
/// # let mut graph = Graph::new(8);
/// # let member = Member { name: "next".into(), ty: TypeId(2), offset: 0, bits: None };
/// # let node = TypeKind::Record { tag: Tag::Struct, size: 8, members: vec![member] };
/// # graph.add(Type::named("node", node));
/// # graph.add(Type::unnamed(TypeKind::Pointer(TypeId(1))));
/// # let object = CtfWriter::default().dict(&graph);
/// # let open = |bytes| CtfSection::open(bytes, ElfContext::BARE_64).unwrap();
/// # let linked = link_sections(&[open(&object), open(&object)]);
/// # assert_eq!(open(&linked).parents()[0].reading.graph.named("node").count(), 1);
/// ```
#[must_use]
pub fn link<'a>(units: &[LinkUnit<'a>], options: LinkOptions) -> LinkOutput<'a> {
    let graphs = units.iter().map(|unit| &*unit.graph).collect();
    let classes = TypeClasses::new(graphs, options.threads);
    let all: Vec<usize> = (0..units.len()).collect();
    let choices = Choices::new(&classes, options.share, (&all, None));
    let differ = |unit| sharing::differences(&classes, &choices, (unit, None));
    let statuses = unspool_parallel::map(all, options.threads, differ);
    let emitter = Emitter {
        units,
        classes: &classes,
        choices: &choices,
        statuses: &statuses,
    };
    emitter.link_output(options.threads)
}
