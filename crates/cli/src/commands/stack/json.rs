//! A report as JSON.

use std::io;

use serde_json::{Map, Value, json};
use unspool_ir::{CodeAddr, Registers};
use unspool_module::InlineFrame;
use unspool_unwind::process::{Signal, ThreadState};
use unspool_unwind::space::{Stack, WalkedFrame};

use super::{Report, Subject, ThreadStack};
use crate::output::{self, address};

pub(super) fn print(report: &Report<'_>) -> io::Result<()> {
    let subject = match &report.subject {
        Subject::Process(pid) => json!({ "kind": "process", "pid": pid }),
        Subject::Command(command, pid) => {
            let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
            json!({ "kind": "command", "pid": pid, "command": words })
        }
        Subject::Core(path) => json!({ "kind": "core", "path": path.to_string_lossy() }),
    };
    let threads: Vec<Value> = report.threads.iter().map(|t| thread(report, t)).collect();
    output::document(
        "stack",
        json!({
            "subject": subject,
            "stopped_ms": report.stopped.map(|stopped| stopped.as_secs_f64() * 1e3),
            "signal": report.snapshot.signal().map(signal),
            "reliable": report.is_reliable(),
            "threads": threads,
        }),
    )
}

fn signal(signal: &Signal) -> Value {
    json!({
        "tid": signal.tid,
        "number": signal.number,
        "name": signal.name(),
        "code": signal.code,
        "address": signal.address.map(|addr| address(addr.0)),
        "sender_pid": signal.sender.map(|sender| sender.pid),
    })
}

fn thread(report: &Report<'_>, thread: &ThreadStack<'_>) -> Value {
    let ThreadStack { thread, stack } = thread;
    let state = match thread.state {
        ThreadState::JobStopped => "job-stopped",
        ThreadState::Signalled(_) => "signalled",
        ThreadState::Exited => "exited",
        ThreadState::NotStopped(_) => "not-stopped",
        ThreadState::Recorded => "recorded",
        _ => "stopped",
    };
    let frames = stack.as_ref().map(|stack| {
        let numbered = stack.frames.iter().enumerate();
        numbered
            .map(|(number, f)| frame(report, number, f))
            .collect::<Vec<_>>()
    });
    json!({
        "tid": thread.tid,
        "name": thread.name,
        "state": state,
        "syscall": thread.syscall,
        "error": thread.registers.as_ref().err().map(ToString::to_string),
        "reliable": stack.as_ref().is_some_and(Stack::is_reliable),
        "end": stack.as_ref().map(|stack| json!({
            "code": stack.end.name(),
            "message": stack.end.to_string(),
            "root": stack.end.is_root(),
        })),
        "frames": frames,
    })
}

fn frame(report: &Report<'_>, number: usize, frame: &WalkedFrame) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.into(), value);
    put("index", json!(number));
    put("pc", address(frame.code.address().0));
    put(
        "return_address",
        json!(matches!(frame.code, CodeAddr::Return(_))),
    );
    put("sp", json!(frame.stack_pointer.map(|sp| address(sp.0))));
    put("cfa", json!(frame.cfa.map(|cfa| address(cfa.0))));
    put(
        "evidence",
        json!(frame.found.map(|found| found.evidence.name())),
    );
    put(
        "interrupted",
        json!(frame.found.is_some_and(|found| found.signal_frame)),
    );
    if let Some((at, name)) = report.locate(frame) {
        let file = &at.module.file;
        put("module", json!(at.module.name.to_string_lossy()));
        put("build_id", json!(file.build_id().map(|id| id.to_string())));
        put("module_address", address(at.address.0));
        if let Some((function, start)) = &name.function {
            put("symbol", json!(function));
            put("symbol_offset", json!(at.address.0.wrapping_sub(start.0)));
        }
        put(
            "functions",
            json!(name.inlined.iter().map(function).collect::<Vec<_>>()),
        );
    } else if let Some(problem) = report.space.problem(frame.code.lookup()) {
        put("module_problem", json!(output::with_causes(problem)));
    }
    if let Some(registers) = &frame.registers {
        put("registers", registers_of(report, registers));
    }
    Value::Object(object)
}

fn function(frame: &InlineFrame) -> Value {
    json!({
        "function": frame.function,
        "file": frame.file,
        "line": frame.line,
        "column": frame.column,
    })
}

fn registers_of(report: &Report<'_>, registers: &Registers) -> Value {
    let arch = report.snapshot.abi().arch;
    let named = super::shown_registers(arch).map(|register| {
        let value = registers.get(register).map(address);
        (super::shown_name(register, arch), json!(value))
    });
    Value::Object(named.collect())
}
