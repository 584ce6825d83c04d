//! Look-ups of rows. They follow `docs/formats.md`, chapters 2 and 3.1.

use unspool_bpf::insn::{AluOp, Cond, Reg, Size};
use unspool_bpf::{Assembler, Label, Subprog};
use unspool_compiled_table::layout::{LONG_DISTANCE, LONG_GAP};

use crate::search::{read, upper_bound};
use crate::table::RecordField;

use AluOp::{Add, And, Arsh, Lsh, Mul, Or, Rsh, Sub, Xor};
use Cond::{Eq, Ge, Le, Lt, Ne, Sle};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use Size::{B, DW, H, W};

/// The address of the table's record.
const RECORD: Reg = R6;

/// In a result of [`lookup_row`]: the address is the first one of its piece. A function begins
/// there, or a page of 64 KiB, or a 33rd row.
pub const IS_FIRST_OF_PIECE: i32 = 1 << 17;
/// In a result of [`lookup_row`]: the address is the last one of its piece. A function ends there,
/// or a page of 64 KiB, or 32 rows.
pub const IS_LAST_OF_PIECE: i32 = 1 << 18;

/// Assembles `u64 lookup_row(record, pc)`: the row at an address of the module as linked.
///
/// The result is the row's number plus 1, or 0 if there is no row. [`IS_FIRST_OF_PIECE`] and
/// [`IS_LAST_OF_PIECE`] are added to it.
pub fn lookup_row(asm: &mut Assembler<'_>) -> Subprog {
    asm.subprog("lookup_row", 2, |asm| {
        let hole = asm.new_label();
        let (index, first_of_page) = (R9, R3);
        find_bucket(asm, RecordField::PiecePageCount, R2, hole);
        asm.mov64(R8, R2);
        asm.alu64(And, R8, 0xffff);
        find_element(asm, RecordField::Starts, R8);
        // A piece of an earlier bucket can reach this address, but not one of an earlier page.
        asm.jmp(Le, index, first_of_page, hole);
        find_piece(asm, hole);
        find_row(asm);
        asm.alu64(Or, R0, R9);
        asm.exit();
        asm.bind(hole);
        asm.mov64(R0, 0);
        asm.exit();
    })
}

/// `dst =` a field of the record.
fn load_field(asm: &mut Assembler<'_>, dst: Reg, field: RecordField) {
    asm.ldx(W, dst, RECORD, field.offset());
}

/// Finds the elements of a bucket (`elements` of chapter 2). Three consecutive fields of the record
/// say where: the number of pages, the pages, the buckets.
///
/// | register | before | after |
/// |---|---|---|
/// | `pc` | an address | its offset |
/// | `R1` | the record's address | – |
/// | `R3` | – | the index of the page's first element |
/// | `R5` | – | the number of the bucket's elements |
/// | `R6` | – | [`RECORD`] |
/// | `R7` | – | the index after the page's last element |
/// | `R9` | – | the index of the bucket's first element |
fn find_bucket(asm: &mut Assembler<'_>, page_count: RecordField, pc: Reg, no_page: Label) {
    let (pages, buckets) = (page_count.offset() + 4, page_count.offset() + 8);
    asm.cast_kern(RECORD, R1);
    asm.ldx(DW, R0, RECORD, RecordField::Base.offset());
    asm.alu64(Sub, pc, R0);
    asm.mov64(R1, pc);
    asm.alu64(Rsh, R1, 16);
    load_field(asm, R0, page_count);
    asm.jmp(Ge, R1, R0, no_page);
    // The index of the page's first element, and of the next page's.
    asm.ldx(W, R0, RECORD, pages);
    asm.mov64(R4, R1);
    asm.alu64(Lsh, R4, 2);
    asm.alu64(Add, R4, R0);
    read(asm, W, R3, R4, 0);
    read(asm, W, R7, R4, 4);
    // A page has 64 buckets, and 65 numbers.
    asm.ldx(W, R0, RECORD, buckets);
    asm.mov64(R4, pc);
    asm.alu64(Rsh, R4, 10);
    asm.alu64(Add, R4, R1);
    asm.alu64(Lsh, R4, 1);
    asm.alu64(Add, R4, R0);
    read(asm, H, R9, R4, 0);
    read(asm, H, R5, R4, 2);
    asm.alu64(Sub, R5, R9);
    asm.alu64(And, R5, 0xffff);
    asm.alu64(Add, R9, R3);
}

/// Searches `R5` numbers of 2 bytes, from the index `R9` on. `R9` becomes the index of the first
/// one above `limit`, and `R1` its address.
fn find_element(asm: &mut Assembler<'_>, numbers: RecordField, limit: Reg) {
    load_field(asm, R0, numbers);
    asm.mov64(R1, R9);
    asm.alu64(Lsh, R1, 1);
    asm.alu64(Add, R1, R0);
    upper_bound(asm, H, 2, limit);
    asm.mov64(R9, R1);
    asm.alu64(Sub, R9, R0);
    asm.alu64(Rsh, R9, 1);
}

/// Finds the piece before the index `R9`, whose start is at the address `R1`. `R8` is the offset in
/// the page, and `R7` the index after the page's last piece.
///
/// `R8` becomes the distance from the piece's start, `R2` the address of its shape, and `R9` the
/// flags in the result.
fn find_piece(asm: &mut Assembler<'_>, hole: Label) {
    let (is_last, is_short) = (asm.new_label(), asm.new_label());
    asm.mov64(R4, 0x1_0000);
    asm.jmp(Ge, R9, R7, is_last);
    read(asm, H, R4, R1, 0);
    asm.bind(is_last);
    read(asm, H, R7, R1, -2); // the piece's start
    asm.alu64(Sub, R9, 1);
    load_field(asm, R1, RecordField::PieceSize);
    asm.alu64(Mul, R1, R9);
    load_field(asm, R0, RecordField::Pieces);
    asm.alu64(Add, R1, R0);
    read(asm, B, R0, R1, 0); // the gap after the piece
    read(asm, W, R3, R1, 2);
    asm.jmp(Ne, R0, i32::from(LONG_GAP), is_short);
    find_long_gap(asm, hole);
    asm.bind(is_short);
    asm.alu64(Sub, R4, R0);
    asm.jmp(Ge, R8, R4, hole);
    // No branches: each would double what the verifier has to follow.
    asm.alu64(Sub, R4, 1);
    asm.mov64(R9, 0);
    for (bound, flag) in [(R4, IS_LAST_OF_PIECE), (R7, IS_FIRST_OF_PIECE)] {
        // -1 if they are equal, else not negative.
        asm.mov64(R1, R8);
        asm.alu64(Xor, R1, bound);
        asm.alu64(Sub, R1, 1);
        asm.alu64(Arsh, R1, 63);
        asm.alu64(And, R1, flag);
        asm.alu64(Or, R9, R1);
    }
    asm.alu64(Sub, R8, R7);
    load_field(asm, R2, RecordField::ShapeMask);
    asm.alu64(And, R2, R3);
    load_field(asm, R0, RecordField::Shapes);
    asm.alu64(Add, R2, R0);
}

/// `R0 =` the gap after the piece with the index `R9`, from `GAPS`. Preserves `R3`, `R4`, `R7` and
/// `R8`.
fn find_long_gap(asm: &mut Assembler<'_>, corrupt: Label) {
    const ENTRY_BYTES: i32 = 6;
    asm.st(DW, Reg::R10, -8, R4);
    load_field(asm, R1, RecordField::Gaps);
    load_field(asm, R5, RecordField::GapCount);
    asm.jmp(Eq, R5, 0, corrupt);
    upper_bound(asm, W, ENTRY_BYTES, R9);
    read(asm, H, R0, R1, -2);
    asm.ldx(DW, R4, Reg::R10, -8);
}

/// `R0 =` the row at the distance `R8` in the shape at the address `R2`: its number plus 1.
fn find_row(asm: &mut Assembler<'_>) {
    let (end_of_search, is_wide, end) = (asm.new_label(), asm.new_label(), asm.new_label());
    let (sequence, head, remaining, row) = (R3, R4, R5, R7);
    read(asm, W, R0, R2, 0);
    load_field(asm, R1, RecordField::SequenceMask);
    asm.alu64(And, R0, R1);
    load_field(asm, sequence, RecordField::Sequences);
    asm.alu64(Add, sequence, R0);
    load_field(asm, R1, RecordField::SequenceSize);
    asm.alu64(Add, R2, R1);
    read(asm, B, head, sequence, 0);
    asm.mov64(remaining, head);
    asm.alu64(And, remaining, 0x7f);
    asm.mov64(row, 0);
    let again = asm.bind_new_label();
    asm.may_goto(end_of_search);
    asm.alu64(Sub, remaining, 1);
    asm.jmp(Sle, remaining, 0, end_of_search);
    read_distance(asm);
    asm.jmp(Lt, R8, R0, end_of_search);
    asm.alu64(Sub, R8, R0);
    asm.alu64(Add, row, 1);
    asm.ja(again);
    asm.bind(end_of_search);
    asm.alu64(Add, sequence, row);
    asm.jmp(Cond::Set, head, 0x80, is_wide);
    read(asm, B, R0, sequence, 1);
    asm.ja(end);
    asm.bind(is_wide);
    asm.alu64(Add, sequence, row);
    read(asm, H, R0, sequence, 1);
    asm.bind(end);
    asm.alu64(Add, R0, 1);
}

/// `R0 =` the distance at the address `R2`, which moves to the next one.
fn read_distance(asm: &mut Assembler<'_>) {
    let (is_short, end) = (asm.new_label(), asm.new_label());
    read(asm, B, R0, R2, 0);
    asm.jmp(Ne, R0, i32::from(LONG_DISTANCE), is_short);
    read(asm, H, R0, R2, 1);
    asm.alu64(Add, R2, 3);
    asm.ja(end);
    asm.bind(is_short);
    asm.alu64(Add, R0, 1);
    asm.alu64(Add, R2, 1);
    asm.bind(end);
}
