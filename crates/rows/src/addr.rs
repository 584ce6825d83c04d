//! Address types that must not be mixed: link-time, run-time, of an instruction, after a call.

use core::fmt;

/// An address as linked: the `p_vaddr` space of one ELF file. Tables are keyed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Vaddr(pub u64);

/// An address in a running process, a core file or a copied stack. It has the representation of a
/// `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct RuntimeAddr(pub u64);

/// Run-time address minus link-time address of one module, in bytes; arithmetic wraps, because
/// a module may be loaded below the address that it was linked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LoadBias(pub u64);

impl LoadBias {
    /// Maps a run-time address to the link-time address that tables are keyed by.
    #[must_use]
    pub fn to_vaddr(self, addr: RuntimeAddr) -> Vaddr {
        Vaddr(addr.0.wrapping_sub(self.0))
    }

    /// Maps a link-time address to the address it has in the process.
    #[must_use]
    pub fn to_runtime(self, addr: Vaddr) -> RuntimeAddr {
        RuntimeAddr(addr.0.wrapping_add(self.0))
    }
}

impl Vaddr {
    /// The address `bytes` further on, wrapping.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Vaddr {
        Vaddr(self.0.wrapping_add(bytes))
    }
}

/// The code address of a frame, and its kind.
///
/// A call pushes the address of the instruction *after* it. That address may belong to another row,
/// or to another function if the callee never returns. The caller's row is therefore the row that
/// covers the call: the byte before the return address. Only [`CodeAddr::lookup`] subtracts that 1.
///
/// On ARM both are addresses of bytes, as in tables. They lack bit 0, which marks Thumb code in a
/// link register or function pointer (AAPCS32, "Subroutine Calls"). Left in, it would cancel the 1.
/// Only [`crate::interpret::step`] clears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeAddr {
    /// The next instruction to execute: in the innermost frame, or in a frame that a signal
    /// interrupted.
    Instruction(RuntimeAddr),
    /// The return address of a call.
    Return(RuntimeAddr),
}

impl CodeAddr {
    /// The address itself.
    #[must_use]
    pub fn address(self) -> RuntimeAddr {
        match self {
            CodeAddr::Instruction(addr) | CodeAddr::Return(addr) => addr,
        }
    }

    /// The address for looking up the frame's row.
    #[must_use]
    pub fn lookup(self) -> RuntimeAddr {
        match self {
            CodeAddr::Instruction(addr) => addr,
            CodeAddr::Return(addr) => RuntimeAddr(addr.0.wrapping_sub(1)),
        }
    }
}

/// A pointer in a table, direct or through one more word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pointer {
    /// The address itself.
    Direct(Vaddr),
    /// The address of a word that holds the run-time address (`DW_EH_PE_indirect`).
    Indirect(Vaddr),
}

macro_rules! hexadecimal {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}
hexadecimal!(Vaddr, RuntimeAddr, LoadBias);

impl fmt::Display for CodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_is_looked_up_at_the_call() {
        let after_call = RuntimeAddr(0x1005);
        assert_eq!(CodeAddr::Return(after_call).lookup(), RuntimeAddr(0x1004));
        assert_eq!(CodeAddr::Instruction(after_call).lookup(), after_call);
    }

    #[test]
    fn addresses_print_as_their_numbers_do() {
        assert_eq!(std::format!("{}", Vaddr(0x2f)), "0x2f");
        let addr = RuntimeAddr(0x2f);
        assert_eq!(
            std::format!("{addr:x} {addr:#x} {addr:#08x}"),
            "2f 0x2f 0x00002f"
        );
    }

    #[test]
    fn a_module_may_be_loaded_below_its_link_address() {
        let bias = LoadBias(0x1000_u64.wrapping_sub(0x40_0000));
        assert_eq!(bias.to_vaddr(RuntimeAddr(0x1010)), Vaddr(0x40_0010));
        assert_eq!(bias.to_runtime(Vaddr(0x40_0010)), RuntimeAddr(0x1010));
    }
}
