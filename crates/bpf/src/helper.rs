//! The kernel's helpers, named as `BPF_FUNC_…` (Linux, include/uapi/linux/bpf.h).

/// A function of the kernel with a stable number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Helper {
    id: i32,
    name: &'static str,
}

impl Helper {
    /// Looks up an element of a map. Null if there is none.
    pub const MAP_LOOKUP_ELEM: Helper = Helper::new(1, "map_lookup_elem");
    /// Sets an element of a map.
    pub const MAP_UPDATE_ELEM: Helper = Helper::new(2, "map_update_elem");
    /// Removes an element of a map.
    pub const MAP_DELETE_ELEM: Helper = Helper::new(3, "map_delete_elem");
    /// The time since boot in nanoseconds, without suspended time.
    pub const KTIME_GET_NS: Helper = Helper::new(5, "ktime_get_ns");
    /// A pseudo-random number.
    pub const GET_PRANDOM_U32: Helper = Helper::new(7, "get_prandom_u32");
    /// The current processor's number.
    pub const GET_SMP_PROCESSOR_ID: Helper = Helper::new(8, "get_smp_processor_id");
    /// The process ID in the upper half, the thread ID in the lower.
    pub const GET_CURRENT_PID_TGID: Helper = Helper::new(14, "get_current_pid_tgid");
    /// Writes the kernel's and the process' call chain to memory.
    pub const GET_STACK: Helper = Helper::new(67, "get_stack");
    /// Copies memory of the process. Fails at a page fault.
    pub const PROBE_READ_USER: Helper = Helper::new(112, "probe_read_user");
    /// Copies memory of the kernel.
    pub const PROBE_READ_KERNEL: Helper = Helper::new(113, "probe_read_kernel");
    /// Writes `struct bpf_pidns_info`: the current thread's IDs in a PID namespace. Fails if that is
    /// not the thread's own.
    pub const GET_NS_CURRENT_PID_TGID: Helper = Helper::new(120, "get_ns_current_pid_tgid");
    /// Appends a record to a ring buffer.
    pub const RINGBUF_OUTPUT: Helper = Helper::new(130, "ringbuf_output");
    /// Reserves a record in a ring buffer. Null if it is full.
    pub const RINGBUF_RESERVE: Helper = Helper::new(131, "ringbuf_reserve");
    /// Publishes a reserved record.
    pub const RINGBUF_SUBMIT: Helper = Helper::new(132, "ringbuf_submit");
    /// Discards a reserved record.
    pub const RINGBUF_DISCARD: Helper = Helper::new(133, "ringbuf_discard");
    /// The fill level of a ring buffer.
    pub const RINGBUF_QUERY: Helper = Helper::new(134, "ringbuf_query");
    /// Copies memory of the process. Waits for pages, so only for programs that may sleep.
    pub const COPY_FROM_USER: Helper = Helper::new(148, "copy_from_user");
    /// The current task, as a pointer with a BTF type.
    pub const GET_CURRENT_TASK_BTF: Helper = Helper::new(158, "get_current_task_btf");
    /// The cookie of the attachment.
    pub const GET_ATTACH_COOKIE: Helper = Helper::new(174, "get_attach_cookie");
    /// A task's registers at its entry to the kernel.
    pub const TASK_PT_REGS: Helper = Helper::new(175, "task_pt_regs");
    /// Calls a callback with the mapping of an address.
    pub const FIND_VMA: Helper = Helper::new(180, "find_vma");
    /// Calls a callback a number of times, or until it returns 1.
    pub const LOOP: Helper = Helper::new(181, "loop");
    /// Looks up another processor's element of a map.
    pub const MAP_LOOKUP_PERCPU_ELEM: Helper = Helper::new(195, "map_lookup_percpu_elem");

    /// All of the above.
    pub const ALL: &'static [Helper] = &[
        Helper::MAP_LOOKUP_ELEM,
        Helper::MAP_UPDATE_ELEM,
        Helper::MAP_DELETE_ELEM,
        Helper::KTIME_GET_NS,
        Helper::GET_PRANDOM_U32,
        Helper::GET_SMP_PROCESSOR_ID,
        Helper::GET_CURRENT_PID_TGID,
        Helper::GET_STACK,
        Helper::PROBE_READ_USER,
        Helper::PROBE_READ_KERNEL,
        Helper::GET_NS_CURRENT_PID_TGID,
        Helper::RINGBUF_OUTPUT,
        Helper::RINGBUF_RESERVE,
        Helper::RINGBUF_SUBMIT,
        Helper::RINGBUF_DISCARD,
        Helper::RINGBUF_QUERY,
        Helper::COPY_FROM_USER,
        Helper::GET_CURRENT_TASK_BTF,
        Helper::GET_ATTACH_COOKIE,
        Helper::TASK_PT_REGS,
        Helper::FIND_VMA,
        Helper::LOOP,
        Helper::MAP_LOOKUP_PERCPU_ELEM,
    ];

    const fn new(id: i32, name: &'static str) -> Helper {
        Helper { id, name }
    }

    /// Its number.
    #[must_use]
    pub fn id(self) -> i32 {
        self.id
    }

    /// Its name without `bpf_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name
    }
}
