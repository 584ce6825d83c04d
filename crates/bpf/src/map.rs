//! Maps: memory that programs keep, and share with the process.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use crate::error::MapError;
use crate::sys::{self, MapDef, SizedMap};

/// `BPF_F_NO_PREALLOC`
const NO_PREALLOC: u32 = 1;
/// The size of the keys of arrays, and of the values of maps of maps.
const U32_BYTES: u32 = 4;

/// The supported types of maps, numbered as in `enum bpf_map_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapType {
    /// [`Map::new_hash`]
    Hash = 1,
    /// [`Map::new_array`]
    Array = 2,
    /// [`PercpuArray`]
    PercpuArray = 6,
    /// [`MapOfMaps::new_array`]
    ArrayOfMaps = 12,
    /// [`MapOfMaps::new_hash`]
    HashOfMaps = 13,
    /// [`crate::RingBuf`]
    RingBuf = 27,
    /// [`crate::Arena`]
    Arena = 33,
}

impl MapType {
    fn name(self) -> &'static str {
        match self {
            MapType::Hash => "hash",
            MapType::Array => "array",
            MapType::PercpuArray => "percpu_array",
            MapType::ArrayOfMaps => "array_of_maps",
            MapType::HashOfMaps => "hash_of_maps",
            MapType::RingBuf => "ringbuf",
            MapType::Arena => "arena",
        }
    }

    /// The definition of a map of this type. Sizes are in bytes.
    pub(crate) fn def(self, key_size: u32, value_size: u32, max_entries: u32) -> MapDef<'static> {
        MapDef {
            map_type: self as u32,
            key_size,
            value_size,
            max_entries,
            flags: 0,
            name: sys::name(self.name()),
            inner: None,
        }
    }

    /// Converts the kernel's error.
    pub(crate) fn to_map_error(self) -> impl Fn(io::Error) -> MapError {
        move |error| MapError {
            map_type: self,
            error,
        }
    }
}

impl Display for MapType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A hash table or an array. Keys and values have fixed sizes in bytes.
#[derive(Debug)]
pub struct Map {
    map: SizedMap,
}

impl Map {
    /// Creates a hash table. It takes memory for each element that is inserted.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new_hash(key_size: u32, value_size: u32, max_entries: u32) -> Result<Map, MapError> {
        let def = MapType::Hash.def(key_size, value_size, max_entries);
        let flags = NO_PREALLOC;
        let map = SizedMap::create(MapDef { flags, ..def });
        let map = map.map_err(MapType::Hash.to_map_error())?;
        Ok(Map { map })
    }

    /// Creates an array, with the memory of all values. Keys are indices of 4 bytes.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new_array(value_size: u32, max_entries: u32) -> Result<Map, MapError> {
        let map = SizedMap::create(MapType::Array.def(U32_BYTES, value_size, max_entries));
        let map = map.map_err(MapType::Array.to_map_error())?;
        Ok(Map { map })
    }

    /// Copies an element's value. Returns whether there is such an element.
    ///
    /// # Errors
    ///
    /// Key or value do not have the map's sizes.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        match self.map.lookup(key, value) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Inserts or replaces an element.
    ///
    /// # Errors
    ///
    /// Key or value do not have the map's sizes, or the map is full (`E2BIG`).
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.map.update(key, value)
    }

    /// Removes an element. An array refuses that.
    ///
    /// # Errors
    ///
    /// The key does not have the map's size, or there is no such element.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.map.delete(key)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.fd.as_fd()
    }
}

/// An array with a copy for each processor, as scratch memory of programs. Keys are indices of 4
/// bytes.
#[derive(Debug)]
pub struct PercpuArray {
    fd: OwnedFd,
}

impl PercpuArray {
    /// Creates an array, with the memory of all values for all processors.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new(value_size: u32, max_entries: u32) -> Result<PercpuArray, MapError> {
        let fd = sys::map_create(MapType::PercpuArray.def(U32_BYTES, value_size, max_entries));
        let fd = fd.map_err(MapType::PercpuArray.to_map_error())?;
        Ok(PercpuArray { fd })
    }
}

impl AsFd for PercpuArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A map of maps. All inner maps have one type and one size.
///
/// Replacing or removing an element waits until no program uses the old one.
#[derive(Debug)]
pub struct MapOfMaps {
    map: SizedMap,
}

impl MapOfMaps {
    /// Creates an array of maps with the type and size of `inner`.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new_array(max_entries: u32, inner: &Map) -> Result<MapOfMaps, MapError> {
        MapOfMaps::create(MapType::ArrayOfMaps, U32_BYTES, max_entries, inner)
    }

    /// Creates a hash table of maps with the type and size of `inner`.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new_hash(key_size: u32, max_entries: u32, inner: &Map) -> Result<MapOfMaps, MapError> {
        MapOfMaps::create(MapType::HashOfMaps, key_size, max_entries, inner)
    }

    fn create(
        map_type: MapType,
        key_size: u32,
        max_entries: u32,
        inner: &Map,
    ) -> Result<MapOfMaps, MapError> {
        let def = map_type.def(key_size, U32_BYTES, max_entries);
        let inner = Some(inner.as_fd());
        let map = SizedMap::create(MapDef { inner, ..def });
        let map = map.map_err(map_type.to_map_error())?;
        Ok(MapOfMaps { map })
    }

    /// Inserts or replaces an element. The kernel keeps the inner map while it is an element.
    ///
    /// # Errors
    ///
    /// The key does not have the map's size, or the inner map has another type or size.
    pub fn update(&self, key: &[u8], inner: &Map) -> io::Result<()> {
        let fd = inner.as_fd().as_raw_fd();
        self.map.update(key, &fd.to_le_bytes())
    }

    /// Removes an element.
    ///
    /// # Errors
    ///
    /// The key does not have the map's size, or there is no such element.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.map.delete(key)
    }
}

impl AsFd for MapOfMaps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.fd.as_fd()
    }
}
