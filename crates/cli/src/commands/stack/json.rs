//! A report as JSON, written frame by frame: a deep stack has hundreds of thousands.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use unspool_display_values::{FrameArgument, FrameValues, FunctionValues, VariableText};
use unspool_elf::BuildId;
use unspool_process::maps::Mapping;
use unspool_process::snapshot_unwinder::{CallStack, FrameLocation, SparseRegisters, StackFrame};
use unspool_process::{Signal, Snapshot, ThreadStack, ThreadState};
use unspool_rows::{Arch, CodeAddr};
use unspool_symbols::{AddressName, InlineFrameRef};

use super::{StackReport, StackSubject};
use crate::output::{self, JsonLayout, Streamed, address};

pub(super) fn print(
    out: &mut dyn Write,
    report: &StackReport<'_>,
    layout: JsonLayout,
) -> io::Result<()> {
    output::write_document(
        out,
        layout,
        "stack",
        &StackDocument {
            subject: subject(report.subject),
            stopped_ms: report.stopped.map(|stopped| stopped.as_secs_f64() * 1e3),
            signal: report.stacks.snapshot.signal().map(SignalObject::new),
            reliable: report.stacks.is_reliable(),
            modules: modules(report.stacks.snapshot),
            threads: Streamed(|| report.stacks.threads.iter().map(|one| thread(report, one))),
        },
    )
}

#[derive(Serialize)]
struct StackDocument<'a, T> {
    subject: SubjectObject<'a>,
    stopped_ms: Option<f64>,
    signal: Option<SignalObject>,
    reliable: bool,
    modules: Vec<LoadedModule<'a>>,
    threads: T,
}

/// A file with code in the process.
#[derive(Serialize)]
struct LoadedModule<'a> {
    path: Cow<'a, str>,
    build_id: Option<String>,
    start: String,
    end: String,
}

/// The files with code, ascending: each from the first to the last of its neighbouring mappings.
fn modules(snapshot: &dyn Snapshot) -> Vec<LoadedModule<'_>> {
    let named = snapshot
        .mappings()
        .iter()
        .filter(|mapping| mapping.name.is_some());
    let named: Vec<&Mapping> = named.collect();
    let copies = named.chunk_by(|one, next| one.name == next.name && next.offset != 0);
    let with_code = copies.filter(|copy| copy.iter().any(|mapping| mapping.may_execute()));
    let module = |copy: &[&Mapping]| {
        let (first, last) = copy.first().zip(copy.last())?;
        let id = snapshot.build_id_at(first).ok();
        Some(LoadedModule {
            path: first.name.as_deref()?.to_string_lossy().into_owned().into(),
            build_id: id.and_then(|id| Some(BuildId::new(&id)?.to_string())),
            start: address(first.start.0),
            end: address(last.end.0),
        })
    };
    with_code.filter_map(module).collect()
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum SubjectObject<'a> {
    Process {
        pid: u32,
    },
    Command {
        pid: u32,
        command: Vec<Cow<'a, str>>,
    },
    Core {
        path: Cow<'a, str>,
        command_line: Option<&'a str>,
    },
}

fn subject<'a>(subject: &StackSubject<'a>) -> SubjectObject<'a> {
    match *subject {
        StackSubject::Process(pid) => SubjectObject::Process { pid },
        StackSubject::Command(command, pid) => SubjectObject::Command {
            pid,
            command: command.iter().map(|word| word.to_string_lossy()).collect(),
        },
        StackSubject::Core(core) => SubjectObject::Core {
            path: core.path.to_string_lossy(),
            command_line: core.command_line,
        },
    }
}

#[derive(Serialize)]
struct SignalObject {
    tid: u32,
    number: i32,
    name: Option<&'static str>,
    code: i32,
    cause: Option<&'static str>,
    address: Option<String>,
    sender_pid: Option<u32>,
    sender_uid: Option<u32>,
}

impl SignalObject {
    fn new(signal: &Signal) -> Self {
        SignalObject {
            tid: signal.tid,
            number: signal.number,
            name: signal.name(),
            code: signal.code,
            cause: signal.cause(),
            address: signal.address.map(|addr| address(addr.0)),
            sender_pid: signal.sender.map(|sender| sender.pid),
            sender_uid: signal.sender.map(|sender| sender.uid),
        }
    }
}

#[derive(Serialize)]
struct ThreadObject<'a, F> {
    tid: u32,
    name: Option<&'a str>,
    state: &'static str,
    syscall: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutex_owner: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutex: Option<String>,
    error: Option<String>,
    reliable: bool,
    end: Option<EndObject>,
    frames: Option<F>,
}

#[derive(Serialize)]
struct EndObject {
    code: &'static str,
    message: String,
    root: bool,
}

fn thread<'a, 'r>(
    report: &'a StackReport<'r>,
    one: &'a ThreadStack<'_>,
) -> impl Serialize + use<'a, 'r> {
    let ThreadStack { thread, stack, .. } = one;
    let state = match thread.state {
        ThreadState::JobStopped => "job-stopped",
        ThreadState::Signalled(_) => "signalled",
        ThreadState::Exited => "exited",
        ThreadState::NotStopped(_) => "not-stopped",
        ThreadState::Recorded => "recorded",
        _ => "stopped",
    };
    let stack = stack.as_ref();
    let owner = report.mutex_owner(one);
    ThreadObject {
        tid: thread.tid,
        name: thread.name.as_deref(),
        state,
        syscall: thread.syscall,
        mutex_owner: owner.map(|owner| owner.tid),
        mutex: owner.map(|owner| address(owner.mutex.0)),
        error: thread.registers.as_ref().err().map(ToString::to_string),
        reliable: stack.is_some_and(CallStack::is_reliable),
        end: stack.map(|stack| EndObject {
            code: stack.end.name(),
            message: stack.end.to_string(),
            root: stack.end.is_root(),
        }),
        frames: stack.map(|stack| {
            Streamed(move || {
                let numbered = stack.frames.iter().enumerate();
                let values = report.values(thread.tid, stack);
                let with_values = numbered.zip(values);
                with_values.map(move |((index, one), values)| frame(report, index, one, values))
            })
        }),
    }
}

#[derive(Serialize)]
struct FrameObject<'a> {
    index: usize,
    pc: String,
    return_address: bool,
    sp: Option<String>,
    cfa: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    cfa_guessed: bool,
    evidence: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_row_reason: Option<String>,
    interrupted: bool,
    #[serde(flatten)]
    place: Option<ModuleObject<'a>>,
    #[serde(flatten)]
    generated: Option<SymbolObject<'a>>,
    #[serde(flatten)]
    unusable: Option<UnusableModuleObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registers: Option<RegistersObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Vec<ArgumentObject>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<VariableObject>,
}

/// An argument of a function.
#[derive(Serialize)]
struct ArgumentObject {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    value: Option<String>,
    certainty: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_depth: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_value: Option<String>,
}

/// A variable, or a parameter of an inlined function.
#[derive(Serialize)]
struct VariableObject {
    /// The index of its inlined function at the frame, the innermost is 0; null for the frame's own
    /// function.
    inline_index: Option<usize>,
    function: Option<String>,
    parameter: bool,
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl VariableObject {
    fn new(variable: VariableText, inlined: Option<(usize, &str)>, parameter: bool) -> Self {
        let (value, reason) = match variable.current {
            Ok(now) => (Some(now.text), None),
            Err(absent) => (None, Some(absent.to_string())),
        };
        VariableObject {
            inline_index: inlined.map(|(nth, _)| nth),
            function: inlined.map(|(_, function)| function.to_owned()),
            parameter,
            name: variable.name,
            type_name: variable.type_name,
            value,
            reason,
        }
    }

    /// The variables of a frame, with the parameters of inlined functions.
    fn from_values(inlined: Vec<FunctionValues>, locals: Vec<VariableText>) -> Vec<VariableObject> {
        let mut all = Vec::new();
        for (nth, level) in inlined.into_iter().enumerate() {
            let of = Some((nth, level.function.as_str()));
            let parameters = level.parameters.into_iter();
            all.extend(parameters.map(|own| VariableObject::new(own, of, true)));
            let locals = level.locals.into_iter();
            all.extend(locals.map(|own| VariableObject::new(own, of, false)));
        }
        let locals = locals.into_iter();
        all.extend(locals.map(|own| VariableObject::new(own, None, false)));
        all
    }
}

impl ArgumentObject {
    fn new(argument: FrameArgument) -> Self {
        let (value, certainty, caller_depth, reason) = match argument.value {
            Ok(found) => {
                let label = found.origin.name();
                (Some(found.text), label, Some(found.caller_depth), None)
            }
            Err(lost) => (None, "lost", None, Some(lost.to_string())),
        };
        ArgumentObject {
            name: argument.name,
            type_name: argument.type_name,
            value,
            certainty,
            caller_depth,
            reason,
            current_value: argument.current.and_then(Result::ok).map(|now| now.text),
        }
    }
}

fn frame<'a>(
    report: &'a StackReport<'_>,
    index: usize,
    frame: &'a StackFrame,
    values: FrameValues,
) -> FrameObject<'a> {
    let place = report.locate(frame);
    let generated = report.generated(frame).filter(|_| place.is_none());
    let unusable = match place {
        Some(_) => None,
        None => report.stacks.unwinder.unusable(frame.code.lookup()),
    };
    FrameObject {
        index,
        pc: address(frame.code.address().0),
        return_address: matches!(frame.code, CodeAddr::Return(_)),
        sp: frame.stack_pointer.map(|sp| address(sp.0)),
        cfa: frame.cfa.map(|cfa| address(cfa.0)),
        cfa_guessed: frame.cfa_is_guess,
        evidence: frame.step.map(|found| found.evidence.name()),
        no_row_reason: frame
            .step
            .and_then(|found| found.instead_of)
            .map(|reason| reason.to_string()),
        interrupted: frame.step.is_some_and(|found| found.signal_frame),
        place: place.map(|(at, name)| ModuleObject::new(&at, name)),
        generated: generated.map(|made| SymbolObject {
            symbol: made.name,
            symbol_offset: frame.code.address().0.wrapping_sub(made.address.0),
        }),
        unusable: unusable.map(|file| UnusableModuleObject {
            module: file.name.to_string_lossy(),
            module_offset: address(file.offset),
            module_error: output::with_causes(file.problem),
        }),
        registers: frame
            .registers
            .as_ref()
            .filter(|_| report.with_registers)
            .map(|registers| RegistersObject {
                arch: report.stacks.snapshot.abi().arch,
                registers,
            }),
        arguments: values
            .arguments
            .map(|all| all.into_iter().map(ArgumentObject::new).collect()),
        variables: VariableObject::from_values(values.inlined, values.locals),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The file of a frame's module, if it cannot be used.
#[derive(Serialize)]
struct UnusableModuleObject<'a> {
    module: Cow<'a, str>,
    module_offset: String,
    module_error: String,
}

/// The location of a frame in its module.
#[derive(Serialize)]
struct ModuleObject<'a> {
    module: String,
    build_id: Option<String>,
    module_address: String,
    #[serde(skip_serializing_if = "is_false")]
    code_differs: bool,
    #[serde(flatten)]
    symbol: Option<SymbolObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_start: Option<String>,
    functions: Vec<FunctionObject<'a>>,
}

#[derive(Serialize)]
struct SymbolObject<'a> {
    symbol: &'a str,
    symbol_offset: u64,
}

#[derive(Serialize)]
struct FunctionObject<'a> {
    function: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
}

impl<'a> ModuleObject<'a> {
    fn new(at: &FrameLocation, name: AddressName<'a>) -> Self {
        ModuleObject {
            module: at.module.name.to_string_lossy().into_owned(),
            build_id: at.module.file.build_id().map(|id| id.to_string()),
            module_address: address(at.address.0),
            code_differs: at.differs,
            symbol: name.symbol.map(|function| SymbolObject {
                symbol: function.name,
                symbol_offset: at.address.0.wrapping_sub(function.address.0),
            }),
            function_start: name.begin.map(|begin| address(begin.0)),
            functions: name.debug_frames().map(FunctionObject::new).collect(),
        }
    }
}

impl<'a> FunctionObject<'a> {
    fn new(frame: InlineFrameRef<'a>) -> Self {
        FunctionObject {
            function: frame.function,
            file: frame.file,
            line: frame.line,
            column: frame.column,
        }
    }
}

/// The shown registers, by name; null for an unknown one.
struct RegistersObject<'a> {
    arch: Arch,
    registers: &'a SparseRegisters,
}

impl Serialize for RegistersObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let arch = self.arch;
        serializer.collect_map(super::shown_registers(arch).map(|register| {
            let value = self.registers.get(register).map(address);
            (super::shown_name(register, arch), value)
        }))
    }
}
