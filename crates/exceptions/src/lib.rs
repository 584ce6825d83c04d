//! The level of exception handling that languages share: `_Unwind_*` (Itanium C++ ABI, "Exception
//! Handling", Level I).
//!
//! There are two phases. The first calls the personality routines from the innermost frame outwards
//! to find the handling frame, and changes nothing. The second goes the same way, and each frame
//! cleans up, up to the handling one. A frame that cleans up is entered at its landing pad, and
//! continues the unwind with `_Unwind_Resume`.
//!
//! What is known of a frame depends on its code address alone: the row, the personality routine,
//! and what the call site says of exceptions. So all of it is cached by that address
//! (`cache::FactsCache`), for all threads. [`facts`] learns it from `.eh_frame` at the first
//! unwind through an address. Most call sites have nothing to do or only clean up; there the
//! personality routine is not called (`call_site`). `walk::LandingWalk` steps from frame to
//! frame by packed rows. It keeps the registers that a landing pad finds, and no others.
//!
//! The process may have other unwinders. glibc begins the unwinds of `pthread_exit` and
//! `pthread_cancel` with libgcc's, and a plugin may have a libgcc of its own. Personality routines
//! then call us with their contexts, and landing pads with their exceptions, and vice versa. So
//! [`context::UnwindContext`] and [`abi::Exception`] have libgcc's layout.
//!
//! `no_std`, and without an allocator: a throw allocates nothing, takes no lock and makes no system
//! call with glibc 2.35 or later. With another C library, the first look at an address takes the
//! loader's lock.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod cache;
mod call_site;
pub mod context;
pub mod facts;
pub mod generated_code;
pub mod sys;
pub mod walk;
