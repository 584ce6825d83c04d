//! Files of Node.js about its generated code: the jitdump compared with another reader, and the
//! perf map with the jitdump's names.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::common::directory;
use linux_perf_data::jitdump::{JitDumpReader, JitDumpRecord};
use unspool_symbols::{JitCollector, JitDump, JitRecord, PerfMap, PerfMapError};
use unspool_testing::{hex, tool};

/// Makes a function of its own hot, and one of Node.js.
const SCRIPT: &str = "\
const path = require('path');\n\
function fibonacci(n) {\n  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);\n}\n\
let sum = 0;\nfor (let i = 0; i < 20; i++) {\n  sum += fibonacci(22);\n}\n\
for (let i = 0; i < 300000; i++) {\n  path.join('a', '..', 'b' + i % 7);\n}\n\
console.log(sum);\nprocess.stdin.resume();\n";

/// Runs the script until it waits for its input to end.
fn node(folder: &Path, options: &[&str]) -> Child {
    fs::write(folder.join("script.js"), SCRIPT).unwrap();
    let mut command = tool("node");
    command.args(options).arg("script.js").current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run node ({error}): install the package nodejs"));
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "354220\n");
    child
}

fn end(mut child: Child) {
    let mut input = child.stdin.take().unwrap();
    input.flush().unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

fn jitdump(folder: &Path) -> PathBuf {
    let child = node(folder, &["--perf-prof", "--perf-prof-unwinding-info"]);
    let path = folder.join(format!("jit-{}.dump", child.id()));
    end(child);
    path
}

#[test]
fn every_record_of_a_jitdump_as_another_reader_sees_it() {
    let path = jitdump(&directory("jitdump"));
    let mut ours = JitDump::new(File::open(&path).unwrap()).unwrap();
    let mut theirs = JitDumpReader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(ours.header().pid, theirs.header().pid);
    assert_eq!(ours.header().started, theirs.header().timestamp);
    let mut kinds = [0; 3];
    while let Some(record) = ours.next().unwrap() {
        let raw = theirs.next_record().unwrap().unwrap();
        let at = raw.start_offset;
        match (record, raw.parse().unwrap()) {
            (JitRecord::Load(ours), JitDumpRecord::CodeLoad(theirs)) => {
                assert_eq!(ours.time, raw.timestamp, "at {at:#x}");
                assert_eq!(
                    (ours.address.0, ours.index),
                    (theirs.code_addr, theirs.code_index)
                );
                assert_eq!(ours.name, &*theirs.function_name.as_slice(), "at {at:#x}");
                assert_eq!(ours.code, &*theirs.code_bytes.as_slice(), "at {at:#x}");
                assert_eq!(ours.tid, theirs.tid);
                kinds[0] += 1;
            }
            (JitRecord::Lines(ours), JitDumpRecord::CodeDebugInfo(theirs)) => {
                assert_eq!(ours.address.0, theirs.code_addr, "at {at:#x}");
                let ours: Vec<_> = ours
                    .entries()
                    .map(|e| (e.address.0, e.line, e.discriminator, e.file.to_vec()))
                    .collect();
                let theirs = theirs.entries.iter();
                // "\xff" stands for the name before, which that reader leaves to others.
                let mut file = Vec::new();
                let theirs: Vec<_> = theirs
                    .map(|e| {
                        if *e.file_path.as_slice() != [0xff] {
                            file = e.file_path.as_slice().to_vec();
                        }
                        (e.code_addr, e.line, e.column, file.clone())
                    })
                    .collect();
                assert_eq!(ours, theirs, "at {at:#x}");
                kinds[1] += 1;
            }
            (JitRecord::Unwinding(ours), JitDumpRecord::CodeUnwindingInfo(theirs)) => {
                // That reader expects the header first.
                let whole = |a: &[u8], b: &[u8]| [a, b].concat();
                let theirs_whole =
                    whole(&theirs.eh_frame_hdr.as_slice(), &theirs.eh_frame.as_slice());
                assert_eq!(whole(ours.eh_frame, ours.eh_frame_hdr), theirs_whole);
                assert_eq!(
                    ours.eh_frame_hdr.first(),
                    Some(&1),
                    "the version of a header"
                );
                assert_eq!(ours.mapped_size, theirs.mapped_size);
                kinds[2] += 1;
            }
            (ours, theirs) => panic!("at {at:#x}: {ours:?}, {theirs:?}"),
        }
    }
    assert!(theirs.next_record().unwrap().is_none());
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
}

/// For the script of this test, Node.js 20 writes file names that are not text. Those of its own
/// scripts are right.
#[test]
fn lines_begin_where_the_name_says() {
    let path = jitdump(&directory("jit_lines"));
    let mut dump = JitDump::new(File::open(&path).unwrap()).unwrap();
    let mut collector = JitCollector::new();
    let mut compared = 0;
    while let Some(record) = dump.next().unwrap() {
        let Some(code) = collector.add(&record) else {
            continue;
        };
        // `JS:^defineLazyProperties node:internal/util:598:30`; Node.js 18 names no column.
        let Some((_, place)) = code.info.name.split_once(" node:") else {
            continue;
        };
        let mut words = place.split(':');
        let (Some(file), Some(line)) = (words.next(), words.next()) else {
            continue;
        };
        if let Some((found, first)) = code.line(code.address) {
            assert_eq!(found, format!("node:{file}"));
            let line: u32 = line.parse().unwrap();
            assert!((line..line + 20).contains(&first), "{place}: {first}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn a_perf_map_names_what_a_live_process_made() {
    let folder = directory("perf_map");
    let child = node(&folder, &["--perf-basic-prof"]);
    let path = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
    let map = PerfMap::from_process(child.id()).unwrap();
    end(child);
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(map.bad_lines(), 0);
    // The last lines may have been written since.
    assert!(map.len() > 100 && map.len() <= text.lines().count());
    let optimized = text.lines().rev().find(|line| line.contains("*fibonacci "));
    let words: Vec<&str> = optimized.unwrap().splitn(3, ' ').collect();
    let [start, size, name] = words[..] else {
        panic!("{words:?}");
    };
    let start = hex(start);
    let symbol = map.get(unspool_rows::RuntimeAddr(start + 1)).unwrap();
    assert_eq!(
        (symbol.name, symbol.address.0, symbol.size),
        (name, start, hex(size))
    );
}

#[test]
fn most_processes_have_no_perf_map() {
    let Err(PerfMapError::Io { error, .. }) = PerfMap::from_process(std::process::id()) else {
        panic!("this process has one");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
