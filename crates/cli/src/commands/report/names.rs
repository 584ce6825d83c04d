//! The names of a profile's functions, and notices about files without.

use std::collections::HashSet;
use std::io::IsTerminal as _;

use unspool_profile::{CodeLocation, ModuleKind, Profile, ProfileNames};
use unspool_symbols::{LookupEvent, NameDetail, Symbolizer};

use crate::output;

/// Looks up all code locations.
pub(in crate::commands) fn look_up_names(profile: &Profile, detail: NameDetail) -> ProfileNames {
    let symbolizer = Symbolizer::from_environment(detail);
    let found =
        ProfileNames::look_up_frames(profile, profile.frames(), &symbolizer, &report_download);
    let gone: HashSet<usize> = without_files(profile, &found).collect();
    let modules = found.modules().iter().zip(profile.modules());
    for (number, (named, module)) in modules.enumerate() {
        let has_file = matches!(module.kind, ModuleKind::File | ModuleKind::Vdso);
        if gone.contains(&number) {
            let path = module.path.display();
            output::notice(&format_args!(
                "{path}: the recorded file is gone: functions have the names kept while recording, without lines"
            ));
            continue;
        }
        let problems = named.problems().iter().filter(|_| has_file);
        problems.for_each(|problem| output::notice(problem));
    }
    found
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
