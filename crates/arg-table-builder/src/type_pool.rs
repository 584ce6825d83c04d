//! Names and display kinds of prototypes, encoded once each.

use std::collections::HashMap;

use unspool_arg_table::format::display_kind::{self, FIRST_OFFSET};
use unspool_arg_table::{DisplayKind, DisplayType};
use unspool_c_types::TypeId;
use unspool_dwarf_types::GraphType;
use unspool_rows::leb128::{put_signed, put_unsigned};

/// The names and display kinds of prototypes, as sections of a table. Types share parts: written out
/// as trees, a few of them can be larger than memory.
#[derive(Debug, Clone, Default)]
pub struct TypePool {
    pub(crate) names: EncodedItems,
    pub(crate) display_kinds: EncodedItems,
}

/// The number of a display kind in a pool. Equal numbers are equal display kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DisplayKindNumber(pub(crate) u64);

/// The number of a name in a pool. Equal numbers are equal names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameNumber(pub(crate) u64);

/// Items that are written once, each at its offset.
#[derive(Debug, Clone, Default)]
pub(crate) struct EncodedItems {
    pub(crate) bytes: Vec<u8>,
    offsets: HashMap<Vec<u8>, u64>,
}

impl EncodedItems {
    /// The offset of an item.
    fn add(&mut self, item: Vec<u8>) -> u64 {
        let next = self.bytes.len() as u64;
        let bytes = &mut self.bytes;
        let known = self.offsets.entry(item);
        *known.or_insert_with_key(|item| {
            bytes.extend_from_slice(item);
            next
        })
    }
}

impl TypePool {
    /// The number of a name, its offset.
    pub(crate) fn name(&mut self, name: &str) -> NameNumber {
        let mut item = Vec::new();
        put_unsigned(&mut item, name.len() as u64);
        item.extend_from_slice(name.as_bytes());
        NameNumber(self.names.add(item))
    }

    /// The types of a graph.
    pub(crate) fn graph(&mut self) -> GraphKinds<'_> {
        GraphKinds {
            pool: self,
            records: HashMap::new(),
        }
    }
}

/// The display kinds of one graph's types, in a pool.
pub(crate) struct GraphKinds<'p> {
    pub(crate) pool: &'p mut TypePool,
    /// The known structures, by the type and the remaining nesting.
    records: HashMap<(TypeId, u32), u64>,
}

impl GraphKinds<'_> {
    pub(crate) fn number(&mut self, ty: GraphType<'_, '_>) -> DisplayKindNumber {
        DisplayKindNumber(self.kind(ty.kind()))
    }

    fn kind(&mut self, kind: DisplayKind<GraphType<'_, '_>>) -> u64 {
        let mut item = Vec::new();
        let key = match kind {
            DisplayKind::Signed => return display_kind::SIGNED.into(),
            DisplayKind::Unsigned => return display_kind::UNSIGNED.into(),
            DisplayKind::Bool => return display_kind::BOOL.into(),
            DisplayKind::Char => return display_kind::CHAR.into(),
            DisplayKind::UnsignedChar => return display_kind::UNSIGNED_CHAR.into(),
            DisplayKind::Pointer => return display_kind::POINTER.into(),
            DisplayKind::CharPointer => return display_kind::TEXT.into(),
            DisplayKind::Float => return display_kind::FLOAT.into(),
            DisplayKind::Bytes => return display_kind::BYTES.into(),
            DisplayKind::Enum(constants) => {
                item.push(display_kind::ENUM);
                put_unsigned(&mut item, constants.clone().count() as u64);
                for (value, name) in constants {
                    put_signed(&mut item, value);
                    put_unsigned(&mut item, self.pool.name(&name).0);
                }
                None
            }
            DisplayKind::Record(members) => {
                let key = members.key();
                if let Some(known) = self.records.get(&key) {
                    return *known;
                }
                item.push(display_kind::RECORD);
                put_unsigned(&mut item, members.clone().count() as u64);
                for member in members {
                    put_unsigned(&mut item, self.pool.name(&member.name).0);
                    put_unsigned(&mut item, member.offset.into());
                    put_unsigned(&mut item, member.bytes.into());
                    let number = self.kind(member.display_kind);
                    put_unsigned(&mut item, number);
                }
                Some(key)
            }
            DisplayKind::Array(array) => {
                item.push(display_kind::ARRAY);
                put_unsigned(&mut item, array.count);
                put_unsigned(&mut item, array.bytes.into());
                let number = self.kind(array.element.kind());
                put_unsigned(&mut item, number);
                None
            }
            DisplayKind::Bits(field) => {
                item.extend([display_kind::BITS, field.first, field.count]);
                let number = self.kind(field.number.kind());
                put_unsigned(&mut item, number);
                None
            }
        };
        let number = FIRST_OFFSET + self.pool.display_kinds.add(item);
        self.records.extend(key.map(|key| (key, number)));
        number
    }
}
