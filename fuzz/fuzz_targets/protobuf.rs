//! Any bytes as a message of Protocol Buffers: reading ends, and what was read and is written
//! again reads the same.
#![no_main]

use http::saga::protobuf::{Fields, Message, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut message = Message::default();
    let mut read = Vec::new();
    for field in Fields(bytes) {
        let Ok((number, value)) = field else { return };
        match value {
            // Zero is what is left out.
            Value::Number(0) => continue,
            Value::Number(value) => message.number(number, value),
            Value::Bytes(inner) => {
                let _ = (value.text(), value.pair());
                message.message(number, inner);
            }
        }
        read.push((number, value));
    }
    let again: Vec<_> = Fields(&message.0).map(|field| field.expect("it was written")).collect();
    assert_eq!(again, read);
});
