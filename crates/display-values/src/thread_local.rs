//! The address of a module's thread-local storage in a thread.

use unspool_dwarf_types::variables::VariableStack as _;

use crate::variables::WalkedStack;

/// The start of the thread-local block of a frame's module in the frame's thread, or why it is
/// unknown.
///
/// On x86-64 the executable's block lies directly below the thread pointer, for any C library (ELF
/// Handling For Thread-Local Storage, §3.4.6: variant II). The dynamic loader has placed those of
/// shared objects.
pub(crate) fn block(walked: &WalkedStack<'_, '_>, number: usize) -> Result<u64, &'static str> {
    let register = walked.snapshot.abi().arch.spec().thread_pointer;
    let register = register.ok_or("where that is is known on x86-64 only")?;
    let frame = walked.stack.frames.get(number);
    let at = frame.and_then(|frame| walked.unwinder.locate(frame.code));
    let (Some(frame), Some(at)) = (frame, at) else {
        return Err("the frame has no module");
    };
    let file = &at.module.file;
    let bias = frame.code.address().0.wrapping_sub(at.address.0);
    let headers = file.program_headers_vaddr();
    let headers = headers.map(|headers| headers.0.wrapping_add(bias));
    if headers.is_none() || headers != walked.snapshot.auxv().phdr().map(|headers| headers.0) {
        return Err("that of shared objects is not looked for");
    }
    let segment = file.thread_local_segment();
    let segment = segment.ok_or("its file has none")?;
    let align = segment.align.max(1);
    if !align.is_power_of_two() {
        return Err("its alignment is not a power of two");
    }
    // The block's start is congruent to the segment's, and its end is at most the thread pointer,
    // which is aligned.
    let first = segment.vaddr.0.wrapping_neg() & (align - 1);
    let size = segment.mem_size.saturating_sub(first);
    let size = size.checked_next_multiple_of(align);
    let size = size.and_then(|size| size.checked_add(first));
    let pointer = walked.register(0, register.0);
    let pointer = pointer.ok_or("the thread pointer is not known")?;
    size.and_then(|size| pointer.checked_sub(size))
        .ok_or("it is larger than the address space")
}
