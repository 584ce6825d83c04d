//! An address space: a client's callbacks, and what was learnt through them.

use core::sync::atomic::{AtomicI32, Ordering};

use unspool_ir::CodeAddr;

use crate::abi::{self, Accessors, Error};
use crate::cache::{Cache, Hit};
use crate::rule::{Rule, Simple};
use crate::sys::heap::Late;

/// What an `unw_addr_space_t` points to. Any number of threads may step in one at a time.
#[derive(Debug)]
pub struct AddressSpace {
    /// The client's callbacks.
    pub accessors: Accessors,
    /// It is the own process: tables are read where they are, and nothing is allocated.
    is_own: bool,
    policy: AtomicI32,
    /// There once the policy was another than none.
    cache: Late<Cache>,
}

impl AddressSpace {
    /// An address space that is not cached.
    #[must_use]
    pub const fn new(accessors: Accessors) -> Self {
        AddressSpace {
            accessors,
            is_own: false,
            policy: AtomicI32::new(abi::CACHE_NONE),
            cache: Late::new(),
        }
    }

    /// The address space of the own process.
    #[must_use]
    pub const fn own(accessors: Accessors, cache: &'static Cache) -> Self {
        AddressSpace {
            accessors,
            is_own: true,
            policy: AtomicI32::new(abi::CACHE_GLOBAL),
            cache: Late::of_static(cache),
        }
    }

    /// Whether it is the own process's.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Sets whether rules are kept: one of `abi::CACHE_*`.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`], [`Error::NO_MEMORY`].
    pub fn set_policy(&self, policy: i32) -> Result<(), Error> {
        match policy {
            abi::CACHE_NONE => {}
            abi::CACHE_GLOBAL | abi::CACHE_PER_THREAD => {
                self.cache.get_or_try_init(Cache::new)?;
            }
            _ => return Err(Error::INVALID),
        }
        self.policy.store(policy, Ordering::Relaxed);
        self.flush();
        Ok(())
    }

    /// Keeps so many rules, rounded up to a power of two and at most [`Cache::SLOTS`].
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`].
    pub fn set_cache_size(&self, rules: usize) -> Result<(), Error> {
        self.cache.get_or_try_init(Cache::new)?.resize(rules);
        Ok(())
    }

    /// Forgets all rules.
    pub fn flush(&self) {
        if let Some(cache) = self.cache.get() {
            cache.flush();
        }
    }

    #[inline]
    fn cache(&self) -> Option<&Cache> {
        match self.policy.load(Ordering::Relaxed) {
            abi::CACHE_NONE => None,
            _ => self.cache.get(),
        }
    }

    /// The row of an address, if it is kept and simple: what nearly every step finds.
    #[inline]
    #[must_use]
    pub fn simple(&self, code: CodeAddr) -> Option<Simple> {
        self.cache()?.simple(code)
    }

    /// The rule of an address, if it is kept.
    #[must_use]
    pub fn known(&self, code: CodeAddr) -> Option<Hit> {
        self.cache()?.get(code)
    }

    /// Finds out the rule of an address, and keeps it if the client wants that.
    ///
    /// # Errors
    ///
    /// As `resolve`.
    pub fn keep(
        &self,
        code: CodeAddr,
        resolve: impl FnOnce() -> Result<Option<Rule>, Error>,
    ) -> Result<Option<Rule>, Error> {
        let cache = self.cache().map(|cache| (cache, cache.now()));
        let resolved = resolve()?;
        if let (Some((cache, now)), Some(rule)) = (cache, &resolved) {
            cache.put(code, rule, now);
        }
        Ok(resolved)
    }
}
