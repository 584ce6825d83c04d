//! The exports and needed libraries of the shared objects, and the header's use with all compilers.

use std::collections::BTreeSet;
use std::fs;

use crate::programs::{self, shared_objects, stdout, with_std};
use unspool_testing::{command, packages};
use xtask::shared_objects;

const SONAMES: [&str; 2] = ["libunspool.so.0", "libunspool-crash.so"];

#[test]
fn they_export_what_is_listed_and_need_libc_alone() {
    for soname in SONAMES {
        let path = shared_objects().join(soname);
        let nm = packages::path("/usr/bin/nm").unwrap();
        let text = stdout(command(nm).args(["-D", "--defined-only", "-P"]).arg(&path));
        let names = text.lines().filter_map(|line| line.split(' ').next());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort_unstable();
        assert_eq!(names, shared_objects::exports(soname).unwrap());
        let readelf = packages::path("/usr/bin/readelf").unwrap();
        let text = stdout(
            command(readelf)
                .args(["--wide", "--dynamic", "--dyn-syms", "--relocs"])
                .arg(&path),
        );
        assert!(text.contains(&format!("Library soname: [{soname}]")));
        let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
        for line in needed {
            assert!(line.contains("[libc.so.6]"), "{line}");
        }
        // No unwinder; and no thread-local storage accessed by a call, which may allocate.
        for name in ["_Unwind_", "__tls_get_addr", "DTPMOD64", "TLSDESC"] {
            assert!(!text.contains(name), "{soname} has {name}");
        }
    }
}

/// Those with Rust's standard library need more.
#[test]
fn those_with_std_export_what_is_listed() {
    for (soname, header, needed) in [
        (
            "libunspool-variables.so.0",
            "unspool_variables.h",
            "libunspool.so.0",
        ),
        ("libunspool-types.so.0", "unspool_types.h", "libc.so.6"),
    ] {
        exports_what_is_listed(soname, header, needed);
    }
}

fn exports_what_is_listed(soname: &str, header: &str, needed: &str) {
    let path = with_std().join(soname);
    let nm = packages::path("/usr/bin/nm").unwrap();
    let mut nm = command(nm);
    let text = stdout(nm.args(["-D", "--defined-only", "-P"]).arg(&path));
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let exported = shared_objects::exports(soname).unwrap();
    assert_eq!(names.collect::<Vec<_>>(), exported);
    assert_eq!(declared(header), exported);
    let readelf = packages::path("/usr/bin/readelf").unwrap();
    let text = stdout(command(readelf).args(["--wide", "--dynamic"]).arg(&path));
    assert!(text.contains(&format!("Library soname: [{soname}]")));
    assert!(
        text.contains(&format!("Shared library: [{needed}]")),
        "{text}"
    );
}

/// The functions declared in a header.
fn declared(header: &str) -> Vec<String> {
    let header = with_std().join("include").join(header);
    let text = fs::read_to_string(header).unwrap();
    let code = text.split("/*").map(|part| match part.split_once("*/") {
        Some((_, code)) => code,
        None => part,
    });
    let code: String = code.collect();
    let before_parentheses = code.split('(').filter_map(|part| {
        let name = part
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next()?;
        name.starts_with("unspool_").then(|| name.to_owned())
    });
    let names: BTreeSet<String> = before_parentheses.collect();
    names.into_iter().collect()
}

#[test]
fn the_header_declares_what_is_exported() {
    let exported = shared_objects::exports("libunspool.so.0").unwrap();
    assert_eq!(declared("unspool.h"), exported);
}

#[test]
fn the_headers_are_c99_and_cxx() {
    with_std();
    let include = programs::include();
    let strict = ["-pedantic-errors", "-fsyntax-only", &include];
    for header in [
        "unspool.h",
        "unspool_native.h",
        "unspool_variables.h",
        "unspool_types.h",
    ] {
        let source = programs::scratch(header).with_extension("c");
        fs::write(
            &source,
            format!("#include <{header}>\n#include <{header}>\n"),
        )
        .unwrap();
        for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
            let mut cc = programs::cc();
            stdout(cc.arg(standard).args(strict).arg(&source));
        }
        for standard in ["-std=c++98", "-std=c++11", "-std=c++20"] {
            let mut cxx = programs::cxx();
            stdout(
                cxx.arg(standard)
                    .args(strict)
                    .args(["-x", "c++"])
                    .arg(&source),
            );
        }
    }
}
