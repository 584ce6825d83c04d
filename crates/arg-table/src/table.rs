//! An argument table: read in place, without memory of its own. For the format see
//! [`crate::format`].

use unspool_rows::leb128::{byte, signed, take, unsigned};

use crate::display_type::{Array, BitField, DisplayKind, DisplayMember, DisplayType};
use crate::format::{
    ArgTableKey, BY_REFERENCE, FLOAT_OR_DOUBLE, HAS_PROTOTYPE, HEADER_BYTES, IS_CERTAIN,
    IS_JUMPED_TO, IS_REENTERED, MAGIC, MAX_BUILD_ID_BYTES, SECTIONS, UNPROVEN_RANGE_BYTES, VERSION,
    call_site_value, display_kind, source,
};
use crate::location::{
    ArgLocation, ArgSource, CallSiteValue, EntryValue, PieceLocation, UnprovenRules,
};

/// The maximum nesting of members.
const MAX_NESTING: u32 = 10;

/// Why bytes are not an argument table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgTableError {
    /// The magic number is missing.
    #[error("not a table of arguments: it does not start with \"unspargs\"")]
    Magic,
    /// An unknown version.
    #[error("version {0} of tables of arguments is not supported; {VERSION} is")]
    Version(u16),
    /// A section exceeds the bytes.
    #[error("the table ends at byte {0}, inside section {1}")]
    Truncated(usize, usize),
}

/// An argument table.
#[derive(Debug, Clone, Copy)]
pub struct ArgTable<'t> {
    key: ArgTableKey<'t>,
    base: u64,
    starts: &'t [u8],
    records: &'t [u8],
    bytes: &'t [u8],
    locations: &'t [u8],
    passed: &'t [u8],
    prototypes: &'t [u8],
    names: &'t [u8],
    unproven: &'t [u8],
    display_kinds: &'t [u8],
}

fn u32_at(bytes: &[u8], index: usize) -> Option<u32> {
    let start = index.checked_mul(4)?;
    let bytes = bytes.get(start..start.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn from(bytes: &[u8], at: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..)
}

impl<'t> ArgTable<'t> {
    /// Opens a table; only checks its header.
    ///
    /// # Errors
    ///
    /// The bytes are not a table of a known version.
    pub fn open(bytes: &'t [u8]) -> Result<ArgTable<'t>, ArgTableError> {
        let short = |section| ArgTableError::Truncated(bytes.len(), section);
        let head: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(short(0))?;
        if !head.starts_with(&MAGIC) {
            return Err(ArgTableError::Magic);
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            return Err(ArgTableError::Version(version));
        }
        let mut sections = [&[][..]; SECTIONS];
        for (index, section) in sections.iter_mut().enumerate() {
            let number = |word| u32_at(bytes, word).and_then(|number| usize::try_from(number).ok());
            let start = number(20 + 2 * index).ok_or(short(index + 1))?;
            let length = number(21 + 2 * index).ok_or(short(index + 1))?;
            let end = start.checked_add(length);
            let data = end.and_then(|end| bytes.get(start..end));
            *section = data.ok_or(short(index + 1))?;
        }
        let [
            starts,
            records,
            code,
            places,
            passed,
            prototypes,
            names,
            doubts,
            display_kinds,
        ] = sections;
        let length = usize::from(head[10]).min(MAX_BUILD_ID_BYTES);
        let build_id = bytes.get(16..16 + length).unwrap_or_default();
        let content = bytes.get(48..).and_then(|rest| rest.first_chunk());
        let content = content.ok_or(short(0))?;
        let base = bytes.get(72..80).and_then(|base| base.try_into().ok());
        Ok(ArgTable {
            key: ArgTableKey { build_id, content },
            base: base.map_or(0, u64::from_le_bytes),
            starts,
            records,
            bytes: code,
            locations: places,
            passed,
            prototypes,
            names,
            unproven: doubts,
            display_kinds,
        })
    }

    /// Whether it is of the module with this build ID.
    #[must_use]
    pub fn is_of_build(&self, id: &[u8]) -> bool {
        !id.is_empty() && self.key.build_id == id.get(..MAX_BUILD_ID_BYTES).unwrap_or(id)
    }

    /// The table's inputs; the build ID has at most 32 bytes.
    #[must_use]
    pub fn key(&self) -> ArgTableKey<'t> {
        self.key
    }

    /// The number of ranges of code.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() / 4
    }

    /// Whether it has no ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn start(&self, index: usize) -> Option<u64> {
        let start = u32_at(self.starts, index)?;
        Some(self.base.wrapping_add(u64::from(start)))
    }

    /// A range by its index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<CodeRange<'t>> {
        let start = self.start(index)?;
        let mut bytes = from(self.bytes, u32_at(self.records, index)?.into())?;
        let end = start.checked_add(unsigned(&mut bytes)?)?;
        let entry = start.checked_add_signed(signed(&mut bytes)?)?;
        let flags = unsigned(&mut bytes)?;
        let prototype = match flags & HAS_PROTOTYPE {
            0 => None,
            _ => from(self.prototypes, unsigned(&mut bytes)?),
        };
        Some(CodeRange {
            table: *self,
            start,
            end,
            entry,
            is_certain: flags & IS_CERTAIN != 0,
            is_reentered: flags & IS_REENTERED != 0,
            is_jumped_to: flags & IS_JUMPED_TO != 0,
            prototype,
            rest: bytes,
        })
    }

    /// The range of code that contains a link-time address.
    #[must_use]
    pub fn function(&self, pc: u64) -> Option<CodeRange<'t>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.start(middle)? <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.get(low.checked_sub(1)?)
            .filter(|function| pc < function.end)
    }

    /// The unproven rules of the unwind row at a link-time address.
    #[must_use]
    pub fn unproven_rules(&self, pc: u64) -> UnprovenRules {
        let unproven_range = |index: usize| {
            let word = |word| u32_at(self.unproven, index * (UNPROVEN_RANGE_BYTES / 4) + word);
            let start = self.base.wrapping_add(word(0)?.into());
            Some((start, start.wrapping_add(word(1)?.into()), word(2)?))
        };
        let (mut low, mut high) = (0, self.unproven.len() / UNPROVEN_RANGE_BYTES);
        while low < high {
            let middle = low.midpoint(high);
            if unproven_range(middle).is_some_and(|(start, ..)| start <= pc) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = low.checked_sub(1).and_then(unproven_range);
        let found = found.filter(|(_, end, _)| pc < *end);
        found.map_or(UnprovenRules::NONE, |(.., bits)| {
            UnprovenRules::from_bits(bits)
        })
    }

    fn name(&self, at: u64) -> Option<&'t str> {
        let mut bytes = from(self.names, at)?;
        let length = usize::try_from(unsigned(&mut bytes)?).ok()?;
        core::str::from_utf8(take(&mut bytes, length)?).ok()
    }
}

/// A range of code: a function, or a part of one.
#[derive(Debug, Clone, Copy)]
pub struct CodeRange<'t> {
    table: ArgTable<'t>,
    /// First address, as linked.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The first address of the function; for a split-off part it is in another range.
    pub entry: u64,
    /// Whether its callers certainly pass its prototype's arguments.
    pub is_certain: bool,
    /// Whether jumps may lead from it back to its entry.
    pub is_reentered: bool,
    /// Whether other functions of the module jump to its entry.
    pub is_jumped_to: bool,
    prototype: Option<&'t [u8]>,
    /// Its rows and calls.
    rest: &'t [u8],
}

impl<'t> CodeRange<'t> {
    /// Its parameters; `None` if they are unknown.
    #[must_use]
    pub fn parameters(&self) -> Option<Parameters<'t>> {
        let mut bytes = self.prototype?;
        Some(Parameters {
            table: self.table,
            left: unsigned(&mut bytes)?,
            bytes,
        })
    }

    /// The locations of the pieces of its arguments at an address: one for each piece, in order,
    /// except pieces passed in a vector register. The address of a call's last byte gives the
    /// locations while the callee runs.
    #[must_use]
    pub fn row(&self, pc: u64) -> Option<PieceLocations<'t>> {
        let mut bytes = self.rest;
        let mut at = self.start;
        let mut found = None;
        for _ in 0..unsigned(&mut bytes)? {
            at = at.checked_add(unsigned(&mut bytes)?)?;
            let places = unsigned(&mut bytes)?;
            if at > pc {
                break;
            }
            found = Some(places);
        }
        from(self.table.locations, found?).map(|bytes| PieceLocations { bytes })
    }

    /// The call that returns to an address.
    #[must_use]
    pub fn call(&self, returns_to: u64) -> Option<CallRecord<'t>> {
        let mut bytes = self.rest;
        for _ in 0..unsigned(&mut bytes)? {
            unsigned(&mut bytes)?;
            unsigned(&mut bytes)?;
        }
        let mut at = self.start;
        for _ in 0..unsigned(&mut bytes)? {
            at = at.checked_add(unsigned(&mut bytes)?)?;
            let target = unsigned(&mut bytes)?;
            let given = unsigned(&mut bytes)?;
            if at >= returns_to {
                let target = target.checked_sub(1);
                let target = target.and_then(|index| usize::try_from(index).ok());
                return (at == returns_to).then_some(CallRecord {
                    target: target.and_then(|index| self.table.start(index)),
                    bytes: from(self.table.passed, given)?,
                });
            }
        }
        None
    }
}

/// The parameters of a function.
#[derive(Debug, Clone)]
pub struct Parameters<'t> {
    table: ArgTable<'t>,
    left: u64,
    bytes: &'t [u8],
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub struct TableParameter<'t> {
    /// Its name; empty if it is not known.
    pub name: &'t str,
    /// Its type, in C notation.
    pub type_name: &'t str,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its display kind.
    pub display_kind: DisplayKind<TableType<'t>>,
    /// Whether its passing is known.
    pub is_known: bool,
    /// Whether its address is passed.
    pub is_by_reference: bool,
    /// Whether it is a `float` for which a `double` may be passed.
    pub is_float_or_double: bool,
    /// The number of its remaining pieces.
    left: u64,
    pieces: &'t [u8],
}

impl<'t> Iterator for Parameters<'t> {
    type Item = TableParameter<'t>;

    fn next(&mut self) -> Option<TableParameter<'t>> {
        self.left = self.left.checked_sub(1)?;
        let bytes = &mut self.bytes;
        let name = self.table.name(unsigned(bytes)?)?;
        let type_name = self.table.name(unsigned(bytes)?)?;
        let size = u32::try_from(unsigned(bytes)?).ok()?;
        let display_kind = TableType {
            table: self.table,
            number: unsigned(bytes)?,
            depth: MAX_NESTING,
        };
        let passing = unsigned(bytes)?;
        let left = match passing {
            0 => 0,
            _ => unsigned(bytes)?,
        };
        let pieces = *bytes;
        for _ in 0..left {
            ParameterPiece::read(bytes)?;
        }
        Some(TableParameter {
            name,
            type_name,
            bytes: size,
            display_kind: display_kind.kind(),
            is_known: passing != 0,
            is_by_reference: passing == BY_REFERENCE,
            is_float_or_double: passing == FLOAT_OR_DOUBLE,
            left,
            pieces,
        })
    }
}

/// At most eight bytes of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterPiece {
    /// Their offset in the argument.
    pub offset: u32,
    /// Their number.
    pub bytes: u8,
    /// Their location at entry; `None` for an untracked vector register.
    pub source: Option<ArgSource>,
}

impl ParameterPiece {
    fn read(bytes: &mut &[u8]) -> Option<ParameterPiece> {
        let offset = u32::try_from(unsigned(bytes)?).ok()?;
        let count = byte(bytes)?.min(8);
        let source = source(unsigned(bytes)?);
        Some(ParameterPiece {
            offset,
            bytes: count,
            source,
        })
    }
}

impl<'t> TableParameter<'t> {
    /// Its pieces.
    pub fn pieces(&self) -> impl Iterator<Item = ParameterPiece> + use<'t> {
        let (mut left, mut bytes) = (self.left, self.pieces);
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            ParameterPiece::read(&mut bytes)
        })
    }
}

/// A type in a table.
#[derive(Debug, Clone, Copy)]
pub struct TableType<'t> {
    table: ArgTable<'t>,
    /// The number of its display kind.
    number: u64,
    /// The remaining nesting of members.
    depth: u32,
}

impl<'t> DisplayType for TableType<'t> {
    type Name = &'t str;
    type Members = Members<'t>;
    type Enumerators = Enumerators<'t>;

    fn kind(self) -> DisplayKind<TableType<'t>> {
        self.read_kind().unwrap_or(DisplayKind::Bytes)
    }
}

impl<'t> TableType<'t> {
    fn read_kind(self) -> Option<DisplayKind<TableType<'t>>> {
        let Some(at) = self.number.checked_sub(display_kind::FIRST_OFFSET) else {
            return Some(match u8::try_from(self.number).ok()? {
                display_kind::SIGNED => DisplayKind::Signed,
                display_kind::UNSIGNED => DisplayKind::Unsigned,
                display_kind::BOOL => DisplayKind::Bool,
                display_kind::CHAR => DisplayKind::Char,
                display_kind::UNSIGNED_CHAR => DisplayKind::UnsignedChar,
                display_kind::POINTER => DisplayKind::Pointer,
                display_kind::TEXT => DisplayKind::CharPointer,
                display_kind::FLOAT => DisplayKind::Float,
                _ => DisplayKind::Bytes,
            });
        };
        let table = self.table;
        let depth = self.depth.checked_sub(1)?;
        let nested = |number| TableType {
            table,
            number,
            depth,
        };
        let mut bytes = from(table.display_kinds, at)?;
        Some(match byte(&mut bytes)? {
            display_kind::ENUM => DisplayKind::Enum(Enumerators {
                table,
                left: unsigned(&mut bytes)?,
                bytes,
            }),
            display_kind::RECORD => DisplayKind::Record(Members {
                table,
                left: unsigned(&mut bytes)?,
                bytes,
                depth,
            }),
            display_kind::ARRAY => DisplayKind::Array(Array {
                count: unsigned(&mut bytes)?,
                bytes: u32::try_from(unsigned(&mut bytes)?).ok()?,
                element: nested(unsigned(&mut bytes)?),
            }),
            display_kind::BITS => DisplayKind::Bits(BitField {
                first: byte(&mut bytes)?,
                count: byte(&mut bytes)?,
                number: nested(unsigned(&mut bytes)?),
            }),
            _ => return None,
        })
    }
}

/// The constants of an enumeration: their values and names.
#[derive(Debug, Clone, Copy)]
pub struct Enumerators<'t> {
    table: ArgTable<'t>,
    left: u64,
    bytes: &'t [u8],
}

impl<'t> Iterator for Enumerators<'t> {
    type Item = (i64, &'t str);

    fn next(&mut self) -> Option<(i64, &'t str)> {
        self.left = self.left.checked_sub(1)?;
        let value = signed(&mut self.bytes)?;
        Some((value, self.table.name(unsigned(&mut self.bytes)?)?))
    }
}

/// The members of a structure.
#[derive(Debug, Clone, Copy)]
pub struct Members<'t> {
    table: ArgTable<'t>,
    left: u64,
    bytes: &'t [u8],
    depth: u32,
}

impl<'t> Iterator for Members<'t> {
    type Item = DisplayMember<TableType<'t>>;

    fn next(&mut self) -> Option<DisplayMember<TableType<'t>>> {
        self.left = self.left.checked_sub(1)?;
        let name = self.table.name(unsigned(&mut self.bytes)?)?;
        let offset = u32::try_from(unsigned(&mut self.bytes)?).ok()?;
        let bytes = u32::try_from(unsigned(&mut self.bytes)?).ok()?;
        let ty = TableType {
            table: self.table,
            number: unsigned(&mut self.bytes)?,
            depth: self.depth,
        };
        Some(DisplayMember {
            name,
            offset,
            bytes,
            display_kind: ty.kind(),
        })
    }
}

/// The locations of the pieces of a function's arguments, one after another.
///
/// Each is a number: 0 if there is no location. Otherwise, after subtracting 1, the lowest bits
/// are: whether it is in memory, whether it is certain, and whether there is an addend. Above them
/// is the register or the distance from the CFA, with its sign in the lowest bit. The addend
/// follows as a signed number.
#[derive(Debug, Clone, Copy)]
pub struct PieceLocations<'t> {
    bytes: &'t [u8],
}

impl Iterator for PieceLocations<'_> {
    type Item = Option<PieceLocation>;

    fn next(&mut self) -> Option<Option<PieceLocation>> {
        let Some(number) = unsigned(&mut self.bytes)?.checked_sub(1) else {
            return Some(None);
        };
        let value = number >> 3;
        let place = match number & 1 {
            0 => ArgLocation::Register(u8::try_from(value).ok()?),
            _ => ArgLocation::Slot(zigzag(value)?),
        };
        let add = match number & 4 {
            0 => 0,
            _ => i32::try_from(signed(&mut self.bytes)?).ok()?,
        };
        Some(Some(PieceLocation {
            location: place,
            addend: add,
            is_certain: number & 2 != 0,
        }))
    }
}

/// A number with its sign in the lowest bit.
fn zigzag(value: u64) -> Option<i32> {
    let half = i64::try_from(value >> 1).ok()?;
    i32::try_from(if value & 1 == 0 { half } else { !half }).ok()
}

/// A call.
#[derive(Debug, Clone, Copy)]
pub struct CallRecord<'t> {
    /// The entry of the function called, if the code determines it.
    pub target: Option<u64>,
    bytes: &'t [u8],
}

impl<'t> CallRecord<'t> {
    /// The values that it passes in registers.
    pub fn passed(&self) -> impl Iterator<Item = (u8, CallSiteValue)> + use<'t> {
        let mut bytes = self.bytes;
        let mut left = unsigned(&mut bytes).unwrap_or(0);
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let head = byte(&mut bytes)?;
            let kind = head & ((1 << call_site_value::KIND_BITS) - 1);
            Some((
                head >> call_site_value::KIND_BITS,
                read_passed(kind, &mut bytes)?,
            ))
        })
    }
}

fn read_passed(kind: u8, bytes: &mut &[u8]) -> Option<CallSiteValue> {
    Some(match kind {
        call_site_value::NUMBER => CallSiteValue::Number(signed(bytes)?.cast_unsigned()),
        call_site_value::ADDRESS => CallSiteValue::Address(unsigned(bytes)?),
        call_site_value::CFA => CallSiteValue::Cfa(i32::try_from(signed(bytes)?).ok()?),
        call_site_value::REGISTER => {
            let (register, add, bits) = read_parts(bytes)?;
            CallSiteValue::Register {
                register: u8::try_from(register).ok()?,
                addend: add,
                bits,
            }
        }
        call_site_value::SLOT | call_site_value::CERTAIN_SLOT => {
            let number = unsigned(bytes)?;
            let at = zigzag(number >> 2)?;
            let (at, size) = match number & 3 {
                call_site_value::WHOLE => (at.checked_mul(8)?, 8),
                call_site_value::HALF => (at.checked_mul(4)?, 4),
                _ => (at, byte(bytes)?.min(8)),
            };
            CallSiteValue::Slot {
                at,
                bytes: size,
                is_certain: kind == call_site_value::CERTAIN_SLOT,
            }
        }
        call_site_value::ENTRY_VALUE | call_site_value::CERTAIN_ENTRY_VALUE => {
            let (number, add, bits) = read_parts(bytes)?;
            CallSiteValue::EntryValue(EntryValue {
                source: source(number)?,
                addend: add,
                bits,
                is_certain: kind == call_site_value::CERTAIN_ENTRY_VALUE,
            })
        }
        _ => return None,
    })
}

/// A value, its addend, and the number of its valid bits.
fn read_parts(bytes: &mut &[u8]) -> Option<(u64, i32, u8)> {
    let number = unsigned(bytes)?;
    let sum = |bytes: &mut &[u8]| i32::try_from(signed(bytes)?).ok();
    let (bits, add) = match number & 3 {
        call_site_value::WHOLE => (64, 0),
        call_site_value::HALF => (32, 0),
        call_site_value::WITH_ADDEND => (64, sum(bytes)?),
        _ => (byte(bytes)?, sum(bytes)?),
    };
    Some((number >> 2, add, bits))
}
