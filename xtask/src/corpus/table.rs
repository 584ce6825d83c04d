//! The table of the pairs in the corpus's README.

use std::fmt::Write as _;
use std::fs;

use super::pair::{Pair, PairVerdict, folder};
use crate::Error;

const BEGIN: &str = "<!-- begin of the table: `cargo xtask corpus --write` -->\n";
const END: &str = "<!-- end of the table -->\n";

/// The README, with its table replaced by that of these pairs.
///
/// # Errors
///
/// It cannot be read, or its marks are missing.
pub fn readme(pairs: &[Pair]) -> Result<(String, String), Error> {
    let old = fs::read_to_string(folder().join("README.md"))?;
    let (head, rest) = old.split_once(BEGIN).ok_or("the table has no begin")?;
    let (_, tail) = rest.split_once(END).ok_or("the table has no end")?;
    let new = format!("{head}{BEGIN}\n{}\n{END}{tail}", table(pairs)?);
    Ok((old, new))
}

/// Writes it.
///
/// # Errors
///
/// As [`readme`]; it cannot be written.
pub fn write(pairs: &[Pair]) -> Result<(), Error> {
    let (_, new) = readme(pairs)?;
    Ok(fs::write(folder().join("README.md"), new)?)
}

fn table(pairs: &[Pair]) -> Result<String, Error> {
    let refuted = pairs
        .iter()
        .filter(|pair| pair.verdict == PairVerdict::Refuted);
    let mut text = format!(
        "{} pairs, of which {} can be refuted.\n\n",
        pairs.len(),
        refuted.count()
    );
    text.push_str("| pair | stands for | what is wrong | expected | at |\n|---|---|---|---|---|\n");
    for pair in pairs {
        let Pair {
            name, bug, wrong, ..
        } = pair;
        let (expected, labels) = (expected(pair), pair.labels.join(", "));
        let (bug, wrong) = (cell(bug), cell(wrong));
        writeln!(
            text,
            "| [{name}]({name}.s) | {bug} | {wrong} | {expected} | {labels} |"
        )?;
    }
    Ok(text)
}

fn expected(pair: &Pair) -> String {
    let mut words = vec![match pair.verdict {
        PairVerdict::Refuted => "refuted",
        PairVerdict::Unproven => "unproven",
    }];
    if pair.is_static_only {
        words.push("no run shows it");
    }
    if pair.is_right_unproven {
        words.push("right one unproven");
    }
    words.join("; ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
