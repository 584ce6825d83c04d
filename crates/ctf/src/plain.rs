//! Names as they can be shown: what would steer a terminal or begin a line is an escape.
//!
//! A file can call its types anything. What is read of it keeps the names as they are; text for people is made of a graph whose names are plain.

use std::borrow::Cow;

use crate::graph::{Graph, Kind, Symbol, Type};

/// A name with control characters as escapes.
pub(crate) fn plain(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        false => Cow::Borrowed(name),
        true => {
            let letters = name.chars().map(|letter| match letter.is_control() {
                true => letter.escape_default().to_string(),
                false => letter.to_string(),
            });
            Cow::Owned(letters.collect())
        }
    }
}

/// Makes a name plain.
fn make_plain(name: &mut Cow<'_, str>) {
    if let Cow::Owned(text) = plain(name) {
        *name = Cow::Owned(text);
    }
}

impl<'a> Graph<'a> {
    /// The graph with escapes for control characters in all its names and in those of its parent, for text that a terminal shows. What it is printed as is in C otherwise.
    #[must_use]
    pub fn with_plain_names(&self) -> Cow<'_, Graph<'a>> {
        match self.has_plain_names() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.clone().named_plainly()),
        }
    }

    fn has_plain_names(&self) -> bool {
        let mut is_plain = true;
        let mut look = |name: &str| is_plain &= !name.contains(char::is_control);
        for (_, ty) in self.types() {
            look(&ty.name);
            match &ty.kind {
                Kind::Record { members, .. } => members.iter().for_each(|one| look(&one.name)),
                Kind::Enum { enumerators, .. } => {
                    enumerators.iter().for_each(|one| look(&one.name));
                }
                Kind::Function { parameters, .. } => {
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
        is_plain && self.parent().is_none_or(Graph::has_plain_names)
    }

    fn named_plainly(mut self) -> Graph<'a> {
        self.change_parent(Graph::named_plainly);
        for ty in self.types_mut() {
            name_plainly(ty);
        }
        let symbols = [&mut self.functions, &mut self.objects, &mut self.variables];
        for Symbol { name, .. } in symbols.into_iter().flatten() {
            make_plain(name);
        }
        self
    }
}

fn name_plainly(ty: &mut Type<'_>) {
    make_plain(&mut ty.name);
    match &mut ty.kind {
        Kind::Record { members, .. } => {
            let names = members.iter_mut().map(|one| &mut one.name);
            names.for_each(make_plain);
        }
        Kind::Enum { enumerators, .. } => {
            let names = enumerators.iter_mut().map(|one| &mut one.name);
            names.for_each(make_plain);
        }
        Kind::Function { parameters, .. } => {
            let names = parameters.iter_mut().map(|one| &mut one.name);
            names.for_each(make_plain);
        }
        _ => {}
    }
}
