//! All that can be asked of a table of arguments.

use unspool_args::{Doubts, Frame, Shape, Shown, Source, Stack, Table, argument};

/// A shape as the shapes of prototypes are written.
pub(crate) fn shape(own: Shape<'_>) -> String {
    match own {
        Shape::Enum(constants) => format!("Enum({:?})", constants.collect::<Vec<_>>()),
        Shape::Record(members) => {
            let members = members.map(|member| {
                let shape = shape(member.shape);
                let (name, offset, bytes) = (member.name, member.offset, member.bytes);
                format!(
                    "Member {{ name: {name:?}, offset: {offset}, bytes: {bytes}, shape: {shape} }}"
                )
            });
            format!("Record([{}])", members.collect::<Vec<_>>().join(", "))
        }
        Shape::Array(array) => {
            let element = array.element().map(shape).unwrap_or_default();
            format!("Array({}, {}, {element})", array.count, array.bytes)
        }
        Shape::Bits(bits) => {
            let number = bits.number().map(shape).unwrap_or_default();
            format!("Bits({}, {}, {number})", bits.first, bits.count)
        }
        Shape::UnsignedChar => "UnsignedChar".into(),
        Shape::Signed => "Signed".into(),
        Shape::Unsigned => "Unsigned".into(),
        Shape::Bool => "Bool".into(),
        Shape::Char => "Char".into(),
        Shape::Pointer => "Pointer".into(),
        Shape::Text => "Text".into(),
        Shape::Float => "Float".into(),
        Shape::Bytes => "Bytes".into(),
    }
}

/// A stack of which every frame is the same.
struct Same<'t>(Table<'t>, u64);

impl Stack for Same<'_> {
    fn frame(&self, number: usize) -> Option<Frame<'_>> {
        (number < 100).then_some(Frame {
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
    fn doubts(&self, number: usize) -> Doubts {
        self.0.doubts(number as u64)
    }
    fn read(&self, address: u64, _: u8) -> Option<u64> {
        Some(address)
    }
}

/// Does with a table whatever can be done with it.
pub(crate) fn use_all(bytes: &[u8], address: u64) {
    let Ok(table) = Table::open(bytes) else {
        return;
    };
    for index in 0..table.len().min(64) {
        let Some(function) = table.get(index) else {
            continue;
        };
        for parameter in function.parameters().into_iter().flatten().take(64) {
            let _ = (parameter.pieces().take(64).count(), shape(parameter.shape));
            let _ = Shown::new(&parameter, &[0x5a; 64]).to_string();
        }
        for pc in [function.start, function.end.wrapping_sub(1), address] {
            let _ = function.row(pc).map(|pieces| pieces.take(64).count());
            let _ = function.call(pc).map(|call| call.passed().take(64).count());
            let _ = table.function(pc);
        }
    }
    let stack = Same(table, address);
    for source in [Source::Register(5), Source::Stack(0)] {
        let _ = argument(&stack, 0, source, 64);
    }
}
