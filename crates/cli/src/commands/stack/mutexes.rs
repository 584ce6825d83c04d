//! Who holds the mutexes that threads wait for.

use unspool_symbols::AddressName;

/// Whether a function of glibc waits for a mutex.
pub(super) fn waits_for_mutex(name: &AddressName<'_>) -> bool {
    let symbol = name.symbol.map_or("", |symbol| symbol.name);
    let symbol = symbol.split('@').next().unwrap_or_default();
    let symbol = symbol.trim_start_matches('_').trim_start_matches("GI_");
    let symbol = symbol.trim_start_matches('_');
    let operation = symbol.strip_prefix("pthread_mutex_").unwrap_or_default();
    symbol == "lll_lock_wait" || (operation.ends_with("lock") && operation != "unlock")
}
