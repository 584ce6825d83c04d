//! Readable names compared with those of `c++filt`.
#![cfg(test)]

use unspool_demangle::{MAX_NAME_BYTES, SignatureDetail, cxx, demangle};
use unspool_testing::{Folder, filter, tool};

/// The output of `c++filt -i` for names.
fn cxxfilt(names: &[String]) -> Vec<String> {
    let text = filter(
        tool("c++filt").arg("-i"),
        (names.join("\n") + "\n").as_bytes(),
    );
    let text = String::from_utf8(text).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn check(names: &[String]) {
    for (name, expected) in names.iter().zip(cxxfilt(names)) {
        assert_eq!(demangle(name), expected, "{name}");
    }
}

/// The symbols of the C++ program in this folder, as a compiler mangles them.
fn symbols(compiler: &str) -> Vec<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/names.cpp");
    let folder = Folder::new();
    folder.tool(compiler, &format!("-std=c++20 -O1 -w -o program {source}"));
    let text = folder.tool("nm", "program");
    let names = text.lines().filter_map(|line| line.split(' ').next_back());
    let mangled = names.filter(|name| name.starts_with("_Z"));
    mangled
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect()
}

#[test]
fn names_of_compilers() {
    for compiler in ["g++", "clang++"] {
        let names = symbols(compiler);
        assert!(names.len() > 80, "{compiler}: {}", names.len());
        check(&names);
    }
}

/// Names that the program does not have.
const OTHERS: &str = "\
_ZTv0_n24_N3FooD0Ev _ZTch0_h16_N1A1fEv _ZTC1A0_1B _ZTTN1AE _ZTHN1A1xE _ZTWN1A1xE _ZGVZ1fvE1x _ZGTtN1A1fEv
_Z1fDv4_f _Z1fDF16_DF32_ _Z1fCdCf _Z1fPFvvEM1AKFviE _Z1fU8__vectorf _Z1fDn _ZN1AC1INS_1BEEET_
_Z1fIiEvDTcl1gfp_EE _Z1fIiEDTcvT__EE _Z1fIiEDTnw_T_EE _Z1fIiEDTixfp_Li0EE _Z1fIiEDTqufp_Li1ELi2EE
_Z1fIiEDTstT_E _Z1fIiEDTszfp_E _Z1fIiEDTsc1AfpE _Z1fIJilEEvDpT_ _Z1fIJEEvDpT_ _Z1fIJilEEDTsZT_EDpT_
_Z1fIiEDTptfp_1xET_ _Z1fIiEDTcldtfp_1xEET_ _Z1fIiEDTadsrT_1xES0_ _Z1fIXadL_Z1gvEEEvv _Z1fIXadL_ZN1A1gEvEEEvv
_Z1fILb1ELc65ELd4000000000000000EEvv _Z1fILin5EEvv _Z1fILDn0EEvv _Z1fIL_Z1xEEvv _Z1fIiEN3FooIXngT_EE4typeES1_
_ZN1A1BC2Ev _ZNSsC1Ev _ZNSsD1Ev _ZNKSs4sizeEv _ZSt4cout _Z1fSsSoSiSdSaIcE _ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc
_ZZ1fvE1x_0 _ZZ1fvE1x__10_ _ZZ1fvEs _ZZ1fiEd_NKUlvE_clEv _ZZ1fvENKUlT_E_clIiEEDaS_ _ZN1AdvERKS_ _ZN1AcviEv _Zli2_xy
_Z1fv.cold _Z1fv.part.0.cold _Z1fv.constprop.0.isra.1 _Z1fv.llvm.123 _Z3foo3barB3abiE _ZN1AB5cxx11C1Ev _ZZ1fvENKUlTyTniTyT_T1_T2_E_clEv _ZZ1fvENKUlTtTyEvE_clEv _ZZ1fvENKUlTpTyDpT_E_clEv
_Z1fIiJEiEvT_ _Z1fI1AIJEiEEvv _Z1fIJEEvDpT_i _Z1fIJEEviDpT_i _Z1fIJEEviDpT_S1_i _ZW3fooW3barW1a1fv _ZN1AW3fooWP3bar1BC1Ev _Z1fW3foo1AS_";

#[test]
fn names_of_other_shapes() {
    let names: Vec<String> = OTHERS.split_whitespace().map(str::to_owned).collect();
    check(&names);
}

/// c++filt 2.40 takes the parameter of `call` for the constructor's, and writes `noexcept` before
/// `const`. It leaves operators mangled that convert to a template of their parameter.
#[test]
fn names_that_are_wrong_elsewhere() {
    for (name, expected) in [
        (
            "_ZN4OnceC1IZ4callIiEvT_EUlvE_EERS2_",
            "Once::Once<call<int>(int)::{lambda()#1}>(call<int>(int)::{lambda()#1}&)",
        ),
        ("_Z1fPKDoFvvE", "f(void (*)() const noexcept)"),
        (
            "_ZN1AcvSt6vectorIT_SaIS1_EEIiEEv",
            "A::operator std::vector<int, std::allocator<int> ><int>()",
        ),
    ] {
        assert_eq!(demangle(name), expected);
    }
}

#[test]
fn less_of_the_signature() {
    let name = "_ZNK1A3getIiEET_v";
    for (signature, expected) in [
        (SignatureDetail::Whole, "int A::get<int>() const"),
        (SignatureDetail::WithoutReturnType, "A::get<int>() const"),
        (SignatureDetail::NameOnly, "A::get<int>"),
    ] {
        assert_eq!(signature.demangle(name), expected);
    }
}

/// Truncated names, and names with one changed byte, may have any result, but terminate.
#[test]
fn damaged_names() {
    let names = symbols("g++");
    let mut seed = 1_u32;
    for name in names.iter().step_by(3) {
        for end in 0..name.len() {
            let _ = demangle(&name[..end]);
        }
        for at in 0..name.len() {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut bytes = name.clone().into_bytes();
            bytes[at] = name.as_bytes()[(seed >> 8) as usize % name.len()];
            let damaged = String::from_utf8(bytes).unwrap();
            let readable = cxx(&damaged, SignatureDetail::Whole);
            assert!(readable.is_none_or(|readable| readable.len() <= MAX_NAME_BYTES));
        }
    }
}

/// Each level doubles the one before by a substitution, or nests in it.
#[test]
fn names_that_explode() {
    let digit = |level: u32| {
        char::from_digit(level % 36, 36)
            .unwrap()
            .to_ascii_uppercase()
    };
    let mut doubled = "_Z1fI1AE1BIS_S_E".to_owned();
    let mut empty = "_Z1fIJEEv1AIDpT_DpT_E".to_owned();
    for level in 0..60 {
        let last = digit(level);
        doubled.push_str(&format!("1BIS{last}_S{last}_E"));
        empty.push_str(&format!("1AIS{last}_S{last}_E"));
    }
    for name in [
        doubled,
        empty,
        format!("_Z1f{}i", "P".repeat(50_000)),
        format!("_Z1fIX{}EEvv", "nt".repeat(20_000)),
        format!("_Z{}", "Z1fI".repeat(10_000)),
        format!("_ZN1a{}E", "1b".repeat(MAX_NAME_BYTES)),
        format!("_Z1fI{}", "Xsr1A".repeat(5_000)),
        "_Zcv".repeat(10_000),
        format!("_Z1fv{}", ".a".repeat(30_000)),
        format!("_ZN1a{}C1Ev", "B1b".repeat(20_000)),
        format!(
            "_ZN1a{}E{}S0_",
            "B1b".repeat(10_000),
            "NS_C1Ev".repeat(4_000)
        ),
        format!("_Z1f{}1av", "W1b".repeat(20_000)),
        format!("_ZN1AIiE{}1bEv", "1CIKT_E".repeat(9_000)),
        format!("_Z1fIJ{}EEvDpT_", "i".repeat(60_000)),
        format!("_Z1fIJ{0}EJ{0}EEvDpFT_DpT0_E", "i".repeat(10_000)),
    ] {
        let readable = cxx(&name, SignatureDetail::Whole);
        assert!(readable.is_none_or(|readable| readable.len() <= MAX_NAME_BYTES));
    }
}

#[test]
fn names_without_signatures() {
    for (name, readable) in [
        ("main", "main"),
        ("_RNvCsL39EUhRVRM_5unwnd4main", "unwnd::main"),
        (
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "std::vector<int, std::allocator<int> >::push_back",
        ),
        ("_Znwm@plt", "operator new@plt"),
        // The parameters in a template's argument stay.
        ("_ZN1AIFmmEE3getEv", "A<unsigned long (unsigned long)>::get"),
        ("_Z3maxIiET_S0_S0_", "max<int>"),
        ("_ZNK1A3getEv", "A::get"),
    ] {
        assert_eq!(SignatureDetail::NameOnly.demangle(name), readable);
    }
}

#[test]
fn every_scheme() {
    for (name, readable) in [
        ("main", "main"),
        (
            "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
            "core::fmt::Write::write_fmt",
        ),
        ("_RNvCsL39EUhRVRM_5unwnd4main", "unwnd::main"),
        (
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
        ),
        ("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"),
        ("_Znwm@plt", "operator new(unsigned long)@plt"),
        (
            "_Znwm@@GLIBCXX_3.4",
            "operator new(unsigned long)@@GLIBCXX_3.4",
        ),
        ("_ZN12_GLOBAL__N_13keyE", "(anonymous namespace)::key"),
        ("_Z", "_Z"),
        ("_Rx", "_Rx"),
        ("_ZN", "_ZN"),
        ("", ""),
        ("@plt", "@plt"),
        ("_Z3fooé", "_Z3fooé"),
    ] {
        assert_eq!(demangle(name), readable);
    }
}
