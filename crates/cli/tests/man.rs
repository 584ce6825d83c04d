//! `unspool man`: what groff makes of the pages, against the help.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The titles below the options, in help and in pages.
const SECTIONS: [(&str, &str); 3] = [
    ("Examples:", "EXAMPLES"),
    ("Exit status:", "EXIT STATUS"),
    ("Environment:", "ENVIRONMENT"),
];

fn unspool(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspool"));
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn pages(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    unspool(&["man", folder.to_str().unwrap()]);
    let entries = fs::read_dir(folder).unwrap();
    let pages: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 8, "{pages:?}");
    pages
}

/// A page as on a terminal, and what groff has to say against it.
fn rendered(page: &Path) -> (String, String) {
    let output = Command::new("groff")
        .args(["-man", "-ww", "-Tascii", "-P-cbou", "-rLL=80n"])
        .arg(page)
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!("cannot run groff: {error}; install the Debian package groff-base")
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// What the command of a page says of itself, in lines: `unspool-cache-list.1`. Names of commands can have hyphens, too, so the
/// synopsis tells which it is.
fn help(page: &Path) -> Vec<String> {
    let (text, _) = rendered(page);
    let mut lines = text.lines().skip_while(|line| *line != "SYNOPSIS").skip(1);
    let synopsis = lines.next().unwrap().split_whitespace().skip(1);
    let words = synopsis.take_while(|word| !word.starts_with(['[', '<', '-']));
    let words = words.chain(["--help"]);
    let output = unspool(&words.collect::<Vec<_>>());
    let text = String::from_utf8(output.stdout).unwrap();
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
