//! Tables of arguments ([`unspool_args`]), made of a file's machine code and of what its functions take.
//!
//! [`functions`] follows arguments through the code, [`encode`] writes what it found. It takes files that were read: it opens
//! nothing, prints nothing.
#![forbid(unsafe_code)]

mod encode;
mod file;
mod functions;
mod kept;
mod prototype;
mod saved;
mod shapes;
mod sources;

pub use encode::{TooLarge, encode};
pub use file::{TableError, table_of};
pub use functions::{CallSite, Function, Row, followed, functions};
pub use prototype::{Member, Parameter, Prototype, Prototypes, Shape, convention};
pub use shapes::Shapes;
pub use sources::{prototypes, prototypes_of_ctf};
