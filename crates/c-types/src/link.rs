//! The linker: the types of many units as one graph that they share, and a child for each unit that differs.
//!
//! How it is decided what is shared:
//!
//! 1. *Classes.* Types of all units that say the same are one class, where a type that is cited by its tag counts as the tag alone. All circles in C go through a tag,
//!    so that classes are found from the leaves upwards.
//! 2. *Choices.* Of each name, one class can be the shared one: the one that most units have. If some
//!    unit knows a tag only as a forward, and others disagree on it, the shared one is the forward, since nobody knows what that unit means.
//! 3. *Differences.* In each unit, what is not of the chosen class differs, and whatever leads to something that differs does so too. All
//!    else is shared: everything that can be come to from it is the same in the unit and in what is shared. Nothing more is copied into
//!    a child, and a child's types are the unit's own, exactly. Where a forward was chosen, pointers to it do not differ: the child completes it by its tag.

mod classes;
mod emit;
mod layer;
mod names;
mod sharing;

use std::borrow::Cow;
use std::sync::Arc;

use crate::graph::Graph;
use crate::parallel;
use classes::TypeClasses;
use emit::Emitter;
use sharing::Choices;

/// The types of one unit, to be linked.
#[derive(Debug, Clone)]
pub struct LinkUnit<'a> {
    /// The name of its source file. Its child has it, if it gets one; `#0`, `#1` and so on are added where other units have children of that name already, as ld does.
    pub name: Cow<'a, str>,
    /// The child that it has together with all units that name the same one, instead of one for itself.
    pub child: Option<Cow<'a, str>>,
    /// Its types, functions and variables.
    pub graph: Arc<Graph<'a>>,
}

impl<'a> LinkUnit<'a> {
    /// A unit with the name that its types say, and a child for itself.
    #[must_use]
    pub fn new(graph: Arc<Graph<'a>>) -> LinkUnit<'a> {
        LinkUnit {
            name: graph.unit.clone().unwrap_or_default(),
            child: None,
            graph,
        }
    }
}

/// What becomes shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Share {
    /// All types on which no units disagree.
    #[default]
    Unconflicted,
    /// Of these, only types that more than one unit has.
    Duplicated,
}

/// How units are linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOptions {
    /// What becomes shared.
    pub share: Share,
    /// How many threads may work. The result is the same for any number.
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

/// What units are linked into.
#[derive(Debug, Clone)]
pub struct LinkOutput<'a> {
    /// What all units share.
    pub shared: Arc<Graph<'a>>,
    /// The children with their names: what single units have beyond that.
    pub children: Vec<(Cow<'a, str>, Graph<'a>)>,
}

/// Links units. Where units that have a child together disagree, the types of the first are found by name in it.
///
/// The ten lines that make a linker:
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
/// # let open = |bytes| CtfSection::open(bytes, ElfContext::default()).unwrap();
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
    let statuses = parallel::map(all, options.threads, differ);
    let emitter = Emitter {
        units,
        classes: &classes,
        choices: &choices,
        statuses: &statuses,
    };
    emitter.link_output(options.threads)
}
