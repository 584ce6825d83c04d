//! Encoding an argument table.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use unspool_c_types::{Passing, PassingLocation};
use unspool_elf::{BuildId, TableKey};
use unspool_rows::leb128::{put_signed, put_unsigned};

use crate::functions::{ArgRow, CallArguments, FileAnalysis, FunctionAnalysis};
use crate::prototype::{OwnedParameter, Prototype};
use crate::type_pool::TypePool;
use unspool_arg_table::format::{
    BY_REFERENCE, BY_VALUE, FLOAT_OR_DOUBLE, HAS_PROTOTYPE, HEADER_BYTES, IS_CERTAIN, IS_JUMPED_TO,
    IS_REENTERED, MAGIC, MAX_BUILD_ID_BYTES, SECTIONS, VERSION, call_site_value, source_number,
};
use unspool_arg_table::{ArgLocation, ArgSource, CallSiteValue, PieceLocation};

/// The functions are too far from each other for a table: more than 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the code is larger than 4 GiB, the limit of a table of arguments")]
pub struct CodeTooLarge;

/// A section of items that are written once, each at its offset.
struct Pool {
    bytes: Vec<u8>,
    offsets: HashMap<Vec<u8>, u64>,
}

impl Pool {
    /// Puts the most frequent items first, so that their offsets are small numbers.
    fn new(things: impl Iterator<Item = Vec<u8>>) -> Pool {
        let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
        for thing in things {
            *counts.entry(thing).or_default() += 1;
        }
        let mut order: Vec<_> = counts.into_iter().collect();
        order.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut pool = Pool {
            bytes: Vec::new(),
            offsets: HashMap::new(),
        };
        for (thing, _) in order {
            let at = pool.bytes.len() as u64;
            pool.bytes.extend_from_slice(&thing);
            pool.offsets.insert(thing, at);
        }
        pool
    }

    fn offset(&self, thing: &[u8]) -> u64 {
        self.offsets.get(thing).copied().unwrap_or_default()
    }
}

/// Encodes the analysis of the module with this key, whose prototypes have these types.
///
/// # Errors
///
/// The functions are too far from each other.
pub fn encode(
    analysis: &FileAnalysis,
    types: &TypePool,
    key: &TableKey,
) -> Result<Vec<u8>, CodeTooLarge> {
    let functions = analysis.functions.iter();
    let kept: Vec<&FunctionAnalysis> = functions.filter(|own| !own.is_empty()).collect();
    let first = kept.first().map(|function| function.start);
    let first_unproven = analysis.unproven.first().map(|range| range.start);
    let base = first.into_iter().chain(first_unproven).min().unwrap_or(0);
    let index: HashMap<u64, usize> = (0..).zip(&kept).map(|(at, own)| (own.start, at)).collect();
    let mut written: HashMap<*const Prototype, Vec<u8>> = HashMap::new();
    for prototype in kept.iter().filter_map(|own| own.prototype.as_ref()) {
        let known = written.entry(Rc::as_ptr(prototype));
        known.or_insert_with(|| prototype_bytes(prototype));
    }
    let prototype_of = |own: &FunctionAnalysis| {
        let own = own.prototype.as_ref()?;
        written.get(&Rc::as_ptr(own)).cloned()
    };
    let prototypes = Pool::new(kept.iter().filter_map(|own| prototype_of(own)));
    let rows = kept.iter().flat_map(|own| &own.rows);
    let places = Pool::new(rows.map(row_bytes));
    let calls = kept.iter().flat_map(|own| &own.calls);
    let given = Pool::new(calls.map(call_site_bytes));

    let (mut starts, mut records, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for own in &kept {
        let start = u32::try_from(own.start - base).map_err(|_| CodeTooLarge)?;
        starts.extend_from_slice(&start.to_le_bytes());
        let at = u32::try_from(bytes.len()).map_err(|_| CodeTooLarge)?;
        records.extend_from_slice(&at.to_le_bytes());
        put_unsigned(&mut bytes, own.end - own.start);
        put_signed(&mut bytes, own.entry.wrapping_sub(own.start).cast_signed());
        let prototype = prototype_of(own);
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(own.is_certain && own.is_given_all, IS_CERTAIN)
            | flag(own.is_reentered, IS_REENTERED)
            | flag(own.is_jumped_to, IS_JUMPED_TO)
            | flag(prototype.is_some(), HAS_PROTOTYPE);
        put_unsigned(&mut bytes, flags);
        if let Some(prototype) = prototype {
            put_unsigned(&mut bytes, prototypes.offset(&prototype));
        }
        put_unsigned(&mut bytes, own.rows.len() as u64);
        let mut at = own.start;
        for row in &own.rows {
            put_unsigned(&mut bytes, row.start.saturating_sub(at));
            at = row.start;
            put_unsigned(&mut bytes, places.offset(&row_bytes(row)));
        }
        put_unsigned(&mut bytes, own.calls.len() as u64);
        let mut at = own.start;
        for call in &own.calls {
            put_unsigned(&mut bytes, call.returns_to.saturating_sub(at));
            at = call.returns_to;
            let target = call.target.and_then(|target| index.get(&target));
            put_unsigned(&mut bytes, target.map_or(0, |index| *index as u64 + 1));
            put_unsigned(&mut bytes, given.offset(&call_site_bytes(call)));
        }
    }
    let mut unproven = Vec::new();
    for range in &analysis.unproven {
        for number in [range.start - base, range.end - range.start] {
            let number = u32::try_from(number).map_err(|_| CodeTooLarge)?;
            unproven.extend_from_slice(&number.to_le_bytes());
        }
        unproven.extend_from_slice(&range.rules.bits().to_le_bytes());
    }
    let sections: [&[u8]; SECTIONS] = [
        &starts,
        &records,
        &bytes,
        &places.bytes,
        &given.bytes,
        &prototypes.bytes,
        &types.names.bytes,
        &unproven,
        &types.display_kinds.bytes,
    ];
    write_sections(key, base, &sections)
}

/// Puts the header in front of the sections.
fn write_sections(
    key: &TableKey,
    base: u64,
    sections: &[&[u8]; SECTIONS],
) -> Result<Vec<u8>, CodeTooLarge> {
    let id = key
        .build_id
        .as_ref()
        .map(BuildId::as_bytes)
        .unwrap_or_default();
    let id = id.get(..MAX_BUILD_ID_BYTES).unwrap_or(id);
    let count = sections.first().map_or(0, |starts| starts.len() / 4);
    let number = |number: usize| u32::try_from(number).map_err(|_| CodeTooLarge);
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(u8::try_from(id.len()).unwrap_or(0));
    out.push(0);
    out.extend_from_slice(&number(count)?.to_le_bytes());
    out.extend_from_slice(id);
    out.resize(48, 0);
    out.extend_from_slice(&key.content);
    out.resize(72, 0);
    out.extend_from_slice(&base.to_le_bytes());
    let mut at = HEADER_BYTES;
    for section in sections {
        out.extend_from_slice(&number(at)?.to_le_bytes());
        out.extend_from_slice(&number(section.len())?.to_le_bytes());
        at += section.len();
    }
    for section in sections {
        out.extend_from_slice(section);
    }
    Ok(out)
}

impl FunctionAnalysis {
    /// Whether it has no information.
    fn is_empty(&self) -> bool {
        self.prototype.is_none() && self.calls.is_empty()
    }
}

fn prototype_bytes(prototype: &Prototype) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_unsigned(&mut bytes, prototype.parameters.len() as u64);
    for parameter in &prototype.parameters {
        put_parameter(parameter, &mut bytes);
    }
    bytes
}

fn put_parameter(parameter: &OwnedParameter, bytes: &mut Vec<u8>) {
    put_unsigned(bytes, parameter.name.0);
    put_unsigned(bytes, parameter.type_name.0);
    put_unsigned(bytes, parameter.bytes.into());
    put_unsigned(bytes, parameter.display_kind.0);
    let Some(passing) = &parameter.passing else {
        put_unsigned(bytes, 0);
        return;
    };
    let how = match (passing.is_by_reference, parameter.is_float_or_double) {
        (true, _) => BY_REFERENCE,
        (_, true) => FLOAT_OR_DOUBLE,
        _ => BY_VALUE,
    };
    put_unsigned(bytes, how);
    let pieces = eightbytes(passing);
    put_unsigned(bytes, pieces.len() as u64);
    for (offset, size, source) in pieces {
        put_unsigned(bytes, offset.into());
        bytes.push(size);
        put_unsigned(bytes, source_number(source));
    }
}

/// The tracked vector registers: xmm0 to xmm7. Those of AArch64 are not tracked.
const TRACKED_VECTORS: Range<u8> = 17..25;

/// The eightbytes of a piece that have a place: stack slots are numbered by a byte. Types may claim
/// gigabytes.
const MAX_EIGHTBYTES: u32 = 1 << 8;

/// The pieces of an argument, at most eight bytes each: offset in the argument, size, and location
/// at entry. The rest of a larger argument is not known.
pub(super) fn eightbytes(passing: &Passing) -> Vec<(u32, u8, Option<ArgSource>)> {
    let mut found = Vec::new();
    for piece in &passing.pieces {
        for word in 0..piece.bytes.div_ceil(8).min(MAX_EIGHTBYTES) {
            let offset = piece.offset + word * 8;
            let size = u8::try_from((piece.bytes - word * 8).min(8)).unwrap_or(8);
            let source = match piece.location {
                PassingLocation::Register(register) => Some(ArgSource::Register(register)),
                PassingLocation::Stack(at) => {
                    u8::try_from(at / 8 + word).ok().map(ArgSource::Stack)
                }
                PassingLocation::Vector(register) => {
                    let is_followed = word == 0 && TRACKED_VECTORS.contains(&register);
                    is_followed.then_some(ArgSource::Register(register))
                }
            };
            found.push((offset, size, source));
        }
    }
    found
}

fn row_bytes(row: &ArgRow) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in &row.pieces {
        let Some(PieceLocation {
            location: place,
            addend: add,
            is_certain,
        }) = piece
        else {
            put_unsigned(&mut bytes, 0);
            continue;
        };
        let (value, in_memory) = match place {
            ArgLocation::Register(register) => (u64::from(*register), 0),
            ArgLocation::Slot(at) => (zigzag(*at), 1),
        };
        let flags = in_memory | u64::from(*is_certain) << 1 | u64::from(*add != 0) << 2;
        put_unsigned(&mut bytes, (value << 3 | flags) + 1);
        if *add != 0 {
            put_signed(&mut bytes, (*add).into());
        }
    }
    bytes
}

/// A number with its sign in the lowest bit.
fn zigzag(value: i32) -> u64 {
    let value = i64::from(value);
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn call_site_bytes(call: &CallArguments) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_unsigned(&mut bytes, call.arguments.len() as u64);
    for (register, given) in &call.arguments {
        bytes.push(register << call_site_value::KIND_BITS | kind_of(given));
        put_call_site_value(*given, &mut bytes);
    }
    bytes
}

fn kind_of(given: &CallSiteValue) -> u8 {
    match given {
        CallSiteValue::Number(_) => call_site_value::NUMBER,
        CallSiteValue::Address(_) => call_site_value::ADDRESS,
        CallSiteValue::Cfa(_) => call_site_value::CFA,
        CallSiteValue::Register { .. } => call_site_value::REGISTER,
        CallSiteValue::Slot { is_certain, .. } => call_site_value::SLOT + u8::from(*is_certain),
        CallSiteValue::EntryValue(held) => call_site_value::ENTRY_VALUE + u8::from(held.is_certain),
    }
}

fn put_call_site_value(given: CallSiteValue, bytes: &mut Vec<u8>) {
    match given {
        CallSiteValue::Number(number) => put_signed(bytes, number.cast_signed()),
        CallSiteValue::Address(address) => put_unsigned(bytes, address),
        CallSiteValue::Cfa(at) => put_signed(bytes, at.into()),
        CallSiteValue::Register {
            register,
            addend: add,
            bits,
        } => put_with_addend(register.into(), add, bits, bytes),
        CallSiteValue::Slot {
            at, bytes: size, ..
        } => match (size, at % 8, at % 4) {
            (8, 0, _) => put_unsigned(bytes, zigzag(at / 8) << 2 | call_site_value::WHOLE),
            (4, _, 0) => put_unsigned(bytes, zigzag(at / 4) << 2 | call_site_value::HALF),
            _ => {
                put_unsigned(bytes, zigzag(at) << 2 | call_site_value::EXPLICIT);
                bytes.push(size);
            }
        },
        CallSiteValue::EntryValue(held) => {
            let source = source_number(Some(held.source));
            put_with_addend(source, held.addend, held.bits, bytes);
        }
    }
}

/// Puts a value, its addend, and the number of its valid bits.
fn put_with_addend(number: u64, add: i32, bits: u8, bytes: &mut Vec<u8>) {
    match (bits, add) {
        (64, 0) => put_unsigned(bytes, number << 2 | call_site_value::WHOLE),
        (32, 0) => put_unsigned(bytes, number << 2 | call_site_value::HALF),
        (64, _) => {
            put_unsigned(bytes, number << 2 | call_site_value::WITH_ADDEND);
            put_signed(bytes, add.into());
        }
        _ => {
            put_unsigned(bytes, number << 2 | call_site_value::EXPLICIT);
            bytes.push(bits);
            put_signed(bytes, add.into());
        }
    }
}
