//! Changes between two versions of an interface, and their effect on programs built with the old
//! version.
//!
//! The interface is a list of functions and data. All types reachable from theirs are compared in
//! both versions, shortest paths first. So each changed type is reported once, with its path.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::{HashMap, HashSet};

use crate::graph::{Enumerator, Graph, Member, Qualifier, Type, TypeId, TypeKind, TypedSymbol};

/// The effect of a change on programs built with the old version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compatibility {
    /// They work as before.
    Compatible,
    /// They may not.
    Breaking,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceChange {
    /// The effect.
    pub compatibility: Compatibility,
    /// The changed function, data or type.
    pub subject: String,
    /// The difference.
    pub message: String,
    /// The path from an exported name: `parse(1)->next`, with `()` for the return value, `(1)` for
    /// the first parameter, `[]` for elements. Empty for the names themselves.
    pub path: String,
}

/// One version of an interface.
#[derive(Debug, Clone, Copy)]
pub struct Interface<'i, 'a> {
    /// Its types. Functions and data are looked up in its lists.
    pub graph: &'i Graph<'a>,
    /// The exported functions.
    pub functions: &'i BTreeSet<String>,
    /// The exported data.
    pub objects: &'i BTreeSet<String>,
    /// The thread-local data among these.
    pub thread_locals: &'i BTreeSet<String>,
}

/// The changes from an old version of an interface to a new one, breaking ones first. Empty if
/// nothing with a type changed.
#[must_use]
pub fn diff(old: Interface<'_, '_>, new: Interface<'_, '_>) -> Vec<InterfaceChange> {
    let mut comparison = InterfaceComparison {
        old: old.graph,
        new: new.graph,
        visited: HashSet::new(),
        worklist: VecDeque::new(),
        steps: Vec::new(),
        changes: Vec::new(),
    };
    comparison.names("function", old.functions, new.functions);
    comparison.names("data", old.objects, new.objects);
    comparison.threads(old, new);
    let (before, after) = (old.graph, new.graph);
    let lists = [
        (
            old.functions,
            by_name(&before.functions, &[]),
            by_name(&after.functions, &[]),
        ),
        (
            old.objects,
            by_name(&before.objects, &before.variables),
            by_name(&after.objects, &after.variables),
        ),
    ];
    for (exported, old, new) in lists {
        for name in exported {
            if let (Some(one), Some(two)) = (old.get(name.as_str()), new.get(name.as_str())) {
                comparison.queue(None, name.clone(), *one, *two);
            }
        }
    }
    while let Some((one, two, step)) = comparison.worklist.pop_front() {
        comparison.pair(one, two, step);
    }
    let mut changes = comparison.changes;
    changes.sort_by_key(|change| std::cmp::Reverse(change.compatibility));
    changes
}

/// The types of names: the first type in these lists, in order.
fn by_name<'s>(
    first: &'s [TypedSymbol<'_>],
    then: &'s [TypedSymbol<'_>],
) -> HashMap<&'s str, TypeId> {
    let all = first.iter().chain(then).rev();
    all.map(|one| (&*one.name, one.ty)).collect()
}

struct InterfaceComparison<'g, 'a, 'b> {
    old: &'g Graph<'a>,
    new: &'g Graph<'b>,
    visited: HashSet<(TypeId, TypeId)>,
    worklist: VecDeque<(TypeId, TypeId, usize)>,
    /// The path to each pair: the previous pair, and the step from it.
    steps: Vec<(Option<usize>, String)>,
    changes: Vec<InterfaceChange>,
}

/// A type behind typedefs and qualifiers, and these.
struct Resolved<'g, 'a> {
    id: TypeId,
    ty: Option<&'g Type<'a>>,
    /// The outermost name.
    name: Option<&'g str>,
    qualifiers: BTreeSet<&'static str>,
}

fn resolve<'g, 'a>(graph: &'g Graph<'a>, id: TypeId) -> Resolved<'g, 'a> {
    let mut resolved = Resolved {
        id: TypeId::NONE,
        ty: None,
        name: None,
        qualifiers: BTreeSet::new(),
    };
    let Some(behind) = graph.resolve_qualified(id) else {
        return resolved;
    };
    let mut at = id;
    // The outermost name is behind each qualifier at most once.
    for _ in 0..4 {
        match graph.get(at).map(|ty| (&ty.kind, &ty.name)) {
            Some((TypeKind::Qualified(_, to), _)) => at = *to,
            Some((TypeKind::Typedef(_), name)) => {
                resolved.name = Some(name);
                break;
            }
            _ => break,
        }
    }
    if let Some(ty) = graph.get(behind.id) {
        (resolved.id, resolved.ty) = (behind.id, Some(ty));
    }
    // Pointers that do not overlap (`restrict`) only matter to the callee.
    let counted = behind
        .qualifiers()
        .filter(|one| *one != Qualifier::Restrict);
    resolved.qualifiers = counted.map(Qualifier::keyword).collect();
    resolved
}

impl<'g> InterfaceComparison<'g, '_, '_> {
    /// Reports removed and new names.
    fn names(&mut self, what: &str, old: &BTreeSet<String>, new: &BTreeSet<String>) {
        let gone = old
            .difference(new)
            .map(|name| (name, Compatibility::Breaking, "is gone"));
        let added = new
            .difference(old)
            .map(|name| (name, Compatibility::Compatible, "is new"));
        let changes = gone
            .chain(added)
            .map(|(name, effect, said)| InterfaceChange {
                compatibility: effect,
                subject: format!("{what} {name}"),
                message: said.to_owned(),
                path: String::new(),
            });
        self.changes.extend(changes);
    }

    /// Reports data that is thread-local in one version only: code accesses it in another way.
    fn threads(&mut self, old: Interface<'_, '_>, new: Interface<'_, '_>) {
        for name in old.objects.intersection(new.objects) {
            let is_own = |version: Interface<'_, '_>| version.thread_locals.contains(name);
            let what = match (is_own(old), is_own(new)) {
                (false, true) => "is each thread's own, was one for all",
                (true, false) => "is one for all threads, was each thread's own",
                _ => continue,
            };
            self.changes.push(InterfaceChange {
                compatibility: Compatibility::Breaking,
                subject: format!("data {name}"),
                message: what.to_owned(),
                path: String::new(),
            });
        }
    }

    /// Queues the two types that a step reaches.
    fn queue(&mut self, from: Option<usize>, step: String, one: TypeId, two: TypeId) {
        self.steps.push((from, step));
        self.worklist.push_back((one, two, self.steps.len() - 1));
    }

    /// The path to a pair of types.
    fn path(&self, step: usize) -> String {
        let mut parts = Vec::new();
        let mut at = Some(step);
        while let Some((from, part)) = at.and_then(|at| self.steps.get(at)) {
            parts.push(part.as_str());
            at = *from;
        }
        let path: String = parts.into_iter().rev().collect();
        path.replace("->.", "->")
    }

    fn report(
        &mut self,
        compatibility: Compatibility,
        subject: impl Into<String>,
        what: String,
        step: usize,
    ) {
        self.changes.push(InterfaceChange {
            compatibility,
            subject: subject.into(),
            message: what,
            path: self.path(step),
        });
    }

    fn pair(&mut self, one: TypeId, two: TypeId, step: usize) {
        let (old, new) = (resolve(self.old, one), resolve(self.new, two));
        let (said, says) = (self.old.declare(one, ""), self.new.declare(two, ""));
        let is_only_named = old.ty.is_some_and(|ty| ty.own_name().is_empty());
        let is_named_anew = old.name != new.name && !is_only_named;
        if said != says && (old.qualifiers != new.qualifiers || is_named_anew) {
            // Programs that write to data that has become constant crash.
            let is_data = self.steps.get(step).is_some_and(|(from, _)| from.is_none());
            let is_closed = new.qualifiers.contains("const") && !old.qualifiers.contains("const");
            let effect = if is_data && is_closed {
                Compatibility::Breaking
            } else {
                Compatibility::Compatible
            };
            self.report(effect, self.path(step), differs(&said, &says), step);
        }
        if !self.visited.insert((old.id, new.id)) {
            return;
        }
        match (old.ty, new.ty) {
            (Some(old), Some(new)) => self.types((old, &said), (new, &says), step),
            (None, None) => {}
            _ => self.report(
                Compatibility::Breaking,
                self.path(step),
                differs(&said, &says),
                step,
            ),
        }
    }

    fn types(
        &mut self,
        (old, said): (&'g Type<'_>, &str),
        (new, says): (&'g Type<'_>, &str),
        step: usize,
    ) {
        match (&old.kind, &new.kind) {
            (TypeKind::Unknown, TypeKind::Unknown) => {}
            (TypeKind::Integer(one), TypeKind::Integer(two))
            | (TypeKind::Float(one), TypeKind::Float(two)) => {
                let effect = if one == two {
                    Compatibility::Compatible
                } else {
                    Compatibility::Breaking
                };
                if one != two || old.name != new.name {
                    self.report(effect, self.path(step), differs(said, says), step);
                }
            }
            (TypeKind::Pointer(one), TypeKind::Pointer(two)) => {
                self.queue(Some(step), "->".to_owned(), *one, *two);
            }
            (
                TypeKind::Array { element, count, .. },
                TypeKind::Array {
                    element: other,
                    count: others,
                    ..
                },
            ) => {
                if count != others {
                    let what = format!("has {others} elements, had {count}");
                    self.report(Compatibility::Breaking, self.path(step), what, step);
                }
                self.queue(Some(step), "[]".to_owned(), *element, *other);
            }
            (
                TypeKind::Slice {
                    of, bits, offset, ..
                },
                TypeKind::Slice {
                    of: other,
                    bits: more,
                    offset: others,
                    ..
                },
            ) => {
                if (bits, offset) != (more, others) {
                    self.report(
                        Compatibility::Breaking,
                        self.path(step),
                        differs(said, says),
                        step,
                    );
                }
                self.queue(Some(step), String::new(), *of, *other);
            }
            (TypeKind::Function { .. }, TypeKind::Function { .. }) => {
                self.functions(old, new, step);
            }
            (TypeKind::Record { tag, .. }, TypeKind::Record { tag: other, .. }) if tag == other => {
                self.records((old, said), (new, says), step);
            }
            (TypeKind::Enum { .. }, TypeKind::Enum { .. }) => {
                self.enums((old, said), (new, says), step);
            }
            // Code that only has the tag depends on nothing else.
            (TypeKind::Forward(_), _) | (_, TypeKind::Forward(_))
                if old.tag() == new.tag() && old.tag().is_some() =>
            {
                if old.own_name() != new.own_name() {
                    self.report(
                        Compatibility::Breaking,
                        self.path(step),
                        differs(said, says),
                        step,
                    );
                }
            }
            _ => self.report(
                Compatibility::Breaking,
                self.path(step),
                differs(said, says),
                step,
            ),
        }
    }

    fn functions(&mut self, old: &'g Type<'_>, new: &'g Type<'_>, step: usize) {
        let (
            TypeKind::Function {
                returns,
                parameters,
                is_variadic,
            },
            TypeKind::Function {
                returns: other,
                parameters: others,
                is_variadic: varies,
            },
        ) = (&old.kind, &new.kind)
        else {
            return;
        };
        let is_open = |count: usize, is_variadic: bool| count == 0 && is_variadic;
        // `int f()` does not declare its parameters.
        if !is_open(parameters.len(), *is_variadic) && !is_open(others.len(), *varies) {
            if parameters.len() != others.len() {
                let what = format!("has {} parameters, had {}", others.len(), parameters.len());
                self.report(Compatibility::Breaking, self.path(step), what, step);
            }
            if is_variadic != varies {
                let what = if *varies {
                    "takes more parameters (...)"
                } else {
                    "takes no more parameters (...)"
                };
                self.report(
                    Compatibility::Breaking,
                    self.path(step),
                    what.to_owned(),
                    step,
                );
            }
        }
        self.queue(Some(step), "()".to_owned(), *returns, *other);
        for (nth, (one, two)) in (1..).zip(parameters.iter().zip(others)) {
            self.queue(Some(step), format!("({nth})"), one.ty, two.ty);
        }
    }

    /// Compares tags and sizes of structures and enumerations.
    fn tags_and_sizes(
        &mut self,
        (old, said, size): (&Type<'_>, &str, u64),
        (new, says, other): (&Type<'_>, &str, u64),
        step: usize,
    ) {
        if old.own_name() != new.own_name() {
            self.report(Compatibility::Compatible, said, differs(said, says), step);
        }
        if size != other {
            let what = format!("has {other} bytes, had {size}");
            self.report(Compatibility::Breaking, said, what, step);
        }
    }

    fn records(
        &mut self,
        (old, said): (&'g Type<'_>, &str),
        (new, says): (&'g Type<'_>, &str),
        step: usize,
    ) {
        let (
            TypeKind::Record { size, members, .. },
            TypeKind::Record {
                size: other,
                members: others,
                ..
            },
        ) = (&old.kind, &new.kind)
        else {
            return;
        };
        self.tags_and_sizes((old, said, *size), (new, says, *other), step);
        let (members, others) = (
            with_dwarf_bit_fields(self.old, members),
            with_dwarf_bit_fields(self.new, others),
        );
        let mut matched = BTreeSet::new();
        for member in &members {
            let found = find(member, &others).or_else(|| self.renamed(member, &members, &others));
            let Some((at, found)) = found else {
                let what = format!("has no member {} any more", declaration(self.old, member));
                self.report(Compatibility::Breaking, said, what, step);
                continue;
            };
            matched.insert(at);
            self.member(said, member, found, step);
        }
        for (_, member) in others
            .iter()
            .enumerate()
            .filter(|(at, _)| !matched.contains(at))
        {
            let what = format!("has a new member {}", declaration(self.new, member));
            self.report(Compatibility::Compatible, said, what, step);
        }
    }

    /// The member at another's offset with a new name.
    fn renamed<'m, 'n>(
        &self,
        member: &Member<'_>,
        members: &[Member<'_>],
        others: &'m [Member<'n>],
    ) -> Option<(usize, &'m Member<'n>)> {
        let mut others = others.iter().enumerate();
        others.find(|(_, other)| {
            let is_same_place = (other.offset, other.bits) == (member.offset, member.bits);
            let is_new = !other.name.is_empty() && find(other, members).is_none();
            is_same_place && is_new && self.old.size(member.ty) == self.new.size(other.ty)
        })
    }

    fn member(&mut self, said: &str, member: &Member<'_>, found: &Member<'_>, step: usize) {
        let name = declaration(self.old, member);
        if member.name != found.name {
            let what = format!("calls {name} {}", declaration(self.new, found));
            self.report(Compatibility::Compatible, said, what, step);
        }
        if member.offset != found.offset {
            let what = format!(
                "has {name} at {}, had it at {}",
                byte_position(found.offset),
                byte_position(member.offset)
            );
            self.report(Compatibility::Breaking, said, what, step);
        }
        if member.bits != found.bits {
            let bits = |bits: Option<u16>| bits.map_or("all".to_owned(), |bits| bits.to_string());
            let what = format!(
                "has {} bits of {name}, had {}",
                bits(found.bits),
                bits(member.bits)
            );
            self.report(Compatibility::Breaking, said, what, step);
        }
        self.queue(Some(step), format!(".{}", member.name), member.ty, found.ty);
    }

    fn enums(
        &mut self,
        (old, said): (&'g Type<'_>, &str),
        (new, says): (&'g Type<'_>, &str),
        step: usize,
    ) {
        let (
            TypeKind::Enum {
                size, enumerators, ..
            },
            TypeKind::Enum {
                size: other,
                enumerators: others,
                ..
            },
        ) = (&old.kind, &new.kind)
        else {
            return;
        };
        self.tags_and_sizes((old, said, *size), (new, says, *other), step);
        let find = |name: &str, all: &[Enumerator<'_>]| {
            let found = all.iter().find(|one| one.name == name);
            found.map(|one| one.value)
        };
        for one in enumerators {
            match find(&one.name, others) {
                Some(value) if value == one.value => {}
                Some(value) => {
                    let what = format!("has {} = {value}, had {}", one.name, one.value);
                    self.report(Compatibility::Breaking, said, what, step);
                }
                None => {
                    let what = format!("has no {} = {} any more", one.name, one.value);
                    self.report(Compatibility::Breaking, said, what, step);
                }
            }
        }
        for one in others
            .iter()
            .filter(|one| find(&one.name, enumerators).is_none())
        {
            let what = format!("has a new {} = {}", one.name, one.value);
            self.report(Compatibility::Compatible, said, what, step);
        }
    }
}

/// Members with bit-fields in the form of DWARF and BTF: the member has the width. In CTF its type
/// is a part of an integer.
fn with_dwarf_bit_fields<'a>(graph: &Graph<'a>, members: &[Member<'a>]) -> Vec<Member<'a>> {
    let field = |member: &Member<'a>| match graph.get(member.ty).map(|ty| &ty.kind) {
        Some(TypeKind::Slice {
            of, bits, offset, ..
        }) => Member {
            name: member.name.clone(),
            ty: *of,
            offset: member.offset.saturating_add(u64::from(*offset)),
            bits: Some(*bits),
        },
        _ => member.clone(),
    };
    members.iter().map(field).collect()
}

/// The counterpart of a member: by its name, or for an unnamed one by its offset.
fn find<'m, 'a>(member: &Member<'_>, others: &'m [Member<'a>]) -> Option<(usize, &'m Member<'a>)> {
    let mut others = others.iter().enumerate();
    others.find(|(_, other)| {
        if member.name.is_empty() {
            other.name.is_empty() && other.offset == member.offset
        } else {
            other.name == member.name
        }
    })
}

fn declaration(graph: &Graph<'_>, member: &Member<'_>) -> String {
    if member.name.is_empty() {
        graph.declare(member.ty, "")
    } else {
        member.name.to_string()
    }
}

/// A position in bits as bytes, and bits after them.
fn byte_position(bits: u64) -> String {
    match bits % 8 {
        0 => (bits / 8).to_string(),
        rest => format!("{}:{rest}", bits / 8),
    }
}

fn differs(old: &str, new: &str) -> String {
    format!("is {new}, was {old}")
}
