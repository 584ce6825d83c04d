//! Instructions in all forms of the decoder library, found by decoding candidate bytes.

use std::collections::HashSet;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// An instruction that represents many equivalent ones.
#[derive(Debug, Clone)]
pub(crate) struct InsnForm {
    pub(crate) bytes: Vec<u8>,
    pub(crate) insn: Instruction,
}

/// Identifies a form: an opcode with its operands, as the analysis distinguishes them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FormSignature {
    code: Code,
    operands: [u32; 5],
    prefixes: [bool; 8],
}

impl FormSignature {
    fn from_insn(insn: &Instruction) -> FormSignature {
        let mut operands = [0; 5];
        for (place, operand) in (0..insn.op_count()).zip(&mut operands) {
            *operand = class(insn, place);
        }
        FormSignature {
            code: insn.code(),
            operands,
            prefixes: [
                insn.has_rep_prefix(),
                insn.has_repne_prefix(),
                insn.has_lock_prefix(),
                insn.op_mask() != Register::None,
                insn.zeroing_masking(),
                insn.is_broadcast(),
                insn.has_segment_prefix(),
                matches!(insn.segment_prefix(), Register::FS | Register::GS),
            ],
        }
    }
}

/// Class of a general register: the stack pointer, the frame pointer, preserved by calls, or
/// another.
fn class_of(register: Register) -> u32 {
    match register.full_register() {
        Register::None => 0,
        Register::RSP => 1,
        Register::RBP => 2,
        Register::RBX | Register::R12 | Register::R13 | Register::R14 | Register::R15 => 3,
        _ => 4,
    }
}

fn class(insn: &Instruction, operand: u32) -> u32 {
    let kind = insn.op_kind(operand);
    let detail = match kind {
        OpKind::Register => {
            let register = insn.op_register(operand);
            let is_second = matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            let is_first = operand > 0 && register == insn.op_register(0);
            let class = if register.is_gpr() {
                class_of(register)
            } else {
                0
            };
            class | u32::from(is_second) << 3 | u32::from(is_first) << 4
        }
        OpKind::Memory => {
            let base = class_of(insn.memory_base());
            let index = match insn.memory_index() {
                Register::None => 0,
                index if index.is_gpr() => 1,
                _ => 2,
            };
            let is_even = insn.memory_displacement64().is_multiple_of(64);
            // The decoders of single bytes tell sizes of displacements apart.
            let displacement = insn.memory_displ_size().min(4);
            let is_short = insn.memory_base().is_gpr32() || insn.memory_index().is_gpr32();
            base | index << 3
                | u32::from(is_even) << 5
                | u32::from(insn.memory_base() == Register::RDI) << 6
                | u32::from(insn.memory_index_scale() == 1) << 7
                | u32::from(is_short) << 8
                | displacement << 9
        }
        _ => insn
            .try_immediate(operand)
            .map_or(0, |number| match number.cast_signed() {
                0 => 1,
                -1 => 2,
                // i386's system calls.
                0x80 if insn.mnemonic() == Mnemonic::Int => 4,
                _ => 3,
            }),
    };
    (kind as u32) << 12 | detail
}

/// Operand bytes behind a ModRM with memory: a register plus a displacement, or with an index, which
/// may be what has the address; and relative to the instruction.
const MEMORY: [(u8, &[u8]); 10] = [
    (0x44, &[0x24, 0x40]),
    (0x44, &[0x24, 0x14]),
    (0x85, &[0x40, 0, 0, 0]),
    (0x44, &[0xcc, 0x40]),
    (0x44, &[0x0c, 0x14]),
    (0x47, &[0x40]),
    (0x04, &[0x24]),
    (0x04, &[0x3d, 0, 0, 0, 0]),
    (0x04, &[0x38]),
    (0x05, &[0, 0, 0, 0]),
];

/// Immediates at the ends of instructions. The second has a level for `add_entry`.
const NUMBERS: [[u8; 8]; 6] = [
    [5, 0, 0, 0, 0, 0, 0, 0],
    [16, 0, 2, 0, 0, 0, 0, 0],
    [0; 8],
    [0xff; 8],
    [0x21, 0, 0, 0, 0, 0, 0, 0],
    [0x80, 0, 0, 0, 0, 0, 0, 0],
];

/// Finds forms.
#[derive(Default)]
pub(crate) struct InsnForms {
    seen: HashSet<FormSignature>,
    pub(crate) forms: Vec<InsnForm>,
}

impl InsnForms {
    /// Some forms of each opcode: with registers and with memory, addressed by a register plus a
    /// displacement or an index.
    pub(crate) fn some() -> Vec<InsnForm> {
        let mut seen = HashSet::new();
        let mut forms = InsnForms::all();
        forms.retain(|InsnForm { insn, .. }| {
            let mut kinds = [0; 5];
            for (place, kind) in (0..insn.op_count()).zip(&mut kinds) {
                *kind = insn.op_kind(place) as u8;
            }
            let is_repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
            let has_index = insn.memory_index() != Register::None;
            let is_usual = insn.memory_base() != Register::RDI && !insn.has_lock_prefix();
            is_usual && seen.insert((insn.code(), kinds, is_repeated, has_index))
        });
        forms
    }

    /// All forms.
    pub(crate) fn all() -> Vec<InsnForm> {
        let mut found = InsnForms::default();
        found.legacy();
        found.vex();
        found.xop();
        found.evex();
        found.forms
    }

    /// Adds the first instruction of bytes. Returns whether there is one.
    fn add(&mut self, head: &[u8]) -> bool {
        let mut is_one = false;
        for numbers in NUMBERS {
            let bytes = [head, &numbers].concat();
            let insn = Decoder::with_ip(
                64,
                &bytes,
                crate::processor::child::CODE,
                DecoderOptions::NONE,
            )
            .decode();
            if insn.is_invalid() || insn.len() < head.len() {
                return is_one;
            }
            is_one = true;
            if self.seen.insert(FormSignature::from_insn(&insn)) {
                self.forms.push(InsnForm {
                    bytes: bytes[..insn.len()].to_vec(),
                    insn,
                });
            }
            if insn.len() == head.len() {
                return true;
            }
        }
        is_one
    }

    /// Adds an opcode with all operands: `low` are the numbers of register operands.
    fn with_operands(&mut self, head: &[u8], low: &[u8]) -> bool {
        let mut is_one = false;
        for reg in 0..8 {
            for (modrm, rest) in MEMORY {
                is_one |= self.add(&[head, &[modrm | reg << 3], rest].concat());
            }
            for rm in low {
                is_one |= self.add(&[head, &[0xc0 | reg << 3 | rm]].concat());
            }
        }
        is_one
    }

    fn legacy(&mut self) {
        let prefixes: [&[u8]; 7] = [
            &[],
            &[0x66],
            &[0xf2],
            &[0xf3],
            &[0xf0],
            &[0x67],
            &[0x66, 0xf2],
        ];
        let rexes: [&[u8]; 6] = [&[], &[0x40], &[0x48], &[0x41], &[0x44], &[0x4d]];
        // Segments, and two prefixes at once.
        let others: [&[u8]; 7] = [
            &[0x64],
            &[0x65],
            &[0x36],
            &[0x3e],
            &[0x66, 0xf3],
            &[0x67, 0xf3],
            &[0x67, 0x66],
        ];
        let wide: [&[u8]; 2] = [&[], &[0x48]];
        // Indexes from r8 on: r12 has rsp's number, which stands for none.
        let indexes: [&[u8]; 3] = [&[0x42], &[0x4a], &[0x4f]];
        let usual = prefixes
            .iter()
            .flat_map(|prefix| rexes.map(|rex| (*prefix, rex)));
        let others = others
            .iter()
            .flat_map(|prefix| wide.map(|rex| (*prefix, rex)));
        let indexed = prefixes
            .iter()
            .take(2)
            .flat_map(|prefix| indexes.map(|rex| (*prefix, rex)));
        let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
        let low: Vec<u8> = (0..8).collect();
        for (prefix, rex) in usual.chain(others).chain(indexed) {
            for (map, opcode) in maps
                .iter()
                .flat_map(|map| (0..=255).map(move |opcode| (*map, opcode)))
            {
                let head = [prefix, rex, map, &[opcode]].concat();
                let is_prefix = matches!(opcode, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 | 0x0f);
                if map.is_empty() && (is_prefix || matches!(opcode, 0xc4 | 0xc5 | 0x62)) {
                    continue;
                }
                self.add(&head);
                self.with_operands(&head, &low);
            }
        }
        // 3DNow! has its opcode at the end.
        for opcode in 0..=255 {
            self.add(&[0x0f, 0x0f, 0x44, 0x24, 0x40, opcode]);
            self.add(&[0x0f, 0x0f, 0xc1, opcode]);
        }
    }

    /// Adds an opcode with operands in memory relative to a segment, and at addresses of 32 bits.
    fn with_other_addresses(&mut self, head: &[u8]) {
        for (modrm, rest) in MEMORY {
            for prefix in [0x64, 0x67] {
                self.add(&[&[prefix], head, &[modrm], rest].concat());
            }
        }
    }

    fn vex(&mut self) {
        let low: Vec<u8> = (0..8).collect();
        for map in [1, 2, 3, 7] {
            for rest in 0..64 {
                // W, one of two registers, L, and the prefix.
                let vvvv = if rest & 1 == 0 { 3 } else { 0 };
                let last = (rest & 0x20) << 2 | (!vvvv & 15) << 3 | (rest >> 1 & 7);
                for opcode in 0..=255 {
                    self.with_operands(&[0xc4, 0xe0 | map, last, opcode], &low);
                    self.add(&[0xc4, 0xe0 | map, last, opcode]);
                    self.with_other_addresses(&[0xc4, 0xe0 | map, last, opcode]);
                }
            }
        }
    }

    fn xop(&mut self) {
        let low: Vec<u8> = (0..8).collect();
        for map in [8, 9, 10] {
            for rest in 0..8 {
                let vvvv = if rest & 1 == 0 { 3 } else { 0 };
                let last = (rest & 4) << 5 | (!vvvv & 15) << 3 | (rest & 2) << 1;
                for opcode in 0..=255 {
                    self.with_operands(&[0x8f, 0xe0 | map, last, opcode], &low);
                }
            }
        }
    }

    fn evex(&mut self) {
        for map in [1, 2, 3, 5, 6] {
            for rest in 0..128_u8 {
                let (wide, prefix, length) = (rest & 0x40, rest >> 4 & 3, rest >> 2 & 3);
                // Without a mask, with one, with zeroing, with a broadcast.
                let masked = [0x08, 0x09, 0x89, 0x18][usize::from(rest & 3)];
                for opcode in 0..=255 {
                    // A second register, or none.
                    for vvvv in [3, 0] {
                        let second = wide << 1 | (!vvvv & 15) << 3 | 4 | prefix;
                        let head = [0x62, 0xf0 | map, second, masked | length << 5, opcode];
                        if self.with_operands(&head, &[0, 3, 4]) {
                            self.with_other_addresses(&head);
                            break;
                        }
                    }
                }
            }
        }
    }
}
