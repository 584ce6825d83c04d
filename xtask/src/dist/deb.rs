//! Debian packages of a release, built by `dpkg-deb` from folders: `deb(5)`, and Debian's policy
//! for file locations.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::{Release, VERSION, copy, files, output, write};
use crate::debian::run;
use crate::{Error, packages};

const MAINTAINER: &str = "unspool maintainers <unspool@users.noreply.github.com>";
const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The package of the command.
pub(super) fn command(release: &Release, from: &Path) -> Result<PathBuf, Error> {
    let package = Package::new(release, "unspool")?;
    package.copy_all(&from.join("bin"), "usr/bin")?;
    for page in files(&from.join("share/man/man1"))? {
        let name = page.file_name().ok_or("a page without a name")?;
        let to = Path::new("usr/share/man/man1").join(name);
        package.compress(&fs::read(&page)?, &to)?;
    }
    // `cargo unspool` takes the options of `unspool`.
    package.link("unspool.1.gz", "usr/share/man/man1/cargo-unspool.1.gz")?;
    let share = from.join("share");
    for folder in ["bash-completion/completions", "fish/vendor_completions.d"] {
        package.copy_all(&share.join(folder), &format!("usr/share/{folder}"))?;
    }
    package.copy_all(
        &share.join("zsh/site-functions"),
        "usr/share/zsh/vendor-completions",
    )?;
    package.documents(&share.join("doc/unspool"))?;
    package.build(
        "Section: devel\n\
         Depends: libc6 (>= 2.28), libgcc-s1 | libgcc1\n\
         Suggests: gcc, curl\n\
         Description: profiler with complete stacks, and tools for unwind tables\n \
         Records profiles whose stacks are complete without frame pointers, prints the\n \
         stacks of running and crashed programs, and reads, checks, makes and compiles\n \
         the unwind tables that this takes.\n",
    )
}

/// The package of the shared objects. Objects that no program is linked with are in a separate
/// folder: the preloaded one, and those with libunwind's names.
pub(super) fn libraries(release: &Release, from: &Path) -> Result<PathBuf, Error> {
    let package = Package::new(release, "libunspool0")?;
    let names = [
        "libunspool.so.0",
        "libunspool-variables.so.0",
        "libunspool-types.so.0",
    ];
    for name in names {
        package.copy(&from.join(name), &format!("{LIBRARIES}/{name}"))?;
    }
    let apart = format!("{LIBRARIES}/unspool");
    package.copy_all(&from.join("libunwind"), &apart)?;
    let crash = "libunspool-crash.so";
    package.copy(&from.join(crash), &format!("{apart}/{crash}"))?;
    package.documents(&from.join("doc"))?;
    package.control("triggers", "activate-noawait ldconfig\n")?;
    package.control(
        "shlibs",
        "libunspool 0 libunspool0\nlibunspool-variables 0 libunspool0\nlibunspool-types 0 libunspool0\n",
    )?;
    package.build(
        "Section: libs\n\
         Multi-Arch: same\n\
         Depends: libc6 (>= 2.28), libgcc-s1 | libgcc1\n\
         Description: walks of the own stack, in signal handlers too\n \
         libunspool walks the stack of the calling thread by its unwind tables, and\n \
         libunspool-variables finds the variables on it. libunspool-types reads, links\n \
         and compares the C types of programs. In a folder of their own are\n \
         libunspool-crash.so, which prints the stack of a program that crashes, and\n \
         shared objects with libunwind's interface.\n",
    )
}

/// The package of development files.
pub(super) fn development(release: &Release, from: &Path) -> Result<PathBuf, Error> {
    let package = Package::new(release, "libunspool-dev")?;
    package.copy_all(&from.join("include"), "usr/include")?;
    let names = [
        "libunspool.a",
        "libunspool.so",
        "libunspool-variables.so",
        "libunspool-types.so",
    ];
    for name in names {
        package.copy(&from.join(name), &format!("{LIBRARIES}/{name}"))?;
    }
    for path in files(&from.join("pkgconfig"))? {
        let name = path.file_name().ok_or("a file without a name")?;
        // In the archive, they are relative to themselves; here, they have a fixed path.
        let text = fs::read_to_string(&path)?;
        let (_, rest) = text.split_once("\n\n").ok_or("pkg-config: no fields")?;
        let text = format!("prefix=/usr\nlibdir=/{LIBRARIES}\nincludedir=/usr/include\n\n{rest}");
        write(
            &package.root.join(LIBRARIES).join("pkgconfig").join(name),
            text,
        )?;
    }
    package.link("libunspool0", "usr/share/doc/libunspool-dev")?;
    package.build(&format!(
        "Section: libdevel\n\
         Multi-Arch: same\n\
         Depends: libunspool0 (= {VERSION})\n\
         Description: walks of the own stack: headers and static library\n \
         What C and C++ programs need to be built with libunspool, libunspool-variables\n \
         and libunspool-types.\n"
    ))
}

/// A package, as its folder of files.
struct Package<'r> {
    release: &'r Release,
    name: &'static str,
    root: PathBuf,
}

impl<'r> Package<'r> {
    fn new(release: &'r Release, name: &'static str) -> Result<Self, Error> {
        let root = release.empty(&format!("deb/{name}"))?;
        Ok(Package {
            release,
            name,
            root,
        })
    }

    fn copy(&self, from: &Path, to: &str) -> Result<(), Error> {
        copy(from, &self.root.join(to))
    }

    fn copy_all(&self, from: &Path, to: &str) -> Result<(), Error> {
        for path in files(from)? {
            let name = path.file_name().ok_or("a file without a name")?;
            copy(&path, &self.root.join(to).join(name))?;
        }
        Ok(())
    }

    fn link(&self, target: &str, path: &str) -> Result<(), Error> {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().ok_or("a link without a folder")?)?;
        Ok(std::os::unix::fs::symlink(target, path)?)
    }

    fn control(&self, name: &str, text: &str) -> Result<(), Error> {
        write(&self.root.join("DEBIAN").join(name), text)
    }

    /// Writes a compressed file, with `.gz` appended to its name, and without the time and name
    /// that gzip would store.
    fn compress(&self, text: &[u8], to: &Path) -> Result<(), Error> {
        let path = self.root.join(to);
        write(&path, text)?;
        run(Command::new(packages::path("/usr/bin/gzip")?)
            .args(["--force", "--best", "--no-name"])
            .arg(path))
    }

    fn documents(&self, from: &Path) -> Result<(), Error> {
        let to = Path::new("usr/share/doc").join(self.name);
        for name in ["third-party.txt", "sbom.cdx.json"] {
            self.compress(&fs::read(from.join(name))?, &to.join(name))?;
        }
        self.compress(&fs::read(from.join("CHANGELOG.md"))?, &to.join("NEWS"))?;
        let time = self.release.date("--rfc-email")?;
        let name = self.name;
        let entry = format!(
            "{name} ({VERSION}) unstable; urgency=medium\n\n  * NEWS.gz says what has changed.\n\n -- {MAINTAINER}  {time}\n"
        );
        self.compress(entry.as_bytes(), &to.join("changelog"))?;
        write(&self.root.join(to).join("copyright"), copyright(from)?)
    }

    /// Builds the package; `fields` are its own control fields.
    fn build(self, fields: &str) -> Result<PathBuf, Error> {
        let Package {
            release,
            name,
            root,
        } = self;
        let mut sums = String::new();
        let mut kibibytes = 0;
        for path in files(&root)? {
            let relative = path.strip_prefix(&root)?;
            if relative.starts_with("DEBIAN") {
                continue;
            }
            kibibytes += fs::metadata(&path)?.len().div_ceil(1024);
            let sum = output(Command::new("md5sum").arg(relative).current_dir(&root))?;
            sums += &format!("{sum}\n");
        }
        write(&root.join("DEBIAN/md5sums"), sums)?;
        write(
            &root.join("DEBIAN/control"),
            format!(
                "Package: {name}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: {MAINTAINER}\n\
                 Installed-Size: {kibibytes}\nPriority: optional\nHomepage: {HOMEPAGE}\n{fields}"
            ),
        )?;
        set_modes(&root)?;
        let package = release.folder.join(format!("{name}_{VERSION}_amd64.deb"));
        // Debian 11 does not support zstd here.
        run(Command::new(packages::path("/usr/bin/dpkg-deb")?)
            .env("SOURCE_DATE_EPOCH", &release.epoch)
            .args(["--build", "--root-owner-group", "-Zxz", "--threads-max=1"])
            .args([&root, &package])
            .stdout(io::stderr()))?;
        Ok(package)
    }
}

/// Makes everything readable, and `usr/bin` executable, whatever the umask was.
fn set_modes(root: &Path) -> Result<(), Error> {
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(root))?;
    let not_run = files(root)?;
    let not_run = not_run
        .iter()
        .filter(|path| !path.starts_with(root.join("usr/bin")));
    run(Command::new("chmod").arg("a-x").args(not_run))
}

/// The copyright file (Debian's machine-readable format 1.0).
fn copyright(from: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(from.join("LICENSE-MIT"))?;
    let mut paragraphs = text.trim_end().splitn(3, "\n\n");
    let (Some(_), Some(holder), Some(mit)) =
        (paragraphs.next(), paragraphs.next(), paragraphs.next())
    else {
        return Err("LICENSE-MIT: not a title, a holder and the text".into());
    };
    let holder = holder.trim_start_matches("Copyright (c) ");
    let mit: String = mit
        .lines()
        .map(|line| match line {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: unspool\n\
         Source: {HOMEPAGE}\n\
         Comment: third-party.txt.gz beside this file has the licences of what others wrote.\n\n\
         Files: *\n\
         Copyright: {holder}\n\
         License: Expat or Apache-2.0\n\n\
         License: Expat\n{mit}\n\
         License: Apache-2.0\n \
         The text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}
