//! Displaying values of types that are not in any argument table, like arguments.

use std::rc::Rc;

use unspool_arg_table::ArgTable;
use unspool_c_types::{Graph, TypeId};
use unspool_elf::TableKey;

use crate::encode::encode;
use crate::functions::{FileAnalysis, FunctionAnalysis};
use crate::prototype::{OwnedParameter, Prototype};

/// The display kinds of some variables.
#[derive(Debug, Clone)]
pub struct VariableKinds {
    /// The table of a function with them as parameters.
    bytes: Vec<u8>,
}

impl VariableKinds {
    /// For variables with these names and types.
    #[must_use]
    pub fn new<'v>(
        graph: &Graph<'_>,
        variables: impl Iterator<Item = (&'v str, TypeId)>,
    ) -> VariableKinds {
        let parameters =
            variables.map(|(name, ty)| OwnedParameter::from_type(graph, name, ty, None));
        let prototype = Prototype {
            parameters: parameters.collect(),
            takes_stack: None,
        };
        let function = FunctionAnalysis {
            start: 0,
            end: 1,
            entry: 0,
            prototype: Some(Rc::new(prototype)),
            is_certain: false,
            is_given_all: false,
            is_reentered: false,
            is_jumped_to: false,
            rows: Vec::new(),
            calls: Vec::new(),
        };
        // One function is never too large.
        let one = FileAnalysis {
            functions: vec![function],
            unproven: Vec::new(),
        };
        let bytes = encode(
            &one,
            &TableKey {
                build_id: None,
                content: [0; 20],
            },
        )
        .unwrap_or_default();
        VariableKinds { bytes }
    }

    /// The variables, in order.
    pub fn iter(&self) -> impl Iterator<Item = unspool_arg_table::TableParameter<'_>> {
        let table = ArgTable::open(&self.bytes).ok();
        let function = table.and_then(|table| table.get(0));
        let parameters = function.and_then(|function| function.parameters());
        parameters.into_iter().flatten()
    }
}
