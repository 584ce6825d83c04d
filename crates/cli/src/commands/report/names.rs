//! The names of a profile's functions, and notices about files without.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::IsTerminal as _;

use unspool_files::environment::variable;
use unspool_profile::{CodeLocation, ModuleKind, Profile, ProfileNames};
use unspool_symbols::{LookupEvent, NameDetail, SymbolProblem, Symbolizer};

use crate::output;

/// The most files that are named because they are stripped, or gone.
const MAX_FILES_NAMED: usize = 3;

/// Looks up all code locations.
pub(in crate::commands) fn look_up_names(profile: &Profile, detail: NameDetail) -> ProfileNames {
    let symbolizer = Symbolizer::from_environment(detail);
    let found =
        ProfileNames::look_up_frames(profile, profile.frames(), &symbolizer, &report_download);
    let gone: HashSet<usize> = without_files(profile, &found).collect();
    let modules = || (found.modules().iter().zip(profile.modules())).enumerate();
    let paths = modules().filter(|(number, _)| gone.contains(number));
    for (_, (_, module)) in paths.take(MAX_FILES_NAMED) {
        let what = if module.path.exists() {
            "another file is there now"
        } else {
            "the recorded file is gone"
        };
        output::notice(&format_args!(
            "{}: {what}: functions have the names kept while recording, without lines",
            module.path.display()
        ));
    }
    notice_others(gone.len(), "recorded files are gone, or replaced");
    let mut stripped = Vec::new();
    for (_, (named, module)) in modules().filter(|(number, _)| !gone.contains(number)) {
        let has_file = matches!(module.kind, ModuleKind::File | ModuleKind::Vdso);
        for problem in named.problems().iter().filter(|_| has_file) {
            match problem {
                SymbolProblem::Stripped { unnamed, .. } => stripped.push((unnamed, problem)),
                _ => output::notice(problem),
            }
        }
    }
    notice_stripped(stripped);
    found
}

/// Names the stripped files that lack the most names, and says once where names can be had.
pub(in crate::commands) fn notice_stripped(mut stripped: Vec<(&usize, &SymbolProblem)>) {
    stripped.sort_by_key(|(unnamed, _)| Reverse(*unnamed));
    for (_, problem) in stripped.iter().take(MAX_FILES_NAMED) {
        output::notice(problem);
    }
    notice_others(stripped.len(), "files are stripped");
    if !stripped.is_empty() && variable("DEBUGINFOD_URLS").is_none() {
        output::notice(
            &"for names in stripped files: install their debug packages, or set DEBUGINFOD_URLS to a \
              server of debug files (docs/guide.md)",
        );
    }
}

fn notice_others(all: usize, what: &str) {
    if all > MAX_FILES_NAMED {
        output::notice(&format_args!("{} more {what}", all - MAX_FILES_NAMED));
    }
}

/// The modules without a file that have names kept while recording, by index.
pub(in crate::commands) fn without_files(
    profile: &Profile,
    names: &ProfileNames,
) -> impl Iterator<Item = usize> {
    let kept = modules_with_names(profile);
    let all = names.modules().iter().enumerate();
    let found = all.filter(move |(number, named)| named.file().is_none() && kept.contains(number));
    found.map(|(number, _)| number)
}

/// Names a file that is being downloaded, once: if a terminal shows it or the user requested it.
pub(super) fn report_download(event: LookupEvent<'_>) {
    let is_wanted =
        || std::io::stderr().is_terminal() || std::env::var_os("DEBUGINFOD_PROGRESS").is_some();
    if let LookupEvent::Download { url, all, .. } = event
        && is_wanted()
    {
        let size = all.map_or(String::new(), |bytes| format!(" ({bytes} bytes)"));
        output::notice(&format_args!("downloading {url}{size}"));
    }
}

/// The modules with names recorded in the profile, by index.
fn modules_with_names(profile: &Profile) -> HashSet<usize> {
    let symbols = profile.symbols().iter();
    let modules = symbols.filter_map(|symbol| match symbol.start {
        CodeLocation::Module(module, _) => Some(module.0 as usize),
        _ => None,
    });
    modules.collect()
}
