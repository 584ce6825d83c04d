//! Formulas against values computed without them, gimli's evaluator, and the shell's arithmetic.

use std::borrow::ToOwned;
use std::boxed::Box;
use std::format;
use std::process::Command;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{Formula, FormulaError, InitialStack, MAX_DEPTH, OperationsText, Statement};
use crate::arch::Abi;
use crate::expression::tests::{ABIS, build, evaluate, gimli_opinion, registers};
use crate::expression::{Expression, ExpressionError};
use crate::register::Register;

const X86_64: Abi = Abi::X86_64;

/// The text, its operations, and the printed form if different.
#[test]
fn statements_are_operations() {
    let cases = [
        (
            "cfa = *(rsp+8)+8",
            "cfa = {breg7 8; deref; plus_uconst 8}",
            "",
        ),
        (
            "cfa=[rsp+8]-8",
            "cfa = {breg7 8; deref; lit8; minus}",
            "cfa = *(rsp+8)-8",
        ),
        ("cfa = %rbp + 0x10", "cfa = {breg6 16}", "cfa = rbp+16"),
        (
            "cfa = rsp+8+((rip & 15) >= 11 << 3)",
            "cfa = {breg7 8; breg16 0; lit15; and; lit11; lit3; shl; ge; plus}",
            "cfa = rsp+8+((rip & 15) >= (11 << 3))",
        ),
        (
            "cfa = rsp+8+(((rip & 15) >= 11) << 3)",
            "cfa = {breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}",
            "",
        ),
        ("rbx = *(cfa-16)", "rbx = [{lit16; minus}]", ""),
        ("rbx = cfa-16", "rbx = {lit16; minus}", ""),
        ("rbx = cfa", "rbx = {}", ""),
        ("ra = *(cfa+8)", "ra = [{plus_uconst 8}]", ""),
        (
            "rbx = *(*(rsp+24)+40)",
            "rbx = [{breg7 24; deref; plus_uconst 40}]",
            "",
        ),
        (
            "rbx = [{dup; plus}]",
            "rbx = [{dup; plus}]",
            "rbx = *(cfa+cfa)",
        ),
        (
            "rbx = rcx+(cfa & -16)",
            "rbx = {breg2 0; over; const1s -16; and; plus}",
            "",
        ),
        ("rbx = cfa*cfa", "rbx = {dup; over; mul}", "rbx = cfa * cfa"),
        (
            "reg77 = *u32 (rax-1)+1",
            "reg77 = {breg0 -1; deref_size 4; plus_uconst 1}",
            "",
        ),
        (
            "shra(-rax, ~1)",
            "{breg0 0; neg; lit1; not; shra}",
            "shra(-rax, ~(1))",
        ),
        ("!rax", "{breg0 0; lit0; eq}", "rax == 0"),
        ("abs(addr(0x1234) % 7)", "{addr 0x1234; lit7; mod; abs}", ""),
        ("- 8", "{const1s -8}", "-8"),
        ("-(8)", "{lit8; neg}", ""),
        ("300", "{const2u 300}", ""),
        ("0x12345678", "{const4u 305419896}", ""),
        ("rax + 0xfffffffffffffff8", "{breg0 -8}", "rax-8"),
        (
            "rax != rdx | rcx < 3",
            "{breg0 0; breg1 0; ne; breg2 0; lit3; lt; or}",
            "(rax != rdx) | (rcx < 3)",
        ),
    ];
    for (text, operations, printed) in cases {
        let statement =
            Statement::parse(text, X86_64).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(
            OperationsText(&statement, X86_64).to_string(),
            operations,
            "{text}"
        );
        assert_eq!(Statement::parse(operations, X86_64), Ok(statement.clone()));
        let formula = statement.formula(X86_64).unwrap();
        let expected = if printed.is_empty() { text } else { printed };
        assert_eq!(
            format!("{}{formula}", statement.left_side(X86_64)),
            expected
        );
    }
}

#[test]
fn errors_point_at_the_character() {
    let cases = [
        ("cfa = *(rsp+8)+", 15),
        ("cfa = *(rsp+8", 13),
        ("cfa = rsp 8", 10),
        ("cfa = rsp+8)", 11),
        ("cfa = rspp+8", 6),
        ("rbp = %foo", 7),
        ("cfa = rsp + cfa", 12),
        ("rxb = cfa", 0),
        ("  rxb = cfa", 2),
        ("cfa = {breg7; deref}", 7),
        ("cfa = {breg7 8; foo}", 16),
        ("cfa = {breg7 8", 14),
        ("cfa = [{breg7 8}]", 6),
        ("rbx = *u12 rax", 7),
        ("rbx = *u72 rax", 7),
        ("rbx = 0x12345678123456789", 6),
        ("rbx = 1x", 6),
        ("a == b = c", 0),
        ("rbx = shra(1)", 12),
        ("rax = rbx = rcx", 10),
        ("", 0),
    ];
    for (text, at) in cases {
        let error = Statement::parse(text, X86_64).unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
    }
}

#[test]
fn nothing_is_nested_without_bound() {
    let deep = usize::from(MAX_DEPTH) * 2;
    for (open, close) in [("(", ")"), ("*", ""), ("-", ""), ("[", "]"), ("abs(", ")")] {
        let text = format!("{}rax{}", open.repeat(100_000), close.repeat(100_000));
        assert!(Formula::parse(&text, X86_64).is_err());
    }
    let sum = |n| format!("rax{}", " * rax".repeat(n));
    assert!(Formula::parse(&sum(50), X86_64).is_ok());
    assert!(Formula::parse(&sum(deep), X86_64).is_err());
    // Each value is twice the one before: a formula of 2^60 nodes.
    let doubled = [0x70, 0]
        .into_iter()
        .chain([0x12, 0x22].repeat(60))
        .collect::<Vec<u8>>();
    let formula =
        |bytes| Formula::from_expression(Expression(bytes), X86_64, InitialStack::Nothing);
    assert_eq!(formula(&doubled), Err(FormulaError::TooLarge));
    assert!(formula(&doubled[..8]).is_ok());
}

#[test]
fn inexpressible_rules_have_no_formula() {
    let cases: [(&str, Result<&str, FormulaError>); 6] = [
        ("{breg0 0; deref; drop; breg7 0}", Err(FormulaError::Unused)),
        ("{lit1; breg7 0}", Ok("rsp")),
        ("{breg7 0; skip 0}", Err(FormulaError::Branch { offset: 2 })),
        (
            "{plus}",
            Err(FormulaError::Expression(ExpressionError::Underflow {
                offset: 0,
            })),
        ),
        (
            "{breg7 0; deref_size 9}",
            Err(FormulaError::Expression(ExpressionError::Illegal {
                opcode: 0x94,
                offset: 2,
            })),
        ),
        (
            "{#70}",
            Err(FormulaError::Expression(ExpressionError::Truncated {
                offset: 0,
            })),
        ),
    ];
    for (text, expected) in cases {
        let statement = Statement::parse(text, X86_64).unwrap();
        let formula = statement.formula(X86_64).map(|formula| formula.to_string());
        assert_eq!(formula.as_deref().map_err(Clone::clone), expected, "{text}");
    }
}

/// A formula with a value, but without operations.
#[derive(Debug, Clone)]
enum Model {
    Number(u64),
    Register(u16),
    Cfa,
    Load(u8, Box<Model>),
    Unary(&'static str, Box<Model>),
    Binary(&'static str, Box<Model>, Box<Model>),
}

const CFA: u64 = 0x7fff_1230;

impl Model {
    fn text(&self) -> String {
        match self {
            Model::Number(number) => format!("{number}"),
            Model::Register(number) => format!("reg{number}"),
            Model::Cfa => "cfa".to_owned(),
            Model::Load(8, of) => format!("*({})", of.text()),
            Model::Load(size, of) => format!("*u{} ({})", size * 8, of.text()),
            Model::Unary(op, of) => format!("{op}({})", of.text()),
            Model::Binary("shra", a, b) => format!("shra({},{})", a.text(), b.text()),
            Model::Binary(op, a, b) => format!("({}){op}({})", a.text(), b.text()),
        }
    }

    /// The value. Memory is that of the evaluator's tests: each byte is the low byte of its
    /// address. Reads that begin in the first page fail.
    fn value(&self) -> Option<u64> {
        Some(match self {
            Model::Number(number) => *number,
            Model::Register(number) => registers(X86_64).get(Register(*number))?,
            Model::Cfa => CFA,
            Model::Load(size, of) => {
                let at = of.value()?;
                let bytes = (0..u64::from(*size)).map(|n| at.wrapping_add(n));
                (at >= 0x1000).then_some(())?;
                bytes.rev().fold(0, |all, at| all << 8 | at & 0xff)
            }
            Model::Unary(op, of) => match (*op, of.value()?) {
                ("-", value) => 0_u64.wrapping_sub(value),
                ("~", value) => value ^ u64::MAX,
                ("!", value) => u64::from(value == 0),
                (_, value) => value.cast_signed().unsigned_abs(),
            },
            Model::Binary(op, a, b) => {
                let (a, b) = (a.value()?, b.value()?);
                let (sa, sb) = (a.cast_signed(), b.cast_signed());
                let shift = u32::try_from(b).ok().filter(|bits| *bits < 64);
                match *op {
                    "+" => a.wrapping_add(b),
                    "-" => a.wrapping_sub(b),
                    "*" => a.wrapping_mul(b),
                    "/" if sb == -1 => sa.wrapping_neg().cast_unsigned(),
                    "/" => sa.checked_div(sb)?.cast_unsigned(),
                    "%" => a.checked_rem(b)?,
                    "&" => a & b,
                    "|" => a | b,
                    "^" => a ^ b,
                    "<<" => shift.map_or(0, |bits| a << bits),
                    ">>" => shift.map_or(0, |bits| a >> bits),
                    "shra" => (sa >> shift.unwrap_or(63)).cast_unsigned(),
                    "==" => (a == b).into(),
                    "!=" => (a != b).into(),
                    "<" => (sa < sb).into(),
                    "<=" => (sa <= sb).into(),
                    ">" => (sa > sb).into(),
                    _ => (sa >= sb).into(),
                }
            }
        })
    }
}

fn models() -> impl Strategy<Value = Model> {
    let number = prop_oneof![
        0..40_u64,
        any::<u64>(),
        (0..64_u32).prop_map(|bits| 1 << bits),
        (0..300_u64).prop_map(|n| 0_u64.wrapping_sub(n))
    ];
    let leaf = prop_oneof![
        number.prop_map(Model::Number),
        prop::sample::select(std::vec![0_u16, 1, 2, 3, 7, 31, 77]).prop_map(Model::Register),
        Just(Model::Cfa),
    ];
    leaf.prop_recursive(8, 40, 2, |inner| {
        let binary = prop::sample::select(std::vec![
            "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "shra", "==", "!=", "<", "<=", ">", ">=",
        ]);
        prop_oneof![
            1 => (1..=8_u8, inner.clone()).prop_map(|(size, of)| Model::Load(size, Box::new(of))),
            1 => (prop::sample::select(std::vec!["-", "~", "!", "abs"]), inner.clone()).prop_map(|(op, of)| Model::Unary(op, Box::new(of))),
            4 => (binary, inner.clone(), inner).prop_map(|(op, a, b)| Model::Binary(op, Box::new(a), Box::new(b))),
        ]
    })
}

proptest! {
    #![proptest_config(Config::with_cases(Config::default().cases.max(unspool_testing::generated(10_000))))]

    #[test]
    fn a_formula_has_the_value_that_gimli_finds(model in models()) {
        let text = model.text();
        let formula = Formula::parse(&text, X86_64).unwrap();
        let bytes = formula.assemble();
        prop_assert_eq!(gimli_opinion(&bytes, X86_64, Some(CFA)), model.value(), "{}: {:02x?}", text, bytes);
        // Read back from the operations, it has the same value; printed, it is the same formula.
        let again = Formula::from_expression(Expression(&bytes), X86_64, InitialStack::Cfa).unwrap();
        prop_assert_eq!(gimli_opinion(&again.assemble(), X86_64, Some(CFA)), model.value(), "{}", again);
        let printed = Formula::parse(&again.to_string(), X86_64).unwrap();
        prop_assert_eq!(printed.assemble(), again.assemble(), "{}", again);
        prop_assert_eq!(printed.to_string(), again.to_string());
    }

    /// For any text there is a statement, or an error that points into the text.
    #[test]
    fn any_text_is_read_or_pointed_into(text in "[a-z0-9é ()\\[\\]{}*+<>=!&|^~%,;#.-]{0,30}", n in 0..ABIS.len()) {
        match Statement::parse(&text, ABIS[n]) {
            Ok(statement) => {
                let printed = OperationsText(&statement, ABIS[n]).to_string();
                prop_assert_eq!(Statement::parse(&printed, ABIS[n]), Ok(statement), "{}", printed);
            }
            Err(error) => prop_assert!(text.is_char_boundary(error.at), "{}: {:?}", text, error),
        }
    }

    /// For any operations, the formula has their value on every machine, and no value where they
    /// have none.
    #[test]
    fn operations_have_the_value_of_their_formula(
        choices in prop::collection::vec(any::<(u8, u64)>(), 1..12),
        initial in prop::option::of(0x1000..0xffff_0000_u64),
        n in 0..ABIS.len(),
    ) {
        let bytes = build(&choices, ABIS[n]);
        let start = if initial.is_some() { InitialStack::Cfa } else { InitialStack::Nothing };
        if let Ok(formula) = Formula::from_expression(Expression(&bytes), ABIS[n], start) {
            let value = evaluate(&bytes, ABIS[n], initial).ok();
            let parsed = Formula::parse(&formula.to_string(), ABIS[n]).unwrap();
            for formula in [&formula, &parsed] {
                let assembled = formula.assemble();
                prop_assert_eq!(evaluate(&assembled, ABIS[n], initial).ok(), value, "{}: {:02x?}", formula, bytes);
            }
        }
    }
}

/// The shell's arithmetic has C's precedence. Its numbers are signed, so only cases where that does
/// not show are compared.
#[test]
#[cfg_attr(miri, ignore = "starts a shell")]
fn precedence_is_that_of_the_shell() {
    let operators = [
        "+", "-", "*", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "<<",
    ];
    let mut state = 7_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let mut texts = Vec::new();
    for _ in 0..500 {
        let mut text = format!("{}", random(9));
        let mut is_shifted = false;
        for _ in 0..random(5) + 1 {
            // The distance of a shift stays a small unsigned number.
            let (op, before) = if is_shifted {
                (["+", "&", "==", "<<"][random(4)], "")
            } else {
                (
                    operators[random(operators.len())],
                    ["", "-", "~", "!"][random(4)],
                )
            };
            is_shifted |= op == "<<";
            match op {
                "<<" => text += &format!(" << {}", random(4)),
                _ => text += &format!(" {op} {before}{}", random(9)),
            }
        }
        texts.push(text);
    }
    let script: String = texts
        .iter()
        .map(|text| format!("echo $(({text}))\n"))
        .collect();
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.lines().count(), texts.len());
    for (text, expected) in texts.iter().zip(output.lines()) {
        let formula = Formula::parse(text, X86_64).unwrap();
        let value = evaluate(&formula.assemble(), X86_64, None).unwrap();
        assert_eq!(
            value.cast_signed().to_string(),
            expected,
            "{text}: {formula}"
        );
    }
}
