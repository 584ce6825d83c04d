//! The descent through the workload's functions.

use std::ffi::{c_long, c_void};
use std::ops::Range;

use anyhow::Context as _;

use crate::source::SITES;

use super::library::{Library, stack_of_thread};

/// A function of the workload.
type WorkFunction = unsafe extern "C" fn(*mut Descent, c_long) -> c_long;

/// The action of one frame: it calls `callee` at its call site number `site`.
///
/// `struct step` of the C source.
#[repr(C)]
struct DescentStep {
    callee: WorkFunction,
    site: c_long,
    /// The return address that the frame recorded on entry.
    from: u64,
}

/// `struct descent` of the C source.
#[repr(C)]
struct Descent {
    next: *mut DescentStep,
    work: unsafe extern "C" fn(*mut c_void, *const c_void),
    data: *mut c_void,
}

/// Where a walk by frame pointers starts, and the readable range.
#[derive(Debug, Clone)]
pub(crate) struct OwnStack {
    /// The frame pointer of the innermost function of the workload.
    pub(crate) frame: u64,
    /// The memory of the whole stack. It is readable from `frame` on.
    bounds: Range<u64>,
}

impl OwnStack {
    /// The stack of this thread, with functions that do not use frame pointers.
    pub(super) fn without_frame_pointers() -> anyhow::Result<Self> {
        let bounds = stack_of_thread()?;
        Ok(OwnStack { frame: 0, bounds })
    }

    /// The memory of the whole stack: addresses.
    pub(crate) fn bounds(&self) -> Range<u64> {
        self.bounds.clone()
    }
}

struct DescentWork<'a> {
    work: &'a mut dyn FnMut(&OwnStack),
    bounds: Range<u64>,
}

/// The functions of the workload.
#[derive(Clone)]
pub(crate) struct WorkFunctions {
    all: Vec<WorkFunction>,
    bottom: WorkFunction,
}

impl WorkFunctions {
    /// The functions of all `objects`: with n objects, each has every n-th of `count` functions.
    pub(crate) fn load(objects: &[Library], count: usize) -> anyhow::Result<Self> {
        let mut tables = Vec::new();
        let mut bottom = None;
        for (number, object) in objects.iter().enumerate() {
            let table = object.symbol(c"functions")?.cast::<WorkFunction>();
            let length = (number..count).step_by(objects.len()).count();
            // SAFETY: the object's source has a table of this many functions, which is never
            // changed; the object is never closed.
            tables.push(unsafe { std::slice::from_raw_parts(table.as_ptr(), length) });
            let symbol = object.symbol(c"bottom")?.as_ptr();
            // SAFETY: the source defines `bottom` as a function of this type.
            bottom = Some(unsafe { std::mem::transmute::<*mut c_void, WorkFunction>(symbol) });
        }
        let nth = |number: usize| {
            let table = tables.get(number % objects.len())?;
            table.get(number / objects.len()).copied()
        };
        Ok(WorkFunctions {
            all: (0..count).map_while(nth).collect(),
            bottom: bottom.context("no objects")?,
        })
    }
}

/// A call instruction of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallInstruction {
    pub(crate) function: usize,
    pub(crate) number: usize,
}

/// A path through the functions, and their records.
pub(crate) struct DescentPath {
    first: WorkFunction,
    steps: Vec<DescentStep>,
}

impl DescentPath {
    /// The path through these call sites, outermost first.
    pub(crate) fn new(
        functions: &WorkFunctions,
        sites: &[CallInstruction],
    ) -> anyhow::Result<Self> {
        let callees: Option<Vec<WorkFunction>> = sites
            .iter()
            .map(|site| functions.all.get(site.function).copied())
            .chain([Some(functions.bottom)])
            .collect();
        let callees = callees.context("no such function")?;
        let numbers = sites.iter().map(|site| site.number % SITES).chain([0]);
        let inner = callees.iter().skip(1).chain([&functions.bottom]);
        let steps: Result<Vec<DescentStep>, _> = inner
            .zip(numbers)
            .map(|(&callee, number)| {
                let site = c_long::try_from(number)?;
                anyhow::Ok(DescentStep {
                    callee,
                    site,
                    from: 0,
                })
            })
            .collect();
        Ok(DescentPath {
            first: *callees.first().context("no way")?,
            steps: steps?,
        })
    }

    /// The number of its frames, without the innermost function's.
    pub(crate) fn depth(&self) -> usize {
        self.steps.len() - 1
    }

    /// The return addresses that the functions recorded on entry, innermost first. They are zero
    /// before the first descent.
    pub(crate) fn return_addresses(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().skip(1).rev().map(|step| step.from)
    }

    /// Descends and calls `work` at the end.
    pub(crate) fn descend(&mut self, work: &mut dyn FnMut(&OwnStack)) -> anyhow::Result<()> {
        let bounds = stack_of_thread()?;
        let mut work = DescentWork { work, bounds };
        let mut descent = Descent {
            next: self.steps.as_mut_ptr(),
            work: at_bottom,
            data: (&raw mut work).cast(),
        };
        // SAFETY: each function takes one step and calls that step's callee at an existing call
        // site; the innermost takes the last step and calls `work`. `new` has prepared that, and
        // all pointers are valid.
        unsafe { (self.first)(&raw mut descent, 1) };
        Ok(())
    }
}

/// # Safety
///
/// `work` is a `DescentWork` without other users, and `frame` the frame address of a caller.
unsafe extern "C" fn at_bottom(work: *mut c_void, frame: *const c_void) {
    // SAFETY: guaranteed by the caller.
    let work = unsafe { &mut *work.cast::<DescentWork<'_>>() };
    let stack = OwnStack {
        frame: frame.addr() as u64,
        bounds: work.bounds.clone(),
    };
    (work.work)(&stack);
}
