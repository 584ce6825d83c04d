//! ARM's return addresses: bit 0 marks a caller in Thumb code.

use unspool_cfi::Lookup;
use unspool_cfi::lookup::HdrTrust;
use unspool_rows::interpret::{FrameContext, step};
use unspool_rows::memory::{Memory, Unreadable};
use unspool_rows::{CodeAddr, LoadBias, Register, Registers, Row, RuntimeAddr, Vaddr};
use xtask::elf;

use crate::assembled;

const LEAF: Vaddr = Vaddr(0xa);
const LOAD_BIAS: LoadBias = LoadBias(0x40_0000);

struct Nothing;

impl Memory for Nothing {
    fn read(&self, addr: RuntimeAddr, _: &mut [u8]) -> Result<(), Unreadable> {
        Err(Unreadable::unmapped(addr))
    }
}

/// Steps out of `leaf`. Its row has no rule for `lr`: a call has just left `link` there, as linked.
/// `row` is the start and end of the row that covers the call.
fn check(cfi_file: &elf::CfiFile<'_>, link: u64, row: (u64, u64)) {
    let lookup = Lookup::new(
        cfi_file.section(&cfi_file.sections[0]),
        None,
        HdrTrust::Suspect,
    );
    let mut registers = Registers::new();
    registers.set(Register(13), 0x7000);
    let link_register = LOAD_BIAS.to_runtime(Vaddr(link)).0;
    registers.set(Register(14), link_register);
    let mut leaf = Row::new(Register(0));
    lookup.row(LEAF, &mut leaf).unwrap().unwrap();
    let frame = FrameContext {
        abi: cfi_file.abi,
        registers: &registers,
        memory: &Nothing,
        bias: LOAD_BIAS,
        pac_mask: 0,
    };
    let caller = step(&leaf, &frame).unwrap();
    assert_eq!(caller.registers.get(Register(14)), Some(link_register));
    let pc = CodeAddr::Return(caller.return_address.unwrap()).lookup();
    let found = lookup.row(LOAD_BIAS.to_vaddr(pc), &mut leaf);
    let found = found.unwrap().unwrap();
    assert_eq!((found.row_start.0, found.row_end.0), row, "{link:#x}");
}

#[test]
fn a_thumb_caller_is_looked_up_at_its_call() {
    let data = std::fs::read(assembled::object("thumb", "thumb_callers")).unwrap();
    let unit = &elf::units(&data).unwrap()[0];
    // Calls at 2, before another row; at 8, before another function; in ARM code at 0x10, before
    // a hole. The first two set the bit.
    check(unit, 6 | 1, (2, 6));
    check(unit, 0xa | 1, (8, 0xa));
    check(unit, 0x14, (0x10, 0x14));
}
