//! The corpus of right and wrong unwind tables, and that its proof can fail.

use std::fs;
use std::path::{Path, PathBuf};

use unspool_testing::scratch_folder;
use xtask::corpus::pair::{self, Pair};
use xtask::corpus::{problems, proof, table};

fn scratch(name: &str) -> PathBuf {
    scratch_folder(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
}

/// The proof's result for a pair with part of its text replaced.
fn changed(name: &str, from: &str, to: &str) -> Vec<String> {
    let folder = scratch("changed");
    let text = fs::read_to_string(pair::folder().join(format!("{name}.s"))).unwrap();
    assert!(text.contains(from), "{name}: {from}");
    let path = folder.join(format!("{name}.s"));
    fs::write(&path, text.replace(from, to)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let found = proof::problems(&Pair::parse(&path, &text).unwrap(), &folder).unwrap();
    fs::remove_dir_all(folder).unwrap();
    found
}

#[test]
fn pairs_are_what_they_say() {
    let folder = scratch("pairs");
    let pairs = pair::all().unwrap();
    assert!(pairs.len() >= 64, "{}", pairs.len());
    assert_eq!(problems(&pairs, &folder).unwrap(), Vec::<String>::new());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn readme_has_all_pairs() {
    let (old, new) = table::readme(&pair::all().unwrap()).unwrap();
    assert!(old == new, "run `cargo xtask corpus --write`");
}

#[test]
fn a_false_table_is_found_in_the_right_variant() {
    let found = changed("wrong_slot", "%rbx, -24", "%rbx, -32");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("the right table is false at pushed: "));
    // The last instruction of a function, where gdb may guess.
    let found = changed("adjust_missing_pop", ".ifndef", ".ifdef");
    assert!(
        found
            .iter()
            .any(|text| text.contains("right table is false at after_pop"))
    );
}

#[test]
fn a_wrong_variant_that_is_true_is_found() {
    let found = changed("wrong_slot", "%rbx, -16", "%rbx, -24");
    assert_eq!(found, ["what runs show is not as `static-only` says"]);
}

#[test]
fn a_label_at_the_wrong_place_is_found() {
    let found = changed(
        "hoisted_add",
        "# expect: refuted hoisted",
        "# expect: refuted f",
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("the wrong table is false from other places on: hoisted ("));
}

#[test]
fn code_that_is_not_run_is_found() {
    let found = changed("hoisted_add", "mov\t$7, %edi", "mov\t$8, %edi");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("what never runs is"));
}

#[test]
fn code_that_differs_is_found() {
    let found = changed("join_of_two_heights", "# code: differs\n", "");
    assert_eq!(found, ["the code differs, without `# code: differs`"]);
}
