//! Reads samply's files: Firefox's format, addresses without names.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

use crate::script::{StackTotals, is_whole};

/// Counts the stacks of processes with a name.
pub(crate) fn stacks(path: &Path, comm: &str) -> anyhow::Result<StackTotals> {
    let output = Command::new("gzip").arg("-dc").arg(path).output()?;
    let profile: Value = serde_json::from_slice(&output.stdout)?;
    let mut roots = Roots::new(&profile);
    let mut stacks = StackTotals::default();
    let threads = profile.get("threads").and_then(Value::as_array);
    for thread in threads.context("no threads")? {
        let process = thread.get("processName").and_then(Value::as_str);
        if !process.is_some_and(|name| name.starts_with(comm)) {
            continue;
        }
        let ends = SamplyStackEnds::read(thread, &mut roots)?;
        for stack in numbers(thread, "/samples/stack")? {
            let Some(end) = stack.and_then(|stack| ends.0.get(stack)) else {
                continue;
            };
            stacks.all += u64::from(end.frames > 0);
            stacks.frames += end.frames;
            stacks.whole += u64::from(end.is_whole);
        }
    }
    Ok(stacks)
}

fn numbers(thread: &Value, path: &str) -> anyhow::Result<Vec<Option<usize>>> {
    let values = thread.pointer(path).and_then(Value::as_array);
    let values = values.with_context(|| format!("no {path}"))?.iter();
    Ok(values
        .map(|value| value.as_u64().and_then(|value| usize::try_from(value).ok()))
        .collect())
}

/// For each entry of a thread's table of stacks.
struct SamplyStackEnds(Vec<SamplyStackEnd>);

#[derive(Clone, Copy, Default)]
struct SamplyStackEnd {
    /// User frames.
    frames: u64,
    /// Whether the outermost one is a root.
    is_whole: bool,
    /// The outermost frame.
    outermost: Option<(usize, u64)>,
}

impl SamplyStackEnds {
    fn read(thread: &Value, roots: &mut Roots<'_>) -> anyhow::Result<SamplyStackEnds> {
        let frames = SamplyFrameTable {
            address: numbers(thread, "/frameTable/address")?,
            func: numbers(thread, "/frameTable/func")?,
            resource: numbers(thread, "/funcTable/resource")?,
            lib: numbers(thread, "/resourceTable/lib")?,
        };
        let prefixes = numbers(thread, "/stackTable/prefix")?;
        let mut ends: Vec<SamplyStackEnd> = Vec::new();
        for (prefix, frame) in prefixes
            .into_iter()
            .zip(numbers(thread, "/stackTable/frame")?)
        {
            // A caller comes before its callees.
            let caller = prefix.and_then(|prefix| ends.get(prefix).copied());
            let place = frame.and_then(|frame| frames.place(frame));
            ends.push(match (caller, place) {
                (Some(end), Some(place)) if end.frames > 0 => SamplyStackEnd {
                    frames: end.frames + 1,
                    is_whole: match end.frames {
                        1 => roots.are_whole(end.outermost, Some(place)),
                        _ => end.is_whole,
                    },
                    ..end
                },
                (_, Some(place)) => SamplyStackEnd {
                    frames: 1,
                    is_whole: roots.are_whole(Some(place), None),
                    outermost: Some(place),
                },
                (caller, None) => caller.unwrap_or_default(),
            });
        }
        Ok(SamplyStackEnds(ends))
    }
}

struct SamplyFrameTable {
    address: Vec<Option<usize>>,
    func: Vec<Option<usize>>,
    resource: Vec<Option<usize>>,
    lib: Vec<Option<usize>>,
}

impl SamplyFrameTable {
    /// The library of a frame, and its address there.
    fn place(&self, frame: usize) -> Option<(usize, u64)> {
        let func = (*self.func.get(frame)?)?;
        let resource = (*self.resource.get(func)?)?;
        let lib = (*self.lib.get(resource)?)?;
        let address = (*self.address.get(frame)?)?;
        Some((lib, u64::try_from(address).ok()?))
    }
}

/// The addresses of roots.
struct Roots<'p> {
    profile: &'p Value,
    files: HashMap<usize, Option<ElfFile>>,
}

impl<'p> Roots<'p> {
    fn new(profile: &'p Value) -> Self {
        Roots {
            profile,
            files: HashMap::new(),
        }
    }

    /// Whether a stack with these two outermost frames is complete.
    fn are_whole(&mut self, outermost: Option<(usize, u64)>, next: Option<(usize, u64)>) -> bool {
        let outermost = self.name(outermost);
        let next = self.name(next);
        is_whole(&outermost, &next)
    }

    fn name(&mut self, place: Option<(usize, u64)>) -> String {
        let Some((lib, address)) = place else {
            return String::new();
        };
        let path = self.profile.pointer(&format!("/libs/{lib}/path"));
        let file = self.files.entry(lib);
        let file = file.or_insert_with(|| ElfFile::open(path?.as_str()?).ok());
        let symbols = file.as_ref().map(ElfFile::symbols);
        let symbol = symbols.and_then(|symbols| symbols.lookup(Vaddr(address)));
        symbol
            .map(|symbol| symbol.name.into_owned())
            .unwrap_or_default()
    }
}
