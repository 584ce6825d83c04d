//! The permissions of a user on this machine, and how to change them.
//!
//! [`KernelSettings`] are the kernel's settings, [`Privileges`] this process's capabilities and
//! limits. [`ContainerInfo`] shows whether it sees all of the machine. A [`Remedy`] is the remedy
//! for a refusal. Every error names one of these, so the same refusal has the same remedy
//! everywhere.
//!
//! Everything is read from `/proc` and `/sys`, on each call. Nothing is changed.

#![forbid(unsafe_code)]

mod container;
mod kernel_settings;
mod privileges;
mod remedy;

pub use container::ContainerInfo;
pub use kernel_settings::KernelSettings;
pub use privileges::{Capability, Privileges, ResourceLimit};
pub use remedy::Remedy;
