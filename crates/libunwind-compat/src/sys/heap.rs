//! Fallible allocation: running out of memory is an error.

use alloc::alloc::{Layout, alloc, alloc_zeroed};
use alloc::boxed::Box;

use unspool_unwind::steps::StepCache;

use crate::objects::RemoteModules;

/// A type with all-zero bytes as a valid value.
///
/// # Safety
///
/// All-zero bytes are a valid value.
pub(crate) unsafe trait Zero {}

// SAFETY: it consists of atomic integers.
unsafe impl Zero for StepCache {}

// SAFETY: it consists of atomic integers, and of unset values, which are zero.
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
    // SAFETY: fresh memory of the global allocator with the layout of `T`, all zero, which is a
    // valid value by `Zero`.
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
