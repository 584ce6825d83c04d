//! Changes between two versions of an interface, and their effect on programs built with the old
//! version.
//!
//! The interface is a list of functions and data. All types reachable from theirs are compared in
//! both versions, shortest paths first. So each changed type is reported once, with its path, and
//! with all names that lead to it.

mod exports;
mod members;
mod private;
mod reach;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::{self, Display, Formatter};

use hashbrown::{HashMap, HashSet};

use crate::elf::SymbolKind;
use crate::graph::{
    Enumerator, Graph, Member, Number, Qualifier, Type, TypeId, TypeKind, UNKNOWN_TYPE,
};
use exports::SymbolTypes;
pub use exports::{Export, ExportName, Exports};
use members::{counterparts, named_members};
pub use private::PrivateTypes;
pub use reach::ExportSet;
use reach::{Origin, Pairs};

/// The effect of a change on programs built with the old version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compatibility {
    /// They work as before.
    Compatible,
    /// They may not.
    Breaking,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A function, data or a version is gone.
    Removed,
    /// It is new.
    Added,
    /// A symbol has another version, or is not the default one any more.
    Version,
    /// The name of the library is another one.
    Soname,
    /// Data is thread-local in one version only.
    ThreadLocal,
    /// A size in bytes, or a number of elements.
    Size,
    /// A type is another one.
    Type,
    /// A name or a qualifier of a type.
    Name,
    /// The number of parameters.
    Parameters,
    /// A member or an enumerator is gone.
    MemberRemoved,
    /// It is new.
    MemberAdded,
    /// It is elsewhere, has another width, or another value.
    MemberMoved,
    /// It has another name.
    MemberRenamed,
}

impl ChangeKind {
    /// All kinds.
    pub(crate) const ALL: [ChangeKind; 13] = [
        ChangeKind::Removed,
        ChangeKind::Added,
        ChangeKind::Version,
        ChangeKind::Soname,
        ChangeKind::ThreadLocal,
        ChangeKind::Size,
        ChangeKind::Type,
        ChangeKind::Name,
        ChangeKind::Parameters,
        ChangeKind::MemberRemoved,
        ChangeKind::MemberAdded,
        ChangeKind::MemberMoved,
        ChangeKind::MemberRenamed,
    ];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ChangeKind::Removed => "removed",
            ChangeKind::Added => "added",
            ChangeKind::Version => "version",
            ChangeKind::Soname => "soname",
            ChangeKind::ThreadLocal => "thread-local",
            ChangeKind::Size => "size",
            ChangeKind::Type => "type",
            ChangeKind::Name => "name",
            ChangeKind::Parameters => "parameters",
            ChangeKind::MemberRemoved => "member-removed",
            ChangeKind::MemberAdded => "member-added",
            ChangeKind::MemberMoved => "member-moved",
            ChangeKind::MemberRenamed => "member-renamed",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceChange {
    /// The effect.
    pub compatibility: Compatibility,
    /// The kind.
    pub kind: ChangeKind,
    /// The changed function, data or type.
    pub subject: String,
    /// The difference.
    pub message: String,
    /// The path from an exported name: `parse(1)->next`, with `()` for the return value, `(1)` for
    /// the first parameter, `[]` for elements, and `…` for steps of long ones. Empty for the names
    /// themselves.
    pub path: String,
    /// The exported names that lead to it; empty for the names themselves.
    pub exports: ExportSet,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceDiff {
    /// The changes, breaking ones first.
    pub changes: Vec<InterfaceChange>,
    /// The compared names. [`InterfaceChange::exports`] has their numbers.
    pub names: Vec<String>,
    /// Names in both versions that were not compared, in order.
    pub untyped: Vec<UntypedExport>,
    /// Where both versions have a type that the format cannot express, as paths.
    pub unknown: Vec<String>,
    /// The private types of the old version that pointers lead to: their changes do not count.
    pub private_types: BTreeSet<String>,
    /// Exported names, with their kinds, that no header declares: their changes do not count. The
    /// comparison itself leaves it empty.
    pub private_exports: Vec<String>,
    /// Whether the comparison ended before all types were compared: two files that differ in all
    /// types can have many more pairs than types.
    pub is_cut: bool,
}

/// A function or data that has no type in one or both versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntypedExport {
    /// Its kind and name.
    pub subject: String,
    /// Whether the old version has its type. Then nothing tells whether it is still the same.
    pub had_type: bool,
}

impl InterfaceDiff {
    /// Whether all that had a type was compared.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.is_cut && !self.untyped.iter().any(|one| one.had_type)
    }

    /// The exported names that lead to a change, in order.
    pub fn exports(&self, change: &InterfaceChange) -> impl Iterator<Item = &str> {
        let numbers = change.exports.iter();
        numbers.filter_map(|number| self.names.get(number).map(String::as_str))
    }
}

/// One version of an interface.
#[derive(Debug, Clone, Copy)]
pub struct Interface<'i, 'a> {
    /// Its types.
    pub graph: &'i Graph<'a>,
    /// Its names. Their types are looked up in the graph's lists.
    pub exports: &'i Exports,
    /// Its private types. Those of the old version count: programs know what its headers define.
    pub private: Option<&'i PrivateTypes>,
}

/// Compares an old version of an interface with a new one.
#[must_use]
pub fn diff(old: Interface<'_, '_>, new: Interface<'_, '_>) -> InterfaceDiff {
    let mut comparison = InterfaceComparison {
        old: old.graph,
        new: new.graph,
        private: old.private,
        pairs: Pairs::default(),
        worklist: VecDeque::new(),
        steps: Vec::new(),
        changes: Vec::new(),
        origins: Vec::new(),
        untyped: Vec::new(),
        unknown: Vec::new(),
        private_types: BTreeSet::new(),
        left: 1 + MAX_COMPARISONS * (parts(old.graph) + parts(new.graph)),
    };
    let names = comparison.names(old, new);
    while let Some((one, two, step)) = comparison
        .worklist
        .pop_front()
        .filter(|_| comparison.left > 0)
    {
        comparison.pair(one, two, step);
    }
    let InterfaceComparison {
        pairs,
        mut changes,
        origins,
        untyped,
        unknown,
        private_types,
        left,
        ..
    } = comparison;
    let found = pairs.exports(names.len(), origins.iter().copied());
    for (change, found) in changes.iter_mut().zip(found) {
        change.exports = found;
    }
    changes.sort_by_key(|change| std::cmp::Reverse(change.compatibility));
    InterfaceDiff {
        changes,
        names,
        untyped,
        unknown,
        private_types,
        private_exports: Vec::new(),
        is_cut: left == 0,
    }
}

/// How often a type is compared on average, at most. It is compared once with each type that takes
/// its place in the other version.
const MAX_COMPARISONS: usize = 8;

/// The number of types, members, parameters and enumerators of a graph.
fn parts(graph: &Graph<'_>) -> usize {
    let own = graph.types().map(|(_, ty)| 1 + ty.parts()).sum::<usize>();
    own + graph.parent().map_or(0, parts)
}

const BREAKS: Compatibility = Compatibility::Breaking;
const FINE: Compatibility = Compatibility::Compatible;

struct InterfaceComparison<'g, 'a, 'b> {
    old: &'g Graph<'a>,
    new: &'g Graph<'b>,
    private: Option<&'g PrivateTypes>,
    pairs: Pairs,
    worklist: VecDeque<(TypeId, TypeId, usize)>,
    /// The path to each pair.
    steps: Vec<PathStep<'g>>,
    changes: Vec<InterfaceChange>,
    /// The origin of each change; `None` for the names themselves.
    origins: Vec<Option<Origin>>,
    untyped: Vec<UntypedExport>,
    unknown: Vec<String>,
    private_types: BTreeSet<String>,
    /// The number of types, members, parameters and enumerators that may still be compared.
    left: usize,
}

/// A step on the path to a pair.
struct PathStep<'g> {
    /// The step before; `None` for an exported name.
    from: Option<usize>,
    /// The number of steps before, and the first of them.
    depth: usize,
    first: usize,
    kind: StepKind<'g>,
    /// The name, or the pair that the step leaves.
    origin: Origin,
}

/// The kind of a step.
enum StepKind<'g> {
    Export(String),
    Target,
    Element,
    /// From a part of an integer to the integer.
    Whole,
    ReturnValue,
    /// A parameter, by its number from 1.
    Parameter(usize),
    Member(Cow<'g, str>),
}

impl Display for StepKind<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            StepKind::Export(name) => write!(f, "{name}"),
            StepKind::Target => write!(f, "->"),
            StepKind::Element => write!(f, "[]"),
            StepKind::Whole => Ok(()),
            StepKind::ReturnValue => write!(f, "()"),
            StepKind::Parameter(number) => write!(f, "({number})"),
            StepKind::Member(name) => write!(f, ".{name}"),
        }
    }
}

/// The number of steps of a path that are shown, beside the exported name.
const MAX_PATH_STEPS: usize = 32;
/// The length of texts in a change, in bytes. The names in broken files may overlap.
const MAX_TEXT_BYTES: usize = 1024;

/// A text without its end, if it is too long.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let mut ends = (0..MAX_TEXT_BYTES).rev();
        text.truncate(ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0));
        text.push('…');
    }
    text
}

/// A pair of types, or a way to one: where a change is.
#[derive(Clone, Copy)]
struct Place {
    step: usize,
    origin: Origin,
    types: (TypeId, TypeId),
    /// The types behind typedefs and qualifiers.
    behind: (TypeId, TypeId),
}

impl Place {
    /// The step and the pair that the next step leaves.
    fn next(self) -> (Option<usize>, Origin) {
        (Some(self.step), self.origin)
    }
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
            Some((TypeKind::Qualified(_, to) | TypeKind::TypeTag { of: to, .. }, _)) => at = *to,
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
    /// Reports removed, new and changed names, and queues the types of the others. Returns these
    /// names.
    fn names(&mut self, old: Interface<'_, '_>, new: Interface<'_, '_>) -> Vec<String> {
        let (old_types, new_types) = (SymbolTypes::new(old.graph), SymbolTypes::new(new.graph));
        let mut compared = Vec::new();
        let mut found = BTreeSet::new();
        for (name, export) in &old.exports.symbols {
            let Some((other_name, other)) = new.exports.counterpart(name) else {
                self.name(BREAKS, ChangeKind::Removed, symbol(name, export), "is gone");
                continue;
            };
            found.insert(other_name);
            self.export((name, export), (other_name, other));
            let types = (
                old_types.find(name, export),
                new_types.find(other_name, other),
            );
            if let (Some(one), Some(two)) = types {
                let origin = Origin::Export(compared.len());
                let text = export_name(name, export);
                compared.push(text.clone());
                self.queue((None, origin), StepKind::Export(text), one, two);
                continue;
            }
            self.untyped.push(UntypedExport {
                subject: symbol(name, export),
                had_type: types.0.is_some(),
            });
            if let (SymbolKind::Object, Some(one), Some(two)) = (name.kind, export.size, other.size)
                && one != two
            {
                // Programs may have a copy of it, of the old size.
                let what = format!("has {two} bytes, had {one}");
                self.name(BREAKS, ChangeKind::Size, symbol(name, export), what);
            }
        }
        let added = new.exports.symbols.iter();
        for (name, export) in added.filter(|(name, _)| !found.contains(name)) {
            self.name(FINE, ChangeKind::Added, symbol(name, export), "is new");
        }
        for version in old.exports.versions.difference(&new.exports.versions) {
            let subject = format!("version {version}");
            self.name(BREAKS, ChangeKind::Removed, subject, "is gone");
        }
        match (&old.exports.soname, &new.exports.soname) {
            (Some(one), two) if Some(one) != two.as_ref() => {
                let two = two.as_deref().unwrap_or("none");
                let what = format!("is {two}, was {one}");
                self.name(BREAKS, ChangeKind::Soname, "SONAME".to_owned(), what);
            }
            _ => {}
        }
        compared
    }

    /// Compares what two symbols are, apart from their types.
    fn export(&mut self, old: (&ExportName, &Export), new: (&ExportName, &Export)) {
        let ((name, export), (other_name, other)) = (old, new);
        // Code accesses thread-local data in another way.
        let what = match (export.is_thread_local, other.is_thread_local) {
            (false, true) => Some("is now thread-local"),
            (true, false) => Some("is no longer thread-local"),
            _ => None,
        };
        if let Some(what) = what {
            self.name(BREAKS, ChangeKind::ThreadLocal, symbol(name, export), what);
        }
        let what = match (&name.version, &other_name.version) {
            (None, Some(version)) => format!("has the version {version}, had none"),
            _ if other.is_superseded && !export.is_superseded => {
                "is not what programs get that are linked now".to_owned()
            }
            _ => return,
        };
        self.name(FINE, ChangeKind::Version, symbol(name, export), what);
    }

    /// Reports a change of a name.
    fn name(
        &mut self,
        compatibility: Compatibility,
        kind: ChangeKind,
        subject: String,
        message: impl Into<String>,
    ) {
        self.origins.push(None);
        self.changes.push(InterfaceChange {
            compatibility,
            kind,
            subject: shortened(subject),
            message: shortened(message.into()),
            path: String::new(),
            exports: ExportSet::default(),
        });
    }

    /// Queues the two types that a step reaches.
    fn queue(
        &mut self,
        (from, origin): (Option<usize>, Origin),
        kind: StepKind<'g>,
        one: TypeId,
        two: TypeId,
    ) {
        let next = self.steps.len();
        let before = from.and_then(|from| self.steps.get(from));
        let (depth, first) = before.map_or((0, next), |step| (step.depth + 1, step.first));
        self.steps.push(PathStep {
            from,
            depth,
            first,
            kind,
            origin,
        });
        self.worklist.push_back((one, two, next));
    }

    /// The path to a pair of types. Of a long one, the first and the last steps.
    fn path(&self, step: usize) -> String {
        let Some(last) = self.steps.get(step) else {
            return String::new();
        };
        let before = |step: &&PathStep<'g>| step.from.and_then(|from| self.steps.get(from));
        let steps = std::iter::successors(Some(last), before);
        let mut parts: Vec<_> = steps
            .take(MAX_PATH_STEPS)
            .map(|step| step.kind.to_string())
            .collect();
        if last.depth >= MAX_PATH_STEPS {
            parts.push("…".to_owned());
            parts.extend(self.steps.get(last.first).map(|step| step.kind.to_string()));
        }
        parts.reverse();
        shortened(parts.concat().replace("->.", "->"))
    }

    fn report(
        &mut self,
        (compatibility, kind): (Compatibility, ChangeKind),
        subject: impl Into<String>,
        what: String,
        at: Place,
    ) {
        self.origins.push(Some(at.origin));
        self.changes.push(InterfaceChange {
            compatibility,
            kind,
            subject: shortened(subject.into()),
            message: shortened(what),
            path: self.path(at.step),
            exports: ExportSet::default(),
        });
    }

    fn pair(&mut self, one: TypeId, two: TypeId, step: usize) {
        let Some(origin) = self.steps.get(step).map(|step| step.origin) else {
            return;
        };
        let (old, new) = (resolve(self.old, one), resolve(self.new, two));
        let at = Place {
            step,
            origin,
            types: (one, two),
            behind: (old.id, new.id),
        };
        let is_only_named = old.ty.is_some_and(|ty| ty.own_name().is_empty());
        let is_named_anew = old.name != new.name && !is_only_named;
        if old.qualifiers != new.qualifiers || is_named_anew {
            let (said, says) = self.texts(at.types);
            // Programs that write to data that has become constant crash.
            let is_data = matches!(origin, Origin::Export(_));
            let is_closed = new.qualifiers.contains("const") && !old.qualifiers.contains("const");
            let effect = if is_data && is_closed {
                Compatibility::Breaking
            } else {
                Compatibility::Compatible
            };
            if said != says {
                self.report_here((effect, ChangeKind::Name), differs(&said, &says), at);
            }
        }
        let (pair, is_new) = self.pairs.add(old.id, new.id, origin);
        if !is_new {
            return;
        }
        let compared = [old.ty, new.ty].into_iter().flatten();
        let compared = compared.map(|ty| 1 + ty.parts()).sum::<usize>();
        self.left = self.left.saturating_sub(compared);
        let origin = Origin::Pair(pair);
        let at = Place { origin, ..at };
        match (old.ty, new.ty) {
            (Some(old), Some(new)) => self.types(old, new, at),
            (None, None) => {}
            _ => self.report_other(BREAKS, at),
        }
    }

    /// The texts of two types.
    fn texts(&self, (one, two): (TypeId, TypeId)) -> (String, String) {
        (self.old.declare(one, ""), self.new.declare(two, ""))
    }

    /// Reports a change of what a path leads to.
    fn report_here(&mut self, change: (Compatibility, ChangeKind), what: String, at: Place) {
        self.report(change, self.path(at.step), what, at);
    }

    /// Reports that a type is another one.
    fn report_other(&mut self, compatibility: Compatibility, at: Place) {
        let (said, says) = self.texts(at.types);
        let (behind, now_behind) = self.texts(at.behind);
        let what = if said != says {
            differs(&said, &says)
        } else if behind != now_behind {
            format!("is {says} ({now_behind}), was {said} ({behind})")
        } else {
            format!("is another {says} than it was")
        };
        self.report_here((compatibility, ChangeKind::Type), what, at);
    }

    fn types(&mut self, old: &'g Type<'_>, new: &'g Type<'_>, at: Place) {
        match (&old.kind, &new.kind) {
            // CTF does not say what such a type is; DWARF gives it a name.
            (TypeKind::Unknown, TypeKind::Unknown) => {
                let is_known = [old, new].iter().all(|ty| ty.name != UNKNOWN_TYPE);
                if !is_known {
                    self.unknown.push(self.path(at.step));
                } else if old.name != new.name {
                    self.report_other(BREAKS, at);
                }
            }
            (TypeKind::Integer(one), TypeKind::Integer(two))
            | (TypeKind::Float(one), TypeKind::Float(two)) => {
                let effect = if one == two { FINE } else { BREAKS };
                if one != two || old.name != new.name {
                    self.report_other(effect, at);
                }
            }
            (TypeKind::Pointer(one), TypeKind::Pointer(two)) => self.pointers(*one, *two, at),
            // The bits are the same, and C converts one to the other.
            (TypeKind::Enum { size, .. }, TypeKind::Integer(number))
            | (TypeKind::Integer(number), TypeKind::Enum { size, .. })
                if *size == number.size && number.format & Number::BOOL == 0 =>
            {
                self.report_other(FINE, at);
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
                    self.report_here((BREAKS, ChangeKind::Size), what, at);
                }
                self.queue(at.next(), StepKind::Element, *element, *other);
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
                    self.report_other(BREAKS, at);
                }
                self.queue(at.next(), StepKind::Whole, *of, *other);
            }
            (TypeKind::Function { .. }, TypeKind::Function { .. }) => {
                self.functions(old, new, at);
            }
            (TypeKind::Record { tag, .. }, TypeKind::Record { tag: other, .. }) if tag == other => {
                self.records(old, new, at);
            }
            (TypeKind::Enum { .. }, TypeKind::Enum { .. }) => {
                self.enums(old, new, at);
            }
            // Code that only has the tag depends on nothing else.
            (TypeKind::Forward(_), _) | (_, TypeKind::Forward(_))
                if old.tag() == new.tag() && old.own_name() == new.own_name() => {}
            _ => self.report_other(BREAKS, at),
        }
    }

    fn pointers(&mut self, one: TypeId, two: TypeId, at: Place) {
        let (old, new) = (self.old.resolve(one), self.new.resolve(two));
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        let kinds = (self.old.get(old), self.new.get(new));
        let (Some(from), Some(to)) = kinds else {
            return self.queue(at.next(), StepKind::Target, one, two);
        };
        // A pointer to anything, which now says to what.
        if is_void(from) && !is_void(to) {
            return self.report_other(FINE, at);
        }
        if self.private.is_some_and(|private| private.contains(old)) && from.tag() == to.tag() {
            // Without qualifiers, if it does not need another name.
            let named = if from.own_name().is_empty() { one } else { old };
            let name = shortened(self.old.declare(named, ""));
            self.private_types.insert(name);
            let (said, says) = self.texts((one, two));
            if said != says {
                let change = (FINE, ChangeKind::Name);
                self.report_here(change, differs(&said, &says), at);
            }
            return;
        }
        self.queue(at.next(), StepKind::Target, one, two);
    }

    fn functions(&mut self, old: &'g Type<'_>, new: &'g Type<'_>, at: Place) {
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
                self.report_here((BREAKS, ChangeKind::Parameters), what, at);
            }
            if is_variadic != varies {
                let what = if *varies {
                    "takes more parameters (...)"
                } else {
                    "takes no more parameters (...)"
                };
                self.report_here((BREAKS, ChangeKind::Parameters), what.to_owned(), at);
            }
        }
        self.queue(at.next(), StepKind::ReturnValue, *returns, *other);
        for (nth, (one, two)) in (1..).zip(parameters.iter().zip(others)) {
            self.queue(at.next(), StepKind::Parameter(nth), one.ty, two.ty);
        }
    }

    /// Compares tags and sizes of structures and enumerations.
    fn tags_and_sizes(
        &mut self,
        (old, size): (&Type<'_>, u64),
        (new, other): (&Type<'_>, u64),
        at: Place,
    ) {
        let said = self.texts(at.types).0;
        if old.own_name() != new.own_name() {
            let (behind, now_behind) = self.texts(at.behind);
            let what = differs(&behind, &now_behind);
            self.report((FINE, ChangeKind::Name), &*said, what, at);
        }
        if size != other {
            let what = format!("has {other} bytes, had {size}");
            self.report((BREAKS, ChangeKind::Size), said, what, at);
        }
    }

    fn records(&mut self, old: &'g Type<'_>, new: &'g Type<'_>, at: Place) {
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
        self.tags_and_sizes((old, *size), (new, *other), at);
        let said = &*self.texts(at.types).0;
        let members = named_members(self.old, members);
        let others = named_members(self.new, others);
        self.left = self.left.saturating_sub(members.len() + others.len());
        let has_same_size = |one, two| self.old.size(one) == self.new.size(two);
        let found = counterparts(&members, &others, has_same_size);
        for (member, found) in members.iter().zip(&found) {
            match found.and_then(|at| others.get(at)) {
                Some(found) => self.member(said, member, found, at),
                None => {
                    let what = format!("member {} is gone", member.name);
                    self.report((BREAKS, ChangeKind::MemberRemoved), said, what, at);
                }
            }
        }
        let found: BTreeSet<usize> = found.into_iter().flatten().collect();
        for (nth, member) in others.iter().enumerate() {
            if !found.contains(&nth) {
                let what = format!("has a new member {}", member.name);
                self.report((FINE, ChangeKind::MemberAdded), said, what, at);
            }
        }
    }

    fn member(&mut self, said: &str, member: &Member<'g>, found: &Member<'_>, at: Place) {
        let name = &member.name;
        if member.name != found.name {
            let what = format!("member {name} is now named {}", found.name);
            self.report((FINE, ChangeKind::MemberRenamed), said, what, at);
        }
        if member.offset != found.offset {
            let what = format!(
                "has {name} at {}, had it at {}",
                byte_position(found.offset),
                byte_position(member.offset)
            );
            self.report((BREAKS, ChangeKind::MemberMoved), said, what, at);
        }
        if member.bits != found.bits {
            let bits = |bits: Option<u16>| bits.map_or("all".to_owned(), |bits| bits.to_string());
            let what = format!(
                "has {} bits of {name}, had {}",
                bits(found.bits),
                bits(member.bits)
            );
            self.report((BREAKS, ChangeKind::MemberMoved), said, what, at);
        }
        let step = StepKind::Member(member.name.clone());
        self.queue(at.next(), step, member.ty, found.ty);
    }

    fn enums(&mut self, old: &'g Type<'_>, new: &'g Type<'_>, at: Place) {
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
        self.tags_and_sizes((old, *size), (new, *other), at);
        let said = &*self.texts(at.types).0;
        // CTF does not record signs: of values of an equal size, the bits count.
        let bits = |one: &Enumerator<'_>| {
            if size == other {
                one.value.rem_euclid(1 << (8 * (*size).clamp(1, 8)))
            } else {
                one.value
            }
        };
        let values = |all: &'g [Enumerator<'_>]| {
            let values = all.iter().rev().map(|one| (&*one.name, one.value));
            values.collect::<HashMap<_, _>>()
        };
        let (known, now) = (values(enumerators), values(others));
        // Enumerations of broken files can have equal names.
        let all: HashSet<_> = others.iter().map(|one| (&*one.name, bits(one))).collect();
        for one in enumerators {
            if all.contains(&(&*one.name, bits(one))) {
                continue;
            }
            let (kind, what) = match now.get(&*one.name) {
                Some(value) => {
                    let what = format!("has {} = {value}, had {}", one.name, one.value);
                    (ChangeKind::MemberMoved, what)
                }
                None => {
                    let what = format!("{} = {} is gone", one.name, one.value);
                    (ChangeKind::MemberRemoved, what)
                }
            };
            self.report((BREAKS, kind), said, what, at);
        }
        for one in others.iter().filter(|one| !known.contains_key(&*one.name)) {
            let what = format!("has a new {} = {}", one.name, one.value);
            self.report((FINE, ChangeKind::MemberAdded), said, what, at);
        }
    }
}

fn is_void(ty: &Type<'_>) -> bool {
    matches!(&ty.kind, TypeKind::Integer(number) if number.size == 0)
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

/// An exported name as in a path: one that programs do not get when they are linked has its
/// version.
fn export_name(name: &ExportName, export: &Export) -> String {
    match &name.version {
        Some(version) if export.is_superseded => format!("{}@{version}", name.name),
        _ => name.name.clone(),
    }
}

/// An exported name as a subject.
fn symbol(name: &ExportName, export: &Export) -> String {
    format!("{} {}", name.kind_word(), export_name(name, export))
}
