//! A table compared with its file: by the second reader, by look-ups, by `compare`.

use std::collections::BTreeSet;

use unspool_compiled_table::call_test::window;
use unspool_compiled_table::{
    CompiledTable, EncodeError, EncodedTable, EntryInfo, ExecutableCode, ModuleKey, compare, encode,
};
use unspool_rows::arch::Endian;
use unspool_rows::table::Span;
use unspool_rows::{CfaRule, Fde, Pointer, RaState, RegisterRule, Row, RowId, Table, Vaddr};

use crate::independent::{
    self, CoveredRange, ParsedCfa, ParsedEntry, ParsedFile, ParsedRule, PlainRow,
};

/// The table as a function of the address, with an index.
pub(crate) struct TableOracle<'t> {
    pub(crate) table: &'t Table,
    pub(crate) spans: Vec<Span>,
}

impl<'t> TableOracle<'t> {
    pub(crate) fn new(table: &'t Table) -> Self {
        TableOracle {
            table,
            spans: table.spans().collect(),
        }
    }

    pub(crate) fn span_at(&self, pc: u64) -> Option<&Span> {
        let after = self.spans.partition_point(|span| span.start.0 <= pc);
        let span = &self.spans[after.checked_sub(1)?];
        (pc < span.end.0).then_some(span)
    }

    pub(crate) fn row_at(&self, pc: u64) -> Option<RowId> {
        self.span_at(pc).map(|span| span.row)
    }

    pub(crate) fn facts(&self, span: &Span) -> EntryInfo {
        facts(self.table.fde(span.fde).unwrap())
    }

    /// Whether one row holds at all addresses of a range.
    pub(crate) fn is_one_row(&self, start: u64, end: u64, row: RowId) -> bool {
        let mut at = start;
        while at < end {
            match self.span_at(at) {
                Some(span) if span.row == row => at = span.end.0,
                _ => return false,
            }
        }
        true
    }

    /// Addresses of interest: both sides of every bound, and of every page that contains one.
    pub(crate) fn bounds(&self) -> BTreeSet<u64> {
        let mut all = BTreeSet::from([0, 1, u64::MAX - 1, u64::MAX]);
        for span in &self.spans {
            for bound in [span.start.0, span.end.0] {
                let page = bound - bound % 0x1_0000;
                for at in [bound, page, page.wrapping_add(0x1_0000)] {
                    all.extend([at.wrapping_sub(1), at, at.wrapping_add(1)]);
                }
            }
        }
        all
    }
}

fn facts(fde: &Fde) -> EntryInfo {
    EntryInfo {
        start: fde.start,
        end: fde.end,
        personality: fde.personality,
        lsda: fde.lsda,
    }
}

/// Encodes a table with the calls of its code.
pub(crate) fn encode_with(
    table: &Table,
    code: &ExecutableCode<'_>,
) -> Result<EncodedTable, EncodeError> {
    let calls = code.call_addresses(table.abi().arch);
    encode(
        table,
        ModuleKey {
            build_id: b"build",
            content: &[0; 20],
        },
        code,
        &calls,
    )
}

/// Encodes a table and checks the file in every way. Yields the file.
pub(crate) fn check(table: &Table, code: &ExecutableCode<'_>) -> Vec<u8> {
    let bytes = encode_with(table, code).unwrap().bytes;
    let compiled = CompiledTable::open(&bytes).unwrap();
    let file = independent::read(&bytes);
    let source = TableOracle::new(table);
    check_header(&source, &file, &compiled);
    check_ranges(&source, &file);
    check_rows(&source, &file, &compiled);
    for pc in source.bounds() {
        check_lookup(&source, &compiled, pc);
    }
    check_calls(&source, &file, &compiled, code);
    let comparison = compare(table, &compiled, code);
    assert!(comparison.is_equal(), "{:?}", comparison.mismatches);
    assert_eq!(comparison.rows, source.spans.len() as u64);
    bytes
}

fn check_header(oracle: &TableOracle<'_>, file: &ParsedFile, compiled: &CompiledTable<'_>) {
    let abi = oracle.table.abi();
    assert_eq!(compiled.abi(), abi);
    assert_eq!(file.machine, abi.arch.elf_machine());
    assert_eq!(file.word, abi.arch.spec().address_size.bytes());
    assert_eq!(file.byte_order == 2, abi.endian == Endian::Big);
    assert_eq!(file.key, [&b"\x05build"[..], &[0; 20]].concat());
    assert_eq!(
        compiled.key(),
        ModuleKey {
            build_id: b"build",
            content: &[0; 20]
        }
    );
}

/// The second reader's ranges are the table's spans.
fn check_ranges(oracle: &TableOracle<'_>, file: &ParsedFile) {
    let number_of = |row: RowId| {
        let encoded = oracle.table.encoded_row(row);
        let number = file.rows.iter().position(|other| other == encoded);
        u16::try_from(number.expect("a row")).unwrap()
    };
    let mut numbers = vec![None; oracle.table.distinct_rows()];
    let mut expected: Vec<CoveredRange> = Vec::new();
    for span in &oracle.spans {
        let id = span.row.0 as usize;
        let number = *numbers[id].get_or_insert_with(|| number_of(span.row));
        let facts = oracle.facts(span);
        let entry = ParsedEntry {
            start: facts.start.0,
            end: facts.end.0,
            personality: facts.personality.map(|pointer| match pointer {
                Pointer::Direct(address) => (0, address.0),
                Pointer::Indirect(address) => (1, address.0),
            }),
            lsda: facts.lsda.map(|lsda| lsda.0),
        };
        match expected.last_mut() {
            Some(before)
                if before.last + 1 == span.start.0
                    && before.row == number
                    && before.entry == entry =>
            {
                before.last = span.end.0 - 1;
            }
            _ => expected.push(CoveredRange {
                start: span.start.0,
                last: span.end.0 - 1,
                row: number,
                entry,
            }),
        }
    }
    assert_eq!(file.merged(), expected);
}

/// The file has each row in use once, with the same content as the table's.
fn check_rows(oracle: &TableOracle<'_>, file: &ParsedFile, compiled: &CompiledTable<'_>) {
    let used: BTreeSet<&[u8]> = oracle
        .spans
        .iter()
        .map(|span| oracle.table.encoded_row(span.row))
        .collect();
    let rows: BTreeSet<&[u8]> = file.rows.iter().map(Vec::as_slice).collect();
    assert_eq!(rows.len(), file.rows.len(), "rows are distinct");
    assert_eq!(rows, used);
    assert_eq!(compiled.distinct_rows(), file.rows.len());
    for id in oracle
        .spans
        .iter()
        .map(|span| span.row)
        .collect::<BTreeSet<_>>()
    {
        let row = oracle.table.row(id).unwrap();
        let read = independent::read_row(oracle.table.encoded_row(id));
        assert_eq!(read, plain(&row));
    }
}

/// A row in the second reader's form.
fn plain(row: &Row<'_>) -> PlainRow {
    let rule = |rule: RegisterRule<'_>| match rule {
        RegisterRule::Undefined => ParsedRule::Plain(0),
        RegisterRule::SameValue => ParsedRule::Plain(1),
        RegisterRule::Offset(offset) => ParsedRule::Number(2, offset),
        RegisterRule::ValOffset(offset) => ParsedRule::Number(3, offset),
        RegisterRule::Register(register) => ParsedRule::Register(u64::from(register.0)),
        RegisterRule::Expression(expression) => ParsedRule::Expression(5, expression.0.to_vec()),
        RegisterRule::ValExpression(expression) => ParsedRule::Expression(6, expression.0.to_vec()),
    };
    PlainRow {
        return_address: u64::from(row.return_address.0),
        signal: row.signal_frame,
        ra_state: match row.ra_state {
            RaState::Plain => 0,
            RaState::Signed => 1,
            RaState::SignedWithPc => 2,
        },
        args_size: row.args_size,
        cfa: match row.cfa {
            CfaRule::Undefined => ParsedCfa::Nothing,
            CfaRule::RegisterOffset { register, offset } => {
                ParsedCfa::Offset(u64::from(register.0), offset)
            }
            CfaRule::Expression(expression) => ParsedCfa::Expression(expression.0.to_vec()),
        },
        rules: row
            .rules()
            .map(|(register, found)| (u64::from(register.0), rule(found)))
            .collect(),
    }
}

fn check_lookup(oracle: &TableOracle<'_>, compiled: &CompiledTable<'_>, pc: u64) {
    let hit = compiled.lookup(Vaddr(pc)).unwrap();
    let entry = compiled.entry(Vaddr(pc)).unwrap();
    let Some(span) = oracle.span_at(pc) else {
        assert_eq!((hit, entry), (None, None), "a hole at {pc:#x}");
        return;
    };
    let hit = hit.unwrap_or_else(|| panic!("a row at {pc:#x}"));
    assert_eq!(
        compiled.encoded_row(hit.row).unwrap(),
        oracle.table.encoded_row(span.row)
    );
    assert_eq!(compiled.row(hit.row).ok(), oracle.table.row(span.row));
    assert!(span.start <= hit.start && hit.start.0 <= pc, "at {pc:#x}");
    assert!(pc < hit.end.0 && hit.end <= span.end, "at {pc:#x}");
    assert_eq!(entry, Some(oracle.facts(span)), "at {pc:#x}");
}

/// At every address of the code: the call test in three forms, and the two readers' answers.
fn check_calls(
    oracle: &TableOracle<'_>,
    file: &ParsedFile,
    compiled: &CompiledTable<'_>,
    code: &ExecutableCode<'_>,
) {
    let sites = compiled.call_sites();
    for (start, bytes) in &code.ranges {
        let mut visited = Vec::new();
        sites
            .test()
            .for_each(*start, bytes, |address| visited.push(address.0));
        let mut passing = Vec::new();
        for offset in 0..=bytes.len() {
            let address = start.0 + offset as u64;
            let before = window(bytes, offset);
            let passes = sites.test().passes(Vaddr(address), before);
            assert_eq!(file.follows_call(address, &before), passes, "{address:#x}");
            if passes {
                passing.push(address);
            }
            let answer = sites.row(Vaddr(address), before).unwrap();
            assert_eq!(answer.map(|row| row.0), file.call_site(address, &before));
            if let Some(row) = answer {
                let expected = oracle.row_at(address - 1).expect("a row at the call");
                assert_eq!(
                    compiled.encoded_row(row).unwrap(),
                    oracle.table.encoded_row(expected),
                    "at {address:#x}"
                );
            }
        }
        assert_eq!(visited, passing);
    }
}

/// The verdict on bytes that may differ from the table's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TamperVerdict {
    /// `open` refuses them.
    Refused,
    /// `compare` finds a difference.
    Different,
    /// `compare` finds them equal, and every checked answer is the table's.
    Equal,
}

/// Compares any bytes with a table. Nothing may panic. If an answer at any of the addresses or
/// return addresses differs from the table's, `compare` must find a difference.
pub(crate) fn judge(
    oracle: &TableOracle<'_>,
    code: &ExecutableCode<'_>,
    bytes: &[u8],
    addresses: impl IntoIterator<Item = u64>,
) -> TamperVerdict {
    let Ok(compiled) = CompiledTable::open(bytes) else {
        return TamperVerdict::Refused;
    };
    // All are looked up, also after the first wrong answer: none may panic.
    let wrong = addresses
        .into_iter()
        .filter(|pc| !is_right(oracle, &compiled, *pc))
        .fold(None, |first, pc| first.or(Some(pc)));
    let wrong_call = wrong_call(oracle, &compiled, code);
    let comparison = compare(oracle.table, &compiled, code);
    if !comparison.is_equal() {
        return TamperVerdict::Different;
    }
    assert_eq!(wrong, None, "unseen by `compare`");
    assert_eq!(wrong_call, None, "unseen by `compare`");
    assert_eq!(compiled.abi(), oracle.table.abi(), "unseen by `compare`");
    TamperVerdict::Equal
}

fn is_right(oracle: &TableOracle<'_>, compiled: &CompiledTable<'_>, pc: u64) -> bool {
    let hit = compiled.lookup(Vaddr(pc));
    let entry = compiled.entry(Vaddr(pc));
    let Some(span) = oracle.span_at(pc) else {
        return hit == Ok(None) && entry == Ok(None);
    };
    let Ok(Some(hit)) = hit else { return false };
    entry == Ok(Some(oracle.facts(span)))
        && compiled.row(hit.row).ok() == oracle.table.row(span.row)
        && (hit.start.0..hit.end.0).contains(&pc)
        && oracle.is_one_row(hit.start.0, hit.end.0, span.row)
}

/// The first return address with a wrong answer: neither the row at the call nor none.
fn wrong_call(
    oracle: &TableOracle<'_>,
    compiled: &CompiledTable<'_>,
    code: &ExecutableCode<'_>,
) -> Option<u64> {
    let sites = compiled.call_sites();
    let mut wrong = None;
    for (start, bytes) in &code.ranges {
        for until in 0..=bytes.len() {
            let before = window(bytes, until);
            let address = start.offset(until as u64);
            let is_right = match sites.row(address, before) {
                Ok(None) => true,
                Ok(Some(row)) => {
                    let expected = oracle.row_at(address.0.wrapping_sub(1));
                    let expected = expected.and_then(|row| oracle.table.row(row));
                    expected.is_some() && compiled.row(row).ok() == expected
                }
                Err(_) => false,
            };
            if !is_right {
                wrong.get_or_insert(address.0);
            }
        }
    }
    wrong
}
