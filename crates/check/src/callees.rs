//! Names of called functions, in this file and in others.

use std::collections::HashMap;

use unspool_code_analysis::Lifter;
use unspool_code_analysis::op::Flow;
use unspool_elf::{DebugFiles, ElfFile, Symbols, demangle};
use unspool_rows::Vaddr;

/// The suffix of the symbols that stubs of the procedure linkage table get.
const STUB: &str = "@plt";

/// The functions that calls go to, by the addresses of the calls.
#[derive(Debug, Default)]
pub(crate) struct Callees(HashMap<Vaddr, String>);

impl Callees {
    /// Names the functions of direct calls and tail calls. In an object file that may be an
    /// undefined symbol, in a linked file one of another module.
    pub(crate) fn new(file: &ElfFile, debug: &DebugFiles, calls: &[Vaddr]) -> Callees {
        let Some(mut lifter) = Lifter::new(file.abi()).filter(|_| !calls.is_empty()) else {
            return Callees::default();
        };
        let target = |call: &Vaddr| Some((*call, target(file, &mut lifter, *call)?));
        let targets: Vec<(Vaddr, Vaddr)> = calls.iter().filter_map(target).collect();
        let addresses: Vec<Vaddr> = targets.iter().map(|(_, target)| *target).collect();
        let symbols = Symbols::for_addresses(file, debug.debug.as_deref(), &addresses);
        let name = |target: Vaddr| {
            if let Some(name) = file.undefined_name(target) {
                return Some(demangle(&name).into_owned());
            }
            let symbol = symbols.lookup(target)?;
            let name = symbol.name.strip_suffix(STUB).unwrap_or(&symbol.name);
            (symbol.address == target).then(|| demangle(name).into_owned())
        };
        let named = targets
            .into_iter()
            .filter_map(|(call, target)| Some((call, name(target)?)));
        Callees(named.collect())
    }

    /// The function of a call.
    pub(crate) fn get(&self, call: Vaddr) -> Option<&str> {
        self.0.get(&call).map(String::as_str)
    }

    /// All functions, each once, by name.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.values().cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn target(file: &ElfFile, lifter: &mut Lifter, call: Vaddr) -> Option<Vaddr> {
    let rest = file.rest_at(call)?;
    let most = usize::from(lifter.abi_info().max_insn_bytes).min(rest.len());
    let insn = lifter.decode(rest.get(..most)?, call.0, &mut Vec::new())?;
    match insn.flow? {
        Flow::Call(target) | Flow::Jump(target) | Flow::Branch { to: target, .. } => {
            Some(Vaddr(target))
        }
        _ => None,
    }
}
