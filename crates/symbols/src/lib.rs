//! Names for many addresses of many modules: functions, inlined functions, source lines.
//!
//! A [`Symbolizer`] takes modules with the addresses that are asked for, finds their files
//! ([`Finder`]), and yields [`Names`], which answer for each address without more work. What is in
//! the way is a [`Problem`] of its module, never an error of the whole.

#![forbid(unsafe_code)]

mod finder;
mod names;
mod parallel;
mod problem;
mod symbolizer;
mod table;
mod vdso;

pub use finder::{Finder, Identity, root_of};
pub use names::{Frame, Function, ModuleNames, Name, Names};
pub use problem::Problem;
pub use symbolizer::{Detail, Event, Module, Request, Symbolizer};
