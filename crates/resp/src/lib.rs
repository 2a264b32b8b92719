//! RESP2 and RESP3, the protocol of Redis: requests parsed as offsets into the bytes that came
//! in, replies written as bytes. No sockets, no keys.

pub mod encode;
pub mod number;
pub mod reply;
pub mod request;
pub mod writer;

pub use encode::write_request;
pub use request::{Args, OwnedArgs, Parser, Requests};
pub use writer::{Later, Writer};
