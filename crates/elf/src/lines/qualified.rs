//! The qualified names of functions without a linkage name in the debug information.
//!
//! For functions local to a file (in anonymous namespaces, in functions, lambdas), gcc writes only
//! the plain name. The rest is in the enclosing entries and in the parameter types (DWARF 5 §3.2,
//! §3.3, §5). The name is built like the demangled symbol, so that an inlined function has the same
//! name as its other copies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use gimli::{
    AttributeValue, DebuggingInformationEntry, DwAt, DwTag, Dwarf, Unit, UnitOffset, UnitRef,
};
use unspool_demangle::{SignatureDetail, cxx};

use super::DwarfSlice;

/// A name from more entries than this, or a longer name, stays plain.
const MAX_ENTRIES: usize = 2048;
const MAX_NAME_BYTES: usize = 16 * 1024;
/// The maximum number of entries skipped meanwhile, such as those of function bodies.
const MAX_SKIPPED_ENTRIES: usize = 1 << 20;
/// The maximum depth of references between entries.
const MAX_DEPTH: usize = 48;

/// Cached data of the units that were looked up.
#[derive(Default)]
pub(super) struct QualifiedNames<'a> {
    scopes: HashMap<UnitKey, Arc<DieScopes>>,
    units: HashMap<UnitKey, Arc<Unit<DwarfSlice<'a>>>>,
    /// The offsets of units, in the file and in its supplementary file.
    starts: [Option<Arc<[usize]>>; 2],
    names: HashMap<(UnitKey, usize), Option<Arc<str>>>,
}

/// A unit: whether it is in the supplementary file, its `.dwo` identifier, and its offset.
type UnitKey = (bool, Option<u64>, usize);

/// The entries of a unit with children, by their offset.
struct DieScopes(Vec<DieScope>);

struct DieScope {
    begin: usize,
    end: usize,
    tag: DwTag,
    parent: Option<usize>,
}

/// An entry, and its unit.
#[derive(Clone)]
struct Die<'d, 'a> {
    unit: AnyUnit<'d, 'a>,
    entry: DebuggingInformationEntry<DwarfSlice<'a>>,
}

#[derive(Clone)]
enum AnyUnit<'d, 'a> {
    /// The unit of the looked-up address.
    Borrowed(UnitRef<'d, DwarfSlice<'a>>),
    /// A unit that an entry refers to, and whether it is in the supplementary file.
    Shared(&'d Dwarf<DwarfSlice<'a>>, Arc<Unit<DwarfSlice<'a>>>, bool),
}

impl<'a> AnyUnit<'_, 'a> {
    fn get(&self) -> UnitRef<'_, DwarfSlice<'a>> {
        match self {
            AnyUnit::Borrowed(unit) => *unit,
            AnyUnit::Shared(dwarf, unit, _) => UnitRef::new(dwarf, unit),
        }
    }

    fn is_supplementary(&self) -> bool {
        matches!(self, AnyUnit::Shared(_, _, true))
    }

    fn key(&self) -> UnitKey {
        let unit = self.get();
        let begin = unit.header.debug_info_offset().map_or(0, |offset| offset.0);
        (self.is_supplementary(), unit.dwo_id.map(|id| id.0), begin)
    }
}

impl DieScopes {
    fn new(unit: UnitRef<'_, DwarfSlice<'_>>) -> gimli::Result<DieScopes> {
        let mut scopes: Vec<DieScope> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut depths: Vec<isize> = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let begin = entries.next_offset().0;
            let depth = entries.next_depth();
            let abbreviation = entries.read_abbreviation()?;
            while depths.last().is_some_and(|last| *last >= depth) {
                depths.pop();
                if let Some(scope) = open.pop().and_then(|at| scopes.get_mut(at)) {
                    scope.end = begin;
                }
            }
            let Some(abbreviation) = abbreviation else {
                continue;
            };
            entries.skip_attributes(abbreviation.attributes())?;
            if abbreviation.has_children() {
                scopes.push(DieScope {
                    begin,
                    end: usize::MAX,
                    tag: abbreviation.tag(),
                    parent: open.last().copied(),
                });
                open.push(scopes.len() - 1);
                depths.push(depth);
            }
        }
        Ok(DieScopes(scopes))
    }

    /// The innermost scope that contains an entry.
    fn around(&self, offset: usize) -> Option<usize> {
        let before = self.0.partition_point(|scope| scope.begin < offset);
        let mut at = before.checked_sub(1)?;
        while self.0.get(at)?.end <= offset {
            at = self.0.get(at)?.parent?;
        }
        Some(at)
    }

    /// The enclosing scope that is part of the entry's name.
    fn parent(&self, offset: usize) -> Option<&DieScope> {
        let mut scope = self.0.get(self.around(offset)?)?;
        while !is_named_scope(scope.tag) {
            scope = self.0.get(scope.parent?)?;
        }
        Some(scope)
    }
}

fn is_class(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_enumeration_type
    )
}

fn is_named_scope(tag: DwTag) -> bool {
    is_class(tag) || matches!(tag, gimli::DW_TAG_namespace | gimli::DW_TAG_subprogram)
}

impl<'a> QualifiedNames<'a> {
    /// The name of an entry's function, in demangled form; `None` if the entries lack it.
    pub(super) fn name(
        &mut self,
        unit: UnitRef<'_, DwarfSlice<'a>>,
        offset: UnitOffset,
        signature: SignatureDetail,
    ) -> Option<Arc<str>> {
        let mut writer = NameWriter {
            known: self,
            entries: 0,
            passed: 0,
            depth: 0,
        };
        let die = Die {
            unit: AnyUnit::Borrowed(unit),
            entry: unit.entry(offset).ok()?,
        };
        let (die, linkage) = writer.origin(die)?;
        let key = (die.unit.key(), die.entry.offset().0);
        if let Some(known) = writer.known.names.get(&key) {
            return known.clone();
        }
        let name = match linkage {
            Some(name) => cxx(&name, signature),
            None => writer.function(&die, signature),
        };
        let name = name.filter(|name| name.len() <= MAX_NAME_BYTES);
        let name: Option<Arc<str>> = name.map(Arc::from);
        self.names.insert(key, name.clone());
        name
    }

    fn scopes(&mut self, unit: &AnyUnit<'_, 'a>) -> Arc<DieScopes> {
        let scopes = self.scopes.entry(unit.key()).or_insert_with(|| {
            // An unreadable unit is not read again.
            Arc::new(DieScopes::new(unit.get()).unwrap_or(DieScopes(Vec::new())))
        });
        Arc::clone(scopes)
    }

    /// The unit that contains an offset of `.debug_info`, and the offset within it.
    fn unit<'d>(
        &mut self,
        dwarf: &'d Dwarf<DwarfSlice<'a>>,
        is_supplementary: bool,
        offset: usize,
    ) -> Option<(AnyUnit<'d, 'a>, UnitOffset)> {
        let starts = self.starts.get_mut(usize::from(is_supplementary))?;
        let starts = starts.get_or_insert_with(|| unit_starts(dwarf));
        let before = starts.partition_point(|start| *start <= offset);
        let start = *starts.get(before.checked_sub(1)?)?;
        let key = (is_supplementary, None, start);
        let unit = match self.units.entry(key) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(vacant) => {
                let start = gimli::DebugInfoOffset(start);
                let header = dwarf.debug_info.header_from_offset(start);
                let unit = dwarf.unit(header.ok()?).ok()?;
                Arc::clone(vacant.insert(Arc::new(unit)))
            }
        };
        let within = UnitOffset(offset.checked_sub(start)?);
        Some((AnyUnit::Shared(dwarf, unit, is_supplementary), within))
    }
}

fn unit_starts(dwarf: &Dwarf<DwarfSlice<'_>>) -> Arc<[usize]> {
    let mut starts = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        starts.extend(header.debug_info_offset().map(|offset| offset.0));
    }
    starts.into()
}

/// Builds one name.
struct NameWriter<'w, 'a> {
    known: &'w mut QualifiedNames<'a>,
    entries: usize,
    passed: usize,
    depth: usize,
}

/// The parts of a type's declaration before and after the declared name.
type Declarator = (String, String);

impl<'a> NameWriter<'_, 'a> {
    fn entry<'d>(&mut self, unit: &AnyUnit<'d, 'a>, offset: UnitOffset) -> Option<Die<'d, 'a>> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return None;
        }
        Some(Die {
            entry: unit.get().entry(offset).ok()?,
            unit: unit.clone(),
        })
    }

    /// The entry that an attribute refers to.
    fn referred<'d>(&mut self, die: &Die<'d, 'a>, name: DwAt) -> Option<Die<'d, 'a>> {
        let is_supplementary = die.unit.is_supplementary();
        let dwarf = match &die.unit {
            AnyUnit::Borrowed(unit) => unit.dwarf,
            AnyUnit::Shared(dwarf, ..) => dwarf,
        };
        let (unit, offset) = match die.entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => (die.unit.clone(), offset),
            AttributeValue::DebugInfoRef(offset) => {
                self.known.unit(dwarf, is_supplementary, offset.0)?
            }
            AttributeValue::DebugInfoRefSup(offset) => {
                self.known.unit(dwarf.sup()?, true, offset.0)?
            }
            _ => return None,
        };
        self.entry(&unit, offset)
    }

    /// The declaration that a function's entry refers to, and the linkage name if one is found on
    /// the way.
    fn origin<'d>(&mut self, mut die: Die<'d, 'a>) -> Option<(Die<'d, 'a>, Option<String>)> {
        for _ in 0..MAX_DEPTH {
            for name in [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name] {
                if let Some(linkage) = text(&die, name) {
                    return Some((die, Some(linkage)));
                }
            }
            let origin = self.referred(&die, gimli::DW_AT_abstract_origin);
            match origin.or_else(|| self.referred(&die, gimli::DW_AT_specification)) {
                Some(next) => die = next,
                None => return Some((die, None)),
            }
        }
        None
    }

    fn nested<T>(&mut self, write: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }

    /// The name of a function, with this signature detail; only templates have a return type.
    fn function(&mut self, die: &Die<'_, 'a>, signature: SignatureDetail) -> Option<String> {
        self.nested(|writer| {
            let plain = name(die)?;
            if writer.has_c_linkage(die) {
                return Some(plain);
            }
            let plain = as_demangled(plain);
            let scope = writer.scope(die)?;
            if signature == SignatureDetail::NameOnly {
                return Some(scope + &plain);
            }
            let (parameters, qualifiers) = writer.parameters(die)?;
            let name = format!("{scope}{plain}{parameters}{qualifiers}");
            let returns = has_template_arguments(&plain) && !is_constructor(&plain, &scope);
            if signature != SignatureDetail::Whole || !returns {
                return Some(name);
            }
            // A generic lambda has only its deduced return type, which is not part of the symbol.
            if scope.ends_with("}::") {
                return Some(format!("auto {name}"));
            }
            let (left, right) = writer.type_of(die)?;
            Some(format!("{left} {name}{right}"))
        })
    }

    /// Whether a function without a linkage name is visible to other files: then its symbol is its
    /// name.
    fn has_c_linkage(&mut self, die: &Die<'_, 'a>) -> bool {
        let scopes = self.known.scopes(&die.unit);
        let parent = scopes.parent(die.entry.offset().0);
        let is_free = parent.is_none_or(|scope| scope.tag == gimli::DW_TAG_namespace);
        is_free && is_set(die, gimli::DW_AT_external)
    }

    /// The prefix of a name: the scopes around its entry, each with `::`.
    fn scope(&mut self, die: &Die<'_, 'a>) -> Option<String> {
        self.nested(|writer| {
            let scopes = writer.known.scopes(&die.unit);
            let Some(parent) = scopes.parent(die.entry.offset().0) else {
                return Some(String::new());
            };
            let parent = writer.entry(&die.unit, UnitOffset(parent.begin))?;
            let mut name = match parent.entry.tag() {
                gimli::DW_TAG_namespace => {
                    let name = name(&parent);
                    let name = name.unwrap_or_else(|| "(anonymous namespace)".to_owned());
                    writer.scope(&parent)? + &name
                }
                gimli::DW_TAG_subprogram => match writer.origin(parent)? {
                    (_, Some(name)) => cxx(&name, SignatureDetail::WithoutReturnType)?,
                    (function, None) => {
                        writer.function(&function, SignatureDetail::WithoutReturnType)?
                    }
                },
                _ => writer.class(&parent)?,
            };
            name.push_str("::");
            Some(name)
        })
    }

    /// The qualified name of a class or an enumeration.
    fn class(&mut self, die: &Die<'_, 'a>) -> Option<String> {
        self.nested(|writer| {
            if let Some(declared) = writer.referred(die, gimli::DW_AT_specification) {
                return writer.class(&declared);
            }
            let name = match name(die) {
                Some(name) => as_demangled(name),
                None => writer.unnamed(die)?,
            };
            Some(writer.scope(die)? + &name)
        })
    }

    /// The name of a lambda, or of another unnamed class.
    fn unnamed(&mut self, die: &Die<'_, 'a>) -> Option<String> {
        let Some(kind) = self.lambda(die)? else {
            return Some("{unnamed type#1}".to_owned());
        };
        let scopes = self.known.scopes(&die.unit);
        let here = die.entry.offset().0;
        let around = scopes.parent(here).map(|scope| scope.begin);
        let first = scopes
            .0
            .partition_point(|scope| Some(scope.begin) <= around);
        let within = scopes.0.iter().skip(first);
        let before = within.take_while(|scope| scope.begin < here);
        // Lambdas with the same parameters are numbered in their order (Itanium C++ ABI §5.1.8).
        // gcc before 14 numbers all of them.
        let numbers_all = self.is_old_gcc(die)?;
        let mut number = 1;
        for other in before.filter(|scope| is_class(scope.tag)) {
            if scopes.parent(other.begin).map(|scope| scope.begin) != around {
                continue;
            }
            let other = self.entry(&die.unit, UnitOffset(other.begin))?;
            if name(&other).is_some() {
                continue;
            }
            let other = self.lambda(&other)?;
            number += usize::from(other.is_some_and(|other| numbers_all || other == kind));
        }
        Some(format!("{{lambda{kind}#{number}}}"))
    }

    /// Whether the compiler of the unit is gcc before version 14.
    fn is_old_gcc(&mut self, die: &Die<'_, 'a>) -> Option<bool> {
        let root = die.unit.get().header.root_offset();
        let root = self.entry(&die.unit, root)?;
        let producer = text(&root, gimli::DW_AT_producer)?;
        let mut words = producer.split(' ');
        let version = words.find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
        Some(producer.starts_with("GNU ") && version.is_some_and(|version| version < 14))
    }

    /// The parameters of a lambda; `None` for a class without a call operator.
    fn lambda(&mut self, die: &Die<'_, 'a>) -> Option<Option<String>> {
        for child in self.children(die)? {
            let name = match child.entry.tag() {
                gimli::DW_TAG_subprogram => name(&child).unwrap_or_default(),
                _ => continue,
            };
            if name == "operator()" {
                return Some(Some(self.parameters(&child)?.0));
            }
            if name.starts_with("operator()<") {
                return self.generic_lambda(&child).map(Some);
            }
        }
        Some(None)
    }

    /// The parameters of a lambda's templated call operator: `auto:1` for each that takes any type.
    fn generic_lambda(&mut self, operator: &Die<'_, 'a>) -> Option<String> {
        let children = self.children(operator)?;
        let mut autos = Vec::new();
        for child in &children {
            let name = name(child).unwrap_or_default();
            if child.entry.tag() == gimli::DW_TAG_template_type_parameter
                && name.starts_with("auto:")
            {
                autos.push((name, child.entry.attr_value(gimli::DW_AT_type)));
            }
        }
        // Some versions of gcc list them twice.
        autos.dedup_by(|a, b| a.0 == b.0);
        let mut types = Vec::new();
        let own = |child: &&Die<'_, 'a>| {
            child.entry.tag() == gimli::DW_TAG_formal_parameter
                && !is_set(child, gimli::DW_AT_artificial)
        };
        for child in children.iter().filter(own) {
            let type_ = child.entry.attr_value(gimli::DW_AT_type);
            types.push(match autos.iter().position(|(_, of)| *of == type_) {
                Some(at) => autos.remove(at).0,
                None => self.parameter(child)?,
            });
        }
        Some(format!("({})", types.join(", ")))
    }

    fn children<'d>(&mut self, die: &Die<'d, 'a>) -> Option<Vec<Die<'d, 'a>>> {
        let mut children = Vec::new();
        if !die.entry.has_children() {
            return Some(children);
        }
        let unit = die.unit.get();
        let mut entries = unit.entries_raw(Some(die.entry.offset())).ok()?;
        let own = entries.next_depth();
        while !entries.is_empty() {
            self.passed += 1;
            if self.passed > MAX_SKIPPED_ENTRIES {
                return None;
            }
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            match entries.read_abbreviation().ok()? {
                Some(abbreviation) => entries.skip_attributes(abbreviation.attributes()).ok()?,
                None if depth == own + 1 => break,
                None => continue,
            }
            if depth == own + 1 {
                children.push(self.entry(&die.unit, offset)?);
            }
        }
        Some(children)
    }

    /// The parameters of a function in parentheses, and its qualifiers.
    fn parameters(&mut self, die: &Die<'_, 'a>) -> Option<(String, String)> {
        let mut types = Vec::new();
        let mut qualifiers = String::new();
        let mut is_first = true;
        for child in self.children(die)? {
            match child.entry.tag() {
                gimli::DW_TAG_formal_parameter if is_set(&child, gimli::DW_AT_artificial) => {
                    // `this` comes first, if there is one.
                    let object = self.object_qualifiers(&child);
                    qualifiers = object.filter(|_| is_first).unwrap_or(qualifiers);
                    is_first = false;
                }
                gimli::DW_TAG_formal_parameter => {
                    types.push(self.parameter(&child)?);
                    is_first = false;
                }
                gimli::DW_TAG_GNU_formal_parameter_pack => {
                    for parameter in self.children(&child)? {
                        types.push(self.parameter(&parameter)?);
                    }
                }
                gimli::DW_TAG_unspecified_parameters => types.push("...".to_owned()),
                _ => {}
            }
        }
        for (attribute, text) in [
            (gimli::DW_AT_reference, " &"),
            (gimli::DW_AT_rvalue_reference, " &&"),
        ] {
            qualifiers.push_str(if is_set(die, attribute) { text } else { "" });
        }
        Some((format!("({})", types.join(", ")), qualifiers))
    }

    /// The type of a parameter. Its own qualifiers are not part of a function's type.
    fn parameter(&mut self, die: &Die<'_, 'a>) -> Option<String> {
        let Some(mut of) = self.referred(die, gimli::DW_AT_type) else {
            return Some("void".to_owned());
        };
        while is_qualifier(of.entry.tag()) {
            of = self.referred(&of, gimli::DW_AT_type)?;
        }
        let (left, right) = self.declarator(&of)?;
        Some(left + &right)
    }

    /// `const` and `volatile` of a member function: the qualifiers of the object that `this` points
    /// at.
    fn object_qualifiers(&mut self, this: &Die<'_, 'a>) -> Option<String> {
        let mut type_ = self.referred(this, gimli::DW_AT_type)?;
        while type_.entry.tag() != gimli::DW_TAG_pointer_type {
            type_ = self.referred(&type_, gimli::DW_AT_type)?;
        }
        let mut tags = Vec::new();
        while let Some(to) = self.referred(&type_, gimli::DW_AT_type) {
            if !is_qualifier(to.entry.tag()) {
                break;
            }
            tags.push(to.entry.tag());
            type_ = to;
        }
        let all = [gimli::DW_TAG_const_type, gimli::DW_TAG_volatile_type];
        let there = all.into_iter().filter(|tag| tags.contains(tag));
        Some(there.map(qualifier).collect())
    }

    /// The type of an entry; `void` if it has none.
    fn type_of(&mut self, die: &Die<'_, 'a>) -> Option<Declarator> {
        match self.referred(die, gimli::DW_AT_type) {
            Some(type_) => self.declarator(&type_),
            None if die.entry.attr(gimli::DW_AT_type).is_some() => None,
            None => Some(("void".to_owned(), String::new())),
        }
    }

    fn declarator(&mut self, die: &Die<'_, 'a>) -> Option<Declarator> {
        self.nested(|writer| writer.one_declarator(die))
    }

    fn one_declarator(&mut self, die: &Die<'_, 'a>) -> Option<Declarator> {
        let tag = die.entry.tag();
        Some(match tag {
            gimli::DW_TAG_base_type => (base_type(&name(die)?).to_owned(), String::new()),
            gimli::DW_TAG_unspecified_type => (name(die)?, String::new()),
            gimli::DW_TAG_typedef => self.type_of(die)?,
            gimli::DW_TAG_pointer_type => self.pointer(die, "*")?,
            gimli::DW_TAG_reference_type => self.pointer(die, "&")?,
            gimli::DW_TAG_rvalue_reference_type => self.pointer(die, "&&")?,
            gimli::DW_TAG_ptr_to_member_type => {
                let class = self.referred(die, gimli::DW_AT_containing_type)?;
                let class = self.declarator(&class)?.0;
                let to = self.referred(die, gimli::DW_AT_type)?;
                let space = if opens(to.entry.tag()) { "" } else { " " };
                self.pointer(die, &format!("{space}{class}::*"))?
            }
            gimli::DW_TAG_subroutine_type => {
                let (left, right) = self.type_of(die)?;
                let (parameters, qualifiers) = self.parameters(die)?;
                (
                    format!("{left} "),
                    format!("{parameters}{qualifiers}{right}"),
                )
            }
            gimli::DW_TAG_array_type => {
                let (left, right) = self.type_of(die)?;
                (left, format!(" {}{right}", self.bounds(die)?))
            }
            tag if is_qualifier(tag) => {
                let (left, right) = self.type_of(die)?;
                (left + qualifier(tag), right)
            }
            tag if is_class(tag) => (self.class(die)?, String::new()),
            _ => return None,
        })
    }

    fn pointer(&mut self, die: &Die<'_, 'a>, text: &str) -> Option<Declarator> {
        let to = self.referred(die, gimli::DW_AT_type);
        let (left, right) = self.type_of(die)?;
        let Some(to) = to.filter(|to| opens(to.entry.tag())) else {
            return Some((left + text, right));
        };
        let space = match to.entry.tag() {
            gimli::DW_TAG_array_type => " ",
            _ => "",
        };
        Some((format!("{left}{space}({text}"), format!("){right}")))
    }

    fn bounds(&mut self, die: &Die<'_, 'a>) -> Option<String> {
        let mut bounds = String::new();
        for range in self.children(die)? {
            let count = |name| range.entry.attr_value(name)?.udata_value();
            let upper = || count(gimli::DW_AT_upper_bound)?.checked_add(1);
            bounds.push_str(&match count(gimli::DW_AT_count).or_else(upper) {
                Some(count) => format!("[{count}]"),
                None => "[]".to_owned(),
            });
        }
        Some(bounds)
    }
}

/// The text of an attribute, unless it is too long for a name.
fn text(die: &Die<'_, '_>, name: DwAt) -> Option<String> {
    let value = die.entry.attr_value(name)?;
    let text = die.unit.get().attr_string(value).ok()?;
    (text.len() <= MAX_NAME_BYTES).then(|| text.to_string_lossy().into_owned())
}

fn name(die: &Die<'_, '_>) -> Option<String> {
    text(die, gimli::DW_AT_name)
}

fn is_set(die: &Die<'_, '_>, name: DwAt) -> bool {
    matches!(die.entry.attr_value(name), Some(AttributeValue::Flag(true)))
}

/// Whether a pointer to such a type needs parentheses.
fn opens(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subroutine_type | gimli::DW_TAG_array_type
    )
}

fn is_qualifier(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type | gimli::DW_TAG_restrict_type
    )
}

fn qualifier(tag: DwTag) -> &'static str {
    match tag {
        gimli::DW_TAG_const_type => " const",
        gimli::DW_TAG_volatile_type => " volatile",
        _ => " restrict",
    }
}

/// Whether a function's name ends with template arguments. Those of a conversion operator belong to
/// its type.
fn has_template_arguments(name: &str) -> bool {
    let arguments = match name.strip_prefix("operator") {
        Some(rest) if rest.starts_with(' ') => return false,
        Some(rest) => rest.trim_start_matches(['<', '>', '=', '-', '*']),
        None => name,
    };
    arguments.ends_with('>')
}

/// Whether a template's name is that of its enclosing class: then it has no return type.
fn is_constructor(name: &str, scope: &str) -> bool {
    fn plain(name: &str) -> &str {
        name.split('<').next().unwrap_or(name)
    }
    let class = scope.strip_suffix("::").unwrap_or(scope);
    let class = plain(class).rsplit("::").next();
    class.is_some_and(|class| class == plain(name).trim_start_matches('~'))
}

/// Integer types with other names in debug information than in demangled names. A name comes before
/// those that it contains.
const INTEGERS: [(&str, &str); 7] = [
    ("long long unsigned int", "unsigned long long"),
    ("long long int", "long long"),
    ("long unsigned int", "unsigned long"),
    ("long int", "long"),
    ("short unsigned int", "unsigned short"),
    ("short int", "short"),
    ("__int128 unsigned", "unsigned __int128"),
];

/// The name of a class or a function, with template arguments in demangled form.
fn as_demangled(mut name: String) -> String {
    if name.contains('<') {
        for (from, to) in INTEGERS {
            name = name.replace(from, to);
        }
    }
    name
}

fn base_type(name: &str) -> &str {
    let known = INTEGERS.iter().find(|(from, _)| *from == name);
    known.map_or(name, |(_, to)| to)
}
