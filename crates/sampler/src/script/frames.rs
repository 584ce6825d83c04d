//! Frames as they are printed, each formatted once.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use unspool_elf::{ElfFile, Preference, SignatureDetail};
use unspool_files::{escape_bytes, raw, with_causes};
use unspool_rows::{RuntimeAddr, Vaddr};
use unspool_symbols::{
    AddressNames, KernelSymbols, ModuleFinder, ModuleNames, ModuleSource, NameCache, NameDetail,
    PerfMap, SymbolRequest, Symbolizer,
};

use super::digits::{decimal, hexadecimal};
use super::text::ScriptFields;
use crate::ProcessSpace;

/// The start of the kernel's addresses.
const KERNEL: u64 = 1 << 63;

/// perf's name for the kernel.
pub(super) const KALLSYMS: &[u8] = b"[kernel.kallsyms]";

/// The kind of address shown for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressKind {
    /// The lookup address within its file: for an unwound stack.
    Lookup,
    /// A return address within its file, though the name is that of the call before it: for frames
    /// found by the kernel.
    Return,
    /// The runtime address: for samples without a stack.
    Runtime,
}

impl AddressKind {
    pub(super) const COUNT: usize = 3;

    /// The distance to the lookup address.
    fn lookup_offset(self) -> u64 {
        u64::from(self == AddressKind::Return)
    }
}

/// The source of a frame's name.
#[derive(Debug, Clone, Copy)]
enum FrameName {
    /// A file, by its index in the requests, and the address as linked.
    File(usize, Vaddr),
    Kernel(RuntimeAddr),
    /// Code that a process generated.
    Jit(u32, RuntimeAddr),
    /// A recorded name, by its index, and the offset from its start.
    Recorded(usize, u64),
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct ScriptFrame {
    address_kind: AddressKind,
    address: u64,
    frame_name: FrameName,
    dso: usize,
}

/// The frames of all samples.
#[derive(Debug, Default)]
pub(super) struct FrameSet {
    frames: Vec<ScriptFrame>,
    files: Vec<Arc<ElfFile>>,
    /// The indices of files by their numbers.
    by_number: HashMap<u32, usize>,
    /// Recorded names.
    names: Vec<String>,
    dsos: Vec<Vec<u8>>,
    by_name: HashMap<Vec<u8>, usize>,
    /// The lines below frames, by frame number: the arguments of their functions.
    arguments: HashMap<u32, String>,
    /// Problems of files, by file name.
    pub(super) problems: BTreeMap<Vec<u8>, String>,
}

impl FrameSet {
    /// Adds an address of a process; returns its number.
    pub(super) fn add(
        &mut self,
        space: &ProcessSpace,
        pid: u32,
        address: RuntimeAddr,
        address_kind: AddressKind,
    ) -> u32 {
        let code = RuntimeAddr(address.0.wrapping_sub(address_kind.lookup_offset()));
        let (named, dso, in_file) = match space.mapped(code) {
            // On a stack without frame pointers, a value that is not a return address can be any
            // number.
            _ if code.0 >= KERNEL && address_kind != AddressKind::Return => {
                (FrameName::Kernel(code), KALLSYMS, address.0)
            }
            Some((Some(name), _)) if name.starts_with(b"[") && name != b"[vdso]" => {
                (FrameName::Nothing, name, address.0)
            }
            Some((Some(name), offset)) => {
                let named = match space.locate(code) {
                    Some((file, vaddr)) => {
                        FrameName::File(self.file(file.number, file.tables.file()), vaddr)
                    }
                    None => {
                        if let Some(problem) = space.problem(code) {
                            let known = self.problems.entry(name.to_vec());
                            known.or_insert_with(|| with_causes(problem));
                        }
                        FrameName::Nothing
                    }
                };
                (
                    named,
                    name,
                    offset.wrapping_add(address_kind.lookup_offset()),
                )
            }
            Some((None, _)) => {
                let map = format!("/tmp/perf-{pid}.map");
                let dso = self.dso(map.as_bytes());
                return self.push(address_kind, address.0, FrameName::Jit(pid, code), dso);
            }
            None => (FrameName::Nothing, &b"[unknown]"[..], address.0),
        };
        let dso = self.dso(dso);
        let address = match address_kind {
            AddressKind::Runtime => address.0,
            _ => in_file,
        };
        self.push(address_kind, address, named, dso)
    }

    /// The index of a file, by its unique number.
    fn file(&mut self, number: u32, file: &Arc<ElfFile>) -> usize {
        let files = &mut self.files;
        *self.by_number.entry(number).or_insert_with(|| {
            files.push(Arc::clone(file));
            files.len() - 1
        })
    }

    /// Adds an address in a file, usable or not.
    pub(super) fn add_in_file(
        &mut self,
        address: Vaddr,
        file: Option<(u32, &Arc<ElfFile>)>,
        name: &[u8],
    ) -> u32 {
        let dso = self.dso(name);
        let Some((number, file)) = file else {
            return self.push(AddressKind::Lookup, address.0, FrameName::Nothing, dso);
        };
        let shown = file.offset_of_vaddr(address).unwrap_or(address.0);
        let named = FrameName::File(self.file(number, file), address);
        self.push(AddressKind::Lookup, shown, named, dso)
    }

    /// Adds an address with a recorded name.
    pub(super) fn add_recorded(
        &mut self,
        address: u64,
        symbol: String,
        offset: u64,
        name: &[u8],
    ) -> u32 {
        let dso = self.dso(name);
        self.names.push(symbol);
        let named = FrameName::Recorded(self.names.len() - 1, offset);
        self.push(AddressKind::Lookup, address, named, dso)
    }

    /// Adds an address in the kernel, or in memory of a process without a file.
    pub(super) fn add_unnamed(&mut self, address: RuntimeAddr, pid: Option<u32>) -> u32 {
        let (named, dso) = match pid {
            Some(pid) => (
                FrameName::Jit(pid, address),
                self.dso(format!("/tmp/perf-{pid}.map").as_bytes()),
            ),
            None => (FrameName::Nothing, self.dso(KALLSYMS)),
        };
        self.push(AddressKind::Lookup, address.0, named, dso)
    }

    /// Adds the arguments of a frame's function.
    pub(super) fn add_arguments(&mut self, frame: u32, lines: String) {
        self.arguments.insert(frame, lines);
    }

    fn push(
        &mut self,
        address_kind: AddressKind,
        address: u64,
        frame_name: FrameName,
        dso: usize,
    ) -> u32 {
        let number = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames.push(ScriptFrame {
            address_kind,
            address,
            frame_name,
            dso,
        });
        number
    }

    fn dso(&mut self, name: &[u8]) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        self.dsos.push(name.to_vec());
        self.by_name.insert(name.to_vec(), self.dsos.len() - 1);
        self.dsos.len() - 1
    }

    /// Looks up all names, and returns the frames as text.
    pub(super) fn look_up(
        &self,
        detail: NameDetail,
        fields: ScriptFields,
        notice: &mut dyn FnMut(&dyn Display),
    ) -> FrameTexts {
        let mut texts = FrameTexts::default();
        let sources = NameSources::new(self, detail, fields, notice);
        for (number, frame) in (0..).zip(&self.frames) {
            sources.write(&mut texts.text, frame);
            if let Some(lines) = self.arguments.get(&number).filter(|_| fields.args) {
                texts.text.extend(lines.as_bytes());
            }
            texts.ends.push(texts.text.len());
        }
        texts
    }
}

/// Frames as text, by number: lines without the part before the first address.
#[derive(Debug, Default)]
pub(super) struct FrameTexts {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl FrameTexts {
    #[inline]
    pub(super) fn get(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = match number.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let end = self.ends.get(number).copied().unwrap_or(start);
        self.text.get(start..end).unwrap_or_default()
    }
}

/// The sources of names.
struct NameSources<'f> {
    frames: &'f FrameSet,
    fields: ScriptFields,
    /// Whether inlined functions are written.
    detail: NameDetail,
    files: AddressNames,
    kernel: Option<KernelSymbols>,
    jit: HashMap<u32, PerfMap>,
}

impl<'f> NameSources<'f> {
    fn new(
        frames: &'f FrameSet,
        detail: NameDetail,
        fields: ScriptFields,
        notice: &mut dyn FnMut(&dyn Display),
    ) -> Self {
        let has_names = fields.symbol || fields.source_line;
        let files = frames.files.iter().filter(|_| has_names);
        let mut requests: Vec<_> = files.map(request).collect();
        let mut jit = HashMap::new();
        let mut kernel = Vec::new();
        let asked = frames.frames.iter().filter(|_| has_names);
        for frame in asked {
            match frame.frame_name {
                FrameName::File(file, address) => {
                    if let Some(request) = requests.get_mut(file) {
                        request.addresses.push(address);
                    }
                }
                FrameName::Kernel(address) => kernel.push(address),
                FrameName::Jit(pid, _) => {
                    // Code of a process without a perf map has no names.
                    jit.entry(pid).or_insert_with(|| perf_map(pid));
                }
                FrameName::Recorded(..) | FrameName::Nothing => {}
            }
        }
        let looked_up = if fields.source_line {
            NameDetail::Lines
        } else {
            detail
        };
        let files = Symbolizer::new(ModuleFinder::from_environment(), looked_up)
            .with_signature(SignatureDetail::NameOnly)
            .with_preference(Preference::Perf)
            .look_up(requests);
        let problems = files.modules().iter().flat_map(ModuleNames::problems);
        problems.for_each(|problem| notice(problem));
        let cache = NameCache::from_environment();
        let kernel = (!kernel.is_empty()).then(|| KernelSymbols::covering(kernel, cache.as_ref()));
        let kernel = kernel.transpose().unwrap_or_else(|hidden| {
            notice(&hidden);
            None
        });
        NameSources {
            frames,
            fields,
            detail,
            files,
            kernel,
            jit: jit
                .into_iter()
                .filter_map(|(pid, map)| Some((pid, map?)))
                .collect(),
        }
    }

    /// Writes a frame, preceded by the functions inlined in it.
    fn write(&self, out: &mut Vec<u8>, frame: &ScriptFrame) {
        let dso = self
            .frames
            .dsos
            .get(frame.dso)
            .map_or(&b""[..], Vec::as_slice);
        match frame.frame_name {
            FrameName::File(file, address) => {
                let name = self.files.get(file, address);
                let function = name.and_then(|name| name.symbol);
                let offset = function.map(|function| address.0.wrapping_sub(function.address.0));
                let mut calls = name.into_iter().flat_map(|name| name.debug_frames());
                let inlined = name.map_or(0, |name| name.debug_frames().len().saturating_sub(1));
                if self.detail == NameDetail::Lines && frame.address_kind != AddressKind::Runtime {
                    for called in calls.by_ref().take(inlined) {
                        let function = FrameFunction {
                            symbol: Some(called.function.unwrap_or(UNKNOWN)),
                            offset,
                            dso: None,
                            source: called.file.zip(called.line),
                        };
                        self.line(out, frame, function);
                        out.push(b'\t');
                    }
                }
                let outer = name.and_then(|name| name.frames().last()?.function);
                let function = FrameFunction {
                    symbol: function.map(|function| function.name).or(outer),
                    offset,
                    dso: Some(dso),
                    source: calls.next().and_then(|own| own.file.zip(own.line)),
                };
                self.line(out, frame, function);
            }
            FrameName::Kernel(address) => {
                let symbol = self.kernel.as_ref().and_then(|kernel| kernel.get(address));
                let offset = symbol.map(|symbol| address.0 - symbol.address.0);
                let module = symbol.and_then(|symbol| symbol.module);
                let module = module.map(|module| format!("[{module}]"));
                let dso = module.as_ref().map_or(dso, |module| module.as_bytes());
                let symbol = symbol.map(|symbol| symbol.name);
                self.line(out, frame, FrameFunction::new(symbol, offset, dso));
            }
            FrameName::Jit(pid, address) => {
                let symbol = self.jit.get(&pid).and_then(|map| map.get(address));
                let offset = symbol.as_ref().map(|symbol| address.0 - symbol.address.0);
                let symbol = symbol.as_ref().map(|symbol| symbol.name);
                self.line(out, frame, FrameFunction::new(symbol, offset, dso));
            }
            FrameName::Recorded(name, offset) => {
                let symbol = self.frames.names.get(name).map(String::as_str);
                self.line(out, frame, FrameFunction::new(symbol, Some(offset), dso));
            }
            FrameName::Nothing => self.line(out, frame, FrameFunction::new(None, None, dso)),
        }
    }

    /// Writes a function of a frame: a line, and a second one for its source line.
    fn line(&self, out: &mut Vec<u8>, frame: &ScriptFrame, function: FrameFunction<'_>) {
        let FrameFunction {
            symbol,
            offset,
            dso,
            source,
        } = function;
        hexadecimal(out, frame.address, 16);
        if self.fields.symbol {
            out.push(b' ');
            out.extend_from_slice(&escape_bytes(symbol.unwrap_or(UNKNOWN).as_bytes()));
            if let (true, Some(_), Some(offset)) = (self.fields.offset, symbol, offset) {
                out.extend(b"+0x");
                hexadecimal(
                    out,
                    offset.wrapping_add(frame.address_kind.lookup_offset()),
                    0,
                );
            }
        }
        if let Some(dso) = dso.filter(|_| self.fields.dso) {
            out.extend(b" (");
            out.extend_from_slice(&escape_bytes(dso));
            out.push(b')');
        }
        if self.fields.source_line {
            let (file, line) = source.unwrap_or(("??", 0));
            let name = file.rsplit('/').next().unwrap_or(file);
            out.extend(b"\n  ");
            out.extend_from_slice(&escape_bytes(name.as_bytes()));
            out.push(b':');
            decimal(out, line.into(), 0);
        }
        if dso.is_none() {
            out.extend(b" (inlined)");
        }
        out.push(b'\n');
    }
}

/// A function of a frame.
#[derive(Clone, Copy)]
struct FrameFunction<'f> {
    symbol: Option<&'f str>,
    offset: Option<u64>,
    /// Its file; `None` for an inlined function.
    dso: Option<&'f [u8]>,
    /// Its source file, and the line there.
    source: Option<(&'f str, u32)>,
}

impl<'f> FrameFunction<'f> {
    fn new(symbol: Option<&'f str>, offset: Option<u64>, dso: &'f [u8]) -> FrameFunction<'f> {
        FrameFunction {
            symbol,
            offset,
            dso: Some(dso),
            source: None,
        }
    }
}

/// The perf map of a process; for one that has exited, the one that it left.
fn perf_map(pid: u32) -> Option<PerfMap> {
    let left = || {
        let path = format!("/tmp/perf-{pid}.map");
        PerfMap::open(Path::new(&path), raw::effective_user()).ok()
    };
    PerfMap::from_process(pid).ok().or_else(left)
}

/// Shown in place of a missing name.
const UNKNOWN: &str = "[unknown]";

fn request(file: &Arc<ElfFile>) -> SymbolRequest {
    SymbolRequest {
        module: ModuleSource::Open {
            file: Arc::clone(file),
            root: None,
        },
        addresses: Vec::new(),
    }
}
