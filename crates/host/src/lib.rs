//! What this machine lets a user do, and what changes that.
//!
//! [`KernelSettings`] are the kernel's settings, [`Privileges`] what this process may beyond other users,
//! [`ContainerInfo`] whether it sees all of the machine. A [`Remedy`] is what helps against a refusal:
//! whoever reports one names it, and so the same refusal has the same remedy everywhere.
//!
//! Everything is read from `/proc` and `/sys`, when it is asked for. Nothing is changed.

#![forbid(unsafe_code)]

mod container;
mod kernel_settings;
mod privileges;
mod remedy;

pub use container::ContainerInfo;
pub use kernel_settings::KernelSettings;
pub use privileges::{Capability, Privileges, ResourceLimit};
pub use remedy::Remedy;
