//! Processes, core files, walks and the store of tables, against gdb and naive models.
#![cfg(test)]

mod core_file;
mod core_file_synthetic;
mod file_tables;
mod native;
mod origin_defects;
mod process;
mod process_before_exec;
mod process_traced;
mod programs;
mod space;
mod walks;
