//! The library as tests link it, of what they have compiled already (`xtask::capi::Profile::Tests`).

use unspool_c_variables as _;
