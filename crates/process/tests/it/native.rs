//! Walks that run machine code of tables.

use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{Process, Snapshot};
use unspool_rows::{Registers, RuntimeAddr};
use unspool_table_store::{Store, TableForm};
use unspool_unwind::{Cursor, End, Evidence, Module, Modules, Step};

use crate::programs::{compile, start};

/// A snapshot with no tables except machine code.
struct CodeOnly<'s>(&'s SnapshotUnwinder<'s>);

impl Modules for CodeOnly<'_> {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        Some(Module {
            compiled: None,
            cfi: None,
            sframe: None,
            entry_cache: None,
            synthesized: None,
            ..self.0.module(addr)?
        })
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.0.is_code(addr)
    }
}

/// The addresses of the frames found that way, and the walk's end.
fn walk(process: &Process, registers: &Registers, form: TableForm) -> (Vec<u64>, End) {
    let store = Store::new(None, None, None).with_form(form);
    let space = SnapshotUnwinder::new(process, &store);
    let mut cursor = Cursor::new(process.abi(), *registers).unwrap();
    let mut addresses = Vec::new();
    loop {
        addresses.push(cursor.code().address().0);
        match cursor.step(&CodeOnly(&space), process.memory()) {
            Step::Caller(found) if found.evidence == Evidence::Cfi => {}
            Step::Caller(_) => panic!("a guess"),
            Step::End(end) => return (addresses, end),
        }
    }
}

#[test]
fn every_frame_is_left_by_the_code() {
    let options = [
        "-fomit-frame-pointer",
        "-static",
        "-fno-optimize-sibling-calls",
    ];
    for options in [&options[..1], &options] {
        let mut running = start(&compile("deep.c", options), &["200"]);
        assert_eq!(running.line(), "ready");
        running.await_state('S');
        let process = Process::attach(running.pid()).unwrap();
        let thread = &process.threads()[0];
        let store = Store::new(None, None, None);
        let space = SnapshotUnwinder::new(&process, &store);
        let expected = space.walk(thread, 1 << 20, WalkDetail::Frames).unwrap();
        assert_eq!(expected.end, End::Outermost);
        let frames = expected.frames.iter();
        let expected: Vec<u64> = frames.map(|frame| frame.code.address().0).collect();
        assert!(expected.len() > 200);

        let registers = thread.registers.as_ref().unwrap();
        let (addresses, _) = walk(&process, registers, TableForm::Native);
        assert_eq!(addresses, expected, "{options:?}");
        // No other table leads from frame to frame.
        let (addresses, end) = walk(&process, registers, TableForm::Compact);
        assert_eq!(addresses.len(), 1, "{options:?}: {end}");
    }
}
