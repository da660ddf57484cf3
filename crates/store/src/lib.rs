//! Remote files: object stores, web servers, and the folders of this machine behind one interface.
//!
//! A [`Store`] is created from a URL and holds its credentials and the shared client. It [lists](Store::list)
//! the objects below a prefix page by page, so that memory does not depend on the size of a listing. Each
//! listed [`Object`] is read in [ranges](Object::read). Every reply is compared with the state in which the
//! object was found ([`Fingerprint`]).
//!
//! An object is [written](Store::put) in one request. Or an upload is [begun](Store::begin), sent in parts,
//! several at once, and completed; the object becomes visible only then. Another process can
//! [resume](Store::resume) an interrupted upload if it has the saved [`Begun`] and the finished
//! [`UploadedPart`]s; or it can [discard](Store::discard) it. The store checks conditions ([`OnExisting`]),
//! so that of two concurrent writers only one wins. A checksum is sent with the data where the store compares
//! it. The result of a write tells whether the store did ([`Verified`]).
//!
//! Temporary failures are retried ([`Retries`]), after pauses that double or that the server asks for. Bytes
//! that arrived before a connection broke are kept, and only the rest is requested again.
//!
//! [`AmazonSigner`] signs requests to services of Amazon that are no stores, with credentials from the same
//! places.
//!
//! This crate contains URLs, credentials, requests and their failures. Memory budgets, limits on concurrency,
//! and the use of the bytes do not belong here. The caller decides on those, because it knows what else is
//! running.
//!
//! # What was rejected
//!
//! - *OpenDAL's retry layer*: it requests a range again from its beginning, and does not know how long the
//!   server asks us to wait.
//! - *OpenDAL's writers*: they do not expose the ids of uploads, so an interrupted upload would be sent again
//!   as a whole. Writes are requests of our own, signed by the same crates with the same options.
//! - *Signing the bodies*: a SHA-256 of all bytes costs a core. A CRC costs little, and the store compares it
//!   as well.
//! - *MD5 instead, where a store supports no other checksum*: the same cost. Uploads to such a store are not
//!   verified, and the result says so.
//! - *`If-Match` on every request*: by the rules of HTTP weak tags never match, and some proxies ignore it.
//!   The reply must be checked anyway.
//!
//! See docs/decisions/037-replies-are-checked-and-retried-here.md.

mod amazon;
mod answers;
mod attempt;
mod error;
mod fields;
mod fingerprint;
mod folders;
mod list;
mod local;
mod origin;
mod patience;
mod read;
mod repeats;
mod store;
mod transport;
mod upload;
mod url;
mod walk;

pub use amazon::{AmazonAccess, AmazonSigner, SigningError};
pub use attempt::{AttemptError, Receiver, receive, state};
pub use error::StoreError;
pub use fingerprint::Fingerprint;
pub use list::{Entry, Listing, Object};
pub use origin::Origin;
pub use patience::Retries;
pub use read::Take;
pub use store::{Counts, Store};
pub use transport::Seen;
#[doc(hidden)]
pub use upload::fuzzing;
pub use upload::{
    Begun, Body, Limits, OnExisting, PartWriter, Sent, Stored, Upload, UploadedPart, Verified, Writing,
    part_size,
};
