//! Evaluating all variables of a file.

use unspool_dwarf_types::SplitFiles;
use unspool_dwarf_types::variables::{
    Activation, PartialValue, VariableFrame, VariableStack, VariableUnavailable, Variables,
};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_rows::Vaddr;

/// A stack with every frame in a module, some of them at a call.
struct SameStack<'s, 'a> {
    variables: &'s Variables<'a>,
    address: u64,
}

impl<'a> VariableStack<'a> for SameStack<'_, 'a> {
    fn frame(&self, number: usize) -> Option<VariableFrame<'_, 'a>> {
        (number < 100).then_some(VariableFrame {
            variables: self.variables,
            lookup: Vaddr(self.address),
            returns_to: Some(Vaddr(self.address + 1)),
            bias: 0x1000,
        })
    }
    fn register(&self, _: usize, register: u16) -> Option<u64> {
        (register < 16).then_some(u64::from(register) << 8)
    }
    fn cfa(&self, number: usize) -> Option<u64> {
        Some(0x8000 + number as u64)
    }
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        into.fill(0x5a);
        address < 1 << 20
    }
    fn thread_local(&self, _: usize, offset: u64) -> Result<u64, VariableUnavailable> {
        match offset % 2 {
            0 => Ok(0x4000 + offset / 2),
            _ => Err(VariableUnavailable::ThreadLocal("odd")),
        }
    }
    fn callee_address(&self, number: usize) -> Option<u64> {
        number.is_multiple_of(2).then_some(self.address)
    }
    fn at_entry(&self, _: usize, _: u16) -> Option<u64> {
        None
    }
}

/// Evaluates everything at some addresses; returns the number of values.
pub(crate) fn ask(file: &ElfFile, addresses: &[u64]) -> usize {
    let (files, splits) = (DebugFiles::default(), SplitFiles::default());
    let Ok(variables) = Variables::from_module(file, &files, &splits) else {
        return 0;
    };
    let mut found = 0;
    for address in addresses {
        let stack = SameStack {
            variables: &variables,
            address: *address,
        };
        let Ok(Some(function)) = variables.function(Vaddr(*address)) else {
            continue;
        };
        let activation = Activation::new(&stack, 0, &function);
        for level in function.frame_functions(Vaddr(*address)) {
            for variable in level.parameters.iter().chain(&level.locals) {
                let value = activation.current_value(variable, 64);
                assert!(value.as_ref().map_or(true, PartialValue::has_known_part));
                found += usize::from(value.is_ok());
                found += usize::from(activation.at_entry(variable, 64).is_ok());
            }
        }
    }
    found
}
