//! Programs with `.sframe` and without `.eh_frame`.

use std::path::{Path, PathBuf};

use unspool_testing::{command, without_eh_frame};

use crate::programs;

/// Options for a program with SFrame only.
fn sframe_only() -> [String; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    ["-Wa,--gsframe".to_owned(), without_eh_frame(folder)]
}

/// A program or library with these options, and the one with SFrame only.
fn both(source: &str, options: &[&str]) -> [PathBuf; 2] {
    let [first, second] = sframe_only();
    let only = [options, &[&first, &second]].concat();
    [options, &only].map(|options| programs::compile_with(source, options))
}

/// Debian's libunwind on the program with `.eh_frame` gives the same results as ours on both.
#[test]
fn a_walk_is_the_same() {
    let options = ["-rdynamic", "-Wl,--no-as-needed", "-l:libunwind.so.8"];
    let [with, only] = both("sframe.c", &options);
    let theirs = programs::stdout(&mut command(&with));
    for program in [with, only] {
        let mut command = command(program);
        command.env("LD_LIBRARY_PATH", programs::shared_objects());
        assert_eq!(programs::stdout(&mut command), theirs);
    }
    assert!(
        theirs
            .lines()
            .filter(|line| line.contains(" recurse+"))
            .count()
            >= 60
    );
    assert!(theirs.contains("end 0\n"), "{theirs}");
}

/// Behind a function with SFrame only, preserved registers are unknown. No exception is caught
/// there, as with libgcc, which does not support SFrame.
#[test]
fn exceptions_do_not_land_with_lost_registers() {
    let ours = programs::shared_objects().join("libunwind.so.8");
    let program = programs::compile_cxx("passes.cc");
    let [with, only] = both("pass.c", &["-shared", "-fPIC"]);
    for (library, expected) in [(with, "caught 5\n"), (only, "terminated\n")] {
        assert_eq!(programs::stdout(command(&program).arg(&library)), expected);
        let mut command = command(&program);
        command.env("LD_PRELOAD", &ours).arg(&library);
        assert_eq!(programs::stdout(&mut command), expected);
    }
}
