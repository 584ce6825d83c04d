//! The functions of `unspool_types.h`, documented there.
//!
//! # Safety
//!
//! Of all functions: handles are of this library and open, texts end with a zero, and what pointers
//! lead to is valid. No function changes a handle while another thread uses it.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use unspool_c_types::{
    Compatibility, Enumerator, Graph, InterfaceChange, Member, Number, Parameter, Qualifier, Tag,
    Type, TypeId, TypeKind, TypedSymbol,
};

use crate::handle::{Failure, Types, TypesForm};

/// `unspool_types`.
pub struct CTypes {
    types: Types,
    /// The names that the program has pointers to.
    names: Mutex<HashMap<u32, CString>>,
}

/// `unspool_type`.
#[repr(C)]
pub struct CType {
    struct_size: usize,
    kind: c_int,
    name: *const c_char,
    size: u64,
    align: u64,
    target: u32,
    count: u64,
    format: c_uint,
}

/// `unspool_type_member`.
#[repr(C)]
pub struct CMember {
    struct_size: usize,
    name: *const c_char,
    ty: u32,
    bit_offset: u64,
    bits: u64,
    value: i64,
}

/// `unspool_type_change`.
#[repr(C)]
pub struct CChange {
    is_breaking: c_int,
    subject: *const c_char,
    message: *const c_char,
}

type EachMember = Option<unsafe extern "C" fn(*const CMember, *mut c_void) -> c_int>;
type EachChange = Option<unsafe extern "C" fn(*const CChange, *mut c_void) -> c_int>;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a function's work; a failure, with its causes, is kept as the thread's error.
fn run<R>(otherwise: R, work: impl FnOnce() -> Result<R, Failure>) -> R {
    work().unwrap_or_else(|failure| {
        let mut message = failure.to_string();
        let mut cause = failure.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        ERROR.with(|error| error.replace(text(&message)));
        otherwise
    })
}

/// Text as a C string, without any zeros, which a file may have in a name.
fn text(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<_>>();
    CString::new(bytes).unwrap_or_default()
}

fn handle(made: Result<Types, Failure>) -> Result<*mut CTypes, Failure> {
    Ok(Box::into_raw(Box::new(CTypes {
        types: made?,
        names: Mutex::default(),
    })))
}

/// The text of a pointer.
///
/// # Safety
///
/// That of the module; the text lives as long as is claimed.
unsafe fn str_at<'t>(at: *const c_char) -> Result<&'t str, Failure> {
    if at.is_null() {
        return Err("a text is NULL".into());
    }
    // SAFETY: the caller's promise, and it is not null.
    let found = unsafe { CStr::from_ptr(at) };
    Ok(found.to_str()?)
}

/// A handle.
///
/// # Safety
///
/// That of the module; it stays open as long as is claimed.
unsafe fn types_at<'t>(at: *const CTypes) -> Result<&'t CTypes, Failure> {
    // SAFETY: the caller's promise.
    let types = unsafe { at.as_ref() };
    types.ok_or_else(|| "the handle is NULL".into())
}

/// `unspool_types_open`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_types_open(path: *const c_char) -> *mut CTypes {
    run(ptr::null_mut(), || {
        if path.is_null() {
            return Err("the path is NULL".into());
        }
        // SAFETY: the caller's promise, and it is not null.
        let path = unsafe { CStr::from_ptr(path) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        handle(Types::open(path))
    })
}

/// `unspool_types_of_address`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_types_of_address(address: *const c_void) -> *mut CTypes {
    run(ptr::null_mut(), || {
        handle(Types::of_address(address.addr() as u64))
    })
}

/// `unspool_types_new`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_types_new() -> *mut CTypes {
    run(ptr::null_mut(), || handle(Ok(Types::new(8))))
}

/// `unspool_types_link`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_types_link(
    units: *const *const CTypes,
    count: usize,
) -> *mut CTypes {
    run(ptr::null_mut(), || {
        if units.is_null() {
            return Err("there is nothing to link".into());
        }
        // SAFETY: the caller's promise, and it is not null.
        let units = unsafe { std::slice::from_raw_parts(units, count) };
        let mut all = Vec::new();
        for unit in units {
            // SAFETY: the caller's promise.
            all.push(&unsafe { types_at(*unit) }?.types);
        }
        handle(Ok(Types::linked(&all)))
    })
}

/// `unspool_types_close`.
///
/// # Safety
///
/// That of the module; nothing uses the handle any more.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_types_close(types: *mut CTypes) {
    if !types.is_null() {
        // SAFETY: `handle` made it, and the caller gives it back.
        drop(unsafe { Box::from_raw(types) });
    }
}

/// `unspool_types_error`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_types_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

/// `unspool_type_named`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_named(types: *const CTypes, name: *const c_char) -> u32 {
    run(0, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types_at(types) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { str_at(name) }?;
        let found = types.types.graph().named(name).next();
        Ok(found
            .ok_or_else(|| format!("no type is named {name:?}"))?
            .0
            .0)
    })
}

/// `unspool_type_of_symbol`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_of_symbol(types: *const CTypes, name: *const c_char) -> u32 {
    run(0, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types_at(types) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { str_at(name) }?;
        let found = types.types.of_symbol(name);
        Ok(found
            .ok_or_else(|| format!("the symbol {name:?} has no type"))?
            .0)
    })
}

/// `unspool_type_last`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_last(types: *const CTypes) -> u32 {
    // SAFETY: the caller's promise.
    run(0, || Ok(unsafe { types_at(types) }?.types.graph().last()))
}

/// The kind's number in C, what it refers to, its number of parts, and an integer's format.
fn kind(ty: &Type<'_>) -> (c_int, TypeId, u64, u8) {
    const NONE: TypeId = TypeId::NONE;
    let parts = |count: usize| count as u64;
    match &ty.kind {
        TypeKind::Unknown => (0, NONE, 0, 0),
        TypeKind::Integer(number) => (1, NONE, 0, number.format),
        TypeKind::Float(_) => (2, NONE, 0, 0),
        TypeKind::Pointer(to) => (3, *to, 0, 0),
        TypeKind::Array { element, count, .. } => (4, *element, *count, 0),
        TypeKind::Function {
            returns,
            parameters,
            ..
        } => (5, *returns, parts(parameters.len()), 0),
        TypeKind::Record {
            tag: Tag::Union,
            members,
            ..
        } => (7, NONE, parts(members.len()), 0),
        TypeKind::Record { members, .. } => (6, NONE, parts(members.len()), 0),
        TypeKind::Enum { enumerators, .. } => (8, NONE, parts(enumerators.len()), 0),
        TypeKind::Forward(_) => (9, NONE, 0, 0),
        TypeKind::Typedef(to) => (10, *to, 0, 0),
        TypeKind::TypeTag { of, .. } => (10, *of, 0, 0),
        TypeKind::Qualified(Qualifier::Const, to) => (11, *to, 0, 0),
        TypeKind::Qualified(Qualifier::Volatile, to) => (12, *to, 0, 0),
        TypeKind::Qualified(Qualifier::Restrict, to) => (13, *to, 0, 0),
        TypeKind::Slice { of, .. } => (14, *of, 0, 0),
    }
}

fn get<'t>(graph: &'t Graph<'static>, id: u32) -> Result<&'t Type<'static>, Failure> {
    let ty = graph.get(TypeId(id));
    ty.ok_or_else(|| format!("there is no type {id}").into())
}

/// `unspool_type_get`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_get(
    types: *const CTypes,
    id: u32,
    into: *mut CType,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types_at(types) }?;
        // SAFETY: the caller's promise.
        let into = unsafe { into.as_mut() }.ok_or("there is no place for the type")?;
        if into.struct_size != size_of::<CType>() {
            return Err("struct_size is not sizeof(unspool_type)".into());
        }
        let graph = types.types.graph();
        let ty = get(graph, id)?;
        let (kind, target, count, format) = kind(ty);
        let mut names = types.names.lock().unwrap_or_else(PoisonError::into_inner);
        let name = names.entry(id).or_insert_with(|| text(ty.own_name()));
        *into = CType {
            struct_size: into.struct_size,
            kind,
            name: name.as_ptr(),
            size: graph.size(TypeId(id)).unwrap_or(0),
            align: graph.align(TypeId(id)).unwrap_or(0),
            target: target.0,
            count,
            format: format.into(),
        };
        Ok(0)
    })
}

/// A member, a parameter or a constant.
struct Part<'t> {
    name: &'t str,
    ty: TypeId,
    bit_offset: u64,
    bits: u64,
    value: i64,
}

/// The parts of a type.
fn parts<'t>(graph: &'t Graph<'static>, ty: &'t Type<'static>, id: u32) -> Vec<Part<'t>> {
    match &ty.kind {
        TypeKind::Record { members, .. } => {
            let layout = graph.layout(TypeId(id));
            let placed = layout.map(|layout| layout.members).unwrap_or_default();
            let all = members.iter().zip(placed);
            let all = all.map(|(member, placed)| Part {
                name: &member.name,
                ty: member.ty,
                bit_offset: placed.offset,
                bits: placed.bits.unwrap_or(0),
                value: 0,
            });
            all.collect()
        }
        TypeKind::Function { parameters, .. } => {
            let all = parameters.iter().map(|one| Part {
                name: &one.name,
                ty: one.ty,
                bit_offset: 0,
                bits: 0,
                value: 0,
            });
            all.collect()
        }
        TypeKind::Enum { enumerators, .. } => {
            let all = enumerators.iter().map(|one| Part {
                name: &one.name,
                ty: TypeId::NONE,
                bit_offset: 0,
                bits: 0,
                value: one.bits().cast_signed(),
            });
            all.collect()
        }
        _ => Vec::new(),
    }
}

/// `unspool_type_members`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_members(
    types: *const CTypes,
    id: u32,
    each: EachMember,
    data: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types_at(types) }?;
        let each = each.ok_or("there is no function for members")?;
        let graph = types.types.graph();
        for part in parts(graph, get(graph, id)?, id) {
            let name = text(part.name);
            let member = CMember {
                struct_size: size_of::<CMember>(),
                name: name.as_ptr(),
                ty: part.ty.0,
                bit_offset: part.bit_offset,
                bits: part.bits,
                value: part.value,
            };
            // SAFETY: the caller's promise; all data passed lives until it returns.
            let answer = unsafe { each(&raw const member, data) };
            if answer != 0 {
                return Ok(answer);
            }
        }
        Ok(0)
    })
}

/// `unspool_type_text`.
///
/// # Safety
///
/// That of the module; `room` bytes can be written.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_text(
    types: *const CTypes,
    id: u32,
    name: *const c_char,
    into: *mut c_char,
    room: usize,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types_at(types) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { str_at(name) }?;
        let _ = get(types.types.graph(), id)?;
        let declared = text(&types.types.graph().declare(TypeId(id), name));
        let bytes = declared.as_bytes();
        let copied = bytes.len().min(room.saturating_sub(1));
        if room > 0 && !into.is_null() {
            // SAFETY: the caller's promise: `copied` and a zero are at most `room` bytes.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), into.cast(), copied) };
            // SAFETY: as above.
            let end = unsafe { into.add(copied) };
            // SAFETY: as above.
            unsafe { end.write(0) };
        }
        Ok(c_int::try_from(bytes.len())?)
    })
}

/// `unspool_type_add`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_add(
    types: *mut CTypes,
    ty: *const CType,
    members: *const CMember,
    count: usize,
) -> u32 {
    run(0, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types.as_mut() }.ok_or("the handle is NULL")?;
        // SAFETY: the caller's promise.
        let ty = unsafe { ty.as_ref() }.ok_or("the type is NULL")?;
        let members = match count {
            0 => &[][..],
            _ if members.is_null() => return Err("the members are NULL".into()),
            // SAFETY: the caller's promise, and it is not null.
            _ => unsafe { std::slice::from_raw_parts(members, count) },
        };
        let is_known = ty.struct_size == size_of::<CType>()
            && members
                .iter()
                .all(|one| one.struct_size == size_of::<CMember>());
        if !is_known {
            return Err("struct_size is not the size of the structure".into());
        }
        // SAFETY: the caller's promise.
        let name = unsafe { str_at(ty.name) }?;
        let mut named = Vec::new();
        for member in members {
            // SAFETY: the caller's promise.
            named.push((unsafe { str_at(member.name) }?.to_owned(), member));
        }
        let kind = new_kind(ty, named)?;
        let made = Type::named(name.to_owned(), kind);
        Ok(types.types.change(|graph| graph.add(made)).0)
    })
}

fn new_kind(ty: &CType, members: Vec<(String, &CMember)>) -> Result<TypeKind<'static>, Failure> {
    let number = |bytes: u64| -> Result<Number, Failure> {
        let size = u8::try_from(bytes)?;
        Ok(Number::with_size(size, u8::try_from(ty.format)?))
    };
    let target = TypeId(ty.target);
    Ok(match ty.kind {
        0 => TypeKind::Unknown,
        1 => TypeKind::Integer(number(ty.size)?),
        2 => {
            let format = match ty.size {
                4 => 1,
                8 => 2,
                16 => 6,
                size => return Err(format!("no floating-point number has {size} bytes").into()),
            };
            TypeKind::Float(Number {
                format,
                ..number(ty.size)?
            })
        }
        3 => TypeKind::Pointer(target),
        4 => TypeKind::Array {
            element: target,
            index: TypeId::NONE,
            count: ty.count,
        },
        5 => TypeKind::Function {
            returns: target,
            parameters: members
                .into_iter()
                .map(|(name, member)| Parameter {
                    name: name.into(),
                    ty: TypeId(member.ty),
                })
                .collect(),
            is_variadic: false,
        },
        6 | 7 => {
            let members = members
                .into_iter()
                .map(|(name, member)| -> Result<_, Failure> {
                    Ok(Member {
                        name: name.into(),
                        ty: TypeId(member.ty),
                        offset: member.bit_offset,
                        bits: match member.bits {
                            0 => None,
                            bits => Some(u16::try_from(bits)?),
                        },
                    })
                });
            TypeKind::Record {
                tag: if ty.kind == 6 {
                    Tag::Struct
                } else {
                    Tag::Union
                },
                size: ty.size,
                members: members.collect::<Result<_, _>>()?,
            }
        }
        8 => {
            let enumerators: Vec<_> = members
                .into_iter()
                .map(|(name, member)| Enumerator {
                    name: name.into(),
                    value: member.value.into(),
                })
                .collect();
            TypeKind::Enum {
                size: ty.size,
                is_signed: Enumerator::any_negative(&enumerators),
                enumerators,
            }
        }
        9 => TypeKind::Forward(Tag::Struct),
        10 => TypeKind::Typedef(target),
        11 => TypeKind::Qualified(Qualifier::Const, target),
        12 => TypeKind::Qualified(Qualifier::Volatile, target),
        13 => TypeKind::Qualified(Qualifier::Restrict, target),
        kind => return Err(format!("types of kind {kind} are not made").into()),
    })
}

/// `unspool_types_declare`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_types_declare(
    types: *mut CTypes,
    symbol: *const c_char,
    id: u32,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types.as_mut() }.ok_or("the handle is NULL")?;
        // SAFETY: the caller's promise.
        let name = unsafe { str_at(symbol) }?.to_owned();
        let ty = get(types.types.graph(), id)?;
        let is_function = matches!(ty.kind, TypeKind::Function { .. });
        let symbol = TypedSymbol::new(name, TypeId(id));
        types.types.change(|graph| {
            if is_function {
                graph.functions.push(symbol);
            } else {
                graph.objects.push(symbol);
            }
        });
        Ok(0)
    })
}

/// `unspool_types_write`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_types_write(
    types: *const CTypes,
    path: *const c_char,
    form: c_int,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let types = unsafe { types_at(types) }?;
        // SAFETY: the caller's promise.
        let path = unsafe { str_at(path) }?;
        let form = match form {
            0 => TypesForm::Ctf,
            1 => TypesForm::Btf,
            form => return Err(format!("{form} is not a form of types").into()),
        };
        let written = types.types.write(Path::new(path), form);
        written.map_err(|error| format!("{path}: {error}"))?;
        Ok(0)
    })
}

/// Passes changes on, and counts the breaking ones.
fn report(
    changes: &[InterfaceChange],
    each: EachChange,
    data: *mut c_void,
) -> Result<c_int, Failure> {
    let is_breaking = |change: &InterfaceChange| change.compatibility == Compatibility::Breaking;
    let breaking = changes.iter().filter(|change| is_breaking(change)).count();
    for change in changes {
        let Some(each) = each else { break };
        let (subject, message) = (text(&change.subject), text(&change.message));
        let shown = CChange {
            is_breaking: is_breaking(change).into(),
            subject: subject.as_ptr(),
            message: message.as_ptr(),
        };
        // SAFETY: the caller's promise; all data passed lives until it returns.
        if unsafe { each(&raw const shown, data) } != 0 {
            break;
        }
    }
    Ok(c_int::try_from(breaking)?)
}

/// `unspool_types_compare`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_types_compare(
    old: *const CTypes,
    new: *const CTypes,
    each: EachChange,
    data: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let old = unsafe { types_at(old) }?;
        // SAFETY: the caller's promise.
        let new = unsafe { types_at(new) }?;
        report(&old.types.changes(&new.types), each, data)
    })
}

/// `unspool_type_compare`.
///
/// # Safety
///
/// That of the module.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_type_compare(
    old: *const CTypes,
    old_id: u32,
    new: *const CTypes,
    new_id: u32,
    each: EachChange,
    data: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's promise.
        let old = unsafe { types_at(old) }?;
        // SAFETY: the caller's promise.
        let new = unsafe { types_at(new) }?;
        let _ = (
            get(old.types.graph(), old_id)?,
            get(new.types.graph(), new_id)?,
        );
        let changes = old
            .types
            .type_changes(TypeId(old_id), &new.types, TypeId(new_id));
        report(&changes, each, data)
    })
}
