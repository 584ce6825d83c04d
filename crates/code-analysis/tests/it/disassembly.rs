//! Instructions as text, against objdump (binutils).

use std::path::Path;

use unspool_code_analysis::Disassembler;
use unspool_elf::ElfFile;
use unspool_testing::{Finish as _, Folder, tool};

/// An instruction of a listing: address, direct target of a jump or a call, mnemonic.
type Listed = (u64, Option<u64>, String);

/// The instructions of a file's section `.text` by `objdump -d`.
fn by_objdump(path: &Path) -> Vec<Listed> {
    let options = ["-d", "-z", "-w", "--no-show-raw-insn", "-j", ".text"];
    let text = tool("objdump").args(options).arg(path).succeed();
    let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let instruction = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        let mut words = text.split_whitespace();
        let mut target = None;
        let mut operand_before = None;
        for word in text.split_whitespace().take_while(|word| *word != "#") {
            if word.starts_with('<') {
                target = operand_before.and_then(hexadecimal);
            }
            operand_before = Some(word);
        }
        Some((
            hexadecimal(address.trim())?,
            target,
            words.next()?.to_owned(),
        ))
    };
    text.lines().filter_map(instruction).collect()
}

fn ours(path: &Path) -> Vec<Listed> {
    let file = ElfFile::open(path).unwrap();
    let text = file.section_named(".text").unwrap().unwrap();
    let mut disassembler = Disassembler::new(file.abi()).unwrap();
    let (mut rest, mut address) = (text.data, text.address.0);
    let mut listed = Vec::new();
    while let Some(instruction) = disassembler.disassemble(rest, address, |_| None) {
        let mnemonic = instruction.text.split(' ').next().unwrap().to_owned();
        listed.push((address, instruction.target, mnemonic));
        rest = &rest[usize::from(instruction.length)..];
        address += u64::from(instruction.length);
    }
    listed
}

/// Lengths and targets are equal. Mnemonics are except for suffixes (`mov`, `movl`) and synonyms.
fn compare(path: &Path) {
    let (ours, theirs) = (ours(path), by_objdump(path));
    assert_eq!(ours.len(), theirs.len(), "{}", path.display());
    let mut alike = 0;
    for (our, their) in ours.iter().zip(&theirs) {
        assert_eq!((our.0, our.1), (their.0, their.1), "{our:?} {their:?}");
        alike += usize::from(our.2.starts_with(&their.2) || their.2.starts_with(&our.2));
    }
    assert!(alike * 100 >= ours.len() * 97, "{alike} of {}", ours.len());
}

#[test]
fn instructions_are_those_of_objdump() {
    compare(Path::new("/lib64/ld-linux-x86-64.so.2"));
    compare(Path::new("/lib/x86_64-linux-gnu/libc.so.6"));
}

#[test]
fn instructions_of_32_bit_code_are_those_of_objdump() {
    let folder = Folder::new();
    let [source, object, linked] = ["short.s", "short.o", "short"].map(|name| folder.join(name));
    let text = "f: inc %eax\npush %es\ncall g\njmp f\nmov 8(%esp), %ecx\njecxz f\ng: ret\n";
    std::fs::write(&source, text).unwrap();
    tool("as")
        .arg("--32")
        .arg("-o")
        .args([&object, &source])
        .succeed();
    let link = ["-m", "elf_i386", "-e", "f", "-o"];
    tool("ld").args(link).args([&linked, &object]).succeed();
    compare(&linked);
}

/// A name stands for the address of a target, and for nothing else.
#[test]
fn targets_have_names() {
    let mut disassembler = Disassembler::new(unspool_rows::Abi::X86_64).unwrap();
    let mut text = |bytes: &[u8]| {
        let name = |target| Some(format!("to {target:#x}"));
        disassembler.disassemble(bytes, 0x1000, name).unwrap().text
    };
    assert_eq!(text(&[0xe8, 1, 0, 0, 0]), "call to 0x1006");
    assert_eq!(text(&[0x74, 0xfe]), "je to 0x1000");
    assert_eq!(text(&[0xff, 0xe0]), "jmp *%rax");
    assert_eq!(text(&[0x06]), "(bad)");
    assert_eq!(disassembler.disassemble(&[], 0, |_| None), None);
}
