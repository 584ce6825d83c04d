//! Names and their offsets: in the ELF file, or in a dictionary's own strings.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::{CtfWriter, SymbolForm};
use crate::elf::SymbolKind;

/// The names in the ELF file.
pub(super) struct ElfNames<'e> {
    /// Its strings, with their offsets.
    pub(super) strings: HashMap<&'e [u8], u32>,
    /// The indices of its symbols of each kind, by name.
    pub(super) symbol_indexes: [HashMap<Cow<'e, str>, Vec<usize>>; 2],
}

impl<'e> ElfNames<'e> {
    pub(super) fn new(writer: &CtfWriter<'e>) -> ElfNames<'e> {
        let mut external = ElfNames {
            strings: HashMap::new(),
            symbol_indexes: [HashMap::new(), HashMap::new()],
        };
        let is_dynamic = match writer.symbols {
            SymbolForm::Names | SymbolForm::None => return external,
            SymbolForm::Symtab => false,
            SymbolForm::Dynsym => true,
        };
        let strings = if is_dynamic {
            writer.elf.strings.dynstr
        } else {
            writer.elf.strings.strtab
        };
        let mut at = 0;
        for string in strings.split(|byte| *byte == 0) {
            if let Ok(offset) = u32::try_from(at)
                && !string.is_empty()
            {
                external.strings.entry(string).or_insert(offset | 1 << 31);
            }
            at += string.len() + 1;
        }
        let mut counts = [0, 0];
        for symbol in writer.elf.typed_symbols(is_dynamic) {
            let [functions, objects] = &mut external.symbol_indexes;
            let [function_count, object_count] = &mut counts;
            let (places, count) = match symbol.kind {
                SymbolKind::Function => (functions, function_count),
                SymbolKind::Object => (objects, object_count),
            };
            places.entry(symbol.name).or_default().push(*count);
            *count += 1;
        }
        external
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
