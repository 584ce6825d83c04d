//! Walks by the program, compared with the interpreter of `unspool-rows`.

use std::cell::RefCell;
use std::collections::HashMap;

use unspool_bpf::Program;
use unspool_bpf_walk::{
    ArenaRecord, HandOver, KernelOffsets, MAX_FRAMES, ModuleMapping, TableImage, WalkCounts,
    WalkHead, WalkMaps, WalkRecord, WalkTrigger, write_mappings,
};
use unspool_compiled_table::ExecutableCode;
use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::{
    CodeAddr, LoadBias, Memory, Register, Registers, RuntimeAddr, Table, Unreadable, Vaddr, text,
};

use crate::lookup::{X86_64, compile};
use crate::sys::StackMemory;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// The processors of the counters.
const CPUS: usize = 256;
const STACK_BYTES: usize = 1 << 18;

/// The first function of a table, and the bytes of each.
const FIRST: u64 = 0x1_ff00;
const FUNCTION: u64 = 16;
/// The offset of a return address in a function.
const CALL: u64 = 5;

/// The rules of functions, and how a stack for each is made.
const SIGNAL: &str = "cfa={breg7 160; deref}  signal  rbp=[{breg7 120}]  rsp=[{breg7 160}]  \
     ra=[{breg7 168}]";
const LINKAGE_TABLE: &str =
    "cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  ra=[cfa-8]";
const OUTERMOST: &str = "cfa=rsp+8  ra=undefined";

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % limit
    }
}

/// The form of a function's row, with distances in bytes.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The CFA is above `rsp`. `rbp` is below it, unless that is 0.
    Stack(u64, u64),
    /// The CFA is above `rbp`, and the saved `rbp` there.
    Frame,
    /// The CFA's word is below `rbp`, and the saved `rbp` there.
    Realigned(u64),
    Signal,
    LinkageTable,
    Outermost,
    /// No packed row expresses it.
    Unusual,
}

impl Form {
    fn random(random: &mut Random) -> Form {
        match random.below(24) {
            0..8 => Form::Stack(8 * (1 + random.below(40)), 0),
            8..14 => {
                let saved = 2 + random.below(29);
                Form::Stack(8 * (saved + random.below(60)), 8 * saved)
            }
            14..19 => Form::Frame,
            19 => Form::Realigned(8 * (1 + random.below(5))),
            20 => Form::LinkageTable,
            21 => Form::Signal,
            22 => Form::Stack(8 * (4000 + random.below(60_000)), 0),
            _ => Form::Unusual,
        }
    }

    fn rules(self) -> String {
        match self {
            Form::Stack(cfa, 0) => format!("cfa=rsp+{cfa}  ra=[cfa-8]"),
            Form::Stack(cfa, saved) => format!("cfa=rsp+{cfa}  ra=[cfa-8]  rbp=[cfa-{saved}]"),
            Form::Frame => "cfa=rbp+16  ra=[cfa-8]  rbp=[cfa-16]  rbx=[cfa-24]".to_owned(),
            Form::Realigned(below) => {
                format!("cfa={{breg6 -{below}; deref}}  ra=[cfa-8]  rbp=[{{breg6 0}}]")
            }
            Form::Signal => SIGNAL.to_owned(),
            Form::LinkageTable => LINKAGE_TABLE.to_owned(),
            Form::Outermost => OUTERMOST.to_owned(),
            Form::Unusual => "cfa=rbx+16  ra=[cfa-8]".to_owned(),
        }
    }
}

/// Some modules with functions of all forms.
struct Modules {
    tables: Vec<Table>,
    mappings: Vec<ModuleMapping>,
    /// The functions of each, by their numbers.
    forms: Vec<Vec<Form>>,
}

impl Modules {
    /// Makes modules, and writes their tables and a list of them.
    fn write(walks: &mut Walks, random: &mut Random) -> (Modules, u64) {
        let mut modules = Modules {
            tables: Vec::new(),
            mappings: Vec::new(),
            forms: Vec::new(),
        };
        for number in 0..3_u64 {
            let count = 40 + random.below(60);
            let mut forms: Vec<Form> = (0..count).map(|_| Form::random(random)).collect();
            forms.extend([Form::Outermost, Form::Signal]);
            let mut source = String::from("arch x86-64 little\n");
            for (form, at) in forms.iter().zip((FIRST..).step_by(16)) {
                let end = at + FUNCTION;
                source.push_str(&format!(
                    "fn {at:#x}..{end:#x}\n  {at:#x}  {}\n",
                    form.rules()
                ));
            }
            let table = text::parse(&source).unwrap();
            let bytes = compile(&table, &ExecutableCode::default());
            let record = walks.write(&bytes);
            let bias = LoadBias(0x5555_0000_0000 + (number << 32));
            modules.mappings.push(ModuleMapping {
                start: bias.to_runtime(Vaddr(0x1_0000)),
                end: bias.to_runtime(Vaddr(0x3_0000)),
                bias,
                record: record.address(),
            });
            modules.tables.push(table);
            modules.forms.push(forms);
        }
        let list = write_mappings(walks.maps.arena(), walks.free, &modules.mappings).unwrap();
        walks.free = list.end();
        (modules, list.address())
    }

    fn module(&self, address: RuntimeAddr) -> Option<usize> {
        let has = |it: &ModuleMapping| it.start <= address && address < it.end;
        self.mappings.iter().position(has)
    }

    fn function(&self, module: usize, number: usize) -> u64 {
        let start = Vaddr(FIRST + FUNCTION * number as u64);
        self.mappings[module].bias.to_runtime(start).0
    }

    /// A random function with a form, and its first address.
    fn random(&self, random: &mut Random) -> (Form, u64) {
        let module = usize::try_from(random.below(self.forms.len() as u64)).unwrap();
        let forms = &self.forms[module];
        let number = usize::try_from(random.below(forms.len() as u64)).unwrap();
        (forms[number], self.function(module, number))
    }
}

/// The registers of the innermost frame.
#[derive(Debug, Clone, Copy)]
struct Top {
    code: u64,
    stack_pointer: u64,
    frame_pointer: u64,
}

impl Top {
    /// `struct pt_regs` of 64-bit code.
    fn registers(self) -> [u64; 21] {
        let mut registers = [0; 21];
        registers[4] = self.frame_pointer;
        registers[16] = self.code;
        registers[17] = 0x33;
        registers[19] = self.stack_pointer;
        registers
    }
}

/// The context of [`WalkHead::Test`].
struct Context([u64; 44]);

impl Default for Context {
    fn default() -> Context {
        Context([0; 44])
    }
}

impl Context {
    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The memory of the test's process, as the interpreter reads it.
struct Words<'s> {
    memory: &'s StackMemory,
}

impl Memory for Words<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let unmapped = Unreadable::unmapped(addr);
        let start = addr.0.checked_sub(self.memory.start()).ok_or(unmapped)?;
        let start = usize::try_from(start).unwrap();
        let bytes = self.memory.bytes().get(start..).ok_or(unmapped)?;
        into.copy_from_slice(bytes.get(..into.len()).ok_or(unmapped)?);
        Ok(())
    }
}

/// A walk by rows alone: its frames; whether it reaches the root; and whether each of its frames is
/// one that the program must walk itself.
struct Reference {
    frames: Vec<CodeAddr>,
    is_complete: bool,
    is_usual: bool,
}

impl Reference {
    fn walk(modules: &Modules, top: Top, memory: &StackMemory) -> Reference {
        let mut registers = Registers::new();
        registers.set(RIP, top.code);
        registers.set(RSP, top.stack_pointer);
        registers.set(RBP, top.frame_pointer);
        let mut code = CodeAddr::Instruction(RuntimeAddr(top.code));
        let mut walk = Reference {
            frames: Vec::new(),
            is_complete: false,
            is_usual: true,
        };
        let mut signals = 0;
        while walk.frames.len() < usize::from(MAX_FRAMES) {
            walk.frames.push(code);
            let Some(module) = modules.module(code.lookup()) else {
                return walk;
            };
            let (table, bias) = (&modules.tables[module], modules.mappings[module].bias);
            let pc = bias.to_vaddr(code.lookup());
            let Some(span) = table.spans().find(|span| span.start <= pc && pc < span.end) else {
                return walk;
            };
            let row = table.row(span.row).unwrap();
            let form = modules.forms[module][usize::try_from((pc.0 - FIRST) / FUNCTION).unwrap()];
            let has_caller = !matches!(form, Form::Outermost | Form::Signal);
            let is_border = [0, FUNCTION - 1].contains(&((pc.0 - FIRST) % FUNCTION));
            let is_return = matches!(code, CodeAddr::Return(_));
            walk.is_usual &= !(is_border && is_return && has_caller);
            walk.is_usual &= !matches!(form, Form::Unusual);
            signals += u64::from(row.signal_frame);
            walk.is_usual &= signals <= 16;
            registers.set(RIP, code.address().0);
            let context = FrameContext {
                abi: X86_64,
                registers: &registers,
                memory: &Words { memory },
                bias,
                pac_mask: 0,
            };
            let Ok(caller) = interpret::step(&row, &context) else {
                return walk;
            };
            let Some(address) = caller.return_address else {
                walk.is_complete = true;
                return walk;
            };
            if address.0 == 0 && !row.signal_frame {
                return walk;
            }
            walk.is_usual &= row.signal_frame || caller.cfa.0 > registers.get(RSP).unwrap();
            code = if row.signal_frame {
                CodeAddr::Instruction(address)
            } else {
                CodeAddr::Return(address)
            };
            registers = caller.registers;
        }
        walk.is_usual = false;
        walk
    }
}

/// Makes a stack from its innermost frame on, such that rows lead through it. `odd` of 1000 frames
/// have something unexpected.
struct StackMaker<'m> {
    modules: &'m Modules,
    memory: &'m mut StackMemory,
    random: Random,
    odd: u64,
}

impl StackMaker<'_> {
    fn put(&mut self, address: u64, word: u64) {
        let at = usize::try_from(address - self.memory.start()).unwrap();
        if let Some(bytes) = self.memory.bytes_mut().get_mut(at..at + 8) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// An address of the stack, not far above another one.
    fn above(&mut self, address: u64) -> u64 {
        address + 8 * (1 + self.random.below(60))
    }

    /// A function that the registers allow.
    fn function(&mut self, stack_pointer: u64, frame_pointer: u64) -> (Form, u64) {
        loop {
            let (form, start) = self.modules.random(&mut self.random);
            let is_left = self.random.below(8) == 0;
            let is_possible = match form {
                Form::Frame => frame_pointer + 8 > stack_pointer,
                Form::Realigned(below) => frame_pointer.saturating_sub(below) >= stack_pointer,
                Form::Stack(cfa, _) => cfa < 4096 || is_left,
                Form::Unusual => self.odd != 0 && is_left,
                Form::Outermost | Form::Signal => is_left,
                Form::LinkageTable => true,
            };
            if is_possible {
                return (form, start);
            }
        }
    }

    fn make(&mut self, frames: u64) -> Top {
        let mut stack_pointer = self.memory.start() + 8 * self.random.below(600);
        let mut frame_pointer = self.above(stack_pointer);
        let (mut form, start) = self.function(stack_pointer, frame_pointer);
        let mut code = start + self.random.below(FUNCTION);
        let top = Top {
            code,
            stack_pointer,
            frame_pointer,
        };
        for _ in 0..frames {
            let (cfa, saved_at) = match form {
                Form::Stack(cfa, 0) => (stack_pointer + cfa, None),
                Form::Stack(cfa, saved) => {
                    let cfa = stack_pointer + cfa;
                    (cfa, Some(cfa - saved))
                }
                Form::Frame => (frame_pointer + 16, Some(frame_pointer)),
                Form::Realigned(below) => {
                    let cfa = self.above(frame_pointer + 8);
                    self.put(frame_pointer - below, cfa);
                    (cfa, Some(frame_pointer))
                }
                Form::LinkageTable => (stack_pointer + 8 + 8 * u64::from(code % 16 >= 11), None),
                Form::Signal => {
                    let next = self.above(stack_pointer + 176);
                    let (frame, place) = (self.above(next), stack_pointer);
                    let (next_form, start) = self.function(next, frame);
                    code = start + self.random.below(FUNCTION);
                    for (offset, word) in [(120, frame), (160, next), (168, code)] {
                        self.put(place + offset, word);
                    }
                    (stack_pointer, frame_pointer, form) = (next, frame, next_form);
                    continue;
                }
                Form::Outermost | Form::Unusual => return top,
            };
            if cfa + 1024 > self.memory.end() {
                break;
            }
            let saved_pointer = match saved_at {
                Some(at) => {
                    let pointer = self.above(cfa);
                    self.put(at, pointer);
                    pointer
                }
                None => frame_pointer,
            };
            (stack_pointer, frame_pointer) = (cfa, saved_pointer);
            let (next, start) = self.function(stack_pointer, frame_pointer);
            form = next;
            code = start + CALL;
            if self.random.below(1000) < self.odd {
                code = match self.random.below(5) {
                    0 => 0,
                    1 => start + 1,
                    2 => start + FUNCTION,
                    3 => start + 0x8000,
                    _ => self.random.below(u64::MAX),
                };
            }
            self.put(cfa - 8, code);
        }
        // The root.
        if !matches!(form, Form::Outermost) && self.random.below(8) != 0 {
            let module = usize::try_from(self.random.below(3)).unwrap();
            let number = self.modules.forms[module].len() - 2;
            let code = self.modules.function(module, number) + CALL;
            self.put_root(form, stack_pointer, frame_pointer, code);
        }
        top
    }

    /// The last frame's return address.
    fn put_root(&mut self, form: Form, stack_pointer: u64, frame_pointer: u64, code: u64) {
        match form {
            Form::Stack(cfa, _) => self.put(stack_pointer + cfa - 8, code),
            Form::Frame => self.put(frame_pointer + 8, code),
            _ => {}
        }
    }
}

/// The program and its memory.
struct Walks {
    maps: WalkMaps,
    program: Program,
    /// Where the arena is free.
    free: usize,
}

/// What the program made of a stack.
#[derive(Debug, PartialEq, Eq)]
enum Walked {
    Complete(Vec<CodeAddr>),
    HandedOver(HandOver),
}

impl Walks {
    fn new() -> Walks {
        let maps = WalkMaps::new(CPUS).unwrap_or_else(|error| panic!("{error}"));
        let program = maps
            .load(
                WalkHead::Test(KernelOffsets::read().unwrap()),
                WalkTrigger::Sample,
            )
            .unwrap_or_else(|error| panic!("{error}"));
        Walks {
            maps,
            program,
            free: WalkMaps::FREE.start,
        }
    }

    /// Writes a table to the arena.
    fn write(&mut self, table: &[u8]) -> ArenaRecord {
        let image = TableImage::new(table).unwrap();
        let record = image.write(self.maps.arena(), self.free).unwrap();
        self.free = record.end();
        record
    }

    fn walk(&mut self, top: Top) -> Walked {
        let mut context = Context::default();
        context.0[..21].copy_from_slice(&top.registers());
        context.0[21] = 997;
        // The test can lose its processor, for longer than a walk may take.
        let mut walks = (0..100).map(|_| self.walk_from(&context));
        let deadline = Walked::HandedOver(HandOver::Deadline);
        walks.find(|walked| *walked != deadline).unwrap_or(deadline)
    }

    fn walk_from(&mut self, context: &Context) -> Walked {
        let before = self.maps.counts(CPUS);
        let result = self.program.test_run(&mut context.bytes()).unwrap();
        let after = self.maps.counts(CPUS);
        let record = self.maps.records().next_record().map(<[u8]>::to_vec);
        assert_eq!(after.complete - before.complete, u64::from(result == 0));
        assert_eq!(record.is_some(), result == 0);
        match record {
            None => Walked::HandedOver(difference(&before, &after)),
            Some(bytes) => {
                let record = WalkRecord::parse(&bytes).unwrap();
                assert_eq!(record.period, 997);
                assert_eq!(record.pid, std::process::id());
                assert_eq!(record.generation, 7);
                assert_eq!(record.kernel_frames().count(), 0);
                Walked::Complete(record.user_frames().collect())
            }
        }
    }

    /// Makes modules and publishes them.
    fn modules(&mut self, random: &mut Random) -> Modules {
        let (modules, list) = Modules::write(self, random);
        self.maps.set_process(std::process::id(), list, 7).unwrap();
        modules
    }
}

/// The one reason that was counted.
fn difference(before: &WalkCounts, after: &WalkCounts) -> HandOver {
    let has_grown = |reason: &&HandOver| after.count(**reason) != before.count(**reason);
    let mut reasons = HandOver::ALL.iter().filter(has_grown);
    let reason = *reasons.next().unwrap();
    assert_eq!(reasons.next(), None);
    reason
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn walks_have_the_interpreters_frames() {
    let mut walks = Walks::new();
    let mut memory = StackMemory::new(STACK_BYTES);
    let mut ends: HashMap<Option<HandOver>, usize> = HashMap::new();
    let mut most = 0;
    for case in 0..6_000_u64 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ case << 20);
        let modules = walks.modules(&mut random);
        memory.bytes_mut().fill(0);
        let count = 1 + random.below([3, 30, 200, 1100][usize::try_from(case % 4).unwrap()]);
        let mut maker = StackMaker {
            modules: &modules,
            memory: &mut memory,
            random,
            odd: [0, 3, 30][usize::try_from(case % 3).unwrap()],
        };
        let top = maker.make(count);
        let reference = Reference::walk(&modules, top, &memory);
        match walks.walk(top) {
            Walked::Complete(found) => {
                assert!(reference.is_complete, "case {case}: {found:x?}");
                assert_eq!(found, reference.frames, "case {case}");
                most = most.max(found.len());
                *ends.entry(None).or_default() += 1;
            }
            Walked::HandedOver(reason) => {
                let must_walk = reference.is_complete && reference.is_usual;
                assert!(
                    !must_walk,
                    "case {case}: {reason:?}: {:x?}",
                    reference.frames
                );
                *ends.entry(Some(reason)).or_default() += 1;
            }
        }
    }
    assert!(ends[&None] > 2_000 && most > 500, "{most} frames: {ends:?}");
    for reason in [
        HandOver::NoMapping,
        HandOver::NoRow,
        HandOver::OtherRow,
        HandOver::FunctionBorder,
        HandOver::ZeroReturnAddress,
    ] {
        assert!(ends.contains_key(&Some(reason)), "{reason:?}: {ends:?}");
    }
}

/// A program whose only function has a row, with a stack; and the walk's end.
fn walk_one(walks: &mut Walks, rules: &str, top: Top) -> Walked {
    let source = format!("arch x86-64 little\nfn 0x1000..0x2000\n  0x1000  {rules}\n");
    let bytes = compile(&text::parse(&source).unwrap(), &ExecutableCode::default());
    let table = walks.write(&bytes);
    let mapping = ModuleMapping {
        start: RuntimeAddr(0x1000),
        end: RuntimeAddr(0x2000),
        bias: LoadBias(0),
        record: table.address(),
    };
    let list = write_mappings(walks.maps.arena(), table.end(), &[mapping]).unwrap();
    walks
        .maps
        .set_process(std::process::id(), list.address(), 7)
        .unwrap();
    walks.walk(top)
}

/// Rows are cached by the version of their table, too: another table at its place has its own.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_table_at_the_place_of_another_has_its_own_rows() {
    let mut walks = Walks::new();
    let mut memory = StackMemory::new(4096);
    let stack_pointer = memory.start();
    for (offset, code) in [(8, 0x5400_u64), (24, 0x5c00)] {
        memory.bytes_mut()[offset..offset + 8].copy_from_slice(&code.to_le_bytes());
    }
    let list = WalkMaps::FREE.start + (1 << 20);
    let pid = std::process::id();
    for (version, distance, caller) in [(1, 16, 0x5400), (2, 32, 0x5c00), (3, 16, 0x5400)] {
        let source = format!(
            "arch x86-64 little\nfn 0x1000..0x2000\n  0x1000  cfa=rsp+{distance}  ra=[cfa-8]\n\
             fn 0x5000..0x6000\n  0x5000  cfa=rsp+8  ra=undefined\n"
        );
        let bytes = compile(&text::parse(&source).unwrap(), &ExecutableCode::default());
        let image = TableImage::new(&bytes).unwrap();
        let record = image.write(walks.maps.arena(), walks.free).unwrap();
        let mapping = ModuleMapping {
            start: RuntimeAddr(0x1000),
            end: RuntimeAddr(0x6000),
            bias: LoadBias(0),
            record: record.with_version(version),
        };
        let list = write_mappings(walks.maps.arena(), list, &[mapping]).unwrap();
        walks.maps.set_process(pid, list.address(), 7).unwrap();
        let top = Top {
            code: 0x1800,
            stack_pointer,
            frame_pointer: 0,
        };
        let frames = vec![
            CodeAddr::Instruction(RuntimeAddr(0x1800)),
            CodeAddr::Return(RuntimeAddr(caller)),
        ];
        assert_eq!(walks.walk(top), Walked::Complete(frames), "{version}");
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn stacks_that_lead_nowhere_are_handed_over() {
    let mut walks = Walks::new();
    let mut memory = StackMemory::new(STACK_BYTES);
    for word in memory.bytes_mut().as_chunks_mut::<8>().0 {
        *word = 0x1800_u64.to_le_bytes();
    }
    let (start, end) = (memory.start(), memory.end());
    let top = |stack_pointer| Top {
        code: 0x1800,
        stack_pointer,
        frame_pointer: start,
    };
    let usual = "cfa=rsp+8  ra=[cfa-8]";
    for (rules, top, reason) in [
        // More frames than a walk may have, and a stack that ends before.
        (usual, top(start), HandOver::Limit),
        (usual, top(end - 512), HandOver::Unreadable),
        // It ends inside of a word.
        (usual, top(end - 3), HandOver::Unreadable),
        (usual, top(end), HandOver::Unreadable),
        (usual, top(0), HandOver::Unreadable),
        // The CFA does not rise.
        ("cfa=rbp+16  ra=[cfa-8]", top(start + 16), HandOver::BadCfa),
        ("cfa=rbp+16  ra=[cfa-8]", top(start), HandOver::BadCfa),
        // It wraps.
        (usual, top(u64::MAX - 7), HandOver::BadCfa),
        (
            "cfa=rsp+8  ra=[cfa-8]  rbp=undefined",
            top(start),
            HandOver::OtherRow,
        ),
        ("cfa=rsp+8  ra=rbx", top(start), HandOver::OtherRow),
    ] {
        let walked = walk_one(&mut walks, rules, top);
        assert_eq!(walked, Walked::HandedOver(reason), "{rules}: {top:x?}");
    }
    // 16 signal frames, the last of which resumes itself.
    let record = usize::try_from(160).unwrap();
    for (offset, word) in [(120, 0), (160, start), (168, 0x1800)] {
        memory.bytes_mut()[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }
    assert_eq!(memory.bytes()[record..record + 8], start.to_le_bytes());
    let walked = walk_one(&mut walks, SIGNAL, top(start));
    assert_eq!(walked, Walked::HandedOver(HandOver::Limit));
}

/// A word that begins in a page and ends in the next, and words at the end of the last page.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn words_at_the_ends_of_pages_are_read() {
    let mut walks = Walks::new();
    let mut memory = StackMemory::new(1 << 16);
    let (start, end) = (memory.start(), memory.end());
    let rules = "cfa=rsp+8  ra=[cfa-8]";
    for stack_pointer in [end - 8, end - 4096 - 3, end - 1024, end - 1023 - 8, start] {
        memory.bytes_mut().fill(0);
        let at = usize::try_from(stack_pointer - start).unwrap();
        memory.bytes_mut()[at..at + 8].copy_from_slice(&0x5000_u64.to_le_bytes());
        let top = Top {
            code: 0x1800,
            stack_pointer,
            frame_pointer: 0,
        };
        // The word was read: it is an address without a mapping.
        let walked = walk_one(&mut walks, rules, top);
        assert_eq!(walked, Walked::HandedOver(HandOver::NoMapping));
    }
}

/// A return address where a function ends follows a call that does not return, or no call.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn calls_at_the_ends_of_functions_are_recognized() {
    let mut walks = Walks::new();
    let mut memory = StackMemory::new(1 << 14);
    let code = memory.start();
    let (end, stack_pointer) = (code + 0x1000, code + 0x3000);
    let source = "arch x86-64 little\nfn 0x0..0x1000\n  0x0  cfa=rsp+8  ra=[cfa-8]\n\
         fn 0x1000..0x2000\n  0x1000  cfa=rsp+8  ra=undefined\n";
    let bytes = compile(&text::parse(source).unwrap(), &ExecutableCode::default());
    let table = walks.write(&bytes);
    let mapping = ModuleMapping {
        start: RuntimeAddr(code),
        end: RuntimeAddr(code + 0x2000),
        bias: LoadBias(code),
        record: table.address(),
    };
    let list = write_mappings(walks.maps.arena(), table.end(), &[mapping]).unwrap();
    let pid = std::process::id();
    walks.maps.set_process(pid, list.address(), 7).unwrap();
    // Assembled by GNU as. All but the last four are calls.
    let instructions: [(&[u8], bool); 9] = [
        (&[0xe8, 0, 0x10, 0, 0], true),              // call target
        (&[0xff, 0x15, 0, 0x10, 0, 0], true),        // call *place(%rip)
        (&[0xff, 0xd0], true),                       // call *%rax
        (&[0x41, 0xff, 0xd7], true),                 // call *%r15
        (&[0xff, 0xd7], true),                       // call *%rdi
        (&[0xe9, 0, 0x10, 0, 0], false),             // jmp target
        (&[0xff, 0xe0], false),                      // jmp *%rax
        (&[0xc3], false),                            // ret
        (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], false), // nopl 0(%rax,%rax)
    ];
    for (instruction, is_call) in instructions {
        let bytes = memory.bytes_mut();
        bytes.fill(0x90);
        bytes[0x1000 - instruction.len()..0x1000].copy_from_slice(instruction);
        bytes[0x3000..0x3008].copy_from_slice(&end.to_le_bytes());
        bytes[0x3008..0x3010].copy_from_slice(&(end + 5).to_le_bytes());
        let walked = walks.walk(Top {
            code: code + 4,
            stack_pointer,
            frame_pointer: 0,
        });
        let frames = [
            CodeAddr::Instruction(RuntimeAddr(code + 4)),
            CodeAddr::Return(RuntimeAddr(end)),
            CodeAddr::Return(RuntimeAddr(end + 5)),
        ];
        let expected = if is_call {
            Walked::Complete(frames.to_vec())
        } else {
            Walked::HandedOver(HandOver::FunctionBorder)
        };
        assert_eq!(walked, expected, "{instruction:x?}");
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn unknown_processes_and_code_of_32_bits_are_handed_over() {
    let mut walks = Walks::new();
    let pid = std::process::id();
    let mut context = Context::default();
    context.0[17] = 0x23;
    let walked = walks.walk_from(&context);
    assert_eq!(walked, Walked::HandedOver(HandOver::Compat));
    context.0[17] = 0x33;
    for _ in 0..2 {
        let walked = walks.walk_from(&context);
        assert_eq!(walked, Walked::HandedOver(HandOver::UnknownProcess));
        let none = write_mappings(walks.maps.arena(), walks.free, &[]).unwrap();
        walks.maps.set_process(pid, none.address(), 7).unwrap();
        let walked = walks.walk_from(&context);
        assert_eq!(walked, Walked::HandedOver(HandOver::NoMapping));
        for reason in HandOver::ALL {
            walks.maps.refuse_process(pid, reason).unwrap();
            let walked = walks.walk_from(&context);
            assert_eq!(walked, Walked::HandedOver(reason));
        }
        walks.maps.remove_process(pid).unwrap();
    }
}

/// A sample in the kernel has the registers of the process from the entry to the kernel. A
/// non-maskable interrupt can come before these are written: at the entry's first instructions, or
/// while those from `ss` to `bp` are pushed.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn registers_that_the_kernel_has_not_written_yet_are_not_used() {
    let mut walks = Walks::new();
    let top = Top {
        code: 0x1800,
        stack_pointer: 0,
        frame_pointer: 0,
    };
    let expected = walk_one(&mut walks, OUTERMOST, top);
    assert!(matches!(expected, Walked::Complete(_)));
    let entry = 0xffff_c900_1234_3f58_u64;
    let mut walk = |stack_pointer: u64| {
        let mut context = Context::default();
        // Code of the kernel.
        (context.0[16], context.0[17]) = (0xffff_ffff_8100_0000, 0x10);
        (context.0[19], context.0[21]) = (stack_pointer, 997);
        context.0[22..43].copy_from_slice(&top.registers());
        context.0[43] = entry;
        walks.walk_from(&context)
    };
    let stale = Walked::HandedOver(HandOver::NoUserStack);
    for offset in 0..400 {
        let (above, below) = (walk(entry + offset), walk(entry - offset));
        let is_stale = (33..=168).contains(&offset);
        assert_eq!(
            &above,
            if is_stale { &stale } else { &expected },
            "{offset}"
        );
        assert_eq!(below, expected, "-{offset}");
    }
    for of_process in [0, 8, 0x7ffd_1234_5678, u64::MAX >> 1] {
        assert_eq!(walk(of_process), stale);
    }
    // The kernel's `Documentation/arch/x86/x86_64/mm.rst`: "cpu_entry_area mapping".
    let (first, last) = (0xffff_fe00_0000_0000_u64, 0xffff_fe7f_ffff_ffff);
    for on_entry_stack in [first, first + 0x3f00, last] {
        assert_eq!(walk(on_entry_stack), stale, "{on_entry_stack:#x}");
    }
    for elsewhere in [first - 1, last + 1] {
        assert_eq!(walk(elsewhere), expected, "{elsewhere:#x}");
    }
}

/// The reader is slow: nothing is lost.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_full_ring_hands_over() {
    let mut walks = Walks::new();
    let top = Top {
        code: 0x1800,
        stack_pointer: 0,
        frame_pointer: 0,
    };
    let Walked::Complete(frames) = walk_one(&mut walks, OUTERMOST, top) else {
        panic!("a root");
    };
    assert_eq!(frames, [CodeAddr::Instruction(RuntimeAddr(0x1800))]);
    let mut context = Context::default();
    context.0[..21].copy_from_slice(&top.registers());
    context.0[21] = 3;
    let before = walks.maps.counts(CPUS);
    let runs = 100_000_u64;
    let run = || walks.program.test_run(&mut context.bytes()).unwrap();
    let handed_over: u64 = (0..runs).map(|_| u64::from(run())).sum();
    let after = walks.maps.counts(CPUS);
    assert_eq!(after.count(HandOver::RingFull), handed_over);
    assert_eq!(after.complete - before.complete, runs - handed_over);
    assert_eq!(after.periods - before.periods, 3 * runs);
    let kept = RefCell::new(0);
    while walks.maps.records().next_record().is_some() {
        *kept.borrow_mut() += 1;
    }
    assert_eq!(*kept.borrow(), runs - handed_over);
    assert!(handed_over > 0);
}

/// The verifier's work, and the size of the machine code.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn the_verifier_needs_few_steps() {
    let info = Walks::new().program.info().unwrap();
    assert!(info.verified_insns < 200_000, "{info:?}");
}
