//! The page in a real browser, opened from disk.

use std::collections::BTreeMap;
use std::path::Path;

use unspool_profile::output::{View, html};
use unspool_profile::{
    CodeLocation, Completeness, CpuState, LocationName, NameResolver, NamedProfile, Profile,
    SourceFrame, StackEnd,
};
use unspool_testing::{Browser, Finish as _, Folder, tool};

use crate::made::{self, AppNames, LEAF, MAIN, RECURSE, Taken, WORK, functions};

/// What all pages count: each time that they show something else.
const READY: &str = "document.body && document.body.dataset.ready";

fn write(path: &Path, profile: &Profile, names: &impl NameResolver) {
    let named = NamedProfile::new(profile, names);
    let samples = profile.samples().iter().collect();
    let view = View {
        named: &named,
        samples,
    };
    let mut page = Vec::new();
    html::write(&mut page, &view).unwrap();
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
        let folder = Folder::new();
        let path = folder.join("page.html");
        write(&path, profile, names);
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
    samples: &[&Taken],
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

fn on_cpu(taken: &[Taken]) -> Vec<&Taken> {
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
    let of_worker: Vec<&Taken> = on
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
    page.show("view=list&full=1&state=off");
    let off = taken
        .iter()
        .filter(|sample| sample.state == CpuState::OffCpu);
    assert_eq!(page.list(), expected(&off.collect::<Vec<_>>(), |_| false));

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
            "{} of {} stacks are whole, {} with spliced frames, {} incomplete",
            share(all.complete),
            all.stacks(),
            share(all.spliced),
            all.incomplete()
        )
    );
    page.browser
        .eval("document.querySelector('#completeness').open = true");
    let reasons = page.text("#completeness-reasons tr");
    for reason in [
        format!("{}\tof the whole ones with guessed frames", all.guessed),
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
            for view in ["flame", "time", "list", "tree", "around"] {
                page.show(&format!(
                    "view={view}&full=1&fn=app!work<int>(std::vector<int>%26)"
                ));
                let room = "document.documentElement.scrollWidth <= innerWidth";
                assert_eq!(page.browser.eval(room), true, "{view} at {width}");
            }
        }
    }
    assert_eq!(page.browser.errors(), Vec::<String>::new());
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
    for view in ["list", "tree", "around", "flame", "time"] {
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

/// Trees and lists have the weights of plain lists of paths, on random profiles and transforms.
#[test]
fn page_trees_by_a_plain_model() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/page_trees.mjs");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/html/page");
    tool("node").args([model, page]).succeed();
}
