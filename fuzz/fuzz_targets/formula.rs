//! Any text as a statement, and any bytes as an expression: nothing panics, errors point into the text, and a formula
//! that is printed and read again is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_rows::formula::{Formula, InitialStack, OperationsText, Statement};
use unspool_rows::{Abi, Arch, Endian, Expression};

fuzz_target!(|data: &[u8]| {
    let [choice, bytes @ ..] = data else {
        return;
    };
    let arch = Arch::KNOWN[usize::from(choice & 3)];
    let abi = Abi {
        arch,
        endian: Endian::Little,
    };
    let text = String::from_utf8_lossy(bytes);
    match Statement::parse(&text, abi) {
        Ok(statement) => {
            let printed = OperationsText(&statement, abi).to_string();
            assert_eq!(Statement::parse(&printed, abi), Ok(statement), "{printed}");
        }
        Err(error) => assert!(error.at <= text.len() && text.is_char_boundary(error.at)),
    }
    let initial = match choice & 4 {
        0 => InitialStack::Nothing,
        _ => InitialStack::Cfa,
    };
    if let Ok(formula) = Formula::from_expression(Expression(bytes), abi, initial) {
        let again =
            Formula::parse(&formula.to_string(), abi).expect("what is printed is a formula");
        assert_eq!(again.to_string(), formula.to_string());
        assert_eq!(again.assemble(), formula.assemble(), "{formula}");
    }
});
