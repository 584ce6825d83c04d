//! Runs all queries on an argument table.

use unspool_arg_table::{
    ArgFrame, ArgSource, ArgStack, ArgTable, DisplayKind, DisplayType as _, TableType,
    UnprovenRules, ValueDisplay, argument,
};

/// The number of parts without parts of their own.
fn count_parts(kind: DisplayKind<TableType<'_>>) -> usize {
    match kind {
        DisplayKind::Enum(constants) => constants.count(),
        DisplayKind::Record(members) => members.map(|own| count_parts(own.display_kind)).sum(),
        DisplayKind::Array(array) => count_parts(array.element.kind()),
        DisplayKind::Bits(field) => count_parts(field.number.kind()),
        _ => 1,
    }
}

/// A stack of equal frames.
struct CommonFunction<'t>(ArgTable<'t>, u64);

impl ArgStack for CommonFunction<'_> {
    fn frame(&self, number: usize) -> Option<ArgFrame<'_>> {
        (number < 100).then_some(ArgFrame {
            table: self.0,
            address: self.1,
            is_return: true,
            bias: 0,
        })
    }
    fn register(&self, _: usize, register: u8) -> Option<u64> {
        Some(register.into())
    }
    fn cfa(&self, number: usize) -> Option<u64> {
        Some(number as u64)
    }
    fn is_certain(&self, _: usize) -> bool {
        true
    }
    fn unproven_rules(&self, number: usize) -> UnprovenRules {
        self.0.unproven_rules(number as u64)
    }
    fn read(&self, address: u64, _: u8) -> Option<u64> {
        Some(address)
    }
}

/// Runs all operations on a table.
pub(crate) fn use_all(bytes: &[u8], address: u64) {
    let Ok(table) = ArgTable::open(bytes) else {
        return;
    };
    for index in 0..table.len().min(64) {
        let Some(function) = table.get(index) else {
            continue;
        };
        for parameter in function.parameters().into_iter().flatten().take(64) {
            let _ = (
                parameter.pieces().take(64).count(),
                count_parts(parameter.display_kind),
            );
            let _ = ValueDisplay::new(&parameter, &[0x5a; 64]).to_string();
        }
        for pc in [function.start, function.end.wrapping_sub(1), address] {
            let _ = function.row(pc).map(|pieces| pieces.take(64).count());
            let _ = function.call(pc).map(|call| call.passed().take(64).count());
            let _ = table.function(pc);
        }
    }
    let stack = CommonFunction(table, address);
    for source in [ArgSource::Register(5), ArgSource::Stack(0)] {
        let _ = argument(&stack, 0, source, 64);
    }
}
