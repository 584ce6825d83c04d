//! The image of the vDSO, which is not in a file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

/// The size of the largest vDSO, in bytes.
const MAX_IMAGE_BYTES: u64 = 1 << 20;

/// The image of this process's vDSO in the layout of a file. On a running kernel, all processes of
/// this word size have the same.
///
/// # Errors
///
/// `/proc/self/mem` cannot be read, or there is no vDSO ([`io::ErrorKind::NotFound`]).
pub fn own_vdso() -> io::Result<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(number(start)?..number(end)?)
    });
    let range =
        range.filter(|range| range.start < range.end && range.end - range.start <= MAX_IMAGE_BYTES);
    let range = range.ok_or(io::ErrorKind::NotFound)?;
    let size = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut image = vec![0; size];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, range.start)?;
    Ok(image)
}
