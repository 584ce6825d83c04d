//! Memory that may be short, which is an error and not the end.

use alloc::alloc::{Layout, alloc, alloc_zeroed};
use alloc::boxed::Box;

use unspool_unwind::steps::StepCache;

use crate::objects::RemoteModules;

/// A type of which all-zero bytes are a value.
///
/// # Safety
///
/// They are.
pub(crate) unsafe trait Zero {}

// SAFETY: it consists of atomic integers.
unsafe impl Zero for StepCache {}

// SAFETY: it consists of atomic integers, and of values that are not set yet, which are zero.
unsafe impl Zero for RemoteModules {}

/// A zero value on the heap.
pub(crate) fn zeroed<T: Zero>() -> Option<Box<T>> {
    let layout = Layout::new::<T>();
    has_size(layout)?;
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        return None;
    }
    // SAFETY: fresh memory of the global allocator with the layout of `T`, all zero, which `Zero`
    // promises to be a value.
    Some(unsafe { Box::from_raw(memory) })
}

/// A value on the heap.
pub(crate) fn boxed<T>(value: T) -> Option<Box<T>> {
    let layout = Layout::new::<T>();
    has_size(layout)?;
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc(layout) }.cast::<T>();
    if memory.is_null() {
        return None;
    }
    // SAFETY: fresh memory with the layout of `T`.
    unsafe { memory.write(value) };
    // SAFETY: fresh memory of the global allocator that holds a `T` since the line above.
    Some(unsafe { Box::from_raw(memory) })
}

fn has_size(layout: Layout) -> Option<()> {
    (layout.size() != 0).then_some(())
}
