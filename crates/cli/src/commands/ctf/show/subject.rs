//! Where values are: running processes, core files, and files of programs.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_c_types::{ElfSymbol, SymbolKind};
use unspool_display_values::{TypedValue, ValuePlace, ValueReader, WithFiles};
use unspool_dwarf_types::elf_context;
use unspool_elf::{DebugFiles, ElfFile, ElfKind, SearchRoots};
use unspool_process::core_file::Core;
use unspool_process::file_provider::{CoreFiles, FileProvider, FileSearch};
use unspool_process::snapshot_unwinder::SnapshotUnwinder;
use unspool_process::{Process, Snapshot, UnstoppedProcess};
use unspool_rows::{Arch, CodeAddr, LoadBias, Memory, RuntimeAddr, Unreadable, Vaddr};
use unspool_symbols::kernel_variable;

use super::file_name;
use super::kernel_memory::{KERNEL_TYPES, KernelMemory};
use crate::args::ctf::CtfShowArgs;
use crate::commands;
use crate::output;

/// A file of a subject, with its place.
pub(super) struct SubjectModule {
    pub(super) file: Arc<ElfFile>,
    pub(super) bias: LoadBias,
}

/// A symbol of data in memory.
pub(super) struct DataSymbol {
    pub(super) name: String,
    pub(super) address: u64,
}

/// The memory with values, and the files that it is of.
pub(super) struct ValueSubject<'s> {
    pub(super) memory: &'s dyn Memory,
    pub(super) arch: Arch,
    /// The files, the program first.
    pub(super) modules: Vec<SubjectModule>,
    /// Why other files are not among these.
    problems: Vec<String>,
    form: SubjectForm<'s>,
}

enum SubjectForm<'s> {
    /// The running kernel, with its list of symbols if that was saved.
    Kernel(Option<&'s Path>),
    Core,
    /// It runs while it is read.
    Running,
    Stopped(&'s Process),
    File(&'s ElfFile),
}

/// Calls a function with the subject of the arguments.
pub(super) fn with_subject<R>(
    args: &CtfShowArgs,
    work: impl FnOnce(&ValueSubject<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    if args.subject == "kernel" {
        let memory = KernelMemory::open(&args.kcore)?;
        return work(&ValueSubject {
            memory: &memory,
            arch: memory.arch,
            modules: Vec::new(),
            problems: Vec::new(),
            form: SubjectForm::Kernel(args.kallsyms.as_deref()),
        });
    }
    if let Some(pid) = args.pid() {
        if args.stop || args.write.is_some() {
            let process = Process::attach(pid)?;
            return with_snapshot(&process, &process, SubjectForm::Stopped(&process), work);
        }
        let process = UnstoppedProcess::open(pid)?;
        return with_snapshot(&process, &process, SubjectForm::Running, work);
    }
    let path = Path::new(&args.subject);
    let file = commands::open(path)?;
    if file.kind() == ElfKind::Core {
        let search = FileSearch {
            executable: args.exe.clone(),
            ..FileSearch::default()
        };
        let mut core = Core::open(path)?;
        core.find_objects(&search)?;
        let files = CoreFiles::new(&core, &search)?;
        return with_snapshot(&core, &files, SubjectForm::Core, work);
    }
    if file.kind() == ElfKind::Relocatable {
        bail!(
            "{} is an object file, where data has no address yet: link it",
            path.display()
        );
    }
    let file = Arc::new(file);
    let memory = InitialMemory(&file);
    work(&ValueSubject {
        memory: &memory,
        arch: file.abi().arch,
        modules: vec![SubjectModule {
            file: Arc::clone(&file),
            bias: LoadBias(0),
        }],
        problems: Vec::new(),
        form: SubjectForm::File(&file),
    })
}

fn with_snapshot<R>(
    snapshot: &dyn Snapshot,
    files: &dyn FileProvider,
    form: SubjectForm<'_>,
    work: impl FnOnce(&ValueSubject<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let store = commands::store(true, None)?;
    let unwinder = SnapshotUnwinder::with_files(snapshot, files, &store);
    let mut modules: Vec<SubjectModule> = Vec::new();
    for mapping in snapshot.mappings() {
        let code = CodeAddr::Instruction(mapping.start);
        let Some(location) = unwinder.locate(code) else {
            continue;
        };
        let bias = LoadBias(mapping.start.0.wrapping_sub(location.lookup.0));
        let file = &location.module.file;
        let is_known =
            |module: &SubjectModule| module.bias == bias && module.file.path() == file.path();
        if !modules.iter().any(is_known) {
            modules.push(SubjectModule {
                file: Arc::clone(file),
                bias,
            });
        }
    }
    let problems = unwinder.problems().into_iter().map(ToString::to_string);
    let problems = problems.collect();
    let memory = WithFiles {
        memory: snapshot.memory(),
        unwinder: &unwinder,
    };
    work(&ValueSubject {
        memory: &memory,
        arch: snapshot.abi().arch,
        modules,
        problems,
        form,
    })
}

impl ValueSubject<'_> {
    /// The module with an address.
    pub(super) fn module_at(&self, address: RuntimeAddr) -> Option<&SubjectModule> {
        let mut modules = self.modules.iter();
        modules.find(|module| module.contains(address.0))
    }

    /// The file with the types of what is at an address, if there is no other.
    pub(super) fn types_at(&self, address: RuntimeAddr) -> Option<&Path> {
        match self.form {
            SubjectForm::Kernel(_) => Some(Path::new(KERNEL_TYPES)),
            _ => Some(
                self.module_at(address)
                    .or(self.modules.first())?
                    .file
                    .path(),
            ),
        }
    }

    /// The symbol at the beginning of a text, and the rest: the longest name that there is, since
    /// names can have dots. With the file that has its type.
    pub(super) fn symbol<'n>(&self, text: &'n str) -> anyhow::Result<(&Path, DataSymbol, &'n str)> {
        let ends = text
            .char_indices()
            .filter(|(_, char)| matches!(char, '.' | '[' | '-'));
        let ends: Vec<usize> = ends.map(|(at, _)| at).chain([text.len()]).collect();
        let mut names = ends
            .into_iter()
            .rev()
            .filter_map(|end| text.split_at_checked(end));
        if let SubjectForm::Kernel(list) = self.form {
            for (name, rest) in names {
                if let Some(address) = kernel_variable(name, list)? {
                    let symbol = DataSymbol {
                        name: name.to_owned(),
                        address: address.0,
                    };
                    return Ok((Path::new(KERNEL_TYPES), symbol, rest));
                }
            }
            bail!("the kernel has no variable named {text:?}");
        }
        let found = names.find_map(|(name, rest)| {
            let mut modules = self.modules.iter();
            let found =
                modules.find_map(|module| Some((module, module.data(name).transpose()?)))?;
            Some((found.0, found.1, rest))
        });
        match found {
            Some((module, symbol, rest)) => Ok((module.file.path(), symbol?, rest)),
            None => {
                let files: Vec<_> = self
                    .modules
                    .iter()
                    .map(|one| file_name(&one.file))
                    .collect();
                for problem in &self.problems {
                    output::notice(problem);
                }
                let remedy = match text.strip_prefix(['*', '&']) {
                    Some(name) => {
                        format!(": write {name:?}; --follow 1 shows what a pointer points to")
                    }
                    None => String::new(),
                };
                bail!("no data is named {text:?} in {}{remedy}", files.join(", "))
            }
        }
    }

    /// Writes bytes, and reads them back.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> anyhow::Result<()> {
        match &self.form {
            SubjectForm::Kernel(_) => bail!("the kernel's memory is not written to"),
            SubjectForm::Core => bail!("a core file is what a process was: it is not written to"),
            SubjectForm::Running => bail!("the process is not stopped"),
            SubjectForm::Stopped(process) => Ok(process.write(RuntimeAddr(address), bytes)?),
            SubjectForm::File(file) => write_initial(file, Vaddr(address), bytes),
        }
    }

    /// The value at a place after a write.
    pub(super) fn read_again(
        &self,
        reader: &ValueReader<'_, '_>,
        place: ValuePlace,
    ) -> anyhow::Result<TypedValue> {
        match &self.form {
            SubjectForm::File(file) => {
                let file = commands::open(file.path())?;
                let memory = InitialMemory(&file);
                Ok(ValueReader {
                    memory: &memory,
                    ..*reader
                }
                .read(place))
            }
            SubjectForm::Stopped(process) => {
                let memory = process.memory_now();
                Ok(ValueReader {
                    memory: &memory,
                    ..*reader
                }
                .read(place))
            }
            SubjectForm::Kernel(_) | SubjectForm::Core | SubjectForm::Running => {
                Ok(reader.read(place))
            }
        }
    }
}

impl SubjectModule {
    /// The data of a name, in the file's symbols or in those of its debug file.
    fn data(&self, name: &str) -> anyhow::Result<Option<DataSymbol>> {
        let debug = DebugFiles::locate(&self.file, &SearchRoots::from_environment());
        let files = std::iter::once(&*self.file).chain(debug.debug.as_deref());
        let mut found: Option<ElfSymbol<'_>> = None;
        for file in files {
            let context = elf_context(file)?;
            for symbol in context.symbols(true).chain(context.symbols(false)) {
                let is_it = symbol.kind == SymbolKind::Object && symbol.name == name;
                if is_it && !found.as_ref().is_some_and(|known| known.is_global) {
                    found = Some(symbol);
                }
            }
        }
        let Some(symbol) = found else { return Ok(None) };
        if symbol.is_thread_local {
            bail!(
                "{}: {name} is thread-local: each thread has one: `unspool stack --locals` shows it in frames that use it",
                file_name(&self.file)
            );
        }
        Ok(Some(DataSymbol {
            name: name.to_owned(),
            address: self.bias.to_runtime(Vaddr(symbol.extent.address)).0,
        }))
    }
}

/// The memory of a file before any of it runs: without relocations.
struct InitialMemory<'f>(&'f ElfFile);

impl Memory for InitialMemory<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let at = Vaddr(addr.0);
        let end = addr.0.checked_add(into.len() as u64).map(Vaddr);
        let segment = self
            .0
            .segments()
            .find(|segment| segment.range().contains(&at));
        match (segment, end) {
            (Some(segment), Some(end)) if end <= segment.range().end => {
                // What the file does not have is zero at first.
                let stored = self.0.rest_at(at).unwrap_or_default();
                let mut stored = stored.iter();
                into.fill_with(|| stored.next().copied().unwrap_or(0));
                Ok(())
            }
            _ => Err(Unreadable::unmapped(addr)),
        }
    }
}

/// Changes initial values in a copy of a file, which replaces it.
fn write_initial(file: &ElfFile, at: Vaddr, bytes: &[u8]) -> anyhow::Result<()> {
    const SIGNATURE: &[u8] = b"~Module signature appended~\n";
    let path = file.path();
    let metadata = std::fs::metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        bail!(
            "{}: it is of user {}, not yours: copy it",
            path.display(),
            metadata.uid()
        );
    }
    if file.bytes().ends_with(SIGNATURE) {
        bail!(
            "{}: it is signed, and the signature would not fit any more",
            path.display()
        );
    }
    let mut segments = file.segments();
    let segment = segments.find(|segment| segment.range().contains(&at));
    if !segment.is_some_and(|segment| segment.writable) {
        bail!("{at} is in no segment that the program may write to");
    }
    let offset = file
        .offset_of_vaddr(at)
        .and_then(|offset| usize::try_from(offset).ok());
    let mut changed = file.bytes().to_vec();
    let place = offset.and_then(|start| changed.get_mut(start..start.checked_add(bytes.len())?));
    let stored = file
        .rest_at(at)
        .is_some_and(|rest| rest.len() >= bytes.len());
    let place = place.filter(|_| stored);
    let place = place.with_context(|| {
        format!("{at} is zero when the program starts, and is not in its file (.bss)")
    })?;
    place.copy_from_slice(bytes);
    file.check_unchanged()?;
    commands::write(path, &changed, Some(metadata.permissions()))
}
