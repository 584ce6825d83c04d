//! What unwinds cost, in instructions: against libgcc in the same run.

use std::path::Path;

use unspool_testing::instructions;

use crate::programs::{compile_cxx, compile_rust, library};

/// The instructions of one warm throw through this many frames.
fn of_throw(program: &Path, kind: &str, depth: u32, preloaded: Option<&Path>) -> f64 {
    let [few, many] = ["10", "60"]
        .map(|count| instructions(program, &[kind, &depth.to_string(), count], preloaded));
    f64::from(u32::try_from(many - few).unwrap()) / 50.0
}

/// Compares throws through 1, 10 and 100 frames with libgcc's: at least `bars` times fewer
/// instructions, and at most `per_frame` for each frame more.
fn check(program: &Path, kind: &str, bars: [f64; 3], per_frame: f64) {
    let ours = [1, 10, 100].map(|depth| of_throw(program, kind, depth, Some(library())));
    let libgcc = [1, 10, 100].map(|depth| of_throw(program, kind, depth, None));
    let frame = (ours[2] - ours[1]) / 90.0;
    let ratios: Vec<_> = libgcc
        .iter()
        .zip(ours)
        .map(|(libgcc, ours)| libgcc / ours)
        .collect();
    let figures =
        format!("{kind}: {libgcc:.0?}, ours {ours:.0?}: {ratios:.2?}; {frame:.0} a frame");
    println!("{figures}");
    assert!(
        ratios.iter().zip(bars).all(|(ratio, bar)| *ratio >= bar),
        "{figures}"
    );
    assert!(frame <= per_frame, "{figures}");
}

#[test]
fn throws_take_a_fraction_of_libgcc_s_instructions() {
    let program = compile_cxx("throws.cc", &["-O2"]);
    check(&program, "plain", [5.0, 10.0, 20.0], 45.0);
    check(&program, "destructors", [6.0, 10.0, 14.0], 290.0);
    // Nine tenths of that are libstdc++'s.
    check(&program, "handlers", [2.0, 2.0, 2.0], 1700.0);
}

#[test]
fn panics_take_a_fraction_of_libgcc_s_instructions() {
    let program = compile_rust("panics.rs");
    // Both phases pass all frames: std's own have landing pads.
    check(&program, "plain", [3.0, 6.0, 12.0], 85.0);
    check(&program, "destructors", [3.0, 3.0, 3.0], 1400.0);
}

/// The first throw of a process, which learns all that it needs.
#[test]
fn a_first_throw_takes_no_more_than_libgcc_s() {
    let program = compile_cxx("throws.cc", &["-O2"]);
    for kind in ["plain", "destructors"] {
        let cost = |preloaded| {
            let count = |throws| instructions(&program, &[kind, "10", throws], preloaded);
            count("1") - count("0")
        };
        let [ours, libgcc] = [cost(Some(library())), cost(None)];
        println!("first, {kind}: {libgcc}, ours {ours}");
        assert!(ours < libgcc, "{kind}: {libgcc}, ours {ours}");
    }
}
