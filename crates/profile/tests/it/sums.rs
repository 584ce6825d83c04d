//! Selections and sums, compared with sums over a plain list of samples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use unspool_profile::aggregate::{self, CallTree, Direction};
use unspool_profile::{
    Completeness, CpuState, FunctionId, GroupedDigits, LiveProfile, NamedProfile, ProfileModule,
    ProfileSample, Runtime, Selection, StackEnd, StackFunction, Time,
};

use crate::made::{self, AppNames, MadeSample, PROCESSES, THREADS, functions};

/// Own and total weight of each key of the samples, the innermost key first.
fn naive(
    samples: &[MadeSample],
    keys: impl Fn(&MadeSample) -> Vec<String>,
) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for sample in samples {
        let keys = keys(sample);
        for key in keys.iter().collect::<BTreeSet<_>>() {
            sums.entry(key.clone()).or_default().1 += sample.weight;
        }
        if let Some(innermost) = keys.first() {
            sums.entry(innermost.clone()).or_default().0 += sample.weight;
        }
    }
    sums
}

fn names(sample: &MadeSample) -> Vec<String> {
    functions(sample)
        .iter()
        .map(|(name, ..)| (*name).into())
        .collect()
}

fn modules(sample: &MadeSample) -> Vec<String> {
    functions(sample)
        .iter()
        .map(|(_, module, _)| (*module).into())
        .collect()
}

fn id_of(named: &NamedProfile<'_>, name: &str) -> FunctionId {
    let at = named
        .functions()
        .iter()
        .position(|function| function.name == name);
    FunctionId(at.unwrap() as u32)
}

#[test]
fn lists_have_the_weights_of_the_samples() {
    let samples = made::samples();
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &AppNames);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let listed = aggregate::functions(&named, &all);
    assert!(listed.is_sorted_by_key(|w| std::cmp::Reverse(w.own)));
    let as_map = |(name, own, total): (&str, u64, u64)| (name.to_owned(), (own, total));
    let ours = listed
        .iter()
        .map(|w| as_map((named.function_name(w.key), w.own, w.total)));
    assert_eq!(ours.collect::<BTreeMap<_, _>>(), naive(&samples, names));
    let listed = aggregate::modules(&named, &all);
    let ours = listed.iter().map(|w| as_map((w.key, w.own, w.total)));
    assert_eq!(ours.collect::<BTreeMap<_, _>>(), naive(&samples, modules));
    let listed = aggregate::threads(&all);
    let thread = |sample: &MadeSample| vec![THREADS[sample.thread].0.to_owned()];
    let ours = listed
        .iter()
        .map(|w| as_map((THREADS[w.key.0 as usize].0, w.own, w.total)));
    assert_eq!(ours.collect::<BTreeMap<_, _>>(), naive(&samples, thread));
    assert_eq!(
        aggregate::total(&all),
        samples.iter().map(|s| s.weight).sum::<u64>()
    );
}

/// A profile that is read in parts, while it is recorded, has the sums of the whole: its samples on a
/// CPU, one for each stack of each thread.
#[test]
fn live_sums_are_those_of_the_whole() {
    let profile = made::profile(&made::samples());
    let named = NamedProfile::new(&profile, &AppNames);
    let mut live = LiveProfile::default();
    profile.samples().chunks(3).for_each(|part| live.add(part));
    let all = profile.samples().iter();
    let all: Vec<_> = all.filter(|it| it.state == CpuState::OnCpu).collect();
    let summed: Vec<_> = live.samples().collect();
    assert!(summed.len() < all.len());
    let sums = |samples: &[&ProfileSample]| -> BTreeMap<_, _> {
        let listed = aggregate::functions(&named, samples).into_iter();
        listed.map(|w| (w.key, (w.own, w.total))).collect()
    };
    assert_eq!(sums(&summed), sums(&all));
}

#[test]
fn a_function_is_guessed_where_all_its_frames_are() {
    let samples = made::samples();
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &AppNames);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let listed = aggregate::functions(&named, &all);
    let guessed = listed.iter().filter(|w| w.guessed > 0);
    let guessed: Vec<_> = guessed
        .map(|w| (named.function_name(w.key), w.guessed))
        .collect();
    // `main` is spliced, `work` from its frame pointer.
    let work = ("work<int>(std::vector<int>&)", 2000);
    assert_eq!(guessed, [("main", 40), work]);
}

/// The paths of a tree, with own and total weights.
fn paths(named: &NamedProfile<'_>, tree: &CallTree) -> BTreeMap<Vec<String>, (u64, u64)> {
    let mut paths = BTreeMap::new();
    let mut next = vec![(tree.root(), Vec::new())];
    while let Some((node, mut path)) = next.pop() {
        let mut add = |path: &[String], own| {
            let old = paths.insert(path.to_vec(), (own, node.total));
            assert_eq!(old, None, "a path is there once");
        };
        for StackFunction { function, mark } in node.functions {
            path.push(named.function_name(*function).to_owned() + mark.suffix());
            add(&path, 0);
        }
        paths.insert(path.clone(), (node.own, node.total));
        let children = node.children();
        assert!(children.is_sorted_by_key(|c| std::cmp::Reverse(c.total)));
        // Otherwise it would be one node.
        assert!(children.len() != 1 || node.own > 0 || path.is_empty());
        next.extend(children.into_iter().map(|child| (child, path.clone())));
    }
    paths
}

/// The same from the plain list: each path of a sample, and all its prefixes.
fn naive_paths(
    samples: &[MadeSample],
    path: impl Fn(&MadeSample) -> Vec<String>,
) -> BTreeMap<Vec<String>, (u64, u64)> {
    let mut paths: BTreeMap<Vec<String>, (u64, u64)> = BTreeMap::new();
    for sample in samples {
        let path = path(sample);
        for length in 0..=path.len() {
            paths.entry(path[..length].to_vec()).or_default().1 += sample.weight;
        }
        paths.entry(path).or_default().0 += sample.weight;
    }
    paths
}

fn marked(sample: &MadeSample) -> Vec<String> {
    use unspool_profile::FrameEvidence::{FramePointer, Spliced};
    let marked = functions(sample)
        .into_iter()
        .map(|(name, _, how)| match how {
            FramePointer => format!("{name}_[g]"),
            Spliced => format!("{name}_[s]"),
            _ => name.to_owned(),
        });
    marked.collect()
}

#[test]
fn trees_have_the_weights_of_the_samples() {
    let samples = made::samples();
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &AppNames);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let callers = CallTree::new(&named, &all, Direction::Callers);
    assert_eq!(paths(&named, &callers), naive_paths(&samples, marked));
    let callees = CallTree::new(&named, &all, Direction::Callees);
    let outermost_first = |sample: &MadeSample| marked(sample).into_iter().rev().collect();
    assert_eq!(
        paths(&named, &callees),
        naive_paths(&samples, outermost_first)
    );
}

/// In a merged tree, a function has one node, with the mark of the most certain frame there.
#[test]
fn merged_trees_have_a_function_once() {
    use unspool_profile::FrameEvidence::{FramePointer, Spliced};
    let mut samples = made::samples();
    samples[6].stack[0].1 = Spliced;
    let mut spliced = samples[0].clone();
    spliced.stack[1].1 = Spliced;
    spliced.stack[2].1 = Spliced;
    samples.push(spliced);
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &AppNames);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    for direction in [Direction::Callees, Direction::Callers] {
        let path = |sample: &MadeSample| {
            let mut path = functions(sample);
            if direction == Direction::Callees {
                path.reverse();
            }
            path
        };
        let names = |sample: &MadeSample, length: usize| -> Vec<&'static str> {
            path(sample)
                .iter()
                .take(length)
                .map(|(name, ..)| *name)
                .collect()
        };
        let mut least: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        for sample in &samples {
            for (n, (.., evidence)) in path(sample).into_iter().enumerate() {
                let mark = match evidence {
                    FramePointer => 1,
                    Spliced => 2,
                    _ => 0,
                };
                let known = least.entry(names(sample, n + 1)).or_insert(mark);
                *known = mark.min(*known);
            }
        }
        let merged = |sample: &MadeSample| {
            let ends = 1..=path(sample).len();
            let prefixes = ends.map(|length| names(sample, length));
            let marked = prefixes.map(|prefix| {
                let mark = ["", "_[g]", "_[s]"][least[&prefix]];
                format!("{}{mark}", prefix[prefix.len() - 1])
            });
            marked.collect()
        };
        let tree = CallTree::new(&named, &all, direction).merged();
        let expected = naive_paths(&samples, merged);
        assert_eq!(paths(&named, &tree), expected);
        let split = |sample: &MadeSample| {
            let mut path = marked(sample);
            if direction == Direction::Callees {
                path.reverse();
            }
            path
        };
        assert!(expected.len() < naive_paths(&samples, split).len());
        assert!(expected.keys().flatten().any(|name| name.ends_with("_[s]")));
    }
}

#[test]
fn around_a_recursive_function() {
    let samples = made::samples();
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &AppNames);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let recurse = id_of(&named, "recurse");
    let path = |path: &[&str]| {
        path.iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let callers = CallTree::around(&named, &all, recurse, Direction::Callers);
    let callers = paths(&named, &callers);
    assert_eq!(callers[&path(&["recurse"])], (0, 750));
    assert_eq!(callers[&path(&["recurse", "main"])], (750, 750));
    assert_eq!(callers.len(), 3);
    let callees = CallTree::around(&named, &all, recurse, Direction::Callees);
    let callees = paths(&named, &callees);
    assert_eq!(callees[&path(&["recurse"])], (0, 750));
    assert_eq!(
        callees[&path(&["recurse", "recurse", "recurse", "leaf"])],
        (500, 500)
    );
    let work = "work<int>(std::vector<int>&)";
    assert_eq!(callees[&path(&["recurse", work, "recurse"])], (250, 250));
}

#[test]
fn filters_leave_the_samples_that_pass_all_of_them() {
    let samples = made::samples();
    let profile = made::profile(&samples);
    let named = NamedProfile::new(&profile, &AppNames);
    let check = |selection: Selection<'_>, is_meant: &dyn Fn(&MadeSample) -> bool| {
        let ours: Vec<u64> = selection.samples(&named).iter().map(|s| s.time.0).collect();
        let expected = samples.iter().filter(|sample| is_meant(sample));
        assert_eq!(ours, expected.map(|sample| sample.time).collect::<Vec<_>>());
    };
    let has =
        |sample: &MadeSample, name: &str| functions(sample).iter().any(|(f, ..)| f.contains(name));
    let has_module =
        |sample: &MadeSample, name: &str| functions(sample).iter().any(|f| f.1 == name);
    check(Selection::default(), &|_| true);
    for word in ["worker", "101"] {
        let threads = vec![word.to_owned()];
        check(
            Selection {
                threads,
                ..Selection::default()
            },
            &|s| s.thread == 1,
        );
    }
    let threads = vec!["worker".to_owned(), "100".into()];
    check(
        Selection {
            threads,
            ..Selection::default()
        },
        &|s| s.thread < 2,
    );
    let processes = vec![PROCESSES[1].0.to_owned()];
    check(
        Selection {
            processes,
            ..Selection::default()
        },
        &|s| s.thread == 2,
    );
    let time = Some(Time(1_002_000_000)..Time(1_005_000_000));
    check(
        Selection {
            time,
            ..Selection::default()
        },
        &|s| (1_002_000_000..1_005_000_000).contains(&s.time),
    );
    let state = Some(CpuState::OffCpu);
    check(
        Selection {
            state,
            ..Selection::default()
        },
        &|s| s.state == CpuState::OffCpu,
    );
    let function = || -> Option<unspool_profile::NamePredicate<'_>> {
        Some(Box::new(|f| f.contains("recur")))
    };
    check(
        Selection {
            function: function(),
            ..Selection::default()
        },
        &|s| has(s, "recur"),
    );
    let module =
        || -> Option<unspool_profile::NamePredicate<'_>> { Some(Box::new(|m| m == "libplain.so")) };
    check(
        Selection {
            module: module(),
            ..Selection::default()
        },
        &|s| has_module(s, "libplain.so"),
    );
    let both = Selection {
        function: Some(Box::new(|f| f == "main")),
        module: module(),
        threads: vec!["child".into()],
        ..Selection::default()
    };
    check(both, &|s| {
        s.thread == 2 && has(s, "main") && has_module(s, "libplain.so")
    });
}

#[test]
fn completeness_is_one_line() {
    let samples = made::samples();
    let profile = made::profile(&samples);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let completeness = Completeness::new(&profile, &all);
    // 14 samples: 1 has no user stack, 4 do not reach a root, 1 does by a spliced frame.
    assert_eq!(completeness.stacks(), 13);
    assert_eq!(completeness.complete, 8);
    let expected = "69.23 % of 13 stacks are complete: 61.53 % directly, 7.69 % by outer frames spliced \
                    in ([s]), because the copied stack was too short; 4 incomplete: 2 no unwind table in libplain.so+0x5014, 1 stack copy too \
                    short, 1 code replaced during the walk; 1 with guessed frames; 1 without a user stack; 3 lost";
    assert_eq!(completeness.summary().to_string(), expected);
    let frames: u64 = completeness.frames.values().sum();
    assert_eq!(
        frames,
        samples
            .iter()
            .map(|sample| sample.stack.len() as u64)
            .sum::<u64>()
    );
}

/// Advice on code made at run time is for the runtimes that were found, and no others.
#[test]
fn advice_names_the_runtime_that_was_found() {
    let mut in_made_code = made::samples()[0].clone();
    in_made_code.end = StackEnd::NoModule;
    let profile = made::profile(&[in_made_code]);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let mut completeness = Completeness::new(&profile, &all);
    assert_eq!(completeness.runtimes, [].into());
    let paths = [
        (
            "/usr/lib/jvm/java-17/lib/server/libjvm.so",
            "Java",
            "PreserveFramePointer",
        ),
        ("/usr/bin/python3.12", "Python", "-X perf_jit"),
        ("/usr/lib/libluajit-5.1.so.2", "LuaJIT", "-joff"),
        ("/usr/lib/erlang/bin/beam.smp", "Erlang", "+JPperf"),
    ];
    let names = [
        "Java", "Python", "LuaJIT", "Erlang", "Node", ".NET", "Ruby", "PHP",
    ];
    for (path, name, option) in paths {
        let runtime = Runtime::from_path(Path::new(path)).unwrap();
        completeness.runtimes = [(runtime, 0)].into();
        let advice = completeness.advice()[0].text();
        let naming = completeness.unnamed_code_advice(1).unwrap();
        assert!(advice.contains(option), "{advice}");
        for text in [advice, naming] {
            let named = names.iter().filter(|name| text.contains(**name));
            assert_eq!(named.collect::<Vec<_>>(), [&name], "{text}");
        }
    }
    assert_eq!(completeness.unnamed_code_advice(0), None);
    for path in ["/usr/bin/git", "/usr/lib/libc.so.6", "/opt/nodes"] {
        assert_eq!(Runtime::from_path(Path::new(path)), None, "{path}");
    }
}

/// Most stacks are within the interpreter, and no function has a frame of its own yet.
#[test]
fn advice_on_interpreters() {
    let all = Completeness {
        complete: 100,
        kernel_threads: 900,
        ..Completeness::default()
    };
    let advice = |runtime, samples, has_generated_code| {
        let completeness = Completeness {
            runtimes: [(Runtime::Java, 1), (runtime, samples)].into(),
            has_generated_code,
            ..all.clone()
        };
        completeness.interpreter_advice()
    };
    let python = advice(Runtime::Python, 51, false).unwrap();
    assert!(python.starts_with("51.00 % of stacks are within Python's interpreter"));
    assert!(
        python.contains("`python3 -X perf` (Python 3.12 or later)"),
        "{python}"
    );
    assert_eq!(advice(Runtime::Python, 50, false), None);
    assert_eq!(advice(Runtime::Python, 99, true), None);
    assert_eq!(advice(Runtime::LuaJit, 99, false), None);
    // The made profile has generated code, and its frames are of no runtime.
    let profile = made::profile(&made::samples());
    let samples: Vec<&ProfileSample> = profile.samples().iter().collect();
    assert!(Completeness::new(&profile, &samples).has_generated_code);
}

/// The end of a short copy says nothing about its code, and a reason is named once.
#[test]
fn reasons_without_a_useful_location_are_merged() {
    let all = made::samples();
    let [no_table, not_copied] = [&all[7], &all[9]];
    let in_other_module = made::MadeSample {
        end: StackEnd::NotCopied,
        ..no_table.clone()
    };
    let samples = [not_copied, no_table, &in_other_module, &in_other_module].map(Clone::clone);
    let profile = made::profile(&samples);
    let samples: Vec<&ProfileSample> = profile.samples().iter().collect();
    let completeness = Completeness::new(&profile, &samples);
    assert_eq!(completeness.incomplete.len(), 3);
    let line = completeness.summary().to_string();
    let expected = "4 incomplete: 3 stack copy too short, 1 no unwind table in libplain.so";
    assert!(line.contains(expected), "{line}");
}

/// 100 % is the whole, not nearly all.
#[test]
fn shares_are_not_rounded_up() {
    let good = made::samples().swap_remove(0);
    let mut samples = vec![good; 19_999];
    for (n, sample) in (0..).zip(&mut samples) {
        sample.time += n;
    }
    let profile = made::profile(&samples);
    let line =
        |samples: &[&ProfileSample]| Completeness::new(&profile, samples).summary().to_string();
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let lost = "; 3 lost";
    assert_eq!(
        line(&all),
        format!("100 % of 19,999 stacks are complete{lost}")
    );
    assert_eq!(
        line(&all[..1]),
        format!("100 % of 1 stack is complete{lost}")
    );
    assert_eq!(line(&[]), format!("no stacks of programs{lost}"));
    samples[7].end = unspool_profile::StackEnd::Limit;
    let profile = made::profile(&samples);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let line = Completeness::new(&profile, &all).summary().to_string();
    assert!(line.starts_with("99.99 % of 19,999 stacks"), "{line}");
    for sample in &mut samples[1..] {
        sample.end = unspool_profile::StackEnd::Limit;
    }
    let profile = made::profile(&samples);
    let all: Vec<&ProfileSample> = profile.samples().iter().collect();
    let line = Completeness::new(&profile, &all).summary().to_string();
    assert!(
        line.starts_with("less than 0.01 % of 19,999 stacks"),
        "{line}"
    );
}

#[test]
fn thousands_are_separated() {
    for (number, text) in [
        (0, "0"),
        (999, "999"),
        (1000, "1,000"),
        (1_234_567, "1,234,567"),
    ] {
        assert_eq!(GroupedDigits(number).to_string(), text);
    }
}

/// From 1 % of the stacks on, there is advice, for the most frequent reason first.
#[test]
fn advice_is_for_low_figures() {
    let all = made::samples();
    let [complete, no_table, not_copied] = [&all[0], &all[7], &all[9]];
    let advice = |counts: [usize; 3]| -> Vec<(StackEnd, u64, Option<String>, String)> {
        let samples = [complete, no_table, not_copied].into_iter().zip(counts);
        let samples =
            samples.flat_map(|(sample, count)| std::iter::repeat_n(sample.clone(), count));
        let profile = made::profile(&samples.collect::<Vec<_>>());
        let samples: Vec<&ProfileSample> = profile.samples().iter().collect();
        let all = Completeness::new(&profile, &samples);
        let advice = all.advice().into_iter();
        let module = |module: &ProfileModule| module.path.to_string_lossy().into_owned();
        let parts = advice.map(|advice| {
            let text = advice.to_string();
            (
                advice.reason.end,
                advice.reason.samples,
                advice.reason.module.map(module),
                text,
            )
        });
        parts.collect()
    };
    assert_eq!(advice([0, 0, 0]), []);
    assert_eq!(advice([991, 8, 1]), []);
    let given = advice([989, 10, 1]);
    let ends: Vec<_> = given
        .iter()
        .map(|(end, samples, ..)| (*end, *samples))
        .collect();
    assert_eq!(ends, [(StackEnd::NoTable, 10), (StackEnd::NotCopied, 1)]);
    let (_, module) = made::called(made::NAMELESS);
    assert!(given[0].2.as_ref().unwrap().ends_with(module), "{given:?}");
    assert!(
        given[0].3.starts_with("for 1.00 % of stacks: build "),
        "{given:?}"
    );
    // Not worth a line.
    assert_eq!(advice([19_000, 999, 1]).len(), 1);
}
