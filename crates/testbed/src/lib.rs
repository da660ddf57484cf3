//! Real servers on loopback, and faults on the way to them, for tests and benchmarks.
//!
//! What copies between stores is only as good as what it was tried against. A server that a test makes up knows what the
//! test's author knows: it takes every signature, its conditions are never raced, and a multipart upload is whatever the
//! client under test believes it to be. So the stores here are programs of others, started as anybody would start them:
//! [`S3`] is versitygw over a folder, [`Azure`] is azurite, [`WebDav`] is wsgidav. [`WebFiles`] is a folder over plain HTTP, in this process.
//! Each runs on a free port of loopback while its value lives, and with the value the process and the folder go. Keep one
//! in a test, not in a `static`: nothing is dropped there, and the program would stay behind.
//!
//! Real servers rarely fail when they are wanted to. [`Proxy`] stands between a client and any of them, passes bytes as
//! they are (so that signatures hold), and does wrong by rule: late, cut off, answered by itself, answered after the
//! deed, too slow, the wrong length, another entity tag, never. It also writes down what was asked.
//!
//! The programs are installed by `make tools`; [`Tools`] finds them. One that is missing is an error and never a test that
//! is left out: what is skipped quietly is not tested.
//!
//! What may not live here: anything that the program itself needs (this crate is for `dev-dependencies` and the
//! benchmark), knowledge of thalweg's own crates (it depends on none of them, so that any of them can be tested with
//! it), and servers that only pretend to be a store.

mod ask;
mod azure;
mod background;
mod escape;
mod program;
mod proxy;
mod s3;
mod tools;
mod web;
mod webdav;

pub use azure::Azure;
pub use proxy::{Fault, Proxy, Rule, Seen, Times};
pub use s3::S3;
pub use tools::Tools;
pub use web::WebFiles;
pub use webdav::WebDav;
