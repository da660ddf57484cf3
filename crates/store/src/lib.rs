//! Where files lie elsewhere: stores of objects, web servers, and the folders of this machine in the same form.
//!
//! A [`Store`] is what a URL leads to, with its credentials and the client that all share. It [lists](Store::list) what is
//! below a prefix, page after page, so that the size of a listing costs no memory; each [`Object`] of it is read in
//! [ranges](Object::read), and every reply is compared with the state in which the object was found ([`Fingerprint`]).
//!
//! An object is [written](Store::put) in one request, or [begun](Store::begin), sent in parts, many at once, and completed: then it
//! can be seen, and not before. What was interrupted is [gone on with](Store::resume) by another process that has kept what was
//! [`Begun`] and which [`UploadedPart`]s are done; or it is [thrown away](Store::discard). Conditions ([`OnExisting`]) are for the store to
//! look at, so that of two that write only one wins. A checksum goes along with what is sent where the store compares it, and what
//! is written says whether it did ([`Verified`]).
//!
//! What is temporary is tried again ([`Retries`]): after pauses that double, or that the other side asks for; bytes that came
//! before a cut are kept, and only the rest is asked for again.
//!
//! Here live URLs, credentials, requests and their failures. What may not: memory budgets, limits on how much is asked for at
//! once, and what becomes of the bytes. Those who call decide that, since they know what else is going on.
//!
//! # What was rejected
//!
//! - *OpenDAL's retry layer*: it asks for a range again from its beginning, and does not know how long the other side asks
//!   us to wait.
//! - *OpenDAL's writers*: they keep the ids of uploads to themselves, so what was interrupted would be sent again as a whole.
//!   What is written is asked for by requests of our own, signed by the same crates with the same options.
//! - *Signing the bodies*: a SHA-256 of all bytes costs a core. A CRC costs little, and the store compares it as well.
//! - *MD5 instead, where a store knows no other checksum*: the same. What such a store got is not verified, and it is said so.
//! - *`If-Match` on every request*: weak tags never match by the rules of HTTP, and proxies are known to ignore it. The
//!   reply has to be looked at anyway.

mod attempt;
mod error;
mod fingerprint;
mod list;
mod local;
mod origin;
mod patience;
mod read;
mod store;
mod transport;
mod upload;
mod url;
mod walk;

pub use attempt::{AttemptError, Receiver, receive, state};
pub use error::StoreError;
pub use fingerprint::Fingerprint;
pub use list::{Listing, Object};
pub use origin::Origin;
pub use patience::Retries;
pub use read::Take;
pub use store::{Counts, Store};
pub use transport::Seen;
pub use upload::{
    Begun, Body, Limits, OnExisting, PartWriter, Sent, Stored, Upload, UploadedPart, Verified, Writing,
    part_size,
};
