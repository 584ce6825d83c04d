//! Runs all queries on an argument table.

use unspool_arg_table::{
    ArgFrame, ArgSource, ArgStack, ArgTable, DisplayKind, DisplayType, UnprovenRules, ValueDisplay,
    argument,
};

/// A display kind with all its parts, up to a number of them.
pub(crate) fn describe<T: DisplayType>(kind: DisplayKind<T>, left: &mut u32) -> String {
    let Some(less) = left.checked_sub(1) else {
        return "...".to_owned();
    };
    *left = less;
    match kind {
        DisplayKind::Signed => "signed".to_owned(),
        DisplayKind::Unsigned => "unsigned".to_owned(),
        DisplayKind::Bool => "bool".to_owned(),
        DisplayKind::Char => "char".to_owned(),
        DisplayKind::UnsignedChar => "unsigned char".to_owned(),
        DisplayKind::Pointer => "pointer".to_owned(),
        DisplayKind::CharPointer => "text".to_owned(),
        DisplayKind::Float => "float".to_owned(),
        DisplayKind::Bytes => "bytes".to_owned(),
        DisplayKind::Enum(constants) => {
            let constants = constants.map(|(value, name)| format!("{} = {value}, ", name.as_ref()));
            format!("enum {{{}}}", constants.collect::<String>())
        }
        DisplayKind::Record(members) => {
            let mut text = "{".to_owned();
            for one in members.take(300) {
                let place = format!(" {} at {}, {}: ", one.name.as_ref(), one.offset, one.bytes);
                text += &(place + &describe(one.display_kind, left));
                if *left == 0 {
                    break;
                }
            }
            text + "}"
        }
        DisplayKind::Array(array) => {
            let element = describe(array.element.kind(), left);
            format!("{} of {} bytes: {element}", array.count, array.bytes)
        }
        DisplayKind::Bits(field) => {
            let number = describe(field.number.kind(), left);
            format!("{} bits at {} of {number}", field.count, field.first)
        }
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
                describe(parameter.display_kind, &mut 1000),
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
