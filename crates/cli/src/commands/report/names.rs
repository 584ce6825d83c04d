//! The names of a profile's code locations, from the files of its modules.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::sync::Arc;

use unspool_profile::{
    CodeLocation, LocationName, ModuleKind, NameResolver, Profile, ProfileFrame, SourceFrame,
};
use unspool_rows::Vaddr;
use unspool_symbols::{
    Debuginfod, LookupEvent, ModuleFinder, ModuleIdentity, ModuleSource, NameCache, NameDetail,
    SymbolRequest, Symbolizer,
};

use crate::output;

/// The names of all code locations in files of a profile.
pub(in crate::commands) struct FileNames {
    /// By module index.
    names: unspool_symbols::AddressNames,
}

impl FileNames {
    /// Opens the files and looks up all code locations.
    pub(in crate::commands) fn look_up(profile: &Profile, detail: NameDetail) -> FileNames {
        let found = FileNames::from_frames(profile, profile.frames(), &symbolizer(detail));
        let kept = modules_with_names(profile);
        let modules = found.names.modules().iter().zip(profile.modules());
        for (number, (named, module)) in modules.enumerate() {
            let has_file = matches!(module.kind, ModuleKind::File | ModuleKind::Vdso);
            if named.file().is_none() && kept.contains(&number) {
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

    /// Looks up the locations of some of its frames.
    pub(in crate::commands) fn from_frames(
        profile: &Profile,
        frames: &[ProfileFrame],
        symbolizer: &Symbolizer,
    ) -> FileNames {
        let mut requests: Vec<_> = profile.modules().iter().map(request).collect();
        for frame in frames {
            if let CodeLocation::Module(module, address) = frame.lookup
                && let Some(request) = requests.get_mut(module.0 as usize)
            {
                request.addresses.push(address);
            }
        }
        FileNames {
            names: symbolizer.look_up_with(requests, &report_download),
        }
    }

    fn known(&self, location: CodeLocation) -> Option<unspool_symbols::AddressName<'_>> {
        match location {
            CodeLocation::Module(module, Vaddr(address)) => {
                self.names.get(module.0 as usize, Vaddr(address))
            }
            _ => None,
        }
    }
}

/// Names are cached for the next time, and debug files are downloaded if the user has configured
/// servers.
fn symbolizer(detail: NameDetail) -> Symbolizer {
    let finder = ModuleFinder::from_environment();
    let finder = match Debuginfod::from_environment() {
        Some(servers) => finder.with_fetch(Arc::new(servers)),
        None => finder,
    };
    Symbolizer::new(finder, detail).with_cache(NameCache::from_environment())
}

/// Names a file that is being downloaded, once: if a terminal shows it or the user requested it.
fn report_download(event: LookupEvent<'_>) {
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

fn request(module: &unspool_profile::ProfileModule) -> SymbolRequest {
    SymbolRequest {
        module: ModuleSource::Identity(ModuleIdentity {
            path: module.path.clone(),
            content: module.content,
            root: None,
        }),
        addresses: Vec::new(),
    }
}

impl NameResolver for FileNames {
    fn name(&self, location: CodeLocation) -> LocationName {
        let Some(known) = self.known(location) else {
            return LocationName::default();
        };
        let functions = known.frames().map(|frame| SourceFrame {
            function: frame.function.unwrap_or("??").to_owned(),
            file: frame.file.map(str::to_owned),
            line: frame.line,
        });
        LocationName {
            functions: functions.collect(),
            start: known.begin.map(|begin| begin.0),
            symbol_hash: known.symbol.map(|function| function.symbol_hash),
        }
    }
}
