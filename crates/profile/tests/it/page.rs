//! The page in a real browser, opened from disk.

use std::collections::BTreeMap;
use std::path::Path;

use unspool_profile::output::{View, html};
use unspool_profile::{
    CodeInstruction, CodeLocation, Completeness, CpuState, FunctionCode, FunctionId, LocationName,
    ModuleId, NameResolver, NamedProfile, Profile, SampledCode, SourceExcerpt, SourceFrame,
    StackEnd,
};
use unspool_rows::Vaddr;
use unspool_testing::{Browser, Finish as _, Folder, is_thorough, tool};

use crate::large;
use crate::made::{self, AppNames, LEAF, MAIN, MadeSample, RECURSE, STARTS, WORK, functions};

const VIEWS: [&str; 7] = ["flame", "time", "list", "tree", "around", "source", "code"];

/// What all pages count: each time that they show something else.
const READY: &str = "document.body && document.body.dataset.ready";

/// A line of source and an instruction that would be markup.
const CODE: &str = "\t<img src=x onerror=alert(1)>\u{202e}";

/// The instructions of `leaf`, the second of which was sampled, and its source.
fn leaf_code(named: &NamedProfile<'_>) -> SampledCode {
    let leaf = named.functions().iter().position(|it| it.name == "leaf");
    let address = STARTS[LEAF] + made::offset(LEAF);
    let frame = SourceFrame {
        function: CODE.into(),
        file: Some("/src/3.c".into()),
        line: Some(10),
    };
    let instruction = |address: u64, target, samples| CodeInstruction {
        address: Vaddr(address),
        length: 4,
        text: CODE.trim_start().into(),
        target,
        location: Some(0),
        weight: samples,
        samples,
    };
    let code = FunctionCode {
        module: ModuleId(0),
        range: Vaddr(STARTS[LEAF])..Vaddr(STARTS[LEAF] + 0x40),
        instructions: vec![
            instruction(address - 4, None, 0),
            instruction(address, Some(0), 1),
            instruction(address + 4, Some(0), 0),
        ],
        locations: vec![vec![frame]],
    };
    SampledCode {
        functions: vec![(FunctionId(leaf.unwrap_or(0) as u32), Ok(vec![code]))],
        sources: vec![SourceExcerpt {
            file: "/src/3.c".into(),
            first_line: 9,
            lines: vec!["void leaf() {".into(), CODE.into(), "}".into()],
            is_newer: true,
        }],
    }
}

fn write(path: &Path, profile: &Profile, before: Option<&Profile>, names: &impl NameResolver) {
    let named = NamedProfile::new(profile, names);
    let view = |named| View {
        named,
        samples: named.profile.samples().iter().collect(),
    };
    let code = leaf_code(&named);
    let mut page = Vec::new();
    match before {
        Some(before) => {
            let before = NamedProfile::new(before, names);
            let (before, after) = (view(&before), view(&named));
            html::write_comparison(&mut page, &before, &after, &code).unwrap();
        }
        None => html::write_with_code(&mut page, &view(&named), &code).unwrap(),
    }
    std::fs::write(path, page).unwrap();
}

/// A page in a browser.
struct Opened {
    browser: Browser,
    address: String,
    _folder: Folder,
}

impl Opened {
    fn new(profile: &Profile, names: &impl NameResolver) -> Opened {
        Opened::compared(profile, None, names)
    }

    fn compared(profile: &Profile, before: Option<&Profile>, names: &impl NameResolver) -> Opened {
        let folder = Folder::new();
        let path = folder.join("page.html");
        write(&path, profile, before, names);
        let mut opened = Opened {
            browser: Browser::start(),
            address: format!("file://{}", path.display()),
            _folder: folder,
        };
        opened.browser.set_window(1280, 800, false);
        let address = opened.address.clone();
        opened.browser.open(&address, READY);
        opened
    }

    /// Shows what an address says.
    fn show(&mut self, state: &str) {
        // An address that differs after `#` only is not loaded again.
        self.browser
            .open("about:blank", "location.href === 'about:blank'");
        let address = format!("{}#{state}", self.address);
        self.browser.open(&address, READY);
    }

    /// Acts, and waits until the page has shown the change.
    fn acts(&mut self, act: impl FnOnce(&mut Browser)) {
        let before = self.browser.eval("document.body.dataset.ready");
        act(&mut self.browser);
        let changed = format!("document.body.dataset.ready !== {before}");
        self.browser.await_that(&changed);
    }

    fn text(&mut self, selector: &str) -> String {
        let all =
            format!("Array.from(document.querySelectorAll('{selector}'), it => it.innerText)");
        let texts = self.browser.eval(&all);
        let texts = texts.as_array().unwrap().iter();
        let texts: Vec<&str> = texts.map(|text| text.as_str().unwrap()).collect();
        texts.join("\n")
    }

    fn state(&mut self) -> String {
        let hash = self.browser.eval("decodeURIComponent(location.hash)");
        hash.as_str().unwrap().trim_start_matches('#').to_owned()
    }

    /// The list: own and total share by function.
    fn list(&mut self) -> BTreeMap<String, (String, String)> {
        let rows = self.text("#view tbody tr");
        let rows = rows.lines().map(|row| {
            let mut cells = row.split('\t').map(|cell| cell.trim().to_owned());
            let (own, total) = (cells.next().unwrap(), cells.next().unwrap());
            (cells.next().unwrap(), (own, total))
        });
        rows.collect()
    }
}

/// Own and total shares of the functions of samples, as the list has them.
fn expected(
    samples: &[&MadeSample],
    is_hidden: impl Fn(&str) -> bool,
) -> BTreeMap<String, (String, String)> {
    let mut weights: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut all = 0;
    for sample in samples {
        all += sample.weight;
        let stack = functions(sample).into_iter().map(|(name, _, _)| name);
        let mut stack: Vec<&str> = stack.filter(|name| !is_hidden(name)).collect();
        if let Some(innermost) = stack.first() {
            weights.entry(innermost).or_default().0 += sample.weight;
        }
        stack.sort_unstable();
        stack.dedup();
        for name in stack {
            weights.entry(name).or_default().1 += sample.weight;
        }
    }
    let share = |weight| format!("{:.2} %", 100.0 * weight as f64 / all as f64);
    let shares = weights
        .into_iter()
        .map(|(name, (own, total))| (name.to_owned(), (share(own), share(total))));
    shares.collect()
}

fn on_cpu(taken: &[MadeSample]) -> Vec<&MadeSample> {
    taken
        .iter()
        .filter(|sample| sample.state == CpuState::OnCpu)
        .collect()
}

#[test]
fn page_shows_what_was_sampled() {
    let taken = made::samples();
    let profile = made::profile(&taken);
    let mut page = Opened::new(&profile, &AppNames);
    page.show("view=list&full=1");
    let on = on_cpu(&taken);
    assert_eq!(page.list(), expected(&on, |_| false));

    // Filters.
    page.show("view=list&full=1&threads=1");
    let of_worker: Vec<&MadeSample> = on
        .iter()
        .copied()
        .filter(|sample| sample.thread == 1)
        .collect();
    assert_eq!(page.list(), expected(&of_worker, |_| false));
    page.show("view=list&full=1&from=2000&to=5000");
    let times = 1_002_000_000..1_005_000_000;
    let of_time = on
        .iter()
        .copied()
        .filter(|sample| times.contains(&sample.time));
    assert_eq!(
        page.list(),
        expected(&of_time.collect::<Vec<_>>(), |_| false)
    );
    page.show("view=list&full=1&state=off&by=function");
    let off = taken
        .iter()
        .filter(|sample| sample.state == CpuState::OffCpu);
    assert_eq!(page.list(), expected(&off.collect::<Vec<_>>(), |_| false));

    page.show("view=list&state=off");
    assert_eq!(page.text("#view tbody tr"), "100.00 %\t100.00 %\tunknown");
    page.acts(|browser| {
        browser.eval("document.querySelector('#view tbody button').click()");
    });
    assert_eq!(page.text("#transforms button"), "waiting for unknown ✕");
    page.show("view=list&by=wait");
    assert!(page.text("#view").contains("leaf"), "on a CPU, functions");
    page.acts(|browser| {
        browser.eval("document.querySelector('#view .bar button:last-child').click()");
    });
    assert_eq!(page.text("#view tbody tr"), "100.00 %\t100.00 %\tunknown");
    page.show("view=list&state=off");
    page.acts(|browser| {
        browser.eval("document.querySelector('#view tbody button').click()");
    });
    assert!(!page.state().contains("view="), "the graph says who waits");
    page.show("view=list&state=off&wait=a lock or another thread");
    assert!(page.text("#view").starts_with("No sample passes"));

    // Transforms: what is hidden counts for its caller.
    page.show("view=list&full=1&do=hide:app!leaf");
    assert_eq!(page.list(), expected(&on, |name| name == "leaf"));
    page.acts(|browser| {
        browser.eval("document.querySelector('#transforms button').click()");
    });
    assert_eq!(page.list(), expected(&on, |_| false));
    assert_eq!(page.state(), "view=list&full=1");
    page.acts(|browser| browser.press("Backspace"));
    assert_eq!(page.state(), "view=list&full=1&do=hide:app!leaf");

    // Completeness, as in the report.
    page.show("state=all");
    let samples: Vec<_> = profile.samples().iter().collect();
    let all = Completeness::new(&profile, &samples);
    let rows = page.text("#completeness-line");
    let share = |part: u64| unspool_profile::share(part, all.stacks());
    assert_eq!(
        rows,
        format!(
            "{} of {} stacks are complete: {} directly, {} by outer frames spliced in; {} incomplete",
            share(all.complete + all.spliced),
            all.stacks(),
            share(all.complete),
            share(all.spliced),
            all.incomplete()
        )
    );
    page.browser
        .eval("document.querySelector('#completeness').open = true");
    let reasons = page.text("#completeness-reasons tr");
    for reason in [
        format!("{}\tof the complete ones with guessed frames", all.guessed),
        format!(
            "{}\twithout a user stack",
            all.kernel_threads + all.no_user_registers
        ),
        "2\tincomplete: no unwind table in libplain.so".to_owned(),
        "1\tincomplete: stack copy too short in app".to_owned(),
    ] {
        assert!(
            reasons.lines().any(|line| line == reason),
            "{reason}: {reasons}"
        );
    }

    // It is one file, and asks for nothing else.
    let address = page.address.clone();
    let others = page.browser.requests().iter();
    let others = others.filter(|url| !url.starts_with(&address) && *url != "about:blank");
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

/// How long the selected threads are on a CPU, and wait for what. Each is a button for its stacks.
#[test]
fn page_says_how_long_what_is_waited_for() {
    let taken = made::samples();
    let mut page = Opened::new(&made::profile(&taken), &AppNames);
    for thread in [None, Some(0), Some(1), Some(2)] {
        let of = |state| {
            let taken = taken.iter();
            let taken = taken.filter(|it| thread.is_none_or(|thread| it.thread == thread));
            let taken = taken.filter(|it| it.state == state);
            taken.map(|it| it.weight).sum::<u64>()
        };
        let shown = [
            ("on a CPU", of(CpuState::OnCpu)),
            ("waits for unknown", of(CpuState::OffCpu)),
        ];
        let time = |nanos: u64| match nanos {
            1_000_000.. => format!("{:.2} ms", nanos as f64 / 1e6),
            _ => format!("{:.1} µs", nanos as f64 / 1e3),
        };
        let shown = shown.iter().filter(|(_, nanos)| *nanos > 0);
        let shown: Vec<String> = shown
            .map(|(text, nanos)| format!("{text} {}", time(*nanos)))
            .collect();
        page.show(&thread.map_or(String::new(), |it| format!("threads={it}")));
        assert_eq!(page.text("#activity button"), shown.join("\n"));
    }
    // In the time line, too, where the pointer is.
    let titles = page.browser.eval(
        "Array.from(document.querySelectorAll('.lane:not(.axis) canvas'), (lane) => {
          const { left, width } = lane.getBoundingClientRect();
          return Array.from({ length: width }, (_, x) => {
            lane.dispatchEvent(new PointerEvent('pointermove', { clientX: left + x }));
            return lane.title;
          }).join(' | ');
        }).join(' | ')",
    );
    let titles = titles.as_str().unwrap();
    for text in [" s, on a CPU 1", " s, waiting for unknown "] {
        assert!(titles.contains(text), "{text}: {titles}");
    }
    page.show("view=tree");
    let press = |browser: &mut Browser| {
        browser.eval("document.querySelector('#activity button:last-child').click()");
    };
    page.acts(press);
    assert_eq!(page.state(), "view=tree&state=off&wait=unknown");
    page.acts(press);
    assert_eq!(page.state(), "view=tree&state=off");
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

/// A line and an instruction have the weight of the samples at them, whatever is selected.
#[test]
fn page_shows_source_and_instructions() {
    let taken = made::samples();
    let mut page = Opened::new(&made::profile(&taken), &AppNames);
    let visible = CODE.replace('\u{202e}', "\\u{202e}");
    for (filter, thread) in [("", None), ("&threads=0", Some(0)), ("&threads=1", Some(1))] {
        let on = on_cpu(&taken).into_iter();
        let on: Vec<&MadeSample> = on
            .filter(|it| thread.is_none_or(|id| it.thread == id))
            .collect();
        let of_leaf = |sample: &&&MadeSample| sample.stack.first().is_some_and(|(n, _)| *n == LEAF);
        let samples = on.iter().filter(of_leaf).count();
        let own = expected(&on, |_| false)["leaf"].0.clone();
        page.show(&format!("view=code&fn=app!leaf{filter}"));
        let address = STARTS[LEAF] + made::offset(LEAF);
        let text = visible.trim_start();
        let rows = page.text("#view tbody tr");
        let rows: Vec<Vec<&str>> = rows
            .lines()
            .map(|row| row.split('\t').map(str::trim).collect())
            .collect();
        let count = samples.to_string();
        let addresses = [address - 4, address, address + 4].map(|it| format!("{it:x}"));
        assert_eq!(rows[1], ["", "", &addresses[0], "", text]);
        assert_eq!(rows[2], [&own, &count, &addresses[1], "", text]);
        assert_eq!(rows[3], ["", "", &addresses[2], "", text]);
        page.show(&format!("view=source&fn=app!leaf{filter}"));
        let cells = page.text("#view tbody tr:nth-child(2) td");
        let mut cells = cells.lines();
        assert_eq!(cells.next(), Some(own.as_str()));
        assert_eq!(cells.next(), Some(own.as_str()), "leaf calls nothing");
        assert_eq!(cells.next(), Some("10"));
        assert!(cells.next().unwrap().trim_start().starts_with(text));
    }
    assert!(
        page.text("#view")
            .contains("changed after the program was built")
    );
    // From a line to its instructions and back.
    page.acts(|browser| {
        browser.eval("document.querySelector('#view .place button').click()");
    });
    assert!(page.state().contains("view=code") && page.state().contains("line=10"));
    page.acts(|browser| browser.press("6"));
    assert!(page.state().contains("view=source"));
    // Without a selection, what takes most.
    page.show("view=source");
    assert_eq!(page.text("#view h2"), "leaf");
    page.show("view=code&fn=app!main");
    assert!(
        page.text("#view")
            .contains("There are no instructions of main in the page")
    );
    assert_eq!(page.browser.eval("document.images.length"), 0);
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

/// Shares before and after are those of the two profiles.
#[test]
fn page_compares_two_profiles() {
    let after = made::samples();
    let mut before = made::samples();
    before.truncate(4);
    let profiles = [made::profile(&before), made::profile(&after)];
    let mut page = Opened::compared(&profiles[1], Some(&profiles[0]), &AppNames);
    page.show("view=list&full=1");
    let shares = [&before, &after].map(|taken| expected(&on_cpu(taken), |_| false));
    let rows = page.text("#view tbody tr");
    let mut seen = 0;
    for row in rows.lines() {
        let cells: Vec<&str> = row.split('\t').map(str::trim).collect();
        let none = ("0.00 %".to_owned(), "0.00 %".to_owned());
        let [before, after] = shares
            .each_ref()
            .map(|it| it.get(cells[6]).unwrap_or(&none));
        assert_eq!([cells[1], cells[2]], [&before.0, &after.0], "{row}");
        assert_eq!([cells[4], cells[5]], [&before.1, &after.1], "{row}");
        seen += 1;
    }
    assert_eq!(seen, shares[1].len());
    page.show("view=tree&full=1");
    assert!(page.text("#view thead").starts_with("change\ttotal"));
    for view in ["flame", "around", "time", "code"] {
        page.show(&format!("view={view}&fn=app!leaf"));
    }
    assert_eq!(page.browser.errors(), Vec::<String>::new());

    let mut same = Opened::compared(&profiles[1], Some(&profiles[1]), &AppNames);
    for view in ["list", "tree"] {
        same.show(&format!("view={view}&full=1"));
        let changes = same.text("#view .change");
        assert!(
            changes.lines().all(|change| change.trim() == "0.00 %"),
            "{changes}"
        );
    }
}

#[test]
fn page_by_keyboard_and_mouse() {
    let mut page = Opened::new(&made::profile(&made::samples()), &AppNames);
    // Into the graph by its key, along the heaviest path, and back.
    page.browser
        .eval("document.querySelector('.graph canvas').focus()");
    for _ in 0..2 {
        page.browser.press("ArrowDown");
    }
    assert!(
        page.text("#selected")
            .starts_with("work<int>(std::vector<int>&) app")
    );
    assert!(
        page.state()
            .ends_with("fn=app!work<int>(std::vector<int>&)")
    );
    page.acts(|browser| browser.press("Enter"));
    assert!(page.state().contains("zoom="));
    assert_eq!(
        page.browser.eval("document.activeElement.localName"),
        "canvas"
    );
    page.acts(|browser| browser.press("Escape"));
    page.acts(|browser| browser.press("Escape"));
    assert!(!page.state().contains("zoom="), "{}", page.state());
    page.acts(|browser| browser.press("h"));
    assert!(
        page.state()
            .contains("do=hide:app!work<int>(std::vector<int>&)")
    );
    page.acts(|browser| browser.press("Backspace"));
    assert!(!page.state().contains("do="));
    page.acts(|browser| browser.press("c"));
    assert_eq!(page.text("#view h2"), "Callers\nCallees");
    assert!(
        page.text("#view table")
            .contains("work<…>(std::vector<…>&)")
    );
    page.browser.press("/");
    for letter in ["l", "e", "a", "f"] {
        page.browser.press(letter);
    }
    page.acts(|browser| browser.press("Enter"));
    assert!(page.state().contains("search=leaf"));
    let on = made::samples();
    let on = on_cpu(&on);
    let leaf = &expected(&on, |_| false)["leaf"].1;
    assert_eq!(page.text("#matches"), format!("{leaf} of the weight"));

    // Three callers up, and one back.
    page.show("callers=1");
    page.browser
        .eval("document.querySelector('.graph canvas').focus()");
    for _ in 0..3 {
        page.browser.press("ArrowDown");
    }
    page.acts(|browser| browser.press("Enter"));
    let inner = page.state();
    page.acts(|browser| browser.press("Escape"));
    assert!(page.state().contains("zoom=") && page.state() != inner);

    // Dragging selects a stretch; a click on a thread selects it.
    page.show("");
    let lane = "document.querySelector('.lane canvas').getBoundingClientRect()";
    let middle = page
        .browser
        .eval(&format!("{lane}.left + {lane}.width / 2"));
    let y = page.browser.eval(&format!("{lane}.top + 5"));
    let (x, y) = (middle.as_f64().unwrap(), y.as_f64().unwrap());
    page.acts(|browser| browser.drag((x, y), (x + 100.0, y)));
    let state = page.state();
    assert!(state.contains("from=") && state.contains("to="), "{state}");
    page.show("");
    page.acts(|browser| {
        browser.eval("document.querySelectorAll('.lane button')[1].click()");
    });
    assert!(page.state().starts_with("threads="));
    page.browser.press("?");
    let is_open = "document.getElementById('help').open";
    assert_eq!(page.browser.eval(is_open), true);
    page.browser
        .eval("document.querySelector('#help button').click()");
    assert_eq!(page.browser.eval(is_open), false);
    page.show("lanes=cpus");
    let processor = format!("processor {}", made::CPU);
    assert_eq!(page.text(".lane button"), processor);
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

#[test]
fn page_fits_into_windows() {
    let mut page = Opened::new(&made::profile(&made::samples()), &AppNames);
    for (width, height) in [(1280, 800), (390, 844)] {
        for is_dark in [false, true] {
            page.browser.set_window(width, height, is_dark);
            for view in VIEWS {
                let function = match view {
                    "source" | "code" => "leaf",
                    _ => "work<int>(std::vector<int>%26)",
                };
                page.show(&format!("view={view}&full=1&fn=app!{function}"));
                let room = "document.documentElement.scrollWidth <= innerWidth";
                assert_eq!(page.browser.eval(room), true, "{view} at {width}");
            }
        }
    }
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

/// All views, in all forms, with the help open, and in a comparison.
#[test]
fn page_is_accessible() {
    let profile = made::profile(&made::samples());
    let mut plain = Opened::new(&profile, &AppNames);
    let mut compared = Opened::compared(&profile, Some(&profile), &AppNames);
    for page in [&mut plain, &mut compared] {
        for (width, height) in [(1280, 800), (390, 844)] {
            for is_dark in [false, true] {
                page.browser.set_window(width, height, is_dark);
                for view in VIEWS {
                    page.show(&format!(
                        "view={view}&fn=app!leaf&do=hide:app!recurse&search=a"
                    ));
                    let faults = page.browser.accessibility_faults();
                    assert_eq!(faults, Vec::<String>::new(), "{view} at {width}");
                }
            }
        }
        page.browser.press("?");
        page.browser
            .eval("document.querySelector('#completeness').open = true");
        assert_eq!(page.browser.accessibility_faults(), Vec::<String>::new());
    }
}

/// Functions with names that would be markup.
struct Markup;

/// Such a name, which also changes the direction of text.
const MARKUP: &str = "</script><img src=x onerror=alert(1)>&amp;\u{202e}txt";
/// The same as it is shown.
const ESCAPED: &str = "</script><img src=x onerror=alert(1)>&amp;\\u{202e}txt";

impl NameResolver for Markup {
    fn name(&self, _: CodeLocation) -> LocationName {
        LocationName {
            functions: vec![SourceFrame {
                function: MARKUP.into(),
                ..SourceFrame::default()
            }],
            ..LocationName::default()
        }
    }
}

#[test]
fn page_takes_names_as_text() {
    let mut page = Opened::new(&made::profile(&made::samples()), &Markup);
    let name = ESCAPED.replace('&', "%26");
    for view in VIEWS {
        page.show(&format!(
            "view={view}&full=1&fn=app!{name}&do=module:{name}"
        ));
        assert_eq!(page.browser.eval("document.images.length"), 0, "{view}");
    }
    page.show("view=list&full=1");
    assert!(page.text("#view").contains(ESCAPED));
    let others = page
        .browser
        .requests()
        .iter()
        .filter(|url| url.ends_with("/x"));
    assert_eq!(others.count(), 0);
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

/// A recursion that is deeper than any window opens with each function once.
#[test]
fn page_of_a_deep_recursion() {
    let sample = |depth: usize| {
        let mut sample = made::samples().remove(0);
        let recursion = std::iter::repeat_n(RECURSE, depth);
        let stack = [LEAF].into_iter().chain(recursion).chain([WORK, MAIN]);
        sample.stack = stack
            .map(|n| (n, unspool_profile::FrameEvidence::Cfi))
            .collect();
        sample.end = StackEnd::Outermost;
        sample
    };
    let profile = made::profile(&[sample(20_000), sample(19_000), sample(10)]);
    let mut page = Opened::new(&profile, &AppNames);
    let rows = "document.querySelector('.graph canvas').parentElement.clientHeight / 18";
    assert_eq!(page.browser.eval(rows), 5, "all, main, work, recurse, leaf");
    page.show("recursion=shown");
    assert_eq!(page.browser.eval(rows), 20_004);
    page.show("view=tree&recursion=shown");
    assert!(page.text("#view").contains("recurse"));
    assert_eq!(page.browser.errors(), Vec::<String>::new());
}

/// 20,000 samples of 60 frames take at most 2 MB, and a million 8 MB (`--thorough`).
#[test]
fn page_of_many_samples_is_small() {
    let limits = [(20_000, 2_000_000), (1_000_000, 8_000_000)];
    for (samples, limit) in limits.into_iter().take(1 + usize::from(is_thorough())) {
        let mut file = Vec::new();
        large::write(&mut file, samples).unwrap();
        let profile = Profile::read(&file[..]).unwrap();
        let named = NamedProfile::new(&profile, &Nameless);
        assert!(named.functions().iter().all(|it| it.name.len() > 60));
        let view = View {
            named: &named,
            samples: profile.samples().iter().collect(),
        };
        assert_eq!(view.samples.len(), samples as usize);
        let mut page = Vec::new();
        html::write(&mut page, &view).unwrap();
        assert!(
            page.len() <= limit,
            "{samples} samples: {} bytes",
            page.len()
        );
    }
}

/// Names are those that were recorded.
struct Nameless;

impl NameResolver for Nameless {
    fn name(&self, _: CodeLocation) -> LocationName {
        LocationName::default()
    }
}

/// Trees and lists have the weights of plain lists of paths, on random profiles and transforms.
#[test]
fn page_trees_by_a_plain_model() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/page_trees.mjs");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/html/page");
    tool("node").args([model, page]).succeed();
}
