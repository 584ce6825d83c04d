//! Compares unspool's variables with gdb's, for the same process at the same address
//! (`crates/display-values/tests/variables.py`).

use std::collections::HashMap;

use serde_json::Value;

use crate::Error;

/// A name in a function at an address of the process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VariableKey {
    /// The frame's address.
    pub pc: u64,
    /// The function, without its namespaces.
    pub function: String,
    /// The name.
    pub name: String,
    /// Whether it is a parameter.
    pub is_parameter: bool,
}

/// Unspool's values: for each name the current values, innermost first, and the value at entry.
pub type PrintedVariables = HashMap<VariableKey, (Vec<String>, Option<String>)>;

/// gdb's values of a variable.
#[derive(Default)]
struct GdbVariable {
    current: Vec<String>,
    at_entry: Option<String>,
    /// The current values that gdb reads from caller-saved registers.
    believed: Vec<String>,
}

/// The number of compared values.
#[derive(Debug, Clone, Copy, Default)]
pub struct VariableCounts {
    /// Values that gdb has.
    pub known: usize,
    /// Values that gdb reads from caller-saved registers which the callee has not changed.
    pub skipped: usize,
}

/// A function's name without namespaces, parameters, and a template instance's return type.
#[must_use]
pub fn base_name(name: &str) -> String {
    let name = name.split('(').next().unwrap_or_default();
    let name = name.rsplit(' ').next().unwrap_or_default();
    // Unspool prints the namespaces of inlined functions in C++ and Rust only if the linkage name
    // has them.
    name.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Compares unspool's values with gdb's: all of gdb's must be there, and equal.
///
/// # Errors
///
/// A value is missing or different, or gdb's list is empty.
pub fn compare(variables: &PrintedVariables, gdb: &Value) -> Result<VariableCounts, Error> {
    let nothing = (Vec::new(), None);
    let mut compared = VariableCounts::default();
    for (named, gdb) in by_name(gdb).ok_or("gdb has left no list of variables")? {
        let (now, at_entry) = variables.get(&named).unwrap_or(&nothing);
        compared.known += gdb.current.len() + usize::from(gdb.at_entry.is_some());
        // The code shows an argument that no call site describes: such a parameter still has its
        // value at entry.
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
