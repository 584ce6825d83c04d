//! Packed rows against the interpreter: all of their bits.
//!
//! The fields of a word are independent, and every address that a packed row computes is a base and
//! a constant. So one frame decides for all frames with the same known registers: its registers are
//! far apart, and each word of memory is different.

use unspool_rows::encoding::encode;
use unspool_rows::interpret::{self, FrameContext, StepError};
use unspool_rows::packed_row::{CfaBase, PackedExpressions, SavedRegister, SavedRegisters};
use unspool_rows::{
    Abi, Arch, CfaRule, Endian, Expression, FrameRegisters, LoadBias, Memory, PackedForm,
    PackedRow, RaState, Register, RegisterRule, RegisterScope, Registers, Row, RuntimeAddr,
    Unreadable,
};
use unspool_testing::sample;

const ARCH: Arch = Arch::X86_64;
const ABI: Abi = Abi {
    arch: ARCH,
    endian: Endian::Little,
};
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// Memory whose words are all different, and none is near another or a register. Words below an
/// address are missing.
struct DistinctWords {
    start: u64,
}

impl DistinctWords {
    fn word(&self, addr: u64) -> Option<u64> {
        (addr >= self.start).then(|| addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5a5a << 40)
    }
}

impl Memory for DistinctWords {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let word = self.word(addr.0).ok_or(Unreadable::unmapped(addr))?;
        into.copy_from_slice(&word.to_le_bytes()[..into.len()]);
        Ok(())
    }
}

/// A frame with known registers except those in `unknown`, at a byte of 16.
fn frame(unknown: &[Register], byte: u64) -> Registers {
    let mut registers = Registers::new();
    for number in 0..20 {
        registers.set(
            Register(number),
            0x1111_0000_0000_0000 * (u64::from(number) % 13 + 1),
        );
    }
    registers.set(RIP, 0x40_0000 + byte);
    for register in unknown {
        registers.clear(*register);
    }
    registers
}

fn interpreted(
    row: &Row<'_>,
    registers: &Registers,
    memory: &DistinctWords,
) -> Result<interpret::CallerFrame, StepError> {
    let frame = FrameContext {
        abi: ABI,
        registers,
        memory,
        bias: LoadBias(0),
        pac_mask: 0,
    };
    interpret::step(row, &frame)
}

/// The caller of a frame by the parts of a packed row, for all registers: the CFA, and the
/// registers. `None` if the CFA or the return address has no value.
fn by_parts(
    packed: PackedRow,
    registers: &Registers,
    memory: &DistinctWords,
) -> Option<(u64, Registers)> {
    let form = packed.form()?;
    let mut caller = Registers::new();
    if form == PackedForm::Signal {
        let record = ARCH.spec().signal_record?;
        for number in 0..17 {
            let at = record.address(registers.get(RSP)?, Register(number))?;
            if let Some(value) = memory.word(at) {
                caller.set(Register(number), value);
            }
        }
        for (register, value) in registers.iter().filter(|(register, _)| register.0 > 16) {
            caller.set(register, value);
        }
        caller.get(RIP)?;
        return Some((memory.word(registers.get(RSP)? + 160)?, caller));
    }
    let source = form.cfa(registers.get(RIP)?)?;
    let base = registers.get(match source.base {
        CfaBase::StackPointer => RSP,
        CfaBase::FramePointer => RBP,
    })?;
    let at = base.wrapping_add_signed(source.offset);
    let cfa = if source.is_loaded {
        memory.word(at)?
    } else {
        at
    };
    let saved_base = registers
        .get(RBP)
        .map_or(cfa, |frame_pointer| packed.saved_base(cfa, frame_pointer));
    for number in SavedRegisters::REGISTERS {
        let value = match packed.saved().get(number)? {
            SavedRegister::Unchanged => registers.get(Register(number)),
            SavedRegister::Below(bytes) => memory.word(saved_base.wrapping_sub(bytes)),
            SavedRegister::Undefined => None,
        };
        if let Some(value) = value {
            caller.set(Register(number), value);
        }
    }
    caller.set(RSP, cfa);
    caller.set(RIP, memory.word(cfa.wrapping_sub(8))?);
    Some((cfa, caller))
}

/// Compares a packed row with the interpreter's result for a row in one frame: all registers, and
/// those of [`PackedRow::step`].
fn compare(packed: PackedRow, row: &Row<'_>, registers: &Registers, memory: &DistinctWords) {
    let expected = interpreted(row, registers, memory);
    if packed == PackedRow::OUTERMOST {
        assert!(expected.is_err() || expected.is_ok_and(|caller| caller.return_address.is_none()));
        return;
    }
    let found = by_parts(packed, registers, memory);
    let all = expected.ok().map(|caller| (caller.cfa.0, caller.registers));
    assert_eq!(found, all, "{packed:x?} {row:?}");
    let known = |registers: &Registers| {
        Some(FrameRegisters {
            code: registers.get(RIP)?,
            stack_pointer: registers.get(RSP)?,
            frame_pointer: registers.get(RBP)?,
        })
    };
    let Some(known_frame) = known(registers) else {
        return;
    };
    let step = packed.step(ARCH, known_frame, |addr| memory.word(addr));
    assert_eq!(step, all.and_then(|(_, caller)| known(&caller)), "{row:?}");
}

const EVERYTHING: DistinctWords = DistinctWords { start: 0 };

/// Checks a word: it is not a row, or has one meaning, and is what its row packs to.
fn check_word(word: u64) -> bool {
    let packed = PackedRow::from_word(word);
    let buffer = &mut PackedExpressions::default();
    let Some(row) = packed.row(ARCH, buffer) else {
        assert_eq!(packed.form(), None, "{word:#x}");
        return false;
    };
    assert_eq!(
        PackedRow::from_row(&row, ARCH, RegisterScope::All),
        Some(packed)
    );
    let byte = word >> 7 & 15;
    compare(packed, &row, &frame(&[], byte), &EVERYTHING);
    true
}

/// The words with all values of each pair of fields, or a sample of the largest field's. The other
/// fields are zero, all ones, or mixed.
fn words() -> impl Iterator<Item = u64> {
    let fields: Vec<(u32, u64)> = (0..6).map(|at| (5 * at, 31)).collect();
    let rest = [(30, 3), (33, 0xffff)];
    let fields = [fields, rest.to_vec()].concat();
    let backgrounds = [
        0,
        (1 << 32) - 1,
        0x1_ffff << 32,
        0x1_2345_6789_abcd,
        0xa_5a5a_5a5a_5a5a,
    ];
    let mut pairs = Vec::new();
    for (n, first) in fields.iter().enumerate() {
        pairs.extend(fields.iter().skip(n + 1).map(|second| (*first, *second)));
    }
    let with_background = pairs
        .into_iter()
        .flat_map(move |pair| backgrounds.map(|background| (pair, background)));
    with_background.flat_map(|(((at, mask), (other_at, other_mask)), background)| {
        let rest = background & ((1 << PackedRow::BITS) - 1) & !(1 << 32);
        let rest = rest & !(mask << at) & !(other_mask << other_at);
        (0..=mask).flat_map(move |value| {
            let others = sample(0..=other_mask, if other_mask > 31 { 251 } else { 1 });
            others.map(move |other| rest | value << at | other << other_at)
        })
    })
}

#[test]
fn all_words_mean_what_their_rows_mean() {
    let (mut rows, mut others) = (0_u32, 0_u32);
    for word in words() {
        let count = if check_word(word) {
            &mut rows
        } else {
            &mut others
        };
        *count += 1;
    }
    assert!(rows > 100_000 && others > 20_000, "{rows} {others}");
    for bit in PackedRow::BITS..64 {
        assert!(!check_word(1 << bit | 0x4_0000_0040), "{bit}");
    }
    assert!(!check_word(0));
}

/// The example in the documentation.
#[test]
fn the_example_is_the_row() {
    let buffer = &mut PackedExpressions::default();
    let row = PackedRow::from_word(0x4_0000_0040)
        .row(ARCH, buffer)
        .unwrap();
    let mut expected = usual(RSP, 16);
    set(&mut expected, RBP, RegisterRule::Offset(-16));
    assert_eq!(row, expected);
}

/// Words of each form, in frames that know any of the registers and have any of the memory.
#[test]
fn unknown_registers_and_missing_words_have_no_values() {
    let forms = [
        0x4_0000_0000,
        0x6_4000_0000,
        0x1_fffc_8000_0000,
        0xb6_c000_0000,
        2 << 33 | 3 << 30,
    ];
    let mut compared = 0;
    for form in forms {
        for saved in [0, 0x3fff_ffff, 0x2108_4421, 0x1084_4221] {
            let packed = PackedRow::from_word(form | saved);
            let buffer = &mut PackedExpressions::default();
            let Some(row) = packed.row(ARCH, buffer) else {
                continue;
            };
            for set in 0..32_u32 {
                let registers = [RBP, RSP, Register(3), Register(12), Register(17)];
                let unknown = registers
                    .into_iter()
                    .zip(0..)
                    .filter(|(_, n)| set >> n & 1 != 0);
                let unknown: Vec<Register> = unknown.map(|(register, _)| register).collect();
                let registers = frame(&unknown, 11);
                let starts = [0, 0x7777_0000_0000_0000, 0x8888_0000_0000_0000, u64::MAX];
                let near = registers.get(RSP).map(|at| at + 160);
                for start in starts.into_iter().chain(near) {
                    compare(packed, &row, &registers, &DistinctWords { start });
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

fn set<'e>(row: &mut Row<'e>, register: Register, rule: RegisterRule<'e>) {
    row.set_rule(register, Some(rule)).unwrap();
}

/// A row with a return address right below a CFA above a register.
fn usual(register: Register, offset: i64) -> Row<'static> {
    let mut row = Row::new(RIP);
    row.cfa = CfaRule::RegisterOffset { register, offset };
    set(&mut row, RIP, RegisterRule::Offset(-8));
    row
}

/// Packs a row, from both of its forms.
fn pack(row: &Row<'_>, scope: RegisterScope) -> Option<PackedRow> {
    let mut bytes = Vec::new();
    encode(row, &mut bytes);
    let packed = PackedRow::from_row(row, ARCH, scope);
    assert_eq!(
        PackedRow::from_encoded(&bytes, ARCH, scope),
        packed,
        "{row:?}"
    );
    packed
}

/// What packs and what does not, at the borders of all fields.
#[test]
fn rows_of_other_forms_do_not_pack() {
    use RegisterRule::{Offset, SameValue, Undefined, ValOffset};
    use RegisterScope::{All, StackAndFramePointer};
    let with = |register, rule| {
        let mut row = usual(RSP, 64);
        set(&mut row, Register(register), rule);
        row
    };
    let expression = |bytes: &'static [u8]| RegisterRule::Expression(Expression(bytes));
    // A row, and whether it packs for all registers, and for a walk's.
    for (row, for_all, for_walks) in [
        (usual(RSP, 8), true, true),
        (usual(RBP, 8 * 0xffff), true, true),
        (usual(RSP, 8 * 0x1_0000), false, false),
        (usual(RSP, 0), false, false),
        (usual(RSP, -8), false, false),
        (usual(RSP, 12), false, false),
        (usual(Register(3), 16), false, false),
        (usual(RIP, 16), false, false),
        (with(3, Offset(-240)), true, true),
        (with(3, Offset(-248)), false, true),
        (with(6, Offset(-248)), false, false),
        (with(6, Offset(-8)), true, true),
        (with(6, Offset(0)), false, false),
        (with(6, Offset(8)), false, false),
        (with(6, Offset(-20)), false, false),
        (with(6, Offset(i64::MIN)), false, false),
        (with(6, ValOffset(-16)), false, false),
        (with(6, RegisterRule::Register(Register(3))), false, false),
        (with(6, expression(&[0x76, 0x70])), false, false),
        (with(6, SameValue), true, true),
        (with(6, Undefined), true, true),
        (with(0, Undefined), true, true),
        (with(0, SameValue), false, true),
        (with(0, Offset(-16)), false, true),
        (with(17, Undefined), true, true),
        (with(17, SameValue), false, true),
        (with(7, ValOffset(0)), false, false),
        (with(7, Undefined), false, false),
        (with(16, Offset(-16)), false, false),
        (with(16, SameValue), false, false),
        (with(16, ValOffset(-8)), false, false),
    ] {
        assert_eq!(pack(&row, All).is_some(), for_all, "{row:?}");
        assert_eq!(
            pack(&row, StackAndFramePointer).is_some(),
            for_walks,
            "{row:?}"
        );
    }
    let changes: [fn(&mut Row<'_>); 9] = [
        |row| row.signal_frame = true,
        |row| row.ra_state = RaState::Signed,
        |row| row.cfa = CfaRule::Undefined,
        |row| row.cfa = CfaRule::Expression(Expression(&[0x77, 8])),
        |row| row.cfa = CfaRule::Expression(Expression(&[0x77, 8, 6])),
        |row| row.cfa = CfaRule::Expression(Expression(&[0x76, 0x74, 6])),
        |row| row.cfa = CfaRule::Expression(Expression(&[0x76, 0x78, 6, 6])),
        |row| row.cfa = CfaRule::Expression(Expression(&[])),
        |row| row.return_address = RSP,
    ];
    for change in changes {
        let mut row = usual(RSP, 64);
        change(&mut row);
        for scope in [All, StackAndFramePointer] {
            assert_eq!(pack(&row, scope), None, "{row:?}");
        }
    }
    // Another column's register has the return address, too: a walk that keeps it needs the row.
    let mut column = with(5, Offset(-8));
    column.return_address = Register(5);
    assert_eq!(pack(&column, All), None);
    assert_eq!(
        pack(&column, StackAndFramePointer),
        pack(&usual(RSP, 64), All)
    );
    assert_eq!(
        PackedRow::from_row(&usual(RSP, 64), Arch::Aarch64, All),
        None
    );
}

/// Registers that a walk does not keep are not in its packed rows, so that there are few.
#[test]
fn a_walks_rows_have_only_its_registers() {
    let mut row = usual(RSP, 64);
    set(&mut row, RBP, RegisterRule::Offset(-16));
    let few = pack(&row, RegisterScope::All);
    set(&mut row, Register(3), RegisterRule::Offset(-24));
    assert_ne!(pack(&row, RegisterScope::All), few);
    assert_eq!(pack(&row, RegisterScope::StackAndFramePointer), few);
}

#[test]
fn an_undefined_return_address_is_the_end() {
    for signal_frame in [false, true] {
        let mut row = usual(Register(12), 3);
        set(&mut row, RIP, RegisterRule::Undefined);
        set(&mut row, RSP, RegisterRule::Undefined);
        row.signal_frame = signal_frame;
        assert_eq!(pack(&row, RegisterScope::All), Some(PackedRow::OUTERMOST));
    }
}

/// The row for glibc's trampoline, changed.
#[test]
fn a_signal_frame_has_all_registers_where_the_kernel_puts_them() {
    let buffer = &mut PackedExpressions::default();
    let trampoline = PackedRow::SIGNAL.row(ARCH, buffer).unwrap();
    let after = |change: &dyn Fn(&mut Row<'_>), scope| {
        let mut row = trampoline;
        change(&mut row);
        pack(&row, scope)
    };
    let elsewhere = RegisterRule::Expression(Expression(&[0x77, 0x28]));
    for scope in [RegisterScope::All, RegisterScope::StackAndFramePointer] {
        assert_eq!(after(&|_| {}, scope), Some(PackedRow::SIGNAL));
        for number in 0..17 {
            let register = Register(number);
            let is_kept = [RBP, RSP, RIP].contains(&register);
            for rule in [None, Some(RegisterRule::SameValue), Some(elsewhere)] {
                let change = |row: &mut Row<'_>| {
                    row.set_rule(register, rule).unwrap();
                };
                let changed = after(&change, scope);
                // 40 is r8's offset.
                let is_same = (number, rule) == (8, Some(elsewhere));
                let is_right = is_same || scope != RegisterScope::All && !is_kept;
                assert_eq!(changed.is_some(), is_right, "{number} {rule:?}");
            }
        }
        assert_eq!(after(&|row| row.signal_frame = false, scope), None);
        assert_eq!(after(&|row| row.return_address = Register(15), scope), None);
        assert_eq!(after(&|row| row.ra_state = RaState::Signed, scope), None);
        for cfa in [
            &[0x77, 0xa0, 0x01][..],
            &[0x77, 0xa8, 0x01, 6],
            &[0x76, 0xa0, 0x01, 6],
        ] {
            let cfa = CfaRule::Expression(Expression(cfa));
            assert_eq!(after(&|row| row.cfa = cfa, scope), None);
        }
    }
    let more = |row: &mut Row<'_>| set(row, Register(17), RegisterRule::SameValue);
    assert_eq!(after(&more, RegisterScope::All), None);
}

#[test]
fn a_malformed_row_does_not_pack() {
    let mut bytes = Vec::new();
    encode(&usual(RSP, 16), &mut bytes);
    for len in 0..bytes.len() {
        let packed = PackedRow::from_encoded(&bytes[..len], ARCH, RegisterScope::All);
        assert_eq!(packed, None, "{len}");
    }
    bytes.push(7 << 5);
    assert_eq!(
        PackedRow::from_encoded(&bytes, ARCH, RegisterScope::All),
        None
    );
}
