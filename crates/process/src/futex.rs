//! Who holds what threads wait for in `futex`.

use std::collections::HashMap;

use unspool_rows::RuntimeAddr;

use crate::{Snapshot, Thread, registers};

/// From the word that is waited for, `__lock` of glibc's `pthread_mutex_t`, to `__owner`, in bytes.
const OWNER_OFFSET: u64 = 8;

/// By the IDs of threads in `futex`: the ID of another thread, where the owner would be if the
/// thread waits for a mutex of glibc. A running process must be stopped.
pub(crate) fn owners(snapshot: &dyn Snapshot) -> HashMap<u32, u32> {
    let Some(layout) = registers::layout(snapshot.abi().arch) else {
        return HashMap::new();
    };
    let threads = snapshot.threads().iter();
    let owner = |thread: &Thread| {
        thread.syscall.filter(|number| *number == layout.futex)?;
        let mutex = thread.registers.as_ref().ok()?.get(layout.first_argument)?;
        let mut bytes = [0; 4];
        let at = RuntimeAddr(mutex.checked_add(OWNER_OFFSET)?);
        snapshot.memory().read(at, &mut bytes).ok()?;
        let owner = u32::from_le_bytes(bytes);
        let is_thread = snapshot.threads().iter().any(|other| other.tid == owner);
        is_thread.then_some((thread.tid, owner))
    };
    threads.filter_map(owner).collect()
}
