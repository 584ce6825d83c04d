//! Libraries that are loaded and unloaded.

use super::*;

/// Versions of a library at one path and one address, one after the other.
fn check(build_ids: [&str; 2]) {
    let folder = directory();
    let path = folder.join("plugin.so");
    let versions = [("200", build_ids[0]), ("1000", build_ids[1])].map(|(size, id)| {
        let to = folder.join(format!("{size}.so"));
        let options = [format!("-DSIZE={size}"), format!("-Wl,--build-id={id}")];
        build("plugin.c", &to, &[&options[0], &options[1]]);
        to
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
        check(["0x1111111111111111", "0x2222222222222222"]);
    });
}

#[test]
fn replaced_without_a_build_id() {
    alone(|| {
        check(["none", "none"]);
    });
}
