//! One frame, one row, one caller: the plain interpreter on small examples.
#![cfg(feature = "alloc")] // rows and expressions are given as text

use core::fmt::Write;
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::{FrameContext, RecoveredRegister, RegisterLocation, cfa, recover, step};
use crate::addr::{LoadBias, RuntimeAddr};
use crate::arch::{Abi, Arch, Endian, RegisterName};
use crate::memory::{Memory, Unreadable};
use crate::register::{Register, Registers};
use crate::row::Row;
use crate::text;

/// The bytes in a frame's description; nothing else is mapped.
#[derive(Default)]
struct ByteMemory(BTreeMap<u64, u8>);

impl Memory for ByteMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        for (n, slot) in (0..).zip(into) {
            let at = addr.0.wrapping_add(n);
            let byte = self.0.get(&at).copied();
            *slot = byte.ok_or(Unreadable::unmapped(RuntimeAddr(at)))?;
        }
        Ok(())
    }
}

/// A frame as text: `x86-64 little rsp=0x7000 [0x7000]=0x401234`. A word of memory is stored in the
/// byte order and width of the target; `bias=` and `pac=` are the frame's other inputs.
struct FrameFixture {
    abi: Abi,
    registers: Registers,
    memory: ByteMemory,
    bias: LoadBias,
    pac_mask: u64,
}

impl FrameFixture {
    fn parse(text: &str) -> FrameFixture {
        let mut words = text.split_whitespace();
        let (name, endian) = (words.next().unwrap(), words.next().unwrap());
        let table = text::parse(&format!("arch {name} {endian}\n")).unwrap();
        let mut given = FrameFixture {
            abi: table.abi(),
            registers: Registers::new(),
            memory: ByteMemory::default(),
            bias: LoadBias::default(),
            pac_mask: 0,
        };
        for word in words {
            let (name, value) = word.split_once('=').unwrap();
            given.set(name, number(value));
        }
        given
    }

    fn set(&mut self, name: &str, value: u64) {
        match name {
            "bias" => self.bias = LoadBias(value),
            "pac" => self.pac_mask = value,
            _ => match name.strip_prefix('[') {
                Some(addr) => self.store(number(addr.trim_end_matches(']')), value),
                None => self.registers.set(self.register(name), value),
            },
        }
    }

    fn store(&mut self, addr: u64, value: u64) {
        let size = usize::from(self.abi.arch.spec().address_size.bytes());
        let bytes: Vec<u8> = match self.abi.endian {
            Endian::Little => value.to_le_bytes()[..size].to_vec(),
            Endian::Big => value.to_be_bytes()[8 - size..].to_vec(),
        };
        self.memory.0.extend((addr..).zip(bytes));
    }

    fn register(&self, name: &str) -> Register {
        self.abi.arch.register_named(name).unwrap()
    }

    fn frame(&self) -> FrameContext<'_, ByteMemory> {
        FrameContext {
            abi: self.abi,
            registers: &self.registers,
            memory: &self.memory,
            bias: self.bias,
            pac_mask: self.pac_mask,
        }
    }

    /// Parses a row and passes it on.
    fn with_row<T>(&self, row: &str, use_it: impl FnOnce(&Row<'_>) -> T) -> T {
        let head = text::AbiText(self.abi);
        let table = text::parse(&format!("{head}\nfn 0x0..0x1\n  0x0  {row}\n")).unwrap();
        use_it(&table.row(table.spans().next().unwrap().row).unwrap())
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

/// Steps by `row` from the frame `given`. Yields the CFA, the return address, and every register
/// known in the caller; or the error.
fn stepped(given: &str, row: &str) -> String {
    let given = FrameFixture::parse(given);
    given.with_row(row, |row| match step(row, &given.frame()) {
        Ok(caller) => {
            let mut out = format!("cfa={}", caller.cfa);
            match caller.return_address {
                Some(addr) => write!(out, " return={addr}").unwrap(),
                None => out.push_str(" outermost"),
            }
            for (register, value) in caller.registers.iter() {
                write!(
                    out,
                    " {}={value:#x}",
                    RegisterName(register, given.abi.arch)
                )
                .unwrap();
            }
            out
        }
        Err(error) => error.to_string(),
    })
}

fn check(given: &str, row: &str, expected: &str) {
    assert_eq!(stepped(given, row), expected, "{row}");
}

/// The location and value in the caller of each register in `expected`: `REGISTER: LOCATION VALUE`,
/// one a line.
fn check_places(given: &str, row: &str, expected: &str) {
    let given = FrameFixture::parse(given);
    let frame = given.frame();
    given.with_row(row, |row| {
        let cfa = cfa(row, &frame).unwrap();
        for line in expected.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let (name, expected) = line.split_once(": ").unwrap();
            let recovered = recover(row, &frame, cfa, given.register(name));
            assert_eq!(show_place(recovered, given.abi.arch), expected, "{name}");
        }
    });
}

fn show_place(recovered: RecoveredRegister, arch: Arch) -> String {
    let mut out = match recovered.location {
        RegisterLocation::SameRegister => "unchanged".into(),
        RegisterLocation::Memory(addr) => format!("memory {addr}"),
        RegisterLocation::Register(register) => {
            format!("register {}", RegisterName(register, arch))
        }
        RegisterLocation::Value => "value".into(),
        RegisterLocation::Unrecoverable => String::from("lost"),
    };
    match (recovered.value, recovered.error) {
        (Some(value), None) => write!(out, " {value:#x}").unwrap(),
        (None, Some(error)) => write!(out, " ({error})").unwrap(),
        (None, None) => {}
        (Some(_), Some(_)) => panic!("both a value and an error"),
    }
    out
}

#[test]
fn a_call_frame() {
    check(
        "x86-64 little rsp=0x7000 rip=0x401000 [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8]",
        "cfa=0x7008 return=0x401234 rsp=0x7008 ra=0x401234",
    );
    check(
        "i386 little esp=0x7000 eip=0x401000 ebp=1 [0x7000]=0x401234",
        "cfa=esp+4 ra=[cfa-4]",
        "cfa=0x7004 return=0x401234 esp=0x7004 ebp=0x1 ra=0x401234",
    );
}

#[test]
fn every_kind_of_rule_has_its_place() {
    check_places(
        "x86-64 little rsp=0x7000 rbp=0x8000 rcx=0xcc r12=0x12 [0x6ff0]=0x55 [0x8010]=0x66",
        "cfa=rsp+0 rbx=undefined rbp=same rsi=[cfa-16] rdi=cfa-16 r8=rcx r9=[{breg6 16}] \
         r10={breg6 16} r11=rdx r13=[cfa+0] r14=[{lit1; drop; drop}] r15={breg0 0}",
        "
        rbx: lost
        rbp: unchanged 0x8000
        rsi: memory 0x6ff0 0x55
        rdi: value 0x6ff0
        r8: register rcx 0xcc
        r9: memory 0x8010 0x66
        r10: value 0x8010
        r11: register rdx
        r12: unchanged 0x12
        r13: memory 0x7000 (memory at 0x7000 is unreadable: not mapped)
        r14: lost (expression yields no value)
        r15: lost (expression needs register 0, whose value is unknown in this frame)
        rax: lost
        rsp: value 0x7000
        ",
    );
}

#[test]
fn a_register_that_cannot_be_recovered_does_not_stop_the_step() {
    check(
        "x86-64 little rsp=0x7000 rbx=1 rbp=2 r12=3 r13=4 [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8] rbx=[cfa-24] rbp=undefined r12=rdx r13={drop; drop}",
        "cfa=0x7008 return=0x401234 rsp=0x7008 ra=0x401234",
    );
}

#[test]
fn the_cfa_is_computed_before_any_register() {
    // The rule of rbp, on which the CFA is based, changes the caller's rbp only.
    check(
        "x86-64 little rsp=0x1 rbp=0x7000 [0x7000]=0x9000 [0x7008]=0x401234",
        "cfa=rbp+16 ra=[cfa-8] rbp=[cfa-16]",
        "cfa=0x7010 return=0x401234 rbp=0x9000 rsp=0x7010 ra=0x401234",
    );
    // An expression rule finds the CFA on its stack; the CFA's own finds nothing.
    check(
        "x86-64 little rsp=0x7000 [0x7000]=0x401234",
        "cfa={breg7 8} ra=[{lit8; minus}] rbx={}",
        "cfa=0x7008 return=0x401234 rbx=0x7008 rsp=0x7008 ra=0x401234",
    );
    check(
        "x86-64 little rsp=0x7000 [0x7000]=0x401234",
        "cfa={plus_uconst 8} ra=[cfa-8]",
        "the CFA's expression: stack is too short for the operation at byte 0",
    );
}

#[test]
fn rules_read_this_frame_not_each_other() {
    check(
        "x86-64 little rsp=0x7000 rbx=0xb r12=0xc [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8] rbx=r12 r12=rbx",
        "cfa=0x7008 return=0x401234 rbx=0xc rsp=0x7008 r12=0xb ra=0x401234",
    );
    check(
        "x86-64 little rsp=0x7000 rbx=0xb r12=0xc [0x7000]=0x401234 [0x6ff8]=0xdd",
        "cfa=rsp+8 ra=[cfa-8] rbx=[cfa-16] r12=rbx r13={breg3 1}",
        "cfa=0x7008 return=0x401234 rbx=0xdd rsp=0x7008 r12=0xb r13=0xc ra=0x401234",
    );
}

#[test]
fn registers_without_a_rule_are_kept_or_lost_as_the_abi_says() {
    check(
        "x86-64 little rax=1 rdx=1 rcx=1 rbx=3 rsi=1 rdi=1 rbp=6 rsp=0x7000 r8=1 r9=1 r10=1 \
         r11=1 r12=12 r13=13 r14=14 r15=15 rip=1 rflags=1 [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8]",
        "cfa=0x7008 return=0x401234 rbx=0x3 rbp=0x6 rsp=0x7008 r12=0xc r13=0xd r14=0xe r15=0xf \
         ra=0x401234",
    );
    check(
        "i386 little eax=1 ecx=1 edx=1 ebx=3 esp=0x7000 ebp=5 esi=6 edi=7 [0x7000]=0x401234",
        "cfa=esp+4 ra=[cfa-4]",
        "cfa=0x7004 return=0x401234 ebx=0x3 esp=0x7004 ebp=0x5 esi=0x6 edi=0x7 ra=0x401234",
    );
    check(
        "aarch64 little x0=1 x18=1 x19=19 x28=28 x29=29 x30=0x401234 sp=0x7000 pc=1 v7=1 v8=8 \
         v15=15 v16=1",
        "cfa=sp+0",
        "cfa=0x7000 return=0x401234 x19=0x13 x28=0x1c x29=0x1d x30=0x401234 sp=0x7000 \
         pc=0x401234 v8=0x8 v15=0xf",
    );
    check(
        "arm little r0=1 r4=4 r11=11 r12=1 sp=0x7000 lr=0x401234",
        "cfa=sp+0",
        "cfa=0x7000 return=0x401234 r4=0x4 r11=0xb sp=0x7000 lr=0x401234 pc=0x401234",
    );
}

#[test]
fn a_register_without_a_rule_has_its_place_too() {
    check_places(
        "arm little sp=0x7000 r4=4 r3=3",
        "cfa=sp+0",
        "
        r3: lost
        r4: unchanged 0x4
        r12: lost
        sp: value 0x7000
        d7: lost
        d8: unchanged
        d15: unchanged
        ",
    );
    check_places(
        "aarch64 little sp=0x7000 vg=2 v7=7",
        "cfa=sp+0",
        "
        x18: lost
        vg: unchanged 0x2
        v7: lost
        v8: unchanged
        v16: lost
        ",
    );
}

#[test]
fn a_rule_for_the_stack_pointer_overrides_the_cfa() {
    check(
        "x86-64 little rsp=0x7000 rcx=0x9999 [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8] rsp=rcx",
        "cfa=0x7008 return=0x401234 rsp=0x9999 ra=0x401234",
    );
    check(
        "x86-64 little rsp=0x7000 [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8] rsp=undefined",
        "cfa=0x7008 return=0x401234 ra=0x401234",
    );
    // A stack pointer that is unknown in this frame is known in the caller.
    check(
        "x86-64 little rbp=0x7000 [0x7008]=0x401234",
        "cfa=rbp+16 ra=[cfa-8]",
        "cfa=0x7010 return=0x401234 rbp=0x7000 rsp=0x7010 ra=0x401234",
    );
}

#[test]
fn an_interrupted_frame_keeps_what_has_no_rule() {
    check(
        "x86-64 little rax=0xa rcx=0xc rsp=0x7000 rbx=3 xmm0=7 [0x7000]=0x401234 [0x7010]=5",
        "cfa=rsp+8 signal ra=[cfa-8] rcx=[cfa+8]",
        "cfa=0x7008 return=0x401234 rax=0xa rcx=0x5 rbx=0x3 rsp=0x7008 ra=0x401234 xmm0=0x7",
    );
    check(
        "x86-64 little rax=0xa rsp=0x7000 [0x7000]=0x401234",
        "cfa=rsp+8 signal ra=[cfa-8] rax=undefined",
        "cfa=0x7008 return=0x401234 rsp=0x7008 ra=0x401234",
    );
}

#[test]
fn an_undefined_return_address_ends_the_stack() {
    check(
        "x86-64 little rsp=0x7000 rbp=0 rip=0x401000",
        "cfa=rsp+8 ra=undefined",
        "cfa=0x7008 outermost rbp=0x0 rsp=0x7008",
    );
    check(
        "aarch64 little sp=0x7000 x29=0 x30=5 pc=0x401000",
        "cfa=sp+0 x30=undefined",
        "cfa=0x7000 outermost x29=0x0 sp=0x7000",
    );
    // The frame's own code address is not the caller's, even where all other registers are
    // unchanged.
    check(
        "aarch64 little sp=0x7000 x0=1 x30=5 pc=0x401000",
        "cfa=sp+0 signal x30=undefined",
        "cfa=0x7000 outermost x0=0x1 sp=0x7000",
    );
}

#[test]
fn no_caller_without_cfa_or_return_address() {
    let given = "x86-64 little rsp=0x7000 [0x7000]=0x401234";
    let cases = [
        ("ra=[cfa-8]", "the row defines no CFA"),
        (
            "cfa=rbp+16 ra=[cfa-8]",
            "the CFA is based on register 6, whose value is unknown in this frame",
        ),
        (
            "cfa={breg6 16; deref} ra=[cfa-8]",
            "the CFA's expression: expression needs register 6, whose value is unknown in this \
             frame",
        ),
        ("cfa=rsp+8", "the row has no rule for the return address"),
        (
            "cfa=rsp+16 ra=[cfa-8]",
            "the return address: memory at 0x7008 is unreadable: not mapped",
        ),
        (
            "cfa=rsp+8 ra=[{}]",
            "the return address: memory at 0x7008 is unreadable: not mapped",
        ),
        (
            "cfa=rsp+8 ra={drop}",
            "the return address: expression yields no value",
        ),
        (
            "cfa=rsp+8 ra=rdx",
            "the return address is in a register whose value is unknown in this frame",
        ),
    ];
    for (row, expected) in cases {
        check(given, row, expected);
    }
    check(
        "aarch64 little sp=0x7000",
        "cfa=sp+0",
        "the return address is in a register whose value is unknown in this frame",
    );
}

#[test]
fn the_return_address_is_what_its_column_recovers() {
    // glibc's vfork keeps it in rdi.
    check(
        "x86-64 little rsp=0x7000 rdi=0x401234",
        "cfa=rsp+0 ra=rdi",
        "cfa=0x7000 return=0x401234 rsp=0x7000 ra=0x401234",
    );
    // An unusual column: the frame's own code address is still in slot 16.
    check(
        "x86-64 little rsp=0x7000 rdi=0x5 rip=0x401000 [0x7000]=0x401234",
        "cfa=rsp+8 return=rdi rdi=[cfa-8]",
        "cfa=0x7008 return=0x401234 rdi=0x401234 rsp=0x7008 ra=0x401234",
    );
    check(
        "x86-64 little rsp=0x7000 rdi=0x401234 rip=0x401000",
        "cfa=rsp+8 return=rdi rdi=same ra=undefined",
        "cfa=0x7008 return=0x401234 rdi=0x401234 rsp=0x7008 ra=0x401234",
    );
    check(
        "x86-64 little rsp=0x7000 rdi=0x401234 rip=0x401000",
        "cfa=rsp+8 return=rdi ra=[cfa-8]",
        "the row has no rule for the return address",
    );
}

#[test]
fn an_aarch64_leaf_returns_to_the_link_register() {
    check(
        "aarch64 little x29=0x7100 x30=0x401234 sp=0x7000 pc=0x402000",
        "cfa=sp+0",
        "cfa=0x7000 return=0x401234 x29=0x7100 x30=0x401234 sp=0x7000 pc=0x401234",
    );
    check(
        "aarch64 little x29=0x7000 x30=5 sp=0x6ff0 pc=0x402000 [0x7000]=0x7100 [0x7008]=0x401234",
        "cfa=x29+32 x29=[cfa-32] x30=[cfa-24]",
        "cfa=0x7020 return=0x401234 x29=0x7100 x30=0x401234 sp=0x7020 pc=0x401234",
    );
}

#[test]
fn a_signed_return_address_loses_its_code_the_register_keeps_it() {
    let given = "aarch64 little sp=0x7000 x30=0x3a00000000401234 pac=0x7f00000000000000";
    for (row, expected) in [
        (
            "cfa=sp+0",
            "cfa=0x7000 return=0x3a00000000401234 x30=0x3a00000000401234 sp=0x7000 \
             pc=0x3a00000000401234",
        ),
        (
            "cfa=sp+0 signed",
            "cfa=0x7000 return=0x401234 x30=0x3a00000000401234 sp=0x7000 pc=0x401234",
        ),
        (
            "cfa=sp+0 signed-pc",
            "cfa=0x7000 return=0x401234 x30=0x3a00000000401234 sp=0x7000 pc=0x401234",
        ),
    ] {
        check(given, row, expected);
    }
}

#[test]
fn a_rule_for_the_state_of_the_return_address_counts() {
    let kept = "return=0x3a00000000401234";
    let plain = "return=0x401234";
    for (row, expected) in [
        // {lit0}, {lit1}, {lit2}: the numbers of AADWARF64; bits above the fourth mean nothing
        ("cfa=sp+0 ra_sign_state={lit0}", kept),
        ("cfa=sp+0 ra_sign_state={lit1}", plain),
        ("cfa=sp+0 ra_sign_state={lit2}", plain),
        ("cfa=sp+0 ra_sign_state={lit16}", kept),
        ("cfa=sp+0 ra_sign_state={const1u 17}", plain),
        // in memory
        ("cfa=sp+0 ra_sign_state=[cfa-8]", plain),
        ("cfa=sp+0 ra_sign_state=[cfa-16]", kept),
        // without a value
        ("cfa=sp+0 ra_sign_state=[cfa-24]", plain),
        ("cfa=sp+0 ra_sign_state=undefined", plain),
        // beside an instruction
        ("cfa=sp+0 ra_sign_state={lit0} signed", plain),
    ] {
        let given = "aarch64 little sp=0x7000 x30=0x3a00000000401234 pac=0x7f00000000000000 \
                     [0x6ff8]=1 [0x6ff0]=0";
        let stepped = stepped(given, row);
        assert!(stepped.contains(expected), "{row}: {stepped}");
    }
    // On another machine register 34 is a register.
    let stepped = stepped(
        "x86-64 little rsp=0x7000 [0x7000]=0x401234",
        "cfa=rsp+8 ra=[cfa-8] reg34={lit1}",
    );
    assert!(stepped.contains(plain), "{stepped}");
}

#[test]
fn a_return_address_loses_the_thumb_bit_the_register_keeps_it() {
    let given = "arm little sp=0x7000 lr=0x401235 [0x6ffc]=0x401237";
    for (row, expected) in [
        (
            "cfa=sp+0",
            "cfa=0x7000 return=0x401234 sp=0x7000 lr=0x401235 pc=0x401234",
        ),
        (
            "cfa=sp+0 lr=[cfa-4]",
            "cfa=0x7000 return=0x401236 sp=0x7000 lr=0x401237 pc=0x401236",
        ),
    ] {
        check(given, row, expected);
    }
    // Elsewhere every bit is part of the address.
    check(
        "x86-64 little rsp=0x7000 [0x7000]=0x401235",
        "cfa=rsp+8 ra=[cfa-8]",
        "cfa=0x7008 return=0x401235 rsp=0x7008 ra=0x401235",
    );
}

#[test]
fn addresses_wrap_at_their_width() {
    check(
        "i386 little esp=0xfffffffc ebx=1 [0x0]=0x401234 [0xfffffff8]=7",
        "cfa=esp+8 ra=[cfa-4] ebx=[cfa-12] esi=cfa-8",
        "cfa=0x4 return=0x401234 ebx=0x7 esp=0x4 esi=0xfffffffc ra=0x401234",
    );
    check(
        "x86-64 little rsp=0xfffffffffffffff8 [0x0]=0x401234 [0xfffffffffffffff0]=7",
        "cfa=rsp+16 ra=[cfa-8] rbx=[cfa-24] r12=cfa-16",
        "cfa=0x8 return=0x401234 rbx=0x7 rsp=0x8 r12=0xfffffffffffffff8 ra=0x401234",
    );
    check(
        "x86-64 little rsp=0x8000000000000000 [0x0]=0x401234",
        "cfa=rsp-9223372036854775808 ra=[cfa+0]",
        "cfa=0x0 return=0x401234 rsp=0x0 ra=0x401234",
    );
}

#[test]
fn memory_is_read_in_the_byte_order_of_the_target() {
    for endian in ["little", "big"] {
        check(
            &format!("aarch64 {endian} sp=0x7000 [0x7008]=0x0102030405060708"),
            "cfa=sp+16 x30=[cfa-8]",
            "cfa=0x7010 return=0x102030405060708 x30=0x102030405060708 sp=0x7010 \
             pc=0x102030405060708",
        );
    }
    // A word in the other byte order, byte by byte.
    let given = FrameFixture::parse("aarch64 big [0x10]=0x0102030405060708");
    assert_eq!(given.memory.0.get(&0x10), Some(&1));
    let given = FrameFixture::parse("arm little [0x10]=0x01020304");
    assert_eq!(given.memory.0.get(&0x10), Some(&4));
}

#[test]
fn linked_addresses_in_expressions_move_with_the_module() {
    check(
        "x86-64 little rsp=0x7000 bias=0x500000 [0x504010]=0x401234",
        "cfa=rsp+0 ra=[{addr 0x4010}]",
        "cfa=0x7000 return=0x401234 rsp=0x7000 ra=0x401234",
    );
}

#[test]
fn a_foreign_architecture_has_rules_and_nothing_else() {
    let given = "machine-20-32 big reg1=0x7000 reg14=14 reg65535=1 [0x7004]=0x401235";
    for (row, expected) in [
        ("cfa=reg1+0", "the row has no rule for the return address"),
        (
            "cfa=reg1+0 return=reg65",
            "the row has no rule for the return address",
        ),
        // Neither the stack pointer nor the slot of the code address is known.
        (
            "cfa=reg1+0 return=reg65 reg65=[cfa+4] reg14=same",
            "cfa=0x7000 return=0x401235 reg14=0xe reg65=0x401235",
        ),
        (
            "cfa=reg1+0 signal return=reg65 reg65=[cfa+4]",
            "cfa=0x7000 return=0x401235 reg1=0x7000 reg14=0xe reg65=0x401235",
        ),
    ] {
        check(given, row, expected);
    }
}

#[test]
fn bytes_of_arguments_change_no_register() {
    let given = "x86-64 little rsp=0x7000 rbx=1 [0x7000]=0x401234";
    let expected = "cfa=0x7008 return=0x401234 rbx=0x1 rsp=0x7008 ra=0x401234";
    check(given, "cfa=rsp+8 ra=[cfa-8]", expected);
    check(given, "cfa=rsp+8 args=32 ra=[cfa-8]", expected);
}
