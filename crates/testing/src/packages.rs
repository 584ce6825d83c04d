//! The Debian packages that tests and tasks need in addition to a Rust toolchain.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// A file that a test or a task needs, and the Debian package with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageFile {
    /// Its path.
    pub file: &'static str,
    /// The package.
    pub package: &'static str,
}

/// Everything that tests and tasks need. `cargo xtask setup` installs what is missing.
pub const NEEDED: &[PackageFile] = &[
    needed("/usr/bin/readelf", "binutils"),
    needed("/usr/bin/as", "binutils"),
    needed("/usr/bin/nm", "binutils"),
    needed("/usr/bin/c++filt", "binutils"),
    needed("/usr/bin/objdump", "binutils"),
    needed("/usr/bin/objcopy", "binutils"),
    needed("/usr/include/ctf-api.h", "binutils-dev"),
    needed("/usr/bin/ld", "binutils"),
    needed("/usr/bin/ld.gold", GOLD),
    needed("/usr/bin/ld.lld", "lld"),
    needed("/usr/bin/nasm", "nasm"),
    needed("/usr/bin/addr2line", "binutils"),
    needed("/usr/bin/ar", "binutils"),
    needed("/usr/bin/strip", "binutils"),
    needed("/usr/bin/size", "binutils"),
    needed("/usr/bin/dwp", GOLD),
    needed("/usr/bin/llvm-dwp", "llvm"),
    needed("/usr/bin/gcc", "gcc"),
    needed("/usr/bin/g++", "g++"),
    needed("/usr/bin/clang", "clang"),
    needed("/usr/bin/clang++", "clang"),
    // The runtimes of clang's sanitizers are in a folder with clang's version.
    needed(
        "/usr/share/doc/libclang-rt-dev/copyright",
        "libclang-rt-dev",
    ),
    needed("/usr/bin/gdc", "gdc"),
    needed("/usr/bin/gnatmake", "gnat"),
    needed("/usr/bin/ldc2", "ldc"),
    needed("/usr/bin/musl-gcc", "musl-tools"),
    needed("/usr/bin/pkg-config", "pkgconf"),
    needed("/usr/bin/make", "make"),
    needed("/usr/bin/cmake", "cmake"),
    needed("/usr/bin/meson", "meson"),
    needed("/usr/bin/ninja", "ninja-build"),
    needed("/usr/bin/dpkg-source", "dpkg-dev"),
    needed("/usr/bin/autoconf", "autoconf"),
    needed("/usr/bin/aclocal", "automake"),
    needed("/usr/bin/bison", "bison"),
    needed("/usr/bin/flex", "flex"),
    needed("/usr/bin/makeinfo", "texinfo"),
    needed("/usr/include/term.h", "libncurses-dev"),
    needed("/usr/include/linux/bpf.h", "linux-libc-dev"),
    needed("/usr/bin/curl", "curl"),
    needed("/usr/bin/gdb", "gdb"),
    needed("/usr/bin/gcore", "gdb"),
    needed("/usr/bin/eu-stack", "elfutils"),
    needed("/usr/bin/eu-readelf", "elfutils"),
    needed("/usr/bin/eu-unstrip", "elfutils"),
    needed("/usr/bin/eu-strip", "elfutils"),
    needed("/usr/bin/eu-elflint", "elfutils"),
    needed("/usr/include/elfutils/libdwfl.h", "libdw-dev"),
    needed("/usr/bin/valgrind", "valgrind"),
    needed("/usr/bin/z3", "z3"),
    needed("/usr/bin/strace", "strace"),
    needed("/usr/bin/perf", "linux-perf"),
    needed("/usr/lib/x86_64-linux-gnu/libunwind.so.8", "libunwind8"),
    needed(
        "/usr/lib/x86_64-linux-gnu/libunwind-x86_64.so.8",
        "libunwind8",
    ),
    needed(
        "/usr/lib/x86_64-linux-gnu/libunwind-ptrace.so.0",
        "libunwind8",
    ),
    needed(
        "/usr/lib/x86_64-linux-gnu/libunwind-coredump.so.0",
        "libunwind8",
    ),
    needed("/lib/x86_64-linux-gnu/libgcc_s.so.1", "libgcc-s1"),
    needed("/usr/lib/heaptrack/libheaptrack_preload.so", "libheaptrack"),
    needed(
        "/usr/lib/x86_64-linux-gnu/libprofiler.so.0",
        "libgoogle-perftools4",
    ),
    needed(
        "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4",
        "libgoogle-perftools4",
    ),
    needed("/usr/include/glog/logging.h", "libgoogle-glog-dev"),
    needed(
        "/usr/lib/x86_64-linux-gnu/libunwind-setjmp.so.0",
        "libunwind-setjmp0",
    ),
    needed("/usr/bin/llvm-ar", "llvm"),
    needed("/usr/bin/llvm-mc", "llvm"),
    needed("/usr/lib/llvm-19/bin/llvm-mc", "llvm-19"),
    needed("/usr/bin/llvm-readelf", "llvm"),
    needed("/usr/bin/llvm-dwarfdump", "llvm"),
    needed("/usr/bin/go", "golang-go"),
    needed("/usr/bin/node", "nodejs"),
    needed("/usr/bin/tsc", "node-typescript"),
    needed("/usr/bin/chromium", "chromium"),
    needed("/usr/bin/openssl", "openssl"),
    needed("/usr/bin/python3", "python3"),
    needed("/usr/bin/dwz", "dwz"),
    needed("/usr/bin/pahole", "pahole"),
    needed("/usr/sbin/bpftool", "bpftool"),
    needed("/usr/bin/abidiff", "abigail-tools"),
    needed("/usr/bin/xz", "xz-utils"),
    needed("/usr/bin/gzip", "gzip"),
    needed("/usr/bin/zstd", "zstd"),
    needed("/usr/bin/lz4", "lz4"),
    needed("/usr/bin/protoc", "protobuf-compiler"),
    needed("/usr/bin/xmllint", "libxml2-utils"),
    needed("/usr/bin/git", "git"),
    needed("/usr/bin/patch", "patch"),
    needed("/usr/bin/jsonschema", "python3-jsonschema"),
    needed(
        "/usr/lib/python3/dist-packages/capstone/__init__.py",
        "python3-capstone",
    ),
    needed("/usr/include/Zydis/Zydis.h", "libzydis-dev"),
    needed("/usr/bin/script", "bsdutils"),
    needed("/usr/bin/tmux", "tmux"),
    needed("/usr/bin/timeout", "coreutils"),
    needed("/usr/bin/base64", "coreutils"),
    needed("/usr/sbin/sysctl", "procps"),
    needed("/usr/bin/unshare", "util-linux"),
    needed("/usr/bin/setpriv", "util-linux"),
    needed("/usr/bin/prlimit", "util-linux"),
    needed("/usr/bin/groff", "groff-base"),
    needed("/usr/bin/pip3", "python3-pip"),
    needed("/usr/bin/dpkg-deb", "dpkg"),
    needed("/usr/bin/mmdebstrap", "mmdebstrap"),
    needed("/usr/bin/tar", "tar"),
    needed("/lib64/ld-linux-x86-64.so.2", "libc6"),
    needed("/lib/x86_64-linux-gnu/libc.so.6", "libc6"),
    needed("/usr/lib/x86_64-linux-gnu/libgcrypt.so.20", "libgcrypt20"),
    needed("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "libstdc++6"),
    needed("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev"),
    needed("/usr/lib/x86_64-linux-gnu/crti.o", "libc6-dev"),
    needed("/usr/lib32/libc.so.6", "libc6-i386"),
    needed("/usr/lib32/libstdc++.so.6", "lib32stdc++6"),
    needed(
        "/usr/arm-linux-gnueabihf/lib/libc.so.6",
        "libc6-armhf-cross",
    ),
    needed(
        "/usr/arm-linux-gnueabihf/lib/libubsan.so.1.0.0",
        "libubsan1-armhf-cross",
    ),
    needed(
        "/usr/bin/arm-linux-gnueabihf-as",
        "binutils-arm-linux-gnueabihf",
    ),
    needed("/usr/aarch64-linux-gnu/lib/libc.so.6", "libc6-arm64-cross"),
    needed(
        "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
        "libstdc++6-arm64-cross",
    ),
    needed(
        "/usr/bin/aarch64-linux-gnu-as",
        "binutils-aarch64-linux-gnu",
    ),
    needed(
        "/usr/powerpc-linux-gnu/lib/libc.so.6",
        "libc6-powerpc-cross",
    ),
    needed("/usr/s390x-linux-gnu/lib/libc.so.6", "libc6-s390x-cross"),
];

/// Debian 12 has no such package: its binutils package has the files.
const GOLD: &str = "binutils-gold";

/// A package that is unpacked in the target folder, not installed: it conflicts with LLVM's
/// libunwind-N-dev.
const UNPACKED: PackageFile = needed("usr/include/x86_64-linux-gnu/libunwind.h", "libunwind-dev");

/// A package of PyPI with axe-core 4.12.1, the rules of accessibility. It is unpacked in the target
/// folder.
const AXE: &str = "axe-playwright-python==0.1.8";
const AXE_HASH: &str = "sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8";

const fn needed(file: &'static str, package: &'static str) -> PackageFile {
    PackageFile { file, package }
}

/// The path of a file of [`NEEDED`].
///
/// # Errors
///
/// It is missing, or not in [`NEEDED`]; the message says what to do.
pub fn path(file: &str) -> Result<PathBuf, Error> {
    let needed = NEEDED.iter().find(|needed| needed.file == file);
    let needed =
        needed.ok_or_else(|| format!("{file} is not listed in crates/testing/src/packages.rs"))?;
    if Path::new(file).exists() {
        Ok(PathBuf::from(file))
    } else {
        let package = needed.package;
        Err(format!("{file} is missing (package {package}): run `cargo xtask setup`").into())
    }
}

/// The path of a program of [`NEEDED`], by its name or its path. Other programs are in essential
/// Debian packages.
///
/// # Errors
///
/// It is missing; the message says what to do.
pub fn tool(name: &str) -> Result<PathBuf, Error> {
    let has_name = |package_file: &&PackageFile| {
        let (folder, file) = package_file.file.rsplit_once('/').unwrap_or_default();
        package_file.file == name || file == name && folder.ends_with("bin")
    };
    match NEEDED.iter().find(has_name) {
        Some(needed) => path(needed.file),
        None => Ok(PathBuf::from(name)),
    }
}

/// The folder of libunwind's headers.
///
/// # Errors
///
/// They are missing; the message says what to do.
pub fn libunwind_headers() -> Result<PathBuf, Error> {
    let file = unpacked().join(UNPACKED.file);
    match file.parent() {
        Some(folder) if file.exists() => Ok(folder.to_owned()),
        _ => Err(format!("{} is missing: run `cargo xtask setup`", file.display()).into()),
    }
}

/// The minor version of the installed libunwind 1.
///
/// # Errors
///
/// As [`libunwind_headers`].
pub fn libunwind_minor_version() -> Result<u32, Error> {
    let header = libunwind_headers()?.join("libunwind-common.h");
    let text = std::fs::read_to_string(header)?;
    let version = text.split("#define UNW_VERSION_MINOR").nth(1);
    let version = version.and_then(|rest| rest.split_whitespace().next());
    Ok(version
        .ok_or("libunwind's header has no version")?
        .parse()?)
}

/// The folder of [`UNPACKED`].
fn unpacked() -> PathBuf {
    target().join("packages").join(UNPACKED.package)
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")
}

/// The program of axe-core, which a browser runs.
///
/// # Errors
///
/// It is missing; the message says what to do.
pub fn axe() -> Result<PathBuf, Error> {
    let file = target()
        .join("packages")
        .join(AXE)
        .join("axe_playwright_python/axe.min.js");
    if file.exists() {
        Ok(file)
    } else {
        Err(format!("{} is missing: run `cargo xtask setup`", file.display()).into())
    }
}

/// The packages of [`NEEDED`] that are missing, each once.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let mut missing: Vec<&str> = NEEDED
        .iter()
        .filter(|needed| !Path::new(needed.file).exists())
        .map(|needed| needed.package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Installs missing packages, as root or with `sudo`.
///
/// # Errors
///
/// `apt-get` cannot be run or fails, or a file is still missing after it.
pub fn setup(out: &mut impl Write) -> Result<(), Error> {
    let is_unpacked = libunwind_headers().is_ok();
    if missing().is_empty() && is_unpacked && axe().is_ok() {
        writeln!(out, "nothing is missing")?;
        return Ok(());
    }
    // A fresh machine has no package lists, or outdated ones.
    apt_get(&["update"], &missing())?;
    for is_last in [false, true] {
        let mut packages = missing();
        packages.retain(|package| is_last || *package != GOLD);
        if !packages.is_empty() {
            writeln!(out, "installing {}", packages.join(" "))?;
            out.flush()?;
            let install = ["install", "--yes", "--no-install-recommends"];
            apt_get(&[&install, &packages[..]].concat(), &packages)?;
        }
    }
    if !is_unpacked {
        unpack()?;
    }
    if axe().is_err() {
        fetch_axe()?;
    }
    match NEEDED
        .iter()
        .find(|needed| !Path::new(needed.file).exists())
    {
        None => Ok(()),
        Some(PackageFile { file, package }) => {
            Err(format!("package {package} is installed, but does not have {file}").into())
        }
    }
}

/// Unpacks [`UNPACKED`].
fn unpack() -> Result<(), Error> {
    let folder = unpacked();
    std::fs::create_dir_all(&folder)?;
    // Its unwind.h would hide the compiler's own.
    let script = "apt-get --quiet download \"$0\" && dpkg-deb --extract \"$0\"_*.deb . && rm \"${1%/*}/unwind.h\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, UNPACKED.package, UNPACKED.file]);
    if shell.current_dir(&folder).status()?.success() {
        Ok(())
    } else {
        Err(format!("cannot unpack {} in {}", UNPACKED.package, folder.display()).into())
    }
}

/// Fetches and unpacks [`AXE`]. pip compares the hash.
fn fetch_axe() -> Result<(), Error> {
    let folder = target().join("packages").join(AXE);
    std::fs::create_dir_all(&folder)?;
    let script = "echo \"$0 --hash=$1\" > requirements && \
        pip3 download --quiet --no-deps --require-hashes --requirement requirements && \
        python3 -m zipfile --extract *.whl .";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, AXE, AXE_HASH]);
    if shell.current_dir(&folder).status()?.success() {
        Ok(())
    } else {
        Err(format!("cannot unpack {AXE} in {}", folder.display()).into())
    }
}

/// Runs `apt-get` without questions, as root or with `sudo`.
fn apt_get(arguments: &[&str], packages: &[&str]) -> Result<(), Error> {
    let by_hand = || format!("install by hand: {}", packages.join(" "));
    let mut words = if is_root()? { vec![] } else { vec!["sudo"] };
    words.extend([
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "--quiet",
    ]);
    words.extend(arguments);
    let (program, rest) = words.split_first().ok_or("no command")?;
    let status = Command::new(program)
        .args(rest)
        .status()
        .map_err(|error| format!("cannot run {program}: {error}; {}", by_hand()))?;
    if !status.success() {
        return Err(format!("`{}` failed ({status}); {}", words.join(" "), by_hand()).into());
    }
    Ok(())
}

/// Whether this process is root's.
///
/// # Errors
///
/// `id` cannot be run.
pub fn is_root() -> Result<bool, Error> {
    let id = Command::new("id").arg("-u").output()?;
    Ok(id.stdout.trim_ascii() == b"0")
}
