//! Speaking over a network: addresses, connections, and many connections that lead into one source.
//!
//! A source that listens owns its outlet and gives each connection a clone ([`serve`]): connections send on their own
//! tasks, independently of each other, and stand together on the source's one share of the memory budget. A connection
//! waits until there is something to read, then until the budget has room, and only then reads ([`StreamReader`]); what is
//! idle holds nothing, and what is not read stays with the peer, whom the system slows down. A queue of readings
//! between the connections and one task that sends was rejected: it adds a hop and a bound to choose, and the order
//! within a connection, which is all there is to keep, is kept without it.
//!
//! A connection that waits for messages of which it has a piece holds the budget that the piece takes. Were the whole
//! budget held so, nobody could go on; therefore such a wait for room has an end (`read_timeout`), after which the
//! connection is closed, and its piece leaves by `errors`.

mod address;
mod connection;
mod datagrams;
pub mod defaults;
mod intake;
mod listener;
mod serve;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

pub use address::Address;
pub use connection::{Answers, Connection, Respond};
pub use datagrams::receive;
pub use intake::{Cut, Format, Plain, StreamReader};
pub use listener::{Accepted, Announce, Datagrams, Listener, UnixSocket};
pub use serve::{Client, Limits, Owner, serve};
pub use stream::{Dial, Stream, connect_udp, net_error};
