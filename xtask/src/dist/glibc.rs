//! Links for an older glibc than the machine's: the symbols and versions of glibc 2.28 (Debian 10,
//! RHEL 8), which zig has for each version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{output, write};
use crate::debian::run;
use crate::{Error, packages};

const ZIG: &str = "ziglang==0.17.1";
const TARGET: &str = "x86_64-linux-gnu.2.28";

/// The latest permitted symbol versions: those of glibc 2.28 and gcc 8.
const LATEST: [(&str, &[u32]); 2] = [("GLIBC_", &[2, 28]), ("GCC_", &[8])];

/// The files that zig generates for linking, and the linker's name for each, beside the file's own.
const FILES: [(&str, &str); 9] = [
    ("Scrt1.o", ""),
    ("libc_nonshared.a", ""),
    ("libc.so.6", ""),
    ("libm.so.6", "libm.so"),
    ("libdl.so.2", "libdl.so"),
    ("libpthread.so.0", "libpthread.so"),
    ("librt.so.1", "librt.so"),
    ("libutil.so.1", "libutil.so"),
    ("libld.so.2", "ld-linux-x86-64.so.2"),
];

/// A folder for linking with an older glibc: libraries with its symbols and versions but no code,
/// and its own start file.
pub(super) struct Glibc {
    folder: PathBuf,
}

impl Glibc {
    /// Generates it by zig in a folder, once.
    pub(super) fn make(folder: &Path) -> Result<Self, Error> {
        let glibc = Glibc {
            folder: folder.join("glibc"),
        };
        let done = glibc.folder.join("libc.so");
        if done.exists() {
            return Ok(glibc);
        }
        let zig = folder.join("zig");
        run(Command::new(packages::path("/usr/bin/pip3")?)
            .args(["install", "--quiet", "--only-binary=:all:"])
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .arg("--target")
            .args([zig.as_os_str(), ZIG.as_ref()]))?;
        // A separate cache has only one file of each name.
        let cache = folder.join("zig-cache");
        let source = folder.join("empty.c");
        write(&source, "int main(void) { return 0; }\n")?;
        run(Command::new(zig.join("ziglang/zig"))
            .env("ZIG_GLOBAL_CACHE_DIR", &cache)
            .args(["cc", "-target", TARGET, "-pie", "-o"])
            .args([folder.join("empty"), source]))?;
        for (name, link) in FILES {
            let files = super::files(&cache)?;
            let mut files = files.iter().filter(|path| path.ends_with(name));
            let (Some(file), None) = (files.next(), files.next()) else {
                return Err(format!("{ZIG} has not made one {name}").into());
            };
            let target = glibc.folder.join(if link.is_empty() { name } else { link });
            fs::create_dir_all(&glibc.folder)?;
            fs::copy(file, target)?;
        }
        // As glibc's own: some of its functions are not in the shared object.
        write(
            &done,
            "GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( ld-linux-x86-64.so.2 ) )\n",
        )?;
        Ok(glibc)
    }

    /// The gcc options for linking with it, instead of the machine's own.
    pub(super) fn cc_options(&self) -> Vec<String> {
        let folder = self.folder.display();
        // The machine's libgcc needs the machine's glibc. The target machine has another one with
        // the same names.
        vec![
            format!("-B{folder}"),
            format!("-L{folder}"),
            "-Wl,--allow-shlib-undefined".to_owned(),
        ]
    }

    /// The same for rustc.
    pub(super) fn rustc_options(&self) -> Vec<String> {
        let options = self.cc_options().into_iter();
        options
            .map(|option| format!("-Clink-arg={option}"))
            .collect()
    }

    /// Whether a program or shared object needs nothing later.
    pub(super) fn check(&self, file: &Path) -> Result<(), Error> {
        let mut readelf = Command::new(packages::path("/usr/bin/readelf")?);
        let symbols = output(readelf.args(["--wide", "--dyn-syms"]).arg(file))?;
        match too_new(&symbols).as_slice() {
            [] => Ok(()),
            names => Err(format!("{} needs {}", file.display(), names.join(", ")).into()),
        }
    }
}

/// The symbols with too late versions in the output of `readelf --dyn-syms`.
fn too_new(symbols: &str) -> Vec<&str> {
    let undefined = symbols.lines().filter_map(|line| line.split_once(" UND "));
    let names = undefined.filter_map(|(_, symbol)| symbol.split_whitespace().next());
    names
        .filter(|name| {
            let version = name.split_once('@').map(|(_, version)| version);
            version.is_some_and(|version| !is_old(version))
        })
        .collect()
}

fn is_old(version: &str) -> bool {
    LATEST.iter().any(|(prefix, latest)| {
        let numbers = version.strip_prefix(prefix).map(|numbers| {
            let numbers = numbers.split('.').map(str::parse);
            numbers.collect::<Result<Vec<u32>, _>>()
        });
        matches!(numbers, Some(Ok(numbers)) if numbers.as_slice() <= *latest)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for old in ["GLIBC_2.2.5", "GLIBC_2.3", "GLIBC_2.28", "GCC_4.2.0"] {
            assert!(is_old(old), "{old}");
        }
        for new in [
            "GLIBC_2.28.1",
            "GLIBC_2.34",
            "GLIBC_PRIVATE",
            "GCC_14.0.0",
            "X_1",
        ] {
            assert!(!is_old(new), "{new}");
        }
    }

    /// `_dl_find_object` is new in glibc 2.35: the loader refuses a file that needs that version,
    /// even for a weak symbol.
    #[test]
    fn symbols_of_later_versions_are_found() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tmp/versions");
        let source = folder.join("later.c");
        let program = folder.join("later.so");
        let text = "int puts(const char *); \
                    __attribute__((weak)) int _dl_find_object(void *, void *); \
                    int f(void) { return puts(\"\") + (_dl_find_object != 0); }";
        write(&source, text).unwrap();
        let gcc = packages::path("/usr/bin/gcc").unwrap();
        let link = |options: &[&str]| {
            let mut gcc = Command::new(&gcc);
            gcc.args(["-shared", "-fPIC", "-nostdlib", "-o"]);
            run(gcc.arg(&program).arg(&source).args(options)).unwrap();
            let glibc = Glibc {
                folder: PathBuf::new(),
            };
            glibc.check(&program).map_err(|error| error.to_string())
        };
        let refused = link(&["-lc"]).unwrap_err();
        assert!(
            refused.ends_with("needs _dl_find_object@GLIBC_2.35"),
            "{refused}"
        );
        // Without a version it may be absent.
        link(&[]).unwrap();
    }
}
