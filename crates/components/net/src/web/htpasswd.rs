//! Reads password files of the program `htpasswd`: bcrypt, Apache's variant of MD5, and SHA-1.
//!
//! bcrypt is slow by design, and HTTP sends the password with each request. Therefore the digest of the last
//! correct header is cached for each user. No more passwords are checked at once than the machine has cores,
//! so that requests with wrong passwords cannot take the threads that others need.
//!
//! A wrong name or password is checked against one hash of each cost in the file. So all refusals take the
//! same time, which therefore does not tell which names exist. The rejected alternative was the slowest hash
//! alone, for names that are not in the file: a name with a faster hash was refused sooner.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha1::{Digest, Sha1};
use thalweg_engine::Error;
use thalweg_redact::is_same_secret;
use tokio::sync::Semaphore;

const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The users and password hashes of a file.
#[derive(Debug)]
pub struct Htpasswd {
    users: HashMap<String, Hash>,
    /// One hash of each cost in the file, by cost.
    samples: BTreeMap<u32, Hash>,
    /// Limits the passwords that are checked at once.
    checks: Arc<Semaphore>,
    /// The digest of the last correct `Authorization` header of each user.
    known: Mutex<HashMap<String, [u8; 20]>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hash {
    Bcrypt(String),
    Apr1 { salt: String, hash: String },
    Sha1(Vec<u8>),
}

impl Htpasswd {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, or one of its lines cannot be used.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path)
            .map_err(|error| thalweg_stream::io_error::io_error("read", path, &error))?;
        Self::parse(&text).map_err(|(line, reason)| {
            Error::permanent(format!("line {line} of `{}` cannot be used: {reason}", path.display()))
        })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The number of the line that cannot be used, counted from 1, and why.
    pub fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason| (number + 1, reason);
            let (user, hash) = line.split_once(':').ok_or(wrong("it is not `USER:HASH`."))?;
            users.insert(user.to_owned(), Hash::parse(hash).map_err(wrong)?);
        }
        let samples = users.values().map(|hash: &Hash| (hash.cost(), hash.clone())).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { users, samples, checks: Arc::new(Semaphore::new(cores)), known: Mutex::default() })
    }

    /// Returns the user of an `Authorization` header if name and password are correct.
    pub async fn user(&self, header: &[u8]) -> Option<String> {
        let (name, password) = credentials(header)?;
        let digest: [u8; 20] = Sha1::digest(header).into();
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&name) == Some(&digest) {
            return Some(name);
        }
        let (own, others) = self.to_check(&name);
        // The permit belongs to the check, which continues if the client disconnects.
        let permit = self.checks.clone().acquire_owned().await.ok()?;
        let check = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let is_right = own.is_some_and(|hash| hash.matches(&password));
            if !is_right {
                // Only the time of these checks counts.
                for hash in &others {
                    let _ = black_box(hash.matches(&password));
                }
            }
            is_right
        });
        if !check.await.unwrap_or(false) {
            return None;
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), digest);
        Some(name)
    }

    /// Returns the hash of a user, if the file has the name, and those to check if it does not match.
    /// Together they have each cost in the file once.
    fn to_check(&self, name: &str) -> (Option<Hash>, Vec<Hash>) {
        let own = self.users.get(name).cloned();
        let mut others = self.samples.clone();
        if let Some(own) = &own {
            others.remove(&own.cost());
        }
        (own, others.into_values().collect())
    }
}

/// Parses the name and password from an `Authorization` header.
pub fn credentials(header: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let (name, password) = decoded.split_at(colon);
    Some((String::from_utf8(name.to_vec()).ok()?, password.get(1..)?.to_vec()))
}

impl Hash {
    fn parse(hash: &str) -> Result<Self, &'static str> {
        if hash.starts_with("$2") {
            return Ok(Hash::Bcrypt(hash.to_owned()));
        }
        if let Some(rest) = hash.strip_prefix("$apr1$") {
            let (salt, hash) = rest.split_once('$').ok_or("its hash is cut off.")?;
            return Ok(Hash::Apr1 { salt: salt.to_owned(), hash: hash.to_owned() });
        }
        if let Some(encoded) = hash.strip_prefix("{SHA}") {
            return STANDARD.decode(encoded).map(Hash::Sha1).map_err(|_| "its hash is not base64.");
        }
        Err("its hash has an unknown format. Create it with `htpasswd -B`, which uses bcrypt.")
    }

    /// Returns a number that is larger for a hash that takes longer to check.
    fn cost(&self) -> u32 {
        match self {
            Hash::Sha1(_) => 0,
            Hash::Apr1 { .. } => 1,
            // `$2y$COST$...`
            Hash::Bcrypt(hash) => 2 + hash.split('$').nth(2).and_then(|cost| cost.parse().ok()).unwrap_or(0),
        }
    }

    fn matches(&self, password: &[u8]) -> bool {
        match self {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::Apr1 { salt, hash } => {
                is_same_secret(apr1(password, salt.as_bytes()).as_bytes(), hash.as_bytes())
            }
            Hash::Sha1(hash) => is_same_secret(&Sha1::digest(password), hash),
        }
    }
}

/// Returns the hash of Apache's variant of the MD5 password scheme.
fn apr1(password: &[u8], salt: &[u8]) -> String {
    let salt = salt.get(..8).unwrap_or(salt);
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut outer = Md5::new().chain_update(password).chain_update(b"$apr1$").chain_update(salt);
    for chunk in password.chunks(16) {
        outer.update(inner.get(..chunk.len()).unwrap_or_default());
    }
    let mut length = password.len();
    while length > 0 {
        match length % 2 {
            1 => outer.update([0]),
            _ => outer.update(password.get(..1).unwrap_or_default()),
        }
        length /= 2;
    }
    let mut digest = outer.finalize();
    for round in 0..1000 {
        let mut next = Md5::new();
        let (first, last): (&[u8], &[u8]) =
            if round % 2 == 1 { (password, &digest) } else { (&digest, password) };
        next.update(first);
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(last);
        digest = next.finalize();
    }
    let mut text = String::with_capacity(22);
    let byte = |at: usize| digest.get(at).map_or(0, |&byte| u32::from(byte));
    let mut write = |mut value: u32, letters: usize| {
        for _ in 0..letters {
            text.push(char::from(LETTERS[(value % 64) as usize]));
            value /= 64;
        }
    };
    for (high, middle, low) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        write(byte(high) << 16 | byte(middle) << 8 | byte(low), 4);
    }
    write(byte(11), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(user: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    }

    #[tokio::test]
    async fn passwords_of_every_kind_are_recognised() {
        // The examples of Apache's documentation.
        let file = "# users\n\n\
            bcrypt:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n\
            md5:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\n\
            sha:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n";
        let users = Htpasswd::parse(file).unwrap();
        for name in ["bcrypt", "md5", "sha"] {
            // Twice: the second time the cache answers.
            for _ in 0..2 {
                assert_eq!(users.user(&header(name, "myPassword")).await.as_deref(), Some(name));
            }
            for wrong in ["mypassword", "", "myPassword:"] {
                assert_eq!(users.user(&header(name, wrong)).await, None, "{name} {wrong}");
            }
        }
        assert_eq!(users.user(&header("nobody", "myPassword")).await, None);
        for wrong in ["", "Basic", "Basic ?", "Bearer abc", "Basic Og"] {
            assert_eq!(users.user(wrong.as_bytes()).await, None);
        }
    }

    #[tokio::test]
    async fn a_refusal_costs_the_same_for_every_name() {
        let slow = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";
        let file = format!("sha:{{SHA}}VBPuJHI7uixaa6LQGWx4s+5GKNE=\na:$2y$04$short\nslow:{slow}\n");
        let users = Htpasswd::parse(&file).unwrap();
        assert_eq!(users.to_check("slow").0, Some(Hash::Bcrypt(slow.to_owned())));
        for name in ["sha", "a", "slow", "nobody"] {
            let (own, others) = users.to_check(name);
            assert_eq!(own.is_some(), name != "nobody");
            let mut costs: Vec<u32> = own.iter().chain(&others).map(Hash::cost).collect();
            costs.sort_unstable();
            assert_eq!(costs, [0, 2 + 4, 2 + 5], "{name}");
        }
        // The right password of another user admits no user.
        assert_eq!(users.user(&header("nobody", "myPassword")).await, None);
        assert_eq!(users.user(&header("slow", "myPassword")).await.as_deref(), Some("slow"));
        assert_eq!(Htpasswd::parse("").unwrap().user(&header("nobody", "x")).await, None);
    }

    #[tokio::test]
    async fn no_more_passwords_are_checked_at_once_than_there_are_cores() {
        let file = "a:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n";
        let users = Htpasswd::parse(file).unwrap();
        let cores = std::thread::available_parallelism().unwrap().get() as u32;
        let taken = users.checks.clone().acquire_many_owned(cores).await.unwrap();
        let short = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(short, users.user(&header("a", "wrong"))).await.is_err());
        drop(taken);
        assert_eq!(users.user(&header("a", "wrong")).await, None);
    }

    #[test]
    fn lines_that_cannot_be_used_are_told() {
        let line = |text: &str| Htpasswd::parse(text).map(|_| ()).unwrap_err().0;
        assert_eq!(line("a:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\nb"), 2);
        assert_eq!(line("a:plain"), 1);
        assert_eq!(line("a:$apr1$salt"), 1);
        assert_eq!(line("a:{SHA}?"), 1);
    }
}
