//! The function of `unspool_variables.h`, documented there.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;
use std::fmt::Display;
use std::ops::ControlFlow;

use unspool_display_values::ValueOrigin;

use super::cursor::{self, CCursor};
use crate::report::{ReportCallbacks, ReportStatus, VariableQuery, VariableReport, report};

/// `unspool_variable`.
#[repr(C)]
pub struct CVariable {
    frame: usize,
    address: *const c_void,
    function: *const c_char,
    inlined: usize,
    is_parameter: c_int,
    block: usize,
    name: *const c_char,
    type_name: *const c_char,
    value: *const c_char,
    lost: *const c_char,
    bytes: *const u8,
    known: *const u8,
    size: usize,
    entry: *const c_char,
    certainty: c_int,
    callers: usize,
}

/// `unspool_variables_asked`.
#[repr(C)]
pub struct CQuery {
    first: usize,
    frames: usize,
    strings: c_int,
    variable: Option<unsafe extern "C" fn(*const CVariable, *mut c_void) -> c_int>,
    problem: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
    data: *mut c_void,
}

/// `unspool_variables`.
///
/// # Safety
///
/// The cursor was filled in by the calling thread, and its frame has not returned; the request, and
/// everything it points to, is valid.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_variables(cursor: *const CCursor, asked: *const CQuery) -> c_int {
    // SAFETY: the caller's promise.
    let frame = unsafe { cursor::frame(cursor) };
    // SAFETY: the caller's promise.
    let asked = unsafe { &*asked };
    let wanted = VariableQuery {
        first: asked.first,
        frames: asked.frames,
        with_strings: asked.strings != 0,
    };
    match report(&frame, wanted, &mut CCallbacks { asked }) {
        ReportStatus::Complete => 0,
        ReportStatus::Stopped => 1,
        ReportStatus::Failed => -1,
    }
}

/// The request, with its callbacks.
struct CCallbacks<'c> {
    asked: &'c CQuery,
}

impl ReportCallbacks for CCallbacks<'_> {
    fn variable(&mut self, report: &VariableReport<'_>) -> ControlFlow<()> {
        let Some(variable) = self.asked.variable else {
            return ControlFlow::Continue(());
        };
        let (function, name, type_name) = (
            text(report.function),
            text(report.name),
            text(report.type_name),
        );
        let value = report.current.as_ref().ok().map(|known| text(&known.text));
        let lost = report.current.as_ref().err().map(|lost| text(lost));
        let bytes = report.current.as_ref().ok().map(|known| &known.value);
        let entry = report.entry.map(|found| text(&found.text));
        let shown = CVariable {
            frame: report.frame,
            address: std::ptr::without_provenance(usize::try_from(report.address).unwrap_or(0)),
            function: function.as_ptr(),
            inlined: report.inlined,
            is_parameter: c_int::from(report.is_parameter),
            block: report.block,
            name: name.as_ptr(),
            type_name: type_name.as_ptr(),
            value: pointer(value.as_ref()),
            lost: pointer(lost.as_ref()),
            bytes: bytes.map_or(std::ptr::null(), |value| value.bytes.as_ptr()),
            known: bytes.map_or(std::ptr::null(), |value| value.known.as_ptr()),
            size: bytes.map_or(0, |value| value.bytes.len()),
            entry: pointer(entry.as_ref()),
            certainty: certainty(report.entry.map(|found| found.origin)),
            callers: report.entry.map_or(0, |found| found.caller_depth),
        };
        // SAFETY: the caller's promise; all data passed lives until it returns.
        match unsafe { variable(&raw const shown, self.asked.data) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn problem(&mut self, problem: &dyn Display) {
        if let Some(take) = self.asked.problem {
            let problem = text(&problem.to_string());
            // SAFETY: the caller's promise; the text lives until it returns.
            unsafe { take(problem.as_ptr(), self.asked.data) };
        }
    }
}

/// Text as a C string, without any zeros, which a file may have in a name.
fn text(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<_>>();
    CString::new(bytes).unwrap_or_default()
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// `UNSPOOL_ARGUMENT_…`.
fn certainty(origin: Option<ValueOrigin>) -> c_int {
    match origin {
        None => 0,
        Some(ValueOrigin::Likely) => 1,
        Some(ValueOrigin::Exact) => 2,
        Some(ValueOrigin::FromDebugInfo) => 3,
    }
}
