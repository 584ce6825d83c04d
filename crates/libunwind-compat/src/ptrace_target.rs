//! A process that the caller traces with ptrace, for `_UPT_*`.

use unspool_files::raw::RawMap;
use unspool_rows::{LoadBias, Memory, RuntimeAddr};

use crate::abi::{DynInfo, Error, ProcInfo};
use crate::client::AlignedMemory;
use crate::image::{self, FileBytes, LoadedHeaders};
use crate::sys::debug_frame_entry::DebugFrameEntry;
use crate::sys::os;
use crate::{debug_frame, maps, remote_cfi};

/// A stopped process. Only its tracing thread can use it.
#[derive(Debug)]
pub struct PtraceTarget {
    pid: i32,
    /// The file of the last address.
    module: Option<TracedModule>,
    /// The last entry found in its `.debug_frame`.
    debug_frame_entry: DebugFrameEntry,
}

/// A file that the process has mapped.
#[derive(Debug)]
struct TracedModule {
    headers: LoadedHeaders,
    table: Result<DynInfo, Error>,
    /// The file, opened on demand.
    file: Option<Result<RawMap, Error>>,
}

impl PtraceTarget {
    /// A process that the caller traces.
    #[must_use]
    pub(crate) const fn new(pid: i32) -> Self {
        PtraceTarget {
            pid,
            module: None,
            debug_frame_entry: DebugFrameEntry::empty(),
        }
    }

    /// Its process ID.
    #[must_use]
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// The procedure of an address.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, and errors of reading.
    pub(crate) fn find_proc_info(&mut self, ip: u64) -> Result<ProcInfo, Error> {
        let (pid, memory) = (self.pid, memory(self.pid));
        let known = self.module.take();
        let module = match known.filter(|module| module.headers.covers(ip)) {
            Some(module) => module,
            None => TracedModule::read(&memory, pid, ip)?,
        };
        let module = self.module.insert(module);
        let found = module.table;
        match found.and_then(|table| remote_cfi::search(&memory, &table, ip)) {
            Err(Error::NO_INFO) => {
                let file = module.file.get_or_insert_with(|| open(pid, ip));
                let file = file.as_ref().map_err(|error| *error)?;
                let bias = LoadBias(module.headers.bias);
                debug_frame::find(file.bytes(), bias, ip, &self.debug_frame_entry)
            }
            found => found,
        }
    }

    /// Passes the name of the function at an address to `found`, and the offset of the address in
    /// the function, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, and errors of `found`.
    pub(crate) fn function<T>(
        &self,
        ip: u64,
        found: impl FnOnce(&[u8], u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let maps = os::maps(self.pid)?;
        let (mapping, base) = maps::find(&maps, ip).ok_or(Error::NO_INFO)?;
        let file = os::map_of_process(self.pid, mapping.name)?;
        // Not from the process, because that takes a system call for each word.
        let image = LoadedHeaders::read(&FileBytes(file.bytes()), 0)?;
        let vaddr = ip.wrapping_sub(base).wrapping_sub(image.bias);
        let (name, offset) = image::function(file.bytes(), vaddr).ok_or(Error::NO_INFO)?;
        found(name, offset)
    }

    /// Passes the path of the file mapped at an address to `found`, and the offset of the address
    /// in the file, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, and errors of `found`.
    pub(crate) fn file<T>(
        &self,
        ip: u64,
        found: impl FnOnce(&[u8], u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (maps, ip) = (os::maps(self.pid)?, RuntimeAddr(ip));
        let mapping = maps::named(&maps, ip).ok_or(Error::NO_INFO)?;
        let path = os::path_of_mapping(mapping.name)?;
        found(os::terminated(&path)?.to_bytes(), mapping.file_offset(ip))
    }
}

impl TracedModule {
    fn read<M: Memory>(memory: &M, pid: i32, ip: u64) -> Result<TracedModule, Error> {
        let maps = os::maps(pid)?;
        let (_, base) = maps::find(&maps, ip).ok_or(Error::NO_INFO)?;
        let headers = LoadedHeaders::read(memory, base)?;
        Ok(TracedModule {
            headers,
            table: headers.table(memory),
            file: None,
        })
    }
}

/// The file that a process has mapped at an address.
fn open(pid: i32, ip: u64) -> Result<RawMap, Error> {
    let maps = os::maps(pid)?;
    let (mapping, _) = maps::find(&maps, ip).ok_or(Error::NO_INFO)?;
    os::map_of_process(pid, mapping.name)
}

/// The memory of a traced process.
fn memory(pid: i32) -> AlignedMemory<impl Fn(u64) -> Result<u64, Error>> {
    AlignedMemory::new(move |addr| os::peek(pid, addr))
}
