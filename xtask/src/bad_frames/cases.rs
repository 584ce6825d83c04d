//! The cases, the function with the bad frame, and the valid ends of walks after it.
//!
//! Every case has one cause, so most have one valid end. Several are valid if a compiled table has
//! left out a bad entry, or if a walk reads arbitrary memory.

/// A bad stack.
#[derive(Debug)]
pub struct Case {
    /// Its name in the program.
    pub name: &'static str,
    /// The function with the bad frame.
    culprit: &'static str,
    /// The valid ends of unspool's walks, by the names used in reports.
    pub ends: &'static [&'static str],
}

impl Case {
    /// The symbols of addresses that every walk must find, in order: the last is that of the bad
    /// frame's function.
    pub fn sound(&self) -> impl Iterator<Item = &'static str> {
        let is_innermost = self.culprit.contains("_wild_");
        let inner = ["after_inner", "after_middle"];
        let inner = inner.into_iter().filter(move |_| !is_innermost);
        inner.chain((self.culprit != "after_middle").then_some(self.culprit))
    }
}

const fn case(name: &'static str, culprit: &'static str, ends: &'static [&'static str]) -> Case {
    Case {
        name,
        culprit,
        ends,
    }
}

const STEP: &str = "step-failed";
const NO_MODULE: &str = "no-module";
const NOT_CODE: &str = "not-code";
const ZERO: &str = "zero-return-address";
const HOLE: &str = "hole";
const LOOP: &str = "loop";
const ROOT: &str = "outermost";
const STACKS: &str = "too-many-stacks";
const BAD_ENTRY: &str = "bad-entry";
/// A page without access: other processes can read it as zeros, and a core file may not have it.
const NO_ACCESS: &[&str] = &[STEP, ZERO, "not-copied"];
/// Walks of the own process do not know code outside of modules.
const NO_CODE: &[&str] = &[NO_MODULE, NOT_CODE];
/// Walks of the own process end there; other walks continue by synthesized rows, which end at the
/// root.
const NO_TABLE: &[&str] = &[HOLE, ROOT];
/// Arbitrary memory.
const BY_CHANCE: &[&str] = &[STEP, NO_MODULE, NOT_CODE, ZERO, HOLE, LOOP, STACKS];

/// All of them.
pub const ALL: &[Case] = &[
    case("ra_unmapped", "after_smash", NO_CODE),
    case("ra_one", "after_smash", NO_CODE),
    case("ra_highest", "after_smash", NO_CODE),
    case("ra_non_canonical", "after_smash", NO_CODE),
    case("ra_beyond_user_space", "after_smash", NO_CODE),
    case("ra_page_without_access", "after_smash", NO_CODE),
    case("ra_on_heap", "after_smash", NO_CODE),
    case("ra_on_stack", "after_smash", NO_CODE),
    case("ra_behind_module", "after_smash", NO_CODE),
    case("ra_in_unloaded_module", "after_smash", NO_CODE),
    case("ra_zero", "after_smash", &[ZERO]),
    case("ra_in_data", "after_smash", &[NO_MODULE, NOT_CODE, HOLE]),
    case(
        "ra_at_end_of_module",
        "after_smash",
        &[NO_MODULE, NOT_CODE, HOLE],
    ),
    case("fp_unmapped", "after_smash", &[STEP]),
    case("fp_zero", "after_smash", &[STEP]),
    case("fp_highest", "after_smash", &[STEP]),
    case("fp_wraps", "after_smash", &[STEP]),
    case("fp_non_canonical", "after_smash", &[STEP]),
    case("fp_at_end_of_page", "after_smash", &[STEP]),
    case("fp_in_page_without_access", "after_smash", NO_ACCESS),
    case("fp_misaligned", "after_smash", &[ZERO]),
    case(
        "fp_in_code",
        "after_smash",
        &[NO_MODULE, NOT_CODE, HOLE, STEP],
    ),
    case("fp_below_stack", "after_smash", BY_CHANCE),
    case("fp_bad_at_once", "after_bad_frame_pointer", &[STEP]),
    case(
        "fp_bad_at_once_no_table",
        "after_bad_frame_pointer_no_table",
        NO_TABLE,
    ),
    case(
        "fp_unmapped_no_table",
        "after_bad_frame_pointer_no_table",
        NO_TABLE,
    ),
    case(
        "no_table_leads_to_data",
        "after_bad_frame_pointer_no_table",
        NO_TABLE,
    ),
    case("own_caller", "after_smash", &[LOOP]),
    case("two_callers", "after_smash", &[LOOP]),
    case("circle_on_stack", "after_smash", &[LOOP]),
    case("circle_through_signal", "after_middle", &[LOOP]),
    case("signal_leads_nowhere", "after_middle", &[NO_MODULE]),
    case("signal_leads_to_bad_stack", "after_middle", &[STEP]),
    case("stack_ends", "after_on_stack", &[STEP]),
    case("stack_without_access_above", "after_on_stack", NO_ACCESS),
    case("overrun_by_letters", "after_overrun", NO_CODE),
    case("overrun_by_zeros", "after_overrun", &[ZERO]),
    case("covered_by_another", "after_covers_the_next", NO_CODE),
    case("wild_pc", "after_wild_call", &[ROOT]),
    case("wild_pc_zero", "after_wild_call", &[ROOT]),
    case("wild_pc_in_data", "after_wild_call", &[ROOT]),
    case("wild_pc_non_canonical", "at_wild_call", &[ROOT]),
    case("wild_sp", "after_wild_stack_pointer", &[STEP]),
    case("wild_sp_unmapped", "after_wild_stack_pointer", &[STEP]),
    case("wild_sp_at_end", "after_wild_stack_pointer", NO_ACCESS),
    case("wild_fp", "after_wild_frame_pointer", &[STEP]),
    case("wild_fp_unmapped", "after_wild_frame_pointer", &[STEP]),
    case("cfa_far_above", "after_cfa_far_above", &[STEP]),
    case("cfa_too_low", "after_cfa_too_low", BY_CHANCE),
    case("cfa_below", "after_cfa_below", BY_CHANCE),
    case("cfa_misaligned", "after_cfa_misaligned", NO_CODE),
    case("cfa_by_rbx", "after_cfa_by_rbx", &[STEP]),
    case(
        "cfa_by_unknown_register",
        "after_cfa_by_unknown_register",
        &[STEP],
    ),
    case(
        "cfa_by_no_register",
        "after_cfa_by_no_register",
        &[STEP, BAD_ENTRY, HOLE],
    ),
    case(
        "cfa_dereferences_rbx",
        "after_cfa_dereferences_rbx",
        &[STEP],
    ),
    case(
        "cfa_expression_endless",
        "after_cfa_expression_endless",
        &[STEP],
    ),
    case(
        "cfa_expression_endless_branch",
        "after_cfa_expression_endless_branch",
        &[STEP],
    ),
    case("cfa_expression_deep", "after_cfa_expression_deep", &[STEP]),
    case(
        "cfa_expression_underflow",
        "after_cfa_expression_underflow",
        &[STEP],
    ),
    case(
        "cfa_expression_empty",
        "after_cfa_expression_empty",
        &[STEP],
    ),
    case(
        "cfa_expression_illegal",
        "after_cfa_expression_illegal",
        &[STEP],
    ),
    case(
        "cfa_expression_cut_short",
        "after_cfa_expression_cut_short",
        &[STEP],
    ),
    case(
        "cfa_expression_branches_out",
        "after_cfa_expression_branches_out",
        &[STEP],
    ),
    case(
        "cfa_expression_divides_by_zero",
        "after_cfa_expression_divides_by_zero",
        &[STEP],
    ),
    case(
        "cfa_expression_needs_unknown",
        "after_cfa_expression_needs_unknown",
        &[STEP],
    ),
    case("ra_far_away", "after_ra_far_away", &[STEP]),
    case("ra_is_the_cfa", "after_ra_is_the_cfa", NO_CODE),
    case("ra_in_rbx", "after_ra_in_rbx", NO_CODE),
    case(
        "ra_in_unknown_register",
        "after_ra_in_unknown_register",
        &[STEP],
    ),
    case("ra_undefined", "after_ra_undefined", &[ROOT]),
    case("ra_same_value", "after_ra_same_value", &[STACKS]),
    case("ra_at_expression", "after_ra_at_expression", &[STEP]),
    case("ra_of_expression", "after_ra_of_expression", NO_CODE),
    case(
        "ra_expression_endless",
        "after_ra_expression_endless",
        &[STEP],
    ),
    case("rbx_far_away", "after_rbx_far_away", &[ROOT]),
    case(
        "rbx_expression_endless",
        "after_rbx_expression_endless",
        &[ROOT],
    ),
    case("rbp_far_away", "after_rbp_far_away", &[ROOT, STEP]),
    case(
        "rbp_in_unknown_register",
        "after_rbp_in_unknown_register",
        &[ROOT, STEP],
    ),
    case(
        "rbp_of_bad_expression",
        "after_rbp_of_bad_expression",
        &[ROOT, STEP],
    ),
    case("rsp_far_away", "after_rsp_far_away", &[STEP]),
    case("rsp_below", "after_rsp_below", BY_CHANCE),
    case("circle", "after_circle", &[LOOP]),
    case("climbs_for_ever", "after_climbs_for_ever", &[STACKS]),
    case("falls_for_ever", "after_falls_for_ever", &[STACKS]),
    case(
        "entry_cut_short",
        "after_entry_cut_short",
        &[BAD_ENTRY, HOLE, ROOT],
    ),
    case(
        "entry_unknown_instruction",
        "after_entry_unknown_instruction",
        &[BAD_ENTRY, HOLE, ROOT],
    ),
    case(
        "entry_restores_nothing",
        "after_entry_restores_nothing",
        &[BAD_ENTRY, HOLE, ROOT],
    ),
    case(
        "entry_remembers_without_end",
        "after_entry_remembers_without_end",
        &[BAD_ENTRY, HOLE, ROOT],
    ),
    case(
        "entry_goes_back",
        "after_entry_goes_back",
        &[BAD_ENTRY, HOLE, ROOT],
    ),
    case("signal_frame", "after_signal_frame", &[ROOT]),
    case("bad_personality", "after_bad_personality", &[ROOT]),
];
