//! Variables and parameters: which ones exist at an address, and their values in a frame of a
//! stack.
//!
//! [`Variables`] finds the function at an address, which has its variables there,
//! and [`Activation::current_value`] the value of one in a frame (DWARF 5 §2.6: location
//! descriptions). [`Activation::at_entry`] finds a parameter's value when the function was called,
//! from the caller's call site (§3.4).

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use gimli::UnitType;
use unspool_elf::{Binding, DebugFiles, ElfFile, Symbol, Symbols};
use unspool_rows::Vaddr;

use crate::error::TypesError;
use crate::index::{DieIndex, DieRef};
use crate::split::{SplitFiles, SplitUnits, units};

mod activation;
mod call_sites;
mod evaluate;
mod function;
mod type_paths;
mod value;

pub use activation::{Activation, ParameterAtEntry};
pub use evaluate::VariableUnavailable;

pub use function::{DwarfFunction, FrameFunction, RustTypes, Variable};
pub use value::PartialValue;

pub use crate::unit::{Variant, VariantPart};

/// The location of a frame of a stack.
#[derive(Clone, Copy)]
pub struct VariableFrame<'s, 'a> {
    /// The variables of its module.
    pub variables: &'s Variables<'a>,
    /// The look-up address, as linked: of the call, for a return address.
    pub lookup: Vaddr,
    /// The return address into the frame, as linked; `None` if the frame is not at a call.
    pub returns_to: Option<Vaddr>,
    /// The difference from link-time addresses to the process's.
    pub bias: u64,
}

/// A stack of frames, the innermost first, in a stopped process.
pub trait VariableStack<'a> {
    /// A frame; `None` if the number is too large, or the frame's module has no debug information.
    fn frame(&self, number: usize) -> Option<VariableFrame<'_, 'a>>;

    /// A general-purpose register of a frame, by its DWARF number; `None` if its value is lost.
    fn register(&self, number: usize, register: u16) -> Option<u64>;

    /// The CFA of a frame.
    fn cfa(&self, number: usize) -> Option<u64>;

    /// Reads memory; returns whether all bytes could be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// The address of the thread's data at an offset, in bytes, in the thread-local storage of a
    /// frame's module.
    ///
    /// # Errors
    ///
    /// [`VariableUnavailable::ThreadLocal`].
    fn thread_local(&self, number: usize, offset: u64) -> Result<u64, VariableUnavailable>;

    /// The target of the call that a frame is at, as an address of the process; `None` if the code
    /// and the rest of the frame do not determine it.
    fn callee_address(&self, number: usize) -> Option<u64>;

    /// A general-purpose register when the frame's function was called, if the code proves it. Used
    /// if there is no call site.
    fn at_entry(&self, number: usize, register: u16) -> Option<u64>;
}

/// The functions of a unit, by their addresses.
type UnitFunctions = Rc<[(Range<u64>, DieRef)]>;

/// The variables of a module's functions, from its debug information.
pub struct Variables<'a> {
    index: Rc<DieIndex<'a>>,
    splits: SplitUnits<'a>,
    /// The code of the units, by its addresses.
    units: Vec<(Range<u64>, DieRef)>,
    /// The functions of units, read on demand.
    functions: RefCell<HashMap<DieRef, UnitFunctions>>,
    /// The functions read so far, by the unit's entry and by the function's entry in the unit or
    /// its split part.
    described: RefCell<HashMap<(DieRef, DieRef), Rc<DwarfFunction<'a>>>>,
    module: &'a ElfFile,
    files: &'a DebugFiles,
    symbols: OnceCell<Symbols>,
    named: RefCell<HashMap<String, Option<Vaddr>>>,
}

impl<'a> Variables<'a> {
    /// The variables in a module's DWARF, in the module or in its debug files. Reads the header of
    /// each unit. Without DWARF no function is found. Files of split units (`-gsplit-dwarf`) are
    /// opened on demand: packages beside the files, then `.dwo` files at the units' paths, and
    /// beside the files.
    ///
    /// # Errors
    ///
    /// A section cannot be read, or its abbreviations overlap. Units with errors are skipped.
    pub fn from_module(
        module: &'a ElfFile,
        files: &'a DebugFiles,
        splits: &'a SplitFiles,
    ) -> Result<Variables<'a>, TypesError> {
        let (index, splits) = units(module, files, splits)?;
        let mut units = Vec::new();
        for (kind, root) in index.roots() {
            let Ok(entry) = index.entry(root) else {
                continue;
            };
            if matches!(kind, UnitType::Compilation | UnitType::Skeleton(_))
                && let Ok(ranges) = index.ranges(root, &entry)
            {
                units.extend(ranges.into_iter().map(|range| (range, root)));
            }
        }
        units.sort_unstable_by_key(|(range, root)| (range.start, root.offset));
        Ok(Variables {
            index,
            splits,
            units,
            functions: RefCell::default(),
            described: RefCell::default(),
            module,
            files,
            symbols: OnceCell::new(),
            named: RefCell::default(),
        })
    }

    /// The path of the module.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.module.path()
    }

    /// Whether debug information describes no code.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The function at an address; `None` if none is described.
    ///
    /// # Errors
    ///
    /// The entries of the unit or of the function cannot be read.
    pub fn function(&self, address: Vaddr) -> Result<Option<Rc<DwarfFunction<'a>>>, TypesError> {
        let Some(root) = find_range(&self.units, address) else {
            return Ok(None);
        };
        let Some((index, rest)) = self.splits.split_unit(&self.index, root) else {
            return Ok(None);
        };
        let functions = self.functions_of(root, &index, rest)?;
        let Some(place) = find_range(&functions, address) else {
            return Ok(None);
        };
        if let Some(known) = self.described.borrow().get(&(root, place)) {
            return Ok(Some(Rc::clone(known)));
        }
        let function = Rc::new(DwarfFunction::read(&index, rest, place)?);
        let kept = Rc::clone(&function);
        self.described.borrow_mut().insert((root, place), kept);
        Ok(Some(function))
    }

    /// The reasons why split parts of units are missing, since the last call (`-gsplit-dwarf`).
    #[must_use]
    pub fn take_problems(&self) -> Vec<TypesError> {
        self.splits.take_problems()
    }

    /// The start of the function with an external name.
    fn address_of(&self, name: &str) -> Option<Vaddr> {
        if let Some(known) = self.named.borrow().get(name) {
            return *known;
        }
        let debug = self.files.debug.as_deref();
        let symbols = self
            .symbols
            .get_or_init(|| Symbols::new(self.module, debug));
        let functions = symbols.named(name).filter(|own| own.is_function);
        // A hidden function of a shared object is local in its symbol table.
        let mut best: Vec<Symbol<'_>> = functions.collect();
        let binding = best.iter().map(|own| own.binding != Binding::Local).max();
        best.retain(|own| Some(own.binding != Binding::Local) == binding);
        let first = best.first().map(|own| own.address);
        let address = first.filter(|first| best.iter().all(|own| own.address == *first));
        let mut known = self.named.borrow_mut();
        known.insert(name.to_owned(), address);
        address
    }

    /// The functions of a unit, from its split part if it has one.
    fn functions_of(
        &self,
        root: DieRef,
        index: &DieIndex<'a>,
        rest: DieRef,
    ) -> Result<UnitFunctions, TypesError> {
        if let Some(known) = self.functions.borrow().get(&root) {
            return Ok(Rc::clone(known));
        }
        let mut functions = Vec::new();
        index.descendants(rest, |place, _, entry| {
            if entry.tag() == gimli::DW_TAG_subprogram {
                let ranges = index.ranges(place, entry)?.into_iter();
                functions.extend(ranges.map(|range| (range, place)));
            }
            Ok(has_functions(entry.tag()))
        })?;
        functions.sort_unstable_by_key(|(range, place)| (range.start, place.offset));
        let functions: UnitFunctions = functions.into();
        let kept = Rc::clone(&functions);
        self.functions.borrow_mut().insert(root, kept);
        Ok(functions)
    }
}

/// The entry at an address: among overlapping ranges, the one that begins last.
fn find_range(sorted: &[(Range<u64>, DieRef)], address: Vaddr) -> Option<DieRef> {
    let behind = sorted.partition_point(|(range, _)| range.start <= address.0);
    let before = sorted.get(..behind)?.iter().rev();
    let mut near = before.take(MAX_OVERLAPPING_RANGES);
    let (_, place) = near.find(|(range, _)| address.0 < range.end)?;
    Some(*place)
}

/// The maximum number of ranges to skip that begin and end before an address: an earlier one may
/// still contain it.
const MAX_OVERLAPPING_RANGES: usize = 64;

/// Whether entries below one with this tag can be functions with code.
fn has_functions(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_subprogram
            | gimli::DW_TAG_lexical_block
    )
}
