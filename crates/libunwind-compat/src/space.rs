//! An address space: a client's callbacks, and data cached from them.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicI32, Ordering};

use unspool_rows::CodeAddr;
use unspool_unwind::steps::{CachedPackedRow, CachedRule, StepAddress, StepCache};

use crate::abi::{self, Accessors, Error};
use crate::client::Client;
use crate::objects::{ObjectCode, RemoteModules};
use crate::rule::OwnedStepRule;
use crate::sys::{self, objects};

/// The target of an `unw_addr_space_t`. Any number of threads may step in one at a time.
#[derive(Debug)]
pub struct AddressSpace {
    /// The client's callbacks.
    pub(crate) accessors: Accessors,
    /// It is the own process: tables are read in place, and nothing is allocated.
    is_own: bool,
    policy: AtomicI32,
    /// Empty while the policy is to cache nothing.
    cache: CacheStorage,
    /// For another process, if machine code of tables is wanted.
    modules: Option<Box<RemoteModules>>,
}

#[derive(Debug)]
enum CacheStorage {
    Heap(Box<StepCache>),
    Static(&'static StepCache),
}

impl AddressSpace {
    /// An address space without caching.
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`].
    pub(crate) fn new(accessors: Accessors) -> Result<Self, Error> {
        let modules = if objects::is_enabled() {
            Some(sys::heap::zeroed().ok_or(Error::NO_MEMORY)?)
        } else {
            None
        };
        Ok(AddressSpace {
            accessors,
            is_own: false,
            policy: AtomicI32::new(abi::CACHE_NONE),
            cache: CacheStorage::Heap(sys::heap::zeroed().ok_or(Error::NO_MEMORY)?),
            modules,
        })
    }

    /// The address space of the own process.
    #[must_use]
    pub(crate) const fn own(accessors: Accessors, cache: &'static StepCache) -> Self {
        AddressSpace {
            accessors,
            is_own: true,
            policy: AtomicI32::new(abi::CACHE_GLOBAL),
            cache: CacheStorage::Static(cache),
            modules: None,
        }
    }

    /// Whether it is the own process's.
    #[must_use]
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Sets whether rules are cached: one of `abi::CACHE_*`.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`].
    pub(crate) fn set_policy(&self, policy: i32) -> Result<(), Error> {
        match policy {
            abi::CACHE_NONE | abi::CACHE_GLOBAL | abi::CACHE_PER_THREAD => {}
            _ => return Err(Error::INVALID),
        }
        self.policy.store(policy, Ordering::Relaxed);
        self.flush();
        Ok(())
    }

    /// Drops all cached rules.
    pub(crate) fn flush(&self) {
        self.cache().flush();
        if let Some(modules) = &self.modules {
            modules.forget();
        }
    }

    /// The machine code for an address, if it is wanted and there is some.
    #[must_use]
    pub(crate) fn object(&self, client: Client<'_>, code: CodeAddr) -> Option<ObjectCode> {
        match &self.modules {
            None if self.is_own && objects::is_enabled() => crate::objects::own(code),
            None => None,
            Some(modules) => modules.find(client, code),
        }
    }

    #[inline(always)]
    fn cache(&self) -> &StepCache {
        match &self.cache {
            CacheStorage::Heap(cache) => cache,
            CacheStorage::Static(cache) => cache,
        }
    }

    /// The simple row of an address, if it is cached: nearly every step finds one.
    #[inline(always)]
    #[must_use]
    pub(crate) fn simple(&self, step_address: StepAddress) -> Option<CachedPackedRow> {
        self.cache().simple(step_address)
    }

    /// The rule of an address, if it is cached.
    #[must_use]
    pub(crate) fn cached_rule(&self, step_address: StepAddress) -> Option<CachedRule> {
        self.cache().get(step_address)
    }

    /// Resolves the rule of an address, and caches it if the client wants that.
    ///
    /// # Errors
    ///
    /// As `resolve`.
    pub(crate) fn keep(
        &self,
        step_address: StepAddress,
        resolve: impl FnOnce() -> Result<Option<OwnedStepRule>, Error>,
    ) -> Result<Option<OwnedStepRule>, Error> {
        let now = self.cache().now();
        let resolved = resolve()?;
        if let Some(rule) = resolved.as_ref().filter(|_| self.is_caching()) {
            self.cache().put(step_address, rule.as_cached(), now);
        }
        Ok(resolved)
    }

    /// Whether the client wants caching.
    #[must_use]
    pub(crate) fn is_caching(&self) -> bool {
        self.policy.load(Ordering::Relaxed) != abi::CACHE_NONE
    }
}
