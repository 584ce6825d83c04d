//! The initializer and the finalizer.

use unspool_unwind::local;

use crate::generated_code;
use crate::sys::registration::GENERATED;
use crate::sys::statistics;

/// Runs on loading: finds the modules that are never unloaded, so that no unwind has to check for
/// them. Takes the loader's lock, which the loader has then.
extern "C" fn on_load() {
    local::modules().prepare();
    generated_code::set_registry(&GENERATED);
    statistics::begin();
}

/// Runs when the process exits.
extern "C" fn on_exit() {
    statistics::finish();
}

/// Before the initializers of a program that this is linked into: they may throw.
// SAFETY: this library has no other definition; an initializer takes arguments that it may ignore.
#[unsafe(export_name = "unspool_eh_initializer")]
// SAFETY: the C library calls the pointers in this section.
#[unsafe(link_section = ".init_array.00000")]
static INITIALIZER: extern "C" fn() = on_load;

// SAFETY: as above.
#[unsafe(export_name = "unspool_eh_finalizer")]
// SAFETY: as above.
#[unsafe(link_section = ".fini_array.00000")]
static FINALIZER: extern "C" fn() = on_exit;
