//! Examples of edited texts.

use unspool_assembly::AssemblySource;

const TEXT: &str = "\
f:\t.cfi_startproc
\tpush %rbx\t# saved
\t.cfi_adjust_cfa_offset 8\t/* its size */
\t.cfi_offset %rbx, -16

1:\t// a label
\tnop
\t.cfi_undefined %rip
\tret
\t.cfi_endproc
";

#[test]
fn gaps_are_what_makes_no_code() {
    let source = AssemblySource::new(TEXT);
    let gap = source.gap_before(7);
    assert_eq!((gap.lines, gap.directives), (3..7, vec![3, 4]));
    assert_eq!(source.gap_after(2), source.gap_before(7));
    assert_eq!(source.directive(3), ".cfi_adjust_cfa_offset 8");
    // Behind the directives of the instruction before, and before the label.
    assert_eq!(source.insertion_points_before(7), [5]);
    // Behind `.cfi_startproc`, on a line with a label, there is nothing; and "no caller" is not a
    // row.
    assert_eq!(source.insertion_points_before(2), [2]);
    assert!(source.gap_before(9).directives.is_empty());
}

#[test]
fn entries_are_known_by_their_directives() {
    let source = AssemblySource::new(&format!("{TEXT}{TEXT}\tnop\n"));
    assert_eq!(source.entry_around(7), Some(1..11));
    assert_eq!(source.entry_around(11), Some(11..21));
    assert_eq!(source.entry_around(21), None);
    assert_eq!(source.entry_before(21), Some(11..21));
    assert_eq!(source.entry_after(7), Some(11..21));
    // Only the author knows that there is no caller. Nor is there a line for `.cfi_startproc`.
    assert!(!source.clone().strip(1..11));
    let plain = TEXT
        .replace("f:\t", "f:\n\t")
        .replace("\t.cfi_undefined %rip\n", "");
    let mut source = AssemblySource::new(&plain);
    assert!(source.begins_like_function(&source.entry_around(3).unwrap()));
    assert!(source.strip(source.entry_around(3).unwrap()));
    assert_eq!(
        source.to_string(),
        "f:\n\tpush %rbx\t# saved\n\n1:\t// a label\n\tnop\n\tret\n"
    );
}

#[test]
fn unchanged_directives_stay_the_authors() {
    let mut source = AssemblySource::new(TEXT);
    source.remove(4);
    source.remove(3);
    source.insert(3, [".cfi_adjust_cfa_offset 8", ".cfi_offset %rbx, -16"]);
    assert!(source.is_changed());
    source.restore_unchanged_lines();
    assert!(!source.is_changed());
    assert_eq!(source.to_string(), TEXT);
}

#[test]
fn a_text_without_a_last_line_end_gets_one_where_something_follows() {
    let mut source = AssemblySource::new("\tnop\n\tret");
    source.insert(3, [".cfi_endproc"]);
    assert_eq!(source.to_string(), "\tnop\n\tret\n\t.cfi_endproc\n");
    let expected = "--- a/f.s\n+++ b/f.s\n@@ -1,2 +1,3 @@\n \tnop\n-\tret\n\\ No newline at end of file\n+\tret\n+\t.cfi_endproc\n";
    assert_eq!(source.diff("f.s"), expected);
    assert_eq!(AssemblySource::new("").diff("f.s"), "");
}

#[test]
fn lines_of_macros_and_repetitions_are_known() {
    let text = "\t.macro m\n\tnop\n\t.endm\n\tm\n\t.rept 2\n\t.irp a, b\n\tnop\n\t.endr\n\tnop\n\t.endr\n\tnop\n";
    let source = AssemblySource::new(text);
    let repeated = (1..=11).filter(|line| source.is_repeated(*line));
    assert_eq!(repeated.collect::<Vec<u32>>(), [1, 2, 5, 6, 7, 8, 9]);
}
