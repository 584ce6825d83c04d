//! One step from each of many addresses of a file, by the driver's unwinders and by those in Rust.

use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder as _};
use unspool_bench::remote::{Driver, DriverInput, module};
use unspool_bench::{Durations, Random, Scratch, framehop_module};
use unspool_elf::ElfFile;
use unspool_rows::{LoadBias, Memory, Register, Registers, RuntimeAddr, Unreadable};
use unspool_table_store::{self as tables, Store, TableBytes, TableForm, TableSource};
use unspool_unwind::{Cursor, FileTables, Module, Modules, Step};

use crate::print as print_ways;

/// The number of steps in a pass.
const STEPS: usize = 1 << 16;

/// Timed passes, after an untimed one.
const ROUNDS: usize = 11;

const BIAS: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;
const STACK_BYTES: usize = 1 << 16;

/// The value of all registers other than the code address: the middle of the stack.
const MIDDLE: u64 = STACK + STACK_BYTES as u64 / 2;

/// The value of each word of the stack.
const WORD: u64 = 0x5555_0000_1234;

pub(crate) fn measure(path: &Path, driver: &Driver<'_>, folder: &Scratch) -> anyhow::Result<()> {
    let file = Arc::new(ElfFile::open(path)?);
    let made = tables::compile(&file, TableSource::Auto)?;
    let starts: Vec<u64> = made.source.table.spans().map(|span| span.start.0).collect();
    let end = file.address_range().map_or(u64::MAX, |range| range.end.0);
    let about = module(&file, BIAS..BIAS + end, BIAS, folder, None)?;
    let compact = FileTables::new(Arc::clone(&file)).for_walks();
    compact.attach(TableBytes::Memory(made.encoded.bytes));
    let native = FileTables::new(Arc::clone(&file)).for_walks();
    let store = Store::new(None, None, None).with_form(TableForm::Native);
    native.run_native(&store, path, &mut Vec::new());
    let mut framehop = UnwinderX86_64::new();
    if let Some(module) = framehop_module(&file, BIAS)? {
        framehop.add_module(module);
    }
    let stack = ConstantStack::new();
    for different in [16, STEPS] {
        let addresses = addresses(&starts, different);
        let mut samples = DriverInput::default();
        for address in &addresses {
            let mut registers = [MIDDLE; 17];
            registers[16] = *address;
            let bytes = match samples.count {
                0 => stack.0.as_slice(),
                _ => &[],
            };
            samples.push(&registers, STACK, bytes);
        }
        let name = format!("{}, {different} addresses", path.display());
        let input = samples.with(slice::from_ref(&about));
        print_ways(&name, &driver.run(&input, 1)?)?;
        print("table, in Rust", || {
            cursor_steps(&compact, &stack, &addresses)
        });
        print("object, in Rust", || {
            cursor_steps(&native, &stack, &addresses)
        });
        let mut cache = CacheX86_64::new();
        print("framehop", || {
            framehop_steps(&framehop, &mut cache, &stack, &addresses)
        });
    }
    Ok(())
}

/// This many different addresses, in random order.
fn addresses(starts: &[u64], different: usize) -> Vec<u64> {
    let mut random = Random::new(1);
    let place = |random: &mut Random| match different {
        STEPS => random.below(starts.len()),
        _ => random.below(different) * 7919 % starts.len(),
    };
    let starts = (0..STEPS).filter_map(|_| starts.get(place(&mut random)));
    starts.map(|start| BIAS + start).collect()
}

/// Prints the time of a step; the timed function returns the number of callers found.
fn print(name: &str, mut pass: impl FnMut() -> usize) {
    let frames = pass();
    let mut sample = Durations::default();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        pass();
        sample.extend([begun.elapsed() / 65536]);
    }
    let nanos = sample.median().as_secs_f64() * 1e9;
    println!("{name:<24}{frames:>8}{nanos:>32.1}");
}

/// The stack.
struct ConstantStack(Vec<u8>);

impl ConstantStack {
    fn new() -> Self {
        ConstantStack(WORD.to_le_bytes().repeat(STACK_BYTES / 8))
    }
}

impl Memory for ConstantStack {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let at = addr.0.checked_sub(STACK);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.0.get(at..)?.get(..into.len()));
        into.copy_from_slice(bytes.ok_or(Unreadable::unmapped(addr))?);
        Ok(())
    }
}

/// A mapped file.
struct OneModule<'t>(&'t FileTables);

impl Modules for OneModule<'_> {
    fn module(&self, _: RuntimeAddr) -> Option<Module<'_>> {
        Some(self.0.module(LoadBias(BIAS), None, None))
    }

    fn is_code(&self, _: RuntimeAddr) -> bool {
        true
    }
}

fn cursor_steps(tables: &FileTables, stack: &ConstantStack, addresses: &[u64]) -> usize {
    let (world, abi) = (OneModule(tables), tables.file().abi());
    let steps = addresses.iter().filter(|address| {
        let mut registers = Registers::new();
        (0..16).for_each(|number| registers.set(Register(number), MIDDLE));
        registers.set(Register(16), **address);
        let cursor = Cursor::new(abi, registers);
        cursor.is_some_and(|mut cursor| matches!(cursor.step(&world, stack), Step::Caller(_)))
    });
    steps.count()
}

fn framehop_steps(
    unwinder: &UnwinderX86_64<Vec<u8>>,
    cache: &mut CacheX86_64,
    stack: &ConstantStack,
    addresses: &[u64],
) -> usize {
    let mut read = |address: u64| {
        let mut word = [0; 8];
        let read = stack.read(RuntimeAddr(address), &mut word);
        read.map(|()| u64::from_le_bytes(word)).map_err(|_| ())
    };
    let steps = addresses.iter().filter(|address| {
        let frame = FrameAddress::from_instruction_pointer(**address);
        let mut registers = UnwindRegsX86_64::new(**address, MIDDLE, MIDDLE);
        let found = unwinder.unwind_frame(frame, &mut registers, cache, &mut read);
        matches!(found, Ok(Some(_)))
    });
    steps.count()
}
