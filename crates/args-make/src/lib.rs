//! Tables of arguments ([`unspool_args`]), made of a file's machine code and of what its functions take.
//!
//! [`follow`] follows arguments through the code, [`encode`] writes what it found. It takes files that were read: it opens
//! nothing, prints nothing.
#![forbid(unsafe_code)]

mod doubts;
mod encode;
mod file;
mod functions;
mod kept;
mod prototype;
mod saved;
mod shapes;
mod sources;

pub use doubts::Doubt;
pub use encode::{TooLarge, encode};
pub use file::{MadeTable, TableError, table_of};
pub use functions::{CallSite, Followed, Function, Row, follow, followed};
pub use prototype::{Member, Parameter, Prototype, Prototypes, Shape};
pub use shapes::Shapes;
pub use sources::{prototypes, prototypes_of_ctf};
