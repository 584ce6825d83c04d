//! Generated sections: the two readers compared with each other, and with gimli.

use gimli::UnwindSection;
use proptest::prelude::*;
use unspool_cfi::evaluate::{self, Evaluator};
use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{
    self as cfi, CfiEntry, CfiError, CfiSection, Hdr, Lookup, ParsedFde, SectionKind, read_table,
    read_tables,
};
use unspool_rows::leb128::{put_signed, put_unsigned};
use unspool_rows::table::Span;
use unspool_rows::{CfaRule, Register, RegisterRule, Vaddr};
use unspool_testing::is_thorough;

use crate::build::{ADDRESS, CieSpec, DATA, Format, SectionBuilder, TEXT, X86_64};
use crate::lookup::check_section;

/// A call frame instruction, with its operands as stored.
#[derive(Debug, Clone)]
enum Op {
    Advance(u8, u32),
    SetLoc(u32),
    /// Opcode, and its operands.
    DefCfa(u8, u16, i32),
    DefCfaRegister(u16),
    DefCfaOffset(u8, i32),
    /// Opcode, register, operand.
    Rule(u8, u16, i32),
    ShortOffset(u8, u32),
    Register(u16, u16),
    Restore(u16),
    ShortRestore(u8),
    Expression(u8, u16, Vec<u8>),
    CfaExpression(Vec<u8>),
    Remember,
    RestoreState,
    ArgsSize(u32),
    Nop,
}

fn put(b: &mut SectionBuilder, op: &Op) {
    match op {
        Op::Advance(0x40, delta) => b.bytes.push(0x40 | (delta % 64) as u8),
        Op::Advance(opcode, delta) => {
            b.bytes.push(*opcode);
            let size = 1 << (opcode - 2);
            b.fixed(u64::from(*delta), size);
        }
        Op::SetLoc(to) => {
            b.bytes.push(0x01);
            b.fixed(u64::from(*to), 8);
        }
        Op::DefCfa(opcode, register, offset) | Op::Rule(opcode, register, offset) => {
            b.bytes.push(*opcode);
            put_unsigned(&mut b.bytes, u64::from(*register));
            put_operand(b, *opcode, *offset);
        }
        Op::DefCfaRegister(register) => {
            b.bytes.push(0x0d);
            put_unsigned(&mut b.bytes, u64::from(*register));
        }
        Op::DefCfaOffset(opcode, offset) => {
            b.bytes.push(*opcode);
            put_operand(b, *opcode, *offset);
        }
        Op::ShortOffset(register, offset) => {
            b.bytes.push(0x80 | (register % 64));
            put_unsigned(&mut b.bytes, u64::from(*offset));
        }
        Op::Register(register, other) => {
            b.bytes.push(0x09);
            put_unsigned(&mut b.bytes, u64::from(*register));
            put_unsigned(&mut b.bytes, u64::from(*other));
        }
        Op::Restore(register) => {
            b.bytes.push(0x06);
            put_unsigned(&mut b.bytes, u64::from(*register));
        }
        Op::ShortRestore(register) => b.bytes.push(0xc0 | (register % 64)),
        Op::Expression(opcode, register, bytes) => {
            b.bytes.push(*opcode);
            put_unsigned(&mut b.bytes, u64::from(*register));
            put_unsigned(&mut b.bytes, bytes.len() as u64);
            b.bytes.extend(bytes);
        }
        Op::CfaExpression(bytes) => {
            b.bytes.push(0x0f);
            put_unsigned(&mut b.bytes, bytes.len() as u64);
            b.bytes.extend(bytes);
        }
        Op::Remember => b.bytes.push(0x0a),
        Op::RestoreState => b.bytes.push(0x0b),
        Op::ArgsSize(size) => {
            b.bytes.push(0x2e);
            put_unsigned(&mut b.bytes, u64::from(*size));
        }
        Op::Nop => b.bytes.push(0),
    }
}

/// The operand of an instruction that takes a signed or an unsigned number, or none.
fn put_operand(b: &mut SectionBuilder, opcode: u8, operand: i32) {
    match opcode {
        0x07 | 0x08 => {}
        0x11 | 0x12 | 0x13 | 0x15 => put_signed(&mut b.bytes, i64::from(operand)),
        _ => put_unsigned(&mut b.bytes, u64::from(operand.unsigned_abs())),
    }
}

fn register() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0_u16..20, 1 => 60_u16..70, 1 => any::<u16>()]
}

fn op() -> impl Strategy<Value = Op> {
    let advance = prop_oneof![Just(0x40_u8), Just(2), Just(3), Just(4)];
    let small = prop_oneof![9 => 0_u32..40, 1 => 0_u32..400];
    let bytes = prop::collection::vec(any::<u8>(), 0..5);
    let rules = prop::sample::select(vec![0x05_u8, 0x07, 0x08, 0x11, 0x14, 0x15]);
    prop_oneof![
        6 => (advance, small).prop_map(|(opcode, delta)| Op::Advance(opcode, delta)),
        1 => (0x1000_u32..0x1200).prop_map(Op::SetLoc),
        2 => (prop_oneof![Just(0x0c_u8), Just(0x12)], register(), any::<i32>())
            .prop_map(|(opcode, register, offset)| Op::DefCfa(opcode, register, offset)),
        2 => register().prop_map(Op::DefCfaRegister),
        3 => (prop_oneof![Just(0x0e_u8), Just(0x13)], any::<i32>())
            .prop_map(|(opcode, offset)| Op::DefCfaOffset(opcode, offset)),
        6 => (rules, register(), any::<i32>())
            .prop_map(|(opcode, register, operand)| Op::Rule(opcode, register, operand)),
        3 => (any::<u8>(), any::<u32>())
            .prop_map(|(register, offset)| Op::ShortOffset(register, offset)),
        1 => (register(), register()).prop_map(|(register, other)| Op::Register(register, other)),
        2 => register().prop_map(Op::Restore),
        2 => any::<u8>().prop_map(Op::ShortRestore),
        1 => (prop_oneof![Just(0x10_u8), Just(0x16)], register(), bytes.clone())
            .prop_map(|(opcode, register, bytes)| Op::Expression(opcode, register, bytes)),
        1 => bytes.prop_map(Op::CfaExpression),
        2 => Just(Op::Remember),
        2 => Just(Op::RestoreState),
        1 => any::<u32>().prop_map(Op::ArgsSize),
        1 => Just(Op::Nop),
    ]
}

/// Few different instructions in few orders, so that equal rows are often followed by equal
/// instructions. Every restored state was saved.
fn frequent_ops() -> impl Strategy<Value = Vec<Op>> {
    let numbers = || prop::sample::select(vec![8_i32, 16]);
    let row = prop_oneof![
        2 => numbers().prop_map(|offset| vec![Op::DefCfaOffset(0x0e, offset)]),
        1 => Just(vec![Op::DefCfaRegister(6)]),
        1 => Just(vec![Op::CfaExpression(vec![0x77, 8])]),
        2 => (numbers(), numbers())
            .prop_map(|(a, b)| vec![Op::Rule(0x11, 3, a), Op::Rule(0x11, 6, b)]),
        1 => Just(vec![Op::Restore(3)]),
        2 => Just(vec![Op::Remember]),
        2 => Just(vec![Op::RestoreState]),
        1 => Just(vec![Op::ArgsSize(16)]),
    ];
    prop::collection::vec(row, 0..12).prop_map(|rows| {
        let mut depth = 0;
        let mut is_possible = |op: &Op| {
            match op {
                Op::Remember => depth += 1,
                Op::RestoreState if depth == 0 => return false,
                Op::RestoreState => depth -= 1,
                _ => {}
            }
            true
        };
        let advanced = rows.into_iter().flat_map(|mut row| {
            row.push(Op::Advance(0x40, 1));
            row
        });
        advanced.filter(|op| is_possible(op)).collect()
    })
}

/// One entry of a generated section.
#[derive(Debug, Clone)]
struct RandomFunction {
    start: u64,
    length: u64,
    ops: Vec<Op>,
    /// Bytes that follow the instructions, right or wrong.
    tail: Vec<u8>,
    /// Whether the entry has the second CIE.
    second: bool,
}

fn function() -> impl Strategy<Value = RandomFunction> {
    let tail = prop_oneof![
        5 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 1..6),
    ];
    (
        0x1000_u64..0x1180,
        0_u64..0x90,
        prop::collection::vec(op(), 0..16),
        tail,
        any::<bool>(),
    )
        .prop_map(|(start, length, ops, tail, second)| RandomFunction {
            start,
            length,
            ops,
            tail,
            second,
        })
}

fn cies() -> impl Strategy<Value = [Vec<Op>; 2]> {
    let ops = || prop::collection::vec(op(), 0..5);
    (ops(), ops()).prop_map(|(first, second)| [first, second])
}

fn section(cies: &[Vec<Op>; 2], functions: &[RandomFunction]) -> SectionBuilder {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let offsets: Vec<u64> = cies
        .iter()
        .enumerate()
        .map(|(n, ops)| {
            let mut instructions = SectionBuilder::new(SectionKind::EhFrame, X86_64);
            instructions.bytes.extend([0x0c, 7, 8, 0x90, 1]);
            ops.iter().for_each(|op| put(&mut instructions, op));
            b.cie(&CieSpec {
                code_alignment: 1 + n as u64 * 3,
                instructions: instructions.bytes,
                ..CieSpec::plain()
            })
        })
        .collect();
    for function in functions {
        b.fde(
            Format::Dwarf32,
            offsets[usize::from(function.second)],
            |b| {
                b.fixed(function.start, 8);
                b.fixed(function.length, 8);
                function.ops.iter().for_each(|op| put(b, op));
                b.bytes.extend(&function.tail);
            },
        );
    }
    b
}

/// One entry of a crowd: many entries with few instruction lists and few CIEs.
#[derive(Debug, Clone)]
struct CrowdEntry {
    start: u64,
    length: u64,
    /// The indices of its list and its CIE.
    body: prop::sample::Index,
    cie: prop::sample::Index,
}

fn member() -> impl Strategy<Value = CrowdEntry> {
    let start = prop_oneof![
        8 => 0x1000_u64..0x1200,
        1 => u64::MAX - 0x100..u64::MAX, // advances may wrap
    ];
    let length = prop_oneof![8 => 0_u64..0x90, 1 => 0_u64..0x1000];
    let any = any::<prop::sample::Index>;
    (start, length, any(), any()).prop_map(|(start, length, body, cie)| CrowdEntry {
        start,
        length,
        body,
        cie,
    })
}

/// The lists and the CIEs have the same offsets in every crowd of the same size.
fn crowd(cies: &[Vec<Op>; 2], bodies: &[Vec<Op>], members: &[CrowdEntry]) -> SectionBuilder {
    let functions: Vec<RandomFunction> = members
        .iter()
        .map(|member| RandomFunction {
            start: member.start,
            length: member.length,
            ops: member.body.get(bodies).clone(),
            tail: Vec::new(),
            second: member.cie.index(2) == 1,
        })
        .collect();
    section(cies, &functions)
}

/// The start and end of an entry, and its rows in printed form.
type Read = (Vaddr, Vaddr, Vec<(Vaddr, String)>);

/// An entry evaluated alone; `None` for a CIE.
fn alone(section: &CfiSection<'_>, entry: CfiEntry<'_>) -> Result<Option<Read>, CfiError> {
    let at = entry.cie.unwrap_or(entry.offset);
    let cie = cfi::Cie::parse_at(section, at)
        .and_then(|cie| Ok((evaluate::initial_row(section, &cie)?, cie)))
        .map_err(|error| entry.cie.map_or(error, CfiError::BadCie));
    let (initial, cie) = cie?;
    if entry.cie.is_none() {
        return Ok(None);
    }
    let fde = ParsedFde::parse(section, &cie, entry)?;
    let mut evaluator = Evaluator::new();
    let mut rows = evaluator.rows(section, &cie, &initial, &fde);
    let mut all = Vec::new();
    while let Some(range) = rows.advance()? {
        let row = rows.row().display(section.abi).to_string();
        all.push((range.start, row));
    }
    Ok(Some((fde.start, fde.end, all)))
}

/// A row in a form common to both readers.
#[derive(Debug, PartialEq)]
struct Common {
    start: u64,
    end: u64,
    cfa: String,
    rules: Vec<(u16, String)>,
}

/// gimli's rows of every FDE, in the order of the section.
fn theirs(b: &SectionBuilder) -> Vec<gimli::Result<Vec<Common>>> {
    let section = gimli::EhFrame::new(&b.bytes, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default()
        .set_eh_frame(ADDRESS)
        .set_text(TEXT)
        .set_got(DATA);
    let mut context = gimli::UnwindContext::new();
    let mut entries = section.entries(&bases);
    let mut all = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let rows = partial
            .parse(gimli::EhFrame::cie_from_offset)
            .and_then(|fde| {
                let mut table = fde.rows(&section, &bases, &mut context)?;
                let end = fde.end_address();
                let mut rows = Vec::new();
                while let Some(row) = table.next_row()? {
                    let (start, end) = (row.start_address(), row.end_address().min(end));
                    if start < end {
                        rows.push(their_row(&section, row, start, end)?);
                    }
                }
                Ok(rows)
            });
        all.push(rows);
    }
    all
}

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

fn their_row(
    section: &gimli::EhFrame<Slice<'_>>,
    row: &gimli::UnwindTableRow<usize>,
    start: u64,
    end: u64,
) -> gimli::Result<Common> {
    let text = |expression: &gimli::UnwindExpression<usize>| {
        expression
            .get(section)
            .map(|bytes| format!("{:02x?}", bytes.0.slice()))
    };
    let cfa = match row.cfa() {
        gimli::CfaRule::RegisterAndOffset { register, offset } => {
            format!("{}{offset:+}", register.0)
        }
        gimli::CfaRule::Expression(expression) => text(expression)?,
    };
    let mut rules = Vec::new();
    for (register, rule) in row.registers() {
        let rule = match rule {
            gimli::RegisterRule::Undefined => "undefined".to_owned(),
            gimli::RegisterRule::SameValue => "same".to_owned(),
            gimli::RegisterRule::Offset(offset) => format!("[cfa{offset:+}]"),
            gimli::RegisterRule::ValOffset(offset) => format!("cfa{offset:+}"),
            gimli::RegisterRule::Register(other) => format!("{}", other.0),
            gimli::RegisterRule::Expression(expression) => format!("[{}]", text(expression)?),
            gimli::RegisterRule::ValExpression(expression) => text(expression)?,
            other => format!("{other:?}"),
        };
        rules.push((register.0, rule));
    }
    rules.sort();
    Ok(Common {
        start,
        end,
        cfa,
        rules,
    })
}

fn our_row(row: &unspool_rows::Row<'_>, start: u64, end: u64) -> Common {
    let number = |register: Register| register.0;
    let cfa = match row.cfa {
        CfaRule::Undefined => "undefined".to_owned(),
        CfaRule::RegisterOffset { register, offset } => format!("{}{offset:+}", number(register)),
        CfaRule::Expression(expression) => format!("{:02x?}", expression.0),
    };
    let rules = row.rules().map(|(register, rule)| {
        let rule = match rule {
            RegisterRule::Undefined => "undefined".to_owned(),
            RegisterRule::SameValue => "same".to_owned(),
            RegisterRule::Offset(offset) => format!("[cfa{offset:+}]"),
            RegisterRule::ValOffset(offset) => format!("cfa{offset:+}"),
            RegisterRule::Register(other) => format!("{}", number(other)),
            RegisterRule::Expression(expression) => format!("[{:02x?}]", expression.0),
            RegisterRule::ValExpression(expression) => format!("{:02x?}", expression.0),
        };
        (number(register), rule)
    });
    Common {
        start,
        end,
        cfa,
        rules: rules.collect(),
    }
}

/// Whether an instruction may change only the register or the offset of an expression, which gimli
/// refuses.
fn is_beyond_gimli(ops: &[Op]) -> bool {
    let has_expression = ops.iter().any(|op| matches!(op, Op::CfaExpression(_)));
    let has_half = ops
        .iter()
        .any(|op| matches!(op, Op::DefCfaRegister(_) | Op::DefCfaOffset(..)));
    has_expression && has_half
}

/// Whether a CIE has an expression, or instructions that have no effect there and that gimli
/// refuses or stops at.
fn is_beyond_gimli_in_cie(ops: &[Op]) -> bool {
    ops.iter().any(|op| {
        matches!(
            op,
            Op::Advance(..)
                | Op::SetLoc(_)
                | Op::Remember
                | Op::RestoreState
                | Op::Restore(_)
                | Op::ShortRestore(_)
                | Op::CfaExpression(_)
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Set the environment variable PROPTEST_CASES for more.
        cases: ProptestConfig::default().cases.max(3000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Overlaps, bad entries and other faults: one address at a time and all at once give the same
    /// rows.
    #[test]
    fn the_two_readers_agree(
        cies in cies(),
        functions in prop::collection::vec(function(), 0..7),
    ) {
        let b = section(&cies, &functions);
        check_section(&b.section(), None, HdrTrust::Suspect);
    }

    /// With a sorted search table of the good entries: trusted only if that gives the same rows.
    #[test]
    fn the_two_readers_agree_with_a_search_table(
        cies in cies(),
        mut functions in prop::collection::vec(function(), 0..7),
        is_disjoint in any::<bool>(),
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        if is_disjoint {
            for (n, function) in functions.iter_mut().enumerate() {
                function.start = 0x1000 + n as u64 * 0x90;
            }
        }
        let b = section(&cies, &functions);
        let section = b.section();
        let mut table = crate::lookup::search_table(&section, crate::lookup::HDR);
        if let Some((at, byte)) = damage {
            let at = at.index(table.len());
            table[at] = byte;
        }
        if let Ok(hdr) = Hdr::parse(&table, Vaddr(crate::lookup::HDR), section.abi) {
            let trust = Lookup::new(section, Some(hdr), HdrTrust::Suspect).check_hdr();
            check_section(&section, Some(hdr), trust);
        }
    }

    #[test]
    fn rows_are_those_of_gimli(
        cies in cies(),
        mut functions in prop::collection::vec(function(), 1..4),
    ) {
        let cies = cies.map(|ops| if is_beyond_gimli_in_cie(&ops) { Vec::new() } else { ops });
        functions.iter_mut().for_each(|function| function.tail.clear());
        let b = section(&cies, &functions);
        let reading = read_table(&b.section());
        let theirs = theirs(&b);
        prop_assert_eq!(theirs.len(), functions.len());
        let offsets: Vec<u64> = b
            .section()
            .entries()
            .filter(|(_, entry)| entry.as_ref().unwrap().cie.is_some())
            .map(|(offset, _)| offset)
            .collect();
        for ((function, theirs), offset) in functions.iter().zip(theirs).zip(offsets) {
            let fde = reading.table.fdes().iter().find(|fde| fde.origin == offset);
            let problem = reading.problems.iter().find(|problem| problem.entry == offset);
            prop_assert!(fde.is_some() != problem.is_some());
            match (fde, theirs) {
                (Some(fde), Ok(theirs)) => {
                    let rows = reading.table.rows(fde);
                    let ends = rows.clone().skip(1).map(|row| row.start.0).chain([fde.end.0]);
                    let ours: Vec<Common> = rows
                        .zip(ends)
                        .map(|(row, end)| {
                            let start = row.start.0;
                            our_row(&reading.table.row(row.row).unwrap(), start, end)
                        })
                        .collect();
                    prop_assert_eq!(ours, theirs);
                }
                // gimli saves at most 4 states.
                (None, Err(_)) | (Some(_), Err(gimli::Error::StackFull)) => {}
                // Our storage has other limits than gimli's, and gimli wraps products.
                (None, Ok(_)) => {
                    use unspool_cfi::CfiError::{RememberedTooMuch, Rules, Scale};
                    let error = problem.unwrap().error;
                    let is_limit = matches!(
                        error,
                        Scale { .. } | RememberedTooMuch { .. } | Rules(_)
                    );
                    prop_assert!(is_limit, "{}", error);
                }
                (Some(_), Err(error)) => {
                    let is_half = error == gimli::Error::CfiInstructionInInvalidContext
                        && is_beyond_gimli(&function.ops);
                    prop_assert!(is_half, "{}: {:?}", error, function);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if is_thorough() { 1000 } else { 250 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Bulk reading reuses rows of entries with the same instructions. Each entry has the same rows
    /// as when read alone, also in two sections with CIEs at the same offsets.
    #[test]
    fn entries_in_a_crowd_read_as_alone(
        cies in [cies(), cies()],
        bodies in prop::collection::vec(
            prop_oneof![
                3 => frequent_ops(),
                1 => prop::collection::vec(op(), 0..8),
            ],
            1..16,
        ),
        members in prop::collection::vec(member(), 20..60),
    ) {
        let builders = cies.map(|cies| crowd(&cies, &bodies, &members));
        let sections = builders.each_ref().map(SectionBuilder::section);
        let reading = read_tables(X86_64, &sections);
        let table = &reading.table;
        let mut fdes = table.fdes().iter();
        let mut problems = reading.problems.iter();
        for section in &sections {
            for (offset, entry) in section.entries() {
                match alone(section, entry.unwrap()) {
                    Ok(None) => {}
                    Ok(Some(expected)) => {
                        let fde = fdes.next().unwrap();
                        prop_assert_eq!(fde.origin, offset);
                        let rows = table.rows(fde).map(|row| {
                            let text = table.row(row.row).unwrap().display(X86_64).to_string();
                            (row.start, text)
                        });
                        prop_assert_eq!((fde.start, fde.end, rows.collect()), expected);
                    }
                    Err(error) => {
                        let problem = problems.next().unwrap();
                        prop_assert_eq!((problem.entry, problem.error), (offset, error));
                    }
                }
            }
        }
        prop_assert!(fdes.next().is_none() && problems.next().is_none());
        check_section(&sections[0], None, HdrTrust::Suspect);
    }
}

/// The generator makes the wanted cases: overlaps, bad entries, several rows.
#[test]
fn generated_sections_are_interesting() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = (cies(), prop::collection::vec(function(), 0..7));
    let (mut overlaps, mut problems, mut rows, mut spans) = (0, 0, 0, 0);
    for _ in 0..300 {
        let (cies, functions) = strategy.new_tree(&mut runner).unwrap().current();
        let b = section(&cies, &functions);
        let reading = b.read();
        overlaps += reading.table.overlaps(100).len();
        problems += reading.problems.len();
        rows += reading.table.row_count();
        spans += reading.table.spans().collect::<Vec<Span>>().len();
    }
    let counts = [overlaps, problems, rows, spans];
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
