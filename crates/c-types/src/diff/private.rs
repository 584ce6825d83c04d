//! Types that a library keeps to itself.

use hashbrown::{HashMap, HashSet};

use crate::graph::{Graph, NameSpace, TypeId, TypeKind};

/// The structures and unions that no public header defines. Programs have pointers to them, and do
/// not know what these point to.
#[derive(Debug, Clone, Default)]
pub struct PrivateTypes(HashSet<TypeId>);

impl PrivateTypes {
    /// The private types of a graph, by a function that says whether a header defines a name. A
    /// structure without a tag is private if it has names (`typedef`), and all of them are.
    #[must_use]
    pub fn new(graph: &Graph<'_>, is_public: impl Fn(NameSpace, &str) -> bool) -> PrivateTypes {
        let mut private = HashSet::new();
        let mut named: HashMap<TypeId, bool> = HashMap::new();
        for (id, ty) in graph.types() {
            match (&ty.kind, ty.name_space()) {
                (TypeKind::Record { .. }, Some(space)) if !is_public(space, &ty.name) => {
                    private.insert(id);
                }
                (TypeKind::Typedef(_), Some(space)) => {
                    let Some(target) = graph.resolve(id) else {
                        continue;
                    };
                    let is_untagged = graph.get(target).is_some_and(|target| {
                        matches!(target.kind, TypeKind::Record { .. }) && target.name.is_empty()
                    });
                    if is_untagged {
                        let is_any_public = named.entry(target).or_default();
                        *is_any_public |= is_public(space, &ty.name);
                    }
                }
                _ => {}
            }
        }
        let untagged = named.into_iter().filter(|(_, is_public)| !is_public);
        private.extend(untagged.map(|(id, _)| id));
        PrivateTypes(private)
    }

    /// Whether a type, behind typedefs and qualifiers, is private.
    #[must_use]
    pub fn contains(&self, id: TypeId) -> bool {
        self.0.contains(&id)
    }
}
