//! The results of other tools for the pairs.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::pair::Pair;
use super::program::{PairProgram, Variant};
use super::proof;
use crate::{Error, programs};

/// The tools; versions other than those of Debian's current release can be given.
#[derive(Debug)]
pub struct PeerTools {
    /// LLVM's assembler; `--validate-cfi` came with LLVM 21.
    pub llvm_mc: String,
    /// LLVM's reader of debugging information.
    pub llvm_dwarfdump: String,
    /// The GNU assembler; `--scfi` came with binutils 2.42.
    pub gas: String,
}

impl Default for PeerTools {
    fn default() -> Self {
        PeerTools {
            llvm_mc: "/usr/bin/llvm-mc".to_owned(),
            llvm_dwarfdump: "/usr/bin/llvm-dwarfdump".to_owned(),
            gas: "/usr/bin/as".to_owned(),
        }
    }
}

/// How often a tool complains about one variant, or about both.
#[derive(Debug, Default)]
struct ComplaintCount {
    wrong: u32,
    right: u32,
    only_wrong: u32,
    more: u32,
}

impl ComplaintCount {
    fn add(&mut self, right: usize, wrong: usize) {
        self.wrong += u32::from(wrong > 0);
        self.right += u32::from(right > 0);
        self.only_wrong += u32::from(wrong > 0 && right == 0);
        self.more += u32::from(wrong > right);
    }
}

/// Prints their results.
///
/// # Errors
///
/// One is missing or cannot be run.
pub fn report(
    pairs: &[Pair],
    tools: &PeerTools,
    folder: &Path,
    out: &mut impl Write,
) -> Result<(), Error> {
    let total = pairs.len();
    writeln!(
        out,
        "| {total} pairs | wrong: complains | right: complains | wrong only | more of the wrong one |"
    )?;
    writeln!(out, "|---|---|---|---|---|")?;
    let mc = &tools.llvm_mc;
    if knows(mc, "--help-hidden", "validate-cfi")? {
        let all = |_: &str| true;
        let errors = count(pairs, |pair, variant| validate_cfi(pair, variant, mc, all))?;
        line(out, "llvm-mc --validate-cfi, errors", mc, &errors)?;
        let errors = count(pairs, |pair, variant| {
            validate_cfi(pair, variant, mc, is_of_callee_saved)
        })?;
        line(
            out,
            "of these on the CFA and callee-saved registers",
            mc,
            &errors,
        )?;
    } else {
        writeln!(
            out,
            "| {}: no --validate-cfi | – | – | – | – |",
            version(mc)?
        )?;
    }
    let dwarfdump = &tools.llvm_dwarfdump;
    let count = count(pairs, |pair, variant| {
        verify(pair, variant, dwarfdump, folder)
    })?;
    line(out, "llvm-dwarfdump --verify", dwarfdump, &count)?;
    let lost = |pair: &Pair, variant| {
        let program = PairProgram::build(pair, variant, folder, &["/usr/bin/as"])?;
        Ok(program.step(pair)?.without_caller.len())
    };
    let count = self::count(pairs, lost)?;
    line(
        out,
        "`bt` without `main` at some instruction",
        "/usr/bin/gdb",
        &count,
    )?;
    if knows(&tools.gas, "--help", "--scfi")? {
        scfi(pairs, &tools.gas, folder, out)?;
    } else {
        writeln!(out, "\n{}: no --scfi", version(&tools.gas)?)?;
    }
    Ok(())
}

fn count(
    pairs: &[Pair],
    complaints: impl Fn(&Pair, Variant) -> Result<usize, Error>,
) -> Result<ComplaintCount, Error> {
    let mut count = ComplaintCount::default();
    for pair in pairs {
        let right = complaints(pair, Variant::Right)?;
        count.add(right, complaints(pair, Variant::Wrong)?);
    }
    Ok(count)
}

fn line(
    out: &mut impl Write,
    what: &str,
    program: &str,
    count: &ComplaintCount,
) -> Result<(), Error> {
    let ComplaintCount {
        wrong,
        right,
        only_wrong: apart,
        more,
    } = count;
    let version = version(program)?;
    Ok(writeln!(
        out,
        "| {what} ({version}) | {wrong} | {right} | {apart} | {more} |"
    )?)
}

/// Whether a program's help mentions a word.
fn knows(program: &str, help: &str, word: &str) -> Result<bool, Error> {
    Ok(programs::stdout(Command::new(program).arg(help))?.contains(word))
}

/// The line of a program's version output with a number.
fn version(program: &str) -> Result<String, Error> {
    let text = programs::stdout(Command::new(program).arg("--version"))?;
    let has_number = |line: &&str| line.contains(|letter: char| letter.is_ascii_digit());
    Ok(text
        .lines()
        .find(has_number)
        .unwrap_or_default()
        .trim()
        .to_owned())
}

/// The number of errors of a kind from LLVM's assembler with its check; its warnings are about
/// unchecked parts.
fn validate_cfi(
    pair: &Pair,
    variant: Variant,
    program: &str,
    is_kind: impl Fn(&str) -> bool,
) -> Result<usize, Error> {
    let output = Command::new(program)
        .args(["-triple=x86_64", "-filetype=null", "--validate-cfi"])
        .args(variant.options())
        .arg(&pair.path)
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code().is_none() {
        return Err(format!("{program}: {}: {text}", output.status).into());
    }
    let errors = text.lines().filter(|line| line.contains("error:"));
    Ok(errors.filter(|line| is_kind(line)).count())
}

/// Whether an error is not only about a caller-saved register.
fn is_of_callee_saved(error: &str) -> bool {
    let changed = error.split_once("changed register ");
    let register = changed.and_then(|(_, rest)| rest.split(',').next());
    register.is_none_or(|name| ["RSP", "RBX", "RBP", "R12", "R13", "R14", "R15"].contains(&name))
}

fn verify(pair: &Pair, variant: Variant, program: &str, folder: &Path) -> Result<usize, Error> {
    let built = PairProgram::build(pair, variant, folder, &["/usr/bin/as"])?;
    let output = Command::new(program)
        .args(["--verify", "--quiet"])
        .arg(&built.path)
        .output()?;
    Ok(usize::from(!output.status.success()))
}

/// The tables that the GNU assembler itself generates for the right variants, checked by
/// single-stepping.
fn scfi(pairs: &[Pair], gas: &str, folder: &Path, out: &mut impl Write) -> Result<(), Error> {
    let (mut rejected, mut is_false, mut is_true) = (Vec::new(), Vec::new(), 0_u32);
    for pair in pairs {
        let name = pair.name.as_str();
        let assembler = [gas, "--scfi=experimental", "--no-warn"];
        match PairProgram::build(pair, Variant::Right, folder, &assembler) {
            Err(_) => rejected.push(name),
            Ok(program) => {
                let run = program.step(pair)?;
                if proof::falsehoods(&program, &run).is_empty() {
                    is_true += 1;
                } else {
                    is_false.push(name);
                }
            }
        }
    }
    let version = version(gas)?;
    writeln!(out, "\n{version}, --scfi=experimental, of the right code:")?;
    writeln!(out, "- a table true at every instruction: {is_true}")?;
    writeln!(
        out,
        "- a false table: {}: {}",
        is_false.len(),
        is_false.join(" ")
    )?;
    writeln!(
        out,
        "- rejected: {}: {}",
        rejected.len(),
        rejected.join(" ")
    )?;
    Ok(())
}
