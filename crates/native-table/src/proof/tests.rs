//! Branches that the processor takes, and that a proof must not miss.

use super::*;
use crate::{ModuleKey, Outline};

/// Proves that code returns the right status for a hole. It begins with these bytes; behind them
/// are a jump to the code with that status, and invalid code.
fn prove_hole(begin: &[u8]) -> Result<(), ProofFailure> {
    let table = unspool_rows::text::parse(
        "arch x86-64 little\nfn 0x1000..0x1001\n  0x1000  cfa=rsp+8  ra=[cfa-8]\n",
    )
    .unwrap();
    let outline = Outline::from_table(&table).unwrap();
    let bytes = crate::object(
        &outline,
        ModuleKey {
            build_id: &[1],
            content: &[0; 20],
        },
    )
    .unwrap();
    let object = ObjectView::parse(&bytes).unwrap();
    let hole = *object.bodies().unwrap().first().unwrap();
    let (code, start) = object.code();
    let mut code = code.to_vec();
    let at = start + code.len() as u64;
    code.extend(begin);
    let behind_jump = start + code.len() as u64 + 5;
    let distance = i32::try_from(hole.cast_signed() - behind_jump.cast_signed()).unwrap();
    code.push(0xe9);
    code.extend(distance.to_le_bytes());
    // ud2
    code.extend([0x0f, 0x0b]);
    Prover::new(&code, start, table.abi()).prove(None, at)
}

#[test]
fn branches_are_taken_as_by_the_machine() {
    assert_eq!(prove_hole(&[]), Ok(()));
    let behind = |code: &[u8], jump: u8| {
        // Over the jump to the right code.
        let branch = [jump, 5];
        prove_hole(&[code, &branch].concat())
    };
    // mov $-1,%eax; cmp $-1,%eax: the number has 32 bits, too. jae is taken, jb is not.
    let code = [0xb8, 0xff, 0xff, 0xff, 0xff, 0x83, 0xf8, 0xff];
    assert!(behind(&code, 0x73).is_err());
    assert_eq!(behind(&code, 0x72), Ok(()));
    // mov $1,%eax; cmp $0,%rax; stc: jbe and ja test that flag, too.
    let code = [0xb8, 1, 0, 0, 0, 0x48, 0x83, 0xf8, 0, 0xf9];
    assert!(behind(&code, 0x76).is_err());
    // mov $0x80000000,%eax; test %eax,%eax: of 32 bits, that is below 0. jl, jle.
    let code = [0xb8, 0, 0, 0, 0x80, 0x85, 0xc0];
    assert!(behind(&code, 0x7c).is_err() && behind(&code, 0x7e).is_err());
    // je is not taken, with 32 bits or 64.
    assert_eq!(behind(&code, 0x74), Ok(()));
}

/// Addresses have 64 bits, or there is no proof.
#[test]
fn addresses_are_those_of_the_machine() {
    for code in [
        // and $-16,%esp
        &[0x83, 0xe4, 0xf0][..],
        // jmp with a prefix that Intel's processors ignore, and with which AMD's jump to another
        // address.
        &[0x66, 0xe9, 0, 0, 0, 0],
        // mov $0,%ecx; rep movsq (%esi),(%edi)
        &[0xb9, 0, 0, 0, 0, 0x67, 0xf3, 0x48, 0xa5],
        &[0xb9, 0, 0, 0, 0, 0xf3, 0x67, 0x48, 0xa5],
    ] {
        assert!(prove_hole(code).is_err(), "{code:x?}");
    }
}

#[test]
fn registers_are_given_back() {
    // mov %rcx,-8(%rbp): the caller's rbx is there.
    let unproven = prove_hole(&[0x48, 0x89, 0x4d, 0xf8]).unwrap_err();
    assert_eq!(unproven.fault, ProofFault::Preserved);
}
