//! The code of what was sampled, to be kept in a page or an archive.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use unspool_symbols::{LookupEvent, SourceFinder, Symbolizer};

use crate::aggregate::{StackWeight, innermost_weights};
use crate::code::{FunctionCode, MissingCode};
use crate::model::{CodeLocation, FrameId};
use crate::names::FunctionId;
use crate::output::View;
use crate::profile_names::ProfileNames;
use crate::source_file::{SourceExcerpt, SourceFile};

/// How much code is kept.
#[derive(Debug, Clone, Copy)]
pub struct CodeLimits {
    /// The most machine code, in bytes.
    pub code_bytes: u64,
    /// The most source text, in bytes.
    pub source_bytes: usize,
    /// The most files whose source is read.
    pub source_files: usize,
    /// The number of lines before and after a line in a stack.
    pub lines_around: u32,
}

impl CodeLimits {
    /// The limits of a page.
    pub const PAGE: CodeLimits = CodeLimits {
        code_bytes: 192 << 10,
        source_bytes: 1 << 20,
        source_files: 500,
        lines_around: 12,
    };
    /// The limits of an archive.
    pub const ARCHIVE: CodeLimits = CodeLimits {
        code_bytes: 8 << 20,
        source_bytes: 64 << 20,
        source_files: 10_000,
        lines_around: 200,
    };
}

/// Instructions and source lines of sampled functions.
#[derive(Debug, Default)]
pub struct SampledCode {
    /// The functions with their code: in each module, or what is missing of it in words.
    pub functions: Vec<(FunctionId, Result<Vec<FunctionCode>, MissingCode>)>,
    /// Parts of source files.
    pub sources: Vec<SourceExcerpt>,
}

impl SampledCode {
    /// Looks up the instructions of the functions with the greatest own weight, and the source
    /// lines around those in stacks. A source file that is not found is left out. `report` receives
    /// the progress of downloads.
    #[must_use]
    pub fn look_up(
        view: &View<'_>,
        names: &ProfileNames,
        symbolizer: &Symbolizer,
        finder: &SourceFinder,
        limits: &CodeLimits,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> SampledCode {
        let own = innermost_weights(view);
        let mut by_function: HashMap<FunctionId, u64> = HashMap::new();
        let mut frames: Vec<(FrameId, u64)> = Vec::with_capacity(own.len());
        for (frame, StackWeight { weight, samples }) in (0..).map(FrameId).zip(own) {
            frames.push((frame, weight));
            if let Some(outermost) = view.named.lines_of(frame).last().filter(|_| samples > 0) {
                let sum = by_function.entry(outermost.function).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
        let mut functions: Vec<FunctionId> = by_function.keys().copied().collect();
        functions.sort_by_key(|id| (Reverse(by_function.get(id).copied()), *id));
        let code = FunctionCode::look_up(view, names, symbolizer, &functions, limits.code_bytes);
        frames.sort_by_key(|(_, weight)| Reverse(*weight));
        let frames = frames.into_iter().map(|(frame, _)| frame);
        SampledCode {
            functions: functions.into_iter().zip(code).collect(),
            sources: sources(view, names, (finder, report), frames, limits),
        }
    }
}

/// The source lines around those of frames, as far as the limits allow.
fn sources(
    view: &View<'_>,
    names: &ProfileNames,
    (finder, report): (&SourceFinder, &dyn Fn(LookupEvent<'_>)),
    frames: impl Iterator<Item = FrameId>,
    limits: &CodeLimits,
) -> Vec<SourceExcerpt> {
    let profile = view.named.profile;
    let mut files: BTreeMap<&str, Option<ShownFile>> = BTreeMap::new();
    let mut bytes = 0;
    for frame in frames {
        let location = profile.frame(frame).map(|frame| frame.lookup);
        let Some(CodeLocation::Module(module, _)) = location else {
            continue;
        };
        for line in view.named.lines_of(frame) {
            let Some((name, line)) = line.file.as_deref().zip(line.line) else {
                continue;
            };
            if bytes >= limits.source_bytes {
                break;
            }
            if !files.contains_key(name) && files.len() < limits.source_files {
                let source = SourceFile::read(profile, names, finder, (module, name), report);
                let shown = BTreeSet::new();
                files.insert(name, source.ok().map(|file| ShownFile { file, shown }));
            }
            if let Some(Some(file)) = files.get_mut(name) {
                bytes += file.show(line, limits.lines_around);
            }
        }
    }
    let files = files
        .into_iter()
        .filter_map(|(name, file)| Some((name, file?)));
    files
        .flat_map(|(name, it)| it.file.excerpts(name, it.shown.into_iter()))
        .collect()
}

/// A source file, and the lines of it that are shown.
struct ShownFile {
    file: SourceFile,
    shown: BTreeSet<u32>,
}

impl ShownFile {
    /// Shows a line with those around it; returns the size of what was not shown yet, in bytes.
    fn show(&mut self, line: u32, around: u32) -> usize {
        let lines = line.saturating_sub(around)..=line.saturating_add(around);
        let mut bytes = 0;
        for line in lines {
            let size = self.file.line(line).map(str::len);
            if let Some(size) = size.filter(|_| self.shown.insert(line)) {
                bytes += size;
            }
        }
        bytes
    }
}
