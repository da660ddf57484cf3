//! What is to be done wrong, and with which requests.

use regex::Regex;
use std::time::Duration;

/// What is done wrong with a request. Where several rules are for one request, their delays add up; of each other
/// fault the first rule counts.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The request is passed on so much later.
    Delay(Duration),
    /// The upstream is not asked; the client gets this.
    Status {
        /// The status.
        code: u16,
        /// Seconds, in the header `Retry-After`.
        retry_after: Option<u64>,
        /// The body.
        body: String,
    },
    /// The upstream is asked and does it, but its answer is lost, and the client gets this.
    StatusAfter {
        /// The status.
        code: u16,
        /// Seconds, in the header `Retry-After`.
        retry_after: Option<u64>,
        /// The body.
        body: String,
    },
    /// Both connections are closed when so many bytes of a longer request body were passed on.
    CutRequest {
        /// Bytes.
        after: u64,
    },
    /// Both connections are closed when the client was sent so many bytes of a longer answer body.
    CutBody {
        /// Bytes.
        after: u64,
    },
    /// Bodies pass no faster, in each direction.
    Slow {
        /// Not zero.
        bytes_per_second: u64,
    },
    /// The answer's `Content-Length` differs by so much from what the upstream said. With more, the connection closes
    /// where the body ends; with less, that is all that is sent, and nothing looks wrong.
    WrongLength {
        /// Bytes.
        by: i64,
    },
    /// The answer's `ETag`, quotes and all. An answer that has none is left as it is.
    ChangeEtag(String),
    /// The upstream is not asked, and the client gets no answer however long it waits.
    Hang,
}

/// Which of the requests that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// All.
    Always,
    /// So many, then none.
    First(u64),
    /// One: the first is 1.
    Nth(u64),
    /// Each that completes so many: with 3 the third, the sixth, …
    Every(u64),
}

impl Times {
    fn include(self, number: u64) -> bool {
        match self {
            Self::Always => true,
            Self::First(many) => number <= many,
            Self::Nth(one) => number == one,
            Self::Every(many) => many > 0 && number.is_multiple_of(many),
        }
    }
}

/// A fault, and the requests that it is for: all, unless it is narrowed down.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    method: Option<String>,
    text: Option<String>,
    pattern: Option<Regex>,
    times: Times,
    seen: u64,
}

impl Rule {
    /// For all requests.
    pub fn new(fault: Fault) -> Self {
        Self { fault, method: None, text: None, pattern: None, times: Times::Always, seen: 0 }
    }

    /// Only for requests with this method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only for requests whose path with query, as it is sent, contains this text.
    pub fn path(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Only for requests whose path with query, as it is sent, matches this pattern.
    pub fn pattern(mut self, pattern: Regex) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Only for some of those that the rest of the rule is for. They are counted from when the rule was set.
    pub fn times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    /// Whether the fault is for this request, which is counted.
    fn is_for(&mut self, method: &str, target: &str) -> bool {
        let matches = self.method.as_deref().is_none_or(|wanted| wanted == method)
            && self.text.as_deref().is_none_or(|text| target.contains(text))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(target));
        if matches {
            self.seen += 1;
        }
        matches && self.times.include(self.seen)
    }
}

/// An answer that the proxy gives by itself.
#[derive(Debug, Clone)]
pub(super) struct Instead {
    pub code: u16,
    pub retry_after: Option<u64>,
    pub body: String,
}

/// All that is done wrong with one request.
#[derive(Debug, Default, Clone)]
pub(super) struct Plan {
    pub delay: Duration,
    pub hang: bool,
    pub instead: Option<Instead>,
    pub afterwards: Option<Instead>,
    pub cut_request: Option<u64>,
    pub cut_body: Option<u64>,
    pub bytes_per_second: Option<u64>,
    pub wrong_length: Option<i64>,
    pub etag: Option<String>,
}

impl Plan {
    pub fn of(rules: &mut [Rule], method: &str, target: &str) -> Self {
        let mut plan = Self::default();
        for rule in rules {
            if rule.is_for(method, target) {
                plan.add(rule.fault.clone());
            }
        }
        plan
    }

    fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Delay(delay) => self.delay += delay,
            Fault::Hang => self.hang = true,
            Fault::Status { code, retry_after, body } => {
                self.instead.get_or_insert(Instead { code, retry_after, body });
            }
            Fault::StatusAfter { code, retry_after, body } => {
                self.afterwards.get_or_insert(Instead { code, retry_after, body });
            }
            Fault::CutRequest { after } => {
                self.cut_request.get_or_insert(after);
            }
            Fault::CutBody { after } => {
                self.cut_body.get_or_insert(after);
            }
            Fault::Slow { bytes_per_second } => {
                self.bytes_per_second.get_or_insert(bytes_per_second.max(1));
            }
            Fault::WrongLength { by } => {
                self.wrong_length.get_or_insert(by);
            }
            Fault::ChangeEtag(etag) => {
                self.etag.get_or_insert(etag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(times: Times) -> Vec<u64> {
        let mut rules = [Rule::new(Fault::Hang).method("PUT").path("a=1").times(times)];
        let mut hit = |method: &str, target: &str| Plan::of(&mut rules, method, target).hang;
        assert!(!hit("GET", "/x?a=1") && !hit("PUT", "/x?a=2"));
        (1..=6).filter(|_| hit("PUT", "/x?a=1")).collect()
    }

    #[test]
    fn only_what_a_rule_is_for_is_counted() {
        assert_eq!(hits(Times::Always), [1, 2, 3, 4, 5, 6]);
        assert_eq!(hits(Times::First(2)), [1, 2]);
        assert_eq!(hits(Times::Nth(3)), [3]);
        assert_eq!(hits(Times::Every(2)), [2, 4, 6]);
    }

    #[test]
    fn a_pattern_is_for_path_and_query() {
        let mut rules = [Rule::new(Fault::Hang).pattern(Regex::new(r"^/b/.*partNumber=[23]\b").unwrap())];
        assert!(Plan::of(&mut rules, "PUT", "/b/key?partNumber=2&uploadId=x").hang);
        assert!(!Plan::of(&mut rules, "PUT", "/b/key?partNumber=22&uploadId=x").hang);
    }

    #[test]
    fn delays_add_up_and_of_each_other_fault_the_first_counts() {
        let second = Duration::from_secs(1);
        let faults = [Fault::Delay(second), Fault::CutBody { after: 1 }, Fault::CutBody { after: 2 }];
        let mut rules: Vec<_> = faults.into_iter().chain([Fault::Delay(second)]).map(Rule::new).collect();
        let plan = Plan::of(&mut rules, "GET", "/");
        assert_eq!((plan.delay, plan.cut_body), (2 * second, Some(1)));
    }
}
