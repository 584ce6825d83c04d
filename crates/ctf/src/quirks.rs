//! What producers are known to write wrongly.

use hashbrown::HashMap;

use crate::graph::{Graph, Kind, Type, TypeId};

/// A known fault of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quirk {
    /// gcc wrote the dimensions of an array of arrays from the last to the first (its PR114186): `char nm[3][4]` reads as
    /// `char nm[4][3]`.
    ReversedArrays,
}

impl Quirk {
    /// The fault that a producer's CTF has, by what the producer writes into `.comment`: `GCC: (Debian 12.2.0-14) 12.2.0`. Later releases of gcc 12 and 13 have the correction, and
    /// nobody else is known to have had the fault.
    #[must_use]
    pub fn of_producer(comment: &str) -> Option<Quirk> {
        let version = comment.strip_prefix("GCC: ")?.rsplit(' ').next()?;
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        let version = (numbers.next()??, numbers.next()??);
        let is_wrong = match version {
            (12, minor) => minor < 4,
            (13, minor) => minor < 3,
            (major, _) => major < 12,
        };
        is_wrong.then_some(Quirk::ReversedArrays)
    }
}

impl<'a> Graph<'a> {
    /// The graph with arrays of arrays turned round, as [`Quirk::ReversedArrays`] needs it. Ids stay as they are; types are added behind. Of a
    /// child, its own types are turned only: turn its parent, too.
    #[must_use]
    pub fn with_arrays_turned(&self) -> Graph<'a> {
        let mut turned = self.clone();
        let mut made: HashMap<(TypeId, TypeId, u64), TypeId> = HashMap::new();
        for (id, ty) in self.types() {
            let dimensions = self.dimensions(id);
            let Some((last, others)) = dimensions
                .split_last()
                .filter(|(_, others)| !others.is_empty())
            else {
                continue;
            };
            // From the innermost outwards: what stands first is the innermost.
            let mut element = last.element;
            for dimension in others {
                let key = (element, dimension.index, dimension.count);
                element = *made.entry(key).or_insert_with(|| {
                    turned.add(Type::unnamed(Kind::Array {
                        element: key.0,
                        index: key.1,
                        count: key.2,
                    }))
                });
            }
            let kind = Kind::Array {
                element,
                index: last.index,
                count: last.count,
            };
            turned.set(id, Type { kind, ..ty.clone() });
        }
        turned
    }

    /// The arrays that an array consists of, from the outermost.
    fn dimensions(&self, mut id: TypeId) -> Vec<Dimension> {
        const MOST: usize = 64;
        let mut dimensions = Vec::new();
        while let Some(Kind::Array {
            element,
            index,
            count,
        }) = self.get(id).map(|ty| &ty.kind)
        {
            if dimensions.len() == MOST {
                return Vec::new(); // an array that contains itself
            }
            dimensions.push(Dimension {
                element: *element,
                index: *index,
                count: *count,
            });
            id = *element;
        }
        dimensions
    }
}

struct Dimension {
    element: TypeId,
    index: TypeId,
    count: u64,
}
