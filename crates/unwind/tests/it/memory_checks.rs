//! The comparisons by which a walk decides to load (`src/local/sys.rs`), as claims about all numbers of
//! 64 bits that an SMT solver proves.

use unspool_testing::Folder;

const CLAIMS: &str = include_str!("../memory_checks.smt2");

/// What the solver says of each claim.
fn verdicts(claims: &str) -> Vec<(String, String)> {
    let folder = Folder::new();
    folder.write("claims.smt2", claims);
    let said = folder.tool("z3", "claims.smt2");
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let (pairs, rest) = lines.as_chunks::<2>();
    assert!(rest.is_empty(), "{said}");
    pairs
        .iter()
        .cloned()
        .map(|[claim, verdict]| (claim, verdict))
        .collect()
}

#[test]
fn the_claims_hold_for_all_numbers() {
    let verdicts = verdicts(CLAIMS);
    assert_eq!(verdicts.len(), 7);
    for (claim, verdict) in verdicts {
        assert_eq!(verdict, "unsat", "{claim}");
    }
}

/// A claim fails if what it depends on is one off.
#[test]
fn a_wrong_number_refutes_a_claim() {
    for (claim, from, to) in [
        (
            "a word that is loaded is in the window",
            "end low) #x0000000000000007",
            "end low) #x0000000000000006",
        ),
        (
            "a word in the window is loaded",
            "end low) #x0000000000000007",
            "end low) #x0000000000000008",
        ),
        (
            "the lower word of a pair is above the red zone's end",
            "bvult below #x0000000000000080",
            "bvult below #x0000000000000082",
        ),
        (
            "two steps that raise the stack pointer read different words",
            "(bvugt next",
            "(bvuge next",
        ),
    ] {
        assert!(CLAIMS.contains(from), "{from}");
        let verdicts = verdicts(&only(claim).replace(from, to));
        assert_eq!(verdicts, [(claim.to_owned(), "sat".to_owned())]);
    }
}

/// The definitions, and one claim.
fn only(claim: &str) -> String {
    let mut parts = CLAIMS.split("(echo ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (block, definitions) = part.split_once("(pop)").unwrap();
        if block.starts_with(&format!("\"{claim}\"")) {
            text.push_str(&format!("(echo {block}(pop)"));
        }
        text.push_str(definitions);
    }
    text
}
