//! A function's activation: its variables and types in a frame.

use std::borrow::Cow;
use std::rc::Rc;

use gimli::AttributeValue;
use unspool_c_types::{Graph, TypeId, TypeKind};

use super::VariableStack;
use super::evaluate::{EvaluationBudget, ExpressionEvaluator, VariableUnavailable};
use super::function::{AttributeRef, DwarfFunction, Variable, location_or_constant};
use super::value::PartialValue;
use crate::attributes::{number, sized_type};
use crate::index::{DieRef, DwarfReader};
use crate::unit::DynamicDimension;

/// A function in a frame of a stack.
pub struct Activation<'s, 'a> {
    stack: &'s dyn VariableStack<'a>,
    number: usize,
    function: &'s DwarfFunction<'a>,
    graph: Cow<'s, Graph<'a>>,
    /// The arrays with an unknown number of elements, and why.
    unknown_counts: Vec<(TypeId, VariableUnavailable)>,
}

/// A parameter's value when its function was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterAtEntry {
    /// The value.
    pub value: PartialValue,
    /// Whether the value is from a call that calls this function by the debug information, without
    /// a proof that this call was made.
    pub is_likely: bool,
}

impl<'s, 'a> Activation<'s, 'a> {
    /// The activation of a function in a frame: the frame's own function, or one inlined in it.
    /// Evaluates the sizes of arrays with computed sizes, and copies the function's types if it has
    /// any such.
    #[must_use]
    pub fn new(
        stack: &'s dyn VariableStack<'a>,
        number: usize,
        function: &'s DwarfFunction<'a>,
    ) -> Activation<'s, 'a> {
        let mut activation = Activation {
            stack,
            number,
            function,
            graph: Cow::Borrowed(&function.graph),
            unknown_counts: Vec::new(),
        };
        for dimension in &function.dimensions {
            match activation.count(dimension) {
                Ok(counted) => activation.set_count(dimension.array, counted),
                Err(absent) => activation.unknown_counts.push((dimension.array, absent)),
            }
        }
        activation
    }

    /// The types of the function's variables, with evaluated array sizes.
    #[must_use]
    pub fn graph(&self) -> &Graph<'a> {
        &self.graph
    }

    /// The name of a Rust structure, union or enumeration, with its namespaces; `None` for other
    /// types.
    #[must_use]
    pub fn path(&self, ty: TypeId) -> Option<String> {
        let (TypeKind::Record { .. } | TypeKind::Enum { .. }) = self.graph.get(ty)?.kind else {
            return None;
        };
        let rust = self.function.rust()?;
        let place = *rust.places.get(&ty)?;
        rust.paths.path(&self.function.index, place).ok()
    }

    /// The current value of a variable of the function, or of one inlined in it: its bytes, `most`
    /// at most.
    ///
    /// # Errors
    ///
    /// [`VariableUnavailable`], if no byte is known.
    pub fn current_value(
        &self,
        variable: &Variable<'a>,
        most: usize,
    ) -> Result<PartialValue, VariableUnavailable> {
        let size = self.size(variable, most)?;
        self.value(variable.location.as_ref(), variable.constant.as_ref(), size)
    }

    fn value(
        &self,
        location: Option<&AttributeRef<'a>>,
        constant: Option<&AttributeValue<DwarfReader<'a>>>,
        size: usize,
    ) -> Result<PartialValue, VariableUnavailable> {
        if let Some(constant) = constant {
            return constant_value(constant, size);
        }
        let location = location.ok_or(VariableUnavailable::OptimizedOut)?;
        self.evaluator(&EvaluationBudget::default())?
            .value(location, size)
    }

    /// A parameter's value when the frame's function was called, from the caller: its bytes, `most`
    /// at most.
    ///
    /// # Errors
    ///
    /// [`VariableUnavailable`].
    pub fn at_entry(
        &self,
        parameter: &Variable<'a>,
        most: usize,
    ) -> Result<ParameterAtEntry, VariableUnavailable> {
        let size = self.size(parameter, most)?;
        if self.function.is_unprototyped && self.graph.is_float(parameter.ty) {
            return Err(VariableUnavailable::Entry);
        }
        let progress = EvaluationBudget::default();
        let frame = self.evaluator(&progress)?;
        let bytes = frame
            .entry_value(frame.entry_location(parameter)?)?
            .to_le_bytes();
        if size > bytes.len() {
            return Err(VariableUnavailable::Entry);
        }
        let mut value = PartialValue::unknown(size);
        value.put(&bytes);
        let is_likely = progress.is_guessed.get();
        Ok(ParameterAtEntry { value, is_likely })
    }

    fn evaluator<'e>(
        &'e self,
        budget: &'e EvaluationBudget,
    ) -> Result<ExpressionEvaluator<'e, 'a>, VariableUnavailable> {
        ExpressionEvaluator::new(self.stack, self.number, self.function, budget)
    }

    /// The size of a variable in bytes, `most` at most. It can be 0 for a type of size 0.
    fn size(&self, variable: &Variable<'a>, most: usize) -> Result<usize, VariableUnavailable> {
        if let Some(why) = self.uncounted_in(variable.ty) {
            return Err(why.clone());
        }
        let size = self
            .graph
            .size(variable.ty)
            .ok_or(VariableUnavailable::Size)?;
        match usize::try_from(size).unwrap_or(most).min(most) {
            0 if !self.is_aggregate(variable.ty) => Err(VariableUnavailable::Size),
            size => Ok(size),
        }
    }

    fn is_aggregate(&self, ty: TypeId) -> bool {
        let ty = self.graph.resolve(ty).and_then(|ty| self.graph.get(ty));
        ty.is_some_and(|ty| match ty.kind {
            TypeKind::Array { .. } | TypeKind::Record { .. } => true,
            // Rust's unit type; `void` is different.
            _ => ty.name == "()",
        })
    }

    /// Why the number of elements of an array, or of its elements, is unknown.
    fn uncounted_in(&self, ty: TypeId) -> Option<&VariableUnavailable> {
        if self.unknown_counts.is_empty() {
            return None;
        }
        let mut ty = ty;
        for _ in 0..MAX_DIMENSIONS {
            ty = self.graph.resolve(ty)?;
            if let Some((_, why)) = self.unknown_counts.iter().find(|(array, _)| *array == ty) {
                return Some(why);
            }
            let TypeKind::Array { element, .. } = self.graph.get(ty)?.kind else {
                return None;
            };
            ty = element;
        }
        None
    }

    fn set_count(&mut self, array: TypeId, counted: u64) {
        let Some(mut ty) = self.graph.get(array).cloned() else {
            return;
        };
        if let TypeKind::Array { count, .. } = &mut ty.kind {
            *count = counted;
            self.graph.to_mut().set(array, ty);
        }
    }

    /// The number of elements of a dimension; 0 if the program computes a negative number.
    fn count(&self, dimension: &DynamicDimension<'a>) -> Result<u64, VariableUnavailable> {
        let bound = dimension.bound.ok_or(VariableUnavailable::Size)?;
        let number = self.bound(dimension.die, bound);
        let number = number.map_err(|why| VariableUnavailable::Count(Rc::new(why)))?;
        let count = number
            .checked_add(dimension.plus)
            .ok_or(VariableUnavailable::Size)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// The computed value of a bound: by an expression, or in a variable (DWARF 5 §2.19).
    fn bound(
        &self,
        die: DieRef,
        value: AttributeValue<DwarfReader<'a>>,
    ) -> Result<i64, VariableUnavailable> {
        let progress = EvaluationBudget::default();
        let evaluator = self.evaluator(&progress)?;
        if let AttributeValue::UnitRef(_) | AttributeValue::DebugInfoRef(_) = value {
            return self.integer(evaluator.index().resolve_reference(die, &value)?);
        }
        let expression =
            evaluator.expression_at(&AttributeRef { die, value }, evaluator.lookup())?;
        Ok(evaluator.number(die, expression)?.cast_signed())
    }

    /// The value of an integer variable, by its entry.
    fn integer(&self, die: DieRef) -> Result<i64, VariableUnavailable> {
        let progress = EvaluationBudget::default();
        let evaluator = self.evaluator(&progress)?;
        let index = evaluator.index();
        let entry = index.entry(die)?;
        let (origin, said) = index.origin(die, &entry)?;
        let (_, ty) = sized_type(index, origin, &said).ok_or(VariableUnavailable::Size)?;
        let size = number(&ty, gimli::DW_AT_byte_size).and_then(|size| usize::try_from(size).ok());
        let size = size.filter(|size| (1..=8).contains(size));
        let size = size.ok_or(VariableUnavailable::Size)?;
        // The entry may be that of the abstract function; the one of its code here is needed.
        let levels = self.function.frame_functions(evaluator.lookup());
        let mut here = levels.iter().flat_map(|level| &level.locals);
        let own = here.find(|own| own.origin == origin);
        let is_one = !here.any(|own| own.origin == origin);
        let (location, constant) = match own.filter(|_| is_one) {
            Some(own) => (own.location, own.constant),
            None => location_or_constant((die, &entry), (origin, &said)),
        };
        let value = self.value(location.as_ref(), constant.as_ref(), size)?;
        if !value.is_fully_known() {
            return Err(VariableUnavailable::OptimizedOut);
        }
        let mut bytes = [0; 8];
        if let Some(low) = bytes.get_mut(..size) {
            low.copy_from_slice(&value.bytes);
        }
        let unused = 64 - 8 * u32::try_from(size).unwrap_or(8);
        let number = u64::from_le_bytes(bytes) << unused;
        let is_signed = matches!(
            ty.attr_value(gimli::DW_AT_encoding),
            Some(AttributeValue::Encoding(gimli::DW_ATE_signed))
        );
        Ok(if is_signed {
            number.cast_signed() >> unused
        } else {
            (number >> unused).cast_signed()
        })
    }
}

/// The value of a constant.
fn constant_value(
    constant: &AttributeValue<DwarfReader<'_>>,
    size: usize,
) -> Result<PartialValue, VariableUnavailable> {
    let mut value = PartialValue::unknown(size);
    match constant {
        AttributeValue::Block(bytes) => value.put(bytes.slice()),
        AttributeValue::Sdata(number) => value.put(&i128::from(*number).to_le_bytes()),
        other => match other.udata_value() {
            Some(number) => value.put(&u128::from(number).to_le_bytes()),
            None => {
                return Err(VariableUnavailable::Unsupported(
                    "a constant that is not a number",
                ));
            }
        },
    }
    Ok(value)
}

/// The maximum number of dimensions of an array.
const MAX_DIMENSIONS: usize = 64;
