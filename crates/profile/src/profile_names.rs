//! The names of a profile's code locations, from the files of its modules.

use std::collections::HashMap;

use unspool_symbols::{
    AddressNames, LookupEvent, ModuleIdentity, ModuleNames, ModuleSource, SymbolRequest, Symbolizer,
};

use crate::archive::ProfileArchive;
use crate::model::{CodeLocation, FrameId, Profile, ProfileFrame, ProfileModule};
use crate::names::{LocationName, NameResolver, SourceFrame};

/// The names of a profile's code locations in files. Those of an archive are in the profile.
#[derive(Debug)]
pub struct ProfileNames {
    /// By module index; empty for an archive.
    names: AddressNames,
    /// The names in an archive.
    archived: HashMap<CodeLocation, LocationName>,
}

impl ProfileNames {
    /// Opens the files of all modules and looks up all code locations.
    #[must_use]
    pub fn look_up(profile: &Profile, symbolizer: &Symbolizer) -> ProfileNames {
        ProfileNames::look_up_frames(profile, profile.frames(), symbolizer, &|_| {})
    }

    /// The names that are kept with an archive.
    fn archived(profile: &Profile, archive: &ProfileArchive) -> ProfileNames {
        let frames = (0..).map(FrameId).zip(profile.frames());
        ProfileNames {
            names: AddressNames::default(),
            archived: frames
                .map(|(id, frame)| (frame.lookup, archive.name(id)))
                .collect(),
        }
    }

    /// The same for some of its frames; several threads call `report` with the progress.
    #[must_use]
    pub fn look_up_frames(
        profile: &Profile,
        frames: &[ProfileFrame],
        symbolizer: &Symbolizer,
        report: &(dyn Fn(LookupEvent<'_>) + Sync),
    ) -> ProfileNames {
        if let Some(archive) = profile.archive() {
            return ProfileNames::archived(profile, archive);
        }
        let mut requests: Vec<_> = profile.modules().iter().map(request).collect();
        for frame in frames {
            if let CodeLocation::Module(module, address) = frame.lookup
                && let Some(request) = requests.get_mut(module.0 as usize)
            {
                request.addresses.push(address);
            }
        }
        ProfileNames {
            names: symbolizer.look_up_with(requests, report),
            archived: HashMap::new(),
        }
    }

    /// The names of each module, with the problems of their lookup, in the order of
    /// [`Profile::modules`]. Empty for an archive.
    #[must_use]
    pub fn modules(&self) -> &[ModuleNames] {
        self.names.modules()
    }
}

fn request(module: &ProfileModule) -> SymbolRequest {
    SymbolRequest {
        module: ModuleSource::Identity(ModuleIdentity {
            path: module.path.clone(),
            content: module.content,
            root: None,
        }),
        addresses: Vec::new(),
    }
}

impl NameResolver for ProfileNames {
    fn name(&self, location: CodeLocation) -> LocationName {
        if let Some(name) = self.archived.get(&location) {
            return name.clone();
        }
        let known = match location {
            CodeLocation::Module(module, address) => self.names.get(module.0 as usize, address),
            _ => None,
        };
        let Some(known) = known else {
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
