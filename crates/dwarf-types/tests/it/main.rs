//! Types and variables from DWARF, broken DWARF, and types of files in all forms.
#![cfg(test)]

mod arrays;
mod btf;
mod dwarf;
mod everything;
mod forms;
mod interface_pairs;
mod interfaces;
mod objdump;
mod type_folder;
mod variables;
