//! Programs that have a file mapped whose functions are called.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::SingleStepError;

/// A program that has a file mapped.
#[derive(Debug, Clone)]
pub struct HostProgram {
    /// The program. Its own code is not run.
    pub program: OsString,
    /// Added to its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The file, by the kernel's path of it.
    pub file: PathBuf,
}

impl HostProgram {
    /// A file that is a program itself, by the kernel's path of it.
    #[must_use]
    pub fn itself(file: PathBuf) -> HostProgram {
        HostProgram {
            program: file.clone().into(),
            environment: Vec::new(),
            file,
        }
    }

    /// A shell that preloads a shared object, given by the kernel's path of it.
    ///
    /// # Errors
    ///
    /// The dynamic linker cannot load a file with that name.
    pub fn preloaded(file: PathBuf) -> Result<HostProgram, SingleStepError> {
        // The dynamic linker splits the list at these characters.
        let is_plain = |byte: &u8| !matches!(byte, b' ' | b':');
        if !file.as_os_str().as_encoded_bytes().iter().all(is_plain) {
            return Err(SingleStepError::UnloadableName { file });
        }
        let load = [
            ("LD_PRELOAD".into(), file.clone().into()),
            ("LD_BIND_NOW".into(), "1".into()),
        ];
        Ok(HostProgram {
            program: "/bin/sh".into(),
            environment: load.into(),
            file,
        })
    }
}
