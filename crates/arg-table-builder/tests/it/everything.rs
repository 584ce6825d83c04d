//! Runs all queries on an argument table.

use unspool_arg_table::{
    ArgFrame, ArgSource, ArgStack, ArgTable, DisplayKind, UnprovenRules, ValueDisplay, argument,
};

/// A display kind in the notation of prototypes' kinds.
pub(crate) fn shape(own: DisplayKind<'_>) -> String {
    match own {
        DisplayKind::Enum(constants) => format!("Enum({:?})", constants.collect::<Vec<_>>()),
        DisplayKind::Record(members) => {
            let members = members.map(|member| {
                let shape = shape(member.display_kind);
                let (name, offset, bytes) = (member.name, member.offset, member.bytes);
                format!(
                    "OwnedMember {{ name: {name:?}, offset: {offset}, bytes: {bytes}, display_kind: {shape} }}"
                )
            });
            format!("Record([{}])", members.collect::<Vec<_>>().join(", "))
        }
        DisplayKind::Array(array) => {
            let element = array.element().map(shape).unwrap_or_default();
            format!("Array({}, {}, {element})", array.count, array.bytes)
        }
        DisplayKind::Bits(bits) => {
            let number = bits.number().map(shape).unwrap_or_default();
            format!("Bits({}, {}, {number})", bits.first, bits.count)
        }
        DisplayKind::UnsignedChar => "UnsignedChar".into(),
        DisplayKind::Signed => "Signed".into(),
        DisplayKind::Unsigned => "Unsigned".into(),
        DisplayKind::Bool => "Bool".into(),
        DisplayKind::Char => "Char".into(),
        DisplayKind::Pointer => "Pointer".into(),
        DisplayKind::CharPointer => "CharPointer".into(),
        DisplayKind::Float => "Float".into(),
        DisplayKind::Bytes => "Bytes".into(),
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
                shape(parameter.display_kind),
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
