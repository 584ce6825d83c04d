//! What the machine is made of, unpacked below the target folder.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_testing::Folder;

use super::{Pages, add_share, folder, initramfs};
use crate::{Error, debian, packages};

/// The Debian release of the machine and of qemu. It is built with pointer authentication and BTI.
const RELEASE: &str = "trixie";

/// The packages of this machine's architecture, and those of the machine's.
const HOST_PACKAGES: &[&str] = &["qemu-system-arm", "qemu-user"];
const USER_HOST_PACKAGES: &[&str] = &["qemu-user"];
/// What programs are linked with and run by, without a machine.
const USER_PACKAGES: &[&str] = &["base-files", "libc6-dev", "libgcc-14-dev"];
const PACKAGES: &[&str] = &[
    "base-files",
    "base-passwd",
    "bash",
    "binutils",
    "bsdutils",
    "busybox-static",
    "coreutils",
    "dash",
    "elfutils",
    "findutils",
    "g++",
    "gawk",
    "gcc",
    "gdb",
    "golang-go",
    "grep",
    "gzip",
    "libc-bin",
    "libc6-dbg",
    "libc6-dev",
    "libunwind8",
    "linux-perf",
    "lz4",
    "mount",
    "musl-tools",
    "procps",
    "rustc",
    "sed",
    "util-linux",
    "xz-utils",
    "zstd",
];

/// The unpacked packages.
pub(super) struct Root {
    host: PathBuf,
    folder: PathBuf,
    kernel: Option<PathBuf>,
}

impl Root {
    /// Unpacks what is not there yet, for a machine with pages of this size, or for none.
    pub(super) fn unpacked(pages: Option<Pages>, out: &mut impl Write) -> Result<Self, Error> {
        let folder = folder()?;
        let mut unpack = |name: &str, architecture, packages: &[&str]| -> Result<PathBuf, Error> {
            let unpacked = folder.join(name);
            // The list of packages is beside the folder once they all are in it.
            let list = folder.join(format!("{name}.packages"));
            let packages_text = packages.join(" ");
            if fs::read_to_string(&list).is_ok_and(|text| text == packages_text) {
                return Ok(unpacked);
            }
            writeln!(out, "unpacking Debian {RELEASE} in {}", unpacked.display())?;
            if unpacked.exists() {
                fs::remove_dir_all(&unpacked)?;
            }
            debian::unpack_for(architecture, &unpacked, RELEASE, packages)?;
            fs::write(&list, packages_text)?;
            Ok(unpacked)
        };
        let Some(pages) = pages else {
            return Ok(Self {
                host: unpack("user-host", "amd64", USER_HOST_PACKAGES)?,
                folder: unpack("user-root", "arm64", USER_PACKAGES)?,
                kernel: None,
            });
        };
        let kernel = match pages {
            Pages::K4 => "linux-image-arm64",
            Pages::K16 => "linux-image-arm64-16k",
        };
        Ok(Self {
            host: unpack("host", "amd64", HOST_PACKAGES)?,
            folder: unpack("root", "arm64", PACKAGES)?,
            kernel: Some(unpack(kernel, "arm64", &[kernel])?),
        })
    }

    /// The folder that is the machine's root.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The host's path of a path in the machine.
    pub(super) fn path_of(&self, path: &Path) -> PathBuf {
        self.folder.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// qemu's emulation of Linux, to be followed by a program.
    pub(super) fn emulator(&self, cpu: &str) -> Command {
        let mut command = Command::new(self.host.join("usr/bin/qemu-aarch64"));
        command
            .arg("-L")
            .arg(&self.folder)
            .arg("-cpu")
            .arg(model(cpu));
        command
    }

    /// qemu with the kernel and the root. It is killed after some minutes.
    pub(super) fn qemu(&self, cpu: &str, minutes: u32, job: &Folder) -> Result<Command, Error> {
        let (kernel, modules) = self.kernel()?;
        let busybox = self.folder.join("usr/bin/busybox");
        let first_files = job.join("initramfs");
        fs::write(&first_files, initramfs::make(&busybox, &modules)?)?;
        let libraries = self.host.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(packages::path("/usr/bin/timeout")?);
        command
            .args(["--kill-after=10", &format!("{minutes}m")])
            .arg(self.host.join("usr/lib64/ld-linux-x86-64.so.2"))
            .arg("--library-path")
            .arg(&libraries)
            .arg(self.host.join("usr/bin/qemu-system-aarch64"))
            .env("QEMU_MODULE_DIR", libraries.join("qemu"))
            .arg("-L")
            .arg(self.host.join("usr/share/qemu"))
            .args(["-M", "virt,gic-version=3", "-cpu", &model(cpu)])
            .args(["-smp", "1", "-m", "3G", "-display", "none", "-nic", "none"])
            .args(["-monitor", "none", "-serial", "stdio", "-no-reboot"])
            .args(["-append", "console=ttyAMA0 quiet panic=-1 mitigations=off"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(first_files);
        add_share(&mut command, "root", &self.folder, ",readonly=on");
        add_share(&mut command, "job", job.path(), "");
        Ok(command)
    }

    /// The kernel's file, and the folder of its modules.
    fn kernel(&self) -> Result<(PathBuf, PathBuf), Error> {
        let kernel = self.kernel.as_ref().ok_or("no machine")?;
        let modules = kernel.join("usr/lib/modules");
        let version = fs::read_dir(&modules)?
            .next()
            .ok_or("no kernel")??
            .file_name();
        let mut file = OsString::from("boot/vmlinuz-");
        file.push(&version);
        Ok((kernel.join(file), modules.join(version)))
    }
}

/// qemu's name of a processor. Its own cipher for pointer authentication takes a fraction of the
/// time of the architecture's.
fn model(cpu: &str) -> String {
    match cpu {
        "max" => "max,pauth-impdef=on".to_owned(),
        cpu => cpu.to_owned(),
    }
}
