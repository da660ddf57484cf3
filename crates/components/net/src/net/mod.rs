//! Network access: addresses, connections, and many connections that feed one source.
//!
//! A listening source owns its source output and gives each connection a clone ([`serve`]). Connections send
//! from their own tasks, independently of each other. All of them draw on the source's one share of the
//! memory budget.
//!
//! A connection waits until there is data, then until the budget has capacity, and only then reads
//! ([`StreamReader`]). Idle connections hold no memory. Unread data stays with the peer, and the system's
//! flow control slows the peer down. The rejected alternative was a queue of readings between the connections
//! and one sending task. It adds a hop and a bound to choose. The order within a connection is the only order
//! to keep, and it is kept without the queue.
//!
//! A connection that has received part of a message holds a lease for that part. If such leases took the
//! whole budget, no connection could continue. Therefore this wait for capacity has a limit, `read_timeout`,
//! and a message must arrive within `read_timeout`. The connection is otherwise closed and its partial
//! message leaves by `errors`. If incomplete messages hold all memory, the oldest is dropped
//! ([`thalweg_record::Incomplete`]). If all places for connections are taken, a new client gets that of
//! another connection ([`Places`]).
//!
//! See docs/decisions/042-connections-send-by-themselves.md.

mod address;
mod bodies;
mod connection;
mod datagrams;
pub mod defaults;
mod gelf;
mod handover;
mod listener;
mod options;
mod places;
mod serve;
mod sockets;
mod stream;
mod stream_reader;
#[cfg(test)]
pub(crate) mod testing;
mod unmeant;
mod until;

pub use address::Address;
pub use bodies::cuts_of;
pub use connection::{Answers, Connection, Respond};
pub use datagrams::receive;
#[doc(hidden)]
pub use gelf::joined;
pub use handover::{Copied, Handover};
pub use listener::{Accepted, Announce, Datagrams, Listener, UnixSocket};
pub use options::{DialOptions, ListenOptions, SocketOptions};
pub use places::{FAREWELL, Peer, Place, Places, Standing};
pub use serve::{Activity, Client, Limits, Owner, UnderWay, serve, serve_beside};
pub use stream::{Dial, Stream, connect_udp, net_error};
pub use stream_reader::{Cut, Cuts, Format, Plain, Rejected, Sent, StreamReader};
pub use unmeant::{check_fetch_size, check_timeout, long_time};
pub use until::until;
