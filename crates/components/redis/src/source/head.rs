//! The removal of the first element of a list, which is too large to be named.
//!
//! The server may execute a command of a broken connection late, when another connection has removed the
//! element already. It would then remove the next element, which would be lost. So the removal is a
//! transaction that does nothing if the list has changed since it was read.

use thalweg_engine::Error;

use crate::connection::{Connection, refused};
use crate::resp::{Commands, Limits, Reply};

/// Removes the first element of a list that had `length` elements before it was read. Returns false if the
/// list has changed since: nothing was removed then.
///
/// # Errors
/// If the server refuses the removal, or the connection breaks. The connection is of no use then. The removal
/// may be repeated on another one, because it looks at the list first.
pub(super) async fn remove(connection: &mut Connection, list: &str, length: i64) -> Result<bool, Error> {
    let list = list.as_bytes();
    let mut look = Commands::default();
    look.push(&[b"WATCH", list]);
    look.push(&[b"LLEN", list]);
    let found = replies(connection, &look).await?;
    let mut removal = Commands::default();
    if found.last() != Some(&Reply::Number(length)) {
        removal.push(&[b"UNWATCH"]);
        return replies(connection, &removal).await.map(|_| false);
    }
    removal.push(&[b"MULTI"]);
    removal.push(&[b"LTRIM", list, b"1", b"-1"]);
    removal.push(&[b"EXEC"]);
    let done = replies(connection, &removal).await?;
    // The reply is nothing if the list has changed since `WATCH`.
    Ok(matches!(done.last(), Some(Reply::List(_))))
}

/// Sends commands, and returns their replies.
async fn replies(connection: &mut Connection, commands: &Commands) -> Result<Vec<Reply>, Error> {
    connection.send(commands).await?;
    let mut replies = Vec::new();
    for _ in 0..commands.count() {
        match connection.reply(Limits::SMALL).await? {
            Reply::Error(error) => return Err(refused("an element cannot be removed", &error)),
            reply => replies.push(reply),
        }
    }
    Ok(replies)
}
