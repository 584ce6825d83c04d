//! Processes, core files and the stacks in them, against gdb.
#![cfg(test)]

mod core_file;
mod core_file_synthetic;
// Tables become machine code of x86-64 only.
#[cfg(target_arch = "x86_64")]
mod native;
mod origin_defects;
mod process;
mod process_before_exec;
mod process_traced;
mod programs;
mod space;
mod stacks;
