//! The words for places in the code.

use std::collections::HashMap;

use unspool_rows::Vaddr;

/// How messages name places in the code, if not by their addresses: by a line of the source, or in an
/// object file by the section; and calls by the function, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodePlaces {
    places: HashMap<Vaddr, String>,
    callees: HashMap<Vaddr, String>,
}

impl CodePlaces {
    /// Has messages name an address so.
    pub(crate) fn name_place(&mut self, at: Vaddr, name: String) {
        self.places.insert(at, name);
    }

    /// Has messages name the function of a call.
    pub(crate) fn name_callee(&mut self, call: Vaddr, function: &str) {
        self.callees.insert(call, function.to_owned());
    }

    /// A place: `line 14`, `.text.unlikely+0x4`, `0x4e6a`.
    #[must_use]
    pub(crate) fn place(&self, at: Vaddr) -> String {
        let name = self.places.get(&at).cloned();
        name.unwrap_or_else(|| at.to_string())
    }

    /// A call: `the call of f at line 14`.
    #[must_use]
    pub(crate) fn call(&self, at: Vaddr) -> String {
        let place = self.place(at);
        match self.callees.get(&at) {
            Some(function) => format!("the call of {function} at {place}"),
            None => format!("the call at {place}"),
        }
    }
}
