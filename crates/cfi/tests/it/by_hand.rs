//! Sections made byte by byte, that no assembler writes.

use unspool_cfi::instruction::{InstructionText, Instructions};
use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiError, Lookup, SectionKind};
use unspool_rows::arch::{AddressSize, Endian};
use unspool_rows::leb128::put_unsigned;
use unspool_rows::{Abi, Arch, Register, Row, Vaddr, text};

use crate::build::{AARCH64, CieSpec, DATA, Format, PPC, SectionBuilder, TEXT, X86_64};
use crate::lookup::check_section;

fn check(b: &SectionBuilder, expected: &[&str]) {
    let reading = b.read();
    let mut lines: Vec<String> = reading.problems.iter().map(ToString::to_string).collect();
    lines.extend(reading.table.to_string().lines().skip(1).map(str::to_owned));
    assert_eq!(lines, expected);
}

const FORMATS: [u8; 10] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x08, 0x09, 0x0a, 0x0b, 0x0c];
const BASES: [u8; 4] = [0x00, 0x10, 0x20, 0x30];

/// Whether a number of this format can represent `offset`.
fn fits(format: u8, offset: u64, abi: Abi) -> bool {
    let signed = offset.cast_signed();
    match format {
        0x02 => offset <= 0xffff,
        0x03 => offset <= 0xffff_ffff,
        0x0a => i16::try_from(signed).is_ok(),
        0x0b => i32::try_from(signed).is_ok(),
        0x04 | 0x0c => true,
        _ => abi.arch.spec().address_size.bytes() == 8 || i32::try_from(signed).is_ok(),
    }
}

fn base_of(encoding: u8, at: u64) -> u64 {
    match encoding & 0x70 {
        0x10 => at,
        0x20 => TEXT,
        0x30 => DATA,
        _ => 0,
    }
}

#[test]
fn starts_and_lengths_are_read_in_every_encoding() {
    let mut read = 0;
    for abi in [X86_64, AARCH64, PPC] {
        for encoding in BASES
            .iter()
            .flat_map(|base| FORMATS.map(|format| base | format))
        {
            let mut b = SectionBuilder::new(SectionKind::EhFrame, abi);
            let cie = b.cie(&CieSpec {
                augmentation: "zR",
                data: vec![encoding],
                ..CieSpec::plain()
            });
            let at = crate::build::ADDRESS + b.here() + 8;
            let near = base_of(encoding, at).wrapping_add(0x120);
            let far = if encoding & 0x70 == 0 {
                0x120
            } else {
                near - 0x240
            };
            for start in [near, far] {
                if !fits(
                    encoding & 0x0f,
                    start.wrapping_sub(base_of(encoding, at)),
                    abi,
                ) {
                    continue;
                }
                let mut b = b.clone();
                b.fde(Format::Dwarf32, cie, |b| {
                    b.pointer(encoding, start, 0);
                    b.number(encoding, 0x30);
                    b.bytes.push(0);
                });
                let reading = b.read();
                assert_eq!(reading.problems, [], "{encoding:#x} {abi:?}");
                let fde = reading.table.fdes()[0];
                let expected = (start, start + 0x30);
                assert_eq!((fde.start.0, fde.end.0), expected, "{encoding:#x} {abi:?}");
                read += 1;
            }
        }
    }
    assert!(read > 180, "{read}");
}

#[test]
fn an_aligned_start_is_an_absolute_word_after_padding() {
    for abi in [X86_64, PPC] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, abi);
        let cie = b.cie(&CieSpec {
            augmentation: "zR",
            data: vec![0x50],
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.pointer(0x50, 0x1000, 0);
            b.number(0, 0x20);
            b.bytes.push(0);
        });
        let reading = b.read();
        assert_eq!(reading.problems, []);
        assert_eq!(reading.table.fdes()[0].start.0, 0x1000);
        assert_eq!(reading.table.fdes()[0].end.0, 0x1020);
    }
}

#[test]
fn personality_and_lsda_are_read_in_every_encoding() {
    for encoding in 0..=0xff_u8 {
        let format = encoding & 0x0f;
        let is_known = (FORMATS.contains(&format) && encoding & 0x70 <= 0x40) || encoding == 0x50;
        let relative = encoding & 0x70;
        if !is_known || format == 0x02 || format == 0x0a {
            continue; // 16 bits do not reach
        }
        let (personality, lsda) = match relative {
            0 | 0x50 => (0x1234, 0x5678),
            _ => (base_of(encoding, DATA) + 0x1234, 0x40_5678),
        };
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let is_function_relative = relative == 0x40; // a CIE has no function
        let personality_encoding = if is_function_relative { 0 } else { encoding };
        // The data begins behind length, id, version, `zPLR`, factors, column and its length.
        let mut data = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let before = 4 + 4 + 1 + 5 + 1 + 1 + 1 + 1;
        data.bytes.resize(before, 0);
        data.bytes.push(personality_encoding);
        data.pointer(personality_encoding, personality, 0);
        data.bytes.extend([encoding, 0x03]);
        let cie = b.cie(&CieSpec {
            augmentation: "zPLR",
            data: data.bytes[before..].to_vec(),
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.number(0x03, 0x1000);
            b.number(0x03, 0x20);
            // A LEB128 length that does not move the following bytes.
            let mut data = b.clone();
            data.bytes.push(0);
            let start = data.bytes.len();
            data.pointer(encoding, lsda, 0x1000);
            let data = data.bytes.split_off(start);
            b.bytes.push(u8::try_from(data.len()).unwrap());
            b.bytes.extend(data);
        });
        let indirect = personality_encoding & 0x80 != 0;
        let personality = if indirect {
            format!("[{personality:#x}]")
        } else {
            format!("{personality:#x}")
        };
        check(
            &b,
            &[
                &format!("fn 0x1000..0x1020 personality={personality} lsda={lsda:#x}"),
                "  0x1000  cfa=rsp+8  ra=[cfa-8]",
            ],
        );
    }
}

/// An assembler writes zero for a missing LSDA, and linkers leave it: the null pointer is the
/// stored zero, not the address that would result.
#[test]
fn a_stored_zero_is_null_whatever_it_is_relative_to() {
    for encoding in [0x00, 0x03, 0x1b, 0x2b, 0x3b, 0x4b, 0x9b] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let cie = b.cie(&CieSpec {
            augmentation: "zPLR",
            data: vec![0x1b, 0, 0, 0, 0, encoding, 0x03],
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.number(0x03, 0x1000);
            b.number(0x03, 0x20);
            b.bytes.push(if encoding == 0 { 8 } else { 4 });
            b.number(encoding, 0);
        });
        // An FDE may also have no augmentation data at all.
        b.fde(Format::Dwarf32, cie, |b| {
            b.number(0x03, 0x2000);
            b.number(0x03, 0x20);
            b.bytes.push(0);
        });
        let row = "cfa=rsp+8  ra=[cfa-8]";
        check(
            &b,
            &[
                "fn 0x1000..0x1020",
                &format!("  0x1000  {row}"),
                "fn 0x2000..0x2020",
                &format!("  0x2000  {row}"),
            ],
        );
    }
}

#[test]
fn an_omitted_lsda_takes_no_bytes() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec {
        augmentation: "zLR",
        data: vec![0xff, 0x03],
        ..CieSpec::plain()
    });
    b.fde(Format::Dwarf32, cie, |b| {
        b.number(0x03, 0x1000);
        b.number(0x03, 0x20);
        b.bytes.push(2);
        b.bytes.extend([0x55, 0xaa]); // other data
        b.bytes.extend([0x41, 0x0e, 16]);
    });
    check(
        &b,
        &[
            "fn 0x1000..0x1020",
            "  0x1000  cfa=rsp+8  ra=[cfa-8]",
            "  0x1001  cfa=rsp+16  ra=[cfa-8]",
        ],
    );
}

#[test]
fn a_pointer_without_its_base_is_an_error_of_its_entry_only() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let plain = b.cie(&CieSpec::plain());
    for encoding in [0x23, 0x33, 0x43, 0x63] {
        let cie = b.cie(&CieSpec {
            augmentation: "zR",
            data: vec![encoding],
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.number(encoding, 0x1000);
            b.number(encoding, 0x20);
            b.bytes.push(0);
        });
    }
    b.plain_fde(plain, 0x2000, 0x10, &[]);
    let mut section = b.section();
    section.text_base = None;
    section.data_base = None;
    let reading = unspool_cfi::read_table(&section);
    let errors: Vec<CfiError> = reading
        .problems
        .iter()
        .map(|problem| problem.error)
        .collect();
    let expected = [
        CfiError::NoBase(0x23),
        CfiError::NoBase(0x33),
        CfiError::NoBase(0x43),
        CfiError::Encoding(0x63),
    ];
    assert_eq!(errors, expected);
    assert_eq!(reading.table.fdes().len(), 1);
}

#[test]
fn augmentations_of_every_producer_are_known() {
    // gcc 2.x; binutils' order and others; AArch64's keys and tags
    for (augmentation, data, abi) in [
        ("eh", vec![], X86_64),
        ("z", vec![], X86_64),
        ("zR", vec![0x00], X86_64),
        ("zSR", vec![0x00], X86_64),
        ("zRB", vec![0x00], AARCH64),
        ("zRG", vec![0x00], AARCH64),
        ("zRBGS", vec![0x00], AARCH64),
        // more data than the letters need: `z` has the length
        ("zR", vec![0x00, 1, 2, 3], X86_64),
    ] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, abi);
        let cie = b.cie(&CieSpec {
            augmentation,
            data,
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.fixed(0x1000, 8);
            b.fixed(0x20, 8);
            if augmentation.starts_with('z') {
                b.bytes.push(0);
            }
            b.bytes.extend([0x41, 0x0e, 16]);
        });
        let reading = b.read();
        assert_eq!(reading.problems, [], "{augmentation}");
        let table = reading.table;
        let rows: Vec<_> = table.rows(&table.fdes()[0]).collect();
        assert_eq!(rows.len(), 2, "{augmentation}");
        let signal = table.row(rows[0].row).unwrap().signal_frame;
        assert_eq!(signal, augmentation.contains('S'), "{augmentation}");
    }
}

/// An unknown letter: `z` gives the start of the instructions, but not that of the next letter's
/// data.
#[test]
fn an_unknown_letter_is_passed_over_if_no_data_follows() {
    let read = |augmentation, data| {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let cie = b.cie(&CieSpec {
            augmentation,
            data,
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.number(0x03, 0x1000);
            b.number(0x03, 0x20);
            b.bytes.extend([4, 0x78, 0x56, 0x34, 0x12]); // LSDA
            b.bytes.extend([0x41, 0x0e, 16]);
        });
        let reading = b.read();
        let problems: Vec<_> = reading.problems.iter().map(ToString::to_string).collect();
        (
            reading
                .table
                .to_string()
                .replace("arch x86-64 little\n", ""),
            problems,
        )
    };
    let row = |rest: &str| {
        format!(
            "fn 0x1000..0x1020 lsda=0x12345678\n  0x1000  cfa=rsp+8{rest}  ra=[cfa-8]\n  \
             0x1001  cfa=rsp+16{rest}  ra=[cfa-8]\n"
        )
    };
    let note = "augmentation `X` is unknown; entries are read without it";
    let note = vec![format!(".eh_frame entry at offset 0x0: {note}")];
    assert_eq!(
        read("zLRX", vec![0x03, 0x03, 9, 9]),
        (row(""), note.clone())
    );
    assert_eq!(
        read("zLRXYS", vec![0x03, 0x03, 9]),
        (row("  signal"), note.clone())
    );
    assert_eq!(read("zLRX", vec![0x03, 0x03]), (row(""), note));
    for (augmentation, data) in [
        ("zXLR", vec![9, 0x03, 0x03]),
        ("zLXR", vec![0x03, 9, 0x03]),
        ("zLRXP", vec![0x03, 0x03, 9, 0x03, 0, 0, 0, 0]),
        ("X", vec![]),
    ] {
        let (table, problems) = read(augmentation, data);
        assert_eq!((table.as_str(), problems.len()), ("", 2), "{augmentation}");
        assert!(
            problems[0].contains("the data after that of augmentation `X`"),
            "{problems:?}"
        );
    }
}

#[test]
fn both_formats_of_both_sections_are_read() {
    for kind in [SectionKind::EhFrame, SectionKind::DebugFrame] {
        for endian in [Endian::Little, Endian::Big] {
            for (version, format) in [
                (1, Format::Dwarf32),
                (1, Format::Dwarf64),
                (3, Format::Dwarf32),
                (3, Format::Dwarf64),
                (4, Format::Dwarf32),
                (4, Format::Dwarf64),
            ] {
                let abi = Abi { endian, ..X86_64 };
                let mut b = SectionBuilder::new(kind, abi);
                let cie = b.cie(&CieSpec {
                    format,
                    version,
                    ..CieSpec::plain()
                });
                b.fde(format, cie, |b| {
                    b.fixed(0x1000, 8);
                    b.fixed(0x20, 8);
                    b.bytes.extend([0x41, 0x0e, 16, 0x03]);
                    b.fixed(2, 2);
                    b.bytes.extend([0x0e, 24]);
                });
                check(
                    &b,
                    &[
                        "fn 0x1000..0x1020",
                        "  0x1000  cfa=rsp+8  ra=[cfa-8]",
                        "  0x1001  cfa=rsp+16  ra=[cfa-8]",
                        "  0x1003  cfa=rsp+24  ra=[cfa-8]",
                    ],
                );
            }
        }
    }
}

/// The distance back to the CIE is signed and has 4 bytes, in both formats: libgcc's and
/// `readelf`'s reading.
#[test]
fn a_cie_may_stand_behind_its_fde() {
    for (format, size) in [(Format::Dwarf32, 28), (Format::Dwarf64, 36)] {
        for endian in [Endian::Little, Endian::Big] {
            let abi = Abi { endian, ..X86_64 };
            let mut b = SectionBuilder::new(SectionKind::EhFrame, abi);
            b.fde(format, size, |b| {
                b.fixed(0x1000, 8);
                b.fixed(0x20, 8);
                b.bytes.extend([0x41, 0x0e, 16]);
            });
            let cie = b.cie(&CieSpec {
                format,
                ..CieSpec::plain()
            });
            assert_eq!(cie, size);
            check(
                &b,
                &[
                    "fn 0x1000..0x1020",
                    "  0x1000  cfa=rsp+8  ra=[cfa-8]",
                    "  0x1001  cfa=rsp+16  ra=[cfa-8]",
                ],
            );
            check_section(&b.section(), None, HdrTrust::Suspect);
        }
    }
}

/// Opcodes 0x2c and 0x2d belong to AArch64, and to SPARC; no other machine has them.
#[test]
fn instructions_of_one_architecture_are_unknown_to_the_others() {
    let ilp32 = Arch::from_elf(Arch::Aarch64.elf_machine(), AddressSize::W32);
    for abi in [X86_64, PPC, Abi { arch: ilp32, ..PPC }] {
        for opcode in [0x2c, 0x2d] {
            let mut b = SectionBuilder::new(SectionKind::EhFrame, abi);
            let cie = b.cie(&CieSpec::plain());
            b.plain_fde(cie, 0x1000, 0x10, &[opcode]);
            let error = b.read().problems[0].error;
            assert!(
                matches!(error, CfiError::Instruction { opcode: at, .. } if at == opcode),
                "{abi:?}: {error}"
            );
        }
    }
}

/// Version 4 has an address size and a segment selector size. Selectors precede addresses.
#[test]
fn version_4_sizes_are_followed() {
    let mut b = SectionBuilder::new(SectionKind::DebugFrame, X86_64);
    let cie = b.cie(&CieSpec {
        version: 4,
        address_size: 4,
        segment_size: 2,
        ..CieSpec::plain()
    });
    b.fde(Format::Dwarf32, cie, |b| {
        b.fixed(7, 2);
        b.fixed(0x1000, 4);
        b.fixed(0x20, 4);
        b.bytes.push(0x01); // set_loc
        b.fixed(7, 2);
        b.fixed(0x1008, 4);
        b.bytes.extend([0x0e, 16]);
    });
    let bad = b.cie(&CieSpec {
        version: 4,
        address_size: 3,
        ..CieSpec::plain()
    });
    let fde = b.plain_fde(bad, 0x2000, 0x10, &[]);
    check(
        &b,
        &[
            &format!(
                ".debug_frame entry at offset {bad:#x}: address size of 3 bytes is not supported"
            ),
            &format!(".debug_frame entry at offset {fde:#x}: its CIE at offset {bad:#x} is bad"),
            "fn 0x1000..0x1020",
            "  0x1000  cfa=rsp+8  ra=[cfa-8]",
            "  0x1008  cfa=rsp+16  ra=[cfa-8]",
        ],
    );
}

/// 32-bit big-endian PowerPC: `lr` is register 65 (108 in `.eh_frame` of old gcc), the stack
/// pointer is register 1.
#[test]
fn elf32_big_endian_is_read() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, PPC);
    let cie = b.cie(&CieSpec {
        version: 3,
        augmentation: "zR",
        data: vec![0x1b],
        code_alignment: 4,
        data_alignment: -4,
        return_address: 65,
        instructions: vec![0x0c, 1, 0],
        ..CieSpec::plain()
    });
    b.fde(Format::Dwarf32, cie, |b| {
        b.pointer(0x1b, 0x40_0100, 0);
        b.number(0x1b, 0x40);
        b.bytes.push(0);
        // stwu; mflr; stw at cfa+4
        b.bytes.extend([0x42, 0x0e, 32, 0x11, 65, 0x7f, 0x9f, 1]);
        b.bytes.push(0x03); // advance_loc2, big-endian
        b.fixed(0x08, 2);
        b.bytes.extend([0x0f, 5, 0x0a, 0x12, 0x34, 0x71, 0]);
    });
    check(
        &b,
        &[
            "fn 0x400100..0x400140",
            "  0x400100  cfa=reg1+0  return=reg65",
            "  0x400108  cfa=reg1+32  return=reg65  reg65=[cfa+4]  reg31=[cfa-4]",
            "  0x400128  cfa={const2u 4660; breg1 0}  return=reg65  reg65=[cfa+4]  reg31=[cfa-4]",
        ],
    );
}

/// A 32-bit address space ends at 2^32: addresses wrap there, not at 2^64, and a range may end
/// there. (`llvm-dwarfdump` prints such a range the same way; `readelf` and gimli print an end of
/// 0.)
#[test]
fn pointers_wrap_at_the_end_of_their_address_space() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, PPC);
    let cie = b.cie(&CieSpec {
        augmentation: "zR",
        data: vec![0x1b],
        ..CieSpec::plain()
    });
    // The second continues from 0; the third ends at the end of the address space.
    let offsets = [0xffff_ff00_u64, 0xffff_fff0, 0xffff_ffe0, 0x10].map(|start| {
        b.fde(Format::Dwarf32, cie, |b| {
            b.pointer(0x1b, start, 0);
            b.number(0x1b, 0x20);
            b.bytes.extend([0, 0x44, 0x0e, 16, 0x02, 0x1b, 0x0e, 24]);
        })
    });
    let row = "cfa=reg7+8  return=reg16  reg16=[cfa-8]";
    let rows = |start: u64, end: u64| {
        let rows = [(0, 8), (4, 16), (31, 24)];
        let rows = rows.map(|(distance, offset)| {
            let row = row.replace("+8", &format!("+{offset}"));
            format!("  {:#x}  {row}", start + distance)
        });
        [vec![format!("fn {start:#x}..{end:#x}")], rows.into()].concat()
    };
    let expected = [
        vec![format!(
            ".eh_frame entry at offset {:#x}: range of 0x20 bytes at 0xfffffff0 wraps around the \
             address space",
            offsets[1]
        )],
        rows(0xffff_ff00, 0xffff_ff20),
        rows(0xffff_ffe0, 0x1_0000_0000),
        rows(0x10, 0x30),
    ];
    let expected = expected.concat();
    check(&b, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    check_section(&b.section(), None, HdrTrust::Suspect);

    let text = b.read().table.to_string();
    assert_eq!(text::parse(&text).unwrap().to_string(), text);
}

/// The maximum register number, and a factor that scales everything.
#[test]
fn large_registers_and_factors_are_kept() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec {
        code_alignment: 0x1_0000,
        data_alignment: i64::from(i32::MIN),
        ..CieSpec::plain()
    });
    b.plain_fde(cie, 0x1000, 0x10_0000, &[0x41, 0x05, 0xff, 0xff, 0x03, 3]);
    b.plain_fde(cie, 0x2000, 0x10, &[0x05, 0x80, 0x80, 0x04, 3]);
    let huge = [
        0x05, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ];
    b.plain_fde(cie, 0x3000, 0x10, &huge);
    let at = |fde: usize| b.read().problems[fde].entry;
    check(
        &b,
        &[
            &format!(
                ".eh_frame entry at offset {:#x}: register number 65536 is too large",
                at(0)
            ),
            &format!(
                ".eh_frame entry at offset {:#x}: operand of the instruction at offset {:#x} \
                 overflows when multiplied by its alignment factor",
                at(1),
                at(1) + 24
            ),
            "fn 0x1000..0x101000",
            "  0x1000  cfa=rsp+8  ra=[cfa-2147483648]",
            "  0x11000  cfa=rsp+8  ra=[cfa-2147483648]  reg65535=[cfa-6442450944]",
        ],
    );
}

/// A row that needs one more rule than a row holds.
#[test]
fn too_many_rules_are_an_error_of_the_entry() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let rules = |count: u8| (0..count).flat_map(|n| [0x08, n + 20]).collect::<Vec<u8>>();
    b.plain_fde(cie, 0x1000, 0x10, &rules(63)); // and one of the CIE
    b.plain_fde(cie, 0x2000, 0x10, &rules(64));
    let reading = b.read();
    assert_eq!(reading.table.fdes().len(), 1);
    assert!(matches!(reading.problems[0].error, CfiError::Rules(_)));
}

/// A full row gets its old rules back, although the new ones must be dropped first.
#[test]
fn a_full_row_can_be_restored() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let full = (0..63).flat_map(|n| [0x08, n + 20]);
    let swap = [0x41, 0x0a, 0xc0 | 20, 0x08, 5, 0x41, 0x0b]; // same_value of r5, not of r20
    b.plain_fde(cie, 0x1000, 0x10, &full.chain(swap).collect::<Vec<u8>>());
    let reading = b.read();
    assert_eq!(reading.problems, []);
    let table = reading.table;
    let rows: Vec<_> = table.rows(&table.fdes()[0]).map(|row| row.row).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0], rows[2]);
    let rules = |row| table.row(row).unwrap().rules().count();
    assert_eq!((rules(rows[0]), rules(rows[1])), (64, 64));
}

/// Fixed storage undoes 96 changes. Cached transitions of other entries do not change that.
#[test]
fn changes_are_undone_up_to_a_limit() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let series = |remember: u8| {
        [0x08, 0x07, 0x08].into_iter().flat_map(move |opcode| {
            let changes = (0..40).flat_map(move |n| [0x41, opcode, n + 20]);
            [0x41, remember].into_iter().chain(changes)
        })
    };
    let nop = 0x00;
    b.plain_fde(cie, 0x1000, 0x100, &series(nop).collect::<Vec<u8>>());
    b.plain_fde(cie, 0x2000, 0x100, &series(0x0a).collect::<Vec<u8>>());
    // All transitions are cached only in a large section, and not at its end.
    b.plain_fde(cie, 0x3000, 0x10, &vec![nop; 1 << 18]);
    let reading = b.read();
    assert_eq!(reading.table.fdes().len(), 2);
    assert!(matches!(
        reading.problems[0].error,
        CfiError::RememberedTooMuch { .. }
    ));
}

/// Fixed storage saves 16 states; the 17th is refused, not dropped.
#[test]
fn states_are_remembered_up_to_a_limit() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let nested = |depth: u8| {
        let down = (0..depth).flat_map(|n| [0x41, 0x0a, 0x0e, 8 * n, 0x80 | n, n]);
        let up = (0..depth).flat_map(|_| [0x41, 0x0b]);
        down.chain(up).collect::<Vec<u8>>()
    };
    b.plain_fde(cie, 0x1000, 0x100, &nested(16));
    b.plain_fde(cie, 0x2000, 0x100, &nested(17));
    let reading = b.read();
    let fde = &reading.table.fdes()[0];
    let last = reading.table.rows(fde).next_back().unwrap();
    let row = reading.table.row(last.row).unwrap().rules().count();
    assert_eq!(row, 1, "only the CIE's rule is left");
    assert!(matches!(
        reading.problems[0].error,
        CfiError::RememberedTooMuch { .. }
    ));
}

/// The distance to the signing instruction is factored by the code alignment (AADWARF64, "Call
/// frame instructions").
#[test]
fn set_ra_state_has_a_factored_distance() {
    let set = |code_alignment, operands: &[u8]| {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, AARCH64);
        let cie = b.cie(&CieSpec {
            code_alignment,
            instructions: [&[0x2b], operands].concat(),
            ..CieSpec::plain()
        });
        let section = b.section();
        let cie = unspool_cfi::Cie::parse_at(&section, cie).unwrap();
        let (offset, len) = (cie.instructions_offset, cie.instructions.len());
        let first = Instructions::new(&section, &cie, offset, len).next();
        let text = |(_, set)| InstructionText(set, AARCH64).to_string();
        first.unwrap().map(text)
    };
    let text = |text: &str| Ok(text.to_owned());
    assert_eq!(set(4, &[2, 0x7e]), text("AARCH64_set_ra_state 2, -8"));
    assert_eq!(set(1, &[1, 8]), text("AARCH64_set_ra_state 1, 8"));
    assert_eq!(set(4, &[0, 0]), text("AARCH64_set_ra_state 0, 0"));
    let overflow = set(u64::from(u32::MAX) << 30, &[2, 0x80, 0x04]);
    assert!(matches!(overflow, Err(CfiError::Scale { .. })));
}

/// `DW_CFA_expression` of rbx, or without a register `DW_CFA_def_cfa_expression`: rsp + 8, preceded
/// by enough `DW_OP_nop` that the expression has this length.
fn expression(register: Option<u8>, length: u64) -> Vec<u8> {
    let mut bytes = match register {
        Some(register) => vec![0x10, register],
        None => vec![0x0f],
    };
    put_unsigned(&mut bytes, length);
    bytes.extend(std::iter::repeat_n(
        0x96,
        usize::try_from(length).unwrap() - 2,
    ));
    bytes.extend([0x77, 8]);
    bytes
}

/// A CIE's long expression is in every row, and a row takes three bytes. The table's size is
/// bounded, and one entry that is too large does not affect the others.
#[test]
fn rows_are_small_whatever_the_expressions() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let mut rows = Vec::new();
    for n in 0..10_000_u64 {
        rows.extend([0x41, 0x0e]); // advance 1; cfa offset n
        put_unsigned(&mut rows, n);
    }
    let cie = |b: &mut SectionBuilder, length: u64| {
        let mut cie = CieSpec::plain();
        cie.instructions.extend(expression(Some(3), length));
        b.cie(&cie)
    };
    let (short, long) = (cie(&mut b, 1024), cie(&mut b, 60_000));
    let few = b.plain_fde(short, 0x10_0000, 10_001, &rows[..3 * 128]);
    let many = b.plain_fde(short, 0x20_0000, 10_001, &rows);
    let bad_row = b.plain_fde(long, 0x30_0000, 10_001, &rows);
    let reading = b.read();
    let bad = reading.problems.iter().map(|bad| (bad.entry, bad.error));
    let too_long = CfiError::Expressions {
        start: Vaddr(0x30_0000),
        bytes: 60_000,
    };
    let expected = [(many, CfiError::TooLarge), (bad_row, too_long)];
    assert_eq!(bad.collect::<Vec<_>>(), expected);
    let table = reading.table;
    let origins: Vec<u64> = table.fdes().iter().map(|fde| fde.origin).collect();
    assert_eq!(origins, [few]);
    let most = 16 * b.section().data.len() + (1 << 20) + 2048;
    assert!(table.encoded_len() < most, "{}", table.encoded_len());
}

/// CIEs in the operands of other CIEs, each extending to the end of the first. FDEs may name all of
/// them, but the evaluated bytes are bounded.
#[test]
fn cies_inside_another_are_evaluated_up_to_a_bound() {
    const COUNT: u32 = 3000;
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let mut cie = CieSpec::plain();
    for n in (1..=COUNT).rev() {
        cie.instructions.extend([0x0f, 13]); // def_cfa_expression, with a CIE for its operand
        cie.instructions.extend((15 * n - 6).to_le_bytes());
        cie.instructions.extend([0, 0, 0, 0, 1, 0, 1, 0x78, 16]);
    }
    let outer = b.cie(&cie);
    // Behind the length, the id, and the fields and instructions of a plain CIE, then the operand.
    let first = outer + 4 + 4 + 5 + 5 + 2;
    let mut fdes = Vec::new();
    for n in 0..COUNT {
        let start = u64::from(0x1000 + n);
        fdes.push(b.plain_fde(first + u64::from(15 * n), start, 1, &[]));
    }
    let reading = b.read();
    let read = reading.table.fdes().len();
    // From the first on, each has 15 bytes less than the one before.
    assert!(read > 10 && read < 60, "{read}");
    let bad = reading
        .problems
        .iter()
        .filter(|bad| bad.error == CfiError::TooLarge);
    assert!(bad.count() > 2000);
    let whole = Lookup::new(b.section(), None, HdrTrust::Suspect);
    let found = whole.row(Vaddr(0x1000), &mut Row::new(Register(0)));
    assert_eq!(found.unwrap().unwrap().origin, fdes[0]);
}

/// Among entries that cover an address, the last one that is not bad counts.
#[test]
fn bad_entries_are_passed_over_up_to_a_bound() {
    for bad in [0, 1, 15, 16, 40] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let cie = b.cie(&CieSpec::plain());
        for n in 0..bad {
            // Two at each start: the first counts.
            b.plain_fde(cie, 0x2000 + n / 2, 0x1000, &[0x3f]);
        }
        b.plain_fde(cie, 0x1000, 0x8000, &[]);
        let good = b.plain_fde(cie, 0x1800, 0x8000, &[]);
        b.plain_fde(cie, 0x1800, 0x8000, &[]);
        let lookup = Lookup::new(b.section(), None, HdrTrust::Suspect);
        match lookup.row(Vaddr(0x2800), &mut Row::new(Register(0))) {
            Ok(found) => assert!(bad < 16 && found.unwrap().origin == good, "{bad}"),
            Err(error) => {
                assert!(bad >= 16, "{bad}");
                assert!(matches!(error, CfiError::Instruction { opcode: 0x3f, .. }));
            }
        }
        assert_eq!(b.read().table.fdes().len(), 3);
    }
}

/// Only state 2 has a distance to an instruction.
#[test]
fn a_distance_without_meaning_does_not_overflow() {
    for (state, is_good) in [(0, true), (1, true), (2, false)] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, AARCH64);
        let cie = b.cie(&CieSpec {
            code_alignment: 1 << 62,
            return_address: 30,
            ..CieSpec::plain()
        });
        b.plain_fde(cie, 0x1000, 0x10, &[0x2b, state, 16]);
        let bad = b.read().problems.pop().map(|bad| bad.error);
        assert_eq!(bad.is_none(), is_good, "{state}");
        assert!(
            matches!(bad, None | Some(CfiError::Scale { .. })),
            "{bad:?}"
        );
    }
}

/// The limit applies to a row's rules, regardless of their origin.
#[test]
fn expressions_of_a_row_are_counted_together() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let mut cie = CieSpec::plain();
    cie.instructions.extend(expression(Some(3), 600));
    let cie = b.cie(&cie);
    let offset_of_rbx = [0x83, 2];
    let restore_rbx = [0xc3];
    for (start, instructions, is_good) in [
        (0x1000, expression(Some(6), 424), true),
        (0x2000, expression(Some(6), 425), false),
        (0x3000, expression(None, 424), true),
        (0x4000, expression(None, 425), false),
        // one replaces another
        (0x5000, expression(Some(3), 1024), true),
        (
            0x6000,
            [&offset_of_rbx[..], &expression(Some(6), 1000)].concat(),
            true,
        ),
        // and the CIE's is restored
        (
            0x7000,
            [&offset_of_rbx[..], &expression(Some(6), 1000), &restore_rbx].concat(),
            false,
        ),
        // a rule replaced in the same row is in no row
        (
            0x8000,
            [&expression(Some(6), 1000)[..], &[0x86, 2, 0x41]].concat(),
            true,
        ),
        (
            0x9000,
            [&expression(Some(6), 1000)[..], &[0x41, 0x86, 2]].concat(),
            false,
        ),
        // but a rule that a restored state restores is
        (
            0xa000,
            [
                &offset_of_rbx[..],
                &expression(Some(6), 1000),
                &[0x41, 0x86, 2, 0x0a], // offset of rbp; remember_state
                &expression(Some(6), 900),
                &[0x41, 0x0b], // restore_state
            ]
            .concat(),
            true,
        ),
        (
            0xb000,
            [
                &expression(Some(6), 1000)[..],
                &[0x0a, 0x86, 2, 0x41, 0x0b], // remember_state; offset of rbp; restore_state
            ]
            .concat(),
            false,
        ),
    ] {
        let fde = b.plain_fde(cie, start, 0x10, &instructions);
        let reading = b.read();
        let bad = reading.problems.iter().find(|bad| bad.entry == fde);
        match bad.map(|bad| bad.error) {
            None => assert!(is_good, "{start:#x}"),
            Some(CfiError::Expressions { bytes, .. }) => {
                assert!(!is_good && bytes > 1024, "{start:#x}");
            }
            Some(error) => panic!("{error}"),
        }
    }
}

/// The rows of entries with equal instructions are equal, except for their start and end.
#[test]
fn equal_instructions_are_evaluated_for_each_entry_s_own_bounds() {
    // advance 1; cfa offset 16; advance 0x10; cfa offset 32
    let instructions = [0x41, 0x0e, 16, 0x50, 0x0e, 32];
    // set_loc 0x4008; cfa offset 16
    let absolute = [0x01, 0x08, 0x40, 0, 0, 0, 0, 0, 0, 0x0e, 16];
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let other = b.cie(&CieSpec {
        code_alignment: 4,
        ..CieSpec::plain()
    });
    b.plain_fde(cie, 0x1000, 0x11, &instructions); // ends where the last row would begin
    b.plain_fde(cie, 0x2000, 0x12, &instructions);
    b.plain_fde(cie, 0x3000, 0x800, &instructions);
    b.plain_fde(cie, 0x3800, 0x8, &instructions);
    b.plain_fde(cie, 0x3900, 0, &instructions);
    b.plain_fde(cie, u64::MAX - 0x10, 0x10, &instructions); // the last row would be past 2^64
    b.plain_fde(other, 0x3a00, 0x100, &instructions);
    b.plain_fde(cie, 0x4000, 0x10, &absolute);
    b.plain_fde(cie, 0x4001, 0x10, &absolute);
    check(
        &b,
        &[
            ".eh_frame entry at offset 0xc8: operand of the instruction at offset 0xe3 overflows \
             when multiplied by its alignment factor",
            "fn 0x1000..0x1011",
            "  0x1000  cfa=rsp+8  ra=[cfa-8]",
            "  0x1001  cfa=rsp+16  ra=[cfa-8]",
            "fn 0x2000..0x2012",
            "  0x2000  cfa=rsp+8  ra=[cfa-8]",
            "  0x2001  cfa=rsp+16  ra=[cfa-8]",
            "  0x2011  cfa=rsp+32  ra=[cfa-8]",
            "fn 0x3000..0x3800",
            "  0x3000  cfa=rsp+8  ra=[cfa-8]",
            "  0x3001  cfa=rsp+16  ra=[cfa-8]",
            "  0x3011  cfa=rsp+32  ra=[cfa-8]",
            "fn 0x3800..0x3808",
            "  0x3800  cfa=rsp+8  ra=[cfa-8]",
            "  0x3801  cfa=rsp+16  ra=[cfa-8]",
            "fn 0x3900..0x3900",
            "fn 0x3a00..0x3b00",
            "  0x3a00  cfa=rsp+8  ra=[cfa-8]",
            "  0x3a04  cfa=rsp+16  ra=[cfa-8]",
            "  0x3a44  cfa=rsp+32  ra=[cfa-8]",
            "fn 0x4000..0x4010",
            "  0x4000  cfa=rsp+8  ra=[cfa-8]",
            "  0x4008  cfa=rsp+16  ra=[cfa-8]",
            "fn 0x4001..0x4011",
            "  0x4001  cfa=rsp+8  ra=[cfa-8]",
            "  0x4008  cfa=rsp+16  ra=[cfa-8]",
        ],
    );
}
