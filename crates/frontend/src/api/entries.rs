//! The bodies of requests: objects that have each entry once.
//!
//! Readers of JSON disagree on an entry that is there twice: a proxy that checks requests may see
//! `"all":false`, and this process `"all":true`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::reply::Refusal;

/// Returns the entries of a body. `None` if it is no object.
pub(super) fn entries(body: &[u8]) -> Result<Option<Map<String, Value>>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Entries { is_repeated: true, .. }) => {
            Err(Refusal::bad("an entry of the object is there twice: send each entry once"))
        }
        Ok(Entries { entries, .. }) => Ok(Some(entries)),
        Err(_) => Ok(None),
    }
}

struct Entries {
    entries: Map<String, Value>,
    is_repeated: bool,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut read = Entries { entries: Map::new(), is_repeated: false };
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            read.is_repeated |= read.entries.insert(name, value).is_some();
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_that_is_there_twice_is_refused() {
        let read = |body: &str| entries(body.as_bytes());
        let one = read(r#"{"ids":[1,2],"limit":3}"#).unwrap().unwrap();
        assert_eq!(Value::Object(one), json!({ "ids": [1, 2], "limit": 3 }));
        assert_eq!(read("{}").unwrap(), Some(Map::new()));
        for twice in [r#"{"all":false,"all":true}"#, r#"{"all":true,"a\u006cl":true}"#] {
            let refused = read(twice).unwrap_err();
            assert_eq!(refused.reason, "an entry of the object is there twice: send each entry once");
        }
        for other in ["", "[]", "1", "null", "{", r#"{"a":1}{"b":2}"#] {
            assert_eq!(read(other).unwrap(), None, "{other}");
        }
    }
}
