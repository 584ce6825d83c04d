//! Differences between the standard and the 2018 report (T. Bastian, "DWARF debugging data,
//! compilation and optimization"). There is one small example for each difference listed in
//! `docs/semantics.md`.
//!
//! The report translates instructions to an intermediate language and that to C. [`model`] is both
//! translations as in the report. An [`Example`] holds the instructions of one entry and, as IR
//! text, their rows by the standard. The model evaluates the instructions. We read them from the
//! bytes of a section, with both readers, and step by the rows.

use std::collections::BTreeMap;
use std::fmt::Write;

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiError, Lookup, SectionKind};
use unspool_rows::interpret::{FrameContext, StepError, step};
use unspool_rows::leb128::{put_signed, put_unsigned};
use unspool_rows::memory::{Memory, Unreadable};
use unspool_rows::{
    Abi, Arch, CodeAddr, Endian, LoadBias, Registers, Row, RuntimeAddr, Vaddr, text,
};

use crate::build::{self, Format, SectionBuilder, X86_64};
use crate::lookup::check_section;

use model::{ERROR_VALUE, ReportFailure};

/// The report's semantics.
mod model {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    /// A call frame instruction with its operands, in the standard's words.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ReportInstruction {
        SetLoc(u64),
        AdvanceLoc(u64),
        DefCfa(&'static str, i64),
        DefCfaRegister(&'static str),
        DefCfaOffset(i64),
        DefCfaExpression(&'static str),
        Undefined(&'static str),
        SameValue(&'static str),
        Offset(&'static str, i64),
        ValOffset(&'static str, i64),
        Register(&'static str, &'static str),
        Expression(&'static str, &'static str),
        ValExpression(&'static str, &'static str),
        Restore(&'static str),
        RememberState,
        RestoreState,
        Nop,
    }

    /// A value of the intermediate language. The CFA is a register among others.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ReportValue {
        At(&'static str, i64),
        Is(&'static str, i64),
        Bottom,
    }

    /// Registers to values; registers that are not in the map are undefined.
    pub(crate) type ReportRow = BTreeMap<&'static str, ReportValue>;

    /// The rows of an entry, each with its first address.
    pub(crate) type ReportRows = Vec<(u64, ReportRow)>;

    /// Why an instruction list has no meaning in the report.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ReportFailure {
        /// The definition is left open.
        ToBeDefined(ReportInstruction),
        /// The instruction is left out.
        NotImplemented(ReportInstruction),
        /// The definition has a value in place of a list of rows.
        NotRows(ReportValue),
        /// A pattern that must match does not.
        Erroneous,
    }

    /// Instructions to rows.
    pub(crate) fn rows(
        start: u64,
        instructions: &[ReportInstruction],
    ) -> Result<ReportRows, ReportFailure> {
        use ReportInstruction as I;
        let mut rows: ReportRows = vec![(start, ReportRow::new())];
        let mut stack: Vec<ReportRow> = Vec::new();
        for instruction in instructions {
            let (at, row) = rows.last().cloned().unwrap_or_default();
            let (register, value) = match *instruction {
                I::SetLoc(to) => {
                    rows.push((to, row));
                    continue;
                }
                I::AdvanceLoc(delta) => {
                    rows.push((at + delta, row));
                    continue;
                }
                I::RememberState => {
                    stack.push(row);
                    continue;
                }
                I::RestoreState => {
                    rows.pop();
                    rows.push((at, stack.pop().ok_or(ReportFailure::Erroneous)?));
                    continue;
                }
                I::Nop => continue,
                I::DefCfa(register, offset) => ("cfa", ReportValue::Is(register, offset)),
                I::DefCfaRegister(register) => ("cfa", ReportValue::Is(register, cfa(&row)?.1)),
                I::DefCfaOffset(offset) => ("cfa", ReportValue::Is(cfa(&row)?.0, offset)),
                I::Undefined(register) => (register, ReportValue::Bottom),
                I::SameValue(register) => {
                    return Err(ReportFailure::NotRows(ReportValue::Is(register, 0)));
                }
                I::Offset(register, offset) => (register, ReportValue::At("cfa", offset)),
                I::ValOffset(register, offset) => (register, ReportValue::Is("cfa", offset)),
                I::Register(register, model) => {
                    let before = rows.len().checked_sub(2).and_then(|n| rows.get(n));
                    let (_, before) = before.ok_or(ReportFailure::Erroneous)?;
                    (
                        register,
                        before.get(model).copied().unwrap_or(ReportValue::Bottom),
                    )
                }
                I::DefCfaExpression(_) | I::Expression(..) | I::ValExpression(..) => {
                    return Err(ReportFailure::ToBeDefined(*instruction));
                }
                I::Restore(_) => return Err(ReportFailure::NotImplemented(*instruction)),
            };
            if let Some((_, row)) = rows.last_mut() {
                row.insert(register, value);
            }
        }
        Ok(rows)
    }

    /// The CFA of a row, which must be register + offset.
    fn cfa(row: &ReportRow) -> Result<(&'static str, i64), ReportFailure> {
        match row.get("cfa") {
            Some(ReportValue::Is(register, offset)) => Ok((*register, *offset)),
            _ => Err(ReportFailure::Erroneous),
        }
    }

    /// The C function stores this if there is no value; the report leaves it open.
    pub(crate) const ERROR_VALUE: u64 = 0xdead_dead;

    /// Rows to C, run: the function's result in `new_ctx[register]` for `ip`.
    ///
    /// The function tests the rows in their order and takes the first with a start not above `ip`.
    /// Every value is computed from `old_ctx`.
    pub(crate) fn run_c(
        rows: &ReportRows,
        ip: u64,
        register: &str,
        old_ctx: &BTreeMap<&str, u64>,
        load: impl Fn(u64) -> u64,
    ) -> u64 {
        let old = |register: &str| old_ctx.get(register).copied().unwrap_or(ERROR_VALUE);
        let Some((_, row)) = rows.iter().find(|(loc, _)| ip >= *loc) else {
            return ERROR_VALUE;
        };
        match row.get(register).copied().unwrap_or(ReportValue::Bottom) {
            ReportValue::Bottom => ERROR_VALUE,
            ReportValue::At(base, offset) => load(old(base).wrapping_add_signed(offset)),
            ReportValue::Is(base, offset) => old(base).wrapping_add_signed(offset),
        }
    }

    /// A row as IR text, so that our interpreter can evaluate it.
    pub(crate) fn text(row: &ReportRow) -> String {
        let mut out = String::new();
        for (register, value) in row {
            let space = if out.is_empty() { "" } else { "  " };
            let value = match value {
                ReportValue::Bottom => "undefined".to_owned(),
                ReportValue::At(base, offset) => format!("[{base}{offset:+}]"),
                ReportValue::Is(base, 0) if *register != "cfa" => (*base).to_owned(),
                ReportValue::Is(base, offset) => format!("{base}{offset:+}"),
            };
            let _ = write!(out, "{space}{register}={value}");
        }
        out
    }
}

use model::ReportInstruction::{self, *};

/// The register state of every example. `cfa` is the value in the report's context from the step
/// before: the CFA of the frame that was called from here.
const REGISTERS: [(&str, u64); 8] = [
    ("cfa", 0x6ff0),
    ("rbx", 0xb),
    ("rcx", 0xc),
    ("rdi", 0x40_5678),
    ("rbp", 0x7100),
    ("rsp", 0x7000),
    ("r12", 0x12),
    ("ra", 0x40_100c),
];

/// A word of memory: at the top of the stack a return address, elsewhere its own address.
fn word_at(addr: u64) -> u64 {
    if addr == 0x7000 { 0x40_1234 } else { addr }
}

/// The end of the stack: nothing is mapped there.
const STACK_END: u64 = 0x8000;

struct WordMemory;

impl Memory for WordMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        if addr.0 >= STACK_END {
            return Err(Unreadable::unmapped(addr));
        }
        for (slot, byte) in into.iter_mut().zip(word_at(addr.0).to_le_bytes()) {
            *slot = byte;
        }
        Ok(())
    }
}

/// The instructions of a CIE after a `call`.
const CALLED: &[ReportInstruction] = &[DefCfa("rsp", 8), Offset("ra", -8)];

/// One entry: its instructions, and its rows according to the standard.
struct Example {
    start: u64,
    end: u64,
    /// The CIE's instructions.
    cie: &'static [ReportInstruction],
    /// The FDE's instructions.
    fde: &'static [ReportInstruction],
    /// The rows as IR text. Empty: the instructions are in error and the entry has none.
    rows: &'static str,
}

impl Example {
    /// The entry as bytes, followed by a good entry.
    fn section(&self) -> SectionBuilder {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let cie = b.cie(&build::CieSpec {
            instructions: encode(self.cie),
            ..build::CieSpec::plain()
        });
        b.plain_fde(cie, self.start, self.end - self.start, &encode(self.fde));
        let good = b.cie(&build::CieSpec::plain());
        b.plain_fde(good, GOOD, 0x10, &[]);
        b
    }

    /// The report's rows, or why it has none.
    fn report(&self) -> Result<model::ReportRows, ReportFailure> {
        model::rows(self.start, &[self.cie, self.fde].concat())
    }

    /// The result of the report's C function.
    fn report_c(&self, ip: u64, asked: &[&str]) -> String {
        let rows = self.report().unwrap();
        let old_ctx: BTreeMap<&str, u64> = REGISTERS.into();
        let of = |register: &str| model::run_c(&rows, ip, register, &old_ctx, word_at);
        show(asked, |register| format!("{:#x}", of(register)))
    }

    /// The meaning of the report's row for `pc`, read as leniently as possible: the last row that
    /// begins at or before `pc` counts, and our interpreter evaluates it.
    fn report_row(&self, pc: u64, asked: &[&str]) -> String {
        let rows = self.report().unwrap();
        let (_, row) = rows.iter().rfind(|(start, _)| *start <= pc).unwrap();
        by_text(&model::text(row), asked)
    }

    /// The right result: read from the bytes, by the bulk reader and for one address.
    fn ours(&self, pc: u64, asked: &[&str]) -> String {
        let b = self.section();
        let rows = self.rows.lines().map(str::trim).collect::<Vec<_>>();
        let (start, end) = (self.start, self.end);
        let expected = format!(
            "arch x86-64 little\nfn {start:#x}..{end:#x}\n{}\nfn {GOOD:#x}..{:#x}\n{GOOD:#x} {}",
            rows.join("\n"),
            GOOD + 0x10,
            "cfa=rsp+8 ra=[cfa-8]",
        );
        let reading = b.read();
        assert_eq!(reading.problems, []);
        assert_eq!(
            reading.table.to_string(),
            text::parse(&expected).unwrap().to_string()
        );
        check_section(&b.section(), None, HdrTrust::Suspect);
        look_up(&b, pc, asked)
    }

    /// Why the entry is refused; the other entry is still read.
    fn refusal(&self) -> CfiError {
        assert_eq!(self.rows, "");
        let reading = self.section().read();
        let starts: Vec<Vaddr> = reading.table.fdes().iter().map(|fde| fde.start).collect();
        assert_eq!(starts, [Vaddr(GOOD)]);
        reading.problems[0].error
    }
}

/// A function of 16 bytes that has not touched the stack.
const EXAMPLE: Example = Example {
    start: 0x10,
    end: 0x20,
    cie: CALLED,
    fde: &[],
    rows: "",
};

/// The start of the good entry in every example's section.
const GOOD: u64 = 0x90_0000;

fn register(name: &str) -> unspool_rows::Register {
    Arch::X86_64.register_named(name).unwrap()
}

/// Call frame instructions as bytes, for a code alignment of 1 and a data alignment of -8.
fn encode(instructions: &[ReportInstruction]) -> Vec<u8> {
    let mut out = Vec::new();
    for instruction in instructions {
        encode_one(&mut out, *instruction);
    }
    out
}

fn encode_one(out: &mut Vec<u8>, instruction: ReportInstruction) {
    let op = |out: &mut Vec<u8>, opcode: u8, name: &str| {
        out.push(opcode);
        put_unsigned(out, u64::from(register(name).0));
    };
    let block = |out: &mut Vec<u8>, expression: &str| {
        let bytes = text::parse_expression(expression, X86_64).unwrap();
        put_unsigned(out, bytes.len() as u64);
        out.extend(bytes);
    };
    match instruction {
        SetLoc(to) => {
            out.push(0x01);
            out.extend(to.to_le_bytes());
        }
        AdvanceLoc(delta) => out.extend([0x02, u8::try_from(delta).unwrap()]),
        DefCfa(name, offset) => {
            op(out, 0x0c, name);
            put_unsigned(out, offset.unsigned_abs());
        }
        DefCfaRegister(name) => op(out, 0x0d, name),
        DefCfaOffset(offset) => {
            out.push(0x0e);
            put_unsigned(out, offset.unsigned_abs());
        }
        DefCfaExpression(expression) => {
            out.push(0x0f);
            block(out, expression);
        }
        Undefined(name) => op(out, 0x07, name),
        SameValue(name) => op(out, 0x08, name),
        Offset(name, offset) => {
            op(out, 0x11, name);
            put_signed(out, offset / -8);
        }
        ValOffset(name, offset) => {
            op(out, 0x15, name);
            put_signed(out, offset / -8);
        }
        Register(name, other) => {
            op(out, 0x09, name);
            put_unsigned(out, u64::from(register(other).0));
        }
        Expression(name, expression) => {
            op(out, 0x10, name);
            block(out, expression);
        }
        ValExpression(name, expression) => {
            op(out, 0x16, name);
            block(out, expression);
        }
        Restore(name) => op(out, 0x06, name),
        RememberState => out.push(0x0a),
        RestoreState => out.push(0x0b),
        Nop => out.push(0x00),
    }
}

/// The caller's registers by a section's row for `pc`.
fn look_up(b: &SectionBuilder, pc: u64, asked: &[&str]) -> String {
    let lookup = Lookup::new(b.section(), None, HdrTrust::Suspect);
    let mut row = Row::new(unspool_rows::Register(0));
    match lookup.row(Vaddr(pc), &mut row).unwrap() {
        Some(_) => by_row(&row, asked),
        None => "no row".to_owned(),
    }
}

/// The caller's registers by a row in IR text.
fn by_text(row: &str, asked: &[&str]) -> String {
    let table = format!("arch x86-64 little\nfn 0x0..0x1\n  0x0  {row}\n");
    let table = text::parse(&table).unwrap();
    by_row(
        &table.row(table.spans().next().unwrap().row).unwrap(),
        asked,
    )
}

/// The caller's registers by our interpreter.
fn by_row(row: &Row<'_>, asked: &[&str]) -> String {
    let mut registers = Registers::new();
    for (name, value) in REGISTERS {
        if name != "cfa" {
            registers.set(register(name), value);
        }
    }
    let frame = FrameContext {
        abi: X86_64,
        registers: &registers,
        memory: &WordMemory,
        bias: LoadBias(0),
        pac_mask: 0,
    };
    let caller = match step(row, &frame) {
        Ok(caller) => caller,
        Err(StepError::NoReturnAddress) => return "no return address".to_owned(),
        Err(error) => return error.to_string(),
    };
    show(asked, |name| match (name, caller.return_address) {
        ("cfa", _) => caller.cfa.to_string(),
        ("ra", None) => "outermost".to_owned(),
        ("ra", Some(addr)) => addr.to_string(),
        _ => {
            let value = caller.registers.get(register(name));
            value.map_or("lost".to_owned(), |value| format!("{value:#x}"))
        }
    })
}

fn show(asked: &[&str], value: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for name in asked {
        let space = if out.is_empty() { "" } else { " " };
        write!(out, "{space}{name}={}", value(name)).unwrap();
    }
    out
}

/// Checks the report's result and ours. They must be as stated, and must differ.
fn check(report: &str, ours: &str, expected_report: &str, expected_ours: &str) {
    assert_eq!(report, expected_report, "the report's");
    assert_eq!(ours, expected_ours, "ours");
    assert_ne!(report, ours);
}

#[test]
fn restore_takes_the_rule_of_the_cie_or_leaves_none() {
    let example = Example {
        cie: &[DefCfa("rsp", 8), Offset("ra", -8), Offset("rbx", -24)],
        fde: &[
            AdvanceLoc(2),
            Undefined("rbx"),
            Offset("rbp", -16),
            AdvanceLoc(2),
            Restore("rbx"),
            Restore("rbp"),
        ],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-24]
               0x12  cfa=rsp+8  ra=[cfa-8]  rbx=undefined  rbp=[cfa-16]
               0x14  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-24]",
        ..EXAMPLE
    };
    assert_eq!(
        example.report(),
        Err(ReportFailure::NotImplemented(Restore("rbx")))
    );
    assert_eq!(example.ours(0x12, &["rbx", "rbp"]), "rbx=lost rbp=0x6ff8");
    assert_eq!(example.ours(0x14, &["rbx", "rbp"]), "rbx=0x6ff0 rbp=0x7100");
}

#[test]
fn expressions_have_values() {
    // The CFA of a lazily bound procedure linkage table: one word higher after the push.
    let plt = Example {
        start: 0x40_1000,
        end: 0x40_1020,
        cie: CALLED,
        fde: &[DefCfaExpression(
            "breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus",
        )],
        rows: "0x401000  cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  \
               ra=[cfa-8]",
    };
    assert!(matches!(
        plt.report(),
        Err(ReportFailure::ToBeDefined(DefCfaExpression(_)))
    ));
    assert_eq!(plt.ours(0x40_100c, &["cfa"]), "cfa=0x7010");
    // A signal trampoline: the kernel's frame has the registers.
    for (fde, rows, ours) in [
        (
            &[Expression("rbx", "breg7 128")],
            "0x10  cfa=rsp+8  ra=[cfa-8]  rbx=[{breg7 128}]",
            "rbx=0x7080",
        ),
        (
            &[ValExpression("rbx", "breg6 16")],
            "0x10  cfa=rsp+8  ra=[cfa-8]  rbx={breg6 16}",
            "rbx=0x7110",
        ),
    ] {
        let example = Example {
            fde,
            rows,
            ..EXAMPLE
        };
        assert_eq!(example.report(), Err(ReportFailure::ToBeDefined(fde[0])));
        assert_eq!(example.ours(0x10, &["rbx"]), ours);
    }
}

#[test]
fn register_means_the_value_in_this_frame() {
    // The model register's own rule in the row before does not matter.
    let example = Example {
        fde: &[Offset("rbx", -16), AdvanceLoc(4), Register("r12", "rbx")],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-16]
               0x14  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-16]  r12=rbx",
        ..EXAMPLE
    };
    let rows = example.report().unwrap();
    assert_eq!(
        model::text(&rows[1].1),
        "cfa=rsp+8  r12=[cfa-16]  ra=[cfa-8]  rbx=[cfa-16]"
    );
    check(
        &example.report_row(0x14, &["rbx", "r12"]),
        &example.ours(0x14, &["rbx", "r12"]),
        "rbx=0x6ff8 r12=0x6ff8",
        "rbx=0x6ff8 r12=0xb",
    );
    // glibc's vfork: a model register without a rule loses the return address.
    let vfork = Example {
        fde: &[AdvanceLoc(1), DefCfaOffset(0), Register("ra", "rdi")],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]
               0x11  cfa=rsp+0  ra=rdi",
        ..EXAMPLE
    };
    check(
        &vfork.report_row(0x11, &["ra"]),
        &vfork.ours(0x11, &["ra"]),
        "ra=outermost",
        "ra=0x405678",
    );
    // An entry's first row has no row before it.
    let first = Example {
        cie: &[],
        fde: &[DefCfa("rsp", 0), Register("ra", "rdi")],
        rows: "0x10  cfa=rsp+0  ra=rdi",
        ..vfork
    };
    assert_eq!(first.report(), Err(ReportFailure::Erroneous));
    assert_eq!(first.ours(0x10, &["ra"]), "ra=0x405678");
}

#[test]
fn same_value_does_not_end_the_entry() {
    let example = Example {
        fde: &[SameValue("rbx"), AdvanceLoc(4), DefCfaOffset(16)],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]  rbx=same
               0x14  cfa=rsp+16  ra=[cfa-8]  rbx=same",
        ..EXAMPLE
    };
    assert_eq!(
        example.report(),
        Err(ReportFailure::NotRows(model::ReportValue::Is("rbx", 0)))
    );
    assert_eq!(example.ours(0x14, &["cfa", "rbx"]), "cfa=0x7010 rbx=0xb");
}

#[test]
fn the_last_row_that_begins_at_or_before_the_pc_counts() {
    let example = Example {
        fde: &[AdvanceLoc(1), DefCfaOffset(16)],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]
               0x11  cfa=rsp+16  ra=[cfa-8]",
        ..EXAMPLE
    };
    check(
        &example.report_c(0x18, &["cfa"]),
        &example.ours(0x18, &["cfa"]),
        "cfa=0x7008",
        "cfa=0x7010",
    );
    // Rows at the same address: the first holds nowhere.
    let twice = Example {
        fde: &[SetLoc(0x10), DefCfaOffset(16), Nop],
        rows: "0x10  cfa=rsp+16  ra=[cfa-8]",
        ..example
    };
    check(
        &twice.report_c(0x10, &["cfa"]),
        &twice.ours(0x10, &["cfa"]),
        "cfa=0x7008",
        "cfa=0x7010",
    );
}

#[test]
fn an_entry_ends() {
    let example = Example {
        fde: &[],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]",
        ..EXAMPLE
    };
    check(
        &example.report_c(0x20, &["cfa"]),
        &example.ours(0x20, &["cfa"]),
        "cfa=0x7008",
        "no row",
    );
    // A row at the end of the entry holds nowhere.
    let outside = Example {
        fde: &[AdvanceLoc(0x10), DefCfaOffset(16)],
        ..example
    };
    assert_eq!(outside.report().unwrap().len(), 2);
    assert_eq!(outside.ours(0x20, &["cfa"]), "no row");
}

#[test]
fn the_cfa_is_computed_before_what_is_based_on_it() {
    let example = Example {
        fde: &[ValOffset("r12", -16)],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]  r12=cfa-16",
        ..EXAMPLE
    };
    // The report's rules are based on the CFA of the previous step.
    check(
        &example.report_c(0x10, &["cfa", "ra", "r12"]),
        &example.ours(0x10, &["cfa", "ra", "r12"]),
        "cfa=0x7008 ra=0x6fe8 r12=0x6fe0",
        "cfa=0x7008 ra=0x401234 r12=0x6ff8",
    );
}

#[test]
fn an_undefined_return_address_is_accepted() {
    let example = Example {
        cie: &[],
        fde: &[DefCfa("rsp", 8), Undefined("ra")],
        rows: "0x10  cfa=rsp+8  ra=undefined",
        ..EXAMPLE
    };
    let error = format!("ra={ERROR_VALUE:#x}");
    check(
        &example.report_c(0x10, &["ra"]),
        &example.ours(0x10, &["ra"]),
        &error,
        "ra=outermost",
    );
    // The report cannot distinguish it from an address without a row; we can.
    assert_eq!(example.report_c(0xf, &["ra"]), error);
    assert_eq!(example.ours(0xf, &["ra"]), "no row");
    // Nor from a row without a rule for the return address.
    let silent = Example {
        cie: &[],
        fde: &[DefCfa("rsp", 8)],
        rows: "0x10  cfa=rsp+8",
        ..example
    };
    assert_eq!(silent.report_c(0x10, &["ra"]), error);
    assert_eq!(silent.ours(0x10, &["ra"]), "no return address");
}

#[test]
fn registers_without_a_rule_follow_the_abi() {
    let example = Example {
        fde: &[],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]",
        ..EXAMPLE
    };
    check(
        &example.report_c(0x10, &["rbx", "rcx", "rsp"]),
        &example.ours(0x10, &["rbx", "rcx", "rsp"]),
        "rbx=0xdeaddead rcx=0xdeaddead rsp=0xdeaddead",
        "rbx=0xb rcx=lost rsp=0x7008",
    );
}

#[test]
fn a_return_address_is_looked_up_at_the_call() {
    // The call is the last instruction before 0x14, where the row changes.
    let example = Example {
        fde: &[AdvanceLoc(4), DefCfaOffset(16)],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]
               0x14  cfa=rsp+16  ra=[cfa-8]",
        ..EXAMPLE
    };
    let after_call = CodeAddr::Return(RuntimeAddr(0x14));
    check(
        &example.report_row(after_call.address().0, &["cfa"]),
        &example.ours(after_call.lookup().0, &["cfa"]),
        "cfa=0x7010",
        "cfa=0x7008",
    );
}

#[test]
fn cfa_expressions_reject_partial_changes() {
    // Both call it an error. We drop this entry, report it, and read the others. The report gives
    // the instruction list no meaning, and does not mention other entries.
    let offset = Example {
        cie: &[],
        fde: &[DefCfaOffset(16)],
        ..EXAMPLE
    };
    assert_eq!(offset.report(), Err(ReportFailure::Erroneous));
    assert!(matches!(offset.refusal(), CfiError::CfaNotRegister { .. }));
    // The behaviour of libgcc, gdb and readelf, on which producers rely: an offset of 0, and the
    // register and the offset from before an expression.
    let register = Example {
        cie: &[DefCfaRegister("rbp")],
        fde: &[],
        rows: "0x10  cfa=rbp+0",
        ..EXAMPLE
    };
    assert_eq!(register.report(), Err(ReportFailure::Erroneous));
    assert_eq!(register.ours(0x10, &[]), "no return address");
    let expression = DefCfaExpression("breg6 16");
    let after_expression = Example {
        fde: &[
            DefCfaExpression("breg6 16"),
            AdvanceLoc(1),
            DefCfaOffset(16),
            AdvanceLoc(1),
            DefCfaRegister("rbp"),
        ],
        rows: "0x10  cfa={breg6 16}  ra=[cfa-8]
               0x11  cfa={breg6 16}  ra=[cfa-8]
               0x12  cfa=rbp+16  ra=[cfa-8]",
        ..EXAMPLE
    };
    assert_eq!(
        after_expression.report(),
        Err(ReportFailure::ToBeDefined(expression))
    );
    assert_eq!(after_expression.ours(0x11, &["cfa"]), "cfa=0x7110");
    assert_eq!(after_expression.ours(0x12, &["cfa"]), "cfa=0x7110");
    // With a register again, it is correct.
    let again = Example {
        fde: &[
            DefCfaExpression("breg6 16"),
            AdvanceLoc(1),
            DefCfa("rsp", 16),
            DefCfaOffset(8),
        ],
        rows: "0x10  cfa={breg6 16}  ra=[cfa-8]
               0x11  cfa=rsp+8  ra=[cfa-8]",
        ..EXAMPLE
    };
    assert_eq!(again.report(), Err(ReportFailure::ToBeDefined(expression)));
    assert_eq!(again.ours(0x10, &["cfa"]), "cfa=0x7110");
    assert_eq!(again.ours(0x11, &["cfa"]), "cfa=0x7008");
}

#[test]
fn a_remembered_state_holds_the_cfa() {
    // Here the report is right, because its rows have the CFA as a register; the standard's
    // sentence names registers only. An early return, then the rest of the function:
    let example = Example {
        fde: &[
            AdvanceLoc(1),
            DefCfaOffset(16),
            Offset("rbp", -16),
            AdvanceLoc(4),
            RememberState,
            DefCfaOffset(8),
            AdvanceLoc(1),
            RestoreState,
        ],
        rows: "0x10  cfa=rsp+8   ra=[cfa-8]
               0x11  cfa=rsp+16  ra=[cfa-8]  rbp=[cfa-16]
               0x15  cfa=rsp+8   ra=[cfa-8]  rbp=[cfa-16]
               0x16  cfa=rsp+16  ra=[cfa-8]  rbp=[cfa-16]",
        ..EXAMPLE
    };
    for pc in [0x10, 0x11, 0x15, 0x16] {
        let asked = ["cfa", "ra", "rbp"];
        assert_eq!(
            example.report_row(pc, &asked),
            example.ours(pc, &asked),
            "{pc:#x}"
        );
    }
    check(
        &by_text("cfa=rsp+8  ra=[cfa-8]  rbp=[cfa-16]", &["cfa"]), // literally
        &example.ours(0x16, &["cfa"]),
        "cfa=0x7008",
        "cfa=0x7010",
    );
}

/// The signal trampoline's caller was interrupted. The report does not mention signals: the row is
/// like that of any other entry.
#[test]
fn an_interrupted_frame_keeps_what_has_no_rule() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let fde = |b: &mut SectionBuilder, augmentation: &'static str, start: u64| {
        let cie = b.cie(&build::CieSpec {
            augmentation,
            ..build::CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.fixed(start, 8);
            b.fixed(0x10, 8);
            b.bytes.push(0);
        });
    };
    fde(&mut b, "z", 0x10);
    fde(&mut b, "zS", 0x20);
    let asked = ["ra", "rbx", "rcx", "rsp"];
    check(
        &look_up(&b, 0x10, &asked),
        &look_up(&b, 0x20, &asked),
        "ra=0x401234 rbx=0xb rcx=lost rsp=0x7008",
        "ra=0x401234 rbx=0xb rcx=0xc rsp=0x7008",
    );
    check_section(&b.section(), None, HdrTrust::Suspect);
}

#[test]
fn a_register_that_cannot_be_recovered_does_not_stop_the_step() {
    let example = Example {
        fde: &[Offset("rbx", 0x2000)],
        rows: "0x10  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa+8192]",
        ..EXAMPLE
    };
    // C's `*` on an unmapped address has no meaning; the model returns any value.
    check(
        &example.report_c(0x10, &["cfa", "rbx"]),
        &example.ours(0x10, &["cfa", "rbx", "r12"]),
        "cfa=0x7008 rbx=0x8ff0",
        "cfa=0x7008 rbx=lost r12=0x12",
    );
}

/// The report has one entry. No row holds between entries; among two that cover an address, the one
/// that begins later counts.
#[test]
fn holes_stay_holes_and_the_inner_entry_counts() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&build::CieSpec::plain());
    for (start, length, offset) in [(0x10, 0x20, 16), (0x18, 0x8, 24), (0x40, 0x10, 32)] {
        b.plain_fde(cie, start, length, &encode(&[DefCfaOffset(offset)]));
    }
    for (pc, ours) in [
        (0xf, "no row"),
        (0x17, "cfa=0x7010"),
        (0x18, "cfa=0x7018"),
        (0x20, "cfa=0x7010"),
        (0x2f, "cfa=0x7010"),
        (0x30, "no row"),
        (0x3f, "no row"),
        (0x40, "cfa=0x7020"),
        (0x50, "no row"),
    ] {
        assert_eq!(look_up(&b, pc, &["cfa"]), ours, "{pc:#x}");
    }
    check_section(&b.section(), None, HdrTrust::Suspect);
}

/// C's integers have the width of the machine that the C code was compiled for.
#[test]
fn addresses_wrap_at_their_width() {
    let i386 = Abi {
        arch: Arch::I386,
        endian: Endian::Little,
    };
    let mut b = SectionBuilder::new(SectionKind::EhFrame, i386);
    let cie = b.cie(&build::CieSpec {
        data_alignment: -4,
        return_address: 8,
        instructions: vec![0x0c, 4, 8, 0x88, 1],
        ..build::CieSpec::plain()
    });
    b.plain_fde(cie, 0x10, 0x10, &[]);
    let lookup = Lookup::new(b.section(), None, HdrTrust::Suspect);
    let mut registers = Registers::new();
    registers.set(unspool_rows::Register(4), 0xffff_fffc);
    let frame = FrameContext {
        abi: i386,
        registers: &registers,
        memory: &WordMemory,
        bias: LoadBias(0),
        pac_mask: 0,
    };
    let mut row = Row::new(unspool_rows::Register(0));
    lookup.row(Vaddr(0x10), &mut row).unwrap().unwrap();
    let caller = step(&row, &frame).unwrap();
    assert_eq!(caller.cfa, RuntimeAddr(4));
    assert_eq!(caller.return_address, Some(RuntimeAddr(0)));
}
