//! The functions, called by a C program that knows its own stack.

use std::path::Path;

use crate::programs::{self, stdout, with_library};

/// `api.c` compares with the C library's `backtrace`, with its own registers, and with what the
/// kernel has stored for a handler; it ends with a line that says so.
#[test]
fn the_functions_do_what_the_header_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unspool/programs");
    for options in [
        &["-O0", "-std=gnu99"][..],
        &["-O2", "-std=gnu99"],
        &["-O2", "-fno-omit-frame-pointer", "-std=gnu99"],
    ] {
        let mut cc = programs::cc();
        cc.args(options);
        let program = programs::build(cc, &folder.join("api.c"), &programs::pkg_config());
        assert_eq!(stdout(&mut with_library(&program)), "all is well\n");
    }
}
