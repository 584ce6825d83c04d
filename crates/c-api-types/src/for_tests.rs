//! The library as tests link it, of what they have compiled already (`xtask::shared_objects::Profile::Tests`).

use unspool_c_api_types as _;
