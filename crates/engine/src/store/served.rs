//! Dead letters of a running process, for another process of the same user.
//!
//! The database has one process at a time, so a second one cannot read it. The process that has it open
//! answers instead: a thread serves the dead letters on a local socket, and `thalweg errors list`, `show` and
//! `clear` ask there. To read the files of the database without its lock was rejected: they change while they
//! are read, and opening them writes.
//!
//! The socket has an abstract name, made of the device and the inode of the directory. So a killed process
//! leaves no file behind in the directory, whose files are compared with their inventory, and the path may
//! have any length. Such a name has no rights: each side looks at the user of the other one. Another user may
//! have taken the name: the run then goes on without this server, and a client finds no run. Linux has
//! abstract names; elsewhere, dead letters can be listed while no run uses them.
//!
//! A client asks for a page, or for the removal of letters, with a line of JSON, and gets lines of JSON. Each
//! request is a connection, so that a client that shows a page for an hour holds nothing here. One client is
//! served at a time. A removal is on the disk before it is answered.
//!
//! See docs/decisions/097-a-service-is-watched-from-outside.md and
//! docs/decisions/110-a-running-process-removes-its-dead-letters.md.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with,
    sockopt::socket_peercred,
};
use serde::{Deserialize, Serialize};

use super::faults::Faults;
use super::{DeadLetter, DeadLetterId, Owner, Store, owner};
use crate::Error;

/// A page ends after this many bytes of letters.
const PAGE: usize = 1 << 20;
/// The most letters that one request removes.
const MOST_REMOVED: usize = 4096;
/// The longest request, and the longest answer: a number has up to 20 digits and a comma, and a letter has a
/// message as a whole.
const LONGEST_REQUEST: u64 = 256 + 21 * MOST_REMOVED as u64;
const LONGEST_ANSWER: u64 = 1 << 30;
/// How long a side waits for the other one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a failure to accept a client, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);
const ROOT: u32 = 0;

/// A request for a page. Changes are made before.
#[derive(Default, Serialize, Deserialize)]
struct Request {
    /// Only letters with higher numbers.
    after: DeadLetterId,
    /// At most this many.
    most: u64,
    /// The letters to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remove: Vec<DeadLetterId>,
    /// True if the number of dropped letters is reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forget_dropped: bool,
}

/// A line of an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first line: the number of letters that were dropped.
    Dropped(u64),
    /// The second line, if a change was asked for: the number of letters that were removed.
    Changed(u64),
    Letter {
        id: DeadLetterId,
        letter: Box<DeadLetter>,
    },
    /// The last line, if there are more letters.
    More,
    /// The last line, after the last letter.
    End,
    /// The last line, if the store cannot be read.
    Failed(String),
}

/// Returns the abstract name of the process that has the store of this directory open.
fn name(folder: &Path) -> io::Result<String> {
    let found = fs::metadata(folder)?;
    Ok(format!("thalweg-letters-{:x}-{:x}", found.dev(), found.ino()))
}

/// Returns an error unless the other side belongs to one of these users.
fn check_peer(stream: &UnixStream, users: &[u32]) -> io::Result<()> {
    match users.contains(&socket_peercred(stream)?.uid.as_raw()) {
        true => Ok(()),
        false => Err(io::Error::other("the other process belongs to another user")),
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Serves the dead letters of an open store until it is dropped.
pub(crate) struct LettersServer {
    serving: Arc<Serving>,
    thread: Option<JoinHandle<()>>,
}

struct Serving {
    listener: UnixListener,
    /// The client that is served now.
    client: Mutex<Option<UnixStream>>,
    has_ended: AtomicBool,
}

impl LettersServer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the socket or the thread cannot be made.
    pub(crate) fn start(store: &Arc<Store>, folder: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(folder)?)?)?;
        let serving =
            Arc::new(Serving { listener, client: Mutex::default(), has_ended: AtomicBool::new(false) });
        // The thread does not keep the store open.
        let (store, own) = (Arc::downgrade(store), serving.clone());
        let thread = thread::Builder::new().name("dead letters".to_owned());
        let thread = thread.spawn(move || own.serve(&store))?;
        Ok(Self { serving, thread: Some(thread) })
    }
}

impl Drop for LettersServer {
    fn drop(&mut self) {
        self.serving.has_ended.store(true, Ordering::SeqCst);
        if let Some(client) = &*self.serving.client.lock() {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
        // Wakes the thread that waits for a client.
        let _ = shutdown(&self.serving.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // Its store must be closed before the next run opens it.
            let _ = thread.join();
        }
    }
}

impl Serving {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn serve(&self, store: &Weak<Store>) {
        while !self.has_ended() {
            let accepted = self.listener.accept();
            match accepted.and_then(|(stream, _)| Ok((stream.try_clone()?, stream))) {
                Ok((stream, own)) => {
                    *self.client.lock() = Some(own);
                    // Only now can the end interrupt the answer.
                    let Some(store) = store.upgrade().filter(|_| !self.has_ended()) else { return };
                    if let Err(error) = answer(&stream, &store) {
                        tracing::debug!("a client that lists dead letters got no answer: {error}");
                    }
                    drop(store);
                    *self.client.lock() = None;
                }
                Err(_) if self.has_ended() => return,
                Err(error) => {
                    tracing::debug!("a client that lists dead letters was not accepted: {error}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// Changes the store, and returns the number of letters that were removed.
fn change(store: &Store, remove: &[DeadLetterId], forget_dropped: bool) -> Result<u64, Error> {
    let removed = if remove.is_empty() { 0 } else { store.remove_letters(remove)? };
    if forget_dropped {
        store.forget_dropped()?;
    }
    Ok(removed)
}

/// Answers one request.
fn answer(stream: &UnixStream, store: &Store) -> io::Result<()> {
    check_peer(stream, &[own_user(), ROOT])?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    BufReader::new(stream.take(LONGEST_REQUEST)).read_line(&mut request)?;
    let Request { after, most, remove, forget_dropped } = serde_json::from_str(&request)?;
    let changed = (!remove.is_empty() || forget_dropped).then(|| change(store, &remove, forget_dropped));
    let mut out = BufWriter::new(stream);
    let mut line = |line: &Line| -> io::Result<()> {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n")
    };
    line(&Line::Dropped(store.tally().dropped))?;
    match changed.transpose() {
        Ok(removed) => removed.into_iter().try_for_each(|removed| line(&Line::Changed(removed)))?,
        Err(error) => {
            line(&Line::Failed(error.full()))?;
            return out.flush();
        }
    }
    let (mut bytes, mut count) = (0, 0);
    let mut last = Line::End;
    for found in store.letters_after(after) {
        if count >= most || bytes >= PAGE {
            last = Line::More;
            break;
        }
        match found {
            Ok((id, letter)) => {
                bytes += letter.size();
                count += 1;
                line(&Line::Letter { id, letter: Box::new(letter) })?;
            }
            Err(error) => {
                last = Line::Failed(error.full());
                break;
            }
        }
    }
    line(&last)?;
    out.flush()
}

/// The dead letters of a run in another process.
pub struct RunningLetters {
    folder: PathBuf,
    /// The users that may answer: this one, root, and the user of the directory.
    users: [u32; 3],
}

/// A part of the letters.
#[derive(Default)]
struct Page {
    dropped: u64,
    /// The number of letters that were removed, if a change was asked for.
    changed: Option<u64>,
    letters: VecDeque<(DeadLetterId, DeadLetter)>,
    /// True if there are no more.
    is_last: bool,
}

impl RunningLetters {
    /// Returns the letters of a directory if a run in another process uses it now.
    ///
    /// # Errors
    /// If the directory belongs to another configuration.
    pub fn find(folder: &Path, owner: Option<&Owner>) -> Result<Option<Self>, Error> {
        let Ok(found) = fs::metadata(folder) else { return Ok(None) };
        let this = Self { folder: folder.to_owned(), users: [own_user(), ROOT, found.uid()] };
        if this.connect().is_err() {
            return Ok(None);
        }
        if let Some(owner) = owner {
            owner::check(folder, owner, &Faults::of(folder))?;
        }
        Ok(Some(this))
    }

    fn connect(&self) -> io::Result<UnixStream> {
        // A blocking call would wait for as long as the socket of a stranger accepts no one.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name(&self.folder)?.as_bytes())?)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        check_peer(&stream, &self.users)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Returns the number of letters that were dropped.
    ///
    /// # Errors
    /// If the run has ended meanwhile.
    pub fn dropped(&self) -> Result<u64, Error> {
        Ok(self.page(&Request { after: DeadLetterId::MAX, ..Request::default() })?.dropped)
    }

    /// Removes letters, and returns how many of them there were. They are gone for good when it returns. If a
    /// request fails, those of the requests before it are gone.
    ///
    /// # Errors
    /// If the run has ended meanwhile, or cannot write.
    pub fn remove(&self, ids: &[DeadLetterId]) -> Result<u64, Error> {
        let requests = ids.chunks(MOST_REMOVED);
        requests.map(|ids| self.change(Request { remove: ids.to_vec(), ..Request::default() })).sum()
    }

    /// Resets the number of dropped dead letters.
    ///
    /// # Errors
    /// If the run has ended meanwhile, or cannot write.
    pub fn forget_dropped(&self) -> Result<(), Error> {
        self.change(Request { forget_dropped: true, ..Request::default() }).map(drop)
    }

    fn change(&self, request: Request) -> Result<u64, Error> {
        let page = self.page(&Request { after: DeadLetterId::MAX, ..request })?;
        // An older version of the program reads the request as one for a page.
        page.changed.ok_or_else(|| {
            Faults::of(&self.folder)
                .unopened("the run that uses it cannot remove dead letters. Restart it, or stop it first")
        })
    }

    /// Returns the letter with this number.
    ///
    /// # Errors
    /// If the run has ended meanwhile, or cannot read it.
    pub fn letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        let request = Request { after: id.saturating_sub(1), most: 1, ..Request::default() };
        let mut page = self.page(&request)?;
        Ok(page.letters.pop_front().filter(|(number, _)| *number == id).map(|(_, letter)| letter))
    }

    /// Returns the letters, oldest first. New ones may appear among them.
    pub fn letters(&self) -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> {
        self.letters_after(0)
    }

    /// Returns the letters with higher numbers than this one, oldest first. New ones may appear among them.
    pub fn letters_after(
        &self,
        id: DeadLetterId,
    ) -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> {
        let mut page = Page::default();
        let mut after = id;
        std::iter::from_fn(move || {
            if page.letters.is_empty() && !page.is_last {
                match self.page(&Request { after, most: u64::MAX, ..Request::default() }) {
                    Ok(next) => page = next,
                    Err(error) => {
                        page.is_last = true;
                        return Some(Err(error));
                    }
                }
            }
            let (id, letter) = page.letters.pop_front()?;
            after = id;
            Some(Ok((id, letter)))
        })
    }

    /// Asks for a part of the letters.
    fn page(&self, request: &Request) -> Result<Page, Error> {
        let faults = Faults::of(&self.folder);
        let asked = self.ask(request);
        asked.unwrap_or_else(|error| {
            Err(faults.unopened(&format!("the run that uses it gives no answer: {error}. Try again")))
        })
    }

    fn ask(&self, request: &Request) -> io::Result<Result<Page, Error>> {
        let stream = self.connect()?;
        let mut text = serde_json::to_string(request)?;
        text.push('\n');
        (&stream).write_all(text.as_bytes())?;
        let mut lines = BufReader::new((&stream).take(LONGEST_ANSWER));
        let mut page = Page::default();
        loop {
            let mut text = Vec::new();
            lines.read_until(b'\n', &mut text)?;
            let is_last = match serde_json::from_slice(&text)? {
                Line::Dropped(dropped) => {
                    page.dropped = dropped;
                    continue;
                }
                Line::Changed(removed) => {
                    page.changed = Some(removed);
                    continue;
                }
                Line::Letter { id, letter } => {
                    page.letters.push_back((id, *letter));
                    continue;
                }
                // A page without letters would be asked for again without end.
                Line::More => page.letters.is_empty(),
                Line::End => true,
                Line::Failed(text) => return Ok(Err(Error::permanent(text))),
            };
            return Ok(Ok(Page { is_last, ..page }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::letter;
    use super::*;
    use crate::{DeadLetterLimits, WhenFull};

    #[test]
    fn letters_are_listed_while_the_store_is_open_page_by_page() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        assert!(RunningLetters::find(folder.path(), None).unwrap().is_none());
        let server = LettersServer::start(&store, folder.path()).unwrap();
        let running = RunningLetters::find(folder.path(), None).unwrap().unwrap();
        assert_eq!(running.letters().count(), 0);
        // More than two pages.
        let large = vec![b'x'; PAGE / 4];
        let letters: Vec<_> = (0..9).map(|_| letter(&large)).collect();
        store.add_letters(&letters, &DeadLetterLimits::default()).unwrap();
        let found: Vec<_> = running.letters().collect::<Result<_, _>>().unwrap();
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
        assert!(found.iter().all(|(_, found)| *found == letters[0]));
        assert_eq!(running.letter(3).unwrap().as_ref(), letters.first());
        assert_eq!(running.letter(10).unwrap(), None);
        assert_eq!(running.dropped().unwrap(), 0);
        // A client that asks for nothing does not keep the store open.
        let silent = running.connect().unwrap();
        drop(server);
        drop(store);
        assert!(running.letters().next().unwrap().is_err());
        assert!(RunningLetters::find(folder.path(), None).unwrap().is_none());
        assert_eq!(Store::open(folder.path()).unwrap().letters().count(), 9);
        drop(silent);
    }

    #[test]
    fn letters_are_removed_while_the_store_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let limits = DeadLetterLimits { max_count: 6000, when_full: WhenFull::Drop, ..Default::default() };
        let letters: Vec<_> = (0..6000).map(|_| letter(b"x")).collect();
        store.add_letters(&letters, &limits).unwrap();
        store.add_letters(letters.first(), &limits).unwrap();
        let server = LettersServer::start(&store, folder.path()).unwrap();
        let running = RunningLetters::find(folder.path(), None).unwrap().unwrap();
        let before = store.tally();
        assert!(before.dropped > 0);
        let ids: Vec<_> = store.letters().map(|found| found.unwrap().0).collect();
        // More than one request, a number that is there twice, and one that there is not.
        let asked: Vec<_> = ids[1..].iter().copied().chain([ids[1], DeadLetterId::MAX]).collect();
        assert_eq!(running.remove(&asked).unwrap(), before.count - 1);
        assert_eq!(running.remove(&asked).unwrap(), 0);
        assert_eq!(running.remove(&[]).unwrap(), 0);
        assert_eq!(running.dropped().unwrap(), before.dropped);
        running.forget_dropped().unwrap();
        assert_eq!(running.dropped().unwrap(), 0);
        drop(server);
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.letters().map(|found| found.unwrap().0).collect::<Vec<_>>(), ids[..1]);
        assert_eq!((store.tally().count, store.tally().dropped), (1, 0));
    }

    #[test]
    fn another_configuration_and_another_user_get_no_letters() {
        let folder = tempfile::tempdir().unwrap();
        let own = Owner::of_file(&folder.path().join("a.yaml")).unwrap();
        fs::write(folder.path().join("a.yaml"), "").unwrap();
        let state = folder.path().join("state");
        let store = Arc::new(Store::open_for(&state, Some(&own)).unwrap());
        let _server = LettersServer::start(&store, &state).unwrap();
        assert!(RunningLetters::find(&state, Some(&own)).unwrap().is_some());
        let other = Owner::of_file(&folder.path().join("b.yaml")).unwrap();
        let error = RunningLetters::find(&state, Some(&other)).err().unwrap().full();
        assert!(error.contains("belongs to another configuration"), "{error}");
        let (one, _two) = UnixStream::pair().unwrap();
        check_peer(&one, &[own_user()]).unwrap();
        assert!(check_peer(&one, &[own_user() + 1]).is_err());
    }

    #[test]
    fn a_wrong_request_ends_its_connection_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let _server = LettersServer::start(&store, folder.path()).unwrap();
        let running = RunningLetters::find(folder.path(), None).unwrap().unwrap();
        let long = "x".repeat(usize::try_from(LONGEST_REQUEST).unwrap());
        for request in ["\n".to_owned(), "{\"after\":-1}\n".to_owned(), "x\n".to_owned(), long] {
            let mut stream = running.connect().unwrap();
            // The server may close the connection before all is written.
            let _ = stream.write_all(request.as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty(), "{request}");
        }
        assert_eq!(running.letters().count(), 0);
    }

    #[test]
    fn a_stranger_with_the_name_hurts_neither_the_run_nor_a_client() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let stranger =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let taken = name(folder.path()).unwrap();
        rustix::net::bind(&stranger, &SocketAddrUnix::new_abstract_name(taken.as_bytes()).unwrap()).unwrap();
        rustix::net::listen(&stranger, 0).unwrap();
        assert!(LettersServer::start(&store, folder.path()).is_err());
        store.add_letters(&[letter(b"a")], &DeadLetterLimits::default()).unwrap();
        // The stranger accepts no client, and its queue is full.
        let client = RunningLetters { folder: folder.path().to_owned(), users: [own_user(); 3] };
        let mut queued = Vec::new();
        while let Ok(stream) = client.connect() {
            queued.push(stream);
        }
        assert!(!queued.is_empty());
        assert!(RunningLetters::find(folder.path(), None).unwrap().is_none());
    }
}
