//! The C functions for the own process, and the callbacks of its address space.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;

use unspool_exceptions::generated_code;
use unspool_rows::{CodeAddr, Memory, Register, RuntimeAddr};
use unspool_unwind::local::{self, ABI, BufferPool, OwnMemory, rules, stats};
use unspool_unwind::steps::StepCache;
use unspool_unwind::{InnermostFrame, Memo, Walker};

use crate::abi::{self, Accessors, Error, OpaqueCursor, ProcInfo, RegisterNumber, UnwWord};
use crate::client::Client;
use crate::cursor::ClientCursor;
use crate::names;
use crate::own_process;
use crate::space::AddressSpace;
use crate::sys::context::{self, call_with_context};
use crate::sys::dynamic;
use crate::sys::name::put_name;
use crate::sys::objects;
use crate::sys::ptrace::{access_fpreg, put_unwind_info};

/// The address space of the own process. Its callbacks' argument is a context. Callbacks that do
/// nothing are those of [`ptrace`](super::ptrace).
static OWN: AddressSpace = AddressSpace::own(ACCESSORS, &CACHE);

/// Static, because local unwinding does not use the heap.
static CACHE: StepCache = StepCache::empty();

const ACCESSORS: Accessors = Accessors {
    find_proc_info: Some(find_proc_info),
    put_unwind_info: Some(put_unwind_info),
    get_dyn_info_list_addr: Some(get_dyn_info_list_addr),
    access_mem: Some(access_mem),
    access_reg: Some(access_reg),
    access_fpreg: Some(access_fpreg),
    resume: Some(resume),
    get_proc_name: Some(get_proc_name),
    get_elf_filename: Some(get_elf_filename),
    ..Accessors::NONE
};

/// `unw_local_addr_space`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_local_addr_space")
)]
pub static LOCAL_ADDR_SPACE: &AddressSpace = &OWN;

/// `unw_local_addr_space` of `UNW_LOCAL_ONLY`. It is not an alias of the other variable, because
/// programs copy variables (copy relocations).
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_ULx86_64_local_addr_space")
)]
pub static LOCAL_ONLY_ADDR_SPACE: &AddressSpace = &OWN;

/// The initializer of a library that walks the own stack. It finds the modules that are never
/// unloaded, so that no walk has to check for them, and the program's list of registered code. It
/// reads the environment's settings of rule memory, of counting backtraces, and of the form of
/// tables. Takes the loader's lock, which the loader has then.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "unspool_loaded"))]
pub extern "C" fn on_load() {
    local::modules().prepare();
    objects::init();
    dynamic::find_list();
    generated_code::set_registry(&own_process::RegisteredCode);
    rules::begin();
    stats::begin();
}

/// The finalizer of a library that makes backtraces: called when it is unloaded, or when the
/// process ends.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "unspool_unloaded"))]
pub extern "C" fn on_unload() {
    stats::print();
}

/// A frame with its registers in a context.
pub(crate) fn cursor(context: *mut c_void, is_interrupted: bool) -> ClientCursor<'static> {
    let client = Client {
        space: &OWN,
        argument: context,
    };
    let (stored, address) = (ContextRegisters::of_call(context), |number| {
        context::address(context, number)
    });
    let (code, stack_pointer) = (stored.register(16), stored.register(7));
    ClientCursor::stored(client, code, stack_pointer, address, is_interrupted)
}

/// `unw_init_local`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_init_local"))]
pub extern "C" fn init_local(
    into: &mut MaybeUninit<ClientCursor<'static>>,
    context: *mut c_void,
) -> c_int {
    init_local2(into, context, 0)
}

/// `UNW_INIT_SIGNAL_FRAME`: the context is a signal handler's argument.
const SIGNAL_FRAME: c_int = 1;

/// `unw_init_local2`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_init_local2")
)]
pub extern "C" fn init_local2(
    into: &mut MaybeUninit<ClientCursor<'static>>,
    context: *mut c_void,
    flags: c_int,
) -> c_int {
    if !matches!(flags, 0 | SIGNAL_FRAME) {
        return Error::INVALID.0;
    }
    into.write(cursor(context, flags == SIGNAL_FRAME));
    0
}

unsafe extern "C" fn find_proc_info(
    _space: *mut AddressSpace,
    ip: UnwWord,
    info: *mut ProcInfo,
    _need_unwind_info: c_int,
    _context: *mut c_void,
) -> c_int {
    let found = own_process::procedure_info(RuntimeAddr(ip));
    Error::code_of(found.map(|found| {
        // SAFETY: the interface's contract.
        unsafe { info.write(found) };
    }))
}

unsafe extern "C" fn get_dyn_info_list_addr(
    _space: *mut AddressSpace,
    address: *mut UnwWord,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the interface's contract.
    unsafe { address.write(dynamic::list_addr()) };
    0
}

unsafe extern "C" fn access_mem(
    _space: *mut AddressSpace,
    addr: UnwWord,
    value: *mut UnwWord,
    write: c_int,
    _context: *mut c_void,
) -> c_int {
    if write != 0 {
        // SAFETY: the interface's contract.
        let value = unsafe { value.read() };
        // SAFETY: a caller that writes through the own address space is responsible for it.
        unsafe { pointer(addr).cast::<UnwWord>().write_unaligned(value) };
        return 0;
    }
    let mut word = [0; 8];
    let read = OwnMemory::with_own_stack().read(RuntimeAddr(addr), &mut word);
    Error::code_of(read.map_err(|_| Error::INVALID).map(|()| {
        // SAFETY: the interface's contract.
        unsafe { value.write(UnwWord::from_le_bytes(word)) };
    }))
}

fn pointer(addr: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
}

unsafe extern "C" fn access_reg(
    _space: *mut AddressSpace,
    register: RegisterNumber,
    value: *mut UnwWord,
    write: c_int,
    context: *mut c_void,
) -> c_int {
    let Some(register @ 0..=abi::RIP_NUMBER) = u16::try_from(register).ok() else {
        return Error::BAD_REGISTER.0;
    };
    let stored: *mut UnwWord = pointer(context::address(context, register)).cast();
    let (from, to) = match write {
        0 => (stored, value),
        _ => (value, stored),
    };
    // SAFETY: the caller's promise for `value`; the register is in the context.
    let word = unsafe { from.read() };
    // SAFETY: as above.
    unsafe { to.write(word) };
    0
}

/// Continues in a frame. [`ClientCursor::establish`] has put its registers into the context, or the
/// kernel has stored them for a signal.
unsafe extern "C" fn resume(
    _space: *mut AddressSpace,
    opaque: *mut OpaqueCursor,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the interface's contract; both of its sides are in this library.
    let cursor = unsafe { &*opaque.cast::<ClientCursor<'static>>() };
    if let Some(stored) = cursor.interrupted_at() {
        let kernel = stored.wrapping_sub(context::CODE_ADDRESS);
        for (register, value) in cursor.values().iter() {
            let addr = context::address(pointer(kernel), register.0);
            // SAFETY: a register in the kernel's context, which was read before.
            unsafe { pointer(addr).cast::<UnwWord>().write(value) };
        }
        // SAFETY: the frame was interrupted there.
        unsafe { context::return_from_signal(kernel) }
    }
    // SAFETY: the frame belongs to this thread.
    unsafe { context::enter(context) }
}

unsafe extern "C" fn get_proc_name(
    _space: *mut AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    _context: *mut c_void,
) -> c_int {
    let put = |name: &[u8], distance| {
        // SAFETY: the interface's contract.
        unsafe { put_name(name, buffer, length, distance, offset) }
    };
    Error::code_of(match dynamic::registered(ip) {
        Some(info) if info.table.name_ptr != 0 => {
            let name = dynamic::string(info.table.name_ptr).ok_or(Error::INVALID);
            name.and_then(|name| put(name, ip.wrapping_sub(info.start_ip)))
        }
        _ => names::function(ip, put),
    })
}

unsafe extern "C" fn get_elf_filename(
    _space: *mut AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    _context: *mut c_void,
) -> c_int {
    if dynamic::registered(ip).is_some() {
        return Error::NO_INFO.0;
    }
    Error::code_of(names::file(ip, |path, distance| {
        // SAFETY: the interface's contract.
        unsafe { put_name(path, buffer, length, distance, offset) }
    }))
}

/// `unw_backtrace`: the caller's address, its caller's, and so on.
///
/// # Safety
///
/// `buffer` has room for `size` addresses.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "unw_backtrace"))]
#[unsafe(naked)]
pub unsafe extern "C" fn backtrace(buffer: *mut RuntimeAddr, size: c_int) -> c_int {
    call_with_context!("rdx", walk)
}

/// Memos of last walks. They may be any thread's, since a walk that uses one compares every word.
static MEMOS: BufferPool<Memo> = BufferPool::new();

unsafe extern "C" fn walk(buffer: *mut RuntimeAddr, size: c_int, context: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { walk_from(buffer, size, &ContextRegisters::of_call(context)) }
}

/// `unw_backtrace2`: a context's address, its caller's, and so on. A null context is the caller's.
///
/// # Safety
///
/// `buffer` has room for `size` addresses. `context` is null, from `unw_getcontext`, or with
/// `UNW_INIT_SIGNAL_FRAME` in `flags` a signal handler's argument.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "unw_backtrace2"))]
#[unsafe(naked)]
pub unsafe extern "C" fn backtrace2(
    buffer: *mut RuntimeAddr,
    size: c_int,
    context: *mut c_void,
    flags: c_int,
) -> c_int {
    call_with_context!("r8", walk_context)
}

unsafe extern "C" fn walk_context(
    buffer: *mut RuntimeAddr,
    size: c_int,
    context: *mut c_void,
    flags: c_int,
    own_context: *mut c_void,
) -> c_int {
    let top = match flags {
        _ if context.is_null() => ContextRegisters::of_call(own_context),
        0 => ContextRegisters::of_call(context),
        SIGNAL_FRAME => ContextRegisters {
            context,
            is_interrupted: true,
        },
        _ => return 0,
    };
    // SAFETY: the caller's promise.
    unsafe { walk_from(buffer, size, &top) }
}

/// # Safety
///
/// `buffer` has room for `size` addresses.
unsafe fn walk_from(buffer: *mut RuntimeAddr, size: c_int, top: &ContextRegisters) -> c_int {
    let size = usize::try_from(size).unwrap_or(0);
    if size == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; an address has the representation of a pointer.
    let addresses = unsafe { core::slice::from_raw_parts_mut(buffer, size) };
    if dynamic::is_any_registered() || objects::is_enabled() {
        return walk_by_steps(top, addresses);
    }
    let memory = OwnMemory::with_own_stack();
    let (walker, modules) = (Walker::new(ABI, rules::current()), local::modules());
    let walk = stats::counted(|| {
        MEMOS.with(|memo| match memo {
            Some(memo) => walker.walk_again(memo, top, modules, &memory, addresses),
            None => walker.walk(top, modules, &memory, addresses),
        })
    });
    c_int::try_from(walk.frames).unwrap_or(c_int::MAX)
}

/// Walks by steps: for registered code, which the walker does not know, or if machine code of
/// tables is to be used instead of its rules.
#[cold]
fn walk_by_steps(top: &ContextRegisters, addresses: &mut [RuntimeAddr]) -> c_int {
    let mut cursor = cursor(top.context, top.is_interrupted);
    let mut count = 0;
    for address in addresses {
        *address = RuntimeAddr(cursor.ip());
        count += 1;
        if cursor.step() <= 0 {
            break;
        }
    }
    count
}

/// A context with at least the registers that `call_with_context` stores, or after an interruption
/// with all.
struct ContextRegisters {
    context: *mut c_void,
    is_interrupted: bool,
}

impl ContextRegisters {
    /// The registers that a call preserves, except the stack and frame pointer.
    const PRESERVED: &[u16] = &[3, 12, 13, 14, 15];
    /// All others.
    const ALL: &[u16] = &[0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

    fn of_call(context: *mut c_void) -> Self {
        ContextRegisters {
            context,
            is_interrupted: false,
        }
    }

    fn register(&self, number: u16) -> u64 {
        let at = pointer(context::address(self.context, number));
        // SAFETY: the context has all registers requested below.
        unsafe { at.cast::<u64>().read() }
    }
}

impl InnermostFrame for ContextRegisters {
    fn code(&self) -> CodeAddr {
        let address = RuntimeAddr(self.register(16));
        if self.is_interrupted {
            CodeAddr::Instruction(address)
        } else {
            CodeAddr::Return(address)
        }
    }

    fn stack_pointer(&self) -> u64 {
        self.register(7)
    }

    fn frame_pointer(&self) -> u64 {
        self.register(6)
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        let numbers = if self.is_interrupted {
            Self::ALL
        } else {
            Self::PRESERVED
        };
        let numbers = numbers.iter();
        numbers.map(|number| (Register(*number), self.register(*number)))
    }
}
