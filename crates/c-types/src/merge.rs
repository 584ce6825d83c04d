//! Merging graphs of many units into one without children: each type once, and conflicting types
//! side by side.
//!
//! This is for BTF, which has no dictionaries. Two types are merged if they are equal and their
//! references are merged, also in cycles. Partition refinement finds them: all types start in one
//! class. Classes are split by the types' own properties and by the classes of their references,
//! until nothing changes.

use std::hash::{Hash, Hasher};

use hashbrown::HashMap;

use crate::graph::{
    Declaration, DeclarationTag, Graph, Linkage, Tag, Type, TypeId, TypeKind, TypedSymbol,
};

/// The maximum number of rounds. Types of C never differ only that many references away; types of a
/// broken file can.
const MAX_ROUNDS: usize = 1 << 10;

impl<'a> Graph<'a> {
    /// All types of some graphs as one graph, each once. A forward becomes its definition, if there
    /// is exactly one.
    #[must_use]
    pub fn merged(units: &[&Graph<'a>]) -> Graph<'a> {
        let mut all = Graph::concatenate(units);
        loop {
            let classes = all.classes();
            let completed = all.complete(&classes);
            if !completed {
                return all.representatives(&classes);
            }
        }
    }

    /// The concatenation of the graphs.
    fn concatenate(units: &[&Graph<'a>]) -> Graph<'a> {
        let mut all = Graph::new(units.first().map_or(8, |graph| graph.pointer_size));
        // A parent's types are added once, with the first of its children.
        let mut bases: HashMap<*const Graph<'a>, u32> = HashMap::new();
        for graph in units {
            let parent = graph.parent().map(|parent| {
                let known = bases.get(&std::ptr::from_ref(parent)).copied();
                known.unwrap_or_else(|| {
                    let base = all.last();
                    all.append(parent, base, None);
                    bases.insert(parent, base);
                    base
                })
            });
            let base = match bases.get(&std::ptr::from_ref(*graph)) {
                Some(base) => *base,
                None => {
                    let base = all.last();
                    all.append(graph, base, parent);
                    bases.insert(*graph, base);
                    base
                }
            };
            let id = |id: TypeId| graph.relocated_id(id, base, parent);
            let moved = |symbol: &TypedSymbol<'a>| symbol.with_type(id(symbol.ty));
            all.declaration_tags.extend(moved_tags(graph, id));
            all.sections.extend(graph.sections.iter().cloned());
            all.functions.extend(graph.functions.iter().map(moved));
            all.objects.extend(graph.objects.iter().map(moved));
            all.variables.extend(graph.variables.iter().map(moved));
        }
        all
    }

    /// The new id of a type: the graph's own types move behind `base`, and its parent's behind
    /// `parent`.
    fn relocated_id(&self, id: TypeId, base: u32, parent: Option<u32>) -> TypeId {
        match id.0.checked_sub(self.base()) {
            _ if id == TypeId::NONE => id,
            Some(own) if own > 0 => TypeId(base.saturating_add(own)),
            _ => TypeId(parent.unwrap_or(0).saturating_add(id.0)),
        }
    }

    fn append(&mut self, graph: &Graph<'a>, base: u32, parent: Option<u32>) {
        for (_, ty) in graph.types() {
            let moved = ty.clone();
            self.add(moved.with_references(|id| graph.relocated_id(id, base, parent)));
        }
    }

    /// The class of each type, by its id; 0 for no type.
    fn classes(&self) -> Vec<u32> {
        let (said, mut count) = self.partition(|_, ty| ShallowType(ty));
        let mut classes = said.clone();
        let class = |classes: &[u32], id: TypeId| classes.get(index(id.0)).copied().unwrap_or(0);
        for _ in 0..MAX_ROUNDS {
            let (next, more) = self.partition(|id, ty| {
                let mut key = vec![class(&said, id)];
                match &ty.kind {
                    // As in comparisons, an array's index type does not matter.
                    TypeKind::Array { element, .. } => key.push(class(&classes, *element)),
                    _ => ty.each_reference(|id| key.push(class(&classes, id))),
                }
                key
            });
            classes = next;
            if more == count {
                return classes;
            }
            count = more;
        }
        // Then no types are merged.
        (0..=self.last()).collect()
    }

    /// A class for each distinct key, and the number of classes.
    fn partition<'g, K: Hash + Eq>(
        &'g self,
        key: impl Fn(TypeId, &'g Type<'a>) -> K,
    ) -> (Vec<u32>, usize) {
        let mut found: HashMap<K, u32> = HashMap::new();
        let mut classes = vec![0];
        for (id, ty) in self.types() {
            let next = u32::try_from(found.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1);
            classes.push(*found.entry(key(id, ty)).or_insert(next));
        }
        (classes, found.len())
    }

    /// Replaces forwards that have one definition. Returns whether there were any.
    fn complete(&mut self, classes: &[u32]) -> bool {
        let completed = self.definitions(classes);
        for (id, definition) in &completed {
            if let Some(ty) = self.get(*definition).cloned() {
                self.set(*id, ty);
            }
        }
        !completed.is_empty()
    }

    /// The forwards with exactly one definition, each with that.
    fn definitions(&self, classes: &[u32]) -> Vec<(TypeId, TypeId)> {
        let mut definitions: HashMap<(Tag, &str), HashMap<u32, TypeId>> = HashMap::new();
        for (id, ty) in self.types() {
            let tag = ty
                .tag()
                .filter(|_| !matches!(ty.kind, TypeKind::Forward(_)));
            if let (Some(tag), Some(class), false) =
                (tag, classes.get(index(id.0)), ty.name.is_empty())
            {
                let of_tag = definitions.entry((tag, &ty.name)).or_default();
                of_tag.entry(*class).or_insert(id);
            }
        }
        let mut completed = Vec::new();
        for (id, ty) in self.types() {
            if let TypeKind::Forward(tag) = ty.kind
                && let Some(of_tag) = definitions.get(&(tag, &*ty.name))
                && of_tag.len() == 1
            {
                completed.extend(of_tag.values().map(|definition| (id, *definition)));
            }
        }
        completed
    }

    /// The first type of each class.
    fn representatives(&self, classes: &[u32]) -> Graph<'a> {
        let mut ids: HashMap<u32, TypeId> = HashMap::new();
        let mut firsts = Vec::new();
        for (id, ty) in self.types() {
            let class = classes.get(index(id.0)).copied().unwrap_or(0);
            let next = TypeId(
                u32::try_from(ids.len())
                    .unwrap_or(u32::MAX)
                    .saturating_add(1),
            );
            if *ids.entry(class).or_insert(next) == next {
                firsts.push(ty);
            }
        }
        let id = |id: TypeId| {
            let class = classes.get(index(id.0));
            class
                .and_then(|class| ids.get(class))
                .copied()
                .unwrap_or_default()
        };
        let mut merged = Graph::new(self.pointer_size);
        for ty in firsts {
            merged.add(ty.clone().with_references(id));
        }
        let symbols = |symbols: &[TypedSymbol<'a>]| {
            let symbols = symbols.iter();
            let mut symbols: Vec<_> = symbols.map(|one| one.with_type(id(one.ty))).collect();
            symbols.sort();
            symbols.dedup_by(|next, kept| {
                let is_same = (&next.name, next.ty) == (&kept.name, kept.ty);
                if is_same && kept.linkage == Some(Linkage::Static) {
                    kept.linkage = next.linkage;
                }
                is_same
            });
            symbols
        };
        let mut tags: Vec<_> = moved_tags(self, id).collect();
        tags.sort();
        tags.dedup();
        merged.declaration_tags = tags;
        merged.sections.clone_from(&self.sections);
        merged.functions = symbols(&self.functions);
        merged.objects = symbols(&self.objects);
        merged.variables = symbols(&self.variables);
        merged
    }
}

/// The tags of declarations, with other ids of types.
fn moved_tags<'g, 'a>(
    graph: &'g Graph<'a>,
    id: impl Fn(TypeId) -> TypeId + 'g,
) -> impl Iterator<Item = DeclarationTag<'a>> + 'g {
    graph.declaration_tags.iter().map(move |tag| {
        let mut tag = tag.clone();
        if let Declaration::Type(ty) = &mut tag.of {
            *ty = id(*ty);
        }
        tag
    })
}

fn index(id: u32) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// A type without its references.
struct ShallowType<'t, 'a>(&'t Type<'a>);

impl PartialEq for ShallowType<'_, '_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals_shallow(other.0)
    }
}

impl Eq for ShallowType<'_, '_> {}

impl Hash for ShallowType<'_, '_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.own_name().hash(state);
        std::mem::discriminant(&self.0.kind).hash(state);
        match &self.0.kind {
            TypeKind::Record { size, members, .. } => {
                size.hash(state);
                members.iter().for_each(|member| member.name.hash(state));
            }
            TypeKind::Enum { enumerators, .. } => {
                enumerators.iter().for_each(|one| one.name.hash(state));
            }
            TypeKind::Function { parameters, .. } => {
                parameters.iter().for_each(|one| one.name.hash(state));
            }
            TypeKind::Array { count, .. } => count.hash(state),
            _ => {}
        }
    }
}
