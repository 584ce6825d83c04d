//! Text to table and back: the documented examples, and refused texts. Random tables are in
//! `tests/it`.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::{ExpressionText, parse, parse_expression};
use crate::arch::Abi;
use crate::diff::{DiffScope, differences};
use crate::expression::Expression;

const ABI: Abi = Abi::X86_64;

/// Parses `text` and compares its printed form with `expected`, which must parse to the same.
fn check(text: &str, expected: &str) {
    let table = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let printed = table.to_string();
    assert_eq!(printed, expected);
    let again = parse(&printed).unwrap();
    assert_eq!(differences(&table, &again, DiffScope::RowsAndEntries), []);
}

/// One row of x86-64 in an entry of its own.
fn check_row(row: &str, expected: &str) {
    let head = "arch x86-64 little\nfn 0x10..0x20\n  0x10  ";
    check(&format!("{head}{row}\n"), &format!("{head}{expected}\n"));
}

/// The message with which `text` is refused.
fn check_error(text: &str, expected: &str) {
    match parse(text) {
        Ok(table) => panic!("{text} is accepted as\n{table}"),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

/// The lines of the module's documentation.
fn documentation() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../text.rs").lines();
    lines
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
}

#[test]
fn the_documented_table_prints_as_it_is_documented() {
    let fenced = documentation()
        .skip_while(|line| *line != "```text")
        .skip(1);
    let example: Vec<&str> = fenced.take_while(|line| *line != "```").collect();
    assert_eq!(example.len(), 6);
    let example = example.join("\n") + "\n";
    check(&example, &example);
}

#[test]
fn every_documented_form_of_a_rule_parses_and_prints_as_documented() {
    let rows = documentation().filter_map(|line| line.strip_prefix("| `"));
    let mut seen = 0;
    for row in rows {
        let (forms, _) = row.split_once("` |").unwrap();
        for form in forms.split("` · `") {
            let form = form.replace('…', "lit1; drop");
            if form.starts_with("cfa=") {
                check_row(&form, &form);
            } else {
                check_row(&form, &format!("cfa=undefined  {form}"));
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 15);
}

#[test]
fn spelling_is_free_where_meaning_is_not() {
    check_row(
        "rbp=same rbx=[cfa-8]  cfa=rsp+16",
        "cfa=rsp+16  rbx=[cfa-8]  rbp=same",
    );
    check_row("cfa=rip-0 rip=same reg3=rax", "cfa=ra+0  ra=same  rbx=rax");
    check_row("cfa={ lit1;;dup ; plus; }", "cfa={lit1; dup; plus}");
    check_row("cfa={const2u 0x10}", "cfa={const2u 16}");
    check_row("cfa={#3112}", "cfa={lit1; dup}");
    check_row("cfa={#} rax=[{}] rdx={}", "cfa={}  rax=[{}]  rdx={}");
    check_row(
        "args=0x10 signed signal",
        "cfa=undefined  signal  signed  args=16",
    );
    check(
        "\n# a comment\n\n   arch x86-64 big \r\n  # another\nfn 16..0x20 lsda=5 personality=0x7\r\n16 cfa=rsp+8",
        "arch x86-64 big\nfn 0x10..0x20 personality=0x7 lsda=0x5\n  0x10  cfa=rsp+8\n",
    );
    check("arch machine-243-64 little", "arch machine-243-64 little\n");
    check("arch machine-183-64 little", "arch aarch64 little\n");
}

#[test]
fn bytes_that_names_would_not_reproduce_stand_as_they_are() {
    for (bytes, expected) in [
        (&[0x10, 0x81, 0x00][..], "{#108100}"), // padded LEB128
        (&[0x50], "{#50}"),                     // not legal in CFI
        (&[0x08], "{#08}"),                     // cut short
        (&[0x31, 0x08], "{#3108}"),
        (&[0x10, 0x01], "{constu 1}"),
        (&[0x2f, 0xfd, 0xff], "{skip -3}"),
        (&[0x92, 0x4d, 0x7f], "{bregx 77 -1}"),
        (&[0x03, 0, 1, 0, 0, 0, 0, 0, 0], "{addr 0x100}"),
        (
            &[0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            "{const8s 9223372036854775807}",
        ),
        (
            &[0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "{const8u 18446744073709551615}",
        ),
    ] {
        let shown = ExpressionText(Expression(bytes), ABI).to_string();
        assert_eq!(shown, expected);
        let inner = shown.trim_start_matches('{').trim_end_matches('}');
        assert_eq!(parse_expression(inner, ABI).unwrap(), bytes);
    }
}

#[test]
fn a_refusal_names_line_and_word() {
    for (text, expected) in [
        ("", "line 1: expected `arch NAME little|big`, in ``"),
        (
            "\n\nfn 0x0..0x1",
            "line 3: expected `arch NAME little|big`, in `fn 0x0..0x1`",
        ),
        (
            "arch vax little",
            "line 1: expected `arch NAME little|big`, in `arch vax little`",
        ),
        (
            "arch x86-64 middle",
            "line 1: expected `arch NAME little|big`, in `arch x86-64 middle`",
        ),
        (
            "arch x86-64",
            "line 1: expected `arch NAME little|big`, in `arch x86-64`",
        ),
        (
            "arch machine-9-16 big",
            "line 1: expected `arch NAME little|big`, in `arch machine-9-16 big`",
        ),
        (
            "arch x86-64 little\n\n 0x0 cfa=rsp+8",
            "line 3: expected `fn START..END`, in ` 0x0 cfa=rsp+8`",
        ),
        (
            "arch x86-64 little\nfn 0x0-0x1",
            "line 2: expected START..END, in `0x0-0x1`",
        ),
        (
            "arch x86-64 little\nfn 0x0..end",
            "line 2: expected a number, in `end`",
        ),
        (
            "arch x86-64 little\nfn 0x0..0x+1",
            "line 2: expected a number, in `0x+1`",
        ),
        (
            "arch x86-64 little\nfn 0x0..0x1 lsda=here",
            "line 2: expected a number, in `here`",
        ),
        (
            "arch x86-64 little\nfn 0x0..0x1 size=1",
            "line 2: expected `personality=` or `lsda=`, in `size=1`",
        ),
        (
            "arch x86-64 little\nfn 0x0..0x1 lsda=1 personality=2 lsda=1",
            "line 2: given a second time, in `lsda=1`",
        ),
        (
            "arch x86-64 little\n\nfn 0x0..0x1 personality=1 personality=[1]",
            "line 3: given a second time, in `personality=[1]`",
        ),
    ] {
        check_error(text, expected);
    }
    let order = "rows must begin at the entry's start, ascend, and end before its end";
    for rows in [
        "",
        "\n 1 cfa=rsp+8",
        "\n 0 cfa=rsp+8\n 0 cfa=rsp+8",
        "\n 0 cfa=rsp+8\n 2 cfa=rsp+8",
    ] {
        let text = format!("arch x86-64 little\n# one\nfn 0x0..0x2{rows}");
        check_error(&text, &format!("line 3: {order}, in `fn 0x0..0x2`"));
    }
}

#[test]
fn a_refused_row_names_its_word() {
    for (row, what) in [
        ("cfa", "expected NAME=RULE, in `cfa`"),
        ("signal-frame", "expected NAME=RULE, in `signal-frame`"),
        ("cfa=rsp", "expected REGISTER+OFFSET, in `rsp`"),
        ("cfa=rsp+", "expected +N or -N, in `+`"),
        ("cfa=rsp+0x8", "expected +N or -N, in `+0x8`"),
        (
            "cfa=rsp+9223372036854775808",
            "expected +N or -N, in `+9223372036854775808`",
        ),
        ("cfa=r16+8", "unknown register, in `r16`"),
        ("cfa={lit1", "missing `}`, in ` 0 cfa={lit1`"),
        (
            "cfa={lit1}+8",
            "expected the expression to end with `}`, in `{lit1}+8`",
        ),
        (
            "rbx={lit1}8",
            "expected the expression to end with `}`, in `{lit1}8`",
        ),
        (
            "rbx=[{lit1}8]",
            "expected the expression to end with `}`, in `{lit1}8`",
        ),
        ("rbx=[rsp+8]", "expected `[cfa+N]` or `[{…}]`, in `[rsp+8]`"),
        ("rbx=[cfa8]", "expected +N or -N, in `8`"),
        ("rbx=cfa8", "expected +N or -N, in `8`"),
        ("rbx=cfa", "expected +N or -N, in ``"),
        ("rbx=nothing", "unknown register, in `nothing`"),
        ("rbx=reg65536", "unknown register, in `reg65536`"),
        ("rbx=reg+5", "unknown register, in `reg+5`"),
        ("nothing=same", "unknown register, in `nothing`"),
        (
            "cfa=rsp+8 rbx=same cfa=rsp+8",
            "given a second time, in `cfa=rsp+8`",
        ),
        (
            "cfa={lit1; dup} cfa=undefined",
            "given a second time, in `cfa=undefined`",
        ),
        ("args=0 args=8", "given a second time, in `args=8`"),
        (
            "return=rax return=rax",
            "given a second time, in `return=rax`",
        ),
        ("signal signal", "given a second time, in `signal`"),
        ("signed signed-pc", "given a second time, in `signed-pc`"),
        ("signed-pc signed", "given a second time, in `signed`"),
        (
            "rbx=same rbx=undefined",
            "given a second time, in `rbx=undefined`",
        ),
        ("ra=same rip=same", "given a second time, in `rip=same`"),
        ("reg3=same rbx=same", "given a second time, in `rbx=same`"),
        ("args=many", "expected a number, in `many`"),
        ("return=nothing", "unknown register, in `nothing`"),
        ("cfa={frob}", "unknown operation, in `frob`"),
        ("cfa={reg0}", "unknown operation, in `reg0`"),
        ("cfa={lit32}", "unknown operation, in `lit32`"),
        ("cfa={breg7}", "operand is missing, in `breg7`"),
        ("cfa={bregx 7}", "operand is missing, in `bregx 7`"),
        (
            "cfa={lit1; dup 2}",
            "more operands than the operation takes, in `dup 2`",
        ),
        ("cfa={const1u -1}", "expected a number, in `-1`"),
        (
            "cfa={const1u 256}",
            "operand does not fit, in `const1u 256`",
        ),
        (
            "cfa={const1s 128}",
            "operand does not fit, in `const1s 128`",
        ),
        (
            "cfa={const2u 0x10000}",
            "operand does not fit, in `const2u 0x10000`",
        ),
        (
            "cfa={const4s -2147483649}",
            "operand does not fit, in `const4s -2147483649`",
        ),
        ("cfa={skip 32768}", "operand does not fit, in `skip 32768`"),
        ("cfa={pick 300}", "operand does not fit, in `pick 300`"),
        (
            "cfa={#123}",
            "expected pairs of hexadecimal digits, in `123`",
        ),
        ("cfa={#+1}", "expected pairs of hexadecimal digits, in `+1`"),
        ("cfa={#ää}", "expected pairs of hexadecimal digits, in `ää`"),
    ] {
        let text = format!("arch x86-64 little\nfn 0x0..0x1\n 0 {row}");
        check_error(&text, &format!("line 3: {what}"));
    }
    let rules: String = (0..65).map(|n| format!(" reg{n}=same")).collect();
    let text = format!("arch x86-64 little\nfn 0x0..0x1\n 0{rules}");
    check_error(&text, "line 3: too many rules in one row, in `reg64=same`");
    check_error(
        "arch i386 little\nfn 0x0..0x1\n 0 cfa={addr 0x100000000}",
        "line 3: operand does not fit, in `addr 0x100000000`",
    );
}

#[test]
fn an_expression_on_its_own_has_no_line() {
    let error = parse_expression("lit1; frob", ABI).unwrap_err();
    assert_eq!((error.line, error.text.as_str()), (0, "frob"));
}
