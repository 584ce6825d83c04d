//! Steps by machine code of tables.

use unspool_native_table::StepStatus;
use unspool_rows::RuntimeAddr;
use unspool_rows::memory::read_uint;
use unspool_unwind::native::{NativeFrame, NativeMemory};
use unspool_unwind::steps::{Arrival, StepAddress};

use super::{ClientCursor, ObjectUse, RETURN_ADDRESS, STACK_POINTER, WalkStart};
use crate::abi::Error;
use crate::remote_cfi::ABI;
use crate::sys::own;

impl<'s> ClientCursor<'s> {
    /// Steps by the machine code for the frame's address, if there is some and it finds a caller,
    /// or proves that there is none. `None` leaves the frame to its rule.
    #[inline(never)]
    pub(super) fn step_by_object(&mut self) -> Option<Result<bool, Error>> {
        let (ObjectUse::Usable(start) | ObjectUse::Used(start)) = self.objects else {
            return None;
        };
        let (client, code) = (self.client, self.code());
        let found = client.space.object(client, code)?;
        let mut frame = match self.locations.values() {
            Some((values, known)) => NativeFrame {
                values: *values,
                known,
                cfa: 0,
            },
            None => NativeFrame::from_registers(&self.values()),
        };
        let left = self.stack_pointer();
        // The lowest word read above the frame's stack pointer.
        let mut lowest = u64::MAX;
        let mut memory = NativeMemory {
            stack: &[],
            read: |address, size| {
                let number = self.number_at(address, size)?;
                if address >= left {
                    lowest = lowest.min(address);
                }
                Some(number)
            },
        };
        let address = found.bias.to_vaddr(code.lookup());
        let status = found
            .code
            .step(&mut frame, address, found.bias, &mut memory)?;
        let is_interrupted = match status {
            StepStatus::Caller => false,
            StepStatus::Interrupted => true,
            StepStatus::Outermost => return Some(Ok(self.end())),
            _ => return None,
        };
        let ip = frame.get(RETURN_ADDRESS.0)?;
        let stack_pointer = frame.get(STACK_POINTER.0)?;
        self.objects = ObjectUse::Used(start);
        self.locations
            .set_values(stack_pointer, frame.values, frame.known);
        let climbs = lowest < stack_pointer;
        Some(self.arrive_by_object(left, ip, climbs).map(|()| {
            if is_interrupted {
                self.step_address = StepAddress::new(ip, stack_pointer, Arrival::Interrupted);
            }
            // An interrupted frame can be at 0, by the fault of a call there.
            ip != 0 || is_interrupted
        }))
    }

    /// Moves to the caller of a frame with the stack pointer `left`, as after a step by a row.
    fn arrive_by_object(&mut self, left: u64, ip: u64, climbs: bool) -> Result<(), Error> {
        if !climbs {
            self.cycle.change_stack()?;
        }
        self.arrive(left, ip)
    }

    /// The number of `size` bytes at an address.
    fn number_at(&mut self, address: u64, size: u64) -> Option<u64> {
        match size {
            8 => self.stack_word(address).ok(),
            _ => {
                let size = u8::try_from(size).ok()?;
                let memory = self.client.memory();
                read_uint(&memory, RuntimeAddr(address), size, ABI.endian).ok()
            }
        }
    }

    /// Finds the locations of the frame's registers, by a second walk to it, by rules. The walk
    /// then continues by rules. If the target has changed meanwhile, the locations stay unknown.
    pub(super) fn find_places(&mut self) {
        let ObjectUse::Used(start) = self.objects else {
            return;
        };
        self.objects = ObjectUse::Unused;
        let Some(mut again) = self.at_start(start) else {
            return;
        };
        let here = (self.step_address, self.stack_pointer());
        let is_here = |again: &Self| (again.step_address, again.stack_pointer()) == here;
        while !is_here(&again) && again.step() > 0 {}
        if is_here(&again) {
            *self = again;
        }
    }

    fn at_start(&self, start: WalkStart) -> Option<ClientCursor<'s>> {
        let start = match start {
            WalkStart::Innermost => ClientCursor::innermost(self.client, self.client.top().ok()?),
            WalkStart::Stored { is_interrupted } => {
                own::cursor(self.client.argument, is_interrupted)
            }
        };
        Some(start.without_objects())
    }

    /// Continues the walk by rules: machine code would not see a register that is about to be
    /// changed.
    pub(crate) fn use_rules(&mut self) {
        self.find_places();
        self.objects = ObjectUse::Unused;
    }
}
