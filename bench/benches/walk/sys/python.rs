//! Python's interpreter.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::transmute;
use std::path::PathBuf;
use std::ptr;

use anyhow::Context as _;

use super::library::Library;

/// Runs source text of the main module; the other argument may be null.
type RunStringFn = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;

/// The initialised interpreter. It belongs to the thread that started it.
pub(crate) struct Python {
    run: RunStringFn,
    _here: PhantomData<*const ()>,
}

impl Python {
    /// Loads and initialises the newest installed one.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let place = |minor| format!("/usr/lib/x86_64-linux-gnu/libpython3.{minor}.so.1.0");
        let mut files = (9..20).rev().map(|minor| PathBuf::from(place(minor)));
        let file = files.find(|file| file.exists());
        let file = file.context("not there: install Debian's package libpython3.11")?;
        // Its modules use its symbols.
        let library = Library::open_for_all(&file)?;
        let initialise = library.symbol(c"Py_InitializeEx")?.as_ptr();
        let run = library.symbol(c"PyRun_SimpleStringFlags")?.as_ptr();
        // SAFETY: void Py_InitializeEx(int), per its documentation.
        let initialise =
            unsafe { transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(initialise) };
        // SAFETY: called once; 0 leaves signals alone.
        unsafe { initialise(0) };
        Ok(Python {
            // SAFETY: int PyRun_SimpleStringFlags(const char *, PyCompilerFlags *), likewise.
            run: unsafe { transmute::<*mut c_void, RunStringFn>(run) },
            _here: PhantomData,
        })
    }

    /// Runs some source.
    pub(crate) fn run(&self, source: &str) -> anyhow::Result<()> {
        let source = CString::new(source)?;
        // SAFETY: the interpreter is initialised, and this is its thread, since `Python` is not
        // `Send`. The source ends with a zero byte.
        let failed = unsafe { (self.run)(source.as_ptr(), ptr::null_mut()) };
        anyhow::ensure!(failed == 0, "Python has printed what is wrong");
        Ok(())
    }
}
