//! What the functions of a report were called with.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use unspool_args::{Certainty, Parameter, Shape, Value};
use unspool_args_make::{TableError, table_of};
use unspool_ir::{Memory, RuntimeAddr};
use unspool_module::{DebugFiles, SearchRoots};
use unspool_unwind::arguments::Arguments;
use unspool_unwind::space::{Located, Space, Stack};
use unspool_unwind::tables::{ArgumentTable, Store};

use crate::output;

/// The tables of arguments of the modules of a report.
#[derive(Default)]
pub(super) struct Tables {
    by_module: HashMap<PathBuf, Option<ArgumentTable>>,
}

/// An argument of a frame's function.
pub(super) struct Argument {
    /// The parameter's name, or its number.
    pub(super) name: String,
    /// Its type.
    pub(super) type_name: String,
    /// Its value, if it was found.
    pub(super) value: Result<Shown, Lost>,
}

/// A value that was found.
pub(super) struct Shown {
    /// As C would have it.
    pub(super) text: String,
    /// How certain it is.
    pub(super) certainty: Certainty,
    /// How many frames further out it was found.
    pub(super) by_caller: usize,
}

/// Why a value was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Lost {
    /// Its type is not known well enough.
    #[error("its type is not known well enough to say where it is passed")]
    Type,
    /// It is passed where nobody looks.
    #[error("it is passed in a vector register")]
    Vector,
    /// Nobody has it.
    #[error("nobody has it any more")]
    Gone,
    /// A part of it.
    #[error("a part of it is not there any more")]
    Part,
}

impl Tables {
    /// Finds the tables of the modules that frames stand in, and makes those that are missing.
    pub(super) fn of<'s>(
        space: &Space<'_>,
        stacks: impl Iterator<Item = &'s Stack>,
        store: &Store,
    ) -> Tables {
        let mut tables = Tables::default();
        for frame in stacks.flat_map(|stack| &stack.frames) {
            if let Some(at) = space.locate(frame.code)
                && !tables.by_module.contains_key(&at.module.name)
            {
                let table = table(&at, store);
                tables.by_module.insert(at.module.name.clone(), table);
            }
        }
        if tables.by_module.values().all(Option::is_none) {
            output::notice(
                &"no module here says what its functions take: debugging information does (-g), and what gcc -gctf leaves in object \
                  files, which `unspool ctf link --into` puts into a program",
            );
        }
        tables
    }

    /// The arguments of a stack's frames.
    pub(super) fn arguments<'a>(
        &'a self,
        space: &Space<'_>,
        stack: &'a Stack,
        memory: &'a dyn Memory,
    ) -> Arguments<'a> {
        let locate = |code| space.locate(code);
        Arguments::new(stack, memory, locate, |at| {
            self.by_module.get(&at.module.name)?.as_ref()?.table()
        })
    }
}

fn table(at: &Located, store: &Store) -> Option<ArgumentTable> {
    let file = &at.module.file;
    let mut notices = Vec::new();
    let found = store.find_arguments(file, &mut notices);
    for notice in notices {
        output::notice(&notice);
    }
    if found.is_some() {
        return found;
    }
    let debug = DebugFiles::locate(file, &SearchRoots::default());
    match table_of(file, &debug) {
        Ok(bytes) => {
            if store.cache_folder().is_some()
                && let Err(error) = store.keep_arguments(&file.content_key(), &bytes)
            {
                output::notice(&error);
            }
            Some(ArgumentTable::made(bytes))
        }
        // As its frames say.
        Err(TableError::NoTypes { .. }) => None,
        Err(error) => {
            output::notice(&error);
            None
        }
    }
}

/// The arguments of one frame; `None` if nothing says what its function takes.
pub(super) fn of_frame(
    arguments: &Arguments<'_>,
    number: usize,
    text_of: Option<&dyn Memory>,
) -> Option<Vec<Argument>> {
    let function = arguments.frame(number)?.function()?;
    let parameters = (1..).zip(function.parameters()?);
    let shown = parameters.map(|(position, parameter)| Argument {
        name: match parameter.name {
            "" => format!("#{position}"),
            name => name.to_owned(),
        },
        type_name: parameter.type_name.to_owned(),
        value: value(arguments, number, &parameter, text_of),
    });
    Some(shown.collect())
}

/// The bytes that are shown of a value at most.
const MOST_BYTES: usize = 256;

fn value(
    arguments: &Arguments<'_>,
    number: usize,
    parameter: &Parameter<'_>,
    text_of: Option<&dyn Memory>,
) -> Result<Shown, Lost> {
    if !parameter.is_known {
        return Err(Lost::Type);
    }
    let size = usize::try_from(parameter.bytes).unwrap_or(MOST_BYTES);
    let mut bytes = vec![0; size.min(MOST_BYTES)];
    let (mut certainty, mut by_caller, mut found) = (Certainty::Exact, 0, 0_usize);
    for piece in parameter.pieces() {
        let Some(source) = piece.source else {
            return Err(Lost::Vector);
        };
        let value = arguments.value(number, source, piece.bytes.saturating_mul(8));
        let Some(Value {
            number,
            certainty: own,
            by_caller: by,
        }) = value
        else {
            return Err(if found == 0 { Lost::Gone } else { Lost::Part });
        };
        found += 1;
        certainty = certainty.min(own);
        by_caller = by_caller.max(by);
        let start = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        let places = bytes.iter_mut().skip(start).take(piece.bytes.into());
        for (place, byte) in places.zip(number.to_le_bytes()) {
            *place = byte;
        }
    }
    Ok(Shown {
        text: match parameter.is_by_reference {
            true => format!("at {}", output::address(unsigned(&bytes))),
            false => shown(&bytes, parameter.shape, text_of),
        },
        certainty,
        by_caller,
    })
}

fn unsigned(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8);
    unsigned(bytes).cast_signed() << unused >> unused
}

/// A value as C would have it.
fn shown(bytes: &[u8], shape: Shape<'_>, text_of: Option<&dyn Memory>) -> String {
    let number = unsigned(bytes);
    match shape {
        _ if bytes.is_empty() => "{}".to_owned(),
        Shape::Signed if bytes.len() <= 8 => signed(bytes).to_string(),
        Shape::Unsigned if bytes.len() <= 8 => number.to_string(),
        Shape::Bool => match number {
            0 => "false".to_owned(),
            1 => "true".to_owned(),
            other => other.to_string(),
        },
        Shape::Char => match u8::try_from(number) {
            Ok(byte) if byte.is_ascii_graphic() || byte == b' ' => {
                format!("{} '{}'", signed(bytes), char::from(byte))
            }
            _ => signed(bytes).to_string(),
        },
        Shape::Pointer => output::address(number),
        Shape::Text => {
            let text = text_of.and_then(|memory| text(memory, number));
            let text = text.map_or_else(String::new, |text| format!(" {text}"));
            output::address(number) + &text
        }
        Shape::Float if bytes.len() == 4 => {
            let bits = u32::try_from(number).unwrap_or_default();
            f32::from_bits(bits).to_string()
        }
        Shape::Float if bytes.len() == 8 => f64::from_bits(number).to_string(),
        Shape::Enum(mut constants) => {
            let value = signed(bytes);
            let named = constants.find(|(constant, _)| *constant == value);
            match named {
                Some((_, name)) => name.to_owned(),
                None => value.to_string(),
            }
        }
        Shape::Record(members) => {
            let mut text = "{".to_owned();
            for (index, member) in members.enumerate() {
                let start = usize::try_from(member.offset).unwrap_or(usize::MAX);
                let size = usize::try_from(member.bytes).unwrap_or(usize::MAX);
                let own = bytes.get(start..start.saturating_add(size));
                let separator = if index == 0 { "" } else { ", " };
                let value =
                    own.map_or_else(|| "...".to_owned(), |own| shown(own, member.shape, text_of));
                let _ = write!(text, "{separator}.{} = {value}", member.name); // a String takes all
            }
            text + "}"
        }
        _ => {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes {}", digits.join(" "))
        }
    }
}

/// The most characters that are shown.
const MOST_TEXT: usize = 80;

/// What is at an address up to a zero, in quotes.
fn text(memory: &dyn Memory, at: u64) -> Option<String> {
    let mut text = Vec::new();
    let mut is_whole = false;
    for offset in 0..MOST_TEXT as u64 {
        let mut byte = [0];
        memory
            .read(RuntimeAddr(at.checked_add(offset)?), &mut byte)
            .ok()?;
        let [byte] = byte;
        if byte == 0 {
            is_whole = true;
            break;
        }
        text.push(byte);
    }
    let rest = if is_whole { "" } else { "..." };
    Some(format!("\"{}\"{rest}", text.escape_ascii()))
}
