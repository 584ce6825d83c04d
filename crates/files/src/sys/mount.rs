//! The trust in a mount.

use std::fs::File;
use std::mem;
use std::os::fd::AsRawFd as _;

/// Whether the kernel honours set-user-ID bits on a file's mount; `false` if that is unknown.
pub(crate) fn honours_setuid(file: &File) -> bool {
    // SAFETY: all fields are plain numbers.
    let mut about: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open, and `about` is a local of this function.
    let failed = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) };
    failed == 0 && about.f_flag & libc::ST_NOSUID == 0
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;

    use super::*;

    #[test]
    fn mounts_are_trusted_as_the_kernel_lists_them() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        // Of several mounts at one place, the last is visible.
        let options: HashMap<&str, bool> = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .map(|fields| {
                (
                    fields[1],
                    fields[3].split(',').any(|option| option == "nosuid"),
                )
            })
            .collect();
        assert!(options.contains_key("/"));
        for (place, is_nosuid) in options {
            let Ok(folder) = File::open(place) else {
                continue;
            };
            assert_eq!(honours_setuid(&folder), !is_nosuid, "{place}");
        }
    }
}
