//! Bad stacks: no crash, no hang, and the frames before the damage are found.

use crate::programs;
use xtask::bad_frames::{self, BadFramesProgram, BadWalkOutcome, cases};

#[test]
fn frames_before_the_damage_are_kept() {
    let program = BadFramesProgram::build(programs::scratch("bad-frames")).unwrap();
    let library = programs::shared_objects().join("libunwind.so.8");
    let mut bad = Vec::new();
    for walker in &bad_frames::ours(&library) {
        for case in cases::ALL {
            let outcome = program.walk(case, walker).unwrap();
            // Readable data may be code here, since only the client knows the mappings.
            let is_kept = outcome == BadWalkOutcome::AllFramesFound
                || case.name == "wild_pc_in_data" && outcome == BadWalkOutcome::FramesMissing;
            if !is_kept {
                bad.push(format!("{}: {} {outcome:?}", walker.function, case.name));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
