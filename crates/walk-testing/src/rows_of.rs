//! Rows as text, of all kinds.

use unspool_rows::{Table, text};

/// The start of the first row in [`table`].
pub const FIRST: u64 = 0x1_fff0;

/// An x86-64 table of rows with 3 bytes each, and a hole behind each.
#[must_use]
pub fn table(rows: &[String]) -> Table {
    let mut source = String::from("arch x86-64 little\n");
    for (rules, at) in rows.iter().zip((FIRST..).step_by(4)) {
        source.push_str(&format!("fn {at:#x}..{:#x}\n  {at:#x}  {rules}\n", at + 3));
    }
    text::parse(&source).unwrap()
}

/// Rows with rules and operations of all kinds; neighbours never mean the same.
#[must_use]
pub fn all_kinds() -> Vec<String> {
    let mut rows = Vec::new();
    let mut put = |rules: &str| rows.push(String::from(rules));
    for rules in [
        "cfa=rsp+8  ra=[cfa-8]",
        "cfa=rbp+16  ra=[cfa-8]  rbp=[cfa-16]",
        "cfa=rsp+8000  ra=[cfa-8]  rbx=[cfa-4096]  r12=[cfa-24]",
        "cfa=rsp+12345678912  ra=[cfa-8]",
        "cfa=rsp-8  ra=[cfa-8]  r15=[cfa+16]",
        "cfa=r10+0  ra=[cfa-8]  rbp=[cfa-16]  rax=[cfa-24]",
        "cfa=rsp+9  ra=[cfa-8]  rbx=[cfa-17]",
        "cfa=rsp+8  ra=undefined",
        "cfa=rsp+8  ra=rdi",
        "cfa=rsp+8  ra=[cfa-16]  rbp=undefined",
        "cfa=rsp+8  ra=[cfa-8]  rbx=rbp  rbp=rbx  rsp=cfa-24",
        "cfa=rsp+8  ra=cfa-8  r13=cfa+1  r14=same  rcx=same",
        "cfa=rsp+8",
        "cfa=undefined  ra=[cfa-8]",
        "cfa=reg17+8  ra=[cfa-8]",
        "cfa=rsp+8  ra=[cfa-8]  reg17=[cfa-16]",
        "cfa=rsp+160  ra=[cfa-8]  signal  rax=[cfa-24]  rbx=[cfa-32]",
        "cfa=rsp+160  signal",
        "cfa=rsp+8  ra=[cfa-8]  return=rdi  rdi=[cfa-24]",
        "cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  ra=[cfa-8]",
        "cfa={breg6 -16; deref}  ra=[{breg7 8}]  rbx=[{breg6 -8}]",
    ] {
        put(rules);
    }
    for operations in [
        "addr 0x1234",
        "const1u 200",
        "const1s -3",
        "const2u 60000",
        "const2s -300",
        "const4u 4000000000",
        "const4s -2000000000",
        "const8u 18446744073709551615",
        "const8s -1",
        "constu 700000",
        "consts -700000",
        "dup; plus",
        "over; over; xor; minus",
        "pick 1; plus",
        "swap; minus",
        "breg6 1; rot; xor; plus",
        "deref",
        "deref_size 1",
        "deref_size 2",
        "deref_size 4",
        "deref_size 8",
        "abs",
        "neg",
        "not",
        "plus_uconst 1000",
        "and",
        "or",
        "xor",
        "plus",
        "minus",
        "mul",
        "div",
        "mod",
        "shl",
        "shr",
        "shra",
        "eq",
        "ge",
        "gt",
        "le",
        "lt",
        "ne",
        "nop",
        "drop",
        "lit0; div",
        "lit0; mod",
        "const1s -1; div",
        "lit31; shl",
        "const1u 64; shl",
        "const1u 64; shr",
        "const1u 64; shra",
        "const1u 63; shra",
        "bregx 12 5; mul",
    ] {
        put(&format!(
            "cfa=rsp+8  ra=[cfa-8]  rbx={{breg3 0; breg12 -8; {operations}}}"
        ));
        put(&format!(
            "cfa=rsp+8  ra=[cfa-8]  rbp=[{{breg3 0; breg12 -8; {operations}}}]  rbx=rbp"
        ));
        put(&format!(
            "cfa={{breg3 0; breg12 -8; {operations}}}  ra=[{{breg7 0; {operations}}}]"
        ));
        put(&format!(
            "cfa=rsp+8  ra={{breg13 0; breg14 1; {operations}}}"
        ));
    }
    rows
}

/// Rows that pack, of all forms: with distances that fit, and at their limits.
#[must_use]
pub fn packable() -> Vec<String> {
    let mut rows = vec![
        "cfa=rsp+8  ra=undefined".to_owned(),
        "cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  ra=[cfa-8]".to_owned(),
        "cfa={breg7 8; breg16 0; lit15; and; lit9; ge; lit3; shl; plus}  ra=[cfa-8]".to_owned(),
        SIGNAL.to_owned(),
    ];
    let saved = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    for (cfa, place) in [
        ("rsp+8", "[cfa-N]"),
        ("rsp+208", "[cfa-N]"),
        ("rbp+16", "[cfa-N]"),
        ("rsp+524280", "[cfa-N]"),
        ("{breg6 -8; deref}", "[{breg6 -N}]"),
        ("{breg6 -262144; deref}", "[{breg6 -N}]"),
        ("{breg6 262136; deref}", "[{breg6 -N}]"),
    ] {
        rows.push(format!("cfa={cfa}  ra=[cfa-8]"));
        for (number, register) in saved.iter().enumerate() {
            for distance in [8, 16 + 8 * number, 232] {
                let at = place.replace('N', &distance.to_string());
                rows.push(format!("cfa={cfa}  ra=[cfa-8]  {register}={at}"));
            }
            rows.push(format!("cfa={cfa}  ra=[cfa-8]  {register}=undefined"));
            rows.push(format!("cfa={cfa}  ra=[cfa-8]  {register}=same"));
        }
    }
    rows
}

/// The row of the kernel's signal record on x86-64.
pub const SIGNAL: &str = "cfa={breg7 160; deref}  signal  rax=[{breg7 144}]  rdx=[{breg7 136}]  \
     rcx=[{breg7 152}]  rbx=[{breg7 128}]  rsi=[{breg7 112}]  rdi=[{breg7 104}]  \
     rbp=[{breg7 120}]  rsp=[{breg7 160}]  r8=[{breg7 40}]  r9=[{breg7 48}]  r10=[{breg7 56}]  \
     r11=[{breg7 64}]  r12=[{breg7 72}]  r13=[{breg7 80}]  r14=[{breg7 88}]  r15=[{breg7 96}]  \
     ra=[{breg7 168}]";
