//! The types and constants of `<libunwind.h>`, 1.6 to 1.8, for x86-64.
//!
//! Names are libunwind's in Rust's spelling; a test compiles the header and compares every size,
//! offset and value (`tests/it/abi.rs`).

use core::ffi::{c_char, c_int, c_void};

use crate::space::AddressSpace;

/// `unw_word_t`: a word of the target.
pub type UnwWord = u64;

/// `unw_regnum_t`: the number of a register, which is DWARF's.
pub type RegisterNumber = c_int;

/// `UNW_X86_64_RIP`, `UNW_REG_IP` and `UNW_REG_LAST`.
pub const RIP: RegisterNumber = 16;
/// [`RIP`] as a DWARF register number.
pub(crate) const RIP_NUMBER: u16 = 16;
/// `UNW_X86_64_RSP` and `UNW_REG_SP`.
pub const RSP: RegisterNumber = 7;
/// [`RSP`] as a DWARF register number.
pub(crate) const RSP_NUMBER: u16 = 7;
/// `UNW_X86_64_RBP`.
pub const RBP: RegisterNumber = 6;
/// `UNW_X86_64_RAX` and `UNW_REG_EH`: the first of the two argument registers of an exception's
/// landing pad.
pub const RAX: RegisterNumber = 0;
/// `UNW_X86_64_RDX`: the second of them.
pub const RDX: RegisterNumber = 1;
/// `UNW_X86_64_CFA`: the stack pointer of a frame under another number.
pub const CFA: RegisterNumber = 17;

/// `unw_error_t` as functions return it: negated. Clients' callbacks return their own numbers,
/// which are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(pub c_int);

impl Error {
    /// `UNW_EUNSPEC`: unspecified.
    pub const UNSPECIFIED: Error = Error(-1);
    /// `UNW_ENOMEM`: no memory is left.
    pub const NO_MEMORY: Error = Error(-2);
    /// `UNW_EBADREG`: the register does not exist, or its value is not known.
    pub const BAD_REGISTER: Error = Error(-3);
    /// `UNW_EREADONLYREG`: the register cannot be written.
    pub const READ_ONLY_REGISTER: Error = Error(-4);
    /// `UNW_ESTOPUNWIND`: the client wants no more frames.
    pub const STOP: Error = Error(-5);
    /// `UNW_EINVALIDIP`: not a code address.
    pub const INVALID_IP: Error = Error(-6);
    /// `UNW_EBADFRAME`: the frame makes no sense.
    pub const BAD_FRAME: Error = Error(-7);
    /// `UNW_EINVAL`: unsupported operation, or a bad value.
    pub const INVALID: Error = Error(-8);
    /// `UNW_EBADVERSION`: unwind information of an unknown version.
    pub const BAD_VERSION: Error = Error(-9);
    /// `UNW_ENOINFO`: no unwind information.
    pub const NO_INFO: Error = Error(-10);

    /// The error that a function of the interface returned, if it returned one.
    pub(crate) fn check(code: c_int) -> Result<c_int, Error> {
        match code {
            0.. => Ok(code),
            _ => Err(Error(code)),
        }
    }

    /// The return value of a C function that only reports success.
    pub(crate) fn code_of(result: Result<(), Error>) -> c_int {
        result.map_or_else(|Error(code)| code, |()| 0)
    }
}

/// `unw_cursor_t`: room for a `cursor::ClientCursor`.
#[repr(C)]
#[derive(Debug)]
pub struct OpaqueCursor {
    /// Its contents.
    pub opaque: [UnwWord; 127],
}

/// `unw_fpreg_t`: a `long double`.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
pub struct FloatRegister(pub [u8; 16]);

/// `unw_caching_policy_t`.
pub const CACHE_NONE: c_int = 0;
/// One cache for all threads.
pub const CACHE_GLOBAL: c_int = 1;
/// A cache for each thread; here this is the lock-free cache shared by all threads.
pub const CACHE_PER_THREAD: c_int = 2;

/// `UNW_INFO_FORMAT_DYNAMIC`: a [`DynInfo`] describes one procedure.
pub const FORMAT_DYNAMIC: i32 = 0;
/// `UNW_INFO_FORMAT_TABLE`: a table in the memory of the unwinder. [`ProcInfo::unwind_info`] has
/// this format, too: an entry found by [`crate::remote_cfi::search`].
pub const FORMAT_TABLE: i32 = 1;
/// `UNW_INFO_FORMAT_REMOTE_TABLE`: the search table of `.eh_frame_hdr`, in the target's memory.
pub const FORMAT_REMOTE_TABLE: i32 = 2;
/// `UNW_INFO_FORMAT_IP_OFFSET`: the same, with code addresses relative to
/// [`DynInfo::start_ip`].
pub const FORMAT_IP_OFFSET: i32 = 4;

/// `UNW_PI_FLAG_DEBUG_FRAME`: the entry is of `.debug_frame`, in the memory of its finder.
pub const FLAG_DEBUG_FRAME: u32 = 32;

/// `unw_proc_info_t`: a procedure and its unwind information.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProcInfo {
    /// Its first address.
    pub start_ip: UnwWord,
    /// One past its last address.
    pub end_ip: UnwWord,
    /// The address of its language-specific data area, or 0.
    pub lsda: UnwWord,
    /// The address of its personality routine, or 0.
    pub handler: UnwWord,
    /// The base of data-relative pointers.
    pub gp: UnwWord,
    /// Flags: `FLAG_*`.
    pub flags: UnwWord,
    /// The format of `unwind_info`: [`FORMAT_TABLE`] for ours.
    pub format: c_int,
    /// The size of `unwind_info`, in bytes.
    pub unwind_info_size: c_int,
    /// Opaque to clients. Ours is the address of the FDE *in the target*: nothing is allocated. For
    /// an entry of `.debug_frame` it points at a
    /// [`crate::sys::debug_frame_entry::DebugFrameEntry`].
    pub unwind_info: *mut c_void,
    /// Unused on x86-64.
    pub extra: c_char,
}

impl ProcInfo {
    /// Without information.
    pub const EMPTY: ProcInfo = ProcInfo {
        start_ip: 0,
        end_ip: 0,
        lsda: 0,
        handler: 0,
        gp: 0,
        flags: 0,
        format: FORMAT_DYNAMIC,
        unwind_info_size: 0,
        unwind_info: core::ptr::null_mut(),
        extra: 0,
    };

    /// Whether it has a flag.
    #[must_use]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & UnwWord::from(flag) != 0
    }
}

/// `unw_dyn_info_t`: the location of unwind information.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DynInfo {
    /// The next entry of a list.
    pub next: *mut DynInfo,
    /// The previous entry.
    pub prev: *mut DynInfo,
    /// The first address it covers.
    pub start_ip: UnwWord,
    /// One past the last.
    pub end_ip: UnwWord,
    /// The base of data-relative pointers.
    pub gp: UnwWord,
    /// The format: `FORMAT_*`.
    pub format: i32,
    /// Padding.
    pub pad: i32,
    /// The difference from the table's addresses to run-time addresses.
    pub load_offset: UnwWord,
    /// The table, depending on `format`: `u.rti`, the largest member of the union together with
    /// `u.pi`, which has the same size.
    pub table: RemoteTable,
}

impl DynInfo {
    /// Covers no address.
    pub const NONE: DynInfo = DynInfo {
        next: core::ptr::null_mut(),
        prev: core::ptr::null_mut(),
        start_ip: 0,
        end_ip: 0,
        gp: 0,
        format: FORMAT_DYNAMIC,
        pad: 0,
        load_offset: 0,
        table: RemoteTable {
            name_ptr: 0,
            segbase: 0,
            table_len: 0,
            table_data: 0,
        },
    };
}

/// `unw_dyn_remote_table_info_t`: a search table in the target's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RemoteTable {
    /// The address of its name.
    pub name_ptr: UnwWord,
    /// The base of its entries.
    pub segbase: UnwWord,
    /// Its length, in words.
    pub table_len: UnwWord,
    /// Its address.
    pub table_data: UnwWord,
}

/// `unw_save_loc_t`: the location of a register's value.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveLocation {
    /// One of `SAVED_*`.
    pub kind: c_int,
    /// An address, or the number of a register.
    pub value: UnwWord,
    /// Unused on x86-64.
    pub extra: c_char,
}

/// `UNW_SLT_NONE`: no location.
pub const SAVED_NONE: c_int = 0;
/// `UNW_SLT_MEMORY`: at an address.
pub const SAVED_MEMORY: c_int = 1;
/// `UNW_SLT_REG`: in a register.
pub const SAVED_REGISTER: c_int = 2;

/// `unw_accessors_t`: a client's callbacks. All of them are optional here. In the interface only
/// [`Accessors::get_proc_name`] and the later ones are.
///
/// Version 1.8 added the last three members, and kept the soname.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Accessors {
    /// Finds the procedure of an address.
    pub find_proc_info: Option<
        unsafe extern "C" fn(
            *mut AddressSpace,
            UnwWord,
            *mut ProcInfo,
            c_int,
            *mut c_void,
        ) -> c_int,
    >,
    /// Frees memory of `find_proc_info`. Not called, since ours allocates nothing.
    pub put_unwind_info:
        Option<unsafe extern "C" fn(*mut AddressSpace, *mut ProcInfo, *mut c_void)>,
    /// The address of the target's list of [`DynInfo`].
    pub get_dyn_info_list_addr:
        Option<unsafe extern "C" fn(*mut AddressSpace, *mut UnwWord, *mut c_void) -> c_int>,
    /// Reads or writes a word of memory.
    pub access_mem: Option<
        unsafe extern "C" fn(*mut AddressSpace, UnwWord, *mut UnwWord, c_int, *mut c_void) -> c_int,
    >,
    /// Reads or writes a register.
    pub access_reg: Option<
        unsafe extern "C" fn(
            *mut AddressSpace,
            RegisterNumber,
            *mut UnwWord,
            c_int,
            *mut c_void,
        ) -> c_int,
    >,
    /// Reads or writes a floating-point register.
    pub access_fpreg: Option<
        unsafe extern "C" fn(
            *mut AddressSpace,
            RegisterNumber,
            *mut FloatRegister,
            c_int,
            *mut c_void,
        ) -> c_int,
    >,
    /// Continues the target in a frame.
    pub resume:
        Option<unsafe extern "C" fn(*mut AddressSpace, *mut OpaqueCursor, *mut c_void) -> c_int>,
    /// Names a procedure.
    pub get_proc_name: Option<NameCallback>,
    /// The path of the file mapped at an address, and the offset in it.
    pub get_elf_filename: Option<NameCallback>,
    /// The addresses of a procedure. Not called: on AArch64 only.
    pub get_proc_ip_range: Option<
        unsafe extern "C" fn(
            *mut AddressSpace,
            UnwWord,
            *mut UnwWord,
            *mut UnwWord,
            *mut c_void,
        ) -> c_int,
    >,
    /// The bits of a signed return address. Not called: on AArch64 only.
    pub ptrauth_insn_mask: Option<unsafe extern "C" fn(*mut AddressSpace, *mut c_void) -> UnwWord>,
}

impl Accessors {
    /// The size in version 1.6, in bytes.
    pub const SIZE_IN_1_6: usize = core::mem::offset_of!(Accessors, get_elf_filename);

    /// No callback.
    pub const NONE: Accessors = Accessors {
        find_proc_info: None,
        put_unwind_info: None,
        get_dyn_info_list_addr: None,
        access_mem: None,
        access_reg: None,
        access_fpreg: None,
        resume: None,
        get_proc_name: None,
        get_elf_filename: None,
        get_proc_ip_range: None,
        ptrauth_insn_mask: None,
    };
}

/// Puts the name of something at an address into a buffer, and the offset of the address in it.
pub type NameCallback = unsafe extern "C" fn(
    *mut AddressSpace,
    UnwWord,
    *mut c_char,
    usize,
    *mut UnwWord,
    *mut c_void,
) -> c_int;

/// `unw_reg_states_callback`.
pub type RegStatesCallback =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, UnwWord, UnwWord) -> c_int;
