//! Source lines and inlined functions, from DWARF; lines of Go programs also from their own table.
//!
//! addr2line does the work. Its loader is not used: it reads by path only, decompresses without a
//! bound, prints to standard error, and assumes that sections of relocatable files are at 0.

use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{
    AbbreviationsCacheStrategy, Dwarf, DwarfPackage, EndianSlice, RunTimeEndian, Section as _,
    SectionId,
};
use self_cell::self_cell;
use typed_arena::Arena;
use unspool_demangle::SignatureDetail;
use unspool_rows::Vaddr;

use crate::debug_file::DebugFiles;
use crate::elf::ElfFile;
use crate::error::ModuleError;
use crate::go_functions::GoFunctions;
use qualified::QualifiedNames;

mod aranges;
mod assembly_ranges;
mod qualified;
mod split_names;

pub use assembly_ranges::{assembly_ranges, has_compiled_units};
pub(crate) use split_names::split_paths;

/// The maximum number of inlined functions at one address; any others are dropped.
const MAX_FRAMES: usize = 1024;
/// The maximum number of recorded problems.
const MAX_PROBLEMS: usize = 64;

/// One function at an address, with its source location.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InlineFrame {
    /// The function's readable name.
    pub function: Option<String>,
    /// The source file as passed to the compiler, with the compiler's working directory.
    pub file: Option<String>,
    /// The line: of the address in the innermost function, of the inlined call in the others.
    pub line: Option<u32>,
    /// The column, if the compiler recorded it.
    pub column: Option<u32>,
}

/// The line information of one module.
///
/// The first look-up reads the headers of compilation units. Each unit is read when an address in
/// it is first looked up, and kept. Can be shared between threads; they wait for each other.
pub struct Lines {
    sources: DebugFileSet,
    /// The announced addresses.
    addresses: Vec<Vaddr>,
    state: Mutex<LineState>,
}

#[derive(Clone)]
struct DebugFileSet {
    module: Arc<ElfFile>,
    debug: Option<Arc<ElfFile>>,
    supplementary: Option<Arc<ElfFile>>,
    /// The detail of function names.
    signature: SignatureDetail,
}

#[derive(Default)]
struct LineState {
    loaded: Option<Result<OwnedResolver, ModuleError>>,
    problems: Vec<ModuleError>,
}

type DwarfSlice<'a> = EndianSlice<'a, RunTimeEndian>;

/// The files that the debug information is borrowed from.
struct DebugSources {
    files: DebugFileSet,
    package: Option<ElfFile>,
    /// The `.dwo` files opened so far.
    objects: Arena<ElfFile>,
}

struct Resolver<'a> {
    context: Context<DwarfSlice<'a>>,
    /// Whether `context` knows only the units of the addresses that were announced.
    is_partial: bool,
    package: Option<DwarfPackage<DwarfSlice<'a>>>,
    names: RefCell<QualifiedNames<'a>>,
}

self_cell!(
    struct OwnedResolver {
        owner: DebugSources,
        #[not_covariant]
        dependent: Resolver,
    }
);

impl DebugFileSet {
    /// The file with the debug information.
    fn primary(&self) -> &ElfFile {
        self.debug.as_deref().unwrap_or(&self.module)
    }
}

impl Lines {
    /// The line information of `module`, or of its separate debug file if there is one. Reads
    /// nothing yet.
    ///
    /// Split debug information is read from `.dwo` files, or from a `.dwp` file beside the module.
    ///
    /// If `addresses` announces the look-ups, only the units of these addresses are read, if the
    /// file has an index of them (`.debug_aranges`). Other addresses can be looked up too; the
    /// first of them that these units do not cover reads the headers of all units.
    #[must_use]
    pub fn new(module: Arc<ElfFile>, files: &DebugFiles, addresses: &[Vaddr]) -> Lines {
        Lines {
            addresses: addresses.to_vec(),
            sources: DebugFileSet {
                module,
                debug: files.debug.clone(),
                supplementary: files.supplementary.clone(),
                signature: SignatureDetail::default(),
            },
            state: Mutex::default(),
        }
    }

    /// Sets the detail of function names.
    #[must_use]
    pub fn with_signature(mut self, signature: SignatureDetail) -> Lines {
        self.sources.signature = signature;
        self
    }

    /// The functions at `addr`, the innermost inlined one first, the function with the code last.
    /// Empty if the debug information does not cover the address. A Go program without any has
    /// the lines in its own table.
    ///
    /// `addr` is the address of an instruction: for a return address, pass that of the call before
    /// it.
    ///
    /// # Errors
    ///
    /// [`ModuleError`] if the debug sections cannot be read or contradict themselves.
    pub fn frames(&self, addr: Vaddr) -> Result<Vec<InlineFrame>, ModuleError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.loaded.is_none() {
            state.loaded = Some(load(self.sources.clone(), &self.addresses));
        }
        let mut frames = state.frames(addr)?;
        if frames.is_none() {
            state.loaded = Some(load(self.sources.clone(), &[]));
            frames = state.frames(addr)?;
        }
        let frames = frames.unwrap_or_default();
        if !frames.is_empty() {
            return Ok(frames);
        }
        let go = GoFunctions::new(&self.sources.module);
        Ok(go.and_then(|go| go.frame(addr)).into_iter().collect())
    }

    /// The source file and the line of the instruction at an address, in the innermost function;
    /// `None` if the debug information lacks them, or cannot be read.
    #[must_use]
    pub fn line(&self, addr: Vaddr) -> Option<(String, u32)> {
        let innermost = self.frames(addr).ok()?.into_iter().next()?;
        innermost.file.zip(innermost.line)
    }

    /// The `.dwo` files that could not be read so far. Code that they describe has lines, but no
    /// functions.
    #[must_use]
    pub fn problems(&self) -> Vec<ModuleError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.problems.clone()
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("file", &self.sources.primary().path())
            .finish_non_exhaustive()
    }
}

impl LineState {
    /// The functions at `addr`, none if no unit covers it; `None` if units that were not read may.
    fn frames(&mut self, addr: Vaddr) -> Result<Option<Vec<InlineFrame>>, ModuleError> {
        let LineState { loaded, problems } = self;
        match loaded {
            Some(Ok(loaded)) => loaded.with_dependent(|sources, resolver| {
                let frames = resolver.frames(sources, addr, problems)?;
                Ok((!frames.is_empty() || !resolver.is_partial).then_some(frames))
            }),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(None),
        }
    }
}

fn load(files: DebugFileSet, addresses: &[Vaddr]) -> Result<OwnedResolver, ModuleError> {
    let package = [Some(&files.module), files.debug.as_ref()]
        .into_iter()
        .flatten()
        .map(|file| (file, with_suffix(file.path(), ".dwp")))
        .find(|(_, path)| unspool_files::metadata(path).is_ok_and(|found| found.is_file()))
        .map(|(file, path)| file.open_part(&path))
        .transpose()?;
    let sources = DebugSources {
        files,
        package,
        objects: Arena::new(),
    };
    OwnedResolver::try_new(sources, |sources| {
        let file = sources.files.primary();
        prepare(file);
        let mut dwarf = Dwarf::load(|id| section(file, id, Some(id.name())))?;
        if let Some(supplementary) = &sources.files.supplementary {
            dwarf.load_sup(|id| section(supplementary, id, Some(id.name())))?;
            if let Some(dwarf) = dwarf.sup() {
                check_tables(supplementary, dwarf)?;
            }
        }
        let abbreviations = aranges::abbreviations(&dwarf, addresses);
        let is_part = abbreviations.is_some();
        if let Some(abbreviations) = abbreviations {
            dwarf.abbreviations_cache = abbreviations;
        } else {
            check_tables(file, &dwarf)?;
            dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        }
        let context = Context::from_dwarf(dwarf).map_err(|error| wrong(file, Vaddr(0), &error))?;
        Ok(Resolver {
            context,
            is_partial: is_part,
            package: sources.package.as_ref().map(package_of).transpose()?,
            names: RefCell::default(),
        })
    })
}

fn check_tables(file: &ElfFile, dwarf: &Dwarf<DwarfSlice<'_>>) -> Result<(), ModuleError> {
    aranges::check_tables(dwarf).map_err(|most| {
        let name = SectionId::DebugAbbrev.name();
        let size = dwarf.debug_abbrev.reader().len() as u64;
        let why = format!("its tables have more than {most} bytes together, and so overlap");
        file.malformed(name, 0, size, why)
    })
}

/// Decompresses the largest section in parallel with the others, if a thread can be created. It
/// takes most of the time of a first look-up. A fault in a section is reported again when it is
/// used.
fn prepare(file: &ElfFile) {
    let decompress = |id: SectionId| section(file, id, Some(id.name()));
    std::thread::scope(|scope| {
        let largest = move || decompress(SectionId::DebugInfo).is_ok();
        let _ = std::thread::Builder::new().spawn_scoped(scope, largest);
        let others = |id| match id {
            SectionId::DebugInfo => Ok(EndianSlice::new(&[][..], file.gimli_endian())),
            _ => decompress(id),
        };
        let _: Result<Dwarf<DwarfSlice<'_>>, ModuleError> = Dwarf::load(others);
    });
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn package_of(file: &ElfFile) -> Result<DwarfPackage<DwarfSlice<'_>>, ModuleError> {
    let mut first = None;
    let package = DwarfPackage::load(
        // The index of a package has the unit's offsets in all of its sections.
        |id| {
            any_section(file, id.dwo_name()).map_err(|error| {
                first = Some(error);
                gimli::Error::Io
            })
        },
        EndianSlice::new(&[], file.gimli_endian()),
    );
    package.map_err(|error| first.unwrap_or_else(|| wrong(file, Vaddr(0), &error)))
}

fn wrong(file: &ElfFile, addr: Vaddr, error: &gimli::Error) -> ModuleError {
    ModuleError::Dwarf {
        file: file.path().to_path_buf(),
        address: addr.0,
        reason: error.to_string(),
    }
}

/// The section, if looking up lines needs it; decompressing the others would take long.
fn section<'a>(
    file: &'a ElfFile,
    id: SectionId,
    name: Option<&str>,
) -> Result<DwarfSlice<'a>, ModuleError> {
    let needed = !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
            | SectionId::DebugTypes
    );
    any_section(file, name.filter(|_| needed))
}

/// The section of that name; an empty one if the file has none.
fn any_section<'a>(file: &'a ElfFile, name: Option<&str>) -> Result<DwarfSlice<'a>, ModuleError> {
    let data = match name {
        Some(name) => file
            .section_named(name)?
            .map_or(&[][..], |section| section.data),
        None => &[],
    };
    Ok(EndianSlice::new(data, file.gimli_endian()))
}

impl<'a> Resolver<'a> {
    fn frames(
        &self,
        sources: &'a DebugSources,
        addr: Vaddr,
        problems: &mut Vec<ModuleError>,
    ) -> Result<Vec<InlineFrame>, ModuleError> {
        let failed = |error: gimli::Error| wrong(sources.files.primary(), addr, &error);
        let mut lookup = self.context.find_frames(addr.0);
        let mut found = loop {
            match lookup {
                LookupResult::Output(found) => break found.map_err(failed)?,
                LookupResult::Load { load, continuation } => {
                    let dwarf = self.split(sources, &load).unwrap_or_else(|error| {
                        problems.extend((problems.len() < MAX_PROBLEMS).then_some(error));
                        None
                    });
                    lookup = continuation.resume(dwarf.map(Arc::new));
                }
            }
        };
        let mut frames = Vec::new();
        while let (Some(frame), true) = (found.next().map_err(failed)?, frames.len() < MAX_FRAMES) {
            let function = self.name(sources.files.signature, addr, &frame);
            let place = frame.location;
            frames.push(InlineFrame {
                function,
                file: place
                    .as_ref()
                    .and_then(|place| place.file)
                    .map(str::to_owned),
                line: place.as_ref().and_then(|place| place.line),
                column: place.as_ref().and_then(|place| place.column),
            });
        }
        Ok(frames)
    }

    /// The readable name of a function; a C++ name with its scopes.
    fn name(
        &self,
        signature: SignatureDetail,
        addr: Vaddr,
        frame: &addr2line::Frame<'_, DwarfSlice<'a>>,
    ) -> Option<String> {
        let function = frame.function.as_ref()?;
        let name = function.raw_name().ok()?;
        let is_plain = function.language.is_some_and(is_cxx) && !name.starts_with("_Z");
        if is_plain
            && let Some(offset) = frame.dw_die_offset
            && let LookupResult::Output(Some(unit)) = self.context.find_dwarf_and_unit(addr.0)
            && let Some(qualified) = self.names.borrow_mut().name(unit, offset, signature)
        {
            return Some(String::from(&*qualified));
        }
        Some(signature.demangle(&name).into_owned())
    }

    /// The debug information of one compilation unit in a file of its own.
    fn split(
        &self,
        sources: &'a DebugSources,
        load: &SplitDwarfLoad<DwarfSlice<'a>>,
    ) -> Result<Option<Dwarf<DwarfSlice<'a>>>, ModuleError> {
        if let (Some(package), Some(file)) = (&self.package, &sources.package) {
            let unit = package.find_cu(load.dwo_id, &load.parent);
            if let Some(unit) = unit.map_err(|error| wrong(file, Vaddr(0), &error))? {
                return Ok(Some(unit));
            }
        }
        let Some(name) = load.path else {
            return Ok(None);
        };
        let directory = load
            .comp_dir
            .map_or_else(PathBuf::new, |bytes| path_of(&bytes));
        let path = directory.join(path_of(&name));
        let file = &*sources
            .objects
            .alloc(sources.files.primary().open_part(&path)?);
        let mut dwarf = Dwarf::load(|id| section(file, id, id.dwo_name()))?;
        let found = first_unit(&dwarf).map_err(|error| wrong(file, Vaddr(0), &error))?;
        if found != Some(load.dwo_id) {
            let id = found.map_or(0, |id| id.0);
            return Err(file.malformed("the .dwo identifier", 0, id, "it is of another build"));
        }
        dwarf.make_dwo(&load.parent);
        Ok(Some(dwarf))
    }
}

fn is_cxx(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
    )
}

fn first_unit(dwarf: &Dwarf<DwarfSlice<'_>>) -> gimli::Result<Option<gimli::DwoId>> {
    let Some(header) = dwarf.units().next()? else {
        return Ok(None);
    };
    Ok(dwarf.unit(header)?.dwo_id)
}

fn path_of(bytes: &DwarfSlice<'_>) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes.slice()))
}
