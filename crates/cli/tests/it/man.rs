//! `unspool man`: the pages rendered by groff, compared with the help.

use std::fs;
use std::path::{Path, PathBuf};

use unspool_testing::{Finish as _, tool};

use crate::harness;
use crate::json;

/// The titles below the options, in help and in pages.
const SECTIONS: [(&str, &str); 3] = [
    ("Examples:", "EXAMPLES"),
    ("Exit status:", "EXIT STATUS"),
    ("Environment:", "ENVIRONMENT"),
];

fn unspool(arguments: &[&str]) -> String {
    harness::unspool().args(arguments).succeed()
}

fn pages(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    unspool(&["man", folder.to_str().unwrap()]);
    let entries = fs::read_dir(folder).unwrap();
    let pages: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 8, "{pages:?}");
    pages
}

/// A page as on a terminal, and groff's warnings.
fn rendered(page: &Path) -> (String, String) {
    let mut groff = tool("groff");
    groff.args(["-man", "-ww", "-Tascii", "-P-cbou", "-rLL=80n"]);
    let output = groff.arg(page).finish();
    (output.out, output.err)
}

/// The help of a page's command, in lines: `unspool-cache-list.1`. Names of commands can have
/// hyphens, too, so the synopsis decides.
fn help(page: &Path) -> Vec<String> {
    let (text, _) = rendered(page);
    let mut lines = text.lines().skip_while(|line| *line != "SYNOPSIS").skip(1);
    let synopsis = lines.next().unwrap().split_whitespace().skip(1);
    let words = synopsis.take_while(|word| !word.starts_with(['[', '<', '-']));
    let words = words.chain(["--help"]);
    let text = unspool(&words.collect::<Vec<_>>());
    text.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn pages_are_without_fault() {
    for page in pages("faults") {
        let (_, faults) = rendered(&page);
        assert_eq!(faults, "", "{}", page.display());
    }
}

#[test]
fn pages_have_the_sections_of_the_help() {
    let mut seen = Vec::new();
    for page in pages("sections") {
        let (text, _) = rendered(&page);
        let help = help(&page);
        for (title, section) in SECTIONS {
            let is_in_help = help.iter().any(|line| line.starts_with(title));
            let is_in_page = text.lines().any(|line| line == section);
            assert_eq!(is_in_page, is_in_help, "{section}: {text}");
            seen.extend(is_in_page.then_some(section));
        }
        assert!(!text.contains("EXTRA"), "{text}");
    }
    for (_, section) in SECTIONS {
        assert!(seen.contains(&section), "{section}: {seen:?}");
    }
}

#[test]
fn columns_stay_as_they_are() {
    let mut count = 0;
    for page in pages("columns") {
        let (text, _) = rendered(&page);
        let shown: Vec<&str> = text.lines().map(str::trim).collect();
        let mut is_verbatim = false;
        for line in help(&page) {
            if line.starts_with("  ") && is_verbatim {
                assert!(shown.contains(&line.trim()), "{line}: {text}");
                count += 1;
            } else {
                is_verbatim = ["Examples:", "Environment:"].contains(&line.as_str());
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// The main help has three groups, and `help --all` has all commands, each of which has examples.
#[test]
fn commands_are_in_groups() {
    let text = unspool;
    let short = text(&["--help"]);
    let titles = ["\nLook at programs:\n", "\nUnwind tables:\n", "\nTypes:\n"];
    let places = titles.map(|title| short.find(title).unwrap());
    assert!(places.is_sorted(), "{short}");
    for command in ["script", "cache", "completions", "man"] {
        assert!(!short.contains(&format!("\n  {command} ")), "{short}");
    }
    let all = text(&["help", "--all"]);
    let (_, listed) = all.split_once(titles[0]).unwrap();
    let (listed, _) = listed.split_once("\nOptions:").unwrap();
    let commands = listed.lines().filter(|line| line.starts_with("  "));
    let commands: Vec<&str> = commands
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(commands.len(), 22, "{commands:?}");
    for command in commands {
        let help = text(&[command, "--help"]);
        assert!(help.contains("\nExamples:\n"), "{help}");
        assert_eq!(text(&["help", command]), help);
    }
    let nested = text(&["help", "ctf", "dump"]);
    assert_eq!(nested, text(&["ctf", "dump", "--help"]));
}

/// Older spellings are accepted, and not shown.
#[test]
fn older_spellings() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spellings");
    fs::create_dir_all(&folder).unwrap();
    let out = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let program = "/usr/bin/true";
    for (command, new, old) in [
        ("compile", &["--emit", "c"][..], &["--as", "c"][..]),
        ("convert", &["--emit", "sframe"], &["--to", "sframe"]),
        (
            "convert",
            &["--emit", "sframe", "--sframe-version", "2"],
            &["--to", "sframe", "--version", "2"],
        ),
    ] {
        let written = [new, old].map(|words| {
            let path = out("written");
            unspool(&[&[command, program, "-o", &path], words].concat());
            fs::read(path).unwrap()
        });
        assert_eq!(written[0], written[1], "{command}");
        let help = unspool(&[command, "--help"]);
        for option in old.iter().step_by(2) {
            assert!(!help.contains(&format!("{option} <")), "{help}");
        }
    }
    let (new, old) = (out("new"), out("old"));
    unspool(&["synth", program, "--into", &new]);
    unspool(&["synth", program, "--emit", "eh_frame", "-o", &old]);
    assert_eq!(fs::read(new).unwrap(), fs::read(old).unwrap());
    let verified = [["--emit", "native"], ["--as", "native"]].map(|words| {
        let arguments = ["verify", "--format", "json", words[0], words[1], program];
        let json = json::document(unspool(&arguments));
        json["files"].clone()
    });
    assert_eq!(verified[0], verified[1]);
}
