//! BPF. The Linux kernel links its programs when it loads them.

use object::elf::RelocationType;

use super::{ArchFormat, PLAIN, RelocationHowto};

const R_BPF_64_ABS64: RelocationType = RelocationType(2);
const R_BPF_64_ABS32: RelocationType = RelocationType(3);

pub(super) const FORMAT: ArchFormat = ArchFormat {
    // Those in debug information.
    relocations: &[
        (R_BPF_64_ABS64, RelocationHowto::absolute(8)),
        (R_BPF_64_ABS32, RelocationHowto::absolute(4)),
    ],
    relax: |_, _, _| false,
    ..PLAIN
};
