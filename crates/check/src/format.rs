//! Reports in the formats of other programs.

mod github;
mod json;
mod sarif;

pub use github::WorkflowCommands;
pub use sarif::sarif_log;
