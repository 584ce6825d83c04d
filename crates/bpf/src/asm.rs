//! The assembler: instructions and labels to a program's code.

use std::fmt::{self, Display, Formatter};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use crate::btf::Kfunc;
use crate::helper::Helper;
use crate::insn::{AluOp, AtomicOp, Callee, Cast, Cond, Imm64, Insn, Reg, Size, Src, Width};

/// The target of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A function other than the main one: called, or passed to the kernel as a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subprog(usize);

/// Why assembling failed. Slots of 8 bytes are counted from the program's start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AsmError {
    /// The target is a label without a position.
    #[error("slot {slot}: `{insn}`: the label is not bound")]
    UnboundLabel {
        /// The jump's slot.
        slot: usize,
        /// The jump.
        insn: Insn,
    },
    /// The distance does not fit into the 16 bits of a conditional jump.
    #[error("slot {slot}: `{insn}`: the target is {distance} slots away (at most 32767)")]
    JumpOutOfRange {
        /// The jump's slot.
        slot: usize,
        /// The jump.
        insn: Insn,
        /// In slots, from the next instruction.
        distance: i64,
    },
}

/// A function of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Func {
    pub(crate) name: String,
    /// The number of parameters.
    pub(crate) params: u8,
    /// The first slot. [`Assembler::finish`] sets it.
    pub(crate) start: usize,
    /// Each instruction with its slot, from the function's start.
    insns: Vec<(usize, Insn)>,
    /// The slot of the next instruction, from the function's start.
    next: usize,
}

impl Func {
    fn new(name: &str, params: u8) -> Func {
        Func {
            name: name.to_owned(),
            params,
            start: 0,
            insns: Vec::new(),
            next: 0,
        }
    }
}

/// The target of a jump or call.
#[derive(Debug, Clone, Copy)]
enum JumpTarget {
    Label(Label),
    Subprog(Subprog),
}

/// An instruction whose distance is still to be computed.
#[derive(Debug, Clone, Copy)]
struct Fixup {
    func: usize,
    /// The index in the function's instructions.
    index: usize,
    target: JumpTarget,
}

/// Assembles a program: its main function, and subprograms.
///
/// Each call appends an instruction. Maps are borrowed until the code is loaded, so that their
/// descriptors stay open.
#[derive(Debug)]
pub struct Assembler<'m> {
    /// The main function, then the subprograms.
    funcs: Vec<Func>,
    /// The function to which instructions are appended.
    current: usize,
    fixups: Vec<Fixup>,
    /// The function of each bound label, and the slot in it.
    labels: Vec<Option<(usize, usize)>>,
    maps: PhantomData<BorrowedFd<'m>>,
}

impl<'m> Assembler<'m> {
    /// Starts a program. `name` is the main function's: a C identifier.
    #[must_use]
    pub fn new(name: &str) -> Assembler<'m> {
        Assembler {
            funcs: vec![Func::new(name, 1)],
            current: 0,
            fixups: Vec::new(),
            labels: Vec::new(),
            maps: PhantomData,
        }
    }

    /// A new label. [`Assembler::bind`] gives it a position. Jumps cannot leave their function.
    pub fn new_label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub fn bind(&mut self, label: Label) {
        let position = self
            .funcs
            .get(self.current)
            .map(|func| (self.current, func.next));
        if let Some(bound) = self.labels.get_mut(label.0) {
            *bound = position;
        }
    }

    /// A new label, bound to the next instruction.
    pub fn bind_new_label(&mut self) -> Label {
        let label = self.new_label();
        self.bind(label);
        label
    }

    /// Assembles a subprogram. `name` is a C identifier, `params` the number of its parameters, and
    /// `body` appends its instructions.
    pub fn subprog(&mut self, name: &str, params: u8, body: impl FnOnce(&mut Self)) -> Subprog {
        let subprog = self.funcs.len();
        self.funcs.push(Func::new(name, params));
        let caller = std::mem::replace(&mut self.current, subprog);
        body(self);
        self.current = caller;
        Subprog(subprog)
    }

    /// Appends an instruction.
    pub fn insn(&mut self, insn: Insn) {
        if let Some(func) = self.funcs.get_mut(self.current) {
            func.insns.push((func.next, insn));
            func.next += insn.slots();
        }
    }

    fn insn_to(&mut self, target: JumpTarget, insn: Insn) {
        let func = self.current;
        let index = self.funcs.get(func).map_or(0, |func| func.insns.len());
        self.fixups.push(Fixup {
            func,
            index,
            target,
        });
        self.insn(insn);
    }

    /// `dst op= src`, of 64 bits.
    pub fn alu64(&mut self, op: AluOp, dst: Reg, src: impl Into<Src>) {
        self.insn(Insn::Alu(Width::W64, op, dst, src.into()));
    }

    /// `dst op= src`, of 32 bits. The upper half becomes 0.
    pub fn alu32(&mut self, op: AluOp, dst: Reg, src: impl Into<Src>) {
        self.insn(Insn::Alu(Width::W32, op, dst, src.into()));
    }

    /// `dst = src`
    pub fn mov64(&mut self, dst: Reg, src: impl Into<Src>) {
        self.alu64(AluOp::Mov, dst, src);
    }

    /// `dst = src`: converts an arena pointer from the process' address space to the kernel's.
    pub fn cast_kern(&mut self, dst: Reg, src: Reg) {
        self.insn(Insn::AddrSpaceCast(Cast::Kern, dst, src));
    }

    /// `dst = src`: converts an arena pointer from the kernel's address space to the process'.
    pub fn cast_user(&mut self, dst: Reg, src: Reg) {
        self.insn(Insn::AddrSpaceCast(Cast::User, dst, src));
    }

    /// `dst = value`, of 64 bits.
    pub fn ld_imm64(&mut self, dst: Reg, value: u64) {
        self.insn(Insn::LdImm64(dst, Imm64::Value(value)));
    }

    /// `dst =` a map, for helpers.
    pub fn ld_map_fd(&mut self, dst: Reg, map: &'m impl AsFd) {
        let fd = map.as_fd().as_raw_fd();
        self.insn(Insn::LdImm64(dst, Imm64::MapFd(fd)));
    }

    /// `dst =` an address in a map's memory. In an arena, that is the process' address.
    pub fn ld_map_value(&mut self, dst: Reg, map: &'m impl AsFd, offset: u32) {
        let fd = map.as_fd().as_raw_fd();
        self.insn(Insn::LdImm64(dst, Imm64::MapValue(fd, offset)));
    }

    /// `dst =` a subprogram, as a callback for helpers.
    pub fn ld_func(&mut self, dst: Reg, subprog: Subprog) {
        let func = Insn::LdImm64(dst, Imm64::Func(0));
        self.insn_to(JumpTarget::Subprog(subprog), func);
    }

    /// `dst = *(size *)(src + off)`
    pub fn ldx(&mut self, size: Size, dst: Reg, src: Reg, off: i16) {
        self.insn(Insn::Ldx(size, dst, src, off));
    }

    /// `*(size *)(dst + off) = src`
    pub fn st(&mut self, size: Size, dst: Reg, off: i16, src: impl Into<Src>) {
        self.insn(Insn::St(size, dst, off, src.into()));
    }

    /// An atomic operation on memory.
    pub fn atomic(&mut self, width: Width, op: AtomicOp, dst: Reg, off: i16, src: Reg) {
        self.insn(Insn::Atomic(width, op, dst, off, src));
    }

    /// `goto label`
    pub fn ja(&mut self, label: Label) {
        self.insn_to(JumpTarget::Label(label), Insn::Ja(0));
    }

    /// `if dst cond src goto label`, of 64 bits.
    pub fn jmp(&mut self, cond: Cond, dst: Reg, src: impl Into<Src>, label: Label) {
        let jump = Insn::Jmp(Width::W64, cond, dst, src.into(), 0);
        self.insn_to(JumpTarget::Label(label), jump);
    }

    /// `if dst cond src goto label`, of 32 bits.
    pub fn jmp32(&mut self, cond: Cond, dst: Reg, src: impl Into<Src>, label: Label) {
        let jump = Insn::Jmp(Width::W32, cond, dst, src.into(), 0);
        self.insn_to(JumpTarget::Label(label), jump);
    }

    /// `may_goto label`: leaves a loop after 250 ms. The verifier then accepts a loop that it
    /// cannot bound. A program that must end sooner needs its own bound.
    pub fn may_goto(&mut self, label: Label) {
        self.insn_to(JumpTarget::Label(label), Insn::MayGoto(0));
    }

    /// Calls a helper. It clobbers `R1` to `R5`; `R0` is the result.
    pub fn call(&mut self, helper: Helper) {
        self.insn(Insn::Call(Callee::Helper(helper)));
    }

    /// Calls a kfunc, with the registers of a helper.
    pub fn call_kfunc(&mut self, kfunc: Kfunc) {
        self.insn(Insn::Call(Callee::Kfunc(kfunc)));
    }

    /// Calls a subprogram, with the registers of a helper.
    pub fn call_subprog(&mut self, subprog: Subprog) {
        let call = Insn::Call(Callee::Subprog(0));
        self.insn_to(JumpTarget::Subprog(subprog), call);
    }

    /// `exit`
    pub fn exit(&mut self) {
        self.insn(Insn::Exit);
    }

    /// Places the functions one after another, and computes the distances of jumps and calls.
    ///
    /// # Errors
    ///
    /// A label is not bound, or a conditional jump is too long.
    pub fn finish(mut self) -> Result<Code<'m>, AsmError> {
        let mut start = 0;
        for func in &mut self.funcs {
            func.start = start;
            start += func.next;
        }
        for fixup in std::mem::take(&mut self.fixups) {
            self.fix(fixup)?;
        }
        Ok(Code {
            funcs: self.funcs,
            maps: PhantomData,
        })
    }

    fn fix(&mut self, fixup: Fixup) -> Result<(), AsmError> {
        let target = self.target_slot(fixup.target);
        let Some(func) = self.funcs.get_mut(fixup.func) else {
            return Ok(());
        };
        let start = func.start;
        let Some((slot, insn)) = func.insns.get_mut(fixup.index) else {
            return Ok(());
        };
        let (slot, unfixed) = (start + *slot, *insn);
        let target = target.ok_or(AsmError::UnboundLabel {
            slot,
            insn: unfixed,
        })?;
        let distance = signed(target) - signed(slot) - 1;
        *insn = redirect(unfixed, distance).ok_or(AsmError::JumpOutOfRange {
            slot,
            insn: unfixed,
            distance,
        })?;
        Ok(())
    }

    /// A target's slot. The functions' first slots must be set.
    fn target_slot(&self, target: JumpTarget) -> Option<usize> {
        let (func, slot) = match target {
            JumpTarget::Label(label) => (*self.labels.get(label.0)?)?,
            JumpTarget::Subprog(subprog) => (subprog.0, 0),
        };
        Some(self.funcs.get(func)?.start + slot)
    }
}

fn signed(slot: usize) -> i64 {
    i64::try_from(slot).unwrap_or(i64::MAX)
}

/// The instruction with this distance. `None` if the distance does not fit.
fn redirect(insn: Insn, distance: i64) -> Option<Insn> {
    let near = i16::try_from(distance);
    let far = i32::try_from(distance).ok()?;
    Some(match insn {
        Insn::Ja(_) => Insn::Ja(far),
        Insn::Jmp(width, cond, dst, src, _) => Insn::Jmp(width, cond, dst, src, near.ok()?),
        Insn::MayGoto(_) => Insn::MayGoto(near.ok()?),
        Insn::LdImm64(dst, Imm64::Func(_)) => Insn::LdImm64(dst, Imm64::Func(far)),
        Insn::Call(Callee::Subprog(_)) => Insn::Call(Callee::Subprog(far)),
        other => other,
    })
}

/// A program's complete code. Its text is a listing with each instruction's slot.
#[derive(Debug, Clone)]
pub struct Code<'m> {
    /// The main function, then the subprograms.
    funcs: Vec<Func>,
    maps: PhantomData<BorrowedFd<'m>>,
}

impl Code<'_> {
    /// The bytes for the kernel, 8 for each slot.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (_, insn) in self.funcs.iter().flat_map(|func| &func.insns) {
            insn.encode(&mut bytes);
        }
        bytes
    }

    /// The main function's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.funcs.first().map_or("", |func| &func.name)
    }

    pub(crate) fn funcs(&self) -> &[Func] {
        &self.funcs
    }
}

impl Display for Code<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for func in &self.funcs {
            writeln!(f, "{}:", func.name)?;
            for (slot, insn) in &func.insns {
                writeln!(f, "{:8}: {insn}", func.start + slot)?;
            }
        }
        Ok(())
    }
}
