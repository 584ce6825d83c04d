//! The report of `libunspool-crash.so` in a process that a signal is about to end.
//!
//! Async-signal-safe: text goes through a buffer on the stack directly to the kernel. Memory that
//! may be unmapped is read through [`OwnMemory`], which asks the kernel first. Reading mapped
//! module files is guarded (`sys::crash::guard`).

use unspool_rows::{Register, Registers, RuntimeAddr};
use unspool_unwind::local::{self, ABI, OwnMemory};
use unspool_unwind::{Cursor, End, Evidence, Module, Modules, NoRow, Step};

use unspool_arg_table::{DisplayKind, EnumTextPart, UnprovenRules, ValueCertainty, enum_text};

use crate::arguments::{self, ArgumentResult, ModuleCursor};
use crate::codes;
use crate::crash::modules::{NamedModule, ReportModules};
use crate::crash::signals::Signal;
use crate::crash::text::TextBuffer;
use crate::sys::crash::guard::catch_fault;
use crate::sys::crash::maps;

mod bytes;
mod module_file;
pub(crate) mod modules;
pub(crate) mod reporter_lock;
pub(crate) mod signals;
pub(crate) mod symbols;
pub(crate) mod text;

/// A signal that ends the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrashSignal {
    /// The signal.
    pub(crate) signal: Signal,
    /// The registers, by DWARF number.
    pub(crate) registers: [u64; 17],
    /// The process.
    pub(crate) process: i32,
    /// The thread.
    pub(crate) thread: i32,
    /// The name of the thread, padded with zero bytes.
    pub(crate) name: [u8; 16],
}

/// The registers, in output order.
const REGISTERS: [(&[u8], usize); 17] = [
    (b"rax", 0),
    (b"rbx", 3),
    (b"rcx", 2),
    (b"rdx", 1),
    (b"rsi", 4),
    (b"rdi", 5),
    (b"rbp", 6),
    (b"rsp", 7),
    (b" r8", 8),
    (b" r9", 9),
    (b"r10", 10),
    (b"r11", 11),
    (b"r12", 12),
    (b"r13", 13),
    (b"r14", 14),
    (b"r15", 15),
    (b"rip", 16),
];

/// Prints the whole report.
pub(crate) fn report(signal: &CrashSignal, text: &mut TextBuffer<'_>) {
    signals::describe(signal, text);
    registers(signal, text);
    let mut seen = ReportModules::new();
    stack(signal, &mut seen, text);
    text.put(b"modules\n");
    seen.print(text);
    text.put(b"unspool: end of the report\n");
    text.flush();
}

fn registers(signal: &CrashSignal, text: &mut TextBuffer<'_>) {
    text.put(b"registers\n");
    for row in REGISTERS.chunks(4) {
        for (name, number) in row {
            text.put(b"  ");
            text.put(name);
            text.put(b" ");
            text.address(signal.registers.get(*number).copied().unwrap_or(0));
        }
        text.put(b"\n");
    }
    text.flush();
}

/// A frame to print.
#[derive(Clone, Copy)]
struct ReportFrame {
    address: RuntimeAddr,
    /// An address within the executing or calling instruction.
    within: RuntimeAddr,
    evidence: Option<Evidence>,
}

/// The maximum number of frames printed from the innermost,
const MAX_INNER_FRAMES: usize = 96;
/// and up to the outermost.
const MAX_OUTER_FRAMES: usize = 32;

fn stack(signal: &CrashSignal, modules: &mut ReportModules, text: &mut TextBuffer<'_>) {
    text.put(b"stack\n");
    let mut registers = Registers::new();
    for (number, value) in (0..).zip(signal.registers) {
        registers.set(Register(number), value);
    }
    let Some(mut cursor) = Cursor::new(ABI, registers) else {
        return;
    };
    let memory = OwnMemory::without_stack();
    let mut evidence = None;
    let mut guesses = 0;
    let mut unproven = UnprovenRules::NONE;
    let mut last = [None; MAX_OUTER_FRAMES];
    let mut count = 0;
    let end = loop {
        let shown = ReportFrame {
            address: cursor.code().address(),
            within: cursor.code().lookup(),
            evidence,
        };
        if count < MAX_INNER_FRAMES {
            print(count, shown, &memory, modules, text);
            print_arguments(cursor, unproven, &memory, text);
        } else if let Some(slot) = last.get_mut(count % MAX_OUTER_FRAMES) {
            *slot = Some((count, shown));
        }
        count += 1;
        let here = cursor.code();
        unproven =
            unproven.union(catch_fault(|| arguments::unproven_rules_at(here)).unwrap_or_default());
        match step(&mut cursor, &memory) {
            Some(Step::Caller(found)) => {
                evidence = Some(found.evidence);
                guesses += usize::from(found.evidence.is_guess());
            }
            Some(Step::End(end)) => break Some(end),
            None => break None,
        }
    };
    let left_out = count.saturating_sub(MAX_INNER_FRAMES + MAX_OUTER_FRAMES);
    if left_out > 0 {
        text.put(b"       ");
        text.decimal(left_out as u64);
        text.put(b" frames are left out here\n");
    }
    for (number, shown) in
        (0..MAX_OUTER_FRAMES).filter_map(|at| *last.get((count + at) % MAX_OUTER_FRAMES)?)
    {
        print(number, shown, &memory, modules, text);
    }
    print_end(end, guesses, text);
}

/// Steps to the caller; `None` after a fault.
fn step(cursor: &mut Cursor, memory: &OwnMemory) -> Option<Step> {
    let here = cursor.code().lookup();
    let mut step_with = |modules: ReadableModules| {
        let mut next = *cursor;
        let step = catch_fault(|| next.step(&modules, memory))?;
        *cursor = next;
        Some(step)
    };
    step_with(ReadableModules { except: None })
        .or_else(|| step_with(ReadableModules { except: Some(here) }))
}

/// The modules of the process, if readable; none at the address of a frame with an unreadable
/// table.
struct ReadableModules {
    except: Option<RuntimeAddr>,
}

impl Modules for ReadableModules {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        if self.except == Some(addr) {
            None
        } else {
            catch_fault(|| local::modules().module(addr)).flatten()
        }
    }

    fn without_module(&self, addr: RuntimeAddr) -> NoRow {
        match catch_fault(|| local::modules().module(addr).is_some()) {
            Some(false) => NoRow::NoModule,
            _ => NoRow::NoTable,
        }
    }

    /// Only loaded modules can be read.
    fn is_code(&self, addr: RuntimeAddr) -> bool {
        catch_fault(|| local::modules().is_code(addr)).unwrap_or(true)
    }
}

fn print(
    number: usize,
    report_frame: ReportFrame,
    memory: &OwnMemory,
    modules: &mut ReportModules,
    text: &mut TextBuffer<'_>,
) {
    text.padded(number as u64, 5);
    text.put(b"  ");
    text.address(report_frame.address.0);
    text.put(b"  ");
    let described = || {
        Some(NamedModule::new(
            local::modules().loaded(report_frame.within)?,
            memory,
        ))
    };
    match catch_fault(described) {
        None => {
            text.put(b"??  [");
            if let Some(mapped) = maps::mapping_at(report_frame.within) {
                text.quote(mapped.path.last_part());
                text.put(b", ");
            }
            text.put(b"which cannot be read]");
        }
        Some(None) => text.put(b"??"),
        Some(Some(module)) => {
            modules.add(&module);
            print_place(report_frame, &module, memory, text);
        }
    }
    if let Some(evidence) = report_frame.evidence.filter(|evidence| evidence.is_guess()) {
        text.put(b"  (");
        text.put(codes::evidence_text(codes::evidence(Some(evidence))).to_bytes());
        text.put(b")");
    }
    text.put(b"\n");
    text.flush();
}

/// Prints the arguments of a function, if its module has an argument table.
fn print_arguments(
    cursor: Cursor,
    unproven: UnprovenRules,
    memory: &OwnMemory,
    text: &mut TextBuffer<'_>,
) {
    let modules = ReadableModules { except: None };
    let walking = ModuleCursor {
        cursor,
        modules: &modules,
        memory,
    };
    for index in 0.. {
        let Some(Some(found)) = catch_fault(|| arguments::argument_at(&walking, unproven, index))
        else {
            break;
        };
        text.put(b"         ");
        match found.parameter.name {
            "" => {
                text.put(b"#");
                text.decimal(index as u64 + 1);
            }
            name => text.quote(name.as_bytes()),
        }
        text.put(b": ");
        text.quote(found.parameter.type_name.as_bytes());
        match found.certainty {
            None => text.put(b"  (lost)"),
            Some(certainty) => {
                text.put(b" = ");
                print_value(&found, text);
                if certainty == ValueCertainty::Likely {
                    text.put(b"  (likely)");
                }
            }
        }
        text.put(b"\n");
    }
    text.flush();
}

/// Prints a value; for one of more than eight bytes the first eight.
fn print_value(result: &ArgumentResult, text: &mut TextBuffer<'_>) {
    let (bytes, value) = (result.parameter.bytes, result.value);
    let unused = 64 - bytes.clamp(1, 8) * 8;
    let signed = value.cast_signed() << unused >> unused;
    match result.parameter.display_kind {
        DisplayKind::Enum(constants) => {
            let mut put = |part: EnumTextPart<'_>| {
                match part {
                    EnumTextPart::Name(name) => text.quote(name.as_bytes()),
                    EnumTextPart::Separator(between) => text.put(between.as_bytes()),
                    EnumTextPart::Number(number) => text.signed(number),
                    EnumTextPart::Bits(bits) => text.hex(bits),
                }
                Ok(())
            };
            // Putting never fails.
            let _ = enum_text(constants, value, 64 - unused, &mut put);
        }
        DisplayKind::Signed | DisplayKind::Char => text.signed(signed),
        DisplayKind::Unsigned | DisplayKind::Bool => text.decimal(value),
        _ => text.hex(value),
    }
    if bytes > 8 {
        text.put(b"...");
    }
}

/// Prints the function, and the address in the module's file.
fn print_place(
    report_frame: ReportFrame,
    module: &NamedModule<'_>,
    memory: &OwnMemory,
    text: &mut TextBuffer<'_>,
) {
    match catch_fault(|| symbols::find(module, report_frame.within, memory)).flatten() {
        None => text.put(b"??"),
        Some(symbol) => {
            text.quote(symbol.name.bytes());
            text.put(b"+");
            text.hex(report_frame.address.0.wrapping_sub(symbol.start.0));
        }
    }
    text.put(b"  [");
    text.quote(module.name());
    text.put(b"+");
    text.hex(module.loaded.bias.to_vaddr(report_frame.address).0);
    text.put(b"]");
}

/// Prints why there are no more frames; `None` is a fault.
fn print_end(end: Option<End>, guesses: usize, text: &mut TextBuffer<'_>) {
    text.put(match (end.is_some_and(End::is_root), guesses) {
        (true, 0) => b"  complete: ",
        (true, _) => b"  not reliable, since frames were guessed: ",
        (false, _) => b"  incomplete: ",
    });
    match end {
        Some(_) => text.put(codes::end_text(codes::end(end)).to_bytes()),
        None => text.put(b"what the module has mapped of its file cannot be read"),
    }
    if let Some(unreadable) = end.and_then(End::unreadable) {
        text.put(b": ");
        text.address(unreadable.addr.0);
    }
    text.put(b"\n");
    text.flush();
}
