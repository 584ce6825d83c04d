//! SFrame: sections written by hand from the specification, our own sections compared with their
//! rows, and damaged sections. Tests with binutils' sections are in the command
//! (`crates/cli/tests/it/convert.rs`) and in `cargo xtask sframe-suite`.

use proptest::prelude::*;
use unspool_cfi::sframe::{
    FrameRowEntry, FreBase, FreContents, FreRules, FreValue, SearchProblem, SframeAbi,
    SframeConversion, SframeError, SframeFunction, SframeImage, SframeLookup, SframeProblem,
    SframeSection, SframeVersion, SubSections, UnrepresentableReason, fit, functions, read, repair,
    table,
};
use unspool_rows::{CfaRule, Register, RegisterRule, Row, Table, Vaddr};

const SECTION: Vaddr = Vaddr(0x2000);

/// The bytes of a text of hexadecimal digits; a comment follows `|`.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.lines().map(|line| line.split('|').next().unwrap());
    let digits = digits.flat_map(str::split_whitespace);
    digits
        .map(|two| u8::from_str_radix(two, 16).unwrap())
        .collect()
}

/// Functions and rows, one a line, in the text form of `unspool-rows`.
fn text(functions: &[SframeFunction], abi: SframeAbi) -> String {
    let mut lines = String::new();
    for function in functions {
        let mut marks = String::new();
        if let Some(block) = function.block {
            marks += &format!(" block={block}");
        }
        for (is, mark) in [
            (function.is_signal_frame, " signal"),
            (function.has_key_b, " key-b"),
        ] {
            marks += if is { mark } else { "" };
        }
        lines += &format!("{}+{:#x}{marks}\n", function.start, function.size);
        for row in &function.rows {
            let one = SframeFunction {
                rows: vec![FrameRowEntry { offset: 0, ..*row }],
                block: None,
                size: 1,
                is_signal_frame: false,
                ..function.clone()
            };
            let (table, problems) = table(&[one], abi);
            assert_eq!(problems, []);
            let id = table.spans().next().unwrap().row;
            let row_text = table.row(id).unwrap().display(table.abi()).to_string();
            // Registers that SFrame does not describe are the same in all rows.
            let words = row_text.split_whitespace();
            let printed: Vec<_> = words
                .filter(|word| !word.starts_with("return=") && !is_untold(word, abi))
                .collect();
            lines += &format!("  {:#x} {}\n", row.offset, printed.join(" "));
        }
    }
    lines
}

fn is_untold(word: &str, abi: SframeAbi) -> bool {
    let arch = abi.abi().arch;
    let name = word.split('=').next().unwrap();
    word.ends_with("=undefined")
        && arch
            .register_named(name)
            .is_some_and(|register| abi.untracked_registers().contains(&register.0))
}

fn check_read(abi: SframeAbi, hexadecimal: &str, expected: &str) -> SframeSection {
    let reading = read(&bytes(hexadecimal), SECTION, abi);
    assert_eq!(reading.problems, []);
    assert_eq!(text(&reading.functions, abi), expected);
    check_lookups(&bytes(hexadecimal), SECTION, abi, &reading);
    reading
}

/// Looks up both ends of all rows of a section's table, and the addresses next to them. The
/// in-place look-ups give the same rows, without an allocator.
fn check_lookups(section: &[u8], address: Vaddr, abi: SframeAbi, sframe_section: &SframeSection) {
    let lookup = SframeLookup::new(section, address, abi);
    let (table, problems) = table(&sframe_section.functions, abi);
    assert_eq!(problems, []);
    let spans: Vec<_> = table.spans().collect();
    let ends = spans
        .iter()
        .flat_map(|span| [span.start.0 - 1, span.start.0, span.end.0 - 1, span.end.0]);
    for pc in ends.map(Vaddr) {
        let span = spans.iter().find(|span| span.start <= pc && pc < span.end);
        let expected = span.map(|span| table.row(span.row).unwrap());
        let mut row = Row::new(Register(0));
        let found = match lookup.row(pc, &mut row) {
            Ok(found) => found,
            Err(SframeError::NotReady { register, offset }) => {
                let is_ready =
                    register.0 < 32 && (-1024..1024).contains(&offset) && offset % 8 == 0;
                assert!(!is_ready && has_expression(&expected.unwrap()), "{pc}");
                continue;
            }
            Err(error) => panic!("{pc}: {error}"),
        };
        let rows = (found.as_ref().map(|_| row), expected);
        let [is, should_be] = [&rows.0, &rows.1].map(|row| {
            let row = row.as_ref();
            row.map(|row| row.display(table.abi()).to_string())
        });
        assert_eq!(is, should_be, "{pc}");
        assert!(found.is_none_or(|entry| entry.contains(&pc)), "{pc}");
    }
}

fn has_expression(row: &Row<'_>) -> bool {
    let is_expression = |rule| {
        matches!(
            rule,
            RegisterRule::Expression(_) | RegisterRule::ValExpression(_)
        )
    };
    matches!(row.cfa, CfaRule::Expression(_)) || row.rules().any(|(_, rule)| is_expression(rule))
}

/// A function that pushes its frame pointer, in the specification's encoding for each version.
const PUSHES: &str = "\
0x1000+0x20
  0x0 cfa=rsp+8 ra=[cfa-8]
  0x1 cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]
  0x4 cfa=rbp+16 ra=[cfa-8] rbp=[cfa-16]
";
const PUSHES_V1: &str = "
    e2 de 01 01 03 00 f8 00             | magic, version, sorted, x86-64, FP not fixed, RA at -8, no more header
    01 00 00 00  03 00 00 00  0b 00 00 00  00 00 00 00  11 00 00 00
    00 f0 ff ff  20 00 00 00  00 00 00 00  03 00 00 00  00
    00 03 08                            | SP, one word of a byte
    01 05 10 f0                         | SP, two
    04 04 10 f0                         | FP, two";
const PUSHES_V2: &str = "
    e2 de 02 01 03 00 f8 00
    01 00 00 00  03 00 00 00  0b 00 00 00  00 00 00 00  14 00 00 00
    00 f0 ff ff  20 00 00 00  00 00 00 00  03 00 00 00  00 00 00 00
    00 03 08  01 05 10 f0  04 04 10 f0";
const PUSHES_V3: &str = "
    e2 de 03 05 03 00 f8 00             | starts are relative to their fields
    01 00 00 00  03 00 00 00  10 00 00 00  00 00 00 00  10 00 00 00
    e4 ef ff ff ff ff ff ff  20 00 00 00  00 00 00 00
    03 00 00 00 00
    00 03 08  01 05 10 f0  04 04 10 f0";

#[test]
fn one_function_in_three_versions() {
    for (version, section) in [
        (SframeVersion::V1, PUSHES_V1),
        (SframeVersion::V2, PUSHES_V2),
        (SframeVersion::V3, PUSHES_V3),
    ] {
        let reading = check_read(SframeAbi::Amd64, section, PUSHES);
        let [part] = reading.sub_sections.as_slice() else {
            panic!("{:?}", reading.sub_sections);
        };
        assert_eq!(part.header.version, version);
        assert!(part.header.is_sorted());
        assert_eq!(part.end, bytes(section).len() as u64);
        // All of them can be written in both writable versions.
        for (version, expected) in [
            (SframeVersion::V2, PUSHES_V2),
            (SframeVersion::V3, PUSHES_V3),
        ] {
            let written = SframeImage::new(&reading.functions, SframeAbi::Amd64, version).unwrap();
            assert_eq!(written.bytes_at(SECTION).unwrap(), bytes(expected));
        }
    }
    assert!(SframeImage::new(&[], SframeAbi::Amd64, SframeVersion::V1).is_err());
}

/// `.plt`: the rows of a block of 16 bytes. Version 1 has no field for the size.
#[test]
fn repeated_blocks() {
    let expected = "\
0x1010+0x30 block=16
  0x0 cfa=rsp+8 ra=[cfa-8]
  0xb cfa=rsp+16 ra=[cfa-8]
";
    let v1 = "
        e2 de 01 01 03 00 f8 00
        01 00 00 00  02 00 00 00  06 00 00 00  00 00 00 00  11 00 00 00
        10 f0 ff ff  30 00 00 00  00 00 00 00  02 00 00 00  10
        00 03 08  0b 03 10";
    let v3 = "
        e2 de 03 05 03 00 f8 00
        01 00 00 00  02 00 00 00  0b 00 00 00  00 00 00 00  10 00 00 00
        f4 ef ff ff ff ff ff ff  30 00 00 00  00 00 00 00
        02 00 10 00 10
        00 03 08  0b 03 10";
    let reading = check_read(SframeAbi::Amd64, v1, expected);
    let written =
        SframeImage::new(&reading.functions, SframeAbi::Amd64, SframeVersion::V3).unwrap();
    assert_eq!(written.bytes_at(SECTION).unwrap(), bytes(v3));
    check_read(SframeAbi::Amd64, v3, expected);
    // As rows, one block after the other.
    let (table, _) = table(&reading.functions, SframeAbi::Amd64);
    let starts: Vec<u64> = table.spans().map(|span| span.start.0).collect();
    assert_eq!(starts, [0x1010, 0x101b, 0x1020, 0x102b, 0x1030, 0x103b]);
}

/// GNU as output for a function that realigns its stack: the CFA is in r10, then in memory at
/// rbp-8. Then a signal frame with its registers above the stack pointer, an outermost frame
/// without rows, and one with a row.
#[test]
fn flexible_entries_and_outermost_frames() {
    let section = "
        e2 de 03 05 03 00 f8 00
        04 00 00 00  06 00 00 00  3c 00 00 00  00 00 00 00  40 00 00 00
        e4 ef ff ff ff ff ff ff  5f 00 00 00  00 00 00 00
        54 f0 ff ff ff ff ff ff  10 00 00 00  19 00 00 00
        54 f0 ff ff ff ff ff ff  02 00 00 00  2d 00 00 00
        54 f0 ff ff ff ff ff ff  08 00 00 00  32 00 00 00
        03 00 00 01 00                      | three rows, flexible
        00 05 39 08                         | SP: register 7 << 3 | 1
        09 04 51 00                         | register 10
        1a 0a 33 f8 00 33 00                | loaded from register 6 - 8; RA padded; FP loaded from register 6
        | 4 bytes that belong to nothing
        aa aa aa aa aa
        01 00 80 01 00                      | a signal frame, flexible
        00 2d 3b 00 a0 00 3b 00 a8 00 3b 00 78 00
        aa
        00 00 00 00 00                      | no rows
        02 00 00 00 00
        00 03 08  04 00";
    check_read(
        SframeAbi::Amd64,
        section,
        "\
0x1000+0x5f
  0x0 cfa=rsp+8 ra=[cfa-8]
  0x9 cfa=r10+0 ra=[cfa-8]
  0x1a cfa={breg6 -8; deref} ra=[cfa-8] rbp=[{breg6 0}]
0x1080+0x10 signal
  0x0 cfa={breg7 160; deref} ra=[{breg7 168}] rbp=[{breg7 120}]
0x1090+0x2
  0x0 cfa=rsp+0 ra=undefined rbp=undefined
0x10a0+0x8
  0x0 cfa=rsp+8 ra=[cfa-8]
  0x4 cfa=rsp+0 ra=undefined rbp=undefined
",
    );
}

/// Big-endian, two words of two bytes, a signed return address, key B; and a return address that is
/// still in its register.
#[test]
fn aarch64() {
    let section = "
        de e2 03 05 01 00 00 00
        00 00 00 01  00 00 00 03  00 00 00 15  00 00 00 00  00 00 00 10
        ff ff ff ff ff ff ef e4  00 00 00 40  00 00 00 00
        00 03 20 00 00
        00 03 00
        04 a7 02 00 fe 00 fe 08
        10 06 10 f0 f8";
    let expected = "\
0x1000+0x40 key-b
  0x0 cfa=sp+0
  0x4 cfa=sp+512 signed x30=[cfa-512] x29=[cfa-504]
  0x10 cfa=x29+16 x30=[cfa-16] x29=[cfa-8]
";
    let reading = check_read(SframeAbi::Aarch64Big, section, expected);
    let written =
        SframeImage::new(&reading.functions, SframeAbi::Aarch64Big, SframeVersion::V3).unwrap();
    assert_eq!(written.bytes_at(SECTION).unwrap(), bytes(section));
}

/// CFA offsets are stored minus 160 and in units of 8; a return address at 0 is padding; registers
/// are odd numbers before version 3.
#[test]
fn s390x() {
    let section = "
        de e2 02 01 04 00 00 00
        00 00 00 01  00 00 00 03  00 00 00 0d  00 00 00 00  00 00 00 14
        ff ff f0 00  00 00 00 40  00 00 00 00  00 00 00 03  00 00 00 00
        00 03 00
        06 07 0c 00 b8
        10 07 0c 21 b8";
    let reading = check_read(
        SframeAbi::S390x,
        section,
        "\
0x1000+0x40
  0x0 cfa=reg15+160 reg15=cfa-160
  0x6 cfa=reg15+256 reg11=[cfa-72] reg15=cfa-160
  0x10 cfa=reg15+256 reg14=reg16 reg11=[cfa-72] reg15=cfa-160
",
    );
    let written =
        SframeImage::new(&reading.functions, SframeAbi::S390x, SframeVersion::V2).unwrap();
    assert_eq!(written.bytes_at(SECTION).unwrap(), bytes(section));
}

/// The rows of a table in text form.
fn parse(rows: &str) -> Table {
    unspool_rows::text::parse(&format!("arch x86-64 little\n{rows}")).unwrap()
}

fn convert(rows: &str, version: SframeVersion) -> SframeConversion {
    functions(&parse(rows), SframeAbi::Amd64, version)
}

#[test]
fn unrepresentable_functions_are_left_out_with_a_reason() {
    let rows = "\
fn 0x1000..0x1040
  0x1000  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-16]
  0x1010  cfa={breg7 48; deref; plus_uconst 8}  ra=[cfa-8]
  0x1020  cfa=rax+8  ra=[cfa-8]
  0x1030  cfa=rsp+8  ra=[cfa-8]
";
    let v3 = convert(rows, SframeVersion::V3);
    let whys = |conversion: &SframeConversion| {
        let whys = conversion.unrepresentable.iter();
        whys.map(|r| (r.start.0, r.end.0, r.reason))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        whys(&v3),
        [(0x1010, 0x1020, UnrepresentableReason::CfaExpression)]
    );
    assert_eq!((v3.plain, v3.flexible, v3.incomplete), (0, 0, 1));
    assert_eq!(
        text(&v3.functions, SframeAbi::Amd64),
        "\
0x1000+0x10
  0x0 cfa=rsp+8 ra=[cfa-8]
0x1020+0x20
  0x0 cfa=rax+8 ra=[cfa-8]
  0x10 cfa=rsp+8 ra=[cfa-8]
"
    );
    let v2 = convert(rows, SframeVersion::V2);
    let expected = [
        (0x1010, 0x1020, UnrepresentableReason::CfaExpression),
        (
            0x1020,
            0x1030,
            UnrepresentableReason::CfaRegister(Register(0)),
        ),
    ];
    assert_eq!(whys(&v2), expected);
    // Version 3's functions, as version 2.
    let fitting = fit(&v3.functions, SframeAbi::Amd64, SframeVersion::V2);
    assert_eq!(whys(&fitting), [expected[1]]);
    assert_eq!(
        text(&fitting.functions, SframeAbi::Amd64),
        text(&v2.functions, SframeAbi::Amd64)
    );
    let others = [
        (
            "cfa=rsp+8 ra=[cfa-16]",
            None,
            Some(UnrepresentableReason::Flexible),
        ),
        (
            "cfa=rsp+8 ra=rcx",
            None,
            Some(UnrepresentableReason::Flexible),
        ),
        (
            "cfa=rsp+8 ra=[cfa-8] rbp=undefined",
            Some(UnrepresentableReason::FramePointer),
            Some(UnrepresentableReason::FramePointer),
        ),
        (
            "cfa=rsp+8 ra=[cfa-8] rsp=[cfa-32]",
            Some(UnrepresentableReason::StackPointer),
            Some(UnrepresentableReason::StackPointer),
        ),
        (
            "cfa=rsp+8 ra=[cfa-8] signal",
            None,
            Some(UnrepresentableReason::SignalFrame),
        ),
        ("cfa=rsp+8 ra=undefined", None, None),
    ];
    for (row, in_3, in_2) in others {
        for (version, expected) in [(SframeVersion::V3, in_3), (SframeVersion::V2, in_2)] {
            let converted = convert(&format!("fn 0x1000..0x1010\n  0x1000  {row}\n"), version);
            let why = converted
                .unrepresentable
                .first()
                .map(|refused| refused.reason);
            assert_eq!(why, expected, "{row} {version:?}");
        }
    }
}

/// `.plt` as linkers describe it becomes a block, with the rows of its first entry in front.
#[test]
fn the_expression_of_a_procedure_linkage_table_becomes_a_block() {
    let converted = convert(
        "\
fn 0x1020..0x1060
  0x1020  cfa=rsp+16  ra=[cfa-8]
  0x1026  cfa=rsp+24  ra=[cfa-8]
  0x1030  cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  ra=[cfa-8]
",
        SframeVersion::V2,
    );
    assert_eq!((converted.plain, converted.unrepresentable.len()), (1, 0));
    assert_eq!(
        text(&converted.functions, SframeAbi::Amd64),
        "\
0x1020+0x10
  0x0 cfa=rsp+16 ra=[cfa-8]
  0x6 cfa=rsp+24 ra=[cfa-8]
0x1030+0x30 block=16
  0x0 cfa=rsp+8 ra=[cfa-8]
  0xb cfa=rsp+16 ra=[cfa-8]
"
    );
}

#[test]
fn concatenated_unsorted_and_overlapping_entries_are_reported_and_repaired() {
    // A linker that concatenates sections pads them.
    let mut section = bytes(PUSHES_V2);
    let second = section.len().next_multiple_of(8);
    section.resize(second, 0);
    let others = "
        e2 de 03 01 03 00 f8 00
        02 00 00 00  02 00 00 00  10 00 00 00  00 00 00 00  20 00 00 00
        10 e0 ff ff ff ff ff ff  40 00 00 00  00 00 00 00   | relative to this header
        00 e0 ff ff ff ff ff ff  14 00 00 00  08 00 00 00
        01 00 00 00 00  00 03 08
        01 00 00 00 00  00 03 18";
    section.extend(bytes(others));
    let reading = read(&section, Vaddr(0x2000), SframeAbi::Amd64);
    assert_eq!(reading.problems, []);
    assert_eq!(reading.sub_sections.len(), 2);
    // The entries of the second part do not ascend. If its header does not claim it, readers do not
    // rely on it.
    section[second + 3] = 0;
    check_lookups(&section, Vaddr(0x2000), SframeAbi::Amd64, &reading);
    let at = |index: usize| reading.functions[index].start.0;
    let base = 0x2000 + second as u64;
    assert_eq!(
        [at(0), at(1), at(2)],
        [0x1000, base + 0x10 - 0x2000, base - 0x2000]
    );
    let disorder = reading.disorder(10);
    assert!(
        matches!(
            disorder.as_slice(),
            [
                SearchProblem::Concatenated { offset },
                SearchProblem::Unsorted { is_denied: true, .. },
                SearchProblem::Overlap { .. },
            ] if *offset == second as u64
        ),
        "{disorder:?}"
    );
    let mended = repair(&reading.functions);
    assert!(mended.windows(2).all(|pair| pair[0].end() <= pair[1].start));
    // Each address keeps the row of the last function that begins before it.
    for pc in (0..0x1200).map(Vaddr) {
        let covering = reading
            .functions
            .iter()
            .filter(|f| f.start <= pc && pc < f.end());
        let expected = covering.max_by_key(|f| f.start).and_then(|f| f.frame(pc));
        let found = mended.iter().find_map(|f| f.frame(pc));
        assert_eq!(found, expected, "{pc}");
    }
}

/// An assembler's directive behind the last instruction makes a row that holds nowhere.
#[test]
fn a_row_at_the_end_of_a_function_is_passed_over() {
    let mut section = bytes(PUSHES_V3);
    section[0x38] = 0x20;
    let without_last: String = PUSHES.split_inclusive('\n').take(3).collect();
    let reading = read(&section, SECTION, SframeAbi::Amd64);
    assert_eq!(reading.problems, []);
    assert_eq!(text(&reading.functions, SframeAbi::Amd64), without_last);
}

/// The header's totals for rows are not used for reading; a wrong total is reported.
#[test]
fn entries_under_a_wrong_header_are_reported_and_read() {
    for (offset, field, room) in [(12, "sfh_num_fres", 8), (16, "sfh_fre_len", 0x10)] {
        let mut section = bytes(PUSHES_V3);
        section[offset..offset + 4].fill(0xff);
        let reading = read(&section, SECTION, SframeAbi::Amd64);
        let expected = SframeProblem {
            entry: 0,
            error: SframeError::Header {
                field,
                offset: offset as u64,
                value: u32::MAX,
                room,
            },
        };
        assert_eq!(reading.problems, [expected]);
        assert_eq!(text(&reading.functions, SframeAbi::Amd64), PUSHES);
    }
}

#[test]
fn bad_entries_do_not_disturb_the_others() {
    for (place, byte, error) in [
        (0, 0xe3, SframeError::Magic(0xdee3)),
        (2, 4, SframeError::Version(4)),
        (4, 9, SframeError::Machine(9)),
        (4, 2, SframeError::OtherMachine(2)),
        (
            8,
            9,
            SframeError::Entries {
                counted: 9,
                room: 2,
            },
        ),
        (0x2e, 3, SframeError::RowType(3)),
        (0x2f, 2, SframeError::EntryType(2)),
        (0x2e, 0x10, SframeError::NoBlock),
        (
            0x2c,
            5,
            SframeError::Truncated {
                offset: 0x3c,
                end: 0x3c,
            },
        ),
        (
            0x34,
            0,
            SframeError::RowOrder {
                row: 1,
                from: 0,
                to: 0,
            },
        ),
        (
            0x38,
            0x21,
            SframeError::RowOutside {
                row: 2,
                at: 0x21,
                end: 0x20,
            },
        ),
        (0x39, 0x64, SframeError::WordSize { row: 2 }),
        (0x35, 0x07, SframeError::Words { row: 1, words: 3 }),
    ] {
        let mut section = bytes(PUSHES_V3);
        section[place] = byte;
        let reading = read(&section, SECTION, SframeAbi::Amd64);
        let mut errors = reading.problems.iter().map(|problem| problem.error);
        assert!(errors.any(|found| found == error), "{place:#x} {reading:?}");
    }
}

fn place() -> impl Strategy<Value = FreValue> {
    let base = prop_oneof![
        Just(FreBase::Cfa),
        (0..40_u16).prop_map(|number| FreBase::Register(Register(number)))
    ];
    let offset = prop_oneof![
        -128..=127_i64,
        -40_000..40_000_i64,
        any::<i32>().prop_map(i64::from)
    ];
    (base, offset, any::<bool>()).prop_map(|(base, offset, is_loaded)| FreValue {
        base,
        offset,
        is_loaded,
    })
}

fn frame() -> impl Strategy<Value = FreContents> {
    let saved =
        || prop_oneof![3 => (-60..60_i64).prop_map(|n| FreValue::saved(n * 8)), 1 => place()];
    let cfa = prop_oneof![
        3 => (0..500_i64, 0..2_u16).prop_map(|(n, fp)| FreValue::sum(Register(7 - fp), n * 8)),
        1 => place(),
    ];
    let ra = prop_oneof![4 => Just(Some(FreValue::saved(-8))), 1 => proptest::option::of(saved())];
    let called = (cfa, ra, proptest::option::of(saved())).prop_map(|(cfa, ra, fp)| {
        FreContents::Rules(FreRules {
            cfa,
            return_address: ra,
            frame_pointer: fp,
            is_signed: false,
        })
    });
    prop_oneof![8 => called, 1 => Just(FreContents::Outermost)]
}

fn some_functions() -> impl Strategy<Value = Vec<SframeFunction>> {
    let rows = proptest::collection::vec((1..300_u32, frame()), 1..8);
    let function = (0..1_u64 << 33, rows, any::<bool>(), 1..2000_u32);
    let function = function.prop_map(|(start, rows, is_signal_frame, size)| {
        let mut offset = 0;
        let rows: Vec<FrameRowEntry> = rows
            .into_iter()
            .enumerate()
            .map(|(index, (step, frame))| {
                offset += if index == 0 { 0 } else { step };
                FrameRowEntry {
                    offset,
                    contents: frame,
                }
            })
            .collect();
        SframeFunction {
            start: Vaddr(start),
            size: offset + size,
            block: None,
            is_signal_frame,
            has_key_b: false,
            rows,
            origin: 0,
        }
    });
    proptest::collection::vec(function, 0..12)
}

fn without_origins(functions: &[SframeFunction]) -> Vec<SframeFunction> {
    let functions = functions.iter().cloned();
    functions
        .map(|function| SframeFunction {
            origin: 0,
            ..function
        })
        .collect()
}

proptest! {
    /// Representable rows are written and read back; others are reported.
    #[test]
    fn functions_are_read_back(all in some_functions(), is_v3 in any::<bool>()) {
        let version = if is_v3 { SframeVersion::V3 } else { SframeVersion::V2 };
        let fitting = fit(&all, SframeAbi::Amd64, version);
        let written = SframeImage::new(&fitting.functions, SframeAbi::Amd64, version).unwrap();
        let section = Vaddr(1 << 32);
        match written.bytes_at(section) {
            Ok(bytes) => {
                let reading = read(&bytes, section, SframeAbi::Amd64);
                prop_assert_eq!(&reading.problems, &[]);
                prop_assert_eq!(reading.disorder(1), []);
                prop_assert_eq!(
                    without_origins(&reading.functions),
                    without_origins(&fitting.functions)
                );
                check_lookups(&bytes, section, SframeAbi::Amd64, &reading);
                let (_, part) = SubSections::new(&bytes, section).next().unwrap();
                for function in &fitting.functions {
                    for pc in [function.start, Vaddr(function.end().0 - 1)] {
                        let found = part.unwrap().find(pc).unwrap().unwrap();
                        prop_assert_eq!(found.frame(pc).unwrap(), function.frame(pc));
                    }
                }
            }
            Err(_) => prop_assert_eq!(version, SframeVersion::V2),
        }
        // Each address is either in a function or among the dropped ones, as before.
        for function in repair(&all) {
            for row in &function.rows {
                let pc = function.start.offset(row.offset.into());
                let frame = fitting.functions.iter().find_map(|f| f.frame(pc));
                let is_left_out = fitting.unrepresentable.iter().any(|r| r.start <= pc && pc < r.end);
                prop_assert_eq!(frame, (!is_left_out).then_some(row.contents));
            }
        }
    }

    /// Functions converted to rows and back are unchanged.
    #[test]
    fn rows_of_functions_make_the_same_functions(all in some_functions()) {
        let fitting = fit(&all, SframeAbi::Amd64, SframeVersion::V3).functions;
        let (rows, problems) = table(&fitting, SframeAbi::Amd64);
        prop_assert_eq!(problems, []);
        let again = functions(&rows, SframeAbi::Amd64, SframeVersion::V3);
        prop_assert_eq!(again.unrepresentable, []);
        for function in &fitting {
            for row in &function.rows {
                let pc = function.start.offset(row.offset.into());
                let frame = again.functions.iter().find_map(|f| f.frame(pc));
                prop_assert_eq!(frame, Some(row.contents), "{}", pc);
            }
        }
    }

    /// Damaged sections are read without panic, and into results bounded by their size.
    #[test]
    fn damaged_sections(
        which in 0..3_usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut section = bytes([PUSHES_V1, PUSHES_V2, PUSHES_V3][which]);
        for (at, byte) in damage {
            let at = at.index(section.len());
            section[at] = byte;
        }
        section.truncate(keep.index(section.len()) + 1);
        let reading = read(&section, SECTION, SframeAbi::Amd64);
        let rows: usize = reading.functions.iter().map(|function| function.rows.len()).sum();
        prop_assert!(rows <= section.len());
        for (_, part) in SubSections::new(&section, SECTION) {
            if let Ok(part) = part {
                let _ = part.find(Vaddr(0x1004)).map(|entry| entry.map(|entry| entry.frame(Vaddr(0x1004))));
            }
        }
        let lookup = SframeLookup::new(&section, SECTION, SframeAbi::Amd64);
        for pc in 0xff0..0x1030 {
            let _ = lookup.row(Vaddr(pc), &mut Row::new(Register(0)));
        }
        let (rows, _) = table(&reading.functions, SframeAbi::Amd64);
        let mended = repair(&reading.functions);
        let again = functions(&rows, SframeAbi::Amd64, SframeVersion::V3);
        prop_assert!(SframeImage::new(&again.functions, SframeAbi::Amd64, SframeVersion::V3).is_ok());
        prop_assert!(mended.windows(2).all(|pair| pair[0].end() <= pair[1].start));
    }
}

/// Many entries that share many rows, and a block that is repeated for 4 GiB.
#[test]
fn repeated_rows_take_bounded_memory() {
    const ROWS: u32 = 60_000;
    const ENTRIES: u32 = 5_000;
    let header = "
        e2 de 02 01 03 00 f8 00
        88 13 00 00  00 00 00 00  00 00 00 00  00 00 00 00  a0 86 01 00";
    let mut section = bytes(header);
    for index in 0..ENTRIES {
        section.extend((index * 0x20000).to_le_bytes());
        section.extend(0x20000_u32.to_le_bytes());
        section.extend(0_u32.to_le_bytes());
        section.extend(ROWS.to_le_bytes());
        section.extend([1, 0, 0, 0]);
    }
    for row in 0..ROWS {
        section.extend(u16::try_from(row).unwrap().to_le_bytes());
        section.extend([3, 8]);
    }
    section[0x10..0x14].copy_from_slice(&(ROWS * 4).to_le_bytes());
    let reading = read(&section, SECTION, SframeAbi::Amd64);
    let rows: usize = reading
        .functions
        .iter()
        .map(|function| function.rows.len())
        .sum();
    assert!(rows <= section.len() + (1 << 20), "{rows}");
    assert!(
        reading
            .problems
            .iter()
            .all(|p| p.error == SframeError::TooLarge)
    );
    assert_eq!(
        reading.functions.len() + reading.problems.len(),
        ENTRIES as usize
    );

    let block = SframeFunction {
        start: Vaddr(0),
        size: u32::MAX,
        block: Some(1),
        is_signal_frame: false,
        has_key_b: false,
        rows: check_read(SframeAbi::Amd64, PUSHES_V3, PUSHES).functions[0].rows[..1].to_vec(),
        origin: 7,
    };
    let (table, problems) = table(&[block], SframeAbi::Amd64);
    assert_eq!(table.row_count(), 0);
    assert_eq!(problems[0].error, SframeError::TooLarge);
}
