//! BTF (the kernel's `Documentation/bpf/btf.rst`): writes the types of our functions, and finds
//! kfuncs and members of structures by name in the kernel's types.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io;

use crate::asm::Func;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: u32 = 24;
const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const INT_SIGNED: u32 = 1 << 24;

/// The types of a program's functions.
#[derive(Debug)]
pub(crate) struct FuncTypes {
    /// The BTF section.
    pub(crate) btf: Vec<u8>,
    /// `struct bpf_func_info`, ascending: a function's first slot and its type.
    pub(crate) func_info: Vec<[u32; 2]>,
}

/// Writes `int main(void *ctx)` and `int subprog(u64 arg1, …)`.
pub(crate) fn func_types(funcs: &[Func]) -> FuncTypes {
    let mut section = BtfSection::default();
    let int = section.int("int", 4, INT_SIGNED);
    let word = section.int("u64", 8, 0);
    let ctx = section.add("", KIND_PTR, 0, 0);
    let func_info = funcs.iter().map(|func| {
        let (prefix, ty) = match func.start {
            0 => ("ctx", ctx),
            _ => ("arg", word),
        };
        let proto = section.add("", KIND_FUNC_PROTO, func.params.into(), int);
        for number in 1..=func.params {
            let name = section.name(&format!("{prefix}{number}"));
            section.words(&[name, ty]);
        }
        let id = section.add(&func.name, KIND_FUNC, 0, proto);
        [saturate_u32(func.start), id]
    });
    let func_info = func_info.collect();
    FuncTypes {
        btf: section.finish(),
        func_info,
    }
}

/// A BTF section under construction.
#[derive(Default)]
struct BtfSection {
    types: Vec<u8>,
    /// The strings after the empty one.
    names: Vec<u8>,
    last_id: u32,
}

impl BtfSection {
    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend(word.to_le_bytes());
        }
    }

    /// Appends a name, and returns its offset in the strings.
    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let offset = saturate_u32(self.names.len()) + 1;
        self.names.extend(name.bytes());
        self.names.push(0);
        offset
    }

    /// Appends a type, and returns its ID. `word` is its size, or the type that it refers to.
    fn add(&mut self, name: &str, kind: u32, entries: u32, word: u32) -> u32 {
        let name = self.name(name);
        self.words(&[name, (kind << 24) | entries, word]);
        self.last_id += 1;
        self.last_id
    }

    fn int(&mut self, name: &str, bytes: u32, encoding: u32) -> u32 {
        let id = self.add(name, KIND_INT, 0, bytes);
        self.words(&[encoding | (bytes * 8)]);
        id
    }

    fn finish(self) -> Vec<u8> {
        let (types, names) = (
            saturate_u32(self.types.len()),
            saturate_u32(self.names.len()),
        );
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([VERSION, 0]);
        for word in [HEADER, 0, types, types, names + 1] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.types);
        bytes.push(0);
        bytes.extend(self.names);
        bytes
    }
}

/// Programs do not reach this limit: the kernel accepts a million instructions.
fn saturate_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// A function of the running kernel that programs may call. Its ID differs between kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kfunc {
    name: &'static str,
    id: u32,
    params: u32,
}

impl Kfunc {
    /// The ID of its type in the kernel's BTF.
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }

    /// The number of parameters, including hidden ones. It differs between kernels.
    #[must_use]
    pub fn params(self) -> u32 {
        self.params
    }
}

impl Display for Kfunc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.id)
    }
}

/// The running kernel's types.
#[derive(Debug)]
pub struct KernelBtf {
    bytes: Vec<u8>,
}

impl KernelBtf {
    /// The kernel's file.
    pub const PATH: &'static str = "/sys/kernel/btf/vmlinux";

    /// Reads the kernel's types, some 5 MB.
    ///
    /// # Errors
    ///
    /// The kernel was built without `CONFIG_DEBUG_INFO_BTF`.
    pub fn read() -> io::Result<KernelBtf> {
        let bytes = fs::read(KernelBtf::PATH)?;
        Ok(KernelBtf { bytes })
    }

    /// The function named `name`. `None` if this kernel has none.
    ///
    /// This also finds functions that are not kfuncs. The verifier refuses calls to these.
    #[must_use]
    pub fn kfunc(&self, name: &'static str) -> Option<Kfunc> {
        let named = |ty: &BtfType| ty.kind() == KIND_FUNC && self.name(ty.name) == Some(name);
        let (id, func) = (1..).zip(self.types()?).find(|(_, ty)| named(ty))?;
        let proto = usize::try_from(func.word).ok()?.checked_sub(1)?;
        let proto = self.types()?.nth(proto)?;
        Some(Kfunc {
            name,
            id,
            params: proto.entries(),
        })
    }

    /// The offset of a structure's member in bits, also of a bit field. Members of anonymous
    /// structures and unions are found, too. `None` if this kernel has no such member.
    #[must_use]
    pub fn member_bits(&self, structure: &str, member: &str) -> Option<u32> {
        let named =
            |ty: &&BtfType| ty.kind() == KIND_STRUCT && self.name(ty.name) == Some(structure);
        let types: Vec<BtfType> = self.types()?.collect();
        self.member_of(&types, types.iter().find(named)?, member, 0)
    }

    /// The offset of a member in a structure or union.
    fn member_of(
        &self,
        types: &[BtfType],
        ty: &BtfType,
        member: &str,
        depth: usize,
    ) -> Option<u32> {
        /// Anonymous structures in one another: the kernel has fewer than ten.
        const MAX_DEPTH: usize = 32;
        let is_structure = matches!(ty.kind(), KIND_STRUCT | KIND_UNION) && depth < MAX_DEPTH;
        let entries = if is_structure { ty.entries() } else { 0 };
        (0..usize::try_from(entries).ok()?).find_map(|number| {
            // `struct btf_member`: a name, a type, and the offset in bits. If the structure has bit
            // fields, the offset's highest byte is the size of this one.
            let at = ty.at.checked_add(12 + number.checked_mul(12)?)?;
            let name = self.name(self.word(at)?)?;
            let offset = self.word(at.checked_add(8)?)?;
            let offset = if ty.has_bit_fields() {
                offset & 0xff_ffff
            } else {
                offset
            };
            if name == member {
                return Some(offset);
            }
            let inner = usize::try_from(self.word(at.checked_add(4)?)?).ok()?;
            let inner = types
                .get(inner.checked_sub(1)?)
                .filter(|_| name.is_empty())?;
            offset.checked_add(self.member_of(types, inner, member, depth + 1)?)
        })
    }

    fn word(&self, offset: usize) -> Option<u32> {
        let word = self.bytes.get(offset..)?.first_chunk()?;
        Some(u32::from_le_bytes(*word))
    }

    /// The start of the section whose offset is at `offset` in the header.
    fn section_offset(&self, offset: usize) -> Option<usize> {
        let start = self.word(4)?.checked_add(self.word(offset)?)?;
        usize::try_from(start).ok()
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let start = self
            .section_offset(16)?
            .checked_add(usize::try_from(offset).ok()?)?;
        let name = self.bytes.get(start..)?.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(name).ok()
    }

    /// The types, from ID 1 on.
    fn types(&self) -> Option<impl Iterator<Item = BtfType> + '_> {
        let (mut at, end) = (self.section_offset(8)?, self.section_offset(16)?);
        Some(std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let ty = BtfType {
                at,
                name: self.word(at)?,
                info: self.word(at.checked_add(4)?)?,
                word: self.word(at.checked_add(8)?)?,
            };
            at = at.checked_add(ty.size())?;
            Some(ty)
        }))
    }
}

/// `struct btf_type`
struct BtfType {
    /// Its offset in the file.
    at: usize,
    name: u32,
    info: u32,
    /// The size, or the type that it refers to.
    word: u32,
}

impl BtfType {
    fn kind(&self) -> u32 {
        (self.info >> 24) & 0x1f
    }

    /// `kind_flag` of a structure.
    fn has_bit_fields(&self) -> bool {
        self.info >> 31 != 0
    }

    fn entries(&self) -> u32 {
        self.info & 0xffff
    }

    /// The size in bytes, with the data after `struct btf_type`.
    fn size(&self) -> usize {
        let entry = match self.kind() {
            6 | KIND_FUNC_PROTO => 8,                 // enumerators, parameters
            KIND_STRUCT | KIND_UNION | 15 | 19 => 12, // members, variables of a section, enumerators of 64 bits
            _ => 0,
        };
        let once = match self.kind() {
            KIND_INT | 14 | 17 => 4, // a variable, a tag of a declaration
            3 => 12,                 // an array
            _ => 0,
        };
        let entries = usize::try_from(self.entries()).unwrap_or(usize::MAX);
        12 + once + entries.saturating_mul(entry)
    }
}
