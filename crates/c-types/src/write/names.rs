//! The ELF file's symbols by name, and a dictionary's strings.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::{CtfWriter, SymbolForm};
use crate::elf::SymbolKind;

/// The places of the ELF file's symbols in their order.
#[derive(Default)]
pub(super) struct SymbolOrder<'e> {
    /// The indices of the symbols of each kind, by name.
    pub(super) indexes: [HashMap<Cow<'e, str>, Vec<usize>>; 2],
    /// The label that says what the order was; empty if no order is used.
    pub(super) label: String,
}

impl<'e> SymbolOrder<'e> {
    pub(super) fn new(writer: &CtfWriter<'e>) -> SymbolOrder<'e> {
        let mut order = SymbolOrder::default();
        let is_dynamic = match writer.symbols {
            SymbolForm::Names | SymbolForm::None => return order,
            SymbolForm::Symtab => false,
            SymbolForm::Dynsym => true,
        };
        order.label = writer.elf.symbol_order_label(is_dynamic);
        let mut counts = [0, 0];
        for symbol in writer.elf.typed_symbols(is_dynamic) {
            let [functions, objects] = &mut order.indexes;
            let [function_count, object_count] = &mut counts;
            let (places, count) = match symbol.kind {
                SymbolKind::Function => (functions, function_count),
                SymbolKind::Object => (objects, object_count),
            };
            places.entry(symbol.name).or_default().push(*count);
            *count += 1;
        }
        order
    }
}

/// The strings of a dictionary.
#[derive(Default)]
pub(crate) struct CtfStrings {
    offsets: HashMap<Box<str>, u32>,
    bytes: Vec<u8>,
}

impl CtfStrings {
    /// Strings in alphabetical order, which compresses best. A string that is a suffix of another
    /// shares its bytes.
    pub(crate) fn new(names: HashSet<&str>) -> CtfStrings {
        let mut names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.sort_unstable_by(|one, other| one.bytes().rev().cmp(other.bytes().rev()));
        let mut strings = CtfStrings {
            bytes: vec![0],
            ..CtfStrings::default()
        };
        let mut longest: Vec<(&str, Vec<&str>)> = Vec::new();
        for name in names.into_iter().rev() {
            match longest.last_mut() {
                Some((long, ends)) if long.ends_with(name) => ends.push(name),
                _ => longest.push((name, Vec::new())),
            }
        }
        longest.sort_unstable();
        for (long, ends) in longest {
            let at = strings.bytes.len();
            strings.bytes.extend_from_slice(long.as_bytes());
            strings.bytes.push(0);
            for name in ends.into_iter().chain([long]) {
                let offset = u32::try_from(at + long.len() - name.len()).unwrap_or(0);
                strings.offsets.insert(name.into(), offset);
            }
        }
        strings
    }

    /// The offset of a string; the empty string's for an unknown one.
    pub(crate) fn offset(&self, name: &str) -> u32 {
        self.offsets.get(name).copied().unwrap_or(0)
    }

    /// The strings, each followed by a zero.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
