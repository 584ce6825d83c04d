//! What an architecture's ABI adds to DWARF: names, the stack pointer, what a call preserves.
//!
//! Shared code never asks *which* architecture it serves; it asks the [`ArchSpec`].

use core::fmt;

use crate::addr::RuntimeAddr;
use crate::expression::Expression;
use crate::register::Register;
use crate::row::{CfaRule, RegisterRule};

mod aarch64;
mod arm;
mod i386;
mod x86_64;

/// An instruction set architecture, with what unwind tables need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Arch {
    /// x86-64 (System V psABI), 64-bit addresses.
    X86_64,
    /// i386 (System V psABI), 32-bit addresses.
    I386,
    /// 32-bit ARM (AAPCS32).
    Arm,
    /// AArch64 (AAPCS64).
    Aarch64,
    /// Any other ELF machine, as [`Arch::from_elf`] makes it. Tables are read and printed with
    /// numbered registers, and rules mean the same as elsewhere. No register is known to be the
    /// stack pointer, the code address, or preserved, so no stack is walked.
    Other {
        /// The ELF header's `e_machine`.
        machine: u16,
        /// The size of an address.
        address_size: AddressSize,
    },
}

/// The size of an address: ELF32 or ELF64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressSize {
    /// 4 bytes.
    W32,
    /// 8 bytes.
    W64,
}

impl AddressSize {
    /// The size in bytes: 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        match self {
            AddressSize::W32 => 4,
            AddressSize::W64 => 8,
        }
    }

    /// The greatest address.
    #[must_use]
    pub const fn mask(self) -> u64 {
        match self {
            AddressSize::W32 => 0xffff_ffff,
            AddressSize::W64 => u64::MAX,
        }
    }
}

/// Byte order of a file and of the memory it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Architecture and byte order: what interpreting a row needs besides the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Abi {
    /// The architecture.
    pub arch: Arch,
    /// The byte order of memory.
    pub endian: Endian,
}

impl Abi {
    /// x86-64.
    pub const X86_64: Abi = Abi {
        arch: Arch::X86_64,
        endian: Endian::Little,
    };

    /// AArch64, as Linux runs it nearly everywhere.
    pub const AARCH64: Abi = Abi {
        arch: Arch::Aarch64,
        endian: Endian::Little,
    };

    /// That of the machine that this code was compiled for.
    pub const HOST: Abi = Abi {
        arch: Arch::HOST,
        endian: if cfg!(target_endian = "little") {
            Endian::Little
        } else {
            Endian::Big
        },
    };
}

/// The properties of one architecture.
#[derive(Debug)]
pub struct ArchSpec {
    /// The name as printed and parsed: `x86-64`.
    pub name: &'static str,
    /// The size of an address.
    pub address_size: AddressSize,
    /// Register names with their DWARF numbers; the first name of a number is printed, the
    /// others are accepted.
    pub names: &'static [(u16, &'static str)],
    /// The sign before a register's name in assembly.
    pub register_sign: &'static str,
    /// The stack pointer. Its value in the caller is the CFA unless a rule says otherwise;
    /// [`ArchSpec::NONE`] where none is known.
    pub stack_pointer: Register,
    /// The frame pointer, where walks keep it beside the stack pointer.
    pub frame_pointer: Option<Register>,
    /// The register slot that holds the frame's own code address, or [`ArchSpec::NONE`].
    pub pc: Register,
    /// The return-address column that compilers use, or [`ArchSpec::NONE`].
    pub return_address: Register,
    /// The pseudo-register that says whether the return address is signed, where the ABI has one.
    pub ra_sign_state: Option<Register>,
    /// The thread pointer, where the executable's thread-local storage is right below it (ELF
    /// Handling For Thread-Local Storage, §3: variant II).
    pub thread_pointer: Option<Register>,
    /// Bits of a code pointer that select the instruction set and are not part of the address.
    pub mode_bits: u64,
    /// Registers that a call preserves: a row without a rule for them leaves them unchanged.
    pub preserved: &'static [u16],
    /// How the kernel resumes a frame that a signal interrupted, where that is known.
    pub signal_record: Option<&'static SignalRecord>,
}

/// The kernel's record of a frame that a signal interrupted (Linux: `ucontext_t`). A handler
/// returns to a trampoline, which asks the kernel to resume the frame.
#[derive(Debug)]
pub struct SignalRecord {
    /// The record's distance above the stack pointer in a trampoline, in bytes.
    pub above_stack_pointer: u64,
    /// The offsets of registers in the record, by DWARF number, in bytes.
    pub offsets: &'static [u64],
    /// The encodings of a trampoline's code.
    pub trampolines: &'static [&'static [u8]],
    /// The register that the record is above in a trampoline.
    pub stack_pointer: Register,
}

impl SignalRecord {
    /// The address of the record, by the stack pointer in a trampoline.
    #[must_use]
    pub fn at(&self, stack_pointer: u64) -> u64 {
        stack_pointer.wrapping_add(self.above_stack_pointer)
    }

    /// The address of a register's value in the record at `record`; `None` if it has none.
    #[must_use]
    pub fn address(&self, record: u64, register: Register) -> Option<u64> {
        let offset = self.offsets.get(usize::from(register.0))?;
        Some(record.wrapping_add(*offset))
    }

    /// Whether a row's rule restores a register from the record.
    #[must_use]
    pub(crate) fn has_saved(&self, register: Register, rule: RegisterRule<'_>) -> bool {
        matches!(rule, RegisterRule::Expression(at) if self.is_address(at, register, &[]))
    }

    /// Whether a row's CFA is the stack pointer in the record.
    #[must_use]
    pub(crate) fn has_cfa(&self, cfa: CfaRule<'_>) -> bool {
        const DEREF: u8 = crate::expression::operation::DW_OP_DEREF;
        matches!(cfa, CfaRule::Expression(cfa) if self.is_address(cfa, self.stack_pointer, &[DEREF]))
    }

    /// Whether an expression is the address of a register in the record, followed by `end`.
    fn is_address(&self, expression: Expression<'_>, register: Register, end: &[u8]) -> bool {
        let address = self.address(self.above_stack_pointer, register);
        expression
            .register_offset(self.stack_pointer)
            .is_some_and(|(offset, rest)| address == u64::try_from(offset).ok() && rest == end)
    }
}

/// What a register holds in the caller when its row has no rule for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultRule {
    /// The ABI makes a callee preserve it: unchanged.
    SameValue,
    /// The stack pointer: the CFA.
    Cfa,
    /// A call may have changed it: unknown.
    Unknown,
}

impl ArchSpec {
    /// A register of an unknown ABI. It is above [`crate::Registers::END`], so it has no value in
    /// any frame.
    pub const NONE: Register = Register(u16::MAX);
}

static OTHER_32: ArchSpec = other(AddressSize::W32);
static OTHER_64: ArchSpec = other(AddressSize::W64);

const fn other(address_size: AddressSize) -> ArchSpec {
    ArchSpec {
        name: "other",
        address_size,
        names: &[],
        register_sign: "",
        stack_pointer: ArchSpec::NONE,
        frame_pointer: None,
        pc: ArchSpec::NONE,
        return_address: ArchSpec::NONE,
        ra_sign_state: None,
        thread_pointer: None,
        mode_bits: 0,
        preserved: &[],
        signal_record: None,
    }
}

impl Arch {
    /// The architectures that have a [`ArchSpec`] of their own.
    pub const KNOWN: [Arch; 4] = [Arch::X86_64, Arch::I386, Arch::Arm, Arch::Aarch64];

    /// That of the machine that this code was compiled for.
    pub const HOST: Arch = if cfg!(target_arch = "x86_64") {
        Arch::X86_64
    } else if cfg!(target_arch = "aarch64") {
        Arch::Aarch64
    } else {
        Arch::Other {
            machine: 0,
            address_size: AddressSize::W64,
        }
    };

    /// The architecture of an ELF file with this `e_machine` and class.
    #[must_use]
    pub const fn from_elf(machine: u16, address_size: AddressSize) -> Arch {
        match (machine, address_size) {
            (62, AddressSize::W64) => Arch::X86_64,
            (3, AddressSize::W32) => Arch::I386,
            (40, AddressSize::W32) => Arch::Arm,
            (183, AddressSize::W64) => Arch::Aarch64,
            _ => Arch::Other {
                machine,
                address_size,
            },
        }
    }

    /// The ELF header's `e_machine`.
    #[must_use]
    pub const fn elf_machine(self) -> u16 {
        match self {
            Arch::X86_64 => 62,
            Arch::I386 => 3,
            Arch::Arm => 40,
            Arch::Aarch64 => 183,
            Arch::Other { machine, .. } => machine,
        }
    }

    /// The properties of this architecture.
    #[must_use]
    pub const fn spec(self) -> &'static ArchSpec {
        match self {
            Arch::X86_64 => &x86_64::SPEC,
            Arch::I386 => &i386::SPEC,
            Arch::Arm => &arm::SPEC,
            Arch::Aarch64 => &aarch64::SPEC,
            Arch::Other {
                address_size: AddressSize::W32,
                ..
            } => &OTHER_32,
            Arch::Other {
                address_size: AddressSize::W64,
                ..
            } => &OTHER_64,
        }
    }

    /// The psABI's name of a register, if it has one.
    #[must_use]
    pub fn register_name(self, register: Register) -> Option<&'static str> {
        self.spec()
            .names
            .iter()
            .find(|(n, _)| *n == register.0)
            .map(|(_, name)| *name)
    }

    /// The assemblers' name of a register, without a sign. The return address has the program
    /// counter's.
    #[must_use]
    pub fn assembler_name(self, register: Register) -> Option<&'static str> {
        let mut names = self.spec().names.iter().rev();
        let found = names.find(|(number, _)| *number == register.0);
        found.map(|(_, name)| *name)
    }

    /// The register of that name; `r12` style numbers are accepted where the psABI does not
    /// give the name another meaning.
    #[must_use]
    pub fn register_named(self, name: &str) -> Option<Register> {
        if let Some((n, _)) = self.spec().names.iter().find(|(_, known)| *known == name) {
            return Some(Register(*n));
        }
        let number = name.strip_prefix("reg")?;
        let all_digits = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|_| all_digits).map(Register)
    }

    /// The bits of a code address that may hold a pointer authentication code, in a process with
    /// this address near the end of its address space: those above it. The kernel maps stacks,
    /// libraries and the vDSO there; its own answer is `NT_ARM_PAC_MASK`.
    #[must_use]
    pub fn pac_mask(self, highest: RuntimeAddr) -> u64 {
        if self.spec().ra_sign_state.is_none() {
            return 0;
        }
        let above = u64::BITS - highest.0.leading_zeros();
        u64::MAX.checked_shl(above).unwrap_or(0)
    }

    /// Whether code begins like a signal handler's trampoline.
    #[must_use]
    pub fn begins_trampoline(self, code: &[u8]) -> bool {
        self.trampoline_at(code).is_some()
    }

    /// The signal handler's trampoline that code begins with.
    #[must_use]
    pub fn trampoline_at(self, code: &[u8]) -> Option<&'static [u8]> {
        let trampolines = self.spec().signal_record.map(|record| record.trampolines);
        let mut trampolines = trampolines.unwrap_or_default().iter();
        let found = trampolines.find(|trampoline| code.starts_with(trampoline));
        found.copied()
    }

    /// What `register` holds in the caller when the row has no rule for it (DWARF 5 §6.4.1
    /// leaves this to the ABI).
    #[must_use]
    pub fn unspecified(self, register: Register) -> DefaultRule {
        let spec = self.spec();
        if register == ArchSpec::NONE {
            DefaultRule::Unknown
        } else if register == spec.stack_pointer {
            DefaultRule::Cfa
        } else if spec.preserved.contains(&register.0) {
            DefaultRule::SameValue
        } else {
            DefaultRule::Unknown
        }
    }
}

/// Prints a register's name, or `reg77` where it has none.
#[derive(Debug, Clone, Copy)]
pub struct RegisterName(pub Register, pub Arch);

impl fmt::Display for RegisterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.register_name(self.0) {
            Some(name) => f.pad(name),
            None => write!(f, "reg{}", self.0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printed_name_parses_back() {
        for arch in Arch::KNOWN {
            for number in 0..200 {
                if let Some(name) = arch.register_name(Register(number)) {
                    assert_eq!(
                        arch.register_named(name),
                        Some(Register(number)),
                        "{arch:?}"
                    );
                }
            }
            assert_eq!(arch.register_named("reg199"), Some(Register(199)));
            assert_eq!(arch.register_named("cfa"), None);
        }
    }

    #[test]
    fn machine_numbers_round_trip() {
        for arch in Arch::KNOWN {
            assert_eq!(
                Arch::from_elf(arch.elf_machine(), arch.spec().address_size),
                arch
            );
        }
    }

    /// Of 48 bits (Linux's usual choice), 39 bits (phones), and with memory above 48 bits.
    #[test]
    fn signatures_are_above_all_addresses() {
        for (highest, mask) in [
            (0xffff_d123_4000, 0xffff << 48),
            (0x7f_e512_3000, 0x1ff_ffff << 39),
            (0xf_ffff_0000_0000, 0xfff << 52),
        ] {
            assert_eq!(Arch::Aarch64.pac_mask(RuntimeAddr(highest)), mask);
            assert_eq!(Arch::X86_64.pac_mask(RuntimeAddr(highest)), 0);
        }
        assert_eq!(Arch::Aarch64.pac_mask(RuntimeAddr(u64::MAX)), 0);
    }

    /// x32 and AArch64's ILP32 among them: a known machine of the other class is a different one.
    #[test]
    fn nothing_is_taken_from_another_architecture() {
        for (machine, address_size) in [
            (62, AddressSize::W32),
            (183, AddressSize::W32),
            (3, AddressSize::W64),
            (40, AddressSize::W64),
            (20, AddressSize::W32),
            (0, AddressSize::W64),
        ] {
            let arch = Arch::from_elf(machine, address_size);
            assert_eq!(
                arch,
                Arch::Other {
                    machine,
                    address_size
                }
            );
            assert_eq!(
                (arch.elf_machine(), arch.spec().address_size),
                (machine, address_size)
            );
            assert_eq!(arch.spec().mode_bits, 0);
            for number in (0..=u16::MAX).step_by(if cfg!(miri) { 2_571 } else { 1 }) {
                let register = Register(number);
                assert_eq!(arch.register_name(register), None);
                assert_eq!(arch.unspecified(register), DefaultRule::Unknown);
            }
            for known in Arch::KNOWN {
                for (_, name) in known.spec().names {
                    assert_eq!(arch.register_named(name), None);
                }
            }
        }
    }
}
