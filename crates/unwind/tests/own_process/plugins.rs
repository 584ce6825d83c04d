//! Libraries that are loaded and unloaded.

use std::convert::identity;

use unspool_testing::move_headers;

use super::*;

/// Versions of a library at one path and one address, one after the other.
fn check(build_ids: [&str; 2], rewrite: impl Fn(PathBuf) -> PathBuf) {
    let folder = directory();
    let path = folder.join("plugin.so");
    let versions = [("200", build_ids[0]), ("1000", build_ids[1])].map(|(size, id)| {
        let to = folder.join(format!("{size}.so"));
        let options = [format!("-DSIZE={size}"), format!("-Wl,--build-id={id}")];
        build("plugin.c", &to, &[&options[0], &options[1]]);
        rewrite(to)
    });
    let mut watcher = Watcher::new();
    let mut address = None;
    for version in [0, 1, 0, 1, 1, 0] {
        fs::copy(&versions[version], folder.join("new.so")).unwrap();
        fs::rename(folder.join("new.so"), &path).unwrap();
        let library = Library::open(&path);
        let before = *address.get_or_insert(library.symbol("plugin"));
        assert_eq!(library.symbol("plugin"), before, "the same address");
        for _ in 0..3 {
            library.call("plugin", &mut watcher, ());
            watcher.assert_same(&format!("version {version}, {build_ids:?}"));
        }
        library.close();
    }
}

/// Rules learned for a library do not hold for its successor. Alone, so that no other library takes
/// its place.
#[test]
fn replaced_by_another_version() {
    alone(|| {
        check(["0x1111111111111111", "0x2222222222222222"], identity);
    });
}

#[test]
fn replaced_without_a_build_id() {
    alone(|| {
        check(["none", "none"], identity);
    });
}

/// A build ID that is too long to be kept counts as none.
#[test]
fn replaced_with_a_long_build_id() {
    alone(|| {
        let ids = ["1", "2"].map(|digit| format!("0x{}", digit.repeat(66)));
        check(ids.each_ref().map(String::as_str), identity);
    });
}

/// Program headers and build IDs that are not in the first page, as rewriters of files leave them.
#[test]
fn replaced_with_headers_at_the_end() {
    for ids in [
        ["0x1111111111111111", "0x2222222222222222"],
        ["none", "none"],
    ] {
        alone(|| {
            check(ids, |path| {
                move_headers(&path, path.with_extension("moved"))
            });
        });
    }
}
