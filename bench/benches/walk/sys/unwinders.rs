//! The native part of each peer.

use std::arch::asm;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, with_exposed_provenance};

use super::descent::OwnStack;
use super::library::Library;

/// The word at an address of the stack, if it is aligned and above `lowest`.
#[inline(always)]
pub(crate) fn read_word(stack: &OwnStack, lowest: u64, address: u64) -> Option<u64> {
    let end = stack.bounds().end;
    if address < lowest || address > end - 8 || !address.is_multiple_of(8) {
        return None;
    }
    let word: *const u64 = with_exposed_provenance(usize::try_from(address).ok()?);
    // SAFETY: the word is aligned and in the used part of this thread's stack: callers pass an
    // address of a live frame as `lowest`. Nothing else writes to it meanwhile; the read is
    // volatile, since Rust knows of no object there.
    Some(unsafe { word.read_volatile() })
}

/// Walks by frame pointers, from the workload's innermost frame; checks each against the stack's
/// bounds and its direction.
pub(crate) fn frame_pointers(stack: &OwnStack, out: &mut [u64]) -> usize {
    let (mut lowest, mut frame) = (stack.frame, stack.frame);
    let mut count = 0;
    for slot in out {
        // The return address is adjacent, so it is within the bounds, too.
        let Some(caller) = read_word(stack, lowest, frame) else {
            break;
        };
        let Some(address) = read_word(stack, lowest, frame + 8) else {
            break;
        };
        *slot = address;
        count += 1;
        lowest = frame + 16;
        frame = caller;
    }
    count
}

/// Registers from which a walk can start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartRegisters {
    pub(crate) rip: u64,
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
}

/// The registers in the function that this is inlined into.
#[inline(always)]
pub(crate) fn registers() -> StartRegisters {
    let (rip, rsp, rbp): (u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        asm!(
            "lea {rip}, [rip]",
            "mov {rsp}, rsp",
            "mov {rbp}, rbp",
            rip = out(reg) rip,
            rsp = out(reg) rsp,
            rbp = out(reg) rbp,
            options(nomem, nostack, preserves_flags),
        );
    }
    StartRegisters { rip, rsp, rbp }
}

/// `backtrace` of glibc and `unw_backtrace` of libunwind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backtrace(BacktraceFn);

type BacktraceFn = unsafe extern "C" fn(*mut u64, c_int) -> c_int;

impl Backtrace {
    /// The function of a library, by the symbol `backtrace` or `unw_backtrace`.
    pub(crate) fn from_library(library: Library, symbol: BacktraceSymbol) -> anyhow::Result<Self> {
        let name = match symbol {
            BacktraceSymbol::Glibc => c"backtrace",
            BacktraceSymbol::Libunwind => c"unw_backtrace",
        };
        let address = library.symbol(name)?.as_ptr();
        // SAFETY: both are `int (void **, int)` (backtrace(3), unw_backtrace(3)).
        Ok(Backtrace(unsafe {
            transmute::<*mut c_void, BacktraceFn>(address)
        }))
    }

    pub(crate) fn walk(self, out: &mut [u64]) -> usize {
        let most = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: there is room for `most` pointers.
        let count = unsafe { (self.0)(out.as_mut_ptr(), most) };
        usize::try_from(count).unwrap_or(0)
    }
}

/// The functions of that form.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BacktraceSymbol {
    Glibc,
    Libunwind,
}

type OnFrame = unsafe extern "C" fn(*mut c_void, *mut BacktraceOutput<'_>) -> c_int;
type UnwindBacktraceFn = unsafe extern "C" fn(OnFrame, *mut BacktraceOutput<'_>) -> c_int;
type GetIp = unsafe extern "C" fn(*mut c_void) -> usize;

/// `_Unwind_Backtrace` of any library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnwindBacktrace {
    walk: UnwindBacktraceFn,
    ip: GetIp,
}

struct BacktraceOutput<'a> {
    ip: GetIp,
    out: &'a mut [u64],
    count: usize,
}

impl UnwindBacktrace {
    pub(crate) fn from_library(library: Library) -> anyhow::Result<Self> {
        let walk = library.symbol(c"_Unwind_Backtrace")?.as_ptr();
        let ip = library.symbol(c"_Unwind_GetIP")?.as_ptr();
        Ok(UnwindBacktrace {
            // SAFETY: the type is that of the Itanium C++ ABI's level 1 with GCC's extension.
            walk: unsafe { transmute::<*mut c_void, UnwindBacktraceFn>(walk) },
            // SAFETY: as above.
            ip: unsafe { transmute::<*mut c_void, GetIp>(ip) },
        })
    }

    pub(crate) fn walk(self, out: &mut [u64]) -> usize {
        let mut found = BacktraceOutput {
            ip: self.ip,
            out,
            count: 0,
        };
        // SAFETY: `on_frame` gets a context and `found`, as it requires.
        unsafe { (self.walk)(on_frame, &raw mut found) };
        found.count
    }
}

/// # Safety
///
/// `context` is from `_Unwind_Backtrace`, and `found` has no other users.
unsafe extern "C" fn on_frame(context: *mut c_void, found: *mut BacktraceOutput<'_>) -> c_int {
    const GO_ON: c_int = 0; // _URC_NO_REASON
    const STOP: c_int = 5; // _URC_END_OF_STACK
    // SAFETY: guaranteed by the caller.
    let found = unsafe { &mut *found };
    let Some(slot) = found.out.get_mut(found.count) else {
        return STOP;
    };
    // SAFETY: the context is from the same library as `ip`.
    *slot = unsafe { (found.ip)(context) } as u64;
    found.count += 1;
    if found.count == found.out.len() {
        STOP
    } else {
        GO_ON
    }
}

/// The cursor of libunwind's interface for the own stack, which LLVM's library has, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnwCursor {
    get_context: BufferFn,
    init: Init,
    step: BufferFn,
    get: GetRegister,
    ip: c_int,
}

type BufferFn = unsafe extern "C" fn(*mut OpaqueBuffer) -> c_int;
type Init = unsafe extern "C" fn(*mut OpaqueBuffer, *mut OpaqueBuffer) -> c_int;
type GetRegister = unsafe extern "C" fn(*mut OpaqueBuffer, c_int, *mut u64) -> c_int;

/// The implementation: names and numbers differ.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    Nongnu,
    Llvm,
}

/// Room for a context (at most 968 bytes, a `ucontext_t`) or a cursor (at most 127 words).
#[repr(C, align(64))]
struct OpaqueBuffer([u64; 256]);

impl UnwCursor {
    pub(crate) fn from_library(library: Library, dialect: Dialect) -> anyhow::Result<Self> {
        let (names, ip): ([&CStr; 4], c_int) = match dialect {
            Dialect::Nongnu => (
                [
                    c"_Ux86_64_getcontext",
                    c"_ULx86_64_init_local",
                    c"_ULx86_64_step",
                    c"_ULx86_64_get_reg",
                ],
                16, // UNW_X86_64_RIP
            ),
            Dialect::Llvm => (
                [
                    c"unw_getcontext",
                    c"unw_init_local",
                    c"unw_step",
                    c"unw_get_reg",
                ],
                -1, // UNW_REG_IP
            ),
        };
        let [get_context, init, step, get] = names;
        let find = |name| anyhow::Ok(library.symbol(name)?.as_ptr());
        let (get_context, init) = (find(get_context)?, find(init)?);
        let (step, get) = (find(step)?, find(get)?);
        Ok(UnwCursor {
            // SAFETY: int (unw_context_t *), per libunwind.h.
            get_context: unsafe { transmute::<*mut c_void, BufferFn>(get_context) },
            // SAFETY: int (unw_cursor_t *, unw_context_t *).
            init: unsafe { transmute::<*mut c_void, Init>(init) },
            // SAFETY: int (unw_cursor_t *).
            step: unsafe { transmute::<*mut c_void, BufferFn>(step) },
            // SAFETY: int (unw_cursor_t *, int, unw_word_t *).
            get: unsafe { transmute::<*mut c_void, GetRegister>(get) },
            ip,
        })
    }

    pub(crate) fn walk(self, out: &mut [u64]) -> usize {
        let mut context = OpaqueBuffer([0; 256]);
        let mut cursor = OpaqueBuffer([0; 256]);
        // SAFETY: there is room for a context; it is only used while this frame exists.
        unsafe { (self.get_context)(&raw mut context) };
        // SAFETY: there is room for a cursor, and the context has been filled in.
        if unsafe { (self.init)(&raw mut cursor, &raw mut context) } != 0 {
            return 0;
        }
        let mut count = 0;
        for slot in out {
            // SAFETY: the cursor is initialised and the register number is valid for it.
            if unsafe { (self.get)(&raw mut cursor, self.ip, &raw mut *slot) } != 0 {
                break;
            }
            count += 1;
            // SAFETY: the cursor is initialised.
            if unsafe { (self.step)(&raw mut cursor) } <= 0 {
                break;
            }
        }
        count
    }
}

/// The sharing of libunwind's cache of register states.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CachingPolicy {
    None = 0,
    Global = 1,
    PerThread = 2,
}

/// Sets it for one copy of the library.
pub(crate) fn set_caching_policy(library: Library, policy: CachingPolicy) -> anyhow::Result<()> {
    type SetPolicyFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    let space = local_address_space(library)?;
    let set = library.symbol(c"_ULx86_64_set_caching_policy")?.as_ptr();
    // SAFETY: int (unw_addr_space_t, unw_caching_policy_t), per libunwind.h.
    let set = unsafe { transmute::<*mut c_void, SetPolicyFn>(set) };
    // SAFETY: the space is the local one and the policy a valid one.
    let failed = unsafe { set(space, policy as c_int) };
    anyhow::ensure!(failed == 0, "unw_set_caching_policy: {failed}");
    Ok(())
}

/// Sets the number of entries of that cache.
pub(crate) fn set_cache_size(library: Library, entries: usize) -> anyhow::Result<()> {
    type SetSizeFn = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
    let space = local_address_space(library)?;
    let set = library.symbol(c"_ULx86_64_set_cache_size")?.as_ptr();
    // SAFETY: int (unw_addr_space_t, size_t, int), per libunwind.h.
    let set = unsafe { transmute::<*mut c_void, SetSizeFn>(set) };
    // SAFETY: the space is the local one, and flags must be 0.
    let failed = unsafe { set(space, entries, 0) };
    anyhow::ensure!(failed == 0, "unw_set_cache_size: {failed}");
    Ok(())
}

fn local_address_space(library: Library) -> anyhow::Result<*mut c_void> {
    let space: NonNull<*mut c_void> = library.symbol(c"_ULx86_64_local_addr_space")?.cast();
    // SAFETY: the symbol is a variable of type unw_addr_space_t, a pointer, set from the start.
    Ok(unsafe { space.read() })
}
