//! `unspool convert` as a user calls it, and reading, checking and unwinding of SFrame, compared
//! with binutils. The installed release supports version 1. For newer binutils see `cargo xtask
//! sframe-suite`.

use std::collections::BTreeSet;
use std::process::Output;

use serde_json::Value;
use unspool_testing::{Finish as _, tool};

use crate::harness::{self, TestFolder, source};
use crate::json;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The output of a command that must succeed.
fn success(program: &str, words: &str, folder: &TestFolder) -> String {
    let output = folder.started(&mut tool(program), words).finish();
    output.ended_with(0).all()
}

/// The command with a cache of its own.
fn unspool(words: &str, folder: &TestFolder) -> Output {
    let mut unspool = harness::unspool_in(folder.path(), &[]);
    folder.started(&mut unspool, words).output().unwrap()
}

/// The same, which must succeed, with JSON as its output.
fn document(words: &str, folder: &TestFolder) -> Value {
    let shown = unspool(words, folder);
    assert!(shown.status.success(), "{}", text(&shown));
    json::document(shown.stdout)
}

/// The program `sframe.c`, under the name `dies`, built with additional options.
fn program(options: &str) -> TestFolder {
    let folder = TestFolder::new();
    let source = source("sframe.c");
    success("gcc", &format!("-O2 -o dies {source} {options}"), &folder);
    folder
}

/// Rows as `(address, CFA, slot of the frame pointer)`, from `readelf --sframe`. Those of `.plt`,
/// for a block of 16 bytes, are repeated for each block.
fn rows_of_readelf(folder: &TestFolder, file: &str) -> BTreeSet<(u64, String, String)> {
    let listing = success("readelf", &format!("--sframe {file}"), folder);
    let (mut start, mut size, mut is_block) = (0, 0, false);
    let mut rows = BTreeSet::new();
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["func", "idx", _, "pc", "=", pc, "size", "=", bytes, "bytes"] => {
                let pc = pc.trim_start_matches("0x").trim_end_matches(',');
                start = u64::from_str_radix(pc, 16).unwrap();
                size = bytes.parse().unwrap();
            }
            ["STARTPC[m]", ..] => is_block = true,
            ["STARTPC", ..] => is_block = false,
            [address, cfa, fp, _] if is_block => {
                let first = start + u64::from_str_radix(address, 16).unwrap();
                let blocks = (first..start + size).step_by(16);
                rows.extend(blocks.map(|at| (at, (*cfa).to_owned(), (*fp).to_owned())));
            }
            [address, cfa, fp, _] => {
                if let Ok(address) = u64::from_str_radix(address, 16) {
                    rows.insert((address, (*cfa).to_owned(), (*fp).to_owned()));
                }
            }
            _ => {}
        }
    }
    rows
}

/// The same from `unspool show --from sframe`.
fn rows_of_unspool(folder: &TestFolder, file: &str) -> BTreeSet<(u64, String, String)> {
    let document = document(&format!("show --from sframe --format json {file}"), folder);
    let mut rows = BTreeSet::new();
    for entry in document["entries"].as_array().unwrap() {
        for row in entry["rows"].as_array().unwrap() {
            let words: Vec<&str> = row["rules"].as_str().unwrap().split_whitespace().collect();
            let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
            assert_eq!(value("ra="), Some("[cfa-8]"));
            let cfa = value("cfa=r").unwrap().replacen("bp", "fp", 1);
            let fp = value("rbp=").map_or("u".to_owned(), |saved| {
                saved.replace("[cfa", "c").replace(']', "")
            });
            let address = row["address"].as_str().unwrap().trim_start_matches("0x");
            rows.insert((u64::from_str_radix(address, 16).unwrap(), cfa, fp));
        }
    }
    rows
}

#[test]
fn sframe_of_the_assembler_is_read_as_readelf_reads_it() {
    for options in ["", "-fno-omit-frame-pointer", "-O0"] {
        let folder = program(&format!("-Wa,--gsframe {options}"));
        let rows = rows_of_unspool(&folder, "dies");
        assert!(rows.len() > 10, "{rows:?}");
        assert_eq!(rows, rows_of_readelf(&folder, "dies"));
    }
}

/// The rows of functions by address, without the parts that only .eh_frame has.
fn printed(folder: &TestFolder, file: &str, from: &str) -> Vec<(u64, String)> {
    let document = document(&format!("show --from {from} --format json {file}"), folder);
    let mut rows = Vec::new();
    for entry in document["entries"].as_array().unwrap() {
        for row in entry["rows"].as_array().unwrap() {
            let words = row["rules"].as_str().unwrap().split_whitespace();
            let is_reported = |word: &&str| {
                ["cfa=", "ra=", "rbp="]
                    .iter()
                    .any(|name| word.starts_with(name))
            };
            let rules: Vec<&str> = words.filter(is_reported).collect();
            let address = row["address"].as_str().unwrap().trim_start_matches("0x");
            rows.push((u64::from_str_radix(address, 16).unwrap(), rules.join(" ")));
        }
    }
    rows.sort();
    // A row is redundant if only the removed parts differ.
    rows.dedup_by(|next, before| next.1 == before.1);
    rows
}

#[test]
fn a_program_gets_a_section_that_readelf_knows_and_goes_back() {
    let path = &program("");
    for version in ["2", "3"] {
        let arguments = &format!("convert dies --to sframe --version {version} --into with");
        let said = text(&unspool(arguments, path));
        assert!(said.contains(&format!("as SFrame {version}: ")), "{said}");
        let segments = success("readelf", "--wide --segments with", path);
        assert!(segments.contains("GNU_SFRAME"), "{segments}");
        // binutils 2.40 knows the section's type only by its number, 0x6ffffff4.
        let sections = success("readelf", "--wide --sections with", path);
        let line = sections.lines().find(|line| line.contains(" .sframe "));
        assert!(
            line.is_some_and(|line| line.contains("LOOS+0xffffff4")),
            "{sections}"
        );
        // Both versions have the same content, as bytes and in the file.
        let other = if version == "2" { "3" } else { "2" };
        for (version, output) in [(version, "same.bytes"), (other, "other.bytes")] {
            let arguments =
                &format!("convert with --from sframe --to sframe --version {version} -o {output}");
            let output = unspool(arguments, path);
            assert!(output.status.success(), "{}", text(&output));
        }
        success(
            "objcopy",
            "--dump-section .sframe=section.bytes with copy",
            path,
        );
        let read = |name: &str| path.bytes(name);
        assert_eq!(read("same.bytes"), read("section.bytes"));
        assert_ne!(read("other.bytes"), read("section.bytes"));
        // Starts within .plt are listed one by one.
        let without_plt = |rows: Vec<(u64, String)>| {
            rows.into_iter()
                .filter(|(_, row)| !row.contains('{'))
                .collect::<BTreeSet<_>>()
        };
        let own = without_plt(printed(path, "with", "eh_frame"));
        let sframe = without_plt(printed(path, "with", "sframe"));
        // Only _start, whose caller is unknown, and .plt differ.
        let missing: Vec<_> = own.difference(&sframe).collect();
        assert!(
            missing.iter().all(|(_, row)| row.contains("ra=undefined")) && missing.len() <= 1,
            "{missing:?}"
        );
        let checked = unspool("check with", path);
        assert!(checked.status.success(), "{}", text(&checked));
    }
}

/// Without .eh_frame and .eh_frame_hdr.
fn without_eh_frame(folder: &TestFolder, from: &str, to: &str) {
    let arguments =
        &format!("--remove-section .eh_frame --remove-section .eh_frame_hdr {from} {to}");
    success("objcopy", arguments, folder);
}

/// The frames of the program at its death: functions, evidence, and known registers.
fn frames(folder: &TestFolder, program: &str) -> Vec<(String, String, BTreeSet<String>)> {
    let stack = "stack --format json --registers --no-cache -o stack.json --";
    unspool(&format!("{stack} ./{program}"), folder);
    let document = json::document(folder.bytes("stack.json"));
    let frames = document["threads"][0]["frames"].clone();
    let frames = frames.as_array().unwrap().iter().map(|frame| {
        let registers = frame["registers"].as_object().unwrap();
        let known = registers.iter().filter(|(_, value)| !value.is_null());
        (
            frame["symbol"].as_str().unwrap_or_default().to_owned(),
            frame["evidence"].as_str().unwrap_or_default().to_owned(),
            known.map(|(name, _)| name.clone()).collect(),
        )
    });
    frames.collect()
}

#[test]
fn a_program_that_has_sframe_only_is_unwound_by_it() {
    let path = &program("");
    let arguments = "convert dies --to sframe --into both";
    assert!(unspool(arguments, path).status.success());
    without_eh_frame(path, "both", "only");
    let of_both = frames(path, "both");
    let of_only = frames(path, "only");
    let functions = |frames: &[(String, String, BTreeSet<String>)]| {
        frames
            .iter()
            .map(|frame| frame.0.clone())
            .collect::<Vec<_>>()
    };
    let names = functions(&of_both);
    for name in ["innermost", "sorts", "main"] {
        assert!(
            names.iter().any(|found| found.starts_with(name)),
            "{names:?}"
        );
    }
    assert_eq!(functions(&of_only), names);
    let place = names.iter().position(|name| name == "sorts").unwrap();
    // After a frame of the program, only SFrame's registers are known.
    let (_, evidence, known) = &of_only[place + 1];
    assert_eq!(evidence, &of_both[place + 1].1);
    assert!(
        known.contains("rsp") && known.contains("rbp") && !known.contains("rbx"),
        "{known:?}"
    );
    assert!(of_both[place + 1].2.contains("rbx"));

    // It gets an .eh_frame again, for debuggers.
    let arguments = "convert only --to eh_frame --into again";
    assert!(unspool(arguments, path).status.success());
    let commands = "-batch -ex run -ex bt ./again";
    let backtrace = success("gdb", commands, path);
    for name in ["innermost", "compare", "sorts", "main"] {
        assert!(backtrace.contains(name), "{backtrace}");
    }
    let refused = unspool("convert both --to eh_frame --into x", path);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("it has an .eh_frame, which says more"));
}

/// Findings of `.sframe`: codes and messages.
fn findings(folder: &TestFolder, file: &str) -> Vec<(String, String)> {
    let output = unspool(&format!("check --format json {file}"), folder);
    let document = json::document(output.stdout);
    let findings = document["files"][0]["findings"].as_array().unwrap().iter();
    let findings = findings.map(|finding| {
        let word = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        let said = ["subject", "computed", "declared"].map(word);
        (
            word("code"),
            said.join("; ").trim_end_matches("; ").to_owned(),
        )
    });
    findings
        .filter(|(code, _)| code.as_str() >= "CFI016")
        .collect()
}

/// gold does not support SFrame and concatenates sections.
#[test]
fn concatenated_sections_are_reported_and_repaired() {
    let path = &TestFolder::new();
    for (name, file) in [("sframe", "sframe.c"), ("sorts", "cold.c")] {
        let source = source(file);
        let arguments = format!("-O2 -c -Wa,--gsframe -o {name}.o {source}");
        success("gcc", &arguments, path);
    }
    success("objcopy", "--redefine-sym main=other sorts.o", path);
    for output in ["gold -o concatenated", "bfd -o merged"] {
        let arguments = format!("-fuse-ld={output} sframe.o sorts.o");
        success("gcc", &arguments, path);
    }
    let reported = findings(path, "concatenated");
    assert!(
        reported
            .iter()
            .any(|(code, message)| code == "CFI018" && message.contains("another header")),
        "{reported:?}"
    );
    let arguments = "convert concatenated --from sframe --to sframe --into mended";
    let said = text(&unspool(arguments, path));
    assert!(said.contains("1 more headers"), "{said}");
    let reported = findings(path, "mended");
    assert!(
        reported.iter().all(|(code, _)| code == "CFI017"),
        "{reported:?}"
    );
    // GNU ld merges them: functions of the same names have the same rows.
    let rows = |file: &str| {
        let document = document(&format!("show --from sframe --format json {file}"), path);
        let mut rows = BTreeSet::new();
        for entry in document["entries"].as_array().unwrap() {
            let number = |value: &Value| {
                u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
            };
            let start = number(&entry["start"]);
            let symbol = entry["symbol"].as_str().unwrap_or_default().to_owned();
            for row in entry["rows"].as_array().unwrap() {
                let distance = number(&row["address"]) - start;
                rows.insert((symbol.clone(), distance, row["rules"].to_string()));
            }
        }
        rows.retain(|(symbol, ..)| !symbol.is_empty() && !symbol.contains("plt"));
        rows
    };
    assert!(rows("merged").len() > 5);
    assert_eq!(rows("mended"), rows("merged"));
}

#[test]
fn omitted_functions_and_wrong_rows_are_reported() {
    let path = &TestFolder::new();
    let (with, without) = (source("sframe.c"), source("cold.c"));
    let arguments = format!("-O2 -c -o with.o {with} -Wa,--gsframe");
    success("gcc", &arguments, path);
    success("gcc", &format!("-O2 -c -o without.o {without}"), path);
    success("objcopy", "--redefine-sym main=other without.o", path);
    // GNU ld since 2.44 has wrong rows of `.plt.got`, which this program has not.
    success("gcc", "-no-pie -o part with.o without.o", path);
    let reported = findings(path, "part");
    assert!(
        matches!(reported.as_slice(), [(code, message)] if code == "CFI017" && message.contains("functions of .eh_frame have no row in .sframe")),
        "{reported:?}"
    );

    // One byte of a row is changed, as by a faulty linker.
    let path = &program("");
    let converted = unspool("convert dies --to sframe --into right", path);
    assert!(converted.status.success());
    assert_eq!(findings(path, "right"), []);
    success("objcopy", "--dump-section .sframe=bytes right copy", path);
    let section = path.bytes("bytes");
    let mut file = path.bytes("right");
    let at = file
        .windows(section.len())
        .position(|window| window == section)
        .unwrap();
    // The last row of the last function: its info byte has one word, the CFA's offset.
    let last = at + section.len() - 1;
    assert_eq!(file[last], 8);
    file[last] = 16;
    path.write("wrong", file);
    let reported = findings(path, "wrong");
    assert!(
        matches!(reported.as_slice(), [(code, message)] if code == "CFI016"
            && message == "the CFA; rsp+8 in .eh_frame; rsp+16 in .sframe"),
        "{reported:?}"
    );
}

#[test]
fn converted_programs_of_the_distribution_have_no_findings() {
    let path = &TestFolder::new();
    for program in [
        "/usr/bin/ls",
        "/usr/bin/gcc",
        "/usr/bin/perl",
        "/usr/bin/git",
        "/usr/bin/gdb",
        "/usr/bin/readelf",
        "/usr/bin/xz",
        "/usr/bin/tmux",
        "/usr/bin/strace",
    ] {
        for version in ["2", "3"] {
            let arguments =
                &format!("convert {program} --to sframe --version {version} --into converted");
            let converted = unspool(arguments, path);
            assert!(
                converted.status.success(),
                "{program}: {}",
                text(&converted)
            );
            let reported = findings(path, "converted");
            assert!(reported.is_empty(), "{program}: {reported:?}");
        }
    }
}

#[test]
fn inconvertible_files_are_rejected_with_a_remedy() {
    let path = &program("-c");
    for (arguments, message) in [
        (
            "dies --to sframe",
            "its addresses are not final; link it first",
        ),
        (
            "/usr/lib32/libc.so.6 --to sframe",
            "SFrame is for x86-64, AArch64 and big-endian s390x only",
        ),
        ("/usr/bin/true --to eh_frame", "no .sframe"),
        (
            "/usr/bin/true --to sframe --version 1",
            "possible values: 2, 3",
        ),
    ] {
        let output = unspool(&format!("convert {arguments}"), path);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output);
        assert!(said.contains(message), "{said}");
    }
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    let document = document(&format!("convert {libc} --to sframe --format json"), path);
    let number = |name: &str| document[name].as_u64().unwrap();
    assert_eq!(
        number("entries"),
        ["default_entries", "flexible_entries", "incomplete_entries"]
            .map(number)
            .iter()
            .sum::<u64>()
    );
    assert!(document["output"].is_null() && number("bytes") > 100_000);
    let unrepresentable = document["unrepresentable"].as_array().unwrap();
    let of_setcontext = |entry: &Value| {
        entry["function"].as_str() == Some("setcontext")
            && entry["reason"] == "the stack pointer has a rule of its own"
    };
    assert!(
        unrepresentable.iter().any(of_setcontext),
        "{unrepresentable:?}"
    );
}
