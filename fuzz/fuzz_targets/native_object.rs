//! Any bytes as an object of machine code: nothing panics. And an object that is made and changed is
//! rejected.
//!
//! The first byte chooses: the bytes as they are, or changes of an object.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use unspool_native_table::{ModuleKey, ObjectView, Outline, object};
use unspool_rows::text;

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    if choice % 2 == 0 {
        read(rest);
        return;
    }
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    let made = MADE.get_or_init(self::made);
    let mut changed = made.clone();
    for change in rest.chunks_exact(3) {
        let at = usize::from(change[0]) | usize::from(change[1]) << 8;
        let length = changed.len();
        changed[at % length] ^= change[2];
    }
    assert_eq!(read(&changed), changed == *made);
});

/// Whether the bytes are an object; asks for all that it has.
fn read(bytes: &[u8]) -> bool {
    let Ok(view) = ObjectView::parse(bytes) else {
        return false;
    };
    let mapped = view.mapped();
    assert!(
        mapped
            .iter()
            .all(|segment| segment.bytes.len() <= bytes.len())
    );
    assert!(
        view.key()
            .is_none_or(|key| key.build_id.len() <= bytes.len())
    );
    true
}

fn made() -> Vec<u8> {
    let table = text::parse(text::EXAMPLE).expect("the documented example");
    let outline = Outline::from_table(&table).expect("a table of x86-64");
    let key = ModuleKey {
        build_id: b"example",
        content: &[0; 20],
    };
    object(&outline, key).expect("a small table")
}
