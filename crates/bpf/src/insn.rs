//! Instructions as values, their bytes (RFC 9669 and Linux's extensions), and their text.
//!
//! The text is that of LLVM's assembler; the verifier's and bpftool's are similar. Maps, kfuncs and
//! subprograms, which only the kernel can resolve, have the verifier's text.

use std::fmt::{self, Display, Formatter};

use crate::btf::Kfunc;
use crate::helper::Helper;

#[cfg(target_endian = "big")]
compile_error!("the fields of an instruction are written for little-endian machines");

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    /// The result of calls, and of the program.
    R0,
    /// The first argument of calls. At the program's entry, its context.
    R1,
    /// The second argument of calls.
    R2,
    /// The third argument of calls.
    R3,
    /// The fourth argument of calls.
    R4,
    /// The fifth argument of calls.
    R5,
    /// Preserved by calls.
    R6,
    /// Preserved by calls.
    R7,
    /// Preserved by calls.
    R8,
    /// Preserved by calls.
    R9,
    /// The frame pointer: the end of the 512 bytes of stack. Read-only.
    R10,
}

/// The part of its registers that an instruction uses. It clears the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `BPF_ALU`, `BPF_JMP32`: the lower half, written `w1`.
    W32,
    /// `BPF_ALU64`, `BPF_JMP`: the whole register, written `r1`.
    W64,
}

/// The size of an access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A byte.
    B,
    /// 2 bytes.
    H,
    /// 4 bytes.
    W,
    /// 8 bytes.
    DW,
}

/// The second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Src {
    /// `BPF_X`: a register.
    X(Reg),
    /// `BPF_K`: a constant, sign-extended.
    K(i32),
}

impl From<Reg> for Src {
    fn from(reg: Reg) -> Src {
        Src::X(reg)
    }
}

impl From<i32> for Src {
    fn from(imm: i32) -> Src {
        Src::K(imm)
    }
}

/// An arithmetic operation on two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AluOp {
    /// `+=`
    Add,
    /// `-=`
    Sub,
    /// `*=`
    Mul,
    /// `/=`, unsigned: 0 if the divisor is 0
    Div,
    /// `|=`
    Or,
    /// `&=`
    And,
    /// `<<=`
    Lsh,
    /// `>>=`, unsigned
    Rsh,
    /// `%=`, unsigned
    Mod,
    /// `^=`
    Xor,
    /// `=`
    Mov,
    /// `s>>=`
    Arsh,
    /// `s/=`
    Sdiv,
    /// `s%=`
    Smod,
}

/// The condition of a jump: the first operand compared with the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cond {
    /// `==`
    Eq,
    /// `>`, unsigned
    Gt,
    /// `>=`, unsigned
    Ge,
    /// `&`: a common bit is set
    Set,
    /// `!=`
    Ne,
    /// `s>`
    Sgt,
    /// `s>=`
    Sge,
    /// `<`, unsigned
    Lt,
    /// `<=`, unsigned
    Le,
    /// `s<`
    Slt,
    /// `s<=`
    Sle,
}

/// An atomic operation on memory. The `Fetch…` forms leave the old value in the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds, without a result.
    Add,
    /// Sets bits, without a result.
    Or,
    /// Clears bits, without a result.
    And,
    /// Inverts bits, without a result.
    Xor,
    /// Adds, and fetches.
    FetchAdd,
    /// Sets bits, and fetches.
    FetchOr,
    /// Clears bits, and fetches.
    FetchAnd,
    /// Inverts bits, and fetches.
    FetchXor,
    /// Exchanges register and memory.
    Xchg,
    /// Stores the register if memory equals `R0`, and leaves the old value in `R0`.
    Cmpxchg,
}

/// A byte-order conversion of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// To little-endian.
    Le,
    /// To big-endian.
    Be,
    /// Unconditional.
    Bswap,
}

/// A constant of 64 bits, in two slots. The kernel resolves all but the first form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imm64 {
    /// A number.
    Value(u64),
    /// `BPF_PSEUDO_MAP_FD`: the map of a descriptor.
    MapFd(i32),
    /// `BPF_PSEUDO_MAP_VALUE`: the map of a descriptor, and an offset in its memory in bytes.
    MapValue(i32, u32),
    /// `BPF_PSEUDO_FUNC`: a subprogram, in slots from the next instruction.
    Func(i32),
}

/// A conversion of a pointer into an arena, between address spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cast {
    /// From the process' to the kernel's, which loads and stores use.
    Kern,
    /// From the kernel's to the process'.
    User,
}

/// The target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// A helper of the kernel.
    Helper(Helper),
    /// A function of the kernel, by its BTF ID.
    Kfunc(Kfunc),
    /// A subprogram, in slots from the next instruction.
    Subprog(i32),
}

/// An instruction. Jumps count slots of 8 bytes from the next instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insn {
    /// `dst op= src`
    Alu(Width, AluOp, Reg, Src),
    /// `dst = -dst`
    Neg(Width, Reg),
    /// `dst = (s8)src`: the low bytes, sign-extended. `Size::DW` is not valid, and `Size::W` only
    /// with `Width::W64`.
    Movsx(Width, Size, Reg, Reg),
    /// `dst = be16 dst`: 2, 4 or 8 bytes.
    Swap(Swap, Size, Reg),
    /// `dst = addr_space_cast(src, …)`
    AddrSpaceCast(Cast, Reg, Reg),
    /// `dst = … ll`
    LdImm64(Reg, Imm64),
    /// `dst = *(u32 *)(src + off)`
    Ldx(Size, Reg, Reg, i16),
    /// `dst = *(s32 *)(src + off)`: sign-extended. `Size::DW` is not valid.
    Ldsx(Size, Reg, Reg, i16),
    /// `*(u32 *)(dst + off) = src`
    St(Size, Reg, i16, Src),
    /// `lock *(u64 *)(dst + off) += src`, and the other atomic operations.
    Atomic(Width, AtomicOp, Reg, i16, Reg),
    /// `goto`, near (`BPF_JMP`) or far (`BPF_JMP32`, 32 bits).
    Ja(i32),
    /// `if dst cond src goto`
    Jmp(Width, Cond, Reg, Src, i16),
    /// `may_goto`: jumps after 250 ms. Kernels without that clock jump after 8 million rounds.
    MayGoto(i16),
    /// `call`
    Call(Callee),
    /// `exit`: returns to the caller, or to the kernel.
    Exit,
}

// Opcode classes and modifiers: Linux, include/uapi/linux/bpf_common.h and bpf.h.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const X: u8 = 0x08;
const IMM: u8 = 0x00;
const MEM: u8 = 0x60;
const MEMSX: u8 = 0x80;
const ATOMIC: u8 = 0xc0;
const NEG: u8 = 0x80;
const END: u8 = 0xd0;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const JCOND: u8 = 0xe0;
const FETCH: i32 = 0x01;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_FUNC: u8 = 4;
const PSEUDO_CALL: u8 = 1;
const PSEUDO_KFUNC_CALL: u8 = 2;

/// The fields of `struct bpf_insn`.
#[derive(Default)]
struct Fields {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

impl Fields {
    fn new(code: u8) -> Fields {
        Fields {
            code,
            ..Fields::default()
        }
    }

    fn dst(self, reg: Reg) -> Fields {
        Fields {
            dst: reg as u8,
            ..self
        }
    }

    fn src(self, reg: Reg) -> Fields {
        Fields {
            src: reg as u8,
            ..self
        }
    }

    fn off(self, off: i16) -> Fields {
        Fields { off, ..self }
    }

    fn imm(self, imm: i32) -> Fields {
        Fields { imm, ..self }
    }

    /// A register adds `BPF_X` to the code.
    fn operand(self, src: Src) -> Fields {
        match src {
            Src::X(reg) => Fields {
                code: self.code | X,
                ..self.src(reg)
            },
            Src::K(imm) => self.imm(imm),
        }
    }

    fn bytes(&self) -> [u8; 8] {
        let [off0, off1] = self.off.to_le_bytes();
        let [imm0, imm1, imm2, imm3] = self.imm.to_le_bytes();
        let regs = (self.src << 4) | self.dst;
        [self.code, regs, off0, off1, imm0, imm1, imm2, imm3]
    }
}

impl Insn {
    /// The number of its slots of 8 bytes: 1 or 2.
    #[must_use]
    pub fn slots(self) -> usize {
        match self {
            Insn::LdImm64(..) => 2,
            _ => 1,
        }
    }

    /// Appends the instruction's bytes.
    pub fn encode(self, bytes: &mut Vec<u8>) {
        if let Insn::LdImm64(dst, value) = self {
            let (src, low, high) = value.parts();
            let code = LD | IMM | Size::DW.code();
            let first = Fields::new(code).dst(dst).imm(low);
            bytes.extend(Fields { src, ..first }.bytes());
            bytes.extend(Fields::new(0).imm(high).bytes());
        } else {
            bytes.extend(self.fields().bytes());
        }
    }

    /// The fields of the first slot.
    fn fields(self) -> Fields {
        match self {
            Insn::Alu(width, op, dst, src) => {
                let (code, off) = op.code();
                Fields::new(width.alu() | code)
                    .dst(dst)
                    .off(off)
                    .operand(src)
            }
            Insn::Neg(width, dst) => Fields::new(width.alu() | NEG).dst(dst),
            Insn::Movsx(width, from, dst, src) => {
                let (code, _) = AluOp::Mov.code();
                Fields::new(width.alu() | code)
                    .dst(dst)
                    .off(from.bits())
                    .operand(src.into())
            }
            Insn::Swap(swap, size, dst) => Fields::new(swap.code() | END)
                .dst(dst)
                .imm(size.bits().into()),
            Insn::AddrSpaceCast(cast, dst, src) => {
                let (code, _) = AluOp::Mov.code();
                Fields::new(ALU64 | code)
                    .dst(dst)
                    .off(1)
                    .imm(cast.imm())
                    .operand(src.into())
            }
            Insn::LdImm64(..) => Fields::new(LD | IMM | Size::DW.code()),
            Insn::Ldx(size, dst, src, off) => Fields::new(LDX | MEM | size.code())
                .dst(dst)
                .src(src)
                .off(off),
            Insn::Ldsx(size, dst, src, off) => Fields::new(LDX | MEMSX | size.code())
                .dst(dst)
                .src(src)
                .off(off),
            Insn::St(size, dst, off, Src::X(src)) => Fields::new(STX | MEM | size.code())
                .dst(dst)
                .off(off)
                .src(src),
            Insn::St(size, dst, off, Src::K(imm)) => Fields::new(ST | MEM | size.code())
                .dst(dst)
                .off(off)
                .imm(imm),
            Insn::Atomic(width, op, dst, off, src) => {
                Fields::new(STX | ATOMIC | width.size().code())
                    .dst(dst)
                    .off(off)
                    .src(src)
                    .imm(op.imm())
            }
            Insn::Ja(off) => match i16::try_from(off) {
                Ok(off) => Fields::new(JMP).off(off),
                Err(_) => Fields::new(JMP32).imm(off),
            },
            Insn::Jmp(width, cond, dst, src, off) => Fields::new(width.jmp() | cond.code())
                .dst(dst)
                .off(off)
                .operand(src),
            Insn::MayGoto(off) => Fields::new(JMP | JCOND).off(off),
            Insn::Call(callee) => {
                let (src, imm) = callee.parts();
                let call = Fields::new(JMP | CALL).imm(imm);
                Fields { src, ..call }
            }
            Insn::Exit => Fields::new(JMP | EXIT),
        }
    }
}

impl Width {
    fn alu(self) -> u8 {
        match self {
            Width::W32 => ALU,
            Width::W64 => ALU64,
        }
    }

    fn jmp(self) -> u8 {
        match self {
            Width::W32 => JMP32,
            Width::W64 => JMP,
        }
    }

    /// The size of this part of a register.
    fn size(self) -> Size {
        match self {
            Width::W32 => Size::W,
            Width::W64 => Size::DW,
        }
    }

    fn letter(self) -> char {
        match self {
            Width::W32 => 'w',
            Width::W64 => 'r',
        }
    }
}

impl Size {
    fn code(self) -> u8 {
        match self {
            Size::W => 0x00,
            Size::H => 0x08,
            Size::B => 0x10,
            Size::DW => 0x18,
        }
    }

    fn bits(self) -> i16 {
        match self {
            Size::B => 8,
            Size::H => 16,
            Size::W => 32,
            Size::DW => 64,
        }
    }
}

impl AluOp {
    /// The opcode, and the offset: 1 for signed division.
    fn code(self) -> (u8, i16) {
        match self {
            AluOp::Add => (0x00, 0),
            AluOp::Sub => (0x10, 0),
            AluOp::Mul => (0x20, 0),
            AluOp::Div => (0x30, 0),
            AluOp::Or => (0x40, 0),
            AluOp::And => (0x50, 0),
            AluOp::Lsh => (0x60, 0),
            AluOp::Rsh => (0x70, 0),
            AluOp::Mod => (0x90, 0),
            AluOp::Xor => (0xa0, 0),
            AluOp::Mov => (0xb0, 0),
            AluOp::Arsh => (0xc0, 0),
            AluOp::Sdiv => (0x30, 1),
            AluOp::Smod => (0x90, 1),
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            AluOp::Add => "+=",
            AluOp::Sub => "-=",
            AluOp::Mul => "*=",
            AluOp::Div => "/=",
            AluOp::Or => "|=",
            AluOp::And => "&=",
            AluOp::Lsh => "<<=",
            AluOp::Rsh => ">>=",
            AluOp::Mod => "%=",
            AluOp::Xor => "^=",
            AluOp::Mov => "=",
            AluOp::Arsh => "s>>=",
            AluOp::Sdiv => "s/=",
            AluOp::Smod => "s%=",
        }
    }
}

impl Cond {
    fn code(self) -> u8 {
        match self {
            Cond::Eq => 0x10,
            Cond::Gt => 0x20,
            Cond::Ge => 0x30,
            Cond::Set => 0x40,
            Cond::Ne => 0x50,
            Cond::Sgt => 0x60,
            Cond::Sge => 0x70,
            Cond::Lt => 0xa0,
            Cond::Le => 0xb0,
            Cond::Slt => 0xc0,
            Cond::Sle => 0xd0,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Cond::Eq => "==",
            Cond::Gt => ">",
            Cond::Ge => ">=",
            Cond::Set => "&",
            Cond::Ne => "!=",
            Cond::Sgt => "s>",
            Cond::Sge => "s>=",
            Cond::Lt => "<",
            Cond::Le => "<=",
            Cond::Slt => "s<",
            Cond::Sle => "s<=",
        }
    }
}

impl AtomicOp {
    fn imm(self) -> i32 {
        match self {
            AtomicOp::Add => 0x00,
            AtomicOp::Or => 0x40,
            AtomicOp::And => 0x50,
            AtomicOp::Xor => 0xa0,
            AtomicOp::FetchAdd => FETCH,
            AtomicOp::FetchOr => 0x40 | FETCH,
            AtomicOp::FetchAnd => 0x50 | FETCH,
            AtomicOp::FetchXor => 0xa0 | FETCH,
            AtomicOp::Xchg => 0xe0 | FETCH,
            AtomicOp::Cmpxchg => 0xf0 | FETCH,
        }
    }

    /// The operator, or the name of an operation with a result.
    fn text(self) -> &'static str {
        match self {
            AtomicOp::Add => "+=",
            AtomicOp::Or => "|=",
            AtomicOp::And => "&=",
            AtomicOp::Xor => "^=",
            AtomicOp::FetchAdd => "add",
            AtomicOp::FetchOr => "or",
            AtomicOp::FetchAnd => "and",
            AtomicOp::FetchXor => "xor",
            AtomicOp::Xchg => "xchg",
            AtomicOp::Cmpxchg => "cmpxchg",
        }
    }
}

impl Swap {
    fn code(self) -> u8 {
        match self {
            Swap::Le => ALU,
            Swap::Be => ALU | X,
            Swap::Bswap => ALU64,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Swap::Le => "le",
            Swap::Be => "be",
            Swap::Bswap => "bswap",
        }
    }
}

impl Cast {
    /// The result's address space in the upper half, the operand's in the lower.
    fn imm(self) -> i32 {
        match self {
            Cast::Kern => 1,
            Cast::User => 1 << 16,
        }
    }
}

impl Imm64 {
    /// The source field, and both halves of the constant.
    fn parts(self) -> (u8, i32, i32) {
        match self {
            Imm64::Value(value) => {
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                (
                    0,
                    i32::from_le_bytes([a, b, c, d]),
                    i32::from_le_bytes([e, f, g, h]),
                )
            }
            Imm64::MapFd(fd) => (PSEUDO_MAP_FD, fd, 0),
            Imm64::MapValue(fd, offset) => (PSEUDO_MAP_VALUE, fd, offset.cast_signed()),
            Imm64::Func(slots) => (PSEUDO_FUNC, slots, 0),
        }
    }
}

impl Callee {
    /// The source field, and the constant.
    fn parts(self) -> (u8, i32) {
        match self {
            Callee::Helper(helper) => (0, helper.id()),
            Callee::Kfunc(kfunc) => (PSEUDO_KFUNC_CALL, kfunc.id().cast_signed()),
            Callee::Subprog(slots) => (PSEUDO_CALL, slots),
        }
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", *self as u8)
    }
}

/// An operand's text: `r1`, `w1` or a constant.
struct OperandText(Width, Src);

impl Display for OperandText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Src::X(reg) => write!(f, "{}{}", self.0.letter(), reg as u8),
            Src::K(imm) => imm.fmt(f),
        }
    }
}

/// A memory operand's text: `r1 + 8`.
struct AddressText(Reg, i16);

impl Display for AddressText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.1 < 0 { '-' } else { '+' };
        write!(f, "{} {sign} {}", self.0, self.1.unsigned_abs())
    }
}

impl Display for Insn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Insn::Alu(width, op, dst, src) => {
                let (dst, src) = (OperandText(width, dst.into()), OperandText(width, src));
                write!(f, "{dst} {} {src}", op.symbol())
            }
            Insn::Neg(width, dst) => {
                let dst = OperandText(width, dst.into());
                write!(f, "{dst} = -{dst}")
            }
            Insn::Movsx(width, from, dst, src) => {
                let (dst, src) = (
                    OperandText(width, dst.into()),
                    OperandText(width, src.into()),
                );
                write!(f, "{dst} = (s{}){src}", from.bits())
            }
            Insn::Swap(swap, size, dst) => {
                write!(f, "{dst} = {}{} {dst}", swap.name(), size.bits())
            }
            Insn::AddrSpaceCast(cast, dst, src) => {
                let (to, from) = (cast.imm() >> 16, cast.imm() & 0xffff);
                write!(f, "{dst} = addr_space_cast({src}, {to}, {from})")
            }
            Insn::LdImm64(dst, value) => write!(f, "{dst} = {value}"),
            Insn::Ldx(size, dst, src, off) => {
                write!(
                    f,
                    "{dst} = *(u{} *)({})",
                    size.bits(),
                    AddressText(src, off)
                )
            }
            Insn::Ldsx(size, dst, src, off) => {
                write!(
                    f,
                    "{dst} = *(s{} *)({})",
                    size.bits(),
                    AddressText(src, off)
                )
            }
            Insn::St(size, dst, off, src) => {
                let src = OperandText(Width::W64, src);
                write!(
                    f,
                    "*(u{} *)({}) = {src}",
                    size.bits(),
                    AddressText(dst, off)
                )
            }
            Insn::Atomic(width, op, dst, off, src) => {
                atomic(f, width, op, &AddressText(dst, off), src)
            }
            Insn::Ja(off) => match i16::try_from(off) {
                Ok(off) => write!(f, "goto {off:+}"),
                Err(_) => write!(f, "gotol {off:+}"),
            },
            Insn::Jmp(width, cond, dst, src, off) => {
                let (dst, src) = (OperandText(width, dst.into()), OperandText(width, src));
                write!(f, "if {dst} {} {src} goto {off:+}", cond.symbol())
            }
            Insn::MayGoto(off) => write!(f, "may_goto {off:+}"),
            Insn::Call(callee) => write!(f, "call {callee}"),
            Insn::Exit => f.write_str("exit"),
        }
    }
}

fn atomic(
    f: &mut Formatter<'_>,
    width: Width,
    op: AtomicOp,
    at: &AddressText,
    src: Reg,
) -> fmt::Result {
    let (src, bits) = (OperandText(width, src.into()), width.size().bits());
    // LLVM's names of 32 bits: xchg32_32, cmpxchg32_32.
    let (r0, suffix) = match width {
        Width::W32 => ("w0", "32_32"),
        Width::W64 => ("r0", "_64"),
    };
    let op_text = op.text();
    match op {
        AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => {
            write!(f, "lock *(u{bits} *)({at}) {op_text} {src}")
        }
        AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor => {
            write!(
                f,
                "{src} = atomic_fetch_{op_text}((u{bits} *)({at}), {src})"
            )
        }
        AtomicOp::Xchg => write!(f, "{src} = xchg{suffix}({at}, {src})"),
        AtomicOp::Cmpxchg => write!(f, "{r0} = cmpxchg{suffix}({at}, {r0}, {src})"),
    }
}

impl Display for Imm64 {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Imm64::Value(value) => write!(f, "{value:#x} ll"),
            Imm64::MapFd(fd) => write!(f, "map[fd:{fd}]"),
            Imm64::MapValue(fd, offset) => write!(f, "map[fd:{fd}][0]+{offset}"),
            Imm64::Func(slots) => write!(f, "subprog[{slots:+}]"),
        }
    }
}

impl Display for Callee {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Callee::Helper(helper) => write!(f, "bpf_{}#{}", helper.name(), helper.id()),
            Callee::Kfunc(kfunc) => write!(f, "{kfunc}"),
            Callee::Subprog(slots) => write!(f, "pc{slots:+}"),
        }
    }
}
