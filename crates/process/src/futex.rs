//! Who holds what threads wait for in `futex`.

use std::collections::{HashMap, HashSet};

use unspool_rows::RuntimeAddr;

use crate::{Snapshot, Thread, registers};

/// The operations that wait: `FUTEX_WAIT`, `_LOCK_PI`, `_WAIT_BITSET` and `_LOCK_PI2`.
const WAITING: [u64; 4] = [0, 6, 9, 13];
/// `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
const OPERATION_FLAGS: u64 = 128 | 256;
/// From the word that is waited for, `__lock` of glibc's `pthread_mutex_t`, to `__owner`, in bytes.
const OWNER_OFFSET: u64 = 8;

/// What a thread that waits in `futex` waits for, if that is a mutex of glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FutexOwner {
    /// The address of the mutex.
    pub mutex: RuntimeAddr,
    /// The ID of the thread that would hold it, perhaps the one that waits.
    pub tid: u32,
}

/// By the IDs of threads that wait in `futex`, for what, if the owner would be a thread. A running
/// process must be stopped. In another PID namespace there are none, or others.
pub(crate) fn owners(snapshot: &dyn Snapshot) -> HashMap<u32, FutexOwner> {
    let Some(layout) = registers::layout(snapshot.abi().arch) else {
        return HashMap::new();
    };
    let threads = snapshot.threads().iter();
    let ids: HashSet<u32> = threads.clone().map(|thread| thread.tid).collect();
    let owner = |thread: &Thread| {
        thread.syscall.filter(|number| *number == layout.futex)?;
        let registers = thread.registers.as_ref().ok()?;
        let [mutex, operation] = layout.arguments.map(|argument| registers.get(argument));
        let operation = operation? & !OPERATION_FLAGS & u64::from(u32::MAX);
        WAITING.contains(&operation).then_some(())?;
        let mutex = RuntimeAddr(mutex?);
        let mut bytes = [0; 4];
        let at = RuntimeAddr(mutex.0.checked_add(OWNER_OFFSET)?);
        snapshot.memory().read(at, &mut bytes).ok()?;
        let tid = u32::from_le_bytes(bytes);
        ids.contains(&tid)
            .then_some((thread.tid, FutexOwner { mutex, tid }))
    };
    threads.filter_map(owner).collect()
}
