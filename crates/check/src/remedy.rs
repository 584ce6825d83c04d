//! Remedies for findings that no single directive repairs.

use crate::finding::{Finding, FindingCode, Severity};
use crate::hint::Hint;
use crate::places::CodePlaces;

impl Finding {
    /// A remedy, in a sentence.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.remedy_with(&CodePlaces::default())
    }

    /// The same, with places named so.
    pub(crate) fn remedy_with(&self, places: &CodePlaces) -> String {
        if let Some(fix) = &self.fix {
            return format!("write before {:x}: {fix}", self.address.0);
        }
        let register = self.subject.rsplit(' ').next().unwrap_or_default();
        match self.code {
            _ if matches!(self.hint, Some(Hint::BelowRedZone { .. })) => {
                "move the stack pointer below the slot before it is used".to_owned()
            }
            FindingCode::RegisterLost | FindingCode::SavedElsewhere if self.severity == Severity::Unproven => {
                "if the row is right, unspool check --run or --call shows it by single-stepping; then it can be allowed with that reason"
                    .to_owned()
            }
            FindingCode::CfaOffset if self.subject != "the CFA" => format!(
                "remove the rule of {register}: without one, the caller's is the CFA"
            ),
            FindingCode::CfaOffset | FindingCode::CfaRegister => {
                "have a register keep its distance from the CFA, and name that: .cfi_def_cfa %rbp, 16 after push %rbp and mov %rsp, %rbp"
                    .to_owned()
            }
            FindingCode::SavedElsewhere | FindingCode::RegisterLost | FindingCode::PrivateConvention => format!(
                "keep the caller's {register} where it is saved until it is restored; if it is lost by agreement, write .cfi_undefined %{register} after the instruction that overwrites it"
            ),
            FindingCode::NoEntry => {
                "put it between .cfi_startproc and .cfi_endproc, with what it does to the stack: unspool annotate writes that".to_owned()
            }
            FindingCode::EntryTooShort => {
                "move .cfi_endproc after the last instruction; if this one never returns, write ud2 after it".to_owned()
            }
            FindingCode::HeightsDiffer => match self.hint {
                Some(Hint::CallBeforeJoin { call }) => format!(
                    "if {} does not return, write ud2 after it; else give back after it what was pushed before",
                    places.call(call)
                ),
                Some(Hint::ComesBack { from, .. }) => format!(
                    "before {}, give back what was pushed since here, or keep the CFA in rbp",
                    places.place(from)
                ),
                _ => "have both paths push the same, or keep the CFA in rbp: no directive helps".to_owned(),
            },
            FindingCode::Expression => {
                "write another expression: unspool expr prints the line for a formula".to_owned()
            }
            FindingCode::Outermost => "write .cfi_undefined %rip after .cfi_startproc".to_owned(),
            FindingCode::InsideInstruction => {
                "move the directive between two instructions".to_owned()
            }
            FindingCode::ReturnAddress => {
                "keep the return address in its slot, or say where it is: .cfi_offset %rip, N or .cfi_register %rip, %reg; if nobody called, .cfi_undefined %rip".to_owned()
            }
            FindingCode::SignalFrame if self.computed.is_empty() => {
                "write a nop before the label, inside of the entry, after all directives".to_owned()
            }
            FindingCode::SignalFrame => format!("have the rule of {register} read {}", self.computed),
            FindingCode::Unreached => {
                "step through it with a debugger; code that is entered from elsewhere can have an entry of its own".to_owned()
            }
            FindingCode::UnknownInstruction | FindingCode::GivenUp => {
                "unspool check --run or --call shows by single-stepping whether its rows are right".to_owned()
            }
            FindingCode::Allow => "write a code and a reason, or remove the comment".to_owned(),
            FindingCode::SframeRow | FindingCode::SframeHole | FindingCode::SframeEntry => {
                "write the section again: unspool convert FILE --from eh_frame --emit sframe --into FILE".to_owned()
            }
            FindingCode::SframeOrder => {
                "make one section of them: unspool convert FILE --from sframe --emit sframe --into FILE".to_owned()
            }
        }
    }
}
