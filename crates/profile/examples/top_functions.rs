//! The functions of a profile that take most time:
//! `cargo run -p unspool-profile --example top_functions [PROFILE]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::fs::File;

use unspool_profile::{NamedProfile, Profile, ProfileNames, aggregate, share};
use unspool_symbols::{NameDetail, Symbolizer};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1);
    let profile = Profile::read(File::open(path.unwrap_or("unspool.prof".into()))?)?;
    let symbolizer = Symbolizer::from_environment(NameDetail::Lines);
    let names = ProfileNames::look_up(&profile, &symbolizer);
    let named = NamedProfile::new(&profile, &names);
    let samples: Vec<_> = profile.samples().iter().collect();
    let total = aggregate::total(&samples);
    for function in aggregate::functions(&named, &samples).iter().take(10) {
        if let Some(name) = named.function(function.key) {
            println!("{:>8}  {name}", share(function.own, total));
        }
    }
    Ok(())
}
