//! Third-party code in a release: its list (an SBOM), and its licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use spdx::{Expression, ParseMode};

use super::{TARGET, VERSION, output};
use crate::Error;

/// The permitted licences, one of which must be available for each crate. All except the last have
/// no conditions on the containing program. CDDL (inferno) requires a reference to the crate's
/// source, which is in `third-party.txt`.
const ALLOWED: [&str; 5] = ["Apache-2.0", "BSD-3-Clause", "MIT", "Zlib", "CDDL-1.0"];

/// A crate.
struct Package {
    name: String,
    version: String,
    /// In SPDX syntax.
    licence: String,
    repository: String,
    folder: PathBuf,
    /// SHA-256 of its file in the registry; `None` for a crate of the workspace.
    checksum: Option<String>,
    /// Its dependencies, by index in [`Closure::packages`].
    needs: Vec<usize>,
}

impl Package {
    /// A package URL (ECMA-427).
    fn url(&self) -> String {
        format!(
            "pkg:cargo/{}@{}",
            self.name,
            self.version.replace('+', "%2B")
        )
    }
}

/// Some crates of the workspace with all their dependencies.
pub(super) struct Closure {
    packages: Vec<Package>,
    /// The compiler's version: its standard library is part of everything.
    rust: String,
}

impl Closure {
    /// As cargo resolves it for shipped code: without tests, build scripts and macros.
    pub(super) fn from_crates(crates: &[String], workspace: &Path) -> Result<Self, Error> {
        let cargo = || {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command.current_dir(workspace);
            command
        };
        let mut tree = cargo();
        tree.args(["tree", "--quiet", "--locked", "--target", TARGET]);
        tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
        tree.args(crates.iter().flat_map(|name| ["--package", name.as_str()]));
        let tree = output(&mut tree)?;
        // `NAME vVERSION (…)`
        let names: BTreeSet<(&str, &str)> = tree
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.split_once(" v")?;
                Some((name, rest.split_whitespace().next()?))
            })
            .collect();
        let metadata = output(cargo().args([
            "metadata",
            "--quiet",
            "--locked",
            "--format-version=1",
            "--filter-platform",
            TARGET,
        ]))?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let lock = fs::read_to_string(workspace.join("Cargo.lock"))?;
        let rust = output(Command::new("rustc").arg("--version"))?;
        Ok(Closure {
            packages: packages(&metadata, &names, &lock)?,
            rust: rust.split(' ').nth(1).unwrap_or_default().to_owned(),
        })
    }

    fn of_others(&self) -> impl Iterator<Item = &Package> {
        let packages = self.packages.iter();
        packages.filter(|package| package.checksum.is_some())
    }

    /// Whether all third-party crates have a licence of [`ALLOWED`].
    pub(super) fn check_licences(&self) -> Result<(), Error> {
        for package in self.of_others() {
            if !is_allowed(&package.licence) {
                let Package { name, licence, .. } = package;
                return Err(format!("{name}: licence `{licence}` is not among those that are allowed (xtask/src/dist/third_party.rs)").into());
            }
        }
        Ok(())
    }

    /// The third-party code and its licences, with their texts.
    pub(super) fn licences(&self) -> Result<String, Error> {
        let mut list = format!(
            "unspool {VERSION} contains what others have written, each under its own licence. The texts\n\
             follow. Where there is a choice, it is MIT or Apache-2.0. The source of each is in its\n\
             repository, and unchanged.\n\n\
             Rust's standard library {}: MIT OR Apache-2.0\n  https://github.com/rust-lang/rust\n",
            self.rust
        );
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for package in self.of_others() {
            let Package {
                name,
                version,
                licence,
                repository,
                ..
            } = package;
            list += &format!("{name} {version}: {licence}\n  {repository}\n");
            for text in licence_files(&package.folder, 2)? {
                let text = String::from_utf8_lossy(&fs::read(text)?).into_owned();
                let owners = texts.entry(text.trim().to_owned()).or_default();
                owners.push(format!("{name} {version}"));
            }
        }
        for (text, mut owners) in texts {
            owners.dedup();
            list += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(72), owners.join(", "));
        }
        Ok(list)
    }

    /// The contents as CycloneDX 1.5 (ECMA-424).
    pub(super) fn sbom(&self, time: &str) -> Result<String, Error> {
        let component = |package: &Package| {
            let mut component = json!({
                "type": "library",
                "bom-ref": package.url(),
                "name": package.name,
                "version": package.version,
                "licenses": [{ "expression": package.licence }],
                "purl": package.url(),
                "externalReferences": [{ "type": "vcs", "url": package.repository }],
            });
            if let (Some(checksum), Some(fields)) = (&package.checksum, component.as_object_mut()) {
                let hashes = json!([{ "alg": "SHA-256", "content": checksum }]);
                fields.insert("hashes".to_owned(), hashes);
            }
            component
        };
        let standard = format!("pkg:github/rust-lang/rust@{}", self.rust);
        let mut components = vec![json!({
            "type": "library",
            "bom-ref": standard,
            "name": "Rust's standard library",
            "version": self.rust,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "purl": standard,
        })];
        components.extend(self.packages.iter().map(component));
        let dependency = |package: &Package| {
            let needs = package.needs.iter().filter_map(|i| self.packages.get(*i));
            let needs: Vec<String> = needs.map(Package::url).collect();
            json!({ "ref": package.url(), "dependsOn": needs })
        };
        let dependencies: Vec<Value> = self.packages.iter().map(dependency).collect();
        let document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": time,
                "component": { "type": "application", "name": "unspool", "version": VERSION },
            },
            "components": components,
            "dependencies": dependencies,
        });
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }
}

/// Whether a licence of [`ALLOWED`] is sufficient.
fn is_allowed(licence: &str) -> bool {
    Expression::parse_mode(licence, ParseMode::STRICT).is_ok_and(|expression| {
        expression.evaluate(|required| {
            let id = required.license.id();
            id.is_some_and(|id| ALLOWED.contains(&id.name)) && required.addition.is_none()
        })
    })
}

/// The packages with these names and versions, in this order.
fn packages(
    metadata: &Value,
    names: &BTreeSet<(&str, &str)>,
    lock: &str,
) -> Result<Vec<Package>, Error> {
    let mut ids = Vec::new();
    let mut found = Vec::new();
    for &(name, version) in names {
        let mut all = list(metadata, "/packages").iter();
        let package = all
            .find(|package| text(package, "/name") == name && text(package, "/version") == version)
            .ok_or_else(|| format!("cargo metadata has no {name} {version}"))?;
        ids.push(text(package, "/id"));
        found.push(Package {
            name: name.to_owned(),
            version: version.to_owned(),
            // An older spelling in manifests.
            licence: text(package, "/license").replace('/', " OR "),
            repository: text(package, "/repository").to_owned(),
            folder: PathBuf::from(text(package, "/manifest_path")).with_file_name(""),
            checksum: checksum(lock, name, version),
            needs: Vec::new(),
        });
    }
    let index = |id: &str| ids.iter().position(|other| *other == id);
    for node in list(metadata, "/resolve/nodes") {
        let package = index(text(node, "/id")).and_then(|at| found.get_mut(at));
        let Some(package) = package else { continue };
        let is_normal = |dependency: &&Value| {
            let mut kinds = list(dependency, "/dep_kinds").iter();
            kinds.any(|kind| kind.get("kind").is_some_and(Value::is_null))
        };
        let normal = list(node, "/deps").iter().filter(is_normal);
        package.needs = normal.filter_map(|dep| index(text(dep, "/pkg"))).collect();
    }
    Ok(found)
}

fn text<'v>(value: &'v Value, at: &str) -> &'v str {
    let text = value.pointer(at).and_then(Value::as_str);
    text.unwrap_or_default()
}

fn list<'v>(value: &'v Value, at: &str) -> &'v [Value] {
    let list = value.pointer(at).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// The entry of `Cargo.lock` for a package from a registry.
fn checksum(lock: &str, name: &str, version: &str) -> Option<String> {
    let begin = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let (_, rest) = lock.split_once(&begin)?;
    let entry = rest.split("\n\n").next()?;
    let (_, checksum) = entry.split_once("checksum = \"")?;
    Some(checksum.split('"').next()?.to_owned())
}

/// The licences in a crate, and in its bundled C code.
fn licence_files(folder: &Path, depth: u32) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_licence = ["licen", "copying", "notice", "copyright"];
        if entry.file_type()?.is_dir() {
            if depth > 1 {
                found.extend(licence_files(&entry.path(), depth - 1)?);
            }
        } else if is_licence.iter().any(|begin| name.starts_with(begin)) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::shared_objects;

    #[test]
    fn a_licence_must_be_one_that_is_allowed() {
        for allowed in [
            "MIT",
            "MIT OR Apache-2.0",
            "Apache-2.0 OR GPL-2.0-only",
            "Apache-2.0 AND Zlib",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "(MIT OR GPL-3.0-only) AND Zlib",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "MIT OR",
            "LicenseRef-own",
        ] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    /// All third-party code in a release has a permitted licence.
    #[test]
    fn all_licences_are_allowed() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut crates = shared_objects::crates().to_vec();
        crates.push("unspool-cli".to_owned());
        let closure = Closure::from_crates(&crates, &workspace).unwrap();
        closure.check_licences().unwrap();
        let names: Vec<&str> = closure.of_others().map(|p| p.name.as_str()).collect();
        assert!(names.contains(&"zstd-sys"), "{names:?}");
        assert!(!names.contains(&"proptest"), "{names:?}");
    }
}
