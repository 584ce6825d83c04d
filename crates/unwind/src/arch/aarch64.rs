//! AArch64: its frame pointer (AAPCS64 §6.4.6).

use unspool_rows::Register;

pub(crate) const FP: Register = Register(29);
