//! Names in printable form: control characters are escaped.
//!
//! A file can contain any type name. Reading keeps the names as they are. Text for people is made
//! from a graph with escaped names.

use std::borrow::Cow;

use crate::graph::{Graph, Type, TypeKind, TypedSymbol};

/// A name with control characters as escapes.
pub(crate) fn escape(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        Cow::Borrowed(name)
    } else {
        let letters = name.chars().map(|letter| {
            if letter.is_control() {
                letter.escape_default().to_string()
            } else {
                letter.to_string()
            }
        });
        Cow::Owned(letters.collect())
    }
}

/// Escapes a name.
fn escape_in_place(name: &mut Cow<'_, str>) {
    if let Cow::Owned(text) = escape(name) {
        *name = Cow::Owned(text);
    }
}

impl<'a> Graph<'a> {
    /// The graph with control characters escaped in all its names and its parent's, for display on
    /// a terminal. The C text is otherwise unchanged.
    #[must_use]
    pub fn with_escaped_names(&self) -> Cow<'_, Graph<'a>> {
        if self.has_escaped_names() {
            Cow::Borrowed(self)
        } else {
            Cow::Owned(self.clone().into_escaped())
        }
    }

    fn has_escaped_names(&self) -> bool {
        let mut is_plain = true;
        let mut look = |name: &str| is_plain &= !name.contains(char::is_control);
        for (_, ty) in self.types() {
            look(&ty.name);
            match &ty.kind {
                TypeKind::Record { members, .. } => members.iter().for_each(|one| look(&one.name)),
                TypeKind::Enum { enumerators, .. } => {
                    enumerators.iter().for_each(|one| look(&one.name));
                }
                TypeKind::Function { parameters, .. } => {
                    parameters.iter().for_each(|one| look(&one.name));
                }
                _ => {}
            }
        }
        let symbols = [&self.functions, &self.objects, &self.variables];
        symbols
            .into_iter()
            .flatten()
            .for_each(|one| look(&one.name));
        is_plain && self.parent().is_none_or(Graph::has_escaped_names)
    }

    fn into_escaped(mut self) -> Graph<'a> {
        self.change_parent(Graph::into_escaped);
        for ty in self.types_mut() {
            escape_type(ty);
        }
        let symbols = [&mut self.functions, &mut self.objects, &mut self.variables];
        for TypedSymbol { name, .. } in symbols.into_iter().flatten() {
            escape_in_place(name);
        }
        self
    }
}

fn escape_type(ty: &mut Type<'_>) {
    escape_in_place(&mut ty.name);
    match &mut ty.kind {
        TypeKind::Record { members, .. } => {
            let names = members.iter_mut().map(|one| &mut one.name);
            names.for_each(escape_in_place);
        }
        TypeKind::Enum { enumerators, .. } => {
            let names = enumerators.iter_mut().map(|one| &mut one.name);
            names.for_each(escape_in_place);
        }
        TypeKind::Function { parameters, .. } => {
            let names = parameters.iter_mut().map(|one| &mut one.name);
            names.for_each(escape_in_place);
        }
        _ => {}
    }
}
