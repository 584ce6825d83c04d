//! The mappings of a process, as its samples see them.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use unspool_elf::SegmentMapping;
use unspool_process::file_provider::FileProblem;
use unspool_process::generated_code::JitTables;
use unspool_process::maps::Mapping;
use unspool_rows::{Abi, LoadBias, Register, Row, RuntimeAddr, Vaddr};
use unspool_symbols::JitCode;
use unspool_unwind::modules::{Module, ModuleSlot, Modules, SynthesizedRows};
use unspool_unwind::{AnonymousCode, NoRow};

use crate::live_files::LiveMemory;
use crate::module_files::ModuleFile;

/// The content of a range of addresses.
#[derive(Debug, Clone)]
pub(crate) enum RegionContent {
    /// A usable file.
    File {
        file: Arc<ModuleFile>,
        bias: LoadBias,
        slot: Option<ModuleSlot>,
    },
    /// An unusable file.
    Unusable(Arc<FileProblem>),
    /// Memory without a file, such as code made at run time: its contents, if they can be read.
    Anonymous(Option<Arc<AnonymousCode<LiveMemory>>>),
}

impl RegionContent {
    /// Whether an address has the same row in both.
    fn is_same_code(&self, other: &RegionContent) -> bool {
        match (self, other) {
            (
                RegionContent::File { file, bias, .. },
                RegionContent::File {
                    file: other,
                    bias: other_bias,
                    ..
                },
            ) => Arc::ptr_eq(file, other) && bias == other_bias,
            (RegionContent::File { .. }, _) | (_, RegionContent::File { .. }) => false,
            _ => true,
        }
    }
}

/// A range of addresses with executable code.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The address at which offset 0 of the file would be mapped.
    pub(crate) file_start: u64,
    /// The path as the kernel reports it, or a name in brackets.
    pub(crate) name: Option<Arc<[u8]>>,
    pub(crate) content: RegionContent,
}

impl Region {
    /// The slot of its module, if it has one.
    fn place(&self) -> Option<ModuleSlot> {
        match self.content {
            RegionContent::File { slot: place, .. } => place,
            _ => None,
        }
    }
}

/// The code that a process has mapped.
///
/// The kernel does not report unmapping. A later mapping at the same addresses replaces the earlier
/// one.
#[derive(Debug, Clone, Default)]
pub struct ProcessSpace {
    /// Sorted by address, without overlap.
    regions: Vec<Region>,
    /// The slots of the regions' modules below 64, as bits.
    low_slots: u64,
    /// The other slots.
    high_slots: HashSet<ModuleSlot>,
    /// The unwind tables of code that is in no file.
    jit: JitTables,
    /// How often code was mapped where there was other code before.
    replacements: u32,
}

impl ProcessSpace {
    /// The mappings of a child process at its start, which has memory of its own.
    pub(crate) fn forked(
        self: &Arc<Self>,
        code: impl FnOnce() -> Option<Arc<AnonymousCode<LiveMemory>>>,
    ) -> Arc<ProcessSpace> {
        let is_anonymous = |region: &Region| matches!(region.content, RegionContent::Anonymous(_));
        let mut space = Arc::clone(self);
        if self.regions.iter().any(is_anonymous) {
            let content = RegionContent::Anonymous(code());
            let regions = &mut Arc::make_mut(&mut space).regions;
            for region in regions.iter_mut().filter(|region| is_anonymous(region)) {
                region.content = content.clone();
            }
        }
        space
    }

    /// The end of the last region.
    pub(crate) fn end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.end)
    }

    /// Adds code that the process has generated.
    pub(crate) fn add_jit_code(&mut self, code: &JitCode, abi: Abi) {
        self.jit.add(code, abi);
    }

    /// Adds a region, and replaces whatever it overlaps.
    pub(crate) fn insert(&mut self, region: Region) {
        if region.start >= region.end {
            return;
        }
        let first = self.regions.partition_point(|old| old.end <= region.start);
        let last = self.regions.partition_point(|old| old.start < region.end);
        let overlapped = self.regions.get(first..last).unwrap_or_default();
        let head = overlapped.first().filter(|old| old.start < region.start);
        let tail = overlapped.last().filter(|old| old.end > region.end);
        let is_new = overlapped.is_empty();
        let head = head.map(|old| Region {
            end: region.start,
            ..old.clone()
        });
        let tail = tail.map(|old| Region {
            start: region.end,
            ..old.clone()
        });
        let is_other = |old: &Region| !old.content.is_same_code(&region.content);
        self.replacements += u32::from(overlapped.iter().any(is_other));
        let place = region.place();
        let new = head.into_iter().chain([region]).chain(tail);
        self.regions.splice(first..last, new);
        if is_new {
            self.add_slot(place);
        } else {
            self.renew_slots();
        }
    }

    /// Rebuilds the set of slots after some regions are gone. Rules learned for those are invalid.
    fn renew_slots(&mut self) {
        self.low_slots = 0;
        self.high_slots.clear();
        let places: Vec<_> = self.regions.iter().map(Region::place).collect();
        places.into_iter().for_each(|place| self.add_slot(place));
    }

    fn add_slot(&mut self, slot: Option<ModuleSlot>) {
        match slot {
            Some(ModuleSlot(number @ 0..64)) => self.low_slots |= 1 << number,
            Some(place) => drop(self.high_slots.insert(place)),
            None => {}
        }
    }

    /// How often code was mapped where there was other code before.
    pub(crate) fn replacements(&self) -> u32 {
        self.replacements
    }

    /// The ranges of addresses with files, ascending, and the files with their load biases.
    pub(crate) fn files(
        &self,
    ) -> impl Iterator<Item = (Range<RuntimeAddr>, &Arc<ModuleFile>, LoadBias)> {
        self.regions.iter().filter_map(|region| {
            let range = RuntimeAddr(region.start)..RuntimeAddr(region.end);
            match &region.content {
                RegionContent::File { file, bias, .. } => Some((range, file, *bias)),
                _ => None,
            }
        })
    }

    fn region(&self, addr: RuntimeAddr) -> Option<&Region> {
        let after = self
            .regions
            .partition_point(|region| region.start <= addr.0);
        let region = self.regions.get(after.checked_sub(1)?)?;
        (addr.0 < region.end).then_some(region)
    }

    /// The file mapped at an address, and the address as linked.
    #[must_use]
    pub(crate) fn locate(&self, addr: RuntimeAddr) -> Option<(&Arc<ModuleFile>, Vaddr)> {
        match &self.region(addr)?.content {
            RegionContent::File { file, bias, .. } => Some((file, bias.to_vaddr(addr))),
            _ => None,
        }
    }

    /// The mapping at an address: its path as the kernel reports it, or a name in brackets. Also
    /// the address's offset from the start of the file, in bytes. Memory without a file has no
    /// name.
    #[must_use]
    pub(crate) fn mapped(&self, addr: RuntimeAddr) -> Option<(Option<&[u8]>, u64)> {
        let region = self.region(addr)?;
        let offset = addr.0.wrapping_sub(region.file_start);
        Some((region.name.as_deref(), offset))
    }

    /// Why the file mapped at an address is not used.
    #[must_use]
    pub(crate) fn problem(&self, addr: RuntimeAddr) -> Option<&FileProblem> {
        Some(self.unusable(addr)?.1)
    }

    /// The mapping at an address and the reason, if its file is not used.
    pub(crate) fn unusable(&self, addr: RuntimeAddr) -> Option<(&Region, &Arc<FileProblem>)> {
        let region = self.region(addr)?;
        match &region.content {
            RegionContent::Unusable(problem) => Some((region, problem)),
            _ => None,
        }
    }

    /// The memory without a file at an address.
    pub(crate) fn anonymous(&self, addr: RuntimeAddr) -> Option<&Region> {
        self.region(addr).filter(|region| region.name.is_none())
    }

    /// Bytes of code, as they are in the file.
    pub(crate) fn code_in_file(&self, addr: RuntimeAddr, length: usize) -> Option<&[u8]> {
        let (file, addr) = self.locate(addr)?;
        let elf = file.tables.file();
        elf.bytes_at(addr, u64::try_from(length).ok()?)
    }

    /// The bytes from an address on, in a file that the process has mapped without write
    /// permission.
    pub(crate) fn constant(&self, addr: RuntimeAddr) -> Option<&[u8]> {
        self.regions.iter().find_map(|region| {
            let RegionContent::File { file, bias, .. } = &region.content else {
                return None;
            };
            let (elf, addr) = (file.tables.file(), bias.to_vaddr(addr));
            let mut segments = elf.segments().filter(|segment| !segment.writable);
            let segment = segments.find(|segment| segment.range().contains(&addr))?;
            let rest = elf.rest_at(addr)?;
            let left = usize::try_from(segment.range().end.0 - addr.0).ok()?;
            Some(rest.get(..left).unwrap_or(rest))
        })
    }

    /// The start of the function at an address, according to its unwind table.
    pub(crate) fn function(&self, addr: RuntimeAddr) -> Option<RuntimeAddr> {
        let module = self.module(addr)?;
        let mut row = Row::new(Register(0));
        let found = module.row(module.bias.to_vaddr(addr), &mut row).ok()?;
        Some(module.bias.to_runtime(found.entry_start))
    }

    /// Assigns new slots to all modules.
    pub(crate) fn renumber(
        &mut self,
        mut place_of: impl FnMut(&ModuleFile, LoadBias) -> Option<ModuleSlot>,
    ) {
        for region in &mut self.regions {
            if let RegionContent::File {
                file,
                bias,
                slot: place,
            } = &mut region.content
            {
                *place = place_of(file, *bias);
            }
        }
        self.renew_slots();
    }
}

impl Modules for ProcessSpace {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        match &self.region(addr)?.content {
            RegionContent::File {
                file,
                bias,
                slot: place,
            } => Some(file.tables.module(*bias, *place, None)),
            RegionContent::Unusable(_) | RegionContent::Anonymous(_) => self.jit.module(addr),
        }
    }

    fn without_module(&self, addr: RuntimeAddr) -> NoRow {
        match self.region(addr).map(|region| &region.content) {
            Some(RegionContent::Unusable(_)) => NoRow::NoFile,
            _ => NoRow::NoModule,
        }
    }

    fn staying(&self) -> u64 {
        self.low_slots
    }

    fn is_mapped(&self, slot: ModuleSlot) -> bool {
        match slot.0 {
            0..64 => self.low_slots >> slot.0 & 1 != 0,
            _ => self.high_slots.contains(&slot),
        }
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.region(addr).is_some()
    }

    fn is_not_code(&self, addr: RuntimeAddr) -> bool {
        !self.is_code(addr)
    }

    fn anonymous_code(&self, addr: RuntimeAddr) -> Option<&dyn SynthesizedRows> {
        match &self.region(addr)?.content {
            RegionContent::Anonymous(Some(code)) => Some(&**code),
            _ => None,
        }
    }
}

/// A mapping in the form that a file's segments are compared with.
pub(crate) fn segment(mapping: &Mapping) -> SegmentMapping {
    SegmentMapping {
        start: mapping.start,
        length: mapping.size(),
        file_offset: mapping.offset,
        executable: true,
        page_size: 4096,
    }
}
