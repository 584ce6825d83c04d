//! Arguments of a function, from the call site entries in its callers (DWARF 5 §3.4).

use std::rc::Rc;

use gimli::{AttributeValue, Operation};
use unspool_rows::Vaddr;

use super::evaluate::{ExpressionEvaluator, VariableUnavailable};
use super::function::{
    DwarfCallSite, DwarfFunction, EntryLocation, Variable, linkage_name, single_operation,
};
use super::{VariableFrame, Variables};
use crate::index::{DieIndex, DieRef};

/// The path to a function: a call, and functions that each ended with a tail call of the next.
#[derive(Clone)]
pub(super) struct CallPath<'a> {
    caller: Rc<DwarfFunction<'a>>,
    call: usize,
    /// These functions, and the index of each one's call. The first `count` are valid.
    tail_calls: Rc<[(Rc<DwarfFunction<'a>>, usize)]>,
    count: usize,
}

impl<'a> ExpressionEvaluator<'_, 'a> {
    /// The location of a parameter when the function was called.
    pub(super) fn entry_location(
        &self,
        parameter: &Variable<'a>,
    ) -> Result<EntryLocation, VariableUnavailable> {
        let entry = self.function.entry().ok_or(VariableUnavailable::Entry)?;
        let location = parameter.location.as_ref();
        let Some(location) = location else {
            return Ok(EntryLocation::Parameter(parameter.origin));
        };
        let expression = self.expression_at_entry(location, Vaddr(entry))?;
        let (unit, _) = self.index().unit(location.die)?;
        match single_operation(expression, unit.encoding()) {
            // It may be overwritten already, and be where another parameter is passed.
            Some(Operation::Register { register }) => {
                if self.function.may_be_passed_in(parameter, register.0) {
                    Ok(EntryLocation::Register(register.0))
                } else {
                    Err(VariableUnavailable::Entry)
                }
            }
            Some(Operation::FrameOffset { offset }) if self.is_based_on_cfa() => {
                Ok(EntryLocation::Stack(offset))
            }
            _ => Ok(EntryLocation::Parameter(parameter.origin)),
        }
    }

    /// Whether the frame base is the CFA.
    fn is_based_on_cfa(&self) -> bool {
        let base = self.function.frame_base.as_ref();
        base.is_some_and(|base| {
            let AttributeValue::Exprloc(expression) = base.value else {
                return false;
            };
            let unit = self.index().unit(base.die);
            unit.is_ok_and(|(unit, _)| {
                matches!(
                    single_operation(expression, unit.encoding()),
                    Some(Operation::CallFrameCFA)
                )
            })
        })
    }

    /// The value of that location when the function was called.
    pub(super) fn entry_value(&self, target: EntryLocation) -> Result<u64, VariableUnavailable> {
        self.step()?;
        match (self.call_site_value(target), target) {
            (Err(absent), EntryLocation::Register(register)) if self.tail_calls.is_none() => {
                let known = self.stack.at_entry(self.number, register);
                known.ok_or(absent)
            }
            (found, _) => found,
        }
    }

    /// The value of that location by the entry of the call that led to the function.
    fn call_site_value(&self, target: EntryLocation) -> Result<u64, VariableUnavailable> {
        let way = match &self.tail_calls {
            Some(way) => way.clone(),
            None => self.call_path()?,
        };
        let deeper = self.nested()?;
        let last = way.count.checked_sub(1);
        let (function, call, outer) = match last.and_then(|last| way.tail_calls.get(last)) {
            Some((function, call)) => {
                let call = function
                    .calls
                    .get(*call)
                    .ok_or(VariableUnavailable::Entry)?;
                let lookup = Vaddr(call.at.unwrap_or_default());
                let outer = ExpressionEvaluator {
                    frame: VariableFrame {
                        lookup,
                        ..self.frame
                    },
                    function,
                    tail_calls: Some(CallPath {
                        count: way.count - 1,
                        ..way.clone()
                    }),
                    ..deeper
                };
                (function, call, outer)
            }
            None => {
                let number = self
                    .number
                    .checked_add(1)
                    .ok_or(VariableUnavailable::Entry)?;
                let function = &way.caller;
                let call = function
                    .calls
                    .get(way.call)
                    .ok_or(VariableUnavailable::Entry)?;
                let outer = ExpressionEvaluator {
                    number,
                    frame: self.stack.frame(number).ok_or(VariableUnavailable::Entry)?,
                    function,
                    tail_calls: None,
                    ..deeper
                };
                (function, call, outer)
            }
        };
        let same_file = std::ptr::eq(outer.index(), self.index());
        let mut given = call.parameters.iter();
        let given = given.find(|given| {
            given.target == target && (same_file || !matches!(target, EntryLocation::Parameter(_)))
        });
        outer.number(
            function.root,
            given.ok_or(VariableUnavailable::Entry)?.value,
        )
    }

    /// The path to the function of a frame, if it is unique.
    fn call_path(&self) -> Result<CallPath<'a>, VariableUnavailable> {
        let number = self
            .number
            .checked_add(1)
            .ok_or(VariableUnavailable::Entry)?;
        let frame = self.stack.frame(number).ok_or(VariableUnavailable::Entry)?;
        let returns_to = frame.returns_to.ok_or(VariableUnavailable::Entry)?;
        let function = frame.variables.function(frame.lookup)?;
        let function = function.ok_or(VariableUnavailable::Entry)?;
        let mut calls = function.calls.iter();
        let call = calls.position(|call| !call.is_tail && call.at == Some(returns_to.0));
        let call = call.ok_or(VariableUnavailable::Entry)?;
        let caller = ExpressionEvaluator {
            number,
            frame,
            function: &function,
            tail_calls: None,
            ..self.nested()?
        };
        let site = function.calls.get(call).ok_or(VariableUnavailable::Entry)?;
        let target = self.stack.callee_address(number);
        if target.is_none() && site.callee.is_some() {
            self.budget.is_guessed.set(true);
        }
        let ended = if self.is_called_by(&caller, site, target)? {
            Vec::new()
        } else {
            self.tail_calls_before(&caller, site, target)?
        };
        if self.may_tail_recurse()? {
            return Err(VariableUnavailable::Entry);
        }
        Ok(CallPath {
            caller: function,
            call,
            count: ended.len(),
            tail_calls: ended.into(),
        })
    }

    /// The functions between a call of the caller and this one, each ended with a tail call of the
    /// next.
    fn tail_calls_before(
        &self,
        caller: &ExpressionEvaluator<'_, 'a>,
        call: &DwarfCallSite<'a>,
        target: Option<u64>,
    ) -> Result<Vec<(Rc<DwarfFunction<'a>>, usize)>, VariableUnavailable> {
        let callee = call.callee.ok_or(VariableUnavailable::Entry)?;
        let first = self.function_at(caller.frame.variables, caller.index(), callee)?;
        // Another function of that name, in another module, was called.
        let is_it = |first: &Rc<DwarfFunction<'a>>| target.is_none_or(|to| self.is_at(first, to));
        let first = first.filter(is_it);
        let mut found: Option<Vec<(Rc<DwarfFunction<'a>>, usize)>> = None;
        // Paths so far, each with the function it leads to.
        let mut open = vec![(Vec::new(), first.ok_or(VariableUnavailable::Entry)?)];
        while let Some((way, function)) = open.pop() {
            for (nth, callee) in self.own_tail_calls(&function)? {
                self.step()?;
                let own = self.frame.variables;
                let Some(next) = self.function_at(own, &function.index, callee)? else {
                    continue;
                };
                let mut way: Vec<(Rc<DwarfFunction<'a>>, usize)> = way.clone();
                way.push((Rc::clone(&function), nth));
                if next.entry() == self.function.entry() {
                    // If there are two paths, the right one is unknown.
                    if found.replace(way).is_some() {
                        return Err(VariableUnavailable::Entry);
                    }
                } else if !way.iter().any(|(seen, _)| seen.entry() == next.entry()) {
                    open.push((way, next));
                }
            }
        }
        found.ok_or(VariableUnavailable::Entry)
    }

    /// The function's tail calls: their indices, and the entries of the functions called.
    fn own_tail_calls(
        &self,
        function: &DwarfFunction<'a>,
    ) -> Result<Vec<(usize, DieRef)>, VariableUnavailable> {
        let calls = function.calls.iter().enumerate();
        let tails = calls.filter(|(_, call)| call.is_tail);
        // If one has an unknown target, the whole path is unknown.
        tails
            .map(|(nth, call)| Ok((nth, call.callee.ok_or(VariableUnavailable::Entry)?)))
            .collect()
    }

    /// The function of this module for an entry: its own, or a declaration of one elsewhere.
    fn function_at(
        &self,
        of: &Variables<'a>,
        index: &DieIndex<'a>,
        die: DieRef,
    ) -> Result<Option<Rc<DwarfFunction<'a>>>, VariableUnavailable> {
        let variables = self.frame.variables;
        let entry = index.entry(die)?;
        let ranges = if std::ptr::eq(of, variables) {
            index.ranges(die, &entry)?
        } else {
            Vec::new()
        };
        let own = ranges.first().map(|range| Vaddr(range.start));
        let address = match own {
            Some(own) => Some(own),
            None => {
                let (origin, said) = index.origin(die, &entry)?;
                let name = linkage_name(index, origin, &said);
                name.and_then(|name| variables.address_of(&name))
            }
        };
        Ok(match address {
            Some(address) => variables.function(address)?,
            None => None,
        })
    }

    /// Whether the function may have been reached by a tail call from itself, or from a function
    /// that it tail-calls.
    fn may_tail_recurse(&self) -> Result<bool, VariableUnavailable> {
        let mut seen = Vec::new();
        let tails = |function: &DwarfFunction<'a>| {
            let tails = self.own_tail_calls(function)?.into_iter();
            let with_index = tails.map(|(_, callee)| (Rc::clone(&function.index), callee));
            Ok::<Vec<_>, VariableUnavailable>(with_index.collect())
        };
        let mut open = tails(self.function)?;
        while let Some((index, callee)) = open.pop() {
            self.step()?;
            let own = self.frame.variables;
            let Some(function) = self.function_at(own, &index, callee)? else {
                continue;
            };
            if function.entry() == self.function.entry() {
                return Ok(true);
            }
            if !seen.contains(&function.entry()) {
                seen.push(function.entry());
                open.extend(tails(&function)?);
            }
        }
        Ok(false)
    }

    /// Whether a function of this frame's module begins at an address of the process.
    fn is_at(&self, function: &DwarfFunction<'a>, address: u64) -> bool {
        let entry = function.entry();
        entry.map(|entry| entry.wrapping_add(self.frame.bias)) == Some(address)
    }

    /// Whether the caller's call directly calls this frame's function, and not one that tail-called
    /// it.
    fn is_called_by(
        &self,
        caller: &ExpressionEvaluator<'_, 'a>,
        call: &DwarfCallSite<'a>,
        target: Option<u64>,
    ) -> Result<bool, VariableUnavailable> {
        if let Some(target) = target {
            return Ok(self.is_at(self.function, target));
        }
        if let Some(callee) = call.callee {
            let index = caller.index();
            let (origin, said) = index.origin(callee, &index.entry(callee)?)?;
            if std::ptr::eq(index, self.index()) && origin == self.function.origin {
                return Ok(true);
            }
            let Some(name) = linkage_name(index, origin, &said) else {
                return Ok(false);
            };
            let address = self.frame.variables.address_of(&name);
            return Ok(address.is_some() && address.map(|at| at.0) == self.function.entry());
        }
        let Some(target) = call.target else {
            return Ok(false);
        };
        let target = caller.number(caller.function.root, target)?;
        Ok(self.is_at(self.function, target))
    }
}
