//! Examples of texts with conditional parts.

use unspool_assembly::AssemblySource;

const TEXT: &str = "\
f:\t.cfi_startproc
\tpush %rbx
\t.cfi_adjust_cfa_offset 8
\txor %ebx, %ebx
#ifdef FOO
\tpush %rax
\t.cfi_adjust_cfa_offset 8
#else
\tnop
#endif
#define TWO \\
\t2
/* a comment
\tthat goes on */
\tpop %rbx
\t.cfi_adjust_cfa_offset -8
\tret
\t.cfi_endproc
";

#[test]
fn left_out_lines_are_not_in_gaps() {
    let all: Vec<u32> = (1..=18).collect();
    let without = |left_out: &[u32]| {
        let lines = all.iter().copied().filter(|line| !left_out.contains(line));
        AssemblySource::preprocessed(TEXT).with_assembled(lines)
    };
    let foo = without(&[9]);
    assert_eq!(foo.gap_before(15).directives, [7]);
    assert_eq!(foo.gap_before(15).lines, 7..15);
    // Before `#else`, not before the lines behind the condition.
    assert_eq!(foo.insertion_points_before(15), [8]);
    assert!(!foo.has_unconditional_gap(15));
    let other = without(&[6, 7]);
    assert_eq!(other.gap_before(15).lines, 10..15);
    assert_eq!(other.gap_before(9).lines, 5..9);
    assert_eq!(other.insertion_points_before(9), [5]);
    // Nothing is inserted into a definition, a comment, or a condition.
    let neither = without(&[6, 7, 9]);
    assert_eq!(neither.gap_before(15).lines, 5..15);
    assert_eq!(neither.insertion_points_before(15), [5, 13]);
    assert!(neither.has_unconditional_gap(15));
    // A file with unknown assembled lines: any part may be assembled.
    let unknown = AssemblySource::preprocessed(TEXT);
    assert_eq!(unknown.insertion_points_before(15), [11, 13]);
    assert_eq!(unknown.condition_around(15), Some(5));
    // Without a preprocessor, these are comments.
    assert_eq!(AssemblySource::new(TEXT).insertion_points_before(9), [8]);
}

#[test]
fn the_assemblers_own_conditions_are_conditions() {
    let text = "\t.if FOO\n\tpush %rax\n\t.elseif BAR\n\tnop\n\t.else\n\tnop\n\t.endif\n\tret\n";
    let source = AssemblySource::new(text).with_assembled([2, 8]);
    assert_eq!(source.insertion_points_before(8), [3]);
    assert!(!source.has_same_conditions(3, 8));
    assert!(source.has_same_conditions(1, 8));
}

#[test]
fn directives_that_are_left_out_are_not_stripped() {
    let text = "f:\n\t.cfi_startproc\n#ifdef FOO\n\tpush %rax\n\t.cfi_adjust_cfa_offset 8\n#endif\n\tret\n\t.cfi_endproc\n";
    let entry = |source: &AssemblySource| source.entry_around(7).unwrap();
    let mut left_out = AssemblySource::preprocessed(text).with_assembled([7]);
    assert!(!left_out.strip(entry(&left_out)));
    let mut there = AssemblySource::preprocessed(text).with_assembled([4, 7]);
    assert!(there.strip(entry(&there)));
}
