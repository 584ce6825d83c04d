//! The mappings of a core file, combined from `NT_FILE` and the `PT_LOAD` segments.
//!
//! `NT_FILE` has names and file offsets; the segments have permissions and anonymous memory. A core
//! written by gdb may have one segment for several mapped files, or none for memory that it left
//! out.

use std::ffi::OsString;

use unspool_rows::RuntimeAddr;

use super::memory::LoadSegment;
use super::notes::MappedFileNote;
use crate::AuxVector;
use crate::maps::{Device, Mapping, Mappings, Permissions, parse_name};
use crate::program_header::{PF_R, PF_W, PF_X};

/// Builds the mappings: every file entry, and the segments' other ranges.
pub(super) fn build(files: &[MappedFileNote], loads: &[LoadSegment], auxv: &AuxVector) -> Mappings {
    let files = Mappings::from_list(
        files
            .iter()
            .filter_map(|file| of_file(file, loads))
            .collect(),
    );
    let mut list = files.as_slice().to_vec();
    for load in loads {
        add_gaps(load, &files, auxv, &mut list);
    }
    Mappings::from_list(list)
}

fn of_file(file: &MappedFileNote, loads: &[LoadSegment]) -> Option<Mapping> {
    let (name, deleted) = parse_name(&file.name);
    let after = loads.partition_point(|load| load.end <= file.start);
    let load = loads.get(after).filter(|load| load.start <= file.start);
    (file.start < file.end).then_some(Mapping {
        start: RuntimeAddr(file.start),
        end: RuntimeAddr(file.end),
        offset: file.offset,
        permissions: permissions(load.map_or(0, |load| load.flags)),
        device: Device::default(),
        inode: 0,
        name,
        deleted,
        by_object: false,
    })
}

/// Adds the parts of a segment that no file covers.
fn add_gaps(load: &LoadSegment, files: &Mappings, auxv: &AuxVector, list: &mut Vec<Mapping>) {
    let after = files
        .as_slice()
        .partition_point(|file| file.end.0 <= load.start);
    let mut at = load.start;
    for file in files.as_slice().get(after..).unwrap_or(&[]) {
        if file.start.0 >= load.end {
            break;
        }
        list.extend(without_file(at, file.start.0, load, auxv));
        at = file.end.0;
    }
    list.extend(without_file(at, load.end, load, auxv));
}

fn without_file(start: u64, end: u64, load: &LoadSegment, auxv: &AuxVector) -> Option<Mapping> {
    let inside = |addr: RuntimeAddr| start <= addr.0 && addr.0 < end;
    let name = if auxv.sysinfo_ehdr().is_some_and(inside) {
        Some(OsString::from("[vdso]"))
    } else if auxv.random().is_some_and(inside) {
        Some(OsString::from("[stack]"))
    } else {
        None
    };
    (start < end).then_some(Mapping {
        start: RuntimeAddr(start),
        end: RuntimeAddr(end),
        offset: 0,
        permissions: permissions(load.flags),
        device: Device::default(),
        inode: 0,
        name,
        deleted: false,
        by_object: false,
    })
}

fn permissions(flags: u32) -> Permissions {
    Permissions {
        read: flags & PF_R != 0,
        write: flags & PF_W != 0,
        execute: flags & PF_X != 0,
        private: true,
    }
}
