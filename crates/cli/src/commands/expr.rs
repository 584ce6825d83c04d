//! `unspool expr`.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use unspool_cfi::escape;
use unspool_cfi::instruction::InstructionText;
use unspool_rows::formula::{
    ExpressionUse, FormulaError, FormulaParseError, OperationsText, Statement,
};
use unspool_rows::{Abi, Endian, Register};

use crate::args::Format;
use crate::args::check::ExprArgs;
use crate::output::{self, EscapedText, ExitCodes};

/// The result for one instruction, or for an expression on its own.
struct ExprResult {
    /// The instruction in the standard's terms.
    instruction: Option<String>,
    /// The rule that it states by an expression, if it does.
    statement: Option<Statement>,
}

pub(crate) fn run(args: &ExprArgs) -> anyhow::Result<ExitCode> {
    let abi = Abi {
        arch: args.arch,
        endian: Endian::Little,
    };
    let text = args.text.join(" ");
    let results = match read(&text, abi) {
        Ok(result) => result,
        Err(error) => {
            point_at(&text, &error);
            return Ok(ExitCode::from(ExitCodes::COULD_NOT_RUN));
        }
    };
    match args.format {
        Format::Text => print_text(&results, abi)?,
        Format::Json => print_json(&results, abi)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(text: &str, abi: Abi) -> Result<Vec<ExprResult>, FormulaParseError> {
    let Some(bytes) = escape::parse_bytes(text)? else {
        let statement = Statement::parse(text, abi)?;
        return Ok(vec![ExprResult {
            instruction: instruction_of(&statement, abi),
            statement: Some(statement),
        }]);
    };
    let mut results = Vec::new();
    let decoded = escape::decode(&bytes, abi, |instruction| {
        results.push(ExprResult {
            instruction: Some(format!("DW_CFA_{}", InstructionText(instruction, abi))),
            statement: escape::statement(&instruction),
        });
    });
    match decoded {
        Ok(()) => Ok(results),
        Err(_) => Err(FormulaParseError {
            at: 0,
            what: "these bytes are not call frame instructions: an expression's own bytes stand in braces: {#770806}",
        }),
    }
}

fn instruction_of(statement: &Statement, abi: Abi) -> Option<String> {
    let bytes = escape::encode(statement)?;
    let mut text = None;
    let decoded = escape::decode(&bytes, abi, |instruction| {
        text = Some(format!("DW_CFA_{}", InstructionText(instruction, abi)));
    });
    decoded.ok().and(text)
}

/// Reports an error and points at its character.
fn point_at(text: &str, error: &FormulaParseError) {
    output::error(error);
    let before = text.get(..error.at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(line_start..).unwrap_or_default();
    let line = line.lines().next().unwrap_or_default();
    let before = before.get(line_start..).unwrap_or_default();
    let width = EscapedText(before).to_string().chars().count();
    // Failure to write to a closed standard error is ignored.
    let _ = writeln!(
        anstream::stderr(),
        "  {}\n  {:width$}^",
        EscapedText(line),
        ""
    );
}

fn print_text(all: &[ExprResult], abi: Abi) -> anyhow::Result<()> {
    let mut out = output::text();
    for result in all {
        let Some(statement) = &result.statement else {
            writeln!(out, "{}", result.instruction.as_deref().unwrap_or_default())?;
            continue;
        };
        match formula(statement, abi) {
            Ok(formula) => writeln!(out, "{formula}")?,
            Err(why) => writeln!(out, "no formula: {why}")?,
        }
        writeln!(out, "{}", OperationsText(statement, abi))?;
        match directive(statement) {
            Some(directive) => writeln!(out, "{directive}")?,
            None => writeln!(out, "{}", list(&statement.expression))?,
        }
        if let Some(shorter) = shorter(statement, abi) {
            writeln!(out, "{shorter}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn print_json(all: &[ExprResult], abi: Abi) -> anyhow::Result<()> {
    let values: Vec<Value> = all.iter().map(|result| as_json(result, abi)).collect();
    let body = json!({ "arch": abi.arch.spec().name, "statements": values });
    Ok(output::document("expr", &body)?)
}

fn as_json(result: &ExprResult, abi: Abi) -> Value {
    let Some(statement) = &result.statement else {
        return json!({ "instruction": result.instruction });
    };
    let formula = formula(statement, abi);
    json!({
        "instruction": result.instruction,
        "formula": formula.as_ref().ok(),
        "no_formula_reason": formula.as_ref().err().map(ToString::to_string),
        "operations": OperationsText(statement, abi).to_string(),
        "expression": statement.expression,
        "escape": directive(statement),
        "short_directive": shorter(statement, abi),
    })
}

fn formula(statement: &Statement, abi: Abi) -> Result<String, FormulaError> {
    let formula = statement.formula(abi)?;
    Ok(format!("{}{formula}", statement.left_side(abi)))
}

fn directive(statement: &Statement) -> Option<String> {
    let bytes = escape::encode(statement)?;
    Some(format!(".cfi_escape {}", list(&bytes)))
}

fn list(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    bytes.join(", ")
}

/// The equivalent shorter directive, if assemblers have one.
fn shorter(statement: &Statement, abi: Abi) -> Option<String> {
    let sign = abi.arch.spec().register_sign;
    // Registers without a name in assemblers are given by number.
    let name = |register: Register| match abi.arch.assembler_name(register) {
        Some(name) => format!("{sign}{name}"),
        None => register.0.to_string(),
    };
    let formula = statement.formula(abi).ok()?;
    match statement.purpose {
        ExpressionUse::Any => None,
        ExpressionUse::Cfa => {
            let (register, offset) = formula.as_sum()?;
            Some(format!(".cfi_def_cfa {}, {offset}", name(register?)))
        }
        ExpressionUse::Address(register) => match formula.address()?.as_sum()? {
            (None, offset) => Some(format!(".cfi_offset {}, {offset}", name(register))),
            _ => None,
        },
        ExpressionUse::Value(register) => match formula.as_sum()? {
            (None, offset) => Some(format!(".cfi_val_offset {}, {offset}", name(register))),
            (Some(other), 0) => Some(format!(".cfi_register {}, {}", name(register), name(other))),
            _ => None,
        },
    }
}
