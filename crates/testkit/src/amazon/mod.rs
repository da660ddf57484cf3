//! A server of Amazon's services, as far as the program uses them: SQS, SNS, Kinesis, Firehose and CloudWatch
//! Logs, in memory.
//!
//! There is no such server beside emulators. moto, which is the only one without a container, was rejected: a
//! suite takes many minutes with it, it loses what it gets at the same time, lets messages of a group
//! overtake each other after a visibility timeout, and checks no signature. So this server plays the
//! documented rules that the program relies on, and where a service promises little, it does the least: see
//! [`sqs`]. It checks [`signature`]s. [`script`](AmazonServer::script) lets it answer in another way, for
//! refusals of parts of a request for example.
//!
//! Blocking sockets and a thread for each connection, as in [`servers`](crate::servers).

mod firehose;
mod http;
mod kinesis;
mod logs;
mod signature;
mod sns;
mod sqs;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use firehose::DeliveryStreams;
use http::{Answer, Request, is_gone};
use kinesis::Streams;
use logs::Logs;
use sqs::Queues;

/// The region and the number of the account in names.
const REGION: &str = "us-east-1";
const ACCOUNT: &str = "123456789012";
/// The access key of the only user.
const KEY: &str = "test";
const SECRET: &str = "test";
/// How often a request that waits for messages looks for those whose visibility timeout has passed.
const LOOK: Duration = Duration::from_millis(10);

/// Answers an action with this body: the status and the body of the answer. None lets the server do it.
type Script = dyn Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync;

/// A service refuses a request.
struct Refused {
    code: &'static str,
    message: String,
}

impl Refused {
    fn new(code: &'static str, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }

    fn unknown(action: &str) -> Self {
        Self::new("UnknownOperationException", &format!("there is no action `{action}`"))
    }

    /// Returns the answer, which has the reason under both of the names that services use.
    fn answer(&self, status: u16) -> Answer {
        let Self { code, message } = self;
        let body = json!({ "__type": code, "message": message, "Message": message });
        Answer { status, body: body.to_string() }
    }
}

/// The result of an action.
type Done = Result<Value, Refused>;

/// The state of all services.
struct Services {
    queues: Queues,
    /// The names of topics. Each has a queue of the same name.
    topics: BTreeSet<String>,
    streams: Streams,
    delivery_streams: DeliveryStreams,
    logs: Logs,
}

struct Shared {
    services: Mutex<Services>,
    /// Something was changed, for which requests may wait.
    changed: Condvar,
    script: Mutex<Option<Arc<Script>>>,
    is_dropped: AtomicBool,
}

/// A server of Amazon's services in this process. Dropping it ends it.
pub struct AmazonServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Services> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request.
    fn answer(&self, request: &Request, stream: &TcpStream) -> Answer {
        if let Some(code) = request.signed().refusal(KEY, SECRET) {
            return Refused::new(code, "The request is not signed by a user.").answer(403);
        }
        let Some(target) = request.header("x-amz-target") else {
            let answer = self.lock().topic(&String::from_utf8_lossy(&request.body));
            self.changed.notify_all();
            return answer;
        };
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
            return Refused::new("SerializationException", "The body is no JSON.").answer(400);
        };
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let action = target.rsplit('.').next().unwrap_or_default();
        if let Some((status, answer)) = script.and_then(|script| script(action, &body)) {
            return Answer { status, body: answer.to_string() };
        }
        match self.call(target, &body, &|| is_gone(stream)) {
            Ok(answer) => Answer { status: 200, body: answer.to_string() },
            Err(refused) => refused.answer(400),
        }
    }

    /// Calls an action of a service that speaks JSON. `is_gone` says whether the client no longer waits.
    fn call(&self, target: &str, body: &Value, is_gone: &dyn Fn() -> bool) -> Done {
        let mut services = self.lock();
        let done = match target.split_once('.') {
            Some(("AmazonSQS", "ReceiveMessage")) => return self.receive(services, body, is_gone),
            Some(("AmazonSQS", action)) => services.queues.call(action, body),
            Some(("Kinesis_20131202", action)) => services.streams.call(action, body),
            Some(("Firehose_20150804", action)) => services.delivery_streams.call(action, body),
            Some(("Logs_20140328", action)) => services.logs.call(action, body),
            _ => Err(Refused::unknown(target)),
        };
        drop(services);
        self.changed.notify_all();
        done
    }

    /// Delivers messages of a queue, for which it waits. A client that has gone gets none: they would be
    /// hidden from the next one.
    fn receive(
        &self,
        mut services: MutexGuard<'_, Services>,
        body: &Value,
        is_gone: &dyn Fn() -> bool,
    ) -> Done {
        let wait = Duration::from_secs(body["WaitTimeSeconds"].as_u64().unwrap_or(0));
        let until = Instant::now() + wait;
        loop {
            let (queue, now) = (services.queues.of(body)?, Instant::now());
            let is_over = is_gone();
            if queue.has_some(now) && !is_over {
                return Ok(queue.receive(body, now));
            }
            if is_over || now >= until || self.is_dropped.load(Ordering::Relaxed) {
                return Ok(json!({}));
            }
            let pause = LOOK.min(until.saturating_duration_since(now));
            let waited = self.changed.wait_timeout(services, pause);
            services = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader)? {
        shared.answer(&request, stream).write(stream)?;
    }
    Ok(())
}

impl AmazonServer {
    /// Starts a server.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            services: Mutex::new(Services {
                queues: Queues::new(address.to_string()),
                topics: BTreeSet::new(),
                streams: Streams::default(),
                delivery_streams: DeliveryStreams::default(),
                logs: Logs::default(),
            }),
            changed: Condvar::new(),
            script: Mutex::new(None),
            is_dropped: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_dropped.load(Ordering::Relaxed) {
                    return;
                }
                let shared = accepting.clone();
                // A client that closes its connection is no error.
                std::thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Lets the server answer actions as the test wants.
    pub fn script(&self, script: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(script));
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the options `region`, `url` and `auth` of a component, for a client at this address of the
    /// server.
    pub fn options(address: impl Display) -> String {
        format!(
            "region: {REGION}, url: 'http://{address}', \
             auth: {{ access_key_id: {KEY}, secret_access_key: {SECRET} }}"
        )
    }

    /// Calls an action of a service that speaks JSON, such as `AmazonSQS.ReceiveMessage`.
    ///
    /// # Panics
    /// If the service refuses it.
    pub fn call(&self, action: &str, body: &Value) -> Value {
        self.shared.call(action, body, &|| false).unwrap_or_else(|refused| panic!("{}", refused.message))
    }

    fn changed<T>(&self, change: impl FnOnce(&mut Services) -> T) -> T {
        let changed = change(&mut self.shared.lock());
        self.shared.changed.notify_all();
        changed
    }
}

/// Queues and topics.
impl AmazonServer {
    /// Creates a queue, which is in order if its name ends with `.fifo`. Returns its URL.
    pub fn create_queue(&self, name: &str) -> String {
        self.changed(|services| services.queues.create(name))
    }

    /// Sends messages to a queue, all in the group `g`.
    ///
    /// # Panics
    /// If there is no such queue, or it refuses one.
    pub fn enqueue(&self, queue: &str, texts: impl IntoIterator<Item = String>) {
        let entry = |text: String| json!({ "MessageBody": text, "MessageGroupId": "g", "MessageDeduplicationId": text });
        texts.into_iter().for_each(|text| self.send(queue, &entry(text)));
    }

    /// Sends a message to a queue: an entry of `SendMessageBatch`.
    ///
    /// # Panics
    /// If there is no such queue, or it refuses the message.
    pub fn send(&self, queue: &str, entry: &Value) {
        self.changed(|services| {
            let queue = services.queues.named(queue).unwrap_or_else(|refused| panic!("{}", refused.message));
            queue.send(entry, Instant::now()).unwrap_or_else(|code| panic!("{code}"));
        });
    }

    /// Returns all messages that were ever sent to a queue, or to a topic of this name, as they were sent.
    /// Those that a queue in order recognised are not among them.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn sent(&self, queue: &str) -> Vec<Value> {
        self.changed(|services| match services.queues.named(queue) {
            Ok(queue) => queue.sent().to_vec(),
            Err(refused) => panic!("{}", refused.message),
        })
    }

    /// Returns how many messages of a queue can be received, and how many were and are not deleted.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn queued(&self, queue: &str) -> (usize, usize) {
        self.changed(|services| match services.queues.named(queue) {
            Ok(queue) => queue.counts(Instant::now()),
            Err(refused) => panic!("{}", refused.message),
        })
    }

    /// Creates a topic, and a queue of the same name that gets its messages as they are. Returns the ARN of
    /// the topic.
    pub fn create_topic(&self, name: &str) -> String {
        self.changed(|services| {
            services.topics.insert(name.to_owned());
            services.queues.create(name);
        });
        format!("arn:aws:sns:{REGION}:{ACCOUNT}:{name}")
    }
}

/// Streams of records, and logs.
impl AmazonServer {
    /// Creates a stream with this number of shards.
    pub fn create_stream(&self, name: &str, shards: u32) {
        self.changed(|services| services.streams.create(name, shards));
    }

    /// Puts records into a stream, each with its partition key.
    ///
    /// # Panics
    /// If there is no such stream, or it refuses one.
    pub fn put_records<'a>(&self, stream: &str, records: impl IntoIterator<Item = (&'a str, String)>) {
        self.changed(|services| {
            let stream =
                services.streams.named(stream).unwrap_or_else(|refused| panic!("{}", refused.message));
            for (key, data) in records {
                let put = stream.put(key, &STANDARD.encode(data));
                put.unwrap_or_else(|refused| panic!("{}", refused.message));
            }
        });
    }

    /// Returns the records of a stream, shard by shard, each with its partition key.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn records(&self, stream: &str) -> Vec<(String, Vec<u8>)> {
        self.changed(|services| {
            let stream =
                services.streams.named(stream).unwrap_or_else(|refused| panic!("{}", refused.message));
            let decoded = |data: &str| STANDARD.decode(data).unwrap_or_default();
            stream.all().map(|(key, data)| (key.to_owned(), decoded(data))).collect()
        })
    }

    /// Divides a shard in the middle of its keys.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn split_shard(&self, stream: &str, shard: &str) {
        self.changed(|services| {
            let split = services.streams.named(stream).and_then(|stream| stream.split(shard));
            split.unwrap_or_else(|refused| panic!("{}", refused.message));
        });
    }

    /// Creates a delivery stream.
    pub fn create_delivery_stream(&self, name: &str) {
        self.changed(|services| services.delivery_streams.create(name));
    }

    /// Returns what a delivery stream has got.
    pub fn delivered(&self, name: &str) -> Vec<u8> {
        self.changed(|services| services.delivery_streams.delivered(name))
    }

    /// Returns the events of a log stream in the order of their times, each with its time in milliseconds
    /// since 1970. None if there is no such stream.
    pub fn events(&self, group: &str, stream: &str) -> Vec<(i64, String)> {
        self.changed(|services| services.logs.events(group, stream))
    }
}

impl Drop for AmazonServer {
    fn drop(&mut self) {
        self.shared.is_dropped.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        // It waits for a connection.
        let is_woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            let _ = thread.join();
        }
    }
}
