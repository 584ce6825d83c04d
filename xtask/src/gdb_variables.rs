//! What is told of variables held against what gdb knows of the same process at the same place (`crates/cli/tests/locals/variables.py`).

use std::collections::HashMap;

use serde_json::Value;

use crate::Error;

/// What is named in a function at an address of the process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VariableKey {
    /// Where the frame stands.
    pub pc: u64,
    /// The function, without its namespaces.
    pub function: String,
    /// The name.
    pub name: String,
    /// Whether it is a parameter.
    pub is_parameter: bool,
}

/// What we tell: of each name what is known now, the innermost first, and at entry.
pub type PrintedVariables = HashMap<VariableKey, (Vec<String>, Option<String>)>;

/// What gdb tells of a variable.
#[derive(Default)]
struct GdbVariable {
    current: Vec<String>,
    at_entry: Option<String>,
    /// What it believes now of registers that calls may change.
    believed: Vec<String>,
}

/// How many values were compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct VariableCounts {
    /// Those that gdb has.
    pub known: usize,
    /// Those that it takes from registers that calls may change, where we know that the callee has not.
    pub skipped: usize,
}

/// The name of a function without its namespaces, what it takes, and what an instance of a template returns.
#[must_use]
pub fn base_name(name: &str) -> String {
    let name = name.split('(').next().unwrap_or_default();
    let name = name.rsplit(' ').next().unwrap_or_default();
    // We say the namespaces of inlined functions in C++ and Rust only where the linker's name has them.
    name.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Holds what we tell against what gdb does: there must be no less, and the same.
///
/// # Errors
///
/// Something is missing or another, or gdb's list is none.
pub fn compare(told: &PrintedVariables, gdb: &Value) -> Result<VariableCounts, Error> {
    let nothing = (Vec::new(), None);
    let mut compared = VariableCounts::default();
    for (named, gdb) in by_name(gdb).ok_or("gdb has left no list of variables")? {
        let (now, at_entry) = told.get(&named).unwrap_or(&nothing);
        compared.known += gdb.current.len() + usize::from(gdb.at_entry.is_some());
        // The code tells what a call was given, where no call site does: such a parameter is still what it was.
        let is_from_code = gdb.current.is_empty() && at_entry.as_ref() == now.first();
        let is_left_alone = *now != gdb.current && !is_from_code && *now == gdb.believed;
        compared.skipped += usize::from(is_left_alone);
        if *now != gdb.current && !is_from_code && !is_left_alone {
            return Err(format!("{named:?}: {now:?}, gdb: {:?}", gdb.current).into());
        }
        if gdb.at_entry.is_some() && *at_entry != gdb.at_entry {
            let gdb = gdb.at_entry;
            return Err(format!("{named:?} at entry: {at_entry:?}, gdb: {gdb:?}").into());
        }
    }
    Ok(compared)
}

fn by_name(gdb: &Value) -> Option<HashMap<VariableKey, GdbVariable>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut by_name: HashMap<VariableKey, GdbVariable> = HashMap::new();
    for frame in gdb.as_array()? {
        for variable in frame.get("variables")?.as_array()? {
            let named = VariableKey {
                pc: frame.get("pc")?.as_u64()?,
                function: base_name(frame.get("function")?.as_str()?),
                name: text(variable.get("name")?)?,
                is_parameter: variable.get("parameter")?.as_bool()?,
            };
            let known = by_name.entry(named).or_default();
            known.current.extend(text(variable.get("value")?));
            known.at_entry = text(variable.get("entry")?);
            known.believed.extend(text(variable.get("believed")?));
        }
    }
    Some(by_name)
}
