//! Variables and parameters: which of them there are at an address, and what they are in a frame of a stack.
//!
//! [`Variables`] finds the function that an address is in, [`DwarfFunction::levels`] what can be named there, [`Activation::now`] what a variable is in a frame
//! (DWARF 5 §2.6: location descriptions), and [`Activation::at_entry`] what a parameter was when the function was called, as the call site
//! in the caller tells (§3.4).

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

/// Where a frame of a stack is.
#[derive(Clone, Copy)]
pub struct VariableFrame<'s, 'a> {
    /// The variables of the module that it is in.
    pub variables: &'s Variables<'a>,
    /// The address that describes it, as linked: of the call, for a return address.
    pub lookup: Vaddr,
    /// The address that it is returned to, as linked; `None` if it was not left by a call.
    pub returns_to: Option<Vaddr>,
    /// What to add to addresses as linked, for those of the process.
    pub bias: u64,
}

/// A stack of frames, the innermost first, in a process that stands still.
pub trait VariableStack<'a> {
    /// A frame; `None` if there is none of that number, or its module has no debug information.
    fn frame(&self, number: usize) -> Option<VariableFrame<'_, 'a>>;

    /// A general-purpose register of a frame, by its DWARF number; `None` if it is not known there any more.
    fn register(&self, number: usize, register: u16) -> Option<u64>;

    /// The CFA of a frame.
    fn cfa(&self, number: usize) -> Option<u64>;

    /// Fills in bytes of memory; whether that could be done.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Where the thread has its own copy of what is at an offset, in bytes, from the begin of the thread-local storage of a frame's module.
    ///
    /// # Errors
    ///
    /// [`VariableUnavailable::ThreadLocal`].
    fn thread_local(&self, number: usize, offset: u64) -> Result<u64, VariableUnavailable>;

    /// Where the call leads that a frame stands at, as an address of the process; `None` if its code and what is left of its frame do not tell.
    fn callee_address(&self, number: usize) -> Option<u64>;

    /// What a general-purpose register of a frame was when its function was called, if the code tells for certain. Asked where no call site does.
    fn at_entry(&self, number: usize, register: u16) -> Option<u64>;
}

/// The functions of a unit, by their addresses.
type UnitFunctions = Rc<[(Range<u64>, DieRef)]>;

/// The variables of a module's functions, as its debug information has them.
pub struct Variables<'a> {
    index: Rc<DieIndex<'a>>,
    splits: SplitUnits<'a>,
    /// The code of the units, by its addresses.
    units: Vec<(Range<u64>, DieRef)>,
    /// What was looked into so far.
    functions: RefCell<HashMap<DieRef, UnitFunctions>>,
    /// By where the unit is, and where the function is in it or in the rest of it.
    described: RefCell<HashMap<(DieRef, DieRef), Rc<DwarfFunction<'a>>>>,
    module: &'a ElfFile,
    files: &'a DebugFiles,
    symbols: OnceCell<Symbols>,
    named: RefCell<HashMap<String, Option<Vaddr>>>,
}

impl<'a> Variables<'a> {
    /// Those of a module that DWARF describes, in the module or in its debug files. Reads the header of each unit; no function is found
    /// without DWARF. The files that have the rest of units (`-gsplit-dwarf`) are opened when they are needed: packages beside the files, then `.dwo`
    /// files where units say that they are, and beside the files.
    ///
    /// # Errors
    ///
    /// A section cannot be read, or its abbreviations overlap. Units with errors are passed over.
    pub fn of_module(
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

    /// Where the module is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.module.path()
    }

    /// Whether there is no code that debug information describes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The function that an address is in; `None` if none is described.
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

    /// Why the rest of units is not there that was looked for since this was last asked (`-gsplit-dwarf`).
    #[must_use]
    pub fn take_problems(&self) -> Vec<TypesError> {
        self.splits.take_problems()
    }

    /// Where the function begins that other units and modules know by a name.
    fn address_of(&self, name: &str) -> Option<Vaddr> {
        if let Some(known) = self.named.borrow().get(name) {
            return *known;
        }
        let debug = self.files.debug.as_deref();
        let symbols = self
            .symbols
            .get_or_init(|| Symbols::new(self.module, debug));
        let functions = symbols.named(name).filter(|own| own.is_function);
        // What is hidden in a shared object is local in its symbol table.
        let mut best: Vec<Symbol<'_>> = functions.collect();
        let binding = best.iter().map(|own| own.binding != Binding::Local).max();
        best.retain(|own| Some(own.binding != Binding::Local) == binding);
        let first = best.first().map(|own| own.address);
        let address = first.filter(|first| best.iter().all(|own| own.address == *first));
        let mut known = self.named.borrow_mut();
        known.insert(name.to_owned(), address);
        address
    }

    /// The functions of a unit, the rest of which is there.
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

/// What is at an address: of ranges that overlap, that which begins last.
fn find_range(sorted: &[(Range<u64>, DieRef)], address: Vaddr) -> Option<DieRef> {
    let behind = sorted.partition_point(|(range, _)| range.start <= address.0);
    let before = sorted.get(..behind)?.iter().rev();
    let mut near = before.take(MAX_OVERLAPPING_RANGES);
    let (_, place) = near.find(|(range, _)| address.0 < range.end)?;
    Some(*place)
}

/// So many ranges that begin before an address and end before it, too, are looked at, one of which may be around it.
const MAX_OVERLAPPING_RANGES: usize = 64;

/// Whether functions that have code can be among the entries below one with this tag.
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
