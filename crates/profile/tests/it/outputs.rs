//! The formats of other tools, checked by those tools or their schemas.

use std::collections::BTreeMap;

use serde_json::Value;
use unspool_profile::output::{View, firefox, folded, html, perf_script, pprof, speedscope};
use unspool_profile::{
    CodeLocation, FrameEvidence, LocationName, Meta, NameResolver, NamedProfile, Profile,
    SourceFrame,
};
use unspool_testing::{Finish as _, filter, tool};

use crate::made::{self, AppNames, MadeSample, PROCESSES, THREADS, functions};

/// Writes all samples in one form.
fn written(
    profile: &Profile,
    write: impl FnOnce(&mut dyn std::io::Write, &View<'_>) -> std::io::Result<()>,
) -> Vec<u8> {
    let named = NamedProfile::new(profile, &AppNames);
    let view = View {
        named: &named,
        samples: profile.samples().iter().collect(),
    };
    let mut out = Vec::new();
    write(&mut out, &view).unwrap();
    out
}

/// The functions of a sample, outermost first, marked as in outputs.
fn path(sample: &MadeSample) -> Vec<String> {
    let marked = functions(sample).into_iter().rev();
    let marked = marked.map(|(name, _, how)| match how {
        FrameEvidence::FramePointer => format!("{name}_[g]"),
        FrameEvidence::Spliced => format!("{name}_[s]"),
        _ => name.to_owned(),
    });
    marked.collect()
}

#[test]
fn folded_stacks() {
    let samples = made::samples();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &samples {
        let mut line = vec![THREADS[sample.thread].0.to_owned()];
        line.extend(path(sample));
        *expected.entry(line.join(";")).or_default() += sample.weight;
    }
    let text = written(&made::profile(&samples), folded::write);
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().map(|line| {
        let (line, weight) = line.rsplit_once(' ').unwrap();
        (line.to_owned(), weight.parse().unwrap())
    });
    assert_eq!(lines.collect::<BTreeMap<String, u64>>(), expected);
}

/// Functions `f` and `f.cold`, and two with the same name; the others have no names.
struct Alike;

impl NameResolver for Alike {
    fn name(&self, location: CodeLocation) -> LocationName {
        let names = ["f", "f.cold", "a;b", "a:b"];
        let start = location.address() & !0xff;
        let at = made::STARTS.iter().position(|other| *other == start);
        let function = |name: &&str| SourceFrame {
            function: (*name).into(),
            ..SourceFrame::default()
        };
        LocationName {
            symbol_hash: None,
            functions: at
                .and_then(|n| names.get(n))
                .map(function)
                .into_iter()
                .collect(),
            start: None,
        }
    }
}

/// Lines are sorted as bytes, though a semicolon sorts after a full stop, and each appears once.
#[test]
fn folded_stacks_are_sorted_lines() {
    let [f, cold, this, that] = [0, 1, 2, 3];
    let stacks = [
        vec![this, f],
        vec![cold],
        vec![f],
        vec![f, cold],
        vec![that, f],
        vec![],
    ];
    let samples: Vec<MadeSample> = (stacks.into_iter().zip(1..))
        .map(|(stack, weight)| MadeSample {
            stack: stack.into_iter().map(|n| (n, FrameEvidence::Cfi)).collect(),
            weight,
            ..made::samples().swap_remove(0)
        })
        .collect();
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &Alike);
    let view = View {
        named: &named,
        samples: profile.samples().iter().collect(),
    };
    let mut text = Vec::new();
    folded::write(&mut text, &view).unwrap();
    let expected = "app 6\napp;f 3\napp;f.cold 2\napp;f.cold;f 4\napp;f;a:b 6\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// The output of `perf script` for a sample with the same frames, except for the addresses.
#[test]
fn the_text_of_perf_script() {
    let samples = made::samples();
    let text = written(&made::profile(&samples[3..5]), perf_script::write);
    let expected = "\
worker   101 [16777216]     1.003000:       2000 cpu-clock: 
\t            1417 inlined (inlined)
\t            1417 outer+0x17 (/opt/app)
\t            1212 work<int>(std::vector<int>&)+0x12 (/opt/app)
\t            1010 main+0x10 (/opt/app)

worker   101 [16777216]     1.004000:        300 cpu-clock: 
\tffffffff81000016 do_syscall_64+0x16 ([kernel.kallsyms])
\t            1417 inlined (inlined)
\t            1417 outer+0x17 (/opt/app)
\t            1010 main+0x10 (/opt/app)

";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    let text = written(&made::profile(&samples[7..8]), perf_script::write);
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("\t            5014 [unknown] (/lib/libplain.so)\n"),
        "{text}"
    );
}

/// inferno reads that text as perf's: it makes the same folded stacks, except that it removes
/// arguments, has no marks, and skips samples without frames.
#[cfg(feature = "flamegraph")]
#[test]
fn the_text_of_perf_script_as_inferno_reads_it() {
    use inferno::collapse::{Collapse as _, perf};
    let mut samples = made::samples();
    // It folds the samples of one event.
    samples.retain(|sample| sample.state == unspool_profile::CpuState::OnCpu);
    samples.retain(|sample| !sample.stack.is_empty());
    let text = written(&made::profile(&samples), perf_script::write);
    let mut folded = Vec::new();
    let mut folder = perf::Folder::from(perf::Options::default());
    folder.collapse(&text[..], &mut folded).unwrap();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &samples {
        let mut line = vec![THREADS[sample.thread].0];
        let functions = functions(sample);
        let names = functions.iter().rev().map(|(name, ..)| *name);
        line.extend(names.map(|name| name.split('(').next().unwrap()));
        *expected.entry(line.join(";")).or_default() += sample.weight;
    }
    let folded = String::from_utf8(folded).unwrap();
    let lines = folded.lines().map(|line| {
        let (line, count) = line.rsplit_once(' ').unwrap();
        (line.to_owned(), count.parse().unwrap())
    });
    assert_eq!(lines.collect::<BTreeMap<String, u64>>(), expected);
}

/// protoc decodes it with a message description that the encoder does not use.
#[test]
fn pprof_as_protoc_reads_it() {
    let mut samples = made::samples();
    // A callee appears before the program.
    samples.rotate_left(7);
    let profile = made::profile(&samples);
    let message = gunzip(&written(&profile, pprof::write));
    let text = protoc(&message);
    let decoded = Text::parse(&text);

    let strings = decoded.strings("string_table");
    let string = |message: &Text, field: &str| strings[message.number(field)].clone();
    let types = decoded.messages("sample_type");
    let types = types.map(|it| (string(it, "type"), string(it, "unit")));
    let expected = [("samples", "count"), ("time", "nanoseconds")];
    assert!(types.eq(expected.map(|(a, b)| (a.to_owned(), b.to_owned()))));
    assert_eq!(decoded.number("period"), 1_000_000);
    assert_eq!(decoded.number("time_nanos"), 1_700_000_000_000_000_000);

    let named = |field: &str| -> BTreeMap<usize, &Text> {
        decoded
            .messages(field)
            .map(|it| (it.number("id"), it))
            .collect()
    };
    let (functions, locations, mappings) = (named("function"), named("location"), named("mapping"));
    let mut sums: BTreeMap<(String, usize, Vec<String>), (usize, usize)> = BTreeMap::new();
    for sample in decoded.messages("sample") {
        let mut path = Vec::new();
        for location in sample.numbers("location_id") {
            for line in locations[&location].messages("line") {
                path.push(string(functions[&line.number("function_id")], "name"));
            }
        }
        path.reverse();
        let labels: BTreeMap<String, &Text> = sample
            .messages("label")
            .map(|label| (string(label, "key"), label))
            .collect();
        let thread = string(labels["thread"], "str");
        let tid = labels["tid"].number("num");
        let values = sample.numbers("value");
        sums.insert((thread, tid, path), (values[0], values[1]));
    }
    let mut expected: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for sample in &samples {
        let (name, tid, _) = THREADS[sample.thread];
        let key = (name.to_owned(), tid as usize, path(sample));
        let (count, weight) = expected.entry(key).or_default();
        *count += 1;
        *weight += sample.weight as usize;
    }
    assert_eq!(sums, expected);

    // pprof also shortens a name that is given as the system name.
    let mut of_system = decoded.messages("function");
    assert!(of_system.all(|function| function.strings("system_name").is_empty()));

    // pprof takes the first for the program; the command may be a link to it.
    let program = decoded.messages("mapping").next().unwrap();
    assert_eq!(string(program, "filename"), "/opt/app");
    let meta = Meta {
        command: vec!["./link".into()],
        ..made::meta()
    };
    let by_link = written(&made::profile_of(&meta, &samples), pprof::write);
    let by_link = Text::parse(&protoc(&gunzip(&by_link)));
    let program = by_link.messages("mapping").next().unwrap();
    let name = program.number("filename");
    assert_eq!(by_link.strings("string_table")[name], "/opt/app");

    // A location's address less its mapping's start is an address in the file, after its offset.
    for (location, frame) in (1..).zip(profile.frames()) {
        let unspool_profile::CodeLocation::Module(module, address) = frame.lookup else {
            continue;
        };
        let location = locations[&location];
        let mapping = mappings[&location.number("mapping_id")];
        let path = &profile.modules()[module.0 as usize].path;
        assert_eq!(string(mapping, "filename"), path.to_str().unwrap());
        let in_file = location.number("address") - mapping.number("memory_start")
            + mapping.number("file_offset");
        assert_eq!(in_file as u64, address.0 - 0xfc0 + 0x4fc0);
        // pprof takes it for a mapping of other code if it does not consist of whole pages.
        for edge in ["memory_start", "memory_limit", "file_offset"] {
            assert_eq!(mapping.number(edge) % 4096, 0, "{edge}");
        }
        assert!(location.number("address") < mapping.number("memory_limit"));
        let build_id = profile.modules()[module.0 as usize].build_id().unwrap();
        assert_eq!(string(mapping, "build_id"), build_id.to_string());
    }
}

/// The rules of speedscope's file format specification.
#[test]
fn speedscope_by_its_specification() {
    let samples = made::samples();
    let text = written(&made::profile(&samples), speedscope::write);
    let file: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        file["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    let frames = file["shared"]["frames"].as_array().unwrap();
    let profiles = file["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), THREADS.len());
    assert_eq!(file["activeProfileIndex"], 1, "the thread that waited long");
    for (n, (profile, (name, tid, _))) in profiles.iter().zip(THREADS).enumerate() {
        assert_eq!(profile["type"], "sampled");
        assert_eq!(profile["unit"], "nanoseconds");
        assert_eq!(profile["name"], format!("{name} [{tid}]"));
        let stacks = profile["samples"].as_array().unwrap();
        let weights = profile["weights"].as_array().unwrap();
        let expected: Vec<&MadeSample> =
            samples.iter().filter(|sample| sample.thread == n).collect();
        assert_eq!(
            (stacks.len(), weights.len()),
            (expected.len(), expected.len())
        );
        let mut sum = 0;
        for ((stack, weight), sample) in stacks.iter().zip(weights).zip(expected) {
            let stack = stack.as_array().unwrap().iter();
            let names = stack.map(|n| {
                frames[n.as_u64().unwrap() as usize]["name"]
                    .as_str()
                    .unwrap()
            });
            assert!(names.eq(path(sample)));
            assert_eq!(*weight, sample.weight);
            sum += sample.weight;
        }
        assert_eq!(
            (&profile["startValue"], &profile["endValue"]),
            (&0.into(), &sum.into())
        );
    }
}

/// The rules of the processed profile format: columns of equal length, indices into other tables.
#[test]
fn firefox_by_its_format() {
    use unspool_profile::CpuState;
    let samples = made::samples();
    let text = written(&made::profile(&samples), firefox::write);
    let file: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(file["meta"]["interval"], 1.0);
    // debugid's rule: the GUID of the first 16 bytes, in little-endian order.
    assert_eq!(
        file["libs"][0]["breakpadId"],
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA0"
    );
    let threads = file["threads"].as_array().unwrap();
    assert_eq!(threads.len(), THREADS.len());
    for (n, (thread, (name, tid, process))) in threads.iter().zip(THREADS).enumerate() {
        assert_eq!(thread["name"], name);
        assert_eq!(thread["tid"], tid.to_string());
        assert_eq!(thread["pid"], PROCESSES[process].1.to_string());
        for table in [
            "frameTable",
            "funcTable",
            "resourceTable",
            "stackTable",
            "samples",
        ] {
            let table = thread[table].as_object().unwrap();
            let length = table["length"].as_u64().unwrap() as usize;
            for column in table.values().filter_map(Value::as_array) {
                assert_eq!(column.len(), length, "{table:?}");
            }
        }
        let table = |table: &str, column: &str, row: usize| thread[table][column][row].clone();
        let index = |value: Value| value.as_u64().unwrap() as usize;
        let expected: Vec<&MadeSample> =
            samples.iter().filter(|sample| sample.thread == n).collect();
        assert_eq!(thread["samples"]["length"], expected.len());
        // A thread's running time between samples, if it never waits.
        let weights: Value = expected.iter().map(|sample| sample.weight).collect();
        let deltas = thread["samples"].get("threadCPUDelta");
        let is_running = expected
            .iter()
            .all(|sample| sample.state == CpuState::OnCpu);
        assert_eq!(deltas, is_running.then_some(&weights));
        for (row, sample) in expected.into_iter().enumerate() {
            let mut names = Vec::new();
            let mut stack = table("samples", "stack", row);
            while !stack.is_null() {
                let at = index(stack);
                let frame = index(table("stackTable", "frame", at));
                let function = index(table("frameTable", "func", frame));
                let name = index(table("funcTable", "name", function));
                names.push(thread["stringArray"][name].as_str().unwrap().to_owned());
                let resource = index(table("funcTable", "resource", function));
                let has_library = !table("resourceTable", "lib", resource).is_null();
                assert_eq!(table("frameTable", "address", frame) != -1, has_library);
                stack = table("stackTable", "prefix", at);
                assert!(stack.is_null() || index(stack.clone()) < at);
            }
            names.reverse();
            assert_eq!(names, path(sample));
            let weight = table("samples", "weight", row).as_f64().unwrap();
            assert!((weight * 1e6 - sample.weight as f64).abs() < 1e-3);
            let time = table("samples", "time", row).as_f64().unwrap();
            let begun = match sample.state {
                CpuState::OnCpu => sample.time,
                CpuState::OffCpu => sample.time - sample.weight,
            };
            assert!((time * 1e6 - (begun - 1_000_000_000) as f64).abs() < 1e-3);
        }
    }
}

#[cfg(feature = "flamegraph")]
fn draw(out: &mut dyn std::io::Write, view: &View<'_>) -> std::io::Result<()> {
    use unspool_profile::output::flamegraph::{self, FlameGraph};
    flamegraph::write(out, view, FlameGraph::default())
}

/// If stacks do not fit, each has a function once; if that is not enough, they are cut. The graph
/// of callers has the same paths reversed.
#[cfg(feature = "flamegraph")]
#[test]
fn a_flame_graph_respects_the_maximum_depth() {
    use unspool_profile::aggregate::Direction;
    use unspool_profile::output::flamegraph::{self, FlameGraph};
    let one = made::samples().remove(0);
    let recursive = |depth: u32| MadeSample {
        stack: (0..depth)
            .map(|n| [made::LEAF, made::RECURSE][n as usize % 2])
            .chain([made::MAIN])
            .map(|function| (function, FrameEvidence::Cfi))
            .collect(),
        ..one.clone()
    };
    let samples: Vec<_> = [1000, 1002, 30].map(recursive).into();
    let total = 3 * one.weight;
    let drawn = |direction, max_height| {
        let graph = FlameGraph {
            direction,
            max_height,
        };
        let svg = written(&made::profile(&samples), |out, view| {
            flamegraph::write(out, view, graph)
        });
        let height = piped("xmllint", &["--xpath", "string(/*/@height)", "-"], &svg);
        let height: usize = String::from_utf8(height).unwrap().trim().parse().unwrap();
        assert!(height <= max_height, "{height}");
        (frames_of_graph(&svg), String::from_utf8(svg).unwrap())
    };
    let recursion = "recursion is collapsed";
    let (whole, svg) = drawn(Direction::Callees, 20_000);
    assert!(!svg.contains(recursion), "{whole:?}");
    assert!(
        whole.contains(&("leaf".to_owned(), one.weight)),
        "{whole:?}"
    );
    let (low, svg) = drawn(Direction::Callees, 2000);
    assert!(svg.contains(recursion) && svg.contains("window.scrollTo"));
    for name in ["all", "main", "recurse", "leaf"] {
        assert!(low.contains(&(name.to_owned(), total)), "{name}: {low:?}");
    }
    assert_eq!(low.len(), 5, "and the thread: {low:?}");
    let (callers, svg) = drawn(Direction::Callers, 2000);
    assert!(svg.contains("var inverted = true") && !svg.contains("window.scrollTo"));
    assert_eq!(callers, low);
    let (cut, _) = drawn(Direction::Callees, 150);
    assert!(!cut.iter().any(|(name, _)| name == "leaf"), "{cut:?}");
}

/// The widths of a flame graph, parsed from its text, and well-formed XML for another parser.
#[cfg(feature = "flamegraph")]
#[test]
fn a_flame_graph_has_all_functions() {
    let mut samples = made::samples();
    // Next to the off-CPU time, all others are too narrow to draw.
    samples.retain(|sample| sample.state == unspool_profile::CpuState::OnCpu);
    let svg = written(&made::profile(&samples), draw);
    let text = ["--xpath", "//*[local-name()='text']/text()", "-"];
    let text = piped("xmllint", &text, &svg);
    let text = String::from_utf8(text).unwrap();
    // The title reports the incomplete stacks: one of the samples has no user stack.
    let complete = samples.iter().filter(|sample| sample.end.is_root()).count();
    let share = format!(" % of {} stacks are complete", samples.len() - 1);
    assert!(
        complete < samples.len() - 1 && text.contains(&share),
        "{text}"
    );
    let frames = frames_of_graph(&svg);
    let total: u64 = samples.iter().map(|sample| sample.weight).sum();
    assert!(frames.contains(&("all".to_owned(), total)), "{frames:?}");
    for (path, weight) in paths(&samples) {
        let name = path.last().unwrap().clone();
        assert!(frames.contains(&(name, weight)), "{path:?} {weight}");
    }
    let none = written(&made::profile(&[]), draw);
    assert!(String::from_utf8(none).unwrap().contains("(no samples)"));
}

/// A hundred thousand wide enough frames take a browser most of a minute.
#[cfg(feature = "flamegraph")]
#[test]
fn a_flame_graph_has_a_maximum_size() {
    let functions = [made::MAIN, made::RECURSE, made::WORK, made::LEAF];
    let one = made::samples().remove(0);
    let samples = (0..1000_usize).map(|n| MadeSample {
        stack: (0..100_u32)
            .map(|depth| functions[(n >> (2 * depth.min(4))) % 4])
            .map(|function| (function, FrameEvidence::Cfi))
            .rev()
            .collect(),
        ..one.clone()
    });
    let svg = written(&made::profile(&samples.collect::<Vec<_>>()), draw);
    let frames = svg.windows(7).filter(|bytes| bytes == b"<title>").count();
    assert!((256..=10_000).contains(&frames), "{frames}");
}

/// Next to the off-CPU time, all others are too narrow to draw.
#[cfg(feature = "flamegraph")]
#[test]
fn narrow_frames_count_for_their_caller() {
    let samples = made::samples();
    let frames = frames_of_graph(&written(&made::profile(&samples), draw));
    let total: u64 = samples.iter().map(|sample| sample.weight).sum();
    let paths = paths(&samples);
    let mut left_out = 0;
    for (path, weight) in &paths {
        let name = path.last().unwrap().clone();
        if *weight >= total / 1200 {
            assert!(frames.contains(&(name, *weight)), "{path:?} {weight}");
        } else {
            left_out += 1;
        }
    }
    assert!(left_out > 0);
    let drawn = frames.iter().filter(|(name, _)| name != "all");
    for (name, weight) in drawn {
        let is_path =
            |(path, known): (&Vec<String>, &u64)| path.last() == Some(name) && known == weight;
        assert!(paths.iter().any(is_path), "{name} {weight}");
    }
}

/// A difference has the frames of the later graph. The change of a frame that is left out counts
/// for its caller.
#[cfg(feature = "flamegraph")]
#[test]
fn narrow_frames_of_a_diff_count_for_their_caller() {
    use unspool_profile::output::flamegraph::{self, FlameGraph};
    let after = made::samples();
    let mut before = after.clone();
    // In `main` of `worker`, from a narrow to a wide one.
    before[3].weight += 2000;
    before.last_mut().unwrap().weight -= 2000;
    let svg = written(&made::profile(&after), |out, after| {
        let before = made::profile(&before);
        let named = NamedProfile::new(&before, &AppNames);
        let samples = before.samples().iter().collect();
        let before = View {
            named: &named,
            samples,
        };
        flamegraph::write_difference(out, &before, after, FlameGraph::default())
    });
    let plain = written(&made::profile(&after), draw);
    assert_eq!(frames_of_graph(&svg), frames_of_graph(&plain));
    let titles = String::from_utf8(svg).unwrap();
    let title = |name: &str| {
        let start = format!("<title>{name} (9,00");
        let at = titles
            .find(&start)
            .unwrap_or_else(|| panic!("{name}: {titles}"));
        titles[at..].split("</title>").next().unwrap()
    };
    // 2000 of 9,005,265.
    assert!(title("main").ends_with("; -0.02%)"), "{}", title("main"));
    assert!(
        title("do_syscall_64").ends_with("; +0.02%)"),
        "{}",
        title("do_syscall_64")
    );
}

/// The functions in a flame graph, with their weights.
#[cfg(feature = "flamegraph")]
fn frames_of_graph(svg: &[u8]) -> std::collections::BTreeSet<(String, u64)> {
    let titles = ["--xpath", "//*[local-name()='title']/text()", "-"];
    let titles = piped("xmllint", &titles, svg);
    let titles = String::from_utf8(titles).unwrap();
    let titles = titles
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let frame = |title: &str| {
        let (name, rest) = title.rsplit_once(" (")?;
        let (weight, _) = rest.split_once(" ns")?;
        Some((name.to_owned(), weight.replace(',', "").parse().ok()?))
    };
    titles.lines().filter_map(frame).collect()
}

/// The weight of each path: of `main` in `app`, and so on.
#[cfg(feature = "flamegraph")]
fn paths(samples: &[MadeSample]) -> BTreeMap<Vec<String>, u64> {
    let mut paths: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for sample in samples {
        let mut path = path(sample);
        path.insert(0, THREADS[sample.thread].0.into());
        for length in 1..=path.len() {
            *paths.entry(path[..length].to_vec()).or_default() += sample.weight;
        }
    }
    paths
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    piped("gzip", &["-dc"], bytes)
}

/// A message as text, by the description next to this file.
fn protoc(message: &[u8]) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    let path = format!("--proto_path={folder}");
    let arguments = ["--decode=perftools.profiles.Profile", &path, "pprof.proto"];
    String::from_utf8(piped("protoc", &arguments, message)).unwrap()
}

/// A program's output for an input.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    filter(tool(program).args(arguments), input)
}

/// A message in protoc's text form.
#[derive(Debug, Default)]
struct Text {
    fields: Vec<(String, String)>,
    messages: Vec<(String, Text)>,
}

impl Text {
    fn parse(text: &str) -> Text {
        let mut open = vec![(String::new(), Text::default())];
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_suffix(" {") {
                open.push((name.to_owned(), Text::default()));
            } else if line == "}" {
                let closed = open.pop().unwrap();
                open.last_mut().unwrap().1.messages.push(closed);
            } else {
                let (name, value) = line.split_once(": ").unwrap();
                let field = (name.to_owned(), value.trim_matches('"').to_owned());
                open.last_mut().unwrap().1.fields.push(field);
            }
        }
        open.pop().unwrap().1
    }

    fn messages<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Text> {
        self.messages
            .iter()
            .filter(move |(other, _)| other == name)
            .map(|(_, text)| text)
    }

    fn strings(&self, name: &str) -> Vec<String> {
        let fields = self.fields.iter().filter(|(other, _)| other == name);
        fields.map(|(_, value)| value.clone()).collect()
    }

    fn numbers(&self, name: &str) -> Vec<usize> {
        self.strings(name)
            .iter()
            .map(|number| number.parse().unwrap())
            .collect()
    }

    /// A number that appears once, or 0.
    fn number(&self, name: &str) -> usize {
        let numbers = self.numbers(name);
        assert!(numbers.len() <= 1, "{name}");
        numbers.first().copied().unwrap_or(0)
    }
}

/// The data of the page, decoded by another program in another language.
fn decoded(page: &[u8]) -> Value {
    let mut python = tool("/usr/bin/python3");
    let decoded = filter(python.args(["-c", include_str!("decode_page.py")]), page);
    serde_json::from_slice(&decoded).unwrap()
}

/// What is in the page is what was sampled.
#[test]
fn page_decoded_by_its_description() {
    let taken = made::samples();
    let page = decoded(&written(&made::profile(&taken), html::write));
    let header = &page["header"];
    assert_eq!(header["title"], "./app a;b");
    assert_eq!(
        (&header["event"], &header["frequency"], &header["is_time"]),
        (&"cpu-clock".into(), &1000.into(), &true.into())
    );
    assert_eq!(header["lost"], 3);
    let mut expected: Vec<&MadeSample> = taken.iter().collect();
    expected.sort_by_key(|sample| (sample.thread, sample.time));
    let samples = page["samples"].as_array().unwrap();
    assert_eq!(samples.len(), expected.len());
    for (sample, taken) in samples.iter().zip(expected) {
        let (name, tid, process) = THREADS[taken.thread];
        let (process, pid) = PROCESSES[process];
        assert_eq!(
            sample["thread"],
            serde_json::json!({ "name": name, "tid": tid, "process": process, "pid": pid })
        );
        let stack = functions(taken).into_iter().rev();
        let stack = stack.map(|(name, module, how)| {
            let kind = match module {
                "[kernel.kallsyms]" => "kernel",
                "[jit]" => "jit",
                _ => "user",
            };
            let mark = match how {
                FrameEvidence::FramePointer => "_[g]",
                FrameEvidence::Spliced => "_[s]",
                _ => "",
            };
            let inlined = if name == "inlined" { " inlined" } else { "" };
            // As `AppNames` has them.
            let place = (0..made::STARTS.len()).find_map(|n| {
                let at = made::called(n).0.iter().position(|it| *it == name)?;
                Some(format!(" /src/{n}.c:{}", 10 + at))
            });
            let place = place.filter(|_| module == "app").unwrap_or_default();
            format!("{kind} {module} {name}{mark}{inlined}{place}")
        });
        assert_eq!(sample["stack"], Value::from(stack.collect::<Vec<_>>()));
        assert_eq!(sample["micros"], (taken.time - 1_000_000_000) / 1000);
        assert_eq!(sample["weight"], taken.weight);
        assert_eq!(sample["cpu"], made::CPU);
        assert_eq!(sample["end"], taken.end.to_string());
        let is_off = taken.state == unspool_profile::CpuState::OffCpu;
        assert_eq!(sample["is_off"], is_off);
        // `do_syscall_64` waits for nothing known.
        let wait = is_off.then_some("unknown");
        assert_eq!(sample["wait"], serde_json::json!(wait));
    }
}

/// The page permits its own script and style sheet, by their hashes, and nothing else.
#[test]
fn page_permits_no_request() {
    let page = written(&made::profile(&made::samples()), html::write);
    let page = String::from_utf8(page).unwrap();
    let between = |start: &str, end: &str| {
        let mut parts = page.split(start);
        let found = parts.nth(1).unwrap().split(end).next().unwrap();
        assert_eq!(parts.next(), None, "{start} is there once");
        found
    };
    let hash = |text: &str| {
        let digest = filter(
            tool("openssl").args(["dgst", "-sha256", "-binary"]),
            text.as_bytes(),
        );
        let base64 = filter(tool("openssl").args(["base64", "-A"]), &digest);
        String::from_utf8(base64).unwrap()
    };
    let script = between("<script type=\"module\">", "</script>");
    let style = between("<style>", "</style>");
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        hash(script),
        hash(style)
    );
    assert_eq!(
        between("http-equiv=\"Content-Security-Policy\" content=\"", "\""),
        policy
    );
    for markup in [" src=", " href=", "url(", "@import", "innerHTML", "eval("] {
        assert!(!page.contains(markup), "{markup}");
    }
}

/// The page's modules type-check, by their comments, and none of them has anything unused.
#[test]
fn page_type_checks() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/html/page");
    let options = [
        "--noEmit",
        "--allowJs",
        "--checkJs",
        "--strict",
        "--noUnusedLocals",
        "--noUnusedParameters",
        "--target",
        "es2022",
        "--module",
        "es2022",
        "--lib",
        "es2022,dom,dom.iterable",
        "--moduleResolution",
        "node",
        "main.mjs",
    ];
    tool("tsc").current_dir(folder).args(options).succeed();
}
