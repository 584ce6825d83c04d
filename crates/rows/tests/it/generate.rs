//! Random rows and tables, as parts: a row borrows its expressions.

use proptest::collection::vec;
use proptest::prelude::*;
use unspool_rows::arch::AddressSize;
use unspool_rows::table::{FdeHeader, RowStart};
use unspool_rows::{
    Abi, Arch, CfaRule, Endian, Expression, Pointer, RaState, Register, RegisterRule, Row, Table,
    Vaddr, text,
};

/// The limit of addresses in generated tables.
pub(crate) const LIMIT: u64 = 80;

/// The CFA rule of a row.
#[derive(Debug, Clone)]
enum CfaRuleInput {
    Undefined,
    RegisterOffset(u16, i64),
    Expression(Vec<u8>),
}

/// The rule of a register.
#[derive(Debug, Clone)]
enum RegisterRuleInput {
    Undefined,
    SameValue,
    Offset(i64),
    ValOffset(i64),
    Register(u16),
    Expression(Vec<u8>),
    ValExpression(Vec<u8>),
}

/// The parts of a row.
#[derive(Debug, Clone)]
pub(crate) struct RowParts {
    cfa: CfaRuleInput,
    return_address: Option<u16>,
    signal_frame: bool,
    ra_state: RaState,
    args_size: u64,
    rules: Vec<(u16, RegisterRuleInput)>,
}

impl RowParts {
    fn with_row_of<T>(&self, abi: Abi, use_it: impl FnOnce(&Row<'_>) -> T) -> T {
        let usual = abi.arch.spec().return_address;
        let mut row = Row::new(self.return_address.map_or(usual, Register));
        row.cfa = match &self.cfa {
            CfaRuleInput::Undefined => CfaRule::Undefined,
            CfaRuleInput::RegisterOffset(register, offset) => CfaRule::RegisterOffset {
                register: Register(*register),
                offset: *offset,
            },
            CfaRuleInput::Expression(bytes) => CfaRule::Expression(Expression(bytes)),
        };
        row.signal_frame = self.signal_frame;
        row.ra_state = self.ra_state;
        row.args_size = self.args_size;
        for (register, rule) in &self.rules {
            let rule = match rule {
                RegisterRuleInput::Undefined => RegisterRule::Undefined,
                RegisterRuleInput::SameValue => RegisterRule::SameValue,
                RegisterRuleInput::Offset(offset) => RegisterRule::Offset(*offset),
                RegisterRuleInput::ValOffset(offset) => RegisterRule::ValOffset(*offset),
                RegisterRuleInput::Register(other) => RegisterRule::Register(Register(*other)),
                RegisterRuleInput::Expression(bytes) => RegisterRule::Expression(Expression(bytes)),
                RegisterRuleInput::ValExpression(bytes) => {
                    RegisterRule::ValExpression(Expression(bytes))
                }
            };
            row.set_rule(Register(*register), Some(rule)).unwrap();
        }
        use_it(&row)
    }

    /// Makes the row, and passes it on.
    pub(crate) fn with_row<T>(&self, use_it: impl FnOnce(&Row<'_>) -> T) -> T {
        self.with_row_of(X86_64, use_it)
    }
}

/// Rows rebuilt in another way.
pub(crate) trait WithRow {
    /// Makes an equal row by setting the rules in descending order.
    fn clone_by_rules(&self, use_it: impl FnOnce(&Row<'_>));
}

impl WithRow for Row<'_> {
    fn clone_by_rules(&self, use_it: impl FnOnce(&Row<'_>)) {
        let mut again = Row::new(self.return_address);
        again.cfa = self.cfa;
        again.signal_frame = self.signal_frame;
        again.ra_state = self.ra_state;
        again.args_size = self.args_size;
        let rules: Vec<_> = self.rules().collect();
        for (register, rule) in rules.into_iter().rev() {
            again
                .set_rule(register, Some(RegisterRule::Undefined))
                .unwrap();
            again.set_rule(register, Some(rule)).unwrap();
        }
        use_it(&again);
    }
}

const X86_64: Abi = Abi::X86_64;

fn abis() -> impl Strategy<Value = Abi> {
    let arch = prop_oneof![
        4 => proptest::sample::select(&Arch::KNOWN[..]),
        // A machine that has an `ArchSpec` of its own is not `Other`: `from_elf` decides.
        1 => (any::<u16>(), any::<bool>()).prop_map(|(machine, wide)| {
            Arch::from_elf(machine, if wide { AddressSize::W64 } else { AddressSize::W32 })
        }),
    ];
    (arch, any::<bool>()).prop_map(|(arch, big)| Abi {
        arch,
        endian: if big { Endian::Big } else { Endian::Little },
    })
}

fn registers() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0..40_u16, 1 => 40..400_u16, 1 => any::<u16>()]
}

fn offsets() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => (-20..20_i64).prop_map(|n| n * 8),
        1 => any::<i64>(),
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
    ]
}

/// Bytes that are operations in their shortest form, operations in a longer form, or anything.
fn expressions() -> impl Strategy<Value = Vec<u8>> {
    let operations = vec(
        prop_oneof![
            (0..32_u8).prop_map(|n| format!("lit{n}")),
            (0..32_u8, any::<i64>()).prop_map(|(n, v)| format!("breg{n} {v}")),
            (any::<u64>(), any::<i64>()).prop_map(|(n, v)| format!("bregx {n} {v}")),
            any::<u8>().prop_map(|v| format!("const1u {v}")),
            any::<i8>().prop_map(|v| format!("const1s {v}")),
            any::<u16>().prop_map(|v| format!("const2u {v}")),
            any::<i16>().prop_map(|v| format!("const2s {v}")),
            any::<u32>().prop_map(|v| format!("const4u {v}")),
            any::<i32>().prop_map(|v| format!("const4s {v}")),
            any::<u64>().prop_map(|v| format!("const8u {v}; constu {v}; plus_uconst {v}")),
            any::<i64>().prop_map(|v| format!("const8s {v}; consts {v}")),
            any::<u32>().prop_map(|v| format!("addr {v}")),
            any::<i16>().prop_map(|v| format!("skip {v}; bra {v}")),
            any::<u8>().prop_map(|v| format!("pick {v}; deref_size {v}")),
            Just("deref; dup; drop; over; swap; rot; abs; neg; not; nop".to_owned()),
            Just("and; div; minus; mod; mul; or; plus; shl; shr; shra; xor".to_owned()),
            Just("eq; ge; gt; le; lt; ne".to_owned()),
        ],
        0..6,
    );
    // Assembled for x86-64: under another word size or byte order the bytes mean something
    // else, or nothing.
    let assembled = operations.prop_map(|ops| text::parse_expression(&ops.join(";"), X86_64));
    prop_oneof![
        4 => assembled.prop_map(|bytes| bytes.unwrap()),
        1 => vec(prop_oneof![Just(0x10_u8), Just(0x80), Just(0), Just(0x92)], 0..8),
        1 => vec(any::<u8>(), 0..12),
    ]
}

/// The parts of any row.
pub(crate) fn row_parts() -> impl Strategy<Value = RowParts> {
    let cfa = prop_oneof![
        1 => Just(CfaRuleInput::Undefined),
        6 => (registers(), offsets()).prop_map(|(r, n)| CfaRuleInput::RegisterOffset(r, n)),
        2 => expressions().prop_map(CfaRuleInput::Expression),
    ];
    let rule = prop_oneof![
        Just(RegisterRuleInput::Undefined),
        Just(RegisterRuleInput::SameValue),
        offsets().prop_map(RegisterRuleInput::Offset),
        offsets().prop_map(RegisterRuleInput::ValOffset),
        registers().prop_map(RegisterRuleInput::Register),
        expressions().prop_map(RegisterRuleInput::Expression),
        expressions().prop_map(RegisterRuleInput::ValExpression),
    ];
    let ra_state = prop_oneof![
        4 => Just(RaState::Plain),
        1 => Just(RaState::Signed),
        1 => Just(RaState::SignedWithPc),
    ];
    let rules = prop_oneof![
        9 => vec((registers(), rule.clone()), 0..6),
        1 => vec((registers(), rule), Row::MAX_RULES),
    ];
    let args_size = prop_oneof![4 => Just(0), 1 => 1..64_u64, 1 => any::<u64>()];
    let return_address = proptest::option::weighted(0.2, registers());
    (
        cfa,
        return_address,
        any::<bool>(),
        ra_state,
        args_size,
        rules,
    )
        .prop_map(
            |(cfa, return_address, signal_frame, ra_state, args_size, rules)| RowParts {
                cfa,
                return_address,
                signal_frame,
                ra_state,
                args_size,
                rules,
            },
        )
}

/// An entry: start, rows with the length of each, personality, LSDA.
#[derive(Debug, Clone)]
struct EntryParts {
    start: u64,
    rows: Vec<(u64, usize)>,
    personality: Option<Pointer>,
    lsda: Option<u64>,
    /// Whether an entry without rows gets one row.
    covers_nothing: bool,
}

/// The parts of a table: distinct rows, and entries that use them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableParts {
    abi: Option<Abi>,
    base: u64,
    rows: Vec<RowParts>,
    entries: Vec<EntryParts>,
}

impl TableParts {
    pub(crate) fn build(&self) -> Table {
        let abi = self.abi.unwrap_or(X86_64);
        let mut table = Table::new(abi);
        let mut ids = Vec::new();
        for row in &self.rows {
            ids.push(row.with_row_of(abi, |row| table.intern(row).unwrap()));
        }
        for entry in &self.entries {
            let mut at = self.base + entry.start;
            let mut rows = Vec::new();
            for (len, row) in &entry.rows {
                let row = ids[row % ids.len()];
                let start = Vaddr(at);
                rows.push(RowStart { start, row });
                at += len;
            }
            if rows.is_empty() && entry.covers_nothing {
                let start = Vaddr(at);
                rows.push(RowStart { start, row: ids[0] });
            }
            let header = FdeHeader {
                start: Vaddr(self.base + entry.start),
                end: Vaddr(at),
                personality: entry.personality,
                lsda: entry.lsda.map(Vaddr),
                origin: 0,
            };
            table.push(header, &rows).unwrap();
        }
        table
    }
}

fn entries() -> impl Strategy<Value = Vec<EntryParts>> {
    let personality = proptest::option::weighted(
        0.3,
        (0..3_u64, any::<bool>()).prop_map(|(n, indirect)| {
            if indirect {
                Pointer::Indirect(Vaddr(n))
            } else {
                Pointer::Direct(Vaddr(n))
            }
        }),
    );
    let lsda = proptest::option::weighted(0.3, 0..3_u64);
    let rows = vec((1..8_u64, 0..8_usize), 0..5);
    let entry = (0..40_u64, rows, personality, lsda, any::<bool>());
    let entry = entry.prop_map(
        |(start, rows, personality, lsda, covers_nothing)| EntryParts {
            start,
            rows,
            personality,
            lsda,
            covers_nothing,
        },
    );
    vec(entry, 0..6)
}

/// The parts of any table.
pub(crate) fn table_parts() -> impl Strategy<Value = TableParts> {
    let base = prop_oneof![Just(0), Just(0x40_0000), Just(u64::MAX - LIMIT)];
    (abis(), base, vec(row_parts(), 1..6), entries()).prop_map(|(abi, base, rows, entries)| {
        TableParts {
            abi: Some(abi),
            base,
            rows,
            entries,
        }
    })
}

/// Two tables over the same few addresses and rows, often equal in part.
pub(crate) fn table_pair() -> impl Strategy<Value = (TableParts, TableParts)> {
    let changed = vec(any::<bool>(), 8);
    (vec(row_parts(), 1..4), entries(), entries(), changed).prop_map(
        |(rows, entries, others, changed)| {
            let mut left = TableParts {
                abi: None,
                base: 0,
                rows,
                entries,
            };
            let mut right = left.clone();
            for (slot, (other, changed)) in right
                .entries
                .iter_mut()
                .zip(others.into_iter().zip(changed))
            {
                if changed {
                    *slot = other;
                }
            }
            // Row ids differ where the rows are equal.
            right.rows.reverse();
            for (_, row) in right.entries.iter_mut().flat_map(|entry| &mut entry.rows) {
                *row = left.rows.len() - 1 - *row % left.rows.len();
            }
            if left.rows.len().is_multiple_of(2) {
                std::mem::swap(&mut left, &mut right);
            }
            (left, right)
        },
    )
}
