//! Locating the units and entries of a file's DWARF.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, DebugTypeSignature, DwarfPackage, EndianSlice,
    RunTimeEndian, Section as _, SectionId, UnitHeader, UnitOffset, UnitType,
};
use unspool_elf::ElfFile;
use unspool_rows::{Arch, Endian};

use crate::abbreviations;
use crate::attributes::number;
use crate::error::{ElfMachine, TypesError};

pub(crate) type DwarfReader<'a> = EndianSlice<'a, RunTimeEndian>;
pub(crate) type Dwarf<'a> = gimli::Dwarf<DwarfReader<'a>>;
pub(crate) type DwarfUnit<'a> = gimli::Unit<DwarfReader<'a>>;
pub(crate) type DieEntry<'a> = gimli::DebuggingInformationEntry<DwarfReader<'a>>;

/// The maximum number of bytes of entries to read, as a multiple of their size: units can share
/// entries (by `dwz` and type units), which are read for each of them.
const MAX_READ_FACTOR: u64 = 64;
/// The minimum of that limit, for small files, in bytes.
const MIN_READ_BYTES: u64 = 1 << 20;

/// The maximum number of references from an entry of a function or variable to the entry that
/// defines it.
const MAX_ORIGIN_DEPTH: usize = 4;

/// The section of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum UnitSection {
    /// `.debug_info`
    Info,
    /// `.debug_types` of DWARF 4.
    Types,
    /// `.debug_info` of the supplementary file.
    Supplementary,
    /// The type unit with this number in a package.
    PackageTypeUnit(usize),
}

impl UnitSection {
    pub(crate) fn section(self) -> &'static str {
        match self {
            UnitSection::Info => ".debug_info",
            UnitSection::Types => ".debug_types",
            UnitSection::Supplementary => "supplementary .debug_info",
            UnitSection::PackageTypeUnit(_) => "a type unit of a package",
        }
    }
}

/// A reference to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DieRef {
    pub(crate) section: UnitSection,
    /// From the start of the section, in bytes.
    pub(crate) offset: usize,
}

impl DieRef {
    pub(crate) fn dwarf_error(self, source: gimli::Error) -> TypesError {
        TypesError::Dwarf {
            section: self.section.section(),
            offset: self.offset as u64,
            source,
        }
    }

    pub(crate) fn missing_attribute(self, what: &'static str) -> TypesError {
        TypesError::Incomplete {
            section: self.section.section(),
            offset: self.offset as u64,
            what,
        }
    }
}

/// A unit: its header, and its contents, read on demand.
struct LazyUnit<'a> {
    header: UnitHeader<DwarfReader<'a>>,
    unit: OnceCell<gimli::Result<DwarfUnit<'a>>>,
}

/// A package of `.dwo` files.
pub(crate) struct DwoPackage<'a> {
    pub(crate) path: PathBuf,
    pub(crate) dwarf: DwarfPackage<DwarfReader<'a>>,
    /// The type units that were looked up, by their rows in the index.
    types: Vec<OnceCell<Option<DwoTypeUnit<'a>>>>,
}

/// A type unit, and its own sections.
struct DwoTypeUnit<'a> {
    dwarf: Box<Dwarf<'a>>,
    lazy_unit: LazyUnit<'a>,
}

impl<'a> DwoPackage<'a> {
    pub(crate) fn new(path: PathBuf, dwarf: DwarfPackage<DwarfReader<'a>>) -> DwoPackage<'a> {
        let rows = dwarf.tu_index.unit_count();
        DwoPackage {
            types: (0..rows).map(|_| OnceCell::new()).collect(),
            path,
            dwarf,
        }
    }

    /// The type with a signature, if it is there.
    fn place(&self, signature: DebugTypeSignature, parent: &Dwarf<'a>) -> Option<DieRef> {
        let row = self.dwarf.tu_index.find(signature.0)?;
        let nth = usize::try_from(row).ok()?.checked_sub(1)?;
        let unit = self.types.get(nth)?;
        let unit = unit.get_or_init(|| {
            let mut dwarf = self.dwarf.find_tu(signature, parent).ok()??;
            abbreviations::check(&dwarf).ok()?;
            dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
            let in_info = dwarf.units().next().ok()?;
            let header = in_info.or(dwarf.type_units().next().ok()?)?;
            let lazy_unit = LazyUnit {
                header,
                unit: OnceCell::new(),
            };
            let dwarf = Box::new(dwarf);
            Some(DwoTypeUnit { dwarf, lazy_unit })
        });
        let (found, offset) = type_of(&unit.as_ref()?.lazy_unit.header)?;
        let part = UnitSection::PackageTypeUnit(nth);
        (found == signature).then_some(DieRef {
            section: part,
            offset,
        })
    }

    fn unit(&self, nth: usize) -> Option<&DwoTypeUnit<'a>> {
        self.types.get(nth)?.get()?.as_ref()
    }
}

/// The signature of a type unit, and the offset of its type in the section.
fn type_of(header: &UnitHeader<DwarfReader<'_>>) -> Option<(DebugTypeSignature, usize)> {
    match header.type_() {
        UnitType::Type {
            type_signature,
            type_offset,
        }
        | UnitType::SplitType {
            type_signature,
            type_offset,
        } => Some((
            type_signature,
            header.offset().0.checked_add(type_offset.0)?,
        )),
        _ => None,
    }
}

/// All units of a file and of its supplementary one.
pub(crate) struct DieIndex<'a> {
    dwarf: Dwarf<'a>,
    arch: Arch,
    info: Vec<LazyUnit<'a>>,
    types: Vec<LazyUnit<'a>>,
    supplementary: Vec<LazyUnit<'a>>,
    /// The types in units of their own.
    signatures: HashMap<u64, DieRef>,
    /// The faults of headers; units behind a bad header cannot be found.
    pub(crate) problems: Vec<TypesError>,
    /// For a split unit's file, the file with its skeleton, and the skeleton's location.
    skeleton: Option<Skeleton<'a>>,
    /// The remaining budget for entries, in bytes.
    read_budget_bytes: Cell<u64>,
    limit: u64,
}

/// The owner of a file with a split unit.
pub(crate) struct Skeleton<'a> {
    /// The file with the skeleton.
    pub(crate) index: Rc<DieIndex<'a>>,
    /// The skeleton's location.
    pub(crate) die: DieRef,
    /// The package that contains the split unit.
    pub(crate) package: Option<Rc<DwoPackage<'a>>>,
}

/// The byte order of a file's numbers.
pub(crate) fn endian(file: &ElfFile) -> RunTimeEndian {
    match file.abi().endian {
        Endian::Little => RunTimeEndian::Little,
        Endian::Big => RunTimeEndian::Big,
    }
}

/// Reads the sections that types need.
fn section(file: &ElfFile, id: SectionId) -> Result<DwarfReader<'_>, TypesError> {
    let needed = matches!(
        id,
        SectionId::DebugInfo
            | SectionId::DebugTypes
            | SectionId::DebugAbbrev
            | SectionId::DebugLine // gimli reads the header of a unit's lines with the unit
            | SectionId::DebugStr
            | SectionId::DebugLineStr
            | SectionId::DebugStrOffsets
            | SectionId::DebugAddr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugLoc
            | SectionId::DebugLocLists
    );
    let found = if needed {
        file.section_named(id.name())?
    } else {
        None
    };
    let Some(found) = found else {
        return Ok(EndianSlice::new(&[], endian(file)));
    };
    // For supported machines, relocations that were not applied concern locations that types do not
    // need.
    if let (Arch::Other { machine, .. }, false) = (file.abi().arch, found.problems.is_empty()) {
        return Err(TypesError::Relocations {
            file: file.path().to_path_buf(),
            section: id.name(),
            machine: ElfMachine(machine),
        });
    }
    Ok(EndianSlice::new(found.data, endian(file)))
}

impl<'a> DieIndex<'a> {
    /// Reads the headers of all units.
    pub(crate) fn read(
        file: &'a ElfFile,
        supplementary: Option<&'a ElfFile>,
    ) -> Result<DieIndex<'a>, TypesError> {
        let mut dwarf = Dwarf::load(|id| section(file, id))?;
        abbreviations::check(&dwarf)?;
        if let Some(supplementary) = supplementary {
            dwarf.load_sup(|id| section(supplementary, id))?;
            if let Some(dwarf) = dwarf.sup() {
                abbreviations::check(dwarf)?;
            }
        }
        Ok(DieIndex::new(dwarf, file.abi().arch, None))
    }

    /// Reads the headers of the units of a `.dwo` file.
    pub(crate) fn split(
        mut dwarf: Dwarf<'a>,
        of: Skeleton<'a>,
    ) -> Result<DieIndex<'a>, TypesError> {
        dwarf.make_dwo(&of.index.dwarf);
        abbreviations::check(&dwarf)?;
        let arch = of.index.arch;
        Ok(DieIndex::new(dwarf, arch, Some(of)))
    }

    fn new(mut dwarf: Dwarf<'a>, arch: Arch, skeleton: Option<Skeleton<'a>>) -> DieIndex<'a> {
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let mut index = DieIndex {
            info: Vec::new(),
            types: Vec::new(),
            supplementary: Vec::new(),
            signatures: HashMap::new(),
            problems: Vec::new(),
            read_budget_bytes: Cell::new(0),
            limit: 0,
            skeleton,
            arch,
            dwarf,
        };
        let (mut info, mut types) = (index.dwarf.units(), index.dwarf.type_units());
        index.info = index.headers(
            UnitSection::Info,
            std::iter::from_fn(|| info.next().transpose()),
        );
        index.types = index.headers(
            UnitSection::Types,
            std::iter::from_fn(|| types.next().transpose()),
        );
        if let Some(mut units) = index.dwarf.sup().map(gimli::Dwarf::units) {
            let units = std::iter::from_fn(|| units.next().transpose());
            index.supplementary = index.headers(UnitSection::Supplementary, units);
        }
        let size = |lazy_units: &[LazyUnit<'a>]| -> u64 {
            let sizes = lazy_units.iter();
            sizes
                .map(|slot| slot.header.length_including_self() as u64)
                .sum()
        };
        let size = size(&index.info) + size(&index.types) + size(&index.supplementary);
        index.limit = size
            .saturating_mul(MAX_READ_FACTOR)
            .saturating_add(MIN_READ_BYTES);
        index.read_budget_bytes.set(index.limit);
        index
    }

    /// The units of a section, up to the first with an unreadable header.
    fn headers(
        &mut self,
        section: UnitSection,
        units: impl Iterator<Item = gimli::Result<UnitHeader<DwarfReader<'a>>>>,
    ) -> Vec<LazyUnit<'a>> {
        let mut lazy_units: Vec<LazyUnit<'a>> = Vec::new();
        for header in units {
            let end = lazy_units.last().map_or(0, |slot| {
                slot.header.offset().0 + slot.header.length_including_self()
            });
            match header {
                Ok(header) => {
                    if let Some((signature, offset)) = type_of(&header) {
                        let place = DieRef { section, offset };
                        self.signatures.entry(signature.0).or_insert(place);
                    }
                    let unit = OnceCell::new();
                    lazy_units.push(LazyUnit { header, unit });
                }
                Err(error) => {
                    let place = DieRef {
                        section,
                        offset: end,
                    };
                    self.problems.push(place.dwarf_error(error));
                    break;
                }
            }
        }
        lazy_units
    }

    fn slots(&self, section: UnitSection) -> &[LazyUnit<'a>] {
        match section {
            UnitSection::Info => &self.info,
            UnitSection::Types => &self.types,
            UnitSection::Supplementary => &self.supplementary,
            UnitSection::PackageTypeUnit(nth) => {
                let unit = self.package().and_then(|package| package.unit(nth));
                unit.map_or(&[], |unit| std::slice::from_ref(&unit.lazy_unit))
            }
        }
    }

    /// The package that contains this.
    fn package(&self) -> Option<&DwoPackage<'a>> {
        self.skeleton.as_ref()?.package.as_deref()
    }

    /// The root entries of the units of `.debug_info`.
    pub(crate) fn roots(&self) -> impl Iterator<Item = (UnitType<usize>, DieRef)> {
        self.info.iter().map(|slot| {
            let offset = slot.header.offset().0 + slot.header.root_offset().0;
            let part = UnitSection::Info;
            (
                slot.header.type_(),
                DieRef {
                    section: part,
                    offset,
                },
            )
        })
    }

    /// The skeleton of a split unit's file, and its location.
    pub(crate) fn skeleton(&self) -> Option<(&DieIndex<'a>, DieRef)> {
        let of = self.skeleton.as_ref()?;
        Some((&of.index, of.die))
    }

    /// The machine.
    pub(crate) fn arch(&self) -> Arch {
        self.arch
    }

    /// Whether it is big-endian.
    pub(crate) fn is_big(&self) -> bool {
        gimli::Reader::endian(self.dwarf.debug_info.reader()) == RunTimeEndian::Big
    }

    /// The strings, addresses and units of a section.
    pub(crate) fn dwarf(&self, section: UnitSection) -> &Dwarf<'a> {
        match section {
            UnitSection::Supplementary => self.dwarf.sup().unwrap_or(&self.dwarf),
            UnitSection::PackageTypeUnit(nth) => {
                let unit = self.package().and_then(|package| package.unit(nth));
                unit.map_or(&self.dwarf, |unit| &*unit.dwarf)
            }
            _ => &self.dwarf,
        }
    }

    /// The unit of a reference, and the offset within it.
    pub(crate) fn unit(&self, die: DieRef) -> Result<(&DwarfUnit<'a>, UnitOffset), TypesError> {
        let slots = self.slots(die.section);
        let behind = slots.partition_point(|slot| slot.header.offset().0 <= die.offset);
        let slot = behind.checked_sub(1).and_then(|at| slots.get(at));
        let slot = slot
            .ok_or_else(|| die.dwarf_error(gimli::Error::OffsetOutOfBounds(die.offset as u64)))?;
        let unit = slot
            .unit
            .get_or_init(|| self.read_unit(die.section, slot.header))
            .as_ref();
        let unit = unit.map_err(|error| {
            let offset = slot.header.offset().0;
            DieRef { offset, ..die }.dwarf_error(*error)
        })?;
        Ok((unit, UnitOffset(die.offset - slot.header.offset().0)))
    }

    fn read_unit(
        &self,
        section: UnitSection,
        header: UnitHeader<DwarfReader<'a>>,
    ) -> gimli::Result<DwarfUnit<'a>> {
        let mut unit = self.dwarf(section).unit(header)?;
        if let Some(of) = &self.skeleton
            && let Ok((skeleton, _)) = of.index.unit(of.die)
        {
            unit.copy_relocated_attributes(skeleton);
        }
        Ok(unit)
    }

    /// The entry of a reference.
    pub(crate) fn entry(&self, die: DieRef) -> Result<DieEntry<'a>, TypesError> {
        let (unit, offset) = self.unit(die)?;
        self.spend(die, 1)?;
        unit.entry(offset).map_err(|error| die.dwarf_error(error))
    }

    /// The entry that defines a function or variable: itself, or its abstract origin or
    /// specification.
    pub(crate) fn origin(
        &self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<(DieRef, DieEntry<'a>), TypesError> {
        let (mut place, mut entry) = (die, entry.clone());
        for _ in 0..MAX_ORIGIN_DEPTH {
            let origin = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification]
                .into_iter()
                .find_map(|name| entry.attr_value(name));
            let Some(value) = origin else { break };
            place = self.resolve_reference(place, &value)?;
            entry = self.entry(place)?;
        }
        Ok((place, entry))
    }

    /// Calls a function with each child of an entry, without deeper descendants.
    pub(crate) fn children(
        &self,
        die: DieRef,
        mut visit: impl FnMut(DieRef, &DieEntry<'a>) -> Result<(), TypesError>,
    ) -> Result<(), TypesError> {
        let (unit, offset) = self.unit(die)?;
        let failed = |error| die.dwarf_error(error);
        let mut tree = unit.entries_tree(Some(offset)).map_err(failed)?;
        let mut children = tree.root().map_err(failed)?.children();
        let start = unit.header.offset().0;
        let mut before = die.offset;
        while let Some(child) = children.next().map_err(failed)? {
            let offset = start + child.entry().offset().0;
            // The bytes between two children were skipped.
            self.spend(die, offset.saturating_sub(before) as u64)?;
            before = offset;
            visit(DieRef { offset, ..die }, child.entry())?;
        }
        Ok(())
    }

    /// Calls a function with all descendants of an entry in order, and their depth below it. The
    /// function returns whether to descend into an entry.
    pub(crate) fn descendants(
        &self,
        die: DieRef,
        mut visit: impl FnMut(DieRef, usize, &DieEntry<'a>) -> Result<bool, TypesError>,
    ) -> Result<(), TypesError> {
        let (unit, offset) = self.unit(die)?;
        let failed = |error| die.dwarf_error(error);
        let mut entries = unit.entries_at_offset(offset).map_err(failed)?;
        entries.next_dfs().map_err(failed)?;
        entries.next_dfs().map_err(failed)?;
        let start = unit.header.offset().0;
        let mut before = die.offset;
        while let Some(entry) = entries.current() {
            let Some(depth) = usize::try_from(entry.depth())
                .ok()
                .filter(|depth| *depth > 0)
            else {
                break;
            };
            let offset = start + entry.offset().0;
            self.spend(die, offset.saturating_sub(before) as u64)?;
            before = offset;
            if !visit(DieRef { offset, ..die }, depth, entry)? {
                entries.next_sibling().map_err(failed)?;
                if entries.current().is_some() {
                    continue;
                }
            }
            entries.next_dfs().map_err(failed)?;
        }
        Ok(())
    }

    /// The code ranges of an entry: a unit, a function, a block.
    pub(crate) fn ranges(
        &self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<Vec<Range<u64>>, TypesError> {
        let (unit, _) = self.unit(die)?;
        let dwarf = self.dwarf(die.section);
        let failed = |error| die.dwarf_error(error);
        if let Some(value) = entry.attr_value(gimli::DW_AT_ranges)
            && let Some(mut list) = dwarf.attr_ranges(unit, value).map_err(failed)?
        {
            let mut ranges = Vec::new();
            while let Some(range) = list.next().map_err(failed)? {
                self.spend(die, 1)?;
                ranges.push(range.begin..range.end);
            }
            return Ok(ranges);
        }
        let address = |name| match entry.attr_value(name) {
            Some(value) => dwarf.attr_address(unit, value).map_err(failed),
            None => Ok(None),
        };
        let Some(low) = address(gimli::DW_AT_low_pc)? else {
            return Ok(Vec::new());
        };
        let high = match number(entry, gimli::DW_AT_high_pc) {
            Some(size) => low.checked_add(size),
            None => address(gimli::DW_AT_high_pc)?,
        };
        Ok(high.into_iter().map(|high| low..high).collect())
    }

    fn spend(&self, die: DieRef, bytes: u64) -> Result<(), TypesError> {
        let left = self.read_budget_bytes.get().checked_sub(bytes);
        self.read_budget_bytes.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(TypesError::ReadLimit {
            section: die.section.section(),
            offset: die.offset as u64,
            limit: self.limit,
        })
    }

    /// The target of an attribute's reference.
    pub(crate) fn resolve_reference(
        &self,
        from: DieRef,
        value: &AttributeValue<DwarfReader<'a>>,
    ) -> Result<DieRef, TypesError> {
        let wrong = |to: String| TypesError::Reference {
            section: from.section.section(),
            offset: from.offset as u64,
            to,
        };
        match *value {
            AttributeValue::UnitRef(offset) => {
                let (unit, _) = self.unit(from)?;
                let offset = unit.header.offset().0.checked_add(offset.0);
                let offset =
                    offset.ok_or_else(|| wrong("an offset beyond all others".to_owned()))?;
                Ok(DieRef { offset, ..from })
            }
            AttributeValue::DebugInfoRef(offset) => Ok(DieRef {
                section: match from.section {
                    UnitSection::Types => UnitSection::Info,
                    part => part,
                },
                offset: offset.0,
            }),
            AttributeValue::DebugInfoRefSup(offset) if !self.supplementary.is_empty() => {
                Ok(DieRef {
                    section: UnitSection::Supplementary,
                    offset: offset.0,
                })
            }
            AttributeValue::DebugInfoRefSup(offset) => Err(wrong(format!(
                "{:#x} of the supplementary file (.gnu_debugaltlink), which was not found",
                offset.0
            ))),
            AttributeValue::DebugTypesRef(signature) => {
                let place = self.signatures.get(&signature.0).copied();
                let packaged = || self.package()?.place(signature, &self.dwarf);
                place.or_else(packaged).ok_or_else(|| {
                    wrong(format!(
                        "the type unit with the signature {:#x}, which is not there (those of object files are read once they are linked)",
                        signature.0
                    ))
                })
            }
            _ => Err(wrong("something other than an entry".to_owned())),
        }
    }
}
