//! Memory that may be short, which is an error and not the end.

use alloc::alloc::{Layout, alloc, alloc_zeroed};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::Error;
use crate::cache::Slot;

/// A type of which all-zero bytes are a value.
///
/// # Safety
///
/// They are.
pub(crate) unsafe trait Zero {}

// SAFETY: it consists of `AtomicU64`.
unsafe impl Zero for Slot {}

/// So many zero values.
pub(crate) fn zeroed<T: Zero>(count: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(count).ok()?;
    has_size(layout)?;
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        return None;
    }
    let slice = core::ptr::slice_from_raw_parts_mut(memory, count);
    // SAFETY: fresh memory of the global allocator with the layout of `[T]`, all zero, which `Zero`
    // promises to be values.
    Some(unsafe { Box::from_raw(slice) })
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

/// A value that is made when it is first needed, and then stays.
#[derive(Debug)]
pub(crate) struct Late<T: 'static> {
    value: AtomicPtr<T>,
    /// It was not made here.
    is_static: bool,
}

impl<T> Late<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Late {
            value: AtomicPtr::new(core::ptr::null_mut()),
            is_static: false,
        }
    }

    /// A value that is there for good.
    pub(crate) const fn of_static(value: &'static T) -> Self {
        Late {
            value: AtomicPtr::new(core::ptr::from_ref(value).cast_mut()),
            is_static: true,
        }
    }

    /// The value, if it was made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: null, or static, or from `Box::into_raw` in `get_or_try_init`, whose store this load has
        // seen; freed only by `drop`.
        unsafe { value.as_ref() }
    }

    /// The value, made if it is not there. Of two threads that make one, one throws its own away.
    pub(crate) fn get_or_try_init(
        &self,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<&T, Error> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let made = boxed(make()?).ok_or(Error::NO_MEMORY)?;
        let made = Box::into_raw(made);
        let empty = core::ptr::null_mut();
        match self
            .value
            .compare_exchange(empty, made, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: from `Box::into_raw` above; freed only by `drop`.
            Ok(_) => Ok(unsafe { &*made }),
            Err(theirs) => {
                // SAFETY: from `Box::into_raw` above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, and so from another thread's `Box::into_raw`, whose store this
                // load has seen; freed only by `drop`.
                Ok(unsafe { &*theirs })
            }
        }
    }
}

impl<T> Drop for Late<T> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() && !self.is_static {
            // SAFETY: from `Box::into_raw`, and nobody can have a reference any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}
