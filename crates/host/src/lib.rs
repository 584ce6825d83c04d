//! The permissions of a user on this machine, and how to change them.
//!
//! [`KernelSettings`] are the kernel's settings, [`Privileges`] this process's capabilities and
//! limits. [`ContainerInfo`] shows whether it sees all of the machine. A [`Remedy`] is the remedy
//! for a refusal. Every error names one of these, so the same refusal has the same remedy
//! everywhere.
//!
//! Everything is read from `/proc` and `/sys`, on each call. Nothing is changed.
//!
//! ```
//! use unspool_host::{KernelSettings, Remedy};
//!
//! let settings = KernelSettings::read();
//! let needed = 2; // to profile one's own processes
//! if settings.paranoid.is_some_and(|paranoid| paranoid > needed) {
//!     println!("{}", Remedy::Paranoid { needed });
//! }
//! let command = Remedy::Paranoid { needed }.command().unwrap_or_default();
//! assert!(command.contains("kernel.perf_event_paranoid=2"));
//! ```

#![forbid(unsafe_code)]

mod container;
mod kernel_settings;
mod privileges;
mod remedy;

pub use container::ContainerInfo;
pub use kernel_settings::KernelSettings;
pub use privileges::{Capability, Privileges, ResourceLimit};
pub use remedy::Remedy;
