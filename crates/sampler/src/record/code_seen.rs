//! The code that samples hit, and its names that will not be available later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use unspool_elf::{ContentKey, Symbols};
use unspool_process::file_provider::FileProblem;
use unspool_profile::{
    ANONYMOUS, CodeLocation, CodeSegment, ModuleId, ModuleInterner, ModuleKind, ProcessId,
    ProfileModule, ProfileUpdate, ProfileWriter, RecordedSymbol,
};
use unspool_rows::{RuntimeAddr, Vaddr};
use unspool_symbols::{JitCode, JitTimeline, KernelSymbols, ModuleFinder, NameCache};

use crate::address_space::ProcessSpace;
use crate::jit::JitProcess;
use crate::module_files::ModuleFile;

/// The start of the kernel's addresses.
const KERNEL_START: u64 = 1 << 63;

/// The code that samples hit.
#[derive(Debug, Default)]
pub(super) struct CodeSeen {
    kernel: BTreeSet<RuntimeAddr>,
    /// By file number.
    files: HashMap<u32, FileCode>,
    /// Code in no file, by running process.
    jit: HashMap<ProcessId, ProcessCode>,
    /// Unusable files, by their mapped addresses.
    unusable: BTreeMap<(ProcessId, u64), Arc<FileProblem>>,
    /// Sampled memory without a file, by its start and end: it can grow.
    anonymous: BTreeSet<(ProcessId, u64, u64)>,
    /// Unusable files and anonymous memory that are new since the last call of
    /// [`CodeSeen::name_unusable`].
    unnamed: Vec<RecordedSymbol>,
    /// Files whose contents were not identified when first sampled, with their modules.
    unhashed: Vec<(ModuleId, Arc<ModuleFile>)>,
}

/// Code that a process has generated, or memory without any code.
#[derive(Debug, Default)]
struct ProcessCode {
    addresses: BTreeSet<RuntimeAddr>,
    /// Where its names may be, once looked up.
    maker: Option<Option<JitProcess>>,
}

/// The code of a file.
#[derive(Debug)]
struct FileCode {
    module: ModuleId,
    file: Arc<ModuleFile>,
    addresses: BTreeSet<Vaddr>,
}

impl CodeSeen {
    /// The location of an address of a process.
    pub(super) fn locate(
        &mut self,
        known: &mut ModuleInterner,
        space: &ProcessSpace,
        process: ProcessId,
        address: RuntimeAddr,
    ) -> CodeLocation {
        if address.0 >= KERNEL_START {
            self.kernel.insert(address);
            return CodeLocation::Kernel(address);
        }
        let Some((file, vaddr)) = space.locate(address) else {
            let made = self.jit.entry(process).or_default();
            if made.addresses.insert(address) {
                self.note_unusable(space, process, address);
                self.note_anonymous(space, process, address);
            }
            return CodeLocation::Process(process, address);
        };
        let unhashed = &mut self.unhashed;
        let code = self.files.entry(file.number).or_insert_with(|| {
            let module = module_of(file);
            let module = match module.content {
                Some(_) => known.id(&module),
                None => {
                    let id = known.add(&module);
                    unhashed.push((id, Arc::clone(file)));
                    id
                }
            };
            FileCode {
                module,
                file: Arc::clone(file),
                addresses: BTreeSet::new(),
            }
        });
        code.addresses.insert(vaddr);
        CodeLocation::Module(code.module, vaddr)
    }

    /// Notes a region of code without a file, which names code without a better name.
    fn note_anonymous(&mut self, space: &ProcessSpace, process: ProcessId, address: RuntimeAddr) {
        let Some(region) = space.anonymous(address) else {
            return;
        };
        if self.anonymous.insert((process, region.start, region.end)) {
            self.unnamed.push(RecordedSymbol {
                start: CodeLocation::Process(process, RuntimeAddr(region.start)),
                size: region.end - region.start,
                name: String::new(),
                module: ANONYMOUS.to_owned(),
            });
        }
    }

    fn note_unusable(&mut self, space: &ProcessSpace, process: ProcessId, address: RuntimeAddr) {
        let Some((region, problem)) = space.unusable(address) else {
            return;
        };
        let known = self.unusable.entry((process, region.start));
        known.or_insert_with(|| {
            let path = String::from_utf8_lossy(region.name.as_deref().unwrap_or_default());
            let name = path.rsplit('/').next().unwrap_or_default();
            self.unnamed.push(RecordedSymbol {
                start: CodeLocation::Process(process, RuntimeAddr(region.start)),
                size: region.end - region.start,
                name: String::new(),
                module: name.to_owned(),
            });
            Arc::clone(problem)
        });
    }

    /// Writes the owners of code in unusable files. Names for parts of it may follow.
    pub(super) fn name_unusable<W: Write>(&mut self, writer: &mut ProfileWriter<W>) {
        for symbol in self.unnamed.drain(..) {
            writer.symbol(&symbol);
        }
    }

    /// Why files could not be used, or not fully, each reason once.
    pub(super) fn problems(self) -> Vec<Arc<FileProblem>> {
        let mut said = BTreeSet::new();
        let files = self.files.values().map(|code| code.file.tables.file());
        let changed = files.filter_map(|file| file.check_unchanged().err());
        let changed = changed.map(|error| Arc::new(FileProblem::from(error)));
        let problems = self.unusable.into_values().chain(changed);
        problems
            .filter(|problem| said.insert(problem.to_string()))
            .collect()
    }

    /// Looks up where the names of generated code may be, at its first sample: later the process
    /// may be gone.
    pub(super) fn note_jit_process(
        &mut self,
        process: ProcessId,
        ask: impl FnOnce() -> Option<JitProcess>,
    ) {
        if let Some(made) = self.jit.get_mut(&process) {
            made.maker.get_or_insert_with(ask);
        }
    }

    /// Writes the names of code that a process has generated: `codes` from its jitdump, the others
    /// from its perf map. The process is not sampled again.
    pub(super) fn name_jit_code<W: Write>(
        &mut self,
        process: ProcessId,
        codes: Vec<JitCode>,
        writer: &mut ProfileWriter<W>,
    ) {
        let Some(made) = self.jit.remove(&process) else {
            return;
        };
        let addresses = made.addresses.iter().copied();
        let map = (made.maker.flatten()).and_then(|maker| maker.perf_map(addresses));
        let mut dump = JitTimeline::new(codes);
        let found = made.addresses.into_iter().filter_map(|address| {
            let code = dump.get(address, u64::MAX);
            let code = code.map(|code| (code.address, code.size, code.info.name.as_str()));
            let symbol = || map.as_ref()?.get(address);
            let found = code.or_else(|| symbol().map(|it| (it.address, it.size, it.name)));
            let (start, size, name) = found?;
            Some(RecordedSymbol {
                start: CodeLocation::Process(process, start),
                size,
                name: name.to_owned(),
                module: String::new(),
            })
        });
        write_once(found.collect(), writer);
    }

    /// Writes the identity of files that were hashed meanwhile.
    pub(super) fn write_contents<W: Write>(&mut self, writer: &mut ProfileWriter<W>) {
        self.unhashed.retain(|(module, file)| {
            let Some(content) = file.content.get() else {
                return true;
            };
            if let Some(ContentKey::Hash(bytes)) = content {
                writer.update(&ProfileUpdate::ModuleHash(*module, *bytes));
            }
            false
        });
    }

    /// Writes names that will not be available later, and the identity of files not identified yet.
    pub(super) fn write_names<W: Write>(
        &mut self,
        writer: &mut ProfileWriter<W>,
        identify: impl Fn(&ModuleFile),
    ) {
        self.unhashed.iter().for_each(|(_, file)| identify(file));
        self.write_contents(writer);
        self.name_kernel(writer);
        let files = self.files.values();
        for code in files.filter(|code| !(code.file.is_in_place() && is_installed(code.file()))) {
            code.name(writer);
        }
    }

    /// Writes the names of kernel code, which moves at the next boot. Without permission to read
    /// them, they are left out.
    fn name_kernel<W: Write>(&self, writer: &mut ProfileWriter<W>) {
        if self.kernel.is_empty() {
            return;
        }
        let cache = NameCache::from_environment();
        let ranges = self.kernel.iter().copied();
        let Ok(symbols) = KernelSymbols::covering(ranges, cache.as_ref()) else {
            return;
        };
        let found = self.kernel.iter().filter_map(|address| {
            let symbol = symbols.get(*address)?;
            let module = symbol.module.unwrap_or("kernel");
            Some(RecordedSymbol {
                start: CodeLocation::Kernel(symbol.address),
                size: symbol.size,
                name: symbol.name.to_owned(),
                module: format!("[{module}]"),
            })
        });
        write_once(found.collect(), writer);
    }
}

/// Whether a file is where packages install theirs. Others are rebuilt in place, often between two
/// recordings that are compared.
fn is_installed(path: &Path) -> bool {
    const FOLDERS: [&str; 6] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt"];
    let is_packaged = FOLDERS.iter().any(|folder| path.starts_with(folder));
    is_packaged && !path.starts_with("/usr/local")
}

impl FileCode {
    fn file(&self) -> &Path {
        self.file.tables.file().path()
    }

    /// Writes the names of a file's functions: it was removed or replaced, or may be, or is in a
    /// container.
    fn name<W: Write>(&self, writer: &mut ProfileWriter<W>) {
        let file = self.file.tables.file();
        let root = self.file.root.as_ref().map(|root| root.path());
        let finder = ModuleFinder::from_environment().offline();
        let (debug, _) = finder.debug_files(file, root, &|_| {});
        let addresses: Vec<Vaddr> = self.addresses.iter().copied().collect();
        let symbols = Symbols::for_addresses(file, debug.debug.as_deref(), &addresses);
        let found = addresses.into_iter().filter_map(|address| {
            let symbol = symbols.lookup(address)?;
            // Without a size in the symbol table, a function extends at least to its last sampled
            // address.
            let ranges = address.0.wrapping_sub(symbol.address.0).saturating_add(1);
            Some(RecordedSymbol {
                start: CodeLocation::Module(self.module, symbol.address),
                size: symbol.size.max(ranges),
                name: symbol.name.into_owned(),
                module: String::new(),
            })
        });
        write_once(found.collect(), writer);
    }
}

/// Writes the functions of some sorted addresses. Each is written once, at the largest size of any
/// of the addresses.
fn write_once<W: Write>(mut functions: Vec<RecordedSymbol>, writer: &mut ProfileWriter<W>) {
    functions.dedup_by(|next, kept| {
        let is_same = next.start == kept.start;
        if is_same {
            kept.size = kept.size.max(next.size);
        }
        is_same
    });
    functions
        .iter()
        .for_each(|function| writer.symbol(function));
}

fn module_of(file: &ModuleFile) -> ProfileModule {
    let is_vdso = file.name.as_os_str() == "[vdso]";
    let segments = file.tables.file().segments();
    let code = segments
        .filter(|segment| segment.executable)
        .max_by_key(|segment| segment.file_size);
    ProfileModule {
        kind: if is_vdso {
            ModuleKind::Vdso
        } else {
            ModuleKind::File
        },
        path: file.name.clone(),
        content: file.content.get().copied().flatten(),
        is_deleted: file.is_deleted,
        code: code.map(|segment| CodeSegment {
            address: segment.vaddr,
            offset: segment.file_offset,
            size: segment.file_size,
        }),
    }
}
