//! The faults to inject, and the rules that select requests for them.

use regex::Regex;
use std::time::Duration;

/// A fault. If several rules match a request, their delays add up; of each other fault, the first rule
/// counts.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Delays the request by this time.
    Delay(Duration),
    /// Does not ask the upstream; the client receives this answer.
    Status {
        /// The status code.
        code: u16,
        /// The value of the header `Retry-After`, in seconds.
        retry_after: Option<u64>,
        /// The body.
        body: String,
    },
    /// Passes the request on, but discards its answer; the client receives this one.
    StatusAfter {
        /// The status code.
        code: u16,
        /// The value of the header `Retry-After`, in seconds.
        retry_after: Option<u64>,
        /// The body.
        body: String,
    },
    /// Closes both connections after this many bytes of a longer request body.
    CutRequest {
        /// The number of bytes.
        after: u64,
    },
    /// Closes both connections after this many bytes of a longer answer body.
    CutBody {
        /// The number of bytes.
        after: u64,
    },
    /// Limits the rate of bodies, in each direction.
    Slow {
        /// The rate in bytes per second; not zero.
        bytes_per_second: u64,
    },
    /// Changes the answer's `Content-Length` by this much. If it is larger, the connection closes at the end
    /// of the body. If it is smaller, the body is cut to it, and nothing looks wrong.
    WrongLength {
        /// The difference in bytes.
        by: i64,
    },
    /// Replaces the answer's `ETag`, including quotes. An answer without one is not changed.
    ChangeEtag(String),
    /// Does not ask the upstream, and never answers the client.
    Hang,
}

/// The matching requests that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// All.
    Always,
    /// The first n.
    First(u64),
    /// Only the nth; the first is 1.
    Nth(u64),
    /// Every nth: with 3 the third, the sixth, …
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

/// A fault, and the requests that it applies to: all, unless restricted.
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
    /// Creates a rule for all requests.
    pub fn new(fault: Fault) -> Self {
        Self { fault, method: None, text: None, pattern: None, times: Times::Always, seen: 0 }
    }

    /// Restricts the rule to requests with this method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Restricts the rule to requests whose path with query, as sent, contains this text.
    pub fn path(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Restricts the rule to requests whose path with query, as sent, matches this pattern.
    pub fn pattern(mut self, pattern: Regex) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Restricts the rule to some of its matching requests. They are counted from when the rule was set.
    pub fn times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    /// Counts a matching request; true if the fault applies to it.
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

/// An answer of the proxy itself.
#[derive(Debug, Clone)]
pub(super) struct Instead {
    pub code: u16,
    pub retry_after: Option<u64>,
    pub body: String,
}

/// All faults for one request.
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
