//! `cargo xtask page-picture PROFILE`: the README's picture of a profile's page.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use unspool_testing::{Browser, scratch_folder};

use crate::{Error, attack, programs};

/// Makes a picture of the page of a profile. README has that of `rustc -O tables.rs`.
///
/// # Errors
///
/// No profile is named, or it cannot be read.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<(), Error> {
    let profile = args
        .next()
        .ok_or("usage: cargo xtask page-picture PROFILE")?;
    let folder = scratch_folder(&std::env::temp_dir(), "unspool-picture");
    let page = folder.join("page.html");
    let mut report = Command::new(attack::build()?);
    report.args(["report", "--format", "html", "-o"]);
    programs::stdout(report.arg(&page).arg(profile))?;
    let mut browser = Browser::start();
    browser.set_window(1280, 800, false);
    let ready = "document.body && document.body.dataset.ready";
    browser.open(&format!("file://{}", page.display()), ready);
    let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/page.png");
    fs::write(&picture, browser.screenshot())?;
    writeln!(out, "{}: look at it", picture.display())?;
    fs::remove_dir_all(folder)?;
    Ok(())
}
