//! The suite of message transforms, in this process.
//!
//! Each is given hostile messages, in batches of different sizes. Every message leaves once, or is settled;
//! the result does not depend on the batches; nothing panics; memory stays within bounds. The duty to settle
//! is as in `thalweg_engine::testing::transform_conforms`, which needs the type of a component and so cannot
//! walk the registry.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_config::Document;
use thalweg_engine::{Built, Output, Outputs, Registry, Role, Step, TransformConfig, testing};
use thalweg_record::{Ack, Outcome, Settlement};

use crate::cases::messages::{Gives, Transform};
use crate::suite::Report;

/// How much larger than its input the result may be, beside [`FIXED`].
const GROWTH: usize = 40;
/// Bytes that a result may have whatever its input.
const FIXED: usize = 4 << 20;
/// The sizes of batches, in messages.
const BATCHES: &[usize] = &[usize::MAX, 1, 2, 7];

/// Tests each case.
pub fn message_transform(registry: &Registry, cases: &[Transform], report: &mut Report<'_>) {
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return report.note("a folder", "is made", Some(error.to_string())),
    };
    for case in cases {
        let name = format!("{} {}", case.component, case.options);
        let config = match config(registry, case, folder.path()) {
            Ok(config) => config,
            Err(mistake) => {
                report.note(&name, "builds", Some(mistake));
                continue;
            }
        };
        let whole = applied(&*config, &hostile(), usize::MAX);
        report.note(&name, "no panic", whole.as_ref().err().cloned());
        let Ok(whole) = whole else { continue };
        report.note(&name, "memory", too_large(&whole));
        report.note(&name, "each leaves once", lost(&whole, case.gives));
        let different = BATCHES.iter().filter(|_| case.is_free_of_batches).find_map(|size| {
            match applied(&*config, &hostile(), *size) {
                Err(panicked) => Some(panicked),
                Ok(result) => lost(&result, case.gives).or_else(|| difference(&whole, &result, *size)),
            }
        });
        report.note(&name, "any batches", different);
    }
}

/// Messages that no author thought of, among usual ones.
pub fn hostile() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\0".to_vec(),
        b"a\0b".to_vec(),
        vec![0xFF, 0xFE, b'a'],
        vec![0xC3],
        b" ".to_vec(),
        b"\n".to_vec(),
        b"\"".to_vec(),
        b"{".to_vec(),
        b"[[]".to_vec(),
        b"{\"a\":1}".to_vec(),
        b"{\"a\":\"x\",\"a\":2}".to_vec(),
        b"{\"a\":{\"b\":[1,{\"c\":null}]}}".to_vec(),
        b"[1,[2],{\"a\":3}]".to_vec(),
        b"{\"n\":99999999999999999999999999,\"m\":1e999}".to_vec(),
        b"a=1 b=\"two words\" c".to_vec(),
        b"a,b".to_vec(),
        b"a,b,c,\"d".to_vec(),
        b"error: it failed".to_vec(),
        b"9223372036854775808".to_vec(),
        b"NaN".to_vec(),
        b"{{ payload }} %{WORD} $1 \\".to_vec(),
        "naïve ☃ \u{202E} 𝄞".as_bytes().to_vec(),
        b"YSBtZXNzYWdl".to_vec(),
    ];
    all.push([b"{\"deep\":".to_vec(), vec![b'['; 5000], vec![b']'; 5000], b"}".to_vec()].concat());
    all.push(vec![b'x'; 1 << 20]);
    all.extend((0..20).map(|number| format!("[{number}] message, e{}", number % 3).into_bytes()));
    all
}

fn config(registry: &Registry, case: &Transform, folder: &Path) -> Result<Arc<dyn TransformConfig>, String> {
    let known = registry.get(Role::Transform, case.component).ok_or("it is not registered")?;
    let options = case.options_in(folder).map_err(|error| error.to_string())?;
    let document = Document::parse("case.yaml", &options).map_err(|mistakes| mistakes.render(false))?;
    let mut mistakes = document.diagnostics();
    match known.decode(document.root(), document.root().span, &mut mistakes) {
        Some(Built::Transform(Step::Messages(config))) => Ok(config),
        Some(_) => Err("it is no transform of messages".to_owned()),
        None => Err(mistakes.to_string()),
    }
}

/// The output that a transform made of the messages.
struct Given {
    /// The messages of each output: payload and fields.
    messages: BTreeMap<Output, Vec<String>>,
    files: usize,
    bytes: usize,
    input: usize,
    input_bytes: usize,
    batches: usize,
    settlements: Vec<Settlement>,
}

fn applied(config: &dyn TransformConfig, payloads: &[Vec<u8>], size: usize) -> Result<Given, String> {
    let applied = catch_unwind(AssertUnwindSafe(|| apply(config, payloads, size)));
    applied.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("it panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default()))
    })
}

fn apply(config: &dyn TransformConfig, payloads: &[Vec<u8>], size: usize) -> Result<Given, String> {
    let settlements: Arc<Mutex<Vec<Settlement>>> = Arc::default();
    let mut transform = config.build(&testing::context()).map_err(|error| error.to_string())?;
    let mut out = Outputs::new("test".into());
    let mut given = Given {
        messages: BTreeMap::new(),
        files: 0,
        bytes: 0,
        input: payloads.len(),
        input_bytes: payloads.iter().map(Vec::len).sum(),
        batches: 0,
        settlements: Vec::new(),
    };
    for chunk in payloads.chunks(size.min(payloads.len()).max(1)) {
        let noted = settlements.clone();
        let ack = Ack::new("test".into(), move |settlement| {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(settlement);
        });
        transform.apply(testing::batch_with(chunk, ack), &mut out).map_err(|error| error.to_string())?;
        given.batches += 1;
        // As the engine does before the next batch.
        given.resume(&mut *transform, &mut out)?;
    }
    transform.finish(&mut out).map_err(|error| error.to_string())?;
    given.resume(&mut *transform, &mut out)?;
    drop((transform, out));
    given.settlements = std::mem::take(&mut *settlements.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(given)
}

impl Given {
    /// Takes what was sent, until the transform holds nothing back.
    fn resume(
        &mut self,
        transform: &mut dyn thalweg_engine::Transform,
        out: &mut Outputs,
    ) -> Result<(), String> {
        self.take(out);
        while let Some(pause) = out.take_held() {
            std::thread::sleep(pause);
            transform.resume(out).map_err(|error| error.to_string())?;
            self.take(out);
        }
        Ok(())
    }

    fn take(&mut self, out: &mut Outputs) {
        for file in out.take_files() {
            self.files += 1;
            file.settle(Outcome::Delivered);
        }
        for (output, batch) in out.take() {
            let rows = testing::rows(batch.fields());
            let messages = testing::payloads(&batch).into_iter().enumerate();
            let text = messages
                .map(|(row, payload)| format!("{payload:?} {}", rows.get(row).cloned().unwrap_or_default()));
            let text: Vec<String> = text.collect();
            self.bytes += text.iter().map(String::len).sum::<usize>();
            self.messages.entry(output).or_default().extend(text);
            batch.settle(Outcome::Delivered);
        }
    }
}

fn lost(given: &Given, gives: Gives) -> Option<String> {
    if given.settlements.len() != given.batches {
        return Some(format!("{} of {} batches were settled", given.settlements.len(), given.batches));
    }
    if let Some(dropped) = given.settlements.iter().find(|settlement| !settlement.outcome.is_safe()) {
        return Some(format!("a message was dropped: {dropped:?}"));
    }
    let left: usize = given.messages.values().map(Vec::len).sum();
    let is_right = match gives {
        Gives::One => left == given.input,
        Gives::Some => left <= given.input,
        Gives::Any => left + given.files > 0,
    };
    (!is_right).then(|| format!("{left} messages and {} files left of {}", given.files, given.input))
}

fn too_large(given: &Given) -> Option<String> {
    let most = given.input_bytes * GROWTH + FIXED;
    (given.bytes > most).then(|| format!("{} bytes became {}", given.input_bytes, given.bytes))
}

fn difference(whole: &Given, given: &Given, size: usize) -> Option<String> {
    let outputs = whole.messages.keys().chain(given.messages.keys());
    let empty = Vec::new();
    outputs.into_iter().find_map(|output| {
        let (one, other) =
            (whole.messages.get(output).unwrap_or(&empty), given.messages.get(output).unwrap_or(&empty));
        let first = one.iter().zip(other).find(|(one, other)| one != other);
        let cut = |text: &String| text.chars().take(100).collect::<String>();
        match first {
            Some((one, other)) => {
                Some(format!("in batches of {size}, {output:?} gives {} instead of {}", cut(other), cut(one)))
            }
            None if one.len() != other.len() => Some(format!(
                "in batches of {size}, {output:?} gives {} messages, not {}",
                other.len(),
                one.len()
            )),
            None => None,
        }
    })
}
